//! Pinned versions: what a snapshot reads, whatever is flushed and merged meanwhile.
//!
//! A snapshot pins disk components by count. It does not pin sealed memory: when a
//! generation that it sees has been flushed, its version is exchanged for one that reads the
//! new disk components instead, which keep the versions that the snapshot needs.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use super::{Generation, Partition, Version};
use crate::index::DiskPart;
use terrane_storage::sync::Mutex;

/// A new component of the index at a place; none where that index has none.
pub(super) type NewPart = Option<Arc<dyn DiskPart>>;

/// What one snapshot sees: a version, and the sequence number up to which it sees changes.
#[derive(Debug)]
pub struct PinnedVersion {
    sequence: u64,
    version: ArcSwap<Version>,
}

impl PinnedVersion {
    /// Changes up to this number are seen.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The components to read. A long reader asks anew from batch to batch.
    pub fn version(&self) -> arc_swap::Guard<Arc<Version>> {
        self.version.load()
    }

    /// The components to read, held on its own.
    pub fn version_full(&self) -> Arc<Version> {
        self.version.load_full()
    }
}

/// The live snapshots of a partition.
#[derive(Debug, Default)]
pub struct SnapshotRegistry {
    live: Mutex<Vec<Weak<PinnedVersion>>>,
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

    /// Has every live snapshot that sees `flushed` read `parts` instead.
    pub(super) fn replace(&self, flushed: &Arc<Generation>, parts: &[NewPart]) {
        // Snapshots made from here on do not see it.
        let live = Self::upgrade(&self.live.lock());
        for pinned in live {
            let version = pinned.version.load_full();
            if let Some(next) = version.with_flushed(flushed, parts) {
                pinned.version.store(Arc::new(next));
            }
        }
    }

    /// The live snapshots, to be let go of without the lock: the last to do so may remove files.
    fn upgrade(live: &[Weak<PinnedVersion>]) -> Vec<Arc<PinnedVersion>> {
        live.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Version {
    /// Adds new components as the newest of the indexes at their places.
    pub(super) fn add_newest(&mut self, parts: &[NewPart]) {
        for (index, part) in self.indexes.iter_mut().zip(parts) {
            index.components.splice(0..0, part.clone());
        }
    }

    /// This version with a generation's place taken by disk components; `None` if it does not
    /// have the generation.
    pub(super) fn with_flushed(&self, flushed: &Arc<Generation>, parts: &[NewPart]) -> Option<Self> {
        let place = self.generations.iter().position(|generation| Arc::ptr_eq(generation, flushed))?;
        let mut next = self.clone();
        next.generations.remove(place);
        next.add_newest(parts);
        Some(next)
    }
}

impl Partition {
    /// Pins the components for a reader. `sequence` is called inside, under the lock by which
    /// a flush learns which snapshots it has to serve, so none is overlooked.
    pub fn pin(&self, sequence: impl FnOnce() -> u64) -> Arc<PinnedVersion> {
        let mut live = self.snapshots.live.lock();
        let pinned = Arc::new(PinnedVersion { sequence: sequence(), version: ArcSwap::new(self.version()) });
        if live.len() >= 64 && live.len().is_power_of_two() {
            live.retain(|pinned| pinned.strong_count() > 0);
        }
        live.push(Arc::downgrade(&pinned));
        pinned
    }
}
