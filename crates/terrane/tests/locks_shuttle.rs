//! The lock table alone, with the calls of writers and readers, under more threads than loom can
//! explore. In no order that shuttle draws is there a deadlock or a second holder.

use std::convert::Infallible;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::locks::{Acquire, Frame, LockTable};
use terrane_storage::sync::{AtomicUsize, Ordering};

use terrane_testkit::orders::{explore, is_kept};

const THREADS: usize = 5;
/// So few that most records of a batch collide.
const HASHES: usize = 3;

/// The work of a thread.
#[derive(Clone, Debug)]
enum Work {
    /// A record.
    One(u64),
    /// Records that are separate transactions, and whether the commit before a wait fails. After a
    /// failure the thread stops.
    Batch(Vec<u64>, bool),
    /// Records of an atomic batch.
    Atomic(Vec<u64>),
    /// A query at read committed. It tries the locks of records, and waits later for those that are
    /// taken.
    Query(Vec<u64>),
}

impl Work {
    fn drawn(random: &mut SmallRng) -> Self {
        let hash = |random: &mut SmallRng| random.random_range(0..HASHES as u64);
        let hashes = |random: &mut SmallRng| (0..random.random_range(2..=4)).map(|_| hash(random)).collect();
        match random.random_range(0..8) {
            0 | 1 => Self::One(hash(random)),
            2..5 => Self::Batch(hashes(random), random.random_ratio(1, 8)),
            5 | 6 => Self::Atomic(hashes(random)),
            _ => Self::Query(hashes(random)),
        }
    }
}

#[derive(Default)]
struct Guarded {
    table: LockTable,
    /// Incremented under the lock of each hash.
    counts: [AtomicUsize; HASHES],
    /// Incremented equally often, but atomically.
    calls: [AtomicUsize; HASHES],
}

impl Guarded {
    /// Reads and writes separately: a second holder would lose a count.
    fn count(&self, hash: u64) {
        let count = self.counts[hash as usize].load(Ordering::Relaxed);
        self.counts[hash as usize].store(count + 1, Ordering::Relaxed);
        self.calls[hash as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn run(&self, work: &Work) {
        match work {
            Work::One(hash) => {
                let _guard = self.table.lock(*hash);
                self.count(*hash);
            }
            Work::Batch(hashes, fails) => {
                let mut frame = Frame::new(&self.table);
                for &hash in hashes {
                    if frame.acquire(hash) == Acquire::MustWait {
                        if *fails {
                            assert!(frame.commit_then_wait(hash, || Err("no space")).is_err());
                            return;
                        }
                        let committed: Result<(), Infallible> = frame.commit_then_wait(hash, || Ok(()));
                        committed.expect("an infallible commit");
                        assert_eq!(frame.held(), 1, "the lock that was waited for");
                    }
                    self.count(hash);
                }
            }
            Work::Atomic(hashes) => {
                let _guards = self.table.lock_all(hashes.clone());
                hashes.iter().for_each(|&hash| self.count(hash));
            }
            Work::Query(hashes) => {
                let held: Vec<u64> = hashes.iter().copied().filter(|&hash| !self.table.try_instant(hash)).collect();
                held.into_iter().for_each(|hash| self.table.wait_instant(hash));
            }
        }
    }
}

fn locks_are_taken_in_turn(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let guarded: Arc<Guarded> = Arc::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let work: Vec<Work> = (0..random.random_range(1..=3)).map(|_| Work::drawn(&mut random)).collect();
            let guarded = guarded.clone();
            shuttle::thread::spawn(move || {
                let kept = work.iter().enumerate().filter(|(number, _)| is_kept(thread, *number));
                kept.for_each(|(_, work)| guarded.run(work));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(guarded.table.held(), 0);
    let [counts, calls] =
        [&guarded.counts, &guarded.calls].map(|counts| counts.each_ref().map(|count| count.load(Ordering::Relaxed)));
    assert_eq!(counts, calls, "two threads held one lock");
}

#[test]
fn no_order_of_lockers_ends_in_a_deadlock_or_has_two_holders() {
    explore("no_order_of_lockers", 100, locks_are_taken_in_turn);
}
