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
//! I5 A component file is removed only after the manifest that no longer names it is durable
//!    and the last reader has let go of it.

mod flush;
mod generation;
mod snapshot;

use std::sync::Arc;

use arc_swap::ArcSwap;

pub use flush::{FlushOutcome, MergeOutcome, Workshop, merged_at_once};
pub use generation::Generation;
pub use snapshot::{PinnedVersion, SnapshotRegistry};

use crate::disk::{ComponentFile, PageCache};
use crate::index::{DiskPart, Index};
use crate::manifest::PartitionState;
use crate::{Error, Result};
use terrane_storage::Storage;
use terrane_storage::sync::Mutex;

/// The components of all indexes at one moment.
#[derive(Clone, Debug)]
pub struct Version {
    /// Memory components, newest first; the first one takes writes.
    pub generations: Vec<Arc<Generation>>,
    /// Disk components of each index, newest first.
    pub components: Vec<Vec<Arc<dyn DiskPart>>>,
    /// For each index, why components of it that the manifest has could not be opened. They are
    /// older than those in `components`.
    pub unopened: Vec<Option<Error>>,
    /// Changes up to this number are in disk components.
    pub flushed_sequence: u64,
}

impl Version {
    /// An error if components of the index at `place` could not be opened, as what they hold would
    /// be missing from every answer, and what they hide would come back.
    pub fn check_whole(&self, place: usize) -> Result<()> {
        self.unopened[place].clone().map_or(Ok(()), Err)
    }

    /// Whether nothing of the index at `place` is older than its first `count` components, so that
    /// their anti-matter hides nothing.
    fn is_oldest(&self, place: usize, count: usize) -> bool {
        count == self.components[place].len() && self.unopened[place].is_none()
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
    indexes: Vec<NumberedIndex>,
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
        let mut components = Vec::with_capacity(indexes.len());
        let mut unopened = vec![None; indexes.len()];
        for (place, numbered) in indexes.iter().enumerate() {
            let state = state.indexes.iter().find(|state| state.id == numbered.id);
            let parts = state.map_or(&[][..], |state| &state.components).iter();
            let opened = parts
                .map(|meta| numbered.index.open(ComponentFile::open(storage, cache, meta)?))
                .collect::<Result<Vec<_>>>();
            components.push(match opened {
                Ok(parts) => parts,
                Err(error) if error.is_damage() => {
                    let cause = error.clone();
                    on_damage(place, error)?;
                    unopened[place] = Some(cause);
                    Vec::new()
                }
                Err(error) => return Err(error),
            });
        }
        let active = Generation::new(&indexes, state.flushed_sequence)?;
        let generations = vec![Arc::new(active)];
        let version = Version { generations, components, unopened, flushed_sequence: state.flushed_sequence };
        Ok(Self {
            dataset,
            id: state.id,
            indexes,
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

    /// The indexes, in the order of [`Version::components`].
    pub fn indexes(&self) -> &[NumberedIndex] {
        &self.indexes
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
        next.generations.insert(0, Arc::new(Generation::new(&self.indexes, cut)?));
        active.seal(cut);
        self.version.store(Arc::new(next));
        Ok(true)
    }

    /// Bytes of all memory components.
    pub fn memory_used(&self) -> usize {
        self.version.load().generations.iter().map(|generation| generation.memory_used()).sum()
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
