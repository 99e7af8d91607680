//! Creates and drops indexes while the partitions are open, in all partitions of a dataset at once.
//!
//! A new index gets all changes after a moment, and the records from before it. The moment is a cut
//! between two generations: [`Partitions::begin_index`]. From then on it takes changes like every
//! other index, and its components are flushed and merged. Searches do not use it yet, and its
//! anti-matter is kept. The records from before the cut are loaded in bulk meanwhile, in sorted
//! runs ([`Partitions::keep_loaded`]). They become its oldest component:
//! [`Partitions::complete_index`].
//!
//! An interrupted load continues behind its runs and reads the current records. It may therefore
//! repeat entries of changes that the index has taken meanwhile. None of them contradicts the
//! index, since the index agrees with the records. But searches must find each entry once, so the
//! components are merged before searches use them.

use std::sync::Arc;

use super::install::{discard, discard_uninstalled};
use super::{IndexSlot, IndexVersion, MaintenanceContext, NumberedIndex, Partitions, Presence, Versions};
use crate::disk::ComponentMeta;
use crate::manifest::{IndexState, Loaded, Manifest};
use crate::{Error, Result};

/// How often writers are excluded for an index that continues, and admitted again because a merge
/// has begun. The last time they wait for the merge.
const EXCLUSIONS_MAX: u32 = 16;

impl Partitions {
    /// Adds an index that takes all changes after `cut`, the last sequence number given out;
    /// returns its slot. The caller excludes writers and has sealed everything at the cut.
    /// `change` makes further changes in the same manifest step.
    ///
    /// A crash leaves no index, or an empty one that is to be begun again ([`Self::resume_index`]).
    pub fn begin_index(
        &self,
        context: &MaintenanceContext,
        numbered: NumberedIndex,
        cut: u64,
        change: impl FnOnce(&mut Manifest) -> Result<()>,
    ) -> Result<usize> {
        let id = numbered.id;
        let index = IndexVersion { numbered, components: Vec::new(), presence: Presence::Building };
        // All fallible operations precede the step.
        let add = |versions: &mut Versions, partition| {
            versions.change(partition, |version| version.indexes.push(index.clone()));
        };
        let mut next = (*self.versions()).clone();
        (0..self.count).for_each(|partition| add(&mut next, partition));
        let active = self.next_generations(&next, cut)?;
        context.step(|manifest| {
            change(manifest)?;
            for partition in 0..self.count {
                let indexes = &mut self.state_mut(manifest, partition)?.indexes;
                if indexes.iter().any(|index| index.id == id) {
                    return Err(Error::Invalid(format!("index {id} is in the manifest already")));
                }
                indexes.push(IndexState { building: true, ..IndexState::new(id) });
            }
            Ok(())
        })?;
        let _exchange = self.exchange.lock();
        // Flushes and merges may have exchanged the version meanwhile. Nothing else adds indexes or
        // seals.
        let mut next = (*self.versions()).clone();
        for (partition, active) in active.into_iter().enumerate() {
            add(&mut next, partition);
            next.change(partition, |version| version.generations[0] = active);
        }
        let slot = next[0].indexes.len() - 1;
        self.versions.store(Arc::new(next));
        Ok(slot)
    }

