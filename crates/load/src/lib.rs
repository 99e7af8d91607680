//! Fits the rows of files and tables to datasets, for every face of the database.
//!
//! A [`terrane_formats::Source`] gives batches. [`schema_of`] makes the schema of a new dataset of
//! it, [`fit_to`] has it read for an existing one, and [`fitted`] converts what may still differ.

#![forbid(unsafe_code)]

mod error;
mod numbers;
mod schema;
mod types;
mod union;
mod validity;

pub use error::LoadError;
pub use numbers::fitted;
pub use schema::{column_names, fit_to, new_columns, schema_of, schema_with};
pub use types::{attribute_type, file_column_type, file_key_type};
pub use union::Union;
pub use validity::Validity;
