//! Races between claiming a block and setting its bit, at several states of the scan for free
//! blocks; and what later sessions find of the pool's own pages.

use std::collections::BTreeSet;

use terrane_testkit::MemoryStorage;

use super::chunk::Chunk;
use super::pages::{DESCRIPTORS, SLOTS};
use crate::pmwcas::Descriptor;
use crate::pool::INTENTS;
use crate::{Backend, Options, PersistenceDomain, Pool, ROOT, Traced};

fn options() -> Options {
    Options { chunk_length: 1 << 16, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::PageCache) }
}

fn acquire(pool: &Pool<Traced>) -> u64 {
    let mut intent = pool.intent();
    let block = intent.acquire(64, ROOT).unwrap();
    pool.backend().store(ROOT, block);
    intent.finish();
    block
}

fn release(pool: &Pool<Traced>, block: u64) {
    pool.backend().store(ROOT, block);
    let mut intent = pool.intent();
    intent.release(block, ROOT).unwrap();
    pool.backend().store(ROOT, 0);
    intent.finish();
}

/// A reopened pool, not scanned yet, and its blocks by chunk. All are acquired. The last chunk has
/// more blocks.
fn reopened(chunks: usize) -> (Pool<Traced>, Vec<Vec<u64>>) {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = Pool::create(&storage, "pool", &options()).unwrap();
    let mut blocks = vec![Vec::new(); chunks];
    while blocks[chunks - 1].len() < 200 {
        let block = acquire(&pool);
        blocks[pool.locate(block).unwrap().0.index as usize].push(block);
    }
    drop(pool);
    (Pool::open(&storage, "pool", &options()).unwrap(), blocks)
}

/// Such a pool after the first word of the first bitmap was scanned, and nothing else.
fn scanned_once(chunks: usize) -> (Pool<Traced>, Vec<Vec<u64>>) {
    let (pool, blocks) = reopened(chunks);
    release(&pool, blocks[0][0]);
    assert_eq!(pool.claim(64).unwrap(), blocks[0][0]);
    (pool, blocks)
}

/// Releases blocks, then claims them and more. No block is claimed twice, and of the acquired ones
/// only the released.
///
/// A block that is freed in an unscanned word is found by the scan. If it were also listed, a
/// thread could find it while another one has claimed it and not set its bit yet. Here the bit is
/// never set after a claim.
fn claim_each_once(pool: &Pool<Traced>, acquired: &[Vec<u64>], released: &[u64]) {
    released.iter().for_each(|&block| release(pool, block));
    let mut claimed = BTreeSet::new();
    for _ in 0..300 {
        let block = pool.claim(64).unwrap();
        assert!(claimed.insert(block), "{block} is claimed twice after {released:?} were released");
    }
    let again: BTreeSet<&u64> = acquired.iter().flatten().filter(|block| claimed.contains(*block)).collect();
    assert_eq!(again, released.iter().collect());
}

#[test]
fn a_block_freed_ahead_of_the_scan_is_claimed_once() {
    let (pool, blocks) = scanned_once(1);
    claim_each_once(&pool, &blocks, &[blocks[0][199], blocks[0][1]]);
}

#[test]
fn a_block_freed_in_the_next_word_to_scan_is_claimed_once() {
    for number in [64, 127] {
        let (pool, blocks) = scanned_once(1);
        assert_eq!(pool.locate(blocks[0][number]).unwrap().1, number as u64);
        claim_each_once(&pool, &blocks, &[blocks[0][number]]);
    }
}

#[test]
fn a_block_freed_in_the_next_chunk_to_scan_is_claimed_once() {
    let (pool, blocks) = reopened(1);
    claim_each_once(&pool, &blocks, &[blocks[0][5]]);
    for chunk in [1, 2] {
        let (pool, blocks) = scanned_once(3);
        claim_each_once(&pool, &blocks, &[blocks[chunk][5]]);
    }
}

