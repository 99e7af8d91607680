//! Searches. None waits for another thread, and none changes the tree, apart from making words
//! durable that are not yet (P2).

use smallvec::SmallVec;
use terrane_pmem::{Backend, Guard};

use super::options::Gap;
use super::tree::{PmrTree, Way};
use crate::Result;
use crate::rtree::rect::Rect;

/// Where an entry was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) way: Way,
    pub(super) stub: u64,
    pub(super) slot: usize,
}

/// Everything that a look-up has read: nodes, children and bitmaps, in the order of reading.
type Reading = SmallVec<[u64; 64]>;

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Whether there is an entry with exactly this box and payload, compared as in
    /// [`PmrTree::delete`].
    pub fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        Ok(self.find(rect, payload, &self.pool.pin())?.is_some())
    }

    /// Calls `visit` with box and payload of each entry that overlaps a window. Each leaf is read
    /// at one instant. An entry that is there all the time is found exactly once. One that is
    /// absent all the time is not found. What was found survives a crash.
    pub fn window(&self, window: &Rect<D>, mut visit: impl FnMut(&Rect<D>, u64)) -> Result<()> {
        let guard = self.pool.pin();
        let mut nodes: SmallVec<[u64; 64]> = SmallVec::from_slice(&[self.root()]);
        while let Some(node) = nodes.pop() {
            let inner = self.inner(node);
            let is_parent = inner.level() == 1;
            for (slot, rect) in inner.rects() {
                if !window.overlaps(&rect) {
                    continue;
                }
                let child = inner.child(slot);
                if !is_parent {
                    nodes.push(child);
                    continue;
                }
                if self.has_gap(Gap::Versions) {
                    self.visit_by_versions(child, window, &mut visit, &guard)?;
                    continue;
                }
                let leaf = self.leaf_of(child);
                let (map, entries) = (self.map(child, &guard)?, self.entries(leaf)?);
                for slot in map.slots(&self.layout) {
                    let rect = entries.rect(slot);
                    if window.overlaps(&rect) {
                        visit(&rect, entries.payload(slot));
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds an entry. If there is none, two searches in succession have read the same. Nothing
    /// that they read repeats a value under the guard, so the entry was absent between the two.
    pub(super) fn find(&self, rect: &Rect<D>, payload: u64, guard: &Guard<'_>) -> Result<Option<Found>> {
        let mut before: Option<Reading> = None;
        loop {
            let mut reading = Reading::new();
            let found = self.find_below(&mut Way::new(), self.root(), (rect, payload), &mut reading, guard)?;
            if found.is_some() || before.as_ref() == Some(&reading) {
                return Ok(found);
            }
            before = Some(reading);
        }
    }

    fn find_below(
        &self,
        way: &mut Way,
        node: u64,
        (rect, payload): (&Rect<D>, u64),
        reading: &mut Reading,
        guard: &Guard<'_>,
    ) -> Result<Option<Found>> {
        let inner = self.inner(node);
        reading.push(node);
        for (slot, bounds) in inner.rects() {
            if !bounds.contains(rect) {
                continue;
            }
            let child = inner.child(slot);
            way.push((node, slot));
            if inner.level() > 1 {
                let found = self.find_below(way, child, (rect, payload), reading, guard)?;
                if found.is_some() {
                    return Ok(found);
                }
            } else {
                let leaf = self.leaf_of(child);
                let (map, entries) = (self.map(child, guard)?, self.entries(leaf)?);
                let is_meant = |&slot: &usize| entries.payload(slot) == payload && entries.rect(slot) == *rect;
                if let Some(slot) = map.slots(&self.layout).find(is_meant) {
                    return Ok(Some(Found { way: way.clone(), stub: child, slot }));
                }
                reading.push(child);
                reading.extend(map.words);
            }
            way.pop();
        }
        Ok(None)
    }
}
