//! Options for creating and opening trees.

use terrane_pmem::PersistenceDomain;

use super::layout::LAYOUT_ID;
use crate::Split;
use crate::rtree::split::FILL_MIN_PERCENT;

/// Default number of entries of a node, as in the FBR-tree.
const FAN_OUT: usize = 55;

/// How a tree makes a change of several words survive a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// Whole nodes in their new state are logged, then changed in place.
    #[default]
    Images,
    /// The old values of each range that changes are logged, then it is changed in place. A crash
    /// undoes the change. So do programs with transactions of ranges, as of PMDK.
    Ranges,
    /// Nothing is logged, and nothing is flushed, as in a tree for volatile memory. Only a tree
    /// that was closed can be opened again.
    None,
}

/// Options for creating or opening a tree.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of a node, 4 to 503. An existing tree keeps its own.
    pub fan_out: usize,
    /// How a change survives a crash. May differ each time the tree is opened.
    pub logging: Logging,
    /// How the entries of a full node are divided. May differ each time the tree is opened.
    pub split: Split,
    /// The least entries that a split leaves in a half, in percent of the fan-out: 0 to 50, and at
    /// least two entries. May differ each time the tree is opened.
    pub fill_min_percent: u8,
    /// The medium, and how the file grows. The layout is the tree's own.
    pub pool: terrane_pmem::Options,
}

impl Options {
    /// Nodes of 55 entries, on a medium.
    pub fn new(domain: PersistenceDomain) -> Self {
        Self {
            fan_out: FAN_OUT,
            logging: Logging::default(),
            split: Split::default(),
            fill_min_percent: FILL_MIN_PERCENT,
            pool: terrane_pmem::Options::new(LAYOUT_ID, domain),
        }
    }
}
