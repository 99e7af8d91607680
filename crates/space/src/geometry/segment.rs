//! Straight segments with exact predicates (adaptive-precision orientation).

use std::cmp::Ordering;

use geo::kernels::{Kernel, Orientation, RobustKernel};
use geo_types::Coord;

use crate::{Point, Rect};

/// On which side of the line from `a` to `b` the point `c` lies, decided exactly.
pub(super) fn orientation(a: Point, b: Point, c: Point) -> Orientation {
    super::work::step();
    let coord = |point: Point| Coord { x: point.x, y: point.y };
    RobustKernel::orient2d(coord(a), coord(b), coord(c))
}

/// Orders the directions from `from` to two other positions: counter-clockwise,
/// from just above the one to the right, which comes last.
pub(super) fn turn(from: Point, first: Point, second: Point) -> Ordering {
    let is_lower = |to: Point| to.y < from.y || (to.y == from.y && to.x > from.x);
    is_lower(first).cmp(&is_lower(second)).then_with(|| match orientation(from, first, second) {
        Orientation::CounterClockwise => Ordering::Less,
        Orientation::Collinear => Ordering::Equal,
        Orientation::Clockwise => Ordering::Greater,
    })
}

/// A closed segment; its ends may be equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub a: Point,
    pub b: Point,
}

/// How two segments meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contact {
    /// Not at all.
    None,
    /// In a point that is an end of one of them, or along a line.
    Touch,
    /// In one point inside of both.
    Cross,
}

impl Segment {
    pub fn rect(&self) -> Rect {
        Rect::from_corners(self.a, self.b)
    }

    /// Whether `point` lies on the segment.
    pub fn contains(&self, point: Point) -> bool {
        self.rect().contains_point(point) && orientation(self.a, self.b, point) == Orientation::Collinear
    }

    pub fn contact(&self, other: &Segment) -> Contact {
        if !self.rect().intersects(&other.rect()) {
            return Contact::None;
        }
        let c = orientation(self.a, self.b, other.a);
        let d = orientation(self.a, self.b, other.b);
        if c == d && c != Orientation::Collinear {
            return Contact::None;
        }
        let a = orientation(other.a, other.b, self.a);
        let b = orientation(other.a, other.b, self.b);
        if a == b && a != Orientation::Collinear {
            return Contact::None;
        }
        // Collinear segments whose boxes intersect overlap.
        if [a, b, c, d].contains(&Orientation::Collinear) { Contact::Touch } else { Contact::Cross }
    }

    /// Whether a ray from `point` to the right passes through the segment; of
    /// the ends, only the lower counts. `point` must not lie on the segment.
    pub fn is_right_of(&self, point: Point) -> bool {
        if (self.a.y > point.y) == (self.b.y > point.y) {
            return false;
        }
        let rising = self.b.y > self.a.y;
        let expected = if rising { Orientation::CounterClockwise } else { Orientation::Clockwise };
        orientation(self.a, self.b, point) == expected
    }

    /// Euclidean distance from `point`.
    pub fn planar_distance(&self, point: Point) -> f64 {
        let (dx, dy) = (self.b.x - self.a.x, self.b.y - self.a.y);
        let length_squared = dx * dx + dy * dy;
        if length_squared == 0.0 || !length_squared.is_finite() {
            return self.a.planar_distance(point).min(self.b.planar_distance(point));
        }
        let share = ((point.x - self.a.x) * dx + (point.y - self.a.y) * dy) / length_squared;
        if share <= 0.0 {
            self.a.planar_distance(point)
        } else if share >= 1.0 {
            self.b.planar_distance(point)
        } else {
            let cross = dx * (point.y - self.a.y) - dy * (point.x - self.a.x);
            cross.abs() / length_squared.sqrt()
        }
    }
}

/// Where a point lies with respect to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Inside,
    Boundary,
    Outside,
}

/// The edges of a path of positions.
pub(super) fn edges(path: &[Point]) -> impl Iterator<Item = Segment> + '_ {
    path.windows(2).filter_map(|pair| match pair {
        [a, b] => Some(Segment { a: *a, b: *b }),
        _ => None,
    })
}
