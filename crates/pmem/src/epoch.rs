//! What waits until readers have left.
//!
//! A reader may still be in what a writer has just unlinked. It announces itself by a [`Guard`];
//! what is unlinked is retired under a guard, and reused when every guard is gone that lived then.
//! All of that is the crate `seize`, one collector for each pool; what is unsafe about it stays
//! here.
//!
//! What waits is a place in the pool, never memory: a slot of the allocator or a descriptor. It
//! waits in a queue, and the collector gets its number there; when the number's time has come, the
//! queue may be emptied so far by those who change the pool anyway. So a reader that leaves does
//! nothing to the pool.
//!
//! - E1: what is retired leaves the queue no earlier than every guard is gone that lived at the
//!   call.
//! - E2: it leaves in the order in which it came. That costs nothing: guards that lived when an
//!   earlier one came are gone, or lived when a later one came, and were waited for. So any thread
//!   can let expire what others keep in batches that are not full ([`Guard::hurry`]), and threads
//!   that retire little hold nothing back for good.
//! - E3: the box of a number is the collector's alone.
//! - E4: where descriptors are retired, everything waits twice: when every guard is gone of E1, it
//!   waits for those that live then. For a helper whose guard lived at the call may put a
//!   descriptor into a word once more, or lead others to a word in a block that is retired, and who
//!   meets that has a guard of later. (M5 and M10 of [`crate::pmwcas`] say what follows.)
//! - E5: what was retired by the end of the first wait, in the queue behind it, may have been begun
//!   as early: its owner had a guard of then. So blocks are given out only after that, too, has
//!   left the queue ([`Expired::wait_for`]).
#![expect(unsafe_code, reason = "the collector takes raw pointers; both blocks state their argument")]

use std::collections::VecDeque;
use std::fmt;
use std::ptr;
use std::sync::Arc;

#[cfg(not(shuttle))]
use seize::LocalGuard as Entered;
// All tasks of shuttle are one thread of the system.
#[cfg(shuttle)]
use seize::OwnedGuard as Entered;
use seize::{Collector, Guard as _};
use terrane_storage::sync::{AtomicU64, Mutex, Ordering};

/// What one thread retires together: to look for live guards takes a call of the system.
pub(crate) const BATCH: usize = 8;

/// Tickets that [`Guard::hurry`] makes at most: more than threads have guards.
const TICKETS_MAX: usize = 1 << 13;

/// Keeps what is retired while it lives from being reused. A thread may have several.
///
/// A guard that lives long blocks nobody; what others retire meanwhile waits for it.
pub struct Guard<'p> {
    entered: Entered<'p>,
    epochs: &'p Epochs,
}

/// What waits for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retired {
    /// A slot of a retired intent.
    Slot(u64),
    /// A descriptor of a multi-word compare-and-swap.
    Descriptor(u64),
}

/// The guards of one pool, and what waits for them.
#[derive(Debug)]
pub(crate) struct Epochs {
    collector: Collector,
    queues: Mutex<Queues>,
    /// Numbers below this have expired, of those who wait and of those who wait again.
    expired: [Arc<AtomicU64>; 2],
}

/// What has left the queue. Numbers count what has left it since descriptors are retired.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) retired: Vec<Retired>,
    /// How many have left by now, these included.
    pub(crate) left: u64,
    /// How many have to leave before the blocks are given out that these name (E5).
    pub(crate) wait_for: u64,
}

#[derive(Debug, Default)]
struct Queues {
    waiting: Queue<Retired>,
    /// Those who wait again (E4), and how many have to leave with them (E5).
    again: Queue<(Retired, u64)>,
    /// Whether a descriptor has been retired.
    is_twice: bool,
    /// The newest of both when [`Guard::hurry`] was called last, and how many tickets it made.
    hurried: [u64; 2],
    tickets: usize,
}

#[derive(Debug)]
struct Queue<T> {
    /// Number of the first in the queue: of those that have left it.
    first: u64,
    waiting: VecDeque<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { first: 0, waiting: VecDeque::new() }
    }
}

impl<T> Queue<T> {
    /// The number that has to expire for it to leave.
    fn push(&mut self, retired: T) -> u64 {
        self.waiting.push_back(retired);
        self.newest()
    }