    /// Continues with an index that was incomplete when the partitions were opened. In partitions
    /// without loaded runs, the index is emptied and takes all changes from now on; in the others
    /// nothing is lost.
    ///
    /// - `exclude` excludes writers, flushes everything, and returns a guard that admits them
    ///   again. The guard is dropped after the step and `begun`. No merge lock is held during
    ///   `exclude`, as flushes may merge to make room. If a merge has begun meanwhile, `exclude` is
    ///   called again, up to 16 times, so that writers do not wait for the merge.
    /// - Nothing happens if the index was dropped or completed before.
    /// - A crash leaves the index as it was, or emptied in the partitions without loaded runs.
    pub fn resume_index<G, E: From<Error>>(
        &self,
        context: &MaintenanceContext,
        slot: usize,
        mut exclude: impl FnMut() -> std::result::Result<G, E>,
        begun: impl FnOnce(),
    ) -> std::result::Result<(), E> {
        let mut left = EXCLUSIONS_MAX;
        let (_excluded, _merging) = loop {
            left -= 1;
            self.merging.iter().for_each(|merging| drop(merging.lock()));
            let excluded = exclude()?;
            let free: Option<Vec<_>> = self.merging.iter().map(|merging| merging.try_lock()).collect();
            if let Some(merging) = free {
                break (excluded, merging);
            }
            if left == 0 {
                break (excluded, self.merging.iter().map(|merging| merging.lock()).collect());
            }
        };
        if !self.version(0).indexes[slot].is_building() {
            return Ok(());
        }
        let begun_anew = context.step(|manifest| {
            let mut begun_anew = Vec::new();
            for partition in 0..self.count {
                let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, slot) else { continue };
                match &mut index.loaded {
                    Some(loaded) => loaded.overlaps = true,
                    None => {
                        index.components.clear();
                        begun_anew.push(partition);
                    }
                }
            }
            Ok(begun_anew)
        })?;
        self.empty_index(slot, &begun_anew, Presence::Building);
        begun();
        Ok(())
    }

    /// The progress of loading an index in a partition.
    pub fn loaded(
        &self,
        context: &MaintenanceContext,
        IndexSlot { partition, slot }: IndexSlot,
    ) -> Result<Option<Loaded>> {
        let mut manifest = (*context.manifest.current()).clone();
        let index = self.listed_mut(self.state_mut(&mut manifest, partition)?, slot);
        Ok(index.and_then(|index| index.loaded.take()))
    }

    /// Adds runs of a load of an index in a partition. From now on the runs have the entries of all
    /// records with keys before `next_key`, or of all records. The components that they were made
    /// from are on disk. If the step fails, or the index was dropped (returns false), the files are
    /// removed.
    pub fn keep_loaded(
        &self,
        context: &MaintenanceContext,
        IndexSlot { partition, slot }: IndexSlot,
        runs: &[ComponentMeta],
        next_key: Option<&[u8]>,
    ) -> Result<bool> {
        let kept = context.step(|manifest| {
            let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, slot) else { return Ok(false) };
            let loaded = index.loaded.get_or_insert_default();
            loaded.runs.extend_from_slice(runs);
            loaded.next_key = next_key.map(<[u8]>::to_vec);
            Ok(true)
        });
        if !kept.inspect_err(|_| discard_uninstalled(context, runs))? {
            discard(context, runs);
            return Ok(false);
        }
        Ok(true)
    }

    /// Discards the loaded runs of an incomplete index, so that it is begun anew.
    pub fn forget_loaded(&self, context: &MaintenanceContext, slot: usize) -> Result<()> {
        let runs = context.step(|manifest| self.take_runs(manifest, slot))?;
        discard(context, &runs);
        Ok(())
    }

    fn take_runs(&self, manifest: &mut Manifest, slot: usize) -> Result<Vec<ComponentMeta>> {
        let mut runs = Vec::new();
        for partition in 0..self.count {
            let index = self.listed_mut(self.state_mut(manifest, partition)?, slot);
            runs.extend(index.and_then(|index| index.loaded.take()).into_iter().flat_map(|loaded| loaded.runs));
        }
        Ok(runs)
    }

    /// Gives an index its oldest components, with the records from before it was begun: one for
    /// each partition that has none yet. From here on new snapshots can search it. If components
    /// may repeat entries, they have to be merged first, see [`Self::finish_index`]. The files of
    /// runs are removed. If the step fails, or the index was dropped (returns false), the files of
    /// the components are removed.
    pub fn complete_index(
        &self,
        context: &MaintenanceContext,
        slot: usize,
        metas: &[Option<ComponentMeta>],
    ) -> Result<bool> {
        if metas.len() != self.count {
            return Err(Error::Invalid(format!("{} components for {} partitions", metas.len(), self.count)));
        }
        let given = || metas.iter().flatten();
        let open = |(partition, meta): (usize, &Option<ComponentMeta>)| {
            meta.as_ref().map(|meta| self.version(partition).open_part(context, slot, meta)).transpose()
        };
        let opened = metas.iter().enumerate().map(open).collect::<Result<Vec<_>>>();
        let parts = opened.inspect_err(|_| discard(context, given()))?;
        let installed = context.step(|manifest| {
            let (mut old, mut overlaps) = (Vec::new(), false);
            for (partition, meta) in metas.iter().enumerate() {
                let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, slot) else {
                    return Ok(None);
                };
                let loaded = index.loaded.take().unwrap_or_default();
                overlaps |= loaded.overlaps;
                // A single run can be the component.
                let is_used = |run: &ComponentMeta| meta.as_ref().is_some_and(|meta| meta.file_id == run.file_id);
                old.extend(loaded.runs.into_iter().filter(|run| !is_used(run)));
                index.components.extend(meta.clone());
            }
            for partition in 0..self.count {
                let index = self.index_mut(self.state_mut(manifest, partition)?, slot)?;
                index.building = overlaps;
                index.loaded = overlaps.then_some(Loaded::OVERLAPPING);
            }
            Ok(Some((old, overlaps)))
        });
        let Some((old, overlaps)) = installed.inspect_err(|_| discard_uninstalled(context, given()))? else {
            discard(context, given());
            return Ok(false);
        };
        discard(context, &old);
        let _exchange = self.exchange.lock();
        let mut next = (*self.versions()).clone();
        if next[0].indexes[slot].is_dropped() {
            parts.iter().flatten().for_each(|part| part.file().set_obsolete());
            return Ok(false);
        }
        for (partition, part) in parts.into_iter().enumerate() {
            next.change(partition, |version| {
                let index = &mut version.indexes[slot];
                index.components.extend(part);
                index.presence = if overlaps { Presence::Loaded } else { Presence::Whole };
            });
        }
        self.versions.store(Arc::new(next));
        Ok(true)
    }

    /// Makes an index visible to new snapshots after its components were merged. False if it was
    /// dropped.
    pub fn finish_index(&self, context: &MaintenanceContext, slot: usize) -> Result<bool> {
        let is_there = context.step(|manifest| {
            for partition in 0..self.count {
                let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, slot) else {
                    return Ok(false);
                };
                index.building = false;
                index.loaded = None;
            }
            Ok(true)
        })?;
        let _exchange = self.exchange.lock();
        let mut next = (*self.versions()).clone();
        if !is_there || next[0].indexes[slot].is_dropped() {
            return Ok(false);
        }
        for partition in 0..self.count {
            next.change(partition, |version| version.indexes[slot].presence = Presence::Whole);
        }
        self.versions.store(Arc::new(next));
        Ok(true)
    }

    /// Removes an index. Snapshots that see it can search it until they end. The caller excludes
    /// writers and has flushed everything, since memory components of a dropped index are never
    /// flushed.
    pub fn drop_index(
        &self,
        context: &MaintenanceContext,
        slot: usize,
        change: impl FnOnce(&mut Manifest) -> Result<()>,
    ) -> Result<()> {
        let id = self.version(0).indexes[slot].numbered.id;
        let runs = context.step(|manifest| {
            change(manifest)?;
            let runs = self.take_runs(manifest, slot)?;
            for partition in 0..self.count {
                self.state_mut(manifest, partition)?.indexes.retain(|index| index.id != id);
            }
            Ok(runs)
        })?;
        discard(context, &runs);
        self.empty_index(slot, &(0..self.count).collect::<Vec<_>>(), Presence::Dropped);
        Ok(())
    }

    /// Removes all disk components of an index in some partitions, which the manifest no longer
    /// names. The last readers remove their files (I6), and not under the lock.
    fn empty_index(&self, slot: usize, partitions: &[usize], presence: Presence) {
        let old = {
            let _exchange = self.exchange.lock();
            let mut next = (*self.versions()).clone();
            let empty = |&partition: &usize| {
                next.change(partition, |version| {
                    let index = &mut version.indexes[slot];
                    index.presence = presence.clone();
                    std::mem::take(&mut index.components)
                })
            };
            let old: Vec<_> = partitions.iter().flat_map(empty).collect();
            self.versions.store(Arc::new(next));
            old
        };
        old.iter().for_each(|part| part.file().set_obsolete());
    }
}
