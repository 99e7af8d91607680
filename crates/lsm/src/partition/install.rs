//! Installs components by other means than flushes and merges, and the common parts of all means.

use std::sync::Arc;

use super::{Generation, IndexSlot, MaintenanceContext, Partitions, Presence, Version, Versions};
use crate::disk::ComponentMeta;
use crate::index::DiskPart;
use crate::manifest::{IndexState, Manifest, PartitionState};
use crate::{Error, Result};

impl Partitions {
    /// Adds components from a bulk load as the newest of the indexes of all partitions, in one
    /// step. The caller has flushed everything older, and excludes writers. `before_visible` is
    /// called when `change` and the components are durable and not visible yet. Their records all
    /// get one sequence number, which their own descriptions do not have. After an error the files
    /// are not in the manifest, unless
    /// [`ManifestFile::has_failed`](crate::manifest::ManifestFile::has_failed) tells that they may
    /// be.
    pub fn install_loaded(
        &self,
        context: &MaintenanceContext,
        metas: &[Vec<Option<ComponentMeta>>],
        sequence: u64,
        change: impl FnOnce(&mut Manifest) -> Result<()>,
        before_visible: impl FnOnce(),
    ) -> Result<()> {
        let mut metas = metas.to_vec();
        metas.iter_mut().flatten().flatten().for_each(|meta| meta.statistics.sequence = (sequence, sequence));
        let parts = self.open_parts(context, &metas)?;
        // The active generations are empty; their successors begin after the loaded records.
        let active = self.next_generations(&self.versions(), sequence)?;
        context.step(|manifest| {
            change(manifest)?;
            for (partition, metas) in metas.iter().enumerate() {
                let state = self.state_mut(manifest, partition)?;
                state.flushed_sequence = sequence;
                state.loads += 1;
                self.add_components(state, metas);
            }
            manifest.last_sequence = manifest.last_sequence.max(sequence);
            Ok(())
        })?;
        // From here on nothing can fail, so memory and manifest agree.
        before_visible();
        let _exchange = self.exchange.lock();
        let mut next = (*self.versions()).clone();
        for ((partition, parts), active) in parts.iter().enumerate().zip(active) {
            next.change(partition, |version| {
                version.add_newest(parts);
                version.flushed_sequence = sequence;
                version.generations = vec![active];
            });
        }
        self.versions.store(Arc::new(next));
        Ok(())
    }

    /// Replaces all components of one index of a partition by `meta`, as a repair does, whatever
    /// the manifest lists there. The caller has flushed everything, and excludes writers. If the
    /// step fails, the new file is removed.
    pub fn replace_index(
        &self,
        context: &MaintenanceContext,
        IndexSlot { partition, slot }: IndexSlot,
        meta: &ComponentMeta,
    ) -> Result<()> {
        let _merging = self.merging[partition].lock();
        let new = [meta];
        let opened = self.version(partition).open_part(context, slot, meta);
        let part = opened.inspect_err(|_| discard(context, new))?;
        let installed = context.step(|manifest| {
            let index = self.index_mut(self.state_mut(manifest, partition)?, slot)?;
            index.components = vec![meta.clone()];
            index.building = false;
            Ok(index.loaded.take())
        });
        let loaded = installed.inspect_err(|_| discard_uninstalled(context, new))?;
        discard(context, loaded.iter().flat_map(|loaded| &loaded.runs));
        let old = {
            let _exchange = self.exchange.lock();
            let mut next = (*self.versions()).clone();
            let old = next.change(partition, |version| {
                let index = &mut version.indexes[slot];
                index.presence = Presence::Whole;
                std::mem::replace(&mut index.components, vec![part])
            });
            self.versions.store(Arc::new(next));
            old
        };
        // Not under the lock, as the last reader of a file removes it.
        old.iter().for_each(|part| part.file().set_obsolete());
        Ok(())
    }

    /// Adds new components, each as the newest of its index. Returns the slots of dropped indexes.
    pub(super) fn add_components(&self, state: &mut PartitionState, metas: &[Option<ComponentMeta>]) -> Vec<usize> {
        let mut dropped = Vec::new();
        for (slot, meta) in metas.iter().enumerate() {
            let Some(meta) = meta else { continue };
            match self.listed_mut(state, slot) {
                Some(index) => index.components.insert(0, meta.clone()),
                None => dropped.push(slot),
            }
        }
        dropped
    }

    /// The manifest's state of the index at a slot, which it may list elsewhere.
    pub(super) fn index_mut<'a>(&self, state: &'a mut PartitionState, slot: usize) -> Result<&'a mut IndexState> {
        self.listed_mut(state, slot).ok_or_else(|| Error::Invalid("an index is not in the manifest".into()))
    }

    /// Like [`Self::index_mut`]; `None` for a dropped index.
    pub(super) fn listed_mut<'a>(&self, state: &'a mut PartitionState, slot: usize) -> Option<&'a mut IndexState> {
        let id = self.versions.load()[0].indexes[slot].numbered.id;
        state.indexes.iter_mut().find(|index| index.id == id)
    }

    pub(super) fn state_mut<'a>(&self, manifest: &'a mut Manifest, partition: usize) -> Result<&'a mut PartitionState> {
        let dataset = manifest.dataset_mut(self.dataset)?;
        let state = dataset.partitions.get_mut(partition);
        state.ok_or_else(|| Error::Invalid(format!("partition {partition} is not in the manifest")))
    }

    /// New generations of all partitions for changes after a number.
    pub(super) fn next_generations(&self, versions: &Versions, after: u64) -> Result<Vec<Arc<Generation>>> {
        versions.iter().map(|version| Ok(Arc::new(version.next_generation(after)?))).collect()
    }
}

impl Version {
    /// Opens a component of the index at a slot that was just written.
    pub(super) fn open_part(
        &self,
        context: &MaintenanceContext,
        slot: usize,
        meta: &ComponentMeta,
    ) -> Result<Arc<dyn DiskPart>> {
        self.indexes[slot].numbered.index.open(context.file(meta)?)
    }
}

/// Removes finished component files that will not be installed.
pub(super) fn discard<'m>(context: &MaintenanceContext, metas: impl IntoIterator<Item = &'m ComponentMeta>) {
    for meta in metas {
        // A file that cannot be removed is a stray, which the next open removes.
        let _ = context.storage.remove(&crate::disk::component_name(meta.file_id));
    }
}

/// Removes the component files of a failed manifest step. After a failed rename or sync, it is
/// unknown whether the step reached the disk. The manifest then takes no further step, and the
/// files stay. The next open removes those that no manifest names.
pub(super) fn discard_uninstalled<'m>(
    context: &MaintenanceContext,
    metas: impl IntoIterator<Item = &'m ComponentMeta>,
) {
    if !context.manifest.has_failed() {
        discard(context, metas);
    }
}
