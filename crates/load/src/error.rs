//! Why a file or a table does not fit a dataset.

use arrow_schema::DataType;
use terrane::schema::SchemaError;

/// Why a source does not fit a dataset.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It has no geometry.
    #[error("{source_name}: no geometry and no coordinates were recognised (the columns are {columns})")]
    NoGeometry {
        /// The file or table.
        source_name: String,
        /// Its columns, with commas between them.
        columns: String,
    },
    /// Its columns are not those of a dataset.
    #[error("{source_name}: {error}")]
    Schema {
        /// The file or table.
        source_name: String,
        /// What is wrong.
        error: SchemaError,
    },
    /// A column has a type that datasets lack.
    #[error("{source_name}: column {column:?} is {found}, which datasets do not support")]
    UnsupportedColumn {
        /// The file or table.
        source_name: String,
        /// The column.
        column: String,
        /// Its type.
        found: DataType,
    },
}
