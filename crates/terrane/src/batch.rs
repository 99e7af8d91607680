//! Records from and to Arrow record batches, column by column, without a `Record` between.
//!
//! [`BatchRecords`] encodes the rows of an input batch for the store. [`BatchBuilder`] collects
//! stored records into an output batch. Columns are matched by name. Types are resolved once per
//! batch, so the work per row is a match and a copy per column.

mod builder;
mod column;
mod rows;

pub use crate::record::{RowError, RowGeometry};
pub use builder::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, BatchBuilder};
pub(crate) use rows::BatchKeys;
pub use rows::{BatchRecords, keys_of};

/// Why a batch does not fit its dataset, or the reverse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The column's type cannot be stored in the attribute.
    #[error("column {column:?} is {found}, the dataset has {wanted}; cast it first")]
    Type {
        /// The column.
        column: String,
        /// Type of the column in the batch.
        found: String,
        /// Type of the column in the dataset.
        wanted: String,
    },
    /// The batch has a column that the dataset lacks.
    #[error("the dataset has no column {column:?} (it has {}); add the column or leave it out", known.join(", "))]
    UnknownColumn {
        /// The column.
        column: String,
        /// The dataset's columns.
        known: Vec<String>,
    },
    /// The batch lacks a required column.
    #[error("the batch has no column {column:?}, which is the dataset's {role}")]
    MissingColumn {
        /// The column.
        column: String,
        /// Its role in the dataset.
        role: &'static str,
    },
    /// A name occurs twice.
    #[error("there are two columns named {column:?}")]
    DuplicateColumn {
        /// The column.
        column: String,
    },
    /// A stored record does not fit its dataset.
    #[error(transparent)]
    Record(#[from] crate::record::DamagedRecord),
    /// A stored key does not fit its dataset.
    #[error(transparent)]
    Key(#[from] crate::key::KeyError),
    /// The batch is full.
    #[error("the batch is full: it holds {rows} rows and {bytes} bytes of text and binary data; finish it first")]
    Full {
        /// Rows in the batch.
        rows: usize,
        /// Its bytes of variable length.
        bytes: usize,
    },
    /// An error of Arrow.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
}
