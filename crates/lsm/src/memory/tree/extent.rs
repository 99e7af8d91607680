//! The extent of a child in an inner node: a bounding rectangle, or nothing.

use terrane_space::Rect;
use terrane_storage::sync::{AtomicU64, Ordering};

/// A summary of entries that grows and never shrinks.
///
/// One writer widens the shared form while many threads read it without a lock. A reader may see a
/// half-finished widening. It needs only those before its snapshot, and these it sees whole.
pub(in crate::memory) trait Extent: Copy + PartialEq + Send + Sync + 'static {
    /// The form inside a node.
    type Shared: Send + Sync + 'static;
    /// The summary of no entry.
    const EMPTY: Self;
    /// The summary of both.
    fn union(self, other: Self) -> Self;
    /// The shared form of a summary.
    fn share(self) -> Self::Shared;
    /// Reads a shared summary.
    fn load(shared: &Self::Shared) -> Self;
    /// Replaces a shared summary that no reader accesses yet.
    fn reset(shared: &Self::Shared, value: Self);
    /// Widens a shared summary so that it covers `value`.
    fn widen(shared: &Self::Shared, value: Self);
}

impl Extent for () {
    type Shared = ();
    const EMPTY: Self = ();
    fn union(self, (): ()) {}
    fn share(self) {}
    fn load((): &()) {}
    fn reset((): &(), (): ()) {}
    fn widen((): &(), (): ()) {}
}

/// A rectangle as four coordinates, each an atomic word.
pub(in crate::memory) struct SharedRect([AtomicU64; 4]);

impl Extent for Rect {
    type Shared = SharedRect;
    const EMPTY: Self = Rect::EMPTY;

    fn union(self, other: Self) -> Self {
        Rect::union(&self, &other)
    }

    fn share(self) -> SharedRect {
        SharedRect([self.x0, self.y0, self.x1, self.y1].map(|value| AtomicU64::new(value.to_bits())))
    }

    fn load(shared: &SharedRect) -> Self {
        let [x0, y0, x1, y1] = &shared.0;
        let read = |word: &AtomicU64| f64::from_bits(word.load(Ordering::Relaxed));
        Rect { x0: read(x0), y0: read(y0), x1: read(x1), y1: read(y1) }
    }

    fn reset(shared: &SharedRect, value: Self) {
        for (word, value) in shared.0.iter().zip([value.x0, value.y0, value.x1, value.y1]) {
            word.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    fn widen(shared: &SharedRect, value: Self) {
        let old = Self::load(shared);
        let [x0, y0, x1, y1] = &shared.0;
        let write = |word: &AtomicU64, value: f64| word.store(value.to_bits(), Ordering::Relaxed);
        if value.x0 < old.x0 {
            write(x0, value.x0);
        }
        if value.y0 < old.y0 {
            write(y0, value.y0);
        }
        if value.x1 > old.x1 {
            write(x1, value.x1);
        }
        if value.y1 > old.y1 {
            write(y1, value.y1);
        }
    }
}
