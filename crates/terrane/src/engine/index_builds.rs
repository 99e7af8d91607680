//! Indexes are created, completed and dropped while the dataset is in use.
//!
//! A new index takes all changes from a cut on. The records from before the cut are loaded from a
//! snapshot beside the writers. Queries use the index when it has those too. Writers wait while the
//! cut is made, not for the load. Each sorted run of the load is kept with the key that it goes up
//! to. After a crash or a close, the next session continues there. A load without a run is begun
//! anew, from a cut of its own.
//!
//! B1 A thread that builds, completes or repairs indexes of a dataset holds `building`. It is taken
//!    before all other locks.
//! B2 An index is in `indexes`, from which writers make their operations, exactly while the active
//!    generation has a memory component of it. Both change with the gate held alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use terrane_lsm::index::Cancellation;
use terrane_lsm::manifest::Manifest;
use terrane_lsm::parallel::{self, threads_of};
use terrane_lsm::partition::IndexSlot;
use terrane_storage::sync::thread::JoinHandle;
use terrane_storage::sync::{Mutex, Ordering};

use super::catalog::Catalog;
use super::commit_core::CommitCore;
use super::dataset::DatasetHandle;
use super::datasets::OpenDatasets;
use super::disk_space::DiskSpace;
use super::environment::Environment;
use super::index_load::{Load, Outcome};
use super::maintenance::{self, Maintenance};
use crate::runs::UnnamedFiles;
use crate::secondary::{DatasetIndex, IndexDefinition, IndexKind, IndexOptions, PRIMARY, SPATIAL};
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// The builds of indexes of an open store.
#[derive(Debug)]
pub(crate) struct IndexBuilds {
    /// Of all builds, when the store is closed.
    cancellation: Cancellation,
    /// Why an index of an earlier session could not be completed, until that is reported.
    failed: Mutex<Option<Error>>,
    /// Completes the indexes of earlier sessions.
    thread: Mutex<Option<JoinHandle<()>>>,
    catalog: Arc<Catalog>,
    maintenance: Arc<Maintenance>,
    disk: Arc<DiskSpace>,
    datasets: Arc<OpenDatasets>,
    core: Arc<CommitCore>,
}

impl IndexBuilds {
    pub fn new(
        core: Arc<CommitCore>,
        datasets: Arc<OpenDatasets>,
        disk: Arc<DiskSpace>,
        maintenance: Arc<Maintenance>,
        catalog: Arc<Catalog>,
    ) -> Self {
        let (failed, thread) = (Mutex::new(None), Mutex::new(None));
        Self { cancellation: Cancellation::default(), failed, thread, catalog, maintenance, disk, datasets, core }
    }

    fn environment(&self) -> &Environment {
        self.core.environment()
    }

    /// Has a background thread complete the indexes of earlier sessions, if there are any.
    pub(super) fn start(self: &Arc<Self>) -> Result<()> {
        let options = &self.environment().options;
        let is_wanted = || self.datasets.load().values().any(|dataset| dataset.first_unbuilt().is_some());
        if options.background && !options.lenient && is_wanted() {
            let builds = Arc::downgrade(self);
            *self.thread.lock() = Some(maintenance::spawn("terrane-index", move || complete_unbuilt(&builds))?);
        }
        Ok(())
    }

    /// Has all builds end soon. The next session continues with them.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Waits for the end of the background thread.
    pub(super) fn join(&self) {
        let thread = self.thread.lock().take();
        thread.into_iter().for_each(maintenance::join);
    }

    /// Why an index of an earlier session was not completed, if one of its dataset still is not: a
    /// failure at one keeps the later ones from being completed. Returned once.
    pub(super) fn take_failure(&self) -> Option<Error> {
        let failed = self.failed.lock().take()?;
        let Error::Unbuilt { dataset, index, .. } = &failed else { return None };
        let index = index.clone();
        let dataset = self.datasets.load().get(dataset.as_str()).cloned()?;
        let Some(_building) = dataset.building.try_lock() else {
            // A thread is at work on one: this is reported later, if there is still reason to.
            *self.failed.lock() = Some(failed);
            return None;
        };
        let slot = dataset.first_unbuilt()?;
        match failed {
            Error::Unbuilt { cause, .. } if dataset.is_unbuilt(&index) => Some(dataset.unbuilt(slot, *cause)),
            Error::Unbuilt { cause, .. } => {
                let cause = Error::Failed(format!(
                    "it was not begun, as the index {index:?} could not be completed before: {cause}"
                ));
                Some(dataset.unbuilt(slot, cause))
            }
            _ => None,
        }
    }

