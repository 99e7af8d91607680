//! Reads the groups of one segment, and examines the bytes behind the last good one.

use std::ops::Range;

use terrane_storage::File;

use super::Lsn;
use super::layout::{
    ALIGNMENT, ENTRY_PREFIX_LENGTH, GROUP_HEADER_LENGTH, GROUP_MAGIC, GroupHeader, GroupSeal, HEADER_AREA,
    SegmentHeader, entry_space, resembles_group,
};
use crate::Result;

const CHUNK_LENGTH: u64 = 1 << 20;
const HEADER: u64 = GROUP_HEADER_LENGTH as u64;

/// Reads one segment from front to back through a buffer.
pub(super) struct SegmentReader<'a> {
    file: &'a dyn File,
    header: SegmentHeader,
    seal: GroupSeal,
    /// File offset of the first buffered byte.
    start: u64,
    buffer: Vec<u8>,
}

/// The content of a position where a group should begin.
pub(super) enum Found<'a> {
    /// A whole group.
    Group { header: GroupHeader, payload: &'a [u8] },
    /// Anything else. `length` is the length of the group according to its header, if the header is
    /// whole.
    Bad { reason: &'static str, length: Option<u64> },
}

/// The content at and behind a position where no group begins.
#[derive(Debug, Default)]
pub(super) struct Remainder {
    /// Highest LSN that a later group of this segment proves durable.
    pub proven_lsn: Option<Lsn>,
    /// Bytes up to the end of the written ones, 0 if there are none.
    pub torn_bytes: u64,
}

impl<'a> SegmentReader<'a> {
    pub fn new(file: &'a dyn File, header: SegmentHeader, seal: GroupSeal) -> Self {
        Self { file, header, seal, start: 0, buffer: Vec::new() }
    }

    /// Discards the buffer, so that the next access reads the file again.
    pub fn refresh(&mut self) {
        self.buffer.clear();
    }

    /// Reads the group that should begin at `lsn`, which must not be before the segment's base.
    pub fn group_at(&mut self, lsn: Lsn) -> Result<Found<'_>> {
        let (seal, segment) = (self.seal, self.header);
        let offset = segment.offset_of(lsn);
        let bad = |reason, length| Ok(Found::Bad { reason, length });
        let room = self.header.size.saturating_sub(offset);
        if room < HEADER {
            return bad("the segment ends here", None);
        }
        let header = match seal.open_header(self.bytes(offset, HEADER)?, &segment, lsn) {
            Ok(header) => header,
            Err(reason) => return bad(reason, None),
        };
        let payload_length = u64::from(header.payload_length);
        if payload_length > room - HEADER || !payload_length.is_multiple_of(ALIGNMENT) {
            return bad("the group's length does not fit", None);
        }
        let payload = &self.bytes(offset, HEADER + payload_length)?[GROUP_HEADER_LENGTH..];
        if !seal.fits(&header, payload) {
            return bad("the checksum of the group's entries does not fit", Some(HEADER + payload_length));
        }
        Ok(Found::Group { header, payload })
    }

    /// Searches everything behind `lsn`, where no group begins, for groups of this segment and for
    /// written bytes.
    pub fn remainder(&mut self, lsn: Lsn) -> Result<Remainder> {
        let (seal, segment, size) = (self.seal, self.header, self.header.size);
        let fresh = !self.header.is_recycled();
        let begin = self.header.offset_of(lsn);
        let mut found = Remainder::default();
        // End of the written bytes, as a file offset.
        let mut written_end = begin;
        if size.saturating_sub(begin) >= HEADER && resembles_group(self.bytes(begin, HEADER)?, &segment, lsn) {
            written_end = begin + HEADER;
            if let Found::Bad { length: Some(length), .. } = self.group_at(lsn)? {
                written_end = begin + length;
            }
        }
        let mut offset = begin;
        while offset < size {
            let length = CHUNK_LENGTH.min(size - offset);
            let chunk = self.bytes(offset, length)?;
            if fresh && let Some(last) = chunk.iter().rposition(|&byte| byte != 0) {
                written_end = written_end.max(offset + last as u64 + 1);
            }
            let candidates = chunk.windows(GROUP_HEADER_LENGTH).step_by(ALIGNMENT as usize).enumerate();
            for (index, bytes) in candidates {
                let candidate_lsn = lsn + (offset - begin) + index as u64 * ALIGNMENT;
                if bytes[..4] != GROUP_MAGIC.to_le_bytes() || candidate_lsn == lsn {
                    continue;
                }
                if let Ok(header) = seal.open_header(bytes, &segment, candidate_lsn) {
                    found.proven_lsn = found.proven_lsn.max(Some(header.durable_lsn));
                    written_end = written_end.max(begin + (header.end_lsn() - lsn).min(size - begin));
                }
            }
            if length < CHUNK_LENGTH {
                break;
            }
            // Chunks overlap by slightly less than a header, so that none between two chunks is
            // missed.
            offset += length - (HEADER - ALIGNMENT);
        }
        found.torn_bytes = written_end - begin;
        Ok(found)
    }

    /// Bytes of the file. The caller has checked that they lie within the segment.
    fn bytes(&mut self, offset: u64, length: u64) -> Result<&[u8]> {
        let buffered_end = self.start + self.buffer.len() as u64;
        if offset < self.start || offset + length > buffered_end {
            let wanted = length.max(CHUNK_LENGTH.min(self.header.size - offset));
            self.buffer.clear();
            self.buffer.resize(wanted as usize, 0);
            if let Err(error) = self.file.read_exact_at(&mut self.buffer, offset) {
                self.buffer.clear();
                return Err(error.into());
            }
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..from + length as usize])
    }
}

