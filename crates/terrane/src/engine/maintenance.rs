//! Flush and merge in the background.

use std::any::Any;
use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use serde::Serialize;
use terrane_lsm::index::Cancellation;
use terrane_lsm::log::{Log, LogPosition};
use terrane_lsm::partition::{FlushOutcome, MergeOutcome};
use terrane_storage::sync::thread::{self, JoinHandle};
use terrane_storage::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};

use super::commit::Abandoned;
use super::{DatasetHandle, Engine};
use crate::secondary::{first_unbuilt, is_unbuilt, unbuilt};
use crate::{Error, Result};

mod admission;
mod merges;

pub(crate) use admission::Admitted;

/// A close waits for merges when there are more than so many times the components that the policy wants.
const TIMES_WAITED_FOR: usize = 4;
/// Writes are slowed when there are more than so many times the components that the policy wants.
const TIMES_SLOWED: usize = 12;

/// What flushes and merges did since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MaintenanceCounters {
    /// Flushes of a dataset's oldest generations.
    pub flushes: u64,
    /// Threads that built components in them, summed up: more than flushes where datasets have partitions.
    pub flush_threads: u64,
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
    /// Writes that were slowed because merges are far behind.
    pub slowed: u64,
}

#[derive(Debug, Default)]
struct State {
    flush_wanted: bool,
    merge_wanted: bool,
    /// Merges go on that were far behind when they began.
    catching_up: bool,
    stopping: bool,
    /// Why the last flush failed; writers that wait for memory get it.
    flush_failed: Option<Error>,
    /// Why a merge failed, until that is told or the policy is content; the next flush that is
    /// asked for, or the close, tells.
    merge_failed: Option<Error>,
    /// Why the log could not give up what a flush freed, until that is told in the same way.
    reclaiming_failed: Option<Error>,
    /// Why an index could not be completed that an earlier session began, likewise.
    building_failed: Option<Error>,
    /// Counts the rounds of flushing, so that waiters see whether one passed since.
    rounds: u64,
}

/// The background threads' side of an engine.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) cancellation: Cancellation,
    /// Of indexes that are being built, which are cancelled whenever the store is closed.
    builds: Cancellation,
    /// End of the log when it was last looked at who keeps how much of it.
    log_looked_at: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    flushes: AtomicU64,
    flush_threads: AtomicU64,
    flushed_bytes: AtomicU64,
    merges: AtomicU64,
    merge_read_bytes: AtomicU64,
    merge_written_bytes: AtomicU64,
    stalls: AtomicU64,
    slowed: AtomicU64,
    /// Whether merges are so far behind that writes are slowed.
    crowded: AtomicBool,
    /// Held by the write that waits for memory; the others wait for it in turn.
    turn: Mutex<()>,
    /// Bytes for large writes that are admitted and not applied yet. Raised under `turn`, lowered under `state`.
    claimed: AtomicUsize,
}

