//! Options for creating and opening trees, and what an opening has done.

use terrane_pmem::PersistenceDomain;

use super::layout::LAYOUT_ID;
use crate::Split;

/// Default entries of a leaf and children of an inner node (the paper's M).
const FAN_OUT: usize = 38;

/// Default of the least entries of a node, in percent: the paper's fill.
const FILL_MIN_PERCENT: u8 = 30;

/// Default alignment of nodes: the blocks of the medium.
const ALIGNMENT: u64 = 256;

/// How much of the tree lies in memory. Leaves never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// This number of levels, from the root down (level-bound persistence).
    Levels(u64),
    /// This number of nodes, from the root down (node-bound persistence).
    Nodes(u64),
}

/// When nodes beyond the budget move to the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persisting {
    /// Inside of the operation that needs the space. With [`Budget::Nodes`], no instant has more
    /// nodes in memory than the budget.
    #[default]
    InPlace,
    /// When the program calls [`adapt_step`](super::PearTree::adapt_step), for example in a thread
    /// of its own. Until then there may be more nodes in memory.
    Background,
}

/// Options for creating or opening a tree.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of a leaf, 4 to 64. An existing tree keeps its own.
    pub fan_out: usize,
    /// Children of an inner node, 4 to 64. An existing tree keeps its own.
    pub inner_fan_out: usize,
    /// Whether the boxes of entries are stored as `f32`, rounded outward, as in the paper. Then the
    /// tree answers by the rounded boxes. An existing tree keeps its own.
    pub single: bool,
    /// Nodes in the pool begin at multiples of this number of bytes, a power of two from 64 to
    /// 4096. An existing tree keeps its own.
    pub alignment: u64,
    /// How much of the tree lies in memory. May differ each time the tree is opened, and while it
    /// is in use.
    pub budget: Budget,
    /// When nodes beyond the budget move to the pool.
    pub persisting: Persisting,
    /// How many nodes move together in place, at least one.
    pub batch: usize,
    /// How the entries of a full node are divided. May differ each time the tree is opened.
    pub split: Split,
    /// The least entries of a node with siblings, in percent of the fan-out: 0 to 50, and at least
    /// two. A node with fewer is merged with a sibling. May differ each time the tree is opened.
    pub fill_min_percent: u8,
    /// Whether recovery groups nodes by the parents that they had. Otherwise it packs them by their
    /// places.
    pub recovers_by_parents: bool,
    /// Threads that read nodes when the tree is opened; with 0, one for each processor.
    pub recovery_threads: usize,
    /// A gap of the thesis that is left open, to show that a test finds it.
    #[cfg(feature = "explorer")]
    pub gap: Option<Gap>,
    /// The medium, and how the file grows. The layout is the tree's own.
    pub pool: terrane_pmem::Options,
}

/// What the thesis leaves out. For tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// A lock is a lock, whatever session has set it (hole 1).
    Locks,
    /// A node that has moved stays the child of its parent (hole 10).
    Moves,
    /// Redistribution has no mark (hole 5).
    Redistribution,
    /// A rebuild reads nodes without resolving their states (hole 6).
    Rebuild,
    /// A rebuild goes by parent words, not by children (hole 2).
    ParentWords,
    /// Copies are found by comparing entries, not by a mask.
    Comparison,
}

impl Options {
    /// Nodes of 38 entries on a medium, none of them in memory.
    pub fn new(domain: PersistenceDomain) -> Self {
        Self {
            fan_out: FAN_OUT,
            inner_fan_out: FAN_OUT,
            single: false,
            alignment: ALIGNMENT,
            budget: Budget::Nodes(0),
            persisting: Persisting::default(),
            batch: 1,
            split: Split::default(),
            fill_min_percent: FILL_MIN_PERCENT,
            recovers_by_parents: true,
            recovery_threads: 0,
            #[cfg(feature = "explorer")]
            gap: None,
            pool: terrane_pmem::Options::new(LAYOUT_ID, domain),
        }
    }
}

/// What an opening has read and made. Nothing, if the root lay in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Nodes whose boxes were read.
    pub nodes_read: u64,
    /// Nodes that were made.
    pub nodes_rebuilt: u64,
}
