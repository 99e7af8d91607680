//! Nearest neighbours, best first (Hjaltason and Samet 1999), with the promise of other searches.

use std::collections::BinaryHeap;

use terrane_pmem::Backend;

use super::super::tree::FbrTree;
use super::{ROUNDS_MAX, Reading, SearchMode, Siblings};
use crate::blocks;
use crate::rtree::nearest::{Candidate, Nearest};
use crate::{Rect, Result};

/// How a node to read is linked.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The level of its parent; none for the root.
    level: Option<u64>,
    /// The parent's index among the nodes that were read.
    parent: usize,
}

/// A root, or a node whose children are candidates: how it was read, and its children.
struct Opened<'a, const D: usize, B: Backend + 'a> {
    reading: Option<Reading<'a, D, B>>,
    siblings: Siblings,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// The `count` entries closest to a point among those that `accepts` accepts: square of the
    /// distance, box and payload, closest first. Of entries at equal distance some may be left out.
    /// Squares are `f64`, so distances beyond about 1e154 are equal, as are those below about
    /// 1e-162.
    ///
    /// `accepts` is called inside of the search and decides by box and payload alone. If writers
    /// overtake the search, it may be called again, or for entries that are absent in the end. With
    /// [`SearchMode::SharedLock`] nodes are read as with [`SearchMode::Validated`].
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite) for a point whose coordinates are not finite,
    /// and errors about damage.
    pub fn nearest(
        &self,
        point: &[f64; D],
        count: usize,
        mode: SearchMode,
        accepts: impl Fn(&Rect<D>, u64) -> bool,
    ) -> Result<Vec<(f64, Rect<D>, u64)>> {
        Rect::point(*point)?;
        let _pinned = self.pool.pin();
        let mut is_validated = mode != SearchMode::ReadUncommitted;
        loop {
            for _ in 0..ROUNDS_MAX {
                let mut nearest = Nearest::new(point, count, &accepts);
                if self.search_nearest(&mut nearest, is_validated)? {
                    return Ok(nearest.into_sorted());
                }
                is_validated = true;
            }
            let mut nearest = Nearest::new(point, count, &accepts);
            if self.search_locked(&mut nearest)?.is_ok() {
                return Ok(nearest.into_sorted());
            }
        }
    }

    /// Whether the search succeeded. It fails if a node that it read has changed. Without
    /// validation, it fails only if it reads too many nodes, so that the tree has changed or is
    /// damaged.
    fn search_nearest<A: Fn(&Rect<D>, u64) -> bool>(
        &self,
        nearest: &mut Nearest<'_, D, A>,
        is_validated: bool,
    ) -> Result<bool> {
        let root = self.backend().load(self.root_word());
        let mut opened = vec![Opened { reading: None, siblings: Siblings::default() }];
        let of_root = Link { level: None, parent: 0 };
        let mut candidates = BinaryHeap::from([Candidate { distance_squared: 0.0, node: root, link: of_root }]);
        // The root word first: entries that came to the root since it was read did so before it
        // became the root again.
        let is_whole = |opened: &[Opened<'_, D, B>]| {
            let is_current =
                |opened: &Opened<'_, D, B>| opened.reading.as_ref().is_none_or(|reading| self.is_current(reading));
            self.backend().load(self.root_word()) == root && opened.iter().all(is_current)
        };
        let mut nodes = 0;
        while let Some(Candidate { distance_squared, node: offset, link }) = candidates.pop() {
            if !nearest.wants(distance_squared) {
                break;
            }
            let node = match link.level {
                Some(level) => self.child(level, offset)?,
                None => self.root_at(offset)?,
            };
            let reading = self.read(&node)?;
            let Opened { reading: parent_reading, siblings } = &mut opened[link.parent];
            siblings.children.begin(offset);
            if is_validated && siblings.note(parent_reading.as_ref(), &reading).is_err() {
                return Ok(false);
            }
            // A sibling from a split that has just been made, which is not linked yet.
            for sibling in siblings.children.take_others() {
                candidates.push(Candidate { distance_squared, node: sibling, link });
            }
            let link_below = Link { level: Some(node.level()), parent: opened.len() };
            for slot in reading.metadata.slots() {
                let rect = node.rect(slot);
                let Some(distance_squared) = nearest.wanted(&rect) else { continue };
                match node.level() {
                    0 => nearest.add(distance_squared, rect, node.target(slot)),
                    _ => candidates.push(Candidate { distance_squared, node: node.target(slot), link: link_below }),
                }
            }
            if is_validated && !self.is_current(&reading) {
                return Ok(false);
            }
            nodes += 1;
            if self.are_too_many(nodes) {
                return match is_validated && is_whole(&opened) {
                    true => Err(blocks::too_many(&self.pool, root)),
                    false => Ok(false),
                };
            }
            if node.level() > 0 || link.level.is_none() {
                opened.push(Opened { reading: Some(reading), siblings: Siblings::default() });
            }
        }
        Ok(!is_validated || is_whole(&opened))
    }
}
