//! A partition of a dataset: its indexes, their components, and their common history.
//!
//! I1 Sealing is a cut by sequence number over all indexes: everything up to the cut is in
//!    the sealed generation or older, everything after it in the new one.
//! I2 Generations are flushed oldest first, so a new disk component is newer than all others.
//! I3 A sealed generation is flushed only when all its changes are applied and durable, that
//!    is, when `visible_seq` has reached its cut.
//! I4 One manifest step installs the components of all indexes that a flush made, with the
//!    cut as `flushed_sequence`; recovery redoes what is above it and nothing else. (A rule
//!    per component, "skip if LSN <= component LSN", would lose acknowledged writes when
//!    LSN 12 goes to the old component, LSN 11 to the new one and the old one is flushed.)
//! I5 The indexes change where one generation ends and the next begins: a generation has memory components of the
//!    indexes that there were when it was begun, and what it is flushed to goes to those of them that are still there.
//! I6 A component file is removed only after the manifest that no longer names it is durable
//!    and the last reader has let go of it.

mod flush;
mod generation;
mod indexes;
mod snapshot;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

pub use flush::{FlushOutcome, MergeOutcome, Workshop, merged_at_once};
pub use generation::Generation;
pub use snapshot::{PinnedVersion, SnapshotRegistry};

use crate::disk::{ComponentFile, PageCache};
use crate::index::{DiskPart, Index, downcast_memory};
use crate::manifest::PartitionState;
use crate::{Error, Result};
use terrane_storage::Storage;
use terrane_storage::sync::Mutex;

/// The components of all indexes at one moment.
#[derive(Clone, Debug)]
pub struct Version {
    /// Memory components, newest first; the first one takes writes.
    pub generations: Vec<Arc<Generation>>,
    /// The indexes. Each keeps its place while the partition is open; new ones come behind the others.
    pub indexes: Vec<IndexVersion>,
    /// Changes up to this number are in disk components.
    pub flushed_sequence: u64,
    /// How far each source has been read with them.
    pub sources: Arc<BTreeMap<u32, u64>>,
}

/// One index at one moment.
#[derive(Clone, Debug)]
pub struct IndexVersion {
    /// The index.
    pub numbered: NumberedIndex,
    /// Its disk components, newest first.
    pub components: Vec<Arc<dyn DiskPart>>,
    /// Whether they are all that there should be.
    pub presence: Presence,
}

/// Whether all components of an index are there.
#[derive(Clone, Debug)]
pub enum Presence {
    /// They are.
    Whole,
    /// Some of those that the manifest has, older than the others, could not be opened.
    Damaged(Error),
    /// What was there before the index was created is missing yet.
    Building,
    /// The index is gone, and only its place is left.
    Dropped,
}

impl IndexVersion {
    /// Why components that the manifest has could not be opened, if it is so.
    pub fn damage(&self) -> Option<&Error> {
        match &self.presence {
            Presence::Damaged(error) => Some(error),
            Presence::Whole | Presence::Building | Presence::Dropped => None,
        }
    }

    /// Whether searches of it find everything.
    pub fn is_whole(&self) -> bool {
        matches!(self.presence, Presence::Whole)
    }

    /// Whether it is gone.
    pub fn is_dropped(&self) -> bool {
        matches!(self.presence, Presence::Dropped)
    }
}

impl Version {
    /// The disk components of the index at a place, newest first.
    pub fn components(&self, place: usize) -> &[Arc<dyn DiskPart>] {
        &self.indexes[place].components
    }

    /// The memory components of the index at a place, newest first.
    pub fn memories<T: Any>(&self, place: usize) -> impl Iterator<Item = Result<&T>> {
        self.generations.iter().filter_map(move |generation| generation.memory(place)).map(downcast_memory)
    }

    /// An error if components of the index at `place` are missing or could not be opened, as what they hold
    /// would be missing from every answer, and what they hide would come back.
    pub fn check_whole(&self, place: usize) -> Result<()> {
        match &self.indexes[place].presence {
            Presence::Whole => Ok(()),
            Presence::Damaged(error) => Err(error.clone()),
            Presence::Building => Err(Error::Invalid("the index is not built yet".into())),
            Presence::Dropped => Err(Error::Invalid("the index was dropped".into())),
        }
    }

    /// Whether nothing of the index at `place` is older than its first `count` components, so that
    /// their anti-matter hides nothing.
    fn is_oldest(&self, place: usize, count: usize) -> bool {
        let index = &self.indexes[place];
        count == index.components.len() && index.is_whole()
    }

    /// A generation for changes after a number.
    fn next_generation(&self, after: u64) -> Result<Generation> {
        let places = self.indexes.iter().map(|index| (!index.is_dropped()).then_some(&index.numbered));
        Generation::new(places, after)
    }
}

/// An index with its number within the dataset.
#[derive(Clone, Debug)]
pub struct NumberedIndex {
    /// Number that operations in the log name.
    pub id: u32,
    /// The index.
    pub index: Arc<dyn Index>,
}

