//! Search, for who holds the tree's lock.

use smallvec::SmallVec;
use terrane_pmem::{Backend, LINE_LENGTH};

use super::LoggedTree;
use super::node::Node;
use crate::blocks;
use crate::rtree::closest::{Closest, Found};
use crate::{Rect, Result};

/// Bytes of a node that are asked for while its parent is read, as in the FBR-tree.
const PREFETCHED: u64 = 8 * LINE_LENGTH;

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    /// Children that a search enters, with their prefetch begun.
    fn entered(&self, node: &Node<D, B::View<'_>>, enters: impl Fn(&Rect<D>) -> bool) -> SmallVec<[u64; 16]> {
        let children = (0..node.count()).filter(|&slot| enters(&node.rect(slot))).map(|slot| node.target(slot));
        children.inspect(|&child| self.backend().prefetch(child, PREFETCHED)).collect()
    }

    /// Counts the children of a node that a search enters, which in a damaged tree could be any number in all.
    fn count(&self, node: u64, children: usize, nodes: &mut u64) -> Result<()> {
        *nodes += children as u64;
        match blocks::are_too_many(&self.pool, *nodes, self.layout.node_length()) {
            true => Err(blocks::too_many(&self.pool, node)),
            false => Ok(()),
        }
    }

    pub(super) fn search_window(
        &self,
        node: &Node<D, B::View<'_>>,
        window: &Rect<D>,
        hits: &mut Vec<(Rect<D>, u64)>,
        nodes: &mut u64,
    ) -> Result<()> {
        if node.level() == 0 {
            for slot in 0..node.count() {
                let rect = node.rect(slot);
                if window.overlaps(&rect) {
                    hits.push((rect, node.target(slot)));
                }
            }
            return Ok(());
        }
        let children = self.entered(node, |rect| window.overlaps(rect));
        self.count(node.offset, children.len(), nodes)?;
        for child in children {
            self.search_window(&self.child(node.level(), child)?, window, hits, nodes)?;
        }
        Ok(())
    }

    /// The nodes on the way to an entry with exactly this box and payload.
    pub(super) fn find(&self, rect: &Rect<D>, payload: u64) -> Result<Option<Vec<u64>>> {
        let mut path = Vec::new();
        Ok(self.find_below(&self.root()?, (*rect, payload), &mut path, &mut 0)?.then_some(path))
    }

    fn find_below(
        &self,
        node: &Node<D, B::View<'_>>,
        entry: (Rect<D>, u64),
        path: &mut Vec<u64>,
        nodes: &mut u64,
    ) -> Result<bool> {
        path.push(node.offset);
        if node.level() == 0 && node.entries().any(|found| found == entry) {
            return Ok(true);
        }
        if node.level() > 0 {
            let children = self.entered(node, |rect| rect.contains(&entry.0));
            self.count(node.offset, children.len(), nodes)?;
            for child in children {
                if self.find_below(&self.child(node.level(), child)?, entry, path, nodes)? {
                    return Ok(true);
                }
            }
        }
        path.pop();
        Ok(false)
    }

    pub(super) fn search_nearest(&self, point: &[f64; D], count: usize) -> Result<Vec<(f64, Rect<D>, u64)>> {
        let mut closest = Closest::new(count);
        self.nearest_below(&self.root()?, point, &mut closest, &mut 0)?;
        Ok(closest.into_sorted())
    }

    /// The children in the order of their distance, as long as they can hold something closer.
    fn nearest_below(
        &self,
        node: &Node<D, B::View<'_>>,
        point: &[f64; D],
        closest: &mut Closest<D>,
        nodes: &mut u64,
    ) -> Result<()> {
        let with_distance = node.entries().map(|(rect, target)| (rect.distance_squared(point), rect, target));
        if node.level() == 0 {
            for (distance_squared, rect, payload) in with_distance {
                if closest.wants(distance_squared) {
                    closest.add(Found { distance_squared, payload, rect });
                }
            }
            return Ok(());
        }
        let mut children: Vec<(f64, u64)> = with_distance.map(|(distance, _, child)| (distance, child)).collect();
        children.sort_unstable_by(|left, right| left.0.total_cmp(&right.0));
        for (distance_squared, child) in children {
            if !closest.wants(distance_squared) {
                break;
            }
            self.count(node.offset, 1, nodes)?;
            self.nearest_below(&self.child(node.level(), child)?, point, closest, nodes)?;
        }
        Ok(())
    }
}
