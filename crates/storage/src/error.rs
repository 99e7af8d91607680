//! Storage errors: the operation, the file, and the reason.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A kind of storage call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening an existing file.
    Open,
    /// Creating a file.
    Create,
    /// Asking whether a name exists.
    Exists,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Asking for a file's length.
    Length,
    /// Truncating or extending a file.
    SetLength,
    /// Reserving space.
    Allocate,
    /// Making contents and length durable.
    Sync,
    /// Renaming a file.
    Rename,
    /// Removing a file's name.
    Remove,
    /// Listing a directory.
    List,
    /// Creating a directory.
    CreateDirectory,
    /// Making the names in a directory durable.
    SyncDirectory,
    /// Taking an advisory lock.
    Lock,
    /// Releasing an advisory lock.
    Unlock,
}

impl Operation {
    /// Whether it makes something durable. If it fails, data may be lost although a later call
    /// succeeds.
    pub fn is_sync(self) -> bool {
        matches!(self, Self::Sync | Self::SyncDirectory)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Exists => "look for",
            Self::Read => "read",
            Self::Write => "write",
            Self::Length => "get the length of",
            Self::SetLength => "set the length of",
            Self::Allocate => "reserve space for",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list directory",
            Self::CreateDirectory => "create directory",
            Self::SyncDirectory => "sync directory",
            Self::Lock => "lock",
            Self::Unlock => "unlock",
        })
    }
}

/// A failed storage call: the operation, the file, and the operating system's reason.
///
/// The message includes the reason. [`std::error::Error::source`] is therefore empty, so that a
/// printed chain of causes does not repeat it; [`StorageError::io_error`] gives it for inspection.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StorageError(Box<Failure>);

#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {cause}{}", self.place(), self.advice())]
struct Failure {
    operation: Operation,
    /// The directory that the name is relative to, if there is one.
    root: Option<PathBuf>,
    name: String,
    offset: Option<u64>,
    cause: io::Error,
}

impl Failure {
    /// A remedy, if the reason does not tell it.
    fn advice(&self) -> &'static str {
        match self.cause.raw_os_error().map(Errno::from_raw_os_error) {
            errno if is_too_many_files(errno) => {
                "; a store takes one open file for every component: raise the limit (ulimit -n)"
            }
            Some(Errno::FBIG) => {
                "; the process or the file system limits the size of files: raise the limit (ulimit -f)"
            }
            _ => "",
        }
    }

    fn place(&self) -> String {
        let name = match (&self.root, self.name.as_str()) {
            (None, "") => "(the root)".to_owned(),
            (None, name) => name.to_owned(),
            (Some(root), "") => root.display().to_string(),
            (Some(root), name) => root.join(name).display().to_string(),
        };
        match self.offset {
            Some(offset) => format!("{name} at byte {offset}"),
            None => name,
        }
    }
}

fn is_too_many_files(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

impl StorageError {
    /// A failure of `operation` on `name`, with a byte offset if there is one.
    pub fn new(
        operation: Operation,
        name: impl Into<String>,
        offset: Option<u64>,
        cause: impl Into<io::Error>,
    ) -> Self {
        Self(Box::new(Failure { operation, root: None, name: name.into(), offset, cause: cause.into() }))
    }

    /// Adds the directory that the name is relative to.
    pub fn below(mut self, root: &Path) -> Self {
        self.0.root = Some(root.to_path_buf());
        self
    }

    /// Adds that the file is not at the name any more by which it was opened.
    pub fn moved_to(mut self, place: &str) -> Self {
        self.0.root = None;
        self.0.name = place.to_owned();
        self
    }

    /// The location of the failure as text: the file or directory, and the byte if there is one.
    pub fn place(&self) -> String {
        self.0.place()
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Name of the file or directory, relative to the root (`""` is the root itself).
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Byte offset of the read or write that failed.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The operating system's reason.
    pub fn io_error(&self) -> &io::Error {
        &self.0.cause
    }

    /// Kind of the operating system's reason.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.cause.kind()
    }

    /// Whether the disk or the user's quota is full.
    pub fn is_storage_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether too many files are open, in the process or on the machine.
    pub fn is_too_many_files(&self) -> bool {
        is_too_many_files(self.0.cause.raw_os_error().map(Errno::from_raw_os_error))
    }

    /// Whether the name, or a directory on its path, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// Whether the name belongs to something else than a file, such as a directory.
    pub fn is_no_file(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput)
    }

    /// Whether the name exists already.
    pub fn is_already_exists(&self) -> bool {
        self.kind() == io::ErrorKind::AlreadyExists
    }

    /// Whether a read reached the end of the file.
    pub fn is_unexpected_end(&self) -> bool {
        self.kind() == io::ErrorKind::UnexpectedEof
    }
}

/// Adds the operation and the file to a reason.
pub trait Context<T> {
    /// Names the operation and the file.
    fn context(self, operation: Operation, name: &str, offset: Option<u64>) -> Result<T, StorageError>;

    /// Names the operation and the file, with the directory that it is relative to.
    fn context_below(
        self,
        root: &Path,
        operation: Operation,
        name: &str,
        offset: Option<u64>,
    ) -> Result<T, StorageError>
    where
        Self: Sized,
    {
        self.context(operation, name, offset).map_err(|error| error.below(root))
    }
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, operation: Operation, name: &str, offset: Option<u64>) -> Result<T, StorageError> {
        self.map_err(|cause| StorageError::new(operation, name, offset, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn message_says_what_where_and_why() {
        let error = StorageError::new(Operation::Write, "components/12.tc", Some(4096), Errno::NOSPC);
        assert!(
            error.to_string().starts_with("cannot write components/12.tc at byte 4096: No space left on device"),
            "{error}"
        );
        assert!(error.is_storage_full());
        let below = error.below(Path::new("/data/rides"));
        assert_eq!(below.place(), "/data/rides/components/12.tc at byte 4096");
        assert!(below.to_string().starts_with("cannot write /data/rides/components/12.tc at byte 4096: "), "{below}");
        let error = StorageError::new(Operation::List, "", None, Errno::NOENT);
        assert!(error.to_string().starts_with("cannot list directory (the root): No such file"), "{error}");
        assert!(error.is_not_found());
    }

    #[test]
    fn error_is_one_pointer_wide() {
        assert_eq!(size_of::<StorageError>(), size_of::<usize>());
    }
}
