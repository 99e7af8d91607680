//! Nearest neighbours, best first (Hjaltason and Samet 1999), as of the same promise as other searches.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Children, FbrTree, Reading, SearchMode};
use crate::{Rect, Result};
use terrane_pmem::Backend;

/// What is to be looked at, the closest first; among equals nodes come last.
struct Candidate<const D: usize> {
    distance_squared: f64,
    item: Item<D>,
}

enum Item<const D: usize> {
    Entry(Rect<D>, u64),
    /// A node, the level of its parent (none for the root), and the parent's place among those that were read.
    Node(u64, Option<u64>, usize),
}

impl<const D: usize> Candidate<D> {
    fn key(&self) -> (f64, bool, u64) {
        match self.item {
            Item::Entry(_, payload) => (self.distance_squared, false, payload),
            Item::Node(node, ..) => (self.distance_squared, true, node),
        }
    }
}

impl<const D: usize> Ord for Candidate<D> {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((distance, is_node, name), (other_distance, other_is_node, other_name)) = (self.key(), other.key());
        // A heap gives the greatest one first. An entry may be given while a node at the same distance waits.
        other_distance.total_cmp(&distance).then((other_is_node, other_name).cmp(&(is_node, name)))
    }
}

impl<const D: usize> PartialOrd for Candidate<D> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const D: usize> PartialEq for Candidate<D> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<const D: usize> Eq for Candidate<D> {}

/// A node whose children are candidates: as it was read, and what is known of the children.
struct Opened<'a, const D: usize, B: Backend + 'a> {
    reading: Option<Reading<'a, D, B>>,
    children: Children,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// The `count` entries whose boxes lie closest to a point, with the squares of their distances, the closest first.
    /// Of entries at one distance some may be left out.
    ///
    /// With [`SearchMode::SharedLock`] they are read as with [`SearchMode::Validated`].
    pub fn nearest(&self, point: &[f64; D], count: usize, mode: SearchMode) -> Result<Vec<(f64, Rect<D>, u64)>> {
        let _pinned = self.pool.pin();
        loop {
            if let Some(found) = self.search_nearest(point, count, mode)? {
                return Ok(found);
            }
        }
    }

    /// `None` if something changed that was read.
    fn search_nearest(
        &self,
        point: &[f64; D],
        count: usize,
        mode: SearchMode,
    ) -> Result<Option<Vec<(f64, Rect<D>, u64)>>> {
        let is_validated = mode != SearchMode::ReadUncommitted;
        let root = self.backend().load(self.root_word());
        let mut opened = vec![Opened { reading: None, children: Children::default() }];
        let mut candidates = BinaryHeap::new();
        candidates.push(Candidate { distance_squared: 0.0, item: Item::Node(root, None, 0) });
        let mut found = Vec::new();
        while found.len() < count
            && let Some(Candidate { distance_squared, item }) = candidates.pop()
        {
            let (offset, level, parent) = match item {
                Item::Entry(rect, payload) => {
                    found.push((distance_squared, rect, payload));
                    continue;
                }
                Item::Node(offset, level, parent) => (offset, level, parent),
            };
            let node = match level {
                Some(level) => self.child(level, offset)?,
                None => self.node(offset)?,
            };
            let reading = self.read(&node)?;
            let Opened { reading: parent_reading, children: siblings } = &mut opened[parent];
            siblings.to_read.push(offset);
            siblings.next = siblings.to_read.len();
            if is_validated && siblings.note(parent_reading.as_ref(), &reading).is_err() {
                return Ok(None);
            }
            // A sibling that a split has just made, which is not linked yet.
            for sibling in siblings.to_read.drain(siblings.next..) {
                candidates.push(Candidate { distance_squared, item: Item::Node(sibling, level, parent) });
            }
            let place = opened.len();
            for slot in reading.metadata.slots() {
                let (rect, target) = (node.rect(slot), node.target(slot));
                let distance_squared = rect.distance_squared(point);
                let item = match node.level() {
                    0 => Item::Entry(rect, target),
                    level => Item::Node(target, Some(level), place),
                };
                candidates.push(Candidate { distance_squared, item });
            }
            if is_validated && !self.is_current(&reading) {
                return Ok(None);
            }
            if node.level() > 0 {
                opened.push(Opened { reading: Some(reading), children: Children::default() });
            }
        }
        let is_whole = self.backend().load(self.root_word()) == root
            && opened.iter().all(|opened| {
                opened.reading.as_ref().is_none_or(|reading| self.is_current(reading))
                    && opened.children.are_unchanged(self)
            });
        Ok((is_whole || !is_validated).then_some(found))
    }
}
