//! Shared by the writers: an output that remembers how it failed, and the search for the geometry
//! of a schema.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Value, json};
use terrane_literal::{UuidBytes, is_uuid, uuid_at};

use super::error::WriteError;
use crate::geometry::{geojson_of, has_measures};
use crate::guess::GeometryColumns;

/// The sink of all writers.
pub(crate) type Sink<'a> = Box<dyn Write + Send + 'a>;

/// An output that keeps its first failure, for encoders that replace it by an error of their own.
pub(crate) struct Output<'a> {
    sink: Sink<'a>,
    failure: Failure,
}

/// The first failure of an [`Output`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<io::ErrorKind>>>);

impl Failure {
    /// The failure of the output if there was one, else the encoder's error.
    pub(crate) fn explain(&self, error: impl ToString) -> WriteError {
        let kind = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            Some(kind) => WriteError::Io(kind.into()),
            None => WriteError::Encode(error.to_string()),
        }
    }
}

impl<'a> Output<'a> {
    pub(crate) fn new(sink: Sink<'a>) -> (Output<'a>, Failure) {
        let failure = Failure::default();
        let output = Output { sink, failure: failure.clone() };
        (output, failure)
    }

    fn note<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &outcome
            && error.kind() != io::ErrorKind::Interrupted
        {
            let mut failure = self.failure.0.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error.kind());
        }
        outcome
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = self.sink.write(bytes);
        self.note(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.sink.flush();
        self.note(outcome)
    }
}

/// The geometry of a schema, by column number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GeometryIndex {
    #[default]
    None,
    Column(usize),
    Coordinates(usize, usize),
}

impl GeometryIndex {
    /// Finds the columns that the options name.
    pub(crate) fn find(schema: &Schema, geometry: &GeometryColumns) -> Result<GeometryIndex, WriteError> {
        let index = |name: &String, data_type: DataType| {
            schema
                .index_of(name)
                .ok()
                .filter(|&index| *schema.field(index).data_type() == data_type)
                .ok_or_else(|| WriteError::MissingColumn(name.clone()))
        };
        Ok(match geometry {
            GeometryColumns::None => GeometryIndex::None,
            GeometryColumns::Column { name } => GeometryIndex::Column(index(name, DataType::Binary)?),
            GeometryColumns::Coordinates { x, y } => {
                GeometryIndex::Coordinates(index(x, DataType::Float64)?, index(y, DataType::Float64)?)
            }
        })
    }

    /// Like `find`, but a column that was not selected is no error.
    pub(crate) fn find_if_selected(schema: &Schema, geometry: &GeometryColumns) -> GeometryIndex {
        GeometryIndex::find(schema, geometry).unwrap_or_default()
    }

    /// The GeoJSON geometry of a row, or null.
    pub(crate) fn geojson(self, batch: &RecordBatch, row: usize) -> Result<Value, WriteError> {
        match self {
            GeometryIndex::None => Ok(Value::Null),
            GeometryIndex::Column(index) => {
                let name = batch.schema_ref().field(index).name().clone();
                geometry_json(batch.column(index), row, &name)
            }
            GeometryIndex::Coordinates(x, y) => {
                let coordinate = |index: usize| {
                    let column = batch.column(index).as_primitive_opt::<Float64Type>()?;
                    column.is_valid(row).then(|| column.value(row))
                };
                Ok(match (coordinate(x), coordinate(y)) {
                    (Some(x), Some(y)) if x.is_finite() && y.is_finite() => {
                        json!({"type": "Point", "coordinates": [x, y]})
                    }
                    _ => Value::Null,
                })
            }
        }
    }
}

/// Whether a column is marked as one of geometries. Rows of a join have several.
pub(crate) fn holds_wkb(field: &Field) -> bool {
    let extension = field.metadata().get("ARROW:extension:name");
    *field.data_type() == DataType::Binary && extension.is_some_and(|name| name == "geoarrow.wkb")
}

/// The UUID of a row that is not null, if the column is marked as one of UUIDs.
pub(crate) fn uuid_of(array: &ArrayRef, field: &Field, row: usize) -> Option<UuidBytes> {
    let array = array.as_fixed_size_binary_opt().filter(|_| is_uuid(field))?;
    uuid_at(array, row)
}

/// The geometry in a WKB column as GeoJSON.
pub(crate) fn geometry_json(array: &ArrayRef, row: usize, name: &str) -> Result<Value, WriteError> {
    match wkb_of(array, row) {
        Some(wkb) => geojson_of(wkb).map_err(|reason| WriteError::value(row, name, reason)),
        None => Ok(Value::Null),
    }
}

/// Whether geometries had measures (M), which GeoJSON does not have.
#[derive(Debug, Default)]
pub(crate) struct DroppedMeasures(bool);

impl DroppedMeasures {
    /// Checks a column of WKB, unless measures have been seen already.
    pub(crate) fn check(&mut self, array: &ArrayRef) {
        self.0 = self.0 || (0..array.len()).any(|row| wkb_of(array, row).is_some_and(has_measures));
    }

    pub(crate) fn notice(&self) -> Option<&'static str> {
        self.0.then_some("the measures (M) of geometries are left out, since GeoJSON cannot store them")
    }
}

/// The WKB of a row, unless it is null.
pub(crate) fn wkb_of(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    let array = array.as_binary_opt::<i32>()?;
    array.is_valid(row).then(|| array.value(row))
}
