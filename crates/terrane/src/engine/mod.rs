//! The engine under a store: one log, one order of commits, the datasets, the background work.
//!
//! Order in which locks are taken, outermost first: the building of a dataset's indexes · catalog changes · import gate of a dataset ·
//! key locks · the turn to wait for memory · the flush lock of a dataset · the merge locks of partitions · manifest · commit latch · the rest
//! inside `terrane-lsm`. (Who completes an index waits for merges before it takes the gate, so that writers seldom wait for one. A flush asks for the low-water mark inside its manifest step, so
//! nobody who holds the latch may begin one.) Nothing that a flush needs is ever held by
//! a writer that waits for a flush: it waits before it takes the latch, and a flush takes no
//! key lock. Nor does a merge take one while it counts as running: on a full disk, writers, flushes and manifest steps wait
//! for merges with whatever locks they hold. The reserve's lock comes inside that of the log's files, as the log asks it
//! before it grows.

mod catalog;
mod commit;
mod drop;
mod maintenance;
mod names;
mod open;
mod pin;
mod replace;
mod reserve;
mod routing;
mod row_numbers;
mod spill;
mod visibility;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use terrane_lsm::disk::PageCache;
use terrane_lsm::log::{Log, ReadOnlyTail, RecoveryReport};
use terrane_lsm::manifest::Manifest;
use terrane_lsm::partition::Workshop;
use terrane_storage::Storage;
use terrane_storage::sync::{AtomicU32, AtomicUsize, Mutex, Ordering};

pub(crate) use catalog::{DatasetHandle, Unopened};
pub(crate) use commit::Committed;
pub use maintenance::MaintenanceCounters;
pub(crate) use maintenance::{Admitted, Maintenance};
pub(crate) use names::{
    RESTORING_NAME, check_not_foreign, directories_of_place, foreign_names, is_component, own_names,
};
pub(crate) use open::{draw_id, lock, store_id};
pub(crate) use pin::PinnedState;
pub use reserve::DiskReserve;
pub(crate) use reserve::{RESERVE_NAME, Reserve, reserve_bytes};
pub(crate) use routing::SEVERAL;
pub(crate) use visibility::Visibility;

use crate::locks::LockTable;
use crate::options::{Durability, MemoryShares, Options};
use crate::{Error, Result};

/// Datasets by name.
pub(crate) type Datasets = BTreeMap<String, Arc<DatasetHandle>>;

#[derive(Debug)]
pub(crate) struct Engine {
    pub storage: Arc<dyn Storage>,
    pub options: Options,
    pub durability: Durability,
    pub shares: MemoryShares,
    pub cache: Arc<PageCache>,
    pub workshop: Workshop,
    pub log: Option<Log>,
    pub locks: LockTable,
    pub visibility: Visibility,
    pub datasets: ArcSwap<Datasets>,
    /// Held while datasets are created or changed.
    pub catalog_changes: Mutex<()>,
    pub maintenance: Maintenance,
    pub reserve: Reserve,
    /// Bytes of all memory components: the sum of what is noted of each dataset.
    memory_noted: AtomicUsize,
    /// What opening found in the log.
    pub recovery: Option<RecoveryReport>,
    /// How long opening the log and replaying it took.
    pub replay_time: Duration,
    /// Whether the store may be changed.
    pub writable: bool,
    pub next_dataset_id: AtomicU32,
    latch: Mutex<commit::Latch>,
    /// Keeps the log's tail from being recycled while a reader lives.
    pub tail: Option<ReadOnlyTail>,
    /// Keeps other writers out.
    _lock: Option<open::WriterLock>,
    /// Spilled components of a reader; removed with it.
    _spill: Option<spill::SpillDirectory>,
}

impl Engine {
    /// The dataset of a name, or an error that lists the names.
    pub fn dataset(&self, name: &str) -> Result<Arc<DatasetHandle>> {
        let datasets = self.datasets.load();
        datasets
            .get(name)
            .cloned()
            .ok_or_else(|| Error::UnknownDataset { name: name.into(), existing: datasets.keys().cloned().collect() })
    }

    /// Refuses changes through a handle that only reads, that is closed, or of which a write or
    /// sync failed.
    pub fn check_writable(&self) -> Result<()> {
        if !self.writable {
            return Err(Error::ReadOnly);
        }
        self.visibility.failure().map_or(Ok(()), Err)
    }

    /// A manifest step.
    pub fn step<T>(&self, mut change: impl FnMut(&mut Manifest) -> terrane_lsm::Result<T>) -> Result<T> {
        let stepped = self.with_room(|| self.workshop.step(&mut change).map_err(Error::from));
        stepped.inspect_err(|error| self.note_failure(error))
    }

    /// Has the handle refuse writes from now on if an error is a failed sync, as what such a sync
    /// was to make durable may be lost although later syncs succeed, or if it left open which
    /// manifest is on disk.
    pub fn note_failure(&self, error: &Error) {
        let failed_sync = matches!(error, Error::Storage(storage) if storage.operation().is_sync());
        if failed_sync || self.workshop.manifest.has_failed() {
            self.visibility.fail(&error.poisoned());
        }
    }

    /// As [`Self::note_failure`], of work on several partitions, of which only one error is told.
    pub fn note_failures<T>(&self, outcomes: &[Result<T>]) {
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).for_each(|error| self.note_failure(error));
    }

    /// Bytes of all memory components.
    pub fn memory_used(&self) -> usize {
        self.datasets.load().values().map(|dataset| dataset.partitions.memory_used()).sum()
    }

    /// Bytes of all memory components as [`Self::note_memory`] last counted them: for what every write
    /// asks, however many datasets there are. Short of what is being written, and still with what a
    /// flush is about to let go.
    pub fn memory_noted(&self) -> usize {
        self.memory_noted.load(Ordering::Relaxed)
    }

    /// To be called when memory components of a dataset have grown or gone, by whoever changed them.
    pub fn note_memory(&self, dataset: &DatasetHandle) {
        if dataset.partitions.memory_used() == dataset.memory_noted.load(Ordering::Relaxed) {
            return;
        }
        let _changing = dataset.memory_noting.lock();
        // Asked again under the lock, so that the last one to note knows of all changes before.
        let used = dataset.partitions.memory_used();
        let noted = dataset.memory_noted.swap(used, Ordering::Relaxed);
        if used >= noted {
            self.memory_noted.fetch_add(used - noted, Ordering::Relaxed);
        } else {
            self.memory_noted.fetch_sub(noted - used, Ordering::Relaxed);
        }
    }
}
