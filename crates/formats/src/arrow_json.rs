//! Values of Arrow columns as JSON: integers stay integers, times become
//! ISO 8601, binary becomes base64, what is not finite becomes null.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use base64::Engine;
use serde_json::{Map, Number, Value};
use terrane_literal::{format_date, format_timestamp};

/// How deep nested values are followed.
const DEPTH_MAX: u32 = 64;

/// The value of a row as JSON.
///
/// # Errors
/// When values are nested too deeply or cannot be shown.
pub(crate) fn json_of(array: &ArrayRef, row: usize) -> Result<Value, ArrowError> {
    nested(array, row, 0)
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn nested(array: &ArrayRef, row: usize, depth: u32) -> Result<Value, ArrowError> {
    if depth > DEPTH_MAX {
        return Err(ArrowError::InvalidArgumentError("values are nested too deeply".to_string()));
    }
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => float(f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Binary => base64_text(array.as_binary::<i32>().value(row)).into(),
        DataType::LargeBinary => base64_text(array.as_binary::<i64>().value(row)).into(),
        DataType::BinaryView => base64_text(array.as_binary_view().value(row)).into(),
        DataType::FixedSizeBinary(_) => base64_text(array.as_fixed_size_binary().value(row)).into(),
        DataType::Date32 => format_date(array.as_primitive::<Date32Type>().value(row)).into(),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            format_timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row), zone.is_some()).into()
        }
        DataType::List(_) => list(&array.as_list::<i32>().value(row), depth)?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row), depth)?,
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row), depth)?,
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let mut members = Map::new();
            for (field, column) in fields.iter().zip(columns) {
                members.insert(field.name().clone(), nested(column, row, depth + 1)?);
            }
            Value::Object(members)
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let mut pairs = Vec::new();
            for entry in 0..entries.len() {
                let mut pair = Vec::new();
                for column in entries.columns() {
                    pair.push(nested(column, entry, depth + 1)?);
                }
                pairs.push(Value::Array(pair));
            }
            Value::Array(pairs)
        }
        _ => ArrayFormatter::try_new(array.as_ref(), &FormatOptions::default())?.value(row).try_to_string()?.into(),
    })
}

fn list(values: &ArrayRef, depth: u32) -> Result<Value, ArrowError> {
    (0..values.len()).map(|index| nested(values, index, depth + 1)).collect::<Result<_, _>>().map(Value::Array)
}

pub(crate) fn base64_text(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
