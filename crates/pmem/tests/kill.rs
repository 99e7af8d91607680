//! A process that is killed while its threads change a pool. Acknowledged changes are there, and no
//! block is lost.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Error, Native, Options, PersistenceDomain, Pool, ROOT, Site};
use terrane_storage::RealStorage;
use terrane_testkit::killed;

const SITE: Site = Site::new("test");
const THREADS: u64 = 4;

/// One test at a time. A new process inherits the open files of this one, with the lock, until it
/// becomes another program. So the other test's process could find its pool locked.
static ALONE: Mutex<()> = Mutex::new(());

fn options() -> Options {
    Options { chunk_length: 1 << 14, address_space: 1 << 30, ..Options::new(1, PersistenceDomain::PageCache) }
}

fn open(directory: &Path) -> Result<Pool<Native>, Error> {
    Pool::open(&RealStorage::new(directory), "pool", &options())
}

/// A pool with an empty list for each thread. A node has its next node and its value, one more than
/// the next one's.
fn create(directory: &Path) -> Pool<Native> {
    let pool: Pool<Native> = Pool::create(&RealStorage::new(directory), "pool", &options()).unwrap();
    let mut intent = pool.intent();
    let heads = intent.acquire(THREADS * 8, ROOT).unwrap();
    (0..THREADS).for_each(|thread| pool.backend().store(heads + thread * 8, 0));
    pool.backend().persist(heads..heads + THREADS * 8, SITE);
    pool.backend().store(ROOT, heads);
    pool.backend().persist(ROOT..ROOT + 8, SITE);
    intent.finish();
    pool
}

fn head<B: Backend>(pool: &Pool<B>, thread: u64) -> u64 {
    pool.backend().load(ROOT) + thread * 8
}

/// Two pushes and a pop, over and over. Reports the list's first value after each.
fn change_until_killed(pool: &Pool<Native>, thread: u64) {
    let backend = pool.backend();
    let head = head(pool, thread);
    for round in 0u64.. {
        let first = backend.load(head);
        let mut intent = pool.intent();
        let value = if round % 3 == 2 {
            intent.release(first, head).unwrap();
            let next = backend.load(first);
            backend.store(head, next);
            if next == 0 { 0 } else { backend.load(next + 8) }
        } else {
            let value = if first == 0 { 1 } else { backend.load(first + 8) + 1 };
            let node = intent.acquire(64 << (value % 3), head).unwrap();
            backend.store(node, first);
            backend.store(node + 8, value);
            backend.persist(node..node + 16, SITE);
            backend.store(head, node);
            value
        };
        backend.persist(head..head + 8, SITE);
        intent.finish();
        killed::acknowledge(thread, value);
    }
}

/// The process that the test kills.
fn change_pool(directory: &Path) {
    let pool = open(directory).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || change_until_killed(pool, thread));
        }
    });
}

/// The first value of each list, after a check that lists and blocks belong together.
fn check(pool: &Pool<Native>) -> Vec<u64> {
    let backend = pool.backend();
    let mut linked = BTreeSet::from([backend.load(ROOT)]);
    let first_values = (0..THREADS).map(|thread| {
        let mut node = backend.load(head(pool, thread));
        let first_value = if node == 0 { 0 } else { backend.load(node + 8) };
        for value in (1..=first_value).rev() {
            assert_eq!(backend.load(node + 8), value, "list {thread}");
            assert!(linked.insert(node), "node {node} is in two lists");
            node = backend.load(node);
        }
        assert_eq!(node, 0, "list {thread} goes on");
        first_value
    });
    let first_values = first_values.collect();
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|offset, _| assert!(acquired.insert(offset))).unwrap();
    assert_eq!(acquired, linked);
    first_values
}

