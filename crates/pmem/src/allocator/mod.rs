//! Blocks of chunks, which no crash loses and none hands out twice.
//!
//! A chunk holds blocks of one length: its first word is that length, then comes a bitmap of the blocks that
//! are acquired. Before a block changes hands, an *intent* says durably which word of the pool links to it, or
//! will: after a crash the block is acquired if and only if that word holds its offset. So what was acquired and
//! not yet linked, and what was unlinked and not yet freed, is found among the intents alone.
//!
//! Invariants:
//! - A1: a block that a structure links to has its bit set, durably before the link is.
//! - A2: a block whose bit is set is linked to, or named by an intent.
//! - A3: a block that an intent names is handed out to nobody else: its bit is cleared durably, then the
//!   intent, and only then can it be acquired again.
//! - A4: a chunk changes its block length only while its bitmap is empty, and has an empty bitmap of the new length
//!   durably before that.
//!
//! Nothing is read of the chunks when a pool is opened. What is free is looked up in a bitmap when a block is asked
//! for, one word at a time, and freed blocks are kept in memory.

mod chunk;
mod free;
mod intent;
#[cfg(test)]
mod tests;

use parking_lot::{Condvar, Mutex};

use crate::pool::METADATA_LENGTH;
use crate::{Backend, Error, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};
use chunk::Chunk;
use free::Free;
use intent::SLOTS;
pub use intent::{INTENT_BLOCKS, Intent};

const FORMAT: Site = Site::new("allocator.format");

/// What of the allocator is in memory.
#[derive(Debug)]
pub(crate) struct Allocator {
    free: Mutex<Free>,
    /// Numbers of the slots that no intent holds.
    slots: Mutex<Vec<usize>>,
    slot_returned: Condvar,
}

impl Allocator {
    pub(crate) fn new() -> Self {
        Self { free: Mutex::default(), slots: Mutex::new((0..SLOTS).rev().collect()), slot_returned: Condvar::new() }
    }

    /// Waits for a slot. Who holds one waits for nothing but the pool, so it comes back.
    fn take_slot(&self) -> usize {
        let mut slots = self.slots.lock();
        loop {
            match slots.pop() {
                Some(slot) => return slot,
                None => self.slot_returned.wait(&mut slots),
            }
        }
    }

    fn return_slot(&self, slot: usize) {
        self.slots.lock().push(slot);
        self.slot_returned.notify_one();
    }
}

impl<B: Backend> Pool<B> {
    /// Begins to acquire and release blocks; waits while very many threads do.
    pub fn intent(&self) -> Intent<'_, B> {
        Intent::new(self)
    }

    /// The longest block that can be acquired.
    pub fn block_length_max(&self) -> u64 {
        chunk::block_length_max(self.chunk_length())
    }

    /// Calls `visit` with offset and length of each acquired block, in ascending order. For checks: it reads every
    /// chunk's bitmap, and tells of blocks that are on their way if other threads acquire and release meanwhile.
    pub fn visit_blocks(&self, mut visit: impl FnMut(u64, u64)) -> Result<()> {
        for index in 0..self.chunks() {
            let Some(chunk) = self.chunk(index)? else { continue };
            for word in 0..chunk.bitmap_words() {
                let mut acquired = self.backend().load(chunk.bitmap_word(word)) & chunk.blocks_of_word(word);
                while acquired != 0 {
                    visit(chunk.block(word, acquired.trailing_zeros()), chunk.block_length);
                    acquired &= acquired - 1;
                }
            }
        }
        Ok(())
    }

    fn chunks(&self) -> u64 {
        (self.length() - METADATA_LENGTH) / self.chunk_length()
    }

    fn chunk_start(&self, index: u64) -> u64 {
        METADATA_LENGTH + index * self.chunk_length()
    }

    /// A chunk as it says it is; `None` if it has no blocks yet.
    fn chunk(&self, index: u64) -> Result<Option<Chunk>> {
        let start = self.chunk_start(index);
        let block_length = self.backend().load(start);
        if block_length == 0 {
            return Ok(None);
        }
        Chunk::new(index, start, block_length, self.chunk_length()).map(Some).ok_or_else(|| Error::Damaged {
            pool: self.name().to_owned(),
            offset: start,
            reason: format!("a chunk is said to have blocks of {block_length} bytes"),
        })
    }

    /// The chunk and place of the block that begins at an offset.
    fn locate(&self, block: u64) -> Result<(Chunk, u64)> {
        let found = self.containing(block)?.filter(|(chunk, number)| chunk.start_of(*number) == block);
        found.ok_or_else(|| Error::Damaged {
            pool: self.name().to_owned(),
            offset: block,
            reason: "a block is said to begin there, and none does".to_owned(),
        })
    }

    /// The chunk and place of the block in which an offset lies, if it lies in one.
    fn containing(&self, offset: u64) -> Result<Option<(Chunk, u64)>> {
        let Some(index) = offset.checked_sub(METADATA_LENGTH).map(|place| place / self.chunk_length()) else {
            return Ok(None);
        };
        if index >= self.chunks() {
            return Ok(None);
        }
        let chunk = self.chunk(index)?;
        Ok(chunk.and_then(|chunk| Some((chunk, chunk.number_at(offset)?))))
    }

    /// A free block of this length, which nobody else gets.
    fn claim(&self, block_length: u64) -> Result<u64> {
        let mut free = self.allocator().free.lock();
        loop {
            if let Some(block) = free.take(self, block_length) {
                return Ok(block);
            }
            if !free.look_at_next(self)? {
                let index = match free.take_empty() {
                    Some(index) => index,
                    None => {
                        self.grow()?;
                        free.note_grown()
                    }
                };
                free.add(self.format(index, block_length)?);
            }
        }
    }

    /// Divides an empty chunk into blocks of a length.
    ///
    /// After the first persist the chunk is as it was, with an empty bitmap either way (A4); after the second
    /// it has its blocks. A crash in between leaves it empty.
    fn format(&self, index: u64, block_length: u64) -> Result<Chunk> {
        let start = self.chunk_start(index);
        let chunk =
            Chunk::new(index, start, block_length, self.chunk_length()).ok_or_else(|| self.too_long(block_length))?;
        let mut is_changed = false;
        for word in 0..chunk.bitmap_words() {
            let offset = chunk.bitmap_word(word);
            if self.backend().load(offset) != 0 {
                self.backend().store(offset, 0);
                is_changed = true;
            }
        }
        if is_changed {
            self.backend().persist(start..chunk.start_of(0), FORMAT);
        }
        self.backend().store(start, block_length);
        self.backend().persist(start..start + WORD_LENGTH, FORMAT);
        Ok(chunk)
    }

    fn too_long(&self, block_length: u64) -> Error {
        Error::BlockLength { pool: self.name().to_owned(), wanted: block_length, longest: self.block_length_max() }
    }

    /// The length of the blocks that hold so many bytes.
    fn block_length(&self, length: u64) -> Result<u64> {
        match length.checked_next_multiple_of(LINE_LENGTH) {
            Some(block_length) if (LINE_LENGTH..=self.block_length_max()).contains(&block_length) => Ok(block_length),
            _ => Err(self.too_long(length)),
        }
    }
}
