//! Records from and to Arrow record batches, column by column, without a `Record` between.
//!
//! [`BatchRecords`] encodes the rows of an input batch for the store; [`BatchBuilder`]
//! collects stored records into an output batch. Columns are matched by name. Types are
//! resolved once per batch, so the work per row is a match and a copy per column.

mod builder;
mod column;
mod rows;

pub use crate::record::{RowError, RowGeometry};
pub use builder::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, BatchBuilder};
pub(crate) use rows::BatchKeys;
pub use rows::BatchRecords;

/// Why a batch does not fit its dataset, or a dataset its batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A column has a type that its attribute cannot take.
    #[error("column {column:?} is {found}, the dataset has {wanted}; cast it first")]
    Type {
        /// The column.
        column: String,
        /// Type of the batch's column.
        found: String,
        /// Type of the dataset's column.
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
    /// The batch lacks a column that it needs.
    #[error("the batch has no column {column:?}, which is the dataset's {role}")]
    MissingColumn {
        /// The column.
        column: String,
        /// What it is for.
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
    /// A batch cannot take more.
    #[error("the batch is full: it holds {rows} rows and {bytes} bytes of text and binary data; finish it first")]
    Full {
        /// Rows in it.
        rows: usize,
        /// Bytes of variable length in it.
        bytes: usize,
    },
    /// Arrow refused.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
}
