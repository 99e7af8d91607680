//! Bounds of distances for all entries of a page at once.
//!
//! They are single-precision numbers, so that one instruction computes many. Where that rounds, a
//! lower bound is lowered and an upper bound raised by more than the possible error.

use terrane_space::sphere::sin_cos_latitude;
use terrane_space::{Point, Rect, RectF32, f32_below};

use super::kernels::{self, ERROR, ROUNDING};
use super::pages::{FANOUT_MAX, Hits, Inner, Leaf, POINTS_MAX};
use crate::disk::column::EvenSteps;

/// A query's position, and the distance measure.
#[derive(Clone, Copy, Debug)]
pub enum Surface {
    /// Squared Euclidean distances.
    Plane(Point),
    /// Squared chords of the unit sphere, from longitude and latitude in degrees.
    Sphere(Point),
}

/// A [`Surface`] prepared for bounds.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    surface: Surface,
    /// The place in single precision.
    around: RectF32,
    /// The cosine of its latitude, on a sphere.
    cos: f64,
}

impl Origin {
    /// Prepares a position.
    pub fn new(surface: Surface) -> Self {
        let (place, cos) = match surface {
            Surface::Plane(place) => (place, 1.0),
            Surface::Sphere(place) => (place, cosine(place.y)),
        };
        Self { surface, around: RectF32::outward(Rect::from_point(place)), cos }
    }

    /// The distances that the steps of a leaf's columns cover, seen from here.
    #[inline]
    fn scales(&self, x: EvenSteps, y: EvenSteps) -> Option<Scales> {
        match self.surface {
            Surface::Plane(place) => Some(Scales { place, x: x.step, y: y.step, stretch: 1.0 }),
            Surface::Sphere(place) => sphere_scales(place, self.cos, x, y),
        }
    }
}

/// The length of one step of each column, at least and near a position.
struct Scales {
    /// The position, with its longitude turned towards the leaf.
    place: Point,
    x: f64,
    y: f64,
    /// Distances exceed those by the scales at most by this factor.
    stretch: f64,
}

/// The cosine of a latitude, with all its digits near the poles, as in the exact measure.
fn cosine(latitude: f64) -> f64 {
    sin_cos_latitude(latitude).1.max(0.0)
}

/// A squared chord is the sum of (2 sin(dy / 2))² and cos y cos y' (2 sin(dx / 2))². Within a leaf,
/// its sines and cosines change little.
fn sphere_scales(place: Point, cos: f64, x: EvenSteps, y: EvenSteps) -> Option<Scales> {
    /// Leaves in which a distance changes by more are rare, and wide.
    const STRETCH_MAX: f64 = 1.5;
    let (x_last, y_last) = (x.first + x.step * x.count, (y.first + y.step * y.count).min(90.0));
    let turns = ((0.5 * (x.first + x_last) - place.x) / 360.0).round();
    let place = Point { x: place.x + 360.0 * turns, y: place.y };
    let farthest = |from: f64, first: f64, last: f64| (first - from).abs().max((last - from).abs()).to_radians();
    let (half_x, half_y) = (0.5 * farthest(place.x, x.first, x_last), 0.5 * farthest(place.y, y.first, y_last));
    if half_x > std::f64::consts::FRAC_PI_2 {
        return None;
    }
    let (first_cos, last_cos) = (cosine(y.first), cosine(y_last));
    let over_equator = y.first <= 0.0 && y_last >= 0.0;
    let cos_max = if over_equator { 1.0 } else { first_cos.max(last_cos) };
    let cos_min = first_cos.min(last_cos).max(0.0);
    // From sin t >= t (1 - t² / 6); slightly less, because of rounding.
    let sine = |half: f64| (1.0 - half * half / 6.0) * (1.0 - 1e-9);
    let (x_max, y_max) = (x.step.to_radians() * (cos * cos_max).sqrt(), y.step.to_radians());
    let (x_min, y_min) = (x.step.to_radians() * (cos * cos_min).sqrt() * sine(half_x), y_max * sine(half_y));
    let stretch = (x_max / x_min).max(y_max / y_min);
    // Not if a scale is 0.
    (stretch <= STRETCH_MAX && x_min > 0.0).then_some(Scales { place, x: x_min, y: y_min, stretch })
}

/// Lower bounds of the measures of an inner page's boxes. None is below 0; beyond the last box they
/// are infinite.
#[derive(Clone, Copy, Debug)]
pub struct BoxBounds(pub [f32; FANOUT_MAX]);

impl Default for BoxBounds {
    fn default() -> Self {
        Self([f32::INFINITY; FANOUT_MAX])
    }
}

