//! The check of every invariant of the structure.

use std::collections::BTreeSet;

use terrane_pmem::Backend;

use super::layout::LOG_START;
use super::log::{ENTRIES, Log};
use super::node::Node;
use super::tree::FbrTree;
use crate::blocks;
use crate::{Census, Rect, Result};

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Checks every invariant of the structure.
    /// - Types and levels are right, and boxes contain their subtrees.
    /// - No node is linked twice, marked as unlinked, or being changed.
    /// - No log entry is left.
    /// - The acquired blocks are exactly those of the tree, with the length of its nodes.
    ///
    /// It reads the whole tree. Nobody else can use the tree meanwhile.
    pub fn check(&mut self) -> Result<Census> {
        for index in 0..ENTRIES {
            if self.read_change(index)?.is_some() {
                return Err(self.damaged(self.block, format!("entry {index} of the log is still in use")));
            }
        }
        let mut census = Census::default();
        let mut reached = BTreeSet::from([self.block]);
        let root = self.root()?;
        census.height = root.level();
        self.check_node(&root, true, &mut census, &mut reached)?;
        let block_length = LOG_START + Log::length(&self.layout);
        blocks::check(&mut self.pool, (self.block, block_length), self.layout.node_length(), &reached)?;
        Ok(census)
    }

    /// Checks the subtree of a node. Gives the box around all entries of its leaves.
    ///
    /// A box need not contain those of the nodes below it. A crash may lose that one of them has
    /// shrunk, and keep that the other one has.
    fn check_node(
        &self,
        node: &Node<'_, D, B>,
        is_root: bool,
        census: &mut Census,
        reached: &mut BTreeSet<u64>,
    ) -> Result<Option<Rect<D>>> {
        if !reached.insert(node.offset) {
            return Err(self.damaged(node.offset, "a node is linked twice"));
        }
        self.check_at_rest(node)?;
        let metadata = self.locked_metadata(node)?;
        if self.has_tags(node.level()) && self.metadata_by_tags(node) != metadata {
            return Err(self.damaged(node.offset, "the bitmap of a leaf differs from its entries' tags"));
        }
        census.underfull += u64::from(!is_root && metadata.count() < self.fill_min);
        if node.level() > 0 && metadata.count() == 0 {
            return Err(self.damaged(node.offset, "an inner node has no children"));
        }
        let mut all: Option<Rect<D>> = None;
        for slot in metadata.slots() {
            let rect = node.rect(slot);
            if Rect::new(*rect.min(), *rect.max()).is_err() {
                return Err(self.damaged(node.link(slot), "the box of an entry is invalid"));
            }
            let found = match node.level() {
                0 => Some(rect),
                level => self.check_node(&self.child(level, node.target(slot))?, false, census, reached)?,
            };
            let Some(found) = found else { continue };
            if !rect.contains(&found) {
                return Err(self.damaged(node.link(slot), "the box of a child does not contain the entries below it"));
            }
            all = Some(all.map_or(found, |all| all.union(&found)));
        }
        if node.level() == 0 {
            census.leaves += 1;
            census.entries += metadata.count() as u64;
        } else {
            census.inner_nodes += 1;
        }
        Ok(all)
    }
}
