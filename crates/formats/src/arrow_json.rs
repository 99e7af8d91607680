//! Converts values of Arrow columns to JSON. Integers stay integers, times become ISO 8601, UUIDs
//! become text, and binary becomes base64. NaN and infinities become null; inside nested values,
//! which are stored as text, they become a text such as `"NaN"`.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};
use arrow_select::take::take;
use base64::Engine;
use serde_json::{Map, Number, Value};
use terrane_literal::{format_date, format_timestamp, format_uuid, is_uuid, shortest, uuid_at};

use crate::json::VALUES_MAX;

/// How deep values may be nested.
const DEPTH_MAX: u32 = 64;

/// The value of a row as JSON.
///
/// # Errors
/// When the value is nested too deeply, has too many parts, or has no JSON form.
pub(crate) fn json_of(array: &ArrayRef, row: usize) -> Result<Value, ArrowError> {
    nested(array, row, false, 0, &mut { VALUES_MAX })
}

/// Subtracts `count` from the number of values that are still allowed, before they are allocated.
fn count_off(left: &mut usize, count: usize) -> Result<(), ArrowError> {
    *left = left.checked_sub(count).ok_or_else(|| {
        let reason = format!("the value has more than {VALUES_MAX} parts; split it into several values");
        ArrowError::InvalidArgumentError(reason)
    })?;
    Ok(())
}

fn float(value: f64, depth: u32) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if depth == 0 => Value::Null,
        None if value.is_nan() => "NaN".into(),
        None => if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
    }
}

/// A value as Arrow formats it.
///
/// # Errors
/// When the value is out of the formatter's range.
pub(crate) fn shown(array: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    // By default, the formatter writes errors into the text.
    let options = FormatOptions::new().with_display_error(false);
    let text = ArrayFormatter::try_new(array.as_ref(), &options)?.value(row).try_to_string()?;
    match text.as_str() {
        // This error is written into the text all the same.
        "<invalid>" => Err(ArrowError::ComputeError("the duration is too long".to_string())),
        _ => Ok(text),
    }
}

/// The values of a run-end encoded array, one per row.
pub(crate) fn without_runs(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    macro_rules! expanded {
        ($($run_end:ty),*) => {
            $(if let Some(runs) = array.as_run_opt::<$run_end>() {
                let places: UInt64Array = (0..runs.len()).map(|row| runs.get_physical_index(row) as u64).collect();
                return take(runs.values(), &places, None);
            })*
        };
    }
    expanded!(Int16Type, Int32Type, Int64Type);
    Err(ArrowError::InvalidArgumentError(format!("{} has no runs", array.data_type())))
}

/// The value of a row; `has_uuids` tells whether the field is marked as one of UUIDs.
fn nested(array: &ArrayRef, row: usize, has_uuids: bool, depth: u32, left: &mut usize) -> Result<Value, ArrowError> {
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
        DataType::Float16 => float(array.as_primitive::<Float16Type>().value(row).to_f64(), depth),
        DataType::Float32 => float(shortest(array.as_primitive::<Float32Type>().value(row)), depth),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row), depth),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Binary => base64_text(array.as_binary::<i32>().value(row)).into(),
        DataType::LargeBinary => base64_text(array.as_binary::<i64>().value(row)).into(),
        DataType::BinaryView => base64_text(array.as_binary_view().value(row)).into(),
        DataType::FixedSizeBinary(_) if has_uuids => {
            uuid_at(array.as_fixed_size_binary(), row).map_or(Value::Null, |uuid| format_uuid(uuid).into())
        }
        DataType::FixedSizeBinary(_) => base64_text(array.as_fixed_size_binary().value(row)).into(),
        DataType::Date32 => format_date(array.as_primitive::<Date32Type>().value(row)).into(),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            format_timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row), zone.is_some()).into()
        }
        DataType::List(item) => list(&array.as_list::<i32>().value(row), item, depth, left)?,
        DataType::LargeList(item) => list(&array.as_list::<i64>().value(row), item, depth, left)?,
        DataType::FixedSizeList(item, _) => list(&array.as_fixed_size_list().value(row), item, depth, left)?,
        DataType::ListView(item) => list(&array.as_list_view::<i32>().value(row), item, depth, left)?,
        DataType::LargeListView(item) => list(&array.as_list_view::<i64>().value(row), item, depth, left)?,
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            count_off(left, columns.len())?;
            let mut members = Map::new();
            for (field, column) in fields.iter().zip(columns) {
                let value = nested(column, row, is_uuid(field), depth + 1, left)?;
                if members.insert(field.name().clone(), value).is_some() {
                    let reason = format!("two members of a struct are called {:?}", field.name());
                    return Err(ArrowError::InvalidArgumentError(reason));
                }
            }
            Value::Object(members)
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            // Each entry is a key and a value.
            count_off(left, entries.len().saturating_mul(3))?;
            let mut pairs = Vec::new();
            for entry in 0..entries.len() {
                let mut pair = Vec::new();
                for (field, column) in entries.fields().iter().zip(entries.columns()) {
                    pair.push(nested(column, entry, is_uuid(field), depth + 1, left)?);
                }
                pairs.push(Value::Array(pair));
            }
            Value::Array(pairs)
        }
        DataType::Dictionary(..) => {
            // Arrays may have keys of null rows that point to no value.
            let row = array.slice(row, 1);
            let dictionary = row.as_any_dictionary();
            nested(dictionary.values(), dictionary.normalized_keys()[0], has_uuids, depth, left)?
        }
        DataType::RunEndEncoded(..) => nested(&without_runs(&array.slice(row, 1))?, 0, has_uuids, depth, left)?,
        DataType::Union(..) => nested(&array.as_union().value(row), 0, false, depth + 1, left)?,
        DataType::Date64
        | DataType::Timestamp(..)
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => shown(array, row)?.into(),
    })
}

fn list(values: &ArrayRef, item: &Field, depth: u32, left: &mut usize) -> Result<Value, ArrowError> {
    count_off(left, values.len())?;
    let has_uuids = is_uuid(item);
    (0..values.len())
        .map(|index| nested(values, index, has_uuids, depth + 1, left))
        .collect::<Result<_, _>>()
        .map(Value::Array)
}

pub(crate) fn base64_text(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
