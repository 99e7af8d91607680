//! A static tree of boxes over a row of items, in the row's own order. If neighbours in the row are
//! near each other, nothing has to be sorted.

use std::ops::Range;

use crate::{CoordinateSystem, Rect, hilbert};

const FANOUT_BITS: usize = 3;
const FANOUT: usize = 1 << FANOUT_BITS;

/// Boxes of groups of items. The caller keeps the items.
#[derive(Clone, Debug)]
pub(super) struct BoxTree {
    count: usize,
    /// `levels[0]` has a box for every eight items. Each further level has one for every eight
    /// boxes of the level before; the last has one box.
    levels: Vec<Vec<Rect>>,
}

fn union(rects: impl Iterator<Item = Rect>) -> Rect {
    rects.fold(Rect::EMPTY, |union, rect| union.union(&rect))
}

impl BoxTree {
    pub fn new<T>(items: &[T], rect: impl Fn(&T) -> Rect) -> Self {
        let groups = items.chunks(FANOUT).map(|group| union(group.iter().map(&rect)));
        let mut levels: Vec<Vec<Rect>> = vec![groups.collect()];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let groups = last.chunks(FANOUT).map(|group| union(group.iter().copied()));
            let next = groups.collect();
            levels.push(next);
        }
        Self { count: items.len(), levels }
    }

    /// The box of all items.
    pub fn rect(&self) -> Rect {
        let root = self.levels.last().and_then(|level| level.first());
        root.copied().unwrap_or(Rect::EMPTY)
    }

    /// Whether `test` holds for an item whose groups all satisfy `may_hold`, which gets a group's
    /// box and its items.
    pub fn any(&self, may_hold: &impl Fn(&Rect, Range<usize>) -> bool, test: &mut impl FnMut(usize) -> bool) -> bool {
        self.count > 0 && self.any_below(self.levels.len(), 0, may_hold, test)
    }

    /// Like [`any`](Self::any), for the group `index` of `level`; level 0 are the items.
    fn any_below(
        &self,
        level: usize,
        index: usize,
        may_hold: &impl Fn(&Rect, Range<usize>) -> bool,
        test: &mut impl FnMut(usize) -> bool,
    ) -> bool {
        super::work::step();
        let Some(below) = level.checked_sub(1) else {
            return test(index);
        };
        let items = index << (FANOUT_BITS * level)..self.count.min((index + 1) << (FANOUT_BITS * level));
        if !self.levels[below].get(index).is_some_and(|rect| may_hold(rect, items)) {
            return false;
        }
        let count = if below == 0 { self.count } else { self.levels[below - 1].len() };
        (index * FANOUT..count.min((index + 1) * FANOUT)).any(|child| self.any_below(below, child, may_hold, test))
    }
}

/// Sorts items in any order so that neighbours are near each other.
pub(super) fn sort_by_place<T>(items: &mut [T], rect: impl Fn(&T) -> Rect) {
    if items.len() > 1 {
        items.sort_by_cached_key(|item| hilbert::position(CoordinateSystem::Planar, rect(item).center()));
    }
}
