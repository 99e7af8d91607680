//! The distance from a point to a geometry.

use geo_types::Geometry;

use super::convert::from_geo;
use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::point::as_point;
use super::segment::Segment;
use super::walk::{Visitor, walk};
use crate::sphere::{EARTH_RADIUS_M, PreparedPoint, distance_to_arc_m};
use crate::{CoordinateSystem, Point};

/// The distance from `point` to `geometry`; `None` when that is empty.
///
/// `planar`: Euclidean. `lonlat`: 0 if the point intersects the geometry (edges straight in the
/// coordinates), else great-circle metres to its points and to its edges as great-circle arcs.
///
/// # Errors
/// When a geometry cannot be stored, such as a ring of three positions.
pub fn distance(
    system: CoordinateSystem,
    point: Point,
    geometry: &Geometry<f64>,
) -> Result<Option<f64>, GeometryError> {
    distance_bytes(system, point, &from_geo(geometry))
}

/// [`distance`] to a stored geometry.
///
/// # Errors
/// When the bytes are not a geometry.
pub fn distance_bytes(system: CoordinateSystem, point: Point, bytes: &[u8]) -> Result<Option<f64>, GeometryError> {
    let mut meter = Meter {
        system,
        from: PreparedPoint::new(point),
        point,
        mirrored: match system {
            CoordinateSystem::LonLat if point.x.abs() == 180.0 => Point::new(-point.x, point.y),
            _ => point,
        },
        kind: GeometryKind::Point,
        previous: None,
        is_inside: [false; 2],
        nearest: f64::INFINITY,
    };
    if let Some(other) = as_point(bytes) {
        return Ok(Some(meter.to_point(other)));
    }
    walk(bytes, &mut meter)?;
    Ok((meter.nearest < f64::INFINITY).then_some(meter.nearest))
}

struct Meter {
    system: CoordinateSystem,
    from: PreparedPoint,
    point: Point,
    /// The point's other representation on the antimeridian, else the point itself.
    mirrored: Point,
    kind: GeometryKind,
    previous: Option<Point>,
    /// Whether the point, and its other representation, are inside the current polygon's rings so
    /// far.
    is_inside: [bool; 2],
    nearest: f64,
}

impl Meter {
    fn to_point(&self, other: Point) -> f64 {
        match self.system {
            CoordinateSystem::LonLat => self.from.distance_m(other),
            CoordinateSystem::Planar => self.point.planar_distance(other),
        }
    }

    fn edge(&mut self, edge: &Segment) {
        if self.system == CoordinateSystem::Planar && self.is_box_beyond(edge) {
            return;
        }
        if edge.contains(self.point) || edge.contains(self.mirrored) {
            self.nearest = 0.0;
            return;
        }
        let length = match self.system {
            CoordinateSystem::Planar => edge.planar_distance(self.point),
            CoordinateSystem::LonLat if self.is_beyond(edge) => return,
            CoordinateSystem::LonLat => distance_to_arc_m(self.point, edge.a, edge.b),
        };
        self.nearest = self.nearest.min(length);
    }

    /// Whether the edge's box is beyond the nearest distance found, in a plane.
    fn is_box_beyond(&self, edge: &Segment) -> bool {
        // Rounding may lengthen the distance to a box. Near zero, squares have no digits.
        let nearest = self.nearest * (1.0 + 1e-12);
        edge.rect().planar_distance_squared(self.point) > (nearest * nearest).max(1e-280)
    }

    /// Whether the difference in latitude alone puts the arc beyond the nearest found.
    fn is_beyond(&self, edge: &Segment) -> bool {
        let rect = edge.rect();
        let width = rect.x1 - rect.x0;
        if width > 57.0 {
            return false;
        }
        // An arc rises by less than 0.07 d² radians over its higher end.
        let rise = 0.00125 * width * width;
        let gap = (rect.y0 - self.point.y).max(self.point.y - rect.y1) - rise;
        gap.to_radians() * EARTH_RADIUS_M > self.nearest * (1.0 + 1e-12) + 1e-6
    }
}

impl Visitor for Meter {
    fn begin(&mut self, kind: GeometryKind, _dimensions: Dimensions, _count: u32) {
        self.kind = kind;
        self.previous = None;
        self.is_inside = [false; 2];
    }

    fn ring(&mut self, _count: u32) {
        self.previous = None;
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        let next = position.point();
        if self.kind == GeometryKind::Point {
            self.nearest = self.nearest.min(self.to_point(next));
        } else if let Some(previous) = self.previous.replace(next) {
            let edge = Segment { a: previous, b: next };
            self.edge(&edge);
            if self.kind == GeometryKind::Polygon {
                self.is_inside[0] ^= edge.is_right_of(self.point);
                self.is_inside[1] ^= edge.is_right_of(self.mirrored);
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.is_inside != [false; 2] {
            self.nearest = 0.0;
        }
        self.is_inside = [false; 2];
    }
}
