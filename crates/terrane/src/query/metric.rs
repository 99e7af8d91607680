//! Measures of distance for nearest-neighbour searches.

use terrane_lsm::search::{Metric, Surface};
use terrane_space::sphere::{PreparedPoint, chord_squared_from_distance_m, chord_squared_to_rect, distance_to_rect_m};
use terrane_space::{Point, Rect};

/// Squared Euclidean distance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanarMetric(pub Point);

impl Metric for PlanarMetric {
    #[inline]
    fn to_rect(&self, rect: &Rect) -> f64 {
        // Without a branch for empty rectangles, which are infinitely far in this formula too.
        let dx = (rect.x0 - self.0.x).max(self.0.x - rect.x1).max(0.0);
        let dy = (rect.y0 - self.0.y).max(self.0.y - rect.y1).max(0.0);
        dx * dx + dy * dy
    }

    #[inline]
    fn to_node(&self, rect: &Rect) -> f64 {
        // Rounding the difference, the square and the sum keeps the order.
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
        // Wide enough to cover the rounding of the root and of the sums.
        let reach = measure.sqrt() * (1.0 + 1e-12) + 1e-12 * (self.0.x.abs() + self.0.y.abs());
        Some(Rect { x0: self.0.x - reach, y0: self.0.y - reach, x1: self.0.x + reach, y1: self.0.y + reach })
    }

    fn surface(&self) -> Surface {
        Surface::Plane(self.0)
    }
}

/// Squared chord of the unit sphere, which increases with the great-circle distance.
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
        chord_squared_to_rect(self.place.point(), *rect)
    }

    fn to_node(&self, rect: &Rect) -> f64 {
        // The computed distance may differ slightly between a box and one inside it, because each
        // may use another meridian.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers up to 90, at and beside the finest floats and the ends of latitudes, and elsewhere.
    fn number() -> impl Strategy<Value = f64> {
        let marks = prop::sample::select(vec![0.0, -0.0, 90.0, -90.0, 45.0, 5e-324, -1e-12]);
        let shift = (-330..=-5i32, -10.0..10.0f64).prop_map(|(exponent, digits)| digits * 10f64.powi(exponent));
        prop_oneof![
            2 => marks.clone(),
            3 => (marks, shift).prop_map(|(mark, shift)| (mark + shift).clamp(-90.0, 90.0)),
            2 => -90.0..=90.0,
        ]
    }

    /// A box and one inside it that often shares sides with it.
    fn nested(x_scale: f64) -> impl Strategy<Value = (Rect, Rect)> {
        (prop::array::uniform4(number()), prop::array::uniform4(number()), prop::array::uniform4(0..4u8)).prop_map(
            move |(x, mut y, shared)| {
                let mut x = x.map(|x| x * x_scale);
                x.sort_by(f64::total_cmp);
                y.sort_by(f64::total_cmp);
                let inner = Rect::new(x[1], y[1], x[2], y[2]);
                let side = |index: usize, outer: f64, inner: f64| if shared[index] > 0 { inner } else { outer };
                let outer = [side(0, x[0], x[1]), side(1, y[0], y[1]), side(2, x[3], x[2]), side(3, y[3], y[2])];
                (Rect::new(outer[0], outer[1], outer[2], outer[3]), inner)
            },
        )
    }

    fn check(metric: &impl Metric, outer: &Rect, inner: &Rect) -> Result<(), TestCaseError> {
        let bound = metric.to_node(outer);
        let measure = metric.to_rect(inner);
        prop_assert!(bound <= measure, "{bound} of {outer:?} above {measure} of {inner:?}, {:?}", metric.surface());
        for (x, y) in [(inner.x0, inner.y0), (inner.x1, inner.y0), (inner.x0, inner.y1), (inner.x1, inner.y1)] {
            let point = metric.to_point(Point { x, y });
            prop_assert!(bound <= point, "{bound} of {outer:?} above {point} of {x} {y}, {:?}", metric.surface());
            prop_assert!(measure <= point, "{measure} of {inner:?} above {point} of {x} {y}, {:?}", metric.surface());
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 20_000 } else { 200_000 }))]

        #[test]
        fn bounds_of_nodes_are_at_most_the_measures_of_their_contents(
            (outer, inner) in nested(2.0),
            (x, y) in (number(), number()),
            scale in prop::sample::select(vec![1.0, 1e-300, 1e-160, 1e140]),
        ) {
            check(&SphereMetric::new(Point { x: 2.0 * x, y }), &outer, &inner)?;
            let scaled = |rect: Rect| Rect::new(rect.x0 * scale, rect.y0 * scale, rect.x1 * scale, rect.y1 * scale);
            check(&PlanarMetric(Point { x: x * scale, y: y * scale }), &scaled(outer), &scaled(inner))?;
        }
    }
}
