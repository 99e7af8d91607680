//! Candidates that are deferred because index entries cannot decide them. They form a chunk of
//! their own, whose records are read and judged.

use super::execute::{Execution, Source};
use super::keys::Keys;

/// Deferred candidates.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    keys: Keys,
    /// Whether the current chunk consists of such candidates.
    is_judged: bool,
}

impl Deferred {
    pub fn push(&mut self, key: &[u8]) {
        self.keys.push(key);
    }

    /// The deferred candidates.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl Execution {
    /// Whether every candidate of the chunk is known to match without its record.
    pub fn candidates_match(&self) -> bool {
        match self.source {
            Source::Nearest(_) => true,
            // At read committed, a record that is fetched may be newer than its entry.
            _ => self.entries_decide && !self.deferred.is_judged && (self.committed.is_none() || !self.reads_records),
        }
    }

    /// At read committed: defers the chunk's entries from an index on whose keys are locked by
    /// writers, and which would otherwise be rows.
    pub fn defer_held(&mut self, from: usize) {
        if self.committed.is_none() || !self.entries_decide || self.reads_records {
            return;
        }
        let before = self.deferred.keys.len();
        let (locks, snapshot) = (&self.snapshot.core.locks(), &self.snapshot);
        let is_held = |key: &[u8]| !locks.try_instant(snapshot.lock_hash(key));
        self.chunk.move_where(from, &mut self.deferred.keys, is_held);
        self.explanation.held_by_writers += (self.deferred.keys.len() - before) as u64;
    }

    /// Makes the deferred candidates the current chunk; false if there are none.
    pub fn take_deferred(&mut self) -> bool {
        self.deferred.is_judged = self.deferred.keys.len() > 0;
        if self.deferred.is_judged {
            std::mem::swap(&mut self.chunk, &mut self.deferred.keys);
            self.deferred.keys.clear();
            self.chunk.sort();
            self.taken = 0;
        }
        self.deferred.is_judged
    }
}
