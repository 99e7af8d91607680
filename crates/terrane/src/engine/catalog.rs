//! Datasets: what the catalog says of them, and their open state.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use serde::{Deserialize, Serialize};
use terrane_lsm::disk::PageCache;
use terrane_lsm::manifest::{DatasetState, IndexState, PartitionState};
use terrane_lsm::partition::Partitions;
use terrane_lsm::policy::MergePolicy;
use terrane_storage::Storage;
use terrane_storage::sync::{AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering, RwLock};

use super::Engine;
use super::row_numbers::RowNumbers;
use crate::feed::{FeedDefinition, FeedsInUse};
use crate::name::check_dataset_name;
use crate::options::{DatasetOptions, Options, PARTITIONS_MAX};
use crate::schema::{Schema, SchemaHistory};
use crate::secondary::{IndexDefinition, IndexKind, Indexes, PRIMARY, SPATIAL};
use crate::{Error, Key, Result};

/// What the manifest keeps of a dataset for the database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Catalog {
    /// All versions of the schema.
    pub history: SchemaHistory,
    /// The indexes, in the order of the partition's components.
    pub indexes: Vec<IndexDefinition>,
    /// Every index had a lower number, also those that are gone.
    #[serde(default)]
    pub next_index: u32,
    /// When components are merged, if it is not as the store is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_policy: Option<MergePolicy>,
    /// The feeds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feeds: Vec<FeedDefinition>,
    /// Every feed had a lower number, also those that are gone.
    #[serde(default)]
    pub next_feed: u32,
}

impl Catalog {
    /// The catalog of a new dataset: a primary and an R-tree.
    pub fn new(schema: Schema) -> Result<Self> {
        let columns = schema.geometry.names().map(str::to_owned).collect();
        let key = vec![schema.key.name.clone()];
        let primary = IndexDefinition::of_every_dataset(PRIMARY, "primary", IndexKind::BTree, key);
        let spatial = IndexDefinition::of_every_dataset(SPATIAL, "geometry", IndexKind::RTree, columns);
        let (history, indexes) = (SchemaHistory::new(schema)?, vec![primary, spatial]);
        Ok(Self { history, indexes, next_index: SPATIAL + 1, merge_policy: None, feeds: Vec::new(), next_feed: 1 })
    }

    fn to_json(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|error| Error::Failed(format!("the catalog cannot be written: {error}")))
    }
}

/// A dataset that is open.
#[derive(Debug)]
pub(crate) struct DatasetHandle {
    pub id: u32,
    pub name: String,
    pub partitions: Partitions,
    pub history: ArcSwap<SchemaHistory>,
    pub indexes: ArcSwap<Indexes>,
    /// Every index had a lower number. Changes with `catalog_changes` held.
    pub next_index: AtomicU32,
    /// Held while an index is built.
    pub building: Mutex<()>,
    /// Numbers of the indexes that were not complete when it was opened, but those of which the creation was asked for again.
    interrupted: Mutex<Vec<u32>>,
    /// When its components are merged, if it is not as the store is opened. Changes with `catalog_changes` held.
    pub(super) merge_policy: ArcSwapOption<MergePolicy>,
    /// Changes with `catalog_changes` held, as does `next_feed`.
    pub feeds: ArcSwap<Vec<FeedDefinition>>,
    pub next_feed: AtomicU32,
    pub feeds_in_use: FeedsInUse,
    /// Writers hold it shared; an import installs its records holding it alone. Taken by [`Self::enter`] and
    /// [`Self::exclude`].
    pub(super) gate: RwLock<()>,
    /// Whether it was dropped or replaced. Changes with `catalog_changes` held and the gate held alone.
    pub(super) is_dropped: AtomicBool,
    /// Bytes of its memory components that the engine counts. Changes under `memory_noting`.
    pub memory_noted: AtomicUsize,
    pub memory_noting: Mutex<()>,
    /// Keys for records that have none.
    pub row_numbers: RowNumbers,
    /// Indexes that could not be opened, when opened leniently.
    pub damage: Vec<Unopened>,
}

/// An index of a partition that could not be opened.
#[derive(Debug)]
pub(crate) struct Unopened {
    pub partition: usize,
    /// Place of the index.
    pub place: usize,
    pub error: Error,
}

impl DatasetHandle {
    /// Says which record is damaged, if that is what an error is about.
    #[cold]
    pub fn name_record(&self, history: &SchemaHistory, error: Error, key: &[u8]) -> Error {
        let key = Key::decode(history.newest().key.key_type, key).ok();
        error.of_record(&self.name, key.map(|key| key.to_string()))
    }

