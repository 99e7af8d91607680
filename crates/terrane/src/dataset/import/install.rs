//! The last step of an import: one manifest step installs the loaded components.
//!
//! Meanwhile, writers of the dataset, and of the dataset that it replaces, wait. A crash leaves:
//! - before the step: the previous state, and files that no manifest names;
//! - after it: all records of the import, and no others if it is a replacement. The files of the
//!   replaced dataset are strays, and its log entries are skipped (see `engine/drop.rs`).

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
    /// Notes the state that the keys will be compared with.
    pub(super) fn note_compared(&mut self) {
        // Before the versions are read: so they have all changes up to this number.
        let sequence = self.engine.core.visible();
        let versions = self.handle.partitions.versions();
        let parts = versions.iter().flat_map(|version| version.components(PRIMARY as usize));
        self.compared = Compared { sequence, files: parts.map(|part| part.file().meta().file_id).collect() };
    }

    /// Takes a snapshot of the records that an upsert replaces. Later records are found at
    /// installation.
    pub(super) fn pin_replaced(&mut self) {
        let before = self.dataset().snapshot();
        // Its components may have later changes, which the snapshot hides.
        self.compared = Compared { sequence: before.sequence(), files: Vec::new() };
        self.before = Some(before);
    }

    /// Whether the keys of the import overlap those of the dataset.
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
        // Loads indexes that were created meanwhile, while writers wait. Components of dropped
        // indexes are not installed.
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
            // A schema becomes visible before the records written under it.
            let show_schema = || {
                if let Some(history) = changed {
                    handle.history.store(history);
                }
            };
            let installed =
                handle.partitions.install_loaded(&engine.environment().context, &metas, sequence, change, show_schema);
            // From the step on, the files are the store's. If it is unknown whether the step
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

    /// The history by which all records can be read: the import's, and those that it replaces.
    pub(super) fn history_of_all(&self) -> Result<Arc<SchemaHistory>> {
        let current = self.handle.history.load_full();
        match self.changes() {
            0 => Ok(current),
            _ => self.check_columns(&current).map(|()| self.history.clone()),
        }
    }

    /// Number of schema changes that come with the records.
    fn changes(&self) -> usize {
        self.widened.len() + self.added
    }

    /// Refuses an import that changes columns if the columns were changed meanwhile. Its rows carry
    /// the number of their schema version, which the other change may have taken.
    fn check_columns(&self, current: &SchemaHistory) -> Result<()> {
        match current.versions() + self.changes() == self.history.versions() {
            true => Ok(()),
            false => Err(Error::refused("the columns were changed meanwhile; start again with the new schema")),
        }
    }

    /// The dataset's history after the import, if the records change columns. The gate must be
    /// held.
    fn changed_history(&self) -> Result<Option<Arc<SchemaHistory>>> {
        if self.changes() == 0 {
            return Ok(None);
        }
        let current = self.handle.history.load_full();
        self.check_columns(&current)?;
        if self.created.is_none() {
            // Attributes that the import adds have no stored values.
            let mut stored = self.widened.iter().filter(|name| current.newest().column(name).is_some());
            stored.try_for_each(|name| self.dataset().check_exact_as_float(name))?;
        }
        Ok(Some(self.history.clone()))
    }

    /// Refuses the import if one of its keys was inserted since its keys were compared. An upsert
    /// compares again instead, and loads its secondary indexes again. The gate must be held, and
    /// everything flushed.
    fn judge_written_meanwhile(&mut self, primaries: &[Arc<BTreeComponent>], loaded: &mut Loaded) -> Result<()> {
        let versions = self.handle.partitions.versions();
        for (primary, now) in primaries.iter().zip(versions.iter()) {
            let Some(key) = self.written_meanwhile(primary, now)? else { continue };
            if self.mode != ImportMode::Upsert {
                return Err(Error::DuplicateKey { key });
            }
            drop(versions);
            self.pin_replaced();
            loaded.forget_secondaries();
            break;
        }
        Ok(())
    }

    /// A key of the import that was written to a partition since the comparison. Unless the
    /// import replaces records, the key must still exist. Writers wait, so only components that may
    /// be new to the import are read, within its range of keys.
    fn written_meanwhile(&self, primary: &BTreeComponent, now: &Version) -> Result<Option<Key>> {
        let Some((first, last)) = primary.key_range() else { return Ok(None) };
        for part in now.components(PRIMARY as usize).iter().filter(|part| !self.compared.includes(part.file().meta())) {
            let mut cursor = BTreeCursor::seek(terrane_lsm::index::downcast(part)?, first)?;
            while let Some(entry) = cursor.entry().filter(|entry| *entry.key <= *last) {
                // This may be an old version of a key that is deleted by now.
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

/// The loaded components of an import, one per partition, with the slots of their indexes.
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

    /// Forgets all but the primaries, so that they are loaded again. The import removes the files.
    fn forget_secondaries(&mut self) {
        self.metas.retain(|(slot, _)| *slot == PRIMARY as usize);
    }

    /// The component of each slot of each partition; `None` where the index was dropped.
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

/// The state with which an import has compared its keys.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// All changes up to this number were seen.
    sequence: u64,
    /// Primary components that were seen.
    files: Vec<u64>,
}

impl Compared {
    /// Whether all entries of a component were seen, possibly in other components that were merged
    /// since.
    fn includes(&self, meta: &ComponentMeta) -> bool {
        self.files.contains(&meta.file_id) || meta.statistics.sequence.1 <= self.sequence
    }
}
