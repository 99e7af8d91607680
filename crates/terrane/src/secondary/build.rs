//! Creating and dropping indexes while the dataset is in use.
//!
//! A new index takes all changes from a cut on; what was there at the cut is loaded from a snapshot beside the writers, and
//! queries use the index when it has that too. Writers wait while the cut is made, not for the load. Each sorted run of the load is
//! kept with the key up to which it goes, so that the next session goes on there with what a crash or a close has
//! interrupted. A load that has made no run is begun anew, from a cut of its own.
//!
//! B1 Who builds, completes or repairs indexes of a dataset holds `building`. It is taken before all other locks.
//! B2 An index is in `indexes`, from which writers make their operations, exactly while the generation that takes writes
//!    has a memory component of it: both change with the gate held alone.

use std::ops::ControlFlow;
use std::sync::Arc;

use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::manifest::{Loaded, Manifest};
use terrane_lsm::parallel::{self, threads_of};
use terrane_storage::sync::Ordering;

use super::unbuilt::{is_building, unbuilt};
use super::{DatasetIndex, IndexDefinition, IndexKind, IndexOptions, PRIMARY, SPATIAL};
use crate::dataset::Dataset;
use crate::engine::{DatasetHandle, Engine};
use crate::load::IndexLoader;
use crate::runs::UnnamedFiles;
use crate::snapshot::{ScanPosition, Snapshot};
use crate::{Error, Result};

/// Records between two looks at whether a build is still wanted.
const WANTED_STEP: u64 = 4096;

impl Dataset {
    /// Creates an index and builds it from the records, while others read and write. Queries use it when this returns. An
    /// index of this name whose creation was interrupted is completed, if that has not happened since the store was opened.
    ///
    /// # Errors
    /// A name that is taken; columns that the kind cannot index; no space or other failures of storage before it was begun;
    /// [`Error::Uncreated`] if it failed later and the index is gone again, [`Error::Unbuilt`] if it is there, but unfinished;
    /// [`Error::Cancelled`] if the store is closed meanwhile, after which the next session goes on.
    pub fn create_index(&self, name: &str, kind: IndexKind, columns: &[&str]) -> Result<()> {
        self.create_index_with(name, kind, columns, &IndexOptions::default())
    }

    /// As [`Self::create_index`], with options of the kind.
    ///
    /// # Errors
    /// As [`Self::create_index`]; options that the kind does not have, and grids that are not possible.
    pub fn create_index_with(
        &self,
        name: &str,
        kind: IndexKind,
        columns: &[&str],
        options: &IndexOptions,
    ) -> Result<()> {
        let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        self.engine.create_index(&self.handle, name, kind, &columns, options)
    }

    /// Removes an index. Snapshots that there are can search it as long as they live.
    ///
    /// # Errors
    /// A name that no index has, or one of the two that every dataset has; storage.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        self.engine.drop_index(&self.handle, name)
    }

    /// Completes indexes whose creation was interrupted. With background threads, a store that is opened does so on its
    /// own.
    ///
    /// # Errors
    /// [`Error::Unbuilt`], which names the first that could not be completed; [`Error::Cancelled`] if the store is closed
    /// meanwhile.
    pub fn build_indexes(&self) -> Result<()> {
        self.engine.check_writable()?;
        let _building = self.handle.building.lock();
        self.handle.check_present()?;
        self.engine.resume_indexes(&self.handle)
    }
}