/// A partition that is open.
#[derive(Debug)]
pub struct Partition {
    dataset: u32,
    id: u32,
    version: ArcSwap<Version>,
    /// Held while the version is exchanged.
    exchange: Mutex<()>,
    /// Held over a flush, so that generations are flushed one after the other.
    flushing: Mutex<()>,
    /// Held over a merge.
    merging: Mutex<()>,
    snapshots: SnapshotRegistry,
}

impl Partition {
    /// Opens the components that the manifest names. `on_damage` decides about an index (by its
    /// place) of which one cannot be opened: the error it returns, or an index without components
    /// that answers nothing.
    pub fn open(
        storage: &Arc<dyn Storage>,
        cache: &Arc<PageCache>,
        dataset: u32,
        state: &PartitionState,
        indexes: Vec<NumberedIndex>,
        on_damage: &mut dyn FnMut(usize, Error) -> Result<()>,
    ) -> Result<Self> {
        let mut versions = Vec::with_capacity(indexes.len());
        for (place, numbered) in indexes.into_iter().enumerate() {
            let state = state.indexes.iter().find(|state| state.id == numbered.id);
            let parts = state.map_or(&[][..], |state| &state.components).iter();
            let opened = parts
                .map(|meta| numbered.index.open(ComponentFile::open(storage, cache, meta)?))
                .collect::<Result<Vec<_>>>();
            let (components, presence) = match opened {
                Ok(parts) if state.is_some_and(|state| state.building) => (parts, Presence::Building),
                Ok(parts) => (parts, Presence::Whole),
                Err(error) if error.is_damage() => {
                    on_damage(place, error.clone())?;
                    (Vec::new(), Presence::Damaged(error))
                }
                Err(error) => return Err(error),
            };
            versions.push(IndexVersion { numbered, components, presence });
        }
        let flushed_sequence = state.flushed_sequence;
        let sources = Arc::new(state.sources.clone());
        let mut version = Version { generations: Vec::new(), indexes: versions, flushed_sequence, sources };
        version.generations.push(Arc::new(version.next_generation(flushed_sequence)?));
        Ok(Self {
            dataset,
            id: state.id,
            version: ArcSwap::from_pointee(version),
            exchange: Mutex::new(()),
            flushing: Mutex::new(()),
            merging: Mutex::new(()),
            snapshots: SnapshotRegistry::default(),
        })
    }

    /// Id of the dataset.
    pub fn dataset(&self) -> u32 {
        self.dataset
    }

    /// Id of the partition within the dataset.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The components now.
    pub fn version(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// The live snapshots.
    pub fn snapshots(&self) -> &SnapshotRegistry {
        &self.snapshots
    }

    /// The generation that takes writes. To be called under the store's commit latch, which
    /// is what makes sealing a cut.
    pub fn active(&self) -> Arc<Generation> {
        self.version.load().generations[0].clone()
    }

    /// Seals the active generation at `cut`, the last sequence number given out, and starts a
    /// new one. To be called under the store's commit latch. False when there was nothing in it.
    pub fn seal(&self, cut: u64) -> Result<bool> {
        let _exchange = self.exchange.lock();
        let version = self.version.load_full();
        let active = &version.generations[0];
        if active.is_untouched() {
            return Ok(false);
        }
        let mut next = (*version).clone();
        next.generations.insert(0, Arc::new(version.next_generation(cut)?));
        active.seal(cut);
        self.version.store(Arc::new(next));
        Ok(true)
    }

    /// How far a source has been read with what was applied; 0 if there is nothing from it.
    pub fn source_offset(&self, source: u32) -> u64 {
        let version = self.version.load();
        let noted = version.generations.iter().filter_map(|generation| generation.source_offset(source));
        noted.chain(version.sources.get(&source).copied()).max().unwrap_or(0)
    }

    /// Bytes of all memory components, at one moment: one that was flushed while they were summed up does not count
    /// beside what came after it.
    pub fn memory_used(&self) -> usize {
        let mut version = self.version.load();
        loop {
            let used = version.generations.iter().map(|generation| generation.memory_used()).sum();
            let now = self.version.load();
            if Arc::ptr_eq(&version, &now) {
                return used;
            }
            version = now;
        }
    }

    /// Bytes of the memory components that take writes.
    pub fn active_memory_used(&self) -> usize {
        self.version.load().generations[0].memory_used()
    }

    /// Where the log must be kept from for the sake of the memory components that take writes.
    pub fn active_first_lsn(&self) -> Option<u64> {
        self.version.load().generations[0].first_lsn()
    }

    /// Bytes of the memory components that wait to be flushed.
    pub fn sealed_memory_used(&self) -> usize {
        self.version.load().generations[1..].iter().map(|generation| generation.memory_used()).sum()
    }

    /// Whether a flush could free nothing: no generation is sealed, and there is nothing to seal.
    pub fn is_memory_empty(&self) -> bool {
        let version = self.version.load();
        version.generations.len() == 1 && version.generations[0].is_untouched()
    }
}
