//! Slots of intents, and descriptors of multi-word compare-and-swaps. There are as many as were
//! ever needed at a time.
//!
//! They come in pages, which are blocks of the pool; the first slots are a page of the metadata.
//! Each page begins with the offset of the page that was added before it, and a word of the
//! metadata leads to the newest. The first slot of the metadata is reserved for the intents that
//! acquire pages. So no crash loses a page.
//!
//! Pages stay, and an opening reads them all. They take 128 bytes for each intent and 192 for each
//! operation that was alive, or waited for readers, at the same time as others. So a reader that
//! lives very long beside a busy writer makes later openings longer.
//!
//! - S1: a page in the chain is acquired, and was durably empty before it was linked.
//! - S2: a slot or descriptor is free, belongs to one operation, or waits for readers. So only its
//!   owner changes what it names.

use std::collections::BTreeSet;

use terrane_storage::sync::Mutex;

use super::RECLAIMED_AT_ONCE;
use super::intent::{ENTRY_LENGTH, Intent};
use crate::epoch::{BATCH, Retired};
use crate::pmwcas::DESCRIPTOR_LENGTH;
use crate::pool::{DESCRIPTOR_PAGES, INTENTS, SLOT_PAGES};
use crate::{Backend, Error, Guard, INTENT_BLOCKS, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};

pub(super) const SLOT_LENGTH: u64 = ENTRY_LENGTH * INTENT_BLOCKS as u64;

/// Slots of the metadata, which fill a page.
const FIRST_SLOTS: u64 = 32;

/// The slot that acquires pages of slots.
const GROWTH_SLOT: u64 = INTENTS;

/// A kind of unit that pages are divided into.
#[derive(Debug)]
pub(crate) struct Units {
    /// Byte offset of the word that leads to the newest page.
    pub(super) root: u64,
    length: u64,
}

pub(super) const SLOTS: Units = Units { root: SLOT_PAGES, length: SLOT_LENGTH };
pub(super) const DESCRIPTORS: Units = Units { root: DESCRIPTOR_PAGES, length: DESCRIPTOR_LENGTH };

/// Bytes of a page. It fits into a block of the shortest chunk.
const PAGE_LENGTH: u64 = 3904;

const _: () =
    assert!(PAGE_LENGTH == LINE_LENGTH + 30 * SLOT_LENGTH && PAGE_LENGTH == LINE_LENGTH + 20 * DESCRIPTOR_LENGTH);
const _: () = assert!(SLOT_LENGTH * FIRST_SLOTS == 4096 && LINE_LENGTH.is_multiple_of(ENTRY_LENGTH));

const PAGE: Site = Site::new("allocator.page");
const PAGE_LINK: Site = Site::new("allocator.page.link");

/// The slots that are free in a new pool.
pub(super) fn first_slots() -> Vec<u64> {
    (1..FIRST_SLOTS).rev().map(|slot| INTENTS + slot * SLOT_LENGTH).collect()
}

/// Offsets of the entries of a slot.
pub(super) fn entry_offsets(slot: u64) -> impl Iterator<Item = u64> {
    (slot..slot + SLOT_LENGTH).step_by(ENTRY_LENGTH as usize)
}

impl Units {
    fn of_page(&self, page: u64) -> impl Iterator<Item = u64> + use<> {
        (page + LINE_LENGTH..page + PAGE_LENGTH).step_by(self.length as usize)
    }
}

impl<B: Backend> Pool<B> {
    /// A slot that no intent holds.
    pub(super) fn take_slot(&self) -> Result<u64> {
        self.take_unit(&SLOTS, &self.allocator().slots)
    }

    /// A descriptor that no operation holds.
    pub(crate) fn take_descriptor(&self) -> Result<u64> {
        self.take_unit(&DESCRIPTORS, &self.allocator().descriptors)
    }

    /// Number of free descriptors.
    #[cfg(feature = "explorer")]
    pub(crate) fn free_descriptors(&self) -> usize {
        self.allocator().descriptors.lock().len()
    }

    /// Frees a slot or a descriptor when no reader is left.
    ///
    /// Each thread keeps a few in a batch of its own. With several threads, the batches may hold
    /// all that exist. If the disk is full then, nobody gets another one to fill a batch. So where
    /// few are free, a call expires everything that all threads have retired so far. The next such
    /// call comes only after a batch of them has been retired, so these calls are as rare as
    /// batches.
    pub(crate) fn retire_unit(&self, retired: Retired, guard: &Guard<'_>) {
        let since = guard.retire(retired);
        let free = match retired {
            Retired::Slot(_) => &self.allocator().slots,
            Retired::Descriptor(_) => &self.allocator().descriptors,
        };
        if since >= BATCH as u64 && free.lock().len() < BATCH {
            guard.expedite();
        }
    }

