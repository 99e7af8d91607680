//! Loops over the columns of a page, compiled for several vector widths. The widest that the
//! processor supports is chosen at run time.
//!
//! Lists that belong together have one length. Of longer lists, only the front is used.

use terrane_space::RectF32;
use terrane_space::sphere::{EARTH_RADIUS_M, RECT_SLACK_M};

use crate::disk::column::UpperRange;

/// More than the relative error of the few operations that compute a bound of a distance.
pub const ERROR: f32 = 1e-6;
/// More than single precision changes a number of a grid.
pub const ROUNDING: f32 = 0.0625;
/// Twice the error by which the measure of a box on the sphere may be too small
/// (`chord_squared_to_rect`).
const CHORD_SLACK: f32 = (4.0 * RECT_SLACK_M / EARTH_RADIUS_M) as f32;

/// Most numbers that [`smallest`] returns.
pub const SMALLEST_MAX: usize = 64;

/// Compiles functions for several instruction sets.
macro_rules! vectorized {
    ($($(#[$attribute:meta])* pub fn $name:ident $arguments:tt $(-> $result:ty)? $body:block)*) => { $(
        $(#[$attribute])*
        #[multiversion::multiversion(targets("x86_64+avx2"))]
        pub fn $name $arguments $(-> $result)? $body
    )* };
}

/// The greater one. Neither is NaN, for which `f32::max` would need extra steps.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The smallest or greatest number of all, computed in several lanes.
#[inline(always)]
fn reduce(values: &[f32], start: f32, choose: impl Fn(f32, f32) -> f32) -> f32 {
    const LANES: usize = 16;
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut chosen = [start; LANES];
    for chunk in chunks {
        for (chosen, value) in chosen.iter_mut().zip(chunk) {
            *chosen = choose(*chosen, *value);
        }
    }
    chosen.iter().chain(rest).fold(start, |a, b| choose(a, *b))
}

vectorized! {
    /// Marks the points whose upper parts lie in the ranges.
    pub fn mark_points(hits: &mut [u8], xs: &[u16], x: UpperRange, ys: &[u16], y: UpperRange) {
        for ((hit, px), py) in hits.iter_mut().zip(xs).zip(ys) {
            *hit = u8::from(px.wrapping_sub(x.low) <= x.span) & u8::from(py.wrapping_sub(y.low) <= y.span);
        }
    }

    /// Keeps the marks of the points whose upper parts lie in the ranges.
    pub fn keep_points(hits: &mut [u8], xs: &[u16], x: UpperRange, ys: &[u16], y: UpperRange) {
        for ((hit, px), py) in hits.iter_mut().zip(xs).zip(ys) {
            *hit &= u8::from(px.wrapping_sub(x.low) <= x.span) & u8::from(py.wrapping_sub(y.low) <= y.span);
        }
    }

    /// Marks the boxes that intersect the window.
    pub fn mark_boxes(hits: &mut [u8], [x0, y0, x1, y1]: [&[f32]; 4], window: &RectF32) {
        for ((((hit, x0), y0), x1), y1) in hits.iter_mut().zip(x0).zip(y0).zip(x1).zip(y1) {
            *hit = u8::from(*x0 <= window.x1)
                & u8::from(*y0 <= window.y1)
                & u8::from(*x1 >= window.x0)
                & u8::from(*y1 >= window.y0);
        }
    }

    /// Marks the numbers that are at most this.
    pub fn mark_up_to(hits: &mut [u8], values: &[f32], at_most: f32) {
        for (hit, value) in hits.iter_mut().zip(values) {
            *hit = u8::from(*value <= at_most);
        }
    }

    /// Marks the numbers above the first and up to the second number.
    pub fn mark_between(hits: &mut [u8], values: &[f32], above: f32, at_most: f32) {
        for (hit, value) in hits.iter_mut().zip(values) {
            *hit = u8::from(*value > above) & u8::from(*value <= at_most);
        }
    }

    /// Lower bounds of the squared distances of boxes from a position that lies somewhere in
    /// `from`.
    pub fn box_distances(bounds: &mut [f32], [x0, y0, x1, y1]: [&[f32]; 4], from: &RectF32) {
        // Infinite corners and positions give infinite distances on one side, and the greater
        // number is right. A distance that overflows is at least as far as the largest number.
        for ((((bound, x0), y0), x1), y1) in bounds.iter_mut().zip(x0).zip(y0).zip(x1).zip(y1) {
            let dx = greater(greater(x0 - from.x1, from.x0 - x1), 0.0);
            let dy = greater(greater(y0 - from.y1, from.y0 - y1), 0.0);
            let square = smaller(dx * dx + dy * dy, f32::MAX) * (1.0 - ERROR);
            // Subnormal numbers have lost digits.
            *bound = greater(square - f32::MIN_POSITIVE, 0.0);
        }
    }

    /// Lower bounds of the squared chords, on the unit sphere, from boxes of degrees to a position.
    /// The position is given by its longitude turned by each of three angles, its latitude, and the
    /// cosine of that.
    ///
    /// They also bound `chord_squared_to_rect` of any box inside. The sum below only shrinks as a
    /// box grows. It is lowered by more than all rounding on both sides, and by more than that
    /// measure is short of a chord. Differences of degrees keep their digits: columns and positions
    /// are rounded outward, so near the antimeridian they differ by nothing or by far more than the
    /// rounding of a turn.
    pub fn box_chords(
        bounds: &mut [f32],
        [x0, y0, x1, y1]: [&[f32]; 4],
        turned: [[f32; 2]; 3],
        latitude: [f32; 2],
        cos: f32
    ) {
        const RADIANS: f32 = std::f32::consts::PI / 180.0;
        for ((((bound, x0), y0), x1), y1) in bounds.iter_mut().zip(x0).zip(y0).zip(x1).zip(y1) {
            // The nearest longitude and the nearest latitude, even of different points.
            let away = |x: [f32; 2]| greater(greater(x0 - x[1], x[0] - x1), 0.0);
            let half_x = smaller(away(turned[0]), smaller(away(turned[1]), away(turned[2]))) * (0.5 * RADIANS);
            let half_y = greater(greater(y0 - latitude[1], latitude[0] - y1), 0.0) * (0.5 * RADIANS);
            // Sines, and the least cosine of a latitude, by series that end below them.
            let sin_x = half_x * (1.0 - half_x * half_x * (1.0 / 6.0));
            let sin_y = half_y * (1.0 - half_y * half_y * (1.0 / 6.0));
            let farthest = greater(-*y0, *y1) * RADIANS;
            let square = farthest * farthest;
            let series = 1.0 - square * (0.5 - square * (1.0 / 24.0 - square * (1.0 / 720.0)));
            let least_cos = greater(series - 4.0 * ERROR, 0.0);
            let chord = 4.0 * (sin_y * sin_y + cos * least_cos * sin_x * sin_x) * (1.0 - 8.0 * ERROR);
            // Far above the loss of digits in subnormal numbers.
            *bound = greater(chord - CHORD_SLACK, 0.0);
        }
    }

    /// Lower bounds of the squared distances of a grid's points from a position on the grid. The
    /// points are known to one step.
    pub fn grid_distances(bounds: &mut [f32], [x, y]: [&[u16]; 2], at: [f32; 2], scale: [f32; 2]) {
        for ((bound, x), y) in bounds.iter_mut().zip(x).zip(y) {
            // A point lies up to one step beyond its upper part.
            let dx = greater((f32::from(*x) - at[0]).abs() - (1.0 + ROUNDING), 0.0) * scale[0];
            let dy = greater((f32::from(*y) - at[1]).abs() - (1.0 + ROUNDING), 0.0) * scale[1];
            *bound = (dx * dx + dy * dy) * (1.0 - ERROR);
        }
    }

    /// The smallest number.
    pub fn least(values: &[f32]) -> f32 {
        reduce(values, f32::INFINITY, smaller)
    }

    /// A number that at least `count` of the squared distances do not exceed, and few more than
    /// those; infinite if there are no more than that.
    pub fn threshold(values: &[f32], count: usize) -> f32 {
        const STEPS: usize = 24;
        if values.len() <= count {
            return f32::INFINITY;
        }
        let within = |limit: f32| values.iter().map(|bound| u32::from(*bound <= limit)).sum::<u32>() as usize;
        let mut low = reduce(values, f32::INFINITY, smaller);
        let mut high = reduce(values, 0.0, greater);
        // Points that fill a circle evenly have evenly spread squared distances.
        let mut guess = low + (high - low) * (0.6 * count as f32 / values.len() as f32);
        for _ in 0..STEPS {
            let found = within(guess);
            if found < count {
                low = guess;
                guess = greater(smaller(2.0 * guess, 0.5 * (low + high)), guess);
            } else {
                high = guess;
                if found <= count + count / 2 + 4 {
                    break;
                }
                guess = 0.5 * (low + high);
            }
        }
        high
    }

    /// The smallest of the first `len` numbers, ascending, as many as `sorted` holds. No number may
    /// be negative.
    pub fn smallest(values: &[f64; SMALLEST_MAX], len: usize, sorted: &mut [f64]) {
        const LANES: usize = 8;
        sorted.fill(0.0);
        for value in &values[..len] {
            let mut ranks = [0_u64; LANES];
            for chunk in values[..len.next_multiple_of(LANES)].as_chunks::<LANES>().0 {
                for (rank, other) in ranks.iter_mut().zip(chunk) {
                    *rank += u64::from(other < value);
                }
            }
            if let Some(place) = sorted.get_mut(ranks.iter().sum::<u64>() as usize) {
                *place = *value;
            }
        }
        // Equal numbers all have the index of the first.
        let mut greatest = 0.0;
        for value in sorted {
            if *value < greatest {
                *value = greatest;
            }
            greatest = *value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use terrane_space::sphere::PreparedPoint;
    use terrane_space::{Point, Rect};

    fn coordinate() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => -200.0..200.0f64,
            2 => -1e-22..1e-22f64,
            1 => -1e25..1e25f64,
            1 => prop::sample::select(vec![0.0, -0.0, 1e-300, 1e40, -1e40, 1e300, -1e300, f64::MAX, f64::MIN]),
        ]
    }

    proptest! {
        #[test]
        fn box_distances_are_lower_bounds(
            corners in prop::collection::vec((coordinate(), coordinate(), coordinate(), coordinate()), 1..40),
            (x, y) in (coordinate(), coordinate()),
        ) {
            let rects: Vec<Rect> = corners
                .iter()
                .map(|(a, b, c, d)| Rect { x0: a.min(*c), y0: b.min(*d), x1: a.max(*c), y1: b.max(*d) })
                .collect();
            let outward: Vec<RectF32> = rects.iter().map(|rect| RectF32::outward(*rect)).collect();
            let column = |side: fn(&RectF32) -> f32| outward.iter().map(side).collect::<Vec<_>>();
            let (x0, y0, x1, y1) = (column(|r| r.x0), column(|r| r.y0), column(|r| r.x1), column(|r| r.y1));
            let mut bounds = vec![f32::NAN; rects.len()];
            let from = RectF32::outward(Rect { x0: x, y0: y, x1: x, y1: y });
            box_distances(&mut bounds, [&x0, &y0, &x1, &y1], &from);
            for (rect, bound) in rects.iter().zip(bounds) {
                let dx = (rect.x0 - x).max(x - rect.x1).max(0.0);
                let dy = (rect.y0 - y).max(y - rect.y1).max(0.0);
                prop_assert!(bound >= 0.0 && f64::from(bound) <= dx * dx + dy * dy, "{rect:?} {bound}");
            }
        }

        #[test]
        fn box_chords_are_lower_bounds_and_close(
            corners in prop::collection::vec((-180.0..=180.0f64, -90.0..=90.0f64, -180.0..=180.0f64, -90.0..=90.0f64), 1..40),
            size in prop::sample::select(vec![1.0, 0.1, 1e-4]),
            (x, y) in (-180.0..=180.0f64, prop_oneof![-90.0..=90.0f64, Just(90.0), Just(-90.0)]),
            inside in (0.0..=1.0f64, 0.0..=1.0f64),
        ) {
            let place = Point { x, y };
            let prepared = PreparedPoint::new(place);
            let rects: Vec<Rect> = corners
                .iter()
                .map(|(a, b, c, d)| {
                    let (c, d) = (a + (c - a) * size, b + (d - b) * size);
                    Rect { x0: a.min(c), y0: b.min(d), x1: a.max(c), y1: b.max(d) }
                })
                .collect();
            let outward: Vec<RectF32> = rects.iter().map(|rect| RectF32::outward(*rect)).collect();
            let column = |side: fn(&RectF32) -> f32| outward.iter().map(side).collect::<Vec<_>>();
            let (x0, y0, x1, y1) = (column(|r| r.x0), column(|r| r.y0), column(|r| r.x1), column(|r| r.y1));
            let mut bounds = vec![f32::NAN; rects.len()];
            let turned = [-360.0, 0.0, 360.0].map(|turn| [terrane_space::f32_below(x + turn), terrane_space::f32_above(x + turn)]);
            let latitude = [terrane_space::f32_below(y), terrane_space::f32_above(y)];
            let cos = terrane_space::f32_below(y.to_radians().cos().max(0.0));
            box_chords(&mut bounds, [&x0, &y0, &x1, &y1], turned, latitude, cos);
            for (rect, bound) in rects.iter().zip(bounds) {
                let at = Point {
                    x: (rect.x0 + (rect.x1 - rect.x0) * inside.0).min(rect.x1),
                    y: (rect.y0 + (rect.y1 - rect.y0) * inside.1).min(rect.y1),
                };
                let chord = prepared.chord_squared(at);
                prop_assert!(f64::from(bound) <= chord, "{rect:?} from {place:?}: {bound} above {chord} of {at:?}");
                // In a small box, any point is about as far as the nearest one.
                if size < 1e-3 && chord < 0.1 && y.abs() < 80.0 && at.y.abs() < 80.0 {
                    let slack = 0.02 * chord.sqrt() + 0.001;
                    prop_assert!(f64::from(bound).sqrt() >= chord.sqrt() - slack, "{bound} far below {chord}");
                }
            }
        }

        #[test]
        fn box_distances_of_maps_are_close(
            (x0, y0, x1, y1) in (-180.0..180.0f64, -90.0..90.0f64, 0.0..1.0f64, 0.0..1.0f64),
            (x, y) in (-180.0..180.0f64, -90.0..90.0f64),
        ) {
            let outward = RectF32::outward(Rect { x0, y0, x1: x0 + x1, y1: y0 + y1 });
            let from = RectF32::outward(Rect { x0: x, y0: y, x1: x, y1: y });
            let mut bound = [f32::NAN];
            box_distances(&mut bound, [&[outward.x0], &[outward.y0], &[outward.x1], &[outward.y1]], &from);
            let dx = (x0 - x).max(x - (x0 + x1)).max(0.0);
            let dy = (y0 - y).max(y - (y0 + y1)).max(0.0);
            prop_assert!(f64::from(bound[0]).sqrt() >= dx.hypot(dy) * (1.0 - 1e-6) - 1e-4);
        }

        #[test]
        fn the_smallest_numbers_come_in_order(
            numbers in prop::collection::vec(prop_oneof![0.0..10.0f64, (0..5u8).prop_map(f64::from), Just(f64::INFINITY)], 1..=SMALLEST_MAX),
            wanted in 1..=SMALLEST_MAX,
        ) {
            let wanted = wanted.min(numbers.len());
            let mut values = [f64::INFINITY; SMALLEST_MAX];
            values[..numbers.len()].copy_from_slice(&numbers);
            let mut found = vec![f64::NAN; wanted];
            smallest(&values, numbers.len(), &mut found);
            let mut sorted = numbers;
            sorted.sort_by(f64::total_cmp);
            prop_assert_eq!(found, &sorted[..wanted]);
        }

        #[test]
        fn the_least_number_is_found(numbers in prop::collection::vec(-9.0..9.0f32, 1..80)) {
            prop_assert_eq!(least(&numbers), numbers.iter().copied().fold(f32::INFINITY, f32::min));
        }

        #[test]
        fn thresholds_hold_enough_and_few_more(numbers in prop::collection::vec(0.0..9.0f32, 1..128), count in 1..64usize) {
            let within = numbers.iter().filter(|number| **number <= threshold(&numbers, count)).count();
            prop_assert!(within >= count.min(numbers.len()));
            prop_assert!(numbers.len() <= count || within <= count + count / 2 + 4, "{within}");
        }
    }
}
