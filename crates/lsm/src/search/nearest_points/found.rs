//! The points found by a search for the nearest, and its buffers. A thread keeps the buffers from
//! one small search to the next.

use std::cell::Cell;
use std::mem;

use terrane_space::Point;

/// A point that may be among the nearest.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub measure: f64,
    pub point: Point,
    pub key_start: u32,
    pub key_end: u32,
}

/// Largest buffers, in bytes of keys and in entries, that a thread keeps when a search ends.
const SPARE_KEY_BYTES: usize = 4 << 10;
const SPARE_ENTRIES: usize = 256;

thread_local! {
    /// Buffers of the last search, kept for the next one of the thread: allocating them again would
    /// take a good part of a small search.
    static SPARE: Cell<Room> = const { Cell::new(Room::NONE) };
}

/// The allocations of a search.
pub(super) struct Room {
    pub order: Vec<u64>,
    /// Exact distances, each with the index of its entry.
    pub ranked: Vec<(f64, u32)>,
    pub entries: Vec<Entry>,
    pub keys: Vec<u8>,
}

impl Room {
    const NONE: Self = Self { order: Vec::new(), ranked: Vec::new(), entries: Vec::new(), keys: Vec::new() };

    /// The buffers of this thread's last search.
    pub fn spare() -> Self {
        // A thread that ends has none any more.
        SPARE.try_with(|spare| spare.replace(Self::NONE)).unwrap_or(Self::NONE)
    }

    fn is_small(&self) -> bool {
        let entries = self.order.capacity().max(self.ranked.capacity()).max(self.entries.capacity());
        entries <= SPARE_ENTRIES && self.keys.capacity() <= SPARE_KEY_BYTES
    }
}

/// The nearest points in order.
pub struct NearestPoints {
    pub(super) found: Room,
    /// Components that were examined.
    pub components_searched: u64,
    /// Pages of disk components visited.
    pub pages: u64,
    /// Points whose distance was computed, or that waited for it within the bound.
    pub measured: u64,
}

impl NearestPoints {
    /// Exact distance and key of a point. The nearest is the first; at equal distance they are
    /// ordered by key.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(f64, &[u8])> {
        let (distance, entry) = self.found.ranked.get(index)?;
        Some((*distance, key_of(&self.found.keys, &self.found.entries[*entry as usize])))
    }
}

impl Drop for NearestPoints {
    fn drop(&mut self) {
        let mut room = mem::replace(&mut self.found, Room::NONE);
        if room.is_small() {
            room.order.clear();
            room.ranked.clear();
            room.entries.clear();
            room.keys.clear();
            // At the end of the thread they are not needed.
            let _ = SPARE.try_with(|spare| spare.set(room));
        }
    }
}

/// The key of an entry, among all keys.
#[inline]
pub(super) fn key_of<'k>(keys: &'k [u8], entry: &Entry) -> &'k [u8] {
    &keys[entry.key_start as usize..entry.key_end as usize]
}
