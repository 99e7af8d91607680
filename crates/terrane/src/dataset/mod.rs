//! Datasets: reading and changing records.

mod atomic;
mod batch;
mod columns;
mod delete;
mod import;
mod indexes;
mod pipeline;
mod widen;
mod write;

use std::sync::Arc;

pub use atomic::AtomicBatch;
pub use batch::{BatchOutcome, OnConflict, RefusedRow};
pub use import::{ImportMode, ImportReport, Importer};
use terrane_lsm::policy::MergePolicy;

use crate::Result;
use crate::engine::{DatasetHandle, Engine};
use crate::key::Key;
use crate::query::{Query, Rows, count};
use crate::record::Record;
use crate::schema::Schema;
use crate::snapshot::Snapshot;

/// A named collection of records with one schema. Cheap to clone; usable from many threads.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub(crate) handle: Arc<DatasetHandle>,
    /// Dropped last, as it may be what keeps others out of the store.
    pub(crate) engine: Arc<Engine>,
}

impl Dataset {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.handle.name
    }

    /// Into how many partitions its records are divided.
    pub fn partitions(&self) -> usize {
        self.handle.partitions.count()
    }

    /// The newest version of its schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.handle.schema()
    }

    /// The record of a key, as it is now.
    ///
    /// # Errors
    /// A key of another type than the dataset's; damage; storage.
    pub fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.snapshot().get(key)
    }

    /// What the dataset holds at this moment, for any number of queries.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.engine.core.clone(), &self.handle)
    }

    /// Runs a query on the dataset as it is now, at the isolation that it asks for ([`Query::isolation`]); the rows come in
    /// batches.
    ///
    /// # Errors
    /// A query that makes no sense; damage; storage. At [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted) also
    /// [`Error::Unsupported`](crate::Error::Unsupported) for the nearest, and [`Error::Failed`](crate::Error::Failed) if the
    /// schema is changed, or the index dropped that the query goes through, before the last row is taken.
    pub fn query(&self, query: &Query) -> Result<Rows> {
        Rows::new(self.snapshot(), query)
    }

    /// Number of records that a query matches on the dataset as it is now, as [`Self::query`] finds them; without reading
    /// records where the spatial index alone can tell.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn count(&self, query: &Query) -> Result<u64> {
        count(self.snapshot(), query)
    }

    /// When its components are merged: by a policy of its own, or as the store was opened.
    pub fn merge_policy(&self) -> MergePolicy {
        self.handle.merge_policy(&self.engine.environment().options)
    }

    /// Has its components merged by a policy of its own from now on, in later sessions too; with `None`, as the store is
    /// opened.
    ///
    /// # Errors
    /// A policy that cannot be; storage.
    pub fn set_merge_policy(&self, policy: Option<MergePolicy>) -> Result<()> {
        self.engine.catalog.set_merge_policy(&self.handle, policy)
    }

    /// Merges the components that every index has at this moment into one. What is written
    /// meanwhile goes to components of its own.
    ///
    /// # Errors
    /// Storage; damage found on the way.
    pub fn compact(&self) -> Result<()> {
        self.handle.check_present()?;
        self.engine.maintenance.compact(&self.handle)
    }

    /// Writes what is in memory components to disk components.
    ///
    /// # Errors
    /// As [`Store::flush`](crate::Store::flush).
    pub fn flush(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.handle.check_present()?;
        self.engine.maintenance.flush(&self.handle)?;
        self.engine.maintenance.after_flush();
        self.engine.report_background_failure()
    }
}
