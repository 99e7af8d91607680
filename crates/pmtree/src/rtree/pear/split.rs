//! Splits: in place, with the R*-tree's or the quadratic rule. Parents that are full are split
//! first.

use terrane_pmem::{Backend, Site};

use super::layout::{BITMAP, BOXES, MASK, META, PARENT, REORGANIZING, SEQUENCE, SPLIT_STARTED, locked, slots};
use super::lock::Locked;
use super::node::{Branch, Node};
use super::tree::PearTree;
use crate::Result;

const BRANCH: Site = Site::new("pear.split.branch");
const BRANCH_MAP: Site = Site::new("pear.split.branch.map");
const DONE: Site = Site::new("pear.split.done");

/// References to nodes in memory are shorter.
const KEY_SHIFT: u32 = 40;

/// What became of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The way has changed; nothing was done, or only parents were split.
    Changed,
    /// The budget has no room for this number of nodes; the same.
    NeedsRoom(u64),
}

/// A node and its new half, both locked; or why there is none.
type Halves<'a, const D: usize, B> = std::result::Result<(Locked<'a, D, B>, Locked<'a, D, B>), Outcome>;

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Splits the last node of a way, which is locked and full.
    pub(super) fn split_node<'a>(&'a self, way: &[u64], node: Locked<'a, D, B>) -> Result<Outcome> {
        Ok(self.split_locked(way, node)?.map_or_else(|outcome| outcome, |_| Outcome::Done))
    }

    fn split_locked<'a>(&'a self, way: &[u64], node: Locked<'a, D, B>) -> Result<Halves<'a, D, B>> {
        let Some((&at, above)) = way.split_last() else { return Ok(Err(Outcome::Changed)) };
        let Some(&parent) = above.last() else {
            let _root = self.root_lock.lock();
            return if self.root() == at { self.split_root(node) } else { Ok(Err(Outcome::Changed)) };
        };
        let Some(parent) = self.lock(parent)? else { return Ok(Err(Outcome::Changed)) };
        if parent.slot_of(at).is_none() {
            return Ok(Err(Outcome::Changed));
        }
        let parent = if parent.free_slot().is_some() {
            parent
        } else {
            let (first, second) = match self.split_locked(above, parent)? {
                Ok(halves) => halves,
                Err(outcome) => return Ok(Err(outcome)),
            };
            if first.slot_of(at).is_some() { first } else { second }
        };
        let Some(slot) = parent.slot_of(at) else {
            return Err(self.damaged(parent.at, "a node has lost a child while it was locked"));
        };
        let halves = match self.make_half(node)? {
            Ok(halves) => halves,
            Err(outcome) => return Ok(Err(outcome)),
        };
        self.link_to_parent(&parent, slot, &halves)?;
        self.complete_split(&halves)?;
        Ok(Ok(halves))
    }

    /// Makes the new half, on the chain if it lies in the pool. Both are odd afterwards.
    fn make_half<'a>(&'a self, node: Locked<'a, D, B>) -> Result<Halves<'a, D, B>> {
        self.check_children(&node)?;
        let (moved, branches) = self.divide(&node);
        let half = if node.is_volatile() {
            if !self.reserve(1) {
                return Ok(Err(Outcome::NeedsRoom(1)));
            }
            self.volatile_node(node.level(), node.load(PARENT), &branches)?
        } else {
            self.link_half(&node, moved, &branches)?
        };
        half.store(MASK, moved);
        node.toggle();
        Ok(Ok((node, half)))
    }

    /// A node in memory, locked and odd, for which the budget has room. Its key is one that no
    /// session repeats.
    pub(super) fn volatile_node(&self, level: u64, parent: u64, branches: &[Branch<D>]) -> Result<Locked<'_, D, B>> {
        let at = self.allocate_volatile();
        let node = self.node(at)?;
        node.fill(locked(level, 0, self.session), self.session << KEY_SHIFT | at, (parent, 0), branches);
        let node = Locked::of_new(node);
        self.note_volatile(level, at);
        Ok(node)
    }

    /// The slots that move, and their branches.
    fn divide(&self, node: &Node<'_, D, B>) -> (u64, Vec<Branch<D>>) {
        let all: Vec<(usize, Branch<D>)> = node.branches(node.bitmap()).collect();
        let rects: Vec<_> = all.iter().map(|(_, (rect, _))| *rect).collect();
        let least = self.fill_min(node.level()).min(all.len() / 2);
        let is_second = self.split.divide(&rects, least);
        let moved = all.iter().zip(is_second).filter(|(_, is_second)| *is_second);
        let (mut mask, mut branches) = (0, Vec::new());
        for ((slot, branch), _) in moved {
            mask |= 1 << slot;
            branches.push(*branch);
        }
        (mask, branches)
    }

    /// Adds the new half to the parent: *Insert 05* ends, and *Insert 03* and *04* begin.
    fn link_to_parent(
        &self,
        parent: &Locked<'_, D, B>,
        slot: usize,
        (node, half): &(Locked<'_, D, B>, Locked<'_, D, B>),
    ) -> Result<()> {
        let Some(free) = parent.free_slot() else {
            return Err(self.damaged(parent.at, "a parent has no room for a new half"));
        };
        parent.write_branch(free, &(half.bounds(), half.at), BRANCH);
        half.set_parent(parent);
        if !parent.is_volatile() {
            self.backend().fence(BRANCH);
        }
        parent.store(BITMAP, parent.bitmap() | 1 << free);
        parent.persist_header(BRANCH_MAP);
        parent.advance();
        let left = node.bitmap() & !half.load(MASK);
        let rest = node.bounds_of(left);
        self.shrink_in(parent, slot, &rest);
        Ok(())
    }

    /// Removes what has moved, and ends the recovery states.
    fn complete_split<'a>(&'a self, (node, half): &(Locked<'a, D, B>, Locked<'a, D, B>)) -> Result<()> {
        let moved = half.load(MASK);
        self.adopt(half)?;
        // One line, so the marks go with the bits or after them.
        node.store(BITMAP, node.bitmap() & !moved);
        node.unmark(REORGANIZING | SPLIT_STARTED);
        half.unmark(SPLIT_STARTED);
        if !node.is_volatile() {
            for both in [node, half] {
                both.flush(META..BOXES, DONE);
            }
            self.backend().fence(DONE);
        }
        node.toggle();
        half.toggle();
        Ok(())
    }

    /// Names a node as the parent of its children.
    pub(super) fn adopt(&self, node: &Node<'_, D, B>) -> Result<()> {
        let level = node.level();
        if level > 0 {
            for slot in slots(node.bitmap()) {
                self.child_of(node, node.target(level, slot))?.set_parent(node);
            }
        }
        Ok(())
    }

    /// Splits a locked root under the root's lock.
    ///
    /// If the new root lies in the pool, it enters its chain before the root word names it; opening
    /// frees it otherwise. If it lies in memory, the word says that the old root's level is the
    /// highest one in the pool. Above a root in memory it does in any case (R2).
    ///
    /// What can fail for lack of space comes first: a half without a parent would keep readers
    /// waiting.
    fn split_root<'a>(&'a self, node: Locked<'a, D, B>) -> Result<Halves<'a, D, B>> {
        let level = node.level();
        crate::blocks::check_height(&self.pool, self.block, level + 1)?;
        let needed = 1 + u64::from(node.is_volatile());
        let is_in_memory = (node.is_volatile() || self.wants_volatile_root()) && self.reserve(needed);
        if !is_in_memory && node.is_volatile() {
            return Ok(Err(Outcome::NeedsRoom(needed)));
        }
        let acquired = (!is_in_memory).then(|| self.acquire_first(level + 1)).transpose()?;
        if node.is_volatile() {
            // `make_half` reserves it again.
            self.unreserve(1);
        }
        let halves = match self.make_half(node) {
            Ok(Ok(halves)) => halves,
            failed => {
                if is_in_memory {
                    self.unreserve(1);
                }
                return failed;
            }
        };
        let (node, half) = &halves;
        let left = node.bitmap() & !half.load(MASK);
        let rest = node.bounds_of(left);
        let branches = [(rest, node.at), (half.bounds(), half.at)];
        let root = match acquired {
            None => {
                let root = self.volatile_node(level + 1, 0, &branches)?;
                if !node.is_volatile() {
                    self.set_complete(level);
                }
                root
            }
            Some(acquired) => {
                let root = self.link_acquired(acquired, level + 1, &branches)?;
                self.persist_top(root.at);
                root
            }
        };
        node.set_parent(&root);
        half.set_parent(&root);
        root.store(SEQUENCE, 0);
        self.set_root(root.at);
        drop(root);
        self.complete_split(&halves)?;
        Ok(Ok(halves))
    }

    /// Shrinks a box of a locked node to what is below. It is not flushed: a box that is too large
    /// is right. It stays within the old one, which is durable.
    pub(super) fn shrink_in(&self, node: &Node<'_, D, B>, slot: usize, rect: &crate::Rect<D>) {
        let level = node.level();
        let before = node.rect(level, slot);
        if let Some(common) = before.intersection(rect)
            && common != before
        {
            node.write_rect(level, slot, &common);
        }
    }
}
