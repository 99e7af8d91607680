//! The methods: what distinguishes one tree of the family from another.

use std::fmt::Debug;

use terrane_pmem::Backend;

use super::layout::Form;
use super::log;
use super::tree::BTree;
use crate::Result;

/// The outcome of a change within a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is made.
    Done,
    /// The leaf has no room for another entry.
    Full,
    /// It takes a log entry, which has to be taken before the leaf is locked.
    NeedsLog,
}

/// An entry of the log, if one was taken.
pub type LogEntry<'a> = Option<log::Entry<'a>>;

/// A form of leaves, and a way of making changes durable.
pub trait Method: Debug + Send + Sync + Sized + 'static {
    /// The name of the tree in the study.
    const NAME: &'static str;

    /// Identifies the layout of pools that hold such a tree.
    const LAYOUT_ID: u64;

    /// The form of leaves.
    const FORM: Form;

    /// Whether operations are durable. Otherwise only a close makes them so.
    const IS_DURABLE: bool;

    /// Whether inner nodes are in memory, and rebuilt from the leaves by an opening.
    const INNER_IN_MEMORY: bool = false;

    /// Whether two or more changed lines of a node are flushed, though nothing is durable. A medium
    /// with blocks longer than lines combines them.
    const FLUSHES_GROUPS: bool = false;

    /// Whether leaves are rows in memory that lead to records in logs. Then changes of nodes are
    /// not logged.
    const IN_LOGS: bool = matches!(Self::FORM, Form::Chain);

    /// Whether every change within a leaf takes a log entry.
    const LOGS_LEAVES: bool;

    /// Whether inner nodes get children by shifts in order, so that the log need not have their
    /// words (T9). That takes fewer flushes and more fences.
    const SHIFTS_INNER: bool = false;

    /// Adds an entry to a locked leaf, whose number of entries was checked. The key is not there.
    fn put<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        entry: (&[u64; K], &[u64; V]),
        log: LogEntry<'_>,
    ) -> Result<Changed>;

    /// Changes the value in a slot of a locked leaf, which was checked.
    fn set<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        slot: usize,
        entry: (&[u64; K], &[u64; V]),
        log: LogEntry<'_>,
    ) -> Result<Changed>;

    /// Removes the key in a slot of a locked leaf, which was checked.
    fn take<const K: usize, const V: usize, B: Backend>(
        tree: &BTree<Self, K, V, B>,
        leaf: u64,
        slot: usize,
        key: &[u64; K],
        log: LogEntry<'_>,
    ) -> Result<Changed>;
}
