//! Sizes of the log.

use super::layout::{ENTRY_LENGTH_MAX, HEADER_AREA, SIZE_UNIT, size_for};
use crate::{Error, Result};

const SEGMENT_SIZE_MAX: u64 = 1 << 30;
/// Bytes of a segment on a disk without space for the usual sizes.
const SMALLEST_SEGMENT: u64 = 64 << 10;

/// Bytes of the largest possible segment, with any options: one for the longest entry.
pub(super) fn segment_size_max() -> u64 {
    SEGMENT_SIZE_MAX.max(size_for(ENTRY_LENGTH_MAX))
}

/// Sizes of the log's files. They may differ from one opening to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment, a multiple of 4096. An entry that needs more gets a larger one.
    pub segment_size: u64,
    /// Bytes of the segment that opening creates if no file can be recycled. It is small, so that a
    /// short session does not wait for a whole segment of zeros.
    pub first_segment_size: u64,
    /// Retired files that are kept for reuse; others are removed.
    pub spare_segments: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_size: 16 << 20, first_segment_size: 1 << 20, spare_segments: 2 }
    }
}

impl LogOptions {
    /// Bytes of the smallest file that the log creates for an entry of `length` bytes, on a disk
    /// without space for others.
    pub fn smallest_size(&self, length: usize) -> u64 {
        SMALLEST_SEGMENT.min(self.first_segment_size).min(self.segment_size).max(size_for(length))
    }

    pub(super) fn check(&self) -> Result<()> {
        for (name, size) in [("segment_size", self.segment_size), ("first_segment_size", self.first_segment_size)] {
            if !size.is_multiple_of(SIZE_UNIT) || !(HEADER_AREA + SIZE_UNIT..=SEGMENT_SIZE_MAX).contains(&size) {
                return Err(Error::Options(format!(
                    "{name} is {size}; it has to be a multiple of {SIZE_UNIT} from {} to {SEGMENT_SIZE_MAX}",
                    HEADER_AREA + SIZE_UNIT
                )));
            }
        }
        Ok(())
    }
}
