//! Single records and atomic batches.

use std::collections::BTreeMap;

use terrane_lsm::operation::{EntryHeader, EntryKind, Operation, encode_header, encode_operation};
use terrane_lsm::search;
use terrane_space::Rect;

use super::Dataset;
use crate::engine::{Committed, SEVERAL};
use crate::key::{EncodedKey, Key};
use crate::record::{GeometryRef, Record, RowGeometry, stored_geometry};
use crate::secondary::{PRIMARY, Side, add_operations, copies_bytes};
use crate::words::counted;
use crate::{Error, Result};

/// Bytes that an operation takes in a memory component besides those of its log entry, about: its place in a leaf,
/// which may be half full, and the head of a version or a box.
const OPERATION_BYTES: usize = 112;

/// What a write does when the key is there already, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// Refused when the key is there.
    Insert(&'a [u8]),
    /// Replaces what is there.
    Upsert(&'a [u8]),
    Delete,
}

/// Where what is written comes from: a feed, and how far its source has been read with it; or nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// Number of the feed; 0 for none.
    pub feed: u32,
    pub position: u64,
}

impl Dataset {
    /// Adds a record. When this returns, the record is durable as the store's mode says, and
    /// every query sees it.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`]; a record that does not fit the schema; no space, or a failed
    /// sync, and then the record is not acknowledged.
    pub fn insert(&self, record: &Record) -> Result<()> {
        self.put(record, false)
    }

    /// Adds a record or replaces the one with its key.
    ///
    /// # Errors
    /// As [`Self::insert`], but for the duplicate key.
    pub fn upsert(&self, record: &Record) -> Result<()> {
        self.put(record, true)
    }

    fn put(&self, record: &Record, replace: bool) -> Result<()> {
        self.engine.check_writable()?;
        let key = self.encode_key(&record.key)?;
        let mut value = Vec::with_capacity(128);
        // Before the schema is looked at: no column is widened until the record is stored.
        let _gate = self.handle.gate.read();
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
        let _gate = self.handle.gate.read();
        let _lock = self.engine.locks.lock(self.lock_hash(&key));
        match self.change(&key, Change::Delete, None, Origin::default())? {
            Some(committed) => self.engine.acknowledge(committed).map(|()| true),
            None => Ok(false),
        }
    }

    /// Starts a batch of which all changes happen, or none.
    pub fn atomic_batch(&self) -> AtomicBatch<'_> {
        AtomicBatch { dataset: self, changes: BTreeMap::new(), widenings: self.handle.history.load().widenings() }
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

