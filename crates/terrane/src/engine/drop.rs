//! Dropping a dataset.
//!
//! One manifest step removes the dataset with all that is named of it. Before the step, writers of the dataset are kept out
//! by its gate, so that nothing is acknowledged after it. What a crash leaves:
//! - before the step: the dataset, whole;
//! - after it: no dataset of that id. Its files are strays, which opening removes. Its entries in the tail of the log are
//!   passed over by replay, as no dataset has their id, and none ever gets it.
//!
//! The same step raises the last number: the log may lose the entries of the dataset with it, and the numbers that they
//! had must not be given out again.

use terrane_lsm::log::LogPosition;
use terrane_lsm::manifest::{DatasetState, Manifest};
use terrane_storage::sync::{MutexGuard, Ordering, RwLockReadGuard, RwLockWriteGuard};

use super::{DatasetHandle, Engine};
use crate::{Error, Result};

impl DatasetHandle {
    /// [`Error::Dropped`] if it was dropped.
    pub fn check_present(&self) -> Result<()> {
        match self.is_dropped.load(Ordering::Acquire) {
            true => Err(Error::Dropped { dataset: Some(self.name.clone()) }),
            false => Ok(()),
        }
    }

    /// Lets a writer in; it is not dropped while this is held.
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let gate = self.gate.read();
        self.check_present()?;
        Ok(gate)
    }

    /// Waits until all writers have left, and keeps them out.
    pub fn exclude(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let gate = self.gate.write();
        self.check_present()?;
        Ok(gate)
    }
}

/// What the manifest had of a dataset that was removed from it, and where the log begins since.
#[derive(Debug)]
pub(crate) struct Removed {
    state: DatasetState,
    low_water: Option<LogPosition>,
}

impl Engine {
    /// Keeps others from changing the catalog, of a dataset that is there.
    pub fn lock_catalog(&self, dataset: &DatasetHandle) -> Result<MutexGuard<'_, ()>> {
        let changes = self.catalog_changes.lock();
        dataset.check_present()?;
        Ok(changes)
    }

    /// Drops a dataset, durably. Snapshots that there are can be read as long as they live.
    pub fn drop_dataset(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let _changes = self.catalog_changes.lock();
        let dataset = self.dataset(name)?;
        let _gate = dataset.exclude()?;
        self.spare_snapshots(&dataset)?;
        let removed = self.step(|manifest| self.remove(manifest, &dataset))?;
        let mut datasets = (**self.datasets.load()).clone();
        datasets.remove(name);
        self.datasets.store(datasets.into());
        self.give_up(&dataset, &removed);
        Ok(())
    }

    /// Has live snapshots of a dataset see on disk what they see in memory, which is free when the dataset is gone. Where the
    /// disk is full, they keep the memory as long as they live, as does one that comes after this. To be called with the
    /// gate held alone.
    pub fn spare_snapshots(&self, dataset: &DatasetHandle) -> Result<()> {
        if dataset.partitions.snapshots().count() == 0 {
            return Ok(());
        }
        self.seal(dataset)?;
        loop {
            match self.flush_oldest(dataset) {
                Ok(true) => {}
                Ok(false) | Err(Error::Full { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes a dataset from the manifest, in the step that drops it. To be called with the gate held alone.
    pub fn remove(&self, manifest: &mut Manifest, dataset: &DatasetHandle) -> terrane_lsm::Result<Removed> {
        let state = manifest.remove_dataset(dataset.id)?;
        manifest.last_sequence = manifest.last_sequence.max(self.last_sequence());
        let position = match (&self.log, self.low_water_without(dataset)) {
            (Some(log), Some(lsn)) => log.position_of(lsn).ok(),
            _ => None,
        };
        Ok(Removed { state, low_water: position.map(|position| manifest.raise_low_water(position)) })
    }

    /// Gives up what a dataset has in memory and on disk, after the step that removed it. Another one may have its name
    /// already. To be called with `catalog_changes` held, and with the gate held alone.
    pub fn give_up(&self, dataset: &DatasetHandle, removed: &Removed) {
        // Before the components go, so that who finds none knows why.
        dataset.is_dropped.store(true, Ordering::Release);
        dataset.partitions.give_up(&self.workshop, &removed.state);
        self.note_memory(dataset);
        if let Some(position) = removed.low_water {
            self.reclaim_log(position);
        }
        self.note_given_up();
        let _ = self.restore_reserve();
    }
}