#[test]
fn a_block_freed_in_an_unscanned_chunk_is_claimed_once() {
    let (pool, blocks) = reopened(3);
    // No chunk has such blocks: all heads are scanned, and not one bitmap.
    pool.claim(128).unwrap();
    claim_each_once(&pool, &blocks, &[blocks[0][0], blocks[1][5], blocks[2][100]]);
}

/// Frees a block, which is given out once `wait_for` parts have left the queue of retired parts.
fn free_after(pool: &Pool<Traced>, wait_for: u64, block: u64) {
    let (chunk, number) = pool.locate(block).unwrap();
    let (word, bit) = Chunk::bit(number);
    let mut free = pool.allocator().free.lock();
    pool.backend().fetch_and(chunk.bitmap_word(word), !bit);
    free.give_back_after(wait_for, chunk, number);
}

#[test]
fn a_deferred_block_is_not_found_by_the_scan() {
    for (pool, blocks) in [reopened(2), scanned_once(2)] {
        // Words of the bitmap that are scanned next, and later.
        for number in [1, 63, 64, 130] {
            free_after(&pool, 5, blocks[0][number]);
        }
        for left in [0, 4] {
            pool.allocator().free.lock().note_left(left);
            let claimed: BTreeSet<u64> = (0..300).map(|_| pool.claim(64).unwrap()).collect();
            assert!([1, 63, 64, 130].iter().all(|&number| !claimed.contains(&blocks[0][number])));
        }
        pool.allocator().free.lock().note_left(5);
        let claimed: BTreeSet<u64> = (0..4).map(|_| pool.claim(64).unwrap()).collect();
        assert_eq!(claimed, [1, 63, 64, 130].map(|number| blocks[0][number]).into(), "each is given out once");
    }
}

#[test]
fn a_chunk_with_deferred_blocks_takes_no_other_length() {
    let (pool, blocks) = reopened(2);
    let (&held, others) = blocks[0].split_first().unwrap();
    others.iter().for_each(|&block| release(&pool, block));
    free_after(&pool, 1, held);
    (0..2000).for_each(|_| _ = pool.claim(128).unwrap());
    assert_eq!(pool.check_block(held).unwrap(), 64);
}

/// Otherwise parts that were retired later would be given out before earlier ones are settled,
/// which may name a word in them (E2).
#[test]
fn nothing_is_settled_beside_another_thread_that_settles() {
    let pool: Pool<Traced> = Pool::create(&MemoryStorage::new(), "pool", &options()).unwrap();
    let block = acquire(&pool);
    let mut intent = pool.intent();
    intent.release(block, ROOT).unwrap();
    pool.backend().store(ROOT, 0);
    intent.retire(&pool.pin());
    let is_given_out = || pool.claim(64).unwrap() == block;
    let settling = pool.allocator().settling.lock();
    pool.pin().expedite();
    pool.settle_some_expired();
    assert!(!is_given_out(), "settled beside another thread");
    drop(settling);
    pool.reclaim().unwrap();
    assert!(is_given_out());
}

/// A slot that is kept would be missing until the pool is opened again. Each lost page of slots
/// would be followed by another.
#[test]
fn a_retired_intent_whose_blocks_are_all_linked_gives_its_slot_back() {
    let pool: Pool<Traced> = Pool::create(&MemoryStorage::new(), "pool", &options()).unwrap();
    let link_one = || {
        let mut intent = pool.intent();
        let block = intent.acquire(64, ROOT).unwrap();
        pool.backend().store(ROOT, block);
        intent.retire(&pool.pin());
        pool.reclaim().unwrap();
        pool.allocator().slots.lock().len()
    };
    let free = link_one();
    (0..100).for_each(|time| assert_eq!(link_one(), free, "after {time} more"));
}

