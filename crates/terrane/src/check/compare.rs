//! Naming the differences between an index and the records.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::digest::{Digest, Slices, key_hash};
use super::index::IndexReader;
use crate::key::Key;
use crate::{Error, Result};

/// Approximate number of differences that are named one by one.
const DIFFERENCES_MAX: usize = 20;
/// Number of slices compared in one pass. Each has a difference.
const GROUP_MAX: usize = 2 * DIFFERENCES_MAX;

/// An entry of one side.
struct Entry {
    key: Box<[u8]>,
    entry: Box<[u8]>,
}

/// Names the differences of two sides whose sums differ. The first item is the summary.
pub(super) fn differences(reader: &IndexReader<'_>, expected: &Slices, found: &Slices) -> Result<Vec<String>> {
    let mut comparison = Comparison { reader, reasons: Vec::new() };
    comparison.reasons.push(format!(
        "the index has {} entries and should have {}; their contents differ",
        found.entries(),
        expected.entries()
    ));
    comparison.slices(expected, found)?;
    Ok(comparison.reasons)
}

struct Comparison<'r, 's> {
    reader: &'r IndexReader<'s>,
    reasons: Vec<String>,
}

impl Comparison<'_, '_> {
    fn is_full(&self) -> bool {
        self.reasons.len() > DIFFERENCES_MAX
    }

    fn slices(&mut self, expected: &Slices, found: &Slices) -> Result<()> {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut different = expected.different(found).peekable();
        while let Some((slice, digests)) = different.next() {
            if self.is_full() {
                return Ok(());
            }
            let size = bytes_of(&digests);
            if size > self.reader.budget as u64 {
                self.narrow(expected, slice, size)?;
                continue;
            }
            group.push(slice);
            bytes += size;
            let next = different.peek().map_or(0, |(_, digests)| bytes_of(digests));
            if group.len() == GROUP_MAX || bytes + next > self.reader.budget as u64 {
                self.entries(expected, &std::mem::take(&mut group))?;
                bytes = 0;
            }
        }
        if !group.is_empty() && !self.is_full() {
            self.entries(expected, &group)?;
        }
        Ok(())
    }

    /// Compares the contents of a slice that does not fit in memory.
    fn narrow(&mut self, slices: &Slices, slice: usize, bytes: u64) -> Result<()> {
        let range = slices.range_of(slice).ok_or_else(|| Error::Memory {
            what: "the comparison of an index with its records".into(),
            needed_bytes: bytes,
            available_bytes: self.reader.budget as u64,
        })?;
        let (mut expected, mut found) = (Slices::new(range), Slices::new(range));
        self.read_records(&mut |hash, entry, key| expected.add(hash, entry, key))?;
        self.reader.read(&range, &|_| true, &mut |hash, entry, key| {
            found.add(hash, entry, key);
            Ok(())
        })?;
        self.slices(&expected, &found)
    }

    /// Compares the entries of the given slices (ascending) one by one.
    fn entries(&mut self, slices: &Slices, group: &[usize]) -> Result<()> {
        let is_wanted = |hash| slices.slice(hash).is_some_and(|slice| group.binary_search(&slice).is_ok());
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        let add = |side: &mut Vec<Entry>, entry: &[u8], key: &[u8]| {
            side.push(Entry { key: key.into(), entry: entry.into() });
        };
        self.read_records(&mut |hash, entry, key| {
            if is_wanted(hash) {
                add(&mut wanted, entry, key);
            }
        })?;
        self.reader.read(&slices.range(), &is_wanted, &mut |_, entry, key| {
            add(&mut found, entry, key);
            Ok(())
        })?;
        for side in [&mut wanted, &mut found] {
            side.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let (mut wanted, mut found) = (&wanted[..], &found[..]);
        while !(self.is_full() || wanted.is_empty() && found.is_empty()) {
            let key = match (wanted.first(), found.first()) {
                (Some(one), Some(two)) if one.key.cmp(&two.key) == Ordering::Less => &one.key,
                (_, Some(two)) => &two.key,
                (Some(one), None) => &one.key,
                (None, None) => break,
            };
            self.key(key, split_off(&mut wanted, key), split_off(&mut found, key));
        }
        Ok(())
    }

    /// Names the differences in the entries of one key.
    fn key(&mut self, key: &[u8], wanted: &[Entry], found: &[Entry]) {
        let key_type = self.reader.snapshot.history.newest().key.key_type;
        let name = || Key::decode(key_type, key).map_or_else(|_| format!("{key:02x?}"), |key| key.to_string());
        let describe = |entry: &Entry| self.reader.index.content.describe(&entry.entry);
        let count = |entries: &[Entry], of: &Entry| entries.iter().filter(|entry| entry.entry == of.entry).count();
        let mut reasons = Vec::new();
        for entry in found.iter().filter(|entry| count(wanted, entry) == 0) {
            let what = match wanted {
                [] => "no record with this key should have an entry".to_owned(),
                [only] => format!("the record is {}", describe(only)),
                _ => "the record is elsewhere".to_owned(),
            };
            reasons.push(format!("the index has key {} {}, {what}", name(), describe(entry)));
        }
        for entry in wanted {
            match count(found, entry) {
                1 => {}
                0 if found.is_empty() || wanted.len() > 1 => {
                    reasons.push(format!("the index lacks key {} {}", name(), describe(entry)));
                }
                // Already named: the record is elsewhere.
                0 => {}
                times => reasons.push(format!("the index has key {} {} {times} times", name(), describe(entry))),
            }
        }
        self.reasons.append(&mut reasons);
    }

    /// Visits the entries that the index should have.
    fn read_records(&self, visit: &mut impl FnMut(u64, &[u8], &[u8])) -> Result<()> {
        let (snapshot, content) = (self.reader.snapshot, &self.reader.index.content);
        snapshot.visit_records(&mut |key, stored| {
            content.visit_entries(&snapshot.history, key, stored, &mut |entry| {
                visit(key_hash(key), entry, key);
                Ok(())
            })?;
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// Bytes of memory for the entries of both sides.
pub(super) fn bytes_of(digests: &[Digest; 2]) -> u64 {
    // Each entry has at least two allocations of about 16 bytes.
    digests.iter().map(|digest| digest.entries * (size_of::<Entry>() as u64 * 2 + 32) + digest.bytes).sum()
}

/// Removes the entries of a key from the front.
fn split_off<'e>(entries: &mut &'e [Entry], key: &[u8]) -> &'e [Entry] {
    let count = entries.iter().take_while(|entry| *entry.key == *key).count();
    let (taken, rest) = entries.split_at(count);
    *entries = rest;
    taken
}
