//! The rows and inner nodes of a tree from what its logs say, and the check against them.

use std::collections::BTreeMap;

use terrane_pmem::{Backend, View};

use super::super::layout::{META, NEXT, meta};
use super::super::method::Method;
use super::super::tree::BTree;
use super::replay::{Replay, replay};
use super::rows::{BASE, BASE_NUMBER, DELTAS, HEAD, LEAF, LINES, range};
use crate::{Result, parallel};

/// Fewer leaves than this are restored by one thread.
const LEAVES_OF_THREAD_MIN: usize = 4096;

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Makes the leaves and the inner nodes that the logs state. Nobody else uses the tree yet.
    pub(in super::super) fn restore(&self, mut replay: Replay<K>, threads: usize) -> Result<()> {
        for (log, read) in replay.logs.iter_mut().enumerate() {
            self.chains.logs.restore(log, std::mem::take(&mut read.found));
        }
        let leaves = &replay.leaves;
        self.chains.take_numbers(leaves.iter().map(|(_, leaf)| *leaf));
        let rows: Vec<u64> = leaves.iter().map(|(_, leaf)| self.chains.new_row(*leaf)).collect();
        let share = leaves.len().div_ceil(parallel::threads(threads, leaves.len(), LEAVES_OF_THREAD_MIN));
        let parts = parallel::on_threads((0..leaves.len()).step_by(share), |first| {
            let mut live_lines = vec![0; replay.logs.len()];
            for place in first..leaves.len().min(first + share) {
                let lines = self.restore_row(&replay, place, rows[place], rows.get(place + 1).copied())?;
                live_lines[self.chains.logs.of(leaves[place].1)] += lines;
            }
            Ok(live_lines)
        })?;
        for (log, lines) in parts.iter().flat_map(|part| part.iter().enumerate()) {
            self.chains.logs.keep(log, *lines);
        }
        let nodes = leaves.iter().zip(&rows).map(|((low, _), &row)| (*low, row)).collect();
        self.build_inner(nodes);
        Ok(())
    }

    /// Fills the row of a leaf. Gives the lines of its chain.
    fn restore_row(&self, replay: &Replay<K>, place: usize, row: u64, next: Option<u64>) -> Result<u64> {
        let (_, leaf) = replay.leaves[place];
        let (chain, base) = replay.chain(leaf);
        let range = replay.range(place);
        let [deltas, lines] = [u64::from(chain.deltas), u64::from(chain.lines)];
        for (word, value) in [
            (META, meta(0, chain.count.into())),
            (NEXT, next.unwrap_or(0)),
            (HEAD, chain.head),
            (BASE, base.offset),
            (BASE_NUMBER, chain.base_number),
            (DELTAS, deltas),
            (LINES, lines),
        ] {
            self.chains.store(row, word, value);
        }
        self.chains.set_range(row, &range);
        self.chains.publish(leaf, row);
        // Another leaf has got the upper keys, and a crash has prevented a new base.
        if range != base.range {
            let entries = self.entries_of_chain(self.node(row)?)?;
            self.chains.store(row, META, meta(0, entries.len()));
        }
        for (number, delta) in replay.newest(leaf).enumerate() {
            self.chains.store_recent::<K>(row, number, delta);
        }
        Ok(lines)
    }

    /// Checks that the logs say the same as the rows do, and adds their segments to the blocks that
    /// were reached.
    pub(in super::super) fn check_chains(&self, reached: &mut BTreeMap<u64, u64>) -> Result<()> {
        let logs = &self.chains.logs;
        let shape = (logs.len() as u64, logs.segment_length);
        let replay = replay(&self.pool, &self.layout, shape, (self.heads(), false), (1, 0))?;
        for segment in replay.logs.iter().flat_map(|log| &log.found.segments) {
            if reached.insert(segment.offset, logs.segment_length).is_some() {
                return Err(self.damaged(segment.offset, "a segment is linked twice"));
            }
        }
        for (place, &(_, leaf)) in replay.leaves.iter().enumerate() {
            let (found, base) = replay.chain(leaf);
            let name = self.chains.name(leaf);
            if name == 0 {
                return Err(self.damaged(found.head, format!("the logs have the leaf {leaf}, and the tree has not")));
            }
            let row = self.node(name)?;
            let own = [HEAD, BASE, BASE_NUMBER, DELTAS, LINES, LEAF].map(|word| row.load(word));
            let [deltas, lines] = [u64::from(found.deltas), u64::from(found.lines)];
            if own != [found.head, base.offset, found.base_number, deltas, lines, leaf]
                || range::<K>(row) != replay.range(place)
            {
                return Err(self.damaged(found.head, format!("the logs and the tree differ about the leaf {leaf}")));
            }
        }
        match self.chains.count() == replay.leaves.len() as u64 {
            true => Ok(()),
            false => Err(self.damaged(self.heads(), "the tree has leaves that the logs have not")),
        }
    }
}
