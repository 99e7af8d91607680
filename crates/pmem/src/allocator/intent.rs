//! Intents: durable notes of the blocks that are about to be linked or unlinked.

use std::collections::BTreeSet;

use super::chunk::Chunk;
use super::pages::entry_offsets;
use super::pages::{DESCRIPTORS, SLOTS};
use crate::epoch::{Expired, Retired};
use crate::pmwcas::FLAGS;
use crate::{Backend, Error, Guard, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};

/// Blocks that one intent can name.
pub const INTENT_BLOCKS: usize = 8;

/// Bytes of the link and the block.
pub(super) const ENTRY_LENGTH: u64 = 2 * WORD_LENGTH;

/// In place of the link: the block is free, whatever any link holds.
const UNLINKED: u64 = 0;

/// The most retired intents that a new one ends.
const EXPIRED_AT_ONCE: usize = 4;

const ANNOUNCE: Site = Site::new("allocator.announce");
const ACQUIRE: Site = Site::new("allocator.acquire");
const FREE: Site = Site::new("allocator.free");
const RETIRE: Site = Site::new("allocator.retire");
const CLEAR: Site = Site::new("allocator.clear");

/// Blocks that change hands together.
///
/// A block is acquired for a word, its *link*, and released from one. An intent ends by
/// [`Intent::finish`], by [`Intent::retire`], by being dropped, or by a crash. Then each block that
/// it names is acquired if its link holds its offset, and free otherwise. A link in a free block
/// counts as holding nothing. The low six bits of a link are the structure's own, and
/// [`crate::pmwcas::FLAGS`] are not part of it either. So no block is lost, however an operation
/// ends.
///
/// A link must be a word that no multi-word compare-and-swap changes ([`crate::pmwcas`] says why,
/// and what to do there).
///
/// The structure has to:
/// 1. acquire blocks ([`Intent::acquire`]), and announce the blocks to be unlinked
///    ([`Intent::release`]);
/// 2. fill the blocks, flush them, and fence, which makes the acquisition durable too;
/// 3. store the links, and persist them;
/// 4. end the intent before another thread can change a link that it names, or unlink one of its
///    blocks. If readers can be in an unlinked block, it retires the intent, else it finishes it.
#[derive(Debug)]
#[must_use]
pub struct Intent<'a, B: Backend> {
    pool: &'a Pool<B>,
    /// Taken when the first block is named.
    slot: Option<u64>,
    named: usize,
}

/// An entry of an intent.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its offset.
    offset: u64,
    link: u64,
    chunk: Chunk,
    number: u64,
}

impl<'a, B: Backend> Intent<'a, B> {
    pub(super) fn new(pool: &'a Pool<B>) -> Self {
        Self { pool, slot: None, named: 0 }
    }

    pub(super) fn in_slot(pool: &'a Pool<B>, slot: u64) -> Self {
        Self { pool, slot: Some(slot), named: 0 }
    }

    /// Acquires a block of at least `length` bytes, which the word at `link` will link. Gives its
    /// offset, a multiple of 64. The contents of the block are arbitrary. It is acquired durably
    /// after this thread's next fence.
    ///
    /// A chunk gives blocks of one length. If all its blocks become free, it serves another length
    /// only after the pool is opened again. Until then the pool may grow, or report a full disk,
    /// although an empty chunk exists.
    ///
    /// Blocks that were released last are not searched for either. After an error about a full
    /// disk, [`Pool::reclaim`] finds them, if the caller has no guard.
    ///
    /// After the first persist a crash frees the block, whether its bit is set or not, until the
    /// link is stored.
    ///
    /// # Panics
    /// If the intent names [`INTENT_BLOCKS`] blocks already.
    pub fn acquire(&mut self, length: u64, link: u64) -> Result<u64> {
        self.acquire_aligned(length, LINE_LENGTH, link)
    }

    /// Does the same for a block whose offset is a multiple of `alignment`: a power of two from 64
    /// to 4096. Its length is a multiple of that, too. A chunk gives blocks of one alignment.
    ///
    /// # Panics
    /// If the intent names [`INTENT_BLOCKS`] blocks already.
    pub fn acquire_aligned(&mut self, length: u64, alignment: u64, link: u64) -> Result<u64> {
        self.check_room();
        let form = self.pool.block_form(length, alignment)?;
        self.pool.check_range(link, WORD_LENGTH)?;
        let offset = self.next_entry_offset()?;
        self.pool.acquire_block(form, |block| self.announce(offset, block, link))
    }

