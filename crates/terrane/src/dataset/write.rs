//! Writing single records.

use terrane_lsm::operation::{EntryHeader, EntryKind, Operation, encode_header, encode_operation};
use terrane_lsm::search;
use terrane_space::Rect;

use super::Dataset;
use crate::engine::Committed;
use crate::key::{EncodedKey, Key};
use crate::record::{Record, stored_rect};
use crate::secondary::{PRIMARY, Side, add_operations, copies_bytes};
use crate::{Error, Result};

/// Approximate memory in bytes of an operation in a memory component, besides its log entry: its
/// slot in a leaf, which may be half full, and the header of a version or a box.
pub(super) const OPERATION_BYTES: usize = 112;

/// What a write does, depending on whether its key exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// Refused if the key exists.
    Insert(&'a [u8]),
    /// Replaces the stored record.
    Upsert(&'a [u8]),
    Delete,
}

/// Where a write comes from: a feed, with its source's position; or no feed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The feed's number; 0 for none.
    pub feed: u32,
    pub position: u64,
}

impl Dataset {
    /// Adds a record. On return, the record is durable by the store's durability mode, and visible
    /// to every query.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`]; a record that does not fit the schema; no space or a failed sync,
    /// and then the record is not acknowledged.
    pub fn insert(&self, record: &Record) -> Result<()> {
        self.put(record, false)
    }

    /// Adds a record or replaces the one with its key.
    ///
    /// # Errors
    /// Those of [`Self::insert`], except the duplicate key.
    pub fn upsert(&self, record: &Record) -> Result<()> {
        self.put(record, true)
    }

    fn put(&self, record: &Record, replace: bool) -> Result<()> {
        self.engine.check_writable()?;
        let key = self.encode_key(&record.key)?;
        let mut value = Vec::with_capacity(128);
        // Before the schema is read: no column is widened until the record is stored.
        let _gate = self.handle.enter()?;
        let geometry = record.encode(&self.handle.history.load(), &mut value)?;
        let change = if replace { Change::Upsert(&value) } else { Change::Insert(&value) };
        let _lock = self.engine.locks.lock(self.lock_hash(&key));
        self.handle.row_numbers.note(&record.key);
        let committed = self.change(&key, change, geometry.rect(), Origin::default())?;
        committed.map_or(Ok(()), |committed| self.engine.acknowledge(committed))
    }

    /// Removes the record of a key; false if there is none.
    ///
    /// # Errors
    /// A key of another type; no space; a failed sync.
    pub fn delete(&self, key: &Key) -> Result<bool> {
        self.engine.check_writable()?;
        let key = self.encode_key(key)?;
        let _gate = self.handle.enter()?;
        let _lock = self.engine.locks.lock(self.lock_hash(&key));
        match self.change(&key, Change::Delete, None, Origin::default())? {
            Some(committed) => self.engine.acknowledge(committed).map(|()| true),
            None => Ok(false),
        }
    }

    pub(super) fn encode_key(&self, key: &Key) -> Result<EncodedKey> {
        let wanted = self.schema().key.key_type;
        if key.key_type() != wanted {
            return Err(Error::refused(format!(
                "the key {key} is {:?}, the dataset's keys are {wanted:?}",
                key.key_type()
            )));
        }
        Ok(key.to_encoded()?)
    }

    pub(super) fn lock_hash(&self, key: &[u8]) -> u64 {
        self.handle.lock_hash(key)
    }

    /// Commits one change of a key; `None` if there is nothing to do. The key's lock must be held.
    pub(super) fn change(
        &self,
        key: &[u8],
        change: Change<'_>,
        rect: Option<Rect>,
        origin: Origin,
    ) -> Result<Option<Committed>> {
        let mut entry = self.begin_entry(origin, self.handle.partition_of(key) as u32);
        let Some(beyond) = self.add_change(key, change, rect, &mut entry)? else { return Ok(None) };
        let admitted = self.engine.admit_write(entry.len() + beyond)?;
        self.engine.commit(&self.handle, &mut entry, admitted).map(Some)
    }

    /// Commits that a source has been read up to a position, without a record.
    pub(crate) fn pass(&self, origin: Origin) -> Result<Committed> {
        // Any partition will do, because all of them are flushed together.
        let mut entry = self.begin_entry(origin, 0);
        let admitted = self.engine.admit_write(entry.len())?;
        self.engine.commit(&self.handle, &mut entry, admitted)
    }

    pub(super) fn begin_entry(&self, origin: Origin, partition: u32) -> Vec<u8> {
        let mut entry = Vec::with_capacity(512);
        let header = EntryHeader {
            sequence: 0,
            transaction: 0,
            source_offset: origin.position,
            dataset: self.handle.id,
            partition,
            source: origin.feed,
            kind: EntryKind::COMMIT,
        };
        encode_header(&header, &mut entry);
        entry
    }

    /// Reads the stored record of a key and appends the operations of all indexes to a log entry.
    /// The key's lock must be held. Returns the memory in bytes that the change takes beyond its
    /// entry; `None` if there is nothing to change.
    pub(super) fn add_change(
        &self,
        key: &[u8],
        change: Change<'_>,
        rect: Option<Rect>,
        entry: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let version = self.handle.partitions.version(self.handle.partition_of(key));
        // Under the key's lock, the newest version is the one to change, whether it is visible or
        // not.
        let old = search::get(&version, PRIMARY as usize, key, u64::MAX)?;
        let old_rect = match (&old, change) {
            // If the sync of a change failed while this writer waited for the key, the change must
            // not show in an answer.
            (Some(_), Change::Insert(_)) => {
                self.engine.check_writable()?;
                return Err(Error::DuplicateKey { key: Key::decode(self.schema().key.key_type, key)? });
            }
            (None, Change::Delete) => return self.engine.check_writable().map(|()| None),
            (Some(stored), _) => self.stored_rect(stored)?,
            (None, _) => None,
        };
        let new = match change {
            Change::Insert(value) | Change::Upsert(value) => Some(value),
            Change::Delete => None,
        };
        let value = new.unwrap_or(&[]);
        encode_operation(&Operation { index: PRIMARY, delete: new.is_none(), key, value }, entry);
        let old = Side { stored: old.as_deref(), rect: old_rect };
        let (indexes, history) = (self.handle.indexes.load(), self.handle.history.load());
        let operations = 1 + add_operations(&indexes, &history, key, old, Side { stored: new, rect }, entry)?;
        let moved = old.rect.iter().chain(&rect).filter(|_| old.rect != rect);
        let copies: usize = moved.map(|rect| copies_bytes(&indexes, key, rect)).sum();
        Ok(Some(operations * OPERATION_BYTES + copies))
    }

    /// The box of a stored record in the spatial index.
    pub(crate) fn stored_rect(&self, stored: &[u8]) -> Result<Option<Rect>> {
        stored_rect(stored, self.schema().system)
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
