//! Opening a store: the lock, the manifest, components, the log's replay, and strays.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use terrane_lsm::disk::PageCache;
use terrane_lsm::index::Cancellation;
use terrane_lsm::log::{Log, LogPosition, ReadOnlyTail, RecoveryReport, replay_read_only};
use terrane_lsm::manifest::{Manifest, ManifestFile};
use terrane_lsm::operation::{self, EntryKind};
use terrane_lsm::partition::Workshop;
use terrane_storage::sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex};
use terrane_storage::{File, LockKind, OpenMode, ReadOnlyStorage, RealStorage, RootLock, Storage};

use super::commit::{Latch, closed};
use super::names::{
    LOCK_NAME, check_log_not_lost, check_not_foreign, check_not_lost, has_new_manifest, next_file_id, no_store,
    remove_strays, strays,
};
use super::spill::SpillDirectory;
use super::{DatasetHandle, Datasets, Engine, Maintenance, Reserve, Visibility};
use crate::locks::LockTable;
use crate::options::{Durability, MemoryShares, Options};
use crate::{Error, Result};

/// A reader that finds the manifest changed under it begins again, so many times at most.
pub(super) const READER_ATTEMPTS: usize = 100;
/// A writer whose lock file is removed as it locks it begins again, so many times at most.
const LOCK_ATTEMPTS: usize = 100;
/// Segments of the log above which opening flushes what it replayed, if anything, and gives them up, so
/// that many short sessions do not leave many files: each of them begins a segment, even without a write.
const SEGMENTS_KEPT: u64 = 4;

impl Engine {
    /// Opens a store for writing, or creates it.
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Arc<Self>> {
        let shares = MemoryShares::of(&options)?;
        options.durability.unwrap_or_default().check_supported()?;
        // Before anything is made there: a place that is something else stays as it is.
        if Manifest::read(&*storage)?.is_none() {
            if !options.create {
                return Err(no_store(&*storage));
            }
            check_not_foreign(&*storage)?;
        }
        let lock = lock(&*storage, options.create)?;
        storage.create_directory("components")?;
        storage.create_directory("log")?;
        let manifest = match Manifest::read(&*storage)? {
            Some(manifest) => {
                // A writer that was killed between the renaming and its sync left a manifest that a
                // power loss could still take back. It must be durable before the files go
                // that only the one before it names.
                storage.sync_directory("")?;
                ManifestFile::open(storage.clone(), manifest)
            }
            None if !options.create => return Err(no_store(&*storage)),
            None => {
                check_not_lost(&*storage)?;
                ManifestFile::create(
                    storage.clone(),
                    first_manifest(&*storage, options.durability.unwrap_or_default()),
                )?
            }
        };
        let current = manifest.current();
        let durability: Durability = current.durability.parse()?;
        durability.check_supported()?;
        if let Some(wanted) = options.durability.filter(|wanted| *wanted != durability) {
            return Err(Error::usage(format!(
                "the store's durability is {durability}, fixed when it was created; it cannot be opened as {wanted}"
            )));
        }
        let manifest = Arc::new(manifest);
        let reserve = Reserve::open(storage.clone())?;
        let recovery = Recovery {
            storage: &storage,
            options: &options,
            shares,
            durability,
            manifest: &manifest,
            reserve: &reserve,
        };
        let Recovered { datasets, workshop, log, report, last_sequence, replay_time } = recovery.run()?;
        let engine = Arc::new(Self {
            visibility: Visibility::new(last_sequence, log.is_some()),
            latch: Mutex::new(Latch::new(last_sequence + 1)),
            datasets: ArcSwap::from_pointee(datasets),
            _lock: Some(lock),
            writable: true,
            reserve,
            replay_time,
            ..Self::base(storage, options, durability, shares, workshop, log, report)
        });
        engine.datasets.load().values().for_each(|dataset| engine.note_memory(dataset));
        let tail =
            engine.log.as_ref().map_or(0, |log| log.position().segment.saturating_sub(current.low_water.segment));
        // On a full disk at once, as each session begins a file of the log.
        if tail > SEGMENTS_KEPT || engine.reserve.is_released() {
            match engine.flush_all().and_then(|_| engine.give_up_log()) {
                // The log has it all and stays as long as it is: deletes and drops must still be possible.
                Err(Error::Full { .. }) => {}
                outcome => outcome?,
            }
        }
        engine.fit_reserve(engine.log_room());
        // Earlier sessions may have been too short for the merges that they made necessary.
        if !engine.options.lenient {
            engine.after_flush();
        }
        // Last, as the threads keep the engine, and with it the lock, until they are stopped.
        engine.start_maintenance()?;
        Ok(engine)
    }

