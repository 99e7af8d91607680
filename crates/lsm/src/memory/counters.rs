//! Counters of a memory component, and its seal.

use crate::{Error, Result};
use terrane_storage::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Kind, SEQUENCE_MAX};

/// Counters that the writer changes under its latch and any thread reads.
pub(super) struct Counters {
    sealed: AtomicBool,
    len: AtomicUsize,
    anti_matter_len: AtomicUsize,
    sequence_min: AtomicU64,
    sequence_max: AtomicU64,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            sealed: AtomicBool::new(false),
            len: AtomicUsize::new(0),
            anti_matter_len: AtomicUsize::new(0),
            sequence_min: AtomicU64::new(SEQUENCE_MAX),
            sequence_max: AtomicU64::new(0),
        }
    }

    /// Refuses a forbidden write. To be called under the latch.
    pub(super) fn admit(&self, sequence: u64) -> Result<()> {
        if self.is_sealed() {
            return Err(Error::Invalid("this memory component is sealed; write to the one that replaced it".into()));
        }
        if sequence == SEQUENCE_MAX {
            return Err(Error::Invalid("the highest sequence number is reserved for entries without an end".into()));
        }
        Ok(())
    }

    /// Counts a write. Under the latch, plain loads and stores suffice.
    pub(super) fn count(&self, kind: Kind, sequence: u64) {
        let add = |counter: &AtomicUsize| counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if kind == Kind::AntiMatter {
            add(&self.anti_matter_len);
        }
        if sequence < self.sequence_min.load(Ordering::Relaxed) {
            self.sequence_min.store(sequence, Ordering::Relaxed);
        }
        if sequence > self.sequence_max.load(Ordering::Relaxed) {
            self.sequence_max.store(sequence, Ordering::Relaxed);
        }
        add(&self.len);
    }

    /// Ends the writes. To be called under the latch.
    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn anti_matter_len(&self) -> usize {
        self.anti_matter_len.load(Ordering::Relaxed)
    }

    pub(super) fn sequences(&self) -> Option<(u64, u64)> {
        let (min, max) = (self.sequence_min.load(Ordering::Relaxed), self.sequence_max.load(Ordering::Relaxed));
        (min <= max).then_some((min, max))
    }
}
