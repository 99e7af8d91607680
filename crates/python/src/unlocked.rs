//! Work without the lock of Python.

use std::cell::RefCell;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::Result;

/// Holds the lock released, and gives it back to the state it had.
struct Unlocked {
    ensured: ffi::PyGILState_STATE,
    thread: *mut ffi::PyThreadState,
}

impl Unlocked {
    fn new() -> Self {
        // SAFETY: the interpreter runs, since an object of it calls. A thread may ensure the lock
        // whether or not it holds it, and then holds it, which releasing it needs.
        unsafe {
            let ensured = ffi::PyGILState_Ensure();
            Self { ensured, thread: ffi::PyEval_SaveThread() }
        }
    }
}

impl Drop for Unlocked {
    fn drop(&mut self) {
        // SAFETY: both are of `new`, on this thread, and are given back in reverse order.
        unsafe {
            ffi::PyEval_RestoreThread(self.thread);
            ffi::PyGILState_Release(self.ensured);
        }
    }
}

/// Runs work without the lock of Python, which other threads of the work may need. Readers of a
/// stream may hold the lock or not, and PyO3 cannot tell: it does not see who else released it. The
/// work itself must not use Python on this thread.
pub fn unlocked<T>(work: impl FnOnce() -> T) -> T {
    let _unlocked = Unlocked::new();
    work()
}

/// Runs work with the lock of Python, on a thread that may hold it or not.
pub fn locked<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    struct Ensured(ffi::PyGILState_STATE);

    impl Drop for Ensured {
        fn drop(&mut self) {
            // SAFETY: it is of this thread, which has given back what it took since.
            unsafe { ffi::PyGILState_Release(self.0) }
        }
    }

    // SAFETY: as in `Unlocked::new`.
    let _ensured = Ensured(unsafe { ffi::PyGILState_Ensure() });
    // SAFETY: the thread has the lock.
    work(unsafe { Python::assume_attached() })
}

thread_local! {
    /// The exception of a signal handler, which ends the work of this thread.
    static SIGNALLED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs work of the engine, whose searches and statements end when a signal handler raises, as that
/// of Ctrl-C does. [`signal`] has the exception then.
pub fn stoppable<T>(work: impl FnOnce() -> T) -> T {
    terrane::interruptible(is_signalled, work)
}

/// The exception of a signal handler, which comes before any outcome of the work.
pub fn signal() -> Option<PyErr> {
    SIGNALLED.take()
}

/// Has Python raise KeyboardInterrupt soon, where this one cannot be raised.
pub fn interrupt() {
    // SAFETY: it notes a signal, which needs no lock.
    unsafe { ffi::PyErr_SetInterrupt() }
}

fn is_signalled() -> bool {
    // Handlers run on the main thread, and on others there is nothing to notice.
    if let Err(error) = locked(|py| py.check_signals()) {
        SIGNALLED.set(Some(error));
    }
    SIGNALLED.with_borrow(Option::is_some)
}

/// Runs work of the engine without the lock of Python, until a signal handler raises.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let done = py.detach(|| stoppable(work));
    match signal() {
        Some(error) => Err(error),
        None => Ok(done?),
    }
}
