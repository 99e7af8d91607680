//! Sorted leaves, whose entries are shifted: the study's `btree` and `btree_wal`.

use terrane_pmem::{Backend, View};

use super::change::Change;
use super::layout::{Form, META, count, meta};
use super::method::{Changed, LogEntry, Method};
use super::tree::BTree;
use crate::Result;

/// Sorted leaves. Every change is logged, or nothing is durable. In the second case, lines that
/// were changed together can be flushed together.
#[derive(Debug)]
pub struct Sorted<const IS_DURABLE: bool, const FLUSHES_GROUPS: bool>;

/// Sorted leaves that log every change.
pub type BTreeWal = Sorted<true, false>;

/// Sorted leaves without durability, until the tree is closed.
pub type VolatileBTree = Sorted<false, false>;

/// The same with group flushing: two or more changed lines of a node are flushed, without a fence.
pub type GroupFlushingBTree = Sorted<false, true>;

impl<const IS_DURABLE: bool, const FLUSHES_GROUPS: bool> Method for Sorted<IS_DURABLE, FLUSHES_GROUPS> {
    const NAME: &'static str = if IS_DURABLE { "btree_wal" } else { "btree" };
    const FLUSHES_GROUPS: bool = FLUSHES_GROUPS;
    const LAYOUT_ID: u64 = u64::from_le_bytes(if IS_DURABLE { *b"BTREEWA1" } else { *b"BTREEVO1" });
    const FORM: Form = Form::Sorted;
    const IS_DURABLE: bool = IS_DURABLE;
    const LOGS_LEAVES: bool = IS_DURABLE;

    fn put<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        (key, value): (&[u64; K], &[u64; V]),
        log: LogEntry<'_>,
    ) -> Result<Changed> {
        let node = tree.node(leaf)?;
        let count = count(node.load(META));
        if count >= tree.layout.leaf_capacity {
            return Ok(Changed::Full);
        }
        let slot = (0..count).find(|&slot| tree.layout.key_at(node, slot) > *key).unwrap_or(count);
        change(tree, leaf, log, |image| {
            let [first, end] = [tree.layout.entry(slot), tree.layout.entry(count)];
            image.copy_within(first..end, first + K + V);
            image[first..first + K].copy_from_slice(key);
            image[first + K..first + K + V].copy_from_slice(value);
            image[META] = meta(0, count + 1);
        })
    }

    fn set<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        slot: usize,
        (_, value): (&[u64; K], &[u64; V]),
        log: LogEntry<'_>,
    ) -> Result<Changed> {
        let first = tree.layout.entry(slot) + K;
        change(tree, leaf, log, |image| image[first..first + V].copy_from_slice(value))
    }

    fn take<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        slot: usize,
        _: &[u64; K],
        log: LogEntry<'_>,
    ) -> Result<Changed> {
        change(tree, leaf, log, |image| {
            let count = count(image[META]);
            let [first, end] = [tree.layout.entry(slot), tree.layout.entry(count)];
            image.copy_within(first + K + V..end, first);
            image[META] = meta(0, count - 1);
        })
    }
}

/// Changes the words of a locked leaf.
pub(super) fn change<M: Method, const K: usize, const V: usize, B: Backend>(
    tree: &BTree<M, K, V, B>,
    leaf: u64,
    log: LogEntry<'_>,
    edit: impl FnOnce(&mut [u64]),
) -> Result<Changed> {
    let before = tree.layout.copy(tree.node(leaf)?);
    let mut after = before.clone();
    edit(&mut after);
    let mut change = Change::default();
    change.write(leaf, &before, &after);
    tree.make(log, &change)?;
    Ok(Changed::Done)
}
