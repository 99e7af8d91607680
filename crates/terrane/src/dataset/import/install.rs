//! The last part of an import: what was loaded becomes the dataset's, in one manifest step.
//!
//! Writers of the dataset, and of the one that it replaces, wait meanwhile. What a crash leaves:
//! - before the step: everything as it was, and files that no manifest names;
//! - after it: all records of the import, and of a replacement nothing else. The files of the replaced dataset are strays,
//!   and its entries in the log are passed over (see `engine/catalog.rs`).

use std::sync::Arc;

use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::disk::btree::{BTreeComponent, BTreeCursor};
use terrane_lsm::manifest::Manifest;
use terrane_lsm::partition::Version;
use terrane_lsm::search;

use super::{ImportMode, Importer};
use crate::key::Key;
use crate::schema::SchemaHistory;
use crate::secondary::{Indexes, PRIMARY};
use crate::{Error, Result};

impl Importer {
    /// Notes what the keys are going to be compared with.
    pub(super) fn look(&mut self) {
        // Before the versions, which then have all changes up to this number.
        let sequence = self.engine.core.visible();
        let versions = self.handle.partitions.versions();
        let parts = versions.iter().flat_map(|version| version.components(PRIMARY as usize));
        self.look = Look { sequence, files: parts.map(|part| part.file().meta().file_id).collect() };
    }

    /// Takes a snapshot of the records that an upsert replaces. What is not in it is found when installing.
    pub(super) fn look_at_replaced(&mut self) {
        let before = self.dataset().snapshot();
        // A component that it has may have later changes, which it does not show.
        self.look = Look { sequence: before.sequence(), files: Vec::new() };
        self.before = Some(before);
    }

