//! Which recovery states a crash has left, for tests and diagnoses.

use std::collections::BTreeMap;

use terrane_pmem::{Backend, Pool, Rehearsed};
use terrane_storage::Storage;

use super::layout::{
    LAYOUT_ID, MARKS, MERGING, NEXT, PARTNER, REDISTRIBUTING, REORGANIZING, SPLIT_STARTED, TOP, slots,
};
use super::node::Node;
use super::open::verify;
use super::options::Options;
use super::tree::PearTree;
use crate::limits::LEVEL_MAX;
use crate::{Result, creation};

/// The states of Tables 1 and 2 of the thesis, and the one of redistribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A single change of a leaf.
    State01,
    /// A split, and the parent lacks the new half.
    Insert02,
    /// A split, and the parent has the new half.
    Insert03,
    /// The new half of a split.
    Insert04,
    /// The parent of a node that is split.
    Insert05,
    /// A node with too few entries, which is merged.
    Delete02,
    /// The sibling that it is merged with.
    Delete03,
    /// The parent of a node that is merged, without a sibling.
    Delete04,
    /// The parent of two nodes that are merged.
    Delete05,
    /// A node that a merge has emptied.
    Delete06,
    /// The parent of such a node.
    Delete07,
    /// An inner node that is only locked.
    Delete08,
    /// One of two nodes between which entries move.
    Redistribution,
}

/// Where the parent of a node in a recovery state lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Above {
    /// In the pool, or the node is the root.
    Pool,
    /// It was in memory.
    Memory,
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// The recovery states of a closed or crashed tree's nodes, each with the place of the parent.
    /// The file stays as it is.
    pub fn recovery_states(storage: &dyn Storage, name: &str, options: &Options) -> Result<Vec<(State, Above)>> {
        let found = Pool::<B>::find(storage, name, &creation::pool_options(LAYOUT_ID, &options.pool))?;
        let pool: Pool<Rehearsed<'_, B>> = found.rehearse()?;
        let Some((block, layout)) = verify::<D, _>(&pool)? else { return Ok(Vec::new()) };
        PearTree::<D, _>::new(pool, layout, options, block, false).states()
    }

    fn states(&self) -> Result<Vec<(State, Above)>> {
        let mut states = Vec::new();
        for level in 0..LEVEL_MAX {
            let mut parents = BTreeMap::new();
            for at in self.walk(level + 1)? {
                let parent = self.node(at)?;
                let children = slots(parent.bitmap()).map(|slot| parent.target(level + 1, slot));
                parents.extend(children.map(|child| (child, at)));
            }
            let root = self.backend().load(self.block + TOP);
            for at in self.walk(level)? {
                let node = self.node(at)?;
                if self.is_stale(&node) {
                    // If the root lies in the pool, a node without a parent is a half without one
                    // yet.
                    let is_lost = root <= LEVEL_MAX && !parents.contains_key(&at);
                    let is_linked = parents.contains_key(&node.load(PARTNER)) || is_lost;
                    let above = if is_lost { Above::Memory } else { Above::Pool };
                    states.push((self.state_of(&node, is_linked)?, above));
                }
            }
        }
        Ok(states)
    }

    fn state_of(&self, node: &Node<'_, D, B>, is_linked: bool) -> Result<State> {
        let has = |marks| node.has(marks);
        Ok(match node.meta() & MARKS {
            0 if node.level() == 0 => State::State01,
            0 => self.state_of_parent(node)?,
            _ if has(REDISTRIBUTING) => State::Redistribution,
            _ if has(REORGANIZING | SPLIT_STARTED) && is_linked && node.load(NEXT) == node.load(PARTNER) => {
                State::Insert03
            }
            _ if has(REORGANIZING | SPLIT_STARTED) => State::Insert02,
            _ if has(SPLIT_STARTED) => State::Insert04,
            _ if has(MERGING) => State::Delete03,
            _ if node.count() == 0 => State::Delete06,
            _ => State::Delete02,
        })
    }

    fn state_of_parent(&self, node: &Node<'_, D, B>) -> Result<State> {
        let mut children = Vec::new();
        for slot in slots(node.bitmap()) {
            let child = self.child_of(node, node.target(node.level(), slot))?;
            if self.is_stale(&child) {
                children.push(child);
            }
        }
        let any = |is_meant: &dyn Fn(&Node<'_, D, B>) -> bool| children.iter().any(is_meant);
        let is_underfull = |child: &Node<'_, D, B>| child.has(REORGANIZING) && !child.has(SPLIT_STARTED);
        Ok(if any(&|child| child.has(REORGANIZING | SPLIT_STARTED)) {
            State::Insert05
        } else if any(&|child| is_underfull(child) && child.count() == 0) {
            State::Delete07
        } else if any(&is_underfull) && any(&|child| child.has(MERGING)) {
            State::Delete05
        } else if any(&is_underfull) {
            State::Delete04
        } else {
            State::Delete08
        })
    }
}
