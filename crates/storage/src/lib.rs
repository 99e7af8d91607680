//! Everything Terrane asks of an operating system: files, directories, locks, clocks.
//!
//! All I/O of the store goes through [`Storage`] and [`File`], so that the same
//! engine runs on a real disk ([`RealStorage`]), in memory ([`MemoryStorage`]), on
//! storage that fails at a chosen call ([`FaultyStorage`]) and under the crash
//! controller ([`crash`]), which cuts the power after any event and enumerates what
//! the disk may then hold. This crate knows no file format.
#![forbid(unsafe_code)]

pub mod crash;
mod error;
mod faulty;
mod memory;
mod names;
mod read_only;
mod real;
mod root;
pub mod sync;

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use error::{Operation, StorageError};
pub use faulty::{Call, Fault, FaultPlan, FaultyStorage};
pub use memory::{MappedMemory, MemoryStorage, Reads, Touched, WordsRead};
pub use read_only::ReadOnlyStorage;
pub use real::RealStorage;

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
    /// Several holders at once, as long as nobody holds it exclusively.
    Shared,
    /// One holder.
    Exclusive,
}

/// A directory tree: the store's root. Names are relative to it, with `/` between parts.
///
/// Durability is what POSIX promises and no more: file contents are durable after
/// [`File::sync_data`], a created, renamed or removed name after [`Storage::sync_directory`]
/// of its directory (`""` is the root). That holds for directories too: the name of a created
/// one is durable after a sync of the directory above it. Only files are renamed and removed.
pub trait Storage: Send + Sync + Debug {
    /// Opens or creates a file.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>>;
    /// Whether a file or directory of this name exists.
    fn exists(&self, name: &str) -> Result<bool>;
    /// Atomically gives `from` the name `to`, replacing what had it. A link that leads nowhere is not replaced: somebody means
    /// another place by it, which may be back later.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Gives `from` a name that nothing has: else it is an error ([`StorageError::is_already_exists`]), and nothing changes. Atomically,
    /// but on file systems that cannot do that; there, what takes the name in between is replaced.
    fn rename_new(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file's name; open handles stay readable.
    fn remove(&self, name: &str) -> Result<()>;
    /// Creates a directory and its missing parents (no error if it is there).
    fn create_directory(&self, name: &str) -> Result<()>;
    /// Names of the files (not directories) directly inside a directory, sorted, without the
    /// directory's own name.
    fn list(&self, directory: &str) -> Result<Vec<String>>;
    /// Names of the directories directly inside a directory, as [`Storage::list`] gives files'.
    fn list_directories(&self, directory: &str) -> Result<Vec<String>>;
    /// Makes the names inside a directory durable.
    fn sync_directory(&self, directory: &str) -> Result<()>;
    /// Nanoseconds since the Unix epoch.
    fn unix_time_ns(&self) -> u64;
    /// Nanoseconds on a clock that never goes back.
    fn monotonic_ns(&self) -> u64;
    /// What is the same until the machine starts again and differs afterwards, if that is known.
    fn boot_id(&self) -> Option<u128> {
        None
    }
    /// Locks the storage's own directory, which unlike a file in it is not taken away by whoever removes a name, for as
    /// long as what is returned lives; `None` while another handle holds it. Storage that no other process can open
    /// has nobody to keep out.
    fn lock_root(&self) -> Result<Option<RootLock>> {
        Ok(Some(RootLock(None)))
    }
    /// A name for messages, such as the directory's path.
    fn describe(&self) -> String;
}

/// Keeps others from locking the directory of a storage; see [`Storage::lock_root`].
#[derive(Debug)]
pub struct RootLock(#[expect(dead_code, reason = "held for its end, which unlocks")] Option<std::fs::File>);

/// What a mapping of a file is made of. The mapping itself is made by who needs it, since it takes
/// code that the compiler cannot check.
#[derive(Debug)]
pub enum Backing<'a> {
    /// A file of the operating system, mapped by its descriptor.
    Descriptor(BorrowedFd<'a>),
    /// A file in memory, whose words are reached by calls.
    Memory(MappedMemory),
    /// It cannot be mapped for writing.
    Unmappable,
}

/// An open file. All positions are byte offsets from its start.
pub trait File: Send + Sync + Debug {
    /// Fills `buffer` from `offset`; [`StorageError::is_unexpected_end`] if the file is too short.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
    /// Writes all of `bytes` at `offset`, extending the file if need be.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, length: u64) -> Result<()>;
    /// Reserves space for a range of bytes (and extends the file to its end), so that later writes
    /// there cannot meet a full disk: also where the file has holes, or shares space with a copy.
    /// Nobody else may make the file longer meanwhile.
    fn allocate(&self, range: Range<u64>) -> Result<()>;
    /// Makes the contents and the length durable.
    fn sync_data(&self) -> Result<()>;
    /// For fault injection, called in place of a [`File::sync_data`] that is made to fail: storage
    /// that models durability takes what was written since the last sync for clean, as Linux
    /// does, so that no later sync makes it durable. Other storage does nothing.
    fn forget_unsynced(&self) -> Result<()> {
        Ok(())
    }
    /// Tries to take an advisory lock on the whole file; `false` if another handle (of any
    /// process) holds a conflicting one. A handle that holds a lock of the other kind gives
    /// it back first, and has none if the answer is `false`.
    fn try_lock(&self, kind: LockKind) -> Result<bool>;
    /// Gives the lock back.
    fn unlock(&self) -> Result<()>;
    /// Whether the name it was opened by still leads to it, and not to nothing or another file.
    fn has_name(&self) -> Result<bool>;
    /// What it can be mapped by. Reads, writes and syncs of the file see what is stored through a mapping.
    fn backing(&self) -> Backing<'_> {
        Backing::Unmappable
    }
    /// The name it was opened by, for messages.
    fn name(&self) -> &str;
}
