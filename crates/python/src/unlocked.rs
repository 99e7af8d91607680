//! Work without the lock of Python.

use pyo3::ffi;

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
