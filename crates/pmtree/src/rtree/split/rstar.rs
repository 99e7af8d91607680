//! The split of the R*-tree (Beckmann, Kriegel, Schneider and Seeger 1990, section 4.2). It uses
//! the axis on which halves have the smallest margins, and cuts where they overlap least.

use crate::Rect;

/// See [`Split::divide`](super::Split::divide).
pub(super) fn divide<const D: usize>(rects: &[Rect<D>], least: usize) -> Vec<bool> {
    let least = least.max(1);
    let orders_of = |axis: usize| {
        let by_min = sorted(rects, |rect| (rect.min()[axis], rect.max()[axis]));
        [by_min, sorted(rects, |rect| (rect.max()[axis], rect.min()[axis]))].map(|order| Order::new(rects, order))
    };
    let with_margin = |orders: [Order<D>; 2]| (orders.iter().map(|order| order.margins(least)).sum::<f64>(), orders);
    let first_axis = with_margin(orders_of(0));
    let (_, orders) = (1..D).map(orders_of).map(with_margin).fold(first_axis, |best, axis| match axis.0 < best.0 {
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

fn sorted<const D: usize>(rects: &[Rect<D>], key: impl Fn(&Rect<D>) -> (f64, f64)) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rects.len()).collect();
    order.sort_by(|&left, &right| {
        let (left, right) = (key(&rects[left]), key(&rects[right]));
        left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1))
    });
    order
}
