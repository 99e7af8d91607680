//! A position in the plane, or a longitude and a latitude in degrees.

/// A position: `x` is the longitude and `y` the latitude in a `lonlat` dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Longitude in degrees, or the first planar coordinate.
    pub x: f64,
    /// Latitude in degrees, or the second planar coordinate.
    pub y: f64,
}

impl Point {
    /// The point at (`x`, `y`).
    #[inline]
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }

    /// Whether both coordinates are finite.
    #[inline]
    pub fn is_finite(self) -> bool {
        self.x.is_finite() && self.y.is_finite()
    }

    /// Euclidean distance to `other`, in the units of the coordinates.
    #[inline]
    pub fn planar_distance(self, other: Point) -> f64 {
        let (dx, dy) = (self.x - other.x, self.y - other.y);
        let square = dx * dx + dy * dy;
        // The root of a square that has lost no digits is as exact as `hypot`, and much faster.
        if (1e-280..1e300).contains(&square) { square.sqrt() } else { dx.hypot(dy) }
    }
}
