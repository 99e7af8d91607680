//! A file that grows: its bytes from some place on, waiting for more, and how it is known again.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mark::{KNOWN_BYTES, LastBytes, Mark, Part};
use super::stop::Stop;
use crate::failure::Failure;

/// How long a file that has not grown is left alone.
const PAUSE_MS: u32 = 50;
/// How long a file whose name another one has is read on while it does not grow: who writes to it may not know yet.
const PARTING_MS: u32 = 1000;

/// A file that is followed as it grows.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: File,
    /// The first bytes, [`KNOWN_BYTES`] at most, as they were when it was opened or when they were read.
    first: Mutex<Vec<u8>>,
    /// Those that have had the name since, in this order.
    newer: Mutex<VecDeque<File>>,
}

impl Follow {
    /// Opens a file; anything else has no bytes to come back to. What is followed is its name: a link that has the name is
    /// not resolved, so that another file takes the name when the link is set anew. Of links among the directories above
    /// this holds `with_directories`; else they are resolved now, and whatever way led to a file, it has one path.
    ///
    /// # Errors
    /// A file that is not there, or that is none.
    pub fn open(path: &Path, with_directories: bool) -> Result<Self, Failure> {
        let place = match with_directories {
            true => std::path::absolute(path),
            false => resolve_directories(path),
        };
        Self::at(place.map_err(|error| cannot_open(path, &error))?)
    }

    fn at(path: PathBuf) -> Result<Self, Failure> {
        if !fs::metadata(&path).map_err(|error| cannot_open(&path, &error))?.is_file() {
            return Err(Failure::usage(format!(
                "{} is no regular file, which alone can be read again from where it was left; give its records on standard input",
                path.display()
            )));
        }
        let file = File::open(&path).map_err(|error| cannot_open(&path, &error))?;
        Self::of(path, file, VecDeque::new())
    }

    fn of(path: PathBuf, file: File, newer: VecDeque<File>) -> Result<Self, Failure> {
        let mut first = Vec::new();
        match (&file).take(KNOWN_BYTES as u64).read_to_end(&mut first) {
            Ok(_) => Ok(Self { path, file, first: Mutex::new(first), newer: Mutex::new(newer) }),
            Err(error) => Err(Failure::io(format_args!("read {}", path.display()), &error)),
        }
    }

