//! Errors of the framework, grouped by what the caller has to do.

use terrane_storage::StorageError;

/// Result of a call into the framework.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the log-structured merge framework.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call.
    #[error("{0}")]
    Storage(#[source] std::sync::Arc<StorageError>),
    /// The content of a file is not what was written.
    #[error("{file} is damaged at byte {offset}: {reason}")]
    Damaged {
        /// Name of the file below the store's directory.
        file: String,
        /// Byte offset of the damaged structure.
        offset: u64,
        /// What does not fit.
        reason: String,
    },
    /// A file was written by an unknown, later version.
    #[error("{file} has format version {found}; this program knows versions up to {known}")]
    UnknownVersion {
        /// Name of the file.
        file: String,
        /// Version found.
        found: u32,
        /// Highest version known.
        known: u32,
    },
    /// An entry of the log is malformed. A replay adds its position.
    #[error("a log entry cannot be read: {reason}")]
    MalformedEntry {
        /// What does not fit.
        reason: String,
    },
    /// The log has an entry that a later version wrote.
    #[error("the log entry at LSN {lsn} has the unknown kind {kind}; open the store with a newer version")]
    UnknownEntryKind {
        /// Position of the entry.
        lsn: u64,
        /// Its kind.
        kind: u32,
    },
    /// An earlier write or sync failed, so the handle refuses writes.
    #[error(
        "the store refuses writes after a failed write or sync ({cause}); reopen it to continue from the durable \
        state"
    )]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// A write needs space that the disk does not have. Nothing was changed.
    #[error("no space left for {what}; free some space and try again")]
    Full {
        /// What needed the space.
        what: String,
    },
    /// The dataset was dropped.
    #[error("the dataset was dropped")]
    Dropped,
    /// An option has an impossible value.
    #[error("{0}")]
    Options(String),
    /// A caller's argument exceeds the limits of the structure, or is otherwise invalid.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Whether it is a failed sync, after which later syncs may succeed although data are lost.
    pub fn is_failed_sync(&self) -> bool {
        matches!(self, Self::Storage(error) if error.operation().is_sync())
    }

    /// Damage found in `file` at `offset`.
    pub fn damaged(file: impl Into<String>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), offset, reason: reason.into() }
    }

    /// Whether the error means that stored bytes are not what was written.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Storage(std::sync::Arc::new(error))
    }
}
