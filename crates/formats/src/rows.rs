//! Converts rows of text formats to batches. Each cell is converted to the type of its column. A
//! row with a cell that fails is refused as a whole.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int64Builder,
    StringBuilder, TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use base64::Engine;
use terrane_literal::{
    TimePattern, UuidBytes, append_uuid, exact_float, json_integer, parse_date, parse_timestamp, parse_uuid,
    uuid_builder,
};
use terrane_space::Point;

use crate::error::{FormatError, Location};
use crate::geometry::GeometryReader;
use crate::guess::GeometryColumns;
use crate::json::flat::JsonRef;
use crate::number;
use crate::quoted::{quoted, shorten};
use crate::source::{Batch, RejectedRow};
use crate::types::{ColumnType, parse_boolean};

/// One typed value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Boolean(bool),
    Int64(i64),
    UInt64(u64),
    Float32(f32),
    Float64(f64),
    Utf8(Cow<'a, str>),
    Binary(Cow<'a, [u8]>),
    Uuid(UuidBytes),
    Date32(i32),
    Timestamp(i64),
}

/// The role of a column of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// An attribute.
    Value(ColumnType),
    /// An attribute whose values have no narrower type in common. Each is kept as its text.
    Text,
    /// Longitude or latitude, x or y: a finite float64.
    Coordinate,
    /// The geometry, as WKB.
    Geometry,
}

impl Role {
    /// An attribute with the type that fits its values.
    pub(crate) fn found(column_type: ColumnType) -> Role {
        match column_type {
            ColumnType::Utf8 => Role::Text,
            narrower => Role::Value(narrower),
        }
    }

    pub(crate) fn column_type(self) -> ColumnType {
        match self {
            Role::Value(column_type) => column_type,
            Role::Text => ColumnType::Utf8,
            Role::Coordinate => ColumnType::Float64,
            Role::Geometry => ColumnType::Binary,
        }
    }
}

/// Name and role of each column of the result.
#[derive(Debug, Clone)]
pub(crate) struct ColumnPlan {
    pub name: String,
    pub role: Role,
    /// The pattern of its dates or timestamps, if they are not in ISO 8601.
    pub pattern: Option<Arc<TimePattern>>,
}

impl ColumnPlan {
    pub(crate) fn new(name: impl Into<String>, role: Role) -> ColumnPlan {
        ColumnPlan { name: name.into(), role, pattern: None }
    }
}

/// The schema of the batches of these columns.
pub(crate) fn schema_of(columns: &[ColumnPlan]) -> SchemaRef {
    Arc::new(Schema::new(
        columns.iter().map(|column| column.role.column_type().field(&column.name)).collect::<Vec<_>>(),
    ))
}

fn mismatch(text: &str, column_type: ColumnType) -> String {
    let remedy = match column_type {
        ColumnType::Date32 => {
            "; write it like 2020-12-31, or give its format with --type COLUMN=date:FORMAT; to make the column text \
             in a new dataset, use --type COLUMN=utf8"
        }
        ColumnType::Timestamp | ColumnType::TimestampUtc => {
            "; write it like 2020-12-31T23:59:59, or give its format with --type COLUMN=timestamp:FORMAT; to make \
             the column text in a new dataset, use --type COLUMN=utf8"
        }
        ColumnType::Uuid => {
            "; write 32 hexadecimal digits, with or without hyphens; to make the column text in a new dataset, use \
             --type COLUMN=utf8"
        }
        _ => "",
    };
    format!("{} is not a valid {}{remedy}", quoted(text), column_type.name())
}

/// A hint why a text that is no number is no coordinate.
fn no_coordinate(text: &str) -> String {
    let hint = if text.contains(['\u{2212}', '\u{2013}', '\u{2010}', '\u{2011}']) {
        ": it has a Unicode minus; write it with the hyphen of the keyboard (-)"
    } else if text.contains(['°', '\u{2032}', '\u{2033}', '\'', 'º']) {
        ": it is in degrees, minutes, seconds; write decimal degrees, such as 48.8567"
    } else if ["NULL", "NA", "N/A", "NONE", "-", "\\N", "#N/A"].contains(&text.to_ascii_uppercase().as_str()) {
        ": if it means that there is no value, use --null TEXT"
    } else {
        ""
    };
    format!("{} is not a finite number{hint}", quoted(text))
}

/// A text without the blanks around it.
pub(crate) fn without_blanks(text: &str) -> &str {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    match is_blank(text.as_bytes().first()) || is_blank(text.as_bytes().last()) {
        true => text.trim_matches([' ', '\t']),
        false => text,
    }
}

