//! The method of `btree_ls`.

use terrane_pmem::{Backend, View};

use super::super::layout::{Form, META, count};
use super::super::method::{Changed, LogEntry, Method};
use super::super::tree::BTree;
use crate::Result;

/// Leaves as chains of records in logs; everything else is in memory. A change within a leaf, a
/// split and a merge are one record each.
#[derive(Debug)]
pub struct BTreeLs;

impl Method for BTreeLs {
    const NAME: &'static str = "btree_ls";
    const LAYOUT_ID: u64 = u64::from_le_bytes(*b"BTREELS3");
    const FORM: Form = Form::Chain;
    const IS_DURABLE: bool = true;
    const INNER_IN_MEMORY: bool = true;
    const LOGS_LEAVES: bool = false;

    fn put<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        (key, value): (&[u64; K], &[u64; V]),
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        let count = count(tree.node(leaf)?.load(META));
        match count >= tree.layout.leaf_capacity {
            true => Ok(Changed::Full),
            false => tree.add_delta(leaf, (key, Some(value)), count + 1),
        }
    }

    fn set<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        _: usize,
        (key, value): (&[u64; K], &[u64; V]),
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        tree.add_delta(leaf, (key, Some(value)), count(tree.node(leaf)?.load(META)))
    }

    fn take<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        _: usize,
        key: &[u64; K],
        _: LogEntry<'_>,
    ) -> Result<Changed> {
        let count = count(tree.node(leaf)?.load(META));
        tree.add_delta(leaf, (key, None), count.saturating_sub(1))
    }
}
