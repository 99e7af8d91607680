//! Recovery states: the first operation that meets a node completes or undoes the change that a
//! crash has interrupted there (section 4.3 of the paper).
//!
//! A node is in a recovery state if it has the lock of an earlier session. Its marks name the state
//! (R3). States of a parent have no marks, because they follow from those of its children.
//!
//! | state | node | action |
//! |---|---|---|
//! | 01 | leaf, no mark | unlocked. |
//! | Insert 02 | reorganizing and split, parent lacks the half | the half leaves the chain. |
//! | Insert 03 | the same, parent has the half | what moved is removed. |
//! | Insert 04 | split, not reorganizing | its other half is resolved. |
//! | Delete 02 | reorganizing, entries left | unmarked. |
//! | Delete 03 | merging | its partner is resolved. |
//! | Delete 05 | both of these, children of one parent | copies are removed from the sibling. |
//! | Delete 06 | reorganizing, empty | the node leaves its parent. |
//! | Redistribution | both marked | undone, unless the sibling has lost its entries. |
//! | Insert 05, Delete 04, 07, 08 | inner, no mark | children are resolved, then unlocked. |
//!
//! One thread repairs at a time. Nobody else can lock a node in a recovery state. A node moves to
//! another parent only after it was repaired, so a parent says truly whether it has a half.

use terrane_pmem::{Backend, Guard, Site};

use super::layout::{
    BITMAP, BOXES, DEAD, LOCK, MARKS, MASK, MERGING, META, NEXT, PARTNER, REDISTRIBUTING, REORGANIZING, SEQUENCE,
    SPLIT_STARTED, level_of, locked, slots,
};
use super::node::Node;
use super::options::Gap;
use super::tree::PearTree;
use crate::Result;

const UNMARK: Site = Site::new("pear.repair.unmark");
const FORWARD: Site = Site::new("pear.repair.split");
const BACK: Site = Site::new("pear.repair.merge");

