//! A store is opened, for writing or for reading, and closed.

use std::sync::Arc;
use std::time::Duration;

use terrane_lsm::disk::PageCache;
use terrane_lsm::log::replay_read_only;
use terrane_lsm::manifest::{Manifest, ManifestFile};
use terrane_lsm::partition::MaintenanceContext;
use terrane_storage::sync::{AtomicU64, Mutex};
use terrane_storage::{ReadOnlyStorage, Storage};

use super::commit_core::CommitCore;
use super::datasets::{Datasets, open_datasets};
use super::environment::Environment;
use super::identity::{first_manifest, store_id};
use super::names::{check_log_not_lost, check_not_foreign, check_not_lost, next_file_id, no_store};
use super::reader::{Opened, read_one_state};
use super::recovery::{Recovered, Recovery};
use super::replay::Replay;
use super::reserve::Reserve;
use super::spill::{check_spill, spill_storage};
use super::writer_lock::lock;
use super::{Engine, Opening};
use crate::options::{Durability, MemoryShares, Options};
use crate::{Error, Result};

/// Segments of the log above which opening flushes what it replayed, if anything, and reclaims
/// them. Each session begins a segment, even without a write, so many short sessions would leave
/// many.
const SEGMENTS_KEPT: u64 = 4;

impl Engine {
    /// Opens a store for writing, or creates it.
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Arc<Self>> {
        let shares = MemoryShares::of(&options)?;
        let engine = Self::open_without_threads(storage, options, shares)?;
        engine.maintenance.start()?;
        engine.index_builds.start().inspect_err(|_| engine.stop_background())?;
        Ok(engine)
    }

    /// As [`Self::open`], before the background threads start. They keep the lock until they are
    /// stopped.
    pub(super) fn open_without_threads(
        storage: Arc<dyn Storage>,
        options: Options,
        shares: MemoryShares,
    ) -> Result<Arc<Self>> {
        options.durability.unwrap_or_default().check_supported()?;
        // Before anything is created there: a place that holds something else stays as it is.
        if Manifest::read(&*storage)?.is_none() {
            if !options.create {
                return Err(no_store(&*storage));
            }
            check_not_foreign(&*storage)?;
        }
        let lock = lock(&*storage, options.create)?;
        storage.create_directory("components")?;
        storage.create_directory("log")?;
        let manifest = Arc::new(open_manifest(&storage, &options)?);
        let low_water = manifest.current().low_water;
        let durability = durability_of(&manifest.current(), &options)?;
        let reserve = Reserve::open(storage.clone())?;
        let recovery = Recovery {
            storage: &storage,
            options: &options,
            shares,
            durability,
            manifest: &manifest,
            reserve: &reserve,
        };
        let Recovered { datasets, context, log, report, last_sequence, replay_time } = recovery.run()?;
        let lock = Mutex::new(Some(Arc::new(lock)));
        let environment = Environment { storage, options, durability, shares, context, is_writable: true, lock };
        let core = CommitCore::of_writer(environment.into(), log, last_sequence);
        let engine = Arc::new(Self::new(core, datasets, reserve, Opening { recovery: report, replay_time }));
        engine.begin_session(low_water.segment)?;
        engine.note_opening();
        Ok(engine)
    }

    /// Prepares an opened store for writes, with a log from a segment on.
    fn begin_session(&self, first_segment: u64) -> Result<()> {
        let end = self.core.log().map_or(0, |log| log.position().segment);
        // On a full disk at once, as each session begins a file of the log.
        if end.saturating_sub(first_segment) > SEGMENTS_KEPT || self.disk.reserve().is_released() {
            match self.maintenance.flush_all().and_then(|_| self.maintenance.reclaim_unneeded_log()) {
                // The log has it all and stays as long as it is: deletes and drops must still work.
                Err(Error::Full { .. }) => {}
                outcome => outcome?,
            }
        }
        self.disk.fit_reserve(self.disk.log_room());
        // Earlier sessions may have been too short for the merges that they made necessary.
        if !self.environment().options.lenient {
            self.maintenance.after_flush();
        }
        Ok(())
    }

    fn note_opening(&self) {
        let (location, datasets) = (self.environment().storage.describe(), self.datasets.load().len());
        let Opening { recovery, replay_time } = &self.opening;
        match recovery {
            Some(log) => tracing::debug!(
                location,
                datasets,
                clean_close = log.clean_close,
                log_entries = log.entries,
                log_bytes = log.bytes,
                torn_tail = log.torn_tail.is_some(),
                replay_ms = replay_time.as_millis(),
                "opened to write"
            ),
            None => tracing::debug!(location, datasets, "opened to write, without a log"),
        }
    }

    /// Ends the background threads.
    fn stop_background(&self) {
        self.index_builds.cancel();
        self.maintenance.stop();
        self.index_builds.join();
    }

