//! The catalog: datasets are created, changed, dropped and replaced, each in one manifest step.
//!
//! The step that drops a dataset removes it with everything that is named of it. Before the step,
//! the dataset's gate keeps its writers out, so that nothing is acknowledged after it. A crash
//! leaves:
//!
//! - before the step: the dataset, whole;
//! - after it: no dataset of that id. Its files are strays, which opening removes. Replay passes
//!   over its entries in the tail of the log, as no dataset has their id, and none ever gets it.
//!
//! The same step raises the last sequence number. The log may lose the dataset's entries with it,
//! and their numbers must not be given out again.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_lsm::log::LogPosition;
use terrane_lsm::manifest::{DatasetState, IndexState, Manifest, PartitionState};
use terrane_lsm::policy::MergePolicy;
use terrane_storage::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

use super::commit_core::CommitCore;
use super::dataset::{DatasetDefinition, DatasetHandle};
use super::datasets::OpenDatasets;
use super::disk_space::DiskSpace;
use super::maintenance::Maintenance;
use crate::feed::FeedDefinition;
use crate::name::check_dataset_name;
use crate::options::DatasetOptions;
use crate::schema::{Schema, SchemaHistory};
use crate::secondary::{Indexes, PRIMARY, SPATIAL};
use crate::{Error, Result};

/// The changes of the catalog of an open store.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// Held while datasets are created or changed.
    changes: Mutex<()>,
    next_dataset_id: AtomicU32,
    maintenance: Arc<Maintenance>,
    disk: Arc<DiskSpace>,
    datasets: Arc<OpenDatasets>,
    core: Arc<CommitCore>,
}

/// The former state of a dataset that was removed from the manifest, and the new begin of the log.
#[derive(Debug)]
pub(crate) struct Removed {
    state: DatasetState,
    low_water: Option<LogPosition>,
}

impl Catalog {
    pub fn new(
        core: Arc<CommitCore>,
        datasets: Arc<OpenDatasets>,
        disk: Arc<DiskSpace>,
        maintenance: Arc<Maintenance>,
    ) -> Self {
        let next_dataset_id = AtomicU32::new(core.environment().context.manifest.current().next_dataset_id);
        Self { changes: Mutex::new(()), next_dataset_id, maintenance, disk, datasets, core }
    }

