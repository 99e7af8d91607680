//! Candidates that their entries do not decide. They are a chunk of their own, of which the records are fetched and judged.

use super::execute::{Execution, Source};
use super::keys::Keys;

/// Candidates that are set aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    keys: Keys,
    /// Whether the chunk is of such candidates.
    is_judged: bool,
}

impl Aside {
    pub fn push(&mut self, key: &[u8]) {
        self.keys.push(key);
    }

    /// Those that wait.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl Execution {
    /// Whether it is known that a candidate of the chunk matches, without its record.
    pub fn candidates_match(&self) -> bool {
        match self.source {
            Source::Nearest(_) => true,
            // At read committed, a record that is fetched may be younger than its entry.
            _ => self.entries_decide && !self.aside.is_judged && (self.committed.is_none() || !self.reads_records),
        }
    }

    /// At read committed: of the entries that were added to the chunk from an index on, sets those aside that would be rows
    /// but for the writers that hold their keys.
    pub fn set_held_aside(&mut self, from: usize) {
        if self.committed.is_none() || !self.entries_decide || self.reads_records {
            return;
        }
        let before = self.aside.keys.len();
        let (locks, snapshot) = (&self.snapshot.core.locks(), &self.snapshot);
        let is_held = |key: &[u8]| !locks.try_instant(snapshot.lock_hash(key));
        self.chunk.move_where(from, &mut self.aside.keys, is_held);
        self.explanation.held_by_writers += (self.aside.keys.len() - before) as u64;
    }

    /// Makes what was set aside the chunk; false if nothing was.
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