impl BoxBounds {
    /// The smallest one.
    #[inline]
    pub fn min(&self) -> f32 {
        kernels::least(&self.0)
    }

    /// Marks the boxes whose bounds are at most this.
    #[inline]
    pub fn mark(&self, at_most: f32, hits: &mut Hits) {
        kernels::mark_up_to(hits.bytes(FANOUT_MAX), &self.0, at_most);
    }
}

impl Inner<'_> {
    /// Bounds of the measures of all boxes, seen from a position.
    #[inline]
    pub fn distance_bounds(&self, from: &Origin, bounds: &mut BoxBounds) {
        let count = self.children.len();
        bounds.0[count..].fill(f32::INFINITY);
        let (boxes, bounds) = ([self.x0, self.y0, self.x1, self.y1], &mut bounds.0[..count]);
        match from.surface {
            Surface::Plane(_) => kernels::box_distances(bounds, boxes, &from.around),
            Surface::Sphere(place) => {
                let turned = [-360.0, 0.0, 360.0].map(|turn| {
                    let x = place.x + turn;
                    let RectF32 { x0, x1, .. } = RectF32::outward(Rect { x0: x, y0: 0.0, x1: x, y1: 0.0 });
                    [x0, x1]
                });
                let latitude = [from.around.y0, from.around.y1];
                kernels::box_chords(bounds, boxes, turned, latitude, f32_below(from.cos * (1.0 - 1e-12)));
            }
        }
    }
}

/// Bounds of the measures of a leaf's points.
#[derive(Clone, Copy, Debug)]
pub struct DistanceBounds {
    /// In squares of the unit.
    lower: [f32; POINTS_MAX],
    count: usize,
    /// Square of the unit.
    square: f64,
    /// Units by which a distance can exceed its lower bound, before the stretch.
    span: f64,
    /// Square of the largest stretch.
    stretch: f64,
}

impl Default for DistanceBounds {
    fn default() -> Self {
        Self { lower: [0.0; POINTS_MAX], count: 0, square: 1.0, span: 0.0, stretch: 1.0 }
    }
}

impl Leaf<'_> {
    /// Bounds of the measures of the points, seen from a position, from the upper parts of their
    /// coordinates alone. Returns false if the points do not lie on an even grid, or are too far
    /// away for its numbers.
    #[inline]
    pub fn distance_bounds(&self, from: &Origin, bounds: &mut DistanceBounds) -> bool {
        self.fill_distance_bounds(from, bounds).is_some()
    }

    #[inline]
    fn fill_distance_bounds(&self, from: &Origin, bounds: &mut DistanceBounds) -> Option<()> {
        // Up to here, the grid's numbers and their differences err by less than `ROUNDING`.
        const FARTHEST: f64 = (1 << 18) as f64;
        // Down to here, the squares of differences are normal numbers.
        const NARROWEST: f64 = 1.0 / (1u64 << 32) as f64;
        if self.far.is_some() {
            return None;
        }
        let (x, y) = (self.x0.even_steps()?, self.y0.even_steps()?);
        let scales = from.scales(x, y)?;
        let (at_x, at_y) = ((scales.place.x - x.first) / x.step, (scales.place.y - y.first) / y.step);
        let unit = if scales.x > scales.y { scales.x } else { scales.y };
        // The square of the unit neither vanishes nor overflows.
        let in_reach = at_x.abs() <= FARTHEST && at_y.abs() <= FARTHEST;
        if !in_reach || !(1e-140..1e140).contains(&unit) || scales.x.min(scales.y) < unit * NARROWEST {
            return None;
        }
        let (at_x, at_y) = (at_x as f32, at_y as f32);
        let (scale_x, scale_y) = ((scales.x / unit) as f32, (scales.y / unit) as f32);
        let columns = [self.x0.upper(), self.y0.upper()];
        kernels::grid_distances(&mut bounds.lower, columns, [at_x, at_y], [scale_x, scale_y]);
        bounds.count = self.count;
        bounds.square = unit * unit;
        bounds.stretch = scales.stretch * scales.stretch;
        // One of the scales is 1, so the other one gives the length of a step's diagonal.
        let (scale_x, scale_y) = (f64::from(scale_x), f64::from(scale_y));
        bounds.span = 2.0 * (1.0 + f64::from(ROUNDING)) * (scale_x * scale_x + scale_y * scale_y).sqrt();
        Some(())
    }
}

impl DistanceBounds {
    #[inline]
    fn values(&self) -> &[f32] {
        &self.lower[..self.count]
    }

    /// A measure as [`Self::mark`] needs it, rounded up.
    #[inline]
    pub fn count_of(&self, squared: f64) -> f32 {
        (squared / self.square * (1.0 + f64::from(ERROR))) as f32
    }

