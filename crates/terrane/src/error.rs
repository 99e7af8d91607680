//! The errors of the database, grouped by what the caller has to do.

use std::sync::Arc;

use terrane_storage::StorageError;

use crate::batch::BatchError;
use crate::condition::ConditionError;
use crate::key::{Key, KeyError};
use crate::record::{DamagedRecord, RowError};
use crate::schema::SchemaError;
use crate::value::ValueError;
use crate::words::{counted, first_of, nearest_to};

/// Result of a call into the database.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. [`Error::exit_code`] sorts the variants for a command line.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call is wrong: change it.
    #[error("{0}")]
    Usage(String),
    /// There is no such dataset.
    #[error("there is no dataset {name:?}; {}", names_that_exist(name, existing))]
    UnknownDataset {
        /// The name asked for.
        name: String,
        /// The names that exist.
        existing: Vec<String>,
    },
    /// The dataset of this handle was dropped, or replaced by an import: open the one that has the name now.
    #[error("{} was dropped or replaced; open the dataset that has the name now, if there is one", dataset_name(dataset.as_deref()))]
    Dropped {
        /// Its name, where that is known.
        dataset: Option<String>,
    },
    /// The store, the mode or the build cannot do this.
    #[error("{what} is not supported: {instead}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why, and what there is.
        instead: &'static str,
    },
    /// The store was opened for reading.
    #[error("the store is open for reading only; open it for writing to change it")]
    ReadOnly,
    /// A record or file was refused: correct the data.
    #[error("{}{}{reason}", row_prefix(*row), column_prefix(column.as_deref()))]
    Refused {
        /// Row or line of the input, from 1, if it has any.
        row: Option<u64>,
        /// The column at fault, if one is.
        column: Option<String>,
        /// What does not fit and what would.
        reason: String,
    },
    /// A record with this key exists already.
    #[error("a record with the key {key} exists already; use upsert to replace it")]
    DuplicateKey {
        /// The key.
        key: Key,
    },
    /// Another process has the store open for writing.
    #[error("the store is open for writing in {}; wait until it is closed, or open it for reading", holder(*pid))]
    Locked {
        /// The process, if it left its number.
        pid: Option<u32>,
    },
    /// Stored bytes are not what was written: restore a backup.
    #[error(
        "{file} is damaged at byte {offset}: {reason}; run `terrane check`, and restore a backup if it confirms this"
    )]
    Damaged {
        /// File below the store's directory.
        file: String,
        /// Byte offset of the damaged structure.
        offset: u64,
        /// What does not fit.
        reason: String,
    },
    /// A point of a backup is not what was written, and was not restored: take the backup again, or restore an earlier point.
    #[error(
        "the backup at {backup} is damaged: {finding}; take it again, which copies anew what the store still has, or restore an earlier point"
    )]
    DamagedBackup {
        /// Where it is.
        backup: String,
        /// File below its directory, offset, and what does not fit.
        finding: String,
    },
    /// No point of a backup has a manifest that is what was written, so that it is not known whose its files are, and none is added
    /// to them: take the backup to another directory.
    #[error("no point of the backup at {backup} can be read, {finding}; take the backup to another directory")]
    UnreadableBackup {
        /// Where it is.
        backup: String,
        /// File below its directory, offset, and what does not fit, of the newest point.
        finding: String,
    },
    /// A stored record, or what an index says of one, is not what was written, though its page is:
    /// restore a backup.
    #[error(
        "{} is damaged: {reason}; run `terrane check`, and restore a backup if it confirms this",
        record_name(dataset.as_deref(), key.as_deref())
    )]
    DamagedRecord {
        /// Its dataset, where that is known.
        dataset: Option<String>,
        /// Its key, where that is known.
        key: Option<String>,
        /// What does not fit.
        reason: String,
    },
    /// The components of a secondary index could not all be opened ([`crate::Options::lenient`]), so
    /// it cannot answer: have it rebuilt.
    #[error(
        "the index {index:?} of dataset {dataset:?} cannot be used: {reason}; \
         run `terrane check --repair` to rebuild it from the records"
    )]
    DamagedIndex {
        /// Its dataset.
        dataset: String,
        /// The index.
        index: String,
        /// What is damaged, with file and offset.
        reason: String,
    },
    /// Everything that was written is kept, but components could not be merged in the background: the
    /// store is as good as it was, only slower to search than it could be. The cause says what to do.
    #[error(
        "everything that was written is kept, but the components of dataset {dataset:?} could not be merged: {cause}"
    )]
    Unmerged {
        /// The dataset, which need not be one that was written to.
        dataset: String,
        /// Why the merge failed.
        #[source]
        cause: Box<Error>,
    },
    /// Everything that was written is kept, but files of the log that are needed no more could not be
    /// given up: they take space until the store is opened to write again.
    #[error(
        "everything that was written is kept, but files of the log that are needed no more could not be given \
         up: {cause}; they are when the store is opened to write again"
    )]
    Unreclaimed {
        /// Why the log could not give them up.
        #[source]
        cause: Box<Error>,
    },
    /// An index could not be created, and there is none of that name; the records are as they were. The cause says what to do.
    #[error("the index {index:?} of dataset {dataset:?} could not be created, and there is none of that name: {cause}")]
    Uncreated {
        /// Its dataset.
        dataset: String,
        /// The index.
        index: String,
        /// Why it failed.
        #[source]
        cause: Box<Error>,
    },
    /// Everything that was written is kept, but an index whose creation was interrupted could not be completed, or one
    /// whose creation failed could not be dropped: have it completed ([`crate::Dataset::build_indexes`]), or drop it.
    #[error(
        "everything that was written is kept, but the index {index:?} of dataset {dataset:?} remains unfinished, and queries go \
         without it: {cause}; then create it again as it was asked for, or open the store to write, which completes it; \
         or drop it"
    )]
    Unbuilt {
        /// The dataset, which need not be one that was written to.
        dataset: String,
        /// The index, or the first of several.
        index: String,
        /// Why it failed.
        #[source]
        cause: Box<Error>,
    },
    /// A deletion of several records ended before all of them were deleted; it can be repeated.
    #[error("{cause}; {} before that, and the same deletion again goes on with the others", were_deleted(*deleted))]
    PartlyDeleted {
        /// Records that are deleted, durably.
        deleted: u64,
        /// Why it ended.
        #[source]
        cause: Box<Error>,
    },
    /// A file was written by a later version of the program.
    #[error("{file} has format version {found}; this program knows versions up to {known}, so use a newer one")]
    UnknownVersion {
        /// The file.
        file: String,
        /// Version found.
        found: u32,
        /// Highest version known.
        known: u32,
    },
    /// The operating system refused a call.
    #[error("{0}")]
    Storage(#[source] Arc<StorageError>),
    /// No space is left; nothing was changed.
    #[error("no space left for {what}; free some space and try again")]
    Full {
        /// What needed the space.
        what: String,
    },
    /// The handle refuses writes after a failed write or sync: reopen the store.
    #[error("the store refuses writes after a failed write or sync ({cause}); reopen it to go on from what is durable")]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The work needs more memory than the store may use.
    #[error("{what} needs {needed_bytes} bytes of memory, the limit leaves {available_bytes}; raise --memory-limit")]
    Memory {
        /// What needed the memory.
        what: String,
        /// Bytes it needs.
        needed_bytes: u64,
        /// Bytes that were available.
        available_bytes: u64,
    },
    /// The caller stopped the work.
    #[error("cancelled")]
    Cancelled,
    /// Something else failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Whether too many files are open.
    pub(crate) fn is_too_many_files(&self) -> bool {
        matches!(self, Self::Storage(error) if error.is_too_many_files())
    }

    /// Refuses writes because of this error.
    pub(crate) fn poisoned(&self) -> Self {
        match self {
            Self::Poisoned { .. } => self.clone(),
            Self::Full { what } => Self::Poisoned { cause: format!("no space left for {what}") },
            other => Self::Poisoned { cause: other.to_string() },
        }
    }

    /// Exit code of a command that ends with this error.
    pub const FAILURE: i32 = 1;
    /// Exit code for a wrong call.
    pub const USAGE: i32 = 2;
    /// Exit code for damage.
    pub const CORRUPTION: i32 = 3;
    /// Exit code for a store that another process holds.
    pub const LOCKED: i32 = 4;
    /// Exit code for refused data.
    pub const REFUSED: i32 = 5;

    /// A wrong call, in words that say what to do.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Refused data without a row or column.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { row: None, column: None, reason: reason.into() }
    }

    /// Damage found in `file` at `offset`.
    pub fn damaged(file: impl Into<String>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), offset, reason: reason.into() }
    }

    /// Damage of a record, of which [`Self::of_record`] may say more.
    pub fn damaged_record(reason: impl Into<String>) -> Self {
        Self::DamagedRecord { dataset: None, key: None, reason: reason.into() }
    }

    /// Says which record is damaged, where that is not said yet.
    pub fn of_record(self, dataset: &str, key: Option<String>) -> Self {
        match self {
            Self::DamagedRecord { dataset: None, key: None, reason } => {
                Self::DamagedRecord { dataset: Some(dataset.to_owned()), key, reason }
            }
            other => other,
        }
    }

    /// Says which row of the input (from 1) was refused, where that is not said yet.
    pub fn at_row(self, number: u64) -> Self {
        match self {
            Self::Refused { row: None, column, reason } => Self::Refused { row: Some(number), column, reason },
            other => other,
        }
    }

    /// Whether stored bytes are not what was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. }
            | Self::DamagedBackup { .. }
            | Self::UnreadableBackup { .. }
            | Self::DamagedRecord { .. }
            | Self::DamagedIndex { .. } => true,
            _ => self.cause().is_some_and(Self::is_damage),
        }
    }

    /// The error that another one comes from whose kind is this one's too.
    fn cause(&self) -> Option<&Self> {
        match self {
            Self::Unmerged { cause, .. }
            | Self::Unreclaimed { cause }
            | Self::Uncreated { cause, .. }
            | Self::Unbuilt { cause, .. }
            | Self::PartlyDeleted { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Says that so many records had been deleted before a deletion failed, if there were any.
    pub fn after_deleting(self, deleted: u64) -> Self {
        if deleted == 0 { self } else { Self::PartlyDeleted { deleted, cause: Box::new(self) } }
    }

    /// What is damaged and why, without advice.
    pub(crate) fn finding(&self) -> String {
        match self {
            Self::Damaged { file, offset, reason } => format!("{file} is damaged at byte {offset}: {reason}"),
            Self::DamagedRecord { dataset, key, reason } => {
                format!("{} is damaged: {reason}", record_name(dataset.as_deref(), key.as_deref()))
            }
            other => other.to_string(),
        }
    }

    /// Whether correcting the data and trying again is the way on.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::DuplicateKey { .. } => true,
            _ => self.cause().is_some_and(Self::is_refusal),
        }
    }

    /// The exit code of a command that ends with this error; success is 0.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Usage(_)
            | Self::UnknownDataset { .. }
            | Self::Dropped { .. }
            | Self::Unsupported { .. }
            | Self::ReadOnly => Self::USAGE,
            Self::Refused { .. } | Self::DuplicateKey { .. } => Self::REFUSED,
            Self::Locked { .. } => Self::LOCKED,
            Self::Damaged { .. }
            | Self::DamagedBackup { .. }
            | Self::UnreadableBackup { .. }
            | Self::DamagedRecord { .. }
            | Self::DamagedIndex { .. } => Self::CORRUPTION,
            Self::Unmerged { cause, .. }
            | Self::Unreclaimed { cause }
            | Self::Uncreated { cause, .. }
            | Self::Unbuilt { cause, .. }
            | Self::PartlyDeleted { cause, .. } => cause.exit_code(),
            Self::UnknownVersion { .. }
            | Self::Storage(_)
            | Self::Full { .. }
            | Self::Poisoned { .. }
            | Self::Memory { .. }
            | Self::Cancelled
            | Self::Failed(_) => Self::FAILURE,
        }
    }
}