impl Maintenance {
    pub fn counters(&self) -> MaintenanceCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MaintenanceCounters {
            flushes: load(&self.flushes),
            flush_threads: load(&self.flush_threads),
            flushed_bytes: load(&self.flushed_bytes),
            merges: load(&self.merges),
            merge_read_bytes: load(&self.merge_read_bytes),
            merge_written_bytes: load(&self.merge_written_bytes),
            stalls: load(&self.stalls),
            slowed: load(&self.slowed),
        }
    }

    /// By which building an index is asked to stop.
    pub fn builds(&self) -> &Cancellation {
        &self.builds
    }

    fn count_flush(&self, outcome: &FlushOutcome) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flush_threads.fetch_add(outcome.threads as u64, Ordering::Relaxed);
        self.flushed_bytes.fetch_add(outcome.bytes_written, Ordering::Relaxed);
    }

    pub(super) fn count_merge(&self, outcome: &MergeOutcome) {
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
    /// Has the merge policy asked, in the background if there is one. What was flushed or opened is
    /// in the store however that ends, so a failure is kept for [`Self::tell_failed_aftermath`].
    pub fn after_flush(&self) {
        if self.options.background {
            self.maintenance.state.lock().merge_wanted = true;
            self.maintenance.changed.notify_all();
        } else {
            self.merge_and_note();
        }
    }

    /// Merges, and notes how that ended.
    fn merge_and_note(&self) {
        let is_behind = self.is_behind(TIMES_WAITED_FOR);
        self.maintenance.state.lock().catching_up |= is_behind;
        let merged = self.merge_all();
        let mut state = self.maintenance.state.lock();
        state.catching_up = false;
        match merged {
            Ok(()) if self.maintenance.cancellation.is_cancelled() => {}
            Ok(()) => state.merge_failed = None,
            Err(error) => {
                state.merge_failed = Some(error);
                // Nothing is gained by waiting.
                self.maintenance.crowded.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Returns why a merge failed, if none of its kind has succeeded since, or else why the log could
    /// not give up what a flush freed, or why an index was not completed, if it still is not. Tells of each once.
    pub fn tell_failed_aftermath(&self) -> Result<()> {
        let mut state = self.maintenance.state.lock();
        let failed = state.merge_failed.take().or_else(|| state.reclaiming_failed.take());
        drop(state);
        failed.or_else(|| self.take_failed_building()).map_or(Ok(()), Err)
    }

    /// Why an index of an earlier session was not completed, if one of its dataset still is not: what stopped at one did not come to
    /// those behind it.
    fn take_failed_building(&self) -> Option<Error> {
        let failed = self.maintenance.state.lock().building_failed.take()?;
        let Error::Unbuilt { dataset, index, .. } = &failed else { return None };
        let index = index.clone();
        let dataset = self.datasets.load().get(dataset.as_str()).cloned()?;
        let Some(_building) = dataset.building.try_lock() else {
            // Somebody is at work on one: it is told of later, if there is still reason to.
            self.maintenance.state.lock().building_failed = Some(failed);
            return None;
        };
        let place = first_unbuilt(&dataset)?;
        match failed {
            Error::Unbuilt { cause, .. } if is_unbuilt(&dataset, &index) => Some(unbuilt(&dataset, place, *cause)),
            Error::Unbuilt { cause, .. } => {
                let cause = Error::Failed(format!(
                    "it was not begun, as the index {index:?} could not be completed before: {cause}"
                ));
                Some(unbuilt(&dataset, place, cause))
            }
            _ => None,
        }
    }

    /// Has the log give up what lies before a low-water mark that the manifest names. The flush that
    /// raised it has succeeded however that ends.
    pub fn reclaim_log(&self, low_water: LogPosition) {
        let Some(log) = &self.log else { return };
        if let Err(error) = log.set_low_water(low_water).map_err(Error::from) {
            self.note_failure(&error);
            self.maintenance.state.lock().reclaiming_failed = Some(Error::Unreclaimed { cause: Box::new(error) });
        }
    }

    /// Starts the background threads, if the options ask for them. After an error none is left.
    pub fn start_maintenance(self: &Arc<Self>) -> Result<()> {
        if !self.writable || !self.options.background {
            return Ok(());
        }
        let mut threads = vec![("terrane-flush", flush_loop as fn(&Weak<Engine>)), ("terrane-merge", merge_loop)];
        if !self.options.lenient && self.datasets.load().values().any(|dataset| first_unbuilt(dataset).is_some()) {
            threads.push(("terrane-index", build_unbuilt));
        }
        for (name, work) in threads {
            let engine = Arc::downgrade(self);
            let thread = thread::Builder::new().name(name.into()).spawn(move || work(&engine));
            match thread {
                Ok(thread) => self.maintenance.threads.lock().push(thread),
                Err(error) => {
                    self.stop_maintenance();
                    return Err(Error::Failed(format!("cannot start a background thread: {error}")));
                }
            }
        }
        Ok(())
    }

    /// Ends the background threads. A long merge is given up; short ones that the policy wants are
    /// done first, so that also sessions too short for anything else keep the components few. Where
    /// that was not enough, and there are several times as many as the policy wants, long ones
    /// are waited for.
    pub fn stop_maintenance(&self) {
        self.maintenance.builds.cancel();
        let is_behind = self.is_behind(TIMES_WAITED_FOR);
        let mut state = self.maintenance.state.lock();
        if !is_behind && !state.catching_up {
            self.maintenance.cancellation.cancel();
        }
        state.merge_wanted |= is_behind;
        state.stopping = true;
        drop(state);
        self.maintenance.changed.notify_all();
        for thread in self.maintenance.threads.lock().drain(..) {
            if thread.thread().id() != thread::current().id() {
                // A thread that panicked has nothing more to say; its panic was reported.
                let _ = thread.join();
            }
        }
    }

    /// Whether an index has more than so many times the components that the merge policy wants. A store
    /// that was opened leniently merges only after its own flushes, so nobody is slowed there.
    fn is_behind(&self, times: usize) -> bool {
        let is_behind =
            |dataset: &DatasetHandle| dataset.partitions.is_behind(&dataset.merge_policy(&self.options), times);
        !self.options.lenient && self.datasets.load().values().any(|dataset| is_behind(dataset))
    }

    /// To be called when components have come or gone: notes whether writes are to be slowed.
    fn note_components(&self) {
        self.maintenance.crowded.store(self.is_behind(TIMES_SLOWED), Ordering::Relaxed);
    }

    /// To be called when a dataset was dropped: the memory that it had is there for writers that wait for some.
    pub(super) fn note_given_up(&self) {
        self.note_components();
        let _state = self.maintenance.state.lock();
        self.maintenance.changed.notify_all();
    }

    /// Bytes of the active generation of a dataset at which it is sealed.
    fn seal_threshold(&self) -> usize {
        self.shares.components / 2
    }

    /// Bytes of the log after a dataset's oldest change in memory at which its generation is sealed,
    /// however little is in it, as it keeps all of them from being given up. As many as fill
    /// memory components, so that it happens about as seldom as other flushes and opening redoes
    /// no more than fits; but not less than a segment, as the log gives up whole ones only.
    fn log_bytes_kept(&self) -> u64 {
        (self.shares.components as u64).max(self.options.log.segment_size)
    }

    /// Whether the generation of a dataset that takes writes keeps too much of a log that ends at
    /// `end_lsn`.
    fn keeps_log(&self, dataset: &DatasetHandle, end_lsn: u64) -> bool {
        let first_lsn = dataset.partitions.active_first_lsn();
        first_lsn.is_some_and(|first_lsn| end_lsn.saturating_sub(first_lsn) > self.log_bytes_kept())
    }

    /// Whether some dataset keeps too much of the log. Asked once in a while only, as it looks at
    /// all datasets.
    fn log_is_kept(&self, end_lsn: u64) -> bool {
        let looked_at = &self.maintenance.log_looked_at;
        if end_lsn.saturating_sub(looked_at.load(Ordering::Relaxed)) < self.log_bytes_kept() / 16 {
            return false;
        }
        looked_at.store(end_lsn, Ordering::Relaxed);
        self.datasets.load().values().any(|dataset| self.keeps_log(dataset, end_lsn))
    }

    /// To be called after a write that ends at `end_lsn` in the log, and whether memory components have grown by it: has a
    /// flush done when there is enough for one, be it in another dataset.
    pub fn note_write(&self, dataset: &DatasetHandle, end_lsn: u64, has_grown: bool) {
        let is_large = || dataset.partitions.active_memory_used() >= self.seal_threshold();
        let full = (has_grown && is_large()) || self.log_is_kept(end_lsn);
        let crowded = self.memory_noted() + self.claimed() >= self.shares.components / 4 * 3;
        if full || crowded || self.log.as_ref().is_some_and(|log| log.needs_preparation()) {
            if self.options.background {
                self.maintenance.want_flush();
            } else if full {
                // A failed flush is met again, and reported, by the write that finds no room.
                if self.flush_full().is_ok() {
                    self.after_flush();
                }
            }
        }
    }

    /// Seals and flushes the datasets whose memory components are large enough or keep too much of
    /// the log, and, when memory is short, the largest ones until a quarter of its share is on the
    /// way out, or more if large writes have claimed it.
    fn flush_full(&self) -> Result<bool> {
        let mut datasets: Vec<_> = self.datasets.load().values().cloned().collect();
        datasets.sort_by_key(|dataset| Reverse(dataset.partitions.active_memory_used()));
        let mut sealed: usize = datasets.iter().map(|dataset| dataset.partitions.sealed_memory_used()).sum();
        let (wanted_bytes, share) = (self.memory_used() + self.claimed(), self.shares.components);
        let short_by =
            if wanted_bytes < share / 4 * 3 { 0 } else { (share / 4).max(wanted_bytes.saturating_sub(share)) };
        let end_lsn = self.log.as_ref().map_or(0, Log::end_lsn);
        let mut flushed = false;
        for dataset in &datasets {
            let active = dataset.partitions.active_memory_used();
            let wanted = active >= self.seal_threshold() || self.keeps_log(dataset, end_lsn);
            if wanted || sealed < short_by {
                self.seal(dataset)?;
                sealed += active;
            }
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

    /// Flushes the oldest sealed generations of a dataset, one of each partition; false when there is none.
    pub fn flush_oldest(&self, dataset: &DatasetHandle) -> Result<bool> {
        let low_water = std::cell::Cell::new(None);
        let flush = || {
            dataset
                .partitions
                .flush(
                    &self.workshop,
                    // The transactions inside may belong to batches that sync later, or to threads
                    // that wait for this flush: so the flush syncs them itself.
                    &|cut| {
                        self.sync().map_err(lsm_error)?;
                        self.visibility.wait(cut).map_err(lsm_error)
                    },
                    &|manifest| {
                        if let (Some(log), Some(lsn)) = (&self.log, self.low_water(Some(dataset)))
                            && let Ok(position) = log.position_of(lsn)
                        {
                            low_water.set(Some(manifest.raise_low_water(position)));
                        }
                    },
                )
                .map_err(Error::from)
        };
        let flush = || self.with_room(flush);
        let outcome = match flush() {
            // Each component is an open file, and a flush opens one of each index of each partition.
            Err(error) if error.is_too_many_files() && self.merge_to_fewest() => flush(),
            outcome => outcome,
        };
        let outcome = outcome.inspect_err(|error| self.note_failure(error))?;
        let Some(outcome) = outcome else { return Ok(false) };
        self.note_memory(dataset);
        self.maintenance.count_flush(&outcome);
        self.note_components();
        if let Some(position) = low_water.get() {
            self.reclaim_log(position);
        }
        let _ = self.restore_reserve();
        Ok(true)
    }

    /// Gives up what of the log is needed no more, where no flush has done so: for want of anything to flush.
    pub fn give_up_log(&self) -> Result<()> {
        let (Some(log), Some(lsn)) = (&self.log, self.low_water(None)) else { return Ok(()) };
        let position = log.position_of(lsn).map_err(Error::from)?;
        if position.segment <= self.workshop.manifest.current().low_water.segment {
            return Ok(());
        }
        let low_water = self.step(|manifest| {
            // Numbers that were given out are not given out again, though nothing of them is left.
            manifest.last_sequence = manifest.last_sequence.max(self.visibility.visible());
            Ok(manifest.raise_low_water(position))
        })?;
        self.reclaim_log(low_water);
        Ok(())
    }
}

/// What the framework's flush gets from a closure of the engine.
fn lsm_error(error: Error) -> terrane_lsm::Error {
    let cause = match error {
        Error::Poisoned { cause } => cause,
        other => other.to_string(),
    };
    terrane_lsm::Error::Poisoned { cause }
}

/// What a panic said.
fn reason_of(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    message.map_or(String::new(), |message| format!(": {message}"))
}

fn flush_loop(engine: &Weak<Engine>) {
    /// Wakes those who wait for flushes if this thread panics; the store refuses writes then.
    struct Waking<'a>(&'a Engine);
    impl Drop for Waking<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let _state = self.0.maintenance.state.lock();
                self.0.maintenance.changed.notify_all();
            }
        }
    }
    while let Some(engine) = engine.upgrade() {
        // Dropped after the other, which says why they are woken.
        let _waking = Waking(&engine);
        let _abandoned = Abandoned { visibility: &engine.visibility, what: "the thread that flushes" };
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
        let prepared = engine.prepare_log().inspect_err(|error| engine.note_failure(error));
        let flushed = engine.flush_full();
        let mut state = engine.maintenance.state.lock();
        state.rounds += 1;
        state.merge_wanted |= matches!(flushed, Ok(true));
        state.flush_failed = flushed.and(prepared).err();
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
            // What is wanted when the store is closed is begun, and given up if it is long.
            if !state.merge_wanted {
                return;
            }
            state.merge_wanted = false;
        }
        engine.merge_and_note();
    }
}

/// Completes the indexes that earlier sessions began. Those that this one begins are built by who asked for them.
fn build_unbuilt(engine: &Weak<Engine>) {
    let Some(engine) = engine.upgrade() else { return };
    let datasets: Vec<_> = engine.datasets.load().values().cloned().collect();
    for dataset in datasets {
        let _building = dataset.building.lock();
        let built = catch_unwind(AssertUnwindSafe(|| engine.resume_indexes(&dataset))).unwrap_or_else(|panic| {
            let cause = Error::Failed(format!("building panicked{}", reason_of(&*panic)));
            Err(match first_unbuilt(&dataset) {
                Some(place) => unbuilt(&dataset, place, cause),
                None => cause,
            })
        });
        match built {
            Ok(()) | Err(Error::Dropped { .. }) => {}
            Err(Error::Cancelled) => return,
            Err(error) => engine.maintenance.state.lock().building_failed = Some(error),
        }
    }
}

#[cfg(test)]
mod tests;
