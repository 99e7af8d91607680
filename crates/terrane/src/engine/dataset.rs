//! One dataset: its definition in the manifest, and its open state.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use serde::{Deserialize, Serialize};
use terrane_lsm::disk::PageCache;
use terrane_lsm::manifest::DatasetState;
use terrane_lsm::partition::Partitions;
use terrane_lsm::policy::MergePolicy;
use terrane_storage::Storage;
use terrane_storage::sync::{
    AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use super::row_numbers::RowNumbers;
use crate::feed::{FeedDefinition, FeedsInUse};
use crate::options::{Options, PARTITIONS_MAX};
use crate::schema::{Schema, SchemaHistory};
use crate::secondary::{IndexDefinition, IndexKind, Indexes, PRIMARY, SPATIAL};
use crate::{Error, Key, Result};

/// What the manifest keeps of a dataset for the database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DatasetDefinition {
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

impl DatasetDefinition {
    /// The catalog of a new dataset: a primary and an R-tree.
    pub fn new(schema: Schema) -> Result<Self> {
        let columns = schema.geometry.names().map(str::to_owned).collect();
        let key = vec![schema.key.name.clone()];
        let primary = IndexDefinition::of_every_dataset(PRIMARY, "primary", IndexKind::BTree, key);
        let spatial = IndexDefinition::of_every_dataset(SPATIAL, "geometry", IndexKind::RTree, columns);
        let (history, indexes) = (SchemaHistory::new(schema)?, vec![primary, spatial]);
        Ok(Self { history, indexes, next_index: SPATIAL + 1, merge_policy: None, feeds: Vec::new(), next_feed: 1 })
    }

    pub(super) fn to_json(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|error| Error::Failed(format!("the catalog cannot be written: {error}")))
    }
}

