//! The nodes as a text.

use terrane_pmem::Backend;

use super::node::Node;
use super::tree::LoggedTree;
use crate::Result;
use crate::rtree::shape::{Shape, of_node};

impl<const D: usize, B: Backend> Shape for LoggedTree<D, B> {
    fn shape(&self) -> Result<String> {
        self.shape_of(&self.root()?)
    }
}

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    fn shape_of(&self, node: &Node<D, B::View<'_>>) -> Result<String> {
        let below = |target: u64| match node.level() {
            0 => Ok(target.to_string()),
            level => self.shape_of(&self.child(level, target)?),
        };
        of_node(node.entries().map(|(rect, target)| Ok((rect, below(target)?))))
    }
}
