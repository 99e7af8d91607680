//! Flush and merge in the background, and the slowing of writers at the memory limit.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use terrane_lsm::index::Cancellation;
use terrane_lsm::partition::{FlushOutcome, MergeOutcome};
use terrane_lsm::sync::{AtomicU64, Condvar, Mutex, Ordering};

use super::{DatasetHandle, Engine};
use crate::{Error, Result};

/// What flushes and merges did since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceCounters {
    /// Flushes of a generation.
    pub flushes: u64,
    /// Bytes that flushes wrote.
    pub flushed_bytes: u64,
    /// Merges.
    pub merges: u64,
    /// Bytes that merges read.
    pub merge_read_bytes: u64,
    /// Bytes that merges wrote.
    pub merge_written_bytes: u64,
    /// Writes that had to wait for a flush.
    pub stalls: u64,
}

#[derive(Debug, Default)]
struct State {
    flush_wanted: bool,
    merge_wanted: bool,
    stopping: bool,
    /// Why the last flush failed; writers that wait for memory get it.
    failed: Option<Error>,
    /// Counts the rounds of flushing, so that waiters see whether one passed since.
    rounds: u64,
}

/// The background threads' side of an engine.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    state: Mutex<State>,
    changed: Condvar,
    cancellation: Cancellation,
    threads: Mutex<Vec<JoinHandle<()>>>,
    flushes: AtomicU64,
    flushed_bytes: AtomicU64,
    merges: AtomicU64,
    merge_read_bytes: AtomicU64,
    merge_written_bytes: AtomicU64,
    stalls: AtomicU64,
}

impl Maintenance {
    pub fn counters(&self) -> MaintenanceCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MaintenanceCounters {
            flushes: load(&self.flushes),
            flushed_bytes: load(&self.flushed_bytes),
            merges: load(&self.merges),
            merge_read_bytes: load(&self.merge_read_bytes),
            merge_written_bytes: load(&self.merge_written_bytes),
            stalls: load(&self.stalls),
        }
    }

    fn count_flush(&self, outcome: &FlushOutcome) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flushed_bytes.fetch_add(outcome.bytes_written, Ordering::Relaxed);
    }

    fn count_merge(&self, outcome: &MergeOutcome) {
        self.merges.fetch_add(1, Ordering::Relaxed);
        self.merge_read_bytes.fetch_add(outcome.bytes_read, Ordering::Relaxed);
        self.merge_written_bytes.fetch_add(outcome.bytes_written, Ordering::Relaxed);
    }

    fn want_flush(&self) {
        let mut state = self.state.lock();
        if !state.flush_wanted {
            state.flush_wanted = true;
            self.changed.notify_all();
        }
    }
}

impl Engine {
    /// Has the merge policy asked, in the background if there is one.
    pub fn after_flush(&self) -> Result<()> {
        if !self.options.background {
            return self.merge_all();
        }
        self.maintenance.state.lock().merge_wanted = true;
        self.maintenance.changed.notify_all();
        Ok(())
    }

    /// Starts the background threads, if the options ask for them.
    pub fn start_maintenance(self: &Arc<Self>) -> Result<()> {
        if !self.writable || !self.options.background {
            return Ok(());
        }
        for (name, work) in [("terrane-flush", flush_loop as fn(&Weak<Engine>)), ("terrane-merge", merge_loop)] {
            let engine = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&engine));
            let thread = thread.map_err(|error| Error::Failed(format!("cannot start a background thread: {error}")))?;
            self.maintenance.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Ends the background threads; a merge under way is given up.
    pub fn stop_maintenance(&self) {
        self.maintenance.cancellation.cancel();
        self.maintenance.state.lock().stopping = true;
        self.maintenance.changed.notify_all();
        for thread in self.maintenance.threads.lock().drain(..) {
            if thread.thread().id() != std::thread::current().id() {
                // A thread that panicked has nothing more to say; its panic was reported.
                let _ = thread.join();
            }
        }
    }

    /// Bytes of the active generation of a dataset at which it is sealed.
    fn seal_threshold(&self) -> usize {
        self.shares.components / 2
    }

    /// Whether memory components may grow. An eighth of their share is left for the writes that
    /// pass at the same time, as memory is taken in chunks.
    fn has_room(&self) -> bool {
        self.memory_used() < self.shares.components / 8 * 7
    }

    /// Lets a write pass, or has it wait until memory components have room again.
    pub fn admit_write(&self) -> Result<()> {
        if self.has_room() {
            return Ok(());
        }
        if !self.options.background {
            return self.flush_all().map(|_| ());
        }
        self.maintenance.stalls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.maintenance.state.lock();
        let first_round = state.rounds;
        while !self.has_room() {
            if state.stopping {
                return Err(Error::Failed("the store is being closed".into()));
            }
            if let Some(error) = state.failed.as_ref().filter(|_| state.rounds > first_round) {
                return Err(error.clone());
            }
            state.flush_wanted = true;
            self.maintenance.changed.notify_all();
            self.maintenance.changed.wait(&mut state);
        }
        Ok(())
    }

    /// To be called after a write: has a flush done when there is enough for one.
    pub fn note_write(&self, dataset: &DatasetHandle) {
        let full = dataset.partition.active_memory_used() >= self.seal_threshold();
        let crowded = self.memory_used() >= self.shares.components / 4 * 3;
        if full || crowded || self.log.as_ref().is_some_and(|log| log.needs_preparation()) {
            if self.options.background {
                self.maintenance.want_flush();
            } else if full {
                // A failure is met again, and reported, by the write that finds no room.
                let _ = self.flush_full().and_then(|_| self.merge_all());
            }
        }
    }

