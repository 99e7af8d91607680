//! What goes into a dataset: records, tables and data frames, and the files of an import.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{DataType, Field, Schema};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::PySchema;
use pyo3_arrow::input::AnyRecordBatch;
use terrane_formats::{ColumnType, ReadOptions, Source, open_batches};

use crate::error::{Failure, Result, usage};
use crate::rows;
use crate::values::type_name;

/// The name of a table in messages.
const NAME: &str = "the data";

/// Batches of Arrow data.
pub type Reader = Box<dyn RecordBatchReader + Send>;

/// The batches of what a caller gives: anything with Arrow's PyCapsule interface, a GeoDataFrame, a
/// record, or several.
pub fn batches(data: &Bound<'_, PyAny>) -> Result<Reader> {
    let py = data.py();
    if is_geodataframe(data)? {
        let kwargs = PyDict::new(py);
        kwargs.set_item("index", is_index_named(data)?)?;
        let table = data.call_method("to_arrow", (), Some(&kwargs))?;
        return Ok(table.extract::<AnyRecordBatch>()?.into_reader()?);
    }
    if data.hasattr(intern!(py, "__arrow_c_stream__"))? || data.hasattr(intern!(py, "__arrow_c_array__"))? {
        return Ok(data.extract::<AnyRecordBatch>()?.into_reader()?);
    }
    let records: Vec<Bound<'_, PyAny>> = match is_record(data)? {
        true => vec![data.clone()],
        false => match data.try_iter() {
            Ok(records) => records.collect::<PyResult<_>>()?,
            Err(_) => {
                let found = type_name(data);
                return Err(usage(format!("data is records, a table or a data frame, and not {found}")));
            }
        },
    };
    Ok(of_batch(rows::batch_of(py, &records)?))
}

/// Whether it is a single record, and not several.
pub fn is_record(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = data.py();
    if data.hasattr(intern!(py, "__arrow_c_stream__"))? || data.hasattr(intern!(py, "__arrow_c_array__"))? {
        return Ok(false);
    }
    Ok(data.is_instance_of::<PyDict>()
        || data.hasattr(intern!(py, "__dataclass_fields__"))?
        || data.hasattr(intern!(py, "_asdict"))?)
}

fn of_batch(batch: RecordBatch) -> Reader {
    let schema = batch.schema();
    Box::new(RecordBatchIterator::new([Ok(batch)], schema))
}

/// Whether it is a GeoDataFrame.
pub fn is_geodataframe(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = data.py();
    Ok(data.get_type().name()? == "GeoDataFrame" && data.hasattr(intern!(py, "to_arrow"))?)
}

fn is_index_named(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = data.py();
    Ok(!data.getattr(intern!(py, "index"))?.getattr(intern!(py, "name"))?.is_none())
}

/// No rows, of a schema: one of Arrow, or a dict of column names and types as `Dataset.schema` has
/// them.
pub fn no_rows(schema: &Bound<'_, PyAny>) -> Result<Reader> {
    let schema = match schema.cast::<PyDict>() {
        Ok(columns) => Arc::new(Schema::new(columns.iter().map(field_of).collect::<Result<Vec<_>>>()?)),
        Err(_) => schema.extract::<PySchema>()?.into_inner(),
    };
    Ok(Box::new(RecordBatchIterator::new([], schema)))
}

fn field_of((name, kind): (Bound<'_, PyAny>, Bound<'_, PyAny>)) -> Result<Field> {
    let (name, kind): (String, String) = (name.extract()?, kind.extract()?);
    let column_type = match kind.as_str() {
        "uint64" => return Ok(Field::new(name, DataType::UInt64, true)),
        "geometry" => {
            let metadata = [("ARROW:extension:name".to_owned(), "geoarrow.wkb".to_owned())];
            return Ok(Field::new(name, DataType::Binary, true).with_metadata(metadata.into()));
        }
        "bool" => ColumnType::Boolean,
        "int64" => ColumnType::Int64,
        "float32" => ColumnType::Float32,
        "float64" => ColumnType::Float64,
        "utf8" => ColumnType::Utf8,
        "binary" => ColumnType::Binary,
        "uuid" => ColumnType::Uuid,
        "date" => ColumnType::Date32,
        "timestamp" => ColumnType::Timestamp,
        "timestamp (UTC)" => ColumnType::TimestampUtc,
        other => {
            return Err(usage(format!(
                "column {name:?}: the type {other:?} is unknown; it is bool, int64, uint64, float32, float64, utf8, \
                 binary, uuid, date, timestamp, timestamp (UTC) or geometry"
            )));
        }
    };
    Ok(column_type.field(&name))
}

/// A source of the batches.
pub fn source(reader: Reader, options: &ReadOptions) -> Result<Source> {
    let schema = reader.schema();
    open_batches(NAME, &schema, reader, options).map_err(Failure::from)
}
