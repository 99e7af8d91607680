//! Which merges are made: those that the policy wants, all into one, and those that fit on a full
//! disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use terrane_lsm::index::Cancellation;
use terrane_lsm::parallel::{self, threads_of};
use terrane_lsm::partition::{IndexSlot, IndexVersion, MergeOutcome};
use terrane_lsm::policy::MergePolicy;

use super::{Maintenance, reason_of};
use crate::engine::dataset::DatasetHandle;
use crate::{Error, Result};

/// No merges of smaller components are tried where larger ones have no room.
const SMALLEST_MERGED_BYTES: u64 = 4 << 10;

impl Maintenance {
    /// Merges what is small whatever the policy says, so that fewer files are open; whether there
    /// was anything.
    pub(super) fn merge_to_fewest(&self) -> bool {
        let merge = |dataset: &Arc<DatasetHandle>| {
            let (bytes_max, cancellation) = (self.environment().shares.work as u64, &self.cancellation);
            let counted = &|outcome: &MergeOutcome| self.counters.count_merge(outcome);
            dataset
                .partitions
                .merge_to_fewest(&self.environment().context, bytes_max, cancellation, counted)
                .map_err(Error::from)
        };
        let merged: Vec<_> = self.datasets.load().values().map(merge).collect();
        self.core.note_failures(&merged);
        self.note_components();
        merged.iter().any(|merged| matches!(merged, Ok(1..)))
    }

    /// Merges until the policy is content. Where that fails in a dataset, it continues in the
    /// others, and returns why the first failed: [`Error::Unmerged`] unless the failure is one of
    /// durability.
    pub fn merge_all(&self) -> Result<()> {
        let mut unmerged = self.datasets.handles();
        let mut failed = Ok(());
        // One merge of each in turn, so that no dataset waits for all merges of another.
        while !unmerged.is_empty() {
            unmerged.retain(|dataset| match self.merge_guarded(dataset) {
                Ok(merged) => merged,
                Err(error) => {
                    self.core.note_failure(&error);
                    // A handle that refuses writes, as after a failed sync, lacks more than a
                    // merge.
                    let error = match self.core.failure() {
                        Some(_) => error,
                        None => Error::Unmerged { dataset: dataset.name.clone(), cause: Box::new(error) },
                    };
                    if failed.is_ok() {
                        failed = Err(error);
                    }
                    false
                }
            });
            self.note_components();
        }
        let _ = self.disk.restore();
        failed
    }

    /// As [`Self::merge_once`]. In the background, a panic is a failure of this merge alone: the
    /// thread continues, so that writers are not slowed for merges that never come. What the panic
    /// left is sound, as a merge changes nothing until the manifest's step, and later steps fail
    /// where they do not fit it.
    fn merge_guarded(&self, dataset: &DatasetHandle) -> Result<bool> {
        if !self.is_in_background() {
            return self.merge_once(dataset);
        }
        catch_unwind(AssertUnwindSafe(|| self.merge_once(dataset)))
            .unwrap_or_else(|panic| Err(Error::Failed(format!("the merge panicked{}", reason_of(&*panic)))))
    }

    /// Makes the merge that the policy wants first of each partition of a dataset, several at a
    /// time; false if it wants none, or all had to give up.
    fn merge_once(&self, dataset: &DatasetHandle) -> Result<bool> {
        match self.merge_by(dataset, &dataset.merge_policy(&self.environment().options)) {
            Err(error @ Error::Full { .. }) => self.merge_what_fits(dataset, error),
            merged => merged,
        }
    }

    /// Merges small components where there is no room for the merge that the policy wants, so that
    /// flushes on a full disk do not leave many; the error of the other merge if there is nothing
    /// to merge.
    fn merge_what_fits(&self, dataset: &DatasetHandle, error: Error) -> Result<bool> {
        let manifest = self.environment().context.manifest.current();
        let mut largest = manifest.components().map(|meta| meta.file_len).max().unwrap_or(0);
        while largest > SMALLEST_MERGED_BYTES {
            largest /= 4;
            let smaller = MergePolicy::Prefix { mergeable_bytes_max: largest, components_max: 4 };
            match self.merge_by(dataset, &smaller) {
                Ok(false) | Err(Error::Full { .. }) => {}
                merged => return merged,
            }
        }
        Err(error)
    }

