//! A group in memory: entries that wait to be written and synced together.

use std::sync::Arc;

use super::layout::{ENTRY_PREFIX_LENGTH, GROUP_HEADER_LENGTH, GroupSeal, entry_space};
use super::segment::Segment;
use super::{Appended, Lsn};

/// Buffers larger than this are freed instead of being reused for the next group.
const IDLE_BUFFER_LENGTH_MAX: usize = 4 << 20;

/// Entries of the next group of a segment. The buffer begins with space for the group's header, so
/// an entry's LSN is known exactly when it is appended.
#[derive(Debug)]
pub(super) struct PendingGroup {
    pub segment: Arc<Segment>,
    /// LSN of the header's first byte.
    pub lsn: Lsn,
    buffer: Vec<u8>,
    entry_count: u32,
}

impl PendingGroup {
    /// An empty group at `lsn`, in the emptied buffer of an earlier group.
    pub fn new(segment: Arc<Segment>, lsn: Lsn, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(GROUP_HEADER_LENGTH, 0);
        Self { segment, lsn, buffer, entry_count: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// LSN after the last entry, where the next group begins.
    pub fn end_lsn(&self) -> Lsn {
        if self.is_empty() { self.lsn } else { self.lsn + self.buffer.len() as u64 }
    }

    /// Whether the segment has room for one more entry of `length` bytes.
    pub fn fits(&self, length: usize) -> bool {
        let group_length = self.buffer.len() as u64 + entry_space(length);
        self.lsn + group_length <= self.segment.header.limit_lsn()
            && group_length <= u64::from(u32::MAX)
            && self.entry_count < u32::MAX
    }

    /// Appends an entry that fits. If `fill` panics, the group stays as it was.
    pub fn append(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Appended {
        struct Restore<'a> {
            buffer: &'a mut Vec<u8>,
            length: usize,
        }
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.buffer.truncate(self.length);
            }
        }
        let begin = self.buffer.len();
        let end = begin + entry_space(length) as usize;
        let prefix = u32::try_from(length).expect("the length was checked against ENTRY_LENGTH_MAX");
        let mut restore = Restore { buffer: &mut self.buffer, length: begin };
        restore.buffer.extend_from_slice(&prefix.to_le_bytes());
        restore.buffer.resize(end, 0);
        let from = begin + ENTRY_PREFIX_LENGTH;
        fill(&mut restore.buffer[from..from + length]);
        restore.length = end;
        drop(restore);
        self.entry_count += 1;
        Appended { start_lsn: self.lsn + begin as u64, end_lsn: self.lsn + end as u64 }
    }

    /// The bytes to write: header with checksums, then the entries.
    pub fn seal(&mut self, seal: GroupSeal, durable_lsn: Lsn) -> &[u8] {
        seal.seal(&mut self.buffer, self.entry_count, &self.segment.header, self.lsn, durable_lsn);
        &self.buffer
    }

    /// The buffer for a later group, unless it grew too large to keep.
    pub fn into_idle_buffer(self) -> Option<Vec<u8>> {
        (self.buffer.capacity() <= IDLE_BUFFER_LENGTH_MAX).then_some(self.buffer)
    }
}
