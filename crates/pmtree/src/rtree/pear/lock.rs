//! Locks of nodes, by compare-and-swap of the meta word.
//!
//! A lock of an earlier session is no lock, but the sign of a recovery state. Every test of a lock
//! compares the session (the paper's global version).
//!
//! Words of a damaged pool may say that a node is locked in this session, or odd. Nobody would ever
//! change them. So held locks are counted in memory, and whoever waits for a lock or an even number
//! looks there.

use std::ops::Deref;

use terrane_pmem::Backend;
use terrane_storage::sync::{AtomicU64, Ordering, thread};

use super::layout::{DEAD, LOCK, META, level_of, locked, session_of};
use super::node::Node;
use super::options::Gap;
use super::tree::PearTree;
use crate::Result;

/// Counts of held locks. Several nodes share a count.
#[derive(Debug)]
pub(super) struct Held(Box<[AtomicU64]>);

/// Enough counts that threads rarely meet at one.
const COUNTS_LOG2: u32 = 10;

/// A count has the locks that are being taken or held. The bits above this number count those that
/// were released, so that no value comes back.
const RELEASED: u64 = 1 << 16;

impl Held {
    pub(super) fn new() -> Self {
        Self((0..1 << COUNTS_LOG2).map(|_| AtomicU64::new(0)).collect())
    }

    fn count_of(&self, at: u64) -> &AtomicU64 {
        let hash = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - COUNTS_LOG2);
        &self.0[hash as usize]
    }

    /// Before the lock is taken.
    fn take(&self, at: u64) {
        self.count_of(at).fetch_add(1, Ordering::AcqRel);
    }

    /// The lock was not taken.
    fn cancel(&self, at: u64) {
        self.count_of(at).fetch_sub(1, Ordering::AcqRel);
    }

    /// After the lock was released.
    fn release(&self, at: u64) {
        self.count_of(at).fetch_add(RELEASED - 1, Ordering::AcqRel);
    }
}

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
        let sequence = self.node.sequence();
        // A dead node keeps its lock, so that no late thread gets it.
        if sequence != DEAD {
            // Only damage that a change meets midway leaves the node odd until here.
            if sequence & 1 != 0 {
                self.node.toggle();
            }
            self.node.store(META, self.node.meta() & !LOCK);
        }
        self.node.tree.held.release(self.node.at);
    }
}

impl<'a, const D: usize, B: Backend> Locked<'a, D, B> {
    /// A node that was filled with its lock. Others may meet it afterwards only.
    pub(super) fn of_new(node: Node<'a, D, B>) -> Self {
        node.tree.held.take(node.at);
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
            self.check_held(&node)?;
            thread::yield_now();
        }
    }

    /// Takes the lock of a node if it is free and the node is part of the tree.
    pub(super) fn try_lock(&self, at: u64) -> Result<Option<Locked<'_, D, B>>> {
        Ok(self.lock_free(self.node(at)?))
    }

    fn lock_free<'a>(&'a self, node: Node<'a, D, B>) -> Option<Locked<'a, D, B>> {
        let meta = node.meta();
        if meta & LOCK != 0 {
            return None;
        }
        self.held.take(node.at);
        if node.swap_meta(meta, locked(level_of(meta), 0, self.session)) {
            return Some(Locked { node });
        }
        self.held.cancel(node.at);
        None
    }

    /// Returns an error if a node says that it is locked in this session, and nobody has locked it.
    ///
    /// A lock is counted before it is taken, and until after it was released. The count has not
    /// changed, so no lock of this node was held when its words were read.
    fn check_held(&self, node: &Node<'_, D, B>) -> Result<()> {
        let count = self.held.count_of(node.at);
        let before = count.load(Ordering::Acquire);
        if !before.is_multiple_of(RELEASED) {
            return Ok(());
        }
        let meta = node.meta();
        let is_locked = meta & LOCK != 0 && session_of(meta) == self.session && node.sequence() != DEAD;
        match is_locked && count.load(Ordering::Acquire) == before {
            true => Err(self.damaged(node.at, "a node is locked, and nobody has locked it")),
            false => Ok(()),
        }
    }

    /// The sequence number of a node whose entries do not move at present. It waits while they do.
    /// `None` if the node is no part of the tree any more.
    #[inline]
    pub(super) fn await_even(&self, node: &Node<'_, D, B>) -> Result<Option<u64>> {
        loop {
            match node.sequence() {
                DEAD => return Ok(None),
                sequence if sequence & 1 == 0 => return Ok(Some(sequence)),
                odd => self.check_odd(node, odd)?,
            }
        }
    }

    /// Returns an error if a node with this number is not locked. A node is even before it is
    /// unlocked.
    #[cold]
    fn check_odd(&self, node: &Node<'_, D, B>, odd: u64) -> Result<()> {
        if node.meta() & LOCK == 0 && node.sequence() == odd {
            return Err(self.damaged(node.at, "the entries of a node move, and nobody has locked it"));
        }
        self.check_held(node)?;
        thread::yield_now();
        Ok(())
    }

    /// Returns an error if a dead node is the root, or is in its parent, which was read with this
    /// number. Nobody could get past it.
    ///
    /// A node dies after its parent has lost it. If it came to another parent before, the number of
    /// this one has changed.
    #[cold]
    pub(super) fn check_dead(&self, parent: Option<(&Node<'_, D, B>, u64)>, node: &Node<'_, D, B>) -> Result<()> {
        let is_linked = node.sequence() == DEAD
            && match parent {
                None => self.root() == node.at,
                Some((_, DEAD)) => false,
                Some((parent, sequence)) => parent.slot_of(node.at).is_some() && parent.sequence() == sequence,
            };
        match is_linked {
            true => Err(self.damaged(node.at, "a node is linked, and is said to be no part of the tree")),
            false => Ok(()),
        }
    }
}
