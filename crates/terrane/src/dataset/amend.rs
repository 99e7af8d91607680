//! Changing records that nobody else has changed since they were read.

use arrow_array::RecordBatch;
use terrane_lsm::search;
use terrane_space::Rect;

use super::Dataset;
use super::batch::RefusedRow;
use super::pipeline::Pipeline;
use super::write::Change;
use crate::batch::{BatchKeys, BatchRecords};
use crate::engine::{Origin, RoutedKey};
use crate::key::check_length;
use crate::secondary::PRIMARY;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// Result of changing records that were read before.
#[derive(Clone, Debug, Default)]
pub struct AmendOutcome {
    /// Number of changed records, which are durable.
    pub written: u64,
    /// The rows whose records another writer has changed or removed since they were read.
    pub changed: Vec<usize>,
    /// The refused rows.
    pub refused: Vec<RefusedRow>,
}

impl Dataset {
    /// Replaces the records with the keys of a batch by its rows, each in its own transaction. A
    /// record is replaced only if it is still the one that `snapshot` has; this is decided under
    /// the lock of its key. So a value that was computed from the snapshot never overwrites a
    /// change of another writer.
    ///
    /// # Errors
    /// Columns that do not fit the schema, and then nothing is written. A snapshot of another
    /// dataset. No space or a failed sync, and then earlier rows may be durable.
    pub fn replace_unchanged(&self, snapshot: &Snapshot, batch: &RecordBatch) -> Result<AmendOutcome> {
        self.amend(snapshot, |amendment| {
            let schema = self.schema();
            let mut rows = BatchRecords::new(batch, &schema)?;
            let (mut key, mut value) = (Vec::new(), Vec::new());
            for row in 0..rows.rows() {
                key.clear();
                value.clear();
                match rows.encode_row(row, &mut key, &mut value).map_err(Error::from) {
                    Ok(geometry) => amendment.apply(row, &key, Change::Upsert(&value), geometry.rect())?,
                    Err(error) if error.is_refusal() => amendment.outcome.refused.push(RefusedRow { row, error }),
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// Removes the records with the keys of a batch, each in its own transaction, if they are still
    /// those that `snapshot` has. Other columns of the batch are ignored.
    ///
    /// # Errors
    /// Those of [`Self::replace_unchanged`].
    pub fn delete_unchanged(&self, snapshot: &Snapshot, batch: &RecordBatch) -> Result<AmendOutcome> {
        self.amend(snapshot, |amendment| {
            let schema = self.schema();
            let keys = BatchKeys::new(batch, &schema)?;
            let mut key = Vec::new();
            for row in 0..batch.num_rows() {
                key.clear();
                keys.encode_row(row, &mut key)?;
                amendment.apply(row, &key, Change::Delete, None)?;
            }
            Ok(())
        })
    }

    fn amend(&self, snapshot: &Snapshot, run: impl FnOnce(&mut Amendment<'_>) -> Result<()>) -> Result<AmendOutcome> {
        self.check_snapshot(snapshot)?;
        self.engine.check_writable()?;
        // Before the schema is read: no column is widened until the rows are stored.
        let _gate = self.handle.enter()?;
        let outcome = AmendOutcome::default();
        let mut amendment = Amendment { dataset: self, snapshot, pipeline: Pipeline::new(&self.engine), outcome };
        let done = run(&mut amendment);
        // After an error too: earlier rows are synced before their locks are released.
        let acknowledged = amendment.pipeline.acknowledge();
        done.and(acknowledged)?;
        amendment.outcome.written = amendment.pipeline.durable() as u64;
        Ok(amendment.outcome)
    }

    pub(super) fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        match snapshot.is_of(&self.handle) {
            true => Ok(()),
            false => Err(Error::usage(format!("the snapshot is not one of dataset {:?}", self.name()))),
        }
    }

    /// Whether the newest record of a key is the one of a snapshot. The key's lock must be held.
    pub(super) fn is_unchanged(&self, snapshot: &Snapshot, key: &RoutedKey<'_>) -> Result<bool> {
        let version = self.handle.partitions.version(key.partition);
        let newest = search::get(&version, PRIMARY as usize, key.key, u64::MAX)?;
        let versions = snapshot.versions();
        let read = snapshot.stored(&versions, key.key)?;
        Ok(newest.as_deref() == read.as_deref())
    }
}

/// Changes in progress.
struct Amendment<'d> {
    dataset: &'d Dataset,
    snapshot: &'d Snapshot,
    pipeline: Pipeline<'d>,
    outcome: AmendOutcome,
}

impl Amendment<'_> {
    fn apply(&mut self, row: usize, key: &[u8], change: Change<'_>, rect: Option<Rect>) -> Result<()> {
        check_length(key)?;
        let routed = self.dataset.handle.route(key);
        self.pipeline.lock(routed.lock_hash)?;
        if !self.dataset.is_unchanged(self.snapshot, &routed)? {
            self.outcome.changed.push(row);
        } else if let Some(committed) = self.dataset.change(&routed, change, rect, Origin::default())? {
            self.pipeline.note(committed);
            self.pipeline.acknowledge_many()?;
        }
        Ok(())
    }
}
