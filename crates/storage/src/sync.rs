//! Locks, atomics, threads and channels that a model checker can replace. For the crates of the
//! engine, not for its users.
//!
//! Ordinary builds use `parking_lot` and `std`. With `--cfg loom` or `--cfg shuttle` the same names
//! are loom's or shuttle's. Concurrent code of `pmem`, `lsm` and `terrane` takes its primitives
//! only from here, so that under a checker nothing blocks without its knowledge. `testkit` does not
//! use them: its files in memory model a disk, and each access to the disk is one step.

#[cfg(not(any(loom, shuttle)))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

#[cfg(any(loom, shuttle))]
pub use checker::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(any(loom, shuttle))]
pub use checker::sync::{RwLockReadGuard, RwLockWriteGuard};
#[cfg(any(loom, shuttle))]
pub use model::{Condvar, Mutex, MutexGuard, RwLock};

#[cfg(shuttle)]
pub use shuttle::sync::mpsc;
// Loom has no bounded channels.
#[cfg(not(shuttle))]
pub use std::sync::mpsc;

/// Threads. Use `std` to ask whether one panics, as the checkers' threads unwind like any other.
pub mod thread {
    use std::io;

    #[cfg(any(loom, shuttle))]
    use super::checker::thread;
    #[cfg(not(any(loom, shuttle)))]
    use std::thread;

    #[cfg(shuttle)]
    use shuttle::thread as scoped;
    // Loom has no scopes.
    #[cfg(not(shuttle))]
    use std::thread as scoped;

    pub use scoped::{Scope, ScopedJoinHandle, scope};
    pub use thread::{Builder, JoinHandle, Thread, current, park, yield_now};

    /// Starts a thread that ends before the scope does.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn spawn_scoped<'scope, T: Send + 'scope>(
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        #[cfg(shuttle)]
        {
            Ok(scope.spawn(work))
        }
        #[cfg(not(shuttle))]
        {
            scoped::Builder::new().spawn_scoped(scope, work)
        }
    }
}

/// The checker's locks behind the interface of `parking_lot`.
#[cfg(any(loom, shuttle))]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use super::checker::sync;

    const HELD: &str = "a guard lends its lock away only while its condition variable waits";

    /// Access to what a [`Mutex`] protects.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T> {
        lock: &'a sync::Mutex<T>,
        held: Option<sync::MutexGuard<'a, T>>,
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.held.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect(HELD)
        }
    }

    /// A mutual exclusion lock.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Wraps a value.
        pub fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        /// Waits for the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { lock: &self.0, held: Some(self.0.lock().expect("the checker stops at the first panic")) }
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard { lock: &self.0, held: Some(guard) })
        }
    }

    /// A reader-writer lock.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Wraps a value.
        pub fn new(value: T) -> Self {
            Self(sync::RwLock::new(value))
        }

        /// Waits for shared access.
        pub fn read(&self) -> sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("the checker stops at the first panic")
        }

        /// Waits for exclusive access.
        pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("the checker stops at the first panic")
        }

        /// Takes shared access if nobody has exclusive access.
        pub fn try_read(&self) -> Option<sync::RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        /// Takes exclusive access if nobody has any.
        pub fn try_write(&self) -> Option<sync::RwLockWriteGuard<'_, T>> {
            self.0.try_write().ok()
        }
    }

    /// A condition variable.
    #[derive(Debug, Default)]
    pub struct Condvar(sync::Condvar);

    impl Condvar {
        /// A new one without waiters.
        pub fn new() -> Self {
            Self(sync::Condvar::new())
        }

        /// Releases the lock, waits to be woken, and takes the lock again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.held.take().expect(HELD);
            guard.held = Some(self.0.wait(held).expect("the checker stops at the first panic"));
        }

        /// Like [`Self::wait`], but wakes by itself after a time. The checkers have no time, so it
        /// may wake at any step. A wait that only time can end is therefore no deadlock.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            drop(guard.held.take());
            super::checker::thread::yield_now();
            guard.held = Some(guard.lock.lock().expect("the checker stops at the first panic"));
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
