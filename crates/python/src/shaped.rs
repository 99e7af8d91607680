//! Batches with another schema: without columns, or without metadata of columns.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchOptions, RecordBatchReader};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema};

use crate::checked::Reader;

/// Where metadata of Arrow say that values have another meaning than their type.
const EXTENSION: &str = "ARROW:extension:";

/// Batches whose columns are chosen, and have other metadata or types of the same layout.
pub struct Shaped {
    batches: Reader,
    /// The columns that stay.
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Shaped {
    fn new(batches: Reader, shape: impl Fn(&FieldRef) -> Option<FieldRef>) -> Self {
        let schema = batches.schema();
        let shaped = schema.fields().iter().enumerate().filter_map(|(column, field)| Some((column, shape(field)?)));
        let (columns, fields): (Vec<usize>, Vec<FieldRef>) = shaped.unzip();
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Self { batches, columns, schema }
    }

    /// Leaves out the index of a data frame of pandas, if it has no name.
    pub fn without_index(batches: Reader) -> Self {
        Self::new(batches, |field| (!is_index(field.name())).then(|| field.clone()))
    }

    /// Has one column declared as geometry. Others that are declared stay as WKB.
    pub fn with_geometry(batches: Reader, geometry: &str) -> Self {
        Self::new(batches, |field| {
            let is_other = field.name() != geometry && is_extension(field, "geoarrow.");
            Some(if is_other { Arc::new(plain(field)) } else { field.clone() })
        })
    }

    /// Leaves out what says that values have another meaning than their type, also of nested ones.
    /// Intervals and decimals of more than 38 digits become text.
    fn plain(batches: Reader) -> Self {
        Self::new(batches, |field| Some(Arc::new(plain(field))))
    }

    fn shaped(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter().zip(self.schema.fields()).map(|(column, field)| {
            let array = batch.column(*column);
            // Metadata of nested columns are a part of the type.
            if array.data_type() == field.data_type() { Ok(array.clone()) } else { cast(array, field.data_type()) }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns.collect::<Result<_, _>>()?, &options)
    }
}

impl Iterator for Shaped {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(batch.and_then(|batch| self.shaped(&batch)))
    }
}

impl RecordBatchReader for Shaped {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Whether pyarrow has named the column, which was an index without a name.
fn is_index(name: &str) -> bool {
    let level = name.strip_prefix("__index_level_").and_then(|name| name.strip_suffix("__"));
    level.is_some_and(|level| level.parse::<u32>().is_ok())
}

fn is_extension(field: &Field, prefix: &str) -> bool {
    field.metadata().get("ARROW:extension:name").is_some_and(|name| name.starts_with(prefix))
}

fn plain(field: &Field) -> Field {
    let metadata = field.metadata().iter().filter(|(key, _)| !key.starts_with(EXTENSION));
    let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
    field.clone().with_data_type(plain_type(field.data_type())).with_metadata(metadata)
}

fn plain_type(data_type: &DataType) -> DataType {
    let inner = |field: &FieldRef| Arc::new(plain(field));
    match data_type {
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inner(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect::<Fields>()),
        DataType::Interval(_) | DataType::Decimal256(..) => DataType::Utf8,
        other => other.clone(),
    }
}

/// The batches of an answer with the types that Polars has.
#[pyfunction]
#[pyo3(name = "_for_polars")]
pub fn for_polars<'py>(py: Python<'py>, schema: PySchema, batches: Vec<PyRecordBatch>) -> PyResult<Bound<'py, PyAny>> {
    let batches: Vec<_> = batches.into_iter().map(|batch| Ok(batch.into_inner())).collect();
    let reader: Reader = Box::new(RecordBatchIterator::new(batches, schema.into_inner()));
    let reader = PyRecordBatchReader::new(Box::new(Shaped::plain(reader)));
    Ok(reader.into_pyobject(py)?.into_any())
}
