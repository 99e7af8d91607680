//! `insert --atomic`: collects the records of an input until it ends, then inserts them in one
//! transaction or not at all.
//!
//! Changes of the schema wait with the records. They are collected in a schema of their own, which
//! the dataset gets at the end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use terrane::batch::BatchRecords;
use terrane::schema::{ColumnType, Schema};
use terrane::{Dataset, Error, Key, OnConflict, Value};

use super::batch;
use super::check_fits;
use super::reason_of;
use super::row::Row;
use crate::failure::Failure;

/// Rows per batch.
const BATCH_ROWS: usize = 1000;

/// Collected records.
#[derive(Debug)]
pub struct AtomicRows {
    rows: Vec<Row>,
    /// The schema that the dataset will have; `None` before the first row.
    schema: Option<Arc<Schema>>,
    bytes: usize,
    bytes_max: usize,
}

/// Why a row prevents the insertion of all, with its line.
pub type Refusal = (u64, String);

impl AtomicRows {
    /// Creates an empty one for at most `bytes_max` of text.
    pub fn new(bytes_max: usize) -> Self {
        Self { rows: Vec::new(), schema: None, bytes: 0, bytes_max }
    }

    /// The schema of the dataset with the rows so far, if they change it.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.schema.as_ref()
    }

    /// Adds a row of a schema, of `bytes` bytes of text; or returns why it is refused.
    pub fn add(&mut self, row: Row, schema: &Schema, bytes: usize) -> Result<Result<(), String>, Failure> {
        self.bytes += bytes;
        if self.bytes > self.bytes_max {
            return Err(Error::Memory {
                what: "what an input brings to be inserted by one transaction".into(),
                needed_bytes: self.bytes as u64,
                available_bytes: self.bytes_max as u64,
            }
            .into());
        }
        if self.schema.is_none() || row.changes_schema() {
            let after = row.schema_after(schema);
            if let Err(reason) = check_fits(&row, &after)? {
                return Ok(Err(reason));
            }
            if let Err(reason) = row.widened.iter().try_for_each(|name| self.widen(name)) {
                return Ok(Err(reason));
            }
            self.schema = Some(Arc::new(after));
        }
        self.rows.push(row);
        Ok(Ok(()))
    }

    /// Converts the integers of a column to floats in the collected rows, if all of them are exact.
    fn widen(&mut self, name: &str) -> Result<(), String> {
        let integers = || {
            let values =
                self.rows.iter().flat_map(|row| row.values.iter().map(|(name, value)| (row.line, name, value)));
            values.filter_map(|(line, column, value)| match value {
                Value::Int(integer) if column == name => Some((line, *integer)),
                _ => None,
            })
        };
        if let Some((line, integer)) = integers().find(|(_, integer)| *integer as f64 as i128 != i128::from(*integer)) {
            return Err(format!(
                "column {name:?}: with this number it would become float64, which cannot hold {integer} of line {line} exactly"
            ));
        }
        for (column, value) in self.rows.iter_mut().flat_map(|row| &mut row.values) {
            if let Value::Int(integer) = value
                && column == name
            {
                *value = Value::Float64(*integer as f64);
            }
        }
        Ok(())
    }

    /// Inserts all rows into the dataset, which is created if there is none. Returns the keys of
    /// the stored rows, or why none is inserted.
    pub fn insert(
        mut self,
        dataset: Option<&Dataset>,
        on_conflict: OnConflict,
        create: impl FnOnce(&Schema) -> Result<Dataset, Failure>,
    ) -> Result<Result<Vec<Key>, Vec<Refusal>>, Failure> {
        let Some(schema) = self.schema.take() else { return Ok(Ok(Vec::new())) };
        let mut refusals = self.misfits(&schema)?;
        if on_conflict == OnConflict::Refuse {
            refusals.extend(self.duplicates(dataset)?);
        }
        if !refusals.is_empty() {
            refusals.sort_by_key(|(line, _)| *line);
            return Ok(Err(refusals));
        }
        // From here on nothing is refused, except a column that cannot be changed.
        let dataset = match dataset {
            Some(dataset) => {
                change(dataset, &schema)?;
                dataset.clone()
            }
            None => create(&schema)?,
        };
        let (schema, mut keys) = (dataset.schema(), Vec::with_capacity(self.rows.len()));
        let mut transaction = dataset.atomic_batch();
        for rows in self.batches() {
            let outcome = transaction.push(&batch::of_rows(rows, &schema)?, on_conflict)?;
            keys.extend(outcome.keys);
            if let Some(refused) = outcome.refused.into_iter().next() {
                return Err(refused.error.into());
            }
        }
        transaction.commit()?;
        Ok(Ok(last_of_each(keys)))
    }

    /// The rows in runs that bring keys throughout, or none.
    fn batches(&self) -> impl Iterator<Item = &[Row]> {
        let alike = self.rows.chunk_by(|row, next| row.key.is_some() == next.key.is_some());
        alike.flat_map(|rows| rows.chunks(BATCH_ROWS))
    }

    /// The rows that the schema does not accept.
    fn misfits(&self, schema: &Schema) -> Result<Vec<Refusal>, Failure> {
        let (mut refusals, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new());
        for rows in self.batches() {
            let batch = batch::of_rows(rows, schema)?;
            let mut records = BatchRecords::new(&batch, schema).map_err(Error::from)?;
            for (number, row) in rows.iter().enumerate() {
                key.clear();
                value.clear();
                if let Err(error) = records.encode_row(number, &mut key, &mut value) {
                    refusals.push((row.line, Error::from(error).to_string()));
                }
            }
        }
        Ok(refusals)
    }

    /// The rows whose key is stored already, or occurs in an earlier row.
    fn duplicates(&self, dataset: Option<&Dataset>) -> Result<Vec<Refusal>, Failure> {
        let (mut refusals, mut lines) = (Vec::new(), HashMap::with_capacity(self.rows.len()));
        for (line, key) in self.rows.iter().filter_map(|row| Some((row.line, row.key.as_ref()?))) {
            if let Some(first) = lines.insert(key, line) {
                refusals.push((line, format!("line {first} has the same key {key}; --upsert takes the last record")));
            } else if let Some(dataset) = dataset
                && dataset.get(key)?.is_some()
            {
                refusals.push((line, reason_of(&Error::DuplicateKey { key: key.clone() })));
            }
        }
        Ok(refusals)
    }
}

/// Each key once, in the order of the stored records. Of the records with one key, the last is
/// stored.
fn last_of_each(keys: Vec<Key>) -> Vec<Key> {
    let mut seen = HashSet::with_capacity(keys.len());
    let is_last: Vec<bool> = keys.iter().rev().map(|key| seen.insert(key)).collect();
    let mut is_last = is_last.into_iter().rev();
    keys.iter().filter(|_| is_last.next().unwrap_or(true)).cloned().collect()
}

/// Changes a dataset's columns and their types to those of a schema.
fn change(dataset: &Dataset, schema: &Schema) -> Result<(), Failure> {
    let before = dataset.schema();
    let is_widened = |name: &str| before.column(name).is_some_and(|column| column.column_type == ColumnType::Int64);
    // Operations that may fail precede those that cannot.
    for column in schema.columns.iter().filter(|column| column.column_type == ColumnType::Float64) {
        if is_widened(&column.name) {
            dataset.widen_column(&column.name)?;
        }
    }
    for column in schema.columns.iter().filter(|column| before.column(&column.name).is_none()) {
        dataset.add_column(column.clone())?;
    }
    Ok(())
}
