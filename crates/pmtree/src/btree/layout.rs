//! The layout of nodes: a header, then entries of whole words.
//!
//! - word 0: the level in bits 0 to 7, which is 0 in leaves. Sorted nodes have their number of
//!   entries from bit 32 on.
//! - word 1: the offset of the next leaf, 0 in the last one and in inner nodes.
//! - word 2 and further: the bitmap, in leaves that have one.
//! - then the entries: key, then value or child. Some leaves have a tag behind each.

use terrane_pmem::{LINE_LENGTH, WORD_LENGTH};

/// Numbers of the words of a node's header.
pub(super) const META: usize = 0;
pub(super) const NEXT: usize = 1;
pub(super) const BITMAP: usize = 2;

/// Number of the first word of the entries of an inner node.
pub(super) const INNER_ENTRIES: usize = 2;

const LEVEL_BITS: u64 = 0xff;
const COUNT_SHIFT: u32 = 32;

pub(super) const WORD_BITS: usize = u64::BITS as usize;
const LINE_WORDS: usize = (LINE_LENGTH / WORD_LENGTH) as usize;

/// Bytes of the shortest and of the longest node.
pub(super) const NODE_LENGTH_MIN: u64 = 128;
pub(super) const NODE_LENGTH_MAX: u64 = 4096;

/// Entries of the smallest leaf and of the smallest inner node, so that each can be split.
const LEAF_ENTRIES_MIN: usize = 2;
const CHILDREN_MIN: usize = 4;

/// Words of the tree's block: the shape, then the root word in a line of its own, then the log.
pub(super) const NODE_LENGTH: u64 = 0;
pub(super) const KEY_WORDS: u64 = WORD_LENGTH;
pub(super) const VALUE_WORDS: u64 = 2 * WORD_LENGTH;
/// Where leaves are chains: the number of logs, and bytes of their segments.
pub(super) const LOG_COUNT: u64 = 3 * WORD_LENGTH;
pub(super) const SEGMENT_LENGTH: u64 = 4 * WORD_LENGTH;
pub(super) const ROOT_WORD: u64 = LINE_LENGTH;
pub(super) const LOG_START: u64 = 2 * LINE_LENGTH;

/// The form of leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Entries in any order, with a bitmap of slots.
    Bitmap,
    /// Sorted entries, whose number the first word states.
    Sorted,
    /// Sorted entries with tags, which say which of them count (T2).
    Tagged,
    /// Records in a log. A row in memory has the first words of a node, and leads to them.
    Chain,
}

/// The first word of a node.
pub(super) fn meta(level: u64, count: usize) -> u64 {
    level | (count as u64) << COUNT_SHIFT
}

#[inline]
pub(super) fn level(meta: u64) -> u64 {
    meta & LEVEL_BITS
}

#[inline]
pub(super) fn count(meta: u64) -> usize {
    (meta >> COUNT_SHIFT) as usize
}

/// The layout of the nodes of one tree, with `K` words in a key and `V` words in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout<const K: usize, const V: usize> {
    /// Words of a node.
    pub(super) words: usize,
    pub(super) form: Form,
    /// Words of a leaf's bitmap; 0 in other leaves.
    pub(super) bitmap_words: usize,
    /// Words of a leaf's entry.
    entry_words: usize,
    /// Number of the first word of a leaf's entries.
    leaf_entries: usize,
    /// The most entries of a leaf.
    pub(super) leaf_capacity: usize,
    /// The most children of an inner node.
    pub(super) children: usize,
}

impl<const K: usize, const V: usize> Layout<K, V> {
    /// Words of an inner node's entry.
    pub(super) const CHILD: usize = K + 1;

