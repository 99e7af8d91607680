//! Nearest neighbours, best first (Hjaltason and Samet 1999), with the promise of windows.

use std::collections::BinaryHeap;

use terrane_pmem::Backend;

use super::tree::PmrTree;
use crate::Result;
use crate::rtree::nearest::{Candidate, Nearest};
use crate::rtree::rect::Rect;

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// The `count` entries closest to a point among those that `accepts` accepts: square of the
    /// distance, box and payload, closest first. Of entries at equal distance some may be left out.
    /// Squares are `f64`, so distances beyond about 1e154 are equal, as are those below about
    /// 1e-162.
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
        let mut nearest = Nearest::new(point, count, accepts);
        let root = self.root();
        // Each with its level.
        let mut candidates =
            BinaryHeap::from([Candidate { distance_squared: 0.0, node: root, link: self.inner(root).level() }]);
        while let Some(Candidate { distance_squared, node, link: level }) = candidates.pop() {
            if !nearest.wants(distance_squared) {
                break;
            }
            if level > 0 {
                let inner = self.inner(node);
                for (slot, rect) in inner.rects() {
                    if let Some(distance_squared) = nearest.wanted(&rect) {
                        candidates.push(Candidate { distance_squared, node: inner.child(slot), link: level - 1 });
                    }
                }
                continue;
            }
            let leaf = self.leaf_of(node);
            let (map, entries) = (self.map(node, &guard)?, self.entries(leaf)?);
            for slot in map.slots(&self.layout) {
                let rect = entries.rect(slot);
                if let Some(distance_squared) = nearest.wanted(&rect) {
                    nearest.add(distance_squared, rect, entries.payload(slot));
                }
            }
        }
        Ok(nearest.into_sorted())
    }
}