    /// Opens a store for reading, as it is at this moment; another process may be writing.
    pub fn open_read_only(storage: Arc<dyn Storage>, options: Options) -> Result<Arc<Self>> {
        let shares = MemoryShares::of(&options)?;
        // The components of the store are in use beside those that a reader makes for itself.
        let storage: Arc<dyn Storage> = Arc::new(ReadOnlyStorage::new(storage));
        let mut attempts = 0;
        loop {
            let before = Manifest::read(&*storage)?.ok_or_else(|| no_store(&*storage))?;
            // A writer may not have come to it yet, or not have lived to: nothing is shown that a power loss could take
            // back. What is durable then is this manifest or a later one.
            storage.sync_directory("")?;
            let opened = Self::open_reader(&storage, &options, shares, &before);
            // Only now, and not before the replay: the writer goes on in the segment that is read, and what it writes
            // after an import or a change of the schema needs the manifest that came with it.
            let after = Manifest::read(&*storage)?.ok_or_else(|| no_store(&*storage))?;
            let is_same = after.generation == before.generation && after.store_id == before.store_id;
            match opened {
                Ok(engine) if is_same || engine.is_of_one_piece(&before, &after) => return Ok(engine),
                // Files may have gone, and segments begun anew, in between.
                Err(error) if is_same => return Err(error),
                opened => {
                    attempts += 1;
                    if attempts == READER_ATTEMPTS {
                        let reason = "the store changes faster than it can be opened for reading";
                        return opened.and(Err(Error::Failed(reason.into())));
                    }
                }
            }
        }
    }

    /// Whether what a reader opened by the manifest `before` is one state of the store although another
    /// one has come since. Flushes and merges move records from the log into components and from these into
    /// others: the reader has the old ones open, and holds the segments of the log, which are a chain from the first that
    /// is needed. Only where it found none of them must they not have been given up just before, nor may a
    /// component be missing because a merge has taken its place.
    fn is_of_one_piece(&self, before: &Manifest, after: &Manifest) -> bool {
        let keeps_components = || {
            let named: HashSet<u64> = after.components().map(|meta| meta.file_id).collect();
            before.components().all(|meta| named.contains(&meta.file_id))
        };
        let is_whole = || self.datasets.load().values().all(|dataset| dataset.damage.is_empty());
        log_is_of_one_piece(self.tail.as_ref(), before, after) && (is_whole() || keeps_components())
    }

    fn open_reader(
        storage: &Arc<dyn Storage>,
        options: &Options,
        shares: MemoryShares,
        manifest: &Manifest,
    ) -> Result<Arc<Self>> {
        let durability: Durability = manifest.durability.parse()?;
        durability.check_supported()?;
        let cache = PageCache::new(shares.cache);
        let datasets = open_datasets(storage, &cache, manifest, options.lenient)?;
        let spill = SpillDirectory::new();
        let mut reader_manifest = manifest.clone();
        reader_manifest.next_file_id = next_file_id(storage.as_ref(), manifest)?;
        let spill_storage: Arc<dyn Storage> = Arc::new(RealStorage::new(spill.path()));
        let workshop = Workshop {
            storage: spill_storage.clone(),
            cache: cache.clone(),
            manifest: Arc::new(ManifestFile::open(spill_storage, reader_manifest.clone())),
            next_file_id: Arc::new(AtomicU64::new(reader_manifest.next_file_id)),
            threads_max: options.threads(),
            merges: Arc::default(),
        };
        let mut replay = Replay { may_merge: false, ..Replay::new(&datasets, &workshop, shares.components) };
        let tail = match durability {
            Durability::None => None,
            _ => {
                check_log_not_lost(&**storage, manifest)?;
                Some(replay_read_only(&**storage, store_id(manifest)?, manifest.low_water, &mut |lsn, entry| {
                    if replay.memory_used >= replay.limit {
                        spill.create()?;
                    }
                    replay.entry(lsn, entry)
                })?)
            }
        };
        let last_sequence = replay.last_sequence;
        Ok(Arc::new(Self {
            visibility: Visibility::new(last_sequence, false),
            latch: Mutex::new(Latch::new(last_sequence + 1)),
            datasets: ArcSwap::from_pointee(datasets),
            tail,
            _spill: Some(spill),
            ..Self::base(storage.clone(), options.clone(), durability, shares, workshop, None, None)
        }))
    }

