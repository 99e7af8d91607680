//! The nodes as a text.

use terrane_pmem::Backend;

use super::node::Node;
use super::tree::FbrTree;
use crate::Result;
use crate::rtree::shape::{Shape, of_node};

impl<const D: usize, B: Backend> Shape for FbrTree<D, B> {
    fn shape(&self) -> Result<String> {
        self.shape_of(&self.root()?)
    }
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    fn shape_of(&self, node: &Node<'_, D, B>) -> Result<String> {
        let below = |target: u64| match node.level() {
            0 => Ok(target.to_string()),
            level => self.shape_of(&self.child(level, target)?),
        };
        let metadata = self.locked_metadata(node)?;
        of_node(metadata.slots().map(|slot| Ok((node.rect(slot), below(node.target(slot))?))))
    }
}