    /// Whether a record of the dataset may have a key of the import.
    pub(super) fn overlaps_existing(&self, runs: &[ComponentMeta]) -> Result<bool> {
        if self.created.is_some() {
            return Ok(false);
        }
        let run = |run| Ok(BTreeComponent::open(self.engine.environment().context.file(run)?)?);
        let runs = runs.iter().map(run).collect::<Result<Vec<_>>>()?;
        for version in self.handle.partitions.versions().iter() {
            let Some((smallest, largest)) = search::key_range(version, PRIMARY as usize)? else { continue };
            let overlaps = |(first, last): (&[u8], &[u8])| first <= largest.as_slice() && smallest.as_slice() <= last;
            if runs.iter().filter_map(BTreeComponent::key_range).any(overlaps) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn install(&mut self, mut loaded: Loaded, primaries: &[Arc<BTreeComponent>]) -> Result<()> {
        let engine = self.engine.clone();
        let handle = self.handle.clone();
        let _changes = engine.catalog.lock();
        let replaced = self.replaced.take();
        if self.created.is_some() && replaced.is_none() && engine.datasets.contains(&handle.name) {
            return Err(Error::usage(format!("dataset {:?} was created meanwhile", handle.name)));
        }
        let _replaced_gate = replaced.as_ref().map(|replaced| replaced.exclude()).transpose()?;
        let _gate = handle.exclude()?;
        self.dataset().check_not_widened_since(self.widenings)?;
        let changed = self.changed_history()?;
        engine.maintenance.flush(&handle)?;
        self.judge_written_meanwhile(primaries, &mut loaded)?;
        for (_, largest) in primaries.iter().filter_map(|primary| primary.key_range()) {
            handle.row_numbers.note(&Key::decode(self.schema.key.key_type, largest)?);
        }
        // Indexes that came meanwhile, while writers wait; and what was loaded of those that went stays behind.
        self.load_indexes(primaries, &mut loaded)?;
        self.before = None;
        let indexes = handle.indexes.load_full();
        let metas = loaded.by_partition(primaries.len(), &indexes);
        if let Some(replaced) = &replaced {
            handle.inherit(&replaced.handle);
            engine.catalog.flush_for_snapshots(&replaced.handle)?;
        }
        let history = changed.clone().unwrap_or_else(|| handle.history.load_full());
        let has_new_catalog = changed.is_some() || replaced.is_some();
        let catalog = has_new_catalog.then(|| handle.definition(&history, &indexes)).transpose()?;
        let created = self.created.take();
        let is_new = created.is_some();
        let files = &mut self.files;
        let mut removed = None;
        engine.core.with_sequence(|sequence| {
            let change = |manifest: &mut Manifest| {
                if let Some(replaced) = &replaced {
                    removed = Some(engine.catalog.remove(manifest, &replaced.handle)?);
                }
                if let Some(state) = created {
                    manifest.add_dataset(state);
                }
                if let Some(catalog) = catalog {
                    manifest.dataset_mut(handle.id)?.catalog = catalog;
                }
                Ok(())
            };
            // A schema is there before the records that are written under it.
            let show_schema = || {
                if let Some(history) = changed {
                    handle.history.store(history);
                }
            };
            let installed =
                handle.partitions.install_loaded(&engine.environment().context, &metas, sequence, change, show_schema);
            // The files are the store's from the step on. Where it stayed open whether the step
            // reached the disk, they may be.
            if installed.is_ok() || engine.environment().context.manifest.has_failed() {
                files.give_away(metas.iter().flatten().flatten());
            }
            installed?;
            if is_new {
                engine.catalog.publish(handle.clone());
            }
            Ok(())
        })?;
        if let (Some(replaced), Some(removed)) = (&replaced, &removed) {
            engine.catalog.release(&replaced.handle, removed);
        }
        Ok(())
    }

    /// The history by which all records can be read, those of the import and those that it replaces.
    pub(super) fn history_of_all(&self) -> Result<Arc<SchemaHistory>> {
        let current = self.handle.history.load_full();
        match self.changes() {
            0 => Ok(current),
            _ => self.check_columns(&current).map(|()| self.history.clone()),
        }
    }

    /// How many changes of the schema come with the records.
    fn changes(&self) -> usize {
        self.widened.len() + self.added
    }

    /// Refuses an import that changes columns if others were changed since: the rows carry the number of their version,
    /// which another change may have taken.
    fn check_columns(&self, current: &SchemaHistory) -> Result<()> {
        match current.versions() + self.changes() == self.history.versions() {
            true => Ok(()),
            false => Err(Error::refused("the columns were changed meanwhile; start again with the new schema")),
        }
    }

    /// The history that the dataset gets with the records, if they change columns. To be called with the
    /// gate held.
    fn changed_history(&self) -> Result<Option<Arc<SchemaHistory>>> {
        if self.changes() == 0 {
            return Ok(None);
        }
        let current = self.handle.history.load_full();
        self.check_columns(&current)?;
        if self.created.is_none() {
            // Of what the records add, nothing is stored.
            let mut stored = self.widened.iter().filter(|name| current.newest().column(name).is_some());
            stored.try_for_each(|name| self.dataset().check_exact_as_float(name))?;
        }
        Ok(Some(self.history.clone()))
    }

    /// Refuses the import if a key of it was inserted since it looked; an upsert looks again, and what it has loaded of
    /// secondary indexes is loaded anew. To be called with the gate held and everything flushed.
    fn judge_written_meanwhile(&mut self, primaries: &[Arc<BTreeComponent>], loaded: &mut Loaded) -> Result<()> {
        let versions = self.handle.partitions.versions();
        for (primary, now) in primaries.iter().zip(versions.iter()) {
            let Some(key) = self.written_meanwhile(primary, now)? else { continue };
            if self.mode != ImportMode::Upsert {
                return Err(Error::DuplicateKey { key });
            }
            drop(versions);
            self.look_at_replaced();
            loaded.forget_secondaries();
            break;
        }
        Ok(())
    }

    /// A key of the import that was written in a partition since it looked; of an import that replaces none, one that is
    /// there now. Writers wait, so that no more is read than may be new among the import's keys.
    fn written_meanwhile(&self, primary: &BTreeComponent, now: &Version) -> Result<Option<Key>> {
        let Some((first, last)) = primary.key_range() else { return Ok(None) };
        for part in now.components(PRIMARY as usize).iter().filter(|part| !self.look.has_seen(part.file().meta())) {
            let mut cursor = BTreeCursor::seek(terrane_lsm::index::downcast(part)?, first)?;
            while let Some(entry) = cursor.entry().filter(|entry| *entry.key <= *last) {
                // An old version may lie there of a key that is deleted by now.
                let is_there = || Ok::<_, Error>(search::get(now, PRIMARY as usize, &entry.key, u64::MAX)?.is_some());
                let counts = self.mode == ImportMode::Upsert || !entry.antimatter;
                if counts
                    && primary.get(&entry.key, u64::MAX)?.is_some()
                    && (self.mode == ImportMode::Upsert || is_there()?)
                {
                    return Ok(Some(Key::decode(self.schema.key.key_type, &entry.key)?));
                }
                cursor.advance()?;
            }
        }
        Ok(None)
    }
}

/// The components that an import has loaded, one of each partition, with the slots of their indexes.
pub(super) struct Loaded {
    metas: Vec<(usize, Vec<ComponentMeta>)>,
}

impl Loaded {
    pub fn new(primaries: Vec<ComponentMeta>) -> Self {
        Self { metas: vec![(PRIMARY as usize, primaries)] }
    }

    pub fn has(&self, slot: usize) -> bool {
        self.metas.iter().any(|(loaded, _)| *loaded == slot)
    }

    pub fn add(&mut self, slot: usize, metas: Vec<ComponentMeta>) {
        self.metas.push((slot, metas));
    }

    pub fn bytes(&self) -> u64 {
        self.metas.iter().flat_map(|(_, metas)| metas).map(|meta| meta.file_len).sum()
    }

    /// Forgets all but the primaries, so that they are loaded anew. The files go with the import.
    fn forget_secondaries(&mut self) {
        self.metas.retain(|(slot, _)| *slot == PRIMARY as usize);
    }

    /// The component of each slot of each partition; none where there is no index any more.
    fn by_partition(&self, partitions: usize, indexes: &Indexes) -> Vec<Vec<Option<ComponentMeta>>> {
        let slots = self.metas.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
        let mut by_partition = vec![vec![None; slots]; partitions];
        for (slot, metas) in self.metas.iter().filter(|(slot, _)| indexes.get(*slot).is_some()) {
            for (partition, meta) in by_partition.iter_mut().zip(metas) {
                partition[*slot] = Some(meta.clone());
            }
        }
        by_partition
    }
}

/// What an import has compared its keys with.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// All changes up to this number were there.
    sequence: u64,
    /// Components of the primary that were there.
    files: Vec<u64>,
}

impl Look {
    /// Whether everything in a component was there, be it in other components that were merged since.
    fn has_seen(&self, meta: &ComponentMeta) -> bool {
        self.files.contains(&meta.file_id) || meta.statistics.sequence.1 <= self.sequence
    }
}
