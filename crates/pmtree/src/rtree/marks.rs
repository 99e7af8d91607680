//! Numbers that no other operation on a pool ever has, in this session or another one.

use terrane_pmem::{Backend, Pool};
use terrane_storage::sync::{AtomicU64, Ordering};

/// Low bits of a mark, which number the marks of a session. The session is above, in few enough
/// bits to leave the highest one free.
pub(super) const MARK_SHIFT: u32 = 32;

/// A number right before the marks of a session. No mark equals it.
pub(super) fn marks_before(session: u64) -> u64 {
    session << MARK_SHIFT
}

/// The marks of one session.
#[derive(Debug)]
pub(super) struct Marks {
    session: u64,
    /// Number of marks that were given out.
    pub(super) given: AtomicU64,
}

impl Marks {
    pub(super) fn new(session: u64) -> Self {
        Self { session, given: AtomicU64::new(0) }
    }

    /// A mark that no other operation has.
    pub(super) fn next<B: Backend>(&self, pool: &Pool<B>) -> u64 {
        let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        // When half of a session's marks are used, the next opening gets a later number, since the
        // marks continue into those of that opening.
        if number % (1 << MARK_SHIFT) == 1 << (MARK_SHIFT - 1) {
            pool.skip_openings(self.session + (number >> MARK_SHIFT) + 1);
        }
        marks_before(self.session) + number
    }
}
