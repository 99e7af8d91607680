//! Which nodes lie in memory, and how many may.

use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::Ordering;

use super::layout::is_volatile;
use super::options::{Budget, Persisting};
use super::tree::PearTree;
use crate::Result;

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// The budget at present.
    pub fn budget(&self) -> Budget {
        self.placement.budget()
    }

    /// Nodes in memory, including those that are being made. With [`Persisting::InPlace`] they are
    /// never more than a [`Budget::Nodes`] allows (R8), unless an opening found a full pool.
    pub fn volatile_nodes(&self) -> u64 {
        self.placement.count.load(Ordering::Acquire)
    }

    /// The most of them since the tree was opened.
    pub fn volatile_nodes_max(&self) -> u64 {
        self.placement.count_max.load(Ordering::Acquire)
    }

    /// Changes the budget. With [`Persisting::InPlace`], nodes move at once, in either direction,
    /// until it is kept and used. Meanwhile other threads may use the tree. It is an error if the
    /// pool has no space for that, and nodes that have not moved stay where they are.
    pub fn set_budget(&self, budget: Budget) -> Result<()> {
        self.placement.set_budget(budget);
        if self.placement.persisting == Persisting::InPlace {
            while self.adapt_step(usize::MAX)? > 0 {}
        }
        Ok(())
    }

    /// Moves up to `nodes` nodes between pool and memory, towards what the budget says, and gives
    /// their number: 0 if the budget is kept, and used as far as it can be.
    pub fn adapt_step(&self, nodes: usize) -> Result<usize> {
        let mut moved = 0;
        while moved < nodes {
            let has_moved = self.with_space(|guard| match self.excess() {
                Some(level) => self.move_to_pool(level, guard),
                None => self.move_to_memory(guard),
            })?;
            if !has_moved {
                break;
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// The level whose nodes have to leave memory, if there is one.
    fn excess(&self) -> Option<u64> {
        let lowest = self.placement.lowest()?;
        match self.budget() {
            Budget::Nodes(nodes) => (self.volatile_nodes() > nodes).then_some(lowest),
            Budget::Levels(levels) => (lowest < self.lowest_wanted(levels)).then_some(lowest),
        }
    }

    /// The lowest level that a level-bound budget wants in memory.
    pub(super) fn lowest_wanted(&self, levels: u64) -> u64 {
        let height = self.node(self.root()).map_or(0, |root| root.level());
        (height + 1).saturating_sub(levels).max(1)
    }

    /// Moves nodes to the pool until the budget has room for some more.
    pub(super) fn make_room(&self, nodes: u64, guard: &Guard<'_>) -> Result<()> {
        let Budget::Nodes(most) = self.budget() else { return Ok(()) };
        let mut moved = 0;
        while self.volatile_nodes() + nodes > most || moved > 0 && moved < self.placement.batch {
            let Some(level) = self.placement.lowest() else { break };
            if !self.move_to_pool(level, guard)? {
                break;
            }
            moved += 1;
        }
        Ok(())
    }

    /// Moves the levels that are too many to the pool, after the tree has grown.
    pub(super) fn adapt_down_in_place(&self, guard: &Guard<'_>) -> Result<()> {
        if self.placement.persisting == Persisting::InPlace
            && let Budget::Levels(_) = self.budget()
        {
            while let Some(level) = self.excess()
                && self.move_to_pool(level, guard)?
            {}
        }
        Ok(())
    }

    /// Whether a new root should lie in memory.
    pub(super) fn wants_volatile_root(&self) -> bool {
        !matches!(self.budget(), Budget::Nodes(0) | Budget::Levels(0))
    }

    /// Takes room for nodes in memory, if the budget has it.
    pub(super) fn reserve(&self, nodes: u64) -> bool {
        let most = match (self.budget(), self.placement.persisting) {
            (Budget::Nodes(most), Persisting::InPlace) => most,
            _ => u64::MAX,
        };
        let mut count = self.placement.count.load(Ordering::Acquire);
        loop {
            if count.saturating_add(nodes) > most {
                return false;
            }
            match self.placement.count.compare_exchange(count, count + nodes, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => count = other,
            }
        }
        self.placement.count_max.fetch_max(count + nodes, Ordering::AcqRel);
        true
    }

    /// Takes room beyond the budget, if it has none.
    pub(super) fn reserve_in_any_case(&self, nodes: u64) {
        let count = self.placement.count.fetch_add(nodes, Ordering::AcqRel) + nodes;
        self.placement.count_max.fetch_max(count, Ordering::AcqRel);
    }

    pub(super) fn unreserve(&self, nodes: u64) {
        self.placement.count.fetch_sub(nodes, Ordering::AcqRel);
    }

    /// Notes a node in memory, for which there was room.
    pub(super) fn note_volatile(&self, level: u64, at: u64) {
        debug_assert!(is_volatile(at));
        self.placement.nodes.lock().entry(level).or_default().insert(at);
    }

    /// Frees a dead node in memory when its readers have left.
    pub(super) fn retire_volatile(&self, level: u64, at: u64, guard: &Guard<'_>) {
        let mut nodes = self.placement.nodes.lock();
        if let Some(of_level) = nodes.get_mut(&level) {
            of_level.remove(&at);
            if of_level.is_empty() {
                nodes.remove(&level);
            }
        }
        drop(nodes);
        self.unreserve(1);
        self.memory.retire(at >> 1, guard);
    }

    /// Says durably that the root lies in memory, and that all nodes up to a level lie in the pool
    /// (R7).
    pub(super) fn set_complete(&self, level: u64) {
        self.persist_top(level);
        self.placement.complete.store(level, Ordering::Release);
    }
}
