//! The check of every invariant of the structure.

use std::collections::{BTreeMap, BTreeSet};

use terrane_pmem::Backend;
use terrane_storage::sync::Ordering;

use super::layout::{BITMAP, BLOCK_LENGTH, LOCK, MARKS, TOP, head};
use super::node::Node;
use super::tree::PearTree;
use crate::limits::LEVEL_MAX;
use crate::rtree::rect::Rect;
use crate::{Census, Result, blocks};

/// What a walk through the tree has found.
#[derive(Default)]
struct Walk {
    census: Census,
    in_pool: BTreeMap<u64, BTreeSet<u64>>,
    in_memory: BTreeMap<u64, BTreeSet<u64>>,
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Checks every invariant of the structure.
    /// - Levels are right, and boxes contain the entries below them. No node is locked.
    /// - A node in the pool has children in the pool. The chains have exactly the nodes in the
    ///   pool.
    /// - The word about the root is right, and the nodes in memory are those that were counted.
    /// - The acquired blocks are exactly those of the tree, with the length of its nodes.
    ///
    /// It reads the whole tree, and first repairs every node in a recovery state. Nobody else can
    /// use the tree meanwhile.
    pub fn check(&mut self) -> Result<Census> {
        self.repair_all()?;
        let root = self.node(self.root())?;
        blocks::check_height(&self.pool, root.at, root.level())?;
        let mut walk = Walk::default();
        walk.census.height = root.level();
        self.check_node(&root, false, &mut walk)?;
        let top = self.backend().load(self.block + TOP);
        let is_right = match root.is_volatile() {
            false => top == root.at,
            true => (0..=top).all(|level| !walk.in_memory.contains_key(&level)) && top < root.level(),
        };
        if !is_right {
            return Err(self.damaged(self.block, "the word about the root is wrong"));
        }
        if *self.placement.nodes.lock() != walk.in_memory {
            return Err(self.damaged(self.block, "nodes in memory are not those of the tree"));
        }
        let counted: usize = walk.in_memory.values().map(BTreeSet::len).sum();
        if self.volatile_nodes() != counted as u64 {
            return Err(self.damaged(self.block, "the nodes in memory were not counted right"));
        }
        let mut reached = BTreeSet::from([self.block]);
        for level in 0..=LEVEL_MAX {
            let chain: BTreeSet<u64> = self.walk(level)?.into_iter().collect();
            let found = walk.in_pool.remove(&level).unwrap_or_default();
            if let Some(&node) = chain.symmetric_difference(&found).next() {
                let head = self.block + head(level);
                let reason = format!("a node is in the tree and not in the chain at {head}, or the other way round");
                return Err(self.damaged(node, reason));
            }
            reached.extend(chain);
        }
        let lengths = (self.block, BLOCK_LENGTH);
        blocks::check(&mut self.pool, lengths, self.layout.node_length(), &reached)?;
        Ok(walk.census)
    }

    /// Checks the subtree of a node. Gives the box around all entries of its leaves.
    fn check_node(&self, node: &Node<'_, D, B>, is_alone: bool, walk: &mut Walk) -> Result<Option<Rect<D>>> {
        let wrong = |reason: &str| Err(self.damaged(node.at, reason));
        let level = node.level();
        let nodes = if node.is_volatile() { &mut walk.in_memory } else { &mut walk.in_pool };
        if !nodes.entry(level).or_default().insert(node.at) {
            return wrong("a node is linked twice");
        }
        if node.meta() & MARKS != 0 || node.load(BITMAP) != node.bitmap() {
            return wrong("a node has an impossible bitmap, or a mark that nobody removed");
        }
        if node.meta() & LOCK != 0 || node.sequence() & 1 != 0 {
            return wrong("a node is locked, or its entries move, and nobody uses it");
        }
        let is_root = node.at == self.root.load(Ordering::SeqCst);
        walk.census.underfull += u64::from(!is_root && !is_alone && node.count() < self.fill_min(level));
        let mut all: Option<Rect<D>> = None;
        let mut include = |rect: Rect<D>| all = Some(all.map_or(rect, |all| all.union(&rect)));
        if level == 0 {
            walk.census.leaves += 1;
            walk.census.entries += node.count() as u64;
            for (_, rect) in node.rects(0, node.bitmap()) {
                if !self.layout.single && Rect::new(*rect.min(), *rect.max()).is_err() {
                    return wrong("the box of an entry is invalid");
                }
                include(rect);
            }
            return Ok(all);
        }
        walk.census.inner_nodes += 1;
        if node.count() == 0 {
            return wrong("an inner node has no children");
        }
        for (_, (rect, child)) in node.branches(node.bitmap()) {
            let child = self.child_of(node, child)?;
            let Some(found) = self.check_node(&child, node.count() == 1, walk)? else { continue };
            if !rect.contains(&found) {
                return wrong("the box of a child does not contain the entries below it");
            }
            include(found);
        }
        Ok(all)
    }
}
