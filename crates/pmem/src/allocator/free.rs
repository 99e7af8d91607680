//! The free blocks that are known so far.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::chunk::Chunk;
use crate::{Backend, Result};

/// Free blocks by length, and the chunks and bitmap words that have not been scanned.
///
/// A block can be taken if it is listed, or if its bit is clear in a word that was not scanned yet.
/// Never both hold. A deferred block is neither, although its bit is clear.
#[derive(Debug, Default)]
pub(super) struct Free {
    /// Number of chunks, from the first, that have been scanned.
    scanned: u64,
    /// Chunks without acquired blocks when they were scanned, and without a length since.
    empty: Vec<u64>,
    forms: BTreeMap<u64, Blocks>,
    /// Deferred blocks, oldest first. Each is given out when this number of parts has left the
    /// queue of retired parts (E5).
    deferred: VecDeque<(u64, Chunk, u64)>,
    /// Where the deferred blocks begin.
    deferred_blocks: BTreeSet<u64>,
}

/// The free blocks of one form.
#[derive(Debug, Default)]
struct Blocks {
    listed: Vec<u64>,
    /// The chunk whose bitmap is being scanned, and its next word.
    cursor: Option<(Chunk, u64)>,
    /// Chunks whose bitmap has not been scanned.
    waiting: BTreeMap<u64, Chunk>,
}

impl Free {
    /// A block of a form, if one is listed or found in the bitmaps of known chunks.
    pub(super) fn take(&mut self, backend: &impl Backend, form: u64) -> Option<u64> {
        let blocks = self.forms.get_mut(&form)?;
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
                if !self.deferred_blocks.contains(&block) {
                    blocks.listed.push(block);
                }
                free &= !(1 << highest);
            }
        }
    }

    /// Scans the head of the next of `chunks`; `false` if there is none. `chunk_at` gives the chunk
    /// of a number, if it has blocks.
    pub(super) fn scan_next(
        &mut self,
        backend: &impl Backend,
        chunks: u64,
        chunk_at: impl FnOnce(u64) -> Result<Option<Chunk>>,
    ) -> Result<bool> {
        if self.scanned == chunks {
            return Ok(false);
        }
        let index = self.scanned;
        match chunk_at(index)? {
            Some(chunk)
                if self.holds_some_of(&chunk)
                    || (0..chunk.bitmap_words()).any(|word| backend.load(chunk.bitmap_word(word)) != 0) =>
            {
                self.add(chunk);
            }
            // Nothing of it is handed out: only scanned chunks give blocks.
            Some(_) | None => self.empty.push(index),
        }
        self.scanned += 1;
        Ok(true)
    }

    fn holds_some_of(&self, chunk: &Chunk) -> bool {
        self.deferred_blocks.range(chunk.blocks()).next().is_some()
    }

    /// Counts the newest chunk as scanned, and gives its number.
    pub(super) fn note_grown(&mut self) -> u64 {
        self.scanned += 1;
        self.scanned - 1
    }

    pub(super) fn take_empty(&mut self) -> Option<u64> {
        self.empty.pop()
    }

    /// Takes blocks from a chunk from now on.
    pub(super) fn add(&mut self, chunk: Chunk) {
        self.forms.entry(chunk.form).or_default().waiting.insert(chunk.index, chunk);
    }

    /// Takes back a block whose bit has been cleared, once `wait_for` parts have left the queue of
    /// retired parts; with 0, now.
    pub(super) fn give_back_after(&mut self, wait_for: u64, chunk: Chunk, number: u64) {
        if wait_for == 0 {
            self.give_back(&chunk, number);
        } else {
            self.deferred.push_back((wait_for, chunk, number));
            self.deferred_blocks.insert(chunk.start_of(number));
        }
    }

    /// Takes back the blocks that were deferred until `left` parts have left the queue.
    pub(super) fn note_left(&mut self, left: u64) {
        while let Some((_, chunk, number)) = self.deferred.pop_front_if(|(wait_for, ..)| *wait_for <= left) {
            self.deferred_blocks.remove(&chunk.start_of(number));
            self.give_back(&chunk, number);
        }
    }

    /// Takes back a block whose bit has been cleared, unless a later scan will find it.
    fn give_back(&mut self, chunk: &Chunk, number: u64) {
        if chunk.index >= self.scanned {
            return;
        }
        let blocks = self.forms.entry(chunk.form).or_default();
        let (word, _) = Chunk::bit(number);
        let is_ahead = blocks.cursor.as_ref().is_some_and(|(at, next)| at.index == chunk.index && word >= *next);
        if !is_ahead && !blocks.waiting.contains_key(&chunk.index) {
            blocks.listed.push(chunk.start_of(number));
        }
    }
}
