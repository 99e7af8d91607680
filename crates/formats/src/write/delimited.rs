//! Comma-separated values (RFC 4180).
//!
//! - Null is an empty field, empty text a quoted one.
//! - Floats are the shortest text that reads back the same, with a decimal point.
//! - Geometries are WKT, UUIDs text, other binary values base64.
//! - NUL characters are refused: few programs read them, and neither does the reader of this crate.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use serde_json::Value;
use terrane_literal::format_uuid;

use super::error::WriteError;
use super::ndjson::BUFFER_BYTES;
use super::output::{GeometryIndex, Sink, holds_wkb, uuid_of, wkb_of};
use super::{WriteOptions, Writer};
use crate::arrow_json::json_of;
use crate::geometry::wkt_of;

pub(crate) struct CsvWriter<'a> {
    sink: Sink<'a>,
    options: WriteOptions,
    geometry: Option<GeometryIndex>,
    buffer: String,
}

impl<'a> CsvWriter<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: WriteOptions) -> Self {
        CsvWriter { sink, options, geometry: None, buffer: String::new() }
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        self.sink.write_all(self.buffer.as_bytes())?;
        self.buffer.clear();
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<(), &'static str> {
        if text.contains('\0') {
            return Err("the text holds a NUL character, which CSV cannot have; choose another output format");
        }
        let needs_quotes = text.is_empty()
            || text.contains([',', '"', '\n', '\r'])
            || text.starts_with([' ', '\t'])
            || text.ends_with([' ', '\t']);
        if needs_quotes {
            self.buffer.push('"');
            self.buffer.push_str(&text.replace('"', "\"\""));
            self.buffer.push('"');
        } else {
            self.buffer.push_str(text);
        }
        Ok(())
    }
}

/// The text of a value; `None` for null.
pub(crate) fn cell_text(
    batch: &RecordBatch,
    geometry: GeometryIndex,
    column: usize,
    row: usize,
) -> Result<Option<String>, WriteError> {
    let array = batch.column(column);
    let failed = |reason: String| WriteError::value(row, batch.schema_ref().field(column).name(), reason);
    if array.is_null(row) {
        return Ok(None);
    }
    if geometry == GeometryIndex::Column(column) || holds_wkb(batch.schema_ref().field(column)) {
        return wkb_of(array, row).map(wkt_of).transpose().map_err(failed);
    }
    if let Some(uuid) = uuid_of(array, batch.schema_ref().field(column), row) {
        return Ok(Some(format_uuid(uuid)));
    }
    Ok(Some(match array.data_type() {
        DataType::Float32 => format!("{:?}", array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => array.as_string::<i32>().value(row).to_string(),
        _ => match json_of(array, row).map_err(|error| failed(error.to_string()))? {
            Value::String(text) => text,
            value => value.to_string(),
        },
    }))
}

impl Writer for CsvWriter<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError> {
        self.geometry = Some(GeometryIndex::find_if_selected(schema, &self.options.geometry));
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                self.buffer.push(',');
            }
            self.push_text(field.name())
                .map_err(|reason| WriteError::Encode(format!("column {:?}: {reason}", field.name())))?;
        }
        self.buffer.push('\n');
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let geometry = self.geometry.ok_or(WriteError::NotBegun)?;
        // A line without any character would be read as a blank line.
        let is_single = batch.num_columns() == 1;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                if column > 0 {
                    self.buffer.push(',');
                }
                match cell_text(batch, geometry, column, row)? {
                    Some(text) => self
                        .push_text(&text)
                        .map_err(|reason| WriteError::value(row, batch.schema_ref().field(column).name(), reason))?,
                    None if is_single => self.buffer.push_str("\"\""),
                    None => {}
                }
            }
            self.buffer.push('\n');
            if self.buffer.len() >= BUFFER_BYTES {
                self.drain()?;
            }
        }
        self.drain()
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.drain()?;
        Ok(self.sink.flush()?)
    }
}