impl Engine {
    fn create_index(
        self: &Arc<Self>,
        dataset: &Arc<DatasetHandle>,
        name: &str,
        kind: IndexKind,
        columns: &[String],
        options: &IndexOptions,
    ) -> Result<()> {
        self.check_writable()?;
        self.check_disk()?;
        let _building = dataset.building.lock();
        let begun = {
            let _changes = self.lock_catalog(dataset)?;
            let id = dataset.next_index.load(Ordering::Relaxed);
            let definition = IndexDefinition::new(id, name, kind, columns, options, &dataset.schema())?;
            match dataset.indexes.load().find(name) {
                None => Ok(self.begin_index(dataset, definition)?),
                Some((place, index)) => {
                    let is_like = index.definition.is_like(&definition);
                    // Under B1 nobody is at work on it.
                    let is_interrupted =
                        || dataset.is_asked_for_again(index.definition.id) || is_building(dataset, place);
                    if !is_like || !is_interrupted() {
                        return Err(exists_already(&dataset.name, &index.definition, is_like));
                    }
                    Err(place)
                }
            }
        };
        let (place, snapshot) = match begun {
            Ok(begun) => begun,
            // It may have been completed since the store was opened.
            Err(place) if !is_building(dataset, place) => return Ok(()),
            Err(place) => return self.resume_index(dataset, place).map_err(|error| unbuilt(dataset, place, error)),
        };
        let built = self.load_index(dataset, place, &snapshot);
        drop(snapshot);
        if let Err(error) = &built {
            self.note_failure(error);
        }
        if !matches!(built, Ok(true)) {
            // If the dataset is being dropped, that has happened then, and is what is told.
            drop(self.lock_catalog(dataset)?);
        }
        match built {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::usage(format!("the index {name:?} was dropped while it was built"))),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(error) => {
                let (dataset_name, cause) = (dataset.name.clone(), Box::new(error));
                // This may fail too, as on a full disk. Others may have dropped the index, but under B1 none creates one.
                let dropped = self.drop_index(dataset, name);
                Err(match dropped.is_err() && dataset.indexes.load().find(name).is_some() {
                    true => Error::Unbuilt { dataset: dataset_name, index: name.to_owned(), cause },
                    false => Error::Uncreated { dataset: dataset_name, index: name.to_owned(), cause },
                })
            }
        }
    }

    /// Makes a cut from which on the index takes all changes; tells its place, and a snapshot of what was there. To be
    /// called with `catalog_changes` held.
    fn begin_index(
        self: &Arc<Self>,
        dataset: &Arc<DatasetHandle>,
        definition: IndexDefinition,
    ) -> Result<(usize, Snapshot)> {
        let history = dataset.history.load();
        let id = definition.id;
        let index = Arc::new(DatasetIndex::open(definition, &history)?);
        let indexes = dataset.indexes.load().with(index.clone());
        dataset.next_index.store(id + 1, Ordering::Relaxed);
        let catalog = dataset.catalog(&history, &indexes)?;
        let _gate = dataset.exclude()?;
        self.seal(dataset)?;
        let cut = self.last_sequence();
        let begun = dataset.partitions.begin_index(&self.workshop, index.numbered(), cut, |manifest| {
            set_catalog(manifest, dataset, catalog)?;
            // Numbers up to the cut are not given out again, whatever of them is left.
            manifest.last_sequence = manifest.last_sequence.max(cut);
            Ok(())
        });
        let place = begun.map_err(Error::from).inspect_err(|error| self.note_failure(error))?;
        dataset.indexes.store(Arc::new(indexes));
        Ok((place, Snapshot::new(self.clone(), dataset)))
    }

    /// Goes on with the indexes that were not complete when the store was opened, but those that are dropped meanwhile. To be
    /// called with `building` held.
    pub fn resume_indexes(self: &Arc<Self>, dataset: &Arc<DatasetHandle>) -> Result<()> {
        let places: Vec<usize> = dataset.indexes.load().iter().map(|(place, _)| place).collect();
        let mut unfinished = places.into_iter().filter(|place| is_building(dataset, *place));
        unfinished
            .try_for_each(|place| self.resume_index(dataset, place).map_err(|error| unbuilt(dataset, place, error)))
    }

    fn resume_index(self: &Arc<Self>, dataset: &Arc<DatasetHandle>, place: usize) -> Result<()> {
        let mut snapshot = None;
        let exclude = || {
            let gate = dataset.exclude()?;
            self.seal(dataset)?;
            while self.flush_oldest(dataset)? {}
            Ok::<_, Error>(gate)
        };
        let pin = || snapshot = Some(Snapshot::new(self.clone(), dataset));
        let resumed = dataset.partitions.resume_index(&self.workshop, place, exclude, pin);
        resumed.inspect_err(|error| self.note_failure(error))?;
        if let Some(snapshot) = snapshot {
            self.load_index(dataset, place, &snapshot).inspect_err(|error| {
                self.note_failure(error);
                if error.is_damage() {
                    // It may be the runs, without which the next session begins anew.
                    let _ = dataset.partitions.forget_loaded(&self.workshop, place);
                }
            })?;
        }
        Ok(())
    }

    /// Loads what a snapshot has into an index, of several partitions at a time, and completes it. False if it was dropped
    /// meanwhile.
    fn load_index(&self, dataset: &DatasetHandle, place: usize, snapshot: &Snapshot) -> Result<bool> {
        let Some(index) = snapshot.indexes.get(place) else { return Ok(false) };
        let partitions: Vec<usize> = snapshot.scope().collect();
        let threads = threads_of(self.workshop.threads_max, partitions.len());
        let budget = self.shares.work / threads;
        let loaded = parallel::map(threads, &partitions, |&partition| {
            let snapshot = snapshot.of_partitions(partition..partition + 1);
            Load { engine: self, dataset, place, index, partition, snapshot }.run(budget)
        });
        self.note_failures(&loaded);
        let mut files = UnnamedFiles::new(self.storage.clone());
        loaded.iter().flatten().for_each(|load| {
            if let Outcome::Component(meta) = load {
                files.add(meta);
            }
        });
        let loaded = match loaded.into_iter().collect::<Result<Vec<_>>>() {
            // Runs that go with a dropped index are missing to who reads them.
            Err(_) if !is_building(dataset, place) => return Ok(false),
            loaded => loaded?,
        };
        let mut metas = Vec::with_capacity(loaded.len());
        for load in loaded {
            match load {
                Outcome::Component(meta) => metas.push(Some(*meta)),
                Outcome::Installed => metas.push(None),
                Outcome::Dropped => return Ok(false),
            }
        }
        // Without a log, a manifest must not have entries of records that are in memory only.
        while self.flush_oldest(dataset)? {}
        files.give_away(metas.iter().flatten());
        if !dataset.partitions.complete_index(&self.workshop, place, &metas)? {
            return Ok(false);
        }
        if is_building(dataset, place) { self.merge_loaded(dataset, place) } else { Ok(true) }
    }

    /// Merges the components of an index that may have entries of others as well, so that each is found once, and has searches use
    /// it. False if it was dropped meanwhile.
    fn merge_loaded(&self, dataset: &DatasetHandle, place: usize) -> Result<bool> {
        let cancellation = self.maintenance.builds();
        self.in_partitions(dataset, |partition, bytes_max| {
            self.merge_oldest(dataset, (partition, place), usize::MAX, bytes_max, cancellation)?;
            Ok(true)
        })?;
        Ok(dataset.partitions.finish_index(&self.workshop, place)?)
    }

    fn drop_index(&self, dataset: &DatasetHandle, name: &str) -> Result<()> {
        self.check_writable()?;
        let _changes = self.lock_catalog(dataset)?;
        let indexes = dataset.indexes.load_full();
        let (place, index) = indexes.find(name).ok_or_else(|| indexes.unknown(&dataset.name, name))?;
        if matches!(index.definition.id, PRIMARY | SPATIAL) {
            return Err(Error::usage(format!("the index {name:?} is a part of every dataset and cannot be dropped")));
        }
        let left = indexes.without(place);
        let catalog = dataset.catalog(&dataset.history.load(), &left)?;
        let _gate = dataset.exclude()?;
        // Snapshots that see the index in memory see it on disk from here on.
        self.seal(dataset)?;
        while self.flush_oldest(dataset)? {}
        let change = |manifest: &mut Manifest| set_catalog(manifest, dataset, catalog.clone());
        let drop = || dataset.partitions.drop_index(&self.workshop, place, change).map_err(Error::from);
        self.with_room(drop).inspect_err(|error| self.note_failure(error))?;
        dataset.indexes.store(Arc::new(left));
        Ok(())
    }
}

