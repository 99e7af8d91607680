//! The common part of every write: number, log entry, memory components, sync.

use terrane_lsm::operation;

use super::{Admitted, DatasetHandle, Engine, Visibility};
use crate::{Error, Result};

/// What the commit latch protects: the order of commits.
#[derive(Debug)]
pub(crate) struct Latch {
    /// The number of the next commit.
    next_sequence: u64,
    /// Whether no more numbers are given out.
    closed: bool,
}

/// A commit whose changes are applied; it is durable and visible after [`Engine::acknowledge`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a commit is not durable before it is acknowledged"]
pub(crate) struct Committed {
    pub sequence: u64,
    /// Where the log ends with it; 0 without a log.
    pub end_lsn: u64,
}

/// Has the store refuse writes if the thread panics that has taken a number, so that nobody waits for it.
pub(super) struct Abandoned<'a> {
    pub visibility: &'a Visibility,
    /// The thread, with its article.
    pub what: &'static str,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.visibility.fail(&Error::Poisoned { cause: format!("{} panicked", self.what) });
        }
    }
}

impl Engine {
    /// Commits an encoded log entry: takes the sequence number, fixes the generation and appends
    /// the entry under one latch, then applies it to the memory components. The caller holds the
    /// locks of all keys inside, and has had the entry admitted.
    pub fn commit(&self, dataset: &DatasetHandle, entry: &mut [u8], admitted: Admitted<'_>) -> Result<Committed> {
        let (header, operations) = operation::decode(entry)?;
        let has_inserts = operations.clone().any(|operation| operation.is_ok_and(|operation| !operation.delete));
        if has_inserts {
            self.check_disk()?;
        }
        let touched = dataset.touched_by(&header, operations)?;
        let (sequence, end_lsn, fixed) = loop {
            if let Some(log) = &self.log {
                let reserved = self.reserve_log(log, entry.len(), has_inserts);
                reserved.inspect_err(|error| self.note_failure(error))?;
            }
            let mut latch = self.latch.lock();
            let sequence = latch.next()?;
            operation::set_sequence(entry, sequence);
            let (lsn, end_lsn) = match self.log.as_ref().map(|log| log.append(entry)) {
                None => (0, 0),
                Some(Ok(appended)) => (appended.start_lsn, appended.end_lsn),
                // Another thread used the room that was reserved; it is reserved anew.
                Some(Err(terrane_lsm::Error::Full { .. })) => continue,
                Some(Err(error)) => return Err(error.into()),
            };
            let fixed = touched.fix(dataset, &header, lsn);
            latch.next_sequence += 1;
            break (sequence, end_lsn, fixed);
        };
        // The entry has its number, so from here on it must be applied or the store must stop.
        let _abandoned = Abandoned { visibility: &self.visibility, what: "a thread that writes" };
        let before = fixed.memory_used();
        let apply = || -> terrane_lsm::Result<()> {
            let (_, operations) = operation::decode(entry)?;
            fixed.apply(dataset, operations, sequence)
        };
        if let Err(error) = apply() {
            let error = Error::from(error).poisoned();
            self.visibility.fail(&error);
            return Err(error);
        }
        self.visibility.applied(sequence);
        // Mostly an entry has room in what was taken from the allocator before. Components only grow, so nobody else
        // has to look for what grew by this one.
        let has_grown = fixed.memory_used() > before;
        if has_grown {
            // Its changes count as memory components now.
            self.note_memory(dataset);
        }
        drop(admitted);
        self.note_write(dataset, end_lsn, has_grown);
        Ok(Committed { sequence, end_lsn })
    }

    /// Returns when a commit is durable and visible; the calling thread may sync for others too.
    pub fn acknowledge(&self, committed: Committed) -> Result<()> {
        self.sync_to(committed.sequence, committed.end_lsn)?;
        self.visibility.wait(committed.sequence)
    }

    /// Makes everything durable that was committed before the call.
    pub fn sync(&self) -> Result<()> {
        let (sequence, end_lsn) = {
            let latch = self.latch.lock();
            (latch.next_sequence - 1, self.log.as_ref().map_or(0, |log| log.end_lsn()))
        };
        self.sync_to(sequence, end_lsn)
    }

    /// Takes no more commits, and returns when all that were begun are durable and visible.
    pub fn end_commits(&self) -> Result<()> {
        let last = {
            let mut latch = self.latch.lock();
            latch.closed = true;
            latch.next_sequence - 1
        };
        self.sync()?;
        self.visibility.wait(last)
    }

