//! The check of every invariant of the structure.

use std::collections::BTreeSet;

use terrane_pmem::{Backend, Guard};

use super::chain;
use super::layout::{BLOCK_LENGTH, REPLACED};
use super::tree::{PmrTree, Way};
use crate::rtree::rect::Rect;
use crate::{Census, Result, blocks};

/// What a walk through the inner nodes has found.
#[derive(Default)]
struct Walk {
    census: Census,
    leaves: BTreeSet<u64>,
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Checks every invariant of the structure.
    /// - Levels are right, and boxes contain their subtrees.
    /// - The inner nodes lead once to each leaf of the chain that was not replaced, and to no
    ///   other.
    /// - Where entries validate themselves, their tags agree with the bitmap in memory.
    /// - The acquired blocks are exactly those of the tree, with the length of its leaves.
    ///
    /// It reads the whole tree. Before, it completes changes that failed for lack of space. Nobody
    /// else can use the tree meanwhile.
    pub fn check(&mut self) -> Result<Census> {
        self.complete_changes()?;
        let root = self.root();
        let mut walk = Walk::default();
        walk.census.height = self.inner(root).level();
        self.check_node(root, None, &mut walk)?;
        let chain = chain::walk(&self.pool, &self.layout, self.block)?;
        let live: BTreeSet<u64> = chain.iter().filter(|linked| !linked.is_replaced).map(|linked| linked.leaf).collect();
        if let Some(&leaf) = live.symmetric_difference(&walk.leaves).next() {
            return Err(self.damaged(leaf, "a leaf is in the chain and not in the tree, or the other way round"));
        }
        let mut reached: BTreeSet<u64> = chain.iter().map(|linked| linked.leaf).collect();
        reached.insert(self.block);
        blocks::check(&mut self.pool, (self.block, BLOCK_LENGTH), self.layout.leaf_length(), &reached)?;
        Ok(walk.census)
    }

    /// Checks the subtree of a node. Gives the box around all entries of its leaves.
    fn check_node(&self, node: u64, level: Option<u64>, walk: &mut Walk) -> Result<Option<Rect<D>>> {
        let guard = self.pool.pin();
        let inner = self.inner(node);
        let wrong = |reason: &str| Err(self.damaged(self.block, reason));
        if inner.count() == 0 || level.is_some_and(|level| level != inner.level()) {
            return wrong("an inner node in memory has no children or a wrong level");
        }
        walk.census.inner_nodes += 1;
        let mut all: Option<Rect<D>> = None;
        for (slot, rect) in inner.rects() {
            let child = inner.child(slot);
            let found = match inner.level() {
                1 => self.check_leaf(child, inner.count() == 1, walk, &guard)?,
                level => self.check_node(child, Some(level - 1), walk)?,
            };
            let Some(found) = found else { continue };
            if !rect.contains(&found) {
                return wrong("the box of a child does not contain the entries below it");
            }
            all = Some(all.map_or(found, |all| all.union(&found)));
        }
        Ok(all)
    }

    fn check_leaf(&self, stub: u64, is_alone: bool, walk: &mut Walk, guard: &Guard<'_>) -> Result<Option<Rect<D>>> {
        let leaf = self.leaf_of(stub);
        if !walk.leaves.insert(leaf) {
            return Err(self.damaged(leaf, "a leaf is linked twice"));
        }
        let (map, entries) = (self.map(stub, guard)?, self.entries(leaf)?);
        if self.stored_map(leaf, guard)? != map {
            return Err(self.damaged(leaf, "the tags of a leaf's entries differ from its bitmap"));
        }
        walk.census.leaves += 1;
        walk.census.entries += map.count() as u64;
        walk.census.underfull += u64::from(!is_alone && map.count() < self.fill_min);
        let mut all: Option<Rect<D>> = None;
        for slot in map.slots(&self.layout) {
            let rect = entries.rect(slot);
            if Rect::new(*rect.min(), *rect.max()).is_err() {
                return Err(self.damaged(leaf + self.layout.entry(slot), "the box of an entry is invalid"));
            }
            all = Some(all.map_or(rect, |all| all.union(&rect)));
        }
        Ok(all)
    }

    /// Completes the changes that were begun in inner nodes.
    fn complete_changes(&mut self) -> Result<()> {
        let guard = self.pool.pin();
        while let Some((above, node)) = self.unfinished(Way::new(), self.root(), &guard)? {
            self.copy_node(&above, node, &guard)?;
        }
        Ok(())
    }

    /// A node that is closed, or that leads to a replaced leaf, and the way to it.
    fn unfinished(&self, above: Way, node: u64, guard: &Guard<'_>) -> Result<Option<(Way, u64)>> {
        let inner = self.inner(node);
        if inner.is_closing() {
            return Ok(Some((above, node)));
        }
        for slot in 0..inner.count() {
            let child = inner.child(slot);
            if inner.level() == 1 {
                if self.next(self.leaf_of(child), guard)? & REPLACED != 0 {
                    return Ok(Some((above, node)));
                }
                continue;
            }
            let mut way = above.clone();
            way.push((node, slot));
            if let Some(found) = self.unfinished(way, child, guard)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
