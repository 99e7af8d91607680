//! The layout of nodes: a header, then entries of whole lines (FBR-tree, Figure 1).
//!
//! ```text
//! word 0      metadata: type (bit 63), dirty in the session of word 2 (bit 61),
//!             bitmap of the entries 0 to 54
//! word 1      sequence number for readers; volatile
//! word 2      the session that has written it, and the log entry that changes the node
//!             now, or that the node is unlinked; volatile
//! word 3      level: 0 in leaves
//! word 4..    the bitmap of the entries from 55 on
//! ```
//! An entry holds the lower and the upper corner, then the offset of the child or the payload, then
//! its mark, which is volatile. It never shares a line with another one. Volatile words mean
//! nothing to later sessions.
//!
//! In trees of the form [`LeafForm::SelfValidating`], three more things follow the bitmap.
//! - The incarnation of the leaf.
//! - The session in which its bitmap was made from its entries (volatile).
//! - The generations of its entries, a bit for each (see [`tags`](super::tags)).
//!
//! There the bitmaps of leaves are volatile too, and the mark of a leaf's entry is its tag.

use terrane_pmem::{LINE_LENGTH, WORD_LENGTH};

use crate::limits;
use crate::rtree::LeafForm;
use crate::rtree::rect::check_dimensions;

/// Entries whose bits lie in the first word.
pub(super) const FIRST_WORD_ENTRIES: usize = 55;

/// Words of the longest bitmap.
pub(super) const WORDS_MAX: usize = 8;

const WORD_BITS: usize = u64::BITS as usize;

/// The most entries of a node: the bits of the longest bitmap, without the flags.
pub(super) const FAN_OUT_MAX: usize = 503;

const _: () = assert!(FAN_OUT_MAX == FIRST_WORD_ENTRIES + (WORDS_MAX - 1) * WORD_BITS);
const LINE_WORDS: usize = (LINE_LENGTH / WORD_LENGTH) as usize;

/// Identifies the layout of pools that hold such a tree.
pub(super) const LAYOUT_ID: u64 = u64::from_le_bytes(*b"FBRTREE1");

/// Words of the first line of the tree's block: dimensions, fan-out, and form of leaves with
/// [`SHORT_MARKS`]. The root word has the second line.
pub(super) const DIMENSIONS: u64 = 0;
pub(super) const FAN_OUT: u64 = WORD_LENGTH;
pub(super) const LEAVES: u64 = 2 * WORD_LENGTH;
/// A flag beside the form of the leaves: marks are numbered with [`MARK_SHIFT`].
pub(super) const SHORT_MARKS: u64 = 2;
pub(super) const ROOT_WORD: u64 = LINE_LENGTH;
pub(super) const LOG_START: u64 = 2 * LINE_LENGTH;

/// Numbers of the header's words.
pub(super) const SEQUENCE: usize = 1;
pub(super) const LOG: usize = 2;
pub(super) const LEVEL: usize = 3;
const LATER_BITMAP: usize = 4;

const TYPE: u64 = 1 << 63;
const DIRTY: u64 = 1 << 61;
const FIRST_BITS: u64 = (1 << FIRST_WORD_ENTRIES) - 1;

/// The layout of the nodes of one tree, with `D` dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout<const D: usize> {
    pub(super) fan_out: usize,
    pub(super) leaves: LeafForm,
    /// Words of the bitmap, including the metadata word.
    pub(super) words: usize,
    header_words: usize,
}

impl<const D: usize> Layout<D> {
    /// Used words of an entry: corners, child or payload, mark.
    const ENTRY_USED: usize = 2 * D + 2;

    /// Words from one entry to the next.
    pub(super) const ENTRY_WORDS: usize = Self::ENTRY_USED.next_multiple_of(LINE_WORDS);

    /// Whether an entry lies in one line, so that its last word can validate the others.
    pub(super) const ENTRIES_VALIDATE: bool = Self::ENTRY_WORDS == LINE_WORDS;

    pub(super) fn new(fan_out: usize, leaves: LeafForm) -> Option<Self> {
        const { check_dimensions::<D>() };
        if !limits::is_fan_out(fan_out, FAN_OUT_MAX) {
            return None;
        }
        let words = 1 + fan_out.saturating_sub(FIRST_WORD_ENTRIES).div_ceil(WORD_BITS);
        let more = match leaves {
            LeafForm::Bitmap => 0,
            LeafForm::SelfValidating => 2 + words,
        };
        let header_words = (LATER_BITMAP + words - 1 + more).next_multiple_of(LINE_WORDS);
        Some(Self { fan_out, leaves, words, header_words })
    }