    /// Keeps others from changing the catalog.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// Keeps others from changing the catalog, if a dataset is still there.
    pub fn lock_for(&self, dataset: &DatasetHandle) -> Result<MutexGuard<'_, ()>> {
        let changes = self.changes.lock();
        dataset.check_present()?;
        Ok(changes)
    }

    /// Describes a dataset that does not exist yet.
    pub fn describe_new(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<DatasetState> {
        check_dataset_name(name)?;
        if self.datasets.contains(name) {
            return Err(Error::usage(format!("dataset {name:?} exists already")));
        }
        options.validate()?;
        self.describe(name, &DatasetDefinition::new(schema)?, options.partitions)
    }

    /// Describes the dataset of another schema that is to replace one: with an id of its own, the
    /// same number of partitions, and the same indexes.
    ///
    /// # Errors
    /// An index that the new schema does not allow, by its name.
    pub fn describe_successor(&self, old: &DatasetHandle, schema: Schema) -> Result<DatasetState> {
        let mut definition = DatasetDefinition::new(schema)?;
        let schema = definition.history.newest().clone();
        let indexes = old.indexes.load().definitions();
        for index in indexes.iter().filter(|index| !matches!(index.id, PRIMARY | SPATIAL)) {
            definition.indexes.push(index.carried_to(&schema).map_err(|reason| {
                let (index, dataset) = (&index.name, &old.name);
                Error::usage(format!(
                    "the index {index:?} of dataset {dataset:?} cannot be kept: {reason}; drop it first, or import into \
                     another dataset"
                ))
            })?);
        }
        definition.next_index = old.next_index.load(Ordering::Relaxed);
        self.describe(&old.name, &definition, old.partitions.count())
    }

    /// Describes an empty dataset, under an id of its own.
    fn describe(&self, name: &str, definition: &DatasetDefinition, partitions: usize) -> Result<DatasetState> {
        let indexes: Vec<IndexState> = definition.indexes.iter().map(|index| IndexState::new(index.id)).collect();
        let catalog = definition.to_json()?;
        let partition = |number: usize| {
            let (id, indexes, sources) = (number as u32, indexes.clone(), BTreeMap::new());
            PartitionState { id, flushed_sequence: 0, loads: 0, sources, indexes }
        };
        let partitions = (0..partitions).map(partition).collect();
        let id = self.next_dataset_id.fetch_add(1, Ordering::Relaxed);
        Ok(DatasetState { id, name: name.into(), catalog, partitions })
    }

    /// Opens a dataset that was described here.
    pub fn open(&self, state: &DatasetState) -> Result<Arc<DatasetHandle>> {
        let environment = self.core.environment();
        Ok(Arc::new(DatasetHandle::open(&environment.storage, &environment.context.cache, state, false)?))
    }

    /// Creates a dataset, durably.
    pub fn create(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<Arc<DatasetHandle>> {
        self.core.check_writable()?;
        let _changes = self.lock();
        let state = self.describe_new(name, schema, options)?;
        let handle = self.open(&state)?;
        self.disk.step(|manifest| {
            manifest.add_dataset(state.clone());
            Ok(())
        })?;
        self.datasets.publish(handle.clone());
        Ok(handle)
    }

    /// Makes a dataset known after the step that added it. To be called with the lock held.
    pub fn publish(&self, handle: Arc<DatasetHandle>) {
        self.datasets.publish(handle);
    }

    /// Drops a dataset, durably. Existing snapshots can be read as long as they live.
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        self.core.check_writable()?;
        let _changes = self.lock();
        let dataset = self.datasets.get(name)?;
        let _gate = dataset.exclude()?;
        self.flush_for_snapshots(&dataset)?;
        let removed = self.disk.step(|manifest| self.remove(manifest, &dataset))?;
        self.datasets.forget(name);
        self.release(&dataset, &removed);
        Ok(())
    }

    /// Has live snapshots of a dataset see on disk what they see in memory, which is freed when the
    /// dataset is gone. On a full disk, they keep the memory as long as they live, as does a later
    /// snapshot. To be called with the gate held alone.
    pub fn flush_for_snapshots(&self, dataset: &DatasetHandle) -> Result<()> {
        if dataset.partitions.snapshots().count() == 0 {
            return Ok(());
        }
        match self.maintenance.flush(dataset) {
            Ok(_) | Err(Error::Full { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a dataset from the manifest, in the step that drops it. To be called with the gate
    /// held alone.
    pub fn remove(&self, manifest: &mut Manifest, dataset: &DatasetHandle) -> terrane_lsm::Result<Removed> {
        let state = manifest.remove_dataset(dataset.id)?;
        manifest.last_sequence = manifest.last_sequence.max(self.core.last_sequence());
        let first_lsn = |other: &DatasetHandle| other.partitions.first_lsn(false).filter(|_| other.id != dataset.id);
        let position = match (self.core.log(), self.core.low_water(&self.datasets, first_lsn)) {
            (Some(log), Some(lsn)) => log.position_of(lsn).ok(),
            _ => None,
        };
        Ok(Removed { state, low_water: position.map(|position| manifest.raise_low_water(position)) })
    }

    /// Frees the memory and the files of a dataset, after the step that removed it. Another one may
    /// have its name already. To be called with the lock held, and with the gate held alone.
    pub fn release(&self, dataset: &DatasetHandle, removed: &Removed) {
        // Before the components go, so that everyone who finds none knows why.
        dataset.set_dropped();
        dataset.partitions.release(&self.core.environment().context, &removed.state);
        self.datasets.note_memory(dataset);
        if let Some(position) = removed.low_water {
            self.maintenance.reclaim_log(position);
        }
        self.maintenance.note_dropped();
        let _ = self.disk.restore();
    }

    /// Changes the schema of a dataset, durably; records of older versions stay readable.
    pub fn change_schema(
        &self,
        dataset: &DatasetHandle,
        change: impl FnOnce(&SchemaHistory) -> Result<SchemaHistory>,
    ) -> Result<()> {
        self.change_columns(dataset, |history, indexes| Ok((change(history)?, indexes.clone())))
    }

    /// Changes the schema of a dataset and the columns of its indexes, durably, in one manifest
    /// step: a crash leaves both unchanged or both changed.
    pub fn change_columns(
        &self,
        dataset: &DatasetHandle,
        change: impl FnOnce(&SchemaHistory, &Indexes) -> Result<(SchemaHistory, Indexes)>,
    ) -> Result<()> {
        self.core.check_writable()?;
        let _changes = self.lock_for(dataset)?;
        let (history, indexes) = change(&dataset.history.load(), &dataset.indexes.load())?;
        self.write(dataset, &history, &indexes)?;
        // A thread that loads one of them before and the other behind finds the columns of an index
        // by their numbers.
        dataset.history.store(Arc::new(history));
        dataset.indexes.store(Arc::new(indexes));
        Ok(())
    }

    /// Has the components of a dataset merged by a policy of its own, or by the store's again,
    /// durably.
    pub fn set_merge_policy(&self, dataset: &DatasetHandle, policy: Option<MergePolicy>) -> Result<()> {
        self.core.check_writable()?;
        if let Some(policy) = &policy {
            policy.validate().map_err(|error| Error::usage(error.to_string()))?;
        }
        let _changes = self.lock_for(dataset)?;
        let before = dataset.merge_policy.swap(policy.map(Arc::new));
        let stored = self.store(dataset);
        if stored.is_err() {
            dataset.merge_policy.store(before);
        }
        stored?;
        self.maintenance.after_flush();
        Ok(())
    }

    /// Gives a name to a feed at a position, durably. A feed that had the name is forgotten.
    pub fn begin_feed(
        &self,
        dataset: &DatasetHandle,
        name: &str,
        begun_at: u64,
        source: Option<&str>,
    ) -> Result<FeedDefinition> {
        self.change_feeds(dataset, |feeds| {
            let id = dataset.next_feed.fetch_add(1, Ordering::Relaxed);
            let definition = FeedDefinition { id, name: name.to_owned(), source: source.map(str::to_owned), begun_at };
            feeds.retain(|feed| feed.name != name);
            feeds.push(definition.clone());
            definition
        })
    }

    /// Changes the feeds of a dataset, durably.
    pub fn change_feeds<T>(
        &self,
        dataset: &DatasetHandle,
        change: impl FnOnce(&mut Vec<FeedDefinition>) -> T,
    ) -> Result<T> {
        self.core.check_writable()?;
        let _changes = self.lock_for(dataset)?;
        let before = dataset.feeds.load_full();
        let mut feeds = (*before).clone();
        let outcome = change(&mut feeds);
        dataset.feeds.store(Arc::new(feeds));
        let stored = self.store(dataset);
        if stored.is_err() {
            dataset.feeds.store(before);
        }
        stored.map(|()| outcome)
    }

    /// A manifest step with the definition of a dataset as it is in memory. To be called with the
    /// lock held.
    fn store(&self, dataset: &DatasetHandle) -> Result<()> {
        self.write(dataset, &dataset.history.load(), &dataset.indexes.load())
    }

    /// A manifest step with the definition of a dataset when it has a history and indexes.
    fn write(&self, dataset: &DatasetHandle, history: &SchemaHistory, indexes: &Indexes) -> Result<()> {
        let definition = dataset.definition(history, indexes)?;
        self.disk.step(|manifest| {
            manifest.dataset_mut(dataset.id)?.catalog = definition.clone();
            Ok(())
        })
    }
}
