//! Records that are Python dicts, as an Arrow batch.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, FixedSizeBinaryArray, Float64Array, Int64Array, NullArray, RecordBatch,
    RecordBatchOptions, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{Field, Schema};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat};
use terrane_space::geometry::{from_geojson, normalise};

use crate::decimals::{decimal, decimals};
use crate::error::{Error, RefusedError, Result, refused};
use crate::values::{Plain, Types, plain, type_name};
use crate::warnings::warn;

/// The type of a column, by the values so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain(Plain),
    Date,
    Time { utc: bool },
    Uuid,
    Geometry,
    Decimal,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Plain(Plain::Bool) => "bool",
            Self::Plain(Plain::Int) => "int",
            Self::Plain(Plain::Float) => "float",
            Self::Plain(Plain::Text) => "str",
            Self::Plain(Plain::Bytes) => "bytes",
            Self::Date => "date",
            Self::Time { utc: true } => "datetime with a zone",
            Self::Time { utc: false } => "datetime without a zone",
            Self::Uuid => "UUID",
            Self::Geometry => "geometry",
            Self::Decimal => "Decimal",
        }
    }

    /// The kind of a column with values of both kinds.
    fn with(self, other: Self) -> Option<Self> {
        match (self, other) {
            (one, other) if one == other => Some(one),
            (Self::Plain(Plain::Int), Self::Plain(Plain::Float))
            | (Self::Plain(Plain::Float), Self::Plain(Plain::Int)) => Some(Self::Plain(Plain::Float)),
            (Self::Plain(Plain::Int), Self::Decimal) | (Self::Decimal, Self::Plain(Plain::Int)) => Some(Self::Decimal),
            _ => None,
        }
    }
}

struct Column<'py> {
    name: String,
    kind: Option<Kind>,
    /// By row; missing ones at the end are null.
    values: Vec<Option<Bound<'py, PyAny>>>,
    /// Whether a time has nanoseconds.
    is_cut: bool,
}

fn refuse(row: usize, column: &str, reason: impl std::fmt::Display) -> PyErr {
    refused(Some(row as u64), Some(column), reason)
}

/// The batch of some records: dicts, dataclasses, or objects with `_asdict`.
///
/// # Errors
/// A value of a type that no column can have, or of another than the column's values before it.
pub fn batch_of<'py>(py: Python<'py>, records: &[Bound<'py, PyAny>]) -> Result<RecordBatch> {
    let types = Types::new(py)?;
    let mut columns: Vec<Column<'py>> = Vec::new();
    for (row, record) in records.iter().enumerate() {
        for (name, value) in as_dict(record, row)? {
            let name: String = name.extract().map_err(|_| {
                refused(Some(row as u64), None, format!("the name of a column is text, and not {}", shown(&name)))
            })?;
            let place = columns.iter().position(|column| column.name == name).unwrap_or_else(|| {
                columns.push(Column { name, kind: None, values: Vec::with_capacity(records.len()), is_cut: false });
                columns.len() - 1
            });
            let column = &mut columns[place];
            if value.is_none() || is_missing(&value) {
                continue;
            }
            column.is_cut |= has_nanoseconds(&value)?;
            let value = of_numpy(value).map_err(|error| refuse(row, &column.name, error))?;
            let kind = kind_of(&types, &value).map_err(|reason| refuse(row, &column.name, reason))?;
            let found = column.kind.map_or(Some(kind), |known| known.with(kind));
            column.kind = Some(found.ok_or_else(|| {
                let known = column.kind.map_or("", Kind::name);
                refuse(row, &column.name, format!("a {} among values that are {known}", kind.name()))
            })?);
            column.values.resize_with(row, || None);
            column.values.push(Some(value));
        }
    }
    let cut = columns.iter().filter(|column| column.is_cut);
    warn(cut.map(|column| format!("column {:?}: nanoseconds are cut to microseconds", column.name)))?;
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for mut column in columns {
        column.values.resize_with(records.len(), || None);
        let (field, array) = column.build(&types)?;
        fields.push(field);
        arrays.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(records.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map_err(|error| RefusedError::new_err(error.to_string()).into())
}

/// Whether it is a value of pandas for "missing": `NaT`, which differs from itself, or `NA`.
fn is_missing(value: &Bound<'_, PyAny>) -> bool {
    plain(value).is_none() && (type_name(value) == "NAType" || value.ne(value).is_ok_and(|differs| differs))
}

fn as_dict<'py>(record: &Bound<'py, PyAny>, row: usize) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let py = record.py();
    if let Ok(dict) = record.cast::<PyDict>() {
        return Ok(dict.iter().collect());
    }
    let dict = if record.hasattr(intern!(py, "__dataclass_fields__"))? {
        // Not `asdict`, which copies what it holds. Variables of the class are no fields.
        let fields = py.import(intern!(py, "dataclasses"))?.call_method1(intern!(py, "fields"), (record,))?;
        let mut pairs = Vec::new();
        for field in fields.try_iter()? {
            let name = field?.getattr(intern!(py, "name"))?;
            let value = record.getattr(name.cast::<pyo3::types::PyString>()?)?;
            pairs.push((name, value));
        }
        return Ok(pairs);
    } else if record.hasattr(intern!(py, "_asdict"))? {
        record.call_method0(intern!(py, "_asdict"))?
    } else if record.hasattr(intern!(py, "keys"))? {
        PyDict::from_sequence(&record.call_method0(intern!(py, "items"))?)?.into_any()
    } else {
        let found = type_name(record);
        let reason = format!("a record is a dict or a dataclass, and not {found}; tables and data frames go in whole");
        return Err(refused(Some(row as u64), None, reason));
    };
    Ok(dict.cast::<PyDict>()?.iter().collect())
}