    /// Seals and flushes the datasets whose memory components are large enough, or, when
    /// memory is short, the largest ones.
    fn flush_full(&self) -> Result<bool> {
        let datasets: Vec<_> = self.datasets.load().values().cloned().collect();
        let mut flushed = false;
        for dataset in &datasets {
            if dataset.partition.active_memory_used() >= self.seal_threshold() {
                self.seal(dataset)?;
            }
        }
        if self.memory_used() >= self.shares.components / 4 * 3
            && datasets.iter().all(|dataset| dataset.partition.sealed() == 0)
            && let Some(largest) = datasets.iter().max_by_key(|dataset| dataset.partition.active_memory_used())
        {
            self.seal(largest)?;
        }
        for dataset in &datasets {
            while self.flush_oldest(dataset)? {
                flushed = true;
            }
        }
        Ok(flushed)
    }

    /// Seals and flushes everything.
    pub fn flush_all(&self) -> Result<bool> {
        let datasets: Vec<_> = self.datasets.load().values().cloned().collect();
        let mut flushed = false;
        for dataset in &datasets {
            self.seal(dataset)?;
            while self.flush_oldest(dataset)? {
                flushed = true;
            }
        }
        Ok(flushed)
    }

    /// Flushes the oldest sealed generation of a dataset; false when there is none.
    pub fn flush_oldest(&self, dataset: &DatasetHandle) -> Result<bool> {
        let low_water = std::cell::Cell::new(None);
        let outcome = dataset.partition.flush(
            &self.workshop,
            // The transactions inside may belong to batches that sync later, or to threads
            // that wait for this flush: so the flush syncs them itself.
            &|cut| {
                self.sync().map_err(lsm_error)?;
                self.visibility.wait(cut).map_err(lsm_error)
            },
            &|manifest| {
                if let (Some(log), Some(lsn)) = (&self.log, self.low_water(dataset))
                    && let Ok(position) = log.position_of(lsn)
                {
                    manifest.low_water = position;
                    low_water.set(Some(position));
                }
            },
        );
        let outcome = outcome.map_err(Error::from).inspect_err(|error| self.note_failure(error))?;
        let Some(outcome) = outcome else { return Ok(false) };
        self.maintenance.count_flush(&outcome);
        if let (Some(log), Some(position)) = (&self.log, low_water.get()) {
            log.set_low_water(position)?;
        }
        Ok(true)
    }

    fn merge(&self, dataset: &DatasetHandle, place: usize, range: Range<usize>) -> Result<Option<MergeOutcome>> {
        let outcome = dataset.partition.merge(&self.workshop, place, range, &self.maintenance.cancellation);
        outcome.map_err(Error::from).inspect_err(|error| self.note_failure(error))
    }

    /// Merges until the policy is content.
    pub fn merge_all(&self) -> Result<()> {
        let datasets: Vec<_> = self.datasets.load().values().cloned().collect();
        for dataset in &datasets {
            while let Some((place, range)) = dataset.partition.choose_merge(&self.options.merge_policy) {
                match self.merge(dataset, place, range)? {
                    Some(outcome) => self.maintenance.count_merge(&outcome),
                    None if self.maintenance.cancellation.is_cancelled() => return Ok(()),
                    // Another merge changed the components meanwhile.
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Merges all components of every index of a dataset into one.
    pub fn compact(&self, dataset: &DatasetHandle) -> Result<()> {
        self.check_writable()?;
        self.seal(dataset)?;
        while self.flush_oldest(dataset)? {}
        for place in 0..dataset.partition.indexes().len() {
            loop {
                let parts = dataset.partition.version().components[place].clone();
                let needless = match &parts[..] {
                    [] => true,
                    [only] => only.file().meta().statistics.antimatter == 0 && !only.file().meta().has_sequences,
                    _ => false,
                };
                if needless {
                    break;
                }
                match self.merge(dataset, place, 0..parts.len())? {
                    Some(outcome) => self.maintenance.count_merge(&outcome),
                    None if self.maintenance.cancellation.is_cancelled() => return Err(Error::Cancelled),
                    // Another merge changed the components meanwhile.
                    None => {}
                }
            }
        }
        Ok(())
    }
}

/// What the framework's flush gets from a closure of the engine.
fn lsm_error(error: Error) -> terrane_lsm::Error {
    terrane_lsm::Error::Poisoned { cause: error.to_string() }
}

fn flush_loop(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        {
            let mut state = engine.maintenance.state.lock();
            while !state.flush_wanted && !state.stopping {
                engine.maintenance.changed.wait(&mut state);
            }
            if state.stopping {
                return;
            }
            state.flush_wanted = false;
        }
        let prepared = engine.log.as_ref().map_or(Ok(()), |log| log.prepare_next());
        let result = engine.flush_full();
        let mut state = engine.maintenance.state.lock();
        state.rounds += 1;
        state.failed = match (&result, prepared) {
            (Err(error), _) => Some(error.clone()),
            (_, Err(error)) => Some(error.into()),
            _ => None,
        };
        state.merge_wanted |= matches!(result, Ok(true));
        engine.maintenance.changed.notify_all();
    }
}

fn merge_loop(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        {
            let mut state = engine.maintenance.state.lock();
            while !state.merge_wanted && !state.stopping {
                engine.maintenance.changed.wait(&mut state);
            }
            if state.stopping {
                return;
            }
            state.merge_wanted = false;
        }
        if let Err(error) = engine.merge_all() {
            engine.maintenance.state.lock().failed = Some(error);
        }
    }
}
