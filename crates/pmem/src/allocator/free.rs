//! Which blocks are free, as far as it has been looked up.

use std::collections::BTreeMap;

use super::chunk::Chunk;
use crate::{Backend, Pool, Result};

/// Free blocks by length, and the chunks and words of bitmaps that have not been looked at.
///
/// A block is free to be taken if it is listed, or if its bit is clear in a word that has not been looked at:
/// never both.
#[derive(Debug, Default)]
pub(super) struct Free {
    /// Number of chunks, from the first, that have been looked at.
    seen: u64,
    /// Chunks that had no acquired block when they were looked at, and have no length since.
    empty: Vec<u64>,
    lengths: BTreeMap<u64, Blocks>,
}

/// What is free of one length.
#[derive(Debug, Default)]
struct Blocks {
    listed: Vec<u64>,
    /// The chunk whose bitmap is being looked at, and the next word of it.
    cursor: Option<(Chunk, u64)>,
    /// Chunks whose bitmap has not been looked at.
    waiting: BTreeMap<u64, Chunk>,
}

impl Free {
    /// A block of a length, if one is known or can be found in the bitmaps at hand.
    pub(super) fn take<B: Backend>(&mut self, pool: &Pool<B>, block_length: u64) -> Option<u64> {
        let blocks = self.lengths.get_mut(&block_length)?;
        loop {
            if let Some(block) = blocks.listed.pop() {
                return Some(block);
            }
            let (chunk, word) = match blocks.cursor.take() {
                Some(cursor) => cursor,
                None => (blocks.waiting.pop_first()?.1, 0),
            };
            if word == chunk.bitmap_words() {
                continue;
            }
            blocks.cursor = Some((chunk, word + 1));
            let mut free = !pool.backend().load(chunk.bitmap_word(word)) & chunk.blocks_of_word(word);
            while free != 0 {
                let highest = u64::BITS - 1 - free.leading_zeros();
                blocks.listed.push(chunk.block(word, highest));
                free &= !(1 << highest);
            }
        }
    }

    /// Looks at the next chunk; `false` if there is none.
    pub(super) fn look_at_next<B: Backend>(&mut self, pool: &Pool<B>) -> Result<bool> {
        if self.seen == pool.chunks() {
            return Ok(false);
        }
        let index = self.seen;
        match pool.chunk(index)? {
            Some(chunk) if (0..chunk.bitmap_words()).any(|word| pool.backend().load(chunk.bitmap_word(word)) != 0) => {
                self.add(chunk);
            }
            // Nothing of it is handed out: only chunks that have been looked at give blocks.
            Some(_) | None => self.empty.push(index),
        }
        self.seen += 1;
        Ok(true)
    }

    /// Counts the newest chunk as looked at; its number.
    pub(super) fn note_grown(&mut self) -> u64 {
        self.seen += 1;
        self.seen - 1
    }

    pub(super) fn take_empty(&mut self) -> Option<u64> {
        self.empty.pop()
    }

    /// Takes blocks from a chunk from now on.
    pub(super) fn add(&mut self, chunk: Chunk) {
        self.lengths.entry(chunk.block_length).or_default().waiting.insert(chunk.index, chunk);
    }

    /// Takes a block back whose bit has been cleared, unless it will be found by that.
    pub(super) fn give_back(&mut self, chunk: &Chunk, number: u64) {
        if chunk.index >= self.seen {
            return;
        }
        let blocks = self.lengths.entry(chunk.block_length).or_default();
        let (word, _) = Chunk::bit(number);
        let is_ahead = blocks.cursor.as_ref().is_some_and(|(at, next)| at.index == chunk.index && word >= *next);
        if !is_ahead && !blocks.waiting.contains_key(&chunk.index) {
            blocks.listed.push(chunk.start_of(number));
        }
    }
}