    /// Announces that a block will be unlinked from the word at `link`, which holds its offset now.
    /// It must be the block's only link, and no other intent or descriptor may name the block. It
    /// is an error if this intent names it already.
    ///
    /// # Panics
    /// If the intent names [`INTENT_BLOCKS`] blocks already.
    pub fn release(&mut self, block: u64, link: u64) -> Result<()> {
        self.check_room();
        self.pool.check_range(link, WORD_LENGTH)?;
        self.pool.locate(block)?;
        let offset = self.next_entry_offset()?;
        let named = (self.slot.into_iter().flat_map(entry_offsets)).take(self.named);
        self.pool.check_unnamed(block, named.map(|offset| self.pool.backend().load(offset + WORD_LENGTH)))?;
        self.announce(offset, block, link);
        Ok(())
    }

    /// Takes the space that the intent needs in the pool now, so that naming blocks later cannot
    /// fail for lack of it.
    pub fn reserve(&mut self) -> Result<()> {
        self.next_entry_offset().map(drop)
    }

    /// Ends the intent: frees what is not linked.
    pub fn finish(self) {}

    /// Ends the intent for linked blocks, and frees the others when every guard that lives now is
    /// gone. From now on other threads may change the links. Frees nothing now: later intents of
    /// any thread do so, or [`Pool::close`], or recovery after a crash.
    ///
    /// # Panics
    /// If the guard is not of this pool.
    pub fn retire(mut self, guard: &Guard<'_>) {
        assert!(guard.is_of(&self.pool.epochs), "an intent is retired under a guard of its own pool");
        let Some(slot) = self.slot.take() else { return };
        // As in `drop`, the slot is kept if somebody has damaged the pool.
        match self.pool.detach(slot) {
            Ok(true) => self.pool.retire_unit(Retired::Slot(slot), guard),
            Ok(false) => self.pool.return_slot(slot),
            Err(_) => {}
        }
    }

    fn check_room(&self) {
        assert!(self.named < INTENT_BLOCKS, "an intent names up to {INTENT_BLOCKS} blocks");
    }

    /// The offset of the next entry.
    fn next_entry_offset(&mut self) -> Result<u64> {
        let slot = match self.slot {
            Some(slot) => slot,
            None => *self.slot.insert(self.pool.take_slot()?),
        };
        Ok(slot + self.named as u64 * ENTRY_LENGTH)
    }

    /// Records the block and its link durably. Stores to one line keep their order, so the entry
    /// counts once its second word is there.
    fn announce(&mut self, offset: u64, block: u64, link: u64) {
        let backend = self.pool.backend();
        backend.store(offset, link);
        backend.store(offset + WORD_LENGTH, block);
        backend.persist(offset..offset + ENTRY_LENGTH, ANNOUNCE);
        self.named += 1;
    }
}

impl<B: Backend> Drop for Intent<'_, B> {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        // The entries were checked when they were announced, so this fails only if somebody has
        // damaged the pool meanwhile. Then the slot is kept, and the next opening finds the damage.
        if self.pool.settle(entry_offsets(slot).take(self.named), &[], 0).is_ok() {
            self.pool.return_slot(slot);
        }
    }
}

impl<B: Backend> Pool<B> {
    /// Acquires a block durably, as of this thread's next fence. `announce` names it before its bit
    /// is set.
    pub(crate) fn acquire_block(&self, form: u64, announce: impl FnOnce(u64)) -> Result<u64> {
        let block = self.claim(form)?;
        let (chunk, number) = self.locate(block)?;
        announce(block);
        let (word, bit) = Chunk::bit(number);
        let offset = chunk.bitmap_word(word);
        self.backend().fetch_or(offset, bit);
        self.backend().flush(offset..offset + WORD_LENGTH, ACQUIRE);
        Ok(block)
    }

    /// Checks that the intents and descriptors make sense which a crash has left; that none is
    /// left, if the pool was closed.
    pub(crate) fn check_intents(&self, was_closed: bool) -> Result<()> {
        let left = |offset: u64, what: &str| {
            let reason = format!("{what} is in use there, although the pool was closed");
            Error::Damaged { pool: self.name().to_owned(), offset, reason }
        };
        let own = self.own_blocks()?;
        // Otherwise recovery would find it to be free only after it has changed the pool.
        let check_not_own = |block: u64| match own.contains(&block) {
            false => Ok(()),
            true => {
                let reason = "an intent or a descriptor would free a page of the pool itself".to_owned();
                Err(Error::Damaged { pool: self.name().to_owned(), offset: block, reason })
            }
        };
        let mut freed = BTreeSet::new();
        for descriptor in self.all_units(&DESCRIPTORS)? {
            self.check_descriptor(descriptor)?;
            freed.extend(self.blocks_to_free(descriptor)?);
            if was_closed && !self.is_free(descriptor)? {
                return Err(left(descriptor, "a descriptor"));
            }
        }
        let entries = self.entries(self.all_units(&SLOTS)?.flat_map(entry_offsets))?;
        match entries.first() {
            Some(entry) if was_closed => Err(left(entry.offset, "an entry of an intent")),
            _ => {
                let (_, dead) = self.split(&entries, freed.clone())?;
                freed.into_iter().chain(dead.iter().map(Entry::block)).try_for_each(check_not_own)
            }
        }
    }

