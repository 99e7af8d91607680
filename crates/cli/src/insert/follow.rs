//! A growing file: its bytes from a position on, waiting for more, and how it is recognised again.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mark::{FileId, KNOWN_BYTES, LastBytes, Mark, Part};
use super::stop::Stop;
use crate::failure::Failure;

/// Time between two checks whether a file has grown.
const PAUSE_MS: u32 = 50;
/// How long a replaced file is still read while it does not grow: its writer may not know yet.
const PARTING_MS: u32 = 1000;

/// A file that is followed as it grows.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: Opened,
    /// The first bytes, at most [`KNOWN_BYTES`], as of opening or reading.
    first: Mutex<Vec<u8>>,
    /// Files that have had the name since, in order. If this file got the name back, it is among
    /// them.
    newer: Mutex<VecDeque<Opened>>,
}

/// An open file. While it is open, its inode is not reused.
#[derive(Clone, Debug)]
struct Opened {
    file: Arc<File>,
    id: FileId,
}

impl Opened {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { id: FileId::of(&file.metadata()?), file: Arc::new(file) })
    }

    fn is_filled(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() > 0)
    }

    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    fn bytes_at(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }
}

impl Follow {
    /// Opens a regular file; in anything else no position can be resumed. The file is followed by
    /// name. If the name is a link, it is not resolved, so a link that is set anew counts as
    /// another file. `with_directories` applies this to links among the parent directories too.
    /// Otherwise these are resolved now, and a file has one path whichever way leads to it.
    ///
    /// # Errors
    /// When there is no such file, or it is no regular file.
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
                "{} is no regular file, so reading cannot resume in it; pass its records on standard input",
                path.display()
            )));
        }
        let file = Opened::open(&path).map_err(|error| cannot_open(&path, &error))?;
        Self::of(path, file, VecDeque::new())
    }

    fn of(path: PathBuf, file: Opened, newer: VecDeque<Opened>) -> Result<Self, Failure> {
        let mut first = vec![0; KNOWN_BYTES];
        match file.file.read_at(&mut first, 0) {
            Ok(count) => {
                first.truncate(count);
                Ok(Self { path, file, first: Mutex::new(first), newer: Mutex::new(newer) })
            }
            Err(error) => Err(Failure::io(format_args!("read {}", path.display()), &error)),
        }
    }

    /// The file that had the name after this one, or has it now.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn successor(&self) -> Result<Self, Failure> {
        let mut newer = std::mem::take(&mut *self.newer());
        match newer.pop_front() {
            Some(file) => Self::of(self.path.clone(), file, newer),
            None => Self::at(self.path.clone()),
        }
    }

    fn newer(&self) -> MutexGuard<'_, VecDeque<Opened>> {
        self.newer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> MutexGuard<'_, Vec<u8>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The followed name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The target of the name, if it is a link.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn target(&self) -> io::Result<Option<PathBuf>> {
        Ok(Some(fs::canonicalize(&self.path)?).filter(|target| *target != self.path))
    }

    /// The identity of the file.
    pub fn id(&self) -> FileId {
        self.file.id
    }

    /// The file itself. As long as it stays open, this identifies it.
    pub fn handle(&self) -> &Arc<File> {
        &self.file.file
    }

    /// The mark of the file, with a part of it that was read last.
    pub fn mark(&self, last: Option<Part>) -> Mark {
        let first = self.first();
        match first.len() {
            0 => Mark::Empty(self.id()),
            length => Mark::Bytes { first: Part::of(&first, length as u64), last },
        }
    }

    /// Whether this can be the file that was read up to `position` and had this mark. It must have
    /// the same bytes at the same offsets. In addition, `position` must be at the start of a line,
    /// at the end of a part of the mark or at the end of the file. An empty mark requires the same
    /// file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn is_marked(&self, mark: &Mark, position: u64) -> io::Result<bool> {
        let (first, last) = match *mark {
            Mark::Empty(id) => return Ok(id.can_be(self.id()) && position == 0),
            Mark::Bytes { first, last } => (first, last),
        };
        let parts = || [Some(first), last].into_iter().flatten();
        let length = self.len()?;
        if parts().any(|part| part.end > length) || position > length {
            return Ok(false);
        }
        for part in parts() {
            if Part::of(&self.file.bytes_at(part.start(), part.length)?, part.end) != part {
                return Ok(false);
            }
        }
        // The last line of a file that was moved away may have no end.
        if position == length || parts().any(|part| part.end == position) {
            return Ok(true);
        }
        position.checked_sub(1).map_or(Ok(true), |before| self.holds(before, b"\n"))
    }

    /// The last bytes before a position, as many as a mark has.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_bytes(&self, end: u64) -> io::Result<LastBytes> {
        let start = end.saturating_sub(KNOWN_BYTES as u64);
        let mut last = LastBytes::default();
        last.push(start, &self.file.bytes_at(start, (end - start) as usize)?);
        Ok(last)
    }

    /// Adds bytes that were read from it.
    pub fn note_read(&self, start: u64, bytes: &[u8]) {
        let mut first = self.first();
        let known = first.len();
        if let Some(new) = (known as u64).checked_sub(start).and_then(|skipped| bytes.get(skipped as usize..)) {
            first.extend_from_slice(&new[..new.len().min(KNOWN_BYTES - known)]);
        }
    }

    /// Whether it still has its first bytes, and those that were read last.
    fn is_as_read(&self, last: &LastBytes) -> io::Result<bool> {
        Ok(self.holds(0, &self.first())? && self.holds(last.start(), last.bytes())?)
    }

    fn holds(&self, start: u64, bytes: &[u8]) -> io::Result<bool> {
        match self.file.bytes_at(start, bytes.len()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            found => Ok(found? == bytes),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.file.metadata()?.len())
    }

    /// Its bytes behind the last read. Ends when another file has its name and all bytes are read.
    pub fn read_behind<'a>(&'a self, last: LastBytes, stop: &'a Stop) -> Growing<'a> {
        Growing { follow: self, stop, last, parting_ms: 0 }
    }

    /// Whether another file has, or had, its name and has content. Until then, writers continue
    /// with this one. A name without a regular file counts as a file without content.
    fn is_replaced(&self) -> io::Result<bool> {
        if self.newer().iter().any(Opened::is_filled) {
            return Ok(true);
        }
        let is_other = |named: &Metadata| !self.id().can_be(FileId::of(named)) && (named.len() > 0 || !named.is_file());
        Ok(self.named()?.as_ref().is_some_and(is_other))
    }

    /// Whether it got its name back from another file, so that it will be read again.
    fn comes_again(&self) -> bool {
        self.newer().iter().any(|newer| newer.id.can_be(self.id()))
    }

    /// The file with its name; `None` if it was moved away and not replaced yet.
    fn named(&self) -> io::Result<Option<Metadata>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            named => named.map(Some),
        }
    }

    /// Opens the file that has the name now, if another one had it before. The name may be gone
    /// when that file is to be read.
    fn look_for_newer(&self) -> io::Result<()> {
        let Some(id) = self.named()?.filter(Metadata::is_file).map(|named| FileId::of(&named)) else { return Ok(()) };
        let mut newer = self.newer();
        if newer.back().unwrap_or(&self.file).id.can_be(id) {
            return Ok(());
        }
        // It got its name back before anything was written to another file, and removed files get
        // no more content.
        if id.can_be(self.id()) && !newer.iter().any(Opened::is_filled) {
            newer.retain(|file| !file.is_removed());
            return Ok(());
        }
        let known = newer.iter().chain([&self.file]).find(|file| file.id.can_be(id)).cloned();
        // A file that cannot be opened may become readable. The error is reported when it is to be
        // read.
        newer.extend(known.or_else(|| Opened::open(&self.path).ok()));
        Ok(())
    }
}

