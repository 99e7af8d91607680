//! Verification of a whole store, in bounded memory.
//!
//! 1. Every page of every component is read from its file and verified, with the invariants of its
//!    kind.
//! 2. Each secondary index is compared with the primary index. Each side is summed up as a multiset
//!    of hashes of entries, independent of order, in slices of the keys' hash range.
//! 3. Slices with different sums are compared entry by entry.

mod compare;
mod digest;
mod index;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::index::Cancellation;
use terrane_lsm::partition::{IndexSlot, IndexVersion};

use self::digest::{Slices, key_hash};
use self::index::IndexReader;
use crate::engine::{DatasetHandle, Engine, Unopened, foreign_names};
use crate::load::IndexLoader;
use crate::record::RecordView;
use crate::record::stored_rect;
use crate::secondary::PRIMARY;
use crate::snapshot::Snapshot;
use crate::words::{counted, first_of};
use crate::{Error, Result};

/// A defect in the store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The dataset.
    pub dataset: String,
    /// The partition, if the dataset has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<usize>,
    /// The index.
    pub index: String,
    /// The defect, with file and offset if known.
    pub reason: String,
    /// Whether the check has repaired it.
    pub repaired: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dataset)?;
        if let Some(partition) = self.partition {
            write!(f, " · partition {partition}")?;
        }
        let repaired = if self.repaired { " (repaired)" } else { "" };
        write!(f, " · index {}: {}{repaired}", self.index, self.reason)
    }
}

/// Indexes that could not be opened and have not been repaired since.
pub(crate) fn unopened(engine: &Engine) -> Vec<Finding> {
    let datasets = engine.datasets.load();
    let finding = |dataset: &DatasetHandle, unopened: &Unopened| {
        finding(dataset, unopened.partition, unopened.slot, unopened.error.finding())
    };
    let of_dataset = |dataset| still_unopened(dataset).map(move |unopened| finding(dataset, unopened));
    datasets.values().flat_map(|dataset| of_dataset(dataset).collect::<Vec<_>>()).collect()
}

fn still_unopened(dataset: &DatasetHandle) -> impl Iterator<Item = &Unopened> {
    let versions = dataset.partitions.versions();
    let is_damaged = move |unopened: &&Unopened| versions[unopened.partition].indexes[unopened.slot].damage().is_some();
    dataset.damage.iter().filter(is_damaged)
}

