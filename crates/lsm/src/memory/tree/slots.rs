//! Columns of a node: fixed arrays that one writer fills slot by slot while readers read the
//! published slots.
//!
//! Protocol: the writer writes slot `n`, then publishes the count `n + 1` with `Release`. A reader
//! loads the count with `Acquire` and reads only slots below it. A published slot never changes.
//! Under loom every slot has a tracked cell, so that the model checker detects a read that no
//! publication ordered.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// An array of `N` slots, filled from the front.
pub(in crate::memory) struct Slots<T, const N: usize> {
    values: UnsafeCell<[MaybeUninit<T>; N]>,
    #[cfg(loom)]
    tracked: [loom::cell::UnsafeCell<()>; N],
}

// SAFETY: slots are written by one writer before they are published and never after;
// shared access to published slots is shared access to `T`.
unsafe impl<T: Send + Sync, const N: usize> Sync for Slots<T, N> {}

impl<T: Copy, const N: usize> Slots<T, N> {
    /// An array without a written slot.
    pub(in crate::memory) fn new() -> Self {
        Self {
            values: UnsafeCell::new([const { MaybeUninit::uninit() }; N]),
            #[cfg(loom)]
            tracked: std::array::from_fn(|_| loom::cell::UnsafeCell::new(())),
        }
    }

    /// Writes one slot.
    ///
    /// # Safety
    /// The caller is the only writer, and the slot has not been published.
    pub(in crate::memory) unsafe fn write(&self, slot: usize, value: T) {
        assert!(slot < N, "slot {slot} of {N}");
        #[cfg(loom)]
        self.tracked[slot].with_mut(|_| ());
        let place = self.values.get().cast::<MaybeUninit<T>>();
        // SAFETY: the slot lies inside the array. Nobody reads or writes it now, as the caller
        // promises, and no reference to the whole array is made.
        unsafe { place.add(slot).write(MaybeUninit::new(value)) };
    }

    /// The first `len` slots.
    ///
    /// # Safety
    /// These slots were written, and their publication was acquired by this thread (or this thread
    /// is the writer).
    pub(in crate::memory) unsafe fn published(&self, len: usize) -> &[T] {
        assert!(len <= N, "{len} slots of {N}");
        #[cfg(loom)]
        for cell in &self.tracked[..len] {
            cell.with(|_| ());
        }
        // SAFETY: the slots are initialised and never written again, as the caller
        // promises; the slice covers none that may still be written.
        unsafe { std::slice::from_raw_parts(self.values.get().cast::<T>(), len) }
    }
}
