//! Searches in the primary index over all components: one key, or all in order.

use std::ops::{Bound, ControlFlow};

use crate::Result;
use crate::disk::bloom;
use crate::disk::btree::{BTreeComponent, BTreeCursor, Found};
use crate::index::{downcast, downcast_part};
use crate::memory::btree::KeyRange;
use crate::memory::{Kind, MemoryBTree};
use crate::partition::Version;

/// A found value.
#[derive(Debug)]
pub enum PrimaryValue<'v> {
    /// In a memory component.
    Memory(&'v [u8]),
    /// In a page of a disk component.
    Disk(Found),
}

impl std::ops::Deref for PrimaryValue<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(value) => value,
            Self::Disk(found) => found.value(),
        }
    }
}

/// The value of a key that a snapshot sees, in the B-tree at a slot of the partition.
pub fn get<'v>(version: &'v Version, slot: usize, key: &[u8], snapshot: u64) -> Result<Option<PrimaryValue<'v>>> {
    version.check_whole(slot)?;
    for memory in version.memories::<MemoryBTree>(slot) {
        let memory = memory?;
        if let Some(found) = memory.get(key, snapshot) {
            return Ok((found.kind == Kind::Put).then_some(PrimaryValue::Memory(found.value)));
        }
    }
    let hash = bloom::hash(key);
    for part in version.components(slot) {
        let component: &BTreeComponent = downcast_part(&**part)?;
        if let Some(found) = component.get_hashed(key, hash, snapshot)? {
            return Ok((!found.is_antimatter()).then_some(PrimaryValue::Disk(found)));
        }
    }
    Ok(None)
}

/// The next entry of one component: its key, whether it is anti-matter, its value.
enum Source<'v> {
    Memory { range: crate::memory::btree::Range<'v, 'v>, next: Option<(&'v [u8], Kind, &'v [u8])> },
    Disk { cursor: BTreeCursor, snapshot: u64 },
}

impl Source<'_> {
    fn key(&self) -> Option<impl std::ops::Deref<Target = [u8]> + '_> {
        match self {
            Self::Memory { next, .. } => next.map(|(key, ..)| crate::disk::Key::Bytes(key)),
            Self::Disk { cursor, .. } => cursor.entry().map(|entry| entry.key),
        }
    }

    /// Whether the entry is anti-matter, and its value.
    fn entry(&self) -> Option<(bool, &[u8])> {
        match self {
            Self::Memory { next, .. } => next.map(|(_, kind, value)| (kind == Kind::AntiMatter, value)),
            Self::Disk { cursor, .. } => cursor.entry().map(|entry| (entry.antimatter, entry.value)),
        }
    }

    /// Continues behind all versions of `key`.
    fn pass(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Self::Memory { range, next } => {
                if next.is_some_and(|(next, ..)| next == key) {
                    *next = range.next().map(|(key, version)| (key, version.kind, version.value));
                }
                Ok(())
            }
            Self::Disk { cursor, .. } => {
                while cursor.entry().is_some_and(|entry| *entry.key == *key) {
                    cursor.advance()?;
                }
                self.skip_unseen()
            }
        }
    }

    /// Skips versions that the snapshot does not see.
    fn skip_unseen(&mut self) -> Result<()> {
        if let Self::Disk { cursor, snapshot } = self {
            while cursor.entry().is_some_and(|entry| entry.begin.is_some_and(|begin| begin > *snapshot)) {
                cursor.advance()?;
            }
        }
        Ok(())
    }
}

/// Receives the key and the value of an entry; returns whether to continue.
pub type EntryVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Visits all entries from a bound on in key order until the visitor breaks; true if the end was
/// reached. A long scan calls this once per batch, behind the last key of the batch before and with
/// the current version. It therefore never keeps sealed memory from being freed.
pub fn scan<'v>(
    version: &'v Version,
    slot: usize,
    from: Bound<&'v [u8]>,
    snapshot: u64,
    visit: &mut EntryVisitor<'_>,
) -> Result<bool> {
    version.check_whole(slot)?;
    let first = match from {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    };
    let mut sources = Vec::new();
    for memory in version.memories::<MemoryBTree>(slot) {
        let memory = memory?;
        let mut range = memory.range(KeyRange { from, to: Bound::Unbounded }, snapshot);
        let next = range.next().map(|(key, version)| (key, version.kind, version.value));
        sources.push(Source::Memory { range, next });
    }
    for part in version.components(slot) {
        let cursor = BTreeCursor::seek(downcast::<BTreeComponent>(part)?, first)?;
        let mut source = Source::Disk { cursor, snapshot };
        match from {
            Bound::Excluded(after) => source.pass(after)?,
            Bound::Included(_) | Bound::Unbounded => source.skip_unseen()?,
        }
        sources.push(source);
    }
    let mut key = Vec::new();
    loop {
        let mut smallest: Option<usize> = None;
        for (index, source) in sources.iter().enumerate() {
            if let Some(candidate) = source.key()
                && smallest.is_none_or(|smallest| sources[smallest].key().is_none_or(|key| *candidate < *key))
            {
                smallest = Some(index);
            }
        }
        let Some(smallest) = smallest else { return Ok(true) };
        key.clear();
        if let Some(found) = sources[smallest].key() {
            key.extend_from_slice(&found);
        }
        if let Some((false, value)) = sources[smallest].entry()
            && visit(&key, value)?.is_break()
        {
            return Ok(false);
        }
        for source in &mut sources[smallest..] {
            source.pass(&key)?;
        }
    }
}

/// The approximate number of entries between two keys, the first included, in all components.
/// Counts those in memory one by one up to `counted_max`, and assumes the same number for the rest.
pub fn estimate(version: &Version, slot: usize, range: KeyRange<'_>, counted_max: usize) -> Result<u64> {
    version.check_whole(slot)?;
    let mut count = 0;
    for memory in version.memories::<MemoryBTree>(slot) {
        count += memory?.range(range, u64::MAX).take(counted_max).count() as u64;
    }
    for part in version.components(slot) {
        let component: &BTreeComponent = downcast_part(&**part)?;
        let entries = component.file().meta().statistics.entries as f64;
        let below = |bound: Bound<&[u8]>, unbounded: f64| match bound {
            Bound::Included(key) | Bound::Excluded(key) => component.part_below(key),
            Bound::Unbounded => Ok(unbounded),
        };
        count += ((below(range.to, 1.0)? - below(range.from, 0.0)?).max(0.0) * entries).round() as u64;
    }
    Ok(count)
}

/// The smallest and the largest key of all components, including deleted ones.
pub fn key_range(version: &Version, slot: usize) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    version.check_whole(slot)?;
    let mut found: Option<(Vec<u8>, Vec<u8>)> = None;
    let mut extend = |first: &[u8], last: &[u8]| match &mut found {
        None => found = Some((first.to_vec(), last.to_vec())),
        Some((smallest, largest)) => {
            if first < smallest.as_slice() {
                *smallest = first.to_vec();
            }
            if last > largest.as_slice() {
                *largest = last.to_vec();
            }
        }
    };
    for memory in version.memories::<MemoryBTree>(slot) {
        let memory = memory?;
        let mut keys = memory.range(KeyRange::ALL, u64::MAX).map(|(key, _)| key);
        if let Some(first) = keys.next() {
            extend(first, keys.last().unwrap_or(first));
        }
    }
    for part in version.components(slot) {
        let component: &BTreeComponent = downcast_part(&**part)?;
        if let Some((first, last)) = component.key_range() {
            extend(first, last);
        }
    }
    Ok(found)
}
