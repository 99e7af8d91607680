//! Flush and merge, in the background if the options ask for it, and the writers that wait for
//! them.
//!
//! - `admission`: writers wait for memory, and are slowed if merges fall behind.
//! - `flush`: which datasets are flushed, and when the log is reclaimed.
//! - `merges`: which merges are made.
//! - `full_disk`: how inserts are refused, and room is made for deletes, on a full disk.

mod admission;
mod counters;
mod flush;
mod full_disk;
mod merges;

use std::any::Any;
use std::sync::{Arc, Weak};

use terrane_lsm::index::Cancellation;
use terrane_storage::sync::thread::{self, JoinHandle};
use terrane_storage::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};

pub(crate) use admission::Admitted;
pub use counters::MaintenanceCounters;

use super::commit_core::CommitCore;
use super::dataset::DatasetHandle;
use super::datasets::OpenDatasets;
use super::disk_space::DiskSpace;
use super::environment::Environment;
use crate::{Error, Result};
use counters::Counters;

/// A close waits for merges if an index has more than this many times the components that the
/// policy wants.
const TIMES_WAITED_FOR: usize = 4;
/// Writes are slowed if an index has more than this many times the components that the policy
/// wants.
const TIMES_SLOWED: usize = 12;

#[derive(Debug, Default)]
struct State {
    flush_wanted: bool,
    merge_wanted: bool,
    /// Merges are running that were far behind when they began.
    catching_up: bool,
    stopping: bool,
    /// Why the last flush failed. Writers that wait for memory get it.
    flush_failed: Option<Error>,
    /// Why a merge failed, until that is reported or the policy is content. The next flush that is
    /// asked for, or the close, reports it.
    merge_failed: Option<Error>,
    /// Why the log could not reclaim what a flush freed, until that is reported in the same way.
    reclaiming_failed: Option<Error>,
    /// Counts the rounds of flushing, so that waiters see whether one passed since.
    rounds: u64,
}

/// Flushes and merges of an open store.
#[derive(Debug)]
pub(crate) struct Maintenance {
    state: Mutex<State>,
    changed: Condvar,
    /// Of merges, when the store is closed.
    cancellation: Cancellation,
    /// The end of the log when datasets were last asked how much of it they keep.
    log_looked_at: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    counters: Counters,
    /// Whether merges are so far behind that writes are slowed.
    crowded: AtomicBool,
    /// Admission ticket: held by the write that waits for memory. The others wait for the ticket.
    ticket: Mutex<()>,
    /// Bytes for large writes that are admitted and not applied yet. Raised under `ticket`, lowered
    /// under `state`.
    claimed: AtomicUsize,
    disk: Arc<DiskSpace>,
    datasets: Arc<OpenDatasets>,
    core: Arc<CommitCore>,
}

