//! The partitions of a dataset: their indexes, the components of these, and their common history.
//!
//! The user assigns records to partitions; here a partition is a number from 0 on. Each has its own
//! memory and disk components, of the same indexes in the same slots.
//!
//! I1 Sealing is a cut by sequence number over all indexes of all partitions. Everything up to the
//!    cut is in the sealed or older generations, everything after it in the new ones. All
//!    partitions therefore have the same number of generations, with the same cuts.
//! I2 Generations are flushed oldest first, so a new disk component is newer than all others.
//! I3 Sealed generations are flushed only when all their changes are applied and durable, that
//!    is, when `visible_seq` has reached their cut.
//! I4 One manifest step installs the components of all indexes of all partitions that a flush made,
//!    with the cut as `flushed_sequence`. Recovery redoes what is above it and nothing else. (A
//!    rule per component, "skip if LSN <= component LSN", would lose acknowledged writes: if LSN 12
//!    goes to the old component, LSN 11 to the new one, and the old one is flushed. With a step for
//!    each partition, a store without a log could come back with a part of a transaction.)
//! I5 The indexes change where one generation ends and the next begins. A generation has memory
//!    components of the indexes that existed at its beginning. They are flushed to those that still
//!    exist.
//! I6 A component file is removed only after the manifest that no longer names it is durable and
//!    its last reader has dropped it.

mod drop;
mod flush;
mod generation;
mod indexes;
mod install;
mod merge;
mod running;
mod snapshot;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

pub use flush::{FlushOutcome, MaintenanceContext};
pub use generation::Generation;
pub use merge::{MergeOutcome, merged_at_once};
pub use running::RunningMerges;
pub use snapshot::{PinnedVersions, SnapshotRegistry};

use crate::disk::{ComponentFile, PageCache};
use crate::index::{DiskPart, Index, downcast_memory};
use crate::manifest::PartitionState;
use crate::{Error, Result};
use terrane_storage::Storage;
use terrane_storage::sync::Mutex;

/// The components of all partitions at one moment, by partition number.
#[derive(Clone, Debug)]
pub struct Versions(Vec<Arc<Version>>);

impl std::ops::Deref for Versions {
    type Target = [Arc<Version>];

    fn deref(&self) -> &[Arc<Version>] {
        &self.0
    }
}

impl Versions {
    /// Replaces the version of a partition by the result of `change`.
    fn change<T>(&mut self, partition: usize, change: impl FnOnce(&mut Version) -> T) -> T {
        change(Arc::make_mut(&mut self.0[partition]))
    }
}

/// The components of all indexes of a partition at one moment.
#[derive(Clone, Debug)]
pub struct Version {
    /// Memory components, newest first; the first one takes writes.
    pub generations: Vec<Arc<Generation>>,
    /// The indexes. Each keeps its slot while the partition is open; new ones are added at the
    /// end.
    pub indexes: Vec<IndexVersion>,
    /// Changes up to this number are in disk components.
    pub flushed_sequence: u64,
    /// The position of each source with them.
    pub sources: Arc<BTreeMap<u32, u64>>,
}

/// One index at one moment.
#[derive(Clone, Debug)]
pub struct IndexVersion {
    /// The index.
    pub numbered: NumberedIndex,
    /// Its disk components, newest first.
    pub components: Vec<Arc<dyn DiskPart>>,
    /// Whether all its components are there.
    pub presence: Presence,
}

/// Whether all components of an index are there.
#[derive(Clone, Debug)]
pub enum Presence {
    /// All of them.
    Whole,
    /// Some older components in the manifest could not be opened.
    Damaged(Error),
    /// The records from before the index was created are still missing.
    Building,
    /// All is there, some of it perhaps twice; searches do not use it yet.
    Loaded,
    /// The index was dropped, and only its slot is left.
    Dropped,
}

impl IndexVersion {
    /// Why components in the manifest could not be opened, if so.
    pub fn damage(&self) -> Option<&Error> {
        match &self.presence {
            Presence::Damaged(error) => Some(error),
            Presence::Whole | Presence::Building | Presence::Loaded | Presence::Dropped => None,
        }
    }

    /// Whether searches of it find everything.
    pub fn is_whole(&self) -> bool {
        matches!(self.presence, Presence::Whole)
    }

    /// Whether searches do not use it yet.
    pub fn is_building(&self) -> bool {
        matches!(self.presence, Presence::Building | Presence::Loaded)
    }

    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        matches!(self.presence, Presence::Dropped)
    }
}

impl Version {
    /// The disk components of the index at a slot, newest first.
    pub fn components(&self, slot: usize) -> &[Arc<dyn DiskPart>] {
        &self.indexes[slot].components
    }

    /// The memory components of the index at a slot, newest first.
    pub fn memories<T: Any>(&self, slot: usize) -> impl Iterator<Item = Result<&T>> {
        self.generations.iter().filter_map(move |generation| generation.memory(slot)).map(downcast_memory)
    }

