//! Allocation of blocks in chunks. No crash loses a block, and none is handed out twice.
//!
//! A chunk holds blocks of one form: a length, and what they are aligned to. Its first word is that
//! form, then comes a bitmap of acquired blocks. Before a block changes hands, an *intent* durably
//! names the word of the pool that links to it, or will. After a crash, the block is acquired if
//! and only if that word holds its offset. So the intents alone lead to blocks that were acquired
//! and not linked yet, or unlinked and not freed yet.
//!
//! Opening reads no chunk. Bitmaps are scanned when a block is asked for, one word at a time. Freed
//! blocks are kept in memory, by length. A chunk that becomes empty is found by the next session.
//!
//! Invariants:
//! - A1: the bit of a linked block is set, durably before the link.
//! - A2: a block whose bit is set is linked, or named by an intent.
//! - A3: a block that an intent names is handed out to nobody else. Its bit is cleared durably,
//!   then the intent, and only then can it be acquired again.
//! - A4: a chunk changes its form only while its bitmap is empty. Before that, the bitmap of the
//!   new form is durably empty.
//! - A5: a block of a retired intent is freed when no reader is left that can have reached it while
//!   it was linked. Until then the intent's entries say that it is free, whatever the links hold.
//!   If there are descriptors, it is given out only after the descriptors that may have words in it
//!   are forgotten (M9 of [`crate::pmwcas`]).

mod chunk;
mod free;
mod intent;
mod pages;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;

use terrane_storage::sync::{Mutex, RwLock};

use crate::pool::METADATA_LENGTH;
use crate::{Backend, Error, Guard, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};
use chunk::Chunk;
use free::Free;
pub use intent::{INTENT_BLOCKS, Intent};

/// The most retired intents that are ended together where time matters little.
const RECLAIMED_AT_ONCE: usize = 64;

const FORMAT_BITMAP: Site = Site::new("allocator.format.bitmap");
const FORMAT: Site = Site::new("allocator.format");

/// The part of the allocator that is in memory.
#[derive(Debug)]
pub(crate) struct Allocator {
    free: Mutex<Free>,
    /// Slots that no intent holds.
    slots: Mutex<Vec<u64>>,
    /// Descriptors that no operation holds.
    descriptors: Mutex<Vec<u64>>,
    /// Pages of descriptors that threads may meet, which are all of them after recovery. Pages
    /// stay.
    descriptor_pages: RwLock<BTreeSet<u64>>,
    /// Held while slots or descriptors are added. Its holder may wait for `settling` and for
    /// `free`.
    page_growth: Mutex<()>,
    /// Held while expired parts are settled. Its holder may wait for `free`, and for nothing else.
    settling: Mutex<()>,
}

impl Allocator {
    pub(crate) fn new() -> Self {
        Self {
            free: Mutex::default(),
            slots: Mutex::new(pages::first_slots()),
            descriptors: Mutex::default(),
            descriptor_pages: RwLock::default(),
            page_growth: Mutex::default(),
            settling: Mutex::default(),
        }
    }
}

