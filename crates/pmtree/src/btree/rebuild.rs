//! Inner nodes in memory, rebuilt from the chain of leaves.

use std::collections::BTreeSet;

use terrane_pmem::{Backend, Pool, View};
use terrane_storage::sync::Ordering;

use super::change::Change;
use super::layout::{Layout, META, NEXT, ROOT_WORD, level};
use super::method::Method;
use super::node::Child;
use super::tree::BTree;
use crate::blocks::damaged;
use crate::{Result, blocks};

/// A leaf of the chain, with its first and its last key, if it has entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linked<const K: usize> {
    leaf: u64,
    keys: Option<([u64; K], [u64; K])>,
}

/// All leaves of the chain. It is an error if one is no acquired block of a node's length, if the
/// chain is a circle, or if keys do not ascend.
pub(super) fn walk<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    block: u64,
) -> Result<Vec<Linked<K>>> {
    let (mut leaves, mut seen) = (Vec::new(), BTreeSet::new());
    let mut last: Option<[u64; K]> = None;
    let mut leaf = pool.backend().load(block + ROOT_WORD);
    loop {
        blocks::check_own(pool, leaf, layout.node_length())?;
        if !seen.insert(leaf) {
            return Err(damaged(pool, leaf, "the chain of leaves is a circle"));
        }
        let view = pool.backend().view(leaf, layout.node_length());
        if level(view.load(META)) != 0 {
            return Err(damaged(pool, leaf, "the chain of leaves leads to a node that is no leaf"));
        }
        let entries = layout.entries_of(view);
        let keys = entries.first().zip(entries.last()).map(|((first, _), (last, _))| (*first, *last));
        if let Some((first, end)) = keys {
            if last.is_some_and(|last| first <= last) {
                return Err(damaged(pool, leaf, "the keys of the leaves do not ascend"));
            }
            last = Some(end);
        }
        leaves.push(Linked { leaf, keys });
        leaf = view.load(NEXT);
        if leaf == 0 {
            return Ok(leaves);
        }
    }
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Builds the inner nodes. Nobody else uses the tree yet. No key leads to leaves that a crash
    /// has left empty, so they are unlinked.
    pub(super) fn rebuild(&self) -> Result<()> {
        let mut nodes: Vec<Child<K>> = Vec::new();
        for Linked { leaf, keys } in walk(&self.pool, &self.layout, self.block)? {
            match (keys, nodes.last()) {
                (Some((first, _)), _) => nodes.push((first, leaf)),
                (None, None) => nodes.push(([0; K], leaf)),
                (None, Some(&(_, before))) => self.unlink_empty(before, leaf)?,
            }
        }
        self.build_inner(nodes);
        Ok(())
    }

    /// Builds the inner nodes above leaves, each with its least key.
    pub(super) fn build_inner(&self, mut nodes: Vec<Child<K>>) {
        let mut level = 0;
        while nodes.len() > 1 {
            level += 1;
            // Three quarters full, and of equal size.
            let parents = nodes.len().div_ceil((self.layout.children * 3 / 4).max(2));
            let size = nodes.len().div_ceil(parents);
            let above = nodes.chunks(size).map(|children| {
                let node = self.new_in_memory();
                let mut image = vec![0; self.layout.words];
                Layout::<K, V>::fill_inner(&mut image, level, children);
                self.store_in_memory(node, 0, &image);
                (children[0].0, node)
            });
            nodes = above.collect();
        }
        if let Some((_, root)) = nodes.first() {
            self.memory_root.store(*root, Ordering::Release);
        }
    }

    /// Takes an empty leaf out of the chain.
    fn unlink_empty(&self, before: u64, leaf: u64) -> Result<()> {
        let image = self.layout.copy(self.node(before)?);
        let mut after = image.clone();
        after[NEXT] = self.node(leaf)?.load(NEXT);
        let mut change = Change { released: leaf, ..Change::default() };
        change.write(before, &image, &after);
        self.make_and_release(self.take_log_entry(), &change)
    }
}
