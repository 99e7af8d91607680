//! The layout of leaves: a header line, the lines of the G-bitmap, then entries of whole lines
//! (PM-RTREE, Figure 6).
//!
//! ```text
//! line 0          next; second copy; session in which it was detached (volatile)
//! lines 1..       the G-bitmap: words of 48 bits, with flags
//! further lines   the entries: lower corner, upper corner, payload
//! ```
//! If entries validate themselves, there are no lines of a G-bitmap, the header holds the leaf's
//! incarnation, and the last word of an entry is its tag (see [`tags`](super::tags)).

use terrane_pmem::{LINE_LENGTH, WORD_LENGTH, pmwcas};

use crate::limits;
use crate::rtree::LeafForm;
use crate::rtree::rect::check_dimensions;

/// Identifies the layout of pools that hold such a tree.
pub(super) const LAYOUT_ID: u64 = u64::from_le_bytes(*b"PMRTREE1");

/// Words of the first line of the tree's block. The word that leads to the first leaf has the
/// second line.
pub(super) const DIMENSIONS: u64 = 0;
pub(super) const FAN_OUT: u64 = WORD_LENGTH;
pub(super) const INTERLEAVED: u64 = 2 * WORD_LENGTH;
pub(super) const LEAVES: u64 = 3 * WORD_LENGTH;
pub(super) const HEAD: u64 = LINE_LENGTH;
pub(super) const BLOCK_LENGTH: u64 = 2 * LINE_LENGTH;

/// Byte offsets in a leaf's header.
pub(super) const NEXT: u64 = 0;
pub(super) const SECOND: u64 = WORD_LENGTH;
pub(super) const DETACHED: u64 = 2 * WORD_LENGTH;
pub(super) const INCARNATION: u64 = 3 * WORD_LENGTH;
pub(super) const HEADER_END: u64 = 4 * WORD_LENGTH;

/// Flags of a next word: the leaf was replaced; it has no copy of its own.
pub(super) const REPLACED: u64 = 1;
pub(super) const GONE: u64 = 2;

/// Bits of a word of the G-bitmap.
pub(super) const MAP_BITS: usize = 48;
pub(super) const MAP: u64 = (1 << MAP_BITS) - 1;
/// No bit changes any more.
pub(super) const FROZEN: u64 = 1 << 59;
/// The word may not be durable.
pub(super) const DIRTY: u64 = 1 << 60;

const _: () = assert!(MAP & (FROZEN | DIRTY | pmwcas::FLAGS) == 0 && (FROZEN | DIRTY) & pmwcas::FLAGS == 0);
const _: () = assert!(REPLACED + GONE < LINE_LENGTH, "blocks begin at whole lines, so these bits are free");
const _: () = assert!(HEADER_END <= LINE_LENGTH);

/// Words of the longest G-bitmap.
const MAP_WORDS_MAX: usize = 42;

/// The most entries of a leaf.
pub(super) const FAN_OUT_MAX: usize = MAP_WORDS_MAX * MAP_BITS;

const LINE_WORDS: usize = (LINE_LENGTH / WORD_LENGTH) as usize;

/// The layout of the leaves of one tree, with `D` dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout<const D: usize> {
    pub(super) fan_out: usize,
    pub(super) interleaved: bool,
    pub(super) leaves: LeafForm,
    /// Words of the G-bitmap.
    pub(super) map_words: usize,
    /// Lines of the G-bitmap in the pool; none if it lies in memory.
    map_lines: usize,
}

impl<const D: usize> Layout<D> {
    /// Bytes of an entry that hold its box and its payload.
    pub(super) const ENTRY_USED: u64 = (2 * D as u64 + 1) * WORD_LENGTH;

    /// Bytes of an entry.
    pub(super) const ENTRY_LENGTH: u64 = Self::ENTRY_USED.next_multiple_of(LINE_LENGTH);

    /// Offset of the tag in an entry that validates itself.
    pub(super) const TAG: u64 = LINE_LENGTH - WORD_LENGTH;

    /// Whether an entry and a tag lie in one line, so that the tag can validate the entry.
    pub(super) const ENTRIES_VALIDATE: bool = Self::ENTRY_USED <= Self::TAG;

