//! The segments that have begun and are still part of the log.

use std::collections::VecDeque;
use std::sync::Arc;

use super::segment::Segment;
use super::{LogPosition, Lsn};

/// Segments whose headers are durable, oldest first; never empty.
#[derive(Debug)]
pub(super) struct SegmentTable {
    begun: VecDeque<Arc<Segment>>,
}

impl SegmentTable {
    pub fn new(older: impl IntoIterator<Item = Segment>, newest: Arc<Segment>) -> Self {
        let mut begun: VecDeque<_> = older.into_iter().map(Arc::new).collect();
        begun.push_back(newest);
        Self { begun }
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

    /// Removes and returns the segments before `number`, except the last one.
    pub fn take_before(&mut self, number: u64) -> Vec<Arc<Segment>> {
        let older = self.begun.partition_point(|segment| segment.file.number < number);
        self.begun.drain(..older.min(self.begun.len() - 1)).collect()
    }
}
