//! Moving nodes between memory and the pool (Listing 1, in both directions).
//!
//! A move copies a node's words, and exchanges the child word of its parent, which lies in memory.
//! So nothing durable changes but the chain. Nodes leave memory from the lowest level up, and come
//! back from the highest level of the pool down. So one level at most is mixed.

use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::{Ordering, thread};

use super::layout::{DEAD, KEY, PARENT, SEQUENCE, head, is_volatile, slots};
use super::lock::Locked;
use super::node::Node;
use super::options::{Budget, Gap};
use super::tree::PearTree;
use crate::Result;

/// The parent of a node that moves, locked, or the root word.
enum Above<'a, const D: usize, B: Backend> {
    Root,
    Node(Locked<'a, D, B>, usize),
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Moves a node of a level from memory to the pool. That must be the lowest level with nodes in
    /// memory. Gives whether there was one.
    ///
    /// Durable after each step: all nodes below the level are said to be in the pool; the copy is
    /// on the chain; if it is the root, the root word names it. Recovery takes a copy on the chain
    /// for the node, since it has the same children.
    pub(super) fn move_to_pool(&self, level: u64, guard: &Guard<'_>) -> Result<bool> {
        let _moving = self.placement.moving.lock();
        loop {
            if self.placement.lowest() != Some(level) {
                return Ok(false);
            }
            let first = self.placement.nodes.lock().get(&level).and_then(|nodes| nodes.first().copied());
            let Some(at) = first else { return Ok(false) };
            if let Some(node) = self.lock(at)?
                && self.try_move_to_pool(node, guard)?
            {
                return Ok(true);
            }
            thread::yield_now();
        }
    }

    fn try_move_to_pool(&self, node: Locked<'_, D, B>, guard: &Guard<'_>) -> Result<bool> {
        let level = node.level();
        let root = self.root_lock.lock();
        let above = match self.root() == node.at {
            true => Above::Root,
            false => {
                drop(root);
                match self.lock_parent(&node)? {
                    Some(above) => above,
                    None => return Ok(false),
                }
            }
        };
        // No node of these levels can come to lie in memory, as moves are one at a time.
        if self.placement.complete.load(Ordering::Acquire) < level - 1 {
            self.set_complete(level - 1);
        }
        let branches: Vec<_> = node.branches(node.bitmap()).map(|(_, branch)| branch).collect();
        let parent = if let Above::Node(parent, _) = &above { parent.load(KEY) } else { 0 };
        let copy = self.link_first(level, parent, &branches)?;
        if let Above::Root = above {
            self.persist_top(copy.at);
        }
        let is_root = matches!(above, Above::Root);
        self.exchange(&node, &copy, above)?;
        self.retire_volatile(level, node.at, guard);
        if !is_root && self.placement.lowest() != Some(level) {
            self.set_complete(level);
        }
        Ok(true)
    }

    /// Moves an inner node from the pool to memory, if there is one and the budget has room.
    ///
    /// Durable after each step: fewer levels are said to be in the pool; the root word names no
    /// node; the chain has lost the node. Nobody changes the copy before that.
    pub(super) fn move_to_memory(&self, guard: &Guard<'_>) -> Result<bool> {
        let _moving = self.placement.moving.lock();
        loop {
            let Some((parent, at)) = self.highest_in_pool(guard)? else { return Ok(false) };
            let node = self.node(at)?;
            if self.is_stale(&node) {
                self.repair(parent, at, guard)?;
                continue;
            }
            if let Some(node) = self.lock(at)?
                && let Some(moved) = self.try_move_to_memory(parent, node, guard)?
            {
                return Ok(moved);
            }
            self.check_dead(parent, &node)?;
            thread::yield_now();
        }
    }

    /// The parent of an inner node that is the next to move to memory, and the node.
    fn highest_in_pool(&self, _: &Guard<'_>) -> Result<Option<(Option<u64>, u64)>> {
        let wanted = match self.budget() {
            Budget::Nodes(_) => 1,
            Budget::Levels(levels) => self.lowest_wanted(levels),
        };
        let root = self.root();
        if !is_volatile(root) {
            let level = self.node(root)?.level();
            return Ok((level >= wanted && self.wants_volatile_root()).then_some((None, root)));
        }
        // Parents of a mixed level first, and then those of the next one.
        let Some(lowest) = self.placement.lowest() else { return Ok(None) };
        for level in [lowest + 1, lowest] {
            // A node of the mixed level may have come to a parent that was not read.
            let is_mixed = self.backend().load(self.block + head(lowest)) != 0;
            if level <= wanted || level == lowest && is_mixed {
                continue;
            }
            let parents: Vec<u64> =
                self.placement.nodes.lock().get(&level).map_or_else(Vec::new, |nodes| nodes.iter().copied().collect());
            for parent in parents {
                let node = self.node(parent)?;
                let child =
                    slots(node.bitmap()).map(|slot| node.target(level, slot)).find(|child| !is_volatile(*child));
                if let Some(child) = child.filter(|child| *child != 0) {
                    return Ok(Some((Some(parent), child)));
                }
            }
        }
        Ok(None)
    }

    /// `None` if the node's parent has changed; false if the budget has no room.
    fn try_move_to_memory(
        &self,
        parent: Option<u64>,
        node: Locked<'_, D, B>,
        guard: &Guard<'_>,
    ) -> Result<Option<bool>> {
        let above = match parent {
            None => Above::Root,
            Some(parent) => {
                let Some(parent) = self.lock(parent)? else { return Ok(None) };
                let Some(slot) = parent.slot_of(node.at) else { return Ok(None) };
                Above::Node(parent, slot)
            }
        };
        let root = matches!(above, Above::Root).then(|| self.root_lock.lock());
        if root.is_some() && self.root() != node.at {
            return Ok(None);
        }
        let level = node.level();
        self.check_children(&node)?;
        // In the background mode a reservation may exceed the budget.
        let has_room = match self.budget() {
            Budget::Nodes(most) => self.volatile_nodes() < most,
            Budget::Levels(_) => true,
        };
        // What can fail for lack of space comes before the first change.
        let mut intent = self.pool.intent();
        if has_room {
            intent.reserve()?;
        }
        if !has_room || !self.reserve(1) {
            return Ok(Some(false));
        }
        if root.is_some() || self.placement.complete.load(Ordering::Acquire) >= level {
            self.set_complete(level - 1);
        }
        let branches: Vec<_> = node.branches(node.bitmap()).map(|(_, branch)| branch).collect();
        let parent = if let Above::Node(parent, _) = &above { parent.at } else { 0 };
        let copy = self.volatile_node(level, parent, &branches)?;
        self.exchange(&node, &copy, above)?;
        self.unlink_with(&node, intent, Some(guard))?;
        Ok(Some(true))
    }

    /// Puts a copy into the place of a locked node.
    fn exchange(&self, node: &Locked<'_, D, B>, copy: &Locked<'_, D, B>, above: Above<'_, D, B>) -> Result<()> {
        copy.store(SEQUENCE, 0);
        match above {
            Above::Root => self.set_root(copy.at),
            Above::Node(parent, slot) => {
                if !self.has_gap(Gap::Moves) {
                    parent.write_target(parent.level(), slot, copy.at);
                }
                parent.advance();
            }
        }
        node.store(SEQUENCE, DEAD);
        self.adopt(copy)
    }

    /// Locks the parent of a locked node in memory. `None` if it has changed meanwhile.
    fn lock_parent<'a>(&'a self, node: &Node<'_, D, B>) -> Result<Option<Above<'a, D, B>>> {
        let parent = node.load(PARENT);
        if !is_volatile(parent) {
            return Ok(None);
        }
        let Some(parent) = self.lock(parent)? else { return Ok(None) };
        Ok(parent.slot_of(node.at).map(|slot| Above::Node(parent, slot)))
    }
}
