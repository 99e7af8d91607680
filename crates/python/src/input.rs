//! What goes into a dataset: records, tables and data frames, and the files of an import.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{DataType, Field, Schema};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use pyo3_arrow::PySchema;
use pyo3_arrow::input::AnyRecordBatch;
use terrane::schema::{GeometryColumn, Schema as TableSchema};
use terrane_formats::{ColumnType, ReadOptions, Source, open_batches};

use crate::checked::{Checked, NAME};
use crate::error::{Failure, Result, usage};
use crate::load::Shape;
use crate::rows;
use crate::shaped::Shaped;
use crate::values::type_name;

pub use crate::checked::Reader;

/// What a caller gives, as batches.
pub struct Input {
    pub reader: Reader,
    /// Whether it is records or a schema, and no table. Those declare no reference system.
    is_records: bool,
}

impl Input {
    /// Whether it is a table or a data frame, and not records.
    pub fn is_table(&self) -> bool {
        !self.is_records
    }

    /// Whether it has neither rows nor columns.
    pub fn is_nothing(&self) -> bool {
        self.is_records && self.reader.schema().fields().is_empty()
    }
}

/// Where the geometries of data go.
#[derive(Debug, Default)]
pub struct Target {
    /// A column of geometries.
    pub geometry: Option<String>,
    /// Columns of coordinates.
    pub points: Option<(String, String)>,
    /// The reference system of the coordinates; 0 for none.
    pub srid: u32,
}

impl Target {
    /// Those of a dataset.
    pub fn of_schema(schema: &TableSchema) -> Self {
        let srid = schema.srid();
        match &schema.geometry {
            GeometryColumn::Point { x, y } => Self { geometry: None, points: Some((x.clone(), y.clone())), srid },
            GeometryColumn::Geometry { name } => Self { geometry: Some(name.clone()), points: None, srid },
            GeometryColumn::None => Self::default(),
        }
    }

    /// Those of an import, which may go into an existing dataset.
    pub fn of_import(shape: &Shape, existing: Option<&TableSchema>) -> Self {
        let srid = if shape.planar { 0 } else { 4326 };
        match (existing, &shape.lon, &shape.lat) {
            (Some(schema), ..) => Self::of_schema(schema),
            (None, Some(x), Some(y)) if shape.geometry.is_none() => {
                Self { geometry: None, points: Some((x.clone(), y.clone())), srid }
            }
            _ => Self { geometry: shape.geometry.clone(), points: None, srid },
        }
    }
}

/// The batches of what a caller gives: anything with Arrow's PyCapsule interface, a GeoDataFrame, a
/// record, or several.
pub fn batches(data: &Bound<'_, PyAny>, target: &Target) -> Result<Input> {
    let py = data.py();
    refuse_columns(data)?;
    let data = &flat(data)?;
    if is_geodataframe(data)? {
        if let (Some((x, y)), true) = (&target.points, has_active_geometry(data)?) {
            let points = py.import("terrane._ingest")?.call_method1("points", (data, x, y, target.srid))?;
            return of_table(&points);
        }
        let kwargs = PyDict::new(py);
        kwargs.set_item("index", is_index_named(data)?)?;
        let table = data.call_method("to_arrow", (), Some(&kwargs))?;
        let mut input = of_table(&table)?;
        let active: Option<String> = data.getattr(intern!(py, "active_geometry_name"))?.extract()?;
        let is_named = |name: &String| input.reader.schema().column_with_name(name).is_some();
        if let Some(name) = target.geometry.clone().filter(is_named).or(active) {
            input.reader = Box::new(Shaped::with_geometry(input.reader, &name));
        }
        return Ok(input);
    }
    if has_arrow(data)? {
        return of_table(data);
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
    Ok(Input { reader: of_batch(rows::batch_of(py, &records)?), is_records: true })
}

/// The batches of a table, without the index of pandas that has no name. They are checked, unless
/// they are an answer of this package.
fn of_table(table: &Bound<'_, PyAny>) -> Result<Input> {
    let reader = table.extract::<AnyRecordBatch>()?.into_reader()?;
    let own = table.py().import("terrane._terrane")?;
    let is_own = table.is_instance(&own.getattr("Result")?)? || table.is_instance(&own.getattr("Batch")?)?;
    let reader = if is_own { reader } else { Box::new(Checked::new(reader)) };
    Ok(Input { reader: Box::new(Shaped::without_index(reader)), is_records: false })
}

fn has_arrow(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = data.py();
    Ok(data.hasattr(intern!(py, "__arrow_c_stream__"))? || data.hasattr(intern!(py, "__arrow_c_array__"))?)
}

/// Refuses what looks like a table, and is a column or a plan.
fn refuse_columns(data: &Bound<'_, PyAny>) -> Result<()> {
    let name = type_name(data);
    let advice = match name.as_str() {
        "LazyFrame" => "collect() makes a data frame of it",
        "Series" | "GeoSeries" => "it is one column; to_frame() makes a data frame of it",
        "type" => "it is a class; give instances of it",
        _ => return Ok(()),
    };
    Err(usage(format!("data is records, a table or a data frame, and not {name}: {advice}")))
}

/// A data frame of pandas whose index of row numbers has a name, with the index as a column. Arrow
/// leaves it out. A data frame of Polars with objects of Python is refused: Polars aborts on them.
fn flat<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    if data.hasattr(intern!(py, "reset_index"))? {
        return py.import("terrane._ingest")?.call_method1("flat", (data,));
    }
    if data.hasattr(intern!(py, "lazy"))? && data.hasattr(intern!(py, "dtypes"))? {
        py.import("terrane._ingest")?.call_method1("refuse_objects", (data,))?;
    }
    Ok(data.clone())
}

/// Whether it is a single record, and not several.
pub fn is_record(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = data.py();
    if has_arrow(data)? {
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
    let is_frame = data.hasattr(intern!(py, "active_geometry_name"))? && data.hasattr(intern!(py, "to_arrow"))?;
    Ok(is_frame && !data.is_instance_of::<PyType>())
}

fn has_active_geometry(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!frame.getattr(intern!(frame.py(), "active_geometry_name"))?.is_none())
}

fn is_index_named(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = frame.py();
    let names = frame.getattr(intern!(py, "index"))?.getattr(intern!(py, "names"))?;
    names.try_iter()?.try_fold(false, |is_named, name| Ok(is_named || !name?.is_none()))
}

/// No rows, of a schema: one of Arrow, or a dict of column names and types as `Dataset.schema` has
/// them.
pub fn no_rows(schema: &Bound<'_, PyAny>) -> Result<Input> {
    let schema = match schema.cast::<PyDict>() {
        Ok(columns) => Arc::new(Schema::new(columns.iter().map(field_of).collect::<Result<Vec<_>>>()?)),
        Err(_) => schema.extract::<PySchema>()?.into_inner(),
    };
    Ok(Input { reader: Box::new(RecordBatchIterator::new([], schema)), is_records: true })
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
pub fn source(input: Input, options: &ReadOptions) -> Result<Source> {
    let schema = input.reader.schema();
    let mut source = open_batches(NAME, &schema, input.reader, options).map_err(Failure::from)?;
    if input.is_records || options.coordinates.planar {
        source.warnings.retain(|warning| !warning.contains("declares no coordinate reference system"));
    }
    Ok(source)
}
