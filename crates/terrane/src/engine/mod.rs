//! The engine of a store. It consists of these parts; each uses the ones above it.
//!
//! - [`Environment`]: storage, options, shares of memory.
//! - [`CommitCore`]: the log, the order of commits, visibility, locks of keys.
//! - [`OpenDatasets`]: datasets by name, bytes of their memory components.
//! - [`DiskSpace`]: the reserve for a full disk.
//! - [`Maintenance`]: flushes, merges, the writers that wait for them.
//! - [`Catalog`]: changes of datasets.
//! - [`IndexBuilds`]: new indexes.
//!
//! Locks are taken in this order, outermost first:
//!
//! 1. `building` of a dataset.
//! 2. The catalog's lock.
//! 3. The gate of a dataset.
//! 4. Key locks.
//! 5. The admission ticket.
//! 6. The flush lock of a dataset.
//! 7. The merge locks of partitions.
//! 8. The manifest's lock.
//! 9. The commit latch.
//! 10. Locks inside `terrane-lsm`.
//!
//! The log asks the reserve before it grows. So the reserve's lock is inside that of the log's
//! files.
//!
//! - A thread that completes an index waits for merges before it takes the gate, so that writers
//!   seldom wait for one.
//! - A flush asks for the low-water mark inside its manifest step, so a holder of the latch must
//!   not begin one.
//! - A writer that waits for a flush holds nothing that a flush needs: it waits before it takes the
//!   latch, and a flush takes no key lock.
//! - Nor does a merge take a key lock while it counts as running: on a full disk, writers, flushes
//!   and manifest steps wait for merges with whatever locks they hold.

mod catalog;
mod commit_core;
mod dataset;
mod datasets;
mod disk_space;
mod entry;
mod environment;
mod identity;
mod index_builds;
mod index_load;
mod maintenance;
mod names;
mod open;
mod pin;
mod reader;
mod recovery;
mod replay;
mod reserve;
mod routing;
mod row_numbers;
mod spill;
mod visibility;
mod writer_lock;

use std::sync::Arc;
use std::time::Duration;

use terrane_lsm::log::RecoveryReport;

use catalog::Catalog;
pub(crate) use commit_core::{CommitCore, Committed};
pub(crate) use dataset::{DatasetHandle, Unopened};
use datasets::{Datasets, OpenDatasets};
use disk_space::DiskSpace;
pub(crate) use entry::{Entry, Origin};
use environment::Environment;
pub(crate) use identity::{draw_id, store_id};
use index_builds::IndexBuilds;
pub use maintenance::MaintenanceCounters;
use maintenance::{Admitted, Maintenance};
pub(crate) use names::{
    RESTORING_NAME, check_not_foreign, directories_of_place, foreign_names, is_component, own_names,
};
pub(crate) use pin::PinnedState;
use reserve::Reserve;
pub(crate) use reserve::{RESERVE_NAME, reserve_bytes};
pub(crate) use routing::RoutedKey;
pub(crate) use writer_lock::{WriterLock, lock};

use crate::Result;

/// What opening did.
#[derive(Debug)]
pub(crate) struct Opening {
    /// What was found in the log.
    pub recovery: Option<RecoveryReport>,
    /// Time for opening the log and replaying it.
    pub replay_time: Duration,
}

/// The parts of an open store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub opening: Opening,
    pub index_builds: Arc<IndexBuilds>,
    pub catalog: Arc<Catalog>,
    pub maintenance: Arc<Maintenance>,
    pub disk: Arc<DiskSpace>,
    pub datasets: Arc<OpenDatasets>,
    pub core: Arc<CommitCore>,
}

impl Engine {
    fn new(core: CommitCore, datasets: Datasets, reserve: Reserve, opening: Opening) -> Self {
        let (core, datasets) = (Arc::new(core), Arc::new(OpenDatasets::new(datasets)));
        let disk = Arc::new(DiskSpace::new(core.clone(), datasets.clone(), reserve));
        let maintenance = Arc::new(Maintenance::new(core.clone(), datasets.clone(), disk.clone()));
        let catalog = Arc::new(Catalog::new(core.clone(), datasets.clone(), disk.clone(), maintenance.clone()));
        let index_builds =
            IndexBuilds::new(core.clone(), datasets.clone(), disk.clone(), maintenance.clone(), catalog.clone());
        Self { opening, index_builds: Arc::new(index_builds), catalog, maintenance, disk, datasets, core }
    }

    pub fn environment(&self) -> &Environment {
        self.core.environment()
    }

    /// As [`CommitCore::check_writable`].
    pub fn check_writable(&self) -> Result<()> {
        self.core.check_writable()
    }

    /// Commits the changes of an entry, except for its sync: [`CommitCore::acknowledge`].
    ///
    /// The caller holds the locks of all keys inside, and has had the entry admitted.
    pub fn commit(&self, dataset: &DatasetHandle, mut entry: Entry, admitted: Admitted<'_>) -> Result<Committed> {
        if entry.has_inserts() {
            self.maintenance.check_disk()?;
        }
        let appended = loop {
            if let Some(log) = self.core.log() {
                let reserved = self.maintenance.reserve_log(log, entry.len(), entry.has_inserts());
                reserved.inspect_err(|error| self.core.note_failure(error))?;
            }
            // If another thread used the room that was reserved, it is reserved anew.
            if let Some(appended) = self.core.append(dataset, &mut entry)? {
                break appended;
            }
        };
        let has_grown = self.core.apply(&entry, &appended)?;
        if has_grown {
            // Its changes count as memory components now. Components only grow, so no one else has
            // to note this growth.
            self.datasets.note_memory(dataset);
        }
        drop(admitted);
        self.maintenance.note_write(dataset, appended.committed.end_lsn, has_grown);
        Ok(appended.committed)
    }

    /// Reports, each once: a failed merge, a log that could not be reclaimed, an index that was not
    /// completed.
    pub fn report_background_failure(&self) -> Result<()> {
        let failed = self.maintenance.take_failure().or_else(|| self.index_builds.take_failure());
        failed.map_or(Ok(()), Err)
    }
}