    /// Opens a store for reading, as it is at this moment; another process may be writing.
    pub fn open_read_only(storage: Arc<dyn Storage>, options: Options) -> Result<Arc<Self>> {
        let shares = MemoryShares::of(&options)?;
        // The store's components are in use besides those that a reader creates for itself.
        let storage: Arc<dyn Storage> = Arc::new(ReadOnlyStorage::new(storage));
        let open = |manifest: &Manifest| Self::open_reader(&storage, &options, shares, manifest);
        let opened = read_one_state(&*storage, open, |(datasets, core)| Opened { datasets, tail: core.tail() })?;
        let (datasets, core) = opened;
        tracing::debug!(location = storage.describe(), datasets = datasets.len(), "opened to read");
        let opening = Opening { recovery: None, replay_time: Duration::ZERO };
        Ok(Arc::new(Self::new(core, datasets, Reserve::none(storage), opening)))
    }

    fn open_reader(
        storage: &Arc<dyn Storage>,
        options: &Options,
        shares: MemoryShares,
        manifest: &Manifest,
    ) -> Result<(Datasets, CommitCore)> {
        let durability: Durability = manifest.durability.parse()?;
        durability.check_supported()?;
        let cache = PageCache::new(shares.cache);
        let datasets = open_datasets(storage, &cache, manifest, options.lenient)?;
        let spill = spill_storage();
        let mut reader_manifest = manifest.clone();
        reader_manifest.next_file_id = next_file_id(storage.as_ref(), manifest)?;
        let context = MaintenanceContext {
            storage: spill.clone(),
            cache,
            next_file_id: Arc::new(AtomicU64::new(reader_manifest.next_file_id)),
            manifest: Arc::new(ManifestFile::open(spill.clone(), reader_manifest)),
            threads_max: options.threads(),
            merges: Arc::default(),
        };
        let mut replay = Replay::of_reader(&datasets, &context, shares.components);
        let tail = match durability {
            Durability::None => None,
            _ => {
                check_log_not_lost(&**storage, manifest)?;
                let mut is_spilled = false;
                Some(replay_read_only(&**storage, store_id(manifest)?, manifest.low_water, &mut |lsn, entry| {
                    if replay.is_full() && !is_spilled {
                        check_spill(&*spill)?;
                        is_spilled = true;
                    }
                    replay.entry(lsn, entry)
                })?)
            }
        };
        let last_sequence = replay.last_sequence;
        let (storage, options) = (storage.clone(), options.clone());
        let lock = Mutex::new(None);
        let environment = Environment { storage, options, durability, shares, context, is_writable: false, lock };
        Ok((datasets, CommitCore::of_reader(environment.into(), tail, last_sequence)))
    }

    /// Takes no more writes, ends the background work and closes the log. Without a log, flushes
    /// everything; if that fails, flushes can be tried again as long as the engine lives.
    pub fn close(&self) -> Result<()> {
        if !self.environment().is_writable() {
            return Ok(());
        }
        // Writers that have begun may still wait for the background work.
        let ended = self.core.end_commits();
        self.stop_background();
        if !self.core.is_logged() {
            ended.clone()?;
            self.maintenance.flush_all()?;
        }
        let log_closed = self.core.close();
        if ended.is_ok() && log_closed.is_ok() {
            self.disk.fit_reserve(0);
        }
        ended.and(log_closed).and_then(|()| self.report_background_failure())
    }

    /// Lets other writers open the closed store, while handles of it may still read. Files that
    /// these leave behind have numbers that no other file gets.
    pub fn unlock(&self) {
        // A change that has begun ends first, and the next one is refused.
        drop(self.catalog.lock());
        self.environment().unlock();
    }
}

/// Opens the manifest, or creates one.
fn open_manifest(storage: &Arc<dyn Storage>, options: &Options) -> Result<ManifestFile> {
    match Manifest::read(&**storage)? {
        Some(manifest) => {
            // A writer that was killed between the renaming and its sync left a manifest that a
            // power loss could still take back. It must be durable before the files go that only
            // the one before it names.
            storage.sync_directory("")?;
            Ok(ManifestFile::open(storage.clone(), manifest))
        }
        None if !options.create => Err(no_store(&**storage)),
        None => {
            check_not_lost(&**storage)?;
            let first = first_manifest(&**storage, options.durability.unwrap_or_default());
            Ok(ManifestFile::create(storage.clone(), first)?)
        }
    }
}

/// The durability of a store, if it can be opened with the options.
fn durability_of(manifest: &Manifest, options: &Options) -> Result<Durability> {
    let durability: Durability = manifest.durability.parse()?;
    durability.check_supported()?;
    if let Some(wanted) = options.durability.filter(|wanted| *wanted != durability) {
        return Err(Error::usage(format!(
            "the store's durability is {durability}, fixed when it was created; it cannot be opened as {wanted}"
        )));
    }
    Ok(durability)
}