/// How many records were deleted, with its verb.
fn were_deleted(count: u64) -> String {
    format!("{} {} deleted", counted(count, "record", "records"), if count == 1 { "was" } else { "were" })
}

/// All names if they are few, else those most like the wanted one first.
fn names_that_exist(wanted: &str, existing: &[String]) -> String {
    if existing.is_empty() {
        return "the store has none".to_owned();
    }
    let mut existing = existing.to_vec();
    existing.sort_unstable();
    format!("the store has {}", first_of(&nearest_to(wanted, &existing), ", "))
}

fn record_name(dataset: Option<&str>, key: Option<&str>) -> String {
    match (dataset, key) {
        (Some(dataset), Some(key)) => format!("the record with key {key} of dataset {dataset:?}"),
        (Some(dataset), None) => format!("a record of dataset {dataset:?}"),
        (None, Some(key)) => format!("the record with key {key}"),
        (None, None) => "a stored record".to_owned(),
    }
}

fn dataset_name(dataset: Option<&str>) -> String {
    dataset.map_or_else(|| "the dataset".to_owned(), |dataset| format!("dataset {dataset:?}"))
}

fn row_prefix(row: Option<u64>) -> String {
    row.map_or_else(String::new, |row| format!("row {row}: "))
}

fn column_prefix(column: Option<&str>) -> String {
    column.map_or_else(String::new, |column| format!("column {column:?}: "))
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Arc::new(error).into()
    }
}

