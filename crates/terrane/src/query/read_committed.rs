//! Queries at read committed (Kim 2016, sections 3.4.1, 3.4.3 and 3.5.2).
//!
//! The query advances its snapshot from step to step, so it reads only visible records, without
//! locks. It takes only instant locks, one at a time while holding nothing, so it is in no cycle of
//! waiters. While it waits it holds no sealed memory: the lock's holder may be waiting for memory.
//!
//! A record is fetched after an instant lock on its key, and judged again, since its index entry
//! may be older. If entries alone suffice, they are divided (try-lock and union). Entries whose
//! keys no writer holds are rows. The others form a second chunk, whose records are fetched
//! (`deferred.rs`).
//!
//! A spatial index is searched at one sequence number per partition. So it gives each key once, and
//! the chunks are disjoint. An index on attributes or words is read at several numbers, and may
//! give a key once per version.

use super::execute::{Execution, Source};
use super::index::{IndexScan, antimatter_fits};
use super::plan::unusable;
use crate::{Error, Result};

/// The additional state of a query at read committed.
#[derive(Debug, Default)]
pub(super) struct ReadCommitted {
    /// Version of the schema for which conditions and columns are prepared.
    schema_version: u32,
    /// Slots of the indexes that provide candidates.
    pub slots: Vec<usize>,
    /// The partition whose spatial index is searched, counted within the scope.
    partition: usize,
}

impl ReadCommitted {
    pub fn new(schema_version: u32) -> Self {
        Self { schema_version, ..Self::default() }
    }
}

impl Execution {
    /// Begins a step: at read committed, it reads the state that is visible now.
    ///
    /// # Errors
    /// The schema has changed, or the index that provides candidates was dropped.
    pub fn begin_step(&mut self) -> Result<()> {
        let Some(committed) = &self.committed else { return Ok(()) };
        let (version, slots) = (committed.schema_version, &committed.slots);
        if !self.snapshot.renew() {
            return Ok(());
        }
        let dataset = self.snapshot.dataset_name();
        let changed = |what: String| {
            let advice = "ask again, or ask at snapshot, where such changes are invisible";
            Err(Error::Failed(format!("during a query of dataset {dataset:?} at read committed, {what}; {advice}")))
        };
        if self.snapshot.history.newest().version != version {
            return changed("the schema was changed".into());
        }
        let versions = self.snapshot.versions();
        match slots.iter().any(|slot| unusable(&versions, *slot).is_some()) {
            true => changed("the index that it went through was dropped".into()),
            false => Ok(()),
        }
    }

    /// Begins a step that fetches the records of the next candidates, at most `candidates`. It
    /// waits for the current holders of their keys, so their changes are visible.
    pub fn begin_fetch(&mut self, candidates: usize) -> Result<()> {
        for place in self.taken..self.taken + candidates {
            let Some(key) = self.chunk.get(place) else { break };
            self.snapshot.core.locks().wait_instant(self.snapshot.lock_hash(key));
        }
        self.begin_step()
    }

    /// Begins the step that searches the spatial index of the next partition; false if there is
    /// none.
    pub fn begin_next_partition(&mut self) -> Result<bool> {
        let Some(committed) = &mut self.committed else { return Ok(false) };
        let &[slot] = committed.slots.as_slice() else { return Ok(false) };
        let partition = committed.partition + 1;
        if partition >= self.snapshot.scope().len() {
            return Ok(false);
        }
        committed.partition = partition;
        self.begin_step()?;
        let windows = self.filters.windows().unwrap_or_default();
        let versions = self.snapshot.versions();
        let searched = &versions[partition..=partition];
        if !antimatter_fits(&self.snapshot, searched, slot, windows)? {
            return Err(Error::Failed(format!(
                "the keys deleted from dataset {:?} during a query at read committed do not fit in its \
                 memory; raise --memory-limit, or ask at snapshot",
                self.snapshot.dataset_name()
            )));
        }
        self.source = Source::Index(IndexScan::new(&self.snapshot, searched, slot, windows));
        Ok(true)
    }
}

#[cfg(test)]
#[path = "read_committed_tests.rs"]
mod tests;
