//! Deferred reuse: retired parts of a pool wait until readers have left.
//!
//! A reader may still be in a block that a writer has just unlinked. It announces itself by a
//! [`Guard`]. A retired part is reused when every guard is gone that lived when it was retired. The
//! crate `seize` does all of that, with one collector for each pool.
//!
//! The retired parts are offsets in the pool, never memory: slots of the allocator and descriptors.
//! (Nodes of an [`Arena`](crate::Arena) go through the collector on their own, by their indices.)
//! The parts wait in a queue, and the collector gets the queue's numbers. When a number has
//! expired, threads that change the pool anyway may empty the queue up to it. So a reader that
//! leaves does nothing to the pool.
//!
//! - E1: a part leaves the queue after every guard is gone that lived when it was retired.
//! - E2: parts leave in the order in which they came. This costs nothing: a guard that lived when
//!   an earlier part came is gone, or also lived when a later part came. So any thread can expire
//!   parts that others keep in incomplete batches ([`Guard::expedite`]). Threads that retire little
//!   hold nothing back for good.
//! - E3: only the collector owns the box of a number.
//! - E4: once descriptors are retired, every part waits twice: when the guards of E1 are gone, it
//!   waits for the guards that live then. The reason is a helper whose guard lived at the call. It
//!   may put a descriptor into a word once more, or lead others to a word in a retired block.
//!   Threads that meet these have later guards. (See M5 and M10 of [`crate::pmwcas`].)
//! - E5: parts behind it in the queue that were retired by the end of the first wait may have begun
//!   as early, since their owners had guards then. So blocks are given out only after those have
//!   left the queue, too ([`Expired::wait_for`]).
#![expect(unsafe_code, reason = "the collector takes raw pointers; both blocks state their argument")]

use std::collections::VecDeque;
use std::fmt;
use std::ptr;
use std::sync::Arc;

#[cfg(not(shuttle))]
use seize::LocalGuard as Entered;
// All tasks of shuttle run in one thread of the system.
#[cfg(shuttle)]
use seize::OwnedGuard as Entered;
use seize::{Collector, Guard as _};
use terrane_storage::sync::{AtomicU64, Mutex, Ordering};

use crate::arena::FreeNodes;

/// How many parts one thread retires together. Looking for live guards takes a call of the system.
pub(crate) const BATCH: usize = 8;

/// The most tickets that [`Guard::expedite`] makes: more than there are threads with guards.
const TICKETS_MAX: usize = 1 << 13;

/// Prevents the reuse of parts that are retired while it lives. A thread may have several.
///
/// A guard that lives long blocks nobody. Parts that others retire meanwhile wait for it.
pub struct Guard<'p> {
    entered: Entered<'p>,
    epochs: &'p Epochs,
}

/// A retired part that waits for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retired {
    /// A slot of a retired intent.
    Slot(u64),
    /// A descriptor of a multi-word compare-and-swap.
    Descriptor(u64),
}

/// The guards of one pool, and the parts that wait for them.
#[derive(Debug)]
pub(crate) struct Epochs {
    collector: Collector,
    queues: Mutex<Queues>,
    /// Numbers below this have expired: of the first wait and of the second one.
    expired: [Arc<AtomicU64>; 2],
}

/// Parts that have left the queue. The numbers count them from the first retired descriptor on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) retired: Vec<Retired>,
    /// How many have left by now, including these.
    pub(crate) left: u64,
    /// How many have to leave before the blocks that these parts name are given out (E5).
    pub(crate) wait_for: u64,
}

#[derive(Debug, Default)]
struct Queues {
    waiting: Queue<Retired>,
    /// Parts in their second wait (E4), and how many have to leave with them (E5).
    second_wait: Queue<(Retired, u64)>,
    /// Whether a descriptor has been retired.
    waits_twice: bool,
    /// The newest number of both queues at the last call of [`Guard::expedite`], and the tickets it
    /// made.
    expedited: [u64; 2],
    tickets: usize,
}

#[derive(Debug)]
struct Queue<T> {
    /// Number of the first part in the queue, which is how many have left it.
    first: u64,
    waiting: VecDeque<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { first: 0, waiting: VecDeque::new() }
    }
}

impl<T> Queue<T> {
    /// Appends a part, and gives the number that has to expire for it to leave.
    fn push(&mut self, retired: T) -> u64 {
        self.waiting.push_back(retired);
        self.newest()
    }

    /// The number that has to expire for the last part in the queue to leave.
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
enum Ticket {
    /// Parts up to this number have expired.
    Parts { number: u64, expired: Arc<AtomicU64> },
    /// A node of an arena is free.
    Node { node: u64, free: Arc<FreeNodes> },
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

    /// Lets everything expire. Guards borrow from this, so there are none.
    pub(crate) fn expire_all(&mut self) {
        self.collector = new_collector();
    }

