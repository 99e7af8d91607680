//! The quadratic split (Guttman 1984, section 3.5.2), which the FBR-tree's authors use.

use crate::Rect;
use crate::rtree::choose::growth;

/// See [`Split::divide`](super::Split::divide).
pub(super) fn divide<const D: usize>(rects: &[Rect<D>], least: usize) -> Vec<bool> {
    let (first_seed, second_seed) = pick_seeds(rects);
    let mut is_second = vec![false; rects.len()];
    is_second[second_seed] = true;
    let mut groups = [Group::new(rects[first_seed]), Group::new(rects[second_seed])];
    let mut rest: Vec<usize> = (0..rects.len()).filter(|&index| index != first_seed && index != second_seed).collect();
    while !rest.is_empty() {
        // A node that needs all remaining boxes gets them.
        if let Some(short) = (0..2).find(|&group| groups[group].count + rest.len() <= least) {
            rest.iter().for_each(|&index| is_second[index] = short == 1);
            break;
        }
        let (place, chosen) = pick_next(rects, &rest, &groups);
        let index = rest.swap_remove(place);
        is_second[index] = chosen == 1;
        groups[chosen].add(&rects[index]);
    }
    is_second
}

/// The boxes that were given to a node so far.
struct Group<const D: usize> {
    rect: Rect<D>,
    area: f64,
    count: usize,
}

impl<const D: usize> Group<D> {
    fn new(rect: Rect<D>) -> Self {
        Self { rect, area: rect.area(), count: 1 }
    }

    fn add(&mut self, rect: &Rect<D>) {
        self.rect = self.rect.union(rect);
        self.area = self.rect.area();
        self.count += 1;
    }

    fn enlargement(&self, rect: &Rect<D>) -> f64 {
        growth(self.area, self.rect.union(rect).area())
    }

    fn margin_growth(&self, rect: &Rect<D>) -> f64 {
        growth(self.rect.margin(), self.rect.union(rect).margin())
    }
}

/// The two that would waste most area together.
fn pick_seeds<const D: usize>(rects: &[Rect<D>]) -> (usize, usize) {
    let mut worst = (0, 1);
    let mut most = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for (first, left) in rects.iter().enumerate() {
        let left_area = left.area();
        for (second, right) in rects.iter().enumerate().skip(first + 1) {
            let union = left.union(right);
            let waste = growth(left_area + right.area(), union.area());
            // Points on a line waste no area. Then the most distant two are chosen.
            if waste > most.0 || waste == most.0 && union.margin() > most.1 {
                most = (waste, union.margin());
                worst = (first, second);
            }
        }
    }
    worst
}

/// The box with the strongest preference for one of the nodes (its place in `rest`), and that node.
fn pick_next<const D: usize>(rects: &[Rect<D>], rest: &[usize], groups: &[Group<D>; 2]) -> (usize, usize) {
    let mut chosen = 0;
    let mut strongest = f64::NEG_INFINITY;
    let mut enlargements = [0.0; 2];
    for (place, &index) in rest.iter().enumerate() {
        let both = [groups[0].enlargement(&rects[index]), groups[1].enlargement(&rects[index])];
        let preference = growth(both[0], both[1]).abs();
        if preference > strongest {
            strongest = preference;
            chosen = place;
            enlargements = both;
        }
    }
    let rect = &rects[rest[chosen]];
    let key = |group: usize| {
        (enlargements[group], groups[group].margin_growth(rect), groups[group].area, groups[group].count)
    };
    (chosen, usize::from(key(1) < key(0)))
}
