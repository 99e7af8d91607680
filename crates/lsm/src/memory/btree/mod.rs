//! The memory component of keys and values: an ordered tree of keys, each with its versions from
//! the newest to the oldest.
//!
//! Keys are memcomparable. The first eight bytes, as a big-endian number, are the head by which
//! inner nodes are searched. Leaves are searched by a few bits of the key's hash, as many keys may
//! have the same beginning. Keys of up to eight bytes are stored in the node.

mod range;
mod version;

pub use range::{KeyRange, Range};
pub use version::{VALUE_LENGTH_MAX, Version};

use super::counters::Counters;
use super::tree::{CheckReport, Columns, LeafWalk, Order, Shape, Tree};
use super::{ErasedMemory, Kind, SEQUENCE_MAX, Versioned};
use crate::{Error, Result};
use std::ops::ControlFlow;
use version::{Newest, VersionHead};

/// A key with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyValue<'a> {
    /// Memcomparable bytes, at most 1 KiB.
    pub key: &'a [u8],
    /// Opaque bytes, at most 16 MiB; ignored by a deletion.
    pub value: &'a [u8],
}

/// Keys to values, with versions. The module [`super`] documents the guarantees for readers.
///
/// Both `put` and `delete` end the previous version. The sequence numbers of a key never decrease;
/// of two equal ones the later call wins.
pub struct MemoryBTree {
    tree: Tree<Newest>,
    counters: Counters,
}

impl MemoryBTree {
    /// A component without entries.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no memory.
    pub fn new() -> Result<Self> {
        Self::with_shape(Shape::SHORT_LEAVES)
    }

    /// A component with nodes of given sizes.
    ///
    /// # Errors
    /// As for [`MemoryBTree::new`].
    pub fn with_shape(shape: Shape) -> Result<Self> {
        Ok(Self { tree: Tree::new(shape)?, counters: Counters::new() })
    }

    /// Sets a key's value from `sequence` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a sealed component, a key or value that is too long, or a sequence
    /// number below the key's newest; [`Error::Full`] without memory. Nothing changes then.
    pub fn put(&self, key: &[u8], value: &[u8], sequence: u64) -> Result<()> {
        self.change(key, sequence, Kind::Put, value)
    }

    /// Deletes a key from `sequence` on: adds anti-matter, whether the key is here or not.
    ///
    /// # Errors
    /// As for [`MemoryBTree::put`].
    pub fn delete(&self, key: &[u8], sequence: u64) -> Result<()> {
        self.change(key, sequence, Kind::AntiMatter, &[])
    }

    fn change(&self, key: &[u8], sequence: u64, kind: Kind, value: &[u8]) -> Result<()> {
        let order = order(key);
        let mut arena = self.tree.write();
        self.counters.admit(sequence)?;
        let place = self.tree.descend(&arena, order, ());
        if let Some(cell) = place.leaf.find(key) {
            if Newest::versions(cell).next().is_some_and(|newest| newest.begin > sequence) {
                return Err(Error::Invalid(format!(
                    "a key was written with sequence number {sequence} after a higher one"
                )));
            }
            let version = VersionHead::place(&mut arena, Some(Newest::item(cell)), sequence, kind, value)?;
            Newest::publish(&arena, cell, version);
        } else {
            let version = VersionHead::place(&mut arena, None, sequence, kind, value)?;
            self.tree.insert(&mut arena, place, order, false, version)?;
        }
        self.counters.count(kind, sequence);
        Ok(())
    }

    /// The newest version of a key that the snapshot sees; may be anti-matter.
    pub fn get(&self, key: &[u8], snapshot: u64) -> Option<Version<'_>> {
        let cell = self.tree.leaf(order(key)).find(key)?;
        Newest::versions(cell).find(|version| version.begin <= snapshot)
    }

    /// The newest version of a key; may be anti-matter.
    pub fn get_newest(&self, key: &[u8]) -> Option<Version<'_>> {
        self.get(key, SEQUENCE_MAX)
    }

    /// The keys of a range in ascending order, each with the newest version that the snapshot sees;
    /// may be anti-matter. Keys without a visible version are left out.
    pub fn range<'a, 'k>(&'a self, range: KeyRange<'k>, snapshot: u64) -> Range<'a, 'k> {
        Range::new(&self.tree, range, snapshot)
    }

    /// Verifies the structure of the tree; for tests and for `check`.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the first violation.
    pub fn check(&self) -> Result<CheckReport> {
        let report = self.tree.check()?;
        let mut before: Option<&[u8]> = None;
        let mut cells = Vec::new();
        for leaf in LeafWalk::all(&self.tree) {
            leaf.sort_into(&mut cells);
            for cell in &cells {
                let key = cell.key();
                if before.is_some_and(|before| before >= key) {
                    return Err(Error::Invalid(format!(
                        "memory tree: key {key:?} is out of order or twice here; please report this as a bug"
                    )));
                }
                before = Some(key);
            }
        }
        Ok(report)
    }
}

impl ErasedMemory for MemoryBTree {
    fn seal(&self) {
        let _latch = self.tree.write();
        self.counters.seal();
    }

    fn is_sealed(&self) -> bool {
        self.counters.is_sealed()
    }

    fn len(&self) -> usize {
        self.counters.len()
    }

    fn anti_matter_len(&self) -> usize {
        self.counters.anti_matter_len()
    }

    fn sequences(&self) -> Option<(u64, u64)> {
        self.counters.sequences()
    }

    fn memory_used(&self) -> usize {
        if self.is_empty() { 0 } else { self.tree.memory_used() }
    }
}

impl MemoryBTree {
    /// Visits all entries in order, visible or not, until the visitor breaks. Keys ascend; the
    /// versions of a key come newest first.
    ///
    /// # Errors
    /// The visitor's.
    pub fn drain<'a>(
        &'a self,
        visit: &mut dyn FnMut(Versioned<KeyValue<'a>>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut cells = Vec::new();
        for leaf in LeafWalk::all(&self.tree) {
            leaf.sort_into(&mut cells);
            for cell in &cells {
                for version in Newest::versions(*cell) {
                    if visit(versioned(cell.key(), version))?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

fn versioned<'a>(key: &'a [u8], version: Version<'a>) -> Versioned<KeyValue<'a>> {
    Versioned {
        entry: KeyValue { key, value: version.value },
        kind: version.kind,
        begin: version.begin,
        end: version.end,
    }
}

/// A key's place. Padding the head with zeros keeps the order, and equal heads are compared by the
/// whole key.
fn order(key: &[u8]) -> Order<'_> {
    let mut head = [0; 8];
    let length = key.len().min(8);
    head[..length].copy_from_slice(&key[..length]);
    Order { head: u64::from_be_bytes(head), key, tie: 0 }
}
