//! Replacing a leaf by copies: freeze, copy, link (P3, P4). Each step can be repeated by any
//! thread.

use smallvec::SmallVec;
use terrane_pmem::pmwcas::Descriptor;
use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::Ordering;

use super::inner::REPLACEMENT;
use super::layout::{GONE, NEXT, REPLACED, SECOND};
use super::leaf::bounds;
use super::tree::PmrTree;
use crate::Result;
use crate::rtree::rect::Rect;

/// The least part of divided entries that each half gets, if they are enough.
pub(super) const BALANCE_PERCENT: usize = 40;

/// Blocks for copies, which belong to a descriptor.
pub(super) struct Prepared<'g, B: Backend> {
    pub(super) descriptor: Descriptor<'g, B>,
    pub(super) blocks: SmallVec<[u64; 2]>,
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Acquires blocks for copies. Unless the descriptor succeeds, they are free again.
    pub(super) fn prepare<'g>(&'g self, copies: usize, guard: &'g Guard<'g>) -> Result<Prepared<'g, B>> {
        let mut descriptor = Descriptor::new(&self.pool, guard)?;
        let mut blocks = SmallVec::new();
        for _ in 0..copies {
            blocks.push(descriptor.acquire(self.layout.leaf_length())?);
        }
        Ok(Prepared { descriptor, blocks })
    }

    /// Replaces a leaf whose slots are used up, or that is frozen, and then copies its parent, the
    /// last node of the way.
    ///
    /// Durable after each step: some words are frozen, which says nothing after a crash; the copies
    /// are filled, and nothing leads to them; the leaf's next word leads to them (P4). Space is
    /// acquired before the leaf is frozen.
    pub(super) fn replace_leaf(&self, way: &[(u64, usize)], stub: u64, guard: &Guard<'_>) -> Result<()> {
        let leaf = self.leaf_of(stub);
        let mut left = self.map(stub, guard)?.count();
        loop {
            let next = self.next(leaf, guard)?;
            if next & REPLACED != 0 {
                break;
            }
            let is_split = left > self.layout.fan_out / 2 && left >= 2 * self.fill_min;
            let copies = if is_split { 2 } else { 1 };
            let mut prepared = self.prepare(copies, guard)?;
            let map = self.freeze(stub, guard)?;
            left = map.count();
            // Deletions have come first, and now the number is final.
            if copies == 2 && left < 2 {
                continue;
            }
            let mut entries = Vec::with_capacity(left);
            self.collect(leaf, &map, &mut entries)?;
            let first = self.fill_copies(&prepared.blocks, entries, next)?;
            prepared.descriptor.swap(leaf + NEXT, next, first | REPLACED)?;
            prepared.descriptor.execute()?;
        }
        match way.split_last() {
            Some((&(parent, _), above)) => self.copy_node(above, parent, guard),
            None => Err(self.damaged(leaf, "a leaf has no parent in memory")),
        }
    }

    /// Divides entries among one or two new leaves, whose chain ends at `next`. Gives the first
    /// one.
    pub(super) fn fill_copies(&self, blocks: &[u64], entries: Vec<(Rect<D>, u64)>, next: u64) -> Result<u64> {
        let &[first, ref second @ ..] = blocks else {
            return Err(self.damaged(self.block, "a leaf is to be replaced by nothing"));
        };
        let Some(&second) = second.first() else {
            self.fill_leaf(first, &entries, next, 0)?;
            return Ok(first);
        };
        let rects: Vec<Rect<D>> = entries.iter().map(|(rect, _)| *rect).collect();
        let least = (entries.len() * BALANCE_PERCENT / 100).max(self.fill_min).min(entries.len() / 2);
        let mut halves = [Vec::new(), Vec::new()];
        for (entry, is_second) in entries.into_iter().zip(self.split.divide(&rects, least)) {
            halves[usize::from(is_second)].push(entry);
        }
        self.fill_leaf(second, &halves[1], next, 0)?;
        self.fill_leaf(first, &halves[0], second, second)?;
        Ok(first)
    }

    /// The node that has the copies of a replaced leaf as children; it has none if the leaf is
    /// gone.
    ///
    /// Until the first thread stores this node, no inner node leads to the copies, so they are as
    /// they were filled.
    pub(super) fn replacement(&self, stub: u64, next: u64, guard: &Guard<'_>) -> Result<u64> {
        let word = &self.stubs.words(stub)[REPLACEMENT];
        let known = word.load(Ordering::SeqCst);
        if known != 0 {
            return Ok(known);
        }
        let mut children: SmallVec<[(u64, Rect<D>); 2]> = SmallVec::new();
        if next & GONE == 0 {
            let first = next & !REPLACED;
            self.pool.check_range(first, self.layout.leaf_length())?;
            let second = self.backend().load(first + SECOND);
            for leaf in [first, second].into_iter().filter(|leaf| *leaf != 0) {
                let entries = self.entries(leaf)?;
                let map = self.stored_map(leaf, guard)?;
                let rect = bounds(map.slots(&self.layout).map(|slot| entries.rect(slot)));
                children.push((self.new_stub(leaf, &map, map.count()), rect));
            }
        }
        let node = self.new_inner(1, &children);
        match word.compare_exchange(0, node, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(node),
            Err(other) => {
                children.iter().for_each(|(stub, _)| self.stubs.free(*stub));
                self.inners.free(node);
                Ok(other)
            }
        }
    }
}
