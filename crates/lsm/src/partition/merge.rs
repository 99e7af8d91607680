//! Merges: neighbouring components of an index of a partition become one.

use std::ops::Range;
use std::sync::Arc;

use super::install::{discard, discard_uninstalled};
use super::{IndexSlot, IndexVersion, MaintenanceContext, Partitions, Version};
use crate::disk::ComponentMeta;
use crate::index::{Cancellation, DiskPart};
use crate::policy::MergePolicy;
use crate::{Error, Result};
use terrane_storage::sync::MutexGuard;

/// The result of a merge.
#[derive(Clone, Debug, Default)]
pub struct MergeOutcome {
    /// Number of merged components.
    pub components: usize,
    /// Number of new components, 0 if nothing was left.
    pub components_left: usize,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl Partitions {
    /// Whether an index has more than `times` as many components as the policy wants.
    pub fn is_behind(&self, policy: &MergePolicy, times: usize) -> bool {
        let versions = self.versions.load();
        let mut indexes = versions.iter().flat_map(|version| &version.indexes);
        indexes.any(|index| policy.is_behind(&sizes(&index.components), times))
    }

    /// Runs the merge that the policy wants first in a partition. It prefers more components, but
    /// no more than have their longest pages, one of each, in `bytes_max`; two are always allowed.
    /// `None` if the policy wants none, another merge is in progress or this was cancelled.
    pub fn merge(
        &self,
        context: &MaintenanceContext,
        partition: usize,
        policy: &MergePolicy,
        bytes_max: u64,
        cancellation: &Cancellation,
    ) -> Result<Option<MergeOutcome>> {
        let indexes = &self.versions.load()[partition].indexes;
        if !indexes.iter().any(|index| policy.choose(&sizes(&index.components)).is_some()) {
            return Ok(None);
        }
        // Chosen under the lock, or another merge might have put other components in these places.
        // A compaction asks the policy again when it is done, and merges of other partitions do not
        // wait for it.
        let Some(merging) = self.merging[partition].try_lock() else { return Ok(None) };
        let version = self.version(partition);
        let wanted = version.indexes.iter().enumerate().filter_map(|(slot, index)| {
            let parts = &index.components;
            let range = policy.choose(&sizes(parts))?;
            let count = merged_at_once(longest_pages(&parts[range.clone()]).rev(), bytes_max);
            Some((slot, range.end - count..range.end))
        });
        // Of equal ones the first.
        let Some((slot, range)) = wanted.reduce(|one, other| if other.1.len() > one.1.len() { other } else { one })
        else {
            return Ok(None);
        };
        let at = IndexSlot { partition, slot };
        self.merge_range(&merging, context, at, version, range, cancellation)
    }

    /// Merges in all partitions, one after the other, until there are few components; returns the
    /// number of merges. For use if too many files are open: each merge opens one file and closes
    /// several.
    pub fn merge_to_fewest(
        &self,
        context: &MaintenanceContext,
        bytes_max: u64,
        cancellation: &Cancellation,
        merged: &dyn Fn(&MergeOutcome),
    ) -> Result<usize> {
        let mut count = 0;
        for partition in 0..self.count {
            while let Some(outcome) = self.merge(context, partition, &MergePolicy::FEWEST, bytes_max, cancellation)? {
                merged(&outcome);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Merges the `count` oldest components of an index of a partition into one, or all if there
    /// are fewer by now. A single one is merged only if that drops something. It takes several
    /// merges if the longest pages, one of each, exceed `bytes_max`. `None` if there was nothing to
    /// do or it was cancelled.
    pub fn merge_oldest(
        &self,
        context: &MaintenanceContext,
        at: IndexSlot,
        count: usize,
        bytes_max: u64,
        cancellation: &Cancellation,
    ) -> Result<Option<MergeOutcome>> {
        let merging = self.merging[at.partition].lock();
        let mut total: Option<MergeOutcome> = None;
        let mut left = count;
        loop {
            // Flushes add components in front of these meanwhile, and nothing else changes them.
            let version = self.version(at.partition);
            let parts = version.components(at.slot);
            let newer = parts.len().saturating_sub(left);
            left = parts.len() - newer;
            let step = match &parts[newer..] {
                [] => return Ok(total),
                // The result of the last merge has nothing left to drop.
                [_] if total.is_some() => return Ok(total),
                [only] => {
                    let meta = only.file().meta();
                    if meta.statistics.antimatter == 0 && !meta.has_sequences {
                        return Ok(None);
                    }
                    0..1
                }
                oldest => step_to_one(&longest_pages(oldest).collect::<Vec<_>>(), &sizes(oldest), bytes_max),
            };
            let range = newer + step.start..newer + step.end;
            let Some(merged) = self.merge_range(&merging, context, at, version, range, cancellation)? else {
                return Ok(None);
            };
            left -= merged.components - merged.components_left;
            let sum = total.get_or_insert_default();
            sum.components += merged.components;
            sum.components_left = merged.components_left;
            sum.bytes_read += merged.bytes_read;
            sum.bytes_written += merged.bytes_written;
        }
    }

    /// Merges neighbouring components in the version of a partition. Flushes may have made a newer
    /// version meanwhile. `None` if it was cancelled.
    fn merge_range(
        &self,
        _merging: &MutexGuard<'_, ()>,
        context: &MaintenanceContext,
        at: IndexSlot,
        version: Arc<Version>,
        range: Range<usize>,
        cancellation: &Cancellation,
    ) -> Result<Option<MergeOutcome>> {
        let _running = context.merges.begin();
        let is_oldest = version.is_oldest(at.slot, range.end);
        let IndexVersion { numbered, components: parts, .. } = version.indexes[at.slot].clone();
        // It would keep memory components that are flushed meanwhile.
        drop(version);
        let chosen = &parts[range.clone()];
        let writer = context.writer()?;
        let Some(meta) = numbered.index.merge(chosen, writer, is_oldest, cancellation)? else {
            return Ok(None);
        };
        let empty = meta.statistics.entries + meta.statistics.antimatter == 0;
        if empty {
            discard(context, [&meta]);
        }
        if !self.exchange_components(context, at, chosen, (!empty).then_some(&meta))? {
            // The index was dropped, and the merged component with it.
            return Ok(None);
        }
        let bytes_read = chosen.iter().map(|part| part.file().meta().file_len).sum();
        Ok(Some(MergeOutcome {
            components: chosen.len(),
            components_left: usize::from(!empty),
            bytes_read,
            bytes_written: meta.file_len,
        }))
    }

    /// Replaces several components by one or none. The last readers of the files remove them (I6).
    /// Flushes may add newer components meanwhile, so the old ones are found by their ids. The new
    /// file is removed if the step fails, or if the index or its dataset was dropped (returns
    /// false).
    fn exchange_components(
        &self,
        context: &MaintenanceContext,
        IndexSlot { partition, slot }: IndexSlot,
        old: &[Arc<dyn DiskPart>],
        meta: Option<&ComponentMeta>,
    ) -> Result<bool> {
        let opened = meta.map(|meta| self.version(partition).open_part(context, slot, meta)).transpose();
        let part = opened.inspect_err(|_| discard(context, meta))?;
        let ids: Vec<u64> = old.iter().map(|part| part.file().meta().file_id).collect();
        let installed = context.step(|manifest| {
            let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, slot) else { return Ok(false) };
            let stored = index.components.iter().map(|meta| meta.file_id);
            let range = place_of(stored, &ids)?;
            index.components.splice(range, meta.cloned());
            Ok(true)
        });
        let installed = if matches!(installed, Err(Error::Dropped)) { Ok(false) } else { installed };
        if !installed.inspect_err(|_| discard_uninstalled(context, meta))? {
            discard(context, meta);
            return Ok(false);
        }
        // From here on the new file belongs to the store in any case.
        let _exchange = self.exchange.lock();
        let mut next = (*self.versions()).clone();
        if next[partition].indexes[slot].is_dropped() {
            part.iter().for_each(|part| part.file().set_obsolete());
            return Ok(false);
        }
        next.change(partition, |version| {
            let components = &mut version.indexes[slot].components;
            let range = place_of(components.iter().map(|part| part.file().meta().file_id), &ids)?;
            components.splice(range, part);
            Ok::<_, Error>(())
        })?;
        self.versions.store(Arc::new(next));
        old.iter().for_each(|part| part.file().set_obsolete());
        Ok(true)
    }
}

/// The range of the neighbouring components `ids` among all; behind all if `ids` is empty.
fn place_of(all: impl ExactSizeIterator<Item = u64>, ids: &[u64]) -> Result<Range<usize>> {
    let all: Vec<u64> = all.collect();
    let Some(first) = ids.first() else { return Ok(all.len()..all.len()) };
    let start = all.iter().position(|id| id == first).unwrap_or(all.len());
    match all.get(start..start + ids.len()) {
        Some(found) if found == ids => Ok(start..start + ids.len()),
        _ => Err(Error::Invalid("the merged components are no longer neighbours".into())),
    }
}

/// How many components are merged at once. A merge holds one page of each, so as many as have their
/// longest pages in `bytes_max`, and at least two if there are two.
pub fn merged_at_once(longest_pages: impl Iterator<Item = u32>, bytes_max: u64) -> usize {
    let mut sum = 0;
    let fits = |(number, bytes): (usize, u32)| {
        sum += u64::from(bytes);
        (number < 2 || sum <= bytes_max).then_some(())
    };
    longest_pages.enumerate().map_while(fits).count()
}

/// The next of the merges that turn several components, given their longest pages and sizes, into
/// one. It merges neighbours whose longest pages fit `bytes_max`, or two, with the fewest bytes per
/// component removed. The first merge is small enough that the last ones are as large as possible.
fn step_to_one(longest_pages: &[u32], sizes: &[u64], bytes_max: u64) -> Range<usize> {
    let all = sizes.len();
    let fitting = |end: usize| merged_at_once(longest_pages[..end].iter().rev().copied(), bytes_max);
    let most = (2..=all).map(fitting).max().unwrap_or(all);
    if most >= all {
        return 0..all;
    }
    let count = (all - 2) % (most - 1) + 2;
    let candidates = (2..=all).rev().map(|end| end - fitting(end).min(count)..end);
    let cost = |range: &Range<usize>| sizes[range.clone()].iter().sum::<u64>() / (range.len() as u64 - 1);
    candidates.min_by_key(cost).unwrap_or(0..all)
}

fn longest_pages(parts: &[Arc<dyn DiskPart>]) -> impl DoubleEndedIterator<Item = u32> {
    parts.iter().map(|part| part.file().meta().page_len_max)
}

/// Bytes of each component.
fn sizes(parts: &[Arc<dyn DiskPart>]) -> Vec<u64> {
    parts.iter().map(|part| part.file().meta().file_len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_hold_one_page_of_each_component_within_their_memory() {
        let count = |pages: &[u32], bytes_max| merged_at_once(pages.iter().copied(), bytes_max);
        assert_eq!(count(&[10, 10, 10, 10], 100), 4);
        assert_eq!(count(&[10, 10, 10, 10], 35), 3);
        assert_eq!(count(&[90, 90, 10], 35), 2, "two are always merged");
        assert_eq!(count(&[1], 0), 1);
    }

    /// Merges in steps until one is left; returns the number merged in each step, and the bytes
    /// merged.
    fn merge_to_one(pages: &[u32], sizes: &[u64], bytes_max: u64) -> (Vec<usize>, u64) {
        let (mut pages, mut sizes) = (pages.to_vec(), sizes.to_vec());
        let (mut steps, mut bytes) = (Vec::new(), 0);
        while sizes.len() > 1 {
            let range = step_to_one(&pages, &sizes, bytes_max);
            let held = pages[range.clone()].iter().map(|page| u64::from(*page)).sum::<u64>();
            assert!(range.len() == 2 || (range.len() > 2 && held <= bytes_max), "{range:?} of {pages:?}");
            let (page, size) = (*pages[range.clone()].iter().max().unwrap(), sizes[range.clone()].iter().sum());
            steps.push(range.len());
            bytes += size;
            pages.splice(range.clone(), [page]);
            sizes.splice(range, [size]);
        }
        (steps, bytes)
    }

    #[test]
    fn components_become_one_in_steps_within_their_memory() {
        assert_eq!(merge_to_one(&[10; 8], &[5; 8], 80), (vec![8], 40), "all at once if they fit");
        assert_eq!(merge_to_one(&[10; 9], &[5; 9], 80).0, [2, 8], "the largest merge is a full one");
        let (steps, bytes) = merge_to_one(&[90; 16], &[1; 16], 80);
        assert_eq!((steps.len(), bytes), (15, 64), "two at a time, each byte four times");
        // A large old component is not merged again and again.
        let large: Vec<u64> = [&[1; 20][..], &[1000]].concat();
        assert_eq!(merge_to_one(&[10; 21], &large, 50).1.div_ceil(1000), 2);
        // Long pages among short ones.
        let mut pages = [10; 30];
        pages[7] = 70;
        pages[20] = 90;
        merge_to_one(&pages, &[4; 30], 80);
    }
}