    /// Commits one change of a key whose lock is held; `None` when nothing had to be done.
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
        // Of what partition it is does not matter: all of them are flushed together.
        let mut entry = self.begin_entry(origin, 0);
        let admitted = self.engine.admit_write(entry.len())?;
        self.engine.commit(&self.handle, &mut entry, admitted)
    }

    fn begin_entry(&self, origin: Origin, partition: u32) -> Vec<u8> {
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

    /// Reads what is stored under the key, whose lock is held, and appends the operations of all
    /// indexes to a log entry. Tells about the bytes of memory that it brings beyond those of the entry; `None` when
    /// there is nothing to change.
    fn add_change(
        &self,
        key: &[u8],
        change: Change<'_>,
        rect: Option<Rect>,
        entry: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let version = self.handle.partitions.version(self.handle.partition_of(key));
        // Under the key's lock the newest version is the one to change, visible to others or not.
        let old = search::get(&version, PRIMARY as usize, key, u64::MAX)?;
        let old_rect = match (&old, change) {
            // No answer rests on a change whose sync has failed while this one waited for the key.
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

    /// The box under which the spatial index holds a stored record.
    pub(crate) fn stored_rect(&self, stored: &[u8]) -> Result<Option<Rect>> {
        stored_rect(stored, self.schema().system)
    }
}

/// The box under which spatial indexes hold a stored record.
pub(crate) fn stored_rect(stored: &[u8], system: terrane_space::CoordinateSystem) -> Result<Option<Rect>> {
    match stored_geometry(stored)? {
        None => Ok(None),
        Some(GeometryRef::Point(point)) => Ok(Some(Rect::from_point(point))),
        wkb => match RowGeometry::of(wkb, system) {
            Ok(geometry) => Ok(geometry.rect()),
            Err(reason) => Err(Error::damaged_record(format!("its geometry: {reason}"))),
        },
    }
}

/// The stored form of a record, and the box under which the spatial index holds it.
type StoredPut = (Vec<u8>, Option<Rect>);

/// Changes that happen together or not at all. Of several changes of one key, the last counts.
#[derive(Debug)]
pub struct AtomicBatch<'d> {
    dataset: &'d Dataset,
    /// What is put; `None` for a deletion.
    changes: BTreeMap<EncodedKey, Option<StoredPut>>,
    /// Columns that had been widened when the batch was begun.
    widenings: usize,
}

impl AtomicBatch<'_> {
    /// Adds a record or replaces the one with its key.
    ///
    /// # Errors
    /// A record that does not fit the schema; the batch stays as it was.
    pub fn upsert(&mut self, record: &Record) -> Result<()> {
        let key = self.dataset.encode_key(&record.key)?;
        let mut value = Vec::with_capacity(128);
        let geometry = record.encode(&self.dataset.handle.history.load(), &mut value)?;
        self.changes.insert(key, Some((value, geometry.rect())));
        Ok(())
    }

    /// Removes the record of a key, if there is one.
    ///
    /// # Errors
    /// A key of another type than the dataset's.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        self.changes.insert(self.dataset.encode_key(key)?, None);
        Ok(())
    }

    /// Number of keys that the batch changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Makes all changes in one transaction, which is durable and visible on return.
    ///
    /// # Errors
    /// No space, or a failed sync: then none of the changes is acknowledged. A column that was
    /// widened since the batch was begun. [`Error::Memory`] if the changes, with their places in the trees, would fill
    /// all memory components together, which are three eighths of the memory limit.
    pub fn commit(self) -> Result<()> {
        let dataset = self.dataset;
        dataset.engine.check_writable()?;
        let _gate = dataset.handle.gate.read();
        dataset.check_not_widened_since(self.widenings)?;
        // All locks in ascending order, before anything is read.
        let _locks = dataset.engine.locks.lock_all(self.changes.keys().map(|key| dataset.lock_hash(key)).collect());
        // Encoded keys sort as the keys do, so this is the largest one.
        if let Some((key, _)) = self.changes.iter().rfind(|(_, change)| change.is_some()) {
            dataset.handle.row_numbers.note(&Key::decode(dataset.schema().key.key_type, key)?);
        }
        // Before its log entry takes memory, but with its locks: who is admitted waits for nobody.
        let admitted = dataset.engine.admit_write(self.memory_needed())?;
        let mut partitions = self.changes.keys().map(|key| dataset.handle.partition_of(key) as u32);
        let partition = match partitions.next() {
            None => return Ok(()),
            Some(first) if partitions.all(|partition| partition == first) => first,
            Some(_) => SEVERAL,
        };
        let mut entry = dataset.begin_entry(Origin::default(), partition);
        let (mut changed, mut beyond) = (false, 0);
        let available = dataset.engine.shares.components;
        for (key, change) in &self.changes {
            let added = match change {
                Some((value, rect)) => dataset.add_change(key, Change::Upsert(value), *rect, &mut entry)?,
                None => dataset.add_change(key, Change::Delete, None, &mut entry)?,
            };
            changed |= added.is_some();
            beyond += added.unwrap_or(0);
            if entry.len() + beyond > available {
                return Err(self.too_large(available));
            }
        }
        if !changed {
            return Ok(());
        }
        let committed = dataset.engine.commit(&dataset.handle, &mut entry, admitted)?;
        dataset.engine.acknowledge(committed)
    }

    /// Bytes that the batch brings into memory components at most, but for what its entries in indexes of attributes
    /// hold of them: as if all records were there already, as large and elsewhere.
    pub(crate) fn memory_needed(&self) -> usize {
        let indexes = self.dataset.handle.indexes.load();
        let operations = 1 + 2 * indexes.secondaries().count();
        let copies = |key: &[u8], rect: &Option<Rect>| rect.map_or(0, |rect| 2 * copies_bytes(&indexes, key, &rect));
        let bytes = |(key, change): (&EncodedKey, &Option<StoredPut>)| {
            key.len() + change.as_ref().map_or(0, |(value, rect)| value.len() + copies(key, rect))
        };
        self.changes.iter().map(|change| bytes(change) + operations * OPERATION_BYTES).sum()
    }

    /// Why the batch is not taken. It goes into the log and into memory as one piece.
    fn too_large(&self, available: usize) -> Error {
        let changes = counted(self.len() as u64, "change", "changes");
        Error::Memory {
            what: format!("an atomic batch of {changes}, which smaller batches could make one after the other,"),
            needed_bytes: self.memory_needed().max(available + 1) as u64,
            available_bytes: available as u64,
        }
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
