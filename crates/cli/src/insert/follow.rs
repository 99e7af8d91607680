//! A growing file: its bytes from a position on, its successors under its name, and the mark by
//! which it is recognised again.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use super::stop::Stop;
use crate::failure::Failure;

/// Bytes that the checksum of a mark covers, if there are enough.
const KNOWN_BYTES: usize = 1024;
/// Time between two checks which file has the name.
const WATCH_PAUSE: Duration = Duration::from_millis(10);
/// Most waiting files whose marks are stored.
const MARKED_FILES_MAX: usize = 40;
/// Separates the marks of a file and of those that wait behind it.
const THEN: &str = "; then ";
/// Time between two checks whether a file has grown.
const PAUSE_MS: u32 = 50;
/// How long a replaced file is still read while it does not grow: its writer may not know yet.
const PARTING_MS: u32 = 1000;

/// The mark of a file: its inode and a checksum of its first bytes.
/// Its text is `inode I, N bytes with xxh3 H`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    inode: u64,
    /// Bytes that the checksum covers, at most [`KNOWN_BYTES`].
    length: usize,
    checksum: u64,
}

impl Mark {
    /// Parses the marks of a file and of those that wait behind it; `None` for another text.
    pub fn parse_all(text: &str) -> Option<Vec<Self>> {
        text.split(THEN).map(Self::parse).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let (inode, rest) = text.strip_prefix("inode ")?.split_once(", ")?;
        let (length, checksum) = rest.split_once(" bytes with xxh3 ")?;
        let length = length.parse().ok().filter(|length| *length <= KNOWN_BYTES)?;
        Some(Self { inode: inode.parse().ok()?, length, checksum: u64::from_str_radix(checksum, 16).ok()? })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}, {} bytes with xxh3 {:016x}", self.inode, self.length, self.checksum)
    }
}

/// An open file. While it is open, its inode is not reused.
#[derive(Clone, Debug)]
struct Opened {
    file: Arc<File>,
    /// Device and inode.
    id: (u64, u64),
}

impl Opened {
    fn open(path: &Path) -> io::Result<Self> {
        // A pipe may never have another end, so opening must not wait.
        let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
        Ok(Self { id: id_of(&file.metadata()?), file: Arc::new(file) })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The mark of a file that is not read yet.
    fn mark(&self) -> io::Result<Mark> {
        let length = usize::try_from(self.len()?).map_or(KNOWN_BYTES, |length| length.min(KNOWN_BYTES));
        Ok(Mark { inode: self.id.1, length, checksum: xxh3_64(&self.first(length)?) })
    }

    /// The first bytes; none if the file is shorter.
    fn first(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        match self.file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
            read => read.map(|()| bytes),
        }
    }

    /// Whether it can be the file with a mark that was read up to a position: its first bytes are
    /// the same, and a line begins at the position, or the file ends there.
    fn fits(&self, mark: Mark, position: u64) -> io::Result<bool> {
        let length = self.len()?;
        if xxh3_64(&self.first(mark.length)?) != mark.checksum || length < position {
            return Ok(false);
        }
        let mut before = *b"\n";
        if let Some(offset) = position.checked_sub(1) {
            self.file.read_exact_at(&mut before, offset)?;
        }
        Ok(before == *b"\n" || position == length)
    }
}

fn id_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// A file of the followed file's directory.
#[derive(Debug)]
struct Sibling {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    modified: SystemTime,
}

/// A file that is followed as it grows.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: Opened,
    /// Held while the name is looked up, so that two threads add files once and in order.
    looking: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first bytes as they were read, at most [`KNOWN_BYTES`].
    first: Vec<u8>,
    /// Files that have had the name since, in order.
    newer: VecDeque<Opened>,
    is_truncated: bool,
    /// Files that may have been missed: device and inode, and when they were changed.
    missed: HashSet<((u64, u64), SystemTime)>,
    /// Warnings of them that are not taken yet.
    warnings: Vec<String>,
}

/// Where reading resumes.
#[derive(Debug)]
pub struct Resumed {
    /// The file.
    pub file: Follow,
    /// The position in it; 0 if it was truncated.
    pub position: u64,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl Follow {
    /// Opens the regular file with this name. Links among the parent directories are resolved, so a
    /// file has one path whichever way leads to it. If the file itself is a link, it is not
    /// resolved: setting the link anew counts as a rotation.
    ///
    /// # Errors
    /// When there is no such file, or it is no regular file.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let cannot_open = |error: io::Error| Failure::io(format_args!("open {}", path.display()), &error);
        let resolved = resolve_directories(path).map_err(cannot_open)?;
        if !fs::metadata(&resolved).map_err(cannot_open)?.is_file() {
            return Err(Failure::usage(format!(
                "{} is no regular file, so reading cannot resume in it; pass its records on standard input",
                path.display()
            )));
        }
        let file = Opened::open(&resolved).map_err(cannot_open)?;
        Ok(Self { path: resolved, file, looking: Mutex::default(), state: Mutex::default() })
    }