    fn base(
        storage: Arc<dyn Storage>,
        options: Options,
        durability: Durability,
        shares: MemoryShares,
        workshop: Workshop,
        log: Option<Log>,
        recovery: Option<RecoveryReport>,
    ) -> Self {
        let next_dataset_id = workshop.manifest.current().next_dataset_id;
        Self {
            reserve: Reserve::none(storage.clone()),
            storage,
            options,
            durability,
            shares,
            cache: workshop.cache.clone(),
            workshop,
            log,
            locks: LockTable::new(),
            visibility: Visibility::new(0, false),
            datasets: ArcSwap::default(),
            catalog_changes: Mutex::new(()),
            maintenance: Maintenance::default(),
            memory_noted: AtomicUsize::new(0),
            recovery,
            replay_time: Duration::ZERO,
            writable: false,
            next_dataset_id: AtomicU32::new(next_dataset_id),
            latch: Mutex::new(Latch::new(1)),
            tail: None,
            _lock: None,
            _spill: None,
        }
    }

    /// Takes no more writes, ends the background work and closes the log. Without a log, flushes
    /// everything; if that fails, flushes can be tried again as long as the engine lives.
    pub fn close(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        // Writers that have begun may still wait for the background work.
        let ended = self.end_commits();
        self.stop_maintenance();
        if self.log.is_none() {
            ended.clone()?;
            self.flush_all()?;
        }
        self.visibility.fail(&closed());
        let log_closed = self.log.as_ref().map_or(Ok(()), |log| Ok(log.close()?));
        if ended.is_ok() && log_closed.is_ok() {
            self.fit_reserve(0);
        }
        ended.and(log_closed).and_then(|()| self.tell_failed_aftermath())
    }
}

/// Whether what was read of the log by the manifest `before` belongs to it although another one has come since.
pub(super) fn log_is_of_one_piece(tail: Option<&ReadOnlyTail>, before: &Manifest, after: &Manifest) -> bool {
    let has_log = tail.is_none_or(|tail| tail.segments() > 0);
    before.has_content_of(after) && (has_log || before.low_water == after.low_water)
}

/// What opening for writing makes of the files, which it changes only once they are known to fit together.
struct Recovery<'a> {
    storage: &'a Arc<dyn Storage>,
    options: &'a Options,
    shares: MemoryShares,
    durability: Durability,
    manifest: &'a Arc<ManifestFile>,
    reserve: &'a Reserve,
}

struct Recovered {
    datasets: Datasets,
    workshop: Workshop,
    log: Option<Log>,
    report: Option<RecoveryReport>,
    /// The last number of all; those after it are free.
    last_sequence: u64,
    replay_time: Duration,
}

impl Recovery<'_> {
    /// Opens the components, replays the log, and only then removes strays: with a manifest that is not the store's newest,
    /// such as one from a backup, strays are what the right manifest names. Nor does anything go where damage is
    /// left for a check. On a full disk strays go first, then the reserve.
    fn run(&self) -> Result<Recovered> {
        let strays = strays(&**self.storage, &self.manifest.current())?;
        let mut recovered = self.recover();
        let is_full = |recovered: &Result<Recovered>| matches!(recovered, Err(Error::Full { .. }));
        let has_strays = || Ok::<_, Error>(!strays.is_empty() || has_new_manifest(&**self.storage)?);
        if is_full(&recovered) && !self.options.lenient && has_strays()? {
            // All components were opened before anything needed room, so only the log is left to be verified.
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
        let workshop = Workshop {
            storage: storage.clone(),
            cache,
            manifest: manifest.clone(),
            next_file_id: Arc::new(AtomicU64::new(next_file_id(&**storage, &current)?)),
            threads_max: options.threads(),
            merges: Arc::default(),
        };
        let mut replay = Replay::new(&datasets, &workshop, self.shares.components);
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
        Ok(Recovered { datasets, workshop, log, report, last_sequence, replay_time })
    }
}

