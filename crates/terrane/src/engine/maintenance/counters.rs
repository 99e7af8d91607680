//! Counters of flushes and merges.

use serde::Serialize;
use terrane_lsm::partition::{FlushOutcome, MergeOutcome};
use terrane_storage::sync::{AtomicU64, Ordering};

/// What flushes and merges did since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MaintenanceCounters {
    /// Flushes of a dataset's oldest generations.
    pub flushes: u64,
    /// Threads that built components in them, summed up: more than flushes where datasets have
    /// partitions.
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

/// The counters as threads raise them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    flushes: AtomicU64,
    flush_threads: AtomicU64,
    flushed_bytes: AtomicU64,
    merges: AtomicU64,
    merge_read_bytes: AtomicU64,
    merge_written_bytes: AtomicU64,
    pub stalls: AtomicU64,
    pub slowed: AtomicU64,
}

impl Counters {
    pub fn values(&self) -> MaintenanceCounters {
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

    pub fn count_flush(&self, outcome: &FlushOutcome) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flush_threads.fetch_add(outcome.threads as u64, Ordering::Relaxed);
        self.flushed_bytes.fetch_add(outcome.bytes_written, Ordering::Relaxed);
    }

    pub fn count_merge(&self, outcome: &MergeOutcome) {
        self.merges.fetch_add(1, Ordering::Relaxed);
        self.merge_read_bytes.fetch_add(outcome.bytes_read, Ordering::Relaxed);
        self.merge_written_bytes.fetch_add(outcome.bytes_written, Ordering::Relaxed);
    }
}
