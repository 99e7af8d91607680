//! A file that grows: its bytes from some place on, waiting for more, and how it is known again.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mark::{FileId, KNOWN_BYTES, LastBytes, Mark, Part};
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
    file: Opened,
    /// The first bytes, [`KNOWN_BYTES`] at most, as they were when it was opened or when they were read.
    first: Mutex<Vec<u8>>,
    /// Those that have had the name since, in this order: this one is among them if it got the name back.
    newer: Mutex<VecDeque<Opened>>,
}

/// A file that is open, which keeps its inode from being used for another one.
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

    fn newer(&self) -> MutexGuard<'_, VecDeque<Opened>> {
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

    /// Which file it is.
    pub fn id(&self) -> FileId {
        self.file.id
    }

    /// The file itself, which is known by this for as long as it stays open.
    pub fn handle(&self) -> &Arc<File> {
        &self.file.file
    }

    /// What tells it from other files, with a part of it that was read last.
    pub fn mark(&self, last: Option<Part>) -> Mark {
        let first = self.first();
        match first.len() {
            0 => Mark::Empty(self.id()),
            length => Mark::Bytes { first: Part::of(&first, length as u64), last },
        }
    }

    /// Whether it can be what was read up to a byte and had this mark: it has the same bytes in the same places, and the
    /// byte is where a line begins, or the mark ends, or the file; of an empty one, it is the same.
    ///
    /// # Errors
    /// Of the file.
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

    /// The last bytes before one, as many as a mark has.
    ///
    /// # Errors
    /// Of the file.
    pub fn last_bytes(&self, end: u64) -> io::Result<LastBytes> {
        let start = end.saturating_sub(KNOWN_BYTES as u64);
        let mut last = LastBytes::default();
        last.push(start, &self.file.bytes_at(start, (end - start) as usize)?);
        Ok(last)
    }

    /// Notes bytes that were read from it.
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

    /// Its bytes behind those that were read. Ends when another file has its name and all bytes are read.
    pub fn read_behind<'a>(&'a self, last: LastBytes, stop: &'a Stop) -> Growing<'a> {
        Growing { follow: self, stop, last, parting_ms: 0 }
    }

    /// Whether another file has its name now, or had it, and something in it: until then, whoever writes goes on with
    /// this one. What is no file never has anything in it.
    fn is_replaced(&self) -> io::Result<bool> {
        if self.newer().iter().any(Opened::is_filled) {
            return Ok(true);
        }
        let is_other = |named: &Metadata| !self.id().can_be(FileId::of(named)) && (named.len() > 0 || !named.is_file());
        Ok(self.named()?.as_ref().is_some_and(is_other))
    }

    /// Whether it got its name back from another file, so that its turn comes again.
    fn comes_again(&self) -> bool {
        self.newer().iter().any(|newer| newer.id.can_be(self.id()))
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
        let Some(id) = self.named()?.filter(Metadata::is_file).map(|named| FileId::of(&named)) else { return Ok(()) };
        let mut newer = self.newer();
        if newer.back().unwrap_or(&self.file).id.can_be(id) {
            return Ok(());
        }
        // It got its name back before anybody wrote to another one, and to those that were removed nobody will.
        if id.can_be(self.id()) && !newer.iter().any(Opened::is_filled) {
            newer.retain(|file| !file.is_removed());
            return Ok(());
        }
        let known = newer.iter().chain([&self.file]).find(|file| file.id.can_be(id)).cloned();
        // One that cannot be opened may be later, and is told of when its turn comes.
        newer.extend(known.or_else(|| Opened::open(&self.path).ok()));
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

/// Bytes of a file that grows.
#[derive(Debug)]
pub struct Growing<'a> {
    follow: &'a Follow,
    stop: &'a Stop,
    /// What was read last.
    last: LastBytes,
    /// How long it has not grown since another one has its name.
    parting_ms: u32,
}

impl Growing<'_> {
    /// Refuses a file that was cut, also if it has grown again meanwhile.
    fn check(&self) -> io::Result<()> {
        let (length, read) = (self.follow.len()?, self.last.end());
        if length < read {
            return Err(io::Error::other(format!(
                "it has {length} bytes, of which {read} were read: it was truncated; with --restart it is read from its beginning"
            )));
        }
        match self.follow.is_as_read(&self.last)? {
            true => Ok(()),
            false => Err(io::Error::other(
                "it does not hold any more what was read of it: it was truncated and written anew; with --restart it is read from its beginning",
            )),
        }
    }

    /// Whether all that is there has been read, and another file is to be gone on with.
    fn is_read(&self) -> bool {
        // Who writes to one whose turn comes again may never pause.
        self.parting_ms >= PARTING_MS || (self.last.ends_line() && self.follow.comes_again())
    }
}

impl Read for Growing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stop.check()?;
            self.follow.look_for_newer()?;
            let count = self.follow.file.file.read_at(buffer, self.last.end())?;
            // After the reading: then the bytes came behind what was read before, or nothing did.
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
