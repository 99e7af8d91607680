//! Distances between two geometries, and the search windows for geometries near one.

use std::cell::Cell;

use super::boxes::{BoxTree, sort_by_place};
use super::error::GeometryError;
use super::segment::{Contact, Segment, edges};
use super::shape::Shape;
use crate::sphere::{arc_rect, arcs_cross, distance_between_rects_m, distance_m, distance_to_arc_m, reach_windows};
use crate::{CoordinateSystem, Point, Rect};

/// The edges of a stored geometry, prepared for distances to others.
///
/// Distances are those of [`distance`](super::distance). They are 0 where the geometries intersect,
/// with edges straight in the coordinates. Otherwise they are Euclidean in `planar`, and in
/// `lonlat` great-circle metres between points and edges as great-circle arcs.
#[derive(Clone, Debug)]
pub struct Edges {
    system: CoordinateSystem,
    /// Points are edges without a length.
    edges: Vec<Segment>,
    boxes: BoxTree,
}

impl Edges {
    /// Prepares the geometry in well-known binary `bytes`.
    ///
    /// # Errors
    /// When the bytes are not a geometry.
    pub fn new(bytes: &[u8], system: CoordinateSystem) -> Result<Self, GeometryError> {
        let shape = Shape::decode(bytes)?;
        let mut all: Vec<Segment> = shape.points.iter().map(|point| Segment { a: *point, b: *point }).collect();
        for path in shape.lines.iter().chain(shape.polygons.iter().flatten()) {
            match path.as_slice() {
                [only] => all.push(Segment { a: *only, b: *only }),
                path => all.extend(edges(path)),
            }
        }
        sort_by_place(&mut all, Segment::rect);
        let boxes = BoxTree::new(&all, |edge| edge_rect(system, edge));
        Ok(Self { system, edges: all, boxes })
    }

    /// The distance to `other`, if it is at most `distance_max`. The two must not intersect, and
    /// must be of one system.
    pub fn distance_at_most(&self, other: &Self, distance_max: f64) -> Option<f64> {
        // Only candidates that may be nearer than the nearest so far are compared.
        let nearest = Cell::new(distance_max);
        let is_found = Cell::new(false);
        for edge in &self.edges {
            let rect = edge_rect(self.system, edge);
            other.boxes.any(&|group, _| self.bound(&rect, group) <= nearest.get(), &mut |index| {
                let length = self.between(edge, &other.edges[index]);
                if length <= nearest.get() {
                    nearest.set(length);
                    is_found.set(true);
                }
                length == 0.0
            });
            if is_found.get() && nearest.get() == 0.0 {
                break;
            }
        }
        is_found.get().then(|| nearest.get())
    }

    /// A lower bound of the distance between the contents of two boxes.
    fn bound(&self, a: &Rect, b: &Rect) -> f64 {
        match self.system {
            CoordinateSystem::LonLat => distance_between_rects_m(a, b),
            CoordinateSystem::Planar => {
                let dx = (a.x0 - b.x1).max(b.x0 - a.x1).max(0.0);
                let dy = (a.y0 - b.y1).max(b.y0 - a.y1).max(0.0);
                // The distance between points may be rounded down.
                dx.hypot(dy) * (1.0 - 1e-12) - 1e-150
            }
        }
    }

    fn between(&self, first: &Segment, second: &Segment) -> f64 {
        let from_ends: fn(&Segment, Point) -> f64 = match self.system {
            CoordinateSystem::Planar if first.contact(second) != Contact::None => return 0.0,
            CoordinateSystem::Planar => |edge, point| edge.planar_distance(point),
            CoordinateSystem::LonLat if arcs_cross(first.a, first.b, second.a, second.b) => return 0.0,
            CoordinateSystem::LonLat => |edge, point| match edge.a == edge.b {
                true => distance_m(point, edge.a),
                false => distance_to_arc_m(point, edge.a, edge.b),
            },
        };
        let to_first = from_ends(first, second.a).min(from_ends(first, second.b));
        let to_second = from_ends(second, first.a).min(from_ends(second, first.b));
        to_first.min(to_second)
    }
}

/// A box around an edge, and in `lonlat` around its arc.
fn edge_rect(system: CoordinateSystem, edge: &Segment) -> Rect {
    match system {
        CoordinateSystem::Planar => edge.rect(),
        CoordinateSystem::LonLat => arc_rect(edge.a, edge.b),
    }
}

/// The windows for an index search for all geometries within `distance` of a stored geometry. The
/// box of every such geometry intersects one of them. There is none for an empty geometry.
///
/// # Errors
/// When the bytes are not a geometry.
pub fn reach(bytes: &[u8], system: CoordinateSystem, distance: f64) -> Result<Vec<Rect>, GeometryError> {
    let shape = Shape::decode(bytes)?;
    if shape.is_empty() {
        return Ok(Vec::new());
    }
    if system == CoordinateSystem::Planar {
        return Ok(vec![reach_planar(&shape.rect, distance)]);
    }
    // One box for each side of a geometry that was cut at the antimeridian.
    let is_cut = shape.rect.x0 == -180.0 && shape.rect.x1 == 180.0;
    let mut sides = [Rect::EMPTY; 2];
    let mut add = |part: Rect| {
        let side = &mut sides[usize::from(is_cut && part.center().x >= 0.0)];
        *side = side.union(&part);
    };
    shape.points.iter().for_each(|point| add(Rect::from_point(*point)));
    for path in shape.lines.iter().chain(shape.polygons.iter().filter_map(|rings| rings.first())) {
        let arcs = edges(path).map(|edge| arc_rect(edge.a, edge.b));
        let first = path.first().map_or(Rect::EMPTY, |point| Rect::from_point(*point));
        add(arcs.fold(first, |path, arc| path.union(&arc)));
    }
    let windows = sides.iter().flat_map(|side| reach_windows(side, distance).to_vec());
    Ok(windows.collect())
}

/// A window around everything within `distance` of a box in a plane.
pub fn reach_planar(rect: &Rect, distance: f64) -> Rect {
    // Widened by the rounding of distances.
    let slack = |a: f64, b: f64| 1e-12 * a.abs().max(b.abs());
    let along = distance * (1.0 + 1e-12);
    let (x, y) = (along + slack(rect.x0, rect.x1), along + slack(rect.y0, rect.y1));
    let both = x.max(y);
    Rect { x0: rect.x0 - both, y0: rect.y0 - both, x1: rect.x1 + both, y1: rect.y1 + both }
}
