//! Scans of ranges of keys.

use std::ops::{Bound, ControlFlow, RangeBounds};

use terrane_pmem::{Backend, View};

use super::layout::{Layout, NEXT};
use super::method::Method;
use super::place::Words;
use super::tree::{BTree, Met, Step};
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
                if !self.holds(&leaf, self.check_stated(leaf.node))? {
                    continue 'descend;
                }
                for (key, value) in &entries {
                    if !begins(&from.as_ref(), key) {
                        continue;
                    }
                    if !ends(&keys.end_bound(), key) || visit(key, value).is_break() {
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

    /// Visits the entries of a range of keys in descending order, until `visit` breaks. The rest is
    /// as with [`BTree::range`].
    pub fn range_back(
        &self,
        keys: impl RangeBounds<[u64; K]>,
        mut visit: impl FnMut(&[u64; K], &[u64; V]) -> ControlFlow<()>,
    ) -> Result<()> {
        let from = keys.start_bound();
        let mut to = keys.end_bound().cloned();
        let _guard = self.pool.pin();
        loop {
            let (leaf, least) = self.descend_back(&to)?;
            let entries = self.entries_of(leaf.node)?;
            if !self.holds(&leaf, self.check_stated(leaf.node))? {
                continue;
            }
            for (key, value) in entries.iter().rev() {
                if !ends(&to.as_ref(), key) {
                    continue;
                }
                if !begins(&from, key) || visit(key, value).is_break() {
                    return Ok(());
                }
                to = Bound::Excluded(*key);
            }
            // While a leaf lives, its least possible key stays: splits and joins keep the left one.
            match least {
                Some(least) if begins(&from, &least) => to = Bound::Excluded(least),
                _ => return Ok(()),
            }
        }
    }

    /// The leaf with the greatest possible key in front of a bound, and its least possible key,
    /// unless it is the first leaf.
    fn descend_back(&self, to: &Bound<[u64; K]>) -> Result<(Met<'_>, Option<[u64; K]>)> {
        let passes = |least: &[u64; K]| match to {
            Bound::Included(last) => least <= last,
            Bound::Excluded(end) => least < end,
            Bound::Unbounded => true,
        };
        'restart: loop {
            let Some(mut place) = self.begin() else { continue };
            let mut least = None;
            loop {
                let choose = |node: Words<'_, B>| {
                    let index = self.layout.last_child(node, passes);
                    if index > 0 {
                        least = Some(node.load_array::<K>(Layout::<K, V>::child(index)));
                    }
                    index
                };
                match self.step_to(&place, choose)? {
                    Step::Below(child, level) => match self.enter(&place, child, level)? {
                        Some(below) => place = below,
                        None => continue 'restart,
                    },
                    Step::Leaf => return Ok((place.met, least)),
                    Step::Changed => continue 'restart,
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

/// Whether a key lies behind the beginning of a range.
fn begins<const K: usize>(from: &Bound<&[u64; K]>, key: &[u64; K]) -> bool {
    match from {
        Bound::Included(first) => key >= *first,
        Bound::Excluded(before) => key > *before,
        Bound::Unbounded => true,
    }
}

/// Whether a key lies in front of the end of a range.
fn ends<const K: usize>(to: &Bound<&[u64; K]>, key: &[u64; K]) -> bool {
    match to {
        Bound::Included(last) => key <= *last,
        Bound::Excluded(end) => key < *end,
        Bound::Unbounded => true,
    }
}
