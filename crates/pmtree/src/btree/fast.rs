//! Sorted leaves with tags, whose entries are shifted without a log: FAST (Hwang and others 2018,
//! "Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree"), for inline values.
//!
//! The stores of a shift become durable in their order. Each of them leaves a leaf with the same
//! entries, except for one store that adds or removes one (T2). A crash leaves at most one slot
//! that does not count, and the next change of the leaf closes it first.

use terrane_pmem::{Backend, LINE_LENGTH, Site, View, WORD_LENGTH};

use super::layout::Form;
use super::method::{Changed, LogEntry, Method};
use super::node::FIRST_TAG;
use super::sorted::change;
use super::tree::BTree;
use crate::Result;

const ORDER: Site = Site::new("btree.fast.order");
const END: Site = Site::new("btree.fast.end");
const VALUE: Site = Site::new("btree.fast.value");

/// Sorted leaves with tags. Only splits, merges and updates of long values are logged.
#[derive(Debug)]
pub struct Fast<const INNER_IN_MEMORY: bool>;

/// Everything in the pool.
pub type FastFair = Fast<false>;

/// Selective persistence: inner nodes in memory.
pub type FastFairSp = Fast<true>;

impl<const INNER_IN_MEMORY: bool> Method for Fast<INNER_IN_MEMORY> {
    const NAME: &'static str = if INNER_IN_MEMORY { "fast_fair_sp" } else { "fast_fair" };
    const LAYOUT_ID: u64 = u64::from_le_bytes(if INNER_IN_MEMORY { *b"BTREEFS1" } else { *b"BTREEFF1" });
    const INNER_IN_MEMORY: bool = INNER_IN_MEMORY;
    const FORM: Form = Form::Tagged;
    const IS_DURABLE: bool = true;
    const LOGS_LEAVES: bool = false;

    /// The last store, of the new tag, adds the entry.
    fn put<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        (key, value): (&[u64; K], &[u64; V]),
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        close_hole(tree, leaf)?;
        let layout = &tree.layout;
        let node = tree.node(leaf)?;
        let count = layout.tags(node).count();
        if count == layout.leaf_capacity {
            return Ok(Changed::Full);
        }
        let new_tag = layout.new_tag(node);
        let slot = (0..count).find(|&slot| layout.key_at(node, slot) > *key).unwrap_or(count);
        let mut stores = Stores::new(tree.backend(), leaf);
        // The addresses descend, so that each line is flushed once.
        for moved in (slot..count).rev() {
            // The target does not count from here on, and has the tag already behind the last one.
            stores.store(layout.tag(moved + 1), node.load(layout.tag(moved)));
            for word in (0..K + V).rev() {
                stores.store(layout.entry(moved + 1) + word, node.load(layout.entry(moved) + word));
            }
            // Validates the target, and invalidates the original.
            stores.store(layout.tag(moved), tag_before(tree, leaf, moved)?);
        }
        for (word, &content) in (0..K + V).rev().zip(value.iter().rev().chain(key.iter().rev())) {
            stores.store(layout.entry(slot) + word, content);
        }
        stores.store(layout.tag(slot), new_tag);
        stores.end();
        Ok(Changed::Done)
    }

    fn set<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        slot: usize,
        (_, value): (&[u64; K], &[u64; V]),
        log: LogEntry<'_>,
    ) -> Result<Changed> {
        let first = tree.layout.entry(slot) + K;
        if let [value] = value.as_slice() {
            let offset = leaf + first as u64 * WORD_LENGTH;
            tree.backend().store(offset, *value);
            tree.persist(offset..offset + WORD_LENGTH, VALUE);
            return Ok(Changed::Done);
        }
        match log {
            None => Ok(Changed::NeedsLog),
            log => change(tree, leaf, log, |image| image[first..first + V].copy_from_slice(value)),
        }
    }

    /// The first store removes the entry. The others close the hole.
    fn take<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        _: usize,
        key: &[u64; K],
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        close_hole(tree, leaf)?;
        let Some((slot, _)) = tree.layout.find(tree.node(leaf)?, key) else {
            return Err(tree.damaged(leaf, "a leaf has lost an entry while it was locked"));
        };
        let mut stores = Stores::new(tree.backend(), leaf);
        stores.store(tree.layout.tag(slot), tag_before(tree, leaf, slot)?);
        shift_left(tree, leaf, slot, stores)?;
        Ok(Changed::Done)
    }
}

/// The tag of the slot before a slot.
fn tag_before<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    leaf: u64,
    slot: usize,
) -> Result<u64> {
    let node = tree.node(leaf)?;
    Ok(slot.checked_sub(1).map_or(FIRST_TAG, |before| node.load(tree.layout.tag(before))))
}

/// Closes the hole that a crash has left in a shift, if there is one.
fn close_hole<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    leaf: u64,
) -> Result<()> {
    while let Some((hole, ..)) = tree.layout.tags(tree.node(leaf)?).find(|(_, before, tag)| before == tag) {
        shift_left(tree, leaf, hole, Stores::new(tree.backend(), leaf))?;
    }
    Ok(())
}

/// Moves the entries behind a slot that does not count to the left by one.
fn shift_left<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    leaf: u64,
    hole: usize,
    mut stores: Stores<'_, B>,
) -> Result<()> {
    let layout = &tree.layout;
    let node = tree.node(leaf)?;
    let count = layout.tags(node).count();
    for target in hole..count - 1 {
        for word in 0..K + V {
            stores.store(layout.entry(target) + word, node.load(layout.entry(target + 1) + word));
        }
        // Validates the target, and invalidates the original.
        stores.store(layout.tag(target), node.load(layout.tag(target + 1)));
    }
    stores.store(layout.tag(count - 1), 0);
    stores.end();
    Ok(())
}

/// Stores to a node that become durable in their order.
struct Stores<'a, B> {
    backend: &'a B,
    node: u64,
    /// The line that was stored to since the last fence.
    dirty: Option<u64>,
}

impl<'a, B: Backend> Stores<'a, B> {
    fn new(backend: &'a B, node: u64) -> Self {
        Self { backend, node, dirty: None }
    }

    /// Stores a word after all earlier ones. The stores to one line keep their order by themselves,
    /// so only a change of the line takes a fence.
    fn store(&mut self, word: usize, value: u64) {
        let offset = self.node + word as u64 * WORD_LENGTH;
        let line = offset - offset % LINE_LENGTH;
        if let Some(dirty) = self.dirty.take().filter(|dirty| *dirty != line) {
            self.backend.persist(dirty..dirty + LINE_LENGTH, ORDER);
        }
        self.backend.store(offset, value);
        self.dirty = Some(line);
    }

    /// Makes everything durable.
    fn end(self) {
        if let Some(dirty) = self.dirty {
            self.backend.persist(dirty..dirty + LINE_LENGTH, END);
        }
    }
}