/// What came of the load of a partition.
#[derive(Debug)]
enum Outcome {
    /// A component of it all.
    Component(Box<ComponentMeta>),
    /// An earlier load has given the index its component.
    Installed,
    /// The index was dropped meanwhile.
    Dropped,
}

/// The load of what a snapshot of a partition has into an index.
struct Load<'l> {
    engine: &'l Engine,
    dataset: &'l DatasetHandle,
    place: usize,
    index: &'l DatasetIndex,
    partition: usize,
    snapshot: Snapshot,
}

impl Load<'_> {
    /// Goes on with the load where it was interrupted.
    fn run(&self, budget: usize) -> Result<Outcome> {
        let (workshop, builds) = (&self.engine.workshop, self.engine.maintenance.builds());
        let sequence = (0, self.snapshot.sequence());
        let mut loader = IndexLoader::new(workshop, self.index, &self.snapshot.history, budget, sequence);
        let loaded = self.dataset.partitions.loaded(workshop, self.partition, self.place)?;
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
        self.snapshot.visit_btree_from(self.partition, PRIMARY as usize, &mut position, &mut |key, stored| {
            records += 1;
            if records % WANTED_STEP == 0 && builds.is_cancelled() {
                loader.spill()?;
                self.keep(&mut loader, Some(key))?;
                return Err(Error::Cancelled);
            }
            loader.add(key, stored).map_err(|error| self.snapshot.name_record(error, key))?;
            is_wanted = if loader.has_new_runs() {
                self.keep(&mut loader, Some(key))?
            } else {
                records % WANTED_STEP != 0 || is_building(self.dataset, self.place)
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
        loader.finish(builds).map(|meta| Outcome::Component(Box::new(meta)))
    }

    /// Keeps what was sorted so far: all records with keys before this one. False if the index was dropped.
    fn keep(&self, loader: &mut IndexLoader<'_>, next_key: Option<&[u8]>) -> Result<bool> {
        // What the snapshot has in memory must not be lost where the runs have it.
        while self.engine.flush_oldest(self.dataset)? {}
        let at = (self.partition, self.place);
        Ok(self.dataset.partitions.keep_loaded(&self.engine.workshop, at, loader.give_runs_away(), next_key)?)
    }
}

fn set_catalog(
    manifest: &mut Manifest,
    dataset: &DatasetHandle,
    catalog: serde_json::Value,
) -> terrane_lsm::Result<()> {
    manifest.dataset_mut(dataset.id)?.catalog = catalog;
    Ok(())
}

/// Why an index is not created; `is_like` says whether the one that is there is what was asked for.
fn exists_already(dataset: &str, index: &IndexDefinition, is_like: bool) -> Error {
    let (name, kind, columns) = (&index.name, &index.kind, index.columns.join(", "));
    let advice = match is_like {
        true => "it is complete, and as it was asked for, so nothing is left to do",
        false if matches!(index.id, PRIMARY | SPATIAL) => "choose another name, as every dataset has this one",
        false => "choose another name, or drop it first",
    };
    Error::usage(format!("dataset {dataset:?} has an index {name:?} already, of kind {kind} on {columns}; {advice}"))
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
