//! How a chunk is divided: one word with the form of its blocks, then the bitmap, then the blocks.

use std::ops::Range;

use crate::{LINE_LENGTH, WORD_LENGTH};

const WORD_BITS: u64 = u64::BITS as u64;

/// The most that blocks can be aligned to.
pub(super) const ALIGNMENT_MAX: u64 = 4096;

/// The bits of a form above the length: how often a line is doubled to give the alignment.
const ALIGNMENT_SHIFT: u32 = 56;

/// The form of a chunk's blocks, which its first word states: a length, and what they are aligned
/// to. For lines, it is the length alone.
pub(super) fn form(block_length: u64, alignment: u64) -> u64 {
    block_length | u64::from((alignment / LINE_LENGTH).trailing_zeros()) << ALIGNMENT_SHIFT
}

/// Whether blocks can be aligned to this.
pub(super) fn is_alignment(alignment: u64) -> bool {
    alignment.is_power_of_two() && (LINE_LENGTH..=ALIGNMENT_MAX).contains(&alignment)
}

/// Length and alignment of a form; `None` if no chunk has it.
fn parts(form: u64) -> Option<(u64, u64)> {
    let alignment = LINE_LENGTH.checked_shl(u32::try_from(form >> ALIGNMENT_SHIFT).ok()?)?;
    is_alignment(alignment).then_some((form & ((1 << ALIGNMENT_SHIFT) - 1), alignment))
}

/// The most bytes of a chunk that go into the form and into rounding the bitmap.
fn overhead(alignment: u64) -> u64 {
    2 * WORD_LENGTH + alignment
}

/// A chunk whose block length is sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) index: u64,
    pub(super) form: u64,
    pub(super) block_length: u64,
    start: u64,
    blocks: u64,
    first: u64,
}

/// The longest block of a chunk with this alignment; 0 if there is none.
pub(super) fn block_length_max(chunk_length: u64, alignment: u64) -> u64 {
    // The block also takes one bit of the bitmap.
    chunk_length.saturating_sub(overhead(alignment) + 1) / alignment * alignment
}

impl Chunk {
    /// `start` is a multiple of every alignment.
    pub(super) fn new(index: u64, start: u64, form: u64, chunk_length: u64) -> Option<Self> {
        let (block_length, alignment) = parts(form)?;
        if !block_length.is_multiple_of(alignment)
            || !(alignment..=block_length_max(chunk_length, alignment)).contains(&block_length)
        {
            return None;
        }
        // Each block takes its length and one bit.
        let blocks = (chunk_length - overhead(alignment)) * 8 / (block_length * 8 + 1);
        let head = WORD_LENGTH + blocks.div_ceil(WORD_BITS) * WORD_LENGTH;
        Some(Self { index, form, block_length, start, blocks, first: start + head.next_multiple_of(alignment) })
    }

    pub(super) fn start_of(&self, number: u64) -> u64 {
        self.first + number * self.block_length
    }

    /// The range of its blocks.
    pub(super) fn blocks(&self) -> Range<u64> {
        self.first..self.start_of(self.blocks)
    }

    /// The number of the block that contains an offset.
    pub(super) fn number_at(&self, offset: u64) -> Option<u64> {
        let number = offset.checked_sub(self.first)? / self.block_length;
        (number < self.blocks).then_some(number)
    }

    pub(super) fn bitmap_words(&self) -> u64 {
        self.blocks.div_ceil(WORD_BITS)
    }

    /// Offset of a word of the bitmap.
    pub(super) fn bitmap_word(&self, word: u64) -> u64 {
        self.start + WORD_LENGTH + word * WORD_LENGTH
    }

    /// The bits of a bitmap's word that stand for blocks.
    pub(super) fn blocks_of_word(&self, word: u64) -> u64 {
        match self.blocks - word * WORD_BITS {
            blocks if blocks >= WORD_BITS => u64::MAX,
            blocks => (1 << blocks) - 1,
        }
    }

    /// Offset of the block that a bit stands for.
    pub(super) fn block(&self, word: u64, bit: u32) -> u64 {
        self.start_of(word * WORD_BITS + u64::from(bit))
    }

    /// The bit of a block: number of its word, and mask.
    pub(super) fn bit(number: u64) -> (u64, u64) {
        (number / WORD_BITS, 1 << (number % WORD_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_in_their_chunk_behind_the_bitmap_and_waste_little() {
        for chunk_length in [4096, 8192, 1 << 16, 2 << 20] {
            for lines in (1..=64).chain([100, 1000, 30_000]) {
                let block_length = lines * LINE_LENGTH;
                let Some(chunk) = Chunk::new(0, 0, block_length, chunk_length) else {
                    assert!(
                        block_length > block_length_max(chunk_length, LINE_LENGTH),
                        "{block_length} of {chunk_length}"
                    );
                    continue;
                };
                assert!(chunk.blocks > 0, "{block_length} of {chunk_length}");
                assert!(chunk.bitmap_word(chunk.bitmap_words()) <= chunk.first, "{chunk:?}");
                let end = chunk.start_of(chunk.blocks);
                assert!(end <= chunk_length && chunk_length - end < block_length + 3 * LINE_LENGTH, "{chunk:?}");
                assert_eq!(chunk.number_at(end), None);
                assert_eq!(chunk.number_at(end - 1), Some(chunk.blocks - 1));
                let bits: u64 =
                    (0..chunk.bitmap_words()).map(|word| u64::from(chunk.blocks_of_word(word).count_ones())).sum();
                assert_eq!(bits, chunk.blocks);
            }
        }
    }

    #[test]
    fn aligned_blocks_begin_at_multiples_and_waste_little() {
        for (alignment, chunk_length) in [(256, 4096), (512, 1 << 16), (4096, 1 << 16), (4096, 2 << 20)] {
            for length in (1..20).map(|number| number * alignment) {
                let start = 2 * chunk_length;
                let Some(chunk) = Chunk::new(2, start, form(length, alignment), chunk_length) else {
                    assert!(length > block_length_max(chunk_length, alignment), "{length} of {chunk_length}");
                    continue;
                };
                assert!(chunk.blocks > 0 && chunk.block_length == length, "{chunk:?}");
                assert!((0..chunk.blocks).all(|number| chunk.start_of(number).is_multiple_of(alignment)), "{chunk:?}");
                assert!(chunk.bitmap_word(chunk.bitmap_words()) <= chunk.first, "{chunk:?}");
                let end = chunk.start_of(chunk.blocks) - start;
                assert!(end <= chunk_length && chunk_length - end < length + 3 * alignment, "{chunk:?}");
            }
        }
        for wrong in [form(256, 512), form(4096, 4096) + (1 << ALIGNMENT_SHIFT), u64::MAX << ALIGNMENT_SHIFT | 64] {
            assert!(Chunk::new(0, 0, wrong, 1 << 20).is_none(), "{wrong:#x}");
        }
    }

    #[test]
    fn lengths_that_no_chunk_has_are_refused() {
        for block_length in [0, 1, 63, 65, 4096, 1 << 40, u64::MAX] {
            assert!(Chunk::new(0, 0, block_length, 4096).is_none(), "{block_length}");
        }
    }
}