    /// The layout; `None` if leaves cannot have this many entries. Without a G-bitmap in the pool,
    /// nothing is interleaved.
    pub(super) fn new(fan_out: usize, interleaved: bool, leaves: LeafForm) -> Option<Self> {
        const { check_dimensions::<D>() };
        let map_words = fan_out.div_ceil(MAP_BITS);
        let (interleaved, map_lines) = match leaves {
            // Interleaving takes two lines at least.
            LeafForm::Bitmap => (interleaved, map_words.div_ceil(LINE_WORDS).max(2).min(map_words.max(1))),
            LeafForm::SelfValidating => (false, 0),
        };
        let layout = Self { fan_out, interleaved, leaves, map_words, map_lines };
        limits::is_fan_out(fan_out, FAN_OUT_MAX).then_some(layout)
    }

    pub(super) fn leaf_length(&self) -> u64 {
        self.entry(self.fan_out)
    }

    /// Byte offset of a word of the G-bitmap.
    pub(super) fn map_word(&self, word: usize) -> u64 {
        let (line, place) = match self.interleaved {
            true => (word % self.map_lines, word / self.map_lines),
            false => {
                let words_of_line = self.map_words.div_ceil(self.map_lines);
                (word / words_of_line, word % words_of_line)
            }
        };
        (1 + line as u64) * LINE_LENGTH + place as u64 * WORD_LENGTH
    }

    /// Byte offset of an entry.
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> u64 {
        (1 + self.map_lines) as u64 * LINE_LENGTH + slot as u64 * Self::ENTRY_LENGTH
    }

    /// The word of a slot's bit, and the bit's number (Algorithm 1). With interleaving, a group has
    /// a word of each line, and consecutive slots have bits in different words of it.
    #[inline]
    pub(super) fn bit(&self, slot: usize) -> (usize, usize) {
        if !self.interleaved {
            return (slot / MAP_BITS, slot % MAP_BITS);
        }
        let group = slot / (MAP_BITS * self.map_lines);
        let (first, width) = self.group(group);
        let place = slot - first * MAP_BITS;
        (first + place % width, place / width)
    }

    /// The slot of a bit.
    #[inline]
    pub(super) fn slot(&self, word: usize, bit: usize) -> usize {
        if !self.interleaved {
            return word * MAP_BITS + bit;
        }
        let (first, width) = self.group(word / self.map_lines);
        first * MAP_BITS + bit * width + (word - first)
    }

    /// Whether a word of the G-bitmap can hold a value: no bit is set that stands for no slot.
    pub(super) fn is_possible(&self, word: usize, value: u64) -> bool {
        let is_of_slot = |bit: usize| value & (1 << bit) == 0 || self.slot(word, bit) < self.fan_out;
        value & !(MAP | FROZEN | DIRTY) == 0 && (0..MAP_BITS).all(is_of_slot)
    }

    /// First word of a group, and its number of words. The last group may have fewer.
    #[inline]
    fn group(&self, group: usize) -> (usize, usize) {
        let first = group * self.map_lines;
        (first, self.map_lines.min(self.map_words - first))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_slot_has_a_bit_of_its_own_and_interleaved_ones_change_the_line() {
        for fan_out in (4..300).chain([336, 784, 1000, 2000, FAN_OUT_MAX]) {
            for interleaved in [true, false] {
                let layout = Layout::<2>::new(fan_out, interleaved, LeafForm::Bitmap).unwrap();
                let bits: BTreeSet<_> = (0..fan_out).map(|slot| layout.bit(slot)).collect();
                assert_eq!(bits.len(), fan_out, "{layout:?}");
                assert!(bits.iter().all(|(word, bit)| *word < layout.map_words && *bit < MAP_BITS), "{layout:?}");
                assert!((0..fan_out).all(|slot| {
                    let (word, bit) = layout.bit(slot);
                    layout.slot(word, bit) == slot
                }));
                let places: BTreeSet<u64> = (0..layout.map_words).map(|word| layout.map_word(word)).collect();
                assert_eq!(places.len(), layout.map_words);
                assert!(places.iter().all(|place| (LINE_LENGTH..layout.entry(0)).contains(place)), "{layout:?}");
                let line = |slot: usize| layout.map_word(layout.bit(slot).0) / LINE_LENGTH;
                let stays = (1..fan_out.min(MAP_BITS)).filter(|&slot| line(slot) == line(slot - 1)).count();
                assert_eq!(stays == 0, interleaved && layout.map_words > 1 || fan_out == 1, "{layout:?}");
            }
        }
        assert!(
            [0, 3, FAN_OUT_MAX + 1].iter().all(|fan_out| Layout::<2>::new(*fan_out, true, LeafForm::Bitmap).is_none())
        );
    }
}
