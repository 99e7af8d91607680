//! Straight segments with exact predicates (adaptive-precision orientation).

use std::cmp::Ordering;

use geo::kernels::{Kernel, Orientation, RobustKernel};
use geo_types::Coord;
use num_bigint::BigInt;
use twofloat::TwoFloat;

use crate::{Point, Rect};

/// If all numbers are zero or at least this, no product of them loses digits by underflow.
const FULL_PRODUCTS_MIN: f64 = 1e-144;
/// From this distance, the coordinates of lines and areas, which are up to 1e150, do not differ.
const FAR: f64 = 1e200;

/// The side of the line from `a` to `b` on which the point `c` lies, decided exactly.
pub(super) fn orientation(a: Point, b: Point, c: Point) -> Orientation {
    super::work::step();
    let (left, right) = ((a.x - c.x) * (b.y - c.y), (a.y - c.y) * (b.x - c.x));
    let (turn, size) = (left - right, left.abs() + right.abs());
    // More than all rounding errors (Shewchuk 1997, section 4.2: 3.4e-16 of the size), and far more
    // than underflow has lost. Most cases are decided here.
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

/// Orders the directions from `from` to two other positions, counter-clockwise. The order starts
/// directly above the direction to the right, which comes last.
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
    /// In one point inside both.
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

    /// Whether a ray from `point` to the right passes through the segment. Of the ends, only the
    /// lower counts. `point` must not lie on the segment.
    pub fn is_right_of(&self, point: Point) -> bool {
        if (self.a.y > point.y) == (self.b.y > point.y) {
            return false;
        }
        let rising = self.b.y > self.a.y;
        let expected = if rising { Orientation::CounterClockwise } else { Orientation::Clockwise };
        orientation(self.a, self.b, point) == expected
    }

    /// Euclidean distance from `point`. If the segment is parallel to an axis, it is the difference
    /// of coordinates. Otherwise it is computed with twice the digits, so a distance that has an
    /// exact float is that float.
    pub fn planar_distance(&self, point: Point) -> f64 {
        let Self { a, b } = *self;
        let end = |is_before: bool| if is_before { a } else { b };
        if a.y == b.y {
            return match (a.x.min(b.x)..=a.x.max(b.x)).contains(&point.x) {
                true => (point.y - a.y).abs(),
                false => end((point.x < a.x) == (a.x <= b.x)).planar_distance(point),
            };
        }
        if a.x == b.x {
            return match (a.y.min(b.y)..=a.y.max(b.y)).contains(&point.y) {
                true => (point.x - a.x).abs(),
                false => end((point.y < a.y) == (a.y < b.y)).planar_distance(point),
            };
        }
        // From this far, all of the segment is in one place.
        if (point.x - a.x).abs().max((point.y - a.y).abs()) >= FAR {
            return a.planar_distance(point);
        }
        let between = |from: Point, to: Point| (TwoFloat::new_sub(to.x, from.x), TwoFloat::new_sub(to.y, from.y));
        let ((dx, dy), (from_a, from_b)) = (between(a, b), (between(a, point), between(b, point)));
        // A power of two scales the direction to about 1, so no digit changes.
        let exponent = (dx.hi().abs().max(dy.hi().abs()).to_bits() >> 52).clamp(1, 2045);
        let scale = f64::from_bits((2046 - exponent) << 52);
        let (x, y) = (dx * scale, dy * scale);
        let along = |from: (TwoFloat, TwoFloat)| (from.0 * x + from.1 * y).hi();
        if along(from_a) <= 0.0 {
            return a.planar_distance(point);
        }
        if along(from_b) >= 0.0 {
            return b.planar_distance(point);
        }
        let (cross, length) = ((x * from_a.1 - y * from_a.0).abs(), (x * x + y * y).sqrt());
        // The crate divides two such numbers with only the digits of one (0.8.4).
        let quotient = cross / length.hi();
        (quotient - quotient * (length.lo() / length.hi())).hi()
    }
}

/// The location of a point with respect to an area.
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

/// Integers in the same proportion as finite numbers.
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
