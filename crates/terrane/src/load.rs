//! Bulk load of an index from the primary's records, including records that replace others.

use std::sync::Arc;

use terrane_lsm::curve::Positions;
use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent, BTreeCursor};
use terrane_lsm::index::{BTreeIndex, Cancellation, DiskPart, Index, SpatialIndex};
use terrane_lsm::partition::Workshop;
use terrane_space::Rect;

use crate::record::stored_rect;
use crate::runs::{RunBuffer, UnnamedFiles, reduce};
use crate::schema::SchemaHistory;
use crate::secondary::DatasetIndex;
use crate::snapshot::{RECORDS_STEP, Snapshot};
use crate::{Error, Result};

/// Sorted runs of one index.
#[derive(Debug)]
struct Runs {
    metas: Vec<ComponentMeta>,
    /// Files of runs that only the loader uses.
    files: UnnamedFiles,
    /// Number of runs that another owner keeps.
    kept: usize,
    /// Whether the runs have anti-matter, which the component keeps for older components.
    has_antimatter: bool,
}

impl Runs {
    fn new(workshop: &Workshop) -> Self {
        Self { metas: Vec::new(), files: UnnamedFiles::new(workshop.storage.clone()), kept: 0, has_antimatter: false }
    }

    fn add(&mut self, run: ComponentMeta) {
        self.files.add(&run);
        self.metas.push(run);
    }

    /// Hands over the runs that have no other owner. The caller keeps them from now on.
    fn give_away(&mut self) -> &[ComponentMeta] {
        let given = &self.metas[self.kept..];
        self.files.give_away(given);
        self.kept = self.metas.len();
        given
    }
}

/// Sorts the entries of a spatial index in runs and merges the runs into one component.
///
/// If it is dropped unfinished, it removes the runs.
#[derive(Debug)]
pub(crate) struct SpatialLoader<'a> {
    workshop: &'a Workshop,
    index: &'a dyn SpatialIndex,
    points: bool,
    /// Memory in bytes for sorting entries.
    budget: usize,
    sequence: (u64, u64),
    /// Positions, each with the number of its entry.
    order: Vec<(u64, u32)>,
    corners: Vec<f64>,
    keys: Vec<u8>,
    ends: Vec<u32>,
    antimatter: Vec<bool>,
    runs: Runs,
}

impl<'a> SpatialLoader<'a> {
    /// Creates a loader that sorts entries, of `points` or of other boxes, in `budget` bytes of
    /// memory.
    pub fn new(
        workshop: &'a Workshop,
        index: &'a dyn SpatialIndex,
        points: bool,
        budget: usize,
        sequence: (u64, u64),
    ) -> Self {
        Self {
            workshop,
            index,
            points,
            budget,
            sequence,
            order: Vec::new(),
            corners: Vec::new(),
            keys: Vec::new(),
            ends: Vec::new(),
            antimatter: Vec::new(),
            runs: Runs::new(workshop),
        }
    }

    fn corners_each(&self) -> usize {
        if self.points { 2 } else { 4 }
    }

    /// Adds the entries of a record, if it has any.
    pub fn add(&mut self, key: &[u8], rect: Option<Rect>) -> Result<()> {
        let Some(rect) = rect else { return Ok(()) };
        let positions = self.index.positions(&rect);
        self.make_room(positions.len(), key.len())?;
        self.push(key, &rect, positions, false);
        Ok(())
    }

