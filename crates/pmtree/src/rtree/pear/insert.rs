//! Insertion: the leaf is locked, boxes grow from the leaf to the root, the entry is written, and
//! counts when its bit does.

use smallvec::SmallVec;
use terrane_pmem::{Backend, Guard, Site};

use super::layout::{BITMAP, DIRTY};
use super::lock::Locked;
use super::node::Node;
use super::reach::Reach;
use super::split::Outcome;
use super::tree::{PearTree, Way};
use crate::Result;
use crate::rtree::rect::Rect;

const ENLARGE: Site = Site::new("pear.insert.enlarge");
const RELY: Site = Site::new("pear.insert.rely");
const ENTRY: Site = Site::new("pear.insert.entry");
const MAP: Site = Site::new("pear.insert.map");

/// Slots of the nodes of a way in their parents.
type Slots = SmallVec<[usize; 8]>;

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Inserts a box with a payload. When it returns, the entry is durable. If it fails, the entry
    /// is not in the tree.
    ///
    /// Durable after each step: boxes are larger than they need be; the entry is written, in a slot
    /// that is not valid; its bit is set. A crash leaves the leaf in *State 01*. Without a split
    /// and where no box grows, this takes two flushes and two fences.
    pub fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        let rect = self.layout.stored(rect);
        self.with_space(|guard| {
            loop {
                if self.try_insert(&rect, payload, guard)? {
                    return Ok(());
                }
            }
        })
    }

    /// Whether the entry was inserted; if not, nodes have changed, or were split.
    fn try_insert(&self, rect: &Rect<D>, payload: u64, guard: &Guard<'_>) -> Result<bool> {
        let Some((way, chosen)) = self.descend(rect, guard)? else { return Ok(false) };
        let Some(leaf) = self.lock(way[way.len() - 1])? else {
            self.check_end(&way)?;
            return Ok(false);
        };
        let Some(slot) = leaf.free_slot() else {
            if self.is_unrepaired(&way)? {
                drop(leaf);
                self.repair_along(&way, guard)?;
                return Ok(false);
            }
            match self.split_node(&way, leaf)? {
                Outcome::Done => {}
                Outcome::Changed => {}
                Outcome::NeedsRoom(nodes) => self.make_room(nodes, guard)?,
            }
            self.adapt_down_in_place(guard)?;
            return Ok(false);
        };
        if !self.enlarge_above(&way, &chosen, rect)? {
            return Ok(false);
        }
        leaf.write_branch(slot, &(*rect, payload), ENTRY);
        self.backend().fence(ENTRY);
        self.change_map(&leaf, leaf.bitmap() | 1 << slot, MAP);
        Ok(true)
    }

    /// Changes the bitmap of a locked leaf durably. Readers who meet it before make it durable.
    pub(super) fn change_map(&self, leaf: &Locked<'_, D, B>, bitmap: u64, site: Site) {
        leaf.store(DIRTY, self.session);
        leaf.store(BITMAP, bitmap);
        leaf.persist_header(site);
        leaf.store(DIRTY, 0);
    }

    /// The way to the leaf whose boxes grow least, and the slots of its nodes in their parents.
    /// `None` if nodes have changed meanwhile.
    fn descend(&self, rect: &Rect<D>, guard: &Guard<'_>) -> Result<Option<(Way, Slots)>> {
        let (mut way, mut all_chosen) = (Way::new(), Slots::new());
        let containing = Reach::containing(rect);
        let mut at = self.root();
        let mut node = self.node(at)?;
        loop {
            if self.is_stale(&node) {
                self.repair(way.last().copied(), at, guard)?;
                return Ok(None);
            }
            way.push(at);
            let level = node.level();
            if level == 0 {
                return Ok(Some((way, all_chosen)));
            }
            let chosen = loop {
                let Some(sequence) = self.await_even(&node)? else {
                    self.check_end(&way)?;
                    return Ok(None);
                };
                let chosen = node.least_enlargement(level, node.bitmap(), rect, &containing);
                let child = chosen.map(|slot| (slot, node.target(level, slot)));
                if node.sequence() == sequence {
                    break child;
                }
            };
            let Some((slot, child)) = chosen else {
                return Err(self.damaged(at, "an inner node has no children"));
            };
            all_chosen.push(slot);
            node.prefetch(child);
            node = self.child_of(&node, child)?;
            at = child;
        }
    }

    /// Returns an error if the last node of a way is dead, and still linked.
    fn check_end(&self, way: &[u64]) -> Result<()> {
        match way {
            [.., parent, at] => self.check_dead(Some(*parent), &self.node(*at)?),
            [at] => self.check_dead(None, &self.node(*at)?),
            [] => Ok(()),
        }
    }

    /// Makes all boxes above a locked leaf contain a box, durably, from the leaf to the root (R6).
    /// Gives false if the way has changed.
    ///
    /// Bottom-up, since a box shrinks under the locks of its node and of the node below: once a box
    /// contains this one, those above cannot shrink below it.
    fn enlarge_above(&self, way: &Way, chosen: &Slots, rect: &Rect<D>) -> Result<bool> {
        for (pair, &slot) in way.windows(2).zip(chosen).rev() {
            if !self.enlarge(pair[0], (pair[1], slot), rect)? {
                return Ok(false);
            }
        }
        // A root that was split before the last step has a box above it.
        Ok(way.first() == Some(&self.root()))
    }

    /// The child was in a slot, and is likely to be there still.
    fn enlarge(&self, parent: u64, (child, slot): (u64, usize), rect: &Rect<D>) -> Result<bool> {
        let node = self.node(parent)?;
        let Some(sequence) = self.await_even(&node)? else { return Ok(false) };
        let level = node.level();
        let is_there = node.bitmap() >> slot & 1 == 1 && node.target(level, slot) == child;
        let Some(slot) = is_there.then_some(slot).or_else(|| node.slot_of(child)) else { return Ok(false) };
        if node.rect(level, slot).contains(rect) {
            // Another insertion may have enlarged it, and not have fenced yet. The entry's fence
            // makes it durable.
            if node.load(DIRTY) == self.session {
                node.flush_rect(level, slot, RELY);
            }
            if node.sequence() == sequence {
                return Ok(true);
            }
        }
        let Some(node) = self.lock(parent)? else { return Ok(false) };
        let Some(slot) = node.slot_of(child) else { return Ok(false) };
        if self.grow_box(&node, slot, rect, ENLARGE) {
            if !node.is_volatile() {
                self.backend().fence(ENLARGE);
            }
            self.settle_box(&node, true);
        }
        Ok(true)
    }

    /// Enlarges a box of a locked node, and flushes it. Gives whether it did. Until a fence, the
    /// node says that the box may not be durable.
    pub(super) fn grow_box(&self, node: &Node<'_, D, B>, slot: usize, rect: &Rect<D>, site: Site) -> bool {
        let level = node.level();
        let before = node.rect(level, slot);
        if before.contains(rect) {
            return false;
        }
        node.store(DIRTY, self.session);
        node.write_rect(level, slot, &before.union(rect));
        node.flush_rect(level, slot, site);
        true
    }

    /// Notes that a box that has grown is durable.
    pub(super) fn settle_box(&self, node: &Node<'_, D, B>, has_grown: bool) {
        if has_grown {
            node.store(DIRTY, 0);
        }
    }
}
