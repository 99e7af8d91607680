//! A store's files are opened for writing: components, the log with its replay, and strays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use terrane_lsm::disk::PageCache;
use terrane_lsm::log::{Log, RecoveryReport, replay_read_only};
use terrane_lsm::manifest::ManifestFile;
use terrane_lsm::partition::MaintenanceContext;
use terrane_storage::Storage;
use terrane_storage::sync::AtomicU64;

use super::datasets::{Datasets, open_datasets};
use super::identity::store_id;
use super::names::{check_log_not_lost, has_new_manifest, next_file_id, remove_strays, strays};
use super::replay::Replay;
use super::reserve::Reserve;
use crate::options::{Durability, MemoryShares, Options};
use crate::{Error, Result};

/// Opens the files of a store for writing. It changes them only once they are known to fit
/// together.
pub(super) struct Recovery<'a> {
    pub storage: &'a Arc<dyn Storage>,
    pub options: &'a Options,
    pub shares: MemoryShares,
    pub durability: Durability,
    pub manifest: &'a Arc<ManifestFile>,
    pub reserve: &'a Reserve,
}

/// The opened files.
pub(super) struct Recovered {
    pub datasets: Datasets,
    pub context: MaintenanceContext,
    pub log: Option<Log>,
    pub report: Option<RecoveryReport>,
    /// The last number of all; those after it are free.
    pub last_sequence: u64,
    pub replay_time: Duration,
}

impl Recovery<'_> {
    /// Opens the components, replays the log, and only then removes strays. With a manifest that is
    /// not the store's newest, such as one from a backup, strays are what the right manifest names.
    /// Nothing is removed if damage is left for a check. On a full disk strays go first, then the
    /// reserve.
    pub fn run(&self) -> Result<Recovered> {
        let strays = strays(&**self.storage, &self.manifest.current())?;
        let mut recovered = self.recover();
        let is_full = |recovered: &Result<Recovered>| matches!(recovered, Err(Error::Full { .. }));
        let has_strays = || Ok::<_, Error>(!strays.is_empty() || has_new_manifest(&**self.storage)?);
        if is_full(&recovered) && !self.options.lenient && has_strays()? {
            tracing::warn!(files = strays.len(), "the disk is full: the files that a crash left are removed first");
            // All components were opened before anything needed room, so only the log is left to be
            // verified.
            let current = self.manifest.current();
            replay_read_only(&**self.storage, store_id(&current)?, current.low_water, &mut |_, _| Ok(()))?;
            remove_strays(&**self.storage, &strays)?;
            recovered = self.recover();
        }
        let reserved = self.reserve.length();
        if is_full(&recovered)
            && let Some(user) = self.reserve.release(0)
        {
            recovered = self.recover();
            drop(user);
            if is_full(&recovered) {
                let _ = self.reserve.resize(reserved, false);
            }
        }
        let recovered = recovered.map_err(|error| self.explain(error))?;
        if recovered.datasets.values().all(|dataset| dataset.damage.is_empty()) {
            if !strays.is_empty() {
                tracing::debug!(files = strays.len(), "removes the files that a crash left");
            }
            remove_strays(&**self.storage, &strays)?;
        }
        Ok(recovered)
    }

    /// Says how much has to be free to open the store on a full disk.
    fn explain(&self, error: Error) -> Error {
        let Error::Full { what } = error else { return error };
        let free = self.options.log.smallest_size(0);
        let what = format!("{what}, until {free} bytes are free, and more if the log is long, to open the store");
        Error::Full { what }
    }

    fn recover(&self) -> Result<Recovered> {
        let Self { storage, options, manifest, .. } = *self;
        let current = manifest.current();
        let cache = PageCache::new(self.shares.cache);
        let datasets = open_datasets(storage, &cache, &current, options.lenient)?;
        let context = MaintenanceContext {
            storage: storage.clone(),
            cache,
            manifest: manifest.clone(),
            next_file_id: Arc::new(AtomicU64::new(next_file_id(&**storage, &current)?)),
            threads_max: options.threads(),
            merges: Arc::default(),
        };
        let mut replay = Replay::of_writer(&datasets, &context, self.shares.components);
        let replay_start = Instant::now();
        let (log, report) = match self.durability {
            Durability::None => (None, None),
            _ => {
                check_log_not_lost(&**storage, &current)?;
                let store_id = store_id(&current)?;
                let on_entry = &mut |lsn, entry: &[u8]| replay.entry(lsn, entry);
                let (log, report) = Log::open(storage.clone(), options.log, store_id, current.low_water, on_entry)?;
                (Some(log), Some(report))
            }
        };
        let (last_sequence, replay_time) = (replay.last_sequence, replay_start.elapsed());
        Ok(Recovered { datasets, context, log, report, last_sequence, replay_time })
    }
}
