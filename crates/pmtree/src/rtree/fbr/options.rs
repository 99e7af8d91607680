//! Options for creating and opening trees.

use terrane_pmem::PersistenceDomain;

use super::layout::{FIRST_WORD_ENTRIES, LAYOUT_ID};
use crate::Split;
use crate::rtree::LeafForm;
use crate::rtree::split::FILL_MIN_PERCENT;

/// How a tree changes full or nearly empty nodes (sections 3.4 and 3.5 of the thesis).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebalancing {
    /// Half of a node moves to a new one, or a node takes the entries of its sibling.
    #[default]
    InPlace,
    /// New nodes replace the old ones.
    CopyOnWrite,
}

/// Options for creating or opening a tree.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of a node, 4 to 503. Up to 55, the bitmap is one word. An existing tree keeps its
    /// own.
    pub fan_out: usize,
    /// How valid entries of a leaf are marked. An existing tree keeps its own.
    pub leaves: LeafForm,
    /// How nodes are split and merged. May differ each time the tree is opened.
    pub rebalancing: Rebalancing,
    /// How the entries of a full node are divided. May differ each time the tree is opened.
    pub split: Split,
    /// The least entries that a split leaves in a half, in percent of the fan-out: 0 to 50, and at
    /// least two entries. A node with fewer takes some of a sibling's, or is merged with it. May
    /// differ each time the tree is opened.
    pub fill_min_percent: u8,
    /// The medium, and how the file grows. The layout is the tree's own.
    pub pool: terrane_pmem::Options,
}

impl Options {
    /// Nodes of 55 entries, changed in place, on a medium.
    pub fn new(domain: PersistenceDomain) -> Self {
        Self {
            fan_out: FIRST_WORD_ENTRIES,
            leaves: LeafForm::default(),
            rebalancing: Rebalancing::default(),
            split: Split::default(),
            fill_min_percent: FILL_MIN_PERCENT,
            pool: terrane_pmem::Options::new(LAYOUT_ID, domain),
        }
    }
}
