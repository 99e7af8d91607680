//! The split of the R*-tree (Beckmann, Kriegel, Schneider and Seeger 1990, section 4.2). It uses
//! the axis on which halves have the smallest margins, and cuts where they overlap least.

use smallvec::SmallVec;

use crate::Rect;

/// See [`Split::divide`](super::Split::divide).
pub(super) fn divide<const D: usize>(rects: &[Rect<D>], least: usize) -> Vec<bool> {
    let least = least.max(1);
    // A single order counts twice.
    let with_margin = |axis: usize| {
        let orders = orders(rects, axis);
        ([&orders[0], &orders[orders.len() - 1]].map(|order| order.margins(least)).iter().sum::<f64>(), orders)
    };
    let first_axis = with_margin(0);
    let (_, orders) = (1..D).map(with_margin).fold(first_axis, |best, axis| match axis.0 < best.0 {
        true => axis,
        false => best,
    });
    // For boxes beyond the largest number all costs are equal, and the first cut stays.
    let (mut lowest, mut order, mut count) = (orders[0].cost(least), &orders[0], least);
    for (other, cut) in orders.iter().flat_map(|order| (least..=rects.len() - least).map(move |cut| (order, cut))) {
        let cost = other.cost(cut);
        if cost < lowest {
            (lowest, order, count) = (cost, other, cut);
        }
    }
    let mut is_second = vec![false; rects.len()];
    order.indices[count..].iter().for_each(|&index| is_second[index] = true);
    is_second
}

/// Boxes in an order in which they can be cut, with the bounding boxes of the first ones and of the
/// last ones.
struct Order<const D: usize> {
    indices: Vec<usize>,
    /// Of those up to an index, inclusive.
    first: Vec<Rect<D>>,
    /// Of those from an index on.
    last: Vec<Rect<D>>,
}

impl<const D: usize> Order<D> {
    fn new(rects: &[Rect<D>], indices: Vec<usize>) -> Self {
        let around = |so_far: &mut Option<Rect<D>>, &index: &usize| {
            *so_far = Some(so_far.map_or(rects[index], |so_far| so_far.union(&rects[index])));
            *so_far
        };
        let first = indices.iter().scan(None, around).collect();
        let mut last: Vec<Rect<D>> = indices.iter().rev().scan(None, around).collect();
        last.reverse();
        Self { indices, first, last }
    }

    /// The bounding boxes of the first `count` boxes, and of the others.
    fn halves(&self, count: usize) -> [&Rect<D>; 2] {
        [&self.first[count - 1], &self.last[count]]
    }

    fn margins(&self, least: usize) -> f64 {
        (least..=self.indices.len() - least).flat_map(|count| self.halves(count)).map(Rect::margin).sum()
    }

    /// Overlap, then area, then margin, which decides if areas are all zero.
    fn cost(&self, count: usize) -> [f64; 3] {
        let [first, last] = self.halves(count);
        [first.overlap(last), first.area() + last.area(), first.margin() + last.margin()]
    }
}

/// The orders by the lower and by the upper bounds on an axis: one order, if no box has an extent
/// there.
fn orders<const D: usize>(rects: &[Rect<D>], axis: usize) -> SmallVec<[Order<D>; 2]> {
    let bounds = |rect: &Rect<D>| [rect.min()[axis], rect.max()[axis]].map(ordinal);
    let by_min = sorted(rects, bounds);
    let have_extent = rects.iter().map(bounds).any(|[min, max]| min != max);
    let by_max = have_extent.then(|| {
        sorted(rects, |rect| {
            let [min, max] = bounds(rect);
            [max, min]
        })
    });
    [Some(by_min), by_max].into_iter().flatten().map(|order| Order::new(rects, order)).collect()
}

/// Indices of boxes in the order of two numbers, and of equal ones in their own order.
fn sorted<const D: usize>(rects: &[Rect<D>], key: impl Fn(&Rect<D>) -> [u64; 2]) -> Vec<usize> {
    // Both numbers are compared as one, and without a look at the boxes.
    let keyed = |(index, rect)| {
        let [first, second] = key(rect).map(u128::from);
        (first << u64::BITS | second, index)
    };
    let mut order: Vec<(u128, usize)> = rects.iter().enumerate().map(keyed).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

/// A whole number that is as great among others as this one is in the total order of numbers.
fn ordinal(number: f64) -> u64 {
    let bits = number.to_bits();
    match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_the_order_of_their_numbers() {
        let numbers = [f64::MIN, -1.5, -f64::MIN_POSITIVE, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.5, f64::MAX];
        assert!(numbers.map(ordinal).is_sorted_by(|left, right| left < right));
    }
}
