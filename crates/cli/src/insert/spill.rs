//! Lines that wait on disk for their turn, in files without names that go as soon as they are read.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::lines::Line;

/// Bytes of a piece of a file, which is read as a whole; a line that is larger is a piece of its own.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Bytes from which on another file is begun, so that the room of what was read is given back.
const FILE_BYTES: u64 = 64 << 20;
/// Part of the file system that is left to others, the store among them.
const SPARE_PART: u64 = 16;
/// Bytes of it at most.
const SPARE_MAX: u64 = 1 << 30;

/// Lines in files, in the order in which they came.
#[derive(Debug)]
pub struct SpillFiles {
    directory: PathBuf,
    file_bytes: u64,
    /// Bytes that the files may have together, besides what the disk has room for.
    bytes_max: u64,
    files: VecDeque<SpillFile>,
}

#[derive(Debug)]
struct SpillFile {
    file: File,
    end: u64,
    /// Where the pieces are that have not been read, as offset and length.
    pieces: VecDeque<(u64, u64)>,
}

impl SpillFiles {
    /// None yet, in a directory.
    ///
    /// # Errors
    /// Of the operating system, where there can be no such files in the directory.
    pub fn new(directory: &Path) -> io::Result<Self> {
        tempfile::tempfile_in(directory)?;
        Ok(Self::with_sizes(directory, FILE_BYTES, u64::MAX))
    }

    pub(super) fn with_sizes(directory: &Path, file_bytes: u64, bytes_max: u64) -> Self {
        Self { directory: directory.to_owned(), file_bytes, bytes_max, files: VecDeque::new() }
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes of all files.
    pub fn len(&self) -> u64 {
        self.files.iter().map(|file| file.end).sum()
    }

    /// Takes lines; gives them back where the disk has no room that is not left to others.
    ///
    /// # Errors
    /// Of the operating system, but that the disk is full.
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
                let what = format!("lines that wait for their turn cannot be written to disk: {error}");
                Err(io::Error::new(error.kind(), what))
            }
        }
    }

    /// Whether there was room.
    fn append(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let length = bytes.len() as u64;
        if self.len() + length > self.bytes_max || !self.has_room(length)? {
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

    fn has_room(&self, length: u64) -> io::Result<bool> {
        let found = rustix::fs::statvfs(&self.directory)?;
        let spare = (found.f_blocks.saturating_mul(found.f_frsize) / SPARE_PART).min(SPARE_MAX);
        Ok(found.f_bavail.saturating_mul(found.f_frsize) >= spare.saturating_add(length))
    }

    /// The lines of the first piece, which is gone then.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn read(&mut self) -> io::Result<Vec<Line>> {
        let Some(file) = self.files.front_mut() else { return Ok(Vec::new()) };
        let Some((offset, length)) = file.pieces.pop_front() else { return Ok(Vec::new()) };
        let mut bytes = vec![0; length as usize];
        file.file.read_exact_at(&mut bytes, offset)?;
        if file.pieces.is_empty() {
            self.files.pop_front();
        }
        let mut rest = &bytes[..];
        let mut lines = Vec::new();
        while !rest.is_empty() {
            lines.push(read_line(&mut rest).ok_or(io::ErrorKind::InvalidData)?);
        }
        Ok(lines)
    }
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

/// The first of the lines as they were written.
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
