//! Indexes that come and go while the partitions are open. They do so in all partitions of a dataset at once.
//!
//! A new index has to hold what comes from a moment on, and what was there before. The moment is a cut between two
//! generations: [`Partitions::begin_index`]. From then on it takes changes like every other index, and its components are
//! flushed and merged, but searches do not use it, and its anti-matter is kept. What was there at the cut is loaded in
//! bulk beside that, in sorted runs that are kept as they come ([`Partitions::keep_loaded`]), and becomes its oldest component:
//! [`Partitions::complete_index`].
//!
//! A load that is interrupted goes on after what is in its runs, and reads what is there by then. So of the changes that the index
//! has taken meanwhile, some entries come once more, from the records. None of them contradicts the index, as it agrees with
//! the records; but each is to be found once, and so the components are merged before searches use them.

use std::sync::Arc;

use super::install::{discard, discard_uninstalled};
use super::{IndexVersion, NumberedIndex, Partitions, Presence, Versions, Workshop};
use crate::disk::ComponentMeta;
use crate::manifest::{IndexState, Loaded, Manifest};
use crate::{Error, Result};

/// How often writers are kept out for an index that goes on, and let in again as a merge has begun; the last time they wait for it.
const EXCLUSIONS_MAX: u32 = 16;

impl Partitions {
    /// Adds an index that takes all changes after `cut`, the last sequence number given out, and tells its place. The
    /// caller lets no writer in, and has sealed everything at the cut; `change` is what else the manifest's step does.
    ///
    /// What a crash leaves: the index is not there, or has nothing and is to be begun again
    /// ([`Self::resume_index`]).
    pub fn begin_index(
        &self,
        workshop: &Workshop,
        numbered: NumberedIndex,
        cut: u64,
        change: impl FnOnce(&mut Manifest) -> Result<()>,
    ) -> Result<usize> {
        let id = numbered.id;
        let index = IndexVersion { numbered, components: Vec::new(), presence: Presence::Building };
        // Whatever can fail does so before the step.
        let add = |versions: &mut Versions, partition| {
            versions.change(partition, |version| version.indexes.push(index.clone()));
        };
        let mut next = (*self.versions()).clone();
        (0..self.count).for_each(|partition| add(&mut next, partition));
        let active = self.next_generations(&next, cut)?;
        workshop.step(|manifest| {
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
        // Flushes and merges may have exchanged the version meanwhile; nobody else adds indexes or seals.
        let mut next = (*self.versions()).clone();
        for (partition, active) in active.into_iter().enumerate() {
            add(&mut next, partition);
            next.change(partition, |version| version.generations[0] = active);
        }
        let place = next[0].indexes.len() - 1;
        self.versions.store(Arc::new(next));
        Ok(place)
    }

    /// Goes on with an index that was not complete when the partitions were opened. Of a partition of which nothing is loaded, what
    /// the index has goes, and it takes all changes from now on; of the others, nothing is lost. `exclude` keeps writers out,
    /// flushes everything, and returns what lets them in again, which is dropped behind the step and `begun`. No merge lock is held then, as
    /// flushes may merge to make room. So that writers do not wait for a merge, it is called anew if one has begun meanwhile, up to
    /// 16 times. Nothing happens if the index was dropped or completed before.
    ///
    /// What a crash leaves: what it had, or nothing of partitions of which nothing is loaded.
    pub fn resume_index<G, E: From<Error>>(
        &self,
        workshop: &Workshop,
        place: usize,
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
        if !self.version(0).indexes[place].is_building() {
            return Ok(());
        }
        let begun_anew = workshop.step(|manifest| {
            let mut begun_anew = Vec::new();
            for partition in 0..self.count {
                let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, place) else { continue };
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
        self.empty_index(place, &begun_anew, Presence::Building);
        begun();
        Ok(())
    }

    /// How far the load of an index has come in a partition.
    pub fn loaded(&self, workshop: &Workshop, partition: usize, place: usize) -> Result<Option<Loaded>> {
        let mut manifest = (*workshop.manifest.current()).clone();
        let index = self.listed_mut(self.state_mut(&mut manifest, partition)?, place);
        Ok(index.and_then(|index| index.loaded.take()))
    }

    /// Keeps runs of a load of an index in a partition: from now on they have the entries of all records with keys before
    /// `next_key`, or of all records. What they were made from is on disk. The files are removed if the step does not
    /// happen, or if the index was dropped, which is told by false.
    pub fn keep_loaded(
        &self,
        workshop: &Workshop,
        (partition, place): (usize, usize),
        runs: &[ComponentMeta],
        next_key: Option<&[u8]>,
    ) -> Result<bool> {
        let kept = workshop.step(|manifest| {
            let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, place) else { return Ok(false) };
            let loaded = index.loaded.get_or_insert_default();
            loaded.runs.extend_from_slice(runs);
            loaded.next_key = next_key.map(<[u8]>::to_vec);
            Ok(true)
        });
        if !kept.inspect_err(|_| discard_uninstalled(workshop, runs))? {
            discard(workshop, runs);
            return Ok(false);
        }
        Ok(true)
    }

    /// Forgets what was loaded of an index that is not complete, so that it is begun anew.
    pub fn forget_loaded(&self, workshop: &Workshop, place: usize) -> Result<()> {
        let runs = workshop.step(|manifest| self.take_runs(manifest, place))?;
        discard(workshop, &runs);
        Ok(())
    }

    fn take_runs(&self, manifest: &mut Manifest, place: usize) -> Result<Vec<ComponentMeta>> {
        let mut runs = Vec::new();
        for partition in 0..self.count {
            let index = self.listed_mut(self.state_mut(manifest, partition)?, place);
            runs.extend(index.and_then(|index| index.loaded.take()).into_iter().flat_map(|loaded| loaded.runs));
        }
        Ok(runs)
    }

    /// Gives an index the components of what was there when it was begun, as its oldest: one of each partition but those which
    /// have theirs already. From here on new snapshots can search it; where components may have the same entries, only after
    /// they have been merged, and [`Self::finish_index`]. The files of runs are removed, and those of the components if the step
    /// does not happen, or if the index was dropped, which is told by false.
    pub fn complete_index(&self, workshop: &Workshop, place: usize, metas: &[Option<ComponentMeta>]) -> Result<bool> {
        if metas.len() != self.count {
            return Err(Error::Invalid(format!("{} components for {} partitions", metas.len(), self.count)));
        }
        let given = || metas.iter().flatten();
        let open = |(partition, meta): (usize, &Option<ComponentMeta>)| {
            meta.as_ref().map(|meta| self.version(partition).open_part(workshop, place, meta)).transpose()
        };
        let opened = metas.iter().enumerate().map(open).collect::<Result<Vec<_>>>();
        let parts = opened.inspect_err(|_| discard(workshop, given()))?;
        let installed = workshop.step(|manifest| {
            let (mut old, mut overlaps) = (Vec::new(), false);
            for (partition, meta) in metas.iter().enumerate() {
                let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, place) else {
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
                let index = self.index_mut(self.state_mut(manifest, partition)?, place)?;
                index.building = overlaps;
                index.loaded = overlaps.then_some(Loaded::OVERLAPPING);
            }
            Ok(Some((old, overlaps)))
        });
        let Some((old, overlaps)) = installed.inspect_err(|_| discard_uninstalled(workshop, given()))? else {
            discard(workshop, given());
            return Ok(false);
        };
        discard(workshop, &old);
        let _exchange = self.exchange.lock();
        let mut next = (*self.versions()).clone();
        if next[0].indexes[place].is_dropped() {
            parts.iter().flatten().for_each(|part| part.file().set_obsolete());
            return Ok(false);
        }
        for (partition, part) in parts.into_iter().enumerate() {
            next.change(partition, |version| {
                let index = &mut version.indexes[place];
                index.components.extend(part);
                index.presence = if overlaps { Presence::Loaded } else { Presence::Whole };
            });
        }
        self.versions.store(Arc::new(next));
        Ok(true)
    }

    /// Has new snapshots search an index whose components were merged since it got what was there when it was begun. False if it was
    /// dropped.
    pub fn finish_index(&self, workshop: &Workshop, place: usize) -> Result<bool> {
        let is_there = workshop.step(|manifest| {
            for partition in 0..self.count {
                let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, place) else {
                    return Ok(false);
                };
                index.building = false;
                index.loaded = None;
            }
            Ok(true)
        })?;
        let _exchange = self.exchange.lock();
        let mut next = (*self.versions()).clone();
        if !is_there || next[0].indexes[place].is_dropped() {
            return Ok(false);
        }
        for partition in 0..self.count {
            next.change(partition, |version| version.indexes[place].presence = Presence::Whole);
        }
        self.versions.store(Arc::new(next));
        Ok(true)
    }

    /// Removes an index. Snapshots that see it can search it until they go. The caller lets no writer in, and has flushed
    /// everything: what is in memory of an index that was dropped is not flushed any more.
    pub fn drop_index(
        &self,
        workshop: &Workshop,
        place: usize,
        change: impl FnOnce(&mut Manifest) -> Result<()>,
    ) -> Result<()> {
        let id = self.version(0).indexes[place].numbered.id;
        let runs = workshop.step(|manifest| {
            change(manifest)?;
            let runs = self.take_runs(manifest, place)?;
            for partition in 0..self.count {
                self.state_mut(manifest, partition)?.indexes.retain(|index| index.id != id);
            }
            Ok(runs)
        })?;
        discard(workshop, &runs);
        self.empty_index(place, &(0..self.count).collect::<Vec<_>>(), Presence::Dropped);
        Ok(())
    }

    /// Takes away all disk components of an index in some partitions, which the manifest no longer names. Their files go with the
    /// last reader (I6), and not under the lock.
    fn empty_index(&self, place: usize, partitions: &[usize], presence: Presence) {
        let old = {
            let _exchange = self.exchange.lock();
            let mut next = (*self.versions()).clone();
            let empty = |&partition: &usize| {
                next.change(partition, |version| {
                    let index = &mut version.indexes[place];
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
