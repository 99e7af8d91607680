//! What the crash controller's log holds.

use std::fmt;
use std::sync::Arc;

/// One entry of the log. Everything that can lose data in a crash reports here, in one
/// order: storage today, and pools of persistent memory (stores, flushes, fences) as a
/// further variant, which is why matches need a wildcard arm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A change of the disk, or a sync.
    Disk(DiskEvent),
    /// A note of the application, such as the number of an acknowledged write.
    Mark(u64),
}

/// A file, whatever its name: what an inode number is to the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// A change of files or names, or a call that makes changes durable.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskEvent {
    /// A new, empty file got a name.
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
    /// The file was cut or extended with zeros.
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
    /// A file moved to another name, replacing what had it.
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
    /// A sync failed: what was written since the last one counts as clean and is made durable
    /// by no later sync.
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
