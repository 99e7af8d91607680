//! Removing a root with one child.

use terrane_pmem::{Backend, Guard};

use super::layout::{DEAD, PARENT, SEQUENCE};
use super::lock::Locked;
use super::tree::PearTree;
use crate::Result;

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Makes the only child of a locked root the root.
    ///
    /// Durable after each step: the root word names the child, if that lies in the pool; the chain
    /// has lost the old root. Opening completes the second step.
    pub(super) fn collapse_root(&self, node: Locked<'_, D, B>, guard: &Guard<'_>) -> Result<()> {
        let _root = self.root_lock.lock();
        let level = node.level();
        let only = super::layout::slots(node.bitmap()).next().filter(|_| node.count() == 1 && level > 0);
        let Some(slot) = only.filter(|_| self.root() == node.at) else { return Ok(()) };
        let child = self.child_of(&node, node.target(level, slot))?;
        let mut intent = self.pool.intent();
        if !node.is_volatile() {
            intent.reserve()?;
        }
        if !child.is_volatile() {
            self.persist_top(child.at);
        }
        child.store(PARENT, 0);
        self.set_root(child.at);
        node.store(SEQUENCE, DEAD);
        if node.is_volatile() {
            self.retire_volatile(level, node.at, guard);
            return Ok(());
        }
        self.unlink_with(&node, intent, Some(guard))
    }
}
