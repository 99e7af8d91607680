//! The frame protocol for batches: it never waits while holding a lock.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::locks::{Acquire, Frame, LockTable};

#[test]
fn a_repeated_hash_is_reported_and_not_waited_for() {
    let table = LockTable::new();
    let mut frame = Frame::new(&table);
    assert_eq!(frame.acquire(4), Acquire::Acquired);
    assert_eq!(frame.acquire(4), Acquire::AlreadyHeld);
    assert_eq!(frame.held(), 1);
    drop(frame);
    assert_eq!(table.held(), 0);
}

#[test]
fn locked_records_are_committed_before_their_release() {
    let table = LockTable::new();
    let blocker = table.lock(2);
    let mut frame = Frame::new(&table);
    assert_eq!(frame.acquire(1), Acquire::Acquired);
    assert_eq!(frame.acquire(2), Acquire::MustWait);
    let mut blocker = Some(blocker);
    frame
        .commit_then_wait(2, || {
            assert!(table.try_lock(1).is_none(), "held until the commit is done");
            blocker = None;
            Ok::<_, Infallible>(())
        })
        .expect("an infallible commit");
    assert!(table.try_lock(1).is_some(), "released before the wait");
    assert!(table.try_lock(2).is_none());
    assert_eq!(frame.held(), 1);
}

#[test]
fn a_failed_commit_waits_for_nothing_and_keeps_the_locks() {
    let table = LockTable::new();
    let _blocker = table.lock(2);
    let mut frame = Frame::new(&table);
    assert_eq!(frame.acquire(1), Acquire::Acquired);
    assert_eq!(frame.acquire(2), Acquire::MustWait);
    assert_eq!(frame.commit_then_wait(2, || Err("the disk is gone")), Err("the disk is gone"));
    assert!(table.try_lock(1).is_none());
    drop(frame);
    assert!(table.try_lock(1).is_some());
}

#[test]
fn frames_in_any_order_all_finish_and_lose_no_update() {
    const THREADS: u64 = 6;
    const FRAMES: usize = 400;
    const RECORDS: usize = 8;
    const HASHES: usize = 12;
    let seed: u64 = 7;
    let table = LockTable::new();
    let counts: [AtomicU64; HASHES] = Default::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, counts) = (&table, &counts);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed + thread);
                for _ in 0..FRAMES {
                    let mut frame = Frame::new(table);
                    for _ in 0..RECORDS {
                        let hash = random.random_range(0..HASHES as u64);
                        if frame.acquire(hash) == Acquire::MustWait {
                            frame.commit_then_wait(hash, || Ok::<_, Infallible>(())).expect("an infallible commit");
                        }
                        // Read and written separately: a second holder would lose a count.
                        let count = &counts[hash as usize];
                        let before = count.load(Ordering::Relaxed);
                        thread::yield_now();
                        count.store(before + 1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let total: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(total, THREADS * (FRAMES * RECORDS) as u64, "seed {seed}");
    assert_eq!(table.held(), 0);
}
