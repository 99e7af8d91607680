//! Atomic batches: all changes happen, or none.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use terrane_lsm::search;
use terrane_space::Rect;

use super::Dataset;
use super::batch::{BatchOutcome, OnConflict, RefusedRow};
use super::write::{Change, OPERATION_BYTES};
use crate::batch::BatchRecords;
use crate::engine::{Entry, Origin, RoutedKey};
use crate::key::{EncodedKey, Key, check_length};
use crate::record::Record;
use crate::secondary::{PRIMARY, copies_bytes};
use crate::snapshot::Snapshot;
use crate::words::counted;
use crate::{Error, Result};

/// A record that is put.
#[derive(Debug)]
struct StoredPut {
    /// Its stored form.
    value: Vec<u8>,
    /// Its box in the spatial index.
    rect: Option<Rect>,
}

/// The planned change of a key.
#[derive(Debug)]
struct Planned {
    /// The record to store; `None` for a delete.
    put: Option<StoredPut>,
    /// Whether the batch is refused if the key exists before it.
    is_new: bool,
}

/// Changes that happen together or not at all. Of several changes of one key, the last counts.
#[derive(Debug)]
pub struct AtomicBatch {
    dataset: Dataset,
    changes: BTreeMap<EncodedKey, Planned>,
    /// The state in which the records were read that it changes.
    read: Option<Snapshot>,
    /// Number of columns that had been widened when the batch was begun.
    widenings: usize,
}

impl Dataset {
    /// Starts an atomic batch: all its changes happen, or none.
    pub fn atomic_batch(&self) -> AtomicBatch {
        let widenings = self.handle.history.load().widenings();
        AtomicBatch { dataset: self.clone(), changes: BTreeMap::new(), read: None, widenings }
    }
}

impl AtomicBatch {
    /// Has [`Self::commit`] fail if a record that the batch replaces or removes is not the one of a
    /// snapshot.
    ///
    /// # Errors
    /// A snapshot of another dataset.
    pub fn unchanged_since(self, snapshot: &Snapshot) -> Result<Self> {
        self.dataset.check_snapshot(snapshot)?;
        Ok(Self { read: Some(snapshot.clone()), ..self })
    }

    /// Adds a record with a new key.
    ///
    /// # Errors
    /// A record that does not fit the schema, or [`Error::DuplicateKey`] if the batch already puts
    /// its key. The batch is unchanged then. [`Self::commit`] finds keys that are already stored.
    pub fn insert(&mut self, record: &Record) -> Result<()> {
        let (key, put) = self.encoded(record)?;
        self.plan_insert(key, put)
    }

    /// Adds a record or replaces the one with its key.
    ///
    /// # Errors
    /// A record that does not fit the schema; the batch is unchanged then.
    pub fn upsert(&mut self, record: &Record) -> Result<()> {
        let (key, put) = self.encoded(record)?;
        self.plan(key, Some(put), false);
        Ok(())
    }