fn cannot_open(path: &Path, error: &io::Error) -> Failure {
    Failure::io(format_args!("open {}", path.display()), error)
}

/// A path without links, except for its last component.
fn resolve_directories(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => Ok(fs::canonicalize(directory)?.join(name)),
        _ => fs::canonicalize(path),
    }
}

/// Bytes of a growing file.
#[derive(Debug)]
pub struct Growing<'a> {
    follow: &'a Follow,
    stop: &'a Stop,
    /// The bytes read last.
    last: LastBytes,
    /// How long it has not grown since another file has its name.
    parting_ms: u32,
}

impl Growing<'_> {
    /// Refuses a truncated file, even if it has grown again meanwhile.
    fn check(&self) -> io::Result<()> {
        let (length, read) = (self.follow.len()?, self.last.end());
        if length < read {
            return Err(io::Error::other(format!(
                "it was truncated: it has {length} bytes, but {read} were read; use --restart to read it from the \
                 beginning"
            )));
        }
        match self.follow.is_as_read(&self.last)? {
            true => Ok(()),
            false => Err(io::Error::other(
                "its content has changed since it was read: it was truncated and written anew; use --restart to read \
                 it from the beginning",
            )),
        }
    }

    /// Whether everything has been read and the next file is to be read.
    fn is_read(&self) -> bool {
        // A writer of a file that will be read again may never pause.
        self.parting_ms >= PARTING_MS || (self.last.ends_line() && self.follow.comes_again())
    }
}

impl Read for Growing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stop.check()?;
            self.follow.look_for_newer()?;
            let count = self.follow.file.file.read_at(buffer, self.last.end())?;
            // Checked after reading. Then the bytes follow what was read before, or are not used.
            self.check()?;
            if count > 0 {
                self.follow.note_read(self.last.end(), &buffer[..count]);
                self.last.push(self.last.end(), &buffer[..count]);
                self.parting_ms = 0;
                return Ok(count);
            }
            if self.is_read() {
                return Ok(0);
            }
            if self.follow.is_replaced()? {
                self.parting_ms += PAUSE_MS;
            }
            self.stop.wait(PAUSE_MS)?;
        }
    }
}
