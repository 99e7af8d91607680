//! A file that grows: its bytes from some place on, waiting for more, and how it is known again.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::stop::Stop;
use crate::failure::Failure;

/// Bytes at the beginning by which a file is known again, if it has so many.
const KNOWN_BYTES: u64 = 1024;
/// How long a file that has not grown is left alone.
const PAUSE_MS: u32 = 50;
/// How long a file whose name another one has is read on while it does not grow: who writes to it may not know yet.
const PARTING_MS: u32 = 1000;

/// A file that is followed as it grows.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: File,
    /// Those that have had the name since, in this order.
    newer: Mutex<VecDeque<File>>,
}

impl Follow {
    /// Opens a file; anything else has no bytes to come back to.
    ///
    /// # Errors
    /// A file that is not there, or that is none.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let cannot_open = |error: &io::Error| Failure::io(format_args!("open {}", path.display()), error);
        let path = fs::canonicalize(path).map_err(|error| cannot_open(&error))?;
        if !fs::metadata(&path).map_err(|error| cannot_open(&error))?.is_file() {
            return Err(Failure::usage(format!(
                "{} is no regular file, which alone can be read again from where it was left; give its records on standard input",
                path.display()
            )));
        }
        let file = File::open(&path).map_err(|error| cannot_open(&error))?;
        Ok(Self { path, file, newer: Mutex::default() })
    }

    /// The file that had the name after this one, if that was seen.
    pub fn successor(&self) -> Option<Self> {
        let mut newer = std::mem::take(&mut *self.newer());
        let file = newer.pop_front()?;
        Some(Self { path: self.path.clone(), file, newer: Mutex::new(newer) })
    }

    fn newer(&self) -> MutexGuard<'_, VecDeque<File>> {
        self.newer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A text that tells it from other files; none while it is empty.
    ///
    /// # Errors
    /// Of the file.
    pub fn mark(&self) -> io::Result<Option<String>> {
        let length = self.len()?.min(KNOWN_BYTES);
        (length > 0).then(|| self.mark_of(length)).transpose()
    }

    fn mark_of(&self, length: u64) -> io::Result<String> {
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(format!("{length} bytes with xxh3 {:016x}", xxh3_64(&bytes)))
    }

    /// Whether it can be what was read up to a byte when it had this mark: it begins so, and the byte is behind the end
    /// of a line.
    ///
    /// # Errors
    /// Of the file.
    pub fn is_marked(&self, mark: &str, position: u64) -> io::Result<bool> {
        let length = mark.split_once(' ').and_then(|(length, _)| length.parse().ok());
        let Some(length) = length.filter(|&length| length <= KNOWN_BYTES) else { return Ok(false) };
        if self.len()? < position.max(length) || self.mark_of(length)? != mark {
            return Ok(false);
        }
        let mut last = [b'\n'];
        if let Some(before) = position.checked_sub(1) {
            self.file.read_exact_at(&mut last, before)?;
        }
        Ok(last == [b'\n'])
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Its bytes from one on. Ends when another file has its name and all bytes are read.
    pub fn read_from<'a>(&'a self, offset: u64, stop: &'a Stop) -> Growing<'a> {
        Growing { follow: self, stop, offset, mark: None, parting_ms: 0 }
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

fn is_same(left: &Metadata, right: &Metadata) -> bool {
    (left.dev(), left.ino()) == (right.dev(), right.ino())
}

/// Bytes of a file that grows.
#[derive(Debug)]
pub struct Growing<'a> {
    follow: &'a Follow,
    stop: &'a Stop,
    offset: u64,
    /// Of the file when it was read last.
    mark: Option<String>,
    /// How long it has not grown since another one has its name.
    parting_ms: u32,
}

impl Growing<'_> {
    /// Refuses what was read of a file that was cut and has grown again meanwhile.
    fn check_known(&mut self) -> io::Result<()> {
        if let Some(mark) = &self.mark
            && !self.follow.is_marked(mark, 0)?
        {
            return Err(io::Error::other(
                "it does not begin any more as it did: it was truncated and written anew; with --restart it is read from its beginning",
            ));
        }
        self.mark = self.follow.mark()?;
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
                // Behind the reading: what was there before it is what was read.
                self.check_known()?;
                self.offset += count as u64;
                self.parting_ms = 0;
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
