//! Slots, in which intents are written: those of the metadata, and as many more as were ever needed at a time.
//!
//! More slots come by pages, which are blocks of the pool. Each page begins with the offset of the page that was added
//! before it, and a word of the metadata leads to the newest. A page is acquired as any block is, by an
//! intent in the first slot of the metadata, which is kept for that; so no crash loses one. Pages stay.
//!
//! - S1: a page that the chain leads to is acquired, and had no entry when it was linked, durably before that.
//! - S2: a slot is free, or of one intent, or on the list of those whose readers have left; so it is written by one thread.

use super::chunk::Chunk;
use super::intent::{ENTRY_LENGTH, Intent};
use crate::pool::{INTENT_PAGES, INTENTS};
use crate::{Backend, Error, INTENT_BLOCKS, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};

pub(super) const SLOT_LENGTH: u64 = ENTRY_LENGTH * INTENT_BLOCKS as u64;

/// Slots of the metadata, which fill a page.
const FIRST_SLOTS: u64 = 32;

/// The slot by which pages of slots are acquired.
const GROWTH_SLOT: u64 = INTENTS;

/// Slots of a further page, which fits into a block of the shortest chunk.
const PAGE_SLOTS: u64 = 30;

const PAGE_LENGTH: u64 = LINE_LENGTH + PAGE_SLOTS * SLOT_LENGTH;

const _: () = assert!(SLOT_LENGTH * FIRST_SLOTS == 4096 && LINE_LENGTH.is_multiple_of(ENTRY_LENGTH));

const PAGE: Site = Site::new("allocator.page");
const PAGE_LINK: Site = Site::new("allocator.page.link");

/// The slots that can be taken when a pool is new.
pub(super) fn first_slots() -> Vec<u64> {
    (1..FIRST_SLOTS).rev().map(|slot| INTENTS + slot * SLOT_LENGTH).collect()
}

/// Where the entries of a slot are.
pub(super) fn places(slot: u64) -> impl Iterator<Item = u64> {
    (slot..slot + SLOT_LENGTH).step_by(ENTRY_LENGTH as usize)
}

fn slots_of_page(page: u64) -> impl DoubleEndedIterator<Item = u64> {
    (0..PAGE_SLOTS).map(move |slot| page + LINE_LENGTH + slot * SLOT_LENGTH)
}

impl<B: Backend> Pool<B> {
    /// A slot that nobody has. Where there is none, a page of them is added.
    pub(super) fn take_slot(&self) -> Result<u64> {
        let slots = &self.allocator().slots;
        if let Some(slot) = slots.lock().pop() {
            return Ok(slot);
        }
        let _growth = self.allocator().slot_growth.lock();
        // Another thread may have added a page meanwhile.
        if let Some(slot) = slots.lock().pop() {
            return Ok(slot);
        }
        let page = self.add_page()?;
        let mut slots = slots.lock();
        slots.extend(slots_of_page(page).rev());
        // What others have returned meanwhile lies below.
        slots.pop().ok_or_else(|| self.chain_damaged(page, "a page of intents has no slots"))
    }

    pub(super) fn return_slot(&self, slot: u64) {
        if slot != GROWTH_SLOT {
            self.allocator().slots.lock().push(slot);
        }
    }

    /// Adds a page. Who calls it holds the lock of slots' growth.
    ///
    /// After the first persist the page is acquired and empty, after the second it is linked; a crash before that
    /// frees it.
    fn add_page(&self) -> Result<u64> {
        let backend = self.backend();
        let mut intent = Intent::in_slot(self, GROWTH_SLOT);
        let page = intent.acquire(PAGE_LENGTH, INTENT_PAGES)?;
        backend.store(page, backend.load(INTENT_PAGES));
        for word in (page + WORD_LENGTH..page + PAGE_LENGTH).step_by(WORD_LENGTH as usize) {
            if backend.load(word) != 0 {
                backend.store(word, 0);
            }
        }
        backend.persist(page..page + PAGE_LENGTH, PAGE);
        backend.store(INTENT_PAGES, page);
        backend.persist(INTENT_PAGES..INTENT_PAGES + WORD_LENGTH, PAGE_LINK);
        intent.finish();
        Ok(page)
    }

    /// The pages that were added, the newest first.
    pub(super) fn slot_pages(&self) -> Result<Vec<u64>> {
        let mut pages = Vec::new();
        let mut page = self.backend().load(INTENT_PAGES);
        while page != 0 {
            let (chunk, number) = self.locate(page)?;
            let (word, bit) = Chunk::bit(number);
            if chunk.block_length < PAGE_LENGTH || self.backend().load(chunk.bitmap_word(word)) & bit == 0 {
                return Err(
                    self.chain_damaged(page, "a page of intents is said to be in a block that is free or short")
                );
            }
            if pages.len() as u64 > self.length() / PAGE_LENGTH {
                return Err(self.chain_damaged(page, "the pages of intents lead in a circle"));
            }
            pages.push(page);
            page = self.backend().load(page);
        }
        Ok(pages)
    }

    /// Where there can be entries.
    pub(super) fn all_places(&self) -> Result<impl Iterator<Item = u64>> {
        let pages = self.slot_pages()?;
        let first = (0..FIRST_SLOTS).map(|slot| INTENTS + slot * SLOT_LENGTH);
        Ok(first.chain(pages.into_iter().flat_map(slots_of_page)).flat_map(places))
    }

    /// Lets the slots of added pages be taken, after recovery.
    pub(super) fn take_over_pages(&self) -> Result<()> {
        let pages = self.slot_pages()?;
        let mut slots = self.allocator().slots.lock();
        slots.splice(0..0, pages.into_iter().flat_map(slots_of_page));
        Ok(())
    }

    fn chain_damaged(&self, page: u64, reason: &str) -> Error {
        Error::Damaged { pool: self.name().to_owned(), offset: page, reason: reason.to_owned() }
    }
}