/// Converts a text cell. An empty cell without quotes is null. An empty cell with quotes is an
/// empty text or empty bytes in columns of those types.
pub(crate) fn text_scalar<'a>(
    text: &'a str,
    is_quoted: bool,
    column: &ColumnPlan,
    decimal_comma: bool,
) -> Result<Scalar<'a>, String> {
    let role = column.role;
    let column_type = role.column_type();
    if column_type == ColumnType::Utf8 {
        return Ok(match text.is_empty() && !is_quoted {
            true => Scalar::Null,
            false => Scalar::Utf8(Cow::Borrowed(text)),
        });
    }
    // Blanks are significant in text only.
    let text = without_blanks(text);
    if text.is_empty() {
        return Ok(match is_quoted && role == Role::Value(ColumnType::Binary) {
            true => Scalar::Binary(Cow::Borrowed(&[])),
            false => Scalar::Null,
        });
    }
    typed_scalar(text, column, decimal_comma)
}

/// Converts a cell of any type except text, without the blanks around it.
fn typed_scalar<'a>(text: &'a str, column: &ColumnPlan, decimal_comma: bool) -> Result<Scalar<'a>, String> {
    let role = column.role;
    let column_type = role.column_type();
    if let Some(pattern) = &column.pattern {
        let scalar = match column_type {
            ColumnType::Date32 => pattern.parse_date(text).map(Scalar::Date32),
            _ => pattern.parse(text).map(|timestamp| Scalar::Timestamp(timestamp.microseconds)),
        };
        return scalar.map_err(|reason| format!("{} is not a valid {}: {reason}", quoted(text), column_type.name()));
    }
    let scalar = match column_type {
        ColumnType::Boolean => parse_boolean(text).map(Scalar::Boolean),
        ColumnType::Int64 => number::parse_integer(text, decimal_comma).map(Scalar::Int64),
        ColumnType::UInt64 => {
            let integer = || u64::try_from(number::parse_integer(text, decimal_comma)?).ok();
            text.parse().ok().or_else(integer).map(Scalar::UInt64)
        }
        ColumnType::Float32 => number::parse_float(text, decimal_comma).and_then(float32).map(Scalar::Float32),
        ColumnType::Float64 => match number::parse_float(text, decimal_comma) {
            Some(value) if role == Role::Coordinate => Some(value).filter(|value| value.is_finite()),
            Some(_) if number::is_inexact_integer(text) => return Err(inexact(text)),
            value => value,
        }
        .map(Scalar::Float64),
        ColumnType::Utf8 => None,
        ColumnType::Binary => {
            base64::engine::general_purpose::STANDARD.decode(text).ok().map(|bytes| Scalar::Binary(Cow::Owned(bytes)))
        }
        ColumnType::Uuid => parse_uuid(text).ok().map(Scalar::Uuid),
        ColumnType::Date32 => parse_date(text).ok().map(Scalar::Date32),
        ColumnType::Timestamp | ColumnType::TimestampUtc => parse_timestamp(text)
            .ok()
            .filter(|timestamp| column_type == ColumnType::TimestampUtc || !timestamp.has_zone)
            .map(|timestamp| Scalar::Timestamp(timestamp.microseconds)),
    };
    scalar.ok_or_else(|| if role == Role::Coordinate { no_coordinate(text) } else { mismatch(text, column_type) })
}

/// The nearest 32-bit float to a number, unless it overflows.
fn float32(number: f64) -> Option<f32> {
    let rounded = number as f32;
    (rounded.is_finite() || !number.is_finite()).then_some(rounded)
}

fn inexact(integer: &str) -> String {
    format!("{} does not fit float64 exactly; write {integer}.0 if it may be rounded", quoted(integer))
}

