//! Scans of ranges of keys.

use std::ops::{Bound, ControlFlow, RangeBounds};

use terrane_pmem::{Backend, View};

use super::layout::NEXT;
use super::method::Method;
use super::tree::BTree;
use crate::{Result, blocks};

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Visits the entries of a range of keys in ascending order, until `visit` breaks.
    ///
    /// Each leaf is read atomically. An entry that was there throughout the call is visited exactly
    /// once, and none that was absent throughout. `visit` may use the tree.
    pub fn range(
        &self,
        keys: impl RangeBounds<[u64; K]>,
        mut visit: impl FnMut(&[u64; K], &[u64; V]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut from = keys.start_bound().cloned();
        let lies_behind = |key: &[u64; K]| match keys.end_bound() {
            Bound::Included(last) => key > last,
            Bound::Excluded(end) => key >= end,
            Bound::Unbounded => false,
        };
        let _guard = self.pool.pin();
        'descend: loop {
            let mut leaf = self.descend(match &from {
                Bound::Included(key) | Bound::Excluded(key) => key,
                Bound::Unbounded => &[0; K],
            })?;
            let mut leaves = 0;
            loop {
                let node = self.node(leaf.node)?;
                let entries = self.entries_of(leaf.node)?;
                let next = node.load(NEXT);
                if !leaf.is_current() {
                    continue 'descend;
                }
                for (key, value) in &entries {
                    let lies_before = match &from {
                        Bound::Included(first) => key < first,
                        Bound::Excluded(last) => key <= last,
                        Bound::Unbounded => false,
                    };
                    if lies_before {
                        continue;
                    }
                    if lies_behind(key) || visit(key, value).is_break() {
                        return Ok(());
                    }
                    from = Bound::Excluded(*key);
                }
                if next == 0 {
                    return Ok(());
                }
                leaves += 1;
                if self.are_too_many(leaves) {
                    return Err(blocks::too_many(&self.pool, next));
                }
                match self.meet_linked(&leaf, next)? {
                    Some(met) => leaf = met,
                    None => continue 'descend,
                }
            }
        }
    }

    /// Whether a scan, which reads each leaf once, has read more leaves than there can be.
    fn are_too_many(&self, leaves: u64) -> bool {
        match M::IN_LOGS {
            true => leaves.is_power_of_two() && leaves > self.chains.rows.reserved_nodes(),
            false => blocks::are_too_many(&self.pool, leaves, self.layout.node_length()),
        }
    }

    /// The number of entries in a range of keys.
    pub fn count(&self, keys: impl RangeBounds<[u64; K]>) -> Result<u64> {
        let mut count = 0;
        self.range(keys, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }
}
