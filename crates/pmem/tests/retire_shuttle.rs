//! Threads that retire blocks under each other's guards, in random orders by shuttle. No reader
//! meets a reused block, and a crash at any instant loses none.
#![cfg(shuttle)]

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::{Backend, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::orders::{explore, is_kept};

const SITE: Site = Site::new("test");
const THREADS: u64 = 3;
const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

fn options() -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::Adr) }
}

/// Replaces the linked block by a new one, or by none without a number. A block has its number in
/// each of its words.
fn replace(pool: &Pool<Traced>, link: u64, number: Option<u64>) {
    let backend = pool.backend();
    let guard = pool.pin();
    let mut intent = pool.intent();
    let old = backend.load(link);
    if old != 0 {
        intent.release(old, link).unwrap();
    }
    let block = number.map_or(0, |number| {
        let block = intent.acquire(64, link).unwrap();
        [0, 8, 16].into_iter().for_each(|place| backend.store(block + place, number));
        backend.persist(block..block + 24, SITE);
        block
    });
    backend.store(link, block);
    backend.persist(link..link + 8, SITE);
    intent.retire(&guard);
}

fn look(pool: &Pool<Traced>, link: u64, thread: u64) {
    let _guard = pool.pin();
    let block = pool.backend().load(link);
    if block != 0 {
        // Long enough for others to do much meanwhile.
        let first = pool.backend().load(block);
        for place in [0, 8, 16].into_iter().cycle().take(60) {
            let number = pool.backend().load(block + place);
            assert!(number == first && number / 100 == thread, "reused under its reader: {number} by thread {thread}");
        }
    }
}

fn run(pool: &Pool<Traced>, links: u64, thread: u64, random: &mut SmallRng) {
    for round in 0..6 {
        let (step, other, reclaims) = (random.random_range(0..3), random.random_range(0..THREADS), random.random());
        if !is_kept(thread as usize, round as usize) {
            continue;
        }
        match step {
            0 => look(pool, links + other * 8, other),
            1 => replace(pool, links + thread * 8, Some(thread * 100 + round)),
            _ => replace(pool, links + thread * 8, (round % 2 == 1).then_some(thread * 100 + round)),
        }
        if reclaims {
            pool.reclaim().unwrap();
        }
    }
}

/// Checks that exactly the linked blocks are acquired.
fn check(storage: &dyn Storage) {
    let pool: Pool<Traced> = Pool::open(storage, "pool", &options()).unwrap();
    let links = pool.backend().load(ROOT);
    let mut linked: BTreeSet<u64> = (0..THREADS).map(|thread| pool.backend().load(links + thread * 8)).collect();
    linked.remove(&0);
    linked.insert(links);
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|block, _| _ = acquired.insert(block)).unwrap();
    assert_eq!(acquired, linked);
}

/// A pool with the words of two links. Either each links a block, and the pool has been opened
/// again, or none does.
fn create(controller: &Controller, is_reopened: bool) -> (Arc<Pool<Traced>>, u64) {
    let pool: Pool<Traced> = Pool::create(&*controller.storage(), "pool", &options()).unwrap();
    let mut intent = pool.intent();
    let links = intent.acquire(64, ROOT).unwrap();
    (0..THREADS).for_each(|thread| pool.backend().store(links + thread * 8, 0));
    pool.backend().persist(links..links + 64, SITE);
    pool.backend().store(ROOT, links);
    pool.backend().persist(ROOT..ROOT + 8, SITE);
    intent.finish();
    if !is_reopened {
        return (Arc::new(pool), links);
    }
    (0..THREADS).for_each(|thread| replace(&pool, links + thread * 8, Some(thread * 100 + 99)));
    pool.close().unwrap();
    (Arc::new(Pool::open(&*controller.storage(), "pool", &options()).unwrap()), links)
}

fn threads_retire(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let controller = Controller::new();
    let (pool, links) = create(&controller, random.random());
    let first = controller.events();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (pool, mut random) = (pool.clone(), SmallRng::from_rng(&mut random));
            shuttle::thread::spawn(move || run(&pool, links, thread, &mut random))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(pool);
    let last = controller.events();
    for cut in (0..4).map(|_| random.random_range(first..=last)).chain([last]) {
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            check(&*image.storage());
        }
    }
}

#[test]
fn readers_meet_no_reused_block_and_crashes_lose_none() {
    explore("readers_meet", 6, threads_retire);
}

/// The first thread that acquires in an opened pool scans for clear bits.
fn a_bit_is_cleared(_seed: u64) {
    let (pool, links) = create(&Controller::new(), true);
    let releasing = {
        let pool = pool.clone();
        shuttle::thread::spawn(move || {
            let mut intent = pool.intent();
            intent.release(pool.backend().load(links), links).unwrap();
            pool.backend().store(links, 0);
            pool.backend().persist(links..links + 8, SITE);
            intent.finish();
        })
    };
    let mut intent = pool.intent();
    let mut blocks = vec![intent.acquire(64, links + 8).unwrap()];
    releasing.join().unwrap();
    blocks.extend((0..3).map(|_| intent.acquire(64, links + 8).unwrap()));
    assert!(blocks.iter().collect::<BTreeSet<_>>().len() == blocks.len(), "a block was given out twice: {blocks:?}");
}

#[test]
fn a_block_whose_bit_is_cleared_while_others_look_is_given_out_once() {
    explore("a_block_whose_bit", 40, a_bit_is_cleared);
}

/// Another thread is about to settle earlier retirements.
fn a_thread_reclaims(_seed: u64) {
    let (pool, links) = create(&Controller::new(), false);
    // A batch, all of it expired.
    (0..8).for_each(|number| replace(&pool, links + number % 2 * 8, Some(number)));
    let other = {
        let pool = pool.clone();
        shuttle::thread::spawn(move || (0..2).for_each(|_| drop(pool.intent())))
    };
    let block = pool.backend().load(links);
    replace(&pool, links, None);
    pool.reclaim().unwrap();
    assert!(!pool.is_acquired(block).unwrap(), "what it has retired is there after it has reclaimed");
    other.join().unwrap();
}

#[test]
fn what_a_thread_reclaims_beside_another_that_ends_intents_is_free_when_it_returns() {
    explore("what_a_thread_reclaims", 40, a_thread_reclaims);
}
