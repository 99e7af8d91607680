//! The tail of a log in one file, for backups.
//!
//! For each segment: bytes of its groups u64 · its header, 128 bytes · its groups. Marks of a clean
//! close are omitted, as later groups may follow them.

use terrane_storage::{File, OpenMode, Storage};

use super::Lsn;
use super::layout::{HEADER_AREA, HeaderState, Previous, SEGMENT_HEADER_LENGTH, SIZE_UNIT, SegmentHeader};
use super::options::segment_size_max;
use super::read_only::ReadOnlyTail;
use super::segment::{Segment, SegmentFile};
use crate::{Error, Result};

/// Bytes that are copied at a time.
const CHUNK_LENGTH: usize = 1 << 20;
const LENGTH_BYTES: u64 = 8;

impl ReadOnlyTail {
    /// Writes the replayed tail to a file; returns the number of bytes.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn export(&self, to: &dyn File) -> Result<u64> {
        let mut written = 0;
        for (segment, length) in self.lengths() {
            to.write_all_at(&length.to_le_bytes(), written)?;
            to.write_all_at(&segment.header.encode(), written + LENGTH_BYTES)?;
            written += LENGTH_BYTES + SEGMENT_HEADER_LENGTH as u64;
            copy(&*segment.file.file, HEADER_AREA, to, written, length)?;
            written += length;
        }
        Ok(written)
    }

    /// The replayed tail, segment by segment.
    pub fn spans(&self) -> Vec<SegmentSpan> {
        self.lengths().map(|(segment, length)| SegmentSpan::new(&segment.header, length)).collect()
    }

    /// The segments, and the bytes of groups in each.
    fn lengths(&self) -> impl Iterator<Item = (&Segment, u64)> {
        let ends = self.segments.iter().skip(1).map(|next| next.header.base_lsn).chain([self.end_lsn()]);
        self.segments.iter().zip(ends).map(|(segment, end)| (segment, end.saturating_sub(segment.header.base_lsn)))
    }
}

/// The valid part of a segment, by which logs of copies of one store are distinguished.
#[derive(Clone, Copy, Debug)]
pub struct SegmentSpan {
    number: u64,
    session: u64,
    previous: Previous,
    lsns: (Lsn, Lsn),
}

impl SegmentSpan {
    fn new(header: &SegmentHeader, length: u64) -> Self {
        let lsns = (header.base_lsn, header.base_lsn.saturating_add(length));
        Self { number: header.number, session: header.session, previous: header.previous(), lsns }
    }

    fn has_groups(&self) -> bool {
        self.lsns.0 < self.lsns.1
    }

    /// Whether a log with this segment can later have the other one, at an end that is not before
    /// this one's. Once a segment has a group, its number and its LSNs belong to no other segment.
    fn leads_to(&self, later: &Self) -> bool {
        let overlaps = self.lsns.0 < later.lsns.1 && later.lsns.0 < self.lsns.1;
        if self.number == later.number || overlaps {
            let is_same = (self.number, self.session, self.lsns.0) == (later.number, later.session, later.lsns.0);
            return is_same && self.lsns.1 <= later.lsns.1;
        }
        later.previous.number != self.number || later.previous.session == self.session
    }
}

/// Whether a log that had the earlier segments can later have the later ones. If the log has
/// reclaimed all of the earlier segments, nothing contradicts it.
pub fn can_be_one_log(earlier: &[SegmentSpan], later: &[SegmentSpan]) -> bool {
    let later = || later.iter().filter(|span| span.has_groups());
    earlier.iter().filter(|span| span.has_groups()).all(|span| later().all(|later| span.leads_to(later)))
}

/// A segment in an exported tail, with the offset and the length of its groups there.
struct Exported {
    header: SegmentHeader,
    groups: u64,
    length: u64,
}

/// The segments of an exported tail.
///
/// # Errors
/// [`Error::Damaged`] if the file is not a tail of the store; failures of the storage.
pub fn exported_spans(from: &dyn File, store_id: [u8; 16]) -> Result<Vec<SegmentSpan>> {
    let mut spans = Vec::new();
    visit_exported(from, store_id, &mut |Exported { header, length, .. }| {
        spans.push(SegmentSpan::new(&header, length));
        Ok(())
    })?;
    Ok(spans)
}

