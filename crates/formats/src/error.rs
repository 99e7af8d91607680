//! Errors of files, with the position in the file.
//!
//! A `FormatError` ends the reading of its file. A single bad row does not: it is returned as a
//! [`crate::RejectedRow`] and the caller decides.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use thiserror::Error;

/// The supported formats, for messages.
pub const SUPPORTED_FORMATS: &str = "CSV (also .gz and .zst), NDJSON, GeoJSON, GeoJSON text sequences, \
     Parquet, GeoParquet, Arrow IPC files and streams";

/// A position inside a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// The file as a whole.
    File,
    /// A byte offset from the start of the (decompressed) content.
    Byte(u64),
    /// A line of text, counted from 1.
    Line(u64),
    /// A data row, counted from 1.
    Row(u64),
    /// A column of a table.
    Column(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File => Ok(()),
            Location::Byte(offset) => write!(f, ", byte {offset}"),
            Location::Line(line) => write!(f, ", line {line}"),
            Location::Row(row) => write!(f, ", row {row}"),
            Location::Column(name) => write!(f, ", column {name:?}"),
        }
    }
}

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The operating system refused an operation.
    #[error("{}: cannot {action}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The content is of an unsupported format.
    #[error("{}: {found} is not supported; supported formats are {SUPPORTED_FORMATS}", .path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What the content looks like.
        found: String,
    },
    /// The file is broken: cut short, or not what its format says.
    #[error("{}{location}: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        location: Location,
        /// What is wrong there.
        reason: String,
    },
    /// The file is whole, but is refused.
    #[error("{}{location}: {reason}; {hint}", .path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Where in it.
        location: Location,
        /// What is not accepted.
        reason: String,
        /// What to do about it.
        hint: String,
    },
    /// A value of a table in memory is not what its type says.
    #[error("{}{}, column {column:?}: {reason}", .path.display(), row_suffix(*row))]
    Value {
        /// The table.
        path: PathBuf,
        /// The row, counted from 1, if one row has it.
        row: Option<u64>,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is in another reference system than the plane of the dataset.
    #[error("{}: the file is in {crs}, the dataset in {plane}; convert the file first", .path.display())]
    OtherPlane {
        /// The file.
        path: PathBuf,
        /// The system that it declares.
        crs: String,
        /// That of the dataset.
        plane: String,
    },
    /// The coordinates are in a reference system that cannot be converted.
    #[error("{}: coordinate reference system {crs}: {reason}; reproject the file to EPSG:4326 first, or import it as planar", .path.display())]
    Crs {
        /// The file.
        path: PathBuf,
        /// The reference system as the file names it.
        crs: String,
        /// Why it cannot be converted.
        reason: String,
    },
    /// The options name something that the file does not have.
    #[error("{}: {reason}", .path.display())]
    Usage {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

fn row_suffix(row: Option<u64>) -> String {
    row.map_or_else(String::new, |row| Location::Row(row).to_string())
}

impl FormatError {
    pub(crate) fn damaged(path: &Path, location: Location, reason: impl Into<String>) -> Self {
        FormatError::Damaged { path: path.to_path_buf(), location, reason: reason.into() }
    }

    pub(crate) fn refused(path: &Path, location: Location, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        FormatError::Refused { path: path.to_path_buf(), location, reason: reason.into(), hint: hint.into() }
    }

    pub(crate) fn usage(path: &Path, reason: impl Into<String>) -> Self {
        FormatError::Usage { path: path.to_path_buf(), reason: reason.into() }
    }

    /// An error of a decoder, or of a table's own reader, which is returned as it is.
    pub(crate) fn decoding(error: ArrowError, damaged: impl FnOnce(ArrowError) -> Self) -> Self {
        match error {
            ArrowError::ExternalError(inner) => match inner.downcast::<FormatError>() {
                Ok(own) => *own,
                Err(inner) => damaged(ArrowError::ExternalError(inner)),
            },
            error => damaged(error),
        }
    }

    /// Reading failed. A compressed stream that ends early or does not decode is damaged; any other
    /// error comes from the system.
    pub(crate) fn reading(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                FormatError::damaged(path, Location::File, "the file ends too early: it is cut short")
            }
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
                FormatError::damaged(path, Location::File, format!("the content cannot be decoded: {source}"))
            }
            _ => FormatError::Io { path: path.to_path_buf(), action: "read the file", source },
        }
    }
}
