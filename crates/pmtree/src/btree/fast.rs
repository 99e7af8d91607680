//! Sorted leaves with tags, whose entries are shifted without a log: FAST (Hwang and others 2018,
//! "Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree"), for inline values.
//!
//! Free slots lie between entries, and a shift goes to the nearest one, in either direction. Its
//! stores become durable in their order. Each of them leaves a leaf with the same entries, except
//! for one store that adds or removes one (T2). A crash leaves at most one slot with a copied tag,
//! and the next change of the leaf frees it first.

use std::ops::Range;

use terrane_pmem::{Backend, Site, View, WORD_LENGTH};

use super::layout::Form;
use super::method::{Changed, LogEntry, Method};
use super::node::{END, FREE, TAG_END};
use super::sorted::change;
use super::stores::Stores;
use super::tree::BTree;
use crate::Result;

const ORDER: Site = Site::new("btree.fast.order");
const FREED: Site = Site::new("btree.fast.free");
const LAST: Site = Site::new("btree.fast.end");
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
    const LAYOUT_ID: u64 = u64::from_le_bytes(if INNER_IN_MEMORY { *b"BTREEFS2" } else { *b"BTREEFF2" });
    const INNER_IN_MEMORY: bool = INNER_IN_MEMORY;
    const FORM: Form = Form::Tagged;
    const IS_DURABLE: bool = true;
    const LOGS_LEAVES: bool = false;
    const SHIFTS_INNER: bool = !INNER_IN_MEMORY;

    /// The last store adds the entry.
    fn put<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        entry: (&[u64; K], &[u64; V]),
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        free_copied_tag(tree, leaf)?;
        let Some((free, at)) = room_for(tree, leaf, entry.0)? else { return Ok(Changed::Full) };
        let new_tag = tree.layout.new_tag(tree.node(leaf)?);
        if new_tag >= TAG_END {
            return Err(tree.wrong_tag(leaf, new_tag - 1));
        }
        let mut stores = Stores::new(tree.backend(), leaf, [ORDER, LAST]);
        match free < at {
            true => shift_left(tree, free..at - 1, entry, new_tag, &mut stores)?,
            false => shift_right(tree, at..free, entry, new_tag, &mut stores)?,
        }
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

    /// One store removes the entry.
    fn take<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        _: usize,
        key: &[u64; K],
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        free_copied_tag(tree, leaf)?;
        let Some((slot, _)) = tree.layout.find(tree.node(leaf)?, key) else {
            return Err(tree.damaged(leaf, "a leaf has lost an entry while it was locked"));
        };
        free(tree, leaf, slot);
        Ok(Changed::Done)
    }
}

/// Frees a slot durably. The slot behind it has another tag.
fn free<M: Method, const K: usize, const V: usize, B: Backend>(tree: &BTree<M, K, V, B>, leaf: u64, slot: usize) {
    let tag = leaf + tree.layout.tag(slot) as u64 * WORD_LENGTH;
    tree.backend().store(tag, FREE);
    tree.persist(tag..tag + WORD_LENGTH, FREED);
}

/// Frees the slot that a crash in a shift has left with the tag of the slot before.
fn free_copied_tag<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    leaf: u64,
) -> Result<()> {
    let is_copied = |&(_, before, tag): &(usize, u64, u64)| before == tag && tag != FREE;
    while let Some((slot, ..)) = tree.layout.tags(tree.node(leaf)?).find(is_copied) {
        free(tree, leaf, slot);
    }
    Ok(())
}

/// The free slot that is nearest to the place of a new key, and the slot of the first greater key,
/// or the slot that ends all if there is none. `None` if there is no free slot.
fn room_for<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    leaf: u64,
    key: &[u64; K],
) -> Result<Option<(usize, usize)>> {
    let (layout, node) = (&tree.layout, tree.node(leaf)?);
    let end = layout.end_of(node);
    let at = layout.slots(node).find(|&slot| layout.key_at(node, slot) > *key).unwrap_or(end);
    let is_free = |&slot: &usize| node.load(layout.tag(slot)) == FREE;
    let left = (0..at).rev().find(is_free);
    let right = (at..end).find(is_free).unwrap_or(end);
    Ok(match left {
        // Between the two keys, there may be several.
        Some(left) if right == layout.leaf_capacity || at - left <= right - at + 1 => Some((left, at)),
        _ => (right < layout.leaf_capacity).then_some((right, at)),
    })
}

/// Moves the entries behind a free slot into it, each to the slot before, and puts a new entry into
/// the last slot. The addresses ascend, so that each line is flushed once.
fn shift_left<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    slots: Range<usize>,
    (key, value): (&[u64; K], &[u64; V]),
    new_tag: u64,
    stores: &mut Stores<'_, B>,
) -> Result<()> {
    let (layout, node) = (&tree.layout, tree.node(stores.node)?);
    let last = slots.end;
    for target in slots {
        for word in 0..K + V {
            stores.store(layout.entry(target) + word, node.load(layout.entry(target + 1) + word));
        }
        // Validates the target. The original has the tag of the slot before from here on.
        stores.store(layout.tag(target), node.load(layout.tag(target + 1)));
    }
    for (word, &content) in key.iter().chain(value).enumerate() {
        stores.store(layout.entry(last) + word, content);
    }
    stores.store(layout.tag(last), new_tag);
    Ok(())
}

/// Moves the entries before a free slot towards it, each to the slot behind, and puts a new entry
/// into the first slot. The addresses descend, so that each line is flushed once.
fn shift_right<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    slots: Range<usize>,
    (key, value): (&[u64; K], &[u64; V]),
    new_tag: u64,
    stores: &mut Stores<'_, B>,
) -> Result<()> {
    let (layout, node) = (&tree.layout, tree.node(stores.node)?);
    let (first, free) = (slots.start, slots.end);
    let tag_of = |slot: usize| node.load(layout.tag(slot));
    if tag_of(free) == END && free + 1 < layout.leaf_capacity {
        // Something of an earlier use may lie behind (T10).
        stores.store(layout.tag(free + 1), END);
    }
    for target in slots.rev().map(|moved| moved + 1) {
        // Validates the copy of the entry that was here, and invalidates this slot.
        stores.store(layout.tag(target), tag_of(target - 1));
        for word in (0..K + V).rev() {
            stores.store(layout.entry(target) + word, node.load(layout.entry(target - 1) + word));
        }
    }
    let before = first.checked_sub(1).map_or(FREE, tag_of);
    stores.store(layout.tag(first), before);
    for (word, &content) in (0..K + V).rev().zip(value.iter().rev().chain(key.iter().rev())) {
        stores.store(layout.entry(first) + word, content);
    }
    // With another tag, the entry before still counts, and the new one does as well. That word is
    // lower. So an entry in two lines needs no second flush of the upper one.
    let is_in_one_line = stores.line(layout.entry(first)) == stores.line(layout.tag(first));
    let validating = if before == FREE || is_in_one_line { first } else { first - 1 };
    stores.store(layout.tag(validating), new_tag);
    Ok(())
}
