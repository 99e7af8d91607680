//! Rows as an Arrow batch of their dataset.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{Field, Schema as ArrowSchema};
use terrane::schema::{ColumnType, GeometryColumn, KeyType, Schema};
use terrane::{Key, Value};
use terrane_literal::{UuidBytes, append_uuid, uuid_builder};
use terrane_space::geometry::as_point;

use super::row::Row;
use crate::failure::Failure;

/// The rows as a batch, with the key column if they bring keys. Either all of them do or none does.
pub fn of_rows(rows: &[Row], schema: &Schema) -> Result<RecordBatch, Failure> {
    let mut columns: Vec<(String, ArrayRef)> = Vec::with_capacity(schema.columns.len() + 3);
    if rows.first().is_some_and(|row| row.key.is_some()) {
        columns.push((schema.key.name.clone(), keys(rows, schema.key.key_type)));
    }
    match &schema.geometry {
        GeometryColumn::Point { x, y } => {
            let points = || rows.iter().map(|row| row.geometry.as_deref().and_then(as_point));
            let xs: Float64Array = points().map(|point| point.map(|point| point.x)).collect();
            let ys: Float64Array = points().map(|point| point.map(|point| point.y)).collect();
            columns.push((x.clone(), Arc::new(xs)));
            columns.push((y.clone(), Arc::new(ys)));
        }
        GeometryColumn::Geometry { name } => {
            let geometries: BinaryArray = rows.iter().map(|row| row.geometry.as_deref()).collect();
            columns.push((name.clone(), Arc::new(geometries)));
        }
        GeometryColumn::None => {}
    }
    // Rows name only the attributes that they have; the batch has all of the dataset's.
    let places: HashMap<&str, usize> =
        schema.columns.iter().enumerate().map(|(place, column)| (column.name.as_str(), place)).collect();
    let mut values: Vec<Vec<Option<&Value>>> = vec![vec![None; rows.len()]; schema.columns.len()];
    for (number, row) in rows.iter().enumerate() {
        for (name, value) in &row.values {
            if let Some(&place) = places.get(name.as_str()) {
                values[place][number] = Some(value);
            }
        }
    }
    for (column, values) in schema.columns.iter().zip(&values) {
        columns.push((column.name.clone(), attribute(values, column.column_type)));
    }
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)
        .map_err(|error| Failure::new(Failure::FAILURE, format!("the records do not form a batch: {error}")))
}

fn keys(rows: &[Row], key_type: KeyType) -> ArrayRef {
    let keys = rows.iter().map(|row| row.key.as_ref());
    match key_type {
        KeyType::Int64 => Arc::new(keys.map(int_key).collect::<Int64Array>()),
        KeyType::UInt64 => Arc::new(keys.map(uint_key).collect::<UInt64Array>()),
        KeyType::Utf8 => Arc::new(keys.map(utf8_key).collect::<StringArray>()),
        KeyType::Binary => Arc::new(keys.map(binary_key).collect::<BinaryArray>()),
        KeyType::Uuid => uuids(keys.map(uuid_key)),
    }
}

fn int_key(key: Option<&Key>) -> Option<i64> {
    match key {
        Some(Key::Int(key)) => Some(*key),
        _ => None,
    }
}

fn uint_key(key: Option<&Key>) -> Option<u64> {
    match key {
        Some(Key::UInt(key)) => Some(*key),
        _ => None,
    }
}

fn utf8_key(key: Option<&Key>) -> Option<&str> {
    match key {
        Some(Key::Utf8(key)) => Some(key),
        _ => None,
    }
}

fn binary_key(key: Option<&Key>) -> Option<&[u8]> {
    match key {
        Some(Key::Binary(key)) => Some(key),
        _ => None,
    }
}

fn uuid_key(key: Option<&Key>) -> Option<UuidBytes> {
    match key {
        Some(Key::Uuid(key)) => Some(*key),
        _ => None,
    }
}

fn uuids(values: impl Iterator<Item = Option<UuidBytes>>) -> ArrayRef {
    let mut array = uuid_builder();
    values.for_each(|value| match value {
        Some(uuid) => append_uuid(&mut array, uuid),
        None => array.append_null(),
    });
    Arc::new(array.finish())
}

/// A column of values of its type.
fn attribute(values: &[Option<&Value>], column_type: ColumnType) -> ArrayRef {
    let values = values.iter().copied();
    match column_type {
        ColumnType::Bool => Arc::new(values.map(bool_of).collect::<BooleanArray>()),
        ColumnType::Int64 => Arc::new(values.map(int_of).collect::<Int64Array>()),
        ColumnType::Float32 => Arc::new(values.map(float32_of).collect::<Float32Array>()),
        ColumnType::Float64 => Arc::new(values.map(float_of).collect::<Float64Array>()),
        ColumnType::Utf8 => {
            // Allocated to its final size, since values may be long.
            let bytes = values.clone().filter_map(utf8_of).map(str::len).sum();
            let mut array = StringBuilder::with_capacity(values.len(), bytes);
            values.for_each(|value| array.append_option(utf8_of(value)));
            Arc::new(array.finish())
        }
        ColumnType::Binary => Arc::new(values.map(binary_of).collect::<BinaryArray>()),
        ColumnType::Uuid => uuids(values.map(uuid_of)),
        ColumnType::Date => Arc::new(values.map(date_of).collect::<Date32Array>()),
        ColumnType::Timestamp { utc } => {
            let array = values.map(timestamp_of).collect::<TimestampMicrosecondArray>();
            match utc {
                true => Arc::new(array.with_timezone("UTC")),
                false => Arc::new(array),
            }
        }
    }
}

fn bool_of(value: Option<&Value>) -> Option<bool> {
    match value {
        Some(Value::Bool(value)) => Some(*value),
        _ => None,
    }
}

fn int_of(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Int(value)) => Some(*value),
        _ => None,
    }
}

fn float32_of(value: Option<&Value>) -> Option<f32> {
    match value {
        Some(Value::Float32(value)) => Some(*value),
        _ => None,
    }
}

fn float_of(value: Option<&Value>) -> Option<f64> {
    match value {
        Some(Value::Float64(value)) => Some(*value),
        _ => None,
    }
}

fn utf8_of(value: Option<&Value>) -> Option<&str> {
    match value {
        Some(Value::Utf8(value)) => Some(value),
        _ => None,
    }
}

fn binary_of(value: Option<&Value>) -> Option<&[u8]> {
    match value {
        Some(Value::Binary(value)) => Some(value),
        _ => None,
    }
}

fn uuid_of(value: Option<&Value>) -> Option<UuidBytes> {
    match value {
        Some(Value::Uuid(value)) => Some(*value),
        _ => None,
    }
}

fn date_of(value: Option<&Value>) -> Option<i32> {
    match value {
        Some(Value::Date(value)) => Some(*value),
        _ => None,
    }
}

fn timestamp_of(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Timestamp(value)) => Some(*value),
        _ => None,
    }
}
