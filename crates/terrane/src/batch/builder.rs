//! Stored records as an output batch.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Date32Builder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder,
    Int64Builder, StringBuilder, TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use terrane_literal::{append_uuid, uuid_builder};
use terrane_space::Point;

use super::BatchError;
use crate::key::{Key, KeyError, KeyType};
use crate::record::{DamagedRecord, GeometryRef, RecordView};
use crate::schema::{GeometryColumn, Schema, SchemaHistory, distance_column_name};
use crate::value::ValueRef;

/// Rows after which [`BatchBuilder::is_full`] asks for the batch to be finished.
pub const BATCH_ROWS_MAX: usize = 8192;

/// Bytes of all columns after which it does, by default.
pub const BATCH_BYTES_MAX: usize = 32 << 20;

/// Most bytes of variable length in a batch: Arrow's offsets are 32 bits wide.
const VARIABLE_BYTES_LIMIT: usize = i32::MAX as usize;

/// Collects stored records into record batches.
///
/// The schema is that of `Schema::to_arrow` or some of its columns, with a column of distances if
/// wanted. A failed `append` leaves a partial row; drop the builder then.
pub struct BatchBuilder<'a> {
    history: &'a SchemaHistory,
    arrow: SchemaRef,
    columns: Vec<ColumnBuilder>,
    distance: Option<Float64Builder>,
    rows: usize,
    /// Bytes of text, binary data and geometries.
    variable_bytes: usize,
    /// Bytes of fixed length per row.
    fixed_bytes: usize,
    bytes_max: usize,
    /// Whether records are needed, beyond keys and distances.
    reads_records: bool,
    /// Whether more than keys and points is needed.
    reads_attributes: bool,
}

/// The source of an output column, with its array builder.
enum ColumnBuilder {
    Key(KeyType, Values),
    X(Float64Builder),
    Y(Float64Builder),
    Wkb(BinaryBuilder),
    Attribute(usize, Values),
}

enum Values {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    UInt(UInt64Builder),
    Float32(Float32Builder),
    Float(Float64Builder),
    Utf8(StringBuilder),
    Binary(BinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
}

impl<'a> BatchBuilder<'a> {
    /// Creates a builder with the columns that `projection` names, in its order, or with all
    /// columns. `distance` adds a last column, named by `distance_column_name`.
    pub fn new(history: &'a SchemaHistory, projection: Option<&[String]>, distance: bool) -> Result<Self, BatchError> {
        let schema = history.newest();
        let names: Vec<&str> = match projection {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => schema.column_names().collect(),
        };
        let mut seen = std::collections::HashSet::new();
        let mut fields = Vec::with_capacity(names.len() + 1);
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let (Some(field), true) = (schema.arrow_field(name), seen.insert(name)) else {
                return Err(match schema.arrow_field(name) {
                    Some(_) => BatchError::DuplicateColumn { column: name.to_owned() },
                    None => BatchError::UnknownColumn {
                        column: name.to_owned(),
                        known: schema.column_names().map(str::to_owned).collect(),
                    },
                });
            };
            columns.push(column_builder(schema, name, field.data_type()));
            fields.push(field);
        }
        if distance {
            fields.push(Field::new(distance_column_name(schema), DataType::Float64, true));
        }
        Ok(Self {
            history,
            fixed_bytes: fields.iter().map(|field| slot_length(field.data_type())).sum(),
            bytes_max: BATCH_BYTES_MAX,
            arrow: Arc::new(ArrowSchema::new(fields)),
            reads_records: columns.iter().any(|column| !matches!(column, ColumnBuilder::Key(..))),
            reads_attributes: columns.iter().any(|column| matches!(column, ColumnBuilder::Attribute(..))),
            columns,
            distance: distance.then(|| Float64Builder::with_capacity(0)),
            rows: 0,
            variable_bytes: 0,
        })
    }

    /// Limits batches to this many bytes, but at least one row. Growing builders may allocate twice
    /// as much.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Rows since the last batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of all columns since the last batch.
    pub fn bytes(&self) -> usize {
        self.rows * self.fixed_bytes + self.variable_bytes
    }

