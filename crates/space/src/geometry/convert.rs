//! Conversion to and from the types of the `geo` crates, which have neither Z nor M.

use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiLineString, MultiPoint, MultiPolygon, Point, Polygon,
};

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::walk::{Visitor, walk};
use super::write::Writer;

/// The geometry as `geo` types, without Z and M.
///
/// `geo` has no empty point. A single empty point becomes an empty multi-point; inside other
/// geometries it is dropped.
///
/// # Errors
/// When the bytes are not a geometry.
pub fn to_geo(bytes: &[u8]) -> Result<Geometry<f64>, GeometryError> {
    let mut builder = Builder::default();
    walk(bytes, &mut builder)?;
    Ok(builder.finished.unwrap_or_else(|| Geometry::MultiPoint(MultiPoint::new(Vec::new()))))
}

/// A geometry that has begun and not ended.
struct Frame {
    kind: GeometryKind,
    /// Positions of a point or a line; of a polygon, one list per ring.
    sequences: Vec<Vec<Coord<f64>>>,
    members: Vec<Geometry<f64>>,
}

#[derive(Default)]
struct Builder {
    frames: Vec<Frame>,
    finished: Option<Geometry<f64>>,
}

impl Visitor for Builder {
    fn begin(&mut self, kind: GeometryKind, _dimensions: Dimensions, count: u32) {
        let sequences = match kind {
            GeometryKind::Point => vec![Vec::with_capacity(1)],
            GeometryKind::LineString => vec![Vec::with_capacity(count as usize)],
            _ => Vec::new(),
        };
        self.frames.push(Frame { kind, sequences, members: Vec::new() });
    }

    fn ring(&mut self, count: u32) {
        if let Some(frame) = self.frames.last_mut() {
            frame.sequences.push(Vec::with_capacity(count as usize));
        }
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        if let Some(sequence) = self.frames.last_mut().and_then(|frame| frame.sequences.last_mut()) {
            sequence.push(Coord { x: position.values[0], y: position.values[1] });
        }
        Ok(())
    }

    fn end(&mut self) {
        let Some(geometry) = self.frames.pop().and_then(Frame::finish) else {
            return;
        };
        match self.frames.last_mut() {
            Some(parent) => parent.members.push(geometry),
            None => self.finished = Some(geometry),
        }
    }
}

impl Frame {
    /// The finished geometry; `None` for an empty point.
    fn finish(self) -> Option<Geometry<f64>> {
        let mut sequences = self.sequences.into_iter();
        Some(match self.kind {
            GeometryKind::Point => Geometry::Point(Point(*sequences.next()?.first()?)),
            GeometryKind::LineString => Geometry::LineString(LineString(sequences.next()?)),
            GeometryKind::Polygon => {
                let exterior = LineString(sequences.next().unwrap_or_default());
                Geometry::Polygon(Polygon::new(exterior, sequences.map(LineString).collect()))
            }
            GeometryKind::MultiPoint => Geometry::MultiPoint(MultiPoint(members(self.members))),
            GeometryKind::MultiLineString => Geometry::MultiLineString(MultiLineString(members(self.members))),
            GeometryKind::MultiPolygon => Geometry::MultiPolygon(MultiPolygon(members(self.members))),
            GeometryKind::GeometryCollection => Geometry::GeometryCollection(GeometryCollection(self.members)),
        })
    }
}

/// The members as their own type; the walk has checked that all have it.
fn members<T: TryFrom<Geometry<f64>>>(members: Vec<Geometry<f64>>) -> Vec<T> {
    members.into_iter().filter_map(|member| T::try_from(member).ok()).collect()
}

/// The stored form of a `geo` geometry.
///
/// Lines, rectangles and triangles become line strings and polygons. Invalid content, such as a
/// ring of three positions, is written unchanged and refused by [`parse_wkb`](super::parse_wkb).
pub fn from_geo(geometry: &Geometry<f64>) -> Vec<u8> {
    let mut writer = Writer::default();
    write_geometry(&mut writer, geometry);
    writer.bytes
}

fn write_geometry(writer: &mut Writer, geometry: &Geometry<f64>) {
    let begin = |writer: &mut Writer, kind: GeometryKind, count: usize| {
        writer.header(kind, Dimensions::XY);
        writer.count(count);
    };
    match geometry {
        Geometry::Point(point) => write_point(writer, point),
        Geometry::Line(line) => write_line(writer, &LineString(vec![line.start, line.end])),
        Geometry::LineString(line) => write_line(writer, line),
        Geometry::Polygon(polygon) => write_polygon(writer, polygon),
        Geometry::Rect(rect) => write_polygon(writer, &rect.to_polygon()),
        Geometry::Triangle(triangle) => write_polygon(writer, &triangle.to_polygon()),
        Geometry::MultiPoint(points) => {
            begin(writer, GeometryKind::MultiPoint, points.0.len());
            points.0.iter().for_each(|point| write_point(writer, point));
        }
        Geometry::MultiLineString(lines) => {
            begin(writer, GeometryKind::MultiLineString, lines.0.len());
            lines.0.iter().for_each(|line| write_line(writer, line));
        }
        Geometry::MultiPolygon(polygons) => {
            begin(writer, GeometryKind::MultiPolygon, polygons.0.len());
            polygons.0.iter().for_each(|polygon| write_polygon(writer, polygon));
        }
        Geometry::GeometryCollection(collection) => {
            begin(writer, GeometryKind::GeometryCollection, collection.0.len());
            collection.0.iter().for_each(|member| write_geometry(writer, member));
        }
    }
}

fn write_point(writer: &mut Writer, point: &Point<f64>) {
    writer.header(GeometryKind::Point, Dimensions::XY);
    writer.numbers(&[point.x(), point.y()]);
}

fn write_line(writer: &mut Writer, line: &LineString<f64>) {
    writer.header(GeometryKind::LineString, Dimensions::XY);
    write_sequence(writer, line);
}

fn write_polygon(writer: &mut Writer, polygon: &Polygon<f64>) {
    writer.header(GeometryKind::Polygon, Dimensions::XY);
    if polygon.exterior().0.is_empty() {
        writer.count(0);
        return;
    }
    writer.count(1 + polygon.interiors().len());
    write_sequence(writer, polygon.exterior());
    polygon.interiors().iter().for_each(|ring| write_sequence(writer, ring));
}

fn write_sequence(writer: &mut Writer, line: &LineString<f64>) {
    writer.count(line.0.len());
    line.0.iter().for_each(|coord| writer.numbers(&[coord.x, coord.y]));
}