/// Where a node in a recovery state hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// It is the root.
    None,
    /// In this node.
    Node(u64),
    /// In this node, which the caller has locked, or which nobody else can change.
    Locked(u64),
    /// In a node that was in memory. Recovery makes parents anew.
    Lost,
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Repairs a node, unless another thread has. The caller has no lock.
    pub(super) fn repair(&self, parent: Option<u64>, at: u64, guard: &Guard<'_>) -> Result<()> {
        let _repairs = self.repairs.lock();
        let node = self.node(at)?;
        self.resolve(parent.map_or(Parent::None, Parent::Node), &node, guard)?;
        if !self.is_stale(&node) {
            return Ok(());
        }
        // It is, if it has left the tree meanwhile.
        let is_linked = match parent {
            None => self.root() == at,
            Some(parent) => {
                let parent = self.node(parent)?;
                parent.sequence() != DEAD && parent.slot_of(at).is_some()
            }
        };
        match is_linked {
            true => Err(self.damaged(at, "a node stays in a recovery state")),
            false => Ok(()),
        }
    }

    /// Whether a child of a way's inner node has a mark that a crash has left.
    pub(super) fn is_unrepaired(&self, way: &[u64]) -> Result<bool> {
        if !self.may_be_stale() {
            return Ok(false);
        }
        for &at in way {
            if !self.marked_children(&self.node(at)?)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Repairs the children of a way's inner nodes. Needed before one of these is split or merged.
    pub(super) fn repair_along(&self, way: &[u64], guard: &Guard<'_>) -> Result<()> {
        for &at in way {
            for child in self.marked_children(&self.node(at)?)? {
                self.repair(Some(at), child, guard)?;
            }
        }
        Ok(())
    }

    /// Repairs the children of a locked node, unless another thread is repairing.
    pub(super) fn try_repair_children(&self, node: &Node<'_, D, B>, guard: &Guard<'_>) -> Result<bool> {
        if !self.may_be_stale() {
            return Ok(true);
        }
        let Some(_repairs) = self.repairs.try_lock() else { return Ok(false) };
        for child in self.marked_children(node)? {
            self.resolve(Parent::Locked(node.at), &self.node(child)?, guard)?;
        }
        Ok(true)
    }

    fn marked_children(&self, node: &Node<'_, D, B>) -> Result<Vec<u64>> {
        let level = node.level();
        let mut marked = Vec::new();
        if level > 0 {
            for slot in slots(node.bitmap()) {
                let child = self.child_of(node, node.target(level, slot))?;
                if self.is_stale(&child) && child.meta() & MARKS != 0 {
                    marked.push(child.at);
                }
            }
        }
        Ok(marked)
    }

    /// Completes or undoes what a crash has interrupted in a node. Does nothing if it is in no
    /// recovery state.
    pub(super) fn resolve<'a>(&'a self, parent: Parent, node: &Node<'a, D, B>, guard: &Guard<'_>) -> Result<()> {
        if !self.is_stale(node) {
            return Ok(());
        }
        let has = |marks: u64| node.has(marks);
        if has(REDISTRIBUTING) {
            self.resolve_redistribution(node)
        } else if has(REORGANIZING | SPLIT_STARTED) {
            self.resolve_split(parent, node)
        } else if has(SPLIT_STARTED) {
            match self.partner(node, REORGANIZING | SPLIT_STARTED)? {
                Some(split) if split.load(NEXT) == node.at => self.resolve_split(parent, &split),
                _ => self.unmark_and_release(node),
            }
        } else if has(REORGANIZING) {
            self.resolve_merge(parent, node, guard)
        } else if has(MERGING) {
            match self.partner(node, REORGANIZING)? {
                Some(underfull) => self.resolve_merge(parent, &underfull, guard),
                None => self.unmark_and_release(node),
            }
        } else {
            for child in self.marked_children(node)? {
                self.resolve(Parent::Locked(node.at), &self.node(child)?, guard)?;
            }
            self.release(node);
            Ok(())
        }
    }

    /// The partner of a marked node, if it is in a recovery state with these marks, and names the
    /// node in turn. A mark whose change is complete may name a block that another node has now.
    fn partner(&self, node: &Node<'_, D, B>, marks: u64) -> Result<Option<Node<'_, D, B>>> {
        let at = node.load(PARTNER);
        if at == 0 {
            return Ok(None);
        }
        let partner = self.node_in_pool(at)?;
        let is_level = partner.level() == node.level();
        let is_partner = is_level && self.is_stale(&partner) && partner.has(marks) && partner.load(PARTNER) == node.at;
        Ok(is_partner.then_some(partner))
    }

    /// *Insert 02* and *03*. The half is on the chain if the node leads to it.
    fn resolve_split(&self, parent: Parent, node: &Node<'_, D, B>) -> Result<()> {
        let half = node.load(PARTNER);
        if half == 0 || node.load(NEXT) != half {
            return self.unmark_and_release(node);
        }
        let half = self.node_of_level(half, node.level())?;
        let is_linked = match parent {
            Parent::None => false,
            Parent::Node(at) | Parent::Locked(at) => self.node(at)?.slot_of(half.at).is_some(),
            Parent::Lost => true,
        };
        if !is_linked {
            self.unlink(&half, None)?;
            return self.unmark_and_release(node);
        }
        self.adopt(&half)?;
        node.store(BITMAP, node.bitmap() & !self.copies(node, &half));
        node.unmark(MARKS);
        node.persist_header(FORWARD);
        self.release(node);
        if self.is_stale(&half) { self.unmark_and_release(&half) } else { Ok(()) }
    }

    /// *Delete 02* and *05*, which are undone, and *06*, which is completed.
    fn resolve_merge(&self, parent: Parent, node: &Node<'_, D, B>, guard: &Guard<'_>) -> Result<()> {
        let sibling = self.partner(node, MERGING)?;
        if node.count() > 0 {
            if let Some(sibling) = sibling {
                sibling.store(BITMAP, sibling.bitmap() & !self.copies(&sibling, node));
                sibling.unmark(MARKS);
                sibling.persist_header(BACK);
                self.release(&sibling);
            }
            return self.unmark_and_release(node);
        }
        if let Some(sibling) = sibling {
            self.unmark_and_release(&sibling)?;
        }
        let locked_parent;
        let parent = match parent {
            Parent::None | Parent::Lost => return self.unmark_and_release(node),
            Parent::Locked(at) => self.node(at)?,
            Parent::Node(at) => {
                // If it is gone, the caller comes back by another way.
                let Some(parent) = self.lock(at)? else { return Ok(()) };
                locked_parent = parent;
                *locked_parent
            }
        };
        let Some(slot) = parent.slot_of(node.at) else { return Ok(()) };
        let mut intent = self.pool.intent();
        intent.reserve()?;
        parent.advance();
        self.remove_branch(&parent, slot, node, intent, guard)?;
        // It belongs to this session from now on, so that nobody takes it for a recovery state.
        node.store(SEQUENCE, DEAD);
        node.store(META, locked(node.level(), 0, self.session));
        Ok(())
    }

    /// The slots of a node whose branches the other one has too: the mask, or what the thesis finds
    /// ([`Gap::Comparison`]), which are also equal entries.
    fn copies(&self, node: &Node<'_, D, B>, other: &Node<'_, D, B>) -> u64 {
        if !self.has_gap(Gap::Comparison) {
            return node.load(MASK);
        }
        let others: Vec<_> = other.branches(other.bitmap()).map(|(_, branch)| branch).collect();
        let equal = node.branches(node.bitmap()).filter(|(_, branch)| others.contains(branch));
        equal.fold(0, |mask, (slot, _)| mask | 1 << slot)
    }

    /// *Redistribution*. With one mark, it was not begun, or it was completed.
    fn resolve_redistribution<'a>(&'a self, node: &Node<'a, D, B>) -> Result<()> {
        let is_gainer = node.has(REORGANIZING);
        let marks = REDISTRIBUTING | if is_gainer { MERGING } else { REORGANIZING };
        let Some(other) = self.partner(node, marks)? else { return self.unmark_and_release(node) };
        let (gainer, loser) = if is_gainer { (node, &other) } else { (&other, node) };
        if loser.bitmap() & loser.load(MASK) != 0 {
            // Durable with the gainer's marks, which share its line. So it comes before the loser
            // looks like one that has completed it.
            gainer.store(BITMAP, gainer.bitmap() & !gainer.load(MASK));
        }
        self.unmark_and_release(gainer)?;
        self.unmark_and_release(loser)
    }

    /// Removes all marks durably, and unlocks.
    fn unmark_and_release(&self, node: &Node<'_, D, B>) -> Result<()> {
        if node.meta() & MARKS != 0 {
            node.unmark(MARKS);
            node.persist(META..BOXES, UNMARK);
        }
        self.release(node);
        Ok(())
    }

    /// Ends a recovery state. Sequence numbers are volatile: an odd one is of an earlier session.
    fn release(&self, node: &Node<'_, D, B>) {
        if node.sequence() & 1 != 0 {
            node.store(SEQUENCE, 0);
        }
        let meta = node.meta();
        debug_assert!(meta & MARKS == 0 && level_of(meta) == node.level());
        node.store(META, meta & !LOCK);
    }
}
