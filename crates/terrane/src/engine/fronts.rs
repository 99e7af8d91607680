//! Merges for which there is no room: by front parts, each of which frees more than it takes.

use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::index::Cancellation;

use super::{DatasetHandle, Engine};
use crate::{Error, Result};

/// Bytes of the first part. Each of the next ones has twice as many, as there is more room then.
const PART: u64 = 1 << 20;
/// The least and the most; nor less than one of so many parts of all, as each is a component that the manifest describes.
const PART_MIN: u64 = 16 << 10;
const PART_MAX: u64 = 256 << 20;
const PARTS_MAX: u64 = 64;
/// An index is merged so if one of so many entries is anti-matter at least: each takes another one along.
const WORTHWHILE: u64 = 32;

impl Engine {
    /// Merges what deletes have left to be freed in all datasets, by front parts; whether anything was. For where there is no
    /// room even with the reserve, which flushes have first.
    pub fn make_way(&self) -> bool {
        let datasets: Vec<_> = self.datasets.load().values().cloned().collect();
        let merged = datasets.iter().map(|dataset| self.merge_fronts(dataset));
        let any = merged
            .fold(false, |any, merged| any | merged.inspect_err(|error| self.note_failure(error)).unwrap_or(false));
        // Before those who waited for it take what was freed.
        self.restore_reserve();
        any
    }

    /// The same for the indexes of one dataset.
    pub fn merge_fronts(&self, dataset: &DatasetHandle) -> Result<bool> {
        let mut any = false;
        for partition in 0..dataset.partitions.count() {
            // Not in the head of the loop, which would keep the version, and with it the files as they are.
            let places = dataset.partitions.version(partition).indexes.len();
            for place in 0..places {
                any |= self.merge_index_by_fronts(dataset, (partition, place), &self.maintenance.cancellation)?;
            }
        }
        Ok(any)
    }

    /// Whether deletes have left a good part of an index of a partition to be freed.
    pub fn has_much_to_free(&self, dataset: &DatasetHandle, place: (usize, usize)) -> bool {
        is_worthwhile(&metas(dataset, place))
    }

    /// Merges the components of an index of a partition by front parts, until they are used up or there is no room even for that, if it
    /// frees enough; whether it did.
    pub fn merge_index_by_fronts(
        &self,
        dataset: &DatasetHandle,
        (partition, place): (usize, usize),
        cancellation: &Cancellation,
    ) -> Result<bool> {
        let (partitions, workshop) = (&dataset.partitions, &self.workshop);
        let metas = || metas(dataset, (partition, place));
        let before = metas();
        let mut is_wanted = is_worthwhile(&before);
        let part_min = PART_MIN.max(before.iter().map(ComponentMeta::bytes).sum::<u64>() / PARTS_MAX);
        let mut part = PART.max(part_min);
        // What earlier merges have taken may have been kept by readers.
        let mut any = partitions
            .version(partition)
            .components(place)
            .iter()
            .fold(false, |any, component| any | component.file().give_up_kept());
        while is_wanted {
            let merge = || partitions.merge_front(workshop, (partition, place), part, cancellation);
            match self.on_full_at_once(|| merge().map_err(Error::from)) {
                Err(Error::Full { .. }) if part > part_min => part = (part / 4).max(part_min),
                Err(Error::Full { .. }) | Ok(None) => break,
                Err(error) => return Err(error),
                Ok(Some(outcome)) => {
                    any = true;
                    self.maintenance.count_merge(&outcome);
                    is_wanted = has_begun(&metas());
                    part = (part * 2).min(PART_MAX);
                }
            }
        }
        Ok(any)
    }
}

/// The components of an index of a partition.
fn metas(dataset: &DatasetHandle, (partition, place): (usize, usize)) -> Vec<ComponentMeta> {
    let version = dataset.partitions.version(partition);
    version.components(place).iter().map(|part| part.file().meta().clone()).collect()
}

/// Whether a merge of these components would free a good part of them, or has begun to.
fn is_worthwhile(parts: &[ComponentMeta]) -> bool {
    let entries: u64 = parts.iter().map(|meta| meta.statistics.entries).sum();
    let antimatter: u64 = parts.iter().map(|meta| meta.statistics.antimatter).sum();
    has_begun(parts) || (antimatter > 0 && antimatter.saturating_mul(WORTHWHILE) >= entries)
}

fn has_begun(parts: &[ComponentMeta]) -> bool {
    parts.iter().any(|meta| meta.gone.is_some())
}