    /// Takes up to `count` expired parts, in the order in which they came.
    pub(crate) fn take(&self, count: usize) -> Expired {
        let [once, twice] = &self.expired;
        let numbers: Vec<u64> = {
            let mut queues = self.queues.lock();
            let Queues { waiting, second_wait, waits_twice, .. } = &mut *queues;
            if !*waits_twice {
                return Expired { retired: waiting.take(once, count), left: 0, wait_for: 0 };
            }
            let moved = waiting.take(once, usize::MAX);
            let wait_for = second_wait.newest() + (moved.len() + waiting.waiting.len()) as u64;
            moved.into_iter().map(|retired| second_wait.push((retired, wait_for))).collect()
        };
        if !numbers.is_empty() {
            let guard = self.enter();
            numbers.into_iter().for_each(|number| guard.defer(number, twice));
            guard.entered.flush();
        }
        let mut queues = self.queues.lock();
        let taken = queues.second_wait.take(twice, count);
        let wait_for = taken.last().map_or(0, |(_, wait_for)| *wait_for);
        Expired {
            retired: taken.into_iter().map(|(retired, _)| retired).collect(),
            left: queues.second_wait.first,
            wait_for,
        }
    }
}

fn new_collector() -> Collector {
    Collector::new().batch_size(BATCH)
}

impl Guard<'_> {
    pub(crate) fn is_of(&self, epochs: &Epochs) -> bool {
        ptr::eq(self.epochs, epochs)
    }

    /// Retires a part. It leaves the queue when two conditions hold:
    /// - every guard that lives now is gone, including this one;
    /// - a few more parts were retired, or [`Guard::expedite`] was called.
    ///
    /// Gives how many parts all threads have retired since the last call of that.
    pub(crate) fn retire(&self, retired: Retired) -> u64 {
        let (number, since) = {
            let mut queues = self.epochs.queues.lock();
            queues.waits_twice |= matches!(retired, Retired::Descriptor(_));
            let number = queues.waiting.push(retired);
            (number, number - queues.expedited[0])
        };
        self.defer(number, &self.epochs.expired[0]);
        since
    }

    /// Lets a number expire when every guard that lives now is gone.
    fn defer(&self, number: u64, expired: &Arc<AtomicU64>) {
        self.defer_ticket(Ticket::Parts { number, expired: expired.clone() });
    }

    /// Frees a node of an arena when every guard that lives now is gone.
    pub(crate) fn defer_node(&self, node: u64, free: &Arc<FreeNodes>) {
        self.defer_ticket(Ticket::Node { node, free: free.clone() });
    }

    fn defer_ticket(&self, ticket: Ticket) {
        let ticket = Box::into_raw(Box::new(ticket));
        // SAFETY: the pointer was made here from a box and is given away, so only the collector has
        // it (E3).
        unsafe { self.entered.defer_retire(ticket, expire) };
    }

    /// Expires retired parts without waiting for more: everything that any thread has retired so
    /// far leaves its queue when every guard that lives now is gone (E2).
    ///
    /// The collector takes a batch only if it has a ticket for each thread with a guard. Otherwise
    /// the batch stays with this thread. The number of such threads is unknown, so a call makes a
    /// batch of tickets. While nothing more is retired, each further call makes twice as many,
    /// until they suffice for any number of threads. By then everything retired has been handed
    /// over, and more tickets would wait for the same guards.
    pub(crate) fn expedite(&self) {
        let (newest, tickets) = {
            let mut queues = self.epochs.queues.lock();
            let newest = [queues.waiting.newest(), queues.second_wait.newest()];
            queues.tickets = if newest == queues.expedited { (2 * queues.tickets).min(2 * TICKETS_MAX) } else { BATCH };
            queues.expedited = newest;
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

    /// A small number that no other live thread has.
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
/// The pointer must come from a box, and nobody else may have it.
unsafe fn expire(ticket: *mut Ticket, _: &Collector) {
    // SAFETY: the caller keeps the promise above. The collector calls this once for each pointer.
    match *unsafe { Box::from_raw(ticket) } {
        Ticket::Parts { number, expired } => _ = expired.fetch_max(number, Ordering::AcqRel),
        Ticket::Node { node, free } => free.give_back(node),
    }
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
            // A guard of the same thread, and another one within it.
            let _later = (epochs.enter(), epochs.enter());
            assert_eq!(take(&epochs, 100), [], "the reader is still there");
            leave.wait();
            entered.wait();
        });
        assert_eq!(take(&epochs, 100).len(), 16, "two batches; the rest waits for more");
        epochs.enter().expedite();
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
    fn any_thread_can_expire_incomplete_batches_of_others() {
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
            epochs.enter().expedite();
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

    /// The second time, the part is in the batch of the thread that found it expired.
    #[test]
    fn any_thread_can_expire_the_second_waits_of_others() {
        let epochs = Epochs::new();
        epochs.enter().retire(Retired::Descriptor(1));
        epochs.enter().expedite();
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
            epochs.enter().expedite();
            let after = take(&epochs, 1);
            turn.wait();
            [beside_other.join().unwrap(), before, after]
        });
        // Beside another guard the collector does not take a batch of one.
        assert_eq!(taken, [vec![], vec![], vec![Retired::Descriptor(1)]]);
    }

    /// The collector takes no batch with fewer tickets than threads with guards.
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
            // A batch for each call would be too many.
            (0..3 * TICKETS_MAX / BATCH + 1).for_each(|_| epochs.enter().expedite());
            let (tickets, before) = (Arc::strong_count(&epochs.expired[0]), take(&epochs, 1));
            leave.wait();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!((before, take(&epochs, 1)), (vec![], vec![Retired::Slot(1)]));
            assert!(tickets < 3 * TICKETS_MAX, "{tickets}");
        });
    }

    /// A helper may meet a descriptor that was retired before it came, and leave after those that
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
            epochs.enter().expedite();
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
            epochs.enter().expedite();
            assert_eq!(take(&epochs, 1), [retired]);
        }
    }

    /// The blocks of parts that leave together wait for what the last of the parts waits for.
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
                epochs.enter().expedite();
                // The first wait is over, and the next one has begun.
                assert_eq!(epochs.take(0).retired, []);
            }
            epochs.enter().expedite();
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