/// Redoes the log's entries on the memory components.
///
/// What is flushed meanwhile is cut at the last number that was redone for the dataset. The
/// manifest's last number would not do: another dataset's flush or import may have set it above
/// entries of this dataset that are still to come, which would then be passed over as flushed.
/// Entries come in the order of their numbers, so all others of the dataset are above such a cut.
struct Replay<'a> {
    datasets: &'a Datasets,
    workshop: &'a Workshop,
    by_id: HashMap<u32, &'a DatasetHandle>,
    /// Bytes of memory components above which they are flushed.
    limit: usize,
    /// Bytes of all memory components.
    memory_used: usize,
    /// The last number of all; those after it are free.
    last_sequence: u64,
    /// The last number redone in the active generation of each dataset that has one.
    redone: BTreeMap<u32, u64>,
    /// Whether the components that there are may be merged. They are not a reader's to take away.
    may_merge: bool,
}

impl<'a> Replay<'a> {
    fn new(datasets: &'a Datasets, workshop: &'a Workshop, limit: usize) -> Self {
        let last_sequence = workshop.manifest.current().last_sequence;
        let by_id = datasets.values().map(|dataset| (dataset.id, &**dataset)).collect();
        Self {
            datasets,
            workshop,
            by_id,
            limit,
            memory_used: 0,
            last_sequence,
            redone: BTreeMap::new(),
            may_merge: true,
        }
    }

    fn entry(&mut self, lsn: u64, entry: &[u8]) -> terrane_lsm::Result<()> {
        let (header, operations) = operation::decode(entry)?;
        if header.kind != EntryKind::COMMIT {
            return Err(terrane_lsm::Error::UnknownEntryKind { lsn, kind: header.kind.0 });
        }
        self.last_sequence = self.last_sequence.max(header.sequence);
        // Entries of datasets that are gone, and what is in disk components, are passed over.
        let Some(&dataset) = self.by_id.get(&header.dataset) else { return Ok(()) };
        let touched = dataset.touched_by(&header, operations.clone())?;
        if header.sequence <= dataset.partitions.flushed_sequence() {
            return Ok(());
        }
        if self.memory_used >= self.limit {
            self.make_room()?;
        }
        let fixed = touched.fix(dataset, &header, lsn);
        let before = fixed.memory_used();
        let applied = fixed.apply(dataset, operations, header.sequence);
        applied.map_err(|error| match error {
            terrane_lsm::Error::Invalid(reason) => terrane_lsm::Error::MalformedEntry { reason },
            other => other,
        })?;
        self.memory_used += fixed.memory_used() - before;
        self.redone.insert(dataset.id, header.sequence);
        Ok(())
    }

    /// Flushes the datasets that hold most, until half of the memory is free.
    fn make_room(&mut self) -> terrane_lsm::Result<()> {
        let mut largest: Vec<_> = self.datasets.values().collect();
        largest.sort_by_key(|dataset| Reverse(dataset.partitions.memory_used()));
        for dataset in largest {
            if self.memory_used < self.limit / 2 {
                break;
            }
            if let Some(cut) = self.redone.remove(&dataset.id) {
                let before = dataset.partitions.memory_used();
                dataset.partitions.seal(cut)?;
                while self.flush(dataset)? {}
                self.memory_used -= before - dataset.partitions.memory_used();
            }
        }
        Ok(())
    }
}

impl Replay<'_> {
    /// All that is replayed is applied and durable. The low-water mark stays: the entries are passed over by their
    /// sequence numbers if they are met again. A writer merges what is flushed here only if too many files are open, and a reader never.
    fn flush(&self, dataset: &DatasetHandle) -> terrane_lsm::Result<bool> {
        let flush = || dataset.partitions.flush(self.workshop, &|_| Ok(()), &|_| ());
        let merge = || {
            let (bytes_max, cancellation) = (self.limit as u64, Cancellation::default());
            dataset.partitions.merge_to_fewest(self.workshop, bytes_max, &cancellation, &|_| ())
        };
        let flushed = match flush() {
            Err(terrane_lsm::Error::Storage(error)) if error.is_too_many_files() && self.may_merge && merge()? > 0 => {
                flush()
            }
            flushed => flushed,
        };
        Ok(flushed?.is_some())
    }
}

