//! Options for creating and opening trees.

use terrane_pmem::PersistenceDomain;

use super::layout::LAYOUT_ID;
use crate::Split;
use crate::rtree::LeafForm;

/// Default entries of a leaf: two words of the bitmap.
const FAN_OUT: usize = 96;

/// Default of the least entries of a leaf, in percent of the fan-out.
const FILL_MIN_PERCENT: u8 = 25;

/// Default children of an inner node.
const INNER_FAN_OUT: usize = 32;

/// How the bit of an entry is set in the bitmap of its leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Publication {
    /// By one compare-and-swap of a word of the bitmap, which readers make durable if they meet it
    /// before (link-and-persist).
    #[default]
    CompareAndSwap,
    /// By a persistent multi-word compare-and-swap of that word, as in the paper. It takes five
    /// flushes and four fences.
    Descriptor,
}

/// Options for creating or opening a tree.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of a leaf, 4 to 2016. An existing tree keeps its own.
    pub fan_out: usize,
    /// How valid entries of a leaf are marked. An existing tree keeps its own.
    pub leaves: LeafForm,
    /// Whether consecutive entries have their bits in different lines of the bitmap (Algorithm 1).
    /// An existing tree keeps its own.
    pub interleaved: bool,
    /// Children of an inner node, 4 to 255. May differ each time the tree is opened.
    pub inner_fan_out: usize,
    /// How the bit of an entry is set. May differ each time the tree is opened. Entries that
    /// validate themselves have no bit in the pool.
    pub publication: Publication,
    /// How the entries of a full leaf are divided, and the children of a full inner node. May
    /// differ each time the tree is opened.
    pub split: Split,
    /// The least entries of a leaf with siblings, in percent of the fan-out: 0 to 50, and at least
    /// two. A leaf with fewer is merged with a sibling. May differ each time the tree is opened.
    pub fill_min_percent: u8,
    /// Threads that read the leaves when the tree is opened; with 0, one for each processor.
    pub recovery_threads: usize,
    /// A gap of the paper that is left open, to show that a test finds it. A tree that has had one
    /// is not opened again.
    #[cfg(feature = "explorer")]
    pub gap: Option<Gap>,
    /// The medium, and how the file grows. The layout is the tree's own.
    pub pool: terrane_pmem::Options,
}

/// Steps of the paper that lose entries or mix them. For tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Slots are used again, and readers go by a version of 8 bits in each word of the bitmap (hole
    /// 0).
    Versions,
    /// An insertion takes the first free slot and compares the bitmap with itself (hole 2).
    Slots,
    /// A box is replaced by a plain store of a union (hole 3).
    Boxes,
    /// A leaf is copied without being frozen (hole 5).
    Freezing,
}

impl Options {
    /// Interleaved leaves of 96 entries on a medium.
    pub fn new(domain: PersistenceDomain) -> Self {
        Self {
            fan_out: FAN_OUT,
            leaves: LeafForm::default(),
            interleaved: true,
            inner_fan_out: INNER_FAN_OUT,
            publication: Publication::default(),
            split: Split::default(),
            fill_min_percent: FILL_MIN_PERCENT,
            recovery_threads: 0,
            #[cfg(feature = "explorer")]
            gap: None,
            pool: terrane_pmem::Options::new(LAYOUT_ID, domain),
        }
    }
}
