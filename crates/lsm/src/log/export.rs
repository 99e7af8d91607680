//! The tail of a log in one file of its own, as a backup keeps it.
//!
//! For each segment: bytes of its groups u64 · its header, 128 bytes · its groups. Marks of a clean close are left out:
//! what was written since may lie behind them.

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
    /// Writes what was replayed to a file, and tells how many bytes that are.
    ///
    /// # Errors
    /// Of the storage.
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

    /// What was replayed, segment by segment.
    pub fn spans(&self) -> Vec<SegmentSpan> {
        self.lengths().map(|(segment, length)| SegmentSpan::new(&segment.header, length)).collect()
    }

    /// The segments, and how many bytes of groups there are in each.
    fn lengths(&self) -> impl Iterator<Item = (&Segment, u64)> {
        let ends = self.segments.iter().skip(1).map(|next| next.header.base_lsn).chain([self.end_lsn()]);
        self.segments.iter().zip(ends).map(|(segment, end)| (segment, end.saturating_sub(segment.header.base_lsn)))
    }
}

/// A segment as far as it counts, by which the logs of copies of one store are told apart.
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

    /// Whether a log that has this segment can come to have the other one, at an end that is not before this one's. A number
    /// and an LSN are given to one segment alone, once there is a group in it.
    fn leads_to(&self, later: &Self) -> bool {
        let overlaps = self.lsns.0 < later.lsns.1 && later.lsns.0 < self.lsns.1;
        if self.number == later.number || overlaps {
            let is_same = (self.number, self.session, self.lsns.0) == (later.number, later.session, later.lsns.0);
            return is_same && self.lsns.1 <= later.lsns.1;
        }
        later.previous.number != self.number || later.previous.session == self.session
    }
}

/// Whether a log of which there were the earlier segments can be the one that has the later ones. Of a log that has given up
/// all that was there earlier, nothing is known.
pub fn can_be_one_log(earlier: &[SegmentSpan], later: &[SegmentSpan]) -> bool {
    let later = || later.iter().filter(|span| span.has_groups());
    earlier.iter().filter(|span| span.has_groups()).all(|span| later().all(|later| span.leads_to(later)))
}

/// A segment in an exported tail, with the offset of its groups there and their bytes.
struct Exported {
    header: SegmentHeader,
    groups: u64,
    length: u64,
}

/// The segments of an exported tail.
///
/// # Errors
/// [`Error::Damaged`] if the file is none of the store's tails; of the storage.
pub fn exported_spans(from: &dyn File, store_id: [u8; 16]) -> Result<Vec<SegmentSpan>> {
    let mut spans = Vec::new();
    visit_exported(from, store_id, &mut |Exported { header, length, .. }| {
        spans.push(SegmentSpan::new(&header, length));
        Ok(())
    })?;
    Ok(spans)
}

/// Makes the segments of an exported tail anew in the log of a store, which has none. Opening the log shows whether
/// they are whole.
///
/// # Errors
/// [`Error::Damaged`] if the file is none of the store's tails; of the storage.
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
        // Zeros are written for all of it.
        let size_max = segment_size_max();
        if header.size > size_max {
            let reason =
                format!("it has a segment of {} bytes, and no log has one of more than {size_max}", header.size);
            return Err(damaged(offset + LENGTH_BYTES, reason));
        }
        if length > end - groups || length > header.size.saturating_sub(HEADER_AREA) {
            return Err(damaged(offset, "a segment has more bytes than there can be".into()));
        }
        visit(Exported { header, groups, length })?;
        offset = groups + length;
    }
    Ok(())
}

/// Makes a log of which nothing has begun, as a store has it whose components hold everything.
///
/// # Errors
/// Of the storage.
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

/// Copies a whole file under another name, where there is none, and makes it durable; its name is not yet.
///
/// # Errors
/// Of the storage.
pub fn copy_file(from: &dyn File, storage: &dyn Storage, name: &str) -> Result<u64> {
    let to = storage.open(name, OpenMode::CreateNew)?;
    let length = from.len()?;
    copy(from, 0, &*to, 0, length)?;
    to.sync_data()?;
    Ok(length)
}
