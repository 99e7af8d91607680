//! The errors of the database, grouped by the caller's remedy.

use std::sync::Arc;

use terrane_storage::StorageError;

use crate::batch::BatchError;
use crate::condition::ConditionError;
use crate::key::{Key, KeyError};
use crate::record::{DamagedRecord, RowError};
use crate::schema::SchemaError;
use crate::value::ValueError;
use crate::words::{counted, first_of, nearest_to};

/// The result of a call into the database.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the database. [`Error::exit_code`] maps the variants to exit codes of a command
/// line.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call is wrong: change it.
    #[error("{0}")]
    Usage(String),
    /// No dataset has this name.
    #[error("there is no dataset {name:?}; {}", names_that_exist(name, existing))]
    UnknownDataset {
        /// The name asked for.
        name: String,
        /// The names that exist.
        existing: Vec<String>,
    },
    /// The handle's dataset was dropped, or replaced by an import: open the dataset that has the
    /// name now.
    #[error("{} was dropped or replaced; open the dataset that has the name now, if there is one", dataset_name(dataset.as_deref()))]
    Dropped {
        /// Its name, if known.
        dataset: Option<String>,
    },
    /// The store, the mode or the build cannot do this.
    #[error("{what} is not supported: {instead}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// The reason, and an alternative.
        instead: &'static str,
    },
    /// The store was opened for reading.
    #[error("the store is open for reading only; open it for writing to change it")]
    ReadOnly,
    /// A record or file was refused: correct the data.
    #[error("{}{}{reason}", row_prefix(*row), column_prefix(column.as_deref()))]
    Refused {
        /// Row or line of the input, from 1, if known.
        row: Option<u64>,
        /// The column with the wrong value, if known.
        column: Option<String>,
        /// The reason, and the remedy.
        reason: String,
    },
    /// A record with this key exists.
    #[error("a record with the key {key} exists already; use upsert to replace it")]
    DuplicateKey {
        /// The key.
        key: Key,
    },
    /// Another writer has changed a record since it was read.
    #[error("another writer has changed the record with the key {key} since it was read; read it and change it again")]
    Changed {
        /// Its key.
        key: Key,
    },
    /// Another process has the store open for writing.
    #[error("the store is open for writing in {}; wait until it is closed, or open it for reading", holder(*pid))]
    Locked {
        /// The process, if its number is known.
        pid: Option<u32>,
    },
    /// Stored bytes are damaged: restore a backup.
    #[error(
        "{file} is damaged at byte {offset}: {reason}; run `terrane check`, and restore a backup if it confirms this"
    )]
    Damaged {
        /// File below the store's directory.
        file: String,
        /// Byte offset of the damaged structure.
        offset: u64,
        /// The defect.
        reason: String,
    },
    /// A point of a backup is damaged, and was not restored: back up again, or restore an earlier
    /// point.
    #[error(
        "the backup at {backup} is damaged: {finding}; back up again, which replaces damaged files from the store, or restore an earlier point"
    )]
    DamagedBackup {
        /// Location of the backup.
        backup: String,
        /// File below its directory, offset and defect.
        finding: String,
    },
    /// No point of a backup has an intact manifest, so it is unknown which store its files belong
    /// to, and no point is added: back up to another directory.
    #[error("no point of the backup at {backup} can be read, {finding}; take the backup to another directory")]
    UnreadableBackup {
        /// Location of the backup.
        backup: String,
        /// File below its directory, offset and defect, for the newest point.
        finding: String,
    },
    /// A stored record or its index entry is damaged, although the checksum of its page is right:
    /// restore a backup.
    #[error(
        "{} is damaged: {reason}; run `terrane check`, and restore a backup if it confirms this",
        record_name(dataset.as_deref(), key.as_deref())
    )]
    DamagedRecord {
        /// Its dataset, if known.
        dataset: Option<String>,
        /// Its key, if known.
        key: Option<String>,
        /// The defect.
        reason: String,
    },
    /// Some components of a secondary index could not be opened ([`crate::Options::lenient`]), so
    /// the index cannot answer: rebuild it.
    #[error(
        "the index {index:?} of dataset {dataset:?} cannot be used: {reason}; \
         run `terrane check --repair` to rebuild it from the records"
    )]
    DamagedIndex {
        /// Its dataset.
        dataset: String,
        /// The index.
        index: String,
        /// The damage, with file and offset.
        reason: String,
    },
    /// All records are stored, but components could not be merged in the background. Searches are
    /// slower until they are. The cause names the remedy.
    #[error("all records are stored, but the components of dataset {dataset:?} could not be merged: {cause}")]
    Unmerged {
        /// The dataset, possibly not the one that was written to.
        dataset: String,
        /// Why the merge failed.
        #[source]
        cause: Box<Error>,
    },
    /// All records are stored, but obsolete log files could not be removed. They take space until
    /// the store is opened for writing again.
    #[error(
        "all records are stored, but obsolete log files could not be \
         removed: {cause}; reopening the store for writing removes them"
    )]
    Unreclaimed {
        /// Why the log could not remove them.
        #[source]
        cause: Box<Error>,
    },
    /// An index was not created. The records are unchanged. The cause names the remedy.
    #[error("the index {index:?} of dataset {dataset:?} was not created: {cause}")]
    Uncreated {
        /// Its dataset.
        dataset: String,
        /// The index.
        index: String,
        /// Why it failed.
        #[source]
        cause: Box<Error>,
    },
    /// All records are stored, but an interrupted creation of an index could not be completed, or a
    /// failed one could not be undone. Complete it ([`crate::Dataset::build_indexes`]) or drop the
    /// index.
    #[error(
        "the index {index:?} of dataset {dataset:?} was not completed: {cause}. All records are stored; \
         queries do not use this index. Create it again with the same options, reopen the store for writing, \
         or drop it"
    )]
    Unbuilt {
        /// The dataset, possibly not the one that was written to.
        dataset: String,
        /// The index, or the first of several.
        index: String,
        /// Why it failed.
        #[source]
        cause: Box<Error>,
    },
    /// A delete of several records ended early. It can be repeated.
    #[error("{cause}; {} before that; repeat the deletion to delete the others", were_deleted(*deleted))]
    PartlyDeleted {
        /// Number of records that are durably deleted.
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
    /// The operating system reported an error.
    #[error("{0}")]
    Storage(#[source] Arc<StorageError>),
    /// No space is left; nothing was changed.
    #[error("no space left for {what}; free some space and try again")]
    Full {
        /// What needed the space.
        what: String,
    },
    /// The handle refuses writes after a failed write or sync: reopen the store.
    #[error(
        "the store refuses writes after a failed write or sync ({cause}); reopen it to continue from the durable state"
    )]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The work needs more memory than the store may use.
    #[error("{what} needs {needed_bytes} bytes of memory, the limit leaves {available_bytes}; raise --memory-limit")]
    Memory {
        /// What needed the memory.
        what: String,
        /// Bytes that it needs.
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

    /// The error of later writes after this one.
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

    /// A wrong call. The message names the remedy.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Refused data, without a row or column.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { row: None, column: None, reason: reason.into() }
    }

    /// Damage found in `file` at `offset`.
    pub fn damaged(file: impl Into<String>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), offset, reason: reason.into() }
    }

    /// Damage in a record. [`Self::of_record`] may add the record's name.
    pub fn damaged_record(reason: impl Into<String>) -> Self {
        Self::DamagedRecord { dataset: None, key: None, reason: reason.into() }
    }

    /// Adds the name of the damaged record, if it is missing.
    pub fn of_record(self, dataset: &str, key: Option<String>) -> Self {
        match self {
            Self::DamagedRecord { dataset: None, key: None, reason } => {
                Self::DamagedRecord { dataset: Some(dataset.to_owned()), key, reason }
            }
            other => other,
        }
    }

    /// Adds the refused row's number (from 1), if it is missing.
    pub fn at_row(self, number: u64) -> Self {
        match self {
            Self::Refused { row: None, column, reason } => Self::Refused { row: Some(number), column, reason },
            other => other,
        }
    }

    /// Whether stored bytes are damaged.
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

    /// The underlying error, if it determines this error's kind.
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

    /// Adds the number of records that were deleted before a deletion failed, if there are any.
    pub fn after_deleting(self, deleted: u64) -> Self {
        if deleted == 0 { self } else { Self::PartlyDeleted { deleted, cause: Box::new(self) } }
    }

    /// The damage and its reason, without advice.
    pub(crate) fn finding(&self) -> String {
        match self {
            Self::Damaged { file, offset, reason } => format!("{file} is damaged at byte {offset}: {reason}"),
            Self::DamagedRecord { dataset, key, reason } => {
                format!("{} is damaged: {reason}", record_name(dataset.as_deref(), key.as_deref()))
            }
            other => other.to_string(),
        }
    }

    /// Whether the remedy is to correct the data and try again.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::DuplicateKey { .. } => true,
            _ => self.cause().is_some_and(Self::is_refusal),
        }
    }

    /// The exit code of a command that ends with this error. Success is 0.
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
            | Self::Changed { .. }
            | Self::Cancelled
            | Self::Failed(_) => Self::FAILURE,
        }
    }
}

/// A number of deleted records, with its verb.
fn were_deleted(count: u64) -> String {
    format!("{} {} deleted", counted(count, "record", "records"), if count == 1 { "was" } else { "were" })
}

/// All names if they are few, else the most similar ones first.
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
        // A sync that fails for lack of space changed something: earlier writes may be lost.
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

/// A condition is part of the call.
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
