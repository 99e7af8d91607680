//! The rows and inner nodes of a tree from what its logs say, and the check against them.

use std::collections::{BTreeMap, BTreeSet};

use terrane_pmem::{Backend, View};

use super::super::layout::{META, NEXT, meta};
use super::super::method::Method;
use super::super::tree::BTree;
use super::replay::{Found, Replay, replay};
use super::rows::{BASE, BASE_NUMBER, DELTAS, HEAD, LEAF, LINES, range};
use crate::Result;

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Makes the leaves and the inner nodes that the logs state. Nobody else uses the tree yet.
    pub(in super::super) fn restore(&self, Replay { logs, leaves }: Replay<K>, replayers: usize) -> Result<()> {
        for (log, found) in logs.into_iter().enumerate() {
            self.chains.logs.restore(log, found);
        }
        self.chains.take_numbers(&leaves.iter().map(|(leaf, ..)| *leaf).collect());
        let rows: Vec<u64> = leaves.iter().map(|(leaf, ..)| self.chains.new_row(*leaf)).collect();
        let nexts = rows.iter().skip(1).copied().chain([0]);
        for (((leaf, range, found), &row), next) in leaves.iter().zip(&rows).zip(nexts) {
            let Found { head, base, base_number, deltas, lines, .. } = *found;
            for (word, value) in
                [(NEXT, next), (HEAD, head), (BASE, base), (BASE_NUMBER, base_number), (DELTAS, deltas), (LINES, lines)]
            {
                self.chains.store(row, word, value);
            }
            self.chains.set_range(row, range);
            self.chains.publish(*leaf, row);
            self.chains.logs.keep(*leaf, lines);
        }
        let count_all = |rows: &[u64]| rows.iter().try_for_each(|row| self.count_entries(*row));
        let share = rows.len().div_ceil(replayers.clamp(1, rows.len().max(1)));
        if share == rows.len() {
            count_all(&rows)?;
        } else {
            let parts: Vec<Result<()>> = std::thread::scope(|scope| {
                let threads: Vec<_> = rows.chunks(share).map(|rows| scope.spawn(move || count_all(rows))).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .collect()
            });
            parts.into_iter().collect::<Result<()>>()?;
        }
        let nodes = leaves.iter().zip(&rows).map(|((_, range, _), &row)| (range.low, row)).collect();
        self.build_inner(nodes);
        Ok(())
    }

    /// Counts the entries of a leaf, and notes its newest deltas.
    fn count_entries(&self, row: u64) -> Result<()> {
        let words = self.node(row)?;
        let entries = self.entries_of_chain(words)?;
        self.chains.store(row, META, meta(0, entries.len()));
        let mut newest = words.load(HEAD);
        for number in 0..words.load(DELTAS).min(self.chains.prefetched as u64) {
            self.chains.store_recent::<K>(row, number as usize, newest);
            newest = self.record(newest)?.previous();
        }
        Ok(())
    }

    /// Checks that the logs say the same as the rows do, and adds their segments to the blocks that
    /// were reached.
    pub(in super::super) fn check_chains(&self, reached: &mut BTreeMap<u64, u64>) -> Result<()> {
        let logs = &self.chains.logs;
        let shape = (logs.len() as u64, logs.segment_length);
        let Replay { logs: found, leaves } = replay(&self.pool, &self.layout, shape, self.heads(), 1)?;
        for segment in found.iter().flat_map(|log| &log.segments) {
            if reached.insert(segment.offset, logs.segment_length).is_some() {
                return Err(self.damaged(segment.offset, "a segment is linked twice"));
            }
        }
        let mut seen = BTreeSet::new();
        for (leaf, stated, found) in leaves {
            seen.insert(leaf);
            let name = self.chains.name(leaf);
            if name == 0 {
                return Err(self.damaged(found.head, format!("the logs have the leaf {leaf}, and the tree has not")));
            }
            let row = self.node(name)?;
            let own = [HEAD, BASE, BASE_NUMBER, DELTAS, LINES, LEAF].map(|word| row.load(word));
            if own != [found.head, found.base, found.base_number, found.deltas, found.lines, leaf]
                || range::<K>(row) != stated
            {
                return Err(self.damaged(found.head, format!("the logs and the tree differ about the leaf {leaf}")));
            }
        }
        match self.chains.count() == seen.len() as u64 {
            true => Ok(()),
            false => Err(self.damaged(self.heads(), "the tree has leaves that the logs have not")),
        }
    }
}
