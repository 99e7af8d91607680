//! Bounds of squared Euclidean distances for all entries of a page at once.
//!
//! They are single-precision numbers, so that many are computed by one instruction; where
//! those round, a lower bound is taken down and an upper bound up by more than they can err.

use terrane_space::{Point, RectF32};

use super::kernels::{self, ERROR, ROUNDING};
use super::pages::{FANOUT_MAX, Hits, Inner, Leaf, POINTS_MAX};

/// Lower bounds of the measures of an inner page's boxes, none below 0; infinite beyond the
/// last box.
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
    /// Bounds of the squared Euclidean distances from a place that lies somewhere in `from`.
    #[inline]
    pub fn distance_bounds(&self, from: &RectF32, bounds: &mut BoxBounds) {
        kernels::box_distances(&mut bounds.0, [self.x0, self.y0, self.x1, self.y1], from);
    }
}

/// Lower bounds of the squared distances of a leaf's points from a place.
#[derive(Clone, Copy, Debug)]
pub struct DistanceBounds {
    /// In squares of the unit.
    lower: [f32; POINTS_MAX],
    count: usize,
    /// Square of the unit.
    square: f64,
    /// Units by which a distance can exceed its lower bound.
    span: f64,
}

impl Default for DistanceBounds {
    fn default() -> Self {
        Self { lower: [0.0; POINTS_MAX], count: 0, square: 1.0, span: 0.0 }
    }
}

impl Leaf<'_> {
    /// Bounds of the squared Euclidean distances of the points from a place, from the upper
    /// parts of their coordinates alone. False where the points do not lie on an even grid, or too
    /// far away for its numbers.
    #[inline]
    pub fn distance_bounds(&self, from: Point, bounds: &mut DistanceBounds) -> bool {
        self.fill_distance_bounds(from, bounds).is_some()
    }

    #[inline]
    fn fill_distance_bounds(&self, from: Point, bounds: &mut DistanceBounds) -> Option<()> {
        // Up to here, the grid's numbers and their differences err by less than `ROUNDING`.
        const FARTHEST: f64 = (1 << 18) as f64;
        // Down to here, the squares of differences are normal numbers.
        const NARROWEST: f64 = 1.0 / (1u64 << 32) as f64;
        if self.far.is_some() {
            return None;
        }
        let ((x, step_x), (y, step_y)) = (self.x0.even_steps()?, self.y0.even_steps()?);
        let (at_x, at_y) = ((from.x - x) / step_x, (from.y - y) / step_y);
        let unit = if step_x > step_y { step_x } else { step_y };
        // The square of the unit is neither nothing nor everything.
        let in_reach = at_x.abs() <= FARTHEST && at_y.abs() <= FARTHEST;
        if !in_reach || !(1e-140..1e140).contains(&unit) || step_x.min(step_y) < unit * NARROWEST {
            return None;
        }
        let (at_x, at_y) = (at_x as f32, at_y as f32);
        let (scale_x, scale_y) = ((step_x / unit) as f32, (step_y / unit) as f32);
        let columns = [self.x0.upper(), self.y0.upper()];
        kernels::grid_distances(&mut bounds.lower, columns, [at_x, at_y], [scale_x, scale_y]);
        bounds.count = self.count;
        bounds.square = unit * unit;
        // One of the scales is 1, so the other tells the length of a step's diagonal.
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

    /// A squared distance as [`Self::mark`] takes it, rounded up.
    #[inline]
    pub fn count_of(&self, squared: f64) -> f32 {
        (squared / self.square * (1.0 + f64::from(ERROR))) as f32
    }

    /// At most the squared distance of a point.
    #[inline]
    pub fn lower(&self, index: usize) -> f64 {
        f64::from(self.lower[index]) * self.square
    }

    /// At least the squared distance of a point.
    #[inline]
    pub fn upper(&self, index: usize) -> f64 {
        let upper = f64::from(self.lower[index]).sqrt() + self.span;
        upper * upper * (1.0 + 1e-5) * self.square
    }

    /// Marks the points whose bounds are above the first and at most the second number.
    #[inline]
    pub fn mark(&self, above: f32, at_most: f32, hits: &mut Hits) {
        kernels::mark_between(hits.bytes(self.count), self.values(), above, at_most);
    }

    /// A number that the bounds of at least `count` points do not exceed, and those of few more;
    /// infinite where there are no more points than that.
    #[inline]
    pub fn threshold(&self, count: usize) -> f32 {
        kernels::threshold(self.values(), count)
    }
}
