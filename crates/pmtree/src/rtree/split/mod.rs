//! Dividing entries into two nodes.

mod quadratic;
mod rstar;

use super::rect::Rect;
use crate::{Error, Result};

/// The rule that divides the entries of a full node. All rules are equally safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Sorted along one axis and cut where the halves overlap least (R*-tree). It yields the better
    /// tree to search.
    #[default]
    RStar,
    /// Starts from the two that would waste most area together (Guttman's quadratic split), as the
    /// FBR-tree's authors measured.
    Quadratic,
}

/// Default of the least entries in a half after a split, in percent of the fan-out.
pub(super) const FILL_MIN_PERCENT: u8 = 40;

/// The highest possible percentage.
const FILL_MIN_PERCENT_MAX: u8 = 50;

/// Returns an error for a percentage that two halves cannot both have.
pub(super) fn check_fill_min(percent: u8) -> Result<()> {
    match percent <= FILL_MIN_PERCENT_MAX {
        true => Ok(()),
        false => Err(Error::FillMin { percent, most: FILL_MIN_PERCENT_MAX }),
    }
}

/// Least entries of a node with this fan-out and percentage.
pub(super) fn fill_min(fan_out: usize, percent: u8) -> usize {
    (fan_out * usize::from(percent) / 100).max(2)
}

impl Split {
    /// Decides for each box whether it goes to the second node. Each node gets at least `least` of
    /// them, and at least one.
    ///
    /// There must be at least two boxes, and `least` must be at most half of them.
    pub(super) fn divide<const D: usize>(self, rects: &[Rect<D>], least: usize) -> Vec<bool> {
        debug_assert!(rects.len() >= 2 && least * 2 <= rects.len(), "{least} of {}", rects.len());
        match self {
            Self::RStar => rstar::divide(rects, least),
            Self::Quadratic => quadratic::divide(rects, least),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Split; 2] = [Split::RStar, Split::Quadratic];

    fn points(positions: &[[f64; 2]]) -> Vec<Rect<2>> {
        positions.iter().map(|&position| Rect::point(position).unwrap()).collect()
    }

    #[test]
    fn two_clusters_are_divided() {
        let rects = points(&[[0.0, 0.0], [9.0, 9.0], [1.0, 0.0], [9.0, 8.0], [0.0, 1.0], [8.0, 9.0]]);
        for split in BOTH {
            let is_second = split.divide(&rects, 2);
            assert!(
                is_second == [false, true, false, true, false, true]
                    || is_second == [true, false, true, false, true, false],
                "{split:?}: {is_second:?}"
            );
        }
    }

    #[test]
    fn each_node_gets_its_least_share_whatever_the_boxes() {
        let mut outlier = vec![[0.0, 0.0]; 9];
        outlier.push([1e300, 1e300]);
        let line: Vec<_> = (0..10).map(|x| [f64::from(x), 0.0]).collect();
        let huge = vec![Rect::new([f64::MIN; 2], [f64::MAX; 2]).unwrap(); 10];
        for rects in [points(&outlier), points(&line), points(&[[1.0, 1.0]; 10]), huge] {
            for (split, least) in BOTH.into_iter().flat_map(|split| (1..=5).map(move |least| (split, least))) {
                let second = split.divide(&rects, least).into_iter().filter(|&is_second| is_second).count();
                assert!((least..=10 - least).contains(&second), "{second} of {rects:?} by {split:?}");
            }
        }
        for split in BOTH {
            let halves = split.divide(&points(&line), 4);
            assert!(halves.windows(2).filter(|pair| pair[0] != pair[1]).count() == 1, "a line is cut once: {halves:?}");
        }
    }

    /// Long boxes in two rows. The quadratic split might also divide across the rows; the R*-tree's
    /// must not.
    #[test]
    fn halves_overlap_as_little_as_they_can() {
        let rows = [0.0, 10.0].into_iter().flat_map(|y| (0..6).map(move |x| [f64::from(x) * 0.1, y]));
        let rects: Vec<Rect<2>> = rows.map(|[x, y]| Rect::new([x, y], [x + 8.0, y + 1.0]).unwrap()).collect();
        let is_second = Split::RStar.divide(&rects, 4);
        assert!(rects.iter().zip(&is_second).all(|(rect, &second)| second == (rect.min()[1] > 5.0)), "{is_second:?}");
    }

    /// No halves overlap. A cut in front of the last two boxes has the least area, one behind the
    /// first two the least margin.
    #[test]
    fn of_halves_that_overlap_equally_those_of_the_least_area_are_chosen() {
        let rects = points(&[[0.0, 2.0], [3.0, 2.0], [6.0, 0.0], [9.0, 2.0], [12.0, 1.0], [15.0, 4.0]]);
        let halves = Split::RStar.divide(&rects, 2);
        assert_eq!(halves, [false, false, false, false, true, true]);
    }

    /// Neither node would grow for the point, and both have one box.
    #[test]
    fn a_box_that_lies_in_both_nodes_goes_to_the_smaller_one() {
        let corners = [([3.0; 2], [9.0; 2]), ([0.0; 2], [4.0; 2]), ([3.5; 2], [3.5; 2])];
        let rects = corners.map(|(min, max)| Rect::new(min, max).unwrap());
        for [large, small] in [[0, 1], [1, 0]] {
            let halves = Split::Quadratic.divide(&[rects[large], rects[small], rects[2]], 1);
            assert_eq!(halves[2], halves[small], "the large one is box {large}: {halves:?}");
        }
    }
}