    /// The layout; `None` if nodes cannot have this number of bytes.
    pub(super) fn new(node_length: u64, form: Form) -> Option<Self> {
        let is_length = (NODE_LENGTH_MIN..=NODE_LENGTH_MAX).contains(&node_length);
        if !is_length || !node_length.is_multiple_of(LINE_LENGTH) {
            return None;
        }
        let words = (node_length / WORD_LENGTH) as usize;
        let entry_words = K + V + usize::from(form == Form::Tagged);
        let entries = |bitmap_words: usize| {
            let header = BITMAP + bitmap_words;
            // No entry lies in two lines if entries divide them.
            if LINE_WORDS.is_multiple_of(entry_words) { header.next_multiple_of(entry_words) } else { header }
        };
        let capacity = |bitmap_words| words.saturating_sub(entries(bitmap_words)) / entry_words;
        let has_bitmap = form == Form::Bitmap;
        let bitmap_words = if has_bitmap { capacity(1).div_ceil(WORD_BITS).max(1) } else { 0 };
        let (leaf_entries, leaf_capacity) = (entries(bitmap_words), capacity(bitmap_words));
        let children = (words - INNER_ENTRIES) / Self::CHILD;
        (leaf_capacity >= LEAF_ENTRIES_MIN && children >= CHILDREN_MIN).then_some(Self {
            words,
            form,
            bitmap_words,
            entry_words,
            leaf_entries,
            leaf_capacity,
            children,
        })
    }

    /// Bytes of a node.
    #[inline]
    pub(super) fn node_length(&self) -> u64 {
        self.words as u64 * WORD_LENGTH
    }

    /// Bytes of a node of a level to announce to the memory before a search. A search needs about
    /// half of a leaf, from its beginning on, and the same of an inner node, as nodes are not full.
    /// To announce more would keep other loads waiting: a core has few of them in flight.
    #[inline]
    pub(super) fn announced_length(&self, level: u64) -> u64 {
        let eighths = if level == 0 { 4 } else { 5 };
        self.node_length() / 8 * eighths
    }

    /// Number of the first word of a leaf's entry.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> usize {
        self.leaf_entries + slot * self.entry_words
    }

    /// Number of the word with the tag of a leaf's entry, where entries have tags.
    #[inline]
    pub(super) fn tag(&self, slot: usize) -> usize {
        self.entry(slot) + K + V
    }

    /// Number of the first word of an inner node's entry.
    #[inline]
    pub(super) fn child(index: usize) -> usize {
        INNER_ENTRIES + index * Self::CHILD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_lie_within_their_node_behind_the_header_and_in_one_line_if_they_can() {
        fn check<const K: usize, const V: usize>() {
            for node_length in (NODE_LENGTH_MIN..=NODE_LENGTH_MAX).step_by(LINE_LENGTH as usize) {
                let Some(layout) = Layout::<K, V>::new(node_length, Form::Bitmap) else { continue };
                assert!(BITMAP + layout.bitmap_words <= layout.entry(0), "{layout:?}");
                assert!(layout.leaf_capacity <= layout.bitmap_words * WORD_BITS, "{layout:?}");
                assert!(layout.entry(layout.leaf_capacity) <= layout.words, "{layout:?}");
                assert!(Layout::<K, V>::child(layout.children) <= layout.words, "{layout:?}");
                let line = |word: usize| word / LINE_WORDS;
                let is_in_one_line = |slot| line(layout.entry(slot)) == line(layout.entry(slot) + K + V - 1);
                assert!(!LINE_WORDS.is_multiple_of(K + V) || (0..layout.leaf_capacity).all(is_in_one_line));
            }
        }
        check::<1, 1>();
        check::<2, 2>();
        check::<1, 2>();
        check::<4, 8>();
        check::<8, 8>();
        let default = Layout::<2, 2>::new(512, Form::Bitmap).unwrap();
        assert_eq!((default.leaf_capacity, default.children, default.bitmap_words), (15, 20, 1));
        assert!([0, 64, 127, 192 + 8, 8192].iter().all(|length| Layout::<2, 2>::new(*length, Form::Bitmap).is_none()));
        assert!(Layout::<8, 8>::new(128, Form::Bitmap).is_none(), "two entries do not fit");
    }
}