/// A dataset that is open.
#[derive(Debug)]
pub(crate) struct DatasetHandle {
    pub id: u32,
    pub name: String,
    pub partitions: Partitions,
    /// Shared with the primary, which reads the times of records by it.
    pub history: Arc<ArcSwap<SchemaHistory>>,
    pub indexes: ArcSwap<Indexes>,
    /// Every index had a lower number. Changes with the catalog's lock held.
    pub next_index: AtomicU32,
    /// Held while an index is built.
    pub building: Mutex<()>,
    /// Numbers of the indexes that were not complete when it was opened, but those of which the
    /// creation was asked for again.
    interrupted: Mutex<Vec<u32>>,
    /// When its components are merged, if it is not as the store is opened. Changes with the
    /// catalog's lock held.
    pub(super) merge_policy: ArcSwapOption<MergePolicy>,
    /// Changes with the catalog's lock held, as does `next_feed`.
    pub feeds: ArcSwap<Vec<FeedDefinition>>,
    pub next_feed: AtomicU32,
    pub feeds_in_use: FeedsInUse,
    /// Writers hold it shared; an import installs its records holding it alone. Taken by
    /// [`Self::enter`] and [`Self::exclude`].
    gate: RwLock<()>,
    /// Whether it was dropped or replaced. Changes with the catalog's lock held and the gate held
    /// alone.
    is_dropped: AtomicBool,
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
    pub slot: usize,
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
        let catalog: DatasetDefinition = serde_json::from_value(state.catalog.clone()).map_err(|error| {
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
        let history = Arc::new(ArcSwap::from_pointee(catalog.history));
        let indexes = Indexes::open(catalog.indexes, &history)?;
        let numbered: Vec<_> = indexes.iter().map(|(_, index)| index.numbered()).collect();
        let mut damage = Vec::new();
        let mut on_damage = |partition, slot, error: terrane_lsm::Error| {
            if !lenient {
                return Err(error);
            }
            damage.push(Unopened { partition, slot, error: error.into() });
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
            history,
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

    /// Whether the creation of an index was interrupted before it was opened and is asked for
    /// again, for the first time: by then it may be complete.
    pub fn is_asked_for_again(&self, id: u32) -> bool {
        let mut interrupted = self.interrupted.lock();
        let place = interrupted.iter().position(|known| *known == id);
        place.map(|place| interrupted.swap_remove(place)).is_some()
    }

    /// The error of a use of the index at a slot whose components could not all be opened, or of a
    /// dataset that was dropped.
    pub fn damaged_index(&self, slot: usize) -> Error {
        if let Err(dropped) = self.check_present() {
            return dropped;
        }
        let damage = self.damage.iter().find(|unopened| unopened.slot == slot);
        Error::DamagedIndex {
            dataset: self.name.clone(),
            index: self.indexes.load().name(slot).to_owned(),
            reason: damage.map_or_else(|| "a component is missing".into(), |unopened| unopened.error.finding()),
        }
    }

    /// What the manifest says of the dataset when it has a history and indexes.
    pub fn definition(&self, history: &SchemaHistory, indexes: &Indexes) -> Result<serde_json::Value> {
        let next_index = self.next_index.load(Ordering::Relaxed);
        let merge_policy = self.own_merge_policy();
        let feeds = self.feeds.load().to_vec();
        let next_feed = self.next_feed.load(Ordering::Relaxed);
        let (history, indexes) = (history.clone(), indexes.definitions());
        DatasetDefinition { history, indexes, next_index, merge_policy, feeds, next_feed }.to_json()
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

    /// [`Error::Dropped`] if it was dropped.
    pub fn check_present(&self) -> Result<()> {
        match self.is_dropped.load(Ordering::Acquire) {
            true => Err(Error::Dropped { dataset: Some(self.name.clone()) }),
            false => Ok(()),
        }
    }

    /// Marks it as dropped or replaced. To be called with the catalog's lock held, and the gate
    /// held alone.
    pub(super) fn set_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// Lets a writer in. The dataset is not dropped while the guard lives.
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let gate = self.gate.read();
        self.check_present()?;
        Ok(gate)
    }

    /// Waits until all writers have left, and keeps them out.
    pub fn exclude(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let gate = self.gate.write();
        self.check_present()?;
        Ok(gate)
    }

    /// Takes over from the dataset that it replaces what can change until the last moment: the
    /// merge policy, and the feeds, which begin anew. To be called with the catalog's lock held.
    pub fn inherit(&self, old: &Self) {
        self.merge_policy.store(old.merge_policy.load_full());
        let anew = |feed: &FeedDefinition| FeedDefinition { source: None, begun_at: 0, ..feed.clone() };
        self.feeds.store(Arc::new(old.feeds.load().iter().map(anew).collect()));
        self.next_feed.store(old.next_feed.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether the records from before an index was created are still missing in it.
    pub fn is_building(&self, slot: usize) -> bool {
        let version = self.partitions.version(0);
        version.indexes.get(slot).is_some_and(|index| index.is_building())
    }

    /// The slot of the first index that is not complete. Indexes are completed in their order.
    pub fn first_unbuilt(&self) -> Option<usize> {
        self.indexes.load().iter().map(|(slot, _)| slot).find(|slot| self.is_building(*slot))
    }

    /// Whether an index of this name is not complete.
    pub fn is_unbuilt(&self, name: &str) -> bool {
        self.indexes.load().find(name).is_some_and(|(slot, _)| self.is_building(slot))
    }

    /// The error of an index that could not be completed, unless it was dropped meanwhile. To be
    /// called with `building` still held.
    pub fn unbuilt(&self, slot: usize, cause: Error) -> Error {
        let indexes = self.indexes.load();
        match indexes.iter().find(|(at, _)| *at == slot && self.is_building(slot)) {
            Some((_, index)) if !matches!(cause, Error::Cancelled) => Error::Unbuilt {
                dataset: self.name.clone(),
                index: index.definition.name.clone(),
                cause: Box::new(cause),
            },
            _ => cause,
        }
    }
}
