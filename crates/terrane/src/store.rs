//! A store: a directory with datasets.

use std::path::Path;
use std::sync::Arc;

use terrane_storage::Storage;

use crate::Result;
use crate::check::{self, CheckReport, Finding};
use crate::dataset::{Dataset, ImportMode, Importer};
use crate::engine::{Engine, MaintenanceCounters, own_names};
use crate::info::StoreInfo;
use crate::metrics::Metrics;
use crate::options::{DatasetOptions, Durability, Options};
use crate::place::storage_at;
use crate::schema::Schema;

/// An open store. Dropping it closes it; [`Store::close`] also reports what fails then.
#[derive(Debug)]
pub struct Store {
    engine: Arc<Engine>,
    closed: bool,
}

impl Store {
    /// Opens the store in a directory for reading and writing, or creates it there.
    ///
    /// # Errors
    /// [`crate::Error::Locked`] while another process writes; damage; a mode that the store
    /// does not have; a directory that holds something else; storage.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_on(storage_at(directory.as_ref(), "a store")?, options)
    }

    /// Opens the store in a directory for reading, as it is at this moment, while another
    /// process may go on writing.
    ///
    /// # Errors
    /// No store there; damage; storage.
    pub fn open_read_only(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_read_only_on(storage_at(directory.as_ref(), "a store")?, options)
    }

    /// As [`Self::open`], on any storage.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        Ok(Self { engine: Engine::open(storage, options)?, closed: false })
    }

    /// As [`Self::open_read_only`], on any storage.
    ///
    /// # Errors
    /// As [`Self::open_read_only`].
    pub fn open_read_only_on(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        Ok(Self { engine: Engine::open_read_only(storage, options)?, closed: false })
    }

    /// Names of the datasets, in order.
    pub fn dataset_names(&self) -> Vec<String> {
        self.engine.datasets.load().keys().cloned().collect()
    }

    /// A dataset.
    ///
    /// # Errors
    /// [`crate::Error::UnknownDataset`] with the names that exist.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        Ok(Dataset { engine: self.engine.clone(), handle: self.engine.datasets.get(name)? })
    }

    /// Creates an empty dataset; it is durable on return.
    ///
    /// # Errors
    /// A name that is taken or not possible; an inconsistent schema; storage.
    pub fn create_dataset(&self, name: &str, schema: Schema) -> Result<Dataset> {
        self.create_dataset_with(name, schema, &DatasetOptions::default())
    }

    /// As [`Self::create_dataset`], of several partitions.
    ///
    /// # Errors
    /// As [`Self::create_dataset`]; a number of partitions that cannot be.
    pub fn create_dataset_with(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<Dataset> {
        Ok(Dataset { engine: self.engine.clone(), handle: self.engine.catalog.create(name, schema, options)? })
    }

    /// The dataset of a name, which is created with a schema if there is none. One that exists keeps its own schema.
    ///
    /// # Errors
    /// As [`Self::create_dataset`], except for a name that is taken.
    pub fn open_or_create_dataset(&self, name: &str, schema: Schema) -> Result<Dataset> {
        self.dataset(name).or_else(|_| {
            // Another thread may have been faster.
            self.create_dataset(name, schema).or_else(|error| self.dataset(name).map_err(|_| error))
        })
    }

    /// Drops a dataset with its records and indexes, in one step; a crash leaves all of it or nothing. Its name is free on
    /// return. Snapshots of it can be read as long as they live; writes through [`Dataset`] handles, feeds and index builds
    /// fail from then on with [`crate::Error::Dropped`].
    ///
    /// # Errors
    /// [`crate::Error::UnknownDataset`] with the names that exist; a store open for reading; storage.
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        self.engine.catalog.drop_dataset(name)
    }

    /// Starts an import into a dataset, which is created with the records if it does not exist;
    /// of one that exists, its own schema counts.
    ///
    /// # Errors
    /// A name that is not possible; an inconsistent schema; a store open for reading.
    pub fn importer(&self, name: &str, schema: Schema) -> Result<Importer> {
        self.importer_with(name, schema, &DatasetOptions::default())
    }

    /// As [`Self::importer`], with options for a dataset that does not exist; of one that exists, its own count.
    ///
    /// # Errors
    /// As [`Self::importer`]; a number of partitions that cannot be.
    pub fn importer_with(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<Importer> {
        self.importer_in(ImportMode::default(), name, schema, options)
    }

    /// As [`Self::importer_with`], in a mode: what becomes of a dataset that exists. Of one that is to be replaced, the
    /// options that it has count, and not its schema.
    ///
    /// # Errors
    /// As [`Self::importer_with`], and:
    /// - [`crate::Error::UnknownDataset`]: the mode is `Append`, and there is no such dataset.
    /// - [`crate::Error::Usage`]: the mode is `Create`, and the dataset exists; an upsert has no keys; the schema of a
    ///   replacement lacks a column of an index.
    pub fn importer_in(
        &self,
        mode: ImportMode,
        name: &str,
        schema: Schema,
        options: &DatasetOptions,
    ) -> Result<Importer> {
        Importer::new(self.engine.clone(), name, schema, options, mode)
    }

    /// Refuses a mode of import that the dataset does not allow, because it exists or because it does not. No schema is
    /// needed yet.
    ///
    /// # Errors
    /// As [`Self::importer_in`].
    pub fn check_import(&self, mode: ImportMode, name: &str) -> Result<()> {
        mode.check(&self.engine, name)
    }

    pub(crate) fn storage_and_options(&self) -> (Arc<dyn terrane_storage::Storage>, &crate::Options) {
        (self.engine.environment().storage.clone(), &self.engine.environment().options)
    }

    /// How the store makes writes durable.
    pub fn durability(&self) -> Durability {
        self.engine.environment().durability
    }

    /// Sizes and counts of everything in the store.
    ///
    /// # Errors
    /// Storage.
    pub fn info(&self) -> Result<StoreInfo> {
        StoreInfo::of(&self.engine)
    }

    /// Counters since the store was opened, and what it holds in memory now.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.engine)
    }

    /// What flushes and merges did since the store was opened.
    pub fn maintenance(&self) -> MaintenanceCounters {
        self.engine.maintenance.counters()
    }

    /// What could not be opened ([`Options::lenient`]): the indexes, and why.
    pub fn damage(&self) -> Vec<Finding> {
        check::unopened(&self.engine)
    }

    /// Verifies every page, every invariant, and that every index agrees with the primary.
    /// With `repair`, secondary indexes that do not are rebuilt from an intact primary.
    ///
    /// # Errors
    /// Storage. Damage is not an error but in the report.
    pub fn check(&self, repair: bool) -> Result<CheckReport> {
        CheckReport::of(&self.engine, repair)
    }

    /// Merges the components that every index of every dataset has at this moment into one.
    ///
    /// # Errors
    /// Storage; damage found on the way.
    pub fn compact(&self) -> Result<()> {
        for dataset in self.engine.datasets.load().values() {
            self.engine.maintenance.compact(dataset)?;
        }
        Ok(())
    }

    /// Whether what is written is nowhere but in memory until it is flushed.
    pub(crate) fn has_memory_alone(&self) -> bool {
        self.engine.environment().is_writable() && !self.engine.core.is_logged()
    }

    /// Writes all memory components to disk.
    ///
    /// # Errors
    /// Storage: what was not written stays in memory, and the call can be repeated. Also, once,
    /// [`crate::Error::Unmerged`] if a merge failed that followed on a flush, this or an earlier one,
    /// [`crate::Error::Unreclaimed`] if the log could not give up what a flush freed, or [`crate::Error::Unbuilt`] if an index whose
    /// creation was interrupted could not be completed; everything is on disk then.
    pub fn flush(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.maintenance.flush_all()?;
        self.engine.maintenance.after_flush();
        self.engine.report_background_failure()
    }

    /// Ends a store that is to be taken away again, and names its own files and directories, in an order in
    /// which they can be removed while it is locked, which is until it is dropped. What others have put
    /// there is not named.
    ///
    /// # Errors
    /// Storage.
    #[doc(hidden)]
    pub fn give_up(&self) -> Result<Vec<String>> {
        // What cannot be written any more is not wanted either.
        let _ = self.engine.close();
        own_names(&*self.engine.environment().storage)
    }

    /// Takes no more writes, waits for those that have begun, ends the background work, makes
    /// everything durable, and closes the store. Datasets and snapshots that are still around can
    /// be read, but not written any more; until the last of them is dropped the store counts as
    /// open, and opening it again for writing is refused.
    ///
    /// # Errors
    /// A failed sync. [`crate::Error::Unmerged`] if a merge in the background failed and nothing told yet, or
    /// so [`crate::Error::Unreclaimed`]: everything is durable and the store closed then, as without an error.
    /// Without a log ([`Durability::None`]), a failed flush, such as for want of space: what was not
    /// flushed is then in memory only. [`Dataset::flush`] can be repeated as long as a dataset is
    /// held; with the last of them it is lost, as in a crash. Who wants to be able to try again
    /// calls [`Self::flush`] first.
    pub fn close(mut self) -> Result<()> {
        self.closed = true;
        self.engine.close()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.closed {
            // Who wants to know whether this works calls `close`. With a log, what was
            // acknowledged is durable either way.
            let _ = self.engine.close();
        }
    }
}