fn finding(dataset: &DatasetHandle, partition: usize, slot: usize, reason: String) -> Finding {
    Finding {
        dataset: dataset.name.clone(),
        partition: (dataset.partitions.count() > 1).then_some(partition),
        index: dataset.indexes.load().name(slot).to_owned(),
        reason,
        repaired: false,
    }
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckReport {
    /// Datasets checked.
    pub datasets: u64,
    /// Component files read.
    pub components: u64,
    /// Pages verified.
    pub pages: u64,
    /// Records in all datasets.
    pub records: u64,
    /// Records with a null or empty geometry. No spatial index holds them.
    pub without_geometry: u64,
    /// The defects found.
    pub findings: Vec<Finding>,
    /// Files and directories in the store's directory that are not the store's. The store leaves
    /// them alone.
    pub foreign_files: Vec<String>,
}

impl CheckReport {
    /// Whether no defect remains.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.repaired)
    }

    pub(crate) fn of(engine: &Arc<Engine>, repair: bool) -> Result<Self> {
        if repair {
            engine.check_writable()?;
        }
        let mut report = Self { foreign_files: foreign_names(&*engine.environment().storage)?, ..Self::default() };
        for dataset in engine.datasets.load().values() {
            match report.dataset(engine, dataset, repair) {
                Ok(()) => report.datasets += 1,
                // The dataset was dropped meanwhile.
                Err(Error::Dropped { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// Checks each partition by itself: its indexes must agree with its records.
    fn dataset(&mut self, engine: &Arc<Engine>, dataset: &Arc<DatasetHandle>, repair: bool) -> Result<()> {
        let snapshot = Snapshot::new(engine.core.clone(), dataset);
        let mut damaged = Vec::new();
        for partition in snapshot.scope() {
            let slots = self.partition(dataset, partition, &snapshot.of_partitions(partition..partition + 1))?;
            damaged.extend(slots.into_iter().map(|slot| IndexSlot { partition, slot }));
        }
        drop(snapshot);
        for at in damaged.into_iter().filter(|_| repair) {
            rebuild(engine, dataset, at).inspect_err(|error| engine.core.note_failure(error))?;
            let repaired = finding(dataset, at.partition, at.slot, String::new());
            for finding in self.findings.iter_mut().filter(|finding| finding.is_of(&repaired)) {
                finding.repaired = true;
            }
        }
        Ok(())
    }

    /// Checks a partition through a snapshot. Returns the slots of the indexes that can be rebuilt.
    fn partition(&mut self, dataset: &DatasetHandle, partition: usize, snapshot: &Snapshot) -> Result<Vec<usize>> {
        // Files only. A version would keep its memory components alive while all files are read.
        let indexes = snapshot.versions_full()[0].indexes.clone();
        let mut broken = vec![false; indexes.len()];
        for unopened in still_unopened(dataset).filter(|unopened| unopened.partition == partition) {
            broken[unopened.slot] = true;
            self.find(dataset, partition, unopened.slot, &unopened.error);
        }
        for (slot, index) in indexes.iter().enumerate() {
            for part in &index.components {
                self.components += 1;
                match index.numbered.index.check(part) {
                    Ok(found) => self.pages += found.pages,
                    Err(error) if error.is_damage() => {
                        broken[slot] = true;
                        self.find(dataset, partition, slot, &error.into());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if broken[PRIMARY as usize] {
            // Nothing can be compared with a damaged primary index, or rebuilt from it.
            return Ok(Vec::new());
        }
        // An index that is still being built cannot be judged.
        let readers: Vec<IndexReader<'_>> = snapshot
            .indexes
            .secondaries()
            .filter(|(slot, _)| indexes.get(*slot).is_some_and(IndexVersion::is_whole) || broken[*slot])
            .map(|(slot, index)| IndexReader::new(snapshot, slot, index.clone()))
            .collect();
        let expected = match self.read_primary(snapshot, partition, &readers) {
            Ok(expected) => expected,
            Err(error) if error.is_damage() => {
                self.find(dataset, partition, PRIMARY as usize, &error);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        for (reader, expected) in readers.iter().zip(&expected) {
            if !broken[reader.slot] && !self.compare(dataset, partition, reader, expected)? {
                broken[reader.slot] = true;
            }
        }
        Ok(readers.iter().map(|reader| reader.slot).filter(|slot| broken[*slot]).collect())
    }

    /// Whether an index agrees with the records.
    fn compare(
        &mut self,
        dataset: &DatasetHandle,
        partition: usize,
        reader: &IndexReader<'_>,
        expected: &Slices,
    ) -> Result<bool> {
        let mut found = Slices::new(expected.range());
        let read = reader.read(&found.range(), &|_| true, &mut |hash, entry, key| {
            found.add(hash, entry, key);
            Ok(())
        });
        match read {
            Ok(()) if found == *expected => return Ok(true),
            Ok(()) => {
                let reasons = compare::differences(reader, expected, &found)?;
                let mut add = |reason| self.findings.push(finding(dataset, partition, reader.slot, reason));
                reasons.into_iter().for_each(&mut add);
            }
            Err(error) if error.is_damage() => self.find(dataset, partition, reader.slot, &error),
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    fn find(&mut self, dataset: &DatasetHandle, partition: usize, slot: usize, error: &Error) {
        self.findings.push(finding(dataset, partition, slot, error.finding()));
    }

    /// Reads every record, and computes the entries that each index should hold.
    fn read_primary(
        &mut self,
        snapshot: &Snapshot,
        partition: usize,
        readers: &[IndexReader<'_>],
    ) -> Result<Vec<Slices>> {
        let mut expected = vec![Slices::new(Slices::ALL); readers.len()];
        snapshot.visit_records(&mut |key, stored| {
            self.records += 1;
            let right = snapshot.partition_of(key);
            if right != partition {
                return Err(Error::damaged_record(format!(
                    "it lies in partition {partition}, but its key belongs to {right}"
                )));
            }
            let record = RecordView::parse(stored, &snapshot.history)?;
            for index in 0..snapshot.history.newest().columns.len() {
                record.value(index)?;
            }
            self.without_geometry += u64::from(stored_rect(stored, snapshot.schema().system)?.is_none());
            let hash = key_hash(key);
            for (reader, expected) in readers.iter().zip(&mut expected) {
                reader.index.visit_entries(&snapshot.history, key, stored, &mut |entry| {
                    expected.add(hash, entry, key);
                    Ok(())
                })?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(expected)
    }
}

impl Finding {
    /// Whether both belong to the same index.
    fn is_of(&self, other: &Self) -> bool {
        (&self.dataset, self.partition, &self.index) == (&other.dataset, other.partition, &other.index)
    }
}

/// Rebuilds an index of a partition from the records.
fn rebuild(engine: &Arc<Engine>, dataset: &Arc<DatasetHandle>, at: IndexSlot) -> Result<()> {
    let _building = dataset.building.lock();
    let _gate = dataset.exclude()?;
    engine.maintenance.flush(dataset)?;
    let snapshot = Snapshot::new(engine.core.clone(), dataset).of_partitions(at.partition..at.partition + 1);
    // The index may have been dropped meanwhile.
    let Some(index) = snapshot.indexes.get(at.slot) else { return Ok(()) };
    let sequence = (0, snapshot.sequence());
    let mut loader = IndexLoader::new(
        &engine.environment().context,
        index,
        &snapshot.history,
        engine.environment().shares.work,
        sequence,
    );
    snapshot.visit_records(&mut |key, stored| {
        loader.add(key, stored)?;
        Ok(ControlFlow::Continue(()))
    })?;
    let meta: ComponentMeta = loader.finish(&Cancellation::default())?;
    dataset.partitions.replace_index(&engine.environment().context, at, &meta)?;
    Ok(())
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "checked {}, {}, {}, {} ({} without geometry): ",
            counted(self.datasets, "dataset", "datasets"),
            counted(self.components, "component", "components"),
            counted(self.pages, "page", "pages"),
            counted(self.records, "record", "records"),
            self.without_geometry
        )?;
        match self.findings.len() as u64 {
            0 => f.write_str("everything is as it should be")?,
            count => f.write_str(&counted(count, "finding", "findings"))?,
        }
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        if !self.foreign_files.is_empty() {
            let names = first_of(&self.foreign_files, ", ");
            write!(f, "\n  note: left alone, as they are not the store's: {names}")?;
        }
        Ok(())
    }
}
