//! Which datasets are flushed, and when the log is reclaimed.

use std::cell::Cell;
use std::cmp::Reverse;
use std::time::Instant;

use terrane_lsm::log::LogPosition;
use terrane_storage::sync::Ordering;

use super::Maintenance;
use crate::engine::dataset::DatasetHandle;
use crate::{Error, Result};

impl Maintenance {
    /// Bytes of the active generation of a dataset at which it is sealed.
    fn seal_threshold(&self) -> usize {
        self.environment().shares.components / 2
    }

    /// Bytes of the log after a dataset's oldest change in memory at which its generation is
    /// sealed, however little it holds, as it keeps all of them from being reclaimed.
    ///
    /// That is the share of memory components: so it happens about as seldom as other flushes, and
    /// opening redoes no more than fits. It is at least a segment, as the log reclaims whole ones.
    fn log_bytes_kept(&self) -> u64 {
        (self.environment().shares.components as u64).max(self.environment().options.log.segment_size)
    }

    /// Whether the active generation of a dataset keeps too much of a log that ends at `end_lsn`.
    fn keeps_log(&self, dataset: &DatasetHandle, end_lsn: u64) -> bool {
        let first_lsn = dataset.partitions.active_first_lsn();
        first_lsn.is_some_and(|first_lsn| end_lsn.saturating_sub(first_lsn) > self.log_bytes_kept())
    }

    /// Whether some dataset keeps too much of the log. Asked once in a while only, as it looks at
    /// all datasets.
    fn log_is_kept(&self, end_lsn: u64) -> bool {
        if end_lsn.saturating_sub(self.log_looked_at.load(Ordering::Relaxed)) < self.log_bytes_kept() / 16 {
            return false;
        }
        self.log_looked_at.store(end_lsn, Ordering::Relaxed);
        self.datasets.load().values().any(|dataset| self.keeps_log(dataset, end_lsn))
    }

    /// To be called after a write that ends at `end_lsn` in the log. `has_grown` says whether
    /// memory components grew. Has a flush done when there is enough for one, perhaps in another
    /// dataset.
    pub(in crate::engine) fn note_write(&self, dataset: &DatasetHandle, end_lsn: u64, has_grown: bool) {
        let is_large = || dataset.partitions.active_memory_used() >= self.seal_threshold();
        let full = (has_grown && is_large()) || self.log_is_kept(end_lsn);
        let crowded = self.datasets.memory_noted() + self.claimed() >= self.environment().shares.components / 4 * 3;
        if full || crowded || self.core.log().is_some_and(|log| log.needs_preparation()) {
            if self.is_in_background() {
                self.want_flush();
            } else if full {
                // A failed flush is met again, and reported, by the write that finds no room.
                if self.flush_full().is_ok() {
                    self.after_flush();
                }
            }
        }
    }

    /// Seals and flushes the datasets whose memory components are large enough or keep too much of
    /// the log. If memory is short, also the largest ones until a quarter of its share is about to
    /// be freed, or more if large writes have claimed it.
    pub(super) fn flush_full(&self) -> Result<bool> {
        let mut datasets = self.datasets.handles();
        datasets.sort_by_key(|dataset| Reverse(dataset.partitions.active_memory_used()));
        let mut sealed: usize = datasets.iter().map(|dataset| dataset.partitions.sealed_memory_used()).sum();
        let (wanted_bytes, share) =
            (self.datasets.memory_used() + self.claimed(), self.environment().shares.components);
        let short_by =
            if wanted_bytes < share / 4 * 3 { 0 } else { (share / 4).max(wanted_bytes.saturating_sub(share)) };
        let end_lsn = self.core.end_lsn();
        let mut flushed = false;
        for dataset in &datasets {
            let active = dataset.partitions.active_memory_used();
            let wanted = active >= self.seal_threshold() || self.keeps_log(dataset, end_lsn);
            if wanted || sealed < short_by {
                self.core.seal(dataset)?;
                sealed += active;
            }
        }
        for dataset in &datasets {
            flushed |= self.flush_sealed(dataset)?;
        }
        Ok(flushed)
    }

    /// Seals and flushes everything.
    pub fn flush_all(&self) -> Result<bool> {
        let mut flushed = false;
        for dataset in &self.datasets.handles() {
            flushed |= self.flush(dataset)?;
        }
        Ok(flushed)
    }

