//! Merging a leaf that has too few entries with a sibling.
//!
//! A merge moves entries between slots of the parent, so it needs a copy of the parent (P5). It is
//! noted there. The copy completes it before it reads which leaves were replaced.

use terrane_pmem::pmwcas::Descriptor;
use terrane_pmem::{Backend, Guard};

use super::inner::{Inner, Merge};
use super::layout::{GONE, NEXT, REPLACED};
use super::replace::Prepared;
use super::tree::PmrTree;
use crate::Result;
use crate::rtree::choose;

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Merges a leaf that a deletion has left with this number of entries, unless the parent is
    /// being copied. Space is acquired before the merge is noted.
    pub(super) fn relieve(&self, way: &[(u64, usize)], left: usize, guard: &Guard<'_>) -> Result<()> {
        let Some((&(parent, first), above)) = way.split_last() else { return Ok(()) };
        let inner = self.inner(parent);
        let rect = inner.rect(first);
        let siblings = inner.rects().filter(|(slot, _)| *slot != first);
        let Some((sibling, _)) = choose::least_enlargement(siblings, &rect) else { return Ok(()) };
        if inner.is_closing() {
            return Ok(());
        }
        let second = (left > 0).then_some(sibling);
        let copies = match second {
            None => 0,
            Some(second) => {
                let other = self.map(inner.child(second), guard)?.count();
                self.copies_of(left + other)
            }
        };
        let prepared = self.prepare(copies, guard)?;
        let merge = Merge { first, second };
        if inner.note(merge) {
            self.complete_merge(inner, merge, Some(prepared), guard)?;
            self.copy_node(above, parent, guard)?;
        }
        Ok(())
    }

    /// Leaves for the entries of two. One that is nearly full would soon be split again.
    fn copies_of(&self, entries: usize) -> usize {
        if entries <= self.layout.fan_out * 3 / 4 { 1 } else { 2 }
    }

    /// Completes a merge that was noted in the parent of the leaves, or finds that one of them was
    /// replaced otherwise. In either case it cannot happen any more. The next words of both leaves
    /// change together.
    pub(super) fn complete_merge(
        &self,
        parent: Inner<'_, D>,
        merge: Merge,
        mut prepared: Option<Prepared<'_, B>>,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let stub = parent.child(merge.first);
        let Some(second_stub) = merge.second.map(|slot| parent.child(slot)) else {
            return self.remove_empty(stub, guard);
        };
        let [first, second] = [stub, second_stub].map(|stub| self.leaf_of(stub));
        let mut copies = 2;
        loop {
            let (next, next_of_second) = (self.next(first, guard)?, self.next(second, guard)?);
            if (next | next_of_second) & REPLACED != 0 {
                return Ok(());
            }
            let Prepared { mut descriptor, blocks } = match prepared.take() {
                Some(prepared) => prepared,
                None => self.prepare(copies, guard)?,
            };
            let mut entries = Vec::new();
            for stub in [stub, second_stub] {
                let map = self.freeze(stub, guard)?;
                self.collect(self.leaf_of(stub), &map, &mut entries)?;
            }
            // Insertions and deletions have come first, and now the number is final.
            copies = self.copies_of(entries.len());
            if blocks.len() == 1 && entries.len() > self.layout.fan_out || blocks.len() == 2 && entries.len() < 2 {
                continue;
            }
            let copy = self.fill_copies(&blocks, entries, next)?;
            descriptor.swap(first + NEXT, next, copy | REPLACED)?;
            descriptor.swap(second + NEXT, next_of_second, next_of_second | REPLACED | GONE)?;
            descriptor.execute()?;
        }
    }

    /// Removes a leaf, if it is empty.
    fn remove_empty(&self, stub: u64, guard: &Guard<'_>) -> Result<()> {
        let leaf = self.leaf_of(stub);
        loop {
            let next = self.next(leaf, guard)?;
            if next & REPLACED != 0 || self.freeze(stub, guard)?.count() > 0 {
                return Ok(());
            }
            let mut descriptor = Descriptor::new(&self.pool, guard)?;
            descriptor.swap(leaf + NEXT, next, next | REPLACED | GONE)?;
            descriptor.execute()?;
        }
    }
}
