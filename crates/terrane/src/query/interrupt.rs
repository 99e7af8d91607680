//! The end of a search that its caller does not want any more.

use std::cell::Cell;
use std::time::{Duration, Instant};

use terrane_storage::sync::mpsc::{Receiver, RecvError};

/// How often a search asks.
const INTERVAL: Duration = Duration::from_millis(50);

type Interrupted = fn() -> bool;

thread_local! {
    /// What the thread's searches ask, and when they asked last.
    static ASKED: Cell<Option<(Interrupted, Instant)>> = const { Cell::new(None) };
}

/// Runs work whose searches and statements end with an error soon after `interrupted` has returned
/// true. It is called about every 50 milliseconds, on this thread.
pub fn interruptible<T>(interrupted: fn() -> bool, work: impl FnOnce() -> T) -> T {
    struct Restored(Option<(Interrupted, Instant)>);

    impl Drop for Restored {
        fn drop(&mut self) {
            ASKED.set(self.0);
        }
    }

    let _restored = Restored(ASKED.replace(Some((interrupted, Instant::now()))));
    work()
}

/// The time between two questions, if the thread's work can be interrupted.
pub fn interrupt_interval() -> Option<Duration> {
    ASKED.get().map(|_| INTERVAL)
}

/// Whether the caller wants the thread's work to end. It asks no sooner than an interval after the
/// last question.
pub fn is_interrupted() -> bool {
    match ASKED.get() {
        Some((interrupted, last)) if last.elapsed() >= INTERVAL => {
            ASKED.set(Some((interrupted, Instant::now())));
            interrupted()
        }
        _ => false,
    }
}

/// Receives a message; `None` if the caller does not wait for it any more.
pub(super) fn receive<T>(messages: &Receiver<T>) -> Option<Result<T, RecvError>> {
    if is_interrupted() {
        return None;
    }
    #[cfg(not(shuttle))]
    while let Some(interval) = interrupt_interval() {
        use std::sync::mpsc::RecvTimeoutError;
        match messages.recv_timeout(interval) {
            Ok(message) => return Some(Ok(message)),
            Err(RecvTimeoutError::Disconnected) => return Some(Err(RecvError)),
            Err(RecvTimeoutError::Timeout) if is_interrupted() => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Some(messages.recv())
}
