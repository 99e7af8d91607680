//! Locks of nodes, by compare-and-swap of the meta word.
//!
//! A lock of an earlier session is no lock, but the sign of a recovery state. Every test of a lock
//! compares the session (the paper's global version).

use std::ops::Deref;

use terrane_pmem::Backend;
use terrane_storage::sync::thread;

use super::layout::{DEAD, LOCK, META, level_of, locked, session_of};
use super::node::Node;
use super::options::Gap;
use super::tree::PearTree;
use crate::Result;

/// A locked node, which is unlocked when it is dropped.
pub(super) struct Locked<'a, const D: usize, B: Backend> {
    node: Node<'a, D, B>,
}

impl<'a, const D: usize, B: Backend> Deref for Locked<'a, D, B> {
    type Target = Node<'a, D, B>;

    fn deref(&self) -> &Node<'a, D, B> {
        &self.node
    }
}

impl<const D: usize, B: Backend> Drop for Locked<'_, D, B> {
    fn drop(&mut self) {
        debug_assert!(self.node.meta() & LOCK != 0, "a lock is released once");
        // A dead node keeps its lock, so that no late thread gets it.
        if self.node.sequence() != DEAD {
            self.node.store(META, self.node.meta() & !LOCK);
        }
    }
}

impl<'a, const D: usize, B: Backend> Locked<'a, D, B> {
    /// A node that was filled with its lock.
    pub(super) fn of_new(node: Node<'a, D, B>) -> Self {
        Self { node }
    }
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Whether a crash has left the node locked, and perhaps in a recovery state.
    #[inline]
    pub(super) fn is_stale(&self, node: &Node<'_, D, B>) -> bool {
        let meta = node.meta();
        meta & LOCK != 0 && session_of(meta) != self.session && !self.has_gap(Gap::Locks)
    }

    /// Waits for the lock of a node. `None` if the node is no part of the tree any more, or has to
    /// be repaired first; then the caller starts again from the root.
    pub(super) fn lock(&self, at: u64) -> Result<Option<Locked<'_, D, B>>> {
        let node = self.node(at)?;
        loop {
            if node.sequence() == DEAD || self.is_stale(&node) {
                return Ok(None);
            }
            if let Some(locked) = self.lock_free(node) {
                return Ok(Some(locked));
            }
            thread::yield_now();
        }
    }

    /// Takes the lock of a node if it is free and the node is part of the tree.
    pub(super) fn try_lock(&self, at: u64) -> Result<Option<Locked<'_, D, B>>> {
        Ok(self.lock_free(self.node(at)?))
    }

    fn lock_free<'a>(&'a self, node: Node<'a, D, B>) -> Option<Locked<'a, D, B>> {
        let meta = node.meta();
        let is_taken = meta & LOCK == 0 && node.swap_meta(meta, locked(level_of(meta), 0, self.session));
        // Made only if it is taken, since it unlocks when it is dropped.
        is_taken.then(|| Locked { node })
    }

    /// The sequence number of a node whose entries do not move at present. It waits while they do.
    /// `None` if the node is no part of the tree any more.
    #[inline]
    pub(super) fn await_even(&self, node: &Node<'_, D, B>) -> Option<u64> {
        loop {
            match node.sequence() {
                DEAD => return None,
                sequence if sequence & 1 == 0 => return Some(sequence),
                _ => thread::yield_now(),
            }
        }
    }
}
