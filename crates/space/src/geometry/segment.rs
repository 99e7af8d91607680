//! Straight segments with exact predicates (adaptive-precision orientation).

use std::cmp::Ordering;

use geo::kernels::{Kernel, Orientation, RobustKernel};
use geo_types::Coord;
use num_bigint::BigInt;

use crate::{Point, Rect};

/// Of numbers that are nothing or at least this, all digits of all products are numbers.
const FULL_PRODUCTS_MIN: f64 = 1e-144;

/// On which side of the line from `a` to `b` the point `c` lies, decided exactly.
pub(super) fn orientation(a: Point, b: Point, c: Point) -> Orientation {
    super::work::step();
    let (left, right) = ((a.x - c.x) * (b.y - c.y), (a.y - c.y) * (b.x - c.x));
    let (turn, size) = (left - right, left.abs() + right.abs());
    // More than all rounding (Shewchuk 1997, section 4.2: 3.4e-16 of the size), and far more than what
    // products next to nothing have lost. Most are decided so.
    if turn.abs() > 4e-16 * size && turn.abs() > 1e-290 {
        return if turn > 0.0 { Orientation::CounterClockwise } else { Orientation::Clockwise };
    }
    nearly_collinear(a, b, c)
}

fn nearly_collinear(a: Point, b: Point, c: Point) -> Orientation {
    let coordinates = [a.x, a.y, b.x, b.y, c.x, c.y];
    if coordinates.iter().all(|value| *value == 0.0 || value.abs() >= FULL_PRODUCTS_MIN) {
        let coord = |point: Point| Coord { x: point.x, y: point.y };
        return RobustKernel::orient2d(coord(a), coord(b), coord(c));
    }
    let [ax, ay, bx, by, cx, cy] = integers(coordinates);
    match ((ax - &cx) * (by - &cy)).cmp(&((ay - cy) * (bx - cx))) {
        Ordering::Greater => Orientation::CounterClockwise,
        Ordering::Equal => Orientation::Collinear,
        Ordering::Less => Orientation::Clockwise,
    }
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
        // Where squares and products lose digits, or are beyond all numbers.
        if !(1e-16..1e300).contains(&length_squared) {
            return self.planar_distance_scaled(point);
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

    /// [`Self::planar_distance`] of a segment of any length, by its direction alone.
    fn planar_distance_scaled(&self, point: Point) -> f64 {
        let (dx, dy) = (self.b.x - self.a.x, self.b.y - self.a.y);
        let longest = dx.abs().max(dy.abs());
        // A power of two brings it next to 1, so no digit changes.
        let exponent = (longest.to_bits() >> 52).clamp(1, 2045);
        let scale = f64::from_bits((2046 - exponent) << 52);
        let (x, y) = (dx * scale, dy * scale);
        let (from_x, from_y) = (point.x - self.a.x, point.y - self.a.y);
        let along = from_x * x + from_y * y;
        if along <= 0.0 {
            self.a.planar_distance(point)
        } else if along >= dx * x + dy * y {
            self.b.planar_distance(point)
        } else {
            (x * from_y - y * from_x).abs() / x.hypot(y)
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

/// Integers in the proportion of finite numbers.
pub(super) fn integers<const N: usize>(values: [f64; N]) -> [BigInt; N] {
    let parts = values.map(|value| {
        let bits = value.to_bits();
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        let (mantissa, exponent) = match (bits >> 52) & 0x7ff {
            0 => (fraction, 1),
            exponent => (fraction | 1 << 52, exponent),
        };
        (if value < 0.0 { -mantissa } else { mantissa }, exponent)
    });
    let least = parts.iter().filter(|(mantissa, _)| *mantissa != 0).map(|(_, exponent)| *exponent).min().unwrap_or(0);
    parts.map(|(mantissa, exponent)| BigInt::from(mantissa) << exponent.saturating_sub(least))
}
