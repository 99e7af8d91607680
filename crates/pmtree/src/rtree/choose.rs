//! The choice of the child for a new box: the one that it enlarges least (Guttman 1984,
//! ChooseLeaf).

use super::rect::Rect;

/// Cost of a child; less is better.
///
/// If areas are all zero, as on a line of points, the growth of the margin decides.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Cost {
    enlargement: f64,
    margin_growth: f64,
    area: f64,
}

/// How much more `after` is; infinite if both are infinite.
#[inline]
pub(super) fn growth(before: f64, after: f64) -> f64 {
    let growth = after - before;
    if growth.is_nan() { f64::INFINITY } else { growth }
}

/// How much the area of a child grows by including a box. It is a number.
#[inline]
pub(super) fn enlargement<const D: usize>(child: &Rect<D>, rect: &Rect<D>) -> f64 {
    growth(child.area(), child.union(rect).area())
}

/// The child that grows least by including a box; among equals, the smallest one. `None` without
/// children.
pub(super) fn least_enlargement<const D: usize, K>(
    children: impl Iterator<Item = (K, Rect<D>)>,
    rect: &Rect<D>,
) -> Option<(K, Rect<D>)> {
    let mut best: Option<(Cost, (K, Rect<D>))> = None;
    for (key, child) in children {
        let area = child.area();
        let union = child.union(rect);
        let enlargement = growth(area, union.area());
        // Most children grow more than one that was seen before.
        if best.as_ref().is_some_and(|(least, _)| enlargement > least.enlargement) {
            continue;
        }
        let cost = Cost { enlargement, margin_growth: growth(child.margin(), union.margin()), area };
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, (key, child)));
        }
    }
    best.map(|(_, child)| child)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(children: &[([f64; 2], [f64; 2])], point: [f64; 2]) -> Option<usize> {
        let rects = children.iter().map(|&(min, max)| Rect::new(min, max).unwrap()).enumerate();
        least_enlargement(rects, &Rect::point(point).unwrap()).map(|(index, _)| index)
    }

    #[test]
    fn the_child_that_grows_least_is_chosen() {
        assert_eq!(chosen(&[], [0.0, 0.0]), None);
        assert_eq!(chosen(&[([0.0, 0.0], [1.0, 1.0]), ([5.0, 5.0], [6.0, 6.0])], [4.0, 4.0]), Some(1));
        assert_eq!(chosen(&[([0.0, 0.0], [9.0, 9.0]), ([1.0, 1.0], [3.0, 3.0])], [2.0, 2.0]), Some(1));
    }

    #[test]
    fn points_on_a_line_go_to_the_nearer_child() {
        assert_eq!(chosen(&[([0.0, 0.0], [1.0, 0.0]), ([8.0, 0.0], [9.0, 0.0])], [7.0, 0.0]), Some(1));
    }

    #[test]
    fn areas_beyond_all_numbers_leave_a_choice() {
        let huge = ([f64::MIN, f64::MIN], [f64::MAX, f64::MAX]);
        assert_eq!(chosen(&[huge, huge], [0.0, 0.0]), Some(0));
        let small = ([0.0, 0.0], [1.0, 1.0]);
        assert_eq!(chosen(&[huge, small], [0.5, 0.5]), Some(1));
        assert_eq!(chosen(&[small, huge], [0.5, 0.5]), Some(0));
    }
}
