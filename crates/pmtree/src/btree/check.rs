//! The check of every invariant of the structure.

use std::collections::BTreeMap;

use terrane_pmem::{Backend, View};

use super::layout::{META, NEXT, level};
use super::log::{self, Found};
use super::method::Method;
use super::place;
use super::tree::BTree;
use crate::limits::LEVEL_MAX;
use crate::{Result, blocks};

/// Statistics of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Number of entries.
    pub entries: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of inner nodes.
    pub inner_nodes: u64,
    /// Levels above the leaves.
    pub height: u64,
}

/// The block that a value owns, and its length.
type Owned<'a, const V: usize> = dyn Fn(&[u64; V]) -> Option<(u64, u64)> + 'a;

/// The state of a check.
struct Walk<'a, const V: usize> {
    census: Census,
    /// Blocks with their lengths.
    reached: BTreeMap<u64, u64>,
    owned: &'a Owned<'a, V>,
    /// Leaves in the order of their keys, with their successors.
    leaves: Vec<(u64, u64)>,
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Checks every invariant of the structure.
    /// - Levels decrease by one, keys are in order and lie within the bounds of their parents.
    /// - The leaves are linked in the order of their keys.
    /// - No log entry is left.
    /// - The acquired blocks are exactly those of the tree, with the length of its nodes.
    ///
    /// It reads the whole tree. Nobody else can use the tree meanwhile.
    pub fn check(&mut self) -> Result<Census> {
        self.check_with(|_| None)
    }

    /// Does the same for a tree with values that own blocks, each with its length.
    pub(crate) fn check_with(&mut self, owned: impl Fn(&[u64; V]) -> Option<(u64, u64)>) -> Result<Census> {
        for index in 0..log::Entries::new(&self.layout, self.block).count {
            if !matches!(log::read(&self.pool, &self.layout, self.block, index)?, Found::Free) {
                return Err(self.damaged(self.block, format!("entry {index} of the log is still in use")));
            }
        }
        let root = self.root();
        let height = level(self.node(root)?.load(META));
        let census = Census { height, ..Census::default() };
        let reached = BTreeMap::from([(self.block, self.block_length())]);
        let mut walk = Walk { census, reached, owned: &owned, leaves: Vec::new() };
        if height > LEVEL_MAX {
            return Err(self.damaged(root, format!("the root has the impossible level {height}")));
        }
        self.check_node(root, height, (None, None), &mut walk)?;
        let successors = walk.leaves.iter().skip(1).map(|(leaf, _)| *leaf).chain([0]);
        for ((leaf, next), successor) in walk.leaves.iter().zip(successors) {
            if *next != successor {
                let reason = format!("the leaf is followed by the one at {successor}, and links the one at {next}");
                return Err(self.damaged(*leaf, reason));
            }
        }
        let first = self.backend().load(self.root_word());
        if M::INNER_IN_MEMORY && !M::IN_LOGS && walk.leaves.first().is_none_or(|(leaf, _)| *leaf != first) {
            return Err(self.damaged(self.root_word(), format!("the chain begins at {first}, not at the first leaf")));
        }
        let Walk { census, mut reached, .. } = walk;
        if M::IN_LOGS {
            self.check_chains(&mut reached)?;
        }
        blocks::check_all(&mut self.pool, self.block, &reached)?;
        Ok(census)
    }

    /// Checks a subtree whose keys must be at least the first bound and below the second.
    fn check_node(
        &self,
        node: u64,
        expected: u64,
        (from, to): (Option<[u64; K]>, Option<[u64; K]>),
        walk: &mut Walk<'_, V>,
    ) -> Result<()> {
        let length = self.layout.node_length();
        if place::in_memory(node).is_none() && walk.reached.insert(node, length).is_some() {
            return Err(self.damaged(node, "a node is linked twice"));
        }
        let view = self.node(node)?;
        let meta = view.load(META);
        if level(meta) != expected {
            let reason = format!("a node has level {}, and level {expected} is expected", level(meta));
            return Err(self.damaged(node, reason));
        }
        self.layout.check(&self.pool, node, view)?;
        let check_keys = |keys: &mut dyn Iterator<Item = [u64; K]>| {
            let mut last: Option<[u64; K]> = None;
            for key in keys {
                let is_in_order = last.is_none_or(|last| last < key);
                if !is_in_order || from.is_some_and(|from| key < from) || to.is_some_and(|to| key >= to) {
                    return Err(self.damaged(node, format!("the key {key:x?} is out of order")));
                }
                last = Some(key);
            }
            Ok(())
        };
        if expected == 0 {
            let entries = self.entries_of(node)?;
            if entries.len() != self.layout.leaf_count(view) {
                let reason =
                    format!("a leaf states {} entries and has {}", self.layout.leaf_count(view), entries.len());
                return Err(self.damaged(node, reason));
            }
            if self.layout.has_tag_twice(view) {
                return Err(self.damaged(node, "two entries have the same tag"));
            }
            check_keys(&mut entries.iter().map(|(key, _)| *key))?;
            for (owned, length) in entries.iter().filter_map(|(_, value)| (walk.owned)(value)) {
                if walk.reached.insert(owned, length).is_some() {
                    return Err(self.damaged(owned, "a block is linked twice"));
                }
            }
            walk.census.leaves += 1;
            walk.census.entries += entries.len() as u64;
            walk.leaves.push((node, view.load(NEXT)));
            return Ok(());
        }
        walk.census.inner_nodes += 1;
        let children = self.layout.children_of(view);
        // The first key is not compared.
        check_keys(&mut children.iter().skip(1).map(|(key, _)| *key))?;
        for (index, (key, child)) in children.iter().enumerate() {
            let bounds =
                (if index == 0 { from } else { Some(*key) }, children.get(index + 1).map_or(to, |(key, _)| Some(*key)));
            self.check_node(*child, expected - 1, bounds, walk)?;
        }
        Ok(())
    }
}
