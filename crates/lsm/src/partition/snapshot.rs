//! Pinned versions: what a snapshot reads, despite flushes and merges.
//!
//! A snapshot pins disk components by count. It does not pin sealed memory. When a generation that
//! it sees has been flushed, its version is replaced by one with the new disk components, which
//! keep the versions that the snapshot needs.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use super::{Generation, Partitions, Version, Versions};
use crate::index::DiskPart;
use terrane_storage::sync::Mutex;

/// A new component of the index at a slot; `None` if that index has none.
pub(super) type NewPart = Option<Arc<dyn DiskPart>>;

/// The components that a flush made of a partition's generation.
pub(super) struct Flushed {
    pub generation: Arc<Generation>,
    /// By the slots of the indexes.
    pub parts: Vec<NewPart>,
}

/// What one snapshot sees: the components of all partitions, and the sequence number up to which it
/// sees changes.
#[derive(Debug)]
pub struct PinnedVersions {
    sequence: u64,
    versions: ArcSwap<Versions>,
}

impl PinnedVersions {
    /// Changes up to this number are seen.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The components to read. A long scan asks anew for every batch.
    pub fn versions(&self) -> arc_swap::Guard<Arc<Versions>> {
        self.versions.load()
    }

    /// The components to read, with a count of their own.
    pub fn versions_full(&self) -> Arc<Versions> {
        self.versions.load_full()
    }
}

/// The live snapshots of a dataset's partitions.
#[derive(Debug, Default)]
pub struct SnapshotRegistry {
    live: Mutex<Vec<Weak<PinnedVersions>>>,
}

impl SnapshotRegistry {
    /// The sequence numbers below `cut` of live snapshots, ascending.
    pub fn sequences_below(&self, cut: u64) -> Vec<u64> {
        let pinned = {
            let mut live = self.live.lock();
            live.retain(|pinned| pinned.strong_count() > 0);
            Self::upgrade(&live)
        };
        let mut sequences: Vec<u64> =
            pinned.iter().map(|pinned| pinned.sequence).filter(|sequence| *sequence < cut).collect();
        sequences.sort_unstable();
        sequences.dedup();
        sequences
    }

    /// Number of live snapshots.
    pub fn count(&self) -> usize {
        self.live.lock().iter().filter(|pinned| pinned.strong_count() > 0).count()
    }

    /// Makes every live snapshot of the flushed generations, one of each partition, read the new
    /// components instead.
    pub(super) fn replace(&self, flushed: &[Flushed]) {
        // Later snapshots do not see the flushed generations.
        let live = Self::upgrade(&self.live.lock());
        for pinned in live {
            let versions = pinned.versions.load_full();
            if let Some(next) = versions.with_flushed(flushed) {
                pinned.versions.store(Arc::new(next));
            }
        }
    }

    /// The live snapshots, to be dropped without the lock: the last one may remove files.
    fn upgrade(live: &[Weak<PinnedVersions>]) -> Vec<Arc<PinnedVersions>> {
        live.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Version {
    /// Adds new components as the newest of the indexes at their slots.
    pub(super) fn add_newest(&mut self, parts: &[NewPart]) {
        for (index, part) in self.indexes.iter_mut().zip(parts) {
            index.components.splice(0..0, part.clone());
        }
    }
}

impl Versions {
    /// A copy in which disk components replace the generations, one of each partition; `None` if it
    /// does not have these generations.
    pub(super) fn with_flushed(&self, flushed: &[Flushed]) -> Option<Self> {
        let mut next = self.clone();
        for (partition, Flushed { generation, parts }) in flushed.iter().enumerate() {
            let mut present = self[partition].generations.iter();
            let slot = present.position(|present| Arc::ptr_eq(present, generation))?;
            next.change(partition, |version| {
                version.generations.remove(slot);
                version.add_newest(parts);
            });
        }
        Some(next)
    }
}

impl Partitions {
    /// Pins the components of all partitions for a reader. `sequence` is called under the lock by
    /// which a flush learns which snapshots it has to serve, so none is overlooked.
    pub fn pin(&self, sequence: impl FnOnce() -> u64) -> Arc<PinnedVersions> {
        let mut live = self.snapshots.live.lock();
        self.pin_at(&mut live, sequence())
    }

    /// Like [`Self::pin`], of different datasets at one number: `sequence` is called under the
    /// locks of all.
    pub fn pin_all(datasets: &[&Self], sequence: impl FnOnce() -> u64) -> Vec<Arc<PinnedVersions>> {
        // In a fixed order, so that two threads that pin the same datasets do not wait for each
        // other.
        let mut order: Vec<usize> = (0..datasets.len()).collect();
        order.sort_by_key(|index| std::ptr::from_ref(datasets[*index]));
        let mut locked: Vec<_> =
            order.into_iter().map(|index| (index, datasets[index].snapshots.live.lock())).collect();
        let sequence = sequence();
        locked.sort_by_key(|(index, _)| *index);
        datasets.iter().zip(&mut locked).map(|(dataset, (_, live))| dataset.pin_at(live, sequence)).collect()
    }

    /// Pins the components under the lock of the live snapshots.
    fn pin_at(&self, live: &mut Vec<Weak<PinnedVersions>>, sequence: u64) -> Arc<PinnedVersions> {
        let pinned = Arc::new(PinnedVersions { sequence, versions: ArcSwap::new(self.versions()) });
        if live.len() >= 64 && live.len().is_power_of_two() {
            live.retain(|pinned| pinned.strong_count() > 0);
        }
        live.push(Arc::downgrade(&pinned));
        pinned
    }
}
