//! The rows of an import in sorted runs, until they are merged.

use std::sync::Arc;

use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent, BTreeCursor, Entry};
use terrane_lsm::disk::{ComponentMeta, Statistics};
use terrane_lsm::partition::Workshop;

use crate::Result;
use crate::runs::RunBuffer;

/// Writes the records of a buffer, if any, to a run, and empties the buffer.
pub(super) fn spill(buffer: &mut RunBuffer, workshop: &Workshop) -> Result<Option<ComponentMeta>> {
    if buffer.is_empty() {
        return Ok(None);
    }
    let mut builder = BTreeBuilder::new(workshop.writer()?, true);
    buffer.drain_sorted(|key, value, row| Ok(builder.push(key, false, sequence_of_row(row), value)?))?;
    Ok(Some(builder.finish(Statistics::LOADED)?))
}

/// In runs, row numbers replace sequence numbers, such that the first row of a key comes first.
fn sequence_of_row(row: u64) -> u64 {
    u64::MAX - row
}

/// The row of an entry of a spilled run.
pub(super) fn row_of_sequence(sequence: u64) -> u64 {
    u64::MAX - sequence
}

/// The rows of the ascending run's entries. Refused rows leave gaps.
#[derive(Debug, Default)]
pub(super) struct RowRanges {
    entries: u64,
    /// First entry and first row of each range of consecutive rows.
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

/// Visits the entries of runs by key, and equal keys by run, which is the order of their rows.
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
