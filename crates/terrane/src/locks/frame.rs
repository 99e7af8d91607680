//! The deadlock-free frame protocol for batches whose records are transactions of their own
//! (lsm-spatial-transactions, section 3.4.2, Algorithm 1).
//!
//! Locks are tried record by record. Where one is refused, what is held is committed and
//! synced and its locks are given back, and only then the lock is waited for: a thread
//! waits only while it holds nothing (K3). The wait for the sync stands for the paper's
//! WAIT record.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use super::table::{LockTable, PassHash};

/// What [`Frame::acquire`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lock that must be waited for is not held"]
pub enum Acquire {
    /// The lock is held now.
    Acquired,
    /// The frame held it already: an earlier record of the frame has the same key or hash.
    AlreadyHeld,
    /// Another holds it: see [`Frame::commit_then_wait`].
    MustWait,
}

/// The locks of a batch under way. They are given back when it is dropped.
#[derive(Debug)]
pub struct Frame<'t> {
    table: &'t LockTable,
    held: HashSet<u64, BuildHasherDefault<PassHash>>,
}

impl<'t> Frame<'t> {
    /// A frame that holds nothing. The thread must hold no other lock.
    pub fn new(table: &'t LockTable) -> Self {
        Self { table, held: HashSet::default() }
    }

    /// Number of locks held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes a lock if that needs no waiting.
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

    /// Runs `commit`, which must commit and sync all records locked so far, gives their locks
    /// back, and then waits for the lock, which is the only one held on return.
    ///
    /// If `commit` fails, its error is returned, nothing is waited for and all locks are
    /// still held.
    pub fn commit_then_wait<E>(&mut self, hash: u64, commit: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        commit()?;
        self.release();
        self.table.acquire(hash);
        self.held.insert(hash);
        Ok(())
    }

    /// Gives all locks back; their records must be committed and synced.
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
