//! Iterators over the entries of a map.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, RangeBounds};

use terrane_pmem::{Backend, Native};

use super::key::{Key, KeyWords};
use super::tree::Order;
use super::value::Slot;
use super::{Map, value};
use crate::{Error, Result};

/// Entries and bytes of values that are read at once.
const ENTRIES: usize = 64;
const BYTES: usize = 1 << 18;

/// Entries of a range of keys, in ascending order, or from the end ([`Iterator::rev`]).
///
/// An entry that is there from the first call on until the end is given exactly once, and none that
/// was absent throughout. After an error there are no more.
#[derive(Debug)]
pub struct Range<'m, Q: Key + ?Sized, B: Backend = Native> {
    map: &'m Map<Q, B>,
    /// The keys that were not read yet.
    from: Bound<KeyWords>,
    to: Bound<KeyWords>,
    /// Entries read at the beginning of the range, and those read at its end, both in ascending
    /// order.
    first: VecDeque<Entry<Q>>,
    last: VecDeque<Entry<Q>>,
    is_done: bool,
    /// The error that has ended the reading. It comes behind the entries that were read before.
    failure: Option<Error>,
}

type Entry<Q> = (<Q as Key>::Owned, Vec<u8>);

impl<Q: Key + ?Sized, B: Backend + 'static> Map<Q, B> {
    /// All entries, in the order of their keys.
    pub fn iter(&self) -> Range<'_, Q, B> {
        let (first, last) = (VecDeque::new(), VecDeque::new());
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        Range { map: self, from, to, first, last, is_done: false, failure: None }
    }

    /// The entry with the least key. Like a range, it is searched leaf by leaf, so it is not
    /// linearizable.
    pub fn first(&self) -> Result<Option<(Q::Owned, Vec<u8>)>> {
        self.outermost(Order::Ascending)
    }

    /// The entry with the greatest key. Like a range, it is searched leaf by leaf, so it is not
    /// linearizable.
    pub fn last(&self) -> Result<Option<(Q::Owned, Vec<u8>)>> {
        self.outermost(Order::Descending)
    }

    fn outermost(&self, order: Order) -> Result<Option<Entry<Q>>> {
        let mut found = None;
        self.tree.scan((Bound::Unbounded, Bound::Unbounded), order, &mut |key, slot| {
            found = Some(self.entry_of(key, slot));
            ControlFlow::Break(())
        })?;
        found.transpose()
    }

    /// The entries of a range of keys, in their order.
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k Q>) -> Result<Range<'_, Q, B>>
    where
        Q: 'k,
    {
        let words = |bound: Bound<&&'k Q>| -> Result<Bound<KeyWords>> {
            Ok(match bound {
                Bound::Included(key) => Bound::Included(self.words_of(key)?),
                Bound::Excluded(key) => Bound::Excluded(self.words_of(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        Ok(Range { from: words(keys.start_bound())?, to: words(keys.end_bound())?, ..self.iter() })
    }
}

impl<Q: Key + ?Sized, B: Backend> Map<Q, B> {
    /// The entry of a slot. The caller has pinned the pool since before it has read the slot.
    fn entry_of(&self, key: &[u64], slot: &Slot) -> Result<Entry<Q>> {
        Ok((self.key_of(key)?, value::read(self.tree.pool(), slot)?))
    }
}

impl<Q: Key + ?Sized, B: Backend> Range<'_, Q, B> {
    /// Reads entries at one end of the range.
    fn fill(&mut self, order: Order) -> Result<()> {
        let Self { map, from, to, first, last, .. } = self;
        let read = if order == Order::Ascending { first } else { last };
        let (mut latest, mut bytes, mut failure, mut is_done) = (None, 0, None, true);
        let bounds = (as_slice(from), as_slice(to));
        // The scan pins the pool, so values are there while it runs.
        map.tree.scan(bounds, order, &mut |key, slot| {
            match map.entry_of(key, slot) {
                Ok(entry) => {
                    bytes += entry.1.len();
                    latest = Some(KeyWords::from_slice(key));
                    match order {
                        Order::Ascending => read.push_back(entry),
                        Order::Descending => read.push_front(entry),
                    }
                }
                Err(error) => failure = Some(error),
            }
            is_done = failure.is_none() && read.len() < ENTRIES && bytes < BYTES;
            if is_done { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.is_done = is_done;
        if let Some(key) = latest {
            let end = if order == Order::Ascending { &mut self.from } else { &mut self.to };
            *end = Bound::Excluded(key);
        }
        failure.map_or(Ok(()), Err)
    }

    /// The next item at one end. Reads entries there, if none are left.
    fn take(&mut self, order: Order) -> Option<Result<Entry<Q>>> {
        let is_empty = if order == Order::Ascending { self.first.is_empty() } else { self.last.is_empty() };
        if is_empty && !self.is_done {
            self.failure = self.fill(order).err();
            self.is_done |= self.failure.is_some();
        }
        let (first, last) = (&mut self.first, &mut self.last);
        let own = if order == Order::Ascending { first.pop_front() } else { last.pop_back() };
        if let Some(entry) = own {
            return Some(Ok(entry));
        }
        // Entries that were read at the other end may lie behind the damage.
        if let Some(error) = self.failure.take() {
            first.clear();
            last.clear();
            return Some(Err(error));
        }
        let others = if order == Order::Ascending { last.pop_front() } else { first.pop_back() };
        others.map(Ok)
    }
}

fn as_slice(bound: &Bound<KeyWords>) -> Bound<&[u64]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl<Q: Key + ?Sized, B: Backend> Iterator for Range<'_, Q, B> {
    type Item = Result<(Q::Owned, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(Order::Ascending)
    }
}

impl<Q: Key + ?Sized, B: Backend> DoubleEndedIterator for Range<'_, Q, B> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(Order::Descending)
    }
}
