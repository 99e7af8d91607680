//! Operations on several words by threads of the system, and damaged descriptors.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Error, Native, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::turns::in_turn;

const SITE: Site = Site::new("test");

fn options() -> Options {
    Options { chunk_length: 1 << 14, address_space: 1 << 26, ..Options::new(1, PersistenceDomain::PageCache) }
}

/// A pool with `count` words that are 0, some in the same line.
pub fn create<B: Backend>(storage: &dyn Storage, options: &Options, count: u64) -> (Pool<B>, Vec<u64>) {
    let pool: Pool<B> = Pool::create(storage, "pool", options).unwrap();
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
            let value = pmwcas::read(pool, word, &guard).unwrap();
            descriptor.swap(word, value, value + 1).unwrap();
        }
        if descriptor.execute().unwrap() {
            return;
        }
    }
}

/// Puts new blocks under both words, until it succeeds. A block holds the same number everywhere.
fn relink<B: Backend>(pool: &Pool<B>, words: &[u64], number: u64) {
    loop {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(pool, &guard).unwrap();
        for &word in words {
            let old = pmwcas::read(pool, word, &guard).unwrap();
            let block = descriptor.acquire(64).unwrap();
            (block..block + 64).step_by(8).for_each(|place| pool.backend().store(place, number));
            pool.backend().flush(block..block + 64, SITE);
            descriptor.swap(word, old, block).unwrap();
            if old != 0 {
                descriptor.release(old).unwrap();
            }
        }
        if descriptor.execute().unwrap() {
            return;
        }
    }
}

#[test]
fn threads_change_overlapping_words_and_readers_see_whole_blocks() {
    const ROUNDS: u64 = 1500;
    let directory = crate::support::directory();
    let storage = RealStorage::new(directory.path());
    let (pool, words) = create::<Native>(&storage, &options(), 6);
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
                    let block = pmwcas::read(pool, link, &guard).unwrap();
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
    let values: Vec<u64> = words.iter().map(|word| pmwcas::read(&pool, *word, &guard).unwrap()).collect();
    assert_eq!(values[..4], [2 * ROUNDS, 2 * ROUNDS, 3 * ROUNDS, 2 * ROUNDS]);
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|block, _| assert!(acquired.insert(block))).unwrap();
    assert_eq!(acquired, BTreeSet::from([pool.backend().load(ROOT), values[4], values[5]]));
}

