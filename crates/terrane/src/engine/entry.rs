//! The log entry of a commit, from its first change to the log.

use terrane_lsm::operation::{EncodedEntry, EntryHeader, EntryKind, Operation};

use super::dataset::DatasetHandle;
use super::routing::{RoutedKey, Routes};
use crate::secondary::PRIMARY;

/// The origin of a write: a feed, and how far its source has been read with it; or nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// Number of the feed; 0 for none.
    pub feed: u32,
    pub position: u64,
}

/// The changes of one commit in the form of the log.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) header: EntryHeader,
    pub(super) encoded: EncodedEntry,
    pub(super) routes: Routes,
    has_inserts: bool,
}

impl Entry {
    /// An entry of a dataset without changes.
    pub fn new(dataset: &DatasetHandle, origin: Origin) -> Self {
        let header = EntryHeader {
            sequence: 0,
            transaction: 0,
            source_offset: origin.position,
            dataset: dataset.id,
            partition: 0,
            source: origin.feed,
            kind: EntryKind::COMMIT,
        };
        let encoded = EncodedEntry::new(&header);
        Self { header, encoded, routes: Routes::default(), has_inserts: false }
    }

    /// Begins the change of a record with its operation of the primary: its stored form, or its
    /// deletion. The operations of the other indexes follow.
    pub fn begin_change(&mut self, key: &RoutedKey<'_>, stored: Option<&[u8]>) {
        self.routes.add(key.partition);
        let value = stored.unwrap_or(&[]);
        self.push(&Operation { index: PRIMARY, delete: stored.is_none(), key: key.key, value });
    }

    /// Appends an operation of another index for the last change.
    pub fn push(&mut self, operation: &Operation<'_>) {
        self.has_inserts |= !operation.delete;
        self.encoded.push(operation);
    }

    /// Bytes in the log.
    pub fn len(&self) -> usize {
        self.encoded.bytes().len()
    }

    /// Whether it inserts anything.
    pub fn has_inserts(&self) -> bool {
        self.has_inserts
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.encoded.operations().next().is_none()
    }
}