    /// Removes the record of a key, if there is one.
    ///
    /// # Errors
    /// A key of another type than the dataset's.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        self.plan(self.dataset.encode_key(key)?, None, false);
        Ok(())
    }

    /// Adds the rows of a record batch. Returns their keys, and the refused rows.
    ///
    /// A row is refused if it does not fit the schema. Unless rows replace records, it is also
    /// refused if the batch already puts its key. The caller decides whether to commit without the
    /// refused rows. Without a key column, keys are numbered from the largest key on.
    ///
    /// # Errors
    /// Columns that do not fit the schema; damage; storage. Some of the rows may be in the batch
    /// then.
    pub fn push(&mut self, batch: &RecordBatch, on_conflict: OnConflict) -> Result<BatchOutcome> {
        let schema = self.dataset.schema();
        let mut rows = BatchRecords::new(batch, &schema)?;
        let mut outcome = BatchOutcome::default();
        for row in 0..rows.rows() {
            match self.push_row(&mut rows, row, on_conflict) {
                Ok(key) => outcome.keys.push(key),
                Err(error) if error.is_refusal() => outcome.refused.push(RefusedRow { row, error }),
                Err(error) => return Err(error),
            }
        }
        Ok(outcome)
    }

    fn push_row(&mut self, rows: &mut BatchRecords<'_>, row: usize, on_conflict: OnConflict) -> Result<Key> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let rect = rows.encode_row(row, &mut key, &mut value)?.rect();
        if !rows.has_keys() {
            self.dataset.generate_key(&mut key)?;
            // Rows with keys may already use the number.
            while self.changes.contains_key(key.as_slice()) {
                key.clear();
                self.dataset.generate_key(&mut key)?;
            }
        }
        check_length(&key)?;
        let decoded = Key::decode(self.dataset.schema().key.key_type, &key)?;
        let key = decoded.to_encoded()?;
        match on_conflict {
            OnConflict::Replace if rows.has_keys() => self.plan(key, Some(StoredPut { value, rect }), false),
            _ => self.plan_insert(key, StoredPut { value, rect })?,
        }
        Ok(decoded)
    }

    fn encoded(&self, record: &Record) -> Result<(EncodedKey, StoredPut)> {
        let key = self.dataset.encode_key(&record.key)?;
        let mut value = Vec::with_capacity(128);
        let geometry = record.encode(&self.dataset.handle.history.load(), &mut value)?;
        Ok((key, StoredPut { value, rect: geometry.rect() }))
    }

    fn plan(&mut self, key: EncodedKey, put: Option<StoredPut>, is_new: bool) {
        // If an earlier change required a new key, so do all later ones.
        let is_new = is_new || self.changes.get(&key).is_some_and(|planned| planned.is_new);
        self.changes.insert(key, Planned { put, is_new });
    }

    fn plan_insert(&mut self, key: EncodedKey, put: StoredPut) -> Result<()> {
        let is_new = match self.changes.get(&key) {
            Some(Planned { put: Some(_), .. }) => {
                return Err(Error::DuplicateKey { key: Key::decode(self.dataset.schema().key.key_type, &key)? });
            }
            // The batch deletes the stored record first.
            Some(Planned { put: None, .. }) => false,
            None => true,
        };
        self.plan(key, Some(put), is_new);
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
    /// - [`Error::DuplicateKey`] if an inserted key exists.
    /// - [`Error::Changed`] if a record was changed since it was read; see
    ///   [`Self::unchanged_since`].
    /// - [`Error::Memory`] if the changes would fill all memory components together, three eighths
    ///   of the memory limit.
    /// - A column was widened since the batch was begun.
    /// - No space, or a failed sync: none of the changes is acknowledged.
    pub fn commit(self) -> Result<()> {
        let dataset = &self.dataset;
        dataset.engine.check_writable()?;
        let _gate = dataset.handle.enter()?;
        dataset.check_not_widened_since(self.widenings)?;
        // All locks in ascending order, before anything is read.
        let routed: Vec<RoutedKey<'_>> = self.changes.keys().map(|key| dataset.handle.route(key)).collect();
        let _locks = dataset.engine.core.locks().lock_all(routed.iter().map(|key| key.lock_hash).collect());
        // Encoded keys sort like the keys, so this is the largest key.
        if let Some((key, _)) = self.changes.iter().rfind(|(_, planned)| planned.put.is_some()) {
            dataset.handle.row_numbers.note(&Key::decode(dataset.schema().key.key_type, key)?);
        }
        // Before its log entry takes memory, and with its locks held: an admitted writer waits for
        // nobody.
        let admitted = dataset.engine.maintenance.admit_write(self.memory_needed())?;
        let mut entry = Entry::new(&dataset.handle, Origin::default());
        let mut beyond = 0;
        let available = dataset.engine.environment().shares.components;
        for (number, (key, planned)) in routed.iter().zip(self.changes.values()).enumerate() {
            if let Some(snapshot) = self.read.as_ref().filter(|_| !planned.is_new)
                && !dataset.is_unchanged(snapshot, key)?
            {
                return Err(Error::Changed { key: Key::decode(dataset.schema().key.key_type, key.key)? });
            }
            let added = match &planned.put {
                Some(StoredPut { value, rect }) if planned.is_new => {
                    dataset.add_change(key, Change::Insert(value), *rect, &mut entry)?
                }
                Some(StoredPut { value, rect }) => dataset.add_change(key, Change::Upsert(value), *rect, &mut entry)?,
                None if planned.is_new => dataset.check_new(key).map(|()| None)?,
                None => dataset.add_change(key, Change::Delete, None, &mut entry)?,
            };
            beyond += added.unwrap_or(0);
            if entry.len() + beyond > available {
                return Err(self.too_large(entry.len() + beyond, number + 1, available));
            }
        }
        if entry.is_empty() {
            return Ok(());
        }
        let committed = dataset.engine.commit(&dataset.handle, entry, admitted)?;
        dataset.engine.core.acknowledge(committed)
    }

    /// Upper bound of the memory in bytes that the batch takes in memory components. It assumes
    /// that all records exist already, with the same size and at other places. Attributes in index
    /// entries are not counted.
    pub(crate) fn memory_needed(&self) -> usize {
        let indexes = self.dataset.handle.indexes.load();
        let operations = 1 + 2 * indexes.secondaries().count();
        let copies = |key: &[u8], rect: &Option<Rect>| rect.map_or(0, |rect| 2 * copies_bytes(&indexes, key, &rect));
        let bytes = |(key, planned): (&EncodedKey, &Planned)| {
            key.len() + planned.put.as_ref().map_or(0, |put| put.value.len() + copies(key, &put.rect))
        };
        self.changes.iter().map(|change| bytes(change) + operations * OPERATION_BYTES).sum()
    }

    /// The error of a batch that is too large, when `changes` of its changes take `used` bytes. A
    /// batch goes into the log and into memory as one piece.
    fn too_large(&self, used: usize, changes: usize, available: usize) -> Error {
        // Extrapolated to the remaining changes.
        let needed = used as u128 * self.len() as u128 / changes.max(1) as u128;
        let changes = counted(self.len() as u64, "change", "changes");
        Error::Memory {
            what: format!("an atomic batch of {changes}, which smaller batches could make one after the other,"),
            needed_bytes: u64::try_from(needed).unwrap_or(u64::MAX),
            available_bytes: available as u64,
        }
    }
}

impl Dataset {
    /// Refuses a key under which a record is stored. The key's lock must be held.
    fn check_new(&self, key: &RoutedKey<'_>) -> Result<()> {
        let version = self.handle.partitions.version(key.partition);
        let stored = search::get(&version, PRIMARY as usize, key.key, u64::MAX)?;
        // If the sync of a change failed while this writer waited for the key, the change must not
        // show in an answer.
        self.engine.check_writable()?;
        match stored {
            None => Ok(()),
            Some(_) => Err(Error::DuplicateKey { key: Key::decode(self.schema().key.key_type, key.key)? }),
        }
    }
}
