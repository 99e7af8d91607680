//! Values of maps: up to 15 bytes lie in their slot, longer ones in a block of their own.

use terrane_pmem::{Backend, LINE_LENGTH, Pool, Site, WORD_LENGTH};

use super::VALUE_LENGTH_MAX;
use crate::blocks::damaged;
use crate::{Error, Result, blocks};

/// Words of a slot for a value. The highest byte of the second one is the length of the bytes
/// before it, or says that they lie in a block.
pub(super) type Slot = [u64; 2];

const TAG_SHIFT: u32 = 56;
const IN_BLOCK: u64 = 0xff;
/// The most bytes in a slot.
pub(super) const INLINE_MAX: usize = 15;

const FILL: Site = Site::new("map.value.fill");

/// The slot of a short value.
pub(super) fn inline(value: &[u8]) -> Option<Slot> {
    let length = Some(value.len()).filter(|length| *length <= INLINE_MAX)?;
    let mut bytes = [0; 16];
    bytes[..length].copy_from_slice(value);
    bytes[INLINE_MAX] = length as u8;
    let (first, second) = bytes.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Some([word(first), word(second)])
}

/// The slot of a value in a block.
pub(super) fn in_block(block: u64, length: usize) -> Slot {
    [block, IN_BLOCK << TAG_SHIFT | length as u64]
}

/// The block that a slot leads to, and the length of its value.
pub(super) fn block_of(slot: &Slot) -> Option<(u64, usize)> {
    let is_in_block = slot[1] >> TAG_SHIFT == IN_BLOCK;
    is_in_block.then_some((slot[0], (slot[1] & ((1 << TAG_SHIFT) - 1)) as usize))
}

/// Bytes of the block for a value of this length: a power of two, or one and a half. So the pool
/// has few lengths of blocks, as each takes chunks of its own.
pub(super) fn block_length(length: usize) -> u64 {
    let length = (length as u64).max(LINE_LENGTH);
    let power = length.next_power_of_two();
    let between = power / 4 * 3;
    if between >= length && between.is_multiple_of(LINE_LENGTH) { between } else { power }
}

/// Checks the block of a value that is to be freed. Gives its offset.
pub(super) fn check_block<B: Backend>(pool: &Pool<B>, (block, length): (u64, usize)) -> Result<u64> {
    if length > VALUE_LENGTH_MAX {
        return Err(damaged(pool, block, format!("a value states {length} bytes")));
    }
    blocks::check_own(pool, block, block_length(length))?;
    Ok(block)
}

pub(super) fn check_length(value: &[u8]) -> Result<()> {
    match value.len() {
        0..=VALUE_LENGTH_MAX => Ok(()),
        length => Err(Error::ValueTooLong { length, most: VALUE_LENGTH_MAX }),
    }
}

/// Writes a value to its block, and flushes it.
pub(super) fn fill<B: Backend>(backend: &B, block: u64, value: &[u8]) {
    for (offset, bytes) in (block..).step_by(WORD_LENGTH as usize).zip(value.chunks(WORD_LENGTH as usize)) {
        let mut word = [0; WORD_LENGTH as usize];
        word[..bytes.len()].copy_from_slice(bytes);
        backend.store(offset, u64::from_le_bytes(word));
    }
    backend.flush(block..block + (value.len() as u64).next_multiple_of(WORD_LENGTH), FILL);
}

/// The value of a slot. The caller has pinned the pool since before it has read the slot.
pub(super) fn read<B: Backend>(pool: &Pool<B>, slot: &Slot) -> Result<Vec<u8>> {
    if let Some((block, length)) = block_of(slot) {
        if length > VALUE_LENGTH_MAX {
            return Err(damaged(pool, block, format!("a value states {length} bytes")));
        }
        let end = (length as u64).next_multiple_of(WORD_LENGTH);
        pool.check_range(block, end)?;
        let words = (block..block + end).step_by(WORD_LENGTH as usize);
        let mut value: Vec<u8> = words.flat_map(|offset| pool.backend().load(offset).to_le_bytes()).collect();
        value.truncate(length);
        return Ok(value);
    }
    let length = (slot[1] >> TAG_SHIFT) as usize;
    let mut value: Vec<u8> = slot.iter().flat_map(|word| word.to_le_bytes()).collect();
    if length > INLINE_MAX {
        return Err(damaged(pool, 0, format!("a value in its slot states {length} bytes")));
    }
    value.truncate(length);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_their_values_in_few_lengths() {
        let lengths: Vec<u64> = (0..=VALUE_LENGTH_MAX).map(block_length).collect();
        assert!(lengths.iter().zip(0..).all(|(block, length)| *block >= length && block.is_multiple_of(LINE_LENGTH)));
        let mut distinct = lengths.clone();
        distinct.dedup();
        assert!(distinct.is_sorted() && distinct.len() < 24, "{distinct:?}");
        assert_eq!(
            (block_length(16), block_length(129), block_length(193), block_length(65_536)),
            (64, 192, 256, 65_536)
        );
    }
}
