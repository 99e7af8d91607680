//! Retiring blocks under readers, and any number of intents at a time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use terrane_pmem::pmwcas::Descriptor;
use terrane_pmem::{Backend, Error, Intent, Native, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::turns::in_turn;

const SITE: Site = Site::new("test");

fn options() -> Options {
    Options { chunk_length: 1 << 14, address_space: 1 << 26, ..Options::new(1, PersistenceDomain::PageCache) }
}

fn create<B: Backend>(storage: &dyn Storage) -> Pool<B> {
    Pool::create(storage, "pool", &options()).unwrap()
}

/// Replaces the linked block by a new one, and fills it with a number.
fn replace<'p, B: Backend>(pool: &'p Pool<B>, link: u64, number: u64) -> (u64, Intent<'p, B>) {
    let backend = pool.backend();
    let mut intent = pool.intent();
    let before = backend.load(link);
    if before != 0 {
        intent.release(before, link).unwrap();
    }
    let block = intent.acquire(64, link).unwrap();
    for word in (block..block + 64).step_by(8) {
        backend.store(word, number);
    }
    backend.persist(block..block + 64, SITE);
    backend.store(link, block);
    backend.persist(link..link + 8, SITE);
    (block, intent)
}

fn blocks<B: Backend>(pool: &Pool<B>) -> Vec<u64> {
    let mut found = Vec::new();
    pool.visit_blocks(|offset, _| found.push(offset)).unwrap();
    found
}

#[test]
fn a_block_is_not_reused_while_a_reader_of_its_time_lives() {
    let pool: Pool<Traced> = create(&MemoryStorage::new());
    let (first, intent) = replace(&pool, ROOT, 1);
    intent.finish();
    let reader = pool.pin();
    let mut seen = BTreeSet::new();
    for number in 2..100 {
        let (block, intent) = replace(&pool, ROOT, number);
        assert!(seen.insert(block) && block != first, "block {block} was given out again");
        intent.retire(&pool.pin());
        pool.reclaim().unwrap();
        assert_eq!(pool.backend().load(first), 1);
    }
    assert_eq!(blocks(&pool).len(), 99);
    drop(reader);
    pool.reclaim().unwrap();
    assert_eq!(blocks(&pool), [pool.backend().load(ROOT)]);
    let length = pool.length();
    for number in 100..1000 {
        replace(&pool, ROOT, number).1.retire(&pool.pin());
    }
    assert_eq!(pool.length(), length, "what is retired comes back by itself");
}

#[test]
fn closing_ends_what_was_retired_and_dropping_leaves_it_to_recovery() {
    let storage = MemoryStorage::new();
    let mut pool: Pool<Traced> = create(&storage);
    for round in 0..10 {
        (0..5).for_each(|number| replace(&pool, ROOT, number).1.retire(&pool.pin()));
        assert!(blocks(&pool).len() > 1, "nothing waits for more retirements");
        if round % 2 == 0 {
            pool.close().unwrap()
        } else {
            drop(pool)
        }
        pool = Pool::open(&storage, "pool", &options()).unwrap();
        assert_eq!(blocks(&pool), [pool.backend().load(ROOT)]);
        assert_eq!(pool.backend().load(pool.backend().load(ROOT)), 4);
    }
}

/// As a program leaves intents that it forgets to end.
#[test]
fn closing_ends_what_was_begun_and_forgotten() {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = create(&storage);
    let guard = pool.pin();
    let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
    descriptor.acquire(64).unwrap();
    std::mem::forget(descriptor);
    let mut intent = pool.intent();
    intent.acquire(64, ROOT).unwrap();
    std::mem::forget(intent);
    drop(guard);
    assert_eq!(blocks(&pool).len(), 2);
    pool.close().unwrap();
    assert_eq!(blocks(&Pool::<Traced>::open(&storage, "pool", &options()).unwrap()), []);
}

#[test]
fn a_retired_intent_says_no_more_of_what_it_linked() {
    let pool: Pool<Traced> = create(&MemoryStorage::new());
    let backend = pool.backend();
    let reader = pool.pin();
    let (first, intent) = replace(&pool, ROOT, 1);
    intent.retire(&reader);
    let (second, intent) = replace(&pool, ROOT, 2);
    intent.retire(&reader);
    // The first block moves to another link, which its intent does not know.
    let mut intent = pool.intent();
    intent.release(second, ROOT).unwrap();
    let third = intent.acquire(64, ROOT).unwrap();
    backend.store(ROOT, third);
    intent.retire(&reader);
    drop(reader);
    pool.reclaim().unwrap();
    assert_eq!(blocks(&pool), [third]);
    assert_ne!(third, first);
}

