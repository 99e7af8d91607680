//! Merging a node with a sibling in place, and redistribution between the two.
//!
//! If both lie in the pool, marks become durable before the bits. Masks and partners share a line
//! with the marks, and are stored before them. So recovery compares no branches, which would take
//! equal entries for copies. If one lies in memory, one word of the other decides: recovery makes
//! parents anew for nodes without one.

use terrane_pmem::{Backend, Guard, Site};

use super::layout::{
    BITMAP, BOXES, DEAD, MASK, MERGING, META, PARTNER, REDISTRIBUTING, REORGANIZING, SEQUENCE, is_volatile, slots,
};
use super::lock::Locked;
use super::node::{Branch, Node, bounds};
use super::options::Gap;
use super::tree::PearTree;
use crate::Result;
use crate::rtree::choose::growth;
use crate::rtree::rect::Rect;

const COPY: Site = Site::new("pear.merge.copy");
const BOX: Site = Site::new("pear.merge.box");
const MARK: Site = Site::new("pear.merge.mark");
const GAIN: Site = Site::new("pear.merge.gain");
const LOSE: Site = Site::new("pear.merge.lose");
const DONE: Site = Site::new("pear.merge.done");
const COPY_ENTRY: Site = Site::new("pear.merge.copy.entry");
const COPY_BACK: Site = Site::new("pear.redistribute.copy");
const GAIN_BACK: Site = Site::new("pear.redistribute.gain");
const LOSE_SOME: Site = Site::new("pear.redistribute.lose");

