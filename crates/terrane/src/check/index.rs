//! Reading a whole index in bounded memory, however much is deleted.
//!
//! An index that is keyed by bytes is read in order. In a spatial one, what newer anti-matter hides is known by key, and these keys may be more than fit in
//! memory. So the index is read in passes: each notes and visits only keys whose hashes lie
//! in one range, which is halved until what has to be noted fits.

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

/// Gets the hash of the record's key, the entry as [`Content::visit_entries`](crate::secondary::Content::visit_entries)
/// tells it, and the record's key.
pub(super) type EntryVisitor<'a> = dyn FnMut(u64, &[u8], &[u8]) -> Result<()> + 'a;

/// Reads the entries of a secondary index that a snapshot sees.
pub(super) struct IndexReader<'s> {
    pub snapshot: &'s Snapshot,
    /// Place of the index.
    pub slot: usize,
    pub index: Arc<DatasetIndex>,
    /// Bytes that may be taken for hidden keys, and as many for entries that are compared.
    pub budget: usize,
    /// Passes over the index so far.
    pub passes: Cell<u64>,
    /// Most bytes that hidden keys took.
    pub hidden_bytes_max: Cell<usize>,
}

impl<'s> IndexReader<'s> {
    pub fn new(snapshot: &'s Snapshot, slot: usize, index: Arc<DatasetIndex>) -> Self {
        let budget = snapshot.core.environment().shares.work / 4;
        Self { snapshot, slot, index, budget, passes: Cell::new(0), hidden_bytes_max: Cell::new(0) }
    }

    /// Visits the entries in a range of hashes that are wanted by their hash, in no order.
    pub fn read(&self, range: &HashRange, wanted: &dyn Fn(u64) -> bool, visit: &mut EntryVisitor<'_>) -> Result<()> {
        let Some(values) = self.index.content.values() else {
            return match self.index.content {
                Content::Boxes => self.read_boxes(range, wanted, visit),
                _ => Ok(()),
            };
        };
        let bounds = range.bounds();
        self.passes.set(self.passes.get() + 1);
        self.snapshot.visit_btree(self.slot, &mut |entry, _| {
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
            let sources = owned_spatial_sources(&versions, self.slot);
            drop(versions);
            let concerns = |hash| range.contains(&hash) && wanted(hash);
            match self.hidden(&sources, &concerns)? {
                Some(hidden) => self.visit(sources, &hidden, &concerns, visit)?,
                None => ranges.extend(halves(&range).ok_or_else(|| self.too_much())?),
            }
        }
        Ok(())
    }

    /// What anti-matter hides; `None` when it is more than fits.
    fn hidden(&self, sources: &[OwnedSource], concerns: &dyn Fn(u64) -> bool) -> Result<Option<Hidden>> {
        let mut hidden = Hidden::default();
        // What anti-matter of the oldest component would hide does not exist.
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
        // Each is let go of when it has been read.
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

    /// Calls `each` with the entries of a component that the snapshot sees, and whether they are
    /// anti-matter; false when it broke off.
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

/// The two halves of a range, the second one first; `None` of a single hash.
fn halves(range: &RangeInclusive<u64>) -> Option<[RangeInclusive<u64>; 2]> {
    let (first, last) = (*range.start(), *range.end());
    let middle = first + (last - first) / 2;
    (first < last).then(|| [middle + 1..=last, first..=middle])
}
