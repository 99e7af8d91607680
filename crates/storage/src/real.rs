//! A directory of the operating system.
//!
//! Reads and writes are positioned system calls without a buffer of their own. After a call, the
//! data are in the page cache and survive a kill of the process. Locks are `flock` locks: they
//! belong to the open file and end with it or its process.

mod space;

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::error::Context;
use crate::root::create_durably;
use crate::{Backing, DiskSpace, File, LockKind, OpenMode, Operation, Result, RootLock, Storage, names};

/// A sync that takes longer is reported.
const SLOW_SYNC: Duration = Duration::from_secs(1);

/// Files below a directory of the operating system.
#[derive(Debug, Clone)]
pub struct RealStorage {
    /// The path as given, for messages.
    root: Arc<Path>,
    /// The absolute path, as the working directory may change.
    base: Arc<Path>,
    /// Device and inode of the locked directory.
    locked: Arc<OnceLock<(u64, u64)>>,
}

impl RealStorage {
    /// Uses `root`, which need not exist yet: `create_directory("")` creates it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let base = std::path::absolute(&root).unwrap_or_else(|_| root.clone());
        Self { root: root.into(), base: base.into(), locked: Arc::default() }
    }

    /// The directory that names are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn file_path(&self, operation: Operation, name: &str) -> Result<PathBuf> {
        names::check_file(name).context_below(&self.root, operation, name, None)?;
        self.check_in_place(operation).context_below(&self.root, operation, name, None)?;
        Ok(self.base.join(name))
    }

    fn directory_path(&self, operation: Operation, name: &str) -> Result<PathBuf> {
        names::check_directory(name).context_below(&self.root, operation, name, None)?;
        self.check_in_place(operation).context_below(&self.root, operation, name, None)?;
        Ok(if name.is_empty() { self.base.to_path_buf() } else { self.base.join(name) })
    }

    /// Fails before a change of names if the locked directory is not at its path any more. Another
    /// store, with the same file names, may be there now.
    fn check_in_place(&self, operation: Operation) -> io::Result<()> {
        let Some(locked) = self.locked.get() else { return Ok(()) };
        use Operation::{Create, CreateDirectory, Remove, Rename, SyncDirectory};
        let changes_names = matches!(operation, Create | CreateDirectory | Remove | Rename | SyncDirectory);
        let is_in_place = || fs::metadata(&self.base).is_ok_and(|metadata| identity(&metadata) == *locked);
        if changes_names && !is_in_place() {
            let reason = "the directory was moved or replaced while it was in use; reopen it at its present path";
            return Err(io::Error::other(reason));
        }
        Ok(())
    }

    fn open_directory(&self, directory: &str) -> Result<fs::File> {
        let path = self.directory_path(Operation::Open, directory)?;
        OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits().cast_signed()).open(path).context_below(
            &self.root,
            Operation::Open,
            directory,
            None,
        )
    }

    /// Names of the entries of a directory that `is_wanted` accepts. A symbolic link counts as its
    /// target.
    fn entries(
        &self,
        directory: &str,
        is_wanted: fn(&fs::FileType) -> bool,
        leads_to_wanted: fn(&Path) -> bool,
    ) -> Result<Vec<String>> {
        let path = self.directory_path(Operation::List, directory)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(path).context_below(&self.root, Operation::List, directory, None)? {
            let entry = entry.context_below(&self.root, Operation::List, directory, None)?;
            let kind = entry.file_type().context_below(&self.root, Operation::List, directory, None)?;
            let wanted = if kind.is_symlink() { leads_to_wanted(&entry.path()) } else { is_wanted(&kind) };
            // A name that is not UTF-8 cannot be one of the store.
            if let (true, Ok(name)) = (wanted, entry.file_name().into_string()) {
                found.push(name);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Refuses directories: only files are renamed.
    fn paths_to_rename(&self, from: &str, to: &str) -> Result<[PathBuf; 2]> {
        let from_path = self.file_path(Operation::Rename, from)?;
        let to_path = self.file_path(Operation::Rename, to)?;
        let both = || format!("{from} to {to}");
        let from_metadata =
            fs::symlink_metadata(&from_path).context_below(&self.root, Operation::Rename, &both(), None)?;
        let is_directory = |metadata: fs::Metadata| metadata.is_dir();
        if is_directory(from_metadata) || fs::symlink_metadata(&to_path).is_ok_and(is_directory) {
            return Err(Errno::ISDIR).context_below(&self.root, Operation::Rename, &both(), None);
        }
        Ok([from_path, to_path])
    }
}

/// The identity of a directory, whatever its path.
fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Storage for RealStorage {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let operation = if mode == OpenMode::CreateNew { Operation::Create } else { Operation::Open };
        let path = self.file_path(operation, name)?;
        let mut options = OpenOptions::new();
        // A pipe in the place of a file may never have another end, so opening must not wait.
        options.read(true).mode(0o644).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        match mode {
            OpenMode::Read => {}
            OpenMode::Write => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        let file = options.open(path).context_below(&self.root, operation, name, None)?;
        let kind = file.metadata().context_below(&self.root, operation, name, None)?.file_type();
        // The system opens a directory for reading and fails only at the first read.
        if kind.is_dir() {
            return Err(Errno::ISDIR).context_below(&self.root, operation, name, None);
        }
        if !kind.is_file() {
            let reason = "it is a pipe, a socket or a device, but should be a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
                .context_below(&self.root, operation, name, None);
        }
        Ok(Arc::new(RealFile {
            file,
            locked_by: AtomicU32::new(0),
            writable: mode != OpenMode::Read,
            root: self.root.clone(),
            base: self.base.clone(),
            name: name.to_owned(),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.directory_path(Operation::Exists, name)?;
        match fs::metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error).context_below(&self.root, Operation::Exists, name, None),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let [from_path, to_path] = self.paths_to_rename(from, to)?;
        let both = format!("{from} to {to}");
        if to_path.is_symlink() && !self.exists(to)? {
            let reason = format!("{to} is a link without a target; remove it, or create its target");
            let taken = io::Error::new(io::ErrorKind::AlreadyExists, reason);
            return Err(taken).context_below(&self.root, Operation::Rename, &both, None);
        }
        fs::rename(from_path, to_path).context_below(&self.root, Operation::Rename, &both, None)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        let [from_path, to_path] = self.paths_to_rename(from, to)?;
        let renamed = match renameat_with(CWD, &from_path, CWD, &to_path, RenameFlags::NOREPLACE) {
            // The file system, or the system, does not support it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::symlink_metadata(&to_path) {
                Ok(_) => Err(Errno::EXIST.into()),
                Err(_) => fs::rename(from_path, to_path),
            },
            renamed => renamed.map_err(io::Error::from),
        };
        renamed.context_below(&self.root, Operation::Rename, &format!("{from} to {to}"), None)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.file_path(Operation::Remove, name)?;
        fs::remove_file(path).context_below(&self.root, Operation::Remove, name, None)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        let path = self.directory_path(Operation::CreateDirectory, name)?;
        let created = if name.is_empty() {
            // No one else makes the root's own name durable.
            create_durably(&path, &mut |directory| fs::File::open(directory)?.sync_all())
        } else {
            fs::create_dir_all(&path)
        };
        created.context_below(&self.root, Operation::CreateDirectory, name, None)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.entries(directory, fs::FileType::is_file, Path::is_file)
    }

    fn list_directories(&self, directory: &str) -> Result<Vec<String>> {
        self.entries(directory, fs::FileType::is_dir, Path::is_dir)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        // If the directory cannot be opened, for example because descriptors are short, no sync has
        // failed.
        self.check_in_place(Operation::SyncDirectory).context_below(&self.root, Operation::Open, directory, None)?;
        let handle = self.open_directory(directory)?;
        note_slow(directory, || handle.sync_all()).context_below(&self.root, Operation::SyncDirectory, directory, None)
    }

    fn lock_root(&self) -> Result<Option<RootLock>> {
        let directory = self.open_directory("")?;
        match directory.try_lock() {
            Ok(()) => {
                let metadata = directory.metadata().context_below(&self.root, Operation::Lock, "", None)?;
                self.locked.get_or_init(|| identity(&metadata));
                Ok(Some(RootLock(Some(LockedFile::new(directory)))))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).context_below(&self.root, Operation::Lock, "", None),
        }
    }

    fn unix_time_ns(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn monotonic_ns(&self) -> u64 {
        let time = rustix::time::clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
    }

    fn space(&self) -> Option<DiskSpace> {
        let found = rustix::fs::statvfs(&*self.base).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // Some file systems, like a tmpfs without a limit, report nothing.
        (found.f_blocks > 0)
            .then(|| DiskSpace { total_bytes: bytes(found.f_blocks), free_bytes: bytes(found.f_bavail) })
    }

    fn boot_id(&self) -> Option<u128> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        u128::from_str_radix(&text.trim_end().replace('-', ""), 16).ok()
    }

    fn describe(&self) -> String {
        self.root.display().to_string()
    }
}

/// Unlocks a file that this process has locked. A fork would keep the lock otherwise, as it has the
/// open file too.
fn unlock_own(file: &fs::File, pid: u32) {
    // The lock of a fork is that of its parent.
    if pid == std::process::id() {
        // If it fails, the close unlocks the file.
        let _ = file.unlock();
    }
}

/// A locked file.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: fs::File,
    pid: u32,
}

impl LockedFile {
    fn new(file: fs::File) -> Self {
        Self { file, pid: std::process::id() }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        unlock_own(&self.file, self.pid);
    }
}

#[derive(Debug)]
pub(crate) struct RealFile {
    file: fs::File,
    /// The process that has locked it, or 0.
    locked_by: AtomicU32,
    writable: bool,
    /// The location of the storage, for messages.
    root: Arc<Path>,
    base: Arc<Path>,
    name: String,
}

impl RealFile {
    /// A file for reading and writing, with a name for messages.
    pub fn new(file: fs::File, root: Arc<Path>, name: &str) -> Self {
        Self { file, locked_by: AtomicU32::new(0), writable: true, base: root.clone(), root, name: name.to_owned() }
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        match *self.locked_by.get_mut() {
            0 => {}
            pid => unlock_own(&self.file, pid),
        }
    }
}

impl File for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).context_below(&self.root, Operation::Read, &self.name, Some(offset))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).context_below(&self.root, Operation::Write, &self.name, Some(offset))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().context_below(&self.root, Operation::Length, &self.name, None)?.len())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        if i64::try_from(length).is_err() {
            return Err(Errno::INVAL).context_below(&self.root, Operation::SetLength, &self.name, None);
        }
        self.file.set_len(length).context_below(&self.root, Operation::SetLength, &self.name, None)
    }

    fn allocate(&self, range: Range<u64>) -> Result<()> {
        if range.is_empty() || self.writable && space::is_whole_in_tmpfs(&self.file, range.end) {
            return Ok(());
        }
        space::reserve(&self.file, range).context_below(&self.root, Operation::Allocate, &self.name, None)
    }

    fn sync_data(&self) -> Result<()> {
        note_slow(&self.name, || self.file.sync_data()).context_below(&self.root, Operation::Sync, &self.name, None)
    }

    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        let taken = match kind {
            LockKind::Shared => self.file.try_lock_shared(),
            LockKind::Exclusive => self.file.try_lock(),
        };
        match taken {
            Ok(()) => {
                self.locked_by.store(std::process::id(), Ordering::Relaxed);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error).context_below(&self.root, Operation::Lock, &self.name, None),
        }
    }

    fn unlock(&self) -> Result<()> {
        self.file.unlock().context_below(&self.root, Operation::Unlock, &self.name, None)
    }

    fn has_name(&self) -> Result<bool> {
        let context =
            |result: io::Result<fs::Metadata>| result.context_below(&self.root, Operation::Exists, &self.name, None);
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        match fs::metadata(self.base.join(&self.name)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            found => Ok(identity(context(found)?) == identity(context(self.file.metadata())?)),
        }
    }

    fn backing(&self) -> Backing<'_> {
        if self.writable { Backing::Descriptor(self.file.as_fd()) } else { Backing::Unmappable }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Syncs a file or a directory; reports a sync that takes long.
fn note_slow(name: &str, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let begun = Instant::now();
    let synced = sync();
    let elapsed = begun.elapsed();
    if elapsed > SLOW_SYNC {
        tracing::warn!(name, elapsed_ms = elapsed.as_millis(), "a sync was slow");
    }
    synced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let storage = RealStorage::new(directory.path());
        rustix::fs::mkfifoat(rustix::fs::CWD, directory.path().join("pipe"), 0o600.into()).unwrap();
        storage.create_directory("directory").unwrap();
        for name in ["pipe", "directory"] {
            for mode in [OpenMode::Read, OpenMode::Write] {
                let error = storage.open(name, mode).unwrap_err();
                assert!(error.to_string().contains(name), "{error}");
            }
        }
        let read = storage.open("pipe", OpenMode::Read).unwrap_err();
        assert!(read.to_string().contains("should be a file"), "{read}");
    }
}