/// What keeps other writers out while it lives. The directory is let go of first, so that who gets the file gets both.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _root: RootLock,
    _file: Arc<dyn File>,
}

/// Takes the lock, in a directory that is made for it if a store may be created.
pub(crate) fn lock(storage: &dyn Storage, create: bool) -> Result<WriterLock> {
    for _ in 0..LOCK_ATTEMPTS {
        if create {
            storage.create_directory("")?;
        }
        let file = match open_lock(storage) {
            // The directory went with a store that was taken away again.
            Err(error) if error.is_not_found() && create => continue,
            Err(error) if error.is_not_found() => return Err(no_store(storage)),
            opened => opened?,
        };
        if !file.try_lock(LockKind::Exclusive)? {
            return Err(Error::Locked { pid: holder(&*file)? });
        }
        // Who takes a store away removes the file under its lock. One that was opened just before is nobody
        // else's now, and keeps nobody out who opens the one that has the name.
        if file.has_name()? {
            // Somebody may have removed the file under its holder, taking it for a stale one.
            let Some(root) = storage.lock_root()? else { return Err(Error::Locked { pid: None }) };
            file.set_len(0)?;
            match file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0) {
                // It is for messages alone, and what makes room on a full disk begins here.
                Err(error) if error.is_storage_full() => {}
                written => written?,
            }
            return Ok(WriterLock { _root: root, _file: file });
        }
    }
    Err(Error::Locked { pid: None })
}

fn open_lock(storage: &dyn Storage) -> terrane_storage::Result<Arc<dyn File>> {
    match storage.open(LOCK_NAME, OpenMode::Write) {
        Err(error) if error.is_not_found() => match storage.open(LOCK_NAME, OpenMode::CreateNew) {
            Err(error) if error.is_already_exists() => storage.open(LOCK_NAME, OpenMode::Write),
            created => created,
        },
        opened => opened,
    }
}

/// The process that a lock file names. It may be writing its number at this moment, so that no length is
/// relied on, and only a whole line counts.
fn holder(file: &dyn File) -> Result<Option<u32>> {
    let mut text = [0; 20];
    for length in (1..=text.len()).rev() {
        match file.read_exact_at(&mut text[..length], 0) {
            Err(error) if error.is_unexpected_end() => {}
            read => {
                read?;
                let text = String::from_utf8_lossy(&text[..length]);
                return Ok(text.strip_suffix('\n').and_then(|line| line.parse().ok()));
            }
        }
    }
    Ok(None)
}

/// A number that tells stores apart, 32 hexadecimal digits; it needs to be unlikely to repeat, not hard to guess.
pub(crate) fn draw_id(storage: &dyn Storage) -> String {
    let seed = (storage.unix_time_ns(), storage.monotonic_ns(), std::process::id(), storage.describe());
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(format!("{seed:?}").as_bytes()))
}

fn first_manifest(storage: &dyn Storage, durability: Durability) -> Manifest {
    Manifest {
        store_id: draw_id(storage),
        branch: String::new(),
        generation: 0,
        durability: durability.name().into(),
        next_file_id: 1,
        next_dataset_id: 1,
        last_sequence: 0,
        low_water: LogPosition::START,
        datasets: Vec::new(),
    }
}

pub(crate) fn store_id(manifest: &Manifest) -> Result<[u8; 16]> {
    let id = u128::from_str_radix(&manifest.store_id, 16)
        .map_err(|_| Error::damaged("MANIFEST", 0, "the store's id is not hexadecimal"))?;
    Ok(id.to_be_bytes())
}

pub(crate) fn open_datasets(
    storage: &Arc<dyn Storage>,
    cache: &Arc<PageCache>,
    manifest: &Manifest,
    lenient: bool,
) -> Result<Datasets> {
    let open = |state| Ok((DatasetHandle::open(storage, cache, state, lenient)?, state));
    let opened = manifest.datasets.iter().map(open).collect::<Result<Vec<_>>>()?;
    Ok(opened.into_iter().map(|(handle, state)| (state.name.clone(), Arc::new(handle))).collect())
}