/// A page that is not found again would stay acquired for ever, and each session would add another.
#[test]
fn later_sessions_take_the_descriptors_of_the_pages_that_the_first_one_added() {
    /// More than a page holds.
    const AT_A_TIME: usize = 30;
    let storage = MemoryStorage::new();
    let mut pool: Pool<Traced> = Pool::create(&storage, "pool", &options()).unwrap();
    let mut first = None;
    for session in 0..60 {
        let guard = pool.pin();
        let mut operations: Vec<_> = (0..AT_A_TIME).map(|_| Descriptor::new(&pool, &guard).unwrap()).collect();
        let mut last = operations.pop().unwrap();
        last.swap(ROOT, session, session + 1).unwrap();
        assert!(last.execute().unwrap());
        drop(operations);
        drop(guard);
        let mut acquired = 0;
        pool.visit_blocks(|_, _| acquired += 1).unwrap();
        let pages = pool.own_blocks().unwrap();
        assert_eq!(pages.len(), 2, "in session {session}");
        let found = (pool.length(), acquired, pages);
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "in session {session}");
        match session % 2 {
            0 => pool.close().unwrap(),
            // As a kill leaves it: the operation's descriptor is not free yet.
            _ => drop(pool),
        }
        pool = Pool::open(&storage, "pool", &options()).unwrap();
    }
}

/// Two operations with the same unit would overwrite each other's state (S2).
#[test]
fn an_opening_lets_each_slot_and_descriptor_be_taken_once() {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = Pool::create(&storage, "pool", &options()).unwrap();
    let intents: Vec<_> = (0..100)
        .map(|_| {
            let mut intent = pool.intent();
            intent.acquire(64, ROOT).unwrap();
            intent
        })
        .collect();
    let guard = pool.pin();
    let operations: Vec<_> = (0..50).map(|_| Descriptor::new(&pool, &guard).unwrap()).collect();
    // Pages of both kinds, more than one of each.
    assert!(pool.own_blocks().unwrap().len() > 4);
    drop((intents, operations));
    drop(guard);
    drop(pool);
    let pool: Pool<Traced> = Pool::open(&storage, "pool", &options()).unwrap();
    let allocator = pool.allocator();
    for (units, free) in [(&SLOTS, &allocator.slots), (&DESCRIPTORS, &allocator.descriptors)] {
        let mut free = free.lock().clone();
        free.sort_unstable();
        // The first slot is reserved for adding pages.
        let mut all: Vec<u64> = pool.all_units(units).unwrap().filter(|&unit| unit != INTENTS).collect();
        all.sort_unstable();
        assert!(free == all, "{units:?}: {} free of {}", free.len(), all.len());
    }
}

/// Otherwise each help would read all pages, and a long reader leaves many.
#[test]
fn a_descriptor_is_told_from_other_words_without_reading_all_pages() {
    fn check(pool: &Pool<Traced>, session: &str) {
        let units: BTreeSet<u64> = pool.all_units(&DESCRIPTORS).unwrap().collect();
        let pages = pool.own_blocks().unwrap();
        assert!(pages.len() > 1 && units.len() > 20, "in the {session}: {} of {}", units.len(), pages.len());
        let tell = |offset| pool.is_descriptor(offset);
        assert!(units.iter().all(|&unit| tell(unit).unwrap()), "in the {session}");
        let others = pages.iter().copied().chain(units.iter().map(|unit| unit + 8)).chain([0, 1, ROOT, u64::MAX]);
        others.for_each(|other| assert!(!tell(other).unwrap(), "in the {session}: {other}"));
        // Nobody waits for a thread that adds a page.
        let adding = pool.allocator().descriptor_pages.write();
        assert!(units.iter().all(|&unit| tell(unit).unwrap()), "in the {session}");
        drop(adding);
        let newest = pool.backend().load(DESCRIPTORS.root);
        pool.backend().store(DESCRIPTORS.root, 8);
        assert!(
            pool.own_blocks().is_err() && units.iter().all(|&unit| matches!(tell(unit), Ok(true))),
            "in the {session}"
        );
        pool.backend().store(DESCRIPTORS.root, newest);
    }

    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = Pool::create(&storage, "pool", &options()).unwrap();
    let guard = pool.pin();
    let operations: Vec<_> = (0..30).map(|_| Descriptor::new(&pool, &guard).unwrap()).collect();
    check(&pool, "session that adds them");
    drop(operations);
    drop(guard);
    pool.close().unwrap();
    check(&Pool::open(&storage, "pool", &options()).unwrap(), "next session");
}
