//! Intents: what is about to be linked or unlinked, durably.

use std::collections::BTreeSet;

use super::chunk::Chunk;
use crate::pool::INTENTS;
use crate::{Backend, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};

/// Blocks that one intent can name.
pub const INTENT_BLOCKS: usize = 8;

/// Intents at a time.
pub(super) const SLOTS: usize = 32;

/// Bytes of the link and the block.
const ENTRY_LENGTH: u64 = 2 * WORD_LENGTH;

const SLOT_LENGTH: u64 = ENTRY_LENGTH * INTENT_BLOCKS as u64;

// The slots fill a page, and no entry lies across two lines.
const _: () = assert!(SLOT_LENGTH * SLOTS as u64 == 4096 && LINE_LENGTH.is_multiple_of(ENTRY_LENGTH));

const ANNOUNCE: Site = Site::new("allocator.announce");
const ACQUIRE: Site = Site::new("allocator.acquire");
const FREE: Site = Site::new("allocator.free");
const CLEAR: Site = Site::new("allocator.clear");

/// Blocks that change hands together.
///
/// A block is acquired for a word, its *link*, and released from one. When the intent ends (by
/// [`Intent::finish`] or by being dropped) or after a crash, each block that it names is acquired if its link
/// holds its offset, and free otherwise; a link in a block that is free counts as holding nothing. The low six bits
/// of a link are the structure's own. So whatever way an operation ends, no block is lost.
///
/// What the structure has to do:
/// 1. [`Intent::acquire`] blocks, and announce with [`Intent::release`] what is going to be unlinked;
/// 2. fill the blocks, flush them, and fence: that makes the acquisition durable too;
/// 3. store the links, and persist them;
/// 4. end the intent before another thread can change a link that it names, or unlink one of its blocks,
///    and, for a release, when no reader can be in the block any more.
#[derive(Debug)]
#[must_use]
pub struct Intent<'a, B: Backend> {
    pool: &'a Pool<B>,
    slot: usize,
    named: usize,
}

/// What an entry of an intent says.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where it is.
    place: u64,
    link: u64,
    chunk: Chunk,
    number: u64,
}

impl<'a, B: Backend> Intent<'a, B> {
    pub(super) fn new(pool: &'a Pool<B>) -> Self {
        Self { pool, slot: pool.allocator().take_slot(), named: 0 }
    }

    /// Acquires a block of at least `length` bytes, which will be linked by the word at `link`; its offset, which is
    /// a multiple of 64. The block holds anything. It is acquired durably after this thread's next fence.
    ///
    /// After the first persist a crash frees the block, whether its bit is set or not; so it stays until the link
    /// is stored.
    ///
    /// # Panics
    /// If the intent names [`INTENT_BLOCKS`] blocks already.
    pub fn acquire(&mut self, length: u64, link: u64) -> Result<u64> {
        self.check_room();
        let block_length = self.pool.block_length(length)?;
        self.pool.check_range(link, WORD_LENGTH)?;
        let block = self.pool.claim(block_length)?;
        let (chunk, number) = self.pool.locate(block)?;
        self.announce(block, link);
        let (word, bit) = Chunk::bit(number);
        let offset = chunk.bitmap_word(word);
        let backend = self.pool.backend();
        backend.fetch_or(offset, bit);
        backend.flush(offset..offset + WORD_LENGTH, ACQUIRE);
        Ok(block)
    }

    /// Announces that a block is going to be unlinked from the word at `link`, which holds its offset now.
    ///
    /// # Panics
    /// If the intent names [`INTENT_BLOCKS`] blocks already.
    pub fn release(&mut self, block: u64, link: u64) -> Result<()> {
        self.check_room();
        self.pool.check_range(link, WORD_LENGTH)?;
        self.pool.locate(block)?;
        self.announce(block, link);
        Ok(())
    }

    /// Ends the intent: frees what is not linked.
    pub fn finish(self) {}

    fn check_room(&self) {
        assert!(self.named < INTENT_BLOCKS, "an intent names up to {INTENT_BLOCKS} blocks");
    }

    /// Says durably how it is found out whom a block belongs to. In a line stores keep their order: the entry
    /// counts when its second word is there.
    fn announce(&mut self, block: u64, link: u64) {
        let place = entry_place(self.slot, self.named);
        let backend = self.pool.backend();
        backend.store(place, link);
        backend.store(place + WORD_LENGTH, block);
        backend.persist(place..place + ENTRY_LENGTH, ANNOUNCE);
        self.named += 1;
    }
}

impl<B: Backend> Drop for Intent<'_, B> {
    fn drop(&mut self) {
        // What was announced was checked, so this fails only if somebody has damaged the pool meanwhile. Then the
        // slot is kept back: the next opening finds the damage.
        let entries = (0..self.named).map(|number| entry_place(self.slot, number));
        if self.pool.settle(entries).is_ok() {
            self.pool.allocator().return_slot(self.slot);
        }
    }
}