    /// A free slot or descriptor. If there is none, expired ones are settled first. A page is added
    /// only if that frees nothing.
    ///
    /// If adding fails because the disk is full, later calls may succeed once the present guards
    /// are gone.
    fn take_unit(&self, units: &Units, free: &Mutex<Vec<u64>>) -> Result<u64> {
        if let Some(unit) = free.lock().pop() {
            return Ok(unit);
        }
        let _growth = self.allocator().page_growth.lock();
        // Another thread may have added a page meanwhile.
        if let Some(unit) = free.lock().pop() {
            return Ok(unit);
        }
        if let Some(unit) = self.settle_until_free(free) {
            return Ok(unit);
        }
        self.pin().expedite();
        if let Some(unit) = self.settle_until_free(free) {
            return Ok(unit);
        }
        let page = self.add_page(units)?;
        self.note_pages(units, &[page]);
        let mut added: Vec<u64> = units.of_page(page).collect();
        added.reverse();
        let taken = added.pop();
        free.lock().extend(added);
        taken.ok_or_else(|| self.page_damaged(page, "a page has no room"))
    }

    /// A unit that became free meanwhile, or that settling expired parts frees.
    fn settle_until_free(&self, free: &Mutex<Vec<u64>>) -> Option<u64> {
        loop {
            // A failure has the same causes and effects as at the end of an intent.
            let settled = self.settle_expired(RECLAIMED_AT_ONCE).unwrap_or(0);
            let unit = free.lock().pop();
            if unit.is_some() || settled == 0 {
                return unit;
            }
        }
    }

    /// Whether a descriptor begins at an offset, which may be any number.
    ///
    /// The page of a descriptor in use is among the known ones. All pages are read only in three
    /// cases: during recovery, while another thread adds a page (nobody waits for that), and where
    /// no descriptor begins.
    pub(crate) fn is_descriptor(&self, offset: u64) -> Result<bool> {
        let known = self.allocator().descriptor_pages.try_read();
        let page = known.and_then(|pages| pages.range(..=offset).next_back().copied());
        if page.is_some_and(|page| DESCRIPTORS.of_page(page).any(|descriptor| descriptor == offset)) {
            return Ok(true);
        }
        Ok(self.all_units(&DESCRIPTORS)?.any(|descriptor| descriptor == offset))
    }

    pub(crate) fn return_descriptor(&self, descriptor: u64) {
        self.allocator().descriptors.lock().push(descriptor);
    }

    pub(super) fn return_slot(&self, slot: u64) {
        if slot != GROWTH_SLOT {
            self.allocator().slots.lock().push(slot);
        }
    }

    /// Adds a page. The caller holds the lock `page_growth`.
    ///
    /// After the first persist the page is acquired and empty, after the second it is linked. A
    /// crash before that frees it.
    fn add_page(&self, units: &Units) -> Result<u64> {
        let backend = self.backend();
        let mut intent = Intent::in_slot(self, GROWTH_SLOT);
        let page = intent.acquire(PAGE_LENGTH, units.root)?;
        backend.store(page, backend.load(units.root));
        for word in (page + WORD_LENGTH..page + PAGE_LENGTH).step_by(WORD_LENGTH as usize) {
            if backend.load(word) != 0 {
                backend.store(word, 0);
            }
        }
        backend.persist(page..page + PAGE_LENGTH, PAGE);
        backend.store(units.root, page);
        backend.persist(units.root..units.root + WORD_LENGTH, PAGE_LINK);
        intent.finish();
        Ok(page)
    }

    /// The added pages, newest first.
    fn pages(&self, units: &Units) -> Result<Vec<u64>> {
        let mut pages = Vec::new();
        let mut page = self.backend().load(units.root);
        while page != 0 {
            if self.check_block(page)? < PAGE_LENGTH || !self.is_acquired(page)? {
                return Err(
                    self.page_damaged(page, "a page of the pool itself lies in a block that is free or too short")
                );
            }
            if pages.len() as u64 > self.length() / PAGE_LENGTH {
                return Err(self.page_damaged(page, "the pages of the pool itself form a cycle"));
            }
            pages.push(page);
            page = self.backend().load(page);
        }
        Ok(pages)
    }

    /// The blocks that the pool has acquired for itself.
    pub(super) fn own_blocks(&self) -> Result<BTreeSet<u64>> {
        Ok([self.pages(&SLOTS)?, self.pages(&DESCRIPTORS)?].into_iter().flatten().collect())
    }

    /// All units of a kind, free or not.
    pub(super) fn all_units(&self, units: &'static Units) -> Result<impl Iterator<Item = u64> + use<B>> {
        let first = if units.root == SLOT_PAGES { first_slots() } else { Vec::new() };
        let growth = (units.root == SLOT_PAGES).then_some(GROWTH_SLOT);
        let pages = self.pages(units)?;
        Ok(growth.into_iter().chain(first).chain(pages.into_iter().flat_map(|page| units.of_page(page))))
    }

    /// Makes pages known before their units can be taken.
    fn note_pages(&self, units: &Units, pages: &[u64]) {
        if units.root == DESCRIPTORS.root {
            self.allocator().descriptor_pages.write().extend(pages);
        }
    }

    /// After recovery, makes the units of added pages available.
    pub(super) fn adopt_pages(&self) -> Result<()> {
        for (units, free) in [(&SLOTS, &self.allocator().slots), (&DESCRIPTORS, &self.allocator().descriptors)] {
            let pages = self.pages(units)?;
            self.note_pages(units, &pages);
            free.lock().splice(0..0, pages.into_iter().flat_map(|page| units.of_page(page)));
        }
        Ok(())
    }

    fn page_damaged(&self, page: u64, reason: &str) -> Error {
        Error::Damaged { pool: self.name().to_owned(), offset: page, reason: reason.to_owned() }
    }
}