fn kind_of(types: &Types<'_>, value: &Bound<'_, PyAny>) -> std::result::Result<Kind, String> {
    let failed = |error: PyErr| error.to_string();
    if let Some(kind) = plain(value) {
        return Ok(Kind::Plain(kind));
    }
    if types.is_datetime(value).map_err(failed)? {
        return types.microseconds(value).map(|(_, utc)| Kind::Time { utc }).map_err(failed);
    }
    if types.is_date(value).map_err(failed)? {
        return Ok(Kind::Date);
    }
    if types.is_uuid(value).map_err(failed)? {
        return Ok(Kind::Uuid);
    }
    if value.hasattr("__geo_interface__").map_err(failed)? {
        return Ok(Kind::Geometry);
    }
    if types.is_decimal(value).map_err(failed)? {
        return Ok(Kind::Decimal);
    }
    // NumPy's scalars.
    if numpy_name(value).is_some_and(|name| name.starts_with("bool")) {
        return Ok(Kind::Plain(Plain::Bool));
    }
    let is_array = numpy_name(value).is_some_and(|name| name == "ndarray");
    if value.hasattr("__index__").map_err(failed)? && !is_array {
        return Ok(Kind::Plain(Plain::Int));
    }
    if value.hasattr("__float__").map_err(failed)? && !is_array {
        return Ok(Kind::Plain(Plain::Float));
    }
    Err(format!(
        "no column can hold {}; use a number, str, bytes, bool, date, datetime, UUID or geometry",
        type_name(value)
    ))
}

impl<'py> Column<'py> {
    /// Calls `convert` with each value, and names the row if it fails.
    fn each<T>(&self, convert: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>) -> PyResult<Vec<Option<T>>> {
        let values = self.values.iter().enumerate();
        let convert = |(row, value): (usize, &Option<Bound<'py, PyAny>>)| match value {
            None => Ok(None),
            Some(value) => convert(value).map(Some).map_err(|error| refuse(row, &self.name, message_of(&error))),
        };
        values.map(convert).collect()
    }

    fn build(&self, types: &Types<'py>) -> PyResult<(Field, ArrayRef)> {
        let array: ArrayRef = match self.kind {
            None => Arc::new(NullArray::new(self.values.len())),
            Some(Kind::Plain(Plain::Bool)) => Arc::new(BooleanArray::from(self.each(|value| value.extract())?)),
            Some(Kind::Plain(Plain::Int)) => self.integers()?,
            Some(Kind::Plain(Plain::Float)) => Arc::new(Float64Array::from(self.each(float)?)),
            Some(Kind::Decimal) => {
                decimals(&self.each(decimal)?).map_err(|(row, reason)| refuse(row, &self.name, reason))?
            }
            Some(Kind::Plain(Plain::Text)) => {
                Arc::new(StringArray::from(self.each(|value| value.extract::<String>())?))
            }
            Some(Kind::Plain(Plain::Bytes)) => binary(self.each(|value| value.extract())?),
            Some(Kind::Date) => Arc::new(Date32Array::from(self.each(|value| types.days(value))?)),
            Some(Kind::Time { utc }) => {
                let times = TimestampMicrosecondArray::from(self.each(|value| Ok(types.microseconds(value)?.0))?);
                Arc::new(if utc { times.with_timezone("UTC") } else { times })
            }
            Some(Kind::Uuid) => {
                let values = self.each(|value| types.uuid_bytes(value))?;
                let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), 16)
                    .map_err(|error| RefusedError::new_err(error.to_string()))?;
                let field = Field::new(&self.name, arrow_schema::DataType::FixedSizeBinary(16), true);
                let metadata = [("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())];
                return Ok((field.with_metadata(metadata.into()), Arc::new(array)));
            }
            Some(Kind::Geometry) => {
                let array = binary(self.each(geometry)?);
                let field = Field::new(&self.name, arrow_schema::DataType::Binary, true);
                let metadata = [("ARROW:extension:name".to_owned(), "geoarrow.wkb".to_owned())];
                return Ok((field.with_metadata(metadata.into()), array));
            }
        };
        Ok((Field::new(&self.name, array.data_type().clone(), true), array))
    }

