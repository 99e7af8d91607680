//! Which blocks are free, as far as it has been looked up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::chunk::Chunk;
use crate::{Backend, Result};

/// Free blocks by length, and the chunks and words of bitmaps that have not been looked at.
///
/// A block is free to be taken if it is listed, or if its bit is clear in a word that has not been
/// looked at: never both. One that is held is neither, although its bit is clear.
#[derive(Debug, Default)]
pub(super) struct Free {
    /// Number of chunks, from the first, that have been looked at.
    seen: u64,
    /// Chunks that had no acquired block when they were looked at, and have no length since.
    empty: Vec<u64>,
    lengths: BTreeMap<u64, Blocks>,
    /// Blocks that are given out only when so many have left the queue of what is retired (E5), the
    /// first to come first.
    held: VecDeque<(u64, Chunk, u64)>,
    /// Where these begin.
    held_blocks: BTreeSet<u64>,
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
    pub(super) fn take(&mut self, backend: &impl Backend, block_length: u64) -> Option<u64> {
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
            let mut free = !backend.load(chunk.bitmap_word(word)) & chunk.blocks_of_word(word);
            while free != 0 {
                let highest = u64::BITS - 1 - free.leading_zeros();
                let block = chunk.block(word, highest);
                if !self.held_blocks.contains(&block) {
                    blocks.listed.push(block);
                }
                free &= !(1 << highest);
            }
        }
    }

    /// Looks at the next of `chunks`; `false` if there is none. `chunk_at` gives the chunk of a
    /// number, if it has blocks.
    pub(super) fn look_at_next(
        &mut self,
        backend: &impl Backend,
        chunks: u64,
        chunk_at: impl FnOnce(u64) -> Result<Option<Chunk>>,
    ) -> Result<bool> {
        if self.seen == chunks {
            return Ok(false);
        }
        let index = self.seen;
        match chunk_at(index)? {
            Some(chunk)
                if self.holds_some_of(&chunk)
                    || (0..chunk.bitmap_words()).any(|word| backend.load(chunk.bitmap_word(word)) != 0) =>
            {
                self.add(chunk);
            }
            // Nothing of it is handed out: only chunks that have been looked at give blocks.
            Some(_) | None => self.empty.push(index),
        }
        self.seen += 1;
        Ok(true)
    }

    fn holds_some_of(&self, chunk: &Chunk) -> bool {
        self.held_blocks.range(chunk.blocks()).next().is_some()
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

    /// Takes a block back whose bit has been cleared, when so many have left the queue of what is
    /// retired; with 0, now.
    pub(super) fn give_back_after(&mut self, wait_for: u64, chunk: Chunk, number: u64) {
        if wait_for == 0 {
            self.give_back(&chunk, number);
        } else {
            self.held.push_back((wait_for, chunk, number));
            self.held_blocks.insert(chunk.start_of(number));
        }
    }

    /// Takes back what was held until so many have left the queue.
    pub(super) fn note_left(&mut self, left: u64) {
        while let Some((_, chunk, number)) = self.held.pop_front_if(|(wait_for, ..)| *wait_for <= left) {
            self.held_blocks.remove(&chunk.start_of(number));
            self.give_back(&chunk, number);
        }
    }

    /// Takes a block back whose bit has been cleared, unless it will be found by that.
    fn give_back(&mut self, chunk: &Chunk, number: u64) {
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
