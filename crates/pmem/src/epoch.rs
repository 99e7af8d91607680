//! What waits until readers have left.
//!
//! A reader may still be in what a writer has just unlinked. It announces itself by a [`Guard`]; what is unlinked is
//! retired under a guard, and reused when every guard is gone that lived then. All of that is the crate `seize`,
//! one collector for each pool; what is unsafe about it stays here.
//!
//! What waits is a number, never memory: of a slot of the allocator, of a descriptor. When its time has come, the
//! number goes to a list, from which those take it who change the pool anyway. So a reader that leaves
//! does nothing to the pool, and does not pay for what others have retired.
//!
//! - E1: a retired number is put on its list once, and no earlier than every guard is gone that lived at the call.
//! - E2: the box of a retired number is the collector's alone.
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
use terrane_storage::sync::Mutex;

/// What one thread retires together: to look for live guards takes a call of the system.
const BATCH: usize = 8;

/// Keeps what is retired while it lives from being reused. A thread may have several.
///
/// A guard that lives long blocks nobody; what others retire meanwhile waits for it.
pub struct Guard<'p>(Entered<'p>);

/// The guards of one pool.
#[derive(Debug)]
pub(crate) struct Epochs(Collector);

/// Numbers whose time has come, the first to come first.
#[derive(Debug, Default)]
pub(crate) struct Expired(Mutex<VecDeque<u64>>);

/// A number on its way to a list.
struct Retired {
    number: u64,
    list: Arc<Expired>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Self(Collector::new().batch_size(BATCH))
    }

    pub(crate) fn enter(&self) -> Guard<'_> {
        #[cfg(not(shuttle))]
        return Guard(self.0.enter());
        #[cfg(shuttle)]
        Guard(self.0.enter_owned())
    }

    /// Lets everything expire. Nobody has a guard, since guards borrow from this.
    pub(crate) fn expire_all(&mut self) {
        *self = Self::new();
    }
}

impl Guard<'_> {
    pub(crate) fn is_of(&self, epochs: &Epochs) -> bool {
        ptr::eq(self.0.collector(), &epochs.0)
    }

    /// Puts the number on the list when every guard is gone that lives now, this one too, and a few more
    /// were retired or [`Guard::hurry`] was called.
    pub(crate) fn retire(&self, number: u64, list: &Arc<Expired>) {
        let retired = Box::into_raw(Box::new(Retired { number, list: list.clone() }));
        // SAFETY: the pointer was made here from a box and is given away, so nobody but the collector has it (E2).
        unsafe { self.0.defer_retire(retired, expire) };
    }

    /// Does not wait for more to be retired by this thread.
    pub(crate) fn hurry(&self) {
        self.0.flush();
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Guard")
    }
}

/// # Safety
/// The pointer came from a box, and nobody else has it.
unsafe fn expire(retired: *mut Retired, _: &Collector) {
    // SAFETY: the caller's promise; the collector calls this once for each pointer.
    let Retired { number, list } = *unsafe { Box::from_raw(retired) };
    list.0.lock().push_back(number);
}

impl Expired {
    /// Takes up to so many.
    pub(crate) fn take(&self, count: usize) -> Vec<u64> {
        let mut numbers = self.0.lock();
        let count = count.min(numbers.len());
        numbers.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn numbers_expire_when_the_last_guard_of_their_time_is_gone() {
        let (epochs, list) = (Epochs::new(), Arc::new(Expired::default()));
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
            (0..20).for_each(|number| writer.retire(number, &list));
            drop(writer);
            // A guard of the same thread, within it another one.
            let _later = (epochs.enter(), epochs.enter());
            assert_eq!(list.take(100), [], "the reader is still there");
            leave.wait();
            entered.wait();
        });
        assert_eq!(list.take(100).len(), 16, "two batches; the rest waits for more");
        epochs.enter().hurry();
        assert_eq!(list.take(3), [16, 17, 18]);
        assert_eq!(list.take(3), [19]);
    }

    #[test]
    fn everything_expires_with_its_guards() {
        let (mut epochs, list) = (Epochs::new(), Arc::new(Expired::default()));
        epochs.enter().retire(7, &list);
        assert!(epochs.enter().is_of(&epochs) && !epochs.enter().is_of(&Epochs::new()));
        epochs.expire_all();
        assert_eq!(list.take(1), [7]);
    }
}
