//! The table of held locks. It consists of shards, which are latched briefly and one at a time.

use std::collections::{HashMap, VecDeque, hash_map};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use terrane_storage::sync::{AtomicBool, Mutex, Ordering, thread};

#[cfg(not(loom))]
const SHARDS: usize = 64;
#[cfg(loom)]
const SHARDS: usize = 1;

/// Free slots that an empty shard keeps. A larger one is freed.
const KEPT_SLOTS_MAX: usize = 1024;

/// Exclusive locks by hash. Taking and releasing an uncontended lock allocates nothing once the
/// shard has grown to the number of locks held at once.
#[derive(Debug)]
pub struct LockTable {
    shards: Box<[Shard]>,
}

/// One part of the table, on its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    held: Mutex<Held>,
}

type Held = HashMap<u64, Entry, BuildHasherDefault<PassHash>>;

/// A held lock.
#[derive(Debug, Default)]
struct Entry {
    /// The waiting threads, longest first.
    #[expect(clippy::box_collection, reason = "few locks have waiters, and entries should be small")]
    waiters: Option<Box<VecDeque<Arc<Waiter>>>>,
}

/// A thread that waits until a lock is handed to it.
#[derive(Debug)]
struct Waiter {
    granted: AtomicBool,
    thread: thread::Thread,
}

/// A hasher for keys that are hashes already.
#[derive(Debug, Default)]
pub(super) struct PassHash(u64);

impl Hasher for PassHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Default for LockTable {
    fn default() -> Self {
        Self::new()
    }
}

impl LockTable {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard { held: Mutex::new(Held::default()) }).collect() }
    }

    /// Takes a lock if it is free.
    pub fn try_lock(&self, hash: u64) -> Option<LockGuard<'_>> {
        self.try_acquire(hash).then(|| LockGuard { table: self, hash })
    }

    /// Takes a lock, waiting in line for it. The thread must hold no other lock (K3). Waiting for a
    /// lock that it already holds never ends.
    pub fn lock(&self, hash: u64) -> LockGuard<'_> {
        self.acquire(hash);
        LockGuard { table: self, hash }
    }

    /// Takes the locks of all these hashes, each once, in ascending order. The thread must hold no
    /// other lock (K3).
    pub fn lock_all(&self, mut hashes: Vec<u64>) -> LockSet<'_> {
        hashes.sort_unstable();
        hashes.dedup();
        let mut set = LockSet { table: self, hashes: Vec::with_capacity(hashes.len()) };
        for hash in hashes {
            self.acquire(hash);
            set.hashes.push(hash);
        }
        set
    }

    /// Whether an instant lock is granted without waiting. An instant lock is released as soon as
    /// it is granted (Kim 2016, section 3.4.1). It is not taken here, so nobody finds it held.
    pub fn try_instant(&self, hash: u64) -> bool {
        !self.shard(hash).held.lock().contains_key(&hash)
    }

    /// Waits in line for an instant lock, and passes it on. On return, the changes made by its last
    /// holder are visible. Later threads in the line wait until this thread has woken. The thread
    /// must hold no lock (K3).
    pub fn wait_instant(&self, hash: u64) {
        if !self.try_instant(hash) {
            self.acquire(hash);
            self.release(hash);
        }
    }

    /// Number of locks held at some moment during the call.
    pub fn held(&self) -> usize {
        self.shards.iter().map(|shard| shard.held.lock().len()).sum()
    }

    /// Number of threads waiting for a lock at some moment during the call.
    pub fn waiting(&self, hash: u64) -> usize {
        let held = self.shard(hash).held.lock();
        held.get(&hash).and_then(|entry| entry.waiters.as_ref()).map_or(0, |waiters| waiters.len())
    }

    pub(super) fn try_acquire(&self, hash: u64) -> bool {
        match self.shard(hash).held.lock().entry(hash) {
            hash_map::Entry::Vacant(entry) => {
                entry.insert(Entry::default());
                true
            }
            hash_map::Entry::Occupied(_) => false,
        }
    }

    pub(super) fn acquire(&self, hash: u64) {
        let waiter = match self.shard(hash).held.lock().entry(hash) {
            hash_map::Entry::Vacant(entry) => {
                entry.insert(Entry::default());
                return;
            }
            hash_map::Entry::Occupied(mut entry) => {
                let waiter = Arc::new(Waiter { granted: AtomicBool::new(false), thread: thread::current() });
                entry.get_mut().waiters.get_or_insert_default().push_back(Arc::clone(&waiter));
                waiter
            }
        };
        // Parking may end spuriously, so only the grant counts. The load pairs with the store in
        // `release`, so the last holder's changes are visible.
        while !waiter.granted.load(Ordering::Acquire) {
            thread::park();
        }
    }

    pub(super) fn release(&self, hash: u64) {
        let mut held = self.shard(hash).held.lock();
        let hash_map::Entry::Occupied(mut entry) = held.entry(hash) else {
            debug_assert!(false, "a guard's lock is held");
            return;
        };
        let next = entry.get_mut().waiters.as_mut().and_then(|waiters| waiters.pop_front());
        match next {
            // K2: the entry stays, and from here on it belongs to the waiter.
            Some(waiter) => {
                drop(held);
                waiter.granted.store(true, Ordering::Release);
                waiter.thread.unpark();
            }
            None => {
                entry.remove();
                if held.is_empty() && held.capacity() > KEPT_SLOTS_MAX {
                    held.shrink_to(KEPT_SLOTS_MAX / 2);
                }
            }
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        // The map uses the low bits for the slot and the highest for its tags.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }
}

/// A held lock. Dropping it releases the lock, in any thread.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct LockGuard<'t> {
    table: &'t LockTable,
    hash: u64,
}

impl LockGuard<'_> {
    /// The locked hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.table.release(self.hash);
    }
}

/// The locks of an atomic batch. Dropping it releases them.
#[derive(Debug)]
#[must_use = "the locks are released when this is dropped"]
pub struct LockSet<'t> {
    table: &'t LockTable,
    hashes: Vec<u64>,
}

impl LockSet<'_> {
    /// The locked hashes, ascending.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }
}

impl Drop for LockSet<'_> {
    fn drop(&mut self) {
        for hash in &self.hashes {
            self.table.release(*hash);
        }
    }
}