    /// Adds anti-matter for a record's old entries, then its new entries. All of them go to one
    /// run: in a merge of runs, anti-matter hides the entries of its key in the runs after its own.
    pub fn exchange(&mut self, key: &[u8], old: Option<Rect>, new: Option<Rect>) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let positions = |rect: Option<Rect>| rect.map(|rect| (rect, self.index.positions(&rect)));
        let (old, new) = (positions(old), positions(new));
        let count = old.iter().chain(&new).map(|(_, positions)| positions.len()).sum();
        self.make_room(count, 2 * key.len())?;
        self.runs.has_antimatter |= old.is_some();
        for (object, antimatter) in [(old, true), (new, false)] {
            if let Some((rect, positions)) = object {
                self.push(key, &rect, positions, antimatter);
            }
        }
        Ok(())
    }

    /// Spills the entries in memory if these entries and their key bytes do not fit beside them.
    fn make_room(&mut self, entries: usize, key_bytes: usize) -> Result<()> {
        let objects = self.ends.len() * (5 + 8 * self.corners_each()) + self.keys.len() + key_bytes;
        let used = (self.order.len() + entries) * size_of::<(u64, u32)>() + objects;
        if used >= self.budget || self.keys.len() + key_bytes > u32::MAX as usize {
            self.spill()?;
        }
        Ok(())
    }

    fn push(&mut self, key: &[u8], rect: &Rect, positions: Positions, antimatter: bool) {
        let slot = self.ends.len() as u32;
        self.order.extend(positions.into_iter().map(|position| (position, slot)));
        self.corners.extend_from_slice(&[rect.x0, rect.y0, rect.x1, rect.y1][..self.corners_each()]);
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u32);
        self.antimatter.push(antimatter);
    }

    fn spill(&mut self) -> Result<()> {
        if self.order.is_empty() && !self.runs.metas.is_empty() {
            return Ok(());
        }
        let (keys, ends) = (&self.keys, &self.ends);
        let key = |slot: u32| {
            let start = if slot == 0 { 0 } else { ends[slot as usize - 1] as usize };
            &keys[start..ends[slot as usize] as usize]
        };
        let mut order = std::mem::take(&mut self.order);
        order.sort_unstable_by(|(position, slot), (other, other_slot)| {
            position.cmp(other).then_with(|| key(*slot).cmp(key(*other_slot)))
        });
        let mut builder = self.index.builder(self.workshop.writer()?, false);
        let each = self.corners_each();
        for (position, slot) in &order {
            let corners = &self.corners[*slot as usize * each..][..each];
            let rect = Rect { x0: corners[0], y0: corners[1], x1: corners[each - 2], y1: corners[each - 1] };
            builder.push(*position, rect, key(*slot), self.antimatter[*slot as usize], (0, u64::MAX))?;
        }
        self.runs.add(builder.finish(self.sequence)?);
        order.clear();
        self.order = order;
        self.corners.clear();
        self.keys.clear();
        self.ends.clear();
        self.antimatter.clear();
        Ok(())
    }

    /// Completes the component.
    pub fn finish(mut self, cancellation: &Cancellation) -> Result<ComponentMeta> {
        self.spill()?;
        // Frees the sort buffers, to make room for the merge.
        self.order = Vec::new();
        self.corners = Vec::new();
        self.keys = Vec::new();
        self.ends = Vec::new();
        self.antimatter = Vec::new();
        let Self { workshop, index, runs, budget, .. } = self;
        merge_to_one(workshop, index, runs, budget, cancellation)
    }
}

/// Sorts the entries of an index keyed by bytes in runs, and merges the runs into one component.
///
/// If it is dropped unfinished, it removes the runs.
#[derive(Debug)]
pub(crate) struct KeyedLoader<'a> {
    workshop: &'a Workshop,
    /// Memory in bytes for sorting entries.
    budget: usize,
    sequence: (u64, u64),
    buffer: RunBuffer,
    runs: Runs,
}

impl<'a> KeyedLoader<'a> {
    fn new(workshop: &'a Workshop, budget: usize, sequence: (u64, u64)) -> Self {
        Self { workshop, budget, sequence, buffer: RunBuffer::default(), runs: Runs::new(workshop) }
    }

    fn add(&mut self, entry: &[u8], antimatter: bool) -> Result<()> {
        if self.buffer.memory_used() + entry.len() >= self.budget {
            self.spill()?;
        }
        self.runs.has_antimatter |= antimatter;
        self.buffer.push(entry, &[], antimatter.into());
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        if self.buffer.is_empty() && !self.runs.metas.is_empty() {
            return Ok(());
        }
        let mut builder = BTreeBuilder::new(self.workshop.writer()?, false);
        self.buffer.drain_sorted(|key, value, antimatter| Ok(builder.push(key, antimatter != 0, 0, value)?))?;
        self.runs.add(builder.finish(self.sequence)?);
        Ok(())
    }

    fn finish(mut self, cancellation: &Cancellation) -> Result<ComponentMeta> {
        self.spill()?;
        let Self { workshop, budget, runs, .. } = self;
        merge_to_one(workshop, &BTreeIndex::default(), runs, budget, cancellation)
    }
}

/// Builds the component of an index from stored records.
#[derive(Debug)]
pub(crate) struct IndexLoader<'a> {
    index: &'a DatasetIndex,
    history: &'a SchemaHistory,
    entries: Loading<'a>,
}

