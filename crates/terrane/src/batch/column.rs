//! One input column, with its type resolved.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Float32Type, Float64Type, Int64Type, TimestampMicrosecondType, TimestampNanosecondType,
    UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Date64Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int64Array, StringArray, TimestampMicrosecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};

use terrane_literal::decimal::{self, is_decimal};
use terrane_literal::{UUID_STORAGE, stores_uuids, uuid_at};

use super::BatchError;
use crate::schema::ColumnType;
use crate::value::{BEYOND_FLOAT32, INEXACT, ValueRef, exact_float, float32};

/// The values of a column, with its type resolved once. Narrower types and other encodings have
/// been cast.
pub(super) enum ColumnValues {
    /// The column is missing, or all its values are null.
    Missing,
    Bool(BooleanArray),
    Int(Int64Array),
    UInt(UInt64Array),
    Float32(Float32Array),
    Float(Float64Array),
    Utf8(StringArray),
    Binary(BinaryArray),
    Uuid(FixedSizeBinaryArray),
    Date(Date32Array),
    /// Milliseconds; only whole days are accepted.
    DateMilliseconds(Date64Array),
    Timestamp(TimestampMicrosecondArray),
    /// Nanoseconds; only whole microseconds are accepted.
    Nanoseconds(TimestampNanosecondArray),
}

impl ColumnValues {
    /// Resolves a column for an attribute. Refuses a type whose values the attribute cannot hold.
    pub(super) fn new(name: &str, array: &ArrayRef, wanted: ColumnType) -> Result<Self, BatchError> {
        let found = array.data_type();
        if *found == DataType::Null {
            return Ok(Self::Missing);
        }
        let fits = match ColumnType::from_arrow(found) {
            // 16 bytes are a UUID, with the extension type of UUIDs or without.
            _ if wanted == ColumnType::Uuid => stores_uuids(found),
            Some(ColumnType::Int64) => matches!(wanted, ColumnType::Int64 | ColumnType::Float32 | ColumnType::Float64),
            // A value that does not fit is an error of the batch.
            Some(ColumnType::Float64) if wanted == ColumnType::Int64 => decimal::is_whole(values_type(found)),
            Some(ColumnType::Float32 | ColumnType::Float64) => {
                matches!(wanted, ColumnType::Float32 | ColumnType::Float64)
            }
            Some(column_type) => column_type == wanted,
            None => false,
        };
        if !fits {
            return Err(type_error(name, found, &wanted));
        }
        if *values_type(found) == DataType::UInt64 {
            return Self::uint(array);
        }
        match wanted {
            ColumnType::Bool => Ok(Self::Bool(cast(array, &DataType::Boolean)?.as_boolean().clone())),
            ColumnType::Int64 => Self::int(array),
            ColumnType::Float32 | ColumnType::Float64 if ColumnType::from_arrow(found) == Some(ColumnType::Int64) => {
                Self::int(array)
            }
            // A cast does not give the nearest float for many decimals.
            ColumnType::Float32 | ColumnType::Float64 if is_decimal(values_type(found)) => {
                Ok(Self::Float(decimal::to_float64(&cast(array, values_type(found))?)?))
            }
            ColumnType::Float32 if ColumnType::from_arrow(found) == Some(ColumnType::Float32) => {
                Ok(Self::Float32(cast(array, &DataType::Float32)?.as_primitive::<Float32Type>().clone()))
            }
            ColumnType::Float32 | ColumnType::Float64 => {
                Ok(Self::Float(cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone()))
            }
            ColumnType::Utf8 => Self::utf8(array),
            ColumnType::Binary => Self::binary(array),
            ColumnType::Uuid => Self::uuid(array),
            // A cast would drop the time of day.
            ColumnType::Date if *values_type(found) == DataType::Date64 => {
                Ok(Self::DateMilliseconds(cast(array, &DataType::Date64)?.as_primitive::<Date64Type>().clone()))
            }
            ColumnType::Date => Ok(Self::Date(cast(array, &DataType::Date32)?.as_primitive::<Date32Type>().clone())),
            ColumnType::Timestamp { .. } => {
                let (unit, zone) = timestamp_parts(found);
                // A cast would drop the nanoseconds.
                if unit == TimeUnit::Nanosecond {
                    let array = cast(array, &DataType::Timestamp(unit, zone))?;
                    return Ok(Self::Nanoseconds(array.as_primitive::<TimestampNanosecondType>().clone()));
                }
                let array = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone))?;
                Ok(Self::Timestamp(array.as_primitive::<TimestampMicrosecondType>().clone()))
            }
        }
    }

    pub(super) fn int(array: &ArrayRef) -> Result<Self, BatchError> {
        Ok(Self::Int(cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone()))
    }

    pub(super) fn uint(array: &ArrayRef) -> Result<Self, BatchError> {
        Ok(Self::UInt(cast(array, &DataType::UInt64)?.as_primitive::<UInt64Type>().clone()))
    }

    pub(super) fn utf8(array: &ArrayRef) -> Result<Self, BatchError> {
        Ok(Self::Utf8(cast(array, &DataType::Utf8)?.as_string::<i32>().clone()))
    }

    pub(super) fn binary(array: &ArrayRef) -> Result<Self, BatchError> {
        Ok(Self::Binary(cast(array, &DataType::Binary)?.as_binary::<i32>().clone()))
    }

    pub(super) fn uuid(array: &ArrayRef) -> Result<Self, BatchError> {
        Ok(Self::Uuid(cast(array, &UUID_STORAGE)?.as_fixed_size_binary().clone()))
    }

    /// The value in a row of the batch.
    ///
    /// Refuses an integer beyond int64, unless the attribute is a float type that holds it exactly.
    /// Refuses an instant between two microseconds.
    #[inline]
    pub(super) fn value(&self, row: usize, wanted: ColumnType) -> Result<ValueRef<'_>, String> {
        let value = match self {
            Self::Missing => ValueRef::Null,
            Self::Bool(array) if array.is_valid(row) => ValueRef::Bool(array.value(row)),
            Self::Int(array) if array.is_valid(row) && wanted == ColumnType::Float32 => {
                ValueRef::Float32(exact(array.value(row)).and_then(rounded)?)
            }
            Self::Int(array) if array.is_valid(row) => ValueRef::Int(array.value(row)),
            Self::Float32(array) if array.is_valid(row) => ValueRef::Float32(array.value(row)),
            Self::Float(array) if array.is_valid(row) && wanted == ColumnType::Float32 => {
                ValueRef::Float32(rounded(array.value(row))?)
            }
            Self::Float(array) if array.is_valid(row) => ValueRef::Float64(array.value(row)),
            Self::Utf8(array) if array.is_valid(row) => ValueRef::Utf8(array.value(row)),
            Self::Binary(array) if array.is_valid(row) => ValueRef::Binary(array.value(row)),
            Self::Uuid(array) => uuid_at(array, row).map_or(ValueRef::Null, ValueRef::Uuid),
            Self::Date(array) if array.is_valid(row) => ValueRef::Date(array.value(row)),
            Self::DateMilliseconds(array) if array.is_valid(row) => ValueRef::Date(whole_days(array.value(row))?),
            Self::Timestamp(array) if array.is_valid(row) => ValueRef::Timestamp(array.value(row)),
            Self::Nanoseconds(array) if array.is_valid(row) => match array.value(row) {
                whole if whole % NANOSECONDS == 0 => ValueRef::Timestamp(whole / NANOSECONDS),
                finer => return Err(format!("{finer} nanoseconds since 1970 are not a whole number of microseconds")),
            },
            Self::UInt(array) if array.is_valid(row) => {
                let value = array.value(row);
                match i64::try_from(value) {
                    _ if wanted == ColumnType::Float32 => ValueRef::Float32(exact(value).and_then(rounded)?),
                    _ if wanted == ColumnType::Float64 => ValueRef::Float64(exact(value)?),
                    Ok(value) => ValueRef::Int(value),
                    Err(_) => return Err(format!("{value} is beyond the range of int64")),
                }
            }
            _ => ValueRef::Null,
        };
        Ok(value)
    }

    /// The coordinate in a row; `None` if it is null. Refuses an integer that a float cannot hold
    /// exactly.
    #[inline]
    pub(super) fn coordinate(&self, row: usize) -> Result<Option<f64>, String> {
        match self {
            Self::Float(array) if array.is_valid(row) => Ok(Some(array.value(row))),
            Self::Int(array) if array.is_valid(row) => exact(array.value(row)).map(Some),
            Self::UInt(array) if array.is_valid(row) => exact(array.value(row)).map(Some),
            _ => Ok(None),
        }
    }
}