    pub(super) fn node_words(&self) -> usize {
        self.header_words + self.fan_out * Self::ENTRY_WORDS
    }

    /// Bytes of a node.
    pub(super) fn node_length(&self) -> u64 {
        self.node_words() as u64 * WORD_LENGTH
    }

    /// Bytes of the header.
    pub(super) fn header_length(&self) -> u64 {
        self.header_words as u64 * WORD_LENGTH
    }

    /// Number of a word of the bitmap within the node.
    pub(super) fn bitmap_word(&self, word: usize) -> usize {
        if word == 0 { 0 } else { LATER_BITMAP + word - 1 }
    }

    /// Number of the word with a leaf's incarnation, where entries validate themselves.
    pub(super) fn incarnation(&self) -> usize {
        LATER_BITMAP + self.words - 1
    }

    /// Number of the word with the session in which a leaf's bitmap was made.
    pub(super) fn adopted(&self) -> usize {
        self.incarnation() + 1
    }

    /// Number of a word of the generations.
    pub(super) fn generation_word(&self, word: usize) -> usize {
        self.adopted() + 1 + word
    }

    /// Number of the first word of an entry within the node.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> usize {
        self.header_words + slot * Self::ENTRY_WORDS
    }

    /// Number of the word that holds an entry's child or payload.
    #[inline]
    pub(super) fn target(&self, slot: usize) -> usize {
        self.entry(slot) + 2 * D
    }

    /// Number of an entry's mark, its last word.
    pub(super) fn mark(&self, slot: usize) -> usize {
        self.entry(slot) + 2 * D + 1
    }
}

/// Type, dirty flag and bitmap of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    words: [u64; WORDS_MAX],
    length: usize,
}

impl Metadata {
    /// The metadata of a node without entries.
    pub(super) fn empty(is_leaf: bool, length: usize) -> Self {
        let mut words = [0; WORDS_MAX];
        words[0] = if is_leaf { TYPE } else { 0 };
        Self { words, length }
    }

    /// Metadata of the words that `word` gives. The first word is read last, since it says whether
    /// the others are durable.
    #[inline]
    pub(super) fn read(length: usize, mut word: impl FnMut(usize) -> u64) -> Self {
        let mut words = [0; WORDS_MAX];
        for number in (0..length).rev() {
            words[number] = word(number);
        }
        Self { words, length }
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words[..self.length]
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.words[0] & TYPE != 0
    }

    /// Whether the bitmap may not be durable yet (link-and-persist).
    #[inline]
    pub(super) fn is_dirty(&self) -> bool {
        self.words[0] & DIRTY != 0
    }

    pub(super) fn set_dirty(&mut self, is_dirty: bool) {
        self.words[0] = if is_dirty { self.words[0] | DIRTY } else { self.words[0] & !DIRTY };
    }

    /// Number of the word that holds an entry's bit, and the bit.
    pub(super) fn place(slot: usize) -> (usize, u64) {
        match slot.checked_sub(FIRST_WORD_ENTRIES) {
            None => (0, 1 << slot),
            Some(later) => (1 + later / WORD_BITS, 1 << (later % WORD_BITS)),
        }
    }

    pub(super) fn holds(&self, slot: usize) -> bool {
        let (word, bit) = Self::place(slot);
        self.words[word] & bit != 0
    }

    pub(super) fn set(&mut self, slot: usize, is_valid: bool) {
        let (word, bit) = Self::place(slot);
        self.words[word] = if is_valid { self.words[word] | bit } else { self.words[word] & !bit };
    }

    /// Whether bits are set that stand for no entry.
    #[inline]
    pub(super) fn has_entries_beyond(&self, fan_out: usize) -> bool {
        let are_beyond = |bits: u64, first: usize| {
            let sound = fan_out.saturating_sub(first);
            sound < WORD_BITS && bits >> sound != 0
        };
        are_beyond(self.words[0] & FIRST_BITS, 0)
            || self.words[1..self.length]
                .iter()
                .enumerate()
                .any(|(number, &bits)| are_beyond(bits, FIRST_WORD_ENTRIES + number * WORD_BITS))
    }

