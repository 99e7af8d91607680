//! The collection of garbage, one segment at a time.

use terrane_pmem::{Backend, View};

use super::super::method::Method;
use super::super::tree::BTree;
use super::super::versions;
use super::logs::Segment;
use super::replay;
use super::rows::{BASE_NUMBER, LEAF, range};
use crate::{Result, blocks};

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Takes the first segment of a log that has too much garbage. The operation that has left the
    /// garbage is durable, so a lack of space is no error.
    pub(in super::super) fn collect(&self) -> Result<()> {
        let Some(log) = self.chains.logs.begin_collection() else { return Ok(()) };
        let collected = self.collect_oldest(log).or_else(blocks::tolerate_missing_space);
        self.chains.logs.end_collection(log);
        collected
    }

    /// A crash leaves the segment as it was, and some of its records have a newer base.
    fn collect_oldest(&self, log: usize) -> Result<()> {
        let guard = self.pool.pin();
        let Some(segment) = self.chains.logs.oldest(log) else { return Ok(()) };
        let mut records = Vec::new();
        let Segment { offset, number, .. } = segment;
        replay::read_segment::<K, V, B>(&self.pool, offset, number, self.chains.logs.segment_length, |_, record| {
            records.push((record.header.leaf, record.number()));
            Ok(())
        })?;
        for (leaf, record) in records {
            self.renew(leaf, record)?;
        }
        self.chains.logs.unlink_oldest(&self.pool, log, &guard)
    }

    /// Writes a new base for a leaf, if a record of it is live.
    fn renew(&self, leaf: u64, record: u64) -> Result<()> {
        loop {
            let name = self.chains.name(leaf);
            // A leaf without a row is removed, and another thread may remove it right now.
            let Some(met) = (name != 0).then(|| self.meet(name)).flatten() else { return Ok(()) };
            let Some(lock) = versions::lock(met.word, met.version) else { continue };
            let row = self.node(name)?;
            if row.load(LEAF) != leaf || record < row.load(BASE_NUMBER) {
                lock.unchanged();
                return Ok(());
            }
            return self.add_base(name, &range(row), &self.entries_of_chain(row)?);
        }
    }
}
