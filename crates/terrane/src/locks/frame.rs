//! The deadlock-free frame protocol for batches whose records are separate transactions
//! (lsm-spatial-transactions, section 3.4.2, Algorithm 1).
//!
//! Locks are tried record by record. If a lock is taken, the frame commits and syncs its records,
//! releases their locks, and only then waits. So a thread waits only while it holds no lock (K3).
//! The wait for the sync stands for the paper's WAIT record.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::table::{LockTable, PassHash};

/// Result of [`Frame::acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the lock is not held after MustWait"]
pub enum Acquire {
    /// The lock is held now.
    Acquired,
    /// The frame held it already: an earlier record of the frame has the same key or hash.
    AlreadyHeld,
    /// Another thread holds it: see [`Frame::commit_then_wait`].
    MustWait,
}

/// The locks of a batch in progress. Dropping the frame releases them.
#[derive(Debug)]
pub struct Frame<'t> {
    table: &'t LockTable,
    held: HashSet<u64, BuildHasherDefault<PassHash>>,
}

impl<'t> Frame<'t> {
    /// Creates a frame without locks. The thread must hold no other lock.
    pub fn new(table: &'t LockTable) -> Self {
        Self { table, held: HashSet::default() }
    }

    /// Number of locks held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes a lock if it is free.
    pub fn acquire(&mut self, hash: u64) -> Acquire {
        if self.held.contains(&hash) {
            return Acquire::AlreadyHeld;
        }
        if !self.table.try_acquire(hash) {
            return Acquire::MustWait;
        }
        self.held.insert(hash);
        Acquire::Acquired
    }

    /// Waits for a lock, which is the only one held on return.
    ///
    /// Before, it runs `commit`, which must commit and sync all records locked so far, and releases
    /// their locks. If `commit` fails, its error is returned without a wait, and all locks are
    /// still held.
    pub fn commit_then_wait<E>(&mut self, hash: u64, commit: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        commit()?;
        self.release();
        self.table.acquire(hash);
        self.held.insert(hash);
        Ok(())
    }

    /// Releases all locks. Their records must be committed and synced.
    pub fn release(&mut self) {
        for hash in self.held.drain() {
            self.table.release(hash);
        }
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