    pub(super) fn count(&self) -> usize {
        let later: u32 = self.words[1..self.length].iter().map(|word| word.count_ones()).sum();
        ((self.words[0] & FIRST_BITS).count_ones() + later) as usize
    }

    /// The first entry that is free.
    pub(super) fn first_free(&self, fan_out: usize) -> Option<usize> {
        self.free(fan_out).next()
    }

    /// Entries that are free, in ascending order.
    pub(super) fn free(&self, fan_out: usize) -> impl Iterator<Item = usize> {
        let inverted = |word: usize| !self.words[word];
        Self::bits(self.length, inverted).take_while(move |&slot| slot < fan_out)
    }

    /// Entries that are valid, in ascending order.
    #[inline]
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        Self::bits(self.length, |word| self.words[word])
    }

    #[inline]
    fn bits(length: usize, word: impl Fn(usize) -> u64) -> impl Iterator<Item = usize> {
        let (mut number, mut first) = (0, 0);
        let mut left = word(0) & FIRST_BITS;
        std::iter::from_fn(move || {
            while left == 0 {
                first = FIRST_WORD_ENTRIES + number * WORD_BITS;
                number += 1;
                if number >= length {
                    return None;
                }
                left = word(number);
            }
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            Some(first + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FAN_OUT_MIN;

    fn bitmap<const D: usize>(fan_out: usize) -> Option<Layout<D>> {
        Layout::new(fan_out, LeafForm::Bitmap)
    }

    #[test]
    fn nodes_have_the_sizes_of_the_paper() {
        let of_three = bitmap::<3>(FIRST_WORD_ENTRIES).unwrap();
        assert_eq!((of_three.words, of_three.header_length(), of_three.node_length()), (1, 64, 64 + 55 * 64));
        assert_eq!(bitmap::<3>(183).unwrap().words, 3, "a bitmap of 23 bytes and a byte of flags");
        assert_eq!(bitmap::<2>(FAN_OUT_MAX).unwrap().header_length(), 128);
        assert_eq!((Layout::<2>::ENTRY_WORDS, Layout::<4>::ENTRY_WORDS), (8, 16));
        let tagged = Layout::<3>::new(FIRST_WORD_ENTRIES, LeafForm::SelfValidating).unwrap();
        assert_eq!(tagged.node_length(), of_three.node_length());
        assert!(bitmap::<2>(FAN_OUT_MIN - 1).is_none() && bitmap::<2>(FAN_OUT_MAX + 1).is_none());
    }

    #[test]
    fn words_of_the_header_do_not_overlap() {
        for fan_out in FAN_OUT_MIN..=FAN_OUT_MAX {
            for form in [LeafForm::Bitmap, LeafForm::SelfValidating] {
                let layout = Layout::<2>::new(fan_out, form).unwrap();
                let mut words = vec![SEQUENCE, LOG, LEVEL];
                words.extend((0..layout.words).map(|word| layout.bitmap_word(word)));
                if form == LeafForm::SelfValidating {
                    words.extend([layout.incarnation(), layout.adopted()]);
                    words.extend((0..layout.words).map(|word| layout.generation_word(word)));
                }
                assert!(words.iter().all(|&word| word < layout.entry(0)), "{fan_out}");
                let count = words.len();
                words.sort_unstable();
                words.dedup();
                assert_eq!(words.len(), count, "{fan_out}");
                assert!(Metadata::place(fan_out - 1).0 < layout.words, "{fan_out}");
            }
        }
    }

    #[test]
    fn bits_stand_for_entries() {
        let mut metadata = Metadata::empty(true, WORDS_MAX);
        let slots = [0, 54, 55, 118, 119, FAN_OUT_MAX - 1];
        slots.iter().for_each(|&slot| metadata.set(slot, true));
        metadata.set_dirty(true);
        assert!(metadata.is_leaf() && metadata.is_dirty());
        assert_eq!(metadata.slots().collect::<Vec<_>>(), slots);
        assert_eq!(metadata.count(), slots.len());
        assert_eq!(metadata.first_free(FAN_OUT_MAX), Some(1));
        assert_eq!(metadata.free(FAN_OUT_MAX).count(), FAN_OUT_MAX - slots.len());
        assert!(metadata.has_entries_beyond(119) && !metadata.has_entries_beyond(FAN_OUT_MAX));
        metadata.set(54, false);
        assert_eq!(metadata.first_free(2), Some(1));
        assert_eq!(Metadata::read(WORDS_MAX, |word| metadata.words()[word]), metadata);
    }
}
