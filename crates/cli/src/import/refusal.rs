//! A row that was refused, by the reader of its file or by the store.

use std::path::Path;

use arrow_array::RecordBatch;
use serde_json::Value;
use terrane::{RefusedRow, Snapshot};
use terrane_formats::{Batch, OutputFormat, RejectedRow, WriteOptions, writer};

/// Why a row was refused.
#[derive(Debug)]
pub struct Refusal {
    /// The data row of the file, from 1.
    pub row: Option<u64>,
    /// The line of a text file, from 1.
    pub line: Option<u64>,
    /// What is wrong, and in which column if known.
    pub reason: String,
    /// The row as it is in a text file.
    pub raw: Option<String>,
    /// The values of the row, if only they are known.
    pub values: Option<Value>,
    /// Whether another record has its key.
    pub is_duplicate: bool,
}

impl Refusal {
    /// A row that the reader of its file refused.
    pub fn by_reader(row: &RejectedRow) -> Self {
        Self {
            row: Some(row.row),
            line: row.line,
            reason: row.reason.clone(),
            raw: row.raw.clone(),
            values: None,
            is_duplicate: false,
        }
    }

    /// A row that does not fit the dataset.
    pub fn by_store(batch: &Batch, refused: RefusedRow) -> Self {
        Self {
            values: values_of(&batch.batch, refused.row),
            // The importer first compares rows with each other.
            ..Self::new(batch.rows.get(refused.row).copied(), &refused.error, false)
        }
    }

    /// A row that is refused at the end of the import, without its values; `existing` is the
    /// dataset before the import.
    ///
    /// # Errors
    /// When the dataset cannot be read.
    pub fn at_end(row: Option<u64>, error: &terrane::Error, existing: Option<&Snapshot>) -> terrane::Result<Self> {
        let is_stored = match (error, existing) {
            (terrane::Error::DuplicateKey { key }, Some(existing)) => existing.get(key)?.is_some(),
            _ => false,
        };
        Ok(Self::new(row, error, is_stored))
    }

    fn new(row: Option<u64>, error: &terrane::Error, is_stored: bool) -> Self {
        let (reason, is_duplicate) = match error {
            terrane::Error::DuplicateKey { key } if is_stored => {
                (format!("a record with the key {key} exists already in the dataset"), true)
            }
            terrane::Error::DuplicateKey { key } => (format!("an earlier row has the same key {key}"), true),
            other => (other.to_string(), false),
        };
        Self { row, line: None, reason, raw: None, values: None, is_duplicate }
    }

    /// Whether the row is known to have no value in a column.
    pub fn lacks(&self, column: &str) -> bool {
        self.values.as_ref().is_some_and(|values| values.get(column).is_none_or(Value::is_null))
    }

    /// The refusal as a message, with file, row and line.
    pub fn describe(&self, path: Option<&Path>) -> String {
        let path = path.map_or_else(|| "one of the files".to_string(), |path| path.display().to_string());
        let row = self.row.map_or_else(String::new, |row| format!(", row {row}"));
        let line = self.line.map_or_else(String::new, |line| format!(" (line {line})"));
        format!("{path}{row}{line}: {}", self.reason)
    }
}

/// A row as a JSON object; `None` if it has no JSON form.
fn values_of(batch: &RecordBatch, row: usize) -> Option<Value> {
    if row >= batch.num_rows() {
        return None;
    }
    let mut text = Vec::new();
    {
        let mut writer = writer(OutputFormat::Ndjson, &mut text, WriteOptions::default());
        writer.begin(batch.schema_ref()).ok()?;
        writer.write(&batch.slice(row, 1)).ok()?;
        writer.finish().ok()?;
    }
    serde_json::from_slice(&text).ok()
}
