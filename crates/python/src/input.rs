//! What goes into a dataset: records, tables and data frames, and the files of an import.

use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::input::AnyRecordBatch;
use terrane_formats::{ReadOptions, Source, open_batches};

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

fn is_geodataframe(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = data.py();
    Ok(data.get_type().name()? == "GeoDataFrame" && data.hasattr(intern!(py, "to_arrow"))?)
}

fn is_index_named(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = data.py();
    Ok(!data.getattr(intern!(py, "index"))?.getattr(intern!(py, "name"))?.is_none())
}

/// A source of the batches.
pub fn source(reader: Reader, options: &ReadOptions) -> Result<Source> {
    let schema = reader.schema();
    open_batches(NAME, &schema, reader, options).map_err(Failure::from)
}