    /// The number of which the last in the queue has to expire.
    fn newest(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    fn take(&mut self, expired: &AtomicU64, count: usize) -> Vec<T> {
        let expired = expired.load(Ordering::Acquire);
        let count = count.min(expired.saturating_sub(self.first) as usize);
        self.first += count as u64;
        self.waiting.drain(..count).collect()
    }
}

/// A number on its way through the collector.
struct Ticket {
    number: u64,
    expired: Arc<AtomicU64>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Self { collector: new_collector(), queues: Mutex::default(), expired: Default::default() }
    }

    pub(crate) fn enter(&self) -> Guard<'_> {
        #[cfg(not(shuttle))]
        let entered = self.collector.enter();
        #[cfg(shuttle)]
        let entered = self.collector.enter_owned();
        Guard { entered, epochs: self }
    }

    /// Lets everything expire. Nobody has a guard, since guards borrow from this.
    pub(crate) fn expire_all(&mut self) {
        self.collector = new_collector();
    }

    /// Takes up to so many that have expired, the first to come first.
    pub(crate) fn take(&self, count: usize) -> Expired {
        let [once, twice] = &self.expired;
        let numbers: Vec<u64> = {
            let mut queues = self.queues.lock();
            let Queues { waiting, again, is_twice, .. } = &mut *queues;
            if !*is_twice {
                return Expired { retired: waiting.take(once, count), left: 0, wait_for: 0 };
            }
            let moved = waiting.take(once, usize::MAX);
            let wait_for = again.newest() + (moved.len() + waiting.waiting.len()) as u64;
            moved.into_iter().map(|retired| again.push((retired, wait_for))).collect()
        };
        if !numbers.is_empty() {
            let guard = self.enter();
            numbers.into_iter().for_each(|number| guard.defer(number, twice));
            guard.entered.flush();
        }
        let mut queues = self.queues.lock();
        let taken = queues.again.take(twice, count);
        let wait_for = taken.last().map_or(0, |(_, wait_for)| *wait_for);
        Expired { retired: taken.into_iter().map(|(retired, _)| retired).collect(), left: queues.again.first, wait_for }
    }
}

fn new_collector() -> Collector {
    Collector::new().batch_size(BATCH)
}

impl Guard<'_> {
    pub(crate) fn is_of(&self, epochs: &Epochs) -> bool {
        ptr::eq(self.epochs, epochs)
    }

    /// Lets it leave the queue when every guard is gone that lives now, this one too, and a few
    /// more were retired or [`Guard::hurry`] was called. Gives how many have been retired since
    /// that was called last, by all threads.
    pub(crate) fn retire(&self, retired: Retired) -> u64 {
        let (number, since) = {
            let mut queues = self.epochs.queues.lock();
            queues.is_twice |= matches!(retired, Retired::Descriptor(_));
            let number = queues.waiting.push(retired);
            (number, number - queues.hurried[0])
        };
        self.defer(number, &self.epochs.expired[0]);
        since
    }

    /// Lets a number expire when every guard is gone that lives now.
    fn defer(&self, number: u64, expired: &Arc<AtomicU64>) {
        let ticket = Box::into_raw(Box::new(Ticket { number, expired: expired.clone() }));
        // SAFETY: the pointer was made here from a box and is given away, so nobody but the
        // collector has it (E3).
        unsafe { self.entered.defer_retire(ticket, expire) };
    }

    /// Does not wait for more to be retired: everything that has been so far, by whichever threads,
    /// leaves its queue when every guard is gone that lives now (E2).
    ///
    /// The collector takes a batch only if that has a ticket for each thread with a guard; else it
    /// stays with this thread. How many those are is not known. So the tickets are a batch, and
    /// each time twice as many while nothing more is retired, until they suffice for any number of
    /// threads: then what was retired has been handed over, and more of them would wait for the
    /// same guards.
    pub(crate) fn hurry(&self) {
        let (newest, tickets) = {
            let mut queues = self.epochs.queues.lock();
            let newest = [queues.waiting.newest(), queues.again.newest()];
            queues.tickets = if newest == queues.hurried { (2 * queues.tickets).min(2 * TICKETS_MAX) } else { BATCH };
            queues.hurried = newest;
            (newest, queues.tickets)
        };
        let waits = |queue: &usize| self.epochs.expired[*queue].load(Ordering::Acquire) < newest[*queue];
        let waiting: Vec<usize> = [0, 1].into_iter().filter(waits).collect();
        if tickets <= TICKETS_MAX {
            for queue in waiting.into_iter().cycle().take(tickets) {
                self.defer(newest[queue], &self.epochs.expired[queue]);
            }
        }
        self.entered.flush();
    }

    /// A number that no other live thread has, and small as such numbers go.
    pub(crate) fn thread(&self) -> u64 {
        #[cfg(not(shuttle))]
        return self.entered.thread_id() as u64;
        #[cfg(shuttle)]
        (usize::from(shuttle::current::me()) as u64)
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Guard")
    }
}