/// Two siblings, locked: one with too few entries and another one.
struct Pair<'p, 'a, const D: usize, B: Backend> {
    parent: &'p Locked<'a, D, B>,
    node: Locked<'a, D, B>,
    sibling: Locked<'a, D, B>,
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Merges a node with a sibling of the same locked parent, or gives it entries of a sibling.
    /// False if there is no sibling that can be locked.
    ///
    /// The sibling is the one that grows least. It is only tried, as its owner may wait for the
    /// parent (R4).
    pub(super) fn relieve_in<'a>(
        &'a self,
        parent: &Locked<'a, D, B>,
        node: Locked<'a, D, B>,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let (level, around) = (parent.level(), node.bounds());
        let mut siblings: Vec<Branch<D>> =
            parent.branches(parent.bitmap()).map(|(_, branch)| branch).filter(|(_, at)| *at != node.at).collect();
        let key = |rect: &Rect<D>| {
            let union = rect.union(&around);
            (growth(rect.area(), union.area()), growth(rect.margin(), union.margin()))
        };
        siblings.sort_by(|(left, _), (right, _)| {
            let (left, right) = (key(left), key(right));
            left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1))
        });
        for (_, at) in siblings {
            self.child_of(parent, at)?;
            let Some(sibling) = self.try_lock(at)? else { continue };
            if level > 1 && !self.try_repair_children(&sibling, guard)? {
                continue;
            }
            // Entries move to the other node, and damage is found before.
            self.check_children(&node)?;
            self.check_children(&sibling)?;
            let pair = Pair { parent, node, sibling };
            if pair.node.count() + pair.sibling.count() <= self.layout.capacity(level - 1) {
                self.merge(pair, guard)?;
            } else {
                self.redistribute(pair)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves all entries of a node to its sibling, and removes the node.
    ///
    /// Durable after each step:
    /// 1. copies; the sibling's box; the marks: *Delete 02* and *03*, and the parent is in
    ///    *Delete 05*;
    /// 2. the copies count, and all entries are there twice;
    /// 3. the node is empty: *Delete 06*, and the parent is in *Delete 07*;
    /// 4. the sibling is in no state;
    /// 5. the parent has lost the node: *Delete 08*.
    fn merge<'a>(&'a self, Pair { parent, node, sibling }: Pair<'_, 'a, D, B>, guard: &Guard<'_>) -> Result<()> {
        let branches: Vec<Branch<D>> = node.branches(node.bitmap()).map(|(_, branch)| branch).collect();
        let both_in_pool = !node.is_volatile() && !sibling.is_volatile();
        // What can fail for lack of space comes first.
        let mut intent = self.pool.intent();
        if !node.is_volatile() {
            intent.reserve()?;
        }
        let mask = self.copy_into(&sibling, &branches)?;
        if both_in_pool {
            self.set_partners(&node, 0, &sibling, mask);
        }
        let grown = self.enlarge_for(parent, &sibling, &node.bounds())?;
        if both_in_pool {
            self.mark_both(&node, REORGANIZING, &sibling, MERGING);
        } else if !sibling.is_volatile() {
            self.backend().fence(COPY);
        }
        self.settle_box(parent, grown);
        node.toggle();
        sibling.toggle();
        sibling.store(BITMAP, sibling.bitmap() | mask);
        sibling.persist_header(GAIN);
        node.store(BITMAP, 0);
        node.persist_header(LOSE);
        self.adopt(&sibling)?;
        parent.advance();
        sibling.unmark(MERGING);
        if both_in_pool {
            // Fenced before the parent loses the node.
            sibling.flush(META..BOXES, DONE);
        }
        let slot = parent.slot_of(node.at);
        let slot = slot.ok_or_else(|| self.damaged(parent.at, "a node has lost a child while it was locked"))?;
        if node.is_volatile() {
            parent.store(BITMAP, parent.bitmap() & !(1 << slot));
            node.store(SEQUENCE, DEAD);
            self.retire_volatile(node.level(), node.at, guard);
        } else {
            self.remove_branch(parent, slot, &node, intent, guard)?;
            node.store(SEQUENCE, DEAD);
        }
        sibling.toggle();
        Ok(())
    }

    /// Moves the entries of the sibling that enlarge the node least, until both have half.
    ///
    /// Durable after each step:
    /// 1. copies; the node's box; the marks, which no table of the paper has (*Redistribution*);
    /// 2. the copies count;
    /// 3. the sibling has lost the entries.
    ///
    /// Recovery undoes it if the sibling still has one of the entries. Otherwise only the marks are
    /// left to remove, so their removal is not flushed here.
    fn redistribute<'a>(&'a self, Pair { parent, node, sibling }: Pair<'_, 'a, D, B>) -> Result<()> {
        let (lost, branches) = self.choose_gains(&node, &sibling);
        let both_in_pool = !node.is_volatile() && !sibling.is_volatile();
        let mask = self.copy_into(&node, &branches)?;
        if both_in_pool {
            self.set_partners(&node, mask, &sibling, lost);
        }
        let gained = bounds(branches.iter().map(|(rect, _)| *rect));
        let grown = self.enlarge_for(parent, &node, &gained)?;
        if both_in_pool && !self.has_gap(Gap::Redistribution) {
            self.mark_both(&node, REORGANIZING | REDISTRIBUTING, &sibling, MERGING | REDISTRIBUTING);
        } else if !node.is_volatile() {
            self.backend().fence(COPY_BACK);
        }
        self.settle_box(parent, grown);
        node.toggle();
        sibling.toggle();
        node.store(BITMAP, node.bitmap() | mask);
        node.persist_header(GAIN_BACK);
        sibling.store(BITMAP, sibling.bitmap() & !lost);
        sibling.persist_header(LOSE_SOME);
        self.adopt(&node)?;
        parent.advance();
        if let Some(slot) = parent.slot_of(sibling.at) {
            self.shrink_in(parent, slot, &sibling.bounds());
        }
        node.unmark(REORGANIZING | REDISTRIBUTING);
        sibling.unmark(MERGING | REDISTRIBUTING);
        node.toggle();
        sibling.toggle();
        Ok(())
    }

    /// The slots of the sibling whose entries move, and their branches.
    fn choose_gains(&self, node: &Node<'_, D, B>, sibling: &Node<'_, D, B>) -> (u64, Vec<Branch<D>>) {
        let level = node.level();
        let total = node.count() + sibling.count();
        let target = (total / 2).min(self.layout.capacity(level));
        let mut left: Vec<(usize, Branch<D>)> = sibling.branches(sibling.bitmap()).collect();
        let (mut around, mut mask, mut branches) = (node.bounds(), 0, Vec::new());
        while node.count() + branches.len() < target && !left.is_empty() {
            let cost = |(_, (rect, _)): &(usize, Branch<D>)| {
                let union = around.union(rect);
                (growth(around.area(), union.area()), growth(around.margin(), union.margin()))
            };
            let best = (0..left.len()).min_by(|&one, &other| {
                let (one, other) = (cost(&left[one]), cost(&left[other]));
                one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
            });
            let (slot, branch) = left.swap_remove(best.unwrap_or(0));
            around = around.union(&branch.0);
            mask |= 1 << slot;
            branches.push(branch);
        }
        (mask, branches)
    }

    /// Writes branches into free slots and flushes them. Gives the slots, which are not valid yet.
    fn copy_into(&self, node: &Node<'_, D, B>, branches: &[Branch<D>]) -> Result<u64> {
        let capacity = self.layout.capacity(node.level());
        let free = slots(!node.bitmap()).take_while(|slot| *slot < capacity);
        let mut mask = 0u64;
        for (slot, branch) in free.zip(branches) {
            debug_assert!(node.is_volatile() || node.level() == 0 || !is_volatile(branch.1));
            node.write_branch(slot, branch, COPY_ENTRY);
            mask |= 1 << slot;
        }
        match mask.count_ones() as usize == branches.len() {
            true => Ok(mask),
            false => Err(self.damaged(node.at, "a sibling has fewer free slots than it should")),
        }
    }

    fn set_partners(&self, node: &Node<'_, D, B>, node_mask: u64, sibling: &Node<'_, D, B>, sibling_mask: u64) {
        let set = |one: &Node<'_, D, B>, other: u64, mask: u64| {
            one.store(MASK, mask);
            one.store(PARTNER, other);
        };
        set(node, sibling.at, node_mask);
        set(sibling, node.at, sibling_mask);
    }

    /// Enlarges the parent's box of a node that gains entries, and flushes it. Gives whether it
    /// did.
    fn enlarge_for(&self, parent: &Locked<'_, D, B>, node: &Node<'_, D, B>, rect: &Rect<D>) -> Result<bool> {
        match parent.slot_of(node.at) {
            Some(slot) => Ok(self.grow_box(parent, slot, rect, BOX)),
            None => Err(self.damaged(parent.at, "a node has lost a child while it was locked")),
        }
    }

    fn mark_both<'a>(&'a self, node: &Node<'a, D, B>, marks: u64, sibling: &Node<'a, D, B>, sibling_marks: u64) {
        node.mark(marks);
        sibling.mark(sibling_marks);
        for both in [node, sibling] {
            both.flush(META..BOXES, MARK);
        }
        self.backend().fence(MARK);
    }
}
