//! Verification of a whole store, in bounded memory.
//!
//! Every page of every component is read from its file and verified with the invariants of
//! its kind. Then each secondary index is compared with the primary: both sides are summed up
//! as multisets of hashes of entries, which do not depend on order, slice by slice of the
//! range of the keys' hashes. Only slices whose sums differ are compared entry by entry.

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
use terrane_lsm::partition::IndexVersion;

use self::digest::{Slices, key_hash};
use self::index::IndexReader;
use crate::dataset::stored_rect;
use crate::engine::{DatasetHandle, Engine, foreign_names};
use crate::load::IndexLoader;
use crate::record::RecordView;
use crate::secondary::PRIMARY;
use crate::snapshot::Snapshot;
use crate::words::{counted, first_of};
use crate::{Error, Result};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The dataset.
    pub dataset: String,
    /// The index.
    pub index: String,
    /// What is wrong, with file and offset where there is one.
    pub reason: String,
    /// Whether it was put right.
    pub repaired: bool,
}

/// What could not be opened, and was not made up for by a repair since.
pub(crate) fn unopened(engine: &Engine) -> Vec<Finding> {
    let datasets = engine.datasets.load();
    datasets
        .values()
        .flat_map(|dataset| unopened_places(dataset).map(|(place, error)| finding(dataset, place, error.finding())))
        .collect()
}

fn unopened_places(dataset: &DatasetHandle) -> impl Iterator<Item = (usize, &Error)> {
    let version = dataset.partition.version();
    let damage = dataset.damage.iter().map(|(place, error)| (*place, error));
    damage.filter(move |(place, _)| version.indexes[*place].damage().is_some())
}

fn finding(dataset: &DatasetHandle, place: usize, reason: String) -> Finding {
    Finding {
        dataset: dataset.name.clone(),
        index: dataset.indexes.load().name(place).to_owned(),
        reason,
        repaired: false,
    }
}

/// What a check looked at and what it found.
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
    /// Records with a null or an empty geometry, which no spatial index holds.
    pub without_geometry: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Files and directories in the store's place that are none of its own. It leaves them alone.
    pub foreign_files: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong any more.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.repaired)
    }

    pub(crate) fn of(engine: &Arc<Engine>, repair: bool) -> Result<Self> {
        if repair {
            engine.check_writable()?;
        }
        let mut report = Self { foreign_files: foreign_names(&*engine.storage)?, ..Self::default() };
        for dataset in engine.datasets.load().values() {
            report.datasets += 1;
            report.dataset(engine, dataset, repair)?;
        }
        Ok(report)
    }

    fn dataset(&mut self, engine: &Arc<Engine>, dataset: &Arc<DatasetHandle>, repair: bool) -> Result<()> {
        let snapshot = Snapshot::new(engine.clone(), dataset);
        let version = snapshot.pinned.version_full();
        let mut broken = vec![false; version.indexes.len()];
        for (place, error) in unopened_places(dataset) {
            broken[place] = true;
            self.find(dataset, place, error);
        }
        // Files only: a version would keep what is in memory as long as all of them are read.
        let indexes = version.indexes.clone();
        drop(version);
        for (place, index) in indexes.iter().enumerate() {
            for part in &index.components {
                self.components += 1;
                match index.numbered.index.check(part) {
                    Ok(found) => self.pages += found.pages,
                    Err(error) if error.is_damage() => {
                        broken[place] = true;
                        self.find(dataset, place, &error.into());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if broken[PRIMARY as usize] {
            // Nothing can be compared with a damaged primary, nor rebuilt from it.
            return Ok(());
        }
        // An index that is not built yet says nothing.
        let readers: Vec<IndexReader<'_>> = snapshot
            .indexes
            .secondaries()
            .filter(|(place, _)| indexes.get(*place).is_some_and(IndexVersion::is_whole) || broken[*place])
            .map(|(place, index)| IndexReader::new(&snapshot, place, index.clone()))
            .collect();
        let expected = match self.read_primary(&snapshot, &readers) {
            Ok(expected) => expected,
            Err(error) if error.is_damage() => {
                self.find(dataset, PRIMARY as usize, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for (reader, expected) in readers.iter().zip(&expected) {
            if !broken[reader.place] && !self.compare(dataset, reader, expected)? {
                broken[reader.place] = true;
            }
        }
        let damaged: Vec<usize> = readers.iter().map(|reader| reader.place).filter(|place| broken[*place]).collect();
        drop(readers);
        drop(snapshot);
        for place in damaged.into_iter().filter(|_| repair) {
            rebuild(engine, dataset, place).inspect_err(|error| engine.note_failure(error))?;
            let name = dataset.indexes.load().name(place).to_owned();
            for finding in
                self.findings.iter_mut().filter(|finding| finding.dataset == dataset.name && finding.index == name)
            {
                finding.repaired = true;
            }
        }
        Ok(())
    }

    /// Whether an index has what the records call for.
    fn compare(&mut self, dataset: &DatasetHandle, reader: &IndexReader<'_>, expected: &Slices) -> Result<bool> {
        let mut found = Slices::new(expected.range());
        let read = reader.read(&found.range(), &|_| true, &mut |hash, entry, key| {
            found.add(hash, entry, key);
            Ok(())
        });
        match read {
            Ok(()) if found == *expected => return Ok(true),
            Ok(()) => {
                let reasons = compare::differences(reader, expected, &found)?;
                reasons.into_iter().for_each(|reason| self.add_finding(dataset, reader.place, reason));
            }
            Err(error) if error.is_damage() => self.find(dataset, reader.place, &error),
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    fn find(&mut self, dataset: &DatasetHandle, place: usize, error: &Error) {
        self.add_finding(dataset, place, error.finding());
    }

    fn add_finding(&mut self, dataset: &DatasetHandle, place: usize, reason: String) {
        self.findings.push(finding(dataset, place, reason));
    }

    /// What each index should hold; parses every record.
    fn read_primary(&mut self, snapshot: &Snapshot, readers: &[IndexReader<'_>]) -> Result<Vec<Slices>> {
        let mut expected = vec![Slices::new(Slices::ALL); readers.len()];
        snapshot.visit_records(&mut |key, stored| {
            self.records += 1;
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

/// Loads an index anew from the records.
fn rebuild(engine: &Arc<Engine>, dataset: &Arc<DatasetHandle>, place: usize) -> Result<()> {
    let _building = dataset.building.lock();
    let _gate = dataset.gate.write();
    engine.seal(dataset)?;
    while engine.flush_oldest(dataset)? {}
    let snapshot = Snapshot::new(engine.clone(), dataset);
    // It may have been dropped meanwhile.
    let Some(index) = snapshot.indexes.get(place) else { return Ok(()) };
    let sequence = (0, snapshot.sequence());
    let mut loader = IndexLoader::new(&engine.workshop, index, &snapshot.history, engine.shares.work, sequence);
    snapshot.visit_records(&mut |key, stored| {
        loader.add(key, stored)?;
        Ok(ControlFlow::Continue(()))
    })?;
    let meta: ComponentMeta = loader.finish(&Cancellation::default())?;
    dataset.partition.replace_index(&engine.workshop, place, &meta)?;
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
            let repaired = if finding.repaired { " (repaired)" } else { "" };
            write!(f, "\n  {} · index {}: {}{repaired}", finding.dataset, finding.index, finding.reason)?;
        }
        if !self.foreign_files.is_empty() {
            let names = first_of(&self.foreign_files, ", ");
            write!(f, "\n  note: not of the store, and left alone: {names}")?;
        }
        Ok(())
    }
}