#[test]
fn what_a_retired_intent_released_and_left_linked_stays() {
    let pool: Pool<Traced> = create(&MemoryStorage::new());
    let (block, intent) = replace(&pool, ROOT, 1);
    intent.finish();
    let mut intent = pool.intent();
    intent.release(block, ROOT).unwrap();
    intent.acquire(64, ROOT).unwrap();
    intent.retire(&pool.pin());
    pool.reclaim().unwrap();
    assert_eq!(blocks(&pool), [block]);
}

#[test]
fn a_guard_of_another_pool_is_refused() {
    let (pool, other): (Pool<Traced>, Pool<Traced>) = (create(&MemoryStorage::new()), create(&MemoryStorage::new()));
    let (_, intent) = replace(&pool, ROOT, 1);
    let retired = std::panic::AssertUnwindSafe(|| intent.retire(&other.pin()));
    assert!(std::panic::catch_unwind(retired).is_err());
}

#[test]
fn any_number_of_intents_lives_at_a_time_and_their_slots_are_kept_for_later_sessions() {
    let storage = MemoryStorage::new();
    let mut pool: Pool<Traced> = create(&storage);
    let mut lengths = Vec::new();
    for session in 0..6 {
        let mut intents: Vec<_> = (0..200).map(|_| pool.intent()).collect();
        for intent in &mut intents {
            intent.acquire(64, ROOT).unwrap();
        }
        assert_eq!(blocks(&pool).len(), 200);
        lengths.push(pool.length());
        drop(intents);
        assert!(blocks(&pool).is_empty(), "pages of slots are the pool's own");
        match session % 3 {
            0 => {}
            1 => {
                pool.close().unwrap();
                pool = Pool::open(&storage, "pool", &options()).unwrap();
            }
            _ => {
                drop(pool);
                pool = Pool::open(&storage, "pool", &options()).unwrap();
            }
        }
    }
    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
}

/// A pool with a linked block and no space for a page of slots.
fn on_a_full_disk() -> (Pool<Traced>, MemoryStorage) {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = create(&storage);
    replace(&pool, ROOT, 0).1.finish();
    // Its only chunk has short blocks.
    storage.set_capacity(pool.length() + 4096);
    (pool, storage)
}

/// Each thread keeps a few retired slots to itself. Those of eight threads are more than a new pool
/// has.
#[test]
fn intents_are_retired_and_their_space_is_given_back_where_the_disk_is_full() {
    let (pool, _storage) = on_a_full_disk();
    let found = in_turn(8, 1000, |number| {
        replace(&pool, ROOT, number as u64).1.retire(&pool.pin());
        blocks(&pool).len()
    });
    assert_eq!(found.len(), 1000);
    let most = found.iter().max().unwrap();
    assert!(*most < 32, "{most} blocks wait, and no reader is there");
    assert_eq!(pool.backend().load(1088), 0, "a page of slots was added");
}

/// Where other threads hold the slots, no more retirements come that would fill the batches of all
/// threads.
#[test]
fn what_threads_have_retired_is_used_again_before_slots_are_added() {
    let (pool, _storage) = on_a_full_disk();
    let retired = in_turn(5, 20, |number| replace(&pool, ROOT, number as u64).1.retire(&pool.pin()));
    assert_eq!((retired.len(), blocks(&pool).len()), (20, 21), "all of it waits");
    let reader = pool.pin();
    let reserved = || {
        let mut intent = pool.intent();
        intent.reserve().map(|()| intent)
    };
    let mut held: Vec<_> = (20..31).map(|_| reserved().unwrap()).collect();
    let full = reserved().unwrap_err();
    assert!(matches!(full, Error::Storage(_)), "a reader keeps the others: {full}");
    drop(reader);
    held.extend((0..20).map(|_| reserved().unwrap()));
    assert_eq!(blocks(&pool), [pool.backend().load(ROOT)]);
    assert!(reserved().is_err(), "there are no more");
}

