//! Nearest neighbours, best first (Hjaltason and Samet 1999), with the promise of windows.

use std::collections::BinaryHeap;

use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::Ordering;

use super::layout::slots;
use super::search::Visit;
use super::tree::PearTree;
use crate::rtree::nearest::{Candidate, Nearest};
use crate::rtree::rect::Rect;
use crate::{Result, blocks};

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// The `count` entries closest to a point among those that `accepts` accepts: square of the
    /// distance, box and payload, closest first. Of entries at equal distance some may be left out.
    /// Squares are `f64`, so distances beyond about 1e154 are equal, as are those below about
    /// 1e-162.
    ///
    /// It starts again if a split, a merge or a move has changed a node that it has read.
    ///
    /// # Errors
    /// [`Error::NotFinite`](crate::Error::NotFinite) for a point whose coordinates are not finite,
    /// and errors about damage.
    pub fn nearest(
        &self,
        point: &[f64; D],
        count: usize,
        accepts: impl Fn(&Rect<D>, u64) -> bool,
    ) -> Result<Vec<(f64, Rect<D>, u64)>> {
        Rect::point(*point)?;
        let guard = self.pool.pin();
        loop {
            let sequence = self.root_sequence.load(Ordering::SeqCst);
            let mut nearest = Nearest::new(point, count, &accepts);
            let mut visits = Vec::new();
            if !self.nearest_in(&mut nearest, &mut visits, &guard)? {
                continue;
            }
            let is_unchanged = |(at, sequence, _): &Visit| Ok(self.node(*at)?.sequence() == *sequence);
            let unchanged: Result<Vec<bool>> = visits.iter().map(is_unchanged).collect();
            if unchanged?.into_iter().all(|unchanged| unchanged)
                && self.root_sequence.load(Ordering::SeqCst) == sequence
            {
                return Ok(nearest.into_sorted());
            }
        }
    }

    /// Reads nodes, the closest first, and notes the inner ones. False if one is no part of the
    /// tree any more, or was repaired.
    fn nearest_in<A: Fn(&Rect<D>, u64) -> bool>(
        &self,
        nearest: &mut Nearest<'_, D, A>,
        visits: &mut Vec<Visit>,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        // Each with its parent.
        let mut candidates = BinaryHeap::from([Candidate { distance_squared: 0.0, node: self.root(), link: None }]);
        let (mut read, mut found) = (0, Vec::new());
        while let Some(Candidate { distance_squared, node: at, link }) = candidates.pop() {
            if !nearest.wants(distance_squared) {
                break;
            }
            let node = match link {
                None => self.node(at)?,
                Some(parent) => self.child_of(&self.node(parent)?, at)?,
            };
            read += 1;
            if self.are_too_many(read) {
                return Err(blocks::too_many(&self.pool, self.block));
            }
            if self.is_stale(&node) {
                self.repair(link, at, guard)?;
                return Ok(false);
            }
            let level = node.level();
            // It is likely to be read after this one.
            if let Some(&Candidate { node: next, link: Some(parent), .. }) = candidates.peek() {
                self.node(parent)?.prefetch(next);
            }
            let (sequence, bitmap) = loop {
                let Some(sequence) = self.await_even(&node)? else {
                    self.check_dead(link, &node)?;
                    return Ok(false);
                };
                let bitmap = node.bitmap();
                self.settle(&node);
                let wanted = node.matching(level, bitmap, |rect| nearest.wanted(rect).is_some());
                found.clear();
                found.extend(slots(wanted).map(|slot| (node.rect(level, slot), node.target(level, slot))));
                if node.sequence() == sequence {
                    break (sequence, bitmap);
                }
            };
            if level > 0 {
                visits.push((at, sequence, bitmap));
            }
            for (rect, target) in found.drain(..) {
                let Some(distance_squared) = nearest.wanted(&rect) else { continue };
                if level > 0 {
                    candidates.push(Candidate { distance_squared, node: target, link: Some(at) });
                } else {
                    nearest.add(distance_squared, rect, target);
                }
            }
        }
        Ok(true)
    }
}