impl Maintenance {
    pub fn new(core: Arc<CommitCore>, datasets: Arc<OpenDatasets>, disk: Arc<DiskSpace>) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            cancellation: Cancellation::default(),
            log_looked_at: AtomicU64::new(0),
            threads: Mutex::default(),
            counters: Counters::default(),
            crowded: AtomicBool::new(false),
            ticket: Mutex::new(()),
            claimed: AtomicUsize::new(0),
            disk,
            datasets,
            core,
        }
    }

    /// What flushes and merges did so far.
    pub fn counters(&self) -> MaintenanceCounters {
        self.counters.values()
    }

    fn environment(&self) -> &Environment {
        self.core.environment()
    }

    fn is_in_background(&self) -> bool {
        self.environment().options.background
    }

    /// Starts the background threads, if the options ask for them. After an error none is left.
    pub(super) fn start(self: &Arc<Self>) -> Result<()> {
        if !self.is_in_background() {
            return Ok(());
        }
        for (name, work) in [("terrane-flush", flush_loop as fn(&Weak<Self>)), ("terrane-merge", merge_loop)] {
            let maintenance = Arc::downgrade(self);
            match spawn(name, move || work(&maintenance)) {
                Ok(thread) => self.threads.lock().push(thread),
                Err(error) => {
                    self.stop();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Ends the background threads.
    ///
    /// A long merge is cancelled. Short ones that the policy wants are done first, so that even
    /// short sessions keep the components few. If there are several times the components that the
    /// policy wants, long merges are waited for.
    pub(super) fn stop(&self) {
        let is_behind = self.is_behind(TIMES_WAITED_FOR);
        let mut state = self.state.lock();
        if !is_behind && !state.catching_up {
            self.cancellation.cancel();
        }
        state.merge_wanted |= is_behind;
        state.stopping = true;
        drop(state);
        self.changed.notify_all();
        self.threads.lock().drain(..).for_each(join);
    }

    /// Has the merge policy asked, in the background if there is one. The flush before is complete
    /// however that ends, so a failure is kept for [`Self::take_failure`].
    pub fn after_flush(&self) {
        if self.is_in_background() {
            self.state.lock().merge_wanted = true;
            self.changed.notify_all();
        } else {
            self.merge_and_note();
        }
    }

    /// Merges, and notes how that ended.
    fn merge_and_note(&self) {
        let is_behind = self.is_behind(TIMES_WAITED_FOR);
        self.state.lock().catching_up |= is_behind;
        let merged = self.merge_all();
        let mut state = self.state.lock();
        state.catching_up = false;
        match merged {
            Ok(()) if self.cancellation.is_cancelled() => {}
            Ok(()) => state.merge_failed = None,
            Err(error) => {
                tracing::warn!(%error, "a merge in the background failed");
                state.merge_failed = Some(error);
                // Nothing is gained by waiting.
                self.crowded.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Why a merge failed, if none has succeeded since, or else why the log could not be reclaimed.
    /// Each is returned once.
    pub(super) fn take_failure(&self) -> Option<Error> {
        let mut state = self.state.lock();
        state.merge_failed.take().or_else(|| state.reclaiming_failed.take())
    }

    /// Whether an index has more than `times` the components that the merge policy wants. A store
    /// that was opened leniently merges only after its own flushes, so it slows nobody.
    fn is_behind(&self, times: usize) -> bool {
        let options = &self.environment().options;
        let is_behind = |dataset: &DatasetHandle| dataset.partitions.is_behind(&dataset.merge_policy(options), times);
        !options.lenient && self.datasets.load().values().any(|dataset| is_behind(dataset))
    }

    /// To be called when components have come or gone: notes whether writes are to be slowed.
    fn note_components(&self) {
        self.crowded.store(self.is_behind(TIMES_SLOWED), Ordering::Relaxed);
    }

    /// To be called when a dataset was dropped: its memory is there for writers that wait for some.
    pub(super) fn note_dropped(&self) {
        self.note_components();
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    fn want_flush(&self) {
        let mut state = self.state.lock();
        if !state.flush_wanted {
            state.flush_wanted = true;
            self.changed.notify_all();
        }
    }
}

/// Starts a background thread.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map_err(|error| Error::Failed(format!("cannot start a background thread: {error}")))
}

/// Waits for the end of a background thread, unless it is this one.
pub(super) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != thread::current().id() {
        // A thread that panicked has nothing more to say; its panic was reported.
        let _ = thread.join();
    }
}

/// The message of a panic.
pub(super) fn reason_of(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    message.map_or(String::new(), |message| format!(": {message}"))
}

fn flush_loop(maintenance: &Weak<Maintenance>) {
    /// Wakes everyone who waits for flushes if this thread panics; the store refuses writes then.
    struct Waking<'a>(&'a Maintenance);
    impl Drop for Waking<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let _state = self.0.state.lock();
                self.0.changed.notify_all();
            }
        }
    }
    while let Some(maintenance) = maintenance.upgrade() {
        // Dropped after the other, which says why they are woken.
        let _waking = Waking(&maintenance);
        let _abandoned = maintenance.core.abandoned("the thread that flushes");
        {
            let mut state = maintenance.state.lock();
            while !state.flush_wanted && !state.stopping {
                maintenance.changed.wait(&mut state);
            }
            if state.stopping {
                return;
            }
            state.flush_wanted = false;
        }
        let prepared = maintenance.disk.prepare_log().inspect_err(|error| maintenance.core.note_failure(error));
        let flushed = maintenance.flush_full();
        if let Err(error) = flushed.as_ref().and(prepared.as_ref().map(|()| &false)) {
            tracing::warn!(%error, "a flush in the background failed");
        }
        let mut state = maintenance.state.lock();
        state.rounds += 1;
        state.merge_wanted |= matches!(flushed, Ok(true));
        state.flush_failed = flushed.and(prepared).err();
        maintenance.changed.notify_all();
    }
}

fn merge_loop(maintenance: &Weak<Maintenance>) {
    while let Some(maintenance) = maintenance.upgrade() {
        {
            let mut state = maintenance.state.lock();
            while !state.merge_wanted && !state.stopping {
                maintenance.changed.wait(&mut state);
            }
            // A merge that is wanted when the store is closed is begun, and cancelled if it is
            // long.
            if !state.merge_wanted {
                return;
            }
            state.merge_wanted = false;
        }
        maintenance.merge_and_note();
    }
}

#[cfg(test)]
mod tests;