    /// Creates an index and builds it from the records. One of this name whose creation was
    /// interrupted is completed.
    pub fn create(
        &self,
        dataset: &Arc<DatasetHandle>,
        name: &str,
        kind: IndexKind,
        columns: &[String],
        options: &IndexOptions,
    ) -> Result<()> {
        self.core.check_writable()?;
        self.maintenance.check_disk()?;
        let _building = dataset.building.lock();
        let begun = {
            let _changes = self.catalog.lock_for(dataset)?;
            let id = dataset.next_index.load(Ordering::Relaxed);
            let definition = IndexDefinition::new(id, name, kind, columns, options, &dataset.schema())?;
            match dataset.indexes.load().find(name) {
                None => Ok(self.begin(dataset, definition)?),
                Some((slot, index)) => {
                    let is_like = index.definition.is_like(&definition);
                    // Under B1 nobody is at work on it.
                    let is_interrupted =
                        || dataset.is_asked_for_again(index.definition.id) || dataset.is_building(slot);
                    if !is_like || !is_interrupted() {
                        return Err(exists_already(&dataset.name, &index.definition, is_like));
                    }
                    Err(slot)
                }
            }
        };
        let (slot, snapshot) = match begun {
            Ok(begun) => begun,
            // It may have been completed since the store was opened.
            Err(slot) if !dataset.is_building(slot) => return Ok(()),
            Err(slot) => return self.resume_one(dataset, slot).map_err(|error| dataset.unbuilt(slot, error)),
        };
        let built = self.load(dataset, slot, &snapshot);
        drop(snapshot);
        if let Err(error) = &built {
            self.core.note_failure(error);
        }
        if !matches!(built, Ok(true)) {
            // If the dataset is being dropped, that has happened then, and is reported.
            drop(self.catalog.lock_for(dataset)?);
        }
        match built {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::usage(format!("the index {name:?} was dropped while it was built"))),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(error) => {
                let (dataset_name, cause) = (dataset.name.clone(), Box::new(error));
                // This may fail too, as on a full disk. Others may have dropped the index, but
                // under B1 none creates one.
                let dropped = self.drop_index(dataset, name);
                Err(match dropped.is_err() && dataset.indexes.load().find(name).is_some() {
                    true => Error::Unbuilt { dataset: dataset_name, index: name.to_owned(), cause },
                    false => Error::Uncreated { dataset: dataset_name, index: name.to_owned(), cause },
                })
            }
        }
    }

    /// Makes a cut from which on the index takes all changes; tells its slot, and a snapshot of
    /// what was there. To be called with the catalog's lock held.
    fn begin(&self, dataset: &Arc<DatasetHandle>, definition: IndexDefinition) -> Result<(usize, Snapshot)> {
        let history = dataset.history.load();
        let id = definition.id;
        let index = Arc::new(DatasetIndex::open(definition, &dataset.history)?);
        let indexes = dataset.indexes.load().with(index.clone());
        dataset.next_index.store(id + 1, Ordering::Relaxed);
        let catalog = dataset.definition(&history, &indexes)?;
        let _gate = dataset.exclude()?;
        self.core.seal(dataset)?;
        let cut = self.core.last_sequence();
        let begun = dataset.partitions.begin_index(&self.environment().context, index.numbered(), cut, |manifest| {
            set_catalog(manifest, dataset, catalog)?;
            // Numbers up to the cut are not given out again, whatever of them is left.
            manifest.last_sequence = manifest.last_sequence.max(cut);
            Ok(())
        });
        let slot = begun.map_err(Error::from).inspect_err(|error| self.core.note_failure(error))?;
        dataset.indexes.store(Arc::new(indexes));
        Ok((slot, Snapshot::new(self.core.clone(), dataset)))
    }

    /// Completes the indexes whose creation was interrupted.
    pub fn resume(&self, dataset: &Arc<DatasetHandle>) -> Result<()> {
        let _building = dataset.building.lock();
        dataset.check_present()?;
        self.resume_all(dataset)
    }

    /// As [`Self::resume`], with `building` held. Indexes that are dropped meanwhile are passed
    /// over.
    fn resume_all(&self, dataset: &Arc<DatasetHandle>) -> Result<()> {
        let slots: Vec<usize> = dataset.indexes.load().iter().map(|(slot, _)| slot).collect();
        let mut unfinished = slots.into_iter().filter(|slot| dataset.is_building(*slot));
        unfinished.try_for_each(|slot| self.resume_one(dataset, slot).map_err(|error| dataset.unbuilt(slot, error)))
    }

    fn resume_one(&self, dataset: &Arc<DatasetHandle>, slot: usize) -> Result<()> {
        let mut snapshot = None;
        let exclude = || {
            let gate = dataset.exclude()?;
            self.maintenance.flush(dataset)?;
            Ok::<_, Error>(gate)
        };
        let pin = || snapshot = Some(Snapshot::new(self.core.clone(), dataset));
        let resumed = dataset.partitions.resume_index(&self.environment().context, slot, exclude, pin);
        resumed.inspect_err(|error| self.core.note_failure(error))?;
        if let Some(snapshot) = snapshot {
            self.load(dataset, slot, &snapshot).inspect_err(|error| {
                self.core.note_failure(error);
                if error.is_damage() {
                    // It may be the runs, without which the next session begins anew.
                    let _ = dataset.partitions.forget_loaded(&self.environment().context, slot);
                }
            })?;
        }
        Ok(())
    }

    /// Loads what a snapshot has into an index, of several partitions at a time, and completes it.
    /// False if it was dropped meanwhile.
    fn load(&self, dataset: &DatasetHandle, slot: usize, snapshot: &Snapshot) -> Result<bool> {
        let Some(index) = snapshot.indexes.get(slot) else { return Ok(false) };
        let partitions: Vec<usize> = snapshot.scope().collect();
        let threads = threads_of(self.environment().context.threads_max, partitions.len());
        let budget = self.environment().shares.work / threads;
        let loaded = parallel::map(threads, &partitions, |&partition| {
            let snapshot = snapshot.of_partitions(partition..partition + 1);
            let load = Load {
                core: &self.core,
                maintenance: &self.maintenance,
                cancellation: &self.cancellation,
                dataset,
                at: IndexSlot { partition, slot },
                index,
                snapshot,
            };
            load.run(budget)
        });
        self.core.note_failures(&loaded);
        let mut files = UnnamedFiles::new(self.environment().storage.clone());
        loaded.iter().flatten().for_each(|load| {
            if let Outcome::Component(meta) = load {
                files.add(meta);
            }
        });
        let loaded = match loaded.into_iter().collect::<Result<Vec<_>>>() {
            // Runs that go with a dropped index are missing to who reads them.
            Err(_) if !dataset.is_building(slot) => return Ok(false),
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
        self.maintenance.flush_sealed(dataset)?;
        files.give_away(metas.iter().flatten());
        if !dataset.partitions.complete_index(&self.environment().context, slot, &metas)? {
            return Ok(false);
        }
        if dataset.is_building(slot) { self.merge_loaded(dataset, slot) } else { Ok(true) }
    }

    /// Merges the components of an index that may have entries of others as well, so that each is
    /// found once, and has searches use it. False if it was dropped meanwhile.
    fn merge_loaded(&self, dataset: &DatasetHandle, slot: usize) -> Result<bool> {
        let cancellation = &self.cancellation;
        self.maintenance.in_partitions(dataset, |partition, bytes_max| {
            self.maintenance.merge_oldest(
                dataset,
                IndexSlot { partition, slot },
                usize::MAX,
                bytes_max,
                cancellation,
            )?;
            Ok(true)
        })?;
        Ok(dataset.partitions.finish_index(&self.environment().context, slot)?)
    }

    /// Removes an index. Existing snapshots can search it as long as they live.
    pub fn drop_index(&self, dataset: &DatasetHandle, name: &str) -> Result<()> {
        self.core.check_writable()?;
        let _changes = self.catalog.lock_for(dataset)?;
        let indexes = dataset.indexes.load_full();
        let (slot, index) = indexes.find(name).ok_or_else(|| indexes.unknown(&dataset.name, name))?;
        if matches!(index.definition.id, PRIMARY | SPATIAL) {
            return Err(Error::usage(format!("the index {name:?} is a part of every dataset and cannot be dropped")));
        }
        let left = indexes.without(slot);
        let catalog = dataset.definition(&dataset.history.load(), &left)?;
        let _gate = dataset.exclude()?;
        // Snapshots that see the index in memory see it on disk from here on.
        self.maintenance.flush(dataset)?;
        let change = |manifest: &mut Manifest| set_catalog(manifest, dataset, catalog.clone());
        let drop = || dataset.partitions.drop_index(&self.environment().context, slot, change).map_err(Error::from);
        self.disk.with_room(drop).inspect_err(|error| self.core.note_failure(error))?;
        dataset.indexes.store(Arc::new(left));
        Ok(())
    }
}

/// Completes the indexes that earlier sessions began. Those of this session are built by the
/// threads that asked for them.
fn complete_unbuilt(builds: &Weak<IndexBuilds>) {
    let Some(builds) = builds.upgrade() else { return };
    for dataset in builds.datasets.handles() {
        let _building = dataset.building.lock();
        let built = catch_unwind(AssertUnwindSafe(|| builds.resume_all(&dataset))).unwrap_or_else(|panic| {
            let cause = Error::Failed(format!("building panicked{}", maintenance::reason_of(&*panic)));
            Err(match dataset.first_unbuilt() {
                Some(slot) => dataset.unbuilt(slot, cause),
                None => cause,
            })
        });
        match built {
            Ok(()) | Err(Error::Dropped { .. }) => {}
            Err(Error::Cancelled) => return,
            Err(error) => {
                tracing::warn!(%error, "an index is not completed");
                *builds.failed.lock() = Some(error);
            }
        }
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
#[path = "index_builds_tests.rs"]
mod tests;
