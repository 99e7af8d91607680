//! The chain of leaves: walking it, and unlinking replaced leaves from it.

use std::collections::BTreeSet;

use terrane_pmem::pmwcas::{self, DESCRIPTOR_BLOCKS, Descriptor};
use terrane_pmem::{Backend, Guard, Pool};
use terrane_storage::sync::Ordering;

use super::layout::{DETACHED, GONE, HEAD, Layout, NEXT, REPLACED};
use super::tree::PmrTree;
use crate::{Result, blocks};

/// Flags of a next word.
const FLAGS: u64 = REPLACED | GONE;

/// A sweep comes when this number of leaves was detached, and this part of those in the tree.
const SWEEP_MIN: u64 = 2;
const SWEEP_PART: u64 = 8;

/// A leaf of the chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linked {
    pub(super) leaf: u64,
    pub(super) is_replaced: bool,
}

/// All leaves of the chain, while nobody changes it. It is an error if one of them is no acquired
/// block of a leaf's length, or if the chain is a circle.
pub(super) fn walk<const D: usize, B: Backend>(pool: &Pool<B>, layout: &Layout<D>, block: u64) -> Result<Vec<Linked>> {
    let guard = pool.pin();
    let (mut leaves, mut seen) = (Vec::new(), BTreeSet::new());
    let mut leaf = pmwcas::read(pool, block + HEAD, &guard)?;
    while leaf != 0 {
        blocks::check_own(pool, leaf, layout.leaf_length())?;
        if !seen.insert(leaf) {
            return Err(blocks::damaged(pool, leaf, "the chain of leaves is a circle"));
        }
        let next = pmwcas::read(pool, leaf + NEXT, &guard)?;
        let is_replaced = next & REPLACED != 0;
        if next & GONE != 0 && !is_replaced || is_replaced && next & GONE == 0 && next & !FLAGS == 0 {
            return Err(blocks::damaged(pool, leaf, "a leaf has an impossible successor"));
        }
        leaves.push(Linked { leaf, is_replaced });
        leaf = next & !FLAGS;
    }
    match leaves.iter().any(|linked| !linked.is_replaced) {
        true => Ok(leaves),
        false => Err(blocks::damaged(pool, block + HEAD, "the chain has no leaf that was not replaced")),
    }
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Counts leaves that no inner node leads to any more, and sweeps if there are many.
    pub(super) fn note_detached(&self, gone: u64, leaves: u64, guard: &Guard<'_>) -> Result<()> {
        let detached = self.detached.fetch_add(gone, Ordering::Relaxed) + gone;
        if detached < SWEEP_MIN + leaves / SWEEP_PART {
            return Ok(());
        }
        self.detached.store(0, Ordering::Relaxed);
        // The operation is complete. Without space for descriptors, a later sweep does the work.
        self.sweep(guard).or_else(blocks::tolerate_missing_space)
    }

    /// Unlinks the detached leaves from the chain, and frees them when no reader is left. It needs
    /// no order with other sweeps, nor with changes of the chain, but may leave some leaves to a
    /// later one then.
    pub(super) fn sweep(&self, guard: &Guard<'_>) -> Result<()> {
        self.unlink_replaced(guard, |leaf| self.backend().load(leaf + DETACHED) == self.session)
    }

    /// Unlinks the replaced leaves that `is_detached` accepts.
    ///
    /// The next word of a replaced leaf is final (P4). So a leaf that was not replaced keeps its
    /// place, and its next word skips those behind it. Only the operation that does so frees them.
    pub(super) fn unlink_replaced(&self, guard: &Guard<'_>, is_detached: impl Fn(u64) -> bool) -> Result<()> {
        let mut word = self.head();
        loop {
            let found = pmwcas::read(&self.pool, word, guard)?;
            let leaf = found & !FLAGS;
            if leaf == 0 {
                return Ok(());
            }
            let next = self.next(leaf, guard)?;
            let can_skip = found & REPLACED == 0 && next & REPLACED != 0 && is_detached(leaf);
            if !can_skip {
                word = leaf + NEXT;
                continue;
            }
            let (mut skipped, mut target) = (vec![leaf], next & !FLAGS);
            while skipped.len() < DESCRIPTOR_BLOCKS && target != 0 {
                let next = self.next(target, guard)?;
                if next & REPLACED == 0 || !is_detached(target) {
                    break;
                }
                skipped.push(target);
                target = next & !FLAGS;
            }
            let mut descriptor = Descriptor::new(&self.pool, guard)?;
            descriptor.swap(word, found, target)?;
            for leaf in skipped {
                descriptor.release(leaf)?;
            }
            // If another thread has changed the word, it is read again.
            descriptor.execute()?;
        }
    }
}
