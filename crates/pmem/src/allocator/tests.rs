//! What two threads could meet between claiming a block and setting its bit.

use std::collections::BTreeSet;

use terrane_storage::MemoryStorage;
use terrane_storage::sync::Ordering;

use crate::{Backend, Options, PersistenceDomain, Pool, ROOT, Traced};

fn options() -> Options {
    Options { chunk_length: 1 << 16, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::PageCache) }
}

/// A block that is freed in a part of the bitmap that has not been looked at is found there; were it listed
/// too, a thread could find it while another one has claimed it and not set its bit yet.
#[test]
fn a_block_freed_ahead_of_where_was_looked_is_claimed_once() {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = Pool::create(&storage, "pool", &options()).unwrap();
    let mut blocks = Vec::new();
    for _ in 0..200 {
        let mut intent = pool.intent();
        let block = intent.acquire(64, ROOT).unwrap();
        pool.backend().store(ROOT, block);
        intent.finish();
        blocks.push(block);
    }
    let release = |pool: &Pool<Traced>, block: u64| {
        pool.backend().store(ROOT, block);
        let mut intent = pool.intent();
        intent.release(block, ROOT).unwrap();
        pool.backend().store(ROOT, 0);
        intent.finish();
    };
    release(&pool, blocks[0]);
    drop(pool);
    let pool: Pool<Traced> = Pool::open(&storage, "pool", &options()).unwrap();
    assert_eq!(pool.claim(64).unwrap(), blocks[0]);
    release(&pool, blocks[199]);
    release(&pool, blocks[1]);
    let mut claimed = BTreeSet::new();
    for _ in 0..300 {
        assert!(claimed.insert(pool.claim(64).unwrap()), "claimed twice");
    }
    assert!(claimed.contains(&blocks[199]) && claimed.contains(&blocks[1]));
    assert!(!claimed.contains(&blocks[0]) && !claimed.contains(&blocks[2]));
}

/// What was retired later would be given out before what came first is settled, and may name a word in it (E2).
#[test]
fn nothing_is_settled_beside_another_thread_that_settles() {
    let pool: Pool<Traced> = Pool::create(&MemoryStorage::new(), "pool", &options()).unwrap();
    let mut intent = pool.intent();
    let block = intent.acquire(64, ROOT).unwrap();
    pool.backend().store(ROOT, block);
    intent.finish();
    let mut intent = pool.intent();
    intent.release(block, ROOT).unwrap();
    pool.backend().store(ROOT, 0);
    intent.retire(&pool.pin());
    let is_given_out = || pool.claim(64).unwrap() == block;
    pool.allocator().is_settling.store(true, Ordering::Release);
    pool.reclaim().unwrap();
    assert!(!is_given_out(), "settled beside another thread");
    pool.allocator().is_settling.store(false, Ordering::Release);
    pool.reclaim().unwrap();
    assert!(is_given_out());
}
