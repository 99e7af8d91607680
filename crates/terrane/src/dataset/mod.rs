//! Datasets: reading and changing records.

mod amend;
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

pub use amend::AmendOutcome;
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
    /// Dropped last, because it may hold the store's lock.
    pub(crate) engine: Arc<Engine>,
}

impl Dataset {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.handle.name
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.handle.partitions.count()
    }

    /// The newest version of its schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.handle.schema()
    }

    /// The current record of a key.
    ///
    /// # Errors
    /// A key of another type than the dataset's; damage; storage.
    pub fn get(&self, key: &Key) -> Result<Option<Record>> {
        self.snapshot().get(key)
    }

    /// The current state of the dataset, for any number of queries.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.engine.core.clone(), &self.handle)
    }

    /// Runs a query on the current state, at the query's isolation level ([`Query::isolation`]).
    /// The rows come in batches.
    ///
    /// # Errors
    /// An invalid query; damage; storage. At
    /// [`Isolation::ReadCommitted`](crate::Isolation::ReadCommitted) also:
    /// - [`Error::Unsupported`](crate::Error::Unsupported) for a nearest-neighbour query;
    /// - [`Error::Failed`](crate::Error::Failed) if the schema changes, or the query's index is
    ///   dropped, before the last row is read.
    pub fn query(&self, query: &Query) -> Result<Rows> {
        Rows::new(self.snapshot(), query)
    }

    /// Number of records in the current state that a query matches, as [`Self::query`] finds them.
    /// Records are not read if the spatial index alone gives the answer.
    ///
    /// # Errors
    /// Those of [`Self::query`].
    pub fn count(&self, query: &Query) -> Result<u64> {
        count(self.snapshot(), query)
    }

    /// The merge policy of its components: its own, or that of the store's options.
    pub fn merge_policy(&self) -> MergePolicy {
        self.handle.merge_policy(&self.engine.environment().options)
    }

    /// Sets a merge policy for this session and later ones. `None` restores the policy of the
    /// store's options.
    ///
    /// # Errors
    /// An invalid policy; storage.
    pub fn set_merge_policy(&self, policy: Option<MergePolicy>) -> Result<()> {
        self.engine.catalog.set_merge_policy(&self.handle, policy)
    }

    /// Merges the current components of every index into one. Records written meanwhile go to other
    /// components.
    ///
    /// # Errors
    /// Storage; damage in a component.
    pub fn compact(&self) -> Result<()> {
        self.handle.check_present()?;
        self.engine.maintenance.compact(&self.handle)
    }

    /// Writes the memory components to disk components.
    ///
    /// # Errors
    /// Those of [`Store::flush`](crate::Store::flush).
    pub fn flush(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.handle.check_present()?;
        self.engine.maintenance.flush(&self.handle)?;
        self.engine.maintenance.after_flush();
        self.engine.report_background_failure()
    }
}
