//! The nodes as a text.

use terrane_pmem::Backend;

use super::node::Node;
use super::tree::PearTree;
use crate::Result;
use crate::rtree::shape::{Shape, of_node};

impl<const D: usize, B: Backend> Shape for PearTree<D, B> {
    fn shape(&self) -> Result<String> {
        self.shape_of(&self.node(self.root())?)
    }
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Whether a node lies in memory is part of it.
    fn shape_of(&self, node: &Node<'_, D, B>) -> Result<String> {
        let level = node.level();
        let text = of_node(node.branches(node.bitmap()).map(|(_, (rect, target))| {
            let below = match level {
                0 => target.to_string(),
                _ => self.shape_of(&self.child_of(node, target)?)?,
            };
            Ok((rect, below))
        }))?;
        Ok(if node.is_volatile() { format!("{text} in memory") } else { text })
    }
}