    /// Bytes that are left until the batch is full.
    pub fn bytes_left(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes())
    }

    /// Most rows that fit if they have no values of variable length; 0 if the batch is full.
    pub fn rows_left(&self) -> usize {
        let by_bytes = if self.fixed_bytes == 0 { usize::MAX } else { self.bytes_left().div_ceil(self.fixed_bytes) };
        BATCH_ROWS_MAX.saturating_sub(self.rows).min(by_bytes)
    }

    /// Whether `append` needs record bytes, or keys are enough.
    pub fn reads_records(&self) -> bool {
        self.reads_records
    }

    /// Whether rows of a dataset of points need more than [`BatchBuilder::append_point`] gets.
    pub(crate) fn reads_attributes(&self) -> bool {
        self.reads_attributes
    }

    /// Whether the batch has to be finished before the next append.
    pub fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS_MAX || self.rows > 0 && self.bytes() >= self.bytes_max
    }

    /// Appends a row from an encoded key and a stored record. The record may be empty if
    /// [`BatchBuilder::reads_records`] is false.
    pub fn append(&mut self, key: &[u8], record: &[u8], distance: Option<f64>) -> Result<(), BatchError> {
        // A point may be stored in fewer bytes than its WKB.
        let growth = key.len() + record.len() + 8;
        if self.variable_bytes + growth > VARIABLE_BYTES_LIMIT {
            return Err(BatchError::Full { rows: self.rows, bytes: self.variable_bytes });
        }
        let view = if self.reads_records { Some(RecordView::parse(record, self.history)?) } else { None };
        let geometry = view.as_ref().and_then(RecordView::geometry);
        self.append_parts(key, geometry, view.as_ref(), distance)
    }

    /// Appends a row from an entry of a spatial index. Requires that
    /// [`BatchBuilder::reads_attributes`] is false.
    pub(crate) fn append_point(&mut self, key: &[u8], point: Point, distance: Option<f64>) -> Result<(), BatchError> {
        self.append_parts(key, Some(GeometryRef::Point(point)), None, distance)
    }

    fn append_parts(
        &mut self,
        key: &[u8],
        geometry: Option<GeometryRef<'_>>,
        view: Option<&RecordView<'_>>,
        distance: Option<f64>,
    ) -> Result<(), BatchError> {
        for column in &mut self.columns {
            self.variable_bytes += column.append(key, geometry, view)?;
        }
        if let Some(builder) = &mut self.distance {
            builder.append_option(distance);
        }
        self.rows += 1;
        Ok(())
    }

    /// Returns the collected rows as a batch, and empties the builder.
    pub fn finish(&mut self) -> Result<RecordBatch, BatchError> {
        let mut arrays: Vec<ArrayRef> = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        if let Some(builder) = &mut self.distance {
            arrays.push(Arc::new(builder.finish()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.variable_bytes = 0;
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.arrow), arrays, &options)?)
    }
}

/// Bytes of fixed length that a row takes in a column. Its validity bit counts as a byte.
fn slot_length(data_type: &DataType) -> usize {
    let length = match data_type {
        DataType::Boolean => 1,
        // The offset of a text or binary value.
        DataType::Date32 | DataType::Utf8 | DataType::Binary => 4,
        DataType::FixedSizeBinary(_) => 16,
        _ => 8,
    };
    length + 1
}

// Builders begin empty, because there may be thousands of columns and few rows.

fn column_builder(schema: &Schema, name: &str, data_type: &DataType) -> ColumnBuilder {
    if name == schema.key.name {
        return ColumnBuilder::Key(schema.key.key_type, Values::new(data_type));
    }
    match (&schema.geometry, schema.column_index(name)) {
        (_, Some(index)) => ColumnBuilder::Attribute(index, Values::new(data_type)),
        (GeometryColumn::Point { x, .. }, None) if name == x => ColumnBuilder::X(Float64Builder::with_capacity(0)),
        (GeometryColumn::Point { .. }, None) => ColumnBuilder::Y(Float64Builder::with_capacity(0)),
        (GeometryColumn::Geometry { .. } | GeometryColumn::None, None) => {
            ColumnBuilder::Wkb(BinaryBuilder::with_capacity(0, 0))
        }
    }
}

impl ColumnBuilder {
    /// Appends one row, and returns its bytes of variable length.
    fn append(
        &mut self,
        key: &[u8],
        geometry: Option<GeometryRef<'_>>,
        view: Option<&RecordView<'_>>,
    ) -> Result<usize, BatchError> {
        match self {
            Self::Key(key_type, values) => return Ok(values.append_key(*key_type, key)?),
            Self::X(builder) => builder.append_option(coordinates(geometry)?.map(|(x, _)| x)),
            Self::Y(builder) => builder.append_option(coordinates(geometry)?.map(|(_, y)| y)),
            Self::Wkb(builder) => match geometry {
                None => builder.append_null(),
                Some(GeometryRef::Wkb(wkb)) => {
                    builder.append_value(wkb);
                    return Ok(wkb.len());
                }
                Some(GeometryRef::Point(point)) => {
                    let wkb = terrane_space::geometry::point_wkb(point);
                    builder.append_value(wkb);
                    return Ok(wkb.len());
                }
            },
            Self::Attribute(index, values) => {
                let value = match view {
                    Some(view) => view.value(*index)?,
                    None => ValueRef::Null,
                };
                return Ok(values.append(value)?);
            }
        }
        Ok(0)
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::X(builder) | Self::Y(builder) => Arc::new(builder.finish()),
            Self::Wkb(builder) => Arc::new(builder.finish()),
            Self::Key(_, values) | Self::Attribute(_, values) => values.builder().finish(),
        }
    }
}

