//! Distances by which nearest-neighbour searches go.

use terrane_lsm::search::{Metric, Surface};
use terrane_space::sphere::{PreparedPoint, chord_squared_from_distance_m, distance_to_rect_m};
use terrane_space::{Point, Rect};

/// Squared Euclidean distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanarMetric(pub Point);

impl Metric for PlanarMetric {
    #[inline]
    fn to_rect(&self, rect: &Rect) -> f64 {
        // Without a branch for empty rectangles, which are infinitely far this way too.
        let dx = (rect.x0 - self.0.x).max(self.0.x - rect.x1).max(0.0);
        let dy = (rect.y0 - self.0.y).max(self.0.y - rect.y1).max(0.0);
        dx * dx + dy * dy
    }

    #[inline]
    fn to_node(&self, rect: &Rect) -> f64 {
        // The roundings of a difference, a square and a sum keep the order.
        self.to_rect(rect)
    }

    #[inline]
    fn to_point(&self, point: Point) -> f64 {
        let (dx, dy) = (point.x - self.0.x, point.y - self.0.y);
        dx * dx + dy * dy
    }

    fn window(&self, measure: f64) -> Option<Rect> {
        if !measure.is_finite() {
            return None;
        }
        // Wide enough for the rounding of the root and of the sums.
        let reach = measure.sqrt() * (1.0 + 1e-12) + 1e-12 * (self.0.x.abs() + self.0.y.abs());
        Some(Rect { x0: self.0.x - reach, y0: self.0.y - reach, x1: self.0.x + reach, y1: self.0.y + reach })
    }

    fn surface(&self) -> Surface {
        Surface::Plane(self.0)
    }
}

/// Squared chord of the unit sphere, which rises with the great-circle distance.
#[derive(Clone, Debug)]
pub(crate) struct SphereMetric {
    place: PreparedPoint,
}

impl SphereMetric {
    pub fn new(place: Point) -> Self {
        Self { place: PreparedPoint::new(place) }
    }
}

impl Metric for SphereMetric {
    fn to_rect(&self, rect: &Rect) -> f64 {
        // The distance to a box is a lower bound; the conversion may round it up by a little.
        chord_squared_from_distance_m(distance_to_rect_m(self.place.point(), *rect)) * (1.0 - 1e-12)
    }

    fn to_node(&self, rect: &Rect) -> f64 {
        // The same distance comes out a little differently for a box and for one inside it, as
        // each may be computed along another meridian.
        let distance_m = (distance_to_rect_m(self.place.point(), *rect) * (1.0 - 1e-12) - 1e-6).max(0.0);
        chord_squared_from_distance_m(distance_m) * (1.0 - 1e-11)
    }

    fn to_point(&self, point: Point) -> f64 {
        self.place.chord_squared(point)
    }

    fn window(&self, _: f64) -> Option<Rect> {
        None
    }

    fn surface(&self) -> Surface {
        Surface::Sphere(self.place.point())
    }
}
