//! Closed axis-parallel rectangles, in double and in outward-rounded single
//! precision, and the order-preserving map from doubles to integers.
//!
//! In every predicate, a shared boundary counts as contact. `Rect::EMPTY` is the neutral element of
//! `union` and intersects nothing.

use crate::Point;

/// A closed rectangle; a point or a segment is a rectangle of area zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    /// Smallest x.
    pub x0: f64,
    /// Smallest y.
    pub y0: f64,
    /// Largest x.
    pub x1: f64,
    /// Largest y.
    pub y1: f64,
}

impl Rect {
    /// The rectangle without points: `union` with it changes nothing.
    pub const EMPTY: Rect = Rect { x0: f64::INFINITY, y0: f64::INFINITY, x1: f64::NEG_INFINITY, y1: f64::NEG_INFINITY };

    /// The rectangle from (`x0`, `y0`) to (`x1`, `y1`).
    #[inline]
    pub const fn new(x0: f64, y0: f64, x1: f64, y1: f64) -> Self {
        Self { x0, y0, x1, y1 }
    }

    /// The rectangle that holds `point` alone.
    #[inline]
    pub const fn from_point(point: Point) -> Self {
        Self::new(point.x, point.y, point.x, point.y)
    }

    /// The smallest rectangle that holds both corners, in any order.
    #[inline]
    pub fn from_corners(a: Point, b: Point) -> Self {
        Self::new(a.x.min(b.x), a.y.min(b.y), a.x.max(b.x), a.y.max(b.y))
    }

    /// Whether no point lies in the rectangle.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !(self.x0 <= self.x1 && self.y0 <= self.y1)
    }

    /// Whether all four sides are finite.
    #[inline]
    pub fn is_finite(&self) -> bool {
        self.x0.is_finite() && self.y0.is_finite() && self.x1.is_finite() && self.y1.is_finite()
    }

    /// The smallest rectangle that holds both.
    #[inline]
    #[must_use]
    pub fn union(&self, other: &Rect) -> Rect {
        Rect {
            x0: self.x0.min(other.x0),
            y0: self.y0.min(other.y0),
            x1: self.x1.max(other.x1),
            y1: self.y1.max(other.y1),
        }
    }

    /// Grows the rectangle until it holds `point`.
    #[inline]
    pub fn extend(&mut self, point: Point) {
        *self = self.union(&Rect::from_point(point));
    }

    /// Whether the two share a point, boundaries included.
    #[inline]
    pub fn intersects(&self, other: &Rect) -> bool {
        self.x0 <= other.x1 && other.x0 <= self.x1 && self.y0 <= other.y1 && other.y0 <= self.y1
    }

    /// Whether `point` lies inside or on the boundary.
    #[inline]
    pub fn contains_point(&self, point: Point) -> bool {
        self.x0 <= point.x && point.x <= self.x1 && self.y0 <= point.y && point.y <= self.y1
    }

    /// Whether every point of `other` lies in this rectangle; true for an empty `other`.
    #[inline]
    pub fn contains_rect(&self, other: &Rect) -> bool {
        other.is_empty() || (self.x0 <= other.x0 && self.y0 <= other.y0 && other.x1 <= self.x1 && other.y1 <= self.y1)
    }

    /// Width times height; zero when empty.
    #[inline]
    pub fn area(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        let (width, height) = (self.x1 - self.x0, self.y1 - self.y0);
        // An infinite side times a zero side would be NaN.
        if width == 0.0 || height == 0.0 { 0.0 } else { width * height }
    }

    /// Width plus height; zero when empty.
    #[inline]
    pub fn margin(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        (self.x1 - self.x0) + (self.y1 - self.y0)
    }

    /// The point in the middle; meaningless when empty.
    #[inline]
    pub fn center(&self) -> Point {
        Point::new(self.x0 * 0.5 + self.x1 * 0.5, self.y0 * 0.5 + self.y1 * 0.5)
    }

    /// By how much the area grows if `other` is included; never NaN.
    ///
    /// Zero does not mean that `other` is inside: collinear points enlarge the rectangle but not
    /// its area. Break ties by the margin of the union.
    #[inline]
    pub fn enlargement(&self, other: &Rect) -> f64 {
        let union = self.union(other);
        if union == *self {
            return 0.0;
        }
        let growth = union.area() - self.area();
        if growth.is_nan() { f64::INFINITY } else { growth }
    }

    /// Squared Euclidean distance from `point`; zero inside, infinite when empty.
    #[inline]
    pub fn planar_distance_squared(&self, point: Point) -> f64 {
        if self.is_empty() {
            return f64::INFINITY;
        }
        let dx = (self.x0 - point.x).max(point.x - self.x1).max(0.0);
        let dy = (self.y0 - point.y).max(point.y - self.y1).max(0.0);
        dx * dx + dy * dy
    }
}

