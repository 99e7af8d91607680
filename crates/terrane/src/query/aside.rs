//! Candidates set aside because index entries cannot decide them. They form a chunk of their own,
//! whose records are read and judged.

use super::execute::{Execution, Source};
use super::keys::Keys;

/// Candidates that are set aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    keys: Keys,
    /// Whether the current chunk consists of such candidates.
    is_judged: bool,
}

impl Aside {
    pub fn push(&mut self, key: &[u8]) {
        self.keys.push(key);
    }

    /// The candidates that are set aside.
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
            _ => self.entries_decide && !self.aside.is_judged && (self.committed.is_none() || !self.reads_records),
        }
    }

    /// At read committed: sets aside the chunk's entries from an index on whose keys are locked by
    /// writers, and which would otherwise be rows.
    pub fn set_held_aside(&mut self, from: usize) {
        if self.committed.is_none() || !self.entries_decide || self.reads_records {
            return;
        }
        let before = self.aside.keys.len();
        let (locks, snapshot) = (&self.snapshot.engine.locks, &self.snapshot);
        let is_held = |key: &[u8]| !locks.try_instant(snapshot.lock_hash(key));
        self.chunk.move_where(from, &mut self.aside.keys, is_held);
        self.explanation.held_by_writers += (self.aside.keys.len() - before) as u64;
    }

    /// Makes the candidates that are set aside the current chunk; false if there are none.
    pub fn take_aside(&mut self) -> bool {
        self.aside.is_judged = self.aside.keys.len() > 0;
        if self.aside.is_judged {
            std::mem::swap(&mut self.chunk, &mut self.aside.keys);
            self.aside.keys.clear();
            self.chunk.sort();
            self.taken = 0;
        }
        self.aside.is_judged
    }
}