    pub fn merge_by(&self, dataset: &DatasetHandle, policy: &MergePolicy) -> Result<bool> {
        let cancellation = &self.cancellation;
        self.in_partitions(dataset, |partition, bytes_max| {
            let merge =
                || dataset.partitions.merge(&self.environment().context, partition, policy, bytes_max, cancellation);
            let begun = Instant::now();
            let merged = self.disk.with_reserve(|| merge().map_err(Error::from))?;
            merged.iter().for_each(|outcome| self.note_merge(dataset, partition, outcome, begun));
            Ok(merged.is_some())
        })
    }

    /// Merges the oldest components of an index of a partition into one, as many as are told.
    pub fn merge_oldest(
        &self,
        dataset: &DatasetHandle,
        at: IndexSlot,
        count: usize,
        bytes_max: u64,
        cancellation: &Cancellation,
    ) -> Result<()> {
        let (partitions, context) = (&dataset.partitions, &self.environment().context);
        let begun = Instant::now();
        let merge = || partitions.merge_oldest(context, at, count, bytes_max, cancellation);
        match self.disk.with_reserve(|| merge().map_err(Error::from))? {
            Some(outcome) => self.note_merge(dataset, at.partition, &outcome, begun),
            None if cancellation.is_cancelled() => return Err(Error::Cancelled),
            None => {}
        }
        Ok(())
    }

    fn note_merge(&self, dataset: &DatasetHandle, partition: usize, outcome: &MergeOutcome, begun: Instant) {
        self.counters.count_merge(outcome);
        tracing::debug!(
            dataset = dataset.name,
            partition,
            components = outcome.components,
            bytes_read = outcome.bytes_read,
            bytes_written = outcome.bytes_written,
            elapsed_ms = begun.elapsed().as_millis(),
            "merged"
        );
    }

    /// Calls `work` for every partition of a dataset, several at a time, with the bytes of memory
    /// that it may take; whether one of the calls told so. Of several errors, the first partition's
    /// counts.
    pub fn in_partitions(
        &self,
        dataset: &DatasetHandle,
        work: impl Fn(usize, u64) -> Result<bool> + Sync,
    ) -> Result<bool> {
        let partitions: Vec<usize> = (0..dataset.partitions.count()).collect();
        let threads = threads_of(self.environment().context.threads_max, partitions.len());
        let bytes_max = (self.environment().shares.work / threads) as u64;
        let outcomes = parallel::map(threads, &partitions, |&partition| work(partition, bytes_max));
        self.core.note_failures(&outcomes);
        outcomes.into_iter().try_fold(false, |any, outcome| Ok(any | outcome?))
    }

    /// Merges the components that every index of a dataset has now into one.
    pub fn compact(&self, dataset: &DatasetHandle) -> Result<()> {
        self.core.check_writable()?;
        self.flush(dataset)?;
        // What is there now; writers may add components for as long as they like.
        let versions = dataset.partitions.versions();
        let count = |index: &IndexVersion| index.components.len();
        let counts: Vec<Vec<usize>> =
            versions.iter().map(|version| version.indexes.iter().map(count).collect()).collect();
        // They would keep memory components that are flushed meanwhile.
        drop(versions);
        let cancellation = &self.cancellation;
        let compacted = self.in_partitions(dataset, |partition, bytes_max| {
            for (slot, &count) in counts[partition].iter().enumerate() {
                self.merge_oldest(dataset, IndexSlot { partition, slot }, count, bytes_max, cancellation)?;
            }
            Ok(true)
        });
        let _ = self.disk.restore();
        compacted.inspect_err(|error| self.core.note_failure(error))?;
        self.note_components();
        // Merges that the policy wanted meanwhile were put off.
        if self.is_in_background() {
            self.after_flush();
        }
        Ok(())
    }
}
