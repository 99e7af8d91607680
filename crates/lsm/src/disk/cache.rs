//! One page cache for all components of a store.
//!
//! Every component file has a table with one slot per page. A hit is an index and a load, without
//! hashing and without a lock. A clock hand passes over the cached pages and drops those not used
//! since its last pass. Every search uses the pages above the leaves' parents, so they stay.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use super::page::Page;
use super::slot::{Lent, PageSlot, ReadGuard};
use terrane_storage::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

/// Slots are allocated in chunks of this many pages, on first use.
const CHUNK_LEN: usize = 512;

type Chunk = Box<[PageSlot]>;

/// The cached pages of one file.
#[derive(Debug)]
pub struct SlotTable {
    chunks: Box<[OnceLock<Chunk>]>,
}

impl SlotTable {
    /// A table for pages `0..pages`.
    pub fn new(pages: u32) -> Self {
        let chunks = (pages as usize).div_ceil(CHUNK_LEN);
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&PageSlot> {
        let number = number as usize;
        self.chunks.get(number / CHUNK_LEN)?.get()?.get(number % CHUNK_LEN)
    }

    fn slot_or_new(&self, number: u32) -> Option<&PageSlot> {
        let number = number as usize;
        let chunk = self.chunks.get(number / CHUNK_LEN)?;
        chunk.get_or_init(|| (0..CHUNK_LEN).map(|_| PageSlot::default()).collect()).get(number % CHUNK_LEN)
    }

    /// The page, if it is cached.
    #[inline]
    pub fn get<'g>(&self, number: u32, guard: &'g ReadGuard) -> Option<Lent<'g>> {
        let page = self.peek(number, guard)?;
        page.touch();
        Some(page)
    }

    /// The page, if it is cached. Does not access the page's memory, so it never waits for it; the
    /// cache does not count this as use.
    #[inline]
    pub fn peek<'g>(&self, number: u32, guard: &'g ReadGuard) -> Option<Lent<'g>> {
        self.slot(number)?.get(guard)
    }
}

/// Statistics of the cache since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Pages read from files.
    pub pages_read: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes held at present.
    pub bytes_cached: u64,
    /// Pages dropped for others.
    pub evictions: u64,
}

/// Keeps verified pages of all components up to a number of bytes.
#[derive(Debug)]
pub struct PageCache {
    capacity: usize,
    used: AtomicUsize,
    pages_read: AtomicU64,
    bytes_read: AtomicU64,
    evictions: AtomicU64,
    clock: Mutex<VecDeque<(Arc<SlotTable>, u32)>>,
}

impl PageCache {
    /// A cache that holds at most `capacity` bytes of pages.
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity,
            used: AtomicUsize::new(0),
            pages_read: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            clock: Mutex::new(VecDeque::new()),
        })
    }

    /// Bytes it may hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Statistics since the cache was created.
    pub fn counters(&self) -> CacheCounters {
        CacheCounters {
            pages_read: self.pages_read.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_cached: self.used.load(Ordering::Relaxed) as u64,
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count_read(&self, bytes: usize) {
        self.pages_read.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Caches a page that was just read. A page too large for the cache is not kept.
    pub(super) fn insert(&self, table: &Arc<SlotTable>, number: u32, page: &Page) {
        let size = page.memory_used();
        if size > self.capacity / 8 {
            return;
        }
        let Some(slot) = table.slot_or_new(number) else { return };
        let guard = ReadGuard::enter();
        let mut clock = self.clock.lock();
        let before = slot.replace(Some(page.clone()), &guard);
        self.used.fetch_add(size, Ordering::Relaxed);
        match before {
            Some(before) => {
                self.used.fetch_sub(before.memory_used(), Ordering::Relaxed);
            }
            None => clock.push_back((table.clone(), number)),
        }
        // A page that is still in use frees its memory slightly later. It is small compared to the
        // limit.
        let mut steps = 2 * clock.len();
        while self.used.load(Ordering::Relaxed) > self.capacity && steps > 0 {
            steps -= 1;
            let Some((table, number)) = clock.pop_front() else { break };
            let Some(slot) = table.slot(number) else { continue };
            let Some(page) = slot.get(&guard) else { continue };
            if page.take_referenced() {
                clock.push_back((table, number));
            } else if let Some(page) = slot.replace(None, &guard) {
                self.used.fetch_sub(page.memory_used(), Ordering::Relaxed);
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Drops all pages of a file.
    pub(super) fn remove(&self, table: &Arc<SlotTable>) {
        let guard = ReadGuard::enter();
        let mut clock = self.clock.lock();
        for slot in table.chunks.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.iter()) {
            if let Some(page) = slot.replace(None, &guard) {
                self.used.fetch_sub(page.memory_used(), Ordering::Relaxed);
            }
        }
        clock.retain(|(other, _)| !Arc::ptr_eq(other, table));
    }
}
