//! Naming what an index and the records do not have in common.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use terrane_space::Rect;

use super::digest::{Digest, Slices, key_hash};
use super::index::IndexReader;
use crate::dataset::stored_rect;
use crate::key::Key;
use crate::{Error, Result};

/// Differences that are named one by one, about.
const DIFFERENCES_MAX: usize = 20;
/// Slices that are looked at in one pass; in each is a difference.
const GROUP_MAX: usize = 2 * DIFFERENCES_MAX;

/// An entry of one side.
struct Entry {
    key: Box<[u8]>,
    rect: Rect,
}

/// What the two sides, of which the sums differ, do not have in common; the first reason counts.
pub(super) fn differences(reader: &IndexReader<'_>, expected: &Slices, found: &Slices) -> Result<Vec<String>> {
    let mut comparison = Comparison { reader, reasons: Vec::new() };
    comparison.reasons.push(format!(
        "the index has {} entries, the records call for {}; their contents differ",
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

    /// Compares what is inside of a slice that is too large to be held.
    fn narrow(&mut self, slices: &Slices, slice: usize, bytes: u64) -> Result<()> {
        let range = slices.range_of(slice).ok_or_else(|| Error::Memory {
            what: "the comparison of an index with its records".into(),
            needed_bytes: bytes,
            available_bytes: self.reader.budget as u64,
        })?;
        let (mut expected, mut found) = (Slices::new(range), Slices::new(range));
        self.read_records(&mut |hash, rect, key| expected.add(hash, rect, key))?;
        self.reader.read(&range, &|_| true, &mut |hash, rect, key| {
            found.add(hash, rect, key);
            Ok(())
        })?;
        self.slices(&expected, &found)
    }

    /// Compares the entries of slices (ascending) one by one.
    fn entries(&mut self, slices: &Slices, group: &[usize]) -> Result<()> {
        let is_wanted = |hash| slices.slice(hash).is_some_and(|slice| group.binary_search(&slice).is_ok());
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        let add = |side: &mut Vec<Entry>, rect: &Rect, key: &[u8]| side.push(Entry { key: key.into(), rect: *rect });
        self.read_records(&mut |hash, rect, key| {
            if is_wanted(hash) {
                add(&mut wanted, rect, key);
            }
        })?;
        self.reader.read(&slices.range(), &is_wanted, &mut |_, rect, key| {
            add(&mut found, rect, key);
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
            let record = split_off(&mut wanted, key).first().map(|entry| entry.rect);
            self.key(key, record, split_off(&mut found, key));
        }
        Ok(())
    }

    /// Names what is wrong with the entries of one key.
    fn key(&mut self, key: &[u8], record: Option<Rect>, found: &[Entry]) {
        let key_type = self.reader.snapshot.history.newest().key.key_type;
        let name = || Key::decode(key_type, key).map_or_else(|_| format!("{key:02x?}"), |key| key.to_string());
        let mut right = 0;
        for entry in found {
            if Some(entry.rect) == record {
                right += 1;
            } else {
                let what = record.map_or_else(
                    || "there is no such record with a geometry".to_owned(),
                    |rect| format!("the record is at {rect:?}"),
                );
                self.reasons.push(format!("the index has key {} at {:?}, {what}", name(), entry.rect));
            }
        }
        match (record, right) {
            (Some(rect), 0) if found.is_empty() => {
                self.reasons.push(format!("the index lacks key {} at {rect:?}", name()))
            }
            (Some(rect), 2..) => {
                self.reasons.push(format!("the index has key {} at {rect:?} {right} times", name()));
            }
            _ => {}
        }
    }

    /// Visits the entries that the records call for.
    fn read_records(&self, visit: &mut dyn FnMut(u64, &Rect, &[u8])) -> Result<()> {
        let system = self.reader.snapshot.schema().system;
        self.reader.snapshot.visit_records(&mut |key, stored| {
            if let Some(rect) = stored_rect(stored, system)? {
                visit(key_hash(key), &rect, key);
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// Bytes that the entries of both sides take.
pub(super) fn bytes_of(digests: &[Digest; 2]) -> u64 {
    // Of a key at least an allocation of some 16 bytes.
    digests.iter().map(|digest| digest.entries * (size_of::<Entry>() as u64 * 2 + 16) + digest.key_bytes).sum()
}

/// Takes the entries of a key from the front.
fn split_off<'e>(entries: &mut &'e [Entry], key: &[u8]) -> &'e [Entry] {
    let count = entries.iter().take_while(|entry| *entry.key == *key).count();
    let (taken, rest) = entries.split_at(count);
    *entries = rest;
    taken
}