/// Converts a JSON value.
pub(crate) fn json_scalar<'a>(value: JsonRef<'a>, column: &ColumnPlan) -> Result<Scalar<'a>, String> {
    let role = column.role;
    let column_type = role.column_type();
    let scalar = match (column_type, value) {
        (_, JsonRef::Null) => Some(Scalar::Null),
        (ColumnType::Boolean, JsonRef::Bool(value)) => Some(Scalar::Boolean(value)),
        (ColumnType::Int64, JsonRef::Number(number)) => json_integer(number).map(Scalar::Int64),
        (ColumnType::UInt64, JsonRef::Number(number)) => {
            let integer = || u64::try_from(json_integer(number)?).ok();
            number.as_u64().or_else(integer).map(Scalar::UInt64)
        }
        (ColumnType::Float32, JsonRef::Number(number)) => number.as_f64().and_then(float32).map(Scalar::Float32),
        (ColumnType::Float64, JsonRef::Number(number)) => {
            let is_exact = number.as_i128().is_none_or(|integer| exact_float(integer).is_some());
            if role != Role::Coordinate && !is_exact {
                return Err(inexact(&number.to_string()));
            }
            number.as_f64().map(Scalar::Float64)
        }
        (ColumnType::Utf8, JsonRef::Text(text)) => Some(Scalar::Utf8(Cow::Borrowed(text))),
        // A text column stores nested values as text.
        (ColumnType::Utf8, other) if role == Role::Text || matches!(other, JsonRef::Nested(_)) => {
            Some(Scalar::Utf8(Cow::Owned(other.to_string())))
        }
        (ColumnType::Utf8, _) => return Err(format!("{} is not text; write it in quotes", quoted(&value.to_string()))),
        (
            ColumnType::Binary
            | ColumnType::Uuid
            | ColumnType::Date32
            | ColumnType::Timestamp
            | ColumnType::TimestampUtc,
            JsonRef::Text(text),
        ) => return typed_scalar(text, column, false),
        (ColumnType::Float64, JsonRef::Text(text)) if role == Role::Coordinate => {
            return typed_scalar(text.trim(), column, false);
        }
        _ => None,
    };
    scalar.ok_or_else(|| mismatch(&value.to_string(), column_type))
}

