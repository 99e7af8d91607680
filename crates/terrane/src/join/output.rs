//! Pairs as Arrow batches: the columns of both sides, and the distance.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema, SchemaRef};
use arrow_select::{concat::concat, take::take};

use super::outer::OuterBatch;
use super::wanted::{Join, JoinOn};
use crate::batch::{BatchBuilder, BatchError};
use crate::schema::free_distance_name;
use crate::{Error, Result};

/// The schema of pairs.
///
/// # Errors
/// Two columns have the same name even with their prefixes.
pub(super) fn schema_of(join: &Join, outer: &Fields, inner: &Fields) -> Result<SchemaRef> {
    let names = |fields: &Fields| -> HashSet<String> { fields.iter().map(|field| field.name().clone()).collect() };
    let (outer_names, inner_names) = (names(outer), names(inner));
    let renamed = |field: &Field, others: &HashSet<String>, prefix: &str| match others.contains(field.name()) {
        true => field.clone().with_name(format!("{prefix}{}", field.name())),
        false => field.clone(),
    };
    let of_outer = outer.iter().map(|field| renamed(field, &inner_names, &join.outer_prefix));
    let of_inner = inner.iter().map(|field| renamed(field, &outer_names, &join.inner_prefix));
    let mut fields: Vec<Field> = of_outer.chain(of_inner).collect();
    let mut seen = HashSet::new();
    if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name().clone())) {
        return Err(Error::usage(format!(
            "two columns of the join would be named {:?}; choose other prefixes than {:?} for the outer and {:?} for the \
             inner columns that both sides have",
            twice.name(),
            join.outer_prefix,
            join.inner_prefix
        )));
    }
    if let JoinOn::WithinDistance(_) = join.on {
        fields.push(Field::new(free_distance_name(|name| seen.contains(name)), DataType::Float64, false));
    }
    Ok(Arc::new(ArrowSchema::new(fields)))
}

/// Collects pairs into a batch.
pub(super) struct PairBuilder<'a> {
    schema: &'a SchemaRef,
    /// Columns of the outer rows in the answer.
    outer_columns: &'a [usize],
    inner: BatchBuilder<'a>,
    /// Rows of the current outer batch, one per pair.
    picked: Vec<u32>,
    /// Outer columns of the earlier pairs.
    pieces: Vec<Vec<ArrayRef>>,
    outer_bytes: usize,
    bytes_max: usize,
}

impl<'a> PairBuilder<'a> {
    pub fn new(schema: &'a SchemaRef, outer_columns: &'a [usize], inner: BatchBuilder<'a>, bytes_max: usize) -> Self {
        let inner = inner.with_bytes_max(bytes_max);
        Self { schema, outer_columns, inner, picked: Vec::new(), pieces: Vec::new(), outer_bytes: 0, bytes_max }
    }

    /// The builder for the next pair's inner columns. One row must be appended to it.
    pub fn inner(&mut self) -> &mut BatchBuilder<'a> {
        &mut self.inner
    }

    /// Adds the outer columns of the pair whose inner columns were appended.
    pub fn add_outer(&mut self, batch: &OuterBatch, row: u32) {
        /// Of a column with values of fixed length.
        const SLOT_BYTES: usize = 9;
        self.picked.push(row);
        self.outer_bytes +=
            self.outer_columns.len() * SLOT_BYTES + batch.variable_bytes(row as usize, self.outer_columns);
    }

    /// Copies the picked rows of an outer batch, before the batch is dropped.
    pub fn leave(&mut self, batch: &OuterBatch) -> Result<()> {
        if self.picked.is_empty() {
            return Ok(());
        }
        let picked = UInt32Array::from(std::mem::take(&mut self.picked));
        let columns = self.outer_columns.iter().map(|column| batch.batch.column(*column));
        let piece: std::result::Result<Vec<ArrayRef>, _> = columns.map(|column| take(column, &picked, None)).collect();
        self.pieces.push(piece.map_err(BatchError::from)?);
        Ok(())
    }

    pub fn rows(&self) -> usize {
        self.inner.rows()
    }

    pub fn is_full(&self) -> bool {
        self.inner.is_full() || self.rows() > 0 && self.outer_bytes + self.inner.bytes() >= self.bytes_max
    }

    /// The collected pairs as a batch.
    pub fn finish(mut self, batch: Option<&OuterBatch>) -> Result<RecordBatch> {
        if let Some(batch) = batch {
            self.leave(batch)?;
        }
        let rows = self.inner.rows();
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for number in 0..self.outer_columns.len() {
            let pieces: Vec<&dyn arrow_array::Array> = self.pieces.iter().map(|piece| piece[number].as_ref()).collect();
            columns.push(match pieces.as_slice() {
                [_] => self.pieces[0][number].clone(),
                pieces => concat(pieces).map_err(BatchError::from)?,
            });
        }
        let inner = self.inner.finish()?;
        columns.extend(inner.columns().iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        Ok(batch.map_err(BatchError::from)?)
    }
}