    /// Opens a dataset. With `lenient`, an index that cannot be opened is left without components
    /// and noted in `damage`, for a check; else it is an error.
    pub fn open(
        storage: &Arc<dyn Storage>,
        cache: &Arc<PageCache>,
        state: &DatasetState,
        lenient: bool,
    ) -> Result<Self> {
        let catalog: Catalog = serde_json::from_value(state.catalog.clone()).map_err(|error| {
            Error::damaged("MANIFEST", 0, format!("the catalog of dataset {:?} cannot be read: {error}", state.name))
        })?;
        let count = state.partitions.len();
        if !(1..=PARTITIONS_MAX).contains(&count) {
            return Err(Error::Unsupported {
                what: format!("dataset {:?} of {count} partitions", state.name),
                instead: "a newer version made it; open the store with that",
            });
        }
        let after_last = catalog.indexes.iter().map(|definition| definition.id + 1).max().unwrap_or(0);
        // Feeds are numbered from 1.
        let after_last_feed = catalog.feeds.iter().map(|feed| feed.id + 1).max().unwrap_or(1);
        let indexes = Indexes::open(catalog.indexes, &catalog.history)?;
        let numbered: Vec<_> = indexes.iter().map(|(_, index)| index.numbered()).collect();
        let mut damage = Vec::new();
        let mut on_damage = |partition, place, error: terrane_lsm::Error| {
            if !lenient {
                return Err(error);
            }
            damage.push(Unopened { partition, place, error: error.into() });
            Ok(())
        };
        let opened = Partitions::open(storage, cache, state.id, &state.partitions, &numbered, &mut on_damage);
        let partitions = opened.map_err(|error| match error {
            terrane_lsm::Error::Invalid(reason) => {
                Error::damaged("MANIFEST", 0, format!("the partitions of dataset {:?}: {reason}", state.name))
            }
            other => other.into(),
        })?;
        // All partitions have the same.
        let states = state.partitions.first().map(|partition| &partition.indexes);
        let interrupted = states.into_iter().flatten().filter(|index| index.building).map(|index| index.id);
        Ok(Self {
            id: state.id,
            name: state.name.clone(),
            partitions,
            history: ArcSwap::from_pointee(catalog.history),
            indexes: ArcSwap::from_pointee(indexes),
            next_index: AtomicU32::new(catalog.next_index.max(after_last)),
            building: Mutex::new(()),
            interrupted: Mutex::new(interrupted.collect()),
            merge_policy: ArcSwapOption::from_pointee(catalog.merge_policy),
            next_feed: AtomicU32::new(catalog.next_feed.max(after_last_feed)),
            feeds: ArcSwap::from_pointee(catalog.feeds),
            feeds_in_use: FeedsInUse::default(),
            gate: RwLock::new(()),
            is_dropped: AtomicBool::new(false),
            memory_noted: AtomicUsize::new(0),
            memory_noting: Mutex::new(()),
            row_numbers: RowNumbers::new(),
            damage,
        })
    }

    /// Whether the creation of an index was interrupted before it was opened and is asked for again, for the first time: by then it may
    /// be complete.
    pub fn is_asked_for_again(&self, id: u32) -> bool {
        let mut interrupted = self.interrupted.lock();
        let place = interrupted.iter().position(|known| *known == id);
        place.map(|place| interrupted.swap_remove(place)).is_some()
    }

    /// The error of a use of the index at a place whose components could not all be opened, or of a dataset that
    /// was dropped.
    pub fn damaged_index(&self, place: usize) -> Error {
        if let Err(dropped) = self.check_present() {
            return dropped;
        }
        let damage = self.damage.iter().find(|unopened| unopened.place == place);
        Error::DamagedIndex {
            dataset: self.name.clone(),
            index: self.indexes.load().name(place).to_owned(),
            reason: damage.map_or_else(|| "a component is missing".into(), |unopened| unopened.error.finding()),
        }
    }

    /// What the manifest says of the dataset when it has a history and indexes.
    pub fn catalog(&self, history: &SchemaHistory, indexes: &Indexes) -> Result<serde_json::Value> {
        let next_index = self.next_index.load(Ordering::Relaxed);
        let merge_policy = self.own_merge_policy();
        let feeds = self.feeds.load().to_vec();
        let next_feed = self.next_feed.load(Ordering::Relaxed);
        let (history, indexes) = (history.clone(), indexes.definitions());
        Catalog { history, indexes, next_index, merge_policy, feeds, next_feed }.to_json()
    }

    /// When its components are merged.
    pub fn merge_policy(&self, options: &Options) -> MergePolicy {
        self.own_merge_policy().unwrap_or(options.merge_policy)
    }

    /// When the components are merged, if the dataset has a policy of its own.
    pub fn own_merge_policy(&self) -> Option<MergePolicy> {
        self.merge_policy.load().as_deref().copied()
    }

