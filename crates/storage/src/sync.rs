//! Locks and atomics, so that a model checker can replace them. For the crates of the engine, not for its users.
//!
//! Ordinary builds use `parking_lot` and `std`; with `--cfg loom` or `--cfg shuttle` the same
//! names are loom's or shuttle's. Concurrent code of `pmem`, `lsm` and `terrane` takes its primitives from here only.
//! This crate itself does not: what it keeps in memory stands for a disk, each access of which is one step.

#[cfg(not(any(loom, shuttle)))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

#[cfg(any(loom, shuttle))]
pub use checker::sync::RwLockWriteGuard;
#[cfg(any(loom, shuttle))]
pub use checker::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(any(loom, shuttle))]
pub use model::{Condvar, Mutex, MutexGuard, RwLock};

/// The checker's locks behind the interface of `parking_lot`.
#[cfg(any(loom, shuttle))]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use super::checker::sync;

    const HELD: &str = "a guard lends its lock away only while its condition variable waits";

    /// Access to what a [`Mutex`] protects.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect(HELD)
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
            MutexGuard(Some(self.0.lock().expect("the checker stops at the first panic")))
        }

        /// Takes the lock if nobody holds it.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
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

        /// Gives the lock back, waits to be woken, and takes the lock again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect(HELD);
            guard.0 = Some(self.0.wait(held).expect("the checker stops at the first panic"));
        }

        /// As [`Self::wait`], but wakes by itself after a time.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
            let held = guard.0.take().expect(HELD);
            let woken = self.0.wait_timeout(held, time).expect("the checker stops at the first panic");
            guard.0 = Some(woken.0);
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
