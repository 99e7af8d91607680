//! Stores to a mapped file that a power loss may still lose.
//!
//! A cache line may be written back at any time. Of each line, a prefix of the stores to it is
//! therefore durable, independently of all other lines. A flush and a fence of one thread make that
//! prefix at least all stores before the flush. In the page cache the same holds for pages, which
//! only a sync makes durable.

use std::collections::BTreeSet;
use std::ops::Range;

use terrane_storage::event::{LINE_LENGTH, PersistenceDomain, ThreadNumber};

use crate::memory::content::Content;

/// Bytes of a word.
const WORD_LENGTH: u64 = 8;

/// A waiting store.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// Number of its event.
    pub(super) order: i64,
    pub(super) offset: u64,
    pub(super) value: u64,
    /// Threads whose flush covers it. A fence of any of them makes it durable.
    flushed_by: Vec<ThreadNumber>,
    /// A sync failed since. No later one makes it durable, unless its page is stored to again.
    forgotten: bool,
}

impl Store {
    /// Writes the word into a content, unless that ends before it.
    pub(super) fn apply(&self, content: &mut Content) {
        if self.offset + WORD_LENGTH <= content.length() {
            content.write(&self.value.to_le_bytes(), self.offset);
        }
    }
}

/// The waiting stores of one file, in the order of their events.
#[derive(Clone, Debug, Default)]
pub(super) struct Stores {
    domain: PersistenceDomain,
    pub(super) waiting: Vec<Store>,
}

impl Stores {
    pub(super) fn map(&mut self, domain: PersistenceDomain) {
        self.domain = domain;
    }

    /// The line or page of a store.
    pub(super) fn unit(&self, store: &Store) -> u64 {
        store.offset / self.domain.unit_length()
    }

    /// The bytes of the line or page of a store.
    pub(super) fn line(&self, store: &Store) -> Range<u64> {
        let length = self.domain.unit_length();
        let start = store.offset / length * length;
        start..start + length
    }

    pub(super) fn store(&mut self, order: i64, offset: u64, value: u64) {
        self.waiting.push(Store { order, offset, value, flushed_by: Vec::new(), forgotten: false });
    }

    pub(super) fn flush(&mut self, thread: ThreadNumber, line: u64) {
        if self.domain == PersistenceDomain::PageCache {
            return;
        }
        for store in self.waiting.iter_mut().filter(|store| store.offset / LINE_LENGTH == line / LINE_LENGTH) {
            if !store.flushed_by.contains(&thread) {
                store.flushed_by.push(thread);
            }
        }
    }

    /// Removes and returns the stores that the fence makes durable: none beyond the durable length
    /// of the file.
    pub(super) fn fence(&mut self, thread: ThreadNumber, durable_length: u64) -> Vec<Store> {
        self.take(|store| store.flushed_by.contains(&thread) && store.offset + WORD_LENGTH <= durable_length)
    }

    /// Removes and returns the stores that the newest one makes durable. If caches are durable,
    /// these are all of its line.
    pub(super) fn visible(&mut self, durable_length: u64) -> Vec<Store> {
        match (self.domain, self.waiting.last().map(|newest| newest.offset / LINE_LENGTH)) {
            (PersistenceDomain::Eadr, Some(line)) => {
                self.take(|store| store.offset / LINE_LENGTH == line && store.offset + WORD_LENGTH <= durable_length)
            }
            _ => Vec::new(),
        }
    }

    /// Removes and returns the stores that a sync makes durable: those to lines and pages stored to
    /// since the last failed sync.
    pub(super) fn sync(&mut self) -> Vec<Store> {
        let dirty: BTreeSet<u64> =
            self.waiting.iter().filter(|store| !store.forgotten).map(|store| self.unit(store)).collect();
        let unit_length = self.domain.unit_length();
        self.take(|store| dirty.contains(&(store.offset / unit_length)))
    }

    /// Marks the waiting stores, so that no later sync makes them durable.
    pub(super) fn forget_unsynced(&mut self) {
        for store in &mut self.waiting {
            store.forgotten = true;
        }
    }

    /// Drops the stores that a truncation of the file removed.
    pub(super) fn cut(&mut self, length: u64) {
        self.waiting.retain(|store| store.offset + WORD_LENGTH <= length);
    }

    /// Continues in a new process: earlier events get numbers below 0, and the threads are gone.
    pub(super) fn restart(&mut self, shift: i64) {
        for store in &mut self.waiting {
            store.order -= shift;
            store.flushed_by.clear();
        }
    }

    fn take(&mut self, is_durable: impl Fn(&Store) -> bool) -> Vec<Store> {
        let (durable, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(is_durable);
        self.waiting = waiting;
        durable
    }
}