/// Splits a group's payload into its entries, each with the LSN of its first byte.
pub(super) struct Entries<'a> {
    payload: &'a [u8],
    lsn: Lsn,
    left: u32,
}

impl<'a> Entries<'a> {
    pub fn new(header: &GroupHeader, payload: &'a [u8]) -> Self {
        Self { payload, lsn: header.lsn + HEADER, left: header.entry_count }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = std::result::Result<(Lsn, &'a [u8]), &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return (!std::mem::take(&mut self.payload).is_empty())
                .then_some(Err("a group has bytes after its last entry"));
        }
        self.left -= 1;
        let parsed = self.payload.split_first_chunk::<ENTRY_PREFIX_LENGTH>().and_then(|(prefix, rest)| {
            let length = u32::from_le_bytes(*prefix) as usize;
            let space = usize::try_from(entry_space(length)).ok()?;
            Some((rest.get(..length)?, self.payload.get(space..)?, space as u64))
        });
        let Some((entry, rest, space)) = parsed else {
            self.left = 0;
            self.payload = &[];
            return Some(Err("an entry is longer than its group"));
        };
        let lsn = self.lsn;
        self.payload = rest;
        self.lsn += space;
        Some(Ok((lsn, entry)))
    }
}

/// Whether a file without a matching header holds the header of a group of segment `number` before
/// `end`.
pub(super) fn holds_group_of(file: &dyn File, end: u64, seal: GroupSeal, number: u64) -> Result<bool> {
    // Pieces overlap by slightly less than a header, so that none between two pieces is missed.
    any_piece(file, HEADER_AREA..end, HEADER - ALIGNMENT, |piece| {
        let mut candidates = piece.windows(GROUP_HEADER_LENGTH).step_by(ALIGNMENT as usize);
        candidates.any(|bytes| bytes[..4] == GROUP_MAGIC.to_le_bytes() && seal.is_header_of_segment(bytes, number))
    })
}

/// Whether a file holds a nonzero byte before `end`.
pub(super) fn is_written(file: &dyn File, end: u64) -> Result<bool> {
    any_piece(file, 0..end, 0, |piece| {
        // Without an early exit, the inner loop is compiled to vector instructions.
        piece.chunks(4096).any(|block| block.iter().fold(0, |seen, byte| seen | byte) != 0)
    })
}

/// Whether `test` holds for one of the pieces of a file, which overlap by `overlap` bytes.
fn any_piece(file: &dyn File, range: Range<u64>, overlap: u64, is_found: impl Fn(&[u8]) -> bool) -> Result<bool> {
    let mut buffer = Vec::new();
    let mut offset = range.start;
    while offset + overlap < range.end {
        let length = CHUNK_LENGTH.min(range.end - offset);
        buffer.resize(length as usize, 0);
        file.read_exact_at(&mut buffer, offset)?;
        if is_found(&buffer) {
            return Ok(true);
        }
        offset += length - overlap;
    }
    Ok(false)
}