#[derive(Debug)]
enum Loading<'a> {
    Boxes(SpatialLoader<'a>),
    Keyed(KeyedLoader<'a>),
}

impl<'a> IndexLoader<'a> {
    /// Creates a loader that sorts entries in `budget` bytes of memory. `sequence` is the range of
    /// sequence numbers of the records.
    pub fn new(
        workshop: &'a Workshop,
        index: &'a DatasetIndex,
        history: &'a SchemaHistory,
        budget: usize,
        sequence: (u64, u64),
    ) -> Self {
        let points = history.newest().holds_points();
        let entries = match &index.spatial {
            Some(spatial) => Loading::Boxes(SpatialLoader::new(workshop, &**spatial, points, budget, sequence)),
            None => Loading::Keyed(KeyedLoader::new(workshop, budget, sequence)),
        };
        Self { index, history, entries }
    }

    /// Begins with the runs of an earlier load, which another owner keeps.
    pub fn go_on(&mut self, runs: Vec<ComponentMeta>) {
        let own = self.runs_mut();
        own.kept = runs.len();
        own.metas = runs;
    }

    /// Whether there are runs without another owner.
    pub fn has_new_runs(&mut self) -> bool {
        let runs = self.runs_mut();
        runs.kept < runs.metas.len()
    }

    /// Whether there are runs that another owner keeps.
    pub fn has_kept_runs(&mut self) -> bool {
        self.runs_mut().kept > 0
    }

    /// Hands over the runs that have no other owner. They have the entries of all added records,
    /// except possibly some of the last record.
    pub fn give_runs_away(&mut self) -> &[ComponentMeta] {
        self.runs_mut().give_away()
    }

    /// Sorts the entries in memory into a run.
    pub fn spill(&mut self) -> Result<()> {
        match &mut self.entries {
            Loading::Boxes(loader) => loader.spill(),
            Loading::Keyed(loader) => loader.spill(),
        }
    }

    fn runs_mut(&mut self) -> &mut Runs {
        match &mut self.entries {
            Loading::Boxes(loader) => &mut loader.runs,
            Loading::Keyed(loader) => &mut loader.runs,
        }
    }

    /// Adds the entries of a record.
    pub fn add(&mut self, key: &[u8], stored: &[u8]) -> Result<()> {
        match &mut self.entries {
            Loading::Boxes(loader) => loader.add(key, stored_rect(stored, self.history.newest().system)?),
            Loading::Keyed(loader) => {
                self.index.visit_entries(self.history, key, stored, &mut |entry| loader.add(entry, false))
            }
        }
    }

    /// Adds the changes when a stored record replaces an older one: anti-matter for old entries,
    /// and the new entries.
    pub fn exchange(&mut self, key: &[u8], old: &[u8], new: &[u8]) -> Result<()> {
        match &mut self.entries {
            Loading::Boxes(loader) => {
                let system = self.history.newest().system;
                loader.exchange(key, stored_rect(old, system)?, stored_rect(new, system)?)
            }
            Loading::Keyed(loader) => {
                self.index.visit_changes(self.history, key, (Some(old), Some(new)), &mut |entry, gone| {
                    loader.add(entry, gone)
                })
            }
        }
    }

    /// Completes the component.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; storage. Nothing remains of the component then.
    pub fn finish(self, cancellation: &Cancellation) -> Result<ComponentMeta> {
        match self.entries {
            Loading::Boxes(loader) => loader.finish(cancellation),
            Loading::Keyed(loader) => loader.finish(cancellation),
        }
    }
}

/// Merges runs into one component, and removes all other files.
fn merge_to_one(
    workshop: &Workshop,
    index: &dyn Index,
    Runs { metas: mut runs, mut files, has_antimatter, .. }: Runs,
    budget: usize,
    cancellation: &Cancellation,
) -> Result<ComponentMeta> {
    let merge = |runs: &[ComponentMeta]| merge(workshop, index, runs, !has_antimatter, cancellation);
    reduce(&mut runs, &mut files, budget, &mut |runs| merge(runs))?;
    if let [run] = &runs[..] {
        files.give_away([run]);
        return Ok(run.clone());
    }
    merge(&runs)
}

/// Merges runs into one. If nothing is older, anti-matter is dropped.
fn merge(
    workshop: &Workshop,
    index: &dyn Index,
    runs: &[ComponentMeta],
    is_oldest: bool,
    cancellation: &Cancellation,
) -> Result<ComponentMeta> {
    let open = |meta| index.open(workshop.file(meta)?);
    let parts = runs.iter().map(open).collect::<terrane_lsm::Result<Vec<Arc<dyn DiskPart>>>>()?;
    let merged = index.merge(&parts, workshop.writer()?, is_oldest, cancellation)?;
    merged.ok_or(Error::Cancelled)
}

/// Loads an index from the records in one primary component. If `before` has records with the same
/// keys, the component has anti-matter for them.
pub(crate) fn load_index(
    workshop: &Workshop,
    index: &DatasetIndex,
    history: &SchemaHistory,
    primary: Arc<BTreeComponent>,
    before: Option<&Snapshot>,
    budget: usize,
    sequence: (u64, u64),
) -> Result<ComponentMeta> {
    let mut loader = IndexLoader::new(workshop, index, history, budget, sequence);
    let mut cursor = BTreeCursor::seek(primary, &[])?;
    let mut versions = before.map(Snapshot::versions_full);
    let mut visited = 0;
    while let Some(entry) = cursor.entry() {
        visited += 1;
        if visited % RECORDS_STEP == 0 {
            // So that no sealed memory is held for long.
            versions = before.map(Snapshot::versions_full);
        }
        let old = match (before, &versions) {
            (Some(before), Some(versions)) => before.stored(versions, &entry.key)?,
            _ => None,
        };
        match old {
            Some(old) => loader.exchange(&entry.key, &old, entry.value)?,
            None => loader.add(&entry.key, entry.value)?,
        }
        cursor.advance()?;
    }
    loader.finish(&Cancellation::default())
}
