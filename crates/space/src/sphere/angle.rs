//! Angles in degrees, exact at the poles and the antimeridian.

use crate::Point;

/// Sine and cosine of a latitude in degrees; the cosine is exactly 0 at the poles.
#[inline]
pub fn sin_cos_latitude(latitude: f64) -> (f64, f64) {
    if latitude.abs() <= 45.0 {
        latitude.to_radians().sin_cos()
    } else {
        // 90 - |latitude| is exact here, so the small cosine keeps its digits.
        let (cos, sin) = (90.0 - latitude.abs()).to_radians().sin_cos();
        // `sin_cos` of the colatitude gives the cosine first.
        (sin.copysign(latitude), cos)
    }
}

/// The angle between two meridians the shorter way round, in 0..=180 degrees.
#[inline]
pub(super) fn longitude_difference(a: f64, b: f64) -> f64 {
    let difference = (a - b).abs();
    if difference > 180.0 { (360.0 - difference).max(0.0) } else { difference }
}

/// A direction from the centre of the sphere.
pub(super) type Vector = [f64; 3];

pub(super) fn unit_vector(point: Point) -> Vector {
    let (sin_latitude, cos_latitude) = sin_cos_latitude(point.y);
    // Under both signs, the antimeridian is the same direction.
    let (sin_longitude, cos_longitude) = match point.x.abs() {
        180.0 => (0.0, -1.0),
        90.0 => (1f64.copysign(point.x), 0.0),
        _ => point.x.to_radians().sin_cos(),
    };
    [cos_latitude * cos_longitude, cos_latitude * sin_longitude, sin_latitude]
}

pub(super) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(super) fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

pub(super) fn add(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

pub(super) fn subtract(a: Vector, b: Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

pub(super) fn norm(a: Vector) -> f64 {
    dot(a, a).sqrt()
}
