//! The datasets of an open store, and the memory that all of their memory components take.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use terrane_lsm::disk::PageCache;
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;
use terrane_storage::sync::{AtomicUsize, Ordering};

use super::dataset::DatasetHandle;
use crate::{Error, Result};

/// Datasets by name.
pub(crate) type Datasets = BTreeMap<String, Arc<DatasetHandle>>;

/// The current datasets. Names come and go with the catalog's lock held.
#[derive(Debug)]
pub(crate) struct OpenDatasets {
    by_name: ArcSwap<Datasets>,
    /// Bytes of all memory components: the sum of what is noted of each dataset.
    memory_noted: AtomicUsize,
}

impl OpenDatasets {
    pub fn new(datasets: Datasets) -> Self {
        let opened = Self { by_name: ArcSwap::from_pointee(datasets), memory_noted: AtomicUsize::new(0) };
        opened.load().values().for_each(|dataset| opened.note_memory(dataset));
        opened
    }

    /// The datasets at this moment.
    pub fn load(&self) -> Guard<Arc<Datasets>> {
        self.by_name.load()
    }

    /// The datasets at this moment, for a while.
    pub fn handles(&self) -> Vec<Arc<DatasetHandle>> {
        self.load().values().cloned().collect()
    }

    /// The dataset of a name, or an error that lists the names.
    pub fn get(&self, name: &str) -> Result<Arc<DatasetHandle>> {
        let datasets = self.load();
        datasets
            .get(name)
            .cloned()
            .ok_or_else(|| Error::UnknownDataset { name: name.into(), existing: datasets.keys().cloned().collect() })
    }

    pub fn contains(&self, name: &str) -> bool {
        self.load().contains_key(name)
    }

    /// Makes a dataset known, instead of one of its name. To be called with the catalog's lock
    /// held.
    pub(super) fn publish(&self, handle: Arc<DatasetHandle>) {
        let mut datasets = (**self.load()).clone();
        datasets.insert(handle.name.clone(), handle);
        self.by_name.store(datasets.into());
    }

    /// Forgets the dataset of a name. To be called with the catalog's lock held.
    pub(super) fn forget(&self, name: &str) {
        let mut datasets = (**self.load()).clone();
        datasets.remove(name);
        self.by_name.store(datasets.into());
    }

    /// Bytes of all memory components.
    pub fn memory_used(&self) -> usize {
        self.load().values().map(|dataset| dataset.partitions.memory_used()).sum()
    }

    /// Bytes of all memory components as [`Self::note_memory`] last counted them. Every write asks
    /// for them, however many datasets there are. Writes in progress are not in them yet, and
    /// generations that a flush is about to free still are.
    pub fn memory_noted(&self) -> usize {
        self.memory_noted.load(Ordering::Relaxed)
    }

    /// Whether all memory components are empty.
    pub fn is_memory_empty(&self) -> bool {
        self.load().values().all(|dataset| dataset.partitions.is_memory_empty())
    }

    /// To be called by everyone who made memory components of a dataset grow or go.
    pub fn note_memory(&self, dataset: &DatasetHandle) {
        if dataset.partitions.memory_used() == dataset.memory_noted.load(Ordering::Relaxed) {
            return;
        }
        let _changing = dataset.memory_noting.lock();
        // Asked again under the lock, so that the last one to note knows of all changes before.
        let used = dataset.partitions.memory_used();
        let noted = dataset.memory_noted.swap(used, Ordering::Relaxed);
        if used >= noted {
            self.memory_noted.fetch_add(used - noted, Ordering::Relaxed);
        } else {
            self.memory_noted.fetch_sub(noted - used, Ordering::Relaxed);
        }
    }
}

/// Opens the datasets of a manifest; see [`DatasetHandle::open`] for `lenient`.
pub(super) fn open_datasets(
    storage: &Arc<dyn Storage>,
    cache: &Arc<PageCache>,
    manifest: &Manifest,
    lenient: bool,
) -> Result<Datasets> {
    let open = |state| Ok((DatasetHandle::open(storage, cache, state, lenient)?, state));
    let opened = manifest.datasets.iter().map(open).collect::<Result<Vec<_>>>()?;
    Ok(opened.into_iter().map(|(handle, state)| (state.name.clone(), Arc::new(handle))).collect())
}
