//! Memory components: the writes since the last flush, readable at once.
//!
//! A component belongs to one generation. It takes entries until it is sealed, is then drained in
//! order into a disk component, and is freed as a whole when the last `Arc` is dropped. Nothing is
//! removed from it before. One thread writes at a time. Readers take no lock, never wait and never
//! start over.
//!
//! Readers name a snapshot, a sequence number. The way they learnt it must order the insertions up
//! to it before them: by an `Acquire` load of the store's visible sequence number. They then see
//! exactly those insertions.

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

/// The end of an entry that nothing has replaced, and the snapshot that sees everything.
pub const SEQUENCE_MAX: u64 = u64::MAX;

/// The effect of an entry on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The key has this value.
    Put,
    /// The key was deleted: entries of older components are hidden.
    AntiMatter,
}

/// An entry with the snapshots that see it: those from `begin` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Versioned<E> {
    /// The object.
    pub entry: E,
    /// Whether it was inserted or deleted.
    pub kind: Kind,
    /// Sequence number of the write that made the entry.
    pub begin: u64,
    /// Sequence number of the write that replaced it; [`SEQUENCE_MAX`] while none has.
    pub end: u64,
}

/// The part of a memory component that does not depend on the kind of index.
pub trait ErasedMemory: std::any::Any + Send + Sync {
    /// Ends the insertions. When it returns, none is in progress, and later ones are refused.
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

    /// Bytes that the component has taken from the allocator; 0 while nothing was written, as a
    /// flush cannot free the memory of an empty component.
    fn memory_used(&self) -> usize;
}