    /// Seals and flushes a dataset; whether there was anything to flush.
    pub fn flush(&self, dataset: &DatasetHandle) -> Result<bool> {
        self.core.seal(dataset)?;
        self.flush_sealed(dataset)
    }

    /// Flushes all sealed generations of a dataset; whether there were any.
    pub fn flush_sealed(&self, dataset: &DatasetHandle) -> Result<bool> {
        let mut flushed = false;
        while self.flush_oldest(dataset)? {
            flushed = true;
        }
        Ok(flushed)
    }

    /// Flushes the oldest sealed generations of a dataset, one of each partition; false if there is
    /// none.
    pub(in crate::engine) fn flush_oldest(&self, dataset: &DatasetHandle) -> Result<bool> {
        let (low_water, begun) = (Cell::new(None), Instant::now());
        let flush = || {
            let flushed = dataset.partitions.flush(
                &self.environment().context,
                // The transactions inside may belong to batches that sync later, or to threads that
                // wait for this flush: so the flush syncs them itself.
                &|cut| {
                    self.core.sync().map_err(lsm_error)?;
                    self.core.wait_visible(cut).map_err(lsm_error)
                },
                &|manifest| {
                    if let Some(position) = self.low_water_after(dataset) {
                        low_water.set(Some(manifest.raise_low_water(position)));
                    }
                },
            );
            flushed.map_err(Error::from)
        };
        let flush = || self.disk.with_room(flush);
        let outcome = match flush() {
            // Each component is an open file, and a flush opens one of each index of each
            // partition.
            Err(error) if error.is_too_many_files() && self.merge_to_fewest() => flush(),
            outcome => outcome,
        };
        let outcome = outcome.inspect_err(|error| self.core.note_failure(error))?;
        let Some(outcome) = outcome else { return Ok(false) };
        self.datasets.note_memory(dataset);
        self.counters.count_flush(&outcome);
        tracing::debug!(
            dataset = dataset.name,
            bytes = outcome.bytes_written,
            threads = outcome.threads,
            elapsed_ms = begun.elapsed().as_millis(),
            "flushed"
        );
        self.note_components();
        if let Some(position) = low_water.get() {
            self.reclaim_log(position);
        }
        let _ = self.disk.restore();
        Ok(true)
    }

    /// The low-water mark of the log when the oldest sealed generations of a dataset are on disk.
    pub(super) fn low_water_after(&self, flushed: &DatasetHandle) -> Option<LogPosition> {
        let first_lsn = |dataset: &DatasetHandle| dataset.partitions.first_lsn(dataset.id == flushed.id);
        let lsn = self.core.low_water(&self.datasets, first_lsn)?;
        self.core.log()?.position_of(lsn).ok()
    }

    /// Has the log reclaim what lies before a low-water mark that the manifest names. The flush
    /// that raised it has succeeded however that ends.
    pub(in crate::engine) fn reclaim_log(&self, low_water: LogPosition) {
        let Some(log) = self.core.log() else { return };
        if let Err(error) = log.set_low_water(low_water).map_err(Error::from) {
            self.core.note_failure(&error);
            self.state.lock().reclaiming_failed = Some(Error::Unreclaimed { cause: Box::new(error) });
        }
    }

    /// Reclaims the part of the log that is not needed, if no flush has done so because there was
    /// nothing to flush.
    pub(in crate::engine) fn reclaim_unneeded_log(&self) -> Result<()> {
        let Some(log) = self.core.log() else { return Ok(()) };
        let lsn = self.core.low_water(&self.datasets, |dataset| dataset.partitions.first_lsn(false));
        let Some(position) = lsn.map(|lsn| log.position_of(lsn)).transpose()? else { return Ok(()) };
        if position.segment <= self.environment().context.manifest.current().low_water.segment {
            return Ok(());
        }
        let low_water = self.disk.step(|manifest| {
            // Numbers that were given out are not given out again, though nothing of them is left.
            manifest.last_sequence = manifest.last_sequence.max(self.core.visible());
            Ok(manifest.raise_low_water(position))
        })?;
        self.reclaim_log(low_water);
        Ok(())
    }
}

/// The framework's form of an error in a closure of the engine.
fn lsm_error(error: Error) -> terrane_lsm::Error {
    let cause = match error {
        Error::Poisoned { cause } => cause,
        other => other.to_string(),
    };
    terrane_lsm::Error::Poisoned { cause }
}
