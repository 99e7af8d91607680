//! Threads that change the same words, in random orders by shuttle. Their results, and the state
//! after a power loss at any instant, are linearizable. Blocks belong to their links.
//!
//! One seed determines the operations and their orders.
#![cfg(shuttle)]

#[path = "support/history.rs"]
mod history;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use history::{Operation, Outcome, Words};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::linearizability::{self, calls_at, record};
use terrane_testkit::orders::{LeftOut, explore, is_kept, run_orders, run_without, shrink};

const SETUP: Site = Site::new("test");
const THREADS: usize = 3;
/// With three words, an operation may be met behind another one.
const WORDS: usize = 3;
const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

fn options() -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::Adr) }
}

/// A pool with a table of words, each in a line of its own.
fn create(controller: &Controller) -> Pool<Traced> {
    let pool: Pool<Traced> = Pool::create(&*controller.storage(), "pool", &options()).unwrap();
    let mut intent = pool.intent();
    let table = intent.acquire(WORDS as u64 * 64, ROOT).unwrap();
    (0..WORDS as u64).for_each(|number| pool.backend().store(table + number * 64, 0));
    pool.backend().persist(table..table + WORDS as u64 * 64, SETUP);
    pool.backend().store(ROOT, table);
    pool.backend().persist(ROOT..ROOT + 8, SETUP);
    intent.finish();
    // Adds descriptors.
    drop(Descriptor::new(&pool, &pool.pin()).unwrap());
    pool
}

fn word(pool: &Pool<Traced>, number: usize) -> u64 {
    pool.backend().load(ROOT) + number as u64 * 64
}

fn values(pool: &Pool<Traced>) -> Vec<u64> {
    let guard = pool.pin();
    (0..WORDS).map(|number| pmwcas::read(pool, word(pool, number), &guard).unwrap()).collect()
}

type Call = linearizability::Call<Words>;

fn is_linearizable(calls: &[Call], left: &[u64]) -> bool {
    linearizability::is_linearizable(calls, |()| vec![0; WORDS], |()| left.to_vec())
}

/// The next operation of a thread, on words with the values 0 and 1, so that old values return all
/// the time. It mostly depends on the values that the thread has seen last.
fn next_operation(random: &mut SmallRng, seen: &[u64]) -> Operation {
    let first = random.random_range(0..seen.len());
    let old = |random: &mut SmallRng, word: usize| seen[word] ^ u64::from(random.random_range(0..8) == 0);
    match random.random_range(0..6) {
        0 => Operation::Read(first),
        1 | 2 => {
            let old = old(random, first);
            Operation::Single(first, old, 1 - old)
        }
        _ => {
            let count = random.random_range(1..=seen.len());
            let words = (first..first + count).map(|word| word % seen.len());
            Operation::Swap(words.map(|word| (word, old(random, word), random.random_range(0..2))).collect())
        }
    }
}

/// What a thread knows of the words after an operation.
fn note(seen: &mut [u64], operation: &Operation, outcome: Outcome) {
    match (operation, outcome) {
        (&(Operation::Read(word) | Operation::Single(word, ..)), Outcome::Value(value)) => seen[word] = value,
        (&Operation::Single(word, _, new), Outcome::Changed(_)) => seen[word] = new,
        (Operation::Swap(changes), Outcome::Changed(true)) => {
            changes.iter().for_each(|&(word, _, new)| seen[word] = new);
        }
        // One of the values was different.
        (Operation::Swap(changes), _) => seen[changes[0].0] ^= 1,
        (Operation::Read(_), Outcome::Changed(_)) => {}
    }
}

fn run(pool: &Pool<Traced>, operation: &Operation) -> Outcome {
    let guard = pool.pin();
    match operation {
        Operation::Swap(changes) => {
            let mut descriptor = Descriptor::new(pool, &guard).unwrap();
            for &(number, old, new) in changes {
                descriptor.swap(word(pool, number), old, new).unwrap();
            }
            Outcome::Changed(descriptor.execute().unwrap())
        }
        &Operation::Single(number, old, new) => {
            match pmwcas::compare_exchange(pool, word(pool, number), old, new, &guard).unwrap() {
                Ok(_) => Outcome::Changed(true),
                Err(found) => Outcome::Value(found),
            }
        }
        &Operation::Read(number) => Outcome::Value(pmwcas::read(pool, word(pool, number), &guard).unwrap()),
    }
}

