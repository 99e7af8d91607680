//! The order of commits: the log, the sequence numbers, their visibility, and the locks of keys.
//!
//! A commit takes these steps here. [`super::Engine::commit`] calls the first two.
//!
//! 1. [`CommitCore::append`]: under the latch it takes its sequence number, its generations are
//!    fixed, and its entry is appended to the log.
//! 2. [`CommitCore::apply`]: without the latch its operations go to the memory components.
//! 3. [`CommitCore::acknowledge`]: the log is synced, and the commit is visible.

use std::sync::Arc;

use terrane_lsm::log::{Log, ReadOnlyTail};
use terrane_storage::sync::Mutex;

use super::dataset::DatasetHandle;
use super::datasets::OpenDatasets;
use super::entry::Entry;
use super::environment::Environment;
use super::routing::Fixed;
use super::visibility::Visibility;
use crate::locks::LockTable;
use crate::{Error, Result};

/// What the commit latch protects: the order of commits.
#[derive(Debug)]
struct Latch {
    /// The number of the next commit.
    next_sequence: u64,
    /// Whether no more numbers are given out.
    closed: bool,
}

impl Latch {
    /// The number for the next commit, if there is to be one.
    fn next(&self) -> Result<u64> {
        if self.closed { Err(closed()) } else { Ok(self.next_sequence) }
    }
}

/// An entry that has its place in the order of commits.
#[derive(Debug)]
pub(super) struct Appended {
    pub committed: Committed,
    fixed: Fixed,
}

/// A commit whose changes are applied. It is durable and visible after
/// [`CommitCore::acknowledge`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a commit is not durable before it is acknowledged"]
pub(crate) struct Committed {
    pub sequence: u64,
    /// The end of the log with it; 0 without a log.
    pub end_lsn: u64,
}

/// Has the store refuse writes if the thread that has taken a number panics. Others would wait for
/// that number for ever.
pub(super) struct Abandoned<'a> {
    visibility: &'a Visibility,
    /// The thread, with its article.
    what: &'static str,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.visibility.fail(&Error::Poisoned { cause: format!("{} panicked", self.what) });
        }
    }
}

/// The state that all commits share.
#[derive(Debug)]
pub(crate) struct CommitCore {
    log: Option<Log>,
    /// Keeps the log's tail from being recycled while a reader lives.
    tail: Option<ReadOnlyTail>,
    locks: LockTable,
    visibility: Visibility,
    latch: Mutex<Latch>,
    environment: Arc<Environment>,
}

impl CommitCore {
    /// For a writer. `last_sequence` is the last number so far.
    pub fn of_writer(environment: Arc<Environment>, log: Option<Log>, last_sequence: u64) -> Self {
        let visibility = Visibility::new(last_sequence, log.is_some());
        Self { log, visibility, ..Self::of_reader(environment, None, last_sequence) }
    }

    /// For a reader, which has replayed the log's tail.
    pub fn of_reader(environment: Arc<Environment>, tail: Option<ReadOnlyTail>, last_sequence: u64) -> Self {
        Self {
            log: None,
            tail,
            locks: LockTable::new(),
            visibility: Visibility::new(last_sequence, false),
            latch: Mutex::new(Latch { next_sequence: last_sequence + 1, closed: false }),
            environment,
        }
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The locks of keys.
    pub fn locks(&self) -> &LockTable {
        &self.locks
    }

    pub fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// Whether commits are logged.
    pub fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// The tail that a reader has replayed.
    pub fn tail(&self) -> Option<&ReadOnlyTail> {
        self.tail.as_ref()
    }

    /// The number up to which snapshots see changes.
    pub fn visible(&self) -> u64 {
        self.visibility.visible()
    }

    /// Waits until a change is visible, or fails if it never will be.
    pub fn wait_visible(&self, sequence: u64) -> Result<()> {
        self.visibility.wait(sequence)
    }

    /// Why no more changes are taken, if so.
    pub fn failure(&self) -> Option<Error> {
        self.visibility.failure()
    }

    /// Refuses changes through a handle that only reads, that is closed, or of which a write or
    /// sync failed.
    pub fn check_writable(&self) -> Result<()> {
        if !self.environment.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.visibility.failure().map_or(Ok(()), Err)
    }

    /// Has the handle refuse writes after some errors:
    ///
    /// - A failed sync. Its data may be lost although later syncs succeed.
    /// - An error that left open which manifest is on disk.
    pub fn note_failure(&self, error: &Error) {
        let failed_sync = matches!(error, Error::Storage(storage) if storage.operation().is_sync());
        if failed_sync || self.environment.context.manifest.has_failed() {
            self.visibility.fail(&error.poisoned());
        }
    }

    /// As [`Self::note_failure`], of work on several partitions that reports one of its errors.
    pub fn note_failures<T>(&self, outcomes: &[Result<T>]) {
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).for_each(|error| self.note_failure(error));
    }

