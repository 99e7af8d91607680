//! Random numbers that distinguish files and sessions of a store from those of its copies.

use std::sync::atomic::{AtomicU64, Ordering};

use terrane_storage::Storage;

/// A number that is practically unique. It needs to be unlikely to repeat, not hard to guess. Never
/// 0.
pub fn draw_stamp(storage: &dyn Storage) -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
    let seed = [storage.unix_time_ns(), storage.monotonic_ns(), std::process::id().into(), drawn];
    xxhash_rust::xxh3::xxh3_64(bytemuck::cast_slice(&seed)).max(1)
}