    /// Settles the descriptors that a crash has left, and then the intents, whose links may lie in
    /// blocks that a descriptor frees.
    pub(crate) fn recover_intents(&self) -> Result<()> {
        self.all_units(&DESCRIPTORS)?.try_for_each(|descriptor| self.clear_later_entries(descriptor))?;
        self.settle_everything()?;
        self.adopt_pages()
    }

    /// Settles all intents and descriptors, as when the pool is opened: nobody uses it. This
    /// includes those that were begun and forgotten by the program.
    pub(crate) fn settle_everything(&self) -> Result<()> {
        let mut descriptors = Vec::new();
        for descriptor in self.all_units(&DESCRIPTORS)? {
            if !self.is_free(descriptor)? {
                descriptors.push(descriptor);
            }
        }
        self.roll_descriptors(&descriptors)?;
        self.settle(std::iter::empty(), &descriptors, 0)?;
        self.settle(self.all_units(&SLOTS)?.flat_map(entry_offsets), &[], 0)
    }

    /// Settles up to `count` intents and descriptors that no reader keeps any more, and gives their
    /// number.
    ///
    /// One thread does so at a time. So they are settled in the order in which they came (E2). A
    /// block is given out after everything that may name a word in it is forgotten (M9).
    pub(crate) fn settle_expired(&self, count: usize) -> Result<usize> {
        let _settling = self.allocator().settling.lock();
        self.settle_retired(&self.epochs.take(count))
    }

    fn settle_retired(&self, Expired { retired, left, wait_for }: &Expired) -> Result<usize> {
        let (mut slots, mut descriptors) = (Vec::new(), Vec::new());
        for retired in retired {
            match *retired {
                Retired::Slot(slot) => slots.push(slot),
                Retired::Descriptor(descriptor) => descriptors.push(descriptor),
            }
        }
        if !retired.is_empty() {
            self.settle(slots.iter().copied().flat_map(entry_offsets), &descriptors, *wait_for)?;
            self.allocator().free.lock().note_left(*left);
        }
        slots.into_iter().for_each(|slot| self.return_slot(slot));
        self.allocator().descriptors.lock().extend(descriptors);
        Ok(retired.len())
    }

    /// Settles a few at the beginning of an operation. Does nothing if another thread is settling.
    pub(crate) fn settle_some_expired(&self) {
        let Some(_settling) = self.allocator().settling.try_lock() else { return };
        // A failure has the same causes and effects as at the end of an intent.
        let _ = self.settle_retired(&self.epochs.take(EXPIRED_AT_ONCE));
    }

    /// Returns an error if a block is among those that are named already.
    pub(crate) fn check_unnamed(&self, block: u64, mut named: impl Iterator<Item = u64>) -> Result<()> {
        if named.any(|named| named == block) {
            let reason = "a block is named twice, in the pool or by the program".to_owned();
            return Err(Error::Damaged { pool: self.name().to_owned(), offset: block, reason });
        }
        Ok(())
    }

