//! Verification of a whole store, in bounded memory.
//!
//! Every page of every component is read from its file and verified with the invariants of
//! its kind. Then each spatial index is compared with the primary: both sides are summed up
//! as a multiset of hashes of (box, key), which does not depend on order. Only where the
//! sums differ are the entries compared one by one.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::search::{self, WindowScan, owned_spatial_sources};
use terrane_space::Rect;

use crate::dataset::stored_rect;
use crate::engine::{DatasetHandle, Engine, PRIMARY, SPATIAL};
use crate::key::Key;
use crate::load::SpatialLoader;
use crate::record::RecordView;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// Differences between an index and the primary that are named one by one, at most.
const DIFFERENCES_MAX: usize = 20;
/// Records that are read between two looks at the snapshot's version.
const BATCH: usize = 8192;

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
}

/// A multiset of index entries, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    entries: u64,
    sum: u128,
}

impl Digest {
    fn add(&mut self, rect: &Rect, key: &[u8]) {
        // -0.0 and 0.0 are one place.
        let bits = [rect.x0, rect.y0, rect.x1, rect.y1].map(|value| (value + 0.0).to_bits());
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        bits.iter().for_each(|bits| hasher.update(&bits.to_le_bytes()));
        hasher.update(key);
        self.entries += 1;
        self.sum = self.sum.wrapping_add(hasher.digest128());
    }
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
        let mut report = Self::default();
        for dataset in engine.datasets.load().values() {
            report.datasets += 1;
            report.dataset(engine, dataset, repair)?;
        }
        Ok(report)
    }

    fn dataset(&mut self, engine: &Arc<Engine>, dataset: &Arc<DatasetHandle>, repair: bool) -> Result<()> {
        let snapshot = Snapshot::new(engine.clone(), dataset);
        let mut broken = vec![false; dataset.definitions.len()];
        for (place, error) in &dataset.damage {
            broken[*place] = true;
            self.find(dataset, *place, error);
        }
        let version = snapshot.pinned.version_full();
        for (place, parts) in version.components.iter().enumerate() {
            for part in parts {
                self.components += 1;
                match dataset.partition.indexes()[place].index.check(part) {
                    Ok(found) => self.pages += found.pages,
                    Err(error) if error.is_damage() => {
                        broken[place] = true;
                        self.find(dataset, place, &error.into());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        drop(version);
        if broken[PRIMARY as usize] {
            // Nothing can be compared with a damaged primary, nor rebuilt from it.
            return Ok(());
        }
        let spatial = SPATIAL as usize;
        let expected = match self.read_primary(&snapshot) {
            Ok(expected) => expected,
            Err(error) if error.is_damage() => {
                self.find(dataset, PRIMARY as usize, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if !broken[spatial] {
            let found = read_spatial(&snapshot, &mut |_, _| Ok(()))?;
            if found != expected {
                broken[spatial] = true;
                self.compare(dataset, &snapshot, expected, found)?;
            }
        }
        drop(snapshot);
        if repair && broken[spatial] {
            rebuild(engine, dataset)?;
            let name = &dataset.definitions[spatial].name;
            for finding in
                self.findings.iter_mut().filter(|finding| finding.dataset == dataset.name && finding.index == *name)
            {
                finding.repaired = true;
            }
        }
        Ok(())
    }

    fn find(&mut self, dataset: &DatasetHandle, place: usize, error: &Error) {
        let reason = match error {
            Error::Damaged { file, offset, reason } => format!("{file} is damaged at byte {offset}: {reason}"),
            other => other.to_string(),
        };
        self.findings.push(Finding {
            dataset: dataset.name.clone(),
            index: dataset.definitions[place].name.clone(),
            reason,
            repaired: false,
        });
    }

    fn disagree(&mut self, dataset: &DatasetHandle, reason: String) {
        self.findings.push(Finding {
            dataset: dataset.name.clone(),
            index: dataset.definitions[SPATIAL as usize].name.clone(),
            reason,
            repaired: false,
        });
    }

    /// What the spatial index should hold; parses every record.
    fn read_primary(&mut self, snapshot: &Snapshot) -> Result<Digest> {
        let system = snapshot.schema().system;
        let mut digest = Digest::default();
        for_each_record(snapshot, &mut |key, stored| {
            self.records += 1;
            let record = RecordView::parse(stored, &snapshot.history)?;
            for index in 0..snapshot.history.newest().columns.len() {
                record.value(index)?;
            }
            match stored_rect(stored, system)? {
                Some(rect) => digest.add(&rect, key),
                None => self.without_geometry += 1,
            }
            Ok(())
        })?;
        Ok(digest)
    }

    /// Names entries that one side has and the other has not.
    fn compare(&mut self, dataset: &DatasetHandle, snapshot: &Snapshot, expected: Digest, found: Digest) -> Result<()> {
        self.disagree(
            dataset,
            format!(
                "the index has {} entries, the records call for {}; their contents differ",
                found.entries, expected.entries
            ),
        );
        let schema = snapshot.schema();
        let mut named = 0;
        let name = |key: &[u8]| {
            Key::decode(schema.key.key_type, key).map_or_else(|_| format!("{key:02x?}"), |key| key.to_string())
        };
        let version = snapshot.pinned.version_full();
        let mut differences = Vec::new();
        read_spatial(snapshot, &mut |rect, key| {
            let stored = search::get(&version, PRIMARY as usize, key, snapshot.sequence())?;
            let wanted = stored.as_ref().map(|stored| stored_rect(stored, schema.system)).transpose()?.flatten();
            if wanted != Some(*rect) && named < DIFFERENCES_MAX {
                named += 1;
                differences.push(format!(
                    "the index has key {} at {:?}, the record is at {wanted:?}",
                    name(key),
                    *rect
                ));
            }
            Ok(())
        })?;
        let mut missing = 0;
        for_each_record(snapshot, &mut |key, stored| {
            let Some(rect) = stored_rect(stored, schema.system)? else { return Ok(()) };
            if missing < DIFFERENCES_MAX && !has_entry(snapshot, &rect, key)? {
                missing += 1;
                differences.push(format!("the index lacks key {} at {rect:?}", name(key)));
            }
            Ok(())
        })?;
        differences.into_iter().for_each(|reason| self.disagree(dataset, reason));
        Ok(())
    }
}

/// Gets the key and the stored form of a record.
type RecordVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Calls `visit` with every record of a snapshot.
fn for_each_record(snapshot: &Snapshot, visit: &mut RecordVisitor<'_>) -> Result<()> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let version = snapshot.pinned.version_full();
        let mut last = Vec::new();
        let mut failed = None;
        let mut count = 0;
        let complete =
            search::scan(&version, PRIMARY as usize, after.as_deref(), snapshot.sequence(), &mut |key, stored| {
                if let Err(error) = visit(key, stored) {
                    failed = Some(error);
                    return Ok(ControlFlow::Break(()));
                }
                last.clear();
                last.extend_from_slice(key);
                count += 1;
                Ok(if count == BATCH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if complete {
            return Ok(());
        }
        after = Some(last);
    }
}

/// Sums up the entries of the spatial index that a snapshot sees, calling `visit` with each.
fn read_spatial(snapshot: &Snapshot, visit: &mut dyn FnMut(&Rect, &[u8]) -> Result<()>) -> Result<Digest> {
    let everything = Rect { x0: f64::NEG_INFINITY, y0: f64::NEG_INFINITY, x1: f64::INFINITY, y1: f64::INFINITY };
    let version = snapshot.pinned.version_full();
    let mut scan = WindowScan::new(owned_spatial_sources(&version, SPATIAL as usize), everything, snapshot.sequence());
    let mut digest = Digest::default();
    let mut failed = None;
    while scan.advance(&mut |hit| {
        let (rect, key) = (hit.rect(), hit.key());
        digest.add(&rect, &key);
        if let Err(error) = visit(&rect, &key) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })? {}
    failed.map_or(Ok(digest), Err)
}

fn has_entry(snapshot: &Snapshot, rect: &Rect, key: &[u8]) -> Result<bool> {
    let version = snapshot.pinned.version_full();
    let mut scan = WindowScan::new(owned_spatial_sources(&version, SPATIAL as usize), *rect, snapshot.sequence());
    let mut found = false;
    while scan.advance(&mut |hit| {
        found |= hit.rect() == *rect && *hit.key() == *key;
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })? {}
    Ok(found)
}

/// Loads the spatial index anew from the records.
fn rebuild(engine: &Arc<Engine>, dataset: &Arc<DatasetHandle>) -> Result<()> {
    let _gate = dataset.gate.write();
    engine.seal(dataset)?;
    while engine.flush_oldest(dataset)? {}
    let snapshot = Snapshot::new(engine.clone(), dataset);
    let schema = snapshot.schema();
    let mut loader = SpatialLoader::new(&engine.workshop, &schema, engine.shares.work, (0, snapshot.sequence()));
    for_each_record(&snapshot, &mut |key, stored| loader.add(key, stored_rect(stored, schema.system)?))?;
    let meta: ComponentMeta = loader.finish()?;
    dataset.partition.replace_index(&engine.workshop, SPATIAL as usize, &meta)?;
    Ok(())
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "checked {} datasets, {} components, {} pages, {} records ({} without geometry): ",
            self.datasets, self.components, self.pages, self.records, self.without_geometry
        )?;
        if self.findings.is_empty() {
            return f.write_str("everything is as it should be");
        }
        write!(f, "{} findings", self.findings.len())?;
        for finding in &self.findings {
            let repaired = if finding.repaired { " (repaired)" } else { "" };
            write!(f, "\n  {} · index {}: {}{repaired}", finding.dataset, finding.index, finding.reason)?;
        }
        Ok(())
    }
}
