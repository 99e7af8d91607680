//! Boxes of inner nodes, compared with one box.

use super::layout::{rounded_down, rounded_up};
use crate::rtree::rect::Rect;

/// The boxes that begin at or below one corner, and end at or above another one.
///
/// Inner nodes hold `f32`. So the corners are rounded once, and no box of a node is widened. The
/// answer is the same: an `f32` is at or below a number if it is at or below the greatest `f32`
/// that is not above this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach<const D: usize> {
    begins_by: [f32; D],
    ends_from: [f32; D],
}

impl<const D: usize> Reach<D> {
    /// Boxes that have a point in common with this one.
    pub(super) fn overlapping(rect: &Rect<D>) -> Self {
        Self { begins_by: rect.max().map(rounded_down), ends_from: rect.min().map(rounded_up) }
    }

    /// Boxes that this one lies within.
    pub(super) fn containing(rect: &Rect<D>) -> Self {
        Self { begins_by: rect.min().map(rounded_down), ends_from: rect.max().map(rounded_up) }
    }

    /// Whether a box of these words is among them. All bounds are compared and counted, since the
    /// deciding one cannot be predicted.
    #[inline]
    pub(super) fn includes(&self, words: &[u64; D]) -> bool {
        let holding = |axis: usize| {
            let [min, max] = [words[axis], words[axis] >> 32].map(|bits| f32::from_bits(bits as u32));
            u32::from(min <= self.begins_by[axis]) + u32::from(max >= self.ends_from[axis])
        };
        (0..D).map(holding).sum::<u32>() == 2 * D as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtree::pear::layout::Layout;

    /// Values next to each other, between which an `f32` has none, and beyond all `f32`.
    #[test]
    fn rounded_corners_give_the_answers_of_the_boxes() {
        let layout = Layout::<2>::new([4; 2], false, 64).unwrap();
        let values = [1.0, 1.0 + f64::EPSILON, 1.0 - f64::EPSILON, 0.1, 0.0, -0.0, -0.1, 1e300, -1e300, f64::MAX];
        let pairs = || values.iter().flat_map(|&a| values.iter().map(move |&b| (f64::min(a, b), f64::max(a, b))));
        let rects: Vec<_> = pairs().map(|(min, max)| Rect::new([min, 0.1], [max, 0.1]).unwrap()).collect();
        let mut words = [0; 2];
        for stored in &rects {
            layout.encode(1, stored, |word, value| words[word] = value);
            let child = Layout::of_single(&words);
            for rect in &rects {
                assert_eq!(Reach::overlapping(rect).includes(&words), child.overlaps(rect), "{child:?}, {rect:?}");
                assert_eq!(Reach::containing(rect).includes(&words), child.contains(rect), "{child:?}, {rect:?}");
            }
        }
    }
}
