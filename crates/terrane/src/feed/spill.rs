//! Records that wait on disk, in unnamed files whose space is released when they are read.
//!
//! In the end all records are in the store, which then merges its components. The files therefore
//! leave as much space free as the store and they themselves take. With less space, records wait
//! with their sender.

use std::collections::VecDeque;
use std::sync::Arc;

use terrane_lsm::disk::component_name;
use terrane_storage::sync::Ordering;
use terrane_storage::{DiskSpace, File, OpenMode};

use crate::engine::{Engine, WriterLock};
use crate::{Error, Result};

/// Bytes after which a piece of a file ends. A piece is read as a whole.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Least bytes after which another file is begun. The space of a file is released when all of it
/// is read.
const FILE_BYTES_MIN: u64 = 2 << 20;
/// Part of all waiting bytes that is also reached first, so that there are not too many files.
const FILE_PART: u64 = 16;
/// Share of the file system that is always left to others, including the store.
const SPARE_PART: u64 = 16;
/// Its maximum in bytes.
const SPARE_MAX: u64 = 1 << 30;
/// Largest share of the file system that is left to others, however large the store is.
const LEFT_PART: u64 = 4;

/// A record that can wait in a [`crate::Store::feed_queue`].
pub trait QueuedRecord: Sized + Send {
    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> usize;
    /// Appends its bytes for a file.
    fn encode(&self, bytes: &mut Vec<u8>);
    /// The record of such bytes; `None` if they are damaged.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Records in files, in order of arrival.
#[derive(Debug)]
pub(super) struct SpillFiles {
    engine: Arc<Engine>,
    files: VecDeque<SpillFile>,
    _lock: Option<Arc<WriterLock>>,
}

#[derive(Debug)]
struct SpillFile {
    file: Arc<dyn File>,
    end: u64,
    /// The pieces that have not been read, as offset and length.
    pieces: VecDeque<(u64, usize)>,
}

impl SpillFiles {
    /// Creates an empty one for files of this store.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { _lock: engine.environment().lock(), engine, files: VecDeque::new() }
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes that have not been read.
    fn bytes(&self) -> u64 {
        self.files.iter().flat_map(|file| &file.pieces).map(|(_, length)| *length as u64).sum()
    }

    /// Writes records; returns whether there was space.
    ///
    /// # Errors
    /// When the storage refuses it, except for a full disk.
    pub fn write<R: QueuedRecord>(&mut self, records: &[R]) -> Result<bool> {
        if records.is_empty() {
            return Ok(true);
        }
        let bytes = framed(records);
        if !self.has_space(bytes.len() as u64) {
            return Ok(false);
        }
        match self.append(&bytes) {
            Err(Error::Full { .. }) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let file_bytes = FILE_BYTES_MIN.max(self.bytes() / FILE_PART);
        let mut last = match self.files.pop_back() {
            Some(last) if last.end < file_bytes => last,
            full => {
                self.files.extend(full);
                SpillFile { file: self.create_unnamed()?, end: 0, pieces: VecDeque::new() }
            }
        };
        let written = last.file.write_all_at(bytes, last.end);
        if written.is_ok() {
            match last.pieces.back_mut().filter(|(_, length)| *length < PIECE_BYTES) {
                Some((_, length)) => *length += bytes.len(),
                None => last.pieces.push_back((last.end, bytes.len())),
            }
            last.end += bytes.len() as u64;
        }
        if !last.pieces.is_empty() {
            self.files.push_back(last);
        }
        Ok(written?)
    }

    /// A file that ends with its handle. It is named like a component until it is unnamed: the
    /// next opening of the store removes the name if the process is killed in between.
    fn create_unnamed(&self) -> Result<Arc<dyn File>> {
        let id = self.engine.environment().context.next_file_id.fetch_add(1, Ordering::Relaxed);
        let name = component_name(id);
        let file = self.engine.environment().storage.open(&name, OpenMode::CreateNew)?;
        self.engine.environment().storage.remove(&name)?;
        Ok(file)
    }

    /// Returns the records of the first piece and removes it.
    ///
    /// # Errors
    /// When the storage refuses it.
    pub fn read<R: QueuedRecord>(&mut self) -> Result<Vec<R>> {
        let Some(file) = self.files.front_mut() else { return Ok(Vec::new()) };
        let Some((offset, length)) = file.pieces.pop_front() else { return Ok(Vec::new()) };
        let mut bytes = vec![0; length];
        file.file.read_exact_at(&mut bytes, offset)?;
        let records = unframed(&bytes);
        let records = records
            .ok_or_else(|| Error::damaged(file.file.name(), offset, "the waiting records are not what was written"))?;
        if file.pieces.is_empty() {
            self.files.pop_front();
        }
        Ok(records)
    }

    /// Whether the disk has space for `length` more bytes.
    fn has_space(&self, length: u64) -> bool {
        let Some(space) = self.engine.environment().storage.space() else { return true };
        let manifest = self.engine.environment().context.manifest.current();
        let store_bytes = manifest.components().map(|meta| meta.file_len).sum();
        space.free_bytes >= left_free(space, store_bytes, self.bytes() + length).saturating_add(length)
    }
}

/// Bytes that are left to others, for a store of `store` bytes and `waiting` bytes of records.
fn left_free(space: DiskSpace, store: u64, waiting: u64) -> u64 {
    let spare = (space.total_bytes / SPARE_PART).min(SPARE_MAX);
    store.saturating_add(waiting).min(space.total_bytes / LEFT_PART).max(spare)
}

/// The bytes of records, each behind its length.
fn framed<R: QueuedRecord>(records: &[R]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; size_of::<u64>()]);
        record.encode(&mut bytes);
        let length = bytes.len() - start - size_of::<u64>();
        bytes[start..start + size_of::<u64>()].copy_from_slice(&(length as u64).to_le_bytes());
    }
    bytes
}

fn unframed<R: QueuedRecord>(mut bytes: &[u8]) -> Option<Vec<R>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let (record, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        records.push(R::decode(record)?);
        bytes = rest;
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_space_is_left_free_as_the_store_and_the_records_take() {
        const MIB: u64 = 1 << 20;
        for (total_bytes, store, waiting, left) in [
            (100 * MIB, 0, 0, 100 * MIB / 16),
            (100 * MIB, 9 * MIB, 6 * MIB, 15 * MIB),
            (100 * MIB, 60 * MIB, 10 * MIB, 25 * MIB),
            (1 << 40, 0, MIB, 1 << 30),
            (1 << 40, 3 << 30, 2 << 30, 5 << 30),
            (1 << 40, u64::MAX, 1, 1 << 38),
        ] {
            let space = DiskSpace { total_bytes, free_bytes: 0 };
            assert_eq!(left_free(space, store, waiting), left, "{store} and {waiting}");
        }
    }
}
