//! Events that files and pools report: the entries of a crash controller's log.

use std::fmt;
use std::sync::Arc;

/// One entry of the log. Everything that can lose data in a crash reports here, in one order. A cut
/// can therefore lie anywhere, across files and pools of persistent memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A change of the disk, or a sync.
    Disk(DiskEvent),
    /// A store to a mapped file, or an instruction that makes stores durable.
    Pool(PoolEvent),
    /// A note of the application, such as the number of an acknowledged write.
    Mark(u64),
}

/// The identity of a file, whatever its name, like an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// A change of files or names, or a call that makes changes durable.
#[derive(Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// A new, empty file was created.
    Create {
        /// The file.
        file: FileId,
        /// Its name.
        name: Arc<str>,
    },
    /// Bytes were written, possibly beyond the end.
    Write {
        /// The file.
        file: FileId,
        /// Where the first byte went.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// The file was truncated, or extended with zeros.
    SetLength {
        /// The file.
        file: FileId,
        /// Its new length.
        length: u64,
    },
    /// Space was reserved, and the file extended with zeros if it was shorter.
    Allocate {
        /// The file.
        file: FileId,
        /// Bytes reserved from the start.
        length: u64,
    },
    /// A file was renamed, replacing the file of the new name.
    Rename {
        /// The file.
        file: FileId,
        /// Its name before.
        from: Arc<str>,
        /// Its name after.
        to: Arc<str>,
    },
    /// A file lost its name.
    Remove {
        /// The file.
        file: FileId,
        /// The name it had.
        name: Arc<str>,
    },
    /// A directory was created.
    CreateDirectory {
        /// Its name.
        name: Arc<str>,
    },
    /// Contents and length of a file became durable.
    Sync {
        /// The file.
        file: FileId,
    },
    /// A sync failed. Everything written since the last sync counts as clean, and no later sync
    /// makes it durable.
    SyncFailed {
        /// The file.
        file: FileId,
    },
    /// The names in a directory became durable.
    SyncDirectory {
        /// The directory, `""` for the root.
        directory: Arc<str>,
    },
}

/// An operation of a thread on the words of mapped files.
#[derive(Clone, PartialEq, Eq)]
pub enum PoolEvent {
    /// A file was mapped. Stores to it become durable according to the domain.
    Map {
        /// The file.
        file: FileId,
        /// The part of stores that a power loss keeps.
        domain: PersistenceDomain,
    },
    /// An aligned word was stored.
    Store {
        /// The file.
        file: FileId,
        /// The thread.
        thread: ThreadNumber,
        /// Byte offset of the word.
        offset: u64,
        /// The word.
        value: u64,
    },
    /// The write-back of a cache line began. It is complete after the same thread's next fence.
    Flush {
        /// The file.
        file: FileId,
        /// The thread.
        thread: ThreadNumber,
        /// Byte offset of the line's start.
        line: u64,
        /// Name of the place in the code.
        site: &'static str,
    },
    /// A thread waited for its own write-backs, in all pools.
    Fence {
        /// The thread.
        thread: ThreadNumber,
        /// Name of the place in the code.
        site: &'static str,
    },
}

/// Identifies a thread in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadNumber(pub u64);

/// Bytes of a cache line: what one flush writes back.
pub const LINE_LENGTH: u64 = 64;

/// How far a store must get to survive a power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PersistenceDomain {
    /// The memory controller (ADR). A line is durable after a flush and a fence of the same thread,
    /// and may be at any time before. Of each line, independently of all others, a prefix of the
    /// stores to it is kept.
    #[default]
    Adr,
    /// The CPU caches (eADR). A store is durable once other threads can see it.
    Eadr,
    /// The page cache. Stores are durable after a sync of the file. Of each page, independently of
    /// all others, a prefix of the stores to it is kept.
    PageCache,
}

impl PersistenceDomain {
    /// Bytes that are written back together.
    pub fn unit_length(self) -> u64 {
        match self {
            Self::Adr | Self::Eadr => LINE_LENGTH,
            Self::PageCache => 4096,
        }
    }
}

impl fmt::Debug for PoolEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map { file, domain } => write!(formatter, "map file {} ({domain:?})", file.0),
            Self::Store { file, thread, offset, value } => {
                write!(formatter, "store {value:#x} at byte {offset} of file {} (thread {})", file.0, thread.0)
            }
            Self::Flush { file, thread, line, site } => {
                write!(formatter, "flush line {line} of file {} at {site} (thread {})", file.0, thread.0)
            }
            Self::Fence { thread, site } => write!(formatter, "fence at {site} (thread {})", thread.0),
        }
    }
}

impl fmt::Debug for DiskEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { file, name } => write!(formatter, "create {name} (file {})", file.0),
            Self::Write { file, offset, bytes } => {
                write!(formatter, "write {} bytes to file {} at byte {offset}", bytes.len(), file.0)
            }
            Self::SetLength { file, length } => {
                write!(formatter, "set length of file {} to {length}", file.0)
            }
            Self::Allocate { file, length } => {
                write!(formatter, "reserve {length} bytes for file {}", file.0)
            }
            Self::Rename { file, from, to } => {
                write!(formatter, "rename {from} to {to} (file {})", file.0)
            }
            Self::Remove { file, name } => write!(formatter, "remove {name} (file {})", file.0),
            Self::CreateDirectory { name } => write!(formatter, "create directory {name}"),
            Self::Sync { file } => write!(formatter, "sync file {}", file.0),
            Self::SyncFailed { file } => write!(formatter, "fail to sync file {}", file.0),
            Self::SyncDirectory { directory } => write!(formatter, "sync directory {directory:?}"),
        }
    }
}
