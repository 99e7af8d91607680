//! Reading a whole index in bounded memory, regardless of the number of deletes.
//!
//! An index keyed by bytes is read in order. In a spatial index, newer anti-matter hides entries by
//! their keys, and these keys may exceed the memory. So a spatial index is read in passes. Each
//! pass notes and visits only the keys whose hashes lie in one range. The range is halved until the
//! noted keys fit.

use std::cell::Cell;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use terrane_lsm::search::{
    Hidden, HoldsSource, OwnedSource, SourceVisitor, SpatialSource, owned_spatial_sources, visit_source,
};
use terrane_space::Rect;

use super::digest::{HashRange, key_hash};
use crate::secondary::{Content, DatasetIndex, box_entry, split_attributes};
use crate::snapshot::Snapshot;
use crate::{Error, Result};

const EVERYTHING: Rect = Rect::new(f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY);

/// Receives the hash of the record's key, the entry in the form of
/// [`Content::visit_entries`](crate::secondary::Content::visit_entries), and the record's key.
pub(super) type EntryVisitor<'a> = dyn FnMut(u64, &[u8], &[u8]) -> Result<()> + 'a;

/// Reads the entries of a secondary index that are visible to a snapshot.
pub(super) struct IndexReader<'s> {
    pub snapshot: &'s Snapshot,
    /// Slot of the index.
    pub place: usize,
    pub index: Arc<DatasetIndex>,
    /// Memory in bytes for hidden keys, and the same again for compared entries.
    pub budget: usize,
    /// Passes over the index so far.
    pub passes: Cell<u64>,
    /// Most memory that hidden keys took, in bytes.
    pub hidden_bytes_max: Cell<usize>,
}

impl<'s> IndexReader<'s> {
    pub fn new(snapshot: &'s Snapshot, place: usize, index: Arc<DatasetIndex>) -> Self {
        let budget = snapshot.engine.shares.work / 4;
        Self { snapshot, place, index, budget, passes: Cell::new(0), hidden_bytes_max: Cell::new(0) }
    }

    /// Visits the entries whose hashes lie in a range and satisfy `wanted`, in no order.
    pub fn read(&self, range: &HashRange, wanted: &dyn Fn(u64) -> bool, visit: &mut EntryVisitor<'_>) -> Result<()> {
        let Some(values) = self.index.content.values() else {
            return match self.index.content {
                Content::Boxes => self.read_boxes(range, wanted, visit),
                _ => Ok(()),
            };
        };
        let bounds = range.bounds();
        self.passes.set(self.passes.get() + 1);
        self.snapshot.visit_btree(self.place, &mut |entry, _| {
            let (_, key) = split_attributes(entry, values)?;
            let hash = key_hash(key);
            if bounds.contains(&hash) && wanted(hash) {
                visit(hash, entry, key)?;
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn read_boxes(&self, range: &HashRange, wanted: &dyn Fn(u64) -> bool, visit: &mut EntryVisitor<'_>) -> Result<()> {
        let mut ranges = vec![range.bounds()];
        while let Some(range) = ranges.pop() {
            let versions = self.snapshot.versions_full();
            let sources = owned_spatial_sources(&versions, self.place);
            drop(versions);
            let concerns = |hash| range.contains(&hash) && wanted(hash);
            match self.hidden(&sources, &concerns)? {
                Some(hidden) => self.visit(sources, &hidden, &concerns, visit)?,
                None => ranges.extend(halves(&range).ok_or_else(|| self.too_much())?),
            }
        }
        Ok(())
    }

    /// The keys that anti-matter hides; `None` if they do not fit in memory.
    fn hidden(&self, sources: &[OwnedSource], concerns: &dyn Fn(u64) -> bool) -> Result<Option<Hidden>> {
        let mut hidden = Hidden::default();
        // Anti-matter in the oldest component hides nothing.
        for (number, source) in sources.iter().enumerate().take(sources.len().saturating_sub(1)) {
            let source = source.source()?;
            if !source.has_antimatter() {
                continue;
            }
            let complete = self.entries(source, &mut |_, key, antimatter| {
                if antimatter && concerns(key_hash(key)) {
                    hidden.add(key, number);
                }
                if hidden.memory_used() > self.budget { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if !complete {
                return Ok(None);
            }
        }
        self.hidden_bytes_max.set(hidden.memory_used().max(self.hidden_bytes_max.get()));
        Ok(Some(hidden))
    }

    fn visit(
        &self,
        sources: Vec<OwnedSource>,
        hidden: &Hidden,
        concerns: &dyn Fn(u64) -> bool,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()> {
        self.passes.set(self.passes.get() + 1);
        let points = self.snapshot.history.newest().holds_points();
        // Each source is released after it was read.
        for (number, source) in sources.into_iter().enumerate() {
            let mut failed = None;
            self.entries(source.source()?, &mut |rect, key, antimatter| {
                let hash = key_hash(key);
                if antimatter || !concerns(hash) || hidden.hides(key, number) {
                    return ControlFlow::Continue(());
                }
                match visit(hash, &box_entry(rect, points), key) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Calls `each` with the visible entries of a component, and whether they are anti-matter.
    /// Returns false if `each` stopped the visit.
    fn entries(&self, source: SpatialSource<'_>, each: &mut SourceVisitor<'_>) -> Result<bool> {
        Ok(visit_source(source, &EVERYTHING, self.snapshot.sequence(), each)?)
    }

    fn too_much(&self) -> Error {
        Error::Memory {
            what: "the comparison of an index with its records".into(),
            needed_bytes: 2 * self.budget as u64,
            available_bytes: self.budget as u64,
        }
    }
}

/// The two halves of a range, the second first; `None` for a single hash.
fn halves(range: &RangeInclusive<u64>) -> Option<[RangeInclusive<u64>; 2]> {
    let (first, last) = (*range.start(), *range.end());
    let middle = first + (last - first) / 2;
    (first < last).then(|| [middle + 1..=last, first..=middle])
}
