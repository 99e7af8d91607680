//! Bulk load of the spatial index from the records of the primary.

use std::sync::Arc;

use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::disk::btree::{BTreeComponent, BTreeCursor};
use terrane_lsm::disk::rtree::RTreeBuilder;
use terrane_lsm::index::{Cancellation, DiskPart, Index, RTreeIndex};
use terrane_lsm::partition::Workshop;
use terrane_space::{CoordinateSystem, Rect, hilbert};

use crate::Result;
use crate::dataset::stored_rect;
use crate::runs::{UnnamedFiles, reduce};
use crate::schema::{GeometryColumn, Schema};

/// Sorts the entries of a spatial index in runs and merges them into one component.
///
/// Dropped unfinished, it removes the runs.
#[derive(Debug)]
pub(crate) struct SpatialLoader<'a> {
    workshop: &'a Workshop,
    system: CoordinateSystem,
    points: bool,
    /// Bytes of entries that are sorted in memory at a time.
    budget: usize,
    sequence: (u64, u64),
    order: Vec<(u64, u32)>,
    corners: Vec<f64>,
    keys: Vec<u8>,
    ends: Vec<u32>,
    runs: Vec<ComponentMeta>,
    files: UnnamedFiles,
}

impl<'a> SpatialLoader<'a> {
    pub fn new(workshop: &'a Workshop, schema: &Schema, budget: usize, sequence: (u64, u64)) -> Self {
        let points = matches!(schema.geometry, GeometryColumn::Point { .. });
        Self {
            workshop,
            system: schema.system,
            points,
            budget,
            sequence,
            order: Vec::new(),
            corners: Vec::new(),
            keys: Vec::new(),
            ends: Vec::new(),
            runs: Vec::new(),
            files: UnnamedFiles::new(workshop.storage.clone()),
        }
    }

    fn corners_each(&self) -> usize {
        if self.points { 2 } else { 4 }
    }

    /// Adds the entry of a record, if it has one.
    pub fn add(&mut self, key: &[u8], rect: Option<Rect>) -> Result<()> {
        let Some(rect) = rect else { return Ok(()) };
        let used = self.order.len() * (20 + 8 * self.corners_each()) + self.keys.len();
        if used + key.len() >= self.budget || self.keys.len() + key.len() > u32::MAX as usize {
            self.spill()?;
        }
        self.order.push((hilbert::position(self.system, rect.center()), self.order.len() as u32));
        self.corners.extend_from_slice(&[rect.x0, rect.y0, rect.x1, rect.y1][..self.corners_each()]);
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u32);
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        if self.order.is_empty() && !self.runs.is_empty() {
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
        let mut builder = RTreeBuilder::new(self.workshop.writer()?, self.points, false);
        let each = self.corners_each();
        for (position, slot) in &order {
            let corners = &self.corners[*slot as usize * each..][..each];
            let rect = Rect { x0: corners[0], y0: corners[1], x1: corners[each - 2], y1: corners[each - 1] };
            builder.push(*position, rect, key(*slot), false, (0, u64::MAX))?;
        }
        let run = builder.finish(self.sequence)?;
        self.files.add(&run);
        self.runs.push(run);
        order.clear();
        self.order = order;
        self.corners.clear();
        self.keys.clear();
        self.ends.clear();
        Ok(())
    }

    /// Completes the component.
    pub fn finish(mut self) -> Result<ComponentMeta> {
        self.spill()?;
        // The sort buffers make room for the merge.
        self.order = Vec::new();
        self.corners = Vec::new();
        self.keys = Vec::new();
        self.ends = Vec::new();
        let Self { workshop, system, points, mut runs, mut files, budget, .. } = self;
        let index = RTreeIndex { system, points };
        reduce(&mut runs, &mut files, budget, &mut |runs| merge(workshop, &index, runs))?;
        if let [run] = &runs[..] {
            files.give_away(std::slice::from_ref(run));
            return Ok(run.clone());
        }
        merge(workshop, &index, &runs)
    }
}

/// Merges runs into one.
fn merge(workshop: &Workshop, index: &RTreeIndex, runs: &[ComponentMeta]) -> Result<ComponentMeta> {
    let open = |meta| index.open(workshop.file(meta)?);
    let parts = runs.iter().map(open).collect::<terrane_lsm::Result<Vec<Arc<dyn DiskPart>>>>()?;
    let merged = index.merge(&parts, workshop.writer()?, true, &Cancellation::default())?;
    merged.ok_or(crate::Error::Cancelled)
}

/// Loads the spatial index of the records in one primary component.
pub(crate) fn load_spatial(
    workshop: &Workshop,
    schema: &Schema,
    primary: Arc<BTreeComponent>,
    budget: usize,
    sequence: (u64, u64),
) -> Result<ComponentMeta> {
    let mut loader = SpatialLoader::new(workshop, schema, budget, sequence);
    let mut cursor = BTreeCursor::seek(primary, &[])?;
    while let Some(entry) = cursor.entry() {
        loader.add(&entry.key, stored_rect(entry.value, schema.system)?)?;
        cursor.advance()?;
    }
    loader.finish()
}
