//! The lock table under every interleaving of two or three threads. A lock protects a counter that
//! is read and written separately. If exclusion fails, the counter loses a count. A lost wake-up is
//! a deadlock, which loom reports.

use std::convert::Infallible;
use std::sync::Arc;

use loom::thread;
use terrane_storage::sync::{AtomicUsize, Ordering};

use super::{Acquire, Frame, LockTable};

struct Guarded {
    table: LockTable,
    counts: [AtomicUsize; 2],
}

impl Guarded {
    fn count(&self, hash: u64) {
        let cell = &self.counts[hash as usize];
        let count = cell.load(Ordering::Relaxed);
        cell.store(count + 1, Ordering::Relaxed);
    }
}

/// Runs `body` in `threads` threads, in every order. Both counters must equal `expected` in the
/// end.
fn explore(threads: usize, expected: [usize; 2], body: fn(&Guarded, usize)) {
    loom::model(move || {
        let guarded = Arc::new(Guarded { table: LockTable::new(), counts: Default::default() });
        let spawned: Vec<_> = (1..threads)
            .map(|thread| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || body(&guarded, thread))
            })
            .collect();
        body(&guarded, 0);
        for thread in spawned {
            thread.join().expect("no thread panics");
        }
        assert_eq!(guarded.table.held(), 0);
        assert_eq!(guarded.counts.each_ref().map(|count| count.load(Ordering::Relaxed)), expected);
    });
}

#[test]
fn two_threads_exclude_each_other() {
    explore(2, [2, 0], |guarded, _| {
        let _guard = guarded.table.lock(0);
        guarded.count(0);
    });
}

#[test]
fn three_threads_are_all_woken() {
    explore(3, [3, 0], |guarded, _| {
        let _guard = guarded.table.lock(0);
        guarded.count(0);
    });
}

#[test]
fn a_refused_try_waits_and_is_woken() {
    explore(2, [2, 0], |guarded, _| match guarded.table.try_lock(0) {
        Some(_guard) => guarded.count(0),
        None => {
            let _guard = guarded.table.lock(0);
            guarded.count(0);
        }
    });
}

#[test]
fn lock_all_in_any_order_does_not_deadlock() {
    explore(2, [2, 2], |guarded, thread| {
        let hashes = if thread == 0 { vec![0, 1] } else { vec![1, 0, 1] };
        let _guards = guarded.table.lock_all(hashes);
        guarded.count(0);
        guarded.count(1);
    });
}

/// Takes a lock like a batch whose records are separate transactions.
fn lock_in_frame(frame: &mut Frame<'_>, hash: u64) {
    if frame.acquire(hash) == Acquire::MustWait {
        let committed: Result<(), Infallible> = frame.commit_then_wait(hash, || Ok(()));
        committed.expect("an infallible commit");
    }
}

/// Counts in a frame, once per record, under the lock of its hash.
fn count_in_frame(guarded: &Guarded, hashes: &[u64]) {
    let mut frame = Frame::new(&guarded.table);
    for &hash in hashes {
        lock_in_frame(&mut frame, hash);
        guarded.count(hash);
    }
}

#[test]
fn frames_in_opposite_orders_do_not_deadlock() {
    explore(2, [2, 2], |guarded, thread| count_in_frame(guarded, if thread == 0 { &[0, 1] } else { &[1, 0] }));
}

/// Different keys of a frame may share a hash, as may keys before and after a wait.
#[test]
fn frames_of_colliding_keys_do_not_deadlock() {
    explore(2, [3, 3], |guarded, thread| {
        count_in_frame(guarded, if thread == 0 { &[0, 0, 1] } else { &[1, 0, 1] });
    });
}

#[test]
fn frames_and_atomic_batches_do_not_deadlock() {
    explore(2, [2, 2], |guarded, thread| match thread {
        0 => count_in_frame(guarded, &[1, 0]),
        _ => {
            let _guards = guarded.table.lock_all(vec![1, 0]);
            guarded.count(0);
            guarded.count(1);
        }
    });
}

#[test]
fn frames_and_single_records_do_not_deadlock() {
    explore(2, [2, 2], |guarded, thread| match thread {
        0 => count_in_frame(guarded, &[0, 1]),
        _ => [1, 0].into_iter().for_each(|hash| {
            let _guard = guarded.table.lock(hash);
            guarded.count(hash);
        }),
    });
}

/// A failed commit releases the frame's locks exactly once.
#[test]
fn a_frame_whose_commit_fails_hands_its_locks_to_waiters() {
    explore(2, [2, 2], |guarded, thread| {
        if thread == 0 {
            return count_in_frame(guarded, &[1, 0]);
        }
        let mut frame = Frame::new(&guarded.table);
        lock_in_frame(&mut frame, 0);
        guarded.count(0);
        if frame.acquire(1) == Acquire::MustWait {
            assert_eq!(frame.commit_then_wait(1, || Err("no space")), Err("no space"));
            drop(frame);
            let _guard = guarded.table.lock(1);
            guarded.count(1);
        } else {
            guarded.count(1);
        }
    });
}

/// Like a query at read committed: it tries the keys of entries, and waits for the held ones one by
/// one.
#[test]
fn readers_in_another_order_than_a_frame_do_not_deadlock() {
    explore(2, [1, 1], |guarded, thread| match thread {
        0 => count_in_frame(guarded, &[0, 1]),
        _ => [1, 0].into_iter().filter(|&hash| !guarded.table.try_instant(hash)).for_each(|hash| {
            guarded.table.wait_instant(hash);
        }),
    });
}

#[test]
fn a_wait_for_a_refused_instant_lock_shows_the_changes_of_its_holder() {
    explore(2, [1, 0], |guarded, thread| match thread {
        0 => {
            let _guard = guarded.table.lock(0);
            guarded.count(0);
        }
        _ if !guarded.table.try_instant(0) => {
            guarded.table.wait_instant(0);
            assert_eq!(guarded.counts[0].load(Ordering::Relaxed), 1);
        }
        _ => {}
    });
}

#[test]
fn a_wait_for_an_instant_lock_shows_the_changes_of_its_holder() {
    explore(3, [1, 2], |guarded, thread| match thread {
        0 => {
            let _guard = guarded.table.lock(0);
            guarded.count(0);
        }
        // In every order, no thread keeps waiting.
        _ => {
            guarded.table.wait_instant(0);
            let _guard = guarded.table.lock(1);
            guarded.count(1);
        }
    });
}
