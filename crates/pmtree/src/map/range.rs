//! Iterators over the entries of a map.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, RangeBounds};

use terrane_pmem::{Backend, Native};

use super::key::{Key, KeyWords};
use super::{Map, value};
use crate::Result;

/// Entries and bytes of values that are read at once.
const ENTRIES: usize = 64;
const BYTES: usize = 1 << 18;

/// Entries of a range of keys, in ascending order.
///
/// An entry that is there from the first call on until the end is given exactly once, and none that
/// was absent throughout. After an error there are no more.
#[derive(Debug)]
pub struct Range<'m, Q: Key + ?Sized, B: Backend = Native> {
    map: &'m Map<Q, B>,
    from: Bound<KeyWords>,
    to: Bound<KeyWords>,
    read: VecDeque<(Q::Owned, Vec<u8>)>,
    is_done: bool,
}

impl<Q: Key + ?Sized, B: Backend + 'static> Map<Q, B> {
    /// All entries, in the order of their keys.
    pub fn iter(&self) -> Range<'_, Q, B> {
        Range { map: self, from: Bound::Unbounded, to: Bound::Unbounded, read: VecDeque::new(), is_done: false }
    }

    /// The entry with the least key.
    pub fn first(&self) -> Result<Option<(Q::Owned, Vec<u8>)>> {
        let mut first = None;
        self.tree.scan((Bound::Unbounded, Bound::Unbounded), &mut |key, slot| {
            first = Some(self.key_of(key).and_then(|key| Ok((key, value::read(self.tree.pool(), slot)?))));
            ControlFlow::Break(())
        })?;
        first.transpose()
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

impl<Q: Key + ?Sized, B: Backend> Range<'_, Q, B> {
    fn fill(&mut self) -> Result<()> {
        let Self { map, from, to, read, .. } = self;
        let (mut last, mut bytes, mut failure, mut is_done) = (None, 0, None, true);
        let bounds = (as_slice(from), as_slice(to));
        // The scan pins the pool, so values are there while it runs.
        map.tree.scan(bounds, &mut |key, slot| {
            match map.key_of(key).and_then(|owned| Ok((owned, value::read(map.tree.pool(), slot)?))) {
                Ok(entry) => {
                    bytes += entry.1.len();
                    last = Some(KeyWords::from_slice(key));
                    read.push_back(entry);
                }
                Err(error) => failure = Some(error),
            }
            is_done = failure.is_none() && read.len() < ENTRIES && bytes < BYTES;
            if is_done { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        self.is_done = is_done;
        if let Some(key) = last {
            self.from = Bound::Excluded(key);
        }
        failure.map_or(Ok(()), Err)
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
        if self.read.is_empty()
            && !self.is_done
            && let Err(error) = self.fill()
        {
            self.is_done = true;
            self.read.clear();
            return Some(Err(error));
        }
        self.read.pop_front().map(Ok)
    }
}
