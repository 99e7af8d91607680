//! The log is replayed when a store is opened.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use terrane_lsm::index::Cancellation;
use terrane_lsm::operation::{self, EntryKind};
use terrane_lsm::partition::MaintenanceContext;

use super::dataset::DatasetHandle;
use super::datasets::Datasets;

/// Redoes the log's entries on the memory components.
///
/// A flush meanwhile is cut at the last number that was redone for the dataset. The manifest's last
/// number would not do: another dataset's flush or import may have set it above later entries of
/// this dataset, which would then be passed over as flushed. Entries come in the order of their
/// numbers, so all later ones of the dataset are above such a cut.
pub(super) struct Replay<'a> {
    datasets: &'a Datasets,
    context: &'a MaintenanceContext,
    by_id: HashMap<u32, &'a DatasetHandle>,
    /// Bytes of memory components above which they are flushed.
    limit: usize,
    /// Bytes of all memory components.
    memory_used: usize,
    /// The last number of all; those after it are free.
    pub last_sequence: u64,
    /// The last number redone in the active generation of each dataset that has one.
    redone: BTreeMap<u32, u64>,
    /// Whether existing components may be merged. A reader must not remove them.
    may_merge: bool,
}

impl<'a> Replay<'a> {
    /// For a writer, which may take `limit` bytes of memory.
    pub fn of_writer(datasets: &'a Datasets, context: &'a MaintenanceContext, limit: usize) -> Self {
        Self { may_merge: true, ..Self::of_reader(datasets, context, limit) }
    }

    /// For a reader.
    pub fn of_reader(datasets: &'a Datasets, context: &'a MaintenanceContext, limit: usize) -> Self {
        let last_sequence = context.manifest.current().last_sequence;
        let by_id = datasets.values().map(|dataset| (dataset.id, &**dataset)).collect();
        let redone = BTreeMap::new();
        Self { datasets, context, by_id, limit, memory_used: 0, last_sequence, redone, may_merge: false }
    }

    /// Whether the next entry is preceded by a flush.
    pub fn is_full(&self) -> bool {
        self.memory_used >= self.limit
    }

    /// Redoes an entry of the log.
    pub fn entry(&mut self, lsn: u64, entry: &[u8]) -> terrane_lsm::Result<()> {
        let (header, operations) = operation::decode(entry)?;
        if header.kind != EntryKind::COMMIT {
            return Err(terrane_lsm::Error::UnknownEntryKind { lsn, kind: header.kind.0 });
        }
        self.last_sequence = self.last_sequence.max(header.sequence);
        // Entries of datasets that are gone, and what is in disk components, are passed over.
        let Some(&dataset) = self.by_id.get(&header.dataset) else { return Ok(()) };
        let routes = dataset.routes_of(&header, operations.clone())?;
        if header.sequence <= dataset.partitions.flushed_sequence() {
            return Ok(());
        }
        if self.is_full() {
            self.make_room()?;
        }
        let fixed = routes.fix(dataset, &header, lsn);
        let before = fixed.memory_used();
        let applied = fixed.apply(&routes, operations, header.sequence);
        applied.map_err(|error| match error {
            terrane_lsm::Error::Invalid(reason) => terrane_lsm::Error::MalformedEntry { reason },
            other => other,
        })?;
        self.memory_used += fixed.memory_used() - before;
        self.redone.insert(dataset.id, header.sequence);
        Ok(())
    }

    /// Flushes the datasets that hold most, until half of the memory is free.
    fn make_room(&mut self) -> terrane_lsm::Result<()> {
        let mut largest: Vec<_> = self.datasets.values().collect();
        largest.sort_by_key(|dataset| Reverse(dataset.partitions.memory_used()));
        for dataset in largest {
            if self.memory_used < self.limit / 2 {
                break;
            }
            if let Some(cut) = self.redone.remove(&dataset.id) {
                let before = dataset.partitions.memory_used();
                dataset.partitions.seal(cut)?;
                while self.flush(dataset)? {}
                self.memory_used -= before - dataset.partitions.memory_used();
            }
        }
        Ok(())
    }

    /// All that is replayed is applied and durable. The low-water mark stays: the entries are
    /// passed over by their sequence numbers if they are met again. A writer merges what is flushed
    /// here only if too many files are open, and a reader never.
    fn flush(&self, dataset: &DatasetHandle) -> terrane_lsm::Result<bool> {
        let flush = || dataset.partitions.flush(self.context, &|_| Ok(()), &|_| ());
        let merge = || {
            let (bytes_max, cancellation) = (self.limit as u64, Cancellation::default());
            dataset.partitions.merge_to_fewest(self.context, bytes_max, &cancellation, &|_| ())
        };
        let flushed = match flush() {
            Err(terrane_lsm::Error::Storage(error)) if error.is_too_many_files() && self.may_merge && merge()? > 0 => {
                flush()
            }
            flushed => flushed,
        };
        Ok(flushed?.is_some())
    }
}
