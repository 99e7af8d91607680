//! Operations on several words by threads of the system, and descriptors that were damaged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Error, Native, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::{MemoryStorage, OpenMode, RealStorage, Storage};

const SITE: Site = Site::new("test");

fn options() -> Options {
    Options { chunk_length: 1 << 14, address_space: 1 << 26, ..Options::new(1, PersistenceDomain::PageCache) }
}

/// A pool with so many words that are 0, some in the same line.
fn create<B: Backend>(storage: &dyn Storage, count: u64) -> (Pool<B>, Vec<u64>) {
    let pool: Pool<B> = Pool::create(storage, "pool", &options()).unwrap();
    let mut intent = pool.intent();
    let table = intent.acquire(count * 32, ROOT).unwrap();
    let words: Vec<u64> = (0..count).map(|number| table + number * 32).collect();
    words.iter().for_each(|word| pool.backend().store(*word, 0));
    pool.backend().persist(table..table + count * 32, SITE);
    pool.backend().store(ROOT, table);
    pool.backend().persist(ROOT..ROOT + 8, SITE);
    intent.finish();
    (pool, words)
}

/// Counts the words up together, until it succeeds.
fn count_up<B: Backend>(pool: &Pool<B>, words: &[u64]) {
    loop {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(pool, &guard).unwrap();
        for &word in words {
            let value = pmwcas::read(pool, word, &guard);
            descriptor.swap(word, value, value + 1).unwrap();
        }
        if descriptor.execute() {
            return;
        }
    }
}

/// Puts new blocks under both words, until it succeeds; a block holds the same number everywhere.
fn relink<B: Backend>(pool: &Pool<B>, words: &[u64], number: u64) {
    loop {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(pool, &guard).unwrap();
        for &word in words {
            let old = pmwcas::read(pool, word, &guard);
            let block = descriptor.acquire(64).unwrap();
            (block..block + 64).step_by(8).for_each(|place| pool.backend().store(place, number));
            pool.backend().flush(block..block + 64, SITE);
            descriptor.swap(word, old, block).unwrap();
            if old != 0 {
                descriptor.release(old).unwrap();
            }
        }
        if descriptor.execute() {
            return;
        }
    }
}

#[test]
fn threads_change_overlapping_words_and_readers_see_whole_blocks() {
    const ROUNDS: u64 = 1500;
    let directory = crate::support::directory();
    let storage = RealStorage::new(directory.path());
    let (pool, words) = create::<Native>(&storage, 6);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let groups = [[0, 1, 2], [1, 2, 3], [0, 2, 3]];
        let counting = groups.map(|group| {
            let (pool, words) = (&pool, group.map(|number| words[number]));
            scope.spawn(move || (0..ROUNDS).for_each(|_| count_up(pool, &words)))
        });
        let linking = [1, 2].map(|thread| {
            let (pool, words) = (&pool, &words[4..]);
            scope.spawn(move || (0..ROUNDS).for_each(|number| relink(pool, words, thread * ROUNDS + number)))
        });
        let (pool, links, is_done) = (&pool, &words[4..], &is_done);
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                let guard = pool.pin();
                for &link in links {
                    let block = pmwcas::read(pool, link, &guard);
                    if block != 0 {
                        let places = (block..block + 64).step_by(8);
                        let numbers: BTreeSet<u64> = places.map(|place| pool.backend().load(place)).collect();
                        assert_eq!(numbers.len(), 1, "block {block} was reused under its reader: {numbers:?}");
                    }
                }
            }
        });
        counting.into_iter().chain(linking).for_each(|thread| thread.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
    });
    pool.close().unwrap();
    let pool: Pool<Native> = Pool::open(&storage, "pool", &options()).unwrap();
    let guard = pool.pin();
    let values: Vec<u64> = words.iter().map(|word| pmwcas::read(&pool, *word, &guard)).collect();
    assert_eq!(values[..4], [2 * ROUNDS, 2 * ROUNDS, 3 * ROUNDS, 2 * ROUNDS]);
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|block, _| assert!(acquired.insert(block))).unwrap();
    assert_eq!(acquired, BTreeSet::from([pool.backend().load(ROOT), values[4], values[5]]));
}

#[test]
fn a_damaged_descriptor_is_an_error() {
    // Words of the first descriptor that is used: its state, a block, an address, an old value.
    for (place, word) in
        [(0, 9), (0, 0xff), (8, 77 * 64 + 1), (8, u64::MAX - 62), (64, 5), (64, u64::MAX - 7), (72, !0)]
    {
        let storage = MemoryStorage::new();
        let (pool, words) = create::<Traced>(&storage, 2);
        count_up(&pool, &words);
        let page = pool.backend().load(1152);
        // As a kill leaves it: it names words, and waits.
        let used = (page + 64..page + 3904).step_by(192).find(|place| pool.backend().load(*place) & 0xff != 0).unwrap();
        pool.backend().store(used, pool.backend().load(used) & !0xff | 2);
        drop(pool);
        drop(Pool::<Traced>::open(&storage, "pool", &options()).unwrap());
        let file = storage.open("pool", OpenMode::Write).unwrap();
        let state = u64::to_le_bytes(1 << 8 | 2);
        file.write_all_at(&state, used).unwrap();
        file.write_all_at(&u64::to_le_bytes(word), used + place).unwrap();
        let error = Pool::<Traced>::open(&storage, "pool", &options()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{word} at {place}: {error}");
    }
}