    /// A lower bound of the measure of a point.
    #[inline]
    pub fn lower(&self, index: usize) -> f64 {
        f64::from(self.lower[index]) * self.square
    }

    /// An upper bound of the measure of a point.
    #[inline]
    pub fn upper(&self, index: usize) -> f64 {
        let upper = f64::from(self.lower[index]).sqrt() + self.span;
        upper * upper * (1.0 + 1e-5) * self.square * self.stretch
    }

    /// Marks the points whose bounds are above the first and at most the second number.
    #[inline]
    pub fn mark(&self, above: f32, at_most: f32, hits: &mut Hits) {
        kernels::mark_between(hits.bytes(self.count), self.values(), above, at_most);
    }

    /// A number that the bounds of at least `count` points do not exceed, and those of few more;
    /// infinite if there are no more points than that.
    #[inline]
    pub fn threshold(&self, count: usize) -> f32 {
        kernels::threshold(self.values(), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::PagePointer;
    use proptest::prelude::*;
    use terrane_space::sphere::{PreparedPoint, chord_squared_to_rect};

    /// Numbers close to zero, of either sign.
    fn tiny() -> impl Strategy<Value = f64> {
        (any::<bool>(), -330..=-5i32, 1.0..10.0f64).prop_map(|(is_negative, exponent, digits)| {
            let size = digits * 10f64.powi(exponent);
            if is_negative { -size } else { size }
        })
    }

    /// Degrees up to `end`: at and near the finest numbers and the ends, and elsewhere.
    fn degrees(end: f64) -> impl Strategy<Value = f64> {
        let marks = vec![0.0, -0.0, end, -end, end.next_down(), -end.next_down(), 0.5 * end, 1.0, 5e-324];
        let mark = prop::sample::select(marks);
        prop_oneof![
            2 => mark.clone(),
            3 => (mark, tiny()).prop_map(move |(mark, shift)| (mark + shift).clamp(-end, end)),
            2 => -end..=end,
        ]
    }

    /// Boxes, each with a box inside that often shares sides with it, as in nodes.
    fn nested() -> impl Strategy<Value = (Rect, Rect)> {
        (prop::array::uniform4(degrees(180.0)), prop::array::uniform4(degrees(90.0)), prop::array::uniform4(0..4u8))
            .prop_map(|(mut x, mut y, shared)| {
                x.sort_by(f64::total_cmp);
                y.sort_by(f64::total_cmp);
                let inner = Rect::new(x[1], y[1], x[2], y[2]);
                let side = |index: usize, outer: f64, inner: f64| if shared[index] > 0 { inner } else { outer };
                let outer = [side(0, x[0], x[1]), side(1, y[0], y[1]), side(2, x[3], x[2]), side(3, y[3], y[2])];
                (Rect::new(outer[0], outer[1], outer[2], outer[3]), inner)
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 2_000 } else { 20_000 }))]

        /// The bound of a node's box is at most the measure of everything in it, boxes or points.
        /// The nearest-neighbour search relies on this.
        #[test]
        fn bounds_on_the_sphere_are_at_most_the_measures_of_what_is_inside(
            boxes in prop::collection::vec(nested(), 1..20),
            (x, y) in (degrees(180.0), degrees(90.0)),
        ) {
            let place = Point::new(x, y);
            let prepared = PreparedPoint::new(place);
            let outward: Vec<RectF32> = boxes.iter().map(|(outer, _)| RectF32::outward(*outer)).collect();
            let column = |side: fn(&RectF32) -> f32| outward.iter().map(side).collect::<Vec<_>>();
            let (x0, y0, x1, y1) = (column(|r| r.x0), column(|r| r.y0), column(|r| r.x1), column(|r| r.y1));
            let children = vec![PagePointer::default(); boxes.len()];
            let inner = Inner { x0: &x0, y0: &y0, x1: &x1, y1: &y1, children: &children };
            let mut bounds = BoxBounds::default();
            inner.distance_bounds(&Origin::new(Surface::Sphere(place)), &mut bounds);
            for ((outer, inner), bound) in boxes.iter().zip(bounds.0) {
                let bound = f64::from(bound);
                let measure = chord_squared_to_rect(place, *inner);
                prop_assert!(bound <= measure, "{bound} of {outer:?} above {measure} of {inner:?} from {place:?}");
                for (x, y) in [(inner.x0, inner.y0), (inner.x1, inner.y0), (inner.x0, inner.y1), (inner.x1, inner.y1)] {
                    let measure = prepared.chord_squared(Point::new(x, y));
                    prop_assert!(bound <= measure, "{bound} of {outer:?} above {measure} of {x} {y} from {place:?}");
                }
            }
        }
    }
}
