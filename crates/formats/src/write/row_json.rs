//! Rows as JSON objects, written member by member into one buffer.

use std::collections::HashSet;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;
use terrane_literal::format_uuid;

use super::error::WriteError;
use super::output::{geometry_json, holds_wkb, uuid_of};
use crate::arrow_json::json_of;
use crate::layout::unique_name;

/// Name of the member that holds a geometry.
const GEOMETRY_MEMBER: &str = "geometry";

/// The members of a row's object.
pub(crate) struct RowMembers {
    /// Column number, its name as a JSON key with the colon, whether it holds WKB.
    columns: Vec<(usize, Vec<u8>, bool)>,
}

impl RowMembers {
    /// All columns except `left_out`. `geometry` is written as GeoJSON under that name, which
    /// readers look for, unless another column has it.
    pub(crate) fn new(schema: &Schema, left_out: &[usize], geometry: Option<usize>) -> RowMembers {
        let mut names = HashSet::new();
        let columns = (0..schema.fields().len())
            .filter(|index| !left_out.contains(index))
            .map(|index| {
                let is_geometry = geometry == Some(index);
                let name = match is_geometry && schema.index_of(GEOMETRY_MEMBER).is_err() {
                    true => GEOMETRY_MEMBER,
                    false => schema.field(index).name().as_str(),
                };
                // Readers keep one member of each name.
                let name = unique_name(name, |name| names.contains(name));
                let key = format!("{}:", Value::String(name.clone()));
                names.insert(name);
                (index, key.into_bytes(), is_geometry || holds_wkb(schema.field(index)))
            })
            .collect();
        RowMembers { columns }
    }

    /// Appends `{…}` for a row.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>, batch: &RecordBatch, row: usize) -> Result<(), WriteError> {
        buffer.push(b'{');
        for (position, (index, key, is_geometry)) in self.columns.iter().enumerate() {
            if position > 0 {
                buffer.push(b',');
            }
            buffer.extend_from_slice(key);
            let array = batch.column(*index);
            let field = batch.schema_ref().field(*index);
            let name = field.name();
            if *is_geometry {
                write_json(buffer, &geometry_json(array, row, name)?)?;
            } else {
                write_value(buffer, array, field, row).map_err(|error| WriteError::value(row, name, error))?;
            }
        }
        buffer.push(b'}');
        Ok(())
    }
}

/// Appends a JSON value.
pub(crate) fn write_json(buffer: &mut Vec<u8>, value: &Value) -> Result<(), WriteError> {
    serde_json::to_writer(buffer, value).map_err(|error| WriteError::Encode(error.to_string()))
}

fn write_value(buffer: &mut Vec<u8>, array: &ArrayRef, field: &Field, row: usize) -> Result<(), WriteError> {
    if array.is_null(row) {
        buffer.extend_from_slice(b"null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Int64 => write!(buffer, "{}", array.as_primitive::<Int64Type>().value(row))?,
        // Numbers that JSON does not have become null.
        DataType::Float32 => match array.as_primitive::<Float32Type>().value(row) {
            value if value.is_finite() => write!(buffer, "{value:?}")?,
            _ => buffer.extend_from_slice(b"null"),
        },
        DataType::Float64 => match array.as_primitive::<Float64Type>().value(row) {
            value if value.is_finite() => write!(buffer, "{value:?}")?,
            _ => buffer.extend_from_slice(b"null"),
        },
        DataType::Utf8 => serde_json::to_writer(&mut *buffer, array.as_string::<i32>().value(row))
            .map_err(|error| WriteError::Encode(error.to_string()))?,
        _ => match uuid_of(array, field, row) {
            Some(uuid) => write!(buffer, "\"{}\"", format_uuid(uuid))?,
            None => write_json(buffer, &json_of(array, row)?)?,
        },
    }
    Ok(())
}
