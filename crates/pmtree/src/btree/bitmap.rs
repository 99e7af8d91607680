//! Leaves with a bitmap, whose entries are in any order.

use std::ops::Range;

use terrane_pmem::{Backend, Site, WORD_LENGTH};

use super::layout::{BITMAP, Form, WORD_BITS};
use super::method::{Changed, LogEntry, Method};
use super::sorted::change;
use super::tree::BTree;
use crate::Result;

const ENTRY: Site = Site::new("btree.bitmap.entry");
const PUT: Site = Site::new("btree.bitmap.put");
const MOVE: Site = Site::new("btree.bitmap.move");
const VALUE: Site = Site::new("btree.bitmap.value");
const TAKE: Site = Site::new("btree.bitmap.take");

/// Leaves with a bitmap, durable or not.
#[derive(Debug)]
pub struct Unsorted<const IS_DURABLE: bool>;

/// Leaves with a bitmap. An entry is durable before its bit (T1); splits and merges are logged.
pub type PersistentUnsorted = Unsorted<true>;

/// The same without durability, until the tree is closed.
pub type UnsortedLeaf = Unsorted<false>;

impl<const IS_DURABLE: bool> Method for Unsorted<IS_DURABLE> {
    const NAME: &'static str = if IS_DURABLE { "persistent_unsorted" } else { "unsorted_leaf" };
    const LAYOUT_ID: u64 = u64::from_le_bytes(if IS_DURABLE { *b"BTREEPU1" } else { *b"BTREEUL1" });
    const FORM: Form = Form::Bitmap;
    const IS_DURABLE: bool = IS_DURABLE;
    const LOGS_LEAVES: bool = false;

    /// A crash before the bit is durable leaves a free slot.
    fn put<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        entry: (&[u64; K], &[u64; V]),
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        let Some(slot) = tree.layout.free_slot(tree.node(leaf)?, None) else { return Ok(Changed::Full) };
        write_entry(tree, leaf, slot, entry);
        let (word, bit) = bit(leaf, slot);
        tree.backend().store(word, tree.backend().load(word) | bit);
        tree.persist(word..word + WORD_LENGTH, PUT);
        Ok(Changed::Done)
    }

    /// One store makes the change: that of the value, or that of both bits in one word. Without a
    /// free slot there, it is logged.
    fn set<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        slot: usize,
        entry: (&[u64; K], &[u64; V]),
        log: LogEntry<'_>,
    ) -> Result<Changed> {
        let backend = tree.backend();
        let node = tree.node(leaf)?;
        if let [value] = entry.1.as_slice() {
            let offset = leaf + (tree.layout.entry(slot) + K) as u64 * WORD_LENGTH;
            backend.store(offset, *value);
            tree.persist(offset..offset + WORD_LENGTH, VALUE);
            return Ok(Changed::Done);
        }
        if let Some(free) = tree.layout.free_slot(node, Some(slot / WORD_BITS)) {
            write_entry(tree, leaf, free, entry);
            let ((word, old), (_, new)) = (bit(leaf, slot), bit(leaf, free));
            backend.store(word, backend.load(word) & !old | new);
            tree.persist(word..word + WORD_LENGTH, MOVE);
            return Ok(Changed::Done);
        }
        if log.is_none() && IS_DURABLE {
            return Ok(Changed::NeedsLog);
        }
        let first = tree.layout.entry(slot) + K;
        change(tree, leaf, log, |image| image[first..first + V].copy_from_slice(entry.1))
    }

    fn take<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        slot: usize,
        _: &[u64; K],
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        let (word, bit) = bit(leaf, slot);
        tree.backend().store(word, tree.backend().load(word) & !bit);
        tree.persist(word..word + WORD_LENGTH, TAKE);
        Ok(Changed::Done)
    }
}

/// Offset of the word with a slot's bit, and the bit.
fn bit(leaf: u64, slot: usize) -> (u64, u64) {
    (leaf + (BITMAP + slot / WORD_BITS) as u64 * WORD_LENGTH, 1 << (slot % WORD_BITS))
}

/// Writes an entry to a free slot, durably (T1).
fn write_entry<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    leaf: u64,
    slot: usize,
    (key, value): (&[u64; K], &[u64; V]),
) {
    let first = leaf + tree.layout.entry(slot) as u64 * WORD_LENGTH;
    for (offset, &word) in (first..).step_by(WORD_LENGTH as usize).zip(key.iter().chain(value)) {
        tree.backend().store(offset, word);
    }
    let entry: Range<u64> = first..first + (K + V) as u64 * WORD_LENGTH;
    tree.persist(entry, ENTRY);
}
