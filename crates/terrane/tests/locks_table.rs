//! The lock table under threads: exclusion, order of waiters, release on drop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::locks::{LockTable, lock_hash};

/// Spins until `table` has this many waiters for `hash`.
fn await_waiters(table: &LockTable, hash: u64, waiters: usize) {
    while table.waiting(hash) != waiters {
        thread::yield_now();
    }
}

#[test]
fn a_held_lock_is_refused_until_it_is_dropped() {
    let table = LockTable::new();
    let guard = table.try_lock(1).expect("nobody holds it");
    assert_eq!(guard.hash(), 1);
    assert!(table.try_lock(1).is_none());
    let other = table.try_lock(2).expect("another hash is free");
    drop(guard);
    drop(table.try_lock(1).expect("it was given back"));
    drop(other);
    assert_eq!(table.held(), 0);
}

#[test]
fn an_instant_lock_is_refused_while_another_holds_it_and_is_never_held() {
    let table = LockTable::new();
    let guard = table.try_lock(1).expect("nobody holds it");
    assert!(!table.try_instant(1));
    assert!(table.try_instant(2));
    drop(guard);
    assert!(table.try_instant(1) && table.try_instant(1));
    table.wait_instant(1);
    assert_eq!(table.held(), 0);
}

#[test]
fn instant_locks_are_served_in_line_and_passed_on() {
    let table = Arc::new(LockTable::new());
    let first = table.lock(9);
    let served = Arc::new(AtomicUsize::new(0));
    let wait = |waiters: usize, work: fn(&LockTable)| {
        let (shared, count) = (Arc::clone(&table), Arc::clone(&served));
        let thread = thread::spawn(move || {
            work(&shared);
            count.fetch_add(1, Ordering::SeqCst);
        });
        await_waiters(&table, 9, waiters);
        thread
    };
    let threads = [
        wait(1, |table| table.wait_instant(9)),
        wait(2, |table| drop(table.lock(9))),
        wait(3, |table| table.wait_instant(9)),
    ];
    assert_eq!(served.load(Ordering::SeqCst), 0);
    drop(first);
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    assert_eq!((served.load(Ordering::SeqCst), table.held()), (3, 0));
}

#[test]
fn extreme_hashes_are_locks_like_others() {
    let table = LockTable::new();
    let guards: Vec<_> = [0, 1, u64::MAX, u64::MAX - 1].map(|hash| table.try_lock(hash)).into_iter().collect();
    assert!(guards.iter().all(Option::is_some));
    assert_eq!(table.held(), 4);
}

#[test]
fn waiters_are_served_in_the_order_of_their_arrival() {
    let table = Arc::new(LockTable::new());
    let served = Arc::new(Mutex::new(Vec::new()));
    let first = table.lock(9);
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (shared, order) = (Arc::clone(&table), Arc::clone(&served));
            let thread = thread::spawn(move || {
                let _guard = shared.lock(9);
                order.lock().expect("no thread panics").push(number);
            });
            await_waiters(&table, 9, number + 1);
            thread
        })
        .collect();
    drop(first);
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    assert_eq!(*served.lock().expect("no thread panics"), (0..8).collect::<Vec<_>>());
    assert_eq!(table.held(), 0);
}

#[test]
fn a_lock_with_waiters_is_never_free() {
    let table = Arc::new(LockTable::new());
    let guard = table.lock(5);
    let (shared, hold) = (Arc::clone(&table), Arc::new(std::sync::Barrier::new(2)));
    let held = Arc::clone(&hold);
    let waiter = thread::spawn(move || {
        let _guard = shared.lock(5);
        held.wait();
    });
    await_waiters(&table, 5, 1);
    drop(guard);
    // The lock belongs to the waiter, even before the waiter runs.
    assert!(table.try_lock(5).is_none());
    hold.wait();
    waiter.join().expect("no thread panics");
    assert!(table.try_lock(5).is_some());
}

#[test]
fn a_set_takes_each_hash_once_and_releases_all() {
    let table = LockTable::new();
    let set = table.lock_all(vec![30, 10, 20, 10, 30]);
    assert_eq!(set.hashes(), [10, 20, 30]);
    assert_eq!(table.held(), 3);
    assert!(table.try_lock(20).is_none());
    drop(set);
    assert_eq!(table.held(), 0);
}

#[test]
fn a_guard_may_be_dropped_by_another_thread() {
    let table = LockTable::new();
    let guard = table.lock(3);
    thread::scope(|scope| {
        scope.spawn(move || drop(guard));
    });
    assert!(table.try_lock(3).is_some());
}

#[test]
fn many_threads_never_share_a_lock() {
    const THREADS: u64 = 8;
    const ROUNDS: usize = 4000;
    const HASHES: usize = 5;
    let seed: u64 = 42;
    let table = LockTable::new();
    let holders: [AtomicUsize; HASHES] = Default::default();
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, holders, taken) = (&table, &holders, &taken);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed + thread);
                for round in 0..ROUNDS {
                    let count = random.random_range(1..=3);
                    let wanted: Vec<u64> = (0..count).map(|_| random.random_range(0..HASHES as u64)).collect();
                    let guards = table.lock_all(wanted);
                    for hash in guards.hashes() {
                        let before = holders[*hash as usize].fetch_add(1, Ordering::Relaxed);
                        assert_eq!(before, 0, "two holders of {hash}, seed {seed}, thread {thread}, round {round}");
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                    for hash in guards.hashes() {
                        holders[*hash as usize].fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(taken.load(Ordering::Relaxed), THREADS as usize * ROUNDS);
    assert_eq!(table.held(), 0);
}

#[test]
fn hashes_distinguish_datasets_partitions_and_keys() {
    let mut hashes: Vec<u64> = (0..20)
        .flat_map(|dataset| (0..20).flat_map(move |partition| ["", "a", "b"].map(|key| (dataset, partition, key))))
        .map(|(dataset, partition, key)| lock_hash(dataset, partition, key.as_bytes()))
        .collect();
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
    assert_eq!(lock_hash(1, 2, b"key"), lock_hash(1, 2, b"key"));
}
