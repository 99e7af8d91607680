//! The layout of nodes, in the pool (`PNode`, Figure 14) and in memory (`VNode`, Figure 15), and of
//! the tree's block. Both kinds of nodes have the same words, so that a node moves word by word.
//!
//! The words of a node:
//!
//! - word 0, meta: lock, marks, level, and session (the paper's global version).
//! - word 1: bitmap of valid slots.
//! - word 2: next node of the level's chain.
//! - word 3, volatile: sequence number for readers.
//! - word 4, volatile: session in which the bitmap or a box may not be durable.
//! - word 5, parent: a key that groups siblings at recovery, and nothing else.
//! - word 6, mask: the slots that a marked change adds or removes.
//! - word 7, partner: the other node of a marked change.
//! - then boxes, from the next line on, and then children or payloads.
//! - last word: a node before this one in the chain.

use terrane_pmem::{LINE_LENGTH, WORD_LENGTH};

use crate::limits::{self, LEVEL_MAX};
use crate::rtree::rect::{Rect, check_dimensions};

/// Identifies the layout of pools that hold such a tree.
pub(super) const LAYOUT_ID: u64 = u64::from_le_bytes(*b"PEARTRE1");

/// Numbers of a node's words.
pub(super) const META: usize = 0;
pub(super) const BITMAP: usize = 1;
pub(super) const NEXT: usize = 2;
pub(super) const SEQUENCE: usize = 3;
pub(super) const DIRTY: usize = 4;
pub(super) const PARENT: usize = 5;
/// In a node in memory, which is on no chain: the key that names it in its children in the pool.
pub(super) const KEY: usize = NEXT;
pub(super) const MASK: usize = 6;
pub(super) const PARTNER: usize = 7;
pub(super) const BOXES: usize = 8;

const _: () = assert!(BOXES as u64 * WORD_LENGTH == LINE_LENGTH, "the header is one line, boxes begin at the next");

/// Bits of the meta word. The marks are those of Tables 1 and 2, and one for redistribution.
pub(super) const LOCK: u64 = 1;
pub(super) const REORGANIZING: u64 = 1 << 1;
pub(super) const SPLIT_STARTED: u64 = 1 << 2;
pub(super) const MERGING: u64 = 1 << 3;
pub(super) const REDISTRIBUTING: u64 = 1 << 4;
pub(super) const MARKS: u64 = REORGANIZING | SPLIT_STARTED | MERGING | REDISTRIBUTING;
const LEVEL_SHIFT: u32 = 8;
const LEVEL: u64 = 0x3f << LEVEL_SHIFT;
const SESSION_SHIFT: u32 = 32;

const _: () = assert!(LEVEL_MAX < 0x3f && (LOCK | MARKS) & LEVEL == 0);

/// The sequence number of a node that is no part of the tree any more.
pub(super) const DEAD: u64 = u64::MAX;

pub(super) fn level_of(meta: u64) -> u64 {
    (meta & LEVEL) >> LEVEL_SHIFT
}

pub(super) fn session_of(meta: u64) -> u64 {
    meta >> SESSION_SHIFT
}

/// The meta word of a locked node.
pub(super) fn locked(level: u64, marks: u64, session: u64) -> u64 {
    session << SESSION_SHIFT | level << LEVEL_SHIFT | marks | LOCK
}

/// Byte offsets in the tree's block. The first line never changes.
pub(super) const DIMENSIONS: u64 = 0;
pub(super) const FAN_OUT: u64 = WORD_LENGTH;
pub(super) const INNER_FAN_OUT: u64 = 2 * WORD_LENGTH;
pub(super) const SINGLE: u64 = 3 * WORD_LENGTH;
pub(super) const ALIGNMENT: u64 = 4 * WORD_LENGTH;
/// The root's offset, if it lies in the pool. Otherwise the complete level:
/// the highest one with all its nodes in the pool.
pub(super) const TOP: u64 = LINE_LENGTH;
/// A node that is being removed, and its parent, if that lies in the pool. The parent comes first.
pub(super) const DYING_PARENT: u64 = LINE_LENGTH + WORD_LENGTH;
pub(super) const DYING: u64 = LINE_LENGTH + 2 * WORD_LENGTH;
/// Whether no node is in a recovery state.
pub(super) const CLEAN: u64 = LINE_LENGTH + 3 * WORD_LENGTH;
/// The first node of each level's chain.
const HEADS: u64 = 2 * LINE_LENGTH;
pub(super) const BLOCK_LENGTH: u64 = (HEADS + (LEVEL_MAX + 1) * WORD_LENGTH).next_multiple_of(LINE_LENGTH);