    /// The entries of intents at these offsets.
    fn entries(&self, offsets: impl Iterator<Item = u64>) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for offset in offsets {
            let (link, block) = (self.backend().load(offset), self.backend().load(offset + WORD_LENGTH));
            if block != 0 {
                if link != UNLINKED {
                    self.check_range(link, WORD_LENGTH)?;
                }
                let (chunk, number) = self.locate(block)?;
                entries.push(Entry { offset, link, chunk, number });
            }
        }
        Ok(entries)
    }

    /// Frees blocks: those that are named at these offsets and not linked, and those that the
    /// descriptors free. Then clears the entries and the descriptors. Others get the blocks when
    /// `wait_for` parts have left the queue of retired parts; with 0, at once.
    ///
    /// First the bits become clear, then the entries, and then others get the blocks (A3). A crash
    /// after any step leaves entries with the same outcome. A dead link stays dead, since the bit
    /// of the block that it lies in is cleared before any entry is.
    fn settle(&self, offsets: impl Iterator<Item = u64>, descriptors: &[u64], wait_for: u64) -> Result<()> {
        let backend = self.backend();
        let entries = self.entries(offsets)?;
        let (_, dead) = self.split(&entries, BTreeSet::new())?;
        let mut dead: Vec<(Chunk, u64)> = dead.iter().map(|entry| (entry.chunk, entry.number)).collect();
        for &descriptor in descriptors {
            for block in self.blocks_to_free(descriptor)? {
                dead.push(self.locate(block)?);
            }
        }
        // While a bit is clear and its block still named, nobody may scan for clear bits.
        let mut free = (!dead.is_empty()).then(|| self.allocator().free.lock());
        let mut bits = BTreeSet::new();
        // A block that is free already is listed, or will be found by a scan. Another mention of it
        // must not list it again.
        dead.retain(|(chunk, number)| {
            let (word, bit) = Chunk::bit(*number);
            bits.insert(line(chunk.bitmap_word(word)));
            backend.fetch_and(chunk.bitmap_word(word), !bit) & bit != 0
        });
        for &bits_of_line in &bits {
            backend.flush(bits_of_line..bits_of_line + LINE_LENGTH, FREE);
        }
        if !bits.is_empty() {
            backend.fence(FREE);
        }
        self.change_entries(&entries, CLEAR, |entry| backend.store(entry.offset + WORD_LENGTH, 0));
        descriptors.iter().try_for_each(|descriptor| self.clear_descriptor(*descriptor))?;
        if !entries.is_empty() || !descriptors.is_empty() {
            backend.fence(CLEAR);
        }
        if let Some(free) = &mut free {
            dead.into_iter().for_each(|(chunk, number)| free.give_back_after(wait_for, chunk, number));
        }
        Ok(())
    }

    /// Reduces a slot to its unlinked blocks, independently of the links' later values. Gives
    /// whether there are any.
    ///
    /// A crash after any step leaves entries with the same outcome, since only this thread changes
    /// the links until it returns. After that a link may be changed, or lie in somebody else's
    /// block and hold anything. So recovery must not read it any more, and that is made durable
    /// here.
    fn detach(&self, slot: u64) -> Result<bool> {
        let backend = self.backend();
        let entries = self.entries(entry_offsets(slot))?;
        let (linked, dead) = self.split(&entries, BTreeSet::new())?;
        let linked: BTreeSet<u64> = linked.iter().map(|entry| entry.offset).collect();
        self.change_entries(&entries, RETIRE, |entry| {
            if linked.contains(&entry.offset) {
                backend.store(entry.offset + WORD_LENGTH, 0);
            } else {
                backend.store(entry.offset, UNLINKED);
            }
        });
        if !entries.is_empty() {
            backend.fence(RETIRE);
        }
        Ok(!dead.is_empty())
    }

    /// Changes entries with one flush per line. They are durable after the next fence.
    fn change_entries(&self, entries: &[Entry], site: Site, change: impl Fn(&Entry)) {
        for of_line in entries.chunk_by(|left, right| line(left.offset) == line(right.offset)) {
            of_line.iter().for_each(&change);
            self.backend().flush(of_line[0].offset..of_line[0].offset + WORD_LENGTH, site);
        }
    }

    /// Splits the entries into linked and unlinked ones, where `dead_blocks` are known to be free.
    fn split(&self, entries: &[Entry], mut dead_blocks: BTreeSet<u64>) -> Result<(Vec<Entry>, Vec<Entry>)> {
        let (mut linked, mut dead) = (entries.to_vec(), Vec::new());
        loop {
            let mut still_linked = Vec::new();
            let before = dead.len();
            for entry in linked {
                if self.is_linked(&entry, &dead_blocks)? { still_linked.push(entry) } else { dead.push(entry) }
            }
            linked = still_linked;
            if dead.len() == before {
                return Ok((linked, dead));
            }
            // These may hold the links of others.
            dead_blocks.extend(dead[before..].iter().map(Entry::block));
        }
    }

    /// Whether the link holds the block, and does not itself lie in a free block.
    fn is_linked(&self, entry: &Entry, dead_blocks: &BTreeSet<u64>) -> Result<bool> {
        if entry.link == UNLINKED {
            return Ok(false);
        }
        let is_live = match self.containing(entry.link)? {
            None => true,
            Some((chunk, number)) => {
                let (word, bit) = Chunk::bit(number);
                let is_acquired = self.backend().load(chunk.bitmap_word(word)) & bit != 0;
                is_acquired && !dead_blocks.contains(&chunk.start_of(number))
            }
        };
        let held = self.backend().load(entry.link) & !(LINE_LENGTH - 1) & !FLAGS;
        Ok(is_live && held == entry.block())
    }
}

impl Entry {
    fn block(&self) -> u64 {
        self.chunk.start_of(self.number)
    }
}

/// Start of the line that contains an offset.
fn line(offset: u64) -> u64 {
    offset - offset % LINE_LENGTH
}
