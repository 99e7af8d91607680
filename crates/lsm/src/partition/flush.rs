//! Flush and merge: the two ways in which the components of a partition change.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::snapshot::NewPart;
use super::{Generation, IndexVersion, Partition, Presence, Version};
use crate::disk::{ComponentFile, ComponentMeta, ComponentWriter, PageCache};
use crate::index::{Cancellation, DiskPart, FlushPlan};
use crate::manifest::{IndexState, Manifest, ManifestFile, PartitionState};
use crate::policy::MergePolicy;
use crate::{Error, Result};
use terrane_storage::Storage;
use terrane_storage::sync::{AtomicU64, MutexGuard, Ordering};

/// What flush and merge need of the store.
#[derive(Clone, Debug)]
pub struct Workshop {
    /// Where files go.
    pub storage: Arc<dyn Storage>,
    /// The cache of new components.
    pub cache: Arc<PageCache>,
    /// The manifest.
    pub manifest: Arc<ManifestFile>,
    /// The next file id.
    pub next_file_id: Arc<AtomicU64>,
}

impl Workshop {
    /// A writer for a new component.
    pub fn writer(&self) -> Result<ComponentWriter> {
        ComponentWriter::create(&self.storage, self.next_file_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a component that was just written.
    pub fn file(&self, meta: &ComponentMeta) -> Result<Arc<ComponentFile>> {
        ComponentFile::open(&self.storage, &self.cache, meta)
    }

    /// A manifest step.
    pub fn step<T>(&self, change: impl FnOnce(&mut Manifest) -> Result<T>) -> Result<T> {
        self.manifest.update(|manifest| {
            manifest.next_file_id = manifest.next_file_id.max(self.next_file_id.load(Ordering::Relaxed));
            change(manifest)
        })
    }
}

/// What a flush did.
#[derive(Clone, Debug, Default)]
pub struct FlushOutcome {
    /// Bytes of the new components.
    pub bytes_written: u64,
    /// Live entries in them.
    pub entries: u64,
}

/// What a merge did.
#[derive(Clone, Debug, Default)]
pub struct MergeOutcome {
    /// Components that went in.
    pub components: usize,
    /// One that came out, or none if they held nothing together.
    pub components_left: usize,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl Partition {
    /// Writes the oldest sealed generation to disk and installs it. `wait_visible` waits until
    /// every change up to a sequence number is applied and durable (I3); `low_water` tells
    /// what the manifest should say of the log once this generation is on disk.
    ///
    /// What a crash leaves: before the manifest step, component files that no manifest names,
    /// which the next open removes; after it, all new components and the new cut.
    pub fn flush(
        &self,
        workshop: &Workshop,
        wait_visible: &dyn Fn(u64) -> Result<()>,
        low_water: &dyn Fn(&mut Manifest),
    ) -> Result<Option<FlushOutcome>> {
        let _flushing = self.flushing.lock();
        let version = self.version();
        let Some(generation) = version.generations[1..].last().cloned() else { return Ok(None) };
        let sequence = generation.sequence()?;
        wait_visible(sequence.1)?;
        generation.end_changes();
        // From here on every new snapshot sees at least the cut, so these are all that lie inside.
        let snapshots = self.snapshots.sequences_below(sequence.1);
        let metas = self.write_generation(workshop, &version, &generation, snapshots)?;
        let all = || metas.iter().flatten();
        let mut parts = self.open_parts(workshop, &metas).inspect_err(|_| discard(workshop, all()))?;
        let sources = generation.sources_after(&version.sources);
        let installed = workshop.step(|manifest| {
            let state = self.state_mut(manifest)?;
            state.flushed_sequence = sequence.1;
            state.sources.clone_from(&sources);
            let dropped = self.add_components(state, &metas);
            manifest.last_sequence = manifest.last_sequence.max(sequence.1);
            low_water(manifest);
            Ok(dropped)
        });
        for place in installed.inspect_err(|_| discard_uninstalled(workshop, all()))? {
            parts[place] = None;
            discard(workshop, &metas[place]);
        }
        self.install_flushed(&generation, &parts, sequence.1, sources)?;
        Ok(Some(FlushOutcome {
            bytes_written: all().map(|meta| meta.file_len).sum(),
            entries: all().next().map_or(0, |meta| meta.statistics.entries),
        }))
    }

    fn write_generation(
        &self,
        workshop: &Workshop,
        version: &Version,
        generation: &Arc<Generation>,
        snapshots: Vec<u64>,
    ) -> Result<Vec<Option<ComponentMeta>>> {
        let sequence = generation.sequence()?;
        let mut metas = Vec::with_capacity(generation.places());
        for (place, index) in version.indexes.iter().enumerate().take(generation.places()) {
            let Some(memory) = generation.memory(place).filter(|_| !index.is_dropped()) else {
                metas.push(None);
                continue;
            };
            let plan = FlushPlan { snapshots: snapshots.clone(), is_oldest: version.is_oldest(place, 0), sequence };
            let meta = workshop.writer().and_then(|writer| index.numbered.index.flush(memory, writer, &plan));
            match meta {
                Ok(meta) => metas.push(Some(meta)),
                Err(error) => {
                    discard(workshop, metas.iter().flatten());
                    return Err(error);
                }
            }
        }
        Ok(metas)
    }

    /// Opens the new components of the indexes at their places.
    fn open_parts(&self, workshop: &Workshop, metas: &[Option<ComponentMeta>]) -> Result<Vec<NewPart>> {
        let version = self.version();
        let open = |(place, meta): (usize, &Option<ComponentMeta>)| {
            meta.as_ref().map(|meta| version.open_part(workshop, place, meta)).transpose()
        };
        metas.iter().enumerate().map(open).collect()
    }

    fn install_flushed(
        &self,
        generation: &Arc<Generation>,
        parts: &[NewPart],
        flushed_sequence: u64,
        sources: BTreeMap<u32, u64>,
    ) -> Result<()> {
        {
            let _exchange = self.exchange.lock();
            let next = self.version.load().with_flushed(generation, parts);
            let mut next = next.ok_or_else(|| Error::Invalid("a flushed generation is not in the version".into()))?;
            (next.flushed_sequence, next.sources) = (flushed_sequence, Arc::new(sources));
            // Its index was dropped after the step that named it.
            let late = next.indexes.iter().zip(parts).filter(|(index, _)| index.is_dropped());
            late.filter_map(|(_, part)| part.as_ref()).for_each(|part| part.file().set_obsolete());
            self.version.store(Arc::new(next));
        }
        self.snapshots.replace(generation, parts);
        Ok(())
    }

    /// Adds components that were loaded in bulk, of the indexes at their places, as the newest. The caller
    /// has flushed everything that is older, and lets no writer in between; `before_visible` is called
    /// when `change` and the components are durable and nobody sees the components yet. What their own
    /// descriptions cannot know is said here: that all of their records have this number. After an error
    /// the files are not in the manifest, unless [`ManifestFile::has_failed`] says that they may be.
    pub fn install_loaded(
        &self,
        workshop: &Workshop,
        metas: &[Option<ComponentMeta>],
        sequence: u64,
        change: impl FnOnce(&mut Manifest) -> Result<()>,
        before_visible: impl FnOnce(),
    ) -> Result<()> {
        let mut metas = metas.to_vec();
        metas.iter_mut().flatten().for_each(|meta| meta.statistics.sequence = (sequence, sequence));
        let parts = self.open_parts(workshop, &metas)?;
        // The active generation is empty; its successor begins after the loaded records.
        let active = self.version().next_generation(sequence)?;
        workshop.step(|manifest| {
            change(manifest)?;
            let state = self.state_mut(manifest)?;
            state.flushed_sequence = sequence;
            state.loads += 1;
            self.add_components(state, &metas);
            manifest.last_sequence = manifest.last_sequence.max(sequence);
            Ok(())
        })?;
        // From here on nothing can fail, so memory and manifest agree.
        before_visible();
        let _exchange = self.exchange.lock();
        let mut next = (*self.version()).clone();
        next.add_newest(&parts);
        next.flushed_sequence = sequence;
        next.generations = vec![Arc::new(active)];
        self.version.store(Arc::new(next));
        Ok(())
    }

    /// Exchanges all components of one index for `meta`, as a repair does, whatever the manifest
    /// has there. The caller has flushed everything, and lets no writer in between. The new file
    /// is removed if the step does not happen.
    pub fn replace_index(&self, workshop: &Workshop, place: usize, meta: &ComponentMeta) -> Result<()> {
        let _merging = self.merging.lock();
        let new = [meta];
        let opened = self.version().open_part(workshop, place, meta);
        let part = opened.inspect_err(|_| discard(workshop, new))?;
        let installed = workshop.step(|manifest| {
            let index = self.index_mut(self.state_mut(manifest)?, place)?;
            index.components = vec![meta.clone()];
            index.building = false;
            Ok(())
        });
        installed.inspect_err(|_| discard_uninstalled(workshop, new))?;
        let old = {
            let _exchange = self.exchange.lock();
            let mut next = (*self.version()).clone();
            let index = &mut next.indexes[place];
            let old = std::mem::replace(&mut index.components, vec![part]);
            index.presence = Presence::Whole;
            self.version.store(Arc::new(next));
            old
        };
        // Not under the lock, as the last reader to let go of a file removes it.
        old.iter().for_each(|part| part.file().set_obsolete());
        Ok(())
    }

    /// Whether an index has more than `times` as many components as the policy wants.
    pub fn is_behind(&self, policy: &MergePolicy, times: usize) -> bool {
        self.version.load().indexes.iter().any(|index| policy.is_behind(&sizes(&index.components), times))
    }

    /// Makes the merge that the policy wants first, most components before fewer, but of no more than
    /// have their longest pages, one of each, in `bytes_max`, or two. `None` when it wants none, another
    /// merge is under way or this was cancelled.
    pub fn merge(
        &self,
        workshop: &Workshop,
        policy: &MergePolicy,
        bytes_max: u64,
        cancellation: &Cancellation,
    ) -> Result<Option<MergeOutcome>> {
        if !self.version.load().indexes.iter().any(|index| policy.choose(&sizes(&index.components)).is_some()) {
            return Ok(None);
        }
        // Chosen under the lock, or another merge might have put other components in these places. Who compacts has the
        // policy asked when that is done, and merges of other partitions do not wait for it.
        let Some(merging) = self.merging.try_lock() else { return Ok(None) };
        let version = self.version();
        let wanted = version.indexes.iter().enumerate().filter_map(|(place, index)| {
            let parts = &index.components;
            let range = policy.choose(&sizes(parts))?;
            let count = merged_at_once(longest_pages(&parts[range.clone()]).rev(), bytes_max);
            Some((place, range.end - count..range.end))
        });
        // Of equal ones the first.
        let Some((place, range)) = wanted.reduce(|one, other| if other.1.len() > one.1.len() { other } else { one })
        else {
            return Ok(None);
        };
        self.merge_range(&merging, workshop, version, place, range, cancellation)
    }

    /// Merges the `count` oldest components of an index into one, or all if they are fewer by now; a single
    /// one only if that leaves something out. It takes several merges where the longest pages, one of
    /// each, are more than `bytes_max`. `None` when there was nothing to do or it was cancelled.
    pub fn merge_oldest(
        &self,
        workshop: &Workshop,
        place: usize,
        count: usize,
        bytes_max: u64,
        cancellation: &Cancellation,
    ) -> Result<Option<MergeOutcome>> {
        let merging = self.merging.lock();
        let mut total: Option<MergeOutcome> = None;
        let mut left = count;
        loop {
            // Flushes add components in front of these meanwhile, and nobody else changes them.
            let version = self.version();
            let parts = version.components(place);
            let newer = parts.len().saturating_sub(left);
            left = parts.len() - newer;
            let step = match &parts[newer..] {
                [] => return Ok(total),
                // What was merged just now leaves nothing out.
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
            let Some(merged) = self.merge_range(&merging, workshop, version, place, range, cancellation)? else {
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

    /// Merges neighbouring components of `version`, of which flushes may have made a newer one
    /// meanwhile. `None` when it was cancelled.
    fn merge_range(
        &self,
        _merging: &MutexGuard<'_, ()>,
        workshop: &Workshop,
        version: Arc<Version>,
        place: usize,
        range: Range<usize>,
        cancellation: &Cancellation,
    ) -> Result<Option<MergeOutcome>> {
        let is_oldest = version.is_oldest(place, range.end);
        let IndexVersion { numbered, components: parts, .. } = version.indexes[place].clone();
        // It would keep memory components that are flushed meanwhile.
        drop(version);
        let chosen = &parts[range.clone()];
        let writer = workshop.writer()?;
        let Some(meta) = numbered.index.merge(chosen, writer, is_oldest, cancellation)? else {
            return Ok(None);
        };
        let empty = meta.statistics.entries + meta.statistics.antimatter == 0;
        if empty {
            discard(workshop, [&meta]);
        }
        if !self.exchange_components(workshop, place, chosen, (!empty).then_some(&meta))? {
            // The index was dropped, and what came of its components is gone with it.
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

    /// Puts one component, or none, in the place of several; their files go when their last
    /// reader lets go of them (I6). Flushes may add newer components meanwhile, so the old
    /// ones are found by their ids. The new file is removed if the step does not happen, or the index was dropped, which
    /// is told by false.
    fn exchange_components(
        &self,
        workshop: &Workshop,
        place: usize,
        old: &[Arc<dyn DiskPart>],
        meta: Option<&ComponentMeta>,
    ) -> Result<bool> {
        let opened = meta.map(|meta| self.version().open_part(workshop, place, meta)).transpose();
        let part = opened.inspect_err(|_| discard(workshop, meta))?;
        let ids: Vec<u64> = old.iter().map(|part| part.file().meta().file_id).collect();
        let installed = workshop.step(|manifest| {
            let Some(index) = self.listed_mut(self.state_mut(manifest)?, place) else { return Ok(false) };
            let stored = index.components.iter().map(|meta| meta.file_id);
            let range = place_of(stored, &ids)?;
            index.components.splice(range, meta.cloned());
            Ok(true)
        });
        if !installed.inspect_err(|_| discard_uninstalled(workshop, meta))? {
            discard(workshop, meta);
            return Ok(false);
        }
        // The new file is the store's from here on, whatever happens.
        let _exchange = self.exchange.lock();
        let mut next = (*self.version()).clone();
        let index = &mut next.indexes[place];
        if index.is_dropped() {
            part.iter().for_each(|part| part.file().set_obsolete());
            return Ok(false);
        }
        let components = &mut index.components;
        let range = place_of(components.iter().map(|part| part.file().meta().file_id), &ids)?;
        components.splice(range, part);
        self.version.store(Arc::new(next));
        old.iter().for_each(|part| part.file().set_obsolete());
        Ok(true)
    }

    /// Adds new components, each as the newest of its index. Tells the places of indexes that are gone.
    fn add_components(&self, state: &mut PartitionState, metas: &[Option<ComponentMeta>]) -> Vec<usize> {
        let mut dropped = Vec::new();
        for (place, meta) in metas.iter().enumerate() {
            let Some(meta) = meta else { continue };
            match self.listed_mut(state, place) {
                Some(index) => index.components.insert(0, meta.clone()),
                None => dropped.push(place),
            }
        }
        dropped
    }

    /// What the manifest says of the index at a place, which it may list elsewhere.
    fn index_mut<'a>(&self, state: &'a mut PartitionState, place: usize) -> Result<&'a mut IndexState> {
        self.listed_mut(state, place).ok_or_else(|| Error::Invalid("an index is not in the manifest".into()))
    }

    /// As [`Self::index_mut`]; none of an index that was dropped.
    pub(super) fn listed_mut<'a>(&self, state: &'a mut PartitionState, place: usize) -> Option<&'a mut IndexState> {
        let id = self.version.load().indexes[place].numbered.id;
        state.indexes.iter_mut().find(|index| index.id == id)
    }

    pub(super) fn state_mut<'a>(&self, manifest: &'a mut Manifest) -> Result<&'a mut PartitionState> {
        let dataset = manifest.dataset_mut(self.dataset)?;
        let state = dataset.partitions.iter_mut().find(|state| state.id == self.id);
        state.ok_or_else(|| Error::Invalid(format!("partition {} is not in the manifest", self.id)))
    }
}

impl Version {
    /// Opens a component of the index at a place that was just written.
    pub(super) fn open_part(
        &self,
        workshop: &Workshop,
        place: usize,
        meta: &ComponentMeta,
    ) -> Result<Arc<dyn DiskPart>> {
        self.indexes[place].numbered.index.open(workshop.file(meta)?)
    }
}

/// Removes finished component files that will not be installed.
pub(super) fn discard<'m>(workshop: &Workshop, metas: impl IntoIterator<Item = &'m ComponentMeta>) {
    for meta in metas {
        // What cannot be removed is a stray, which the next open removes.
        let _ = workshop.storage.remove(&crate::disk::component_name(meta.file_id));
    }
}

/// Removes the component files of a manifest step that failed. Whether it reached the disk is
/// unknown only after a failed rename or sync; the manifest then takes no further step, and the
/// files stay. What no manifest names of them, the next open removes.
pub(super) fn discard_uninstalled<'m>(workshop: &Workshop, metas: impl IntoIterator<Item = &'m ComponentMeta>) {
    if !workshop.manifest.has_failed() {
        discard(workshop, metas);
    }
}

/// Where the neighbouring components `ids` lie among all; behind all if `ids` is empty.
fn place_of(all: impl ExactSizeIterator<Item = u64>, ids: &[u64]) -> Result<Range<usize>> {
    let all: Vec<u64> = all.collect();
    let Some(first) = ids.first() else { return Ok(all.len()..all.len()) };
    let start = all.iter().position(|id| id == first).unwrap_or(all.len());
    match all.get(start..start + ids.len()) {
        Some(found) if found == ids => Ok(start..start + ids.len()),
        _ => Err(Error::Invalid("the merged components are no longer neighbours".into())),
    }
}

/// How many components, of which a merge holds a page each, are merged at once: as many as have their
/// longest pages in `bytes_max`, and two if there are so many.
pub fn merged_at_once(longest_pages: impl Iterator<Item = u32>, bytes_max: u64) -> usize {
    let mut sum = 0;
    let fits = |(number, bytes): (usize, u32)| {
        sum += u64::from(bytes);
        (number < 2 || sum <= bytes_max).then_some(())
    };
    longest_pages.enumerate().map_while(fits).count()
}

/// What to merge next of several components, of which the pages and sizes are given, to make one of all
/// in the end: neighbours of which the longest pages are no more than `bytes_max`, but two, and the
/// fewest bytes for each component that goes. As few at first as leave the last merges as many as fit.
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

    /// Merges in steps until one is left; returns how many went into each and the bytes merged.
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
        // A large old one is not merged again and again.
        let large: Vec<u64> = [&[1; 20][..], &[1000]].concat();
        assert_eq!(merge_to_one(&[10; 21], &large, 50).1.div_ceil(1000), 2);
        // Long pages among short ones.
        let mut pages = [10; 30];
        pages[7] = 70;
        pages[20] = 90;
        merge_to_one(&pages, &[4; 30], 80);
    }
}