/// There is space for a page, yet it is added only when no retired slot is available.
#[test]
fn slots_are_added_only_when_no_retired_one_can_be_had() {
    let pool: Pool<Traced> = create(&MemoryStorage::new());
    replace(&pool, ROOT, 0).1.finish();
    let retired = in_turn(5, 20, |number| replace(&pool, ROOT, number as u64).1.retire(&pool.pin()));
    assert_eq!((retired.len(), blocks(&pool).len()), (20, 21), "all of it waits, in batches that are not full");
    let mut held: Vec<_> = (0..32).map(|_| pool.intent()).collect();
    for (number, intent) in held.iter_mut().enumerate() {
        intent.reserve().unwrap();
        assert_eq!(pool.backend().load(1088) != 0, number == 31, "a page of slots after {number} were had");
    }
}

/// A pool with a page of slots, and the page.
fn with_page_of_slots(storage: &dyn Storage) -> (Pool<Traced>, u64) {
    let pool: Pool<Traced> = create(storage);
    let mut intents: Vec<_> = (0..40).map(|_| pool.intent()).collect();
    intents.iter_mut().for_each(|intent| _ = intent.acquire(64, ROOT).unwrap());
    drop(intents);
    let page = pool.backend().load(1088);
    (pool, page)
}

#[test]
fn damaged_pages_of_slots_are_errors() {
    for (offset, word) in [(1088, 9), (1088, 8192), (1088, u64::MAX), (0, u64::MAX), (0, 8192), (0, 1), (72, 77)] {
        let storage = MemoryStorage::new();
        let (pool, page) = with_page_of_slots(&storage);
        pool.close().unwrap();
        let file = storage.open("pool", OpenMode::Write).unwrap();
        let offset = if offset == 1088 { offset } else { page + offset };
        // The page leads to itself.
        let word = if word == 1 { page } else { word };
        file.write_all_at(&u64::to_le_bytes(word), offset).unwrap();
        let error = Pool::<Traced>::open(&storage, "pool", &options()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{word} at {offset}: {error}");
    }
}

/// The block looks like a page: it has the length, and it is empty. But another owner would get it.
#[test]
fn pages_that_lead_into_a_free_block_are_an_error() {
    for from in ["slots", "descriptors", "a page"] {
        let storage = MemoryStorage::new();
        let (pool, page) = with_page_of_slots(&storage);
        let mut intent = pool.intent();
        let free = intent.acquire(3904, ROOT).unwrap();
        drop(intent);
        pool.close().unwrap();
        let place = match from {
            "slots" => 1088,
            "descriptors" => 1152,
            _ => page,
        };
        let file = storage.open("pool", OpenMode::Write).unwrap();
        file.write_all_at(&free.to_le_bytes(), place).unwrap();
        let error = Pool::<Traced>::open(&storage, "pool", &options()).unwrap_err();
        assert!(matches!(error, Error::Damaged { offset, .. } if offset == free), "from {from}: {error}");
    }
}

/// Readers follow a link to a block, which has the same number in all of its words while it is not
/// reused.
#[test]
fn many_readers_and_writers_never_meet_a_reused_block() {
    const WRITERS: u64 = 3;
    let directory = crate::support::directory();
    let storage = RealStorage::new(directory.path());
    let pool: Pool<Native> = create(&storage);
    let (links, intent) = replace(&pool, ROOT, 0);
    intent.finish();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (pool, link) = (&pool, links + writer * 8);
                scope.spawn(move || {
                    for number in 0..2000 {
                        let guard = pool.pin();
                        let (_, intent) = replace(pool, link, number);
                        intent.retire(&guard);
                    }
                })
            })
            .collect();
        for reader in 0..3u64 {
            let (pool, is_done) = (&pool, &is_done);
            scope.spawn(move || {
                let mut round = reader;
                while !is_done.load(Ordering::Relaxed) {
                    let guard = pool.pin();
                    round += 1;
                    let block = pool.backend().load(links + round % WRITERS * 8);
                    if block != 0 {
                        let words: BTreeSet<u64> =
                            (block..block + 64).step_by(8).map(|word| pool.backend().load(word)).collect();
                        assert_eq!(words.len(), 1, "block {block} was reused: {words:?}");
                    }
                    drop(guard);
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
    });
    pool.close().unwrap();
    let pool: Pool<Native> = Pool::open(&storage, "pool", &options()).unwrap();
    let mut expected: Vec<u64> = (0..WRITERS).map(|writer| pool.backend().load(links + writer * 8)).collect();
    expected.push(links);
    expected.sort_unstable();
    assert_eq!(blocks(&pool), expected);
}
