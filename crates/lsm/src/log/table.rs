//! The segments that have begun and are still part of the log, and the holds on them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::segment::Segment;
use super::{LogPosition, Lsn};
use terrane_storage::sync::Mutex;

/// Segments whose headers are durable, oldest first; never empty.
#[derive(Debug)]
pub(super) struct SegmentTable {
    begun: VecDeque<Arc<Segment>>,
    /// LSNs from which the log is held, with the number of holders.
    holds: BTreeMap<Lsn, usize>,
}

/// Keeps the log from an LSN on, even below the low-water mark, until it is dropped.
#[derive(Debug)]
pub struct HoldGuard {
    table: Arc<Mutex<SegmentTable>>,
    lsn: Lsn,
}

impl SegmentTable {
    pub fn new(older: impl IntoIterator<Item = Segment>, newest: Arc<Segment>) -> Self {
        let mut begun: VecDeque<_> = older.into_iter().map(Arc::new).collect();
        begun.push_back(newest);
        Self { begun, holds: BTreeMap::new() }
    }

    /// Adds the segment that has just begun.
    pub fn push(&mut self, segment: Arc<Segment>) {
        self.begun.push_back(segment);
    }

    /// The segment that began last.
    pub fn last(&self) -> &Arc<Segment> {
        self.begun.back().expect("the table is built with a segment and keeps its last one")
    }

    /// Position of an LSN in the newest segment that can hold it; `None` before the first.
    pub fn position_of(&self, lsn: Lsn) -> Option<LogPosition> {
        let index = self.begun.partition_point(|segment| segment.header.base_lsn <= lsn).checked_sub(1)?;
        let header = &self.begun[index].header;
        Some(LogPosition { segment: header.number, session: header.session, lsn })
    }

    /// Removes and returns the segments before `number` without a hold.
    pub fn take_before(&mut self, number: u64) -> Vec<Arc<Segment>> {
        let held_lsn = self.holds.keys().next().copied().unwrap_or(Lsn::MAX);
        let count = self
            .begun
            .iter()
            .zip(self.begun.iter().skip(1))
            .take_while(|(segment, next)| segment.file.number < number && next.header.base_lsn <= held_lsn)
            .count();
        self.begun.drain(..count).collect()
    }
}

impl HoldGuard {
    /// Holds the log from `lsn` on; `None` if the log no longer reaches back that far.
    pub(super) fn new(table: &Arc<Mutex<SegmentTable>>, lsn: Lsn) -> Option<Self> {
        let mut locked = table.lock();
        locked.position_of(lsn)?;
        *locked.holds.entry(lsn).or_insert(0) += 1;
        Some(Self { table: table.clone(), lsn })
    }

    /// The LSN from which the log is held.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if let Some(holders) = table.holds.get_mut(&self.lsn) {
            *holders -= 1;
            if *holders == 0 {
                table.holds.remove(&self.lsn);
            }
        }
    }
}
