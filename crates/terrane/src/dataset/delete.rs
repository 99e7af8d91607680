//! Deleting the records that meet a condition.

use std::sync::Arc;

use arrow_array::RecordBatch;
use terrane_lsm::search;

use super::Dataset;
use super::pipeline::Pipeline;
use super::write::{Change, Origin};
use crate::batch::BatchKeys;
use crate::condition::Condition;
use crate::query::{Filter, Filters, Query, Rows};

use crate::record::RecordView;
use crate::schema::SchemaHistory;
use crate::secondary::PRIMARY;
use crate::{Error, Result};

impl Dataset {
    /// Removes the records that meet a condition and all filters. Returns their number. Each delete
    /// is a transaction, and all are durable on return.
    ///
    /// The keys come from a snapshot, some thousands at a time. Each record is read and judged
    /// again under its key's lock. So a record that was changed meanwhile and no longer matches
    /// stays, and so do records inserted after the snapshot. If the disk is full, the remaining
    /// records come from later snapshots, because a snapshot keeps the space that deletes would
    /// free.
    ///
    /// # Errors
    /// - A condition that does not fit the schema, or invalid filters: nothing is deleted.
    /// - Damage, no space, a failed sync, or a column that is renamed or dropped meanwhile: some
    ///   records may have been deleted. [`Error::PartlyDeleted`] says how many. Calling again
    ///   continues.
    pub fn delete_where(&self, condition: &Condition, filters: &[Filter]) -> Result<u64> {
        self.engine.check_writable()?;
        let query = filters.iter().cloned().fold(Query::new().condition(condition.clone()), Query::filter);
        let mut deletion = Deletion::new(self, &self.snapshot().history, &query)?;
        let mut outcome = deletion.run();
        // On a full disk, the snapshot keeps the space that deletes would free.
        while matches!(outcome, Err(Error::Full { .. })) {
            let before = deletion.deleted;
            outcome = deletion.run_in_steps();
            if deletion.deleted == before {
                break;
            }
        }
        outcome.map(|()| deletion.deleted).map_err(|error| error.after_deleting(deletion.deleted))
    }
}

/// A deletion in progress.
struct Deletion<'d> {
    dataset: &'d Dataset,
    query: &'d Query,
    /// The schema history when it was begun.
    history: Arc<SchemaHistory>,
    /// The conditions, bound to this version of the schema.
    filters: Filters,
    version: u32,
    deleted: u64,
}

impl<'d> Deletion<'d> {
    fn new(dataset: &'d Dataset, history: &Arc<SchemaHistory>, query: &'d Query) -> Result<Self> {
        let schema = history.newest();
        let filters = Filters::new(query, schema)?;
        Ok(Self { dataset, query, filters, version: schema.version, history: history.clone(), deleted: 0 })
    }

    /// The keys of the records that match now, as rows.
    fn rows(&self) -> Result<Rows> {
        self.dataset.snapshot().query(&self.query.clone().columns([&self.history.newest().key.name]))
    }

    fn run(&mut self) -> Result<()> {
        let mut rows = self.rows()?;
        while let Some(batch) = rows.next_batch()? {
            self.delete(&batch)?;
        }
        // If the sync of a change failed while this writer waited for its key, the change must not
        // show in an answer.
        self.dataset.engine.check_writable()
    }

    /// Like [`Self::run`], with a new snapshot for each batch. The snapshot is dropped before the
    /// deletes.
    fn run_in_steps(&mut self) -> Result<()> {
        while let Some(batch) = { self.rows()?.next_batch()? } {
            let before = self.deleted;
            self.delete(&batch)?;
            if self.deleted == before {
                // Other writers have changed or deleted all of them.
                break;
            }
        }
        self.run()
    }

    /// Deletes the records with these keys that still match.
    fn delete(&mut self, batch: &RecordBatch) -> Result<()> {
        // As for any write. An import may be installed between two batches.
        let _gate = self.dataset.handle.enter()?;
        let mut pipeline = Pipeline::new(&self.dataset.engine);
        let outcome = self.delete_rows(batch, &mut pipeline);
        // After an error too: earlier deletes are synced before their locks are released.
        let acknowledged = pipeline.acknowledge();
        self.deleted += pipeline.durable() as u64;
        outcome.and(acknowledged)
    }

    fn delete_rows(&mut self, batch: &RecordBatch, pipeline: &mut Pipeline<'d>) -> Result<()> {
        let history = self.history.clone();
        let keys = BatchKeys::new(batch, history.newest())?;
        let mut key = Vec::new();
        for row in 0..batch.num_rows() {
            key.clear();
            keys.encode_row(row, &mut key)?;
            pipeline.lock(self.dataset.lock_hash(&key))?;
            if self.still_matches(&key).map_err(|error| self.dataset.handle.name_record(&history, error, &key))?
                && let Some(committed) = self.dataset.change(&key, Change::Delete, None, Origin::default())?
            {
                pipeline.note(committed);
                pipeline.acknowledge_many()?;
            }
        }
        Ok(())
    }

    /// Whether the newest record of a key meets the conditions. The key's lock must be held.
    fn still_matches(&mut self, key: &[u8]) -> Result<bool> {
        let handle = &self.dataset.handle;
        let version = handle.partitions.version(handle.partition_of(key));
        let Some(stored) = search::get(&version, PRIMARY as usize, key, u64::MAX)? else { return Ok(false) };
        // A schema is installed before its first record. So it must be read after the records.
        let history = self.dataset.handle.history.load();
        let schema = history.newest();
        if schema.version != self.version {
            // The names in the condition may now belong to other columns.
            if history.renamings() != self.history.renamings() {
                return Err(Error::refused(
                    "a column was renamed or dropped meanwhile; delete the rest by the names that the columns have now",
                ));
            }
            self.filters = Filters::new(self.query, schema)?;
            self.version = schema.version;
        }
        self.filters.matches_record(key, &RecordView::parse(&stored, &history).map_err(Error::from)?)
    }
}

#[cfg(test)]
#[path = "delete_tests.rs"]
mod tests;
