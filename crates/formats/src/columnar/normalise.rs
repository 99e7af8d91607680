//! Converts Arrow columns to the few types that this crate hands out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date64Type, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};
use arrow_select::concat::concat;
use serde_json::Value;
use terrane_literal::decimal::{self, is_decimal, to_float64};
use terrane_literal::{UUID_STORAGE, is_uuid, stores_uuids};

use crate::arrow_json::{json_of, shown, without_runs};
use crate::demand::DemandedType;
use crate::types::ColumnType;

/// How a column is converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// It has its final type.
    Keep(ColumnType),
    /// By Arrow's cast, which is lossless or fails; decimal numbers become the nearest float64.
    Cast(ColumnType),
    /// Nested values become JSON text.
    JsonText,
}

impl Conversion {
    /// The conversion of a column. `fits_int64` tells for a column of decimal numbers whether all
    /// are known to be 64-bit integers. Values of 16 bytes are UUIDs if the file marks them so or
    /// the user says so, else binary.
    pub(crate) fn of_column(field: &Field, fits_int64: bool, demanded: Option<&DemandedType>) -> Conversion {
        let data_type = field.data_type();
        let has_uuids = match demanded {
            Some(DemandedType::Plain(ColumnType::Uuid)) => stores_uuids(data_type),
            Some(DemandedType::Plain(ColumnType::Binary)) => false,
            _ => is_uuid(field),
        };
        match has_uuids {
            true if *data_type == UUID_STORAGE => Conversion::Keep(ColumnType::Uuid),
            true => Conversion::Cast(ColumnType::Uuid),
            false if decimal::is_whole(data_type) && fits_int64 => Conversion::Cast(ColumnType::Int64),
            false => Conversion::of(data_type),
        }
    }

    /// The conversion of a column of this type.
    pub(crate) fn of(data_type: &DataType) -> Conversion {
        let target = match data_type {
            whole if decimal::is_int64(whole) => ColumnType::Int64,
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32 => ColumnType::Int64,
            DataType::Float16 => ColumnType::Float32,
            decimal if is_decimal(decimal) => ColumnType::Float64,
            DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Null
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Duration(_)
            | DataType::Interval(_) => ColumnType::Utf8,
            DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => ColumnType::Binary,
            DataType::Date64 | DataType::Timestamp(_, None) => ColumnType::Timestamp,
            DataType::Timestamp(_, Some(_)) => ColumnType::TimestampUtc,
            DataType::Dictionary(_, values) => return Conversion::of_encoded(values),
            DataType::RunEndEncoded(_, values) => return Conversion::of_encoded(values.data_type()),
            other => match ColumnType::from_data_type(other) {
                Some(column_type) => return Conversion::Keep(column_type),
                None => return Conversion::JsonText,
            },
        };
        if target.data_type() == *data_type { Conversion::Keep(target) } else { Conversion::Cast(target) }
    }

    /// The conversion of a column that refers to values of this type.
    fn of_encoded(values: &DataType) -> Conversion {
        match Conversion::of(values) {
            Conversion::Keep(target) | Conversion::Cast(target) => Conversion::Cast(target),
            Conversion::JsonText => Conversion::JsonText,
        }
    }

    /// The resulting type.
    pub(crate) fn column_type(&self) -> ColumnType {
        match self {
            Conversion::Keep(column_type) | Conversion::Cast(column_type) => *column_type,
            Conversion::JsonText => ColumnType::Utf8,
        }
    }

    /// Converts a column.
    ///
    /// # Errors
    /// When a value does not fit, such as a timestamp far from now, or has no JSON form.
    pub(crate) fn apply(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match self {
            Conversion::Keep(_) => Ok(Arc::clone(array)),
            Conversion::Cast(target) => {
                let options = CastOptions { safe: false, ..CastOptions::default() };
                let cast = |target: &DataType| cast_with_options(array, target, &options);
                match (array.data_type(), target) {
                    (DataType::RunEndEncoded(..), _) => self.apply(&without_runs(array)?),
                    (DataType::Dictionary(_, values), _)
                        if is_decimal(values)
                            || is_nanoseconds(values)
                            || **values == DataType::Date64
                            || matches!(**values, DataType::Duration(_) | DataType::RunEndEncoded(..)) =>
                    {
                        self.apply(&cast(values)?)
                    }
                    (decimal, ColumnType::Float64) if is_decimal(decimal) => Ok(Arc::new(to_float64(array)?)),
                    (DataType::Date64, ColumnType::Timestamp) => Ok(Arc::new(milliseconds_in_microseconds(array)?)),
                    (nanoseconds, _) if is_nanoseconds(nanoseconds) => Ok(in_microseconds(array, *target)),
                    (DataType::Duration(_), ColumnType::Utf8) => {
                        let text = |row| (!array.is_null(row)).then(|| shown(array, row)).transpose();
                        let texts = (0..array.len()).map(text).collect::<Result<Vec<_>, _>>()?;
                        Ok(Arc::new(StringArray::from(texts)))
                    }
                    _ => cast(&target.data_type()),
                }
            }
            Conversion::JsonText => {
                let mut texts = Vec::with_capacity(array.len());
                for row in 0..array.len() {
                    texts.push(match json_of(array, row)? {
                        Value::Null => None,
                        value => Some(value.to_string()),
                    });
                }
                Ok(Arc::new(StringArray::from(texts)))
            }
        }
    }