    /// Signed integers if all are, else unsigned ones.
    fn integers(&self) -> PyResult<ArrayRef> {
        if let Ok(signed) = self.each(|value| value.extract::<i64>()) {
            return Ok(Arc::new(Int64Array::from(signed)));
        }
        let unsigned = self.each(|value| {
            let known = || format!("the integer {value} is beyond 64 bits, or a negative one stands among such");
            value.extract::<u64>().map_err(|_| RefusedError::new_err(known()))
        });
        Ok(Arc::new(UInt64Array::from(unsigned?)))
    }
}

/// The message of an exception without the name of its class, if it is of this package.
fn message_of(error: &PyErr) -> String {
    Python::attach(|py| match error.is_instance_of::<Error>(py) {
        true => error.value(py).to_string(),
        false => error.to_string(),
    })
}

/// A float, or an integer that a float holds exactly.
fn float(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    if value.is_instance_of::<PyFloat>() || !value.hasattr(intern!(value.py(), "__index__"))? {
        return value.extract();
    }
    // The comparison of Python's own integers is exact.
    let integer = value.call_method0(intern!(value.py(), "__index__"))?;
    let float = integer.extract().map_err(|_| inexact(value))?;
    if integer.eq(float)? { Ok(float) } else { Err(inexact(value)) }
}

/// A value for messages.
fn shown(value: &Bound<'_, PyAny>) -> String {
    value.repr().map_or_else(|_| type_name(value), |text| text.to_string())
}

fn inexact(value: &Bound<'_, PyAny>) -> PyErr {
    RefusedError::new_err(format!("the integer {value} stands among floats, and no float is exactly that"))
}

/// The class of a scalar of NumPy.
fn numpy_name(value: &Bound<'_, PyAny>) -> Option<String> {
    let class = value.get_type();
    let is_numpy = class.module().is_ok_and(|module| module == "numpy");
    is_numpy.then(|| type_name(value))
}

/// Whether it is a time of pandas or NumPy with nanoseconds, which Python's classes lack.
fn has_nanoseconds(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if numpy_name(value).is_some_and(|name| name == "datetime64") {
        return value.call_method1("astype", ("datetime64[us]",))?.ne(value);
    }
    match value.getattr_opt(intern!(value.py(), "nanosecond"))? {
        Some(nanosecond) => Ok(nanosecond.extract::<u32>().is_ok_and(|nanosecond| nanosecond > 0)),
        None => Ok(false),
    }
}

/// A `datetime64` of NumPy as a `date` or `datetime`; other values as they are.
fn of_numpy(value: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if numpy_name(&value).is_none_or(|name| name != "datetime64") {
        return Ok(value);
    }
    let is_day = value.getattr("dtype")?.eq("datetime64[D]")?;
    if is_day {
        value.call_method0("item")
    } else {
        value.call_method1("astype", ("datetime64[us]",))?.call_method0("item")
    }
}

fn binary(values: Vec<Option<Vec<u8>>>) -> ArrayRef {
    let mut builder = BinaryBuilder::new();
    values.iter().for_each(|value| builder.append_option(value.as_deref()));
    Arc::new(builder.finish())
}

/// The WKB of a geometry object: shapely's own, or that of its GeoJSON.
pub fn geometry(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = value.py();
    let refused = RefusedError::new_err::<String>;
    if let Ok(wkb) = value.getattr(intern!(py, "wkb")).and_then(|wkb| wkb.extract::<Vec<u8>>()) {
        return normalise(&wkb).map_err(|error| refused(error.to_string()));
    }
    let interface = value.getattr(intern!(py, "__geo_interface__"))?;
    let text: String = py.import(intern!(py, "json"))?.call_method1(intern!(py, "dumps"), (interface,))?.extract()?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    from_geojson(&json).map_err(|error| refused(error.to_string()))
}