    /// The file that had the name after this one, or that has it now.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn successor(&self) -> Result<Self, Failure> {
        let mut newer = std::mem::take(&mut *self.newer());
        match newer.pop_front() {
            Some(file) => Self::of(self.path.clone(), file, newer),
            None => Self::at(self.path.clone()),
        }
    }

    fn newer(&self) -> MutexGuard<'_, VecDeque<File>> {
        self.newer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> MutexGuard<'_, Vec<u8>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name that is followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the name leads to, if it is a link.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn target(&self) -> io::Result<Option<PathBuf>> {
        Ok(Some(fs::canonicalize(&self.path)?).filter(|target| *target != self.path))
    }

    /// What tells it from other files, with a part of it that was read last; nothing while it is empty.
    pub fn mark(&self, last: Option<Part>) -> Option<Mark> {
        let first = self.first();
        (!first.is_empty()).then(|| Mark { first: Part::of(&first, first.len() as u64), last })
    }

    /// Whether it can be what was read up to a byte and had this mark: it has the same bytes in the same places, and the
    /// byte is where a line begins, or the mark ends, or the file.
    ///
    /// # Errors
    /// Of the file.
    pub fn is_marked(&self, mark: &Mark, position: u64) -> io::Result<bool> {
        let parts = || [Some(mark.first), mark.last].into_iter().flatten();
        let length = self.len()?;
        if parts().any(|part| part.end > length) || position > length {
            return Ok(false);
        }
        for part in parts() {
            if Part::of(&self.bytes_at(part.start(), part.length)?, part.end) != part {
                return Ok(false);
            }
        }
        // The last line of a file that was moved away may have no end.
        if position == length || parts().any(|part| part.end == position) {
            return Ok(true);
        }
        position.checked_sub(1).map_or(Ok(true), |before| self.holds(before, b"\n"))
    }

    /// The last bytes before one, as many as a mark has.
    ///
    /// # Errors
    /// Of the file.
    pub fn last_bytes(&self, end: u64) -> io::Result<LastBytes> {
        let start = end.saturating_sub(KNOWN_BYTES as u64);
        let mut last = LastBytes::default();
        last.push(start, &self.bytes_at(start, (end - start) as usize)?);
        Ok(last)
    }

    /// Notes bytes that were read from it behind others; whether the file still has those, and its first ones, after
    /// the reading: then these came behind them.
    ///
    /// # Errors
    /// Of the file.
    pub fn note_read(&self, start: u64, bytes: &[u8], last: &LastBytes) -> io::Result<bool> {
        let mut first = self.first();
        let known = first.len();
        if let Some(new) = (known as u64).checked_sub(start).and_then(|skipped| bytes.get(skipped as usize..)) {
            first.extend_from_slice(&new[..new.len().min(KNOWN_BYTES - known)]);
        }
        Ok(self.holds(0, &first)? && self.holds(last.start(), last.bytes())?)
    }

    fn bytes_at(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }

    fn holds(&self, start: u64, bytes: &[u8]) -> io::Result<bool> {
        match self.bytes_at(start, bytes.len()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            found => Ok(found? == bytes),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Its bytes from one on. Ends when another file has its name and all bytes are read.
    pub fn read_from<'a>(&'a self, offset: u64, stop: &'a Stop) -> Growing<'a> {
        Growing { follow: self, stop, offset, last: LastBytes::default(), parting_ms: 0 }
    }

    /// Whether another file has its name now, or had it, and something in it: until then, whoever writes goes on with this one.
    fn is_replaced(&self) -> io::Result<bool> {
        if self.newer().iter().any(|file| file.metadata().is_ok_and(|file| file.len() > 0)) {
            return Ok(true);
        }
        let own = self.file.metadata()?;
        Ok(self.named()?.is_some_and(|named| !is_same(&named, &own) && named.len() > 0))
    }

    /// What has its name; nothing where it was moved away, and what takes its place is not there yet.
    fn named(&self) -> io::Result<Option<Metadata>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            named => named.map(Some),
        }
    }

    /// Opens the file that has the name, if another one had it before: its name may be gone when its turn comes.
    fn look_for_newer(&self) -> io::Result<()> {
        let Some(named) = self.named()? else { return Ok(()) };
        let mut newer = self.newer();
        let last = newer.back().unwrap_or(&self.file).metadata()?;
        // One that cannot be opened may be later, and is told of when its turn comes.
        if !is_same(&named, &last)
            && named.is_file()
            && let Ok(file) = File::open(&self.path)
        {
            newer.push_back(file);
        }
        Ok(())
    }
}

fn cannot_open(path: &Path, error: &io::Error) -> Failure {
    Failure::io(format_args!("open {}", path.display()), error)
}

/// A path without links, but that its last component may be one.
fn resolve_directories(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => Ok(fs::canonicalize(directory)?.join(name)),
        _ => fs::canonicalize(path),
    }
}

fn is_same(left: &Metadata, right: &Metadata) -> bool {
    (left.dev(), left.ino()) == (right.dev(), right.ino())
}

/// Bytes of a file that grows.
#[derive(Debug)]
pub struct Growing<'a> {
    follow: &'a Follow,
    stop: &'a Stop,
    offset: u64,
    /// What was read last.
    last: LastBytes,
    /// How long it has not grown since another one has its name.
    parting_ms: u32,
}

impl Growing<'_> {
    /// Goes on behind bytes that were read, or refuses those of a file that was cut and has grown again meanwhile.
    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.follow.note_read(self.offset, bytes, &self.last)? {
            return Err(io::Error::other(
                "it does not hold any more what was read of it: it was truncated and written anew; with --restart it is read from its beginning",
            ));
        }
        self.last.push(self.offset, bytes);
        self.offset += bytes.len() as u64;
        self.parting_ms = 0;
        Ok(())
    }
}

impl Read for Growing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stop.check()?;
            self.follow.look_for_newer()?;
            let count = self.follow.file.read_at(buffer, self.offset)?;
            if count > 0 {
                self.pass(&buffer[..count])?;
                return Ok(count);
            }
            if self.parting_ms >= PARTING_MS {
                return Ok(0);
            }
            let length = self.follow.len()?;
            if length < self.offset {
                return Err(io::Error::other(format!(
                    "it has {length} bytes, of which {} were read: it was truncated; with --restart it is read from its beginning",
                    self.offset
                )));
            }
            if self.follow.is_replaced()? {
                self.parting_ms += PAUSE_MS;
            }
            self.stop.wait(PAUSE_MS)?;
        }
    }
}