const _: () = assert!(LEVEL_MAX < LINE_LENGTH, "a level is no offset of a node");

/// Byte offset of the first node's word in the tree's block.
pub(super) fn head(level: u64) -> u64 {
    HEADS + level * WORD_LENGTH
}

/// Whether nodes can begin at multiples of a number.
pub(super) fn is_alignment(alignment: u64) -> bool {
    alignment.is_power_of_two() && (LINE_LENGTH..=4096).contains(&alignment)
}

/// A bitmap is one word.
pub(super) const FAN_OUT_MAX: usize = 64;

/// A reference to a node in memory has this bit, an offset in the pool has not.
pub(super) const VOLATILE: u64 = 1;

pub(super) fn is_volatile(node: u64) -> bool {
    node & VOLATILE != 0
}

/// The layout of the nodes of one tree, with `D` dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout<const D: usize> {
    pub(super) fan_out: usize,
    pub(super) inner_fan_out: usize,
    /// Whether boxes of entries are rounded outward to `f32`, as those of inner nodes are.
    pub(super) single: bool,
    /// Nodes in the pool begin at multiples of it, and have multiples of it as length.
    pub(super) alignment: u64,
}

impl<const D: usize> Layout<D> {
    /// The layout; `None` if nodes cannot have this many entries, or this alignment.
    pub(super) fn new([fan_out, inner_fan_out]: [usize; 2], single: bool, alignment: u64) -> Option<Self> {
        const { check_dimensions::<D>() };
        let are_possible = [fan_out, inner_fan_out].iter().all(|&fan_out| limits::is_fan_out(fan_out, FAN_OUT_MAX));
        (are_possible && is_alignment(alignment)).then_some(Self { fan_out, inner_fan_out, single, alignment })
    }

    /// Most entries of a node.
    #[inline]
    pub(super) fn capacity(&self, level: u64) -> usize {
        if level == 0 { self.fan_out } else { self.inner_fan_out }
    }

    /// The bitmap of a full node.
    #[inline]
    pub(super) fn all_slots(&self, level: u64) -> u64 {
        u64::MAX >> (FAN_OUT_MAX - self.capacity(level))
    }

    #[inline]
    pub(super) fn is_single(&self, level: u64) -> bool {
        level > 0 || self.single
    }

    /// Words of a box.
    #[inline]
    pub(super) fn box_words(&self, level: u64) -> usize {
        if self.is_single(level) { D } else { 2 * D }
    }

    /// Number of a box's first word.
    #[inline]
    pub(super) fn box_word(&self, level: u64, slot: usize) -> usize {
        BOXES + slot * self.box_words(level)
    }

    /// Number of the word of a child or payload.
    #[inline]
    pub(super) fn target_word(&self, level: u64, slot: usize) -> usize {
        BOXES + self.capacity(level) * self.box_words(level) + slot
    }

    fn words(&self, level: u64) -> usize {
        self.target_word(level, self.capacity(level))
    }

    /// Words of a node in memory.
    pub(super) fn volatile_words(&self) -> usize {
        self.words(1) + 1
    }

    /// Number of the last word, in the pool.
    pub(super) fn previous_word(&self) -> usize {
        (self.node_length() / WORD_LENGTH) as usize - 1
    }

    /// Bytes of a node in the pool.
    pub(super) fn node_length(&self) -> u64 {
        ((self.words(0).max(self.words(1)) + 1) as u64 * WORD_LENGTH).next_multiple_of(self.alignment)
    }

