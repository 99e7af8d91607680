//! What a chain says, and records that are added to it.

use std::ops::ControlFlow;

use smallvec::SmallVec;
use terrane_pmem::{Backend, LINE_LENGTH, View};
use terrane_storage::sync::Ordering;

use super::super::layout::{META, NEXT, meta};
use super::super::method::{Changed, Method};
use super::super::node::{Entries, Entry};
use super::super::place::Words;
use super::super::tree::BTree;
use super::super::versions;
use super::record::{self, Header, Kind, Range, Record};
use super::rows::{BASE, BASE_NUMBER, DELTAS, HEAD, LEAF, LINES, range};
use crate::{Result, blocks};

/// A change of one key: its value, or `None` if it is removed.
pub(super) type Delta<const K: usize, const V: usize> = ([u64; K], Option<[u64; V]>);

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// The record at an offset, which a row or a record has named.
    #[inline]
    pub(super) fn record(&self, offset: u64) -> Result<Record<B::View<'_>>> {
        self.pool.check_range(offset, LINE_LENGTH)?;
        let header = Header::from_word(self.backend().load(offset))
            .ok_or_else(|| self.damaged(offset, "a chain leads to something that is no record"))?;
        let length = header.lines::<K, V>() * LINE_LENGTH;
        self.pool.check_range(offset, length)?;
        Ok(Record { header, words: self.backend().view(offset, length) })
    }

    /// Visits the deltas of a chain, newest first, and gives the base, if it is reached and there
    /// is one.
    #[inline]
    fn walk(
        &self,
        row: Words<'_, B>,
        mut visit: impl FnMut(Record<B::View<'_>>) -> ControlFlow<()>,
    ) -> Result<Option<Record<B::View<'_>>>> {
        let mut offset = row.load(HEAD);
        // A chain has as many deltas as a leaf has entries, at most.
        for _ in 0..=self.layout.leaf_capacity {
            if offset == 0 {
                return Ok(None);
            }
            let record = self.record(offset)?;
            if record.header.kind == Kind::Base {
                return Ok(Some(record));
            }
            if visit(record).is_break() {
                return Ok(None);
            }
            offset = record.previous();
        }
        Err(self.damaged(offset, "a chain has more records than a leaf can have"))
    }

    /// The value of a key in a leaf.
    #[inline]
    pub(in super::super) fn find_in_chain(&self, row: Words<'_, B>, key: &[u64; K]) -> Result<Option<[u64; V]>> {
        self.announce_chain(row);
        let mut found = None;
        let base = self.walk(row, |delta| {
            if delta.key::<K>() != *key {
                return ControlFlow::Continue(());
            }
            found = Some(delta.value::<K, V>());
            ControlFlow::Break(())
        })?;
        if let Some(value) = found {
            return Ok(value);
        }
        let Some(base) = base else { return Ok(None) };
        let entry = (0..base.header.count).find(|&entry| base.key_at::<K, V>(entry) == *key);
        Ok(entry.map(|entry| base.value_at::<K, V>(entry)))
    }

    /// Announces the records of a chain to the memory, as far as the row knows their places.
    #[inline]
    fn announce_chain(&self, row: Words<'_, B>) {
        for delta in self.chains.recent::<K>(row) {
            self.backend().prefetch(delta, LINE_LENGTH);
        }
        let base = row.load(BASE);
        if base != 0 {
            let lines = row.load(LINES).saturating_sub(row.load(DELTAS));
            self.backend().prefetch(base, lines * LINE_LENGTH);
        }
    }

    /// The entries of a leaf, sorted.
    pub(in super::super) fn entries_of_chain(&self, row: Words<'_, B>) -> Result<Entries<K, V>> {
        self.announce_chain(row);
        let mut changes: SmallVec<[Delta<K, V>; 32]> = SmallVec::new();
        let base = self.walk(row, |delta| {
            changes.push((delta.key(), delta.value::<K, V>()));
            ControlFlow::Continue(())
        })?;
        if let Some(base) = base {
            changes.extend(
                (0..base.header.count).map(|entry| (base.key_at::<K, V>(entry), Some(base.value_at::<K, V>(entry)))),
            );
        }
        // Stable, so that the newest change of a key comes first.
        changes.sort_by_key(|(key, _)| *key);
        changes.dedup_by_key(|(key, _)| *key);
        // Another leaf may own the upper keys meanwhile (L1).
        let high = range::<K>(row).high;
        let is_own = |key: &[u64; K]| high.is_none_or(|high| *key < high);
        Ok(changes.into_iter().filter_map(|(key, value)| Some((key, value?)).filter(|(key, _)| is_own(key))).collect())
    }

    /// Adds a change to a locked leaf, which has `count` entries then. A chain that is long gets a
    /// base instead, which has the change.
    pub(super) fn add_delta(
        &self,
        leaf: u64,
        (key, value): (&[u64; K], Option<&[u64; V]>),
        count: usize,
    ) -> Result<Changed> {
        let row = self.node(leaf)?;
        if row.load(DELTAS) as usize >= self.layout.leaf_capacity {
            let mut entries = self.entries_of_chain(row)?;
            entries.retain(|(other, _)| other != key);
            if let Some(value) = value {
                let place = entries.partition_point(|(other, _)| other < key);
                entries.insert(place, (*key, *value));
            }
            self.add_base(leaf, &range(row), &entries)?;
            return Ok(Changed::Done);
        }
        let number = row.load(LEAF);
        let mut words = record::delta((number, count), row.load(HEAD), key, value);
        let appended = self.chains.logs.append(&self.pool, number, &mut words)?;
        self.chains.store(leaf, HEAD, appended.offset);
        self.chains.store(leaf, DELTAS, row.load(DELTAS) + 1);
        self.chains.store(leaf, LINES, row.load(LINES) + appended.lines);
        self.chains.store(leaf, META, meta(0, count));
        self.chains.push_recent::<K>(leaf, row, appended.offset);
        Ok(Changed::Done)
    }

    /// Writes a base for a locked leaf, which replaces its chain.
    pub(super) fn add_base(&self, leaf: u64, range: &Range<K>, entries: &[Entry<K, V>]) -> Result<()> {
        let row = self.node(leaf)?;
        if entries.len() > self.layout.leaf_capacity {
            return Err(self.damaged(row.load(HEAD), "a chain has more entries than its records state"));
        }
        let number = row.load(LEAF);
        let mut words = record::base(number, range, entries);
        let appended = self.chains.logs.append(&self.pool, number, &mut words)?;
        self.chains.logs.discard(number, row.load(LINES));
        self.chains.set_range(leaf, range);
        self.chains.store(leaf, HEAD, appended.offset);
        self.chains.store(leaf, BASE, appended.offset);
        self.chains.store(leaf, BASE_NUMBER, appended.number);
        self.chains.store(leaf, DELTAS, 0);
        self.chains.store(leaf, LINES, appended.lines);
        self.chains.store(leaf, META, meta(0, entries.len()));
        self.chains.clear_recent::<K>(leaf);
        Ok(())
    }

    /// Gives the upper half of a locked leaf to a new one, durably. Gives the least key of the new
    /// leaf, and its name.
    ///
    /// - Before the new base is durable, the old leaf owns all keys.
    /// - From then on the new leaf owns the upper ones (L1), with or without a new base of the old.
    pub(in super::super) fn split_chain(&self, leaf: u64) -> Result<([u64; K], u64)> {
        let row = self.node(leaf)?;
        let entries = self.entries_of_chain(row)?;
        let (kept, moved) = entries.split_at(entries.len().div_ceil(2));
        let Some((separator, _)) = moved.first() else {
            return Err(self.damaged(row.load(HEAD), "a chain has fewer entries than its leaf"));
        };
        let before = range::<K>(row);
        let number = self.chains.take_number();
        let right = self.chains.new_row(number);
        // Nobody else knows the row, so it is not locked.
        let word = self.version_of(right);
        let Some(lock) = versions::read(word).and_then(|version| versions::lock(word, version)) else {
            return Err(self.damaged(row.load(HEAD), "a new leaf is locked"));
        };
        self.chains.publish(number, right);
        if let Err(error) = self.add_base(right, &Range { low: *separator, ..before }, moved) {
            // A collector may wait for the row.
            self.chains.forget(number);
            lock.remove();
            self.retire_in_memory(right);
            return Err(error);
        }
        self.chains.store(right, NEXT, row.load(NEXT));
        self.chains.store(leaf, NEXT, right);
        let after = Range { high: Some(*separator), ..before };
        self.chains.set_range(leaf, &after);
        self.chains.store(leaf, META, meta(0, kept.len()));
        // The split is durable. Without space, the old chain stays, and lacks the upper keys (L1).
        let renewed = self.add_base(leaf, &after, kept).or_else(blocks::tolerate_missing_space);
        // The split is not in the inner nodes yet.
        renewed.inspect_err(|_| self.log.failed.store(true, Ordering::Relaxed))?;
        drop(lock);
        Ok((*separator, right))
    }

    /// Gives the keys of a locked leaf to the one before it, which is locked as well. The caller
    /// removes the leaf.
    pub(in super::super) fn merge_chains(&self, left: u64, right: u64) -> Result<()> {
        let [left_row, right_row] = [self.node(left)?, self.node(right)?];
        let mut entries = self.entries_of_chain(left_row)?;
        entries.extend(self.entries_of_chain(right_row)?);
        let both = Range { high: range::<K>(right_row).high, ..range(left_row) };
        self.add_base(left, &both, &entries)?;
        self.chains.store(left, NEXT, right_row.load(NEXT));
        let number = right_row.load(LEAF);
        self.chains.logs.discard(number, right_row.load(LINES));
        self.chains.forget(number);
        Ok(())
    }
}