    fn with(&self, file: Opened, state: State) -> Self {
        Self { path: self.path.clone(), file, looking: Mutex::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The followed name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was truncated while it was read.
    pub fn is_truncated(&self) -> bool {
        self.state().is_truncated
    }

    /// The marks of the file as it was read so far, and of the files that wait behind it.
    pub fn marks(&self) -> String {
        let state = self.state();
        let this = Mark { inode: self.file.id.1, length: state.first.len(), checksum: xxh3_64(&state.first) };
        // Behind one that cannot be read, none is marked: the order tells which files were missed.
        // An empty file has no bytes to be recognised by.
        let waiting = state.newer.iter().take(MARKED_FILES_MAX).map_while(|file| file.mark().ok());
        let waiting = waiting.filter(|mark| mark.length > 0);
        let marks: Vec<String> = std::iter::once(this).chain(waiting).map(|mark| mark.to_string()).collect();
        marks.join(THEN)
    }

    /// Takes the warnings of files that were missed.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.state().warnings)
    }

    /// Notes each file that gets the name while this one is read, until the channel is closed, and
    /// tells `warn` of files that were missed. Reading may wait for the store longer than a file
    /// keeps the name.
    pub fn watch(&self, is_ended: &Receiver<()>, warn: impl Fn(&str)) {
        while is_ended.recv_timeout(WATCH_PAUSE) == Err(RecvTimeoutError::Timeout) {
            // Reading meets the error again, and reports it.
            let _ = self.look_for_newer();
            self.take_warnings().iter().for_each(|warning| warn(warning));
        }
    }

    /// Finds the file with the first mark, which was read up to a position: this one, or one in its
    /// directory that had its name before. Files with the other marks had the name after it. This
    /// one is read from its beginning if it was truncated. `None` if there is no such file.
    ///
    /// # Errors
    /// When a file or the directory cannot be read.
    pub fn resume(&self, marks: &[Mark], position: u64) -> io::Result<Option<Resumed>> {
        let Some((&mark, waiting)) = marks.split_first() else { return Ok(None) };
        let siblings = self.siblings()?;
        let (mut newer, mut warnings) = (VecDeque::new(), Vec::new());
        for &mark in waiting {
            match self.find(&siblings, mark, 0)? {
                Some(file) => newer.push_back(file),
                None => warnings.push(format!(
                    "a file that had the name {} is gone before it was read: {mark}",
                    self.path.display()
                )),
            }
        }
        let is_truncated = self.file.id.1 == mark.inode && self.file.len()? < position.max(mark.length as u64);
        if is_truncated && newer.is_empty() {
            warnings.push(format!("{} was truncated; it is read from the beginning", self.path.display()));
            let file = self.with(self.file.clone(), State::default());
            return Ok(Some(Resumed { file, position: 0, warnings }));
        }
        let Some(file) = self.find(&siblings, mark, position)? else { return Ok(None) };
        // This one was opened before the store, and may have lost its name since.
        if file.id != self.file.id && newer.iter().all(|newer| newer.id != self.file.id) {
            newer.push_back(self.file.clone());
        }
        let state = State { first: file.first(mark.length)?, newer, ..State::default() };
        let resumed = self.with(file, state);
        resumed.look_for_newer()?;
        // The process may have been killed before it warned.
        resumed.note_missed()?;
        warnings.extend(resumed.take_warnings());
        Ok(Some(Resumed { file: resumed, position, warnings }))
    }

    /// The file with a mark among this one and others of its directory.
    fn find(&self, siblings: &[Sibling], mark: Mark, position: u64) -> io::Result<Option<Opened>> {
        let file = match siblings.iter().find(|sibling| sibling.id.1 == mark.inode) {
            _ if self.file.id.1 == mark.inode => self.file.clone(),
            Some(sibling) => Opened::open(&sibling.path)?,
            None => return Ok(None),
        };
        Ok((file.id.1 == mark.inode && file.fits(mark, position)?).then_some(file))
    }

    /// The other files of its directory.
    fn siblings(&self) -> io::Result<Vec<Sibling>> {
        let directory = fs::read_dir(self.path.parent().unwrap_or(Path::new("/")))?;
        let of_entry = |entry: fs::DirEntry| {
            let metadata = entry.metadata()?;
            Ok::<_, io::Error>((
                Sibling { path: entry.path(), id: id_of(&metadata), modified: metadata.modified()? },
                metadata,
            ))
        };
        // One that vanishes meanwhile is none.
        let found = directory.filter_map(|entry| entry.and_then(of_entry).ok());
        Ok(found.filter(|(_, metadata)| metadata.is_file()).map(|(sibling, _)| sibling).collect())
    }

    /// Notes files that were changed after the first of this file and its successors, and are none
    /// of them. They may have had the name in between. Nothing proves that, so they are not read.
    fn note_missed(&self) -> io::Result<()> {
        let siblings = self.siblings()?;
        let state = &mut *self.state();
        let known = || state.newer.iter().chain([&self.file]);
        let modified = known().map(|file| file.file.metadata()?.modified()).collect::<io::Result<Vec<_>>>()?;
        let first_modified = modified.into_iter().min();
        let ids: Vec<(u64, u64)> = known().map(|file| file.id).collect();
        let name = self.path.as_os_str().as_encoded_bytes();
        for Sibling { path, id, modified } in siblings {
            // The one that has the name now comes next.
            let may_have_had_name = path != self.path
                && !ids.contains(&id)
                && path.as_os_str().as_encoded_bytes().starts_with(name)
                && Some(modified) > first_modified;
            if may_have_had_name && state.missed.insert((id, modified)) {
                let (path, name) = (path.display(), self.path.display());
                state
                    .warnings
                    .push(format!("{path} is not read; if it had the name {name} for a moment, insert it as well"));
            }
        }
        Ok(())
    }

    /// The file to be read after this one: the same one from its beginning if it was truncated,
    /// else the next one that had its name.
    pub fn next(&self) -> Option<Self> {
        let mut state = self.state();
        let mut newer = std::mem::take(&mut state.newer);
        let missed = std::mem::take(&mut state.missed);
        let next = if state.is_truncated { Some(self.file.clone()) } else { newer.pop_front() };
        next.map(|file| self.with(file, State { newer, missed, ..State::default() }))
    }

    /// Its bytes from a position on. They end when the file was truncated, and when another file
    /// has its name and all bytes are read.
    pub fn read_from<'a>(&'a self, position: u64, stop: &'a Stop) -> Growing<'a> {
        Growing { follow: self, stop, position, parting_ms: 0 }
    }

    /// Opens the file that has the name now, if another one had it before. The name may be gone
    /// when that file is to be read.
    fn look_for_newer(&self) -> io::Result<()> {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let named = match Opened::open(&self.path) {
            // It was moved away, and not replaced yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            named => named?,
        };
        let newer = self.state().newer.clone();
        if named.id == self.file.id {
            if has_content(&newer)? {
                return Err(io::Error::other(
                    "it got its name back from a file with other records, which are not read; insert those as well",
                ));
            }
            self.state().newer.clear();
        } else if newer.back().is_none_or(|newest| newest.id != named.id) {
            self.state().newer.push_back(named);
            self.note_missed()?;
        }
        Ok(())
    }

    /// Adds bytes that were read from it.
    fn note_read(&self, start: u64, bytes: &[u8]) {
        let first = &mut self.state().first;
        let skipped = (first.len() as u64).checked_sub(start);
        if let Some(new) = skipped.and_then(|skipped| bytes.get(skipped as usize..)) {
            first.extend_from_slice(&new[..new.len().min(KNOWN_BYTES - first.len())]);
        }
    }

    /// Checks that the file has the bytes that were read. Returns whether it was truncated.
    fn check(&self, position: u64) -> io::Result<bool> {
        let mut state = self.state();
        state.is_truncated = self.file.len()? < position.max(state.first.len() as u64);
        if !state.is_truncated && self.file.first(state.first.len())? != state.first {
            return Err(io::Error::other(format!(
                "it was truncated and written anew since it was read up to byte {position}; read it from the \
                 beginning with --restart"
            )));
        }
        Ok(state.is_truncated)
    }
}

/// Whether any file has content. Writers continue with the old file while the new ones are empty.
fn has_content(files: &VecDeque<Opened>) -> io::Result<bool> {
    files.iter().try_fold(false, |found, file| Ok(found || file.len()? > 0))
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
    position: u64,
    /// How long it has not grown since another file has its name.
    parting_ms: u32,
}

impl Read for Growing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stop.check()?;
            self.follow.look_for_newer()?;
            let count = self.follow.file.file.read_at(buffer, self.position)?;
            // Checked after reading. Then the bytes follow those that were read before.
            if self.follow.check(self.position)? {
                return Ok(0);
            }
            if count > 0 {
                self.follow.note_read(self.position, &buffer[..count]);
                self.position += count as u64;
                self.parting_ms = 0;
                return Ok(count);
            }
            if self.parting_ms >= PARTING_MS {
                return Ok(0);
            }
            if has_content(&self.follow.state().newer)? {
                self.parting_ms += PAUSE_MS;
            }
            self.stop.wait(PAUSE_MS)?;
        }
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