fn coordinates(geometry: Option<GeometryRef<'_>>) -> Result<Option<(f64, f64)>, DamagedRecord> {
    match geometry {
        None => Ok(None),
        Some(GeometryRef::Point(point)) => Ok(Some((point.x, point.y))),
        Some(GeometryRef::Wkb(_)) => {
            Err(DamagedRecord { offset: 1, reason: "a dataset of points holds another geometry" })
        }
    }
}

impl Values {
    fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Bool(BooleanBuilder::with_capacity(0)),
            DataType::Int64 => Self::Int(Int64Builder::with_capacity(0)),
            DataType::UInt64 => Self::UInt(UInt64Builder::with_capacity(0)),
            DataType::Float32 => Self::Float32(Float32Builder::with_capacity(0)),
            DataType::Float64 => Self::Float(Float64Builder::with_capacity(0)),
            DataType::Utf8 => Self::Utf8(StringBuilder::with_capacity(0, 0)),
            DataType::FixedSizeBinary(_) => Self::Uuid(uuid_builder()),
            DataType::Date32 => Self::Date(Date32Builder::with_capacity(0)),
            DataType::Timestamp(_, zone) => {
                Self::Timestamp(TimestampMicrosecondBuilder::with_capacity(0).with_timezone_opt(zone.clone()))
            }
            _ => Self::Binary(BinaryBuilder::with_capacity(0, 0)),
        }
    }

    fn append_key(&mut self, key_type: KeyType, key: &[u8]) -> Result<usize, KeyError> {
        let damaged = || KeyError::Damaged { bytes: key.len(), wanted: key_type };
        match self {
            // Texts and bytes are appended without a copy.
            Self::Utf8(builder) => builder.append_value(std::str::from_utf8(key).map_err(|_| damaged())?),
            Self::Binary(builder) => builder.append_value(key),
            _ => {
                match (self, Key::decode(key_type, key)?) {
                    (Self::Int(builder), Key::Int(key)) => builder.append_value(key),
                    (Self::UInt(builder), Key::UInt(key)) => builder.append_value(key),
                    (Self::Uuid(builder), Key::Uuid(key)) => append_uuid(builder, key),
                    _ => return Err(damaged()),
                }
                return Ok(0);
            }
        }
        Ok(key.len())
    }

    fn append(&mut self, value: ValueRef<'_>) -> Result<usize, DamagedRecord> {
        match (self, value) {
            (Self::Bool(builder), ValueRef::Bool(value)) => builder.append_value(value),
            (Self::Int(builder), ValueRef::Int(value)) => builder.append_value(value),
            (Self::Float32(builder), ValueRef::Float32(value)) => builder.append_value(value),
            (Self::Float(builder), ValueRef::Float64(value)) => builder.append_value(value),
            (Self::Uuid(builder), ValueRef::Uuid(value)) => append_uuid(builder, value),
            (Self::Date(builder), ValueRef::Date(value)) => builder.append_value(value),
            (Self::Timestamp(builder), ValueRef::Timestamp(value)) => builder.append_value(value),
            (Self::Utf8(builder), ValueRef::Utf8(value)) => {
                builder.append_value(value);
                return Ok(value.len());
            }
            (Self::Binary(builder), ValueRef::Binary(value)) => {
                builder.append_value(value);
                return Ok(value.len());
            }
            (Self::Bool(builder), ValueRef::Null) => builder.append_null(),
            (Self::Int(builder), ValueRef::Null) => builder.append_null(),
            (Self::Float32(builder), ValueRef::Null) => builder.append_null(),
            (Self::Float(builder), ValueRef::Null) => builder.append_null(),
            (Self::Uuid(builder), ValueRef::Null) => builder.append_null(),
            (Self::Date(builder), ValueRef::Null) => builder.append_null(),
            (Self::Timestamp(builder), ValueRef::Null) => builder.append_null(),
            (Self::Utf8(builder), ValueRef::Null) => builder.append_null(),
            (Self::Binary(builder), ValueRef::Null) => builder.append_null(),
            _ => {
                return Err(DamagedRecord { offset: 0, reason: "a value is not of its column's type" });
            }
        }
        Ok(0)
    }

    fn builder(&mut self) -> &mut dyn ArrayBuilder {
        match self {
            Self::Bool(builder) => builder,
            Self::Int(builder) => builder,
            Self::UInt(builder) => builder,
            Self::Float32(builder) => builder,
            Self::Float(builder) => builder,
            Self::Utf8(builder) => builder,
            Self::Binary(builder) => builder,
            Self::Uuid(builder) => builder,
            Self::Date(builder) => builder,
            Self::Timestamp(builder) => builder,
        }
    }
}