/// Runs a few operations in each thread. Gives the calls, with the numbers of events at which they
/// began and ended.
fn run_threads(controller: &Arc<Controller>, pool: &Arc<Pool<Traced>>, random: &mut SmallRng) -> Vec<Call> {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let words = random.random_range(2..=WORDS);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (controller, pool, calls) = (controller.clone(), pool.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                let mut seen = vec![0; words];
                for number in 0..random.random_range(1..=4) {
                    let operation = next_operation(&mut random, &seen);
                    if !is_kept(thread, number) {
                        continue;
                    }
                    let outcome = record(&calls, &controller, operation.clone(), |operation| run(&pool, operation));
                    note(&mut seen, &operation, outcome);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let calls = calls.lock().unwrap();
    calls.clone()
}

fn words_are_linearizable(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let controller = Controller::new();
    let pool = Arc::new(create(&controller));
    let first = controller.events();
    let calls = run_threads(&controller, &pool, &mut random);
    let end = values(&pool);
    assert!(is_linearizable(&calls, &end), "{end:?} after {calls:#?}");
    let last = controller.events();
    for _ in 0..4 {
        let cut = random.random_range(first..=last);
        let calls = calls_at(&calls, cut);
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            let pool: Pool<Traced> = Pool::open(&*image.storage(), "pool", &options()).unwrap();
            let left = values(&pool);
            assert!(is_linearizable(&calls, &left), "{left:?} after {calls:#?}, {image:?}");
        }
    }
}

#[test]
fn what_threads_see_and_what_a_power_loss_leaves_is_linearizable() {
    explore("what_threads_see", 12, words_are_linearizable);
}

/// Puts a new block under two links, or abandons it, or reads the block that both link to. Blocks
/// hold their number in each word.
fn relink(pool: &Pool<Traced>, thread: usize, random: &mut SmallRng) {
    let mut numbers = thread as u64 * 1000 + 1..;
    let backend = pool.backend();
    let links = [0, 1].map(|number| word(pool, number));
    for round in 0..random.random_range(1..=3) {
        let (is_given_up, reclaims) = (random.random_range(0..5) == 0, random.random());
        if !is_kept(thread, round) {
            continue;
        }
        let guard = pool.pin();
        let old = links.map(|link| pmwcas::read(pool, link, &guard).unwrap());
        for block in old.into_iter().filter(|block| *block != 0) {
            let held = [0, 8, 16].map(|place| backend.load(block + place));
            assert!(held[0] == held[1] && held[1] == held[2], "a block was reused under its reader: {held:?}");
        }
        let mut descriptor = Descriptor::new(pool, &guard).unwrap();
        for (link, old) in links.into_iter().zip(old) {
            let block = descriptor.acquire(64).unwrap();
            let number = numbers.next().unwrap();
            [0, 8, 16].into_iter().for_each(|place| backend.store(block + place, number));
            backend.flush(block..block + 64, SETUP);
            descriptor.swap(link, old, block).unwrap();
            if old != 0 {
                descriptor.release(old).unwrap();
            }
        }
        match is_given_up {
            true => drop(descriptor),
            false => _ = descriptor.execute().unwrap(),
        }
        drop(guard);
        if reclaims {
            pool.reclaim().unwrap();
        }
    }
}

/// Checks that exactly the linked blocks are acquired.
fn check_blocks(storage: &dyn Storage) {
    let pool: Pool<Traced> = Pool::open(storage, "pool", &options()).unwrap();
    let links = &values(&pool);
    assert_eq!(links[0] == 0, links[1] == 0, "{links:?}");
    let mut linked = BTreeSet::from([pool.backend().load(ROOT)]);
    linked.extend(links.iter().filter(|link| **link != 0));
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|block, _| _ = acquired.insert(block)).unwrap();
    assert_eq!(acquired, linked);
    for link in links.iter().filter(|link| **link != 0) {
        assert_eq!(pool.backend().load(*link), pool.backend().load(*link + 8));
    }
}

fn blocks_belong_to_their_links(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let controller = Controller::new();
    let pool = Arc::new(create(&controller));
    let first = controller.events();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (pool, mut random) = (pool.clone(), SmallRng::seed_from_u64(seed + thread as u64));
            shuttle::thread::spawn(move || relink(&pool, thread, &mut random))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let last = controller.events();
    drop(pool);
    for cut in (0..6).map(|_| random.random_range(first..=last)).chain([last]) {
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            check_blocks(&*image.storage());
        }
    }
}

#[test]
fn blocks_belong_to_the_words_that_link_them() {
    explore("blocks_belong", 4, blocks_belong_to_their_links);
}

/// Some threads count up, by reading and then writing, in a few steps. Others only read. One count
/// is lost in some orders.
fn counts_are_lost(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (count, counted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (count, counted) = (count.clone(), counted.clone());
            let steps: Vec<bool> = (0..4).map(|_| random.random()).collect();
            shuttle::thread::spawn(move || {
                for (_, counts) in steps.into_iter().enumerate().filter(|(number, _)| is_kept(thread, *number)) {
                    let before = count.load(Ordering::SeqCst);
                    if counts {
                        count.store(before + 1, Ordering::SeqCst);
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(count.load(Ordering::SeqCst), counted.load(Ordering::SeqCst), "a count is lost");
}

/// A problem in two steps of threads shrinks to these two.
#[test]
fn failures_shrink_to_the_steps_that_they_need() {
    const ORDERS: usize = 12;
    let failing =
        (0..48).find(|&seed| run_without(&LeftOut::default(), &|| run_orders(seed, ORDERS, counts_are_lost)).is_err());
    let seed = failing.expect("a seed in which a count is lost");
    let run = || run_orders(seed, ORDERS, counts_are_lost);
    let smallest = shrink(&run);
    let kept: Vec<(usize, usize)> = (0..THREADS)
        .flat_map(|thread| (0..4).map(move |step| (thread, step)))
        .filter(|step| !smallest.0.contains(step))
        .collect();
    assert!(matches!(kept.as_slice(), [one, other] if one.0 != other.0), "{kept:?}");
    let replayed: LeftOut = smallest.to_string().parse().unwrap();
    assert_eq!(replayed, smallest);
    assert!(run_without(&replayed, &run).is_err());
    for step in kept {
        let mut more = smallest.clone();
        more.0.insert(step);
        assert!(run_without(&more, &run).is_ok(), "{step:?} is not needed");
    }
    for wrong in ["", "1", "a.b", "1.2;1.3", "1.2,"] {
        assert!(wrong.parse::<LeftOut>().is_err(), "{wrong}");
    }
}