impl<B: Backend> Pool<B> {
    /// Whether what a crash has left of intents makes sense.
    pub(crate) fn check_intents(&self) -> Result<()> {
        self.entries(all_places()).map(drop)
    }

    /// Settles what a crash has left of intents.
    pub(crate) fn recover_intents(&self) -> Result<()> {
        self.settle(all_places())
    }

    /// What intents say in these places.
    fn entries(&self, places: impl Iterator<Item = u64>) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for place in places {
            let (link, block) = (self.backend().load(place), self.backend().load(place + WORD_LENGTH));
            if block != 0 {
                self.check_range(link, WORD_LENGTH)?;
                let (chunk, number) = self.locate(block)?;
                entries.push(Entry { place, link, chunk, number });
            }
        }
        Ok(entries)
    }

    /// Frees the blocks named in these places that are not linked, and clears the places.
    ///
    /// First the bits become clear, then the entries, and then others get the blocks (A3). A crash after any step
    /// leaves entries that come to the same answer: a link that was dead stays dead, since the block that it lies
    /// in has its bit clear before any entry is.
    fn settle(&self, places: impl Iterator<Item = u64>) -> Result<()> {
        let backend = self.backend();
        let entries = self.entries(places)?;
        let (mut linked, mut dead) = self.split(entries.iter().copied())?;
        // While a bit is clear and its block still named, nobody may look for clear bits.
        let mut free = (!dead.is_empty()).then(|| self.allocator().free.lock());
        dead.iter().for_each(|entry| self.clear_bit(entry));
        // A block that is free now may hold the links of others.
        loop {
            let (still_linked, dead_with_them) = self.split(linked.into_iter())?;
            if dead_with_them.is_empty() {
                break;
            }
            dead_with_them.iter().for_each(|entry| self.clear_bit(entry));
            dead.extend(dead_with_them);
            linked = still_linked;
        }
        let bits: BTreeSet<u64> = dead.iter().map(|entry| line(entry.bit().0)).collect();
        for &bits_of_line in &bits {
            backend.flush(bits_of_line..bits_of_line + LINE_LENGTH, FREE);
        }
        if !dead.is_empty() {
            backend.fence(FREE);
        }
        for of_line in entries.chunk_by(|left, right| line(left.place) == line(right.place)) {
            of_line.iter().for_each(|entry| backend.store(entry.place + WORD_LENGTH, 0));
            backend.flush(of_line[0].place..of_line[0].place + WORD_LENGTH, CLEAR);
        }
        if !entries.is_empty() {
            backend.fence(CLEAR);
        }
        if let Some(free) = &mut free {
            dead.iter().for_each(|entry| free.give_back(&entry.chunk, entry.number));
        }
        Ok(())
    }

    /// Those that are linked, and those that are not.
    fn split(&self, entries: impl Iterator<Item = Entry>) -> Result<(Vec<Entry>, Vec<Entry>)> {
        let (mut linked, mut dead) = (Vec::new(), Vec::new());
        for entry in entries {
            if self.is_linked(&entry)? { linked.push(entry) } else { dead.push(entry) }
        }
        Ok((linked, dead))
    }

    /// Whether the link holds the block, and does not itself lie in a free one.
    fn is_linked(&self, entry: &Entry) -> Result<bool> {
        let is_live = match self.containing(entry.link)? {
            None => true,
            Some((chunk, number)) => {
                let (word, bit) = Chunk::bit(number);
                self.backend().load(chunk.bitmap_word(word)) & bit != 0
            }
        };
        let held = self.backend().load(entry.link) & !(LINE_LENGTH - 1);
        Ok(is_live && held == entry.chunk.start_of(entry.number))
    }

    fn clear_bit(&self, entry: &Entry) {
        let (offset, bit) = entry.bit();
        self.backend().fetch_and(offset, !bit);
    }
}

impl Entry {
    /// The block's bit: offset of its word, and mask.
    fn bit(&self) -> (u64, u64) {
        let (word, bit) = Chunk::bit(self.number);
        (self.chunk.bitmap_word(word), bit)
    }
}

/// Start of the line of an offset.
fn line(offset: u64) -> u64 {
    offset - offset % LINE_LENGTH
}

fn all_places() -> impl Iterator<Item = u64> {
    (0..SLOTS).flat_map(|slot| (0..INTENT_BLOCKS).map(move |number| entry_place(slot, number)))
}

fn entry_place(slot: usize, number: usize) -> u64 {
    INTENTS + slot as u64 * SLOT_LENGTH + number as u64 * ENTRY_LENGTH
}
