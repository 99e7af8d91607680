//! Deleting the records that meet a condition.

use arrow_array::RecordBatch;
use terrane_lsm::search;

use super::Dataset;
use super::pipeline::Pipeline;
use super::write::{Change, Origin};
use crate::batch::BatchKeys;
use crate::condition::Condition;
use crate::query::{Filter, Filters, Query};
use crate::record::RecordView;
use crate::secondary::PRIMARY;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

impl Dataset {
    /// Removes the records that meet a condition and all filters, and tells how many they were. Each is a
    /// transaction of its own, and all are durable on return.
    ///
    /// The keys come from a snapshot, some thousands at a time. Each record is read again and judged again
    /// under the lock of its key, so one that was changed meanwhile and no longer matches stays; what is
    /// inserted after the snapshot stays as well.
    ///
    /// # Errors
    /// A condition that does not fit the schema, or filters that make no sense: nothing is deleted. Damage, no
    /// space, a failed sync, a column that is renamed or dropped meanwhile: some of the records may have been deleted
    /// before ([`Error::PartlyDeleted`] says how many), and calling again goes on.
    pub fn delete_where(&self, condition: &Condition, filters: &[Filter]) -> Result<u64> {
        self.engine.check_writable()?;
        let query = filters.iter().cloned().fold(Query::new().condition(condition.clone()), Query::filter);
        let snapshot = self.snapshot();
        let mut deletion = Deletion::new(self, &snapshot, &query)?;
        let outcome = deletion.run();
        outcome.map_err(|error| error.after_deleting(deletion.deleted))?;
        Ok(deletion.deleted)
    }
}

/// A deletion under way.
struct Deletion<'d> {
    dataset: &'d Dataset,
    snapshot: &'d Snapshot,
    query: &'d Query,
    /// The conditions, prepared for this version of the schema.
    filters: Filters,
    version: u32,
    deleted: u64,
}

impl<'d> Deletion<'d> {
    fn new(dataset: &'d Dataset, snapshot: &'d Snapshot, query: &'d Query) -> Result<Self> {
        let schema = snapshot.schema();
        let filters = Filters::new(query, &schema)?;
        Ok(Self { dataset, snapshot, query, filters, version: schema.version, deleted: 0 })
    }

    fn run(&mut self) -> Result<()> {
        let key = &self.snapshot.schema().key.name;
        let mut rows = self.snapshot.query(&self.query.clone().columns([key]))?;
        while let Some(batch) = rows.next_batch()? {
            self.delete(&batch)?;
        }
        // No answer rests on a change whose sync has failed while its key was waited for.
        self.dataset.engine.check_writable()
    }

    /// Deletes those of the records with these keys that still match.
    fn delete(&mut self, batch: &RecordBatch) -> Result<()> {
        // As for any write: an import is installed between two batches.
        let _gate = self.dataset.handle.gate.read();
        let mut pipeline = Pipeline::new(&self.dataset.engine);
        let outcome = self.delete_rows(batch, &mut pipeline);
        // Also where a record failed: those before it are synced before their locks are given back.
        let acknowledged = pipeline.acknowledge();
        self.deleted += pipeline.durable() as u64;
        outcome.and(acknowledged)
    }

    fn delete_rows(&mut self, batch: &RecordBatch, pipeline: &mut Pipeline<'d>) -> Result<()> {
        let keys = BatchKeys::new(batch, self.snapshot.history.newest())?;
        let mut key = Vec::new();
        for row in 0..batch.num_rows() {
            key.clear();
            keys.encode_row(row, &mut key)?;
            pipeline.lock(self.dataset.lock_hash(&key))?;
            if self.still_matches(&key).map_err(|error| self.snapshot.name_record(error, &key))?
                && let Some(committed) = self.dataset.change(&key, Change::Delete, None, Origin::default())?
            {
                pipeline.note(committed);
                pipeline.acknowledge_many()?;
            }
        }
        Ok(())
    }

    /// Whether the newest record of a key, whose lock is held, meets the conditions.
    fn still_matches(&mut self, key: &[u8]) -> Result<bool> {
        let handle = &self.dataset.handle;
        let version = handle.partitions.version(handle.partition_of(key));
        let Some(stored) = search::get(&version, PRIMARY as usize, key, u64::MAX)? else { return Ok(false) };
        // A schema is older than the records written under it, so it is read after them.
        let history = self.dataset.handle.history.load();
        let schema = history.newest();
        if schema.version != self.version {
            // The names in the condition may be those of other columns by now.
            if history.renamings() != self.snapshot.history.renamings() {
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
