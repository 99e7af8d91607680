//! A store: a directory with datasets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrane_storage::Storage;

use crate::Result;
use crate::check::{self, CheckReport, Finding};
use crate::dataset::{Dataset, ImportMode, Importer};
use crate::engine::{Engine, MaintenanceCounters, own_names};
use crate::feed::{self, FeedReceiver, FeedSender, OnOverload, QueuedRecord};
use crate::info::StoreInfo;
use crate::metrics::Metrics;
use crate::options::{DatasetOptions, Durability, Options};
use crate::place::storage_at;
use crate::schema::Schema;
use crate::snapshot::Snapshot;

/// An open store. Dropping it closes it. [`Store::close`] also reports errors of closing.
#[derive(Debug)]
pub struct Store {
    engine: Arc<Engine>,
    closed: AtomicBool,
}

impl Store {
    /// Opens or creates the store in a directory, for reading and writing.
    ///
    /// # Errors
    /// [`crate::Error::Locked`] while another process writes; damage; another durability mode than
    /// the store's; a directory that holds something else; storage.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_on(storage_at(directory.as_ref(), "a store")?, options)
    }

    /// Opens the store in a directory for reading, in its current state. Another process may
    /// continue to write.
    ///
    /// # Errors
    /// The directory has no store; damage; storage.
    pub fn open_read_only(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_read_only_on(storage_at(directory.as_ref(), "a store")?, options)
    }

    /// Like [`Self::open`], on any storage.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_on(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        Ok(Self { engine: Engine::open(storage, options)?, closed: AtomicBool::new(false) })
    }

    /// Like [`Self::open_read_only`], on any storage.
    ///
    /// # Errors
    /// Those of [`Self::open_read_only`].
    pub fn open_read_only_on(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        Ok(Self { engine: Engine::open_read_only(storage, options)?, closed: AtomicBool::new(false) })
    }

    /// Names of the datasets, in order.
    pub fn dataset_names(&self) -> Vec<String> {
        self.engine.datasets.load().keys().cloned().collect()
    }

    /// Opens a dataset.
    ///
    /// # Errors
    /// [`crate::Error::UnknownDataset`], with the existing names.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        Ok(Dataset { engine: self.engine.clone(), handle: self.engine.datasets.get(name)? })
    }

    /// The states of datasets at one moment, in the order of the names. A commit is in all
    /// snapshots or in none.
    ///
    /// # Errors
    /// [`crate::Error::UnknownDataset`], with the existing names.
    pub fn snapshots(&self, names: &[impl AsRef<str>]) -> Result<Vec<Snapshot>> {
        let handles = names.iter().map(|name| self.engine.datasets.get(name.as_ref()));
        let handles = handles.collect::<Result<Vec<_>>>()?;
        Ok(Snapshot::together(&self.engine.core, &handles.iter().collect::<Vec<_>>()))
    }

    /// Creates an empty dataset, which is durable on return.
    ///
    /// # Errors
    /// The name is taken or invalid; an inconsistent schema; storage.
    pub fn create_dataset(&self, name: &str, schema: Schema) -> Result<Dataset> {
        self.create_dataset_with(name, schema, &DatasetOptions::default())
    }

    /// Like [`Self::create_dataset`], with options.
    ///
    /// # Errors
    /// Those of [`Self::create_dataset`]; an invalid number of partitions.
    pub fn create_dataset_with(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<Dataset> {
        Ok(Dataset { engine: self.engine.clone(), handle: self.engine.catalog.create(name, schema, options)? })
    }

    /// Opens a dataset, or creates it with a schema. An existing dataset keeps its own schema.
    ///
    /// # Errors
    /// Those of [`Self::create_dataset`], except for a taken name.
    pub fn open_or_create_dataset(&self, name: &str, schema: Schema) -> Result<Dataset> {
        self.dataset(name).or_else(|_| {
            // Another thread may have created it meanwhile.
            self.create_dataset(name, schema).or_else(|error| self.dataset(name).map_err(|_| error))
        })
    }

    /// Drops a dataset with its records and indexes in one step. A crash leaves all of it or
    /// nothing.
    ///
    /// On return the name is free. Existing snapshots of the dataset can still be read. Writes
    /// through [`Dataset`] handles, feeds and index builds fail with [`crate::Error::Dropped`].
    ///
    /// # Errors
    /// [`crate::Error::UnknownDataset`], with the existing names; a store open for reading;
    /// storage.
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        self.engine.catalog.drop_dataset(name)
    }

    /// Starts an import into a dataset. A missing dataset is created together with the records. An
    /// existing dataset keeps its schema.
    ///
    /// # Errors
    /// An invalid name; an inconsistent schema; a store open for reading.
    pub fn importer(&self, name: &str, schema: Schema) -> Result<Importer> {
        self.importer_with(name, schema, &DatasetOptions::default())
    }

    /// Like [`Self::importer`], with options for a new dataset. An existing dataset keeps its
    /// options.
    ///
    /// # Errors
    /// Those of [`Self::importer`]; an invalid number of partitions.
    pub fn importer_with(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<Importer> {
        self.importer_in(ImportMode::default(), name, schema, options)
    }

    /// Like [`Self::importer_with`], in a mode that determines what happens to an existing dataset.
    /// A replaced dataset keeps its options, but not its schema.
    ///
    /// # Errors
    /// Those of [`Self::importer_with`], and:
    /// - [`crate::Error::UnknownDataset`]: the mode is `Append`, and the dataset does not exist.
    /// - [`crate::Error::Usage`]: the mode is `Create`, and the dataset exists; an upsert has no
    ///   keys; the schema of a replacement lacks a column of an index.
    pub fn importer_in(
        &self,
        mode: ImportMode,
        name: &str,
        schema: Schema,
        options: &DatasetOptions,
    ) -> Result<Importer> {
        Importer::new(self.engine.clone(), name, schema, options, mode)
    }

    /// Refuses an import mode that conflicts with the existence of the dataset. Needs no schema.
    ///
    /// # Errors
    /// Those of [`Self::importer_in`].
    pub fn check_import(&self, mode: ImportMode, name: &str) -> Result<()> {
        mode.check(&self.engine, name)
    }

    /// Creates a queue between a thread that receives records and one that writes them to feeds,
    /// for records that may arrive faster than they are written. At most `memory_bytes` of them
    /// wait in memory, apart from the last one, which may be longer.
    ///
    /// Waiting records do not outlive the process. Commit the position of each record with it
    /// ([`crate::Feed::write_batch`]): then the source can be read again behind the last stored
    /// one.
    ///
    /// # Errors
    /// When the store was opened for reading, or refuses writes after a failure.
    pub fn feed_queue<R: QueuedRecord>(
        &self,
        on_overload: OnOverload,
        memory_bytes: usize,
    ) -> Result<(FeedSender<R>, FeedReceiver<R>)> {
        feed::queue(&self.engine, on_overload, memory_bytes)
    }

    pub(crate) fn storage_and_options(&self) -> (Arc<dyn terrane_storage::Storage>, &crate::Options) {
        (self.engine.environment().storage.clone(), &self.engine.environment().options)
    }

    /// The store's durability mode.
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

    /// Counters since the store was opened, and its current use of memory.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.engine)
    }

    /// Counters of flushes and merges since the store was opened.
    pub fn maintenance(&self) -> MaintenanceCounters {
        self.engine.maintenance.counters()
    }

    /// The indexes that could not be opened ([`Options::lenient`]), with reasons.
    pub fn damage(&self) -> Vec<Finding> {
        check::unopened(&self.engine)
    }

    /// Verifies every page and every invariant, and that every index agrees with the primary. With
    /// `repair`, faulty secondary indexes are rebuilt from an intact primary.
    ///
    /// # Errors
    /// Storage. Damage is not an error; the report lists it.
    pub fn check(&self, repair: bool) -> Result<CheckReport> {
        CheckReport::of(&self.engine, repair)
    }

    /// Merges the current components of every index of every dataset into one.
    ///
    /// # Errors
    /// Storage; damage in a component.
    pub fn compact(&self) -> Result<()> {
        for dataset in self.engine.datasets.load().values() {
            self.engine.maintenance.compact(dataset)?;
        }
        Ok(())
    }

    /// Whether records are in memory only until they are flushed.
    pub(crate) fn has_memory_alone(&self) -> bool {
        self.engine.environment().is_writable() && !self.engine.core.is_logged()
    }

    /// Writes all memory components to disk.
    ///
    /// # Errors
    /// Storage. Unwritten components stay in memory, and the call can be repeated.
    ///
    /// After the following errors, everything is on disk. Each is reported once:
    /// - [`crate::Error::Unmerged`]: a merge after this or an earlier flush failed.
    /// - [`crate::Error::Unreclaimed`]: obsolete log files could not be removed.
    /// - [`crate::Error::Unbuilt`]: an interrupted index creation could not be completed.
    pub fn flush(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.maintenance.flush_all()?;
        self.engine.maintenance.after_flush();
        self.engine.report_background_failure()
    }

    /// Prepares the removal of the store. Returns the names of its own files and directories, in an
    /// order in which they can be removed. The store stays locked until it is dropped. Files of
    /// others are not named.
    ///
    /// # Errors
    /// Storage.
    #[doc(hidden)]
    pub fn give_up(&self) -> Result<Vec<String>> {
        // Unwritten changes are not wanted any more.
        let _ = self.engine.close();
        own_names(&*self.engine.environment().storage)
    }

    /// Closes the store: refuses new writes, waits for running ones, stops background work, and
    /// makes everything durable.
    ///
    /// Remaining datasets and snapshots can still be read. Until the last of them is dropped, the
    /// store counts as open, and cannot be opened for writing again.
    ///
    /// # Errors
    /// - A failed sync.
    /// - [`crate::Error::Unmerged`] for an unreported failure of a background merge, or
    ///   [`crate::Error::Unreclaimed`]. The store is closed and everything durable, as without an
    ///   error.
    /// - Without a log ([`Durability::None`]), a failed flush, for example for lack of space. The
    ///   unflushed records are in memory only. [`Dataset::flush`] can be repeated while a dataset
    ///   is held; without one, they are lost, as in a crash. To be able to retry, call
    ///   [`Self::flush`] first.
    pub fn close(self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        self.engine.close()
    }

    /// Like [`Self::close`], while others have the store or handles of it. Their changes are
    /// refused from then on, and what they have begun to read can be read to its end. The store can
    /// be opened again at once, and not only when the last of them is dropped.
    ///
    /// # Errors
    /// Those of [`Self::close`].
    pub fn close_shared(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.engine.close()?;
        self.engine.unlock();
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Relaxed) {
            // Call `close` to get this error. With a log, acknowledged writes are durable in any
            // case.
            let _ = self.engine.close();
        }
    }
}
