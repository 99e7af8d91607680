//! Search, for callers that hold the tree's lock.

use std::collections::BinaryHeap;

use smallvec::SmallVec;
use terrane_pmem::{Backend, LINE_LENGTH};

use super::node::Node;
use super::tree::LoggedTree;
use crate::blocks;
use crate::rtree::nearest::{Candidate, Nearest};
use crate::rtree::search::{Exact, Path, SearchVisitor};
use crate::{Rect, Result};

/// Bytes of a node to prefetch while its parent is read, as in the FBR-tree.
const PREFETCHED: u64 = 8 * LINE_LENGTH;

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    pub(super) fn search(&self, visitor: &mut impl SearchVisitor<D>) -> Result<()> {
        self.search_below(&self.root()?, visitor, &mut Path::new(), &mut 0)
    }

    /// The nodes on the path to an entry with exactly this box and payload.
    pub(super) fn find(&self, rect: &Rect<D>, payload: u64) -> Result<Option<Path>> {
        // Nothing changes under the lock, so it need not be recorded how nodes were read.
        let mut exact = Exact::<D, ()>::new(rect, payload);
        self.search(&mut exact)?;
        Ok(exact.path)
    }

    fn search_below(
        &self,
        node: &Node<D, B::View<'_>>,
        visitor: &mut impl SearchVisitor<D>,
        path: &mut Path,
        nodes: &mut u64,
    ) -> Result<()> {
        path.push(node.offset);
        if node.level() == 0 {
            for slot in 0..node.count() {
                let rect = node.rect(slot);
                if visitor.meets(&rect) {
                    visitor.found(path, rect, node.target(slot));
                }
            }
        } else {
            let children: SmallVec<[u64; 16]> = (0..node.count())
                .filter(|&slot| visitor.enters(&node.rect(slot)))
                .map(|slot| node.target(slot))
                .inspect(|&child| self.backend().prefetch(child, PREFETCHED))
                .collect();
            self.count(node.offset, children.len(), nodes)?;
            for child in children {
                self.search_below(&self.child(node.level(), child)?, visitor, path, nodes)?;
                if visitor.is_satisfied() {
                    break;
                }
            }
        }
        path.pop();
        Ok(())
    }

    /// Counts the children of a node that a search enters. In a damaged tree their sum could be
    /// unlimited.
    fn count(&self, node: u64, children: usize, nodes: &mut u64) -> Result<()> {
        *nodes += children as u64;
        match blocks::are_too_many(&self.pool, *nodes, self.layout.node_length()) {
            true => Err(blocks::too_many(&self.pool, node)),
            false => Ok(()),
        }
    }

    /// Reads the nodes that can contain something closer, closest first.
    pub(super) fn search_nearest<A: Fn(&Rect<D>, u64) -> bool>(&self, nearest: &mut Nearest<'_, D, A>) -> Result<()> {
        let root = self.root()?;
        let mut candidates =
            BinaryHeap::from([Candidate { distance_squared: 0.0, node: root.offset, link: root.level() + 1 }]);
        let mut nodes = 0;
        while let Some(Candidate { distance_squared, node, link: level }) = candidates.pop() {
            if !nearest.wants(distance_squared) {
                break;
            }
            self.count(node, 1, &mut nodes)?;
            let node = self.child(level, node)?;
            for (rect, target) in node.entries() {
                let Some(distance_squared) = nearest.wanted(&rect) else { continue };
                match node.level() {
                    0 => nearest.add(distance_squared, rect, target),
                    level => candidates.push(Candidate { distance_squared, node: target, link: level }),
                }
            }
        }
        Ok(())
    }
}
