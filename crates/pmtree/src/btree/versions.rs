//! Versions of nodes, by which readers notice changes and writers exclude each other (T6).
//!
//! A version has a bit "locked", a bit "removed", and a counter that no program exhausts.

use terrane_storage::sync::{AtomicU64, Ordering, thread};

use crate::table::Table;

const LOCKED: u64 = 1;
const REMOVED: u64 = 2;
const STEP: u64 = 4;

/// Looks at a locked node before the thread is suspended.
const SPINS: u32 = 64;

/// The version of a node when it was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u64);

/// Versions of nodes by the offsets of their blocks, and that of the root word.
#[derive(Debug)]
pub(super) struct Versions {
    /// Two blocks begin at least this power of two apart.
    shift: u32,
    nodes: Table<AtomicU64>,
    pub(super) root: AtomicU64,
    /// The version of what lies outside of the pool. Whoever meets it finds no node there.
    pub(super) outside: AtomicU64,
}

impl Versions {
    pub(super) fn new(node_length: u64) -> Self {
        Self { shift: node_length.ilog2(), nodes: Table::new(), root: AtomicU64::new(0), outside: AtomicU64::new(0) }
    }

    /// The word of a node, which lies in the pool.
    #[inline]
    pub(super) fn of(&self, node: u64) -> &AtomicU64 {
        self.nodes.get(node >> self.shift)
    }

    /// Lets threads use a block that was acquired as a node. No reader of the block's last node is
    /// left.
    pub(super) fn revive(&self, node: u64) {
        self.of(node).fetch_and(!(LOCKED | REMOVED), Ordering::AcqRel);
    }
}

/// Waits until a node is not locked, and gives its version; `None` if it was removed.
#[inline]
pub(super) fn read(word: &AtomicU64) -> Option<Version> {
    let mut spins = 0;
    loop {
        let version = word.load(Ordering::Acquire);
        if version & LOCKED == 0 {
            return (version & REMOVED == 0).then_some(Version(version));
        }
        spins += 1;
        if cfg!(shuttle) || spins > SPINS { thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Whether a node still has a version. Everything that was read since then belongs together.
#[inline]
pub(super) fn is_current(word: &AtomicU64, version: Version) -> bool {
    word.load(Ordering::Acquire) == version.0
}

/// The only permission to change a node, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Lock<'a> {
    word: &'a AtomicU64,
    version: u64,
    bits: u64,
}

/// Locks a node, if it still has a version.
pub(super) fn lock(word: &AtomicU64, Version(version): Version) -> Option<Lock<'_>> {
    let locked = word.compare_exchange(version, version | LOCKED, Ordering::AcqRel, Ordering::Relaxed);
    // Made only if the node is locked, since dropping it unlocks the node.
    locked.is_ok().then(|| Lock { word, version, bits: 0 })
}

impl Lock<'_> {
    /// Leaves a mark for readers and writers that the node is no part of the tree any more.
    pub(super) fn remove(mut self) {
        self.bits = REMOVED;
    }

    /// Unlocks a node that was not changed.
    pub(super) fn unchanged(self) {
        self.word.store(self.version, Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.word.store(self.version.wrapping_add(STEP) | self.bits, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_locked_once_and_a_failed_attempt_leaves_it_locked() {
        let word = AtomicU64::new(0);
        let version = read(&word).unwrap();
        let first = lock(&word, version).unwrap();
        assert!(lock(&word, version).is_none());
        assert!(word.load(Ordering::Acquire) & LOCKED != 0 && !is_current(&word, version));
        first.unchanged();
        assert!(is_current(&word, version));
        drop(lock(&word, version).unwrap());
        assert!(!is_current(&word, version) && lock(&word, version).is_none());
        lock(&word, read(&word).unwrap()).unwrap().remove();
        assert_eq!(read(&word), None);
    }
}
