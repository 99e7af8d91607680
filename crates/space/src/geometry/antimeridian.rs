//! Cuts geometries whose longitudes continue beyond 180 degrees at the antimeridian (RFC 7946,
//! section 3.1.9). Z and M at a cut are interpolated.

use super::band::{Ring, Vertex, clip_path, clip_polygon, ring_points};
use super::convert::to_geo;
use super::dissolve::{add_touching_vertices, dissolve};
use super::edges::EdgeTree;
use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::segment::Location;
use super::validity::{InvalidGeometry, check_valid};
use super::walk::{Visitor, walk};
use super::write::Writer;

/// Positions nearer to the antimeridian than this, in degrees, are moved onto it; a cut would leave
/// a sliver.
const SLIVER_DEGREES: f64 = 1e-6;

/// How often one geometry may go round the earth.
const TURNS_MAX: f64 = 4.0;

/// Why a geometry cannot be cut at the antimeridian.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AntimeridianError {
    /// The bytes are not a geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// It goes round the earth several times.
    #[error("the geometry cannot be cut at the antimeridian: it goes round the earth more than {TURNS_MAX} times")]
    Turns,
    /// It covers some places twice.
    #[error(
        "the polygon cannot be cut at the antimeridian: it spans more than one turn around the earth ({degrees} \
         degrees of longitude) and covers or touches places twice; divide it into parts that do not overlap"
    )]
    Overlap {
        /// How many degrees of longitude it spans.
        degrees: f64,
    },
    /// A hole does not lie in its polygon.
    #[error("the polygon cannot be cut at the antimeridian: a hole does not lie inside of its outer ring")]
    Hole,
    /// The polygon is not valid, so its parts are not valid either.
    #[error(
        "the polygon cannot be cut at the antimeridian, because it or its parts would not be valid: {0}; repair it first"
    )]
    Invalid(#[from] InvalidGeometry),
}

/// Cuts a geometry of stored form at the antimeridian into parts between -180 and 180. Its
/// longitudes may lie outside of that range, so that consecutive positions are joined the short
/// way. A geometry in range is returned unchanged.
///
/// # Errors
/// When the bytes are not a geometry, or a polygon cannot be cut into valid parts.
pub fn cut_at_antimeridian(bytes: &[u8]) -> Result<Vec<u8>, AntimeridianError> {
    let mut builder = Builder::default();
    walk(bytes, &mut builder)?;
    let mut writer = Writer::default();
    if let Some(node) = builder.finished {
        write(&mut writer, &cut(node)?);
    }
    Ok(writer.bytes)
}

struct Node {
    kind: GeometryKind,
    dimensions: Dimensions,
    sequences: Vec<Vec<Vertex>>,
    members: Vec<Node>,
}

#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    finished: Option<Node>,
}

impl Visitor for Builder {
    fn begin(&mut self, kind: GeometryKind, dimensions: Dimensions, count: u32) {
        let is_path = kind == GeometryKind::LineString || (kind == GeometryKind::Point && count > 0);
        let sequences = if is_path { vec![Vec::with_capacity(count as usize)] } else { Vec::new() };
        self.nodes.push(Node { kind, dimensions, sequences, members: Vec::new() });
    }

