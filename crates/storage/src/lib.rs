//! The parts of an operating system that Terrane uses: files, directories, locks, clocks.
//!
//! All I/O of the store goes through [`Storage`] and [`File`]. The same engine therefore runs on a
//! real disk ([`RealStorage`]) and on the storage of tests: in memory, failing at a chosen call, or
//! under a crash controller, which gets every [`event`]. This crate knows no file format.
#![forbid(unsafe_code)]

mod error;
pub mod event;
mod mapped;
pub mod names;
mod read_only;
mod real;
mod root;
pub mod sync;
mod temporary;

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use error::{Context, Operation, StorageError};
pub use mapped::MappedMemory;
pub use read_only::ReadOnlyStorage;
pub use real::RealStorage;
pub use temporary::TemporaryStorage;

/// Result of a storage call.
pub type Result<T> = std::result::Result<T, StorageError>;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that must not exist yet, for reading and writing.
    CreateNew,
}

/// Kind of an advisory lock that belongs to an open file and ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared: several holders at once, while nobody holds it exclusively.
    Shared,
    /// Exclusive: one holder.
    Exclusive,
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that it has in all.
    pub total_bytes: u64,
    /// Bytes that this process can still take.
    pub free_bytes: u64,
}

/// A directory tree: the store's root. Names are relative to it, with `/` between parts.
///
/// Durability is that of POSIX and no more. File contents are durable after [`File::sync_data`]. A
/// created, renamed or removed name is durable after [`Storage::sync_directory`] of its directory
/// (`""` is the root). The same holds for the names of directories. Only files are renamed and
/// removed.
pub trait Storage: Send + Sync + Debug {
    /// Opens or creates a file.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Whether a file or directory of this name exists.
    fn exists(&self, name: &str) -> Result<bool>;
    /// Atomically renames `from` to `to`, replacing the file of that name. A link without a target
    /// is not replaced: it stands for another place, which may be back later.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Renames `from` to a name that does not exist. If it exists, this is an error
    /// ([`StorageError::is_already_exists`]), and nothing changes. The call is atomic if the file
    /// system supports that. On others, a file that takes the name in between is replaced.
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file's name; open handles stay readable.
    fn remove(&self, name: &str) -> Result<()>;
    /// Creates a directory and its missing parents. If it exists, this is no error.
    fn create_directory(&self, name: &str) -> Result<()>;
    /// Names of the files (not directories) directly inside a directory, sorted, without the
    /// directory's own name.
    fn list(&self, directory: &str) -> Result<Vec<String>>;
    /// Names of the directories directly inside a directory, in the form of [`Storage::list`].
    fn list_directories(&self, directory: &str) -> Result<Vec<String>>;
    /// Makes the names inside a directory durable.
    fn sync_directory(&self, directory: &str) -> Result<()>;
    /// Nanoseconds since the Unix epoch.
    fn unix_time_ns(&self) -> u64;
    /// Nanoseconds on a clock that never goes back.
    fn monotonic_ns(&self) -> u64;
    /// The space of the file system, if it is known.
    fn space(&self) -> Option<DiskSpace> {
        None
    }
    /// A number that identifies the boot of the machine, if it is known.
    fn boot_id(&self) -> Option<u128> {
        None
    }
    /// Locks the storage's own directory as long as the returned value lives; `None` while another
    /// handle holds the lock. Unlike a lock file, the directory's lock does not disappear with a
    /// name. For storage that no other process can open, it always succeeds.
    fn lock_root(&self) -> Result<Option<RootLock>> {
        Ok(Some(RootLock(None)))
    }
    /// A name for messages, such as the directory's path.
    fn describe(&self) -> String;
}

/// Keeps others from locking the directory of a storage; see [`Storage::lock_root`].
#[derive(Debug)]
pub struct RootLock(#[expect(dead_code, reason = "held for its end, which unlocks")] Option<real::LockedFile>);

/// The source for a mapping of a file. The caller creates the mapping itself, since that takes code
/// that the compiler cannot check.
#[derive(Debug)]
pub enum Backing<'a> {
    /// A file of the operating system, mapped by its descriptor.
    Descriptor(BorrowedFd<'a>),
    /// A file in memory, whose words are reached by calls.
    Memory(Box<dyn MappedMemory>),
    /// It cannot be mapped for writing.
    Unmappable,
}

/// An open file. All positions are byte offsets from its start.
pub trait File: Send + Sync + Debug {
    /// Fills `buffer` from `offset`; [`StorageError::is_unexpected_end`] if the file is too short.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
    /// Writes all of `bytes` at `offset`, extending the file if needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> Result<()>;
    /// Reserves space for a range of bytes and extends the file to its end. Later writes in the
    /// range cannot meet a full disk, even where the file had holes or shared space with a copy. No
    /// one else may extend the file meanwhile.
    fn allocate(&self, range: Range<u64>) -> Result<()>;
    /// Makes the contents and the length durable.
    fn sync_data(&self) -> Result<()>;
    /// For fault injection: called instead of a [`File::sync_data`] that is made to fail. Storage
    /// that models durability then treats everything written since the last sync as clean, as Linux
    /// does, so no later sync makes it durable. Other storage does nothing.
    fn forget_unsynced(&self) -> Result<()> {
        Ok(())
    }
    /// Tries to take an advisory lock on the whole file; `false` if another handle (of any process)
    /// holds a conflicting one. A handle with a lock of the other kind releases it first, and has
    /// none if the result is `false`.
    fn try_lock(&self, kind: LockKind) -> Result<bool>;
    /// Releases the lock.
    fn unlock(&self) -> Result<()>;
    /// Whether the name by which it was opened still leads to this file.
    fn has_name(&self) -> Result<bool>;
    /// The source for a mapping. Reads, writes and syncs of the file see stores through a mapping.
    fn backing(&self) -> Backing<'_> {
        Backing::Unmappable
    }
    /// The name by which it was opened, for messages.
    fn name(&self) -> &str;
}
