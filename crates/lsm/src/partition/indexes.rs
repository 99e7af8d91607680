//! Indexes that come and go while the partition is open.
//!
//! A new index has to hold what comes from a moment on, and what was there before. The moment is a cut between two
//! generations: [`Partition::begin_index`]. From then on it takes changes like every other index, and its components are
//! flushed and merged, but searches do not use it, and its anti-matter is kept. What was there at the cut is loaded in
//! bulk beside that, and becomes its oldest component: [`Partition::complete_index`].

use std::sync::Arc;

use super::flush::{discard, discard_uninstalled};
use super::{IndexVersion, NumberedIndex, Partition, Presence, Workshop};
use crate::disk::ComponentMeta;
use crate::manifest::{IndexState, Manifest};
use crate::{Error, Result};

impl Partition {
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
        let mut next = (*self.version()).clone();
        next.indexes.push(index.clone());
        let active = Arc::new(next.next_generation(cut)?);
        workshop.step(|manifest| {
            change(manifest)?;
            let indexes = &mut self.state_mut(manifest)?.indexes;
            if indexes.iter().any(|index| index.id == id) {
                return Err(Error::Invalid(format!("index {id} is in the manifest already")));
            }
            indexes.push(IndexState { building: true, ..IndexState::new(id) });
            Ok(())
        })?;
        let _exchange = self.exchange.lock();
        // Flushes and merges may have exchanged the version meanwhile; nobody else adds indexes or seals.
        let mut next = (*self.version()).clone();
        next.indexes.push(index);
        next.generations[0] = active;
        let place = next.indexes.len() - 1;
        self.version.store(Arc::new(next));
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
        let _merging = self.merging.lock();
        let _excluded = exclude()?;
        if !matches!(self.version().indexes[place].presence, Presence::Building) {
            return Ok(());
        }
        workshop.step(|manifest| {
            if let Some(index) = self.listed_mut(self.state_mut(manifest)?, place) {
                index.components.clear();
            }
            Ok(())
        })?;
        self.empty_index(place, Presence::Building);
        begun();
        Ok(())
    }

    /// Gives an index the component of what was there when it was begun, as its oldest. From here on new snapshots can
    /// search it. The file is removed if the step does not happen, or if the index was dropped, which is told by false.
    pub fn complete_index(&self, workshop: &Workshop, place: usize, meta: &ComponentMeta) -> Result<bool> {
        let part = self.version().open_part(workshop, place, meta).inspect_err(|_| discard(workshop, [meta]))?;
        let installed = workshop.step(|manifest| {
            let Some(index) = self.listed_mut(self.state_mut(manifest)?, place) else { return Ok(false) };
            index.components.push(meta.clone());
            index.building = false;
            Ok(true)
        });
        if !installed.inspect_err(|_| discard_uninstalled(workshop, [meta]))? {
            discard(workshop, [meta]);
            return Ok(false);
        }
        let _exchange = self.exchange.lock();
        let mut next = (*self.version()).clone();
        let index = &mut next.indexes[place];
        if index.is_dropped() {
            part.file().set_obsolete();
            return Ok(false);
        }
        index.components.push(part);
        index.presence = Presence::Whole;
        self.version.store(Arc::new(next));
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
        let id = self.version().indexes[place].numbered.id;
        workshop.step(|manifest| {
            change(manifest)?;
            self.state_mut(manifest)?.indexes.retain(|index| index.id != id);
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
            let mut next = (*self.version()).clone();
            let index = &mut next.indexes[place];
            index.presence = presence;
            let old = std::mem::take(&mut index.components);
            self.version.store(Arc::new(next));
            old
        };
        old.iter().for_each(|part| part.file().set_obsolete());
    }
}
