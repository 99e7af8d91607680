//! Indexes that come and go while the partitions are open. They do so in all partitions of a dataset at once.
//!
//! A new index has to hold what comes from a moment on, and what was there before. The moment is a cut between two
//! generations: [`Partitions::begin_index`]. From then on it takes changes like every other index, and its components are
//! flushed and merged, but searches do not use it, and its anti-matter is kept. What was there at the cut is loaded in
//! bulk beside that, and becomes its oldest component: [`Partitions::complete_index`].

use std::sync::Arc;

use super::install::{discard, discard_uninstalled};
use super::{IndexVersion, NumberedIndex, Partitions, Presence, Versions, Workshop};
use crate::disk::ComponentMeta;
use crate::manifest::{IndexState, Manifest};
use crate::{Error, Result};

impl Partitions {
    /// Adds an index that takes all changes after `cut`, the last sequence number given out, and tells its place. The
    /// caller lets no writer in, and has sealed everything at the cut; `change` is what else the manifest's step does.
    ///
    /// What a crash leaves: the index is not there, or has nothing and is to be begun again
    /// ([`Self::restart_index`]).
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

    /// Begins an index anew that was not complete when the partition was opened: what it has goes, and it takes all
    /// changes from now on. `exclude` keeps writers out, flushes everything, and returns what lets them in again, which is
    /// dropped behind the step and `begun`. It is called when no merge is under way, so that writers do not wait for one. Nothing
    /// happens if the index was dropped or completed before.
    ///
    /// What a crash leaves: what it had, or nothing, and in both cases it is to be begun anew.
    pub fn restart_index<G, E: From<Error>>(
        &self,
        workshop: &Workshop,
        place: usize,
        exclude: impl FnOnce() -> std::result::Result<G, E>,
        begun: impl FnOnce(),
    ) -> std::result::Result<(), E> {
        let _merging: Vec<_> = self.merging.iter().map(|merging| merging.lock()).collect();
        let _excluded = exclude()?;
        if !matches!(self.version(0).indexes[place].presence, Presence::Building) {
            return Ok(());
        }
        workshop.step(|manifest| {
            for partition in 0..self.count {
                if let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, place) {
                    index.components.clear();
                }
            }
            Ok(())
        })?;
        self.empty_index(place, Presence::Building);
        begun();
        Ok(())
    }

    /// Gives an index the components of what was there when it was begun, one of each partition, as its oldest. From here
    /// on new snapshots can search it. The files are removed if the step does not happen, or if the index was dropped, which
    /// is told by false.
    pub fn complete_index(&self, workshop: &Workshop, place: usize, metas: &[ComponentMeta]) -> Result<bool> {
        if metas.len() != self.count {
            return Err(Error::Invalid(format!("{} components for {} partitions", metas.len(), self.count)));
        }
        let open = |(partition, meta)| self.version(partition).open_part(workshop, place, meta);
        let opened = metas.iter().enumerate().map(open).collect::<Result<Vec<_>>>();
        let parts = opened.inspect_err(|_| discard(workshop, metas))?;
        let installed = workshop.step(|manifest| {
            for (partition, meta) in metas.iter().enumerate() {
                let Some(index) = self.listed_mut(self.state_mut(manifest, partition)?, place) else {
                    return Ok(false);
                };
                index.components.push(meta.clone());
                index.building = false;
            }
            Ok(true)
        });
        if !installed.inspect_err(|_| discard_uninstalled(workshop, metas))? {
            discard(workshop, metas);
            return Ok(false);
        }
        let _exchange = self.exchange.lock();
        let mut next = (*self.versions()).clone();
        if next[0].indexes[place].is_dropped() {
            parts.iter().for_each(|part| part.file().set_obsolete());
            return Ok(false);
        }
        for (partition, part) in parts.into_iter().enumerate() {
            next.change(partition, |version| {
                let index = &mut version.indexes[place];
                index.components.push(part);
                index.presence = Presence::Whole;
            });
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
        workshop.step(|manifest| {
            change(manifest)?;
            for partition in 0..self.count {
                self.state_mut(manifest, partition)?.indexes.retain(|index| index.id != id);
            }
            Ok(())
        })?;
        self.empty_index(place, Presence::Dropped);
        Ok(())
    }

    /// Takes away all disk components of an index that the manifest no longer names. Their files go with the last
    /// reader (I6), and not under the lock.
    fn empty_index(&self, place: usize, presence: Presence) {
        let old = {
            let _exchange = self.exchange.lock();
            let mut next = (*self.versions()).clone();
            let empty = |partition| {
                next.change(partition, |version| {
                    let index = &mut version.indexes[place];
                    index.presence = presence.clone();
                    std::mem::take(&mut index.components)
                })
            };
            let old: Vec<_> = (0..self.count).flat_map(empty).collect();
            self.versions.store(Arc::new(next));
            old
        };
        old.iter().for_each(|part| part.file().set_obsolete());
    }
}