/// Builds a column of one type.
pub(crate) enum ColumnBuilder {
    Boolean(BooleanBuilder),
    Int64(Int64Builder),
    UInt64(UInt64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Utf8(StringBuilder),
    Binary(BinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Date32(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
}

impl ColumnBuilder {
    /// With capacity for `rows` rows.
    pub(crate) fn new(column_type: ColumnType, rows: usize) -> ColumnBuilder {
        match column_type {
            ColumnType::Boolean => ColumnBuilder::Boolean(BooleanBuilder::with_capacity(rows)),
            ColumnType::Int64 => ColumnBuilder::Int64(Int64Builder::with_capacity(rows)),
            ColumnType::UInt64 => ColumnBuilder::UInt64(UInt64Builder::with_capacity(rows)),
            ColumnType::Float32 => ColumnBuilder::Float32(Float32Builder::with_capacity(rows)),
            ColumnType::Float64 => ColumnBuilder::Float64(Float64Builder::with_capacity(rows)),
            ColumnType::Utf8 => ColumnBuilder::Utf8(StringBuilder::with_capacity(rows, 0)),
            ColumnType::Binary => ColumnBuilder::Binary(BinaryBuilder::with_capacity(rows, 0)),
            ColumnType::Uuid => ColumnBuilder::Uuid(uuid_builder()),
            ColumnType::Date32 => ColumnBuilder::Date32(Date32Builder::with_capacity(rows)),
            ColumnType::Timestamp | ColumnType::TimestampUtc => ColumnBuilder::Timestamp(
                TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(column_type.data_type()),
            ),
        }
    }

    /// Appends a value. A value of another type than the column's becomes null; the conversions
    /// above never produce one.
    pub(crate) fn append(&mut self, scalar: &Scalar<'_>) {
        match (self, scalar) {
            (ColumnBuilder::Boolean(builder), Scalar::Boolean(value)) => builder.append_value(*value),
            (ColumnBuilder::Int64(builder), Scalar::Int64(value)) => builder.append_value(*value),
            (ColumnBuilder::UInt64(builder), Scalar::UInt64(value)) => builder.append_value(*value),
            (ColumnBuilder::Float32(builder), Scalar::Float32(value)) => builder.append_value(*value),
            (ColumnBuilder::Float64(builder), Scalar::Float64(value)) => builder.append_value(*value),
            (ColumnBuilder::Utf8(builder), Scalar::Utf8(value)) => builder.append_value(value),
            (ColumnBuilder::Binary(builder), Scalar::Binary(value)) => builder.append_value(value),
            (ColumnBuilder::Uuid(builder), Scalar::Uuid(value)) => append_uuid(builder, *value),
            (ColumnBuilder::Date32(builder), Scalar::Date32(value)) => builder.append_value(*value),
            (ColumnBuilder::Timestamp(builder), Scalar::Timestamp(value)) => builder.append_value(*value),
            (builder, scalar) => {
                debug_assert_eq!(scalar, &Scalar::Null, "a value of another type");
                builder.append_null();
            }
        }
    }

    fn append_null(&mut self) {
        match self {
            ColumnBuilder::Boolean(builder) => builder.append_null(),
            ColumnBuilder::Int64(builder) => builder.append_null(),
            ColumnBuilder::UInt64(builder) => builder.append_null(),
            ColumnBuilder::Float32(builder) => builder.append_null(),
            ColumnBuilder::Float64(builder) => builder.append_null(),
            ColumnBuilder::Utf8(builder) => builder.append_null(),
            ColumnBuilder::Binary(builder) => builder.append_null(),
            ColumnBuilder::Uuid(builder) => builder.append_null(),
            ColumnBuilder::Date32(builder) => builder.append_null(),
            ColumnBuilder::Timestamp(builder) => builder.append_null(),
        }
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            ColumnBuilder::Boolean(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Int64(builder) => Arc::new(builder.finish()),
            ColumnBuilder::UInt64(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Float32(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Float64(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Utf8(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Binary(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Uuid(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Date32(builder) => Arc::new(builder.finish()),
            ColumnBuilder::Timestamp(builder) => Arc::new(builder.finish()),
        }
    }
}

/// How rows are converted to batches.
#[derive(Debug)]
pub(crate) struct RowPlan {
    pub columns: Vec<ColumnPlan>,
    schema: SchemaRef,
    /// The coordinate columns. Both or none of them must be null.
    coordinates: Option<[usize; 2]>,
    /// Converts coordinate fields of the file to the coordinates of the dataset.
    reader: Option<GeometryReader>,
}

impl RowPlan {
    pub(crate) fn new(columns: Vec<ColumnPlan>, geometry: &GeometryColumns, reader: Option<GeometryReader>) -> RowPlan {
        let place = |name: &String| columns.iter().position(|column| column.name == *name);
        let coordinates = match geometry {
            GeometryColumns::Coordinates { x, y } => place(x).zip(place(y)).map(|(x, y)| [x, y]),
            _ => None,
        };
        RowPlan { schema: schema_of(&columns), columns, coordinates, reader }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Collects the rows of a batch.
pub(crate) struct RowBuilder<'p> {
    plan: &'p RowPlan,
    builders: Vec<ColumnBuilder>,
    rows: Vec<u64>,
    rejected: Vec<RejectedRow>,
}

impl RowBuilder<'_> {
    /// With capacity for about `rows` rows.
    pub(crate) fn new(plan: &RowPlan, rows: usize) -> RowBuilder<'_> {
        let builders = plan.columns.iter().map(|column| ColumnBuilder::new(column.role.column_type(), rows)).collect();
        RowBuilder { plan, builders, rows: Vec::with_capacity(rows), rejected: Vec::new() }
    }

    /// Adds a row, or returns why it is refused.
    pub(crate) fn push(&mut self, row: u64, mut scalars: Vec<Scalar<'_>>) -> Result<(), String> {
        if let Some(columns) = self.plan.coordinates {
            let [x, y] = columns.map(|column| scalars[column] == Scalar::Null);
            if x != y {
                let missing = columns[usize::from(y)];
                return Err(format!("column {:?}: the coordinate is missing", self.plan.columns[missing].name));
            }
            if let (Some(reader), [Scalar::Float64(x), Scalar::Float64(y)]) =
                (&self.plan.reader, columns.map(|column| &scalars[column]))
            {
                let point = reader.point(Point::new(*x, *y))?;
                scalars[columns[0]] = Scalar::Float64(point.x);
                scalars[columns[1]] = Scalar::Float64(point.y);
            }
        }
        for (builder, scalar) in self.builders.iter_mut().zip(&scalars) {
            builder.append(scalar);
        }
        self.rows.push(row);
        Ok(())
    }

    /// Records a refused row.
    pub(crate) fn reject(&mut self, row: u64, line: u64, reason: String, raw: String) {
        self.rejected.push(RejectedRow { row, line: Some(line), reason, raw: Some(shorten(raw)) });
    }

    /// Returns the collected rows of the file at `path`.
    pub(crate) fn finish(mut self, path: &Path) -> Result<Batch, FormatError> {
        let columns = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let batch = RecordBatch::try_new_with_options(self.plan.schema(), columns, &options).map_err(|error| {
            FormatError::damaged(path, Location::File, format!("the rows do not form a batch: {error}"))
        })?;
        Ok(Batch { batch, rows: self.rows, rejected: self.rejected })
    }
}
