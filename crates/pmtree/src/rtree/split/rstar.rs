//! The split of the R*-tree (Beckmann, Kriegel, Schneider and Seeger 1990, section 4.2): along the axis on which halves
//! have the smallest margins, where they overlap least.

use crate::Rect;

/// See [`Split::divide`](super::Split::divide).
pub(super) fn divide<const D: usize>(rects: &[Rect<D>], least: usize) -> Vec<bool> {
    let least = least.max(1);
    let orders_of = |axis: usize| {
        let by_min = sorted(rects, |rect| (rect.min()[axis], rect.max()[axis]));
        [by_min, sorted(rects, |rect| (rect.max()[axis], rect.min()[axis]))].map(|order| Order::new(rects, order))
    };
    let margin = |orders: &[Order<D>; 2]| -> f64 { orders.iter().map(|order| order.margins(least)).sum() };
    let by_margin = (0..D).map(orders_of).min_by(|left, right| margin(left).total_cmp(&margin(right)));
    let orders = by_margin.unwrap_or_else(|| orders_of(0));
    let mut best: Option<([f64; 3], &Order<D>, usize)> = None;
    for order in &orders {
        for count in least..=rects.len() - least {
            let cost = order.cost(count);
            if best.as_ref().is_none_or(|(lowest, ..)| cost < *lowest) {
                best = Some((cost, order, count));
            }
        }
    }
    let mut is_second = vec![false; rects.len()];
    // Without any there is a cost that is no number, of boxes beyond all numbers: these are cut in the middle.
    let (order, count) = best.map_or((&orders[0], rects.len() / 2), |(_, order, count)| (order, count));
    order.indices[count..].iter().for_each(|&index| is_second[index] = true);
    is_second
}

/// Boxes in an order in which they can be cut, with the boxes around the first ones and around the last ones.
struct Order<const D: usize> {
    indices: Vec<usize>,
    /// Around those up to an index, and it.
    first: Vec<Rect<D>>,
    /// Around those from an index on.
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

    /// The boxes of the first so many, and of the others.
    fn halves(&self, count: usize) -> [&Rect<D>; 2] {
        [&self.first[count - 1], &self.last[count]]
    }

    fn margins(&self, least: usize) -> f64 {
        (least..=self.indices.len() - least).flat_map(|count| self.halves(count)).map(Rect::margin).sum()
    }

    /// Overlap, then area; then margin, which decides where areas are all zero.
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
