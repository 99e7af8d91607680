//! Queries at read committed (Kim 2016, sections 3.4.1, 3.4.3 and 3.5.2).
//!
//! Such a query moves its snapshot on from step to step, so all that it reads is visible: a lock is not needed for that. It
//! takes instant locks, one at a time and holding nothing else, so that it is in no cycle of waiters.
//!
//! A record is fetched after an instant lock on its key, and judged again by all conditions, as the entry that led to it may
//! be older. Where entries alone would do, they are divided (try-lock and union): those whose keys no writer
//! holds are rows; the others are a chunk of their own, which is fetched and judged (`aside.rs`). A partition's spatial index is searched at one
//! number, so it gives each key once, and the chunks have no key in common. An index on attributes or words is read at several, and may give
//! a key for each of several versions of its record.
//!
//! While it waits for a lock it keeps no sealed memory: a writer that holds the lock may be waiting for memory.

use super::execute::{Execution, Source};
use super::index::{IndexScan, antimatter_fits};
use super::plan::unusable;
use crate::{Error, Result};

/// What a query at read committed knows besides.
#[derive(Debug, Default)]
pub(super) struct ReadCommitted {
    /// Of the schema that the conditions and the columns are prepared for.
    schema_version: u32,
    /// Places of the indexes that candidates come from.
    pub slots: Vec<usize>,
    /// Of the partitions in scope, the one whose spatial index is searched.
    partition: usize,
}

impl ReadCommitted {
    pub fn new(schema_version: u32) -> Self {
        Self { schema_version, ..Self::default() }
    }
}

impl Execution {
    /// Begins a step: at read committed, it reads what is visible now.
    ///
    /// # Errors
    /// The schema, or the index that candidates come from, is not any more what the query was prepared for.
    pub fn begin_step(&mut self) -> Result<()> {
        let Some(committed) = &self.committed else { return Ok(()) };
        let (version, slots) = (committed.schema_version, &committed.slots);
        if !self.snapshot.renew() {
            return Ok(());
        }
        let dataset = self.snapshot.dataset_name();
        let changed = |what: String| {
            let advice = "ask again, or at snapshot, where such changes are not seen";
            Err(Error::Failed(format!(
                "while a query of dataset {dataset:?} at read committed went on, {what}; {advice}"
            )))
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

    /// Begins a step that fetches the records of the next candidates, so many at most: what a writer does to them that
    /// holds their keys now is seen.
    pub fn begin_fetch(&mut self, candidates: usize) -> Result<()> {
        for place in self.taken..self.taken + candidates {
            let Some(key) = self.chunk.get(place) else { break };
            self.snapshot.core.locks().wait_instant(self.snapshot.lock_hash(key));
        }
        self.begin_step()
    }

    /// Goes on with the spatial index of the next partition, in a step of its own; false if there is none.
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
                "what was deleted of dataset {:?} while a query at read committed went on does not fit into its \
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
