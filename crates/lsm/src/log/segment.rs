//! Segment files: prepared with zeros or recycled, begun by their header, retired.

use std::sync::Arc;

use terrane_storage::{File, LockKind, OpenMode, Storage, StorageError};

use super::Lsn;
use super::layout::{
    DIRECTORY, GroupSeal, HEADER_AREA, HeaderState, MARKS_LENGTH, MarkKind, Previous, SEGMENT_HEADER_LENGTH,
    SegmentHeader, segment_name, unfinished_name,
};
use crate::{Error, Result};

const ZERO_CHUNK_LENGTH: usize = 256 << 10;

/// A file that is, was or will be a segment.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    /// Number in its name.
    pub number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Whether it held an earlier segment.
    pub recycled: bool,
    /// Whether this handle holds the exclusive lock that keeps readers of other processes away.
    pub locked: bool,
    pub file: Arc<dyn File>,
}

/// A segment with a fixed place in the LSN space.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub file: SegmentFile,
    pub header: SegmentHeader,
    /// Where the log ended when it was closed in this segment.
    pub clean_end_lsn: Option<Lsn>,
    /// Session of the segment that may follow, if it differs from this one's.
    pub successor: Option<u64>,
}

impl SegmentFile {
    /// Name below the store's root.
    pub fn name(&self) -> String {
        segment_name(self.number)
    }

    /// Bytes that groups can take.
    pub fn capacity(&self) -> u64 {
        self.size - HEADER_AREA
    }

    /// Creates a file of durable zeros with a durable name.
    ///
    /// 1. Writes the zeros under an unfinished name and syncs them. A crash leaves a file that
    ///    opening removes.
    /// 2. Renames the file and syncs the directory. A crash leaves either name.
    ///
    /// The file becomes part of the log only by [`Segment::begin`].
    pub fn create(storage: &dyn Storage, number: u64, size: u64) -> Result<Self> {
        let unfinished = unfinished_name(number);
        // The first error is reported; opening removes the leftovers.
        let failed = |error, left: &str| {
            let _ = storage.remove(left);
            full_or_storage(error, number)
        };
        let file = storage.open(&unfinished, OpenMode::CreateNew).map_err(|error| full_or_storage(error, number))?;
        write_zeros(file.as_ref(), size).map_err(|error| failed(error, &unfinished))?;
        let name = segment_name(number);
        storage.rename(&unfinished, &name).map_err(|error| failed(error, &unfinished))?;
        // Errors name a file as it was opened.
        let file = storage.open(&name, OpenMode::Write).map_err(|error| failed(error, &name))?;
        Ok(Self { number, size, recycled: false, locked: false, file })
    }

    /// Gives a spare file a later number. Its groups and its header carry the old number, so the
    /// groups do not count and the file is not begun. `None` if a reader holds it.
    pub fn recycle(mut self, storage: &dyn Storage, number: u64) -> Result<Option<Self>> {
        if !self.lock_exclusively()? {
            return Ok(None);
        }
        storage.rename(&self.name(), &segment_name(number))?;
        Ok(Some(Self { number, ..self }))
    }

    /// Takes the exclusive lock, to be held until the file's next header is durable; `false` while
    /// another handle reads the segment.
    pub fn lock_exclusively(&mut self) -> Result<bool> {
        if !self.locked {
            self.locked = self.file.try_lock(LockKind::Exclusive)?;
        }
        Ok(self.locked)
    }
}

impl Segment {
    /// A segment that will begin at `base_lsn`. Nothing is written.
    pub fn new(file: SegmentFile, store_id: [u8; 16], session: u64, base_lsn: Lsn, previous: Previous) -> Self {
        let header = SegmentHeader::new(store_id, session, &file, base_lsn, previous);
        Self { file, header, clean_end_lsn: None, successor: None }
    }

    /// A segment that has begun, as read from its file.
    pub fn existing(file: SegmentFile, header: SegmentHeader, seal: GroupSeal) -> Result<Self> {
        let mut marks = [0; MARKS_LENGTH];
        file.file.read_exact_at(&mut marks, MarkKind::Close.offset())?;
        let inside = header.base_lsn..=header.limit_lsn();
        let clean_end_lsn = seal.marked(MarkKind::Close, &marks, &header).find(|end_lsn| inside.contains(end_lsn));
        file.file.read_exact_at(&mut marks, MarkKind::Successor.offset())?;
        let successor = seal.marked(MarkKind::Successor, &marks, &header).next();
        Ok(Self { file, header, clean_end_lsn, successor })
    }

    /// Writes the header and makes it durable. Only then may readers lock the file and groups be
    /// written. The caller has made everything below the base LSN durable (I3).
    pub fn begin(&self) -> Result<()> {
        self.file.file.write_all_at(&self.header.encode(), 0)?;
        self.file.file.sync_data()?;
        if self.file.locked {
            self.file.file.unlock()?;
        }
        Ok(())
    }

    /// Adds the mark of a clean close and makes it durable. A crash leaves both copies, one or
    /// none; their content is true already.
    pub fn mark_clean_close(&self, seal: GroupSeal, end_lsn: Lsn) -> Result<()> {
        self.write_mark(seal, MarkKind::Close, end_lsn)
    }

    /// Notes the session that continues behind this segment, and makes the note durable. The
    /// segment's header must be durable before, as anything behind a lost one is damage.
    pub fn note_successor(&self, seal: GroupSeal, session: u64) -> Result<()> {
        self.write_mark(seal, MarkKind::Successor, session)
    }

    fn write_mark(&self, seal: GroupSeal, kind: MarkKind, value: u64) -> Result<()> {
        self.file.file.write_all_at(&seal.marks(kind, &self.header, value), kind.offset())?;
        Ok(self.file.file.sync_data()?)
    }

    /// The file once the segment is no longer part of the log.
    pub fn into_spare(self) -> SegmentFile {
        SegmentFile { recycled: true, locked: false, ..self.file }
    }
}

/// Reads the header of a file, which must be long enough to have one.
pub(super) fn read_header(file: &dyn File, store_id: [u8; 16]) -> Result<HeaderState> {
    let mut bytes = [0; SEGMENT_HEADER_LENGTH];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(SegmentHeader::decode(&bytes, store_id))
}

/// Makes the names in the log's directory durable.
pub(super) fn sync_names(storage: &dyn Storage) -> Result<()> {
    Ok(storage.sync_directory(DIRECTORY)?)
}

fn write_zeros(file: &dyn File, size: u64) -> terrane_storage::Result<()> {
    file.allocate(0..size)?;
    let zeros = vec![0; ZERO_CHUNK_LENGTH];
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(ZERO_CHUNK_LENGTH as u64);
        file.write_all_at(&zeros[..length as usize], offset)?;
        offset += length;
    }
    file.sync_data()
}

fn full_or_storage(error: StorageError, number: u64) -> Error {
    // After a failed sync, the disk being full is not the only problem.
    if error.is_storage_full() && !error.operation().is_sync() {
        Error::Full { what: format!("the log's segment {}", segment_name(number)) }
    } else {
        error.into()
    }
}