    /// Guards work without which others would wait for ever. `what` names its thread.
    pub(super) fn abandoned(&self, what: &'static str) -> Abandoned<'_> {
        Abandoned { visibility: &self.visibility, what }
    }

    /// Takes the sequence number of an entry, fixes its generations and appends it to the log,
    /// under one latch. `None` if the log has no room.
    pub(super) fn append(&self, dataset: &DatasetHandle, entry: &mut Entry) -> Result<Option<Appended>> {
        let mut latch = self.latch.lock();
        let sequence = latch.next()?;
        entry.encoded.complete(sequence, entry.routes.number());
        let (lsn, end_lsn) = match self.log.as_ref().map(|log| log.append(entry.encoded.bytes())) {
            None => (0, 0),
            Some(Ok(appended)) => (appended.start_lsn, appended.end_lsn),
            Some(Err(terrane_lsm::Error::Full { .. })) => return Ok(None),
            Some(Err(error)) => return Err(error.into()),
        };
        let fixed = entry.routes.fix(dataset, &entry.header, lsn);
        latch.next_sequence += 1;
        Ok(Some(Appended { committed: Committed { sequence, end_lsn }, fixed }))
    }

    /// Applies an appended entry to the memory components. Returns whether they have grown: mostly
    /// an entry fits in memory that was allocated before.
    pub(super) fn apply(&self, entry: &Entry, appended: &Appended) -> Result<bool> {
        // The entry has its number, so from here on it must be applied or the store must stop.
        let _abandoned = self.abandoned("a thread that writes");
        let Appended { committed: Committed { sequence, .. }, fixed } = appended;
        let before = fixed.memory_used();
        let operations = entry.encoded.operations().map(Ok);
        if let Err(error) = fixed.apply(&entry.routes, operations, *sequence) {
            let error = Error::from(error).poisoned();
            self.visibility.fail(&error);
            return Err(error);
        }
        self.visibility.applied(*sequence);
        Ok(fixed.memory_used() > before)
    }

    /// Returns when a commit is durable and visible. The calling thread may sync for others too.
    pub fn acknowledge(&self, committed: Committed) -> Result<()> {
        self.sync_to(committed.sequence, committed.end_lsn)?;
        self.visibility.wait(committed.sequence)
    }

    /// Makes everything durable that was committed before the call.
    pub fn sync(&self) -> Result<()> {
        let (sequence, end_lsn) = {
            let latch = self.latch.lock();
            (latch.next_sequence - 1, self.end_lsn())
        };
        self.sync_to(sequence, end_lsn)
    }

    /// The end of the log; 0 without a log.
    pub(super) fn end_lsn(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::end_lsn)
    }

    /// Takes no more commits, and returns when all that were begun are durable and visible.
    pub(super) fn end_commits(&self) -> Result<()> {
        let last = {
            let mut latch = self.latch.lock();
            latch.closed = true;
            latch.next_sequence - 1
        };
        self.sync()?;
        self.visibility.wait(last)
    }

