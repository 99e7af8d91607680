//! Lines that wait on disk, in unnamed files whose space is released as they are read.
//!
//! In the end all lines are in the store, which then merges its components. The files therefore
//! leave as much space free as the store and they themselves take. With less space, lines wait in
//! their source.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::lines::Line;

/// Bytes of a piece of a file, which is read as a whole. A longer line is a piece of its own.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Bytes after which another file is begun, so that the space of read lines is released.
pub(super) const FILE_BYTES: u64 = 64 << 20;
/// Share of the file system that is always left to others, including the store.
const SPARE_PART: u64 = 16;
/// Its maximum in bytes.
const SPARE_MAX: u64 = 1 << 30;
/// Largest share of the file system that is left to others, however large the store is.
const ROOM_PART: u64 = 4;
/// Bytes written until the store is measured again.
const MEASURED_BYTES: u64 = 4 << 20;
/// Block size in which the system counts the space of files.
const BLOCK_BYTES: u64 = 512;

/// Lines in files, in order of arrival.
#[derive(Debug)]
pub struct SpillFiles {
    directory: PathBuf,
    file_bytes: u64,
    room: Room,
    files: VecDeque<SpillFile>,
}

/// The limit of the files' space.
#[derive(Debug)]
pub(super) enum Room {
    /// The free space of the disk, minus a reserve for others.
    OfDisk {
        /// Bytes of the store at the last measurement.
        store_bytes: u64,
        /// Bytes written since.
        unmeasured: u64,
    },
    /// This many bytes, whatever else is on the disk.
    #[cfg(test)]
    Bytes(u64),
}

#[derive(Debug)]
struct SpillFile {
    file: File,
    end: u64,
    /// The pieces that have not been read, as offset and length.
    pieces: VecDeque<(u64, u64)>,
}

impl SpillFiles {
    /// Creates an empty one for files in a directory.
    ///
    /// # Errors
    /// When the directory's file system does not support such files.
    pub fn new(directory: &Path) -> io::Result<Self> {
        tempfile::tempfile_in(directory)?;
        Ok(Self::with_room(directory, FILE_BYTES, Room::OfDisk { store_bytes: 0, unmeasured: MEASURED_BYTES }))
    }

    pub(super) fn with_room(directory: &Path, file_bytes: u64, room: Room) -> Self {
        Self { directory: directory.to_owned(), file_bytes, room, files: VecDeque::new() }
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes that have not been read.
    pub fn len(&self) -> u64 {
        self.files.iter().flat_map(|file| &file.pieces).map(|(_, length)| length).sum()
    }

    /// Writes lines; returns them if the disk has no space beyond the reserve.
    ///
    /// # Errors
    /// When the operating system refuses it, except for a full disk.
    pub fn write(&mut self, lines: Vec<Line>) -> io::Result<Result<(), Vec<Line>>> {
        if lines.is_empty() {
            return Ok(Ok(()));
        }
        match self.append(&encode(&lines)) {
            Ok(true) => Ok(Ok(())),
            Ok(false) => Ok(Err(lines)),
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                Ok(Err(lines))
            }
            Err(error) => {
                let what = format!("waiting lines cannot be written to disk: {error}");
                Err(io::Error::new(error.kind(), what))
            }
        }
    }

    /// Whether there was space.
    fn append(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let length = bytes.len() as u64;
        let waiting = self.len() + length;
        if !self.room.has(length, waiting, &self.directory)? {
            return Ok(false);
        }
        let last = match self.files.pop_back() {
            Some(last) if last.end < self.file_bytes => last,
            other => {
                self.files.extend(other);
                SpillFile { file: tempfile::tempfile_in(&self.directory)?, end: 0, pieces: VecDeque::new() }
            }
        };
        let written = last.file.write_all_at(bytes, last.end);
        if written.is_ok() || last.end > 0 {
            self.files.push_back(last);
        }
        written?;
        if let Some(file) = self.files.back_mut() {
            match file.pieces.back_mut().filter(|(_, piece)| *piece < PIECE_BYTES) {
                Some((_, piece)) => *piece += length,
                None => file.pieces.push_back((file.end, length)),
            }
            file.end += length;
        }
        Ok(true)
    }

    /// Space that the files take on disk.
    #[cfg(test)]
    pub fn bytes_taken(&self) -> u64 {
        let taken = |file: &SpillFile| file.file.metadata().expect("it is open").blocks() * BLOCK_BYTES;
        self.files.iter().map(taken).sum()
    }

    /// Returns the lines of the first piece and removes it.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn read(&mut self) -> io::Result<Vec<Line>> {
        let Some(file) = self.files.front_mut() else { return Ok(Vec::new()) };
        let Some((offset, length)) = file.pieces.pop_front() else { return Ok(Vec::new()) };
        let mut bytes = vec![0; length as usize];
        file.file.read_exact_at(&mut bytes, offset)?;
        if file.pieces.is_empty() {
            self.files.pop_front();
        } else {
            // Not every file system supports this. On others, the space is released with the file.
            let _ = fallocate(&file.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, offset + length);
        }
        let mut rest = &bytes[..];
        let mut lines = Vec::new();
        while !rest.is_empty() {
            lines.push(read_line(&mut rest).ok_or(io::ErrorKind::InvalidData)?);
        }
        Ok(lines)
    }
}

impl Room {
    /// Whether there is space for `more` bytes, if `waiting` bytes wait in total.
    fn has(&mut self, length: u64, waiting: u64, directory: &Path) -> io::Result<bool> {
        let (store_bytes, unmeasured) = match self {
            Self::OfDisk { store_bytes, unmeasured } => (store_bytes, unmeasured),
            #[cfg(test)]
            Self::Bytes(bytes) => return Ok(waiting <= *bytes),
        };
        if *unmeasured >= MEASURED_BYTES {
            (*store_bytes, *unmeasured) = (bytes_in(directory)?, 0);
        }
        *unmeasured += length;
        let found = statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let left = room_left(bytes(found.f_blocks), *store_bytes, waiting);
        Ok(bytes(found.f_bavail) >= left.saturating_add(length))
    }
}

/// The reserve for others, for a store of `store` bytes and `waiting` bytes of lines.
pub(super) fn room_left(file_system: u64, store: u64, waiting: u64) -> u64 {
    let spare = (file_system / SPARE_PART).min(SPARE_MAX);
    store.saturating_add(waiting).min(file_system / ROOM_PART).max(spare)
}

/// Bytes on disk of all files in a directory, recursively.
fn bytes_in(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata().and_then(|found| match found.is_dir() {
            true => bytes_in(&entry.path()),
            false => Ok(found.blocks() * BLOCK_BYTES),
        });
        bytes += match found {
            // The store removes files meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            found => found?,
        };
    }
    Ok(bytes)
}

fn encode(lines: &[Line]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let (is_text, text) = match &line.text {
            Ok(text) => (true, text),
            Err(reason) => (false, reason),
        };
        for number in [line.number, line.end, text.len() as u64, u64::from(is_text)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// The first lines, as they were written.
fn read_line(rest: &mut &[u8]) -> Option<Line> {
    let mut number = || {
        let (bytes, after) = rest.split_first_chunk()?;
        *rest = after;
        Some(u64::from_le_bytes(*bytes))
    };
    let (number, end, length, is_text) = (number()?, number()?, number()?, number()? == 1);
    let (text, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    let text = String::from_utf8(text.to_vec()).ok()?;
    Some(Line { number, end, text: if is_text { Ok(text) } else { Err(text) } })
}
