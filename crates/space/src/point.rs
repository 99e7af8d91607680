//! A position in the plane, or a longitude and a latitude in degrees.

use twofloat::TwoFloat;

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

    /// Euclidean distance to `other`, in the units of the coordinates. It is nearly always rounded
    /// only once, and a distance that has an exact float is that float.
    #[inline]
    pub fn planar_distance(self, other: Point) -> f64 {
        let (dx, dy) = (TwoFloat::new_sub(self.x, other.x), TwoFloat::new_sub(self.y, other.y));
        let (x, y) = (TwoFloat::new_mul(dx.hi(), dx.hi()), TwoFloat::new_mul(dy.hi(), dy.hi()));
        let square = TwoFloat::new_add(x.hi(), y.hi());
        // Beyond this, squares lose digits.
        if !(1e-280..1e300).contains(&square.hi()) {
            return dx.hi().hypot(dy.hi());
        }
        let rounding = square.lo() + x.lo() + y.lo() + 2.0 * (dx.hi() * dx.lo() + dy.hi() * dy.lo());
        let root = square.hi().sqrt();
        let root_squared = TwoFloat::new_mul(root, root);
        root + ((square.hi() - root_squared.hi()) - root_squared.lo() + rounding) / (2.0 * root)
    }
}