    /// The words of a box, rounded outward where they are single.
    pub(super) fn encode(&self, level: u64, rect: &Rect<D>, mut put: impl FnMut(usize, u64)) {
        for axis in 0..D {
            let (min, max) = (rect.min()[axis], rect.max()[axis]);
            if self.is_single(level) {
                put(axis, u64::from(rounded_down(min).to_bits()) | u64::from(rounded_up(max).to_bits()) << 32);
            } else {
                put(axis, min.to_bits());
                put(D + axis, max.to_bits());
            }
        }
    }

    /// The box of its words.
    #[inline]
    pub(super) fn decode(&self, level: u64, word: impl Fn(usize) -> u64) -> Rect<D> {
        match self.is_single(level) {
            true => Self::of_single(&std::array::from_fn(word)),
            false => Self::of_double(&std::array::from_fn(&word), &std::array::from_fn(|axis| word(D + axis))),
        }
    }

    /// The box of words that each hold both bounds of an axis.
    #[inline]
    pub(super) fn of_single(words: &[u64; D]) -> Rect<D> {
        let corner = |shift: u32| words.map(|word| f64::from(f32::from_bits((word >> shift) as u32)));
        Rect::raw(corner(0), corner(32))
    }

    /// The box of the words of both corners.
    #[inline]
    pub(super) fn of_double(min: &[u64; D], max: &[u64; D]) -> Rect<D> {
        Rect::raw(min.map(f64::from_bits), max.map(f64::from_bits))
    }

    /// The box of an entry as it is stored.
    pub(super) fn stored(&self, rect: &Rect<D>) -> Rect<D> {
        if !self.single {
            return *rect;
        }
        Rect::raw(
            rect.min().map(|coordinate| f64::from(rounded_down(coordinate))),
            rect.max().map(|coordinate| f64::from(rounded_up(coordinate))),
        )
    }
}

/// The greatest `f32` that is not above.
pub(super) fn rounded_down(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) > value { nearest.next_down() } else { nearest }
}

/// The least `f32` that is not below.
pub(super) fn rounded_up(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) < value { nearest.next_up() } else { nearest }
}

/// The slots of a bitmap.
pub(super) fn slots(bitmap: u64) -> impl Iterator<Item = usize> {
    let mut left = bitmap;
    std::iter::from_fn(move || {
        let slot = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(slot)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hole 4: with the nearest `f32`, as in the paper, a box loses what it was made of.
    #[test]
    fn boxes_of_inner_nodes_contain_those_they_were_made_of() {
        let layout = Layout::<2>::new([38; 2], false, 256).unwrap();
        let values = [0.1, -0.1, 1e300, -1e300, 1e-300, -1e-300, 0.0, 13.4, f64::MAX, f64::MIN];
        for (min, max) in values.iter().flat_map(|&a| values.iter().map(move |&b| (a.min(b), a.max(b)))) {
            let rect = Rect::new([min, 0.1], [max, 0.1]).unwrap();
            let mut words = [0; 2];
            layout.encode(1, &rect, |word, value| words[word] = value);
            assert!(layout.decode(1, |word| words[word]).contains(&rect), "{rect:?}");
            let mut words = [0; 4];
            layout.encode(0, &rect, |word, value| words[word] = value);
            assert_eq!(layout.decode(0, |word| words[word]), rect);
        }
        let nearest = |value: f64| f64::from(value as f32);
        assert!(
            values.iter().any(|value| nearest(*value) > *value) && values.iter().any(|value| nearest(*value) < *value)
        );
    }

    /// The paper's node has 1264 bytes with a lock word for each branch, which ours has not.
    #[test]
    fn nodes_are_as_long_as_their_parts() {
        let lengths = |single, alignment| {
            let [two, three, four] = [
                Layout::<2>::new([38; 2], single, alignment).unwrap().node_length(),
                Layout::<3>::new([38; 2], single, alignment).unwrap().node_length(),
                Layout::<4>::new([38; 2], single, alignment).unwrap().node_length(),
            ];
            [two, three, four]
        };
        assert_eq!(lengths(true, 256), [1024, 1536, 1792]);
        assert_eq!(lengths(false, 256), [1792, 2304, 2816]);
        assert_eq!(lengths(false, 64), [1600, 2240, 2816]);
    }
}