    /// The newest schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.history.load().newest().clone()
    }
}

impl Engine {
    /// Describes a dataset that does not exist yet.
    pub fn new_dataset(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<DatasetState> {
        check_dataset_name(name)?;
        if self.datasets.load().contains_key(name) {
            return Err(Error::usage(format!("dataset {name:?} exists already")));
        }
        options.validate()?;
        self.describe(name, &Catalog::new(schema)?, options.partitions)
    }

    /// Describes an empty dataset, under an id of its own.
    pub(super) fn describe(&self, name: &str, catalog: &Catalog, partitions: usize) -> Result<DatasetState> {
        let indexes: Vec<IndexState> =
            catalog.indexes.iter().map(|definition| IndexState::new(definition.id)).collect();
        let catalog = catalog.to_json()?;
        let partition = |number: usize| {
            let (id, indexes, sources) = (number as u32, indexes.clone(), BTreeMap::new());
            PartitionState { id, flushed_sequence: 0, loads: 0, sources, indexes }
        };
        let partitions = (0..partitions).map(partition).collect();
        let id = self.next_dataset_id.fetch_add(1, Ordering::Relaxed);
        Ok(DatasetState { id, name: name.into(), catalog, partitions })
    }

    /// Creates a dataset, durably.
    pub fn create_dataset(&self, name: &str, schema: Schema, options: &DatasetOptions) -> Result<Arc<DatasetHandle>> {
        self.check_writable()?;
        let _changes = self.catalog_changes.lock();
        let state = self.new_dataset(name, schema, options)?;
        let handle = Arc::new(DatasetHandle::open(&self.storage, &self.cache, &state, false)?);
        self.step(|manifest| {
            manifest.add_dataset(state.clone());
            Ok(())
        })?;
        self.publish(handle.clone());
        Ok(handle)
    }

    /// Makes a dataset known. To be called with `catalog_changes` held.
    pub fn publish(&self, handle: Arc<DatasetHandle>) {
        let mut datasets = (**self.datasets.load()).clone();
        datasets.insert(handle.name.clone(), handle);
        self.datasets.store(Arc::new(datasets));
    }

    /// Changes the schema of a dataset, durably; records of older versions stay readable.
    pub fn change_schema(
        &self,
        dataset: &DatasetHandle,
        change: impl FnOnce(&SchemaHistory) -> Result<SchemaHistory>,
    ) -> Result<()> {
        self.change_columns(dataset, |history, indexes| Ok((change(history)?, indexes.clone())))
    }

    /// Changes the schema of a dataset and what its indexes call their columns, durably, in one manifest step: a crash
    /// leaves both as they were or both as they will be.
    pub fn change_columns(
        &self,
        dataset: &DatasetHandle,
        change: impl FnOnce(&SchemaHistory, &Indexes) -> Result<(SchemaHistory, Indexes)>,
    ) -> Result<()> {
        self.check_writable()?;
        let _changes = self.lock_catalog(dataset)?;
        let (history, indexes) = change(&dataset.history.load(), &dataset.indexes.load())?;
        self.write_catalog(dataset, &history, &indexes)?;
        // Who loads one of them before and the other behind finds the columns of an index by their numbers.
        dataset.history.store(Arc::new(history));
        dataset.indexes.store(Arc::new(indexes));
        Ok(())
    }

    /// Has the components of a dataset merged by a policy of its own, durably, or by the store's again.
    pub fn set_merge_policy(&self, dataset: &DatasetHandle, policy: Option<MergePolicy>) -> Result<()> {
        self.check_writable()?;
        if let Some(policy) = &policy {
            policy.validate().map_err(|error| Error::usage(error.to_string()))?;
        }
        let _changes = self.lock_catalog(dataset)?;
        let before = dataset.merge_policy.swap(policy.map(Arc::new));
        let stored = self.store_catalog(dataset);
        if stored.is_err() {
            dataset.merge_policy.store(before);
        }
        stored?;
        self.after_flush();
        Ok(())
    }

    /// A manifest step with the catalog of a dataset as it is in memory. To be called with `catalog_changes` held.
    pub fn store_catalog(&self, dataset: &DatasetHandle) -> Result<()> {
        self.write_catalog(dataset, &dataset.history.load(), &dataset.indexes.load())
    }

    /// A manifest step with the catalog of a dataset when it has a history and indexes.
    fn write_catalog(&self, dataset: &DatasetHandle, history: &SchemaHistory, indexes: &Indexes) -> Result<()> {
        let catalog = dataset.catalog(history, indexes)?;
        self.step(|manifest| {
            manifest.dataset_mut(dataset.id)?.catalog = catalog.clone();
            Ok(())
        })
    }
}