/// A rectangle in single precision that holds the one it was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RectF32 {
    /// Smallest x.
    pub x0: f32,
    /// Smallest y.
    pub y0: f32,
    /// Largest x.
    pub x1: f32,
    /// Largest y.
    pub y1: f32,
}

impl RectF32 {
    /// The rectangle without points.
    pub const EMPTY: RectF32 =
        RectF32 { x0: f32::INFINITY, y0: f32::INFINITY, x1: f32::NEG_INFINITY, y1: f32::NEG_INFINITY };

    /// The smallest single-precision rectangle around `rect`.
    #[inline]
    pub fn outward(rect: Rect) -> Self {
        Self { x0: f32_below(rect.x0), y0: f32_below(rect.y0), x1: f32_above(rect.x1), y1: f32_above(rect.y1) }
    }

    /// Whether the two share a point, boundaries included.
    #[inline]
    pub fn intersects(&self, other: &RectF32) -> bool {
        self.x0 <= other.x1 && other.x0 <= self.x1 && self.y0 <= other.y1 && other.y0 <= self.y1
    }

    /// Whether every point of `other` lies in this rectangle; false for an empty `other`.
    #[inline]
    pub fn contains_rect(&self, other: &RectF32) -> bool {
        self.x0 <= other.x0 && self.y0 <= other.y0 && other.x1 <= self.x1 && other.y1 <= self.y1
    }

    /// The smallest rectangle that holds both.
    #[inline]
    #[must_use]
    pub fn union(&self, other: &RectF32) -> RectF32 {
        RectF32 {
            x0: self.x0.min(other.x0),
            y0: self.y0.min(other.y0),
            x1: self.x1.max(other.x1),
            y1: self.y1.max(other.y1),
        }
    }
}

impl From<RectF32> for Rect {
    fn from(rect: RectF32) -> Rect {
        Rect::new(f64::from(rect.x0), f64::from(rect.y0), f64::from(rect.x1), f64::from(rect.y1))
    }
}

/// The largest `f32` that is not above `value`; `-inf` below the finite range.
#[inline]
pub fn f32_below(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) > value { nearest.next_down() } else { nearest }
}

/// The smallest `f32` that is not below `value`; `inf` above the finite range.
#[inline]
pub fn f32_above(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) < value { nearest.next_up() } else { nearest }
}

const SIGN: u64 = 1 << 63;

/// Maps a double to an integer of the same order, infinities included.
///
/// `-0.0` maps like `+0.0`, as the two compare equal. `value` must not be NaN.
#[inline]
pub fn ordered_bits(value: f64) -> u64 {
    debug_assert!(!value.is_nan(), "NaN has no place in the order of numbers");
    // Adding +0.0 turns -0.0 into +0.0 and changes nothing else.
    let bits = (value + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The inverse of [`ordered_bits`].
#[inline]
pub fn from_ordered_bits(bits: u64) -> f64 {
    f64::from_bits(if bits & SIGN == 0 { !bits } else { bits ^ SIGN })
}
