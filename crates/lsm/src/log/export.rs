//! The tail of a log in one file of its own, as a backup keeps it.
//!
//! For each segment: bytes of its groups u64 · its header, 128 bytes · its groups. Marks of a clean close are left out:
//! what was written since may lie behind them.

use terrane_storage::{File, OpenMode, Storage};

use super::layout::{HEADER_AREA, HeaderState, SEGMENT_HEADER_LENGTH, SIZE_UNIT, SegmentHeader};
use super::options::segment_size_max;
use super::read_only::ReadOnlyTail;
use super::segment::SegmentFile;
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
        let ends = self.segments.iter().skip(1).map(|next| next.header.base_lsn).chain([self.end_lsn()]);
        for (segment, end_lsn) in self.segments.iter().zip(ends) {
            let length = end_lsn.saturating_sub(segment.header.base_lsn);
            to.write_all_at(&length.to_le_bytes(), written)?;
            to.write_all_at(&segment.header.encode(), written + LENGTH_BYTES)?;
            written += LENGTH_BYTES + SEGMENT_HEADER_LENGTH as u64;
            copy(&*segment.file.file, HEADER_AREA, to, written, length)?;
            written += length;
        }
        Ok(written)
    }
}

/// Makes the segments of an exported tail anew in the log of a store, which has none. Opening the log shows whether
/// they are whole.
///
/// # Errors
/// [`Error::Damaged`] if the file is none of the store's tails; of the storage.
pub fn import_tail(from: &dyn File, store_id: [u8; 16], storage: &dyn Storage) -> Result<()> {
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
        let segment = SegmentFile::create(storage, header.number, header.size)?;
        copy(from, groups, &*segment.file, HEADER_AREA, length)?;
        segment.file.write_all_at(&header.encode(), 0)?;
        segment.file.sync_data()?;
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