    /// Converts a column with values that may not fit. Each of those becomes null and is reported
    /// with its row. They are found by halving the column until the failing part is a single row.
    ///
    /// # Errors
    /// When the column as a whole cannot be converted.
    pub(crate) fn apply_to_each(
        &self,
        array: &ArrayRef,
        refuse: &mut impl FnMut(usize, ArrowError),
    ) -> Result<ArrayRef, ArrowError> {
        let whole = self.apply(array);
        if whole.is_ok() || array.is_empty() {
            return whole;
        }
        match (self, array.data_type()) {
            // Only rows that use the unfit value of a dictionary are refused.
            (Conversion::Cast(_), DataType::Dictionary(_, values)) => self.apply_to_each(&cast(array, values)?, refuse),
            _ => {
                let mut pieces = Vec::new();
                self.halve(array, 0, refuse, &mut pieces);
                concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>())
            }
        }
    }

    fn halve(
        &self,
        array: &ArrayRef,
        first_row: usize,
        refuse: &mut impl FnMut(usize, ArrowError),
        pieces: &mut Vec<ArrayRef>,
    ) {
        match self.apply(array) {
            Ok(piece) => pieces.push(piece),
            Err(error) if array.len() <= 1 => {
                refuse(first_row, error);
                pieces.push(new_null_array(&self.column_type().data_type(), array.len()));
            }
            Err(_) => {
                let middle = array.len() / 2;
                self.halve(&array.slice(0, middle), first_row, refuse, pieces);
                self.halve(&array.slice(middle, array.len() - middle), first_row + middle, refuse, pieces);
            }
        }
    }
}

fn is_nanoseconds(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(TimeUnit::Nanosecond, _))
}

/// Nanoseconds rounded down to microseconds, as text is read. Arrow's cast would round toward 1970.
fn in_microseconds(nanoseconds: &ArrayRef, target: ColumnType) -> ArrayRef {
    let times = nanoseconds.as_primitive::<TimestampNanosecondType>();
    let times: TimestampMicrosecondArray = times.unary(|time| time.div_euclid(1000));
    Arc::new(times.with_data_type(target.data_type()))
}

/// Date64 milliseconds as microseconds. Arrow's cast does not check whether they fit.
fn milliseconds_in_microseconds(milliseconds: &ArrayRef) -> Result<TimestampMicrosecondArray, ArrowError> {
    milliseconds.as_primitive::<Date64Type>().try_unary(|time| {
        let microseconds = time.checked_mul(1000);
        microseconds.ok_or_else(|| {
            ArrowError::CastError(format!("{time} milliseconds since 1970 are beyond the range of a timestamp"))
        })
    })
}

pub(crate) fn nanoseconds_warning(name: &str) -> String {
    format!("column {name:?}: nanoseconds are cut to microseconds")
}

/// The notice about the conversion of a column, if there is one.
pub(crate) fn warning(name: &str, data_type: &DataType, conversion: &Conversion) -> Option<String> {
    match data_type {
        _ if conversion.column_type() == ColumnType::Int64 => None,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Some(nanoseconds_warning(name)),
        decimal if is_decimal(decimal) => {
            Some(format!("column {name:?}: decimal numbers become float64, each the nearest"))
        }
        DataType::Dictionary(_, values) => warning(name, values, conversion),
        DataType::RunEndEncoded(_, values) => warning(name, values.data_type(), conversion),
        other if Conversion::of(other) == Conversion::JsonText => {
            Some(format!("column {name:?}: nested values become JSON text"))
        }
        _ => None,
    }
}
