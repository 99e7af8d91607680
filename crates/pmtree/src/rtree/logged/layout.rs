//! Layout of trees in a pool.

use terrane_pmem::{LINE_LENGTH, WORD_LENGTH};

use crate::limits;
use crate::rtree::rect::check_dimensions;

/// Identifies the layout of pools that hold such a tree.
pub(super) const LAYOUT_ID: u64 = u64::from_le_bytes(*b"LOGRTRE1");

/// Words of the first line of the tree's block: dimensions and fan-out. The root word has the
/// second line, then the log follows.
pub(super) const DIMENSIONS: u64 = 0;
pub(super) const FAN_OUT: u64 = WORD_LENGTH;
pub(super) const ROOT_WORD: u64 = LINE_LENGTH;

/// The most entries of a node, as in the FBR-tree.
pub(super) const FAN_OUT_MAX: usize = 503;

/// Numbers of the words of a node's header.
pub(super) const LEVEL: usize = 0;
pub(super) const COUNT: usize = 1;

const LINE_WORDS: usize = (LINE_LENGTH / WORD_LENGTH) as usize;
pub(super) const HEADER_WORDS: usize = LINE_WORDS;

/// The layout of the nodes of one tree, with `D` dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout<const D: usize> {
    pub(super) fan_out: usize,
}

impl<const D: usize> Layout<D> {
    /// Words from one entry to the next.
    const ENTRY_WORDS: usize = (2 * D + 1).next_multiple_of(LINE_WORDS);

    pub(super) fn new(fan_out: usize) -> Option<Self> {
        const { check_dimensions::<D>() };
        limits::is_fan_out(fan_out, FAN_OUT_MAX).then_some(Self { fan_out })
    }

    /// Words of a node.
    pub(super) fn node_words(&self) -> usize {
        Self::entry(self.fan_out)
    }

    /// Bytes of a node.
    pub(super) fn node_length(&self) -> u64 {
        self.node_words() as u64 * WORD_LENGTH
    }

    /// Number of the first word of an entry within the node.
    pub(super) const fn entry(slot: usize) -> usize {
        HEADER_WORDS + slot * Self::ENTRY_WORDS
    }

    /// Number of the word that holds an entry's child or payload.
    pub(super) const fn target(slot: usize) -> usize {
        Self::entry(slot) + 2 * D
    }
}
