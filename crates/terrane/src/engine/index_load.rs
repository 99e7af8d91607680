//! The records of one partition are loaded into a new index.

use std::ops::ControlFlow;

use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::index::Cancellation;
use terrane_lsm::manifest::Loaded;
use terrane_lsm::partition::IndexSlot;

use super::commit_core::CommitCore;
use super::dataset::DatasetHandle;
use super::maintenance::Maintenance;
use crate::load::IndexLoader;
use crate::secondary::{DatasetIndex, PRIMARY};
use crate::snapshot::{ScanPosition, Snapshot};
use crate::{Error, Result};

/// Records between two looks at whether a build is still wanted.
const WANTED_STEP: u64 = 4096;

/// The result of loading a partition.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A component of it all.
    Component(Box<ComponentMeta>),
    /// An earlier load has given the index its component.
    Installed,
    /// The index was dropped meanwhile.
    Dropped,
}

/// The load of the records of a partition into an index.
pub(super) struct Load<'l> {
    pub core: &'l CommitCore,
    pub maintenance: &'l Maintenance,
    pub cancellation: &'l Cancellation,
    pub dataset: &'l DatasetHandle,
    pub at: IndexSlot,
    pub index: &'l DatasetIndex,
    /// Of this partition.
    pub snapshot: Snapshot,
}

impl Load<'_> {
    /// Loads the records, from where the load was interrupted.
    pub fn run(&self, budget: usize) -> Result<Outcome> {
        let context = &self.core.environment().context;
        let sequence = (0, self.snapshot.sequence());
        let mut loader = IndexLoader::new(context, self.index, &self.snapshot.history, budget, sequence);
        let loaded = self.dataset.partitions.loaded(context, self.at)?;
        let mut position = ScanPosition::default();
        if let Some(Loaded { runs, next_key, .. }) = loaded {
            match &next_key {
                Some(key) => position = ScanPosition::at(key),
                None if runs.is_empty() => return Ok(Outcome::Installed),
                None => position.ended = true,
            }
            loader.go_on(runs);
        }
        let (mut records, mut is_wanted) = (0, true);
        self.snapshot.visit_btree_from(self.at.partition, PRIMARY as usize, &mut position, &mut |key, stored| {
            records += 1;
            if records % WANTED_STEP == 0 && self.cancellation.is_cancelled() {
                loader.spill()?;
                self.keep(&mut loader, Some(key))?;
                return Err(Error::Cancelled);
            }
            loader.add(key, stored).map_err(|error| self.snapshot.name_record(error, key))?;
            is_wanted = if loader.has_new_runs() {
                self.keep(&mut loader, Some(key))?
            } else {
                records % WANTED_STEP != 0 || self.dataset.is_building(self.at.slot)
            };
            Ok(if is_wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if is_wanted && loader.has_kept_runs() {
            loader.spill()?;
            is_wanted = self.keep(&mut loader, None)?;
        }
        if !is_wanted {
            return Ok(Outcome::Dropped);
        }
        loader.finish(self.cancellation).map(|meta| Outcome::Component(Box::new(meta)))
    }

    /// Keeps the runs so far, of all records with keys before `next_key`. False if the index was
    /// dropped.
    fn keep(&self, loader: &mut IndexLoader<'_>, next_key: Option<&[u8]>) -> Result<bool> {
        // What the snapshot has in memory must not be lost where the runs have it.
        self.maintenance.flush_sealed(self.dataset)?;
        let context = &self.core.environment().context;
        Ok(self.dataset.partitions.keep_loaded(context, self.at, loader.give_runs_away(), next_key)?)
    }
}