/// The float with exactly this integer value.
fn exact(integer: impl Into<i128> + Copy) -> Result<f64, String> {
    let integer = integer.into();
    exact_float(integer).ok_or_else(|| format!("{integer}: {INEXACT}"))
}

/// The nearest 32-bit float.
fn rounded(float: f64) -> Result<f32, String> {
    match float32(float) {
        Some(rounded) => Ok(rounded),
        None if float.is_finite() => Err(format!("{float:e}: {BEYOND_FLOAT32}")),
        None => Ok(float as f32),
    }
}

/// Nanoseconds per microsecond.
const NANOSECONDS: i64 = 1000;
/// Milliseconds per day.
const MILLISECONDS: i64 = 86_400_000;

fn whole_days(milliseconds: i64) -> Result<i32, String> {
    match i32::try_from(milliseconds / MILLISECONDS) {
        Ok(days) if milliseconds % MILLISECONDS == 0 => Ok(days),
        Ok(_) => Err(format!("{milliseconds} milliseconds since 1970 are not a whole number of days")),
        Err(_) => Err(format!("{milliseconds} milliseconds since 1970 are beyond the range of dates")),
    }
}

/// The type of the values, inside a dictionary or not.
fn values_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values_type(values),
        other => other,
    }
}

/// Unit and time zone of timestamps, inside a dictionary or not.
fn timestamp_parts(data_type: &DataType) -> (TimeUnit, Option<Arc<str>>) {
    match values_type(data_type) {
        DataType::Timestamp(unit, zone) => (*unit, zone.clone()),
        _ => (TimeUnit::Microsecond, None),
    }
}

/// Casts if the type differs. A value that does not fit is an error; it never becomes null.
fn cast(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, BatchError> {
    if array.data_type() == wanted {
        return Ok(ArrayRef::clone(array));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(array, wanted, &options)?)
}

pub(super) fn type_error(name: &str, found: &DataType, wanted: &dyn std::fmt::Display) -> BatchError {
    BatchError::Type { column: name.to_owned(), found: found.to_string(), wanted: wanted.to_string() }
}
