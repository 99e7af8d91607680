//! Counting rows without building them, if possible.

use super::execute::{Execution, Source};
use crate::Result;
use crate::secondary::PRIMARY;

impl Execution {
    /// Number of the remaining rows.
    pub fn count_all(mut self) -> Result<u64> {
        if let Some(count) = self.count_from_statistics()? {
            return Ok(count);
        }
        let mut count = 0;
        // If every candidate matches, candidates are counted as the index returns them. At read
        // committed, some of them may have to be judged again.
        if self.entries_decide && self.committed.is_none() {
            count = self.count_decided()?;
            if self.deferred.keys().len() == 0 {
                return Ok(count);
            }
        }
        while let Some(batch) = self.next_batch()? {
            count += batch.num_rows() as u64;
        }
        Ok(count)
    }

    /// Number of rows before the first one that no entry decides.
    fn count_decided(&mut self) -> Result<u64> {
        let limit = self.left;
        loop {
            self.check_wanted()?;
            self.left = self.left.saturating_sub(self.chunk.len() as u64);
            self.chunk.clear();
            if self.left == 0 || self.deferred.keys().len() > 0 || !self.advance_index()? {
                // Candidates decided by entries may share a chunk with others.
                self.left = self.left.saturating_sub(self.chunk.len() as u64);
                self.chunk.clear();
                return Ok(limit - self.left);
            }
        }
    }

    /// The count of all records, if each partition has a single component that knows it.
    pub fn count_from_statistics(&self) -> Result<Option<u64>> {
        if !matches!(self.source, Source::Primary(_)) || !self.filters.is_empty() {
            return Ok(None);
        }
        let mut count = 0;
        for version in self.snapshot.versions().iter() {
            version.check_whole(PRIMARY as usize)?;
            let in_memory = version.generations.iter().any(|generation| !generation.is_empty_of(PRIMARY as usize));
            match &version.components(PRIMARY as usize) {
                _ if in_memory => return Ok(None),
                [] => {}
                [only] if !only.file().meta().has_sequences => count += only.file().meta().statistics.entries,
                _ => return Ok(None),
            }
        }
        Ok(Some(count.min(self.left)))
    }
}