    /// Refuses all further changes and closes the log.
    pub(super) fn close(&self) -> Result<()> {
        self.visibility.fail(&closed());
        self.log.as_ref().map_or(Ok(()), |log| Ok(log.close()?))
    }

    /// Makes the log durable up to a position. All entries up to `sequence` are before it.
    fn sync_to(&self, sequence: u64, end_lsn: u64) -> Result<()> {
        if let Some(log) = &self.log {
            let _abandoned = self.abandoned("a thread that syncs");
            if let Err(error) = log.sync_to(end_lsn) {
                let error = Error::from(error);
                self.visibility.fail(&error);
                return Err(error);
            }
            self.visibility.synced(sequence);
        }
        Ok(())
    }

    /// Seals the memory components of a dataset. False if they are empty.
    pub fn seal(&self, dataset: &DatasetHandle) -> Result<bool> {
        let latch = self.latch.lock();
        Ok(dataset.partitions.seal(latch.next_sequence - 1)?)
    }

    /// The last sequence number that was given out.
    pub fn last_sequence(&self) -> u64 {
        self.latch.lock().next_sequence - 1
    }

    /// Runs `work` with a sequence number of its own, without an entry in the log.
    ///
    /// All commits before it are durable and visible then, so nothing can fail after `work`: if it
    /// has succeeded, its number is visible. Later commits continue, and become visible after it.
    pub fn with_sequence<T>(&self, work: impl FnOnce(u64) -> Result<T>) -> Result<T> {
        let (sequence, end_lsn) = {
            let mut latch = self.latch.lock();
            let sequence = latch.next()?;
            latch.next_sequence += 1;
            (sequence, self.end_lsn())
        };
        let _abandoned = self.abandoned("a thread that imports");
        let result = self
            .sync_to(sequence, end_lsn)
            .and_then(|()| self.visibility.wait(sequence - 1))
            .and_then(|()| self.check_writable())
            .and_then(|()| work(sequence));
        // A number without changes must not hold up the later ones either.
        self.visibility.applied(sequence);
        result
    }

    /// The first position of the log that some dataset still needs, by what `first_lsn` says of
    /// each. `None` without a log.
    pub(super) fn low_water(
        &self,
        datasets: &OpenDatasets,
        first_lsn: impl Fn(&DatasetHandle) -> Option<u64>,
    ) -> Option<u64> {
        let log = self.log.as_ref()?;
        // Under the latch every entry up to the end of the log is noted by its generation, and that
        // of a new dataset is found.
        let _latch = self.latch.lock();
        let datasets = datasets.load();
        Some(datasets.values().filter_map(|dataset| first_lsn(dataset)).fold(log.durable_lsn(), u64::min))
    }
}

/// The error of writes that come too late.
pub(super) fn closed() -> Error {
    Error::usage("the store is closed; open it again to write")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use terrane_testkit::MemoryStorage;

    use super::*;
    use crate::engine::Engine;
    use crate::options::Options;

    /// As a thread leaves it that has its number, and is slow to apply its changes.
    #[test]
    fn what_has_a_number_of_its_own_happens_after_all_commits_before_it() {
        let engine = Engine::open(Arc::new(MemoryStorage::new()), Options::default()).unwrap();
        let core = &engine.core;
        let before = core.latch.lock().next_sequence;
        core.latch.lock().next_sequence += 1;
        let is_applied = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let imported = scope.spawn(|| {
                core.with_sequence(|sequence| {
                    assert!(is_applied.load(Ordering::SeqCst), "it did not wait for what came before");
                    assert_eq!((sequence, core.visible()), (before + 1, before));
                    Ok(())
                })
            });
            while core.last_sequence() == before {
                std::thread::yield_now();
            }
            // Turns for what should not happen.
            (0..1000).for_each(|_| std::thread::yield_now());
            is_applied.store(true, Ordering::SeqCst);
            core.visibility.applied(before);
            imported.join().unwrap().unwrap();
        });
        assert_eq!(core.visible(), before + 1);
        engine.close().unwrap();
    }
}