/// # Safety
/// The pointer came from a box, and nobody else has it.
unsafe fn expire(ticket: *mut Ticket, _: &Collector) {
    // SAFETY: the caller's promise; the collector calls this once for each pointer.
    let Ticket { number, expired } = *unsafe { Box::from_raw(ticket) };
    expired.fetch_max(number, Ordering::AcqRel);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    use super::*;

    fn take(epochs: &Epochs, count: usize) -> Vec<Retired> {
        epochs.take(count).retired
    }

    fn retire(guard: &Guard<'_>, slots: std::ops::Range<u64>) {
        slots.for_each(|slot| _ = guard.retire(Retired::Slot(slot)));
    }

    #[test]
    fn what_is_retired_expires_when_the_last_guard_of_its_time_is_gone() {
        let epochs = Epochs::new();
        let (entered, leave) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = epochs.enter();
                entered.wait();
                leave.wait();
                drop(guard);
                entered.wait();
            });
            entered.wait();
            let writer = epochs.enter();
            retire(&writer, 0..20);
            drop(writer);
            // A guard of the same thread, within it another one.
            let _later = (epochs.enter(), epochs.enter());
            assert_eq!(take(&epochs, 100), [], "the reader is still there");
            leave.wait();
            entered.wait();
        });
        assert_eq!(take(&epochs, 100).len(), 16, "two batches; the rest waits for more");
        epochs.enter().hurry();
        assert_eq!(take(&epochs, 3), [16, 17, 18].map(Retired::Slot));
        assert_eq!(take(&epochs, 3), [Retired::Slot(19)]);
    }

    #[test]
    fn threads_that_have_gone_hold_nothing_back() {
        let epochs = Epochs::new();
        let main = epochs.enter();
        std::thread::scope(|scope| scope.spawn(|| retire(&epochs.enter(), 0..3)).join().unwrap());
        retire(&main, 3..11);
        drop(main);
        assert_eq!(take(&epochs, 100), Vec::from_iter((0..11).map(Retired::Slot)));
    }

    #[test]
    fn any_thread_can_let_expire_what_others_have_in_batches_that_are_not_full() {
        let epochs = Epochs::new();
        let turn = Barrier::new(2);
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| {
                retire(&epochs.enter(), 0..3);
                turn.wait();
                turn.wait();
            });
            turn.wait();
            let before = take(&epochs, 100);
            epochs.enter().hurry();
            let taken = [before, take(&epochs, 100)];
            turn.wait();
            taken
        });
        assert_eq!(taken, [Vec::new(), Vec::from([0, 1, 2].map(Retired::Slot))]);
    }

    /// Multi-word compare-and-swap relies on it (M6).
    #[test]
    fn threads_have_numbers_of_their_own() {
        const THREADS: usize = 8;
        let (epochs, all) = (Epochs::new(), Barrier::new(THREADS));
        let number = || {
            let [outer, inner] = [epochs.enter(), epochs.enter()];
            assert_eq!(outer.thread(), inner.thread());
            all.wait();
            outer.thread()
        };
        let numbers: BTreeSet<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(number)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(numbers.len(), THREADS);
    }

    /// The second time it is in the batch of whoever has found it expired.
    #[test]
    fn any_thread_can_let_expire_what_waits_again_with_others() {
        let epochs = Epochs::new();
        epochs.enter().retire(Retired::Descriptor(1));
        epochs.enter().hurry();
        let other = epochs.enter();
        let turn = Barrier::new(2);
        let taken = std::thread::scope(|scope| {
            let beside_other = scope.spawn(|| {
                let taken = take(&epochs, 1);
                turn.wait();
                turn.wait();
                taken
            });
            turn.wait();
            drop(other);
            let before = take(&epochs, 1);
            epochs.enter().hurry();
            let after = take(&epochs, 1);
            turn.wait();
            [beside_other.join().unwrap(), before, after]
        });
        // Beside another guard the collector does not take a batch of one.
        assert_eq!(taken, [vec![], vec![], vec![Retired::Descriptor(1)]]);
    }

    /// The collector takes no batch that has fewer tickets than there are threads with guards.
    #[test]
    fn what_is_retired_beside_any_number_of_threads_is_handed_over_and_tickets_stay_few() {
        const THREADS: usize = 40;
        let epochs = Epochs::new();
        let (entered, leave) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let _guard = epochs.enter();
                        entered.wait();
                        leave.wait();
                    })
                })
                .collect();
            entered.wait();
            _ = epochs.enter().retire(Retired::Slot(1));
            // With a batch for each they would be too many.
            (0..3 * TICKETS_MAX / BATCH + 1).for_each(|_| epochs.enter().hurry());
            let (tickets, before) = (Arc::strong_count(&epochs.expired[0]), take(&epochs, 1));
            leave.wait();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!((before, take(&epochs, 1)), (vec![], vec![Retired::Slot(1)]));
            assert!(tickets < 3 * TICKETS_MAX, "{tickets}");
        });
    }

    /// As a helper may meet a descriptor that was retired before it came, and leave after those who
    /// knew it.
    #[test]
    fn where_descriptors_are_retired_everything_waits_for_those_who_came_before_it_expired() {
        for retired in [Retired::Descriptor(1), Retired::Slot(1)] {
            let epochs = Epochs::new();
            let (entered, leave) = (Barrier::new(2), Barrier::new(2));
            let knows = epochs.enter();
            epochs.enter().retire(retired);
            if matches!(retired, Retired::Slot(_)) {
                epochs.enter().retire(Retired::Descriptor(2));
            }
            epochs.enter().hurry();
            let taken = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _meets = epochs.enter();
                    entered.wait();
                    leave.wait();
                });
                entered.wait();
                drop(knows);
                let taken = [take(&epochs, 100), take(&epochs, 100)];
                leave.wait();
                taken
            });
            assert_eq!(taken, [[], []], "who came later is there");
            epochs.enter().hurry();
            assert_eq!(take(&epochs, 1), [retired]);
        }
    }

    /// Those that leave together name blocks that wait for what the last of them waits for.
    #[test]
    fn blocks_wait_for_what_was_retired_by_the_end_of_the_first_wait() {
        let expired = |retired: &[u64], left, wait_for| {
            let retired = retired.iter().map(|&number| Retired::Descriptor(number)).collect();
            Expired { retired, left, wait_for }
        };
        for count in [1, 2] {
            let epochs = Epochs::new();
            for number in [1, 2] {
                epochs.enter().retire(Retired::Descriptor(number));
                epochs.enter().hurry();
                // The first wait is over, and the next one has begun.
                assert_eq!(epochs.take(0).retired, []);
            }
            epochs.enter().hurry();
            match count {
                1 => {
                    assert_eq!(epochs.take(1), expired(&[1], 1, 1));
                    assert_eq!(epochs.take(1), expired(&[2], 2, 2));
                }
                _ => assert_eq!(epochs.take(2), expired(&[1, 2], 2, 2)),
            }
        }
    }

    #[test]
    fn everything_expires_with_its_guards() {
        let mut epochs = Epochs::new();
        retire(&epochs.enter(), 7..8);
        assert!(epochs.enter().is_of(&epochs) && !epochs.enter().is_of(&Epochs::new()));
        assert_eq!(take(&epochs, 1), []);
        epochs.expire_all();
        assert_eq!(take(&epochs, 1), [Retired::Slot(7)]);
        epochs.enter().retire(Retired::Descriptor(8));
        epochs.expire_all();
        assert_eq!(take(&epochs, 1), [Retired::Descriptor(8)]);
    }
}
