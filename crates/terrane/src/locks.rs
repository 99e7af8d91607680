//! The lock manager: exclusive locks on 64-bit hashes of record keys.
//!
//! K1  A hash has at most one holder.
//! K2  A release with waiters hands the lock to the longest waiter, and the lock is never free in
//!     between. So no thread starves, and no wake-up is lost.
//! K3  No thread waits while holding a lock, except in ascending order of hashes (`lock_all`). So
//!     there is no cycle of waiters.
//!
//! Readers take instant locks ([`LockTable::try_instant`], [`LockTable::wait_instant`]), one at a
//! time, and hold none. Two keys with the same hash share a lock. This can delay a thread, but by
//! K3 it cannot deadlock. [`LockTable::lock`] upholds K3 only if the thread holds no lock;
//! [`Frame`] and [`LockTable::lock_all`] always uphold it.

mod frame;
mod table;

#[cfg(test)]
pub(crate) mod collisions;
#[cfg(all(test, loom))]
mod loom_tests;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use frame::{Acquire, Frame};
pub use table::{LockGuard, LockSet, LockTable};

/// Odd constant that spreads dataset numbers over the seed.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hash under which a record is locked.
pub fn lock_hash(dataset: u64, partition: u32, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, dataset.wrapping_mul(SPREAD) ^ u64::from(partition))
}
