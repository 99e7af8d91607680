//! A process that is killed while its threads change a pool: what it acknowledged is there, and no block is lost.

#[path = "support/killed.rs"]
mod killed;
mod support;

use std::collections::BTreeSet;
use std::path::Path;

use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Error, Native, Options, PersistenceDomain, Pool, ROOT, Site};
use terrane_storage::RealStorage;

const SITE: Site = Site::new("test");
const THREADS: u64 = 4;

fn options() -> Options {
    Options { chunk_length: 1 << 14, address_space: 1 << 30, ..Options::new(1, PersistenceDomain::PageCache) }
}

fn open(directory: &Path) -> Result<Pool<Native>, Error> {
    Pool::open(&RealStorage::new(directory), "pool", &options())
}

/// A pool with an empty list for each thread: a node is its next node and its value, one more than the next one's.
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

/// Two pushes and a pop, over and over; says after each what the list's first value is.
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
    let directory = support::directory();
    drop(create(directory.path()));
    for changes in [1, 10, 100, 1000, 3000, 3001, 5000, 7000] {
        let test = "a_pool_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged";
        let acknowledged = killed::run_and_kill(test, directory.path(), THREADS, changes);
        let pool = open(directory.path()).unwrap();
        for (found, acknowledged) in check(&pool).into_iter().zip(acknowledged) {
            // One change may have been made and not acknowledged any more.
            let Some(value) = acknowledged else { continue };
            assert!(found.abs_diff(value) <= 1, "{found} after {value} was acknowledged and {changes} changes");
        }
    }
}

/// Words of the table of counters: those of the threads, then two that count the changes of all.
const COUNTERS: u64 = THREADS + 2;

fn create_counters(directory: &Path) {
    let pool: Pool<Native> = Pool::create(&RealStorage::new(directory), "pool", &options()).unwrap();
    let mut intent = pool.intent();
    let table = intent.acquire(COUNTERS * 64, ROOT).unwrap();
    (0..COUNTERS).for_each(|number| pool.backend().store(table + number * 64, 0));
    pool.backend().persist(table..table + COUNTERS * 64, SITE);
    pool.backend().store(ROOT, table);
    pool.backend().persist(ROOT..ROOT + 8, SITE);
    intent.finish();
}

fn counter(pool: &Pool<Native>, number: u64) -> (u64, u64) {
    let word = pool.backend().load(ROOT) + number * 64;
    (word, pmwcas::read(pool, word, &pool.pin()))
}

/// Counts the thread's word and both of all threads up at once; says after each what its own is.
fn count_until_killed(pool: &Pool<Native>, thread: u64) {
    loop {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(pool, &guard).unwrap();
        let words = [thread, THREADS, THREADS + 1].map(|number| counter(pool, number));
        for (word, value) in words {
            descriptor.swap(word, value, value + 1).unwrap();
        }
        // Others change the words of all meanwhile.
        if descriptor.execute() {
            killed::acknowledge(thread, words[0].1 + 1);
        }
    }
}

#[test]
fn counters_that_change_at_once_are_equal_after_kills() {
    if let Some(directory) = killed::place() {
        let pool = open(&directory).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let pool = &pool;
                scope.spawn(move || count_until_killed(pool, thread));
            }
        });
        return;
    }
    let directory = support::directory();
    create_counters(directory.path());
    for changes in [1, 10, 100, 1000, 3000, 3001, 5000, 7000] {
        let test = "counters_that_change_at_once_are_equal_after_kills";
        let acknowledged = killed::run_and_kill(test, directory.path(), THREADS, changes);
        let pool = open(directory.path()).unwrap();
        let counters: Vec<u64> = (0..COUNTERS).map(|number| counter(&pool, number).1).collect();
        let (own, all) = counters.split_at(THREADS as usize);
        let sum: u64 = own.iter().sum();
        assert_eq!(all, [sum, sum], "{own:?} after {changes} changes");
        for (found, acknowledged) in own.iter().zip(acknowledged) {
            let Some(value) = acknowledged else { continue };
            assert!((value..=value + 1).contains(found), "{found} after {value} was acknowledged");
        }
    }
}
