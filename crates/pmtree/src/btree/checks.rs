//! Checks of the numbers that nodes state. A damaged pool may state any.
//!
//! Readers check what they have read, and then whether the node has changed meanwhile. Only if it
//! has not, an impossible number is damage.

use terrane_pmem::{Backend, Pool, View};

use super::layout::{Form, Layout, META, count, level};
use super::method::Method;
use super::node::{FREE, TAG_END};
use super::tree::{BTree, Met};
use crate::blocks::damaged;
use crate::{Error, Result};

/// Whether an entry of a leaf, or a free slot, can have a tag.
#[inline]
fn is_tag(tag: u64) -> bool {
    // One comparison: the tag of free slots is the greatest number.
    tag.wrapping_sub(FREE) <= TAG_END
}

impl<const K: usize, const V: usize> Layout<K, V> {
    /// Whether a node can have this first word. Leaves with a bitmap or with tags state 0 entries.
    #[inline]
    pub(super) fn is_possible(&self, meta: u64) -> bool {
        match level(meta) {
            0 => count(meta) <= self.leaf_capacity,
            _ => (1..=self.children).contains(&count(meta)),
        }
    }

    /// What is impossible in a node: the number of its entries or children, or a tag.
    pub(super) fn impossible(&self, node: impl View) -> Option<String> {
        let meta = node.load(META);
        if !self.is_possible(meta) {
            return Some(impossible_count(meta));
        }
        if level(meta) > 0 {
            return None;
        }
        self.tags(node).find(|(.., tag)| !is_tag(*tag)).map(|(.., tag)| impossible_tag(tag))
    }

    /// Checks a node, whose words are given.
    pub(super) fn check<B: Backend>(&self, pool: &Pool<B>, node: u64, words: impl View) -> Result<()> {
        self.impossible(words).map_or(Ok(()), |reason| Err(damaged(pool, node, reason)))
    }
}

#[cold]
fn impossible_count(meta: u64) -> String {
    format!("a node of level {} states the impossible number of {} entries", level(meta), count(meta))
}

#[cold]
fn impossible_tag(tag: u64) -> String {
    format!("an entry has the impossible tag {tag:#x}")
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// The error for a node with this first word, which is impossible.
    #[cold]
    #[inline(never)]
    pub(super) fn wrong_count(&self, node: u64, meta: u64) -> Error {
        self.damaged(node, impossible_count(meta))
    }

    /// Checks a node with all its tags.
    pub(super) fn check_stated(&self, node: u64) -> Result<()> {
        self.layout.check(&self.pool, node, self.node(node)?)
    }

    /// Checks what a search in a leaf has relied on: the number of entries, and the tag of the slot
    /// that it has found.
    #[inline]
    pub(super) fn check_found(&self, leaf: u64, slot: Option<usize>) -> Result<()> {
        match (M::FORM, slot) {
            (Form::Sorted, _) => {
                let meta = self.node(leaf)?.load(META);
                if self.layout.is_possible(meta) { Ok(()) } else { Err(self.wrong_count(leaf, meta)) }
            }
            (Form::Tagged, Some(slot)) => {
                let tag = self.node(leaf)?.load(self.layout.tag(slot));
                if is_tag(tag) { Ok(()) } else { Err(self.wrong_tag(leaf, tag)) }
            }
            _ => Ok(()),
        }
    }

    /// The error for a leaf with this tag, which is impossible.
    #[cold]
    #[inline(never)]
    pub(super) fn wrong_tag(&self, leaf: u64, tag: u64) -> Error {
        self.damaged(leaf, impossible_tag(tag))
    }

    /// Whether what was read from a leaf, and checked with this outcome, holds: nobody has changed
    /// the leaf since it was met.
    #[inline]
    pub(super) fn holds(&self, leaf: &Met<'_>, checked: Result<()>) -> Result<bool> {
        match leaf.is_current() {
            true => checked.map(|()| true),
            false => Ok(false),
        }
    }
}