    /// Makes the log durable up to a position below which all entries up to `sequence` lie.
    fn sync_to(&self, sequence: u64, end_lsn: u64) -> Result<()> {
        if let Some(log) = &self.log {
            let _abandoned = Abandoned { visibility: &self.visibility, what: "a thread that syncs" };
            if let Err(error) = log.sync_to(end_lsn) {
                let error = Error::from(error);
                self.visibility.fail(&error);
                return Err(error);
            }
            self.visibility.synced(sequence);
        }
        Ok(())
    }

    /// Seals the memory components of a dataset. False when they are empty.
    pub fn seal(&self, dataset: &DatasetHandle) -> Result<bool> {
        let latch = self.latch.lock();
        Ok(dataset.partitions.seal(latch.next_sequence - 1)?)
    }

    /// The last number that was given out.
    pub fn last_sequence(&self) -> u64 {
        self.latch.lock().next_sequence - 1
    }

    /// Runs `work` with a sequence number of its own, which no log entry has. All commits before it
    /// are durable and visible then, and so nothing can fail after `work`: when it has succeeded,
    /// its number is visible. Later commits go on, and become visible after it.
    pub fn with_sequence<T>(&self, work: impl FnOnce(u64) -> Result<T>) -> Result<T> {
        let (sequence, end_lsn) = {
            let mut latch = self.latch.lock();
            let sequence = latch.next()?;
            latch.next_sequence += 1;
            (sequence, self.log.as_ref().map_or(0, |log| log.end_lsn()))
        };
        let _abandoned = Abandoned { visibility: &self.visibility, what: "a thread that imports" };
        let result = self
            .sync_to(sequence, end_lsn)
            .and_then(|()| self.visibility.wait(sequence - 1))
            .and_then(|()| self.check_writable())
            .and_then(|()| work(sequence));
        // Also a number under which nothing happened must not hold up those after it.
        self.visibility.applied(sequence);
        result
    }

    /// The first position of the log that is still needed when the oldest sealed generation of
    /// `flushed`, if there is such a flush, is on disk.
    pub fn low_water(&self, flushed: Option<&DatasetHandle>) -> Option<u64> {
        self.low_water_by(|dataset| {
            let is_flushed = flushed.is_some_and(|flushed| flushed.id == dataset.id);
            dataset.partitions.first_lsn(is_flushed)
        })
    }

    /// The first position of the log that is still needed when a dataset is dropped.
    pub fn low_water_without(&self, dropped: &DatasetHandle) -> Option<u64> {
        self.low_water_by(|dataset| dataset.partitions.first_lsn(false).filter(|_| dataset.id != dropped.id))
    }

    fn low_water_by(&self, first_lsn: impl Fn(&DatasetHandle) -> Option<u64>) -> Option<u64> {
        let log = self.log.as_ref()?;
        // Under the latch every entry up to the end of the log is noted by its generation.
        let _latch = self.latch.lock();
        let firsts = self.datasets.load();
        Some(firsts.values().filter_map(|dataset| first_lsn(dataset)).fold(log.durable_lsn(), u64::min))
    }
}

impl Latch {
    /// The next commit gets this number.
    pub fn new(next_sequence: u64) -> Self {
        Self { next_sequence, closed: false }
    }

    /// The number for the next commit, if there is to be one.
    fn next(&self) -> Result<u64> {
        if self.closed { Err(closed()) } else { Ok(self.next_sequence) }
    }
}

/// What writes get that come too late.
pub(crate) fn closed() -> Error {
    Error::usage("the store is closed; open it again to write")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use terrane_testkit::MemoryStorage;

    use super::*;
    use crate::options::Options;

    /// As a thread leaves it that has its number, and is slow to apply its changes.
    #[test]
    fn what_has_a_number_of_its_own_happens_after_all_commits_before_it() {
        let engine = Engine::open(Arc::new(MemoryStorage::new()), Options::default()).unwrap();
        let before = engine.latch.lock().next_sequence;
        engine.latch.lock().next_sequence += 1;
        let is_applied = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let imported = scope.spawn(|| {
                engine.with_sequence(|sequence| {
                    assert!(is_applied.load(Ordering::SeqCst), "it did not wait for what came before");
                    assert_eq!((sequence, engine.visibility.visible()), (before + 1, before));
                    Ok(())
                })
            });
            while engine.last_sequence() == before {
                std::thread::yield_now();
            }
            // Time for what should not happen.
            std::thread::sleep(Duration::from_millis(50));
            is_applied.store(true, Ordering::SeqCst);
            engine.visibility.applied(before);
            imported.join().unwrap().unwrap();
        });
        assert_eq!(engine.visibility.visible(), before + 1);
        engine.close().unwrap();
    }
}
