//! Memory components: what was written since the last flush, readable at once.
//!
//! A component belongs to one generation. It takes entries until it is sealed, is then
//! drained in order into a disk component, and is freed as a whole when the last `Arc`
//! goes: nothing is removed from it before. One thread writes at a time; readers take no
//! lock, never wait and never start over.
//!
//! Readers name a snapshot, a sequence number: they must have learnt it in a way that
//! orders the insertions up to it before them (the store's visible sequence number, read
//! with `Acquire`). Then they meet exactly these.

mod arena;
pub mod btree;
mod counters;
pub mod hilbert;
#[cfg(all(test, loom))]
mod loom_tests;
mod tree;

pub use btree::MemoryBTree;
pub use hilbert::MemoryRTree;
pub use tree::{CheckReport, KEY_LENGTH_MAX, Shape};

use crate::Result;
use std::ops::ControlFlow;

/// The end of an entry that nothing has replaced, and the snapshot that sees everything.
pub const SEQUENCE_MAX: u64 = u64::MAX;

/// What an entry says about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The key has this value.
    Put,
    /// The key was deleted: whatever older components hold for it is hidden.
    AntiMatter,
}

/// An entry with the snapshots that see it: those from `begin` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Versioned<E> {
    /// What was inserted or deleted.
    pub entry: E,
    /// Whether it was inserted or deleted.
    pub kind: Kind,
    /// Sequence number of the write that made the entry.
    pub begin: u64,
    /// Sequence number of the write that replaced it; [`SEQUENCE_MAX`] while none has.
    pub end: u64,
}

/// The part of a memory component that does not depend on what it indexes.
pub trait ErasedMemory: std::any::Any + Send + Sync {
    /// Ends the insertions; when it returns, none is under way. Later ones are refused.
    fn seal(&self);

    /// Whether the component was sealed.
    fn is_sealed(&self) -> bool;

    /// Number of entries that a drain visits: all versions, and anti-matter.
    fn len(&self) -> usize;

    /// Whether nothing was written.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries that are anti-matter.
    fn anti_matter_len(&self) -> usize;

    /// Lowest and highest sequence number written.
    fn sequences(&self) -> Option<(u64, u64)>;

    /// Bytes that the component has taken from the allocator; 0 while nothing was written, as no
    /// flush could free what an empty component holds.
    fn memory_used(&self) -> usize;

    /// Makes the component usable again after a crash, where it outlives one: entries
    /// whose sequence numbers are in `aborted` never happened. A component in volatile
    /// memory has nothing to do.
    ///
    /// # Errors
    /// Whatever keeps the component from being used.
    fn recover(&self, aborted: &[u64]) -> Result<()> {
        let _ = aborted;
        Ok(())
    }
}

/// A memory component of one kind of index.
pub trait MemoryComponent: ErasedMemory {
    /// What is inserted and deleted, without its sequence number.
    type Entry<'a>
    where
        Self: 'a;

    /// What a search asks for.
    type Probe<'p>;

    /// Visits what the probe asks for: entries that the snapshot sees, and anti-matter up
    /// to it, in the component's order where it has one, until the visitor breaks.
    /// Whether anti-matter hides something in an older component is the caller's business.
    fn search<'a>(
        &'a self,
        probe: Self::Probe<'_>,
        snapshot: u64,
        visit: &mut dyn FnMut(Versioned<Self::Entry<'a>>) -> ControlFlow<()>,
    );

    /// Adds an entry that snapshots from `sequence` on see.
    ///
    /// A key is written by one thread at a time, with rising sequence numbers; different
    /// keys may be written by many threads, in any order of their numbers.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when the component is sealed or cannot hold the entry,
    /// [`crate::Error::Full`] without memory; then the component is unchanged.
    fn insert(&self, entry: Self::Entry<'_>, sequence: u64) -> Result<()>;

    /// Adds anti-matter, and ends the entry that it deletes if this component holds it.
    /// Where one write deletes and inserts the same key, the deletion comes first.
    ///
    /// # Errors
    /// As [`MemoryComponent::insert`].
    fn delete(&self, entry: Self::Entry<'_>, sequence: u64) -> Result<()>;

    /// Visits all entries in order, whatever snapshots see them, until the visitor breaks.
    ///
    /// # Errors
    /// The visitor's.
    fn drain<'a>(&'a self, visit: &mut dyn FnMut(Versioned<Self::Entry<'a>>) -> Result<ControlFlow<()>>) -> Result<()>;
}