/// Recreates the segments of an exported tail in the log of a store, which must be empty. Opening
/// the log verifies them.
///
/// # Errors
/// [`Error::Damaged`] if the file is not a tail of the store; failures of the storage.
pub fn import_tail(from: &dyn File, store_id: [u8; 16], storage: &dyn Storage) -> Result<()> {
    visit_exported(from, store_id, &mut |Exported { header, groups, length }| {
        let segment = SegmentFile::create(storage, header.number, header.size)?;
        copy(from, groups, &*segment.file, HEADER_AREA, length)?;
        segment.file.write_all_at(&header.encode(), 0)?;
        Ok(segment.file.sync_data()?)
    })
}

fn visit_exported(from: &dyn File, store_id: [u8; 16], visit: &mut dyn FnMut(Exported) -> Result<()>) -> Result<()> {
    let damaged = |offset: u64, reason: String| Error::damaged(from.name(), offset, reason);
    let (mut offset, end) = (0, from.len()?);
    while offset < end {
        let groups = offset + LENGTH_BYTES + SEGMENT_HEADER_LENGTH as u64;
        if groups > end {
            return Err(damaged(offset, "the file ends inside the header of a segment".into()));
        }
        let (mut length, mut header) = ([0; LENGTH_BYTES as usize], [0; SEGMENT_HEADER_LENGTH]);
        from.read_exact_at(&mut length, offset)?;
        from.read_exact_at(&mut header, offset + LENGTH_BYTES)?;
        let length = u64::from_le_bytes(length);
        let header = match SegmentHeader::decode(&header, store_id) {
            HeaderState::Valid(header) => header,
            HeaderState::UnknownVersion(found) => {
                return Err(Error::UnknownVersion {
                    file: from.name().into(),
                    found,
                    known: SegmentHeader::known_version(),
                });
            }
            _ => {
                let reason = "there is no header of a segment of this store";
                return Err(damaged(offset + LENGTH_BYTES, reason.into()));
            }
        };
        // Zeros are written to its whole length.
        let size_max = segment_size_max();
        if header.size > size_max {
            let reason =
                format!("it has a segment of {} bytes, and no log has one of more than {size_max}", header.size);
            return Err(damaged(offset + LENGTH_BYTES, reason));
        }
        if length > end - groups || length > header.size.saturating_sub(HEADER_AREA) {
            return Err(damaged(offset, "a segment has more bytes than possible".into()));
        }
        visit(Exported { header, groups, length })?;
        offset = groups + length;
    }
    Ok(())
}

/// Creates a log without a begun segment, for a store whose components hold everything.
///
/// # Errors
/// When the storage fails.
pub fn create_empty(storage: &dyn Storage, number: u64) -> Result<()> {
    SegmentFile::create(storage, number, HEADER_AREA + SIZE_UNIT).map(|_| ())
}

fn copy(from: &dyn File, from_offset: u64, to: &dyn File, to_offset: u64, length: u64) -> Result<()> {
    let mut buffer = vec![0; CHUNK_LENGTH.min(length as usize)];
    let mut done = 0;
    while done < length {
        let chunk = &mut buffer[..CHUNK_LENGTH.min((length - done) as usize)];
        from.read_exact_at(chunk, from_offset + done)?;
        to.write_all_at(chunk, to_offset + done)?;
        done += chunk.len() as u64;
    }
    Ok(())
}

/// Copies a whole file to a new name and makes the content durable. The name is not durable yet.
///
/// # Errors
/// When the storage fails.
pub fn copy_file(from: &dyn File, storage: &dyn Storage, name: &str) -> Result<u64> {
    let to = storage.open(name, OpenMode::CreateNew)?;
    let length = from.len()?;
    copy(from, 0, &*to, 0, length)?;
    to.sync_data()?;
    Ok(length)
}
