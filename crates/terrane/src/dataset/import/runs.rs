//! The rows of an import in sorted runs, in which they wait to be merged.

use std::sync::Arc;

use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent, BTreeCursor, Entry};
use terrane_lsm::disk::{ComponentMeta, Statistics};
use terrane_lsm::partition::Workshop;

use crate::Result;

/// Records on their way to a sorted run.
#[derive(Debug, Default)]
pub(super) struct RunBuffer {
    bytes: Vec<u8>,
    entries: Vec<BufferedRecord>,
}

#[derive(Clone, Copy, Debug)]
struct BufferedRecord {
    /// The first eight bytes of the key, as a number that sorts like them.
    prefix: u64,
    start: usize,
    key_len: u32,
    value_len: u32,
    row: u64,
}

impl RunBuffer {
    pub fn memory_used(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<BufferedRecord>()
    }

    pub fn push(&mut self, key: &[u8], value: &[u8], row: u64) {
        let mut prefix = [0; 8];
        let length = key.len().min(8);
        prefix[..length].copy_from_slice(&key[..length]);
        let record = BufferedRecord {
            prefix: u64::from_be_bytes(prefix),
            start: self.bytes.len(),
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            row,
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(record);
    }

    fn key(&self, record: &BufferedRecord) -> &[u8] {
        &self.bytes[record.start..record.start + record.key_len as usize]
    }

    fn value(&self, record: &BufferedRecord) -> &[u8] {
        let start = record.start + record.key_len as usize;
        &self.bytes[start..start + record.value_len as usize]
    }

    /// Writes the records to a run, if there are any, and forgets them.
    pub fn spill(&mut self, workshop: &Workshop) -> Result<Option<ComponentMeta>> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| self.key(a).cmp(self.key(b))).then(a.row.cmp(&b.row))
        });
        let mut builder = BTreeBuilder::new(workshop.writer()?, true);
        for record in &entries {
            builder.push(self.key(record), false, sequence_of_row(record.row), self.value(record))?;
        }
        let run = builder.finish(Statistics::LOADED)?;
        entries.clear();
        self.entries = entries;
        self.bytes.clear();
        Ok(Some(run))
    }
}

/// In runs, rows take the place of sequence numbers: of equal keys the first row comes first.
fn sequence_of_row(row: u64) -> u64 {
    u64::MAX - row
}

/// The row of an entry of a spilled run.
pub(super) fn row_of_sequence(sequence: u64) -> u64 {
    u64::MAX - sequence
}

/// Which rows the entries of the ascending run come from: rows that were refused leave gaps.
#[derive(Debug, Default)]
pub(super) struct RowRanges {
    entries: u64,
    /// Entry and row at which a range of consecutive rows begins.
    starts: Vec<(u64, u64)>,
}

impl RowRanges {
    pub fn push(&mut self, row: u64) {
        if self.starts.last().is_none_or(|(entry, first)| first + (self.entries - entry) != row) {
            self.starts.push((self.entries, row));
        }
        self.entries += 1;
    }

    pub fn row(&self, entry: u64) -> u64 {
        let after = self.starts.partition_point(|(start, _)| *start <= entry);
        after.checked_sub(1).map_or(0, |range| self.starts[range].1 + (entry - self.starts[range].0))
    }

    pub fn memory_used(&self) -> usize {
        self.starts.capacity() * size_of::<(u64, u64)>()
    }
}

/// Merges neighbouring spilled runs into one.
pub(super) fn merge(workshop: &Workshop, runs: &[ComponentMeta]) -> Result<ComponentMeta> {
    let mut builder = BTreeBuilder::new(workshop.writer()?, true);
    visit_runs(workshop, runs, &mut |entry| {
        Ok(builder.push(&entry.key, false, entry.begin.unwrap_or(0), entry.value)?)
    })?;
    Ok(builder.finish(Statistics::LOADED)?)
}

/// Goes over the entries of runs in the order of their keys, and of equal keys in that of the
/// runs, which is the order of their rows.
pub(super) fn visit_runs(
    workshop: &Workshop,
    runs: &[ComponentMeta],
    visit: &mut dyn FnMut(&Entry<'_>) -> Result<()>,
) -> Result<()> {
    let mut cursors = Vec::with_capacity(runs.len());
    for run in runs {
        cursors.push(BTreeCursor::seek(Arc::new(BTreeComponent::open(workshop.file(run)?)?), &[])?);
    }
    let mut key = Vec::new();
    loop {
        let smallest = cursors.iter().filter_map(BTreeCursor::entry).map(|entry| entry.key).min_by(|a, b| a.cmp(b));
        let Some(smallest) = smallest else { return Ok(()) };
        key.clear();
        key.extend_from_slice(&smallest);
        for cursor in &mut cursors {
            while let Some(entry) = cursor.entry().filter(|entry| *entry.key == *key) {
                visit(&entry)?;
                cursor.advance()?;
            }
        }
    }
}
