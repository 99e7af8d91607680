//! Locks of nodes, by compare-and-swap of the meta word.
//!
//! A lock of an earlier session is no lock, but the sign of a recovery state. Every test of a lock
//! compares the session (the paper's global version).
//!
//! Words of a damaged pool may say that a node is locked in this session, or odd. Nobody would ever
//! change them. So the tree notes in memory which nodes it has ever locked in this session. Whoever
//! waits for a lock or an even number looks there.

use std::ops::Deref;
use std::sync::OnceLock;

use terrane_pmem::Backend;
use terrane_storage::sync::{AtomicU64, Ordering, thread};

use super::layout::{DEAD, LOCK, META, level_of, locked, session_of};
use super::node::Node;
use super::options::Gap;
use super::tree::PearTree;
use crate::Result;

/// The places of all nodes in the pool that were locked in this session. A bit for each place is
/// set once, before the first lock.
#[derive(Debug)]
pub(super) struct LockedPlaces([OnceLock<Box<[AtomicU64]>>; SEGMENTS]);

/// Words of the first segment. Each further one has twice as many.
const FIRST_WORDS: u64 = 64;

/// Enough segments for all places of 48-bit addresses.
const SEGMENTS: usize = 36;

impl LockedPlaces {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// The segment of a place, the word there, and the bit.
    fn locate(place: u64) -> (usize, usize, u64) {
        let word = place / u64::from(u64::BITS);
        let segment = (word / FIRST_WORDS + 1).ilog2();
        let first = FIRST_WORDS * ((1 << segment) - 1);
        (segment as usize, (word - first) as usize, 1 << (place % u64::from(u64::BITS)))
    }

    #[cold]
    fn insert(&self, place: u64) {
        let (segment, word, bit) = Self::locate(place);
        let words = FIRST_WORDS << segment;
        let words = self.0[segment].get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
        words[word].fetch_or(bit, Ordering::AcqRel);
    }

    fn contains(&self, place: u64) -> bool {
        let (segment, word, bit) = Self::locate(place);
        self.0[segment].get().is_some_and(|words| words[word].load(Ordering::Acquire) & bit != 0)
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
    }
}

impl<'a, const D: usize, B: Backend> Locked<'a, D, B> {
    /// A node that was filled with its lock. Others may meet it afterwards only.
    pub(super) fn of_new(node: Node<'a, D, B>) -> Self {
        node.tree.note_locked(&node);
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
            self.check_locked(&node)?;
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
        if session_of(meta) != self.session {
            self.note_locked(&node);
        }
        // Made only if it is taken, since it unlocks when it is dropped.
        node.swap_meta(meta, locked(level_of(meta), 0, self.session)).then(|| Locked { node })
    }

    /// Before the first lock of a node in this session.
    fn note_locked(&self, node: &Node<'_, D, B>) {
        if !node.is_volatile() {
            self.locked_places.insert(node.at / self.node_length);
        }
    }

    /// Returns an error if a node says that it is locked in this session, and never was.
    #[cold]
    fn check_locked(&self, node: &Node<'_, D, B>) -> Result<()> {
        let meta = node.meta();
        let is_locked = meta & LOCK != 0 && session_of(meta) == self.session && node.sequence() != DEAD;
        match is_locked && !node.is_volatile() && !self.locked_places.contains(node.at / self.node_length) {
            true => Err(self.damaged(node.at, "a node is locked, and nobody has locked it")),
            false => Ok(()),
        }
    }

    /// The sequence number of a node whose entries do not move at present. It waits while they do.
    /// `None` if the node is no part of the tree any more.
    #[inline]
    pub(super) fn await_even(&self, node: &Node<'_, D, B>) -> Result<Option<u64>> {
        match node.sequence() {
            sequence if sequence & 1 == 0 => Ok(Some(sequence)),
            odd => self.await_change(node, odd),
        }
    }

    /// The same for a node that had this odd number. A node is even before it is unlocked, so the
    /// number has changed if the node has no lock.
    #[cold]
    #[inline(never)]
    fn await_change(&self, node: &Node<'_, D, B>, mut odd: u64) -> Result<Option<u64>> {
        while odd != DEAD {
            if node.meta() & LOCK == 0 && node.sequence() == odd {
                return Err(self.damaged(node.at, "the entries of a node move, and nobody has locked it"));
            }
            self.check_locked(node)?;
            thread::yield_now();
            odd = match node.sequence() {
                even if even & 1 == 0 => return Ok(Some(even)),
                odd => odd,
            };
        }
        Ok(None)
    }

    /// Returns an error if a dead node is the root, or if its parent has it. Nobody could get past
    /// it.
    ///
    /// A node dies after its parent has lost it. If it came to another parent before, the number of
    /// this one has changed meanwhile, or had by now.
    #[cold]
    #[inline(never)]
    pub(super) fn check_dead(&self, parent: Option<u64>, node: &Node<'_, D, B>) -> Result<()> {
        let is_linked = match parent {
            None => node.sequence() == DEAD && self.root() == node.at,
            Some(parent) => {
                let parent = self.node(parent)?;
                let sequence = parent.sequence();
                let has_dead_child = node.sequence() == DEAD && parent.slot_of(node.at).is_some();
                sequence != DEAD && has_dead_child && parent.sequence() == sequence
            }
        };
        match is_linked {
            true => Err(self.damaged(node.at, "a node is linked, and is said to be no part of the tree")),
            false => Ok(()),
        }
    }
}