    fn ring(&mut self, count: u32) {
        if let Some(node) = self.nodes.last_mut() {
            node.sequences.push(Vec::with_capacity(count as usize));
        }
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        if let Some(sequence) = self.nodes.last_mut().and_then(|node| node.sequences.last_mut()) {
            sequence.push(position.values);
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some(node) = self.nodes.pop() {
            match self.nodes.last_mut() {
                Some(parent) => parent.members.push(node),
                None => self.finished = Some(node),
            }
        }
    }
}

fn write(writer: &mut Writer, node: &Node) {
    let Node { kind, dimensions, sequences, members } = node;
    let numbers = |writer: &mut Writer, sequence: &[Vertex]| {
        sequence.iter().for_each(|vertex| writer.numbers(&vertex[..dimensions.count()]));
    };
    match (kind, sequences.first()) {
        (GeometryKind::Point, None) => writer.empty_point(*dimensions),
        (GeometryKind::Point, Some(place)) => {
            writer.header(*kind, *dimensions);
            numbers(writer, place);
        }
        (GeometryKind::LineString, path) => {
            let path = path.map_or(&[][..], Vec::as_slice);
            writer.header(*kind, *dimensions);
            writer.count(path.len());
            numbers(writer, path);
        }
        (GeometryKind::Polygon, _) => {
            writer.header(*kind, *dimensions);
            writer.count(sequences.len());
            for ring in sequences {
                writer.count(ring.len());
                numbers(writer, ring);
            }
        }
        _ => {
            writer.header(*kind, *dimensions);
            writer.count(members.len());
            members.iter().for_each(|member| write(writer, member));
        }
    }
}

fn cut(node: Node) -> Result<Node, AntimeridianError> {
    let Node { kind, dimensions, sequences, members } = node;
    let multi = |kind, members| Node { kind, dimensions, sequences: Vec::new(), members };
    match kind {
        GeometryKind::LineString | GeometryKind::Polygon => {
            let mut parts = parts(Node { kind, dimensions, sequences, members })?;
            let several = match kind {
                GeometryKind::LineString => GeometryKind::MultiLineString,
                _ => GeometryKind::MultiPolygon,
            };
            let only = if parts.len() == 1 { parts.pop() } else { None };
            Ok(only.unwrap_or_else(|| multi(several, parts)))
        }
        GeometryKind::MultiLineString | GeometryKind::MultiPolygon => {
            let mut cut_members = Vec::with_capacity(members.len());
            for member in members {
                cut_members.append(&mut parts(member)?);
            }
            Ok(multi(kind, cut_members))
        }
        GeometryKind::Point => Ok(Node { kind, dimensions, sequences, members }),
        GeometryKind::MultiPoint | GeometryKind::GeometryCollection => {
            let members = members.into_iter().map(cut).collect::<Result<_, _>>()?;
            Ok(multi(kind, members))
        }
    }
}

fn is_between(sequences: &[Vec<Vertex>]) -> bool {
    sequences.iter().flatten().all(|vertex| vertex[0].abs() <= 180.0)
}

/// A line or a polygon in parts.
fn parts(mut node: Node) -> Result<Vec<Node>, AntimeridianError> {
    if is_between(&node.sequences) {
        return Ok(vec![node]);
    }
    let Node { kind, dimensions, ref mut sequences, .. } = node;
    if kind == GeometryKind::Polygon {
        bring_holes_home(sequences)?;
        // A cut edge may bend by rounding, away from what touches it.
        add_touching_vertices(sequences);
    }
    sequences.iter_mut().flatten().for_each(snap);
    close_seam(sequences);
    let mut parts = Vec::new();
    for turn in turns(sequences)? {
        let (west, east) = (360.0 * turn - 180.0, 360.0 * turn + 180.0);
        let pieces: Vec<Vec<Vec<Vertex>>> = match kind {
            GeometryKind::Polygon => clip_polygon(sequences, west, east).ok_or(AntimeridianError::Hole)?,
            _ => sequences.iter().flat_map(|path| clip_path(path, west, east)).map(|path| vec![path]).collect(),
        };
        for mut sequences in pieces {
            for vertex in sequences.iter_mut().flatten() {
                vertex[0] = (vertex[0] - 360.0 * turn).clamp(-180.0, 180.0);
            }
            parts.push(Node { kind, dimensions, sequences, members: Vec::new() });
        }
    }
    if kind == GeometryKind::Polygon && polygons_validity(dimensions, &mut parts)?.is_err() {
        // A cut hole that touched another ring, or ends that meet after going round the earth.
        let whole = Node { kind, dimensions, sequences: std::mem::take(sequences), members: Vec::new() };
        let degrees = span(&whole.sequences);
        let mut whole = vec![whole];
        polygons_validity(dimensions, &mut whole)??;
        if degrees > 360.0 {
            return Err(AntimeridianError::Overlap { degrees });
        }
        let rings = parts.into_iter().flat_map(|part| part.sequences).collect();
        let polygon = |sequences| Node { kind, dimensions, sequences, members: Vec::new() };
        parts = dissolve(rings).into_iter().map(polygon).collect();
        polygons_validity(dimensions, &mut parts)??;
    }
    Ok(parts)
}

/// Whether the polygons are valid together.
fn polygons_validity(
    dimensions: Dimensions,
    polygons: &mut Vec<Node>,
) -> Result<Result<(), InvalidGeometry>, GeometryError> {
    let members = std::mem::take(polygons);
    let several = Node { kind: GeometryKind::MultiPolygon, dimensions, sequences: Vec::new(), members };
    let mut writer = Writer::default();
    write(&mut writer, &several);
    *polygons = several.members;
    Ok(check_valid(&to_geo(&writer.bytes)?))
}

/// How many degrees of longitude lie between the furthest positions.
fn span(sequences: &[Ring]) -> f64 {
    let longitudes = || sequences.iter().flatten().map(|vertex| vertex[0]);
    longitudes().fold(f64::NEG_INFINITY, f64::max) - longitudes().fold(f64::INFINITY, f64::min)
}

/// The numbers of the turns around the earth in which the positions lie.
fn turns(sequences: &[Ring]) -> Result<impl Iterator<Item = f64> + use<>, AntimeridianError> {
    let longitudes = || sequences.iter().flatten().map(|vertex| vertex[0]);
    let first = ((longitudes().fold(f64::INFINITY, f64::min) + 180.0) / 360.0).floor();
    let last = ((longitudes().fold(f64::NEG_INFINITY, f64::max) - 180.0) / 360.0).ceil().max(first);
    if last - first > TURNS_MAX {
        return Err(AntimeridianError::Turns);
    }
    Ok((0..=(last - first) as u32).map(move |turn| first + f64::from(turn)))
}

fn snap(vertex: &mut Vertex) {
    let antimeridian = 360.0 * ((vertex[0] - 180.0) / 360.0).round() + 180.0;
    if (vertex[0] - antimeridian).abs() <= SLIVER_DEGREES {
        vertex[0] = antimeridian;
    }
}

/// Puts the ends of a geometry that goes exactly once round the earth exactly one turn apart,
/// undoing rounding.
fn close_seam(sequences: &mut [Ring]) {
    let west = sequences.iter().flatten().map(|vertex| vertex[0]).fold(f64::INFINITY, f64::min);
    let east = west + 360.0;
    for end in [east, east - 360.0] {
        let near = sequences.iter_mut().flatten().filter(|vertex| (vertex[0] - end).abs() <= SLIVER_DEGREES);
        near.for_each(|vertex| vertex[0] = end);
    }
}

/// Moves each hole by whole turns into the outer ring.
fn bring_holes_home(rings: &mut [Ring]) -> Result<(), AntimeridianError> {
    let Some((outer, holes)) = rings.split_first_mut() else {
        return Ok(());
    };
    let shell = EdgeTree::of_ring(&ring_points(outer));
    for hole in holes {
        let points = ring_points(hole);
        let is_home = |turn: &f64| {
            let moved = points.iter().map(|point| crate::Point::new(point.x + 360.0 * turn, point.y));
            let mut places = moved.map(|point| shell.locate(point));
            places.find(|place| *place != Location::Boundary) != Some(Location::Outside)
        };
        // Zero turns come first, so a hole in place stays there.
        let turn = [0.0, 1.0, -1.0, 2.0, -2.0].into_iter().find(is_home).ok_or(AntimeridianError::Hole)?;
        hole.iter_mut().for_each(|vertex| vertex[0] += 360.0 * turn);
    }
    Ok(())
}