    /// Whether the dataset was dropped, with all of its indexes.
    pub fn is_dropped(&self) -> bool {
        self.indexes.iter().all(IndexVersion::is_dropped)
    }

    /// An error if components of the index at `slot` are missing or could not be opened. Their
    /// entries would be missing from every result, and entries that they hide would come back.
    pub fn check_whole(&self, slot: usize) -> Result<()> {
        match &self.indexes[slot].presence {
            Presence::Whole => Ok(()),
            Presence::Damaged(error) => Err(error.clone()),
            Presence::Building | Presence::Loaded => Err(Error::Invalid("the index is not built yet".into())),
            Presence::Dropped if self.is_dropped() => Err(Error::Dropped),
            Presence::Dropped => Err(Error::Invalid("the index was dropped".into())),
        }
    }

    /// Whether nothing of the index at `slot` is older than its first `count` components, so that
    /// their anti-matter hides nothing.
    fn is_oldest(&self, slot: usize, count: usize) -> bool {
        let index = &self.indexes[slot];
        count == index.components.len() && matches!(index.presence, Presence::Whole | Presence::Loaded)
    }

    /// Bytes of the memory components.
    pub fn memory_used(&self) -> usize {
        self.generations.iter().map(|generation| generation.memory_used()).sum()
    }

    /// A generation for changes after a number.
    fn next_generation(&self, after: u64) -> Result<Generation> {
        let slots = self.indexes.iter().map(|index| (!index.is_dropped()).then_some(&index.numbered));
        Generation::new(slots, after)
    }
}

/// An index of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSlot {
    /// Number of the partition.
    pub partition: usize,
    /// Slot of the index in it.
    pub slot: usize,
}

/// An index with its number within the dataset.
#[derive(Clone, Debug)]
pub struct NumberedIndex {
    /// Number by which operations in the log name it.
    pub id: u32,
    /// The index.
    pub index: Arc<dyn Index>,
}

/// The partitions of a dataset, open.
#[derive(Debug)]
pub struct Partitions {
    dataset: u32,
    count: usize,
    versions: ArcSwap<Versions>,
    /// Held while the versions are exchanged.
    exchange: Mutex<()>,
    /// Held during a flush, so that generations are flushed one after the other.
    flushing: Mutex<()>,
    /// Held during a merge, one per partition.
    merging: Vec<Mutex<()>>,
    snapshots: SnapshotRegistry,
}

/// Receives a partition, the slot of its index, and why a component cannot be opened.
pub type OnDamage<'a> = dyn FnMut(usize, usize, Error) -> Result<()> + 'a;

impl Partitions {
    /// Opens the components that the manifest names. `on_damage` decides about an index with a
    /// component that cannot be opened: it returns an error, or an index without components that
    /// answers nothing.
    ///
    /// # Errors
    /// When the states are not of one dataset: their ids are not 0, 1, and so on, or they were not
    /// flushed together.
    pub fn open(
        storage: &Arc<dyn Storage>,
        cache: &Arc<PageCache>,
        dataset: u32,
        states: &[PartitionState],
        indexes: &[NumberedIndex],
        on_damage: &mut OnDamage<'_>,
    ) -> Result<Self> {
        let mut versions = Vec::with_capacity(states.len());
        for (number, state) in states.iter().enumerate() {
            if (state.id as usize, state.flushed_sequence) != (number, states[0].flushed_sequence) {
                return Err(Error::Invalid(format!(
                    "partition {} with changes up to {} is listed as number {number} of those with changes up to {}",
                    state.id, state.flushed_sequence, states[0].flushed_sequence
                )));
            }
            let mut on_damage = |slot, error| on_damage(number, slot, error);
            versions.push(Arc::new(open_version(storage, cache, state, indexes, &mut on_damage)?));
        }
        if versions.is_empty() {
            return Err(Error::Invalid("a dataset has no partition".into()));
        }
        Ok(Self {
            dataset,
            count: versions.len(),
            merging: versions.iter().map(|_| Mutex::new(())).collect(),
            versions: ArcSwap::from_pointee(Versions(versions)),
            exchange: Mutex::new(()),
            flushing: Mutex::new(()),
            snapshots: SnapshotRegistry::default(),
        })
    }

    /// Id of the dataset.
    pub fn dataset(&self) -> u32 {
        self.dataset
    }

    /// Number of partitions.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The current components.
    pub fn versions(&self) -> Arc<Versions> {
        self.versions.load_full()
    }

    /// The current components of a partition.
    pub fn version(&self, partition: usize) -> Arc<Version> {
        self.versions.load()[partition].clone()
    }

    /// The current indexes. They are the same in all partitions, except for their components.
    pub fn slots(&self) -> usize {
        self.versions.load()[0].indexes.len()
    }

    /// Changes up to this number are in disk components.
    pub fn flushed_sequence(&self) -> u64 {
        self.versions.load()[0].flushed_sequence
    }

