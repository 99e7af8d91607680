//! The check of every invariant of the structure.

use std::collections::BTreeSet;

use terrane_pmem::Backend;

use super::log::BLOCK_LENGTH;
use super::node::Node;
use super::tree::LoggedTree;
use crate::blocks;
use crate::{Census, Rect, Result};

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    /// Checks levels and counts, and that boxes are minimal (L6), no node is linked twice, and the
    /// log is free. The acquired blocks must be exactly those of the tree, with the length of its
    /// nodes.
    pub(super) fn check_all(&mut self) -> Result<Census> {
        let (image_blocks, is_free) = self.log_blocks();
        if !is_free {
            return Err(self.damaged(self.block, "the log is still in use"));
        }
        let mut census = Census::default();
        let mut reached = BTreeSet::from([self.block]);
        for block in image_blocks {
            if !reached.insert(block) {
                return Err(self.damaged(block, "the log names a block twice"));
            }
        }
        let root = self.root()?;
        census.height = root.level();
        self.check_node(&root, true, &mut census, &mut reached)?;
        blocks::check(&mut self.pool, (self.block, BLOCK_LENGTH), self.layout.node_length(), &reached)?;
        Ok(census)
    }

    fn check_node(
        &self,
        node: &Node<D, B::View<'_>>,
        is_root: bool,
        census: &mut Census,
        reached: &mut BTreeSet<u64>,
    ) -> Result<()> {
        if !reached.insert(node.offset) {
            return Err(self.damaged(node.offset, "a node is linked twice"));
        }
        census.underfull += u64::from(!is_root && node.count() < self.fill_min);
        if node.level() == 0 {
            census.leaves += 1;
            census.entries += node.count() as u64;
        } else {
            census.inner_nodes += 1;
            if node.count() == 0 {
                return Err(self.damaged(node.offset, "an inner node has no children"));
            }
        }
        for (rect, target) in node.entries() {
            if Rect::new(*rect.min(), *rect.max()).is_err() {
                return Err(self.damaged(node.offset, "the box of an entry is invalid"));
            }
            if node.level() > 0 {
                let child = self.child(node.level(), target)?;
                // An empty leaf (L7) may have any box (L6).
                if child.bounds().is_some_and(|bounds| bounds != rect) {
                    return Err(self.damaged(node.offset, "the box of a child differs from the box around its entries"));
                }
                self.check_node(&child, false, census, reached)?;
            }
        }
        Ok(())
    }
}