impl<B: Backend> Pool<B> {
    /// Begins to acquire and release blocks. It never waits. It also ends a few retired intents
    /// whose readers have left.
    pub fn intent(&self) -> Intent<'_, B> {
        self.settle_some_expired();
        Intent::new(self)
    }

    /// Prevents the reuse of blocks that are retired while the guard lives. It is for readers, and
    /// for writers that retire blocks. A thread may have several at a time. It does not access the
    /// pool.
    ///
    /// Use a guard for one operation only. Each intent that waits for it takes 128 bytes of the
    /// pool; these are kept for later intents, and each opening reads them.
    pub fn pin(&self) -> Guard<'_> {
        self.epochs.enter()
    }

    /// Ends every retired intent, of any thread, that no guard keeps. Gives how many these were,
    /// including descriptors. It waits for a thread that ends some at the same time.
    ///
    /// Use it to free blocks at once: otherwise a thread looks for guards only after a few
    /// retirements, or where slots run short. If more than a few threads have guards, some intents
    /// may be left to later calls.
    pub fn reclaim(&self) -> Result<usize> {
        self.pin().expedite();
        self.settle_all_expired()
    }

    pub(crate) fn settle_all_expired(&self) -> Result<usize> {
        let mut all = 0;
        loop {
            match self.settle_expired(RECLAIMED_AT_ONCE)? {
                0 => return Ok(all),
                settled => all += settled,
            }
        }
    }

    /// The longest block that can be acquired.
    pub fn block_length_max(&self) -> u64 {
        chunk::block_length_max(self.chunk_length(), LINE_LENGTH)
    }

    /// Calls `visit` with offset and length of each acquired block, in ascending order. Blocks that
    /// the pool has acquired for itself are left out. It is for checks, as it reads every chunk's
    /// bitmap. It includes retired blocks, and may include blocks that other threads acquire or
    /// release meanwhile.
    pub fn visit_blocks(&self, visit: impl FnMut(u64, u64)) -> Result<()> {
        self.visit_blocks_in(0..self.length(), visit)
    }

    /// Does the same for the blocks that begin in a range of offsets, so that several threads can
    /// visit a part each.
    pub fn visit_blocks_in(&self, offsets: Range<u64>, mut visit: impl FnMut(u64, u64)) -> Result<()> {
        let own = self.own_blocks()?;
        let chunk_of = |offset: u64| offset.saturating_sub(METADATA_LENGTH) / self.chunk_length();
        let end = offsets.end.min(self.length());
        let chunks = if offsets.start < end { chunk_of(offsets.start)..chunk_of(end - 1) + 1 } else { 0..0 };
        for index in chunks.start..chunks.end.min(self.chunks()) {
            let Some(chunk) = self.chunk(index)? else { continue };
            for word in 0..chunk.bitmap_words() {
                let mut acquired = self.backend().load(chunk.bitmap_word(word)) & chunk.blocks_of_word(word);
                while acquired != 0 {
                    let block = chunk.block(word, acquired.trailing_zeros());
                    acquired &= acquired - 1;
                    if offsets.contains(&block) && !own.contains(&block) {
                        visit(block, chunk.block_length);
                    }
                }
            }
        }
        Ok(())
    }

    /// Frees every acquired block that is not among `reached`, and gives their number. Blocks that
    /// the pool has acquired for itself stay.
    ///
    /// It is for the recovery of a structure whose blocks are owned by being reachable, before
    /// another thread uses the pool. It flushes nothing: a crash may bring such a block back, and
    /// the next recovery frees it again.
    pub fn free_unreached(&mut self, reached: &BTreeSet<u64>) -> Result<u64> {
        let mut unreached = Vec::new();
        self.visit_blocks(|block, _| {
            if !reached.contains(&block) {
                unreached.push(block);
            }
        })?;
        let mut free = self.allocator().free.lock();
        for &block in &unreached {
            let (chunk, number) = self.locate(block)?;
            let (word, bit) = Chunk::bit(number);
            self.backend().fetch_and(chunk.bitmap_word(word), !bit);
            free.give_back_after(0, chunk, number);
        }
        Ok(unreached.len() as u64)
    }

    fn chunks(&self) -> u64 {
        (self.length() - METADATA_LENGTH) / self.chunk_length()
    }

    fn chunk_start(&self, index: u64) -> u64 {
        METADATA_LENGTH + index * self.chunk_length()
    }

    /// A chunk as its head describes it; `None` if it has no blocks yet.
    fn chunk(&self, index: u64) -> Result<Option<Chunk>> {
        let start = self.chunk_start(index);
        let form = self.backend().load(start);
        if form == 0 {
            return Ok(None);
        }
        Chunk::new(index, start, form, self.chunk_length()).map(Some).ok_or_else(|| Error::Damaged {
            pool: self.name().to_owned(),
            offset: start,
            reason: format!("a chunk's head states impossible blocks ({form:#x})"),
        })
    }

    /// The chunk and number of the block that begins at an offset.
    fn locate(&self, block: u64) -> Result<(Chunk, u64)> {
        let found = self.containing(block)?.filter(|(chunk, number)| chunk.start_of(*number) == block);
        found.ok_or_else(|| Error::Damaged {
            pool: self.name().to_owned(),
            offset: block,
            reason: "the pool or the program refers to a block there, and none begins there".to_owned(),
        })
    }

    /// Checks that a block begins at an offset that was read from the pool, and gives its length.
    pub fn check_block(&self, block: u64) -> Result<u64> {
        Ok(self.locate(block)?.0.block_length)
    }

    /// Whether the block that begins at an offset is acquired; an error where none begins.
    pub fn is_acquired(&self, block: u64) -> Result<bool> {
        let (chunk, number) = self.locate(block)?;
        let (word, bit) = Chunk::bit(number);
        Ok(self.backend().load(chunk.bitmap_word(word)) & bit != 0)
    }

    /// The chunk and number of the block that contains an offset, if there is one.
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

    /// Takes a free block of this form for the caller alone.
    fn claim(&self, form: u64) -> Result<u64> {
        let mut free = self.allocator().free.lock();
        loop {
            if let Some(block) = free.take(self.backend(), form) {
                return Ok(block);
            }
            if !free.scan_next(self.backend(), self.chunks(), |index| self.chunk(index))? {
                let index = match free.take_empty() {
                    Some(index) => index,
                    None => {
                        self.grow()?;
                        free.note_grown()
                    }
                };
                free.add(self.format(index, form)?);
            }
        }
    }

    /// Divides an empty chunk into blocks of a form.
    ///
    /// After the first persist the chunk has its old form, and an empty bitmap of either form
    /// (A4). After the second it has its new blocks. A crash in between leaves it empty.
    fn format(&self, index: u64, form: u64) -> Result<Chunk> {
        let start = self.chunk_start(index);
        let chunk =
            Chunk::new(index, start, form, self.chunk_length()).ok_or_else(|| self.too_long(form, LINE_LENGTH))?;
        let mut is_changed = false;
        for word in 0..chunk.bitmap_words() {
            let offset = chunk.bitmap_word(word);
            if self.backend().load(offset) != 0 {
                self.backend().store(offset, 0);
                is_changed = true;
            }
        }
        if is_changed {
            self.backend().persist(start..chunk.start_of(0), FORMAT_BITMAP);
        }
        self.backend().store(start, form);
        self.backend().persist(start..start + WORD_LENGTH, FORMAT);
        Ok(chunk)
    }

    fn too_long(&self, wanted: u64, alignment: u64) -> Error {
        let longest = chunk::block_length_max(self.chunk_length(), alignment);
        Error::BlockLength { pool: self.name().to_owned(), wanted, longest }
    }

    /// Returns [`Error::BlockLength`] if no block of this pool can hold this number of bytes.
    pub fn check_block_length(&self, length: u64) -> Result<()> {
        self.block_form(length, LINE_LENGTH).map(drop)
    }

    /// The form of the blocks that hold this number of bytes, and begin at multiples of
    /// `alignment`.
    pub(crate) fn block_form(&self, length: u64, alignment: u64) -> Result<u64> {
        if !chunk::is_alignment(alignment) {
            let most = chunk::ALIGNMENT_MAX;
            let reason = format!(
                "blocks cannot be aligned to {alignment} bytes; use a power of two from {LINE_LENGTH} to {most}"
            );
            return Err(Error::Unsuitable { pool: self.name().to_owned(), reason });
        }
        let most = chunk::block_length_max(self.chunk_length(), alignment);
        match length.checked_next_multiple_of(alignment) {
            Some(block_length) if (alignment..=most).contains(&block_length) => {
                Ok(chunk::form(block_length, alignment))
            }
            _ => Err(self.too_long(length, alignment)),
        }
    }
}