#[test]
fn a_pool_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged() {
    // The test runs itself as that process.
    if let Some(directory) = killed::place() {
        return change_pool(&directory);
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = support::directory();
    drop(create(directory.path()));
    for changes in [1, 10, 100, 1000, 3000, 3001, 5000, 7000] {
        let test = "a_pool_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged";
        let acknowledged = killed::run_and_kill(test, directory.path(), THREADS, changes);
        let pool = open(directory.path()).unwrap();
        for (found, acknowledged) in check(&pool).into_iter().zip(acknowledged) {
            // One change may have been made and not acknowledged.
            let Some(value) = acknowledged else { continue };
            assert!(found.abs_diff(value) <= 1, "{found} after {value} was acknowledged and {changes} changes");
        }
    }
}

/// Threads that only read.
const READERS: u64 = 2;

/// Words of the table. One word for each counting thread comes first. Then come two that count the
/// changes of all threads, one that links to a block with the same number, and one that also counts
/// the changes, later and separately.
const WORDS: u64 = THREADS + 4;
const ALL: u64 = THREADS;
const AGAIN: u64 = THREADS + 1;
const LINK: u64 = THREADS + 2;
const SINGLE: u64 = THREADS + 3;

fn create_counters(directory: &Path) {
    let pool: Pool<Native> = Pool::create(&RealStorage::new(directory), "pool", &options()).unwrap();
    let mut intent = pool.intent();
    let table = intent.acquire(WORDS * 64, ROOT).unwrap();
    (0..WORDS).for_each(|number| pool.backend().store(table + number * 64, 0));
    pool.backend().persist(table..table + WORDS * 64, SITE);
    pool.backend().store(ROOT, table);
    pool.backend().persist(ROOT..ROOT + 8, SITE);
    intent.finish();
}

fn word(pool: &Pool<Native>, number: u64) -> u64 {
    pool.backend().load(ROOT) + number * 64
}

fn value(pool: &Pool<Native>, number: u64) -> u64 {
    pmwcas::read(pool, word(pool, number), &pool.pin()).unwrap()
}

/// Words of a block that holds a number. Blocks have several lengths.
fn block_words(number: u64) -> u64 {
    8 << (number % 3)
}

/// Counts the thread's word and both common ones up at once, with a new block. Gives whether no
/// other thread interfered.
fn count_up(pool: &Pool<Native>, thread: u64) -> bool {
    let guard = pool.pin();
    let mut descriptor = Descriptor::new(pool, &guard).unwrap();
    for number in [thread, ALL, AGAIN] {
        let value = value(pool, number);
        descriptor.swap(word(pool, number), value, value + 1).unwrap();
    }
    let (old, number) = (value(pool, LINK), value(pool, ALL) + 1);
    let block = descriptor.acquire(block_words(number) * 8).unwrap();
    (0..block_words(number)).for_each(|place| pool.backend().store(block + place * 8, number));
    pool.backend().flush(block..block + block_words(number) * 8, SITE);
    descriptor.swap(word(pool, LINK), old, block).unwrap();
    if old != 0 {
        descriptor.release(old).unwrap();
    }
    descriptor.execute().unwrap()
}

/// Changes all words, over and over. Reports the thread's own word after each round.
fn count_until_killed(pool: &Pool<Native>, thread: u64) {
    loop {
        while !count_up(pool, thread) {}
        let guard = pool.pin();
        let add = |found| pmwcas::compare_exchange(pool, word(pool, SINGLE), found, found + 1, &guard).unwrap();
        let mut found = value(pool, SINGLE);
        while let Err(other) = add(found) {
            found = other;
        }
        killed::acknowledge(thread, value(pool, thread));
    }
}

/// The number in the linked block, which all of its words hold; 0 without a block.
fn linked_number(pool: &Pool<Native>) -> u64 {
    let guard = pool.pin();
    let block = pmwcas::read(pool, word(pool, LINK), &guard).unwrap();
    if block == 0 {
        return 0;
    }
    let number = pool.backend().load(block);
    for place in 0..block_words(number) {
        assert_eq!(pool.backend().load(block + place * 8), number, "word {place} of the block at {block}");
    }
    number
}

/// Reads words that others only increase, and reports them.
fn read_until_killed(pool: &Pool<Native>, thread: u64) {
    let mut last = 0;
    loop {
        let [first, second, third] = [value(pool, ALL), linked_number(pool), value(pool, AGAIN)];
        assert!(last <= first && first <= second && second <= third, "{last}, {first}, {second}, {third}");
        if third > last {
            last = third;
            killed::acknowledge(thread, last);
        }
    }
}

fn change_counters(directory: &Path) {
    let pool = open(directory).unwrap();
    std::thread::scope(|scope| {
        let pool = &pool;
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || count_until_killed(pool, thread))));
        (THREADS..THREADS + READERS).for_each(|thread| drop(scope.spawn(move || read_until_killed(pool, thread))));
    });
}

#[test]
fn words_that_change_at_once_are_as_they_were_acknowledged_and_read_after_kills() {
    if let Some(directory) = killed::place() {
        return change_counters(&directory);
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = support::directory();
    create_counters(directory.path());
    let mut behind = 0;
    // Few kills come between a decision and the values that follow it.
    let rounds = if terrane_testkit::is_soak() { 5000 } else { 100 };
    for changes in (0..rounds).map(|round| 1 + round * 7919 % 1500) {
        let test = "words_that_change_at_once_are_as_they_were_acknowledged_and_read_after_kills";
        let acknowledged = killed::run_and_kill(test, directory.path(), THREADS + READERS, changes);
        let pool = open(directory.path()).unwrap();
        let values: Vec<u64> = (0..WORDS).map(|number| value(&pool, number)).collect();
        let (own, acknowledged_by) = (&values[..THREADS as usize], acknowledged.split_at(THREADS as usize));
        let sum: u64 = own.iter().sum();
        let of_all = [values[ALL as usize], values[AGAIN as usize], linked_number(&pool)];
        assert_eq!(of_all, [sum; 3], "{own:?} after {changes} changes");
        for (found, acknowledged) in own.iter().zip(acknowledged_by.0) {
            let Some(value) = acknowledged else { continue };
            assert!((*value..=value + 1).contains(found), "{found} after {value} was acknowledged");
        }
        let read = acknowledged_by.1.iter().flatten().max();
        assert!(read.is_none_or(|read| *read <= sum), "{sum} after {read:?} was read");
        // Each thread may have been killed before it counted that one up.
        let now_behind = sum - values[SINGLE as usize];
        assert!((behind..=behind + THREADS).contains(&now_behind), "{now_behind} behind, {behind} before");
        behind = now_behind;
        let mut acquired = BTreeSet::new();
        pool.visit_blocks(|block, _| assert!(acquired.insert(block))).unwrap();
        let link = values[LINK as usize];
        let linked = [pool.backend().load(ROOT), link].into_iter().filter(|block| *block != 0);
        assert_eq!(acquired, linked.collect(), "after {changes} changes");
    }
}