    /// The live snapshots.
    pub fn snapshots(&self) -> &SnapshotRegistry {
        &self.snapshots
    }

    /// The generation of a partition that takes writes. To be called under the store's commit
    /// latch, which makes sealing a cut.
    pub fn active(&self, partition: usize) -> Arc<Generation> {
        self.versions.load()[partition].generations[0].clone()
    }

    /// Seals the active generations at `cut`, the last sequence number given out, and starts new
    /// ones. To be called under the store's commit latch. False if all of them were empty.
    pub fn seal(&self, cut: u64) -> Result<bool> {
        let _exchange = self.exchange.lock();
        let versions = self.versions.load_full();
        if versions.iter().all(|version| version.generations[0].is_untouched()) {
            return Ok(false);
        }
        let mut next = (*versions).clone();
        for (partition, generation) in self.next_generations(&versions, cut)?.into_iter().enumerate() {
            next.change(partition, |version| version.generations.insert(0, generation));
        }
        versions.iter().for_each(|version| version.generations[0].seal(cut));
        self.versions.store(Arc::new(next));
        Ok(true)
    }

    /// The position of a source with the applied changes; 0 if there is nothing from it.
    pub fn source_offset(&self, source: u32) -> u64 {
        let versions = self.versions.load();
        let in_memory = versions.iter().flat_map(|version| &version.generations);
        let noted = in_memory.filter_map(|generation| generation.source_offset(source));
        let flushed = versions.iter().filter_map(|version| version.sources.get(&source).copied());
        noted.chain(flushed).max().unwrap_or(0)
    }

    /// Bytes of all memory components, at one moment. A component that was flushed during the sum
    /// does not count in addition to its successor.
    pub fn memory_used(&self) -> usize {
        let mut versions = self.versions.load();
        loop {
            let used = versions.iter().map(|version| version.memory_used()).sum();
            let now = self.versions.load();
            if Arc::ptr_eq(&versions, &now) {
                return used;
            }
            versions = now;
        }
    }

    /// Bytes of the memory components that take writes.
    pub fn active_memory_used(&self) -> usize {
        self.versions.load().iter().map(|version| version.generations[0].memory_used()).sum()
    }

    /// The LSN from which the memory components that take writes need the log.
    pub fn active_first_lsn(&self) -> Option<u64> {
        self.versions.load().iter().filter_map(|version| version.generations[0].first_lsn()).min()
    }

    /// The LSN from which all memory components need the log, without the oldest sealed generations
    /// if these are `flushed`.
    pub fn first_lsn(&self, flushed: bool) -> Option<u64> {
        let versions = self.versions.load();
        let kept = |version: &Version| {
            let all = version.generations.len();
            all - usize::from(flushed && all > 1)
        };
        let generations = versions.iter().flat_map(|version| &version.generations[..kept(version)]);
        generations.filter_map(|generation| generation.first_lsn()).min()
    }

    /// Bytes of the memory components that wait to be flushed.
    pub fn sealed_memory_used(&self) -> usize {
        let versions = self.versions.load();
        let sealed = versions.iter().flat_map(|version| &version.generations[1..]);
        sealed.map(|generation| generation.memory_used()).sum()
    }

    /// Whether a flush could free nothing: no generation is sealed, and there is nothing to seal.
    pub fn is_memory_empty(&self) -> bool {
        let versions = self.versions.load();
        versions.iter().all(|version| version.generations.len() == 1 && version.generations[0].is_untouched())
    }
}

/// Opens the components of one partition.
fn open_version(
    storage: &Arc<dyn Storage>,
    cache: &Arc<PageCache>,
    state: &PartitionState,
    indexes: &[NumberedIndex],
    on_damage: &mut dyn FnMut(usize, Error) -> Result<()>,
) -> Result<Version> {
    let mut versions = Vec::with_capacity(indexes.len());
    for (slot, numbered) in indexes.iter().enumerate() {
        let state = state.indexes.iter().find(|state| state.id == numbered.id);
        let parts = state.map_or(&[][..], |state| &state.components).iter();
        let opened = parts
            .map(|meta| numbered.index.open(ComponentFile::open(storage, cache, meta)?))
            .collect::<Result<Vec<_>>>();
        let (components, presence) = match opened {
            Ok(parts) if state.is_some_and(|state| state.building) => (parts, Presence::Building),
            Ok(parts) => (parts, Presence::Whole),
            Err(error) if error.is_damage() => {
                on_damage(slot, error.clone())?;
                (Vec::new(), Presence::Damaged(error))
            }
            Err(error) => return Err(error),
        };
        versions.push(IndexVersion { numbered: numbered.clone(), components, presence });
    }
    let flushed_sequence = state.flushed_sequence;
    let sources = Arc::new(state.sources.clone());
    let mut version = Version { generations: Vec::new(), indexes: versions, flushed_sequence, sources };
    version.generations.push(Arc::new(version.next_generation(flushed_sequence)?));
    Ok(version)
}
