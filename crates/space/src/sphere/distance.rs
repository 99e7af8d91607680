//! Distances between points, accurate from nanometres to the antipode.

use super::EARTH_RADIUS_M;
use super::angle::{longitude_difference, sin_cos_latitude};
use crate::Point;

/// Great-circle distance between two points, in metres.
#[inline]
pub fn distance_m(a: Point, b: Point) -> f64 {
    PreparedPoint::new(a).distance_m(b)
}

/// A point from which many distances are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PreparedPoint {
    point: Point,
    cos_latitude: f64,
}

impl PreparedPoint {
    /// Prepares `point`.
    pub fn new(point: Point) -> Self {
        Self { point, cos_latitude: sin_cos_latitude(point.y).1 }
    }

    /// The prepared point.
    pub fn point(&self) -> Point {
        self.point
    }

    /// Squared length of the chord to `other` through the unit sphere, 0 to 4.
    ///
    /// It grows with the distance and needs no inverse function. Use it for ranking and for
    /// comparison with [`chord_squared_from_distance_m`]. The relative error is a few roundings,
    /// also for the smallest distances. Only within some 200 km of the antipode is it flat enough
    /// to blur decimetres.
    #[inline]
    pub fn chord_squared(&self, other: Point) -> f64 {
        4.0 * self.haversine(other)
    }

    /// The distance to `other` in metres; the same as [`distance_m`].
    #[inline]
    pub fn distance_m(&self, other: Point) -> f64 {
        // sin² and cos² of half the angle, each a sum of positive terms. Neither tiny nor nearly
        // antipodal angles lose digits.
        let sin_squared = self.haversine(other);
        let half_longitude = (longitude_difference(self.point.x, other.x) * 0.5).to_radians();
        let half_latitude = ((self.point.y - other.y) * 0.5).to_radians();
        let mean_latitude = ((self.point.y + other.y) * 0.5).to_radians();
        let (sin_longitude, cos_longitude) = half_longitude.sin_cos();
        let cos_squared = (half_latitude.cos() * cos_longitude).powi(2) + (mean_latitude.sin() * sin_longitude).powi(2);
        2.0 * EARTH_RADIUS_M * sin_squared.sqrt().atan2(cos_squared.sqrt())
    }

    #[inline]
    fn haversine(&self, other: Point) -> f64 {
        let half_longitude = (longitude_difference(self.point.x, other.x) * 0.5).to_radians();
        let half_latitude = ((self.point.y - other.y) * 0.5).to_radians();
        let cos_latitude = sin_cos_latitude(other.y).1;
        half_latitude.sin().powi(2) + self.cos_latitude * cos_latitude * half_longitude.sin().powi(2)
    }
}

/// The distance in metres whose squared chord is `chord_squared`.
#[inline]
pub fn distance_m_from_chord(chord_squared: f64) -> f64 {
    2.0 * EARTH_RADIUS_M * (chord_squared.sqrt() * 0.5).min(1.0).asin()
}

/// The squared chord of `distance_m` metres; 4 for half the circumference and more.
#[inline]
pub fn chord_squared_from_distance_m(distance_m: f64) -> f64 {
    let half_angle = (distance_m / (2.0 * EARTH_RADIUS_M)).clamp(0.0, std::f64::consts::FRAC_PI_2);
    (2.0 * half_angle.sin()).powi(2)
}
