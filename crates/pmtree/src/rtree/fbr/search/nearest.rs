//! Nearest neighbours, best first (Hjaltason and Samet 1999), as of the same promise as other searches.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Children, FbrTree, Path, ROUNDS_MAX, Reading, SearchMode, Sought};
use crate::blocks;
use crate::rtree::closest::{Closest, Found, ordered};
use crate::{Rect, Result};
use terrane_pmem::Backend;

/// A node to be read: the closest one is the greatest.
#[derive(Debug)]
struct Candidate {
    distance_squared: f64,
    node: u64,
    /// The level of its parent; none for the root.
    level: Option<u64>,
    /// The parent's place among those that were read.
    parent: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other.distance_squared.total_cmp(&self.distance_squared).then(other.node.cmp(&self.node))
    }
}

ordered!([] Candidate);

/// A root, or a node whose children are candidates: as it was read, and what is known of the children.
struct Opened<'a, const D: usize, B: Backend + 'a> {
    reading: Option<Reading<'a, D, B>>,
    children: Children,
}

/// The entries closest to a point, where they are looked for depth first.
struct Nearest<'q, const D: usize> {
    point: &'q [f64; D],
    closest: Closest<D>,
}

impl<const D: usize> Sought<D> for Nearest<'_, D> {
    fn enters(&self, bounds: &Rect<D>) -> bool {
        self.closest.wants(bounds.distance_squared(self.point))
    }

    fn meets(&self, rect: &Rect<D>) -> bool {
        self.enters(rect)
    }

    fn found(&mut self, _: &Path, rect: Rect<D>, payload: u64) {
        self.closest.add(Found { distance_squared: rect.distance_squared(self.point), payload, rect });
    }
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// The `count` entries whose boxes lie closest to a point, with the squares of their distances, the closest first.
    /// Of entries at one distance some may be left out. Squares are `f64`: distances beyond some 1e154 are one, as are those
    /// below some 1e-162.
    ///
    /// With [`SearchMode::SharedLock`] they are read as with [`SearchMode::Validated`].
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite) for a point whose coordinates are not finite; damage.
    pub fn nearest(&self, point: &[f64; D], count: usize, mode: SearchMode) -> Result<Vec<(f64, Rect<D>, u64)>> {
        Rect::point(*point)?;
        let _pinned = self.pool.pin();
        let mut is_validated = mode != SearchMode::ReadUncommitted;
        loop {
            for _ in 0..ROUNDS_MAX {
                if let Some(found) = self.search_nearest(point, count, is_validated)? {
                    return Ok(found);
                }
                is_validated = true;
            }
            let mut sought = Nearest { point, closest: Closest::new(count) };
            if self.search_locked(&mut sought)?.is_ok() {
                return Ok(sought.closest.into_sorted());
            }
        }
    }

    /// `None` if something changed that was read; if that is not validated, only if it was so much that it must have, or the tree is
    /// damaged.
    fn search_nearest(
        &self,
        point: &[f64; D],
        count: usize,
        is_validated: bool,
    ) -> Result<Option<Vec<(f64, Rect<D>, u64)>>> {
        let root = self.backend().load(self.root_word());
        let mut opened = vec![Opened { reading: None, children: Children::default() }];
        let mut candidates =
            BinaryHeap::from([Candidate { distance_squared: 0.0, node: root, level: None, parent: 0 }]);
        let mut closest = Closest::new(count);
        // The root word first: what came to the root since it was read did so before it was the root again.
        let is_whole = |opened: &[Opened<'_, D, B>]| {
            let is_current =
                |opened: &Opened<'_, D, B>| opened.reading.as_ref().is_none_or(|reading| self.is_current(reading));
            self.backend().load(self.root_word()) == root && opened.iter().all(is_current)
        };
        let mut nodes = 0;
        while let Some(Candidate { distance_squared, node: offset, level, parent }) = candidates.pop() {
            if !closest.wants(distance_squared) {
                break;
            }
            let node = match level {
                Some(level) => self.child(level, offset)?,
                None => self.root_at(offset)?,
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
                candidates.push(Candidate { distance_squared, node: sibling, level, parent });
            }
            let place = opened.len();
            for slot in reading.metadata.slots() {
                let rect = node.rect(slot);
                let distance_squared = rect.distance_squared(point);
                if !closest.wants(distance_squared) {
                    continue;
                }
                match node.level() {
                    0 => closest.add(Found { distance_squared, payload: node.target(slot), rect }),
                    level => candidates.push(Candidate {
                        distance_squared,
                        node: node.target(slot),
                        level: Some(level),
                        parent: place,
                    }),
                }
            }
            if is_validated && !self.is_current(&reading) {
                return Ok(None);
            }
            nodes += 1;
            if self.are_too_many(nodes) {
                return match is_validated && is_whole(&opened) {
                    true => Err(blocks::too_many(&self.pool, root)),
                    false => Ok(None),
                };
            }
            if node.level() > 0 || level.is_none() {
                opened.push(Opened { reading: Some(reading), children: Children::default() });
            }
        }
        Ok((!is_validated || is_whole(&opened)).then(|| closest.into_sorted()))
    }
}
