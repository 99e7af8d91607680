//! Why an output could not be written.

use std::io;

use arrow_schema::ArrowError;
use thiserror::Error;

/// Why an output could not be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The output refused bytes. For a closed pipe, the error has the kind `BrokenPipe`.
    #[error("cannot write the output: {0}")]
    Io(#[from] io::Error),
    /// A value cannot be written in this format.
    #[error("row {row} of the batch, column {column:?}: {reason}")]
    Value {
        /// The row in its batch, counted from 0.
        row: usize,
        /// The column.
        column: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// The encoder refused the data.
    #[error("cannot encode the output: {0}")]
    Encode(String),
    /// The schema lacks a column that the options name.
    #[error("the result has no column {0:?}; select it, or choose another output format")]
    MissingColumn(String),
    /// `write` or `finish` before `begin`.
    #[error("the output has not been begun")]
    NotBegun,
}

impl WriteError {
    /// Whether the reader of the output has closed it, which is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, WriteError::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn value(row: usize, column: &str, reason: impl ToString) -> WriteError {
        WriteError::Value { row, column: column.to_string(), reason: reason.to_string() }
    }
}

impl From<ArrowError> for WriteError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => WriteError::Io(error),
            error => WriteError::Encode(error.to_string()),
        }
    }
}