#[test]
fn a_damaged_descriptor_is_an_error() {
    // Words of the first descriptor in use: its state, a block, an address, an old value.
    for (place, word) in
        [(0, 9), (0, 0xff), (8, 77 * 64 + 1), (8, u64::MAX - 62), (64, 5), (64, u64::MAX - 7), (72, !0)]
    {
        let storage = MemoryStorage::new();
        let (pool, words) = create::<Traced>(&storage, &options(), 2);
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

/// Closes a pool after operations that acquired and released blocks, and damages a bit of the file,
/// over and over.
#[test]
fn a_state_that_is_damaged_frees_no_block() {
    let storage = MemoryStorage::new();
    let (pool, words) = create::<Traced>(&storage, &options(), 2);
    (1..4).for_each(|number| relink(&pool, &words, number));
    let page = pool.backend().load(1152);
    let states: Vec<u64> = (page + 64..page + 3904).step_by(192).collect();
    let blocks = |pool: &Pool<Traced>| {
        let mut blocks = BTreeSet::new();
        pool.visit_blocks(|block, _| _ = blocks.insert(block)).unwrap();
        blocks
    };
    pool.reclaim().unwrap();
    let expected = blocks(&pool);
    assert_eq!(expected.len(), 3);
    pool.close().unwrap();
    let write = |word: u64, place: u64| {
        let file = storage.open("pool", OpenMode::Write).unwrap();
        file.write_all_at(&word.to_le_bytes(), place).unwrap();
    };
    let mut opened = 0;
    for was_closed in [true, false] {
        for (place, state) in states.iter().flat_map(|place| (1..=4).map(move |state| (*place, state))) {
            let pool: Pool<Traced> = Pool::open(&storage, "pool", &options()).unwrap();
            let before = pool.backend().load(place);
            if was_closed {
                pool.close().unwrap()
            } else {
                drop(pool)
            }
            write(before | state, place);
            match Pool::<Traced>::open(&storage, "pool", &options()) {
                Err(Error::Damaged { .. }) => {}
                // As a kill may leave it.
                Ok(pool) if !was_closed => {
                    assert_eq!(blocks(&pool), expected, "state {state} at {place}");
                    opened += 1;
                }
                other => panic!("state {state} at {place}, closed {was_closed}: {other:?}"),
            }
            write(before, place);
        }
    }
    assert!(opened > 0);
}

/// The contents of a word, for the offsets of a word, of a descriptor that changed it, and of a
/// block.
type Contents = fn(u64, u64, u64) -> u64;

/// A closed pool with words 5, 6 and 7, and a block that looks like a descriptor of the second. The
/// second word gets the given contents, which may depend on the offsets of the word, of a
/// descriptor that changed it, and of the block.
fn damaged(storage: &MemoryStorage, held: impl Fn(u64, u64, u64) -> u64) -> Vec<u64> {
    let (pool, words) = create::<Traced>(storage, &options(), 3);
    let backend = pool.backend();
    let (descriptor, block) = {
        let guard = pool.pin();
        let mut operation = Descriptor::new(&pool, &guard).unwrap();
        let block = operation.acquire(192).unwrap();
        (block..block + 192).step_by(8).for_each(|place| backend.store(place, 0));
        // Its state is one of the five. Its only valid entry is for the word.
        backend.store(block, 3);
        backend.store(block + 64, words[1]);
        backend.store(block + 88, 0);
        backend.flush(block..block + 192, SITE);
        words.iter().zip([5, 6, 7]).for_each(|(word, value)| operation.swap(*word, 0, value).unwrap());
        assert!(operation.execute().unwrap());
        let page = backend.load(1152);
        let named = |place: &u64| (64..192).step_by(32).any(|entry| backend.load(place + entry) == words[1]);
        ((page + 64..page + 3904).step_by(192).find(named).unwrap(), block)
    };
    pool.close().unwrap();
    let file = storage.open("pool", OpenMode::Write).unwrap();
    file.write_all_at(&held(words[1], descriptor, block).to_le_bytes(), words[1]).unwrap();
    words
}

/// Any operation that meets such a word reports it, and changes nothing.
#[test]
fn a_word_that_no_operation_leaves_so_is_an_error_and_nothing_is_changed() {
    const ASKS: u64 = 1 << 61;
    const IS_GIVEN: u64 = 1 << 62;
    let held: [(&str, Contents); 12] = [
        ("a flag of a value", |_, _, _| 6 | ASKS),
        ("another flag", |_, _, _| 6 | IS_GIVEN),
        ("two flags", |_, _, _| 6 | ASKS | IS_GIVEN),
        ("two others", |_, descriptor, _| descriptor | ASKS | (1 << 63)),
        ("all bits", |_, _, _| !0),
        ("a descriptor that is out of use", |_, descriptor, _| IS_GIVEN | descriptor),
        ("a question for it", |_, descriptor, _| ASKS | (descriptor / 64)),
        ("a part of one", |_, descriptor, _| IS_GIVEN | (descriptor + 64)),
        ("the next one", |_, descriptor, _| IS_GIVEN | (descriptor + 192)),
        ("a block that looks like one", |_, _, block| IS_GIVEN | block),
        ("a question for that", |_, _, block| ASKS | (block / 64)),
        ("itself", |word, _, _| IS_GIVEN | word),
    ];
    for (what, held) in held {
        let storage = MemoryStorage::new();
        let words = damaged(&storage, held);
        let mut pool: Pool<Traced> = Pool::open(&storage, "pool", &options()).unwrap();
        let guard = pool.pin();
        let found = pool.backend().load(words[1]);
        assert_ne!(found & (ASKS | IS_GIVEN), 0, "{what}");
        let check = |error: Error| {
            assert!(matches!(&error, Error::Damaged { offset, .. } if *offset == words[1]), "{what}: {error}");
            assert!(error.to_string().contains(&format!("{found:#x}")), "{what}: {error}");
        };
        check(pmwcas::read(&pool, words[1], &guard).unwrap_err());
        check(pmwcas::compare_exchange(&pool, words[1], 6, 9, &guard).unwrap_err());
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        descriptor.acquire(64).unwrap();
        words.iter().zip([5, 6, 7]).for_each(|(word, value)| descriptor.swap(*word, value, 9).unwrap());
        check(descriptor.execute().unwrap_err());
        drop(guard);
        pool.reclaim_all().unwrap();
        let mut blocks = 0;
        pool.visit_blocks(|_, _| blocks += 1).unwrap();
        assert_eq!(blocks, 2, "{what}: what was acquired is free again");
        for _ in 0..2 {
            let others = [0, 2].map(|other: usize| pmwcas::read(&pool, words[other], &pool.pin()).unwrap());
            assert_eq!((others, pool.backend().load(words[1])), ([5, 7], found), "{what}");
            pool.close().unwrap();
            pool = Pool::open(&storage, "pool", &options()).unwrap();
        }
    }
}

/// A dirty value has the same meaning as a clean one. Damage that yields another value cannot be
/// detected.
#[test]
fn of_the_bits_of_a_word_two_are_an_error_where_they_should_not_be_set() {
    for bit in 0..64 {
        let storage = MemoryStorage::new();
        let value = 6 ^ (1 << bit);
        let words = damaged(&storage, |_, _, _| value);
        let pool: Pool<Traced> = Pool::open(&storage, "pool", &options()).unwrap();
        let expected = match bit {
            61 | 62 => None,
            _ => Some(value & !(1 << 63)),
        };
        assert_eq!(pmwcas::read(&pool, words[1], &pool.pin()).ok(), expected, "bit {bit}");
    }
}

#[test]
fn a_block_that_an_operation_releases_twice_is_refused_and_free_once() {
    let (pool, words) = create::<Traced>(&MemoryStorage::new(), &options(), 1);
    let guard = pool.pin();
    let mut linking = Descriptor::new(&pool, &guard).unwrap();
    let block = linking.acquire(64).unwrap();
    linking.swap(words[0], 0, block).unwrap();
    assert!(linking.execute().unwrap());
    let mut unlinking = Descriptor::new(&pool, &guard).unwrap();
    unlinking.release(block).unwrap();
    let error = unlinking.release(block).unwrap_err();
    assert!(matches!(&error, Error::Damaged { offset, .. } if *offset == block), "{error}");
    unlinking.swap(words[0], block, 0).unwrap();
    assert!(unlinking.execute().unwrap());
    drop(guard);
    pool.reclaim().unwrap();
    let guard = pool.pin();
    let mut twice = Descriptor::new(&pool, &guard).unwrap();
    let blocks = [twice.acquire(64).unwrap(), twice.acquire(64).unwrap()];
    assert_ne!(blocks[0], blocks[1]);
}

#[test]
fn a_word_outside_of_the_pool_is_an_error() {
    let (pool, _) = create::<Traced>(&MemoryStorage::new(), &options(), 1);
    let guard = pool.pin();
    for word in [0, 8, 4097, pool.length(), u64::MAX - 7, !0] {
        assert!(matches!(pmwcas::read(&pool, word, &guard), Err(Error::Damaged { offset, .. }) if offset == word));
        assert!(pmwcas::compare_exchange(&pool, word, 0, 1, &guard).is_err(), "{word}");
    }
}

/// Each thread keeps a few retired descriptors to itself. Those of four threads are more than a
/// page has, and there is no space for another page.
#[test]
fn operations_on_words_go_on_where_the_disk_is_full() {
    let storage = MemoryStorage::new();
    let (pool, words) = create::<Traced>(&storage, &options(), 2);
    count_up(&pool, &words);
    storage.set_capacity(pool.length() + 4096);
    // Nothing is free any more, not in chunks either.
    let mut intents = Vec::new();
    let full = loop {
        let mut intent = pool.intent();
        match intent.acquire(3904, ROOT + 8) {
            Ok(_) => intents.push(intent),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Storage(_)), "{full}");
    let outcomes = in_turn(4, 1000, |_| {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(&pool, &guard)?;
        for &word in &words {
            let value = pmwcas::read(&pool, word, &guard)?;
            descriptor.swap(word, value, value + 1)?;
        }
        descriptor.execute()
    });
    let failed = outcomes.iter().enumerate().find(|(_, outcome)| !matches!(outcome, Ok(true)));
    assert!(failed.is_none() && outcomes.len() == 1000, "{failed:?}");
    assert!(words.iter().all(|word| pool.backend().load(*word) == 1001));
}