impl From<Arc<StorageError>> for Error {
    fn from(error: Arc<StorageError>) -> Self {
        // A sync that fails for want of space changed something: what it was for may be lost.
        if error.is_storage_full() && !error.operation().is_sync() {
            Self::Full { what: error.place() }
        } else {
            Self::Storage(error)
        }
    }
}

impl From<terrane_lsm::Error> for Error {
    fn from(error: terrane_lsm::Error) -> Self {
        use terrane_lsm::Error as Lsm;
        match error {
            Lsm::Storage(error) => error.into(),
            Lsm::Damaged { file, offset, reason } => Self::Damaged { file, offset, reason },
            Lsm::UnknownVersion { file, found, known } => Self::UnknownVersion { file, found, known },
            Lsm::Poisoned { cause } => Self::Poisoned { cause },
            Lsm::Full { what } => Self::Full { what },
            Lsm::Dropped => Self::Dropped { dataset: None },
            Lsm::Options(reason) => Self::Usage(reason),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<RowError> for Error {
    fn from(error: RowError) -> Self {
        Self::Refused { row: None, column: error.column, reason: error.reason }
    }
}

impl From<DamagedRecord> for Error {
    fn from(error: DamagedRecord) -> Self {
        Self::damaged_record(format!("at its byte {}, {}", error.offset, error.reason))
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Damaged { .. } => Self::damaged_record(error.to_string()),
            _ => Self::refused(error.to_string()),
        }
    }
}

impl From<ValueError> for Error {
    fn from(error: ValueError) -> Self {
        Self::refused(error.to_string())
    }
}

impl From<SchemaError> for Error {
    fn from(error: SchemaError) -> Self {
        match error {
            SchemaError::UnknownColumn { .. } | SchemaError::TakenName(_) | SchemaError::CannotDrop { .. } => {
                Self::Usage(error.to_string())
            }
            _ => Self::refused(error.to_string()),
        }
    }
}

/// A condition is a part of the call.
impl From<ConditionError> for Error {
    fn from(error: ConditionError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Record(error) => error.into(),
            BatchError::Key(error) => error.into(),
            BatchError::Full { .. } => Self::Failed(error.to_string()),
            BatchError::UnknownColumn { .. } | BatchError::DuplicateColumn { .. } => Self::Usage(error.to_string()),
            BatchError::Type { .. } | BatchError::MissingColumn { .. } | BatchError::Arrow(_) => {
                Self::refused(error.to_string())
            }
        }
    }
}
