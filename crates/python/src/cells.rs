//! Values of Arrow arrays as Python objects.
//!
//! Every type has a form. A value that Python's class cannot hold, such as a time after the year
//! 9999, becomes its text, and so does a type that Python lacks. Nanoseconds are cut to
//! microseconds.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::error::CorruptionError;
use crate::values::{DAY, MICROSECONDS, Types, is_geometry};

const MILLISECONDS_A_DAY: i64 = 86_400_000;

fn number<'py, T>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObject<'py>,
{
    array.as_primitive::<T>().value(row).into_bound_py_any(py)
}

/// The number of a time or duration, whatever its unit, in microseconds; `None` if that overflows.
fn microseconds(array: &ArrayRef, row: usize) -> Option<i64> {
    let seconds = |value: i64| value.checked_mul(MICROSECONDS);
    let milliseconds = |value: i64| value.checked_mul(1000);
    let nanoseconds = |value: i64| Some(value.div_euclid(1000));
    match array.data_type() {
        DataType::Time32(TimeUnit::Second) => seconds(array.as_primitive::<Time32SecondType>().value(row).into()),
        DataType::Time32(_) => milliseconds(array.as_primitive::<Time32MillisecondType>().value(row).into()),
        DataType::Time64(TimeUnit::Nanosecond) => nanoseconds(array.as_primitive::<Time64NanosecondType>().value(row)),
        DataType::Time64(_) => Some(array.as_primitive::<Time64MicrosecondType>().value(row)),
        DataType::Timestamp(TimeUnit::Second, _) => seconds(array.as_primitive::<TimestampSecondType>().value(row)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            milliseconds(array.as_primitive::<TimestampMillisecondType>().value(row))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Some(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            nanoseconds(array.as_primitive::<TimestampNanosecondType>().value(row))
        }
        DataType::Duration(TimeUnit::Second) => seconds(array.as_primitive::<DurationSecondType>().value(row)),
        DataType::Duration(TimeUnit::Millisecond) => {
            milliseconds(array.as_primitive::<DurationMillisecondType>().value(row))
        }
        DataType::Duration(TimeUnit::Microsecond) => Some(array.as_primitive::<DurationMicrosecondType>().value(row)),
        DataType::Duration(TimeUnit::Nanosecond) => {
            nanoseconds(array.as_primitive::<DurationNanosecondType>().value(row))
        }
        _ => None,
    }
}

/// The position of a dictionary's value in a row.
fn dictionary_key(keys: &dyn Array, row: usize) -> Option<usize> {
    match keys.data_type() {
        DataType::Int8 => keys.as_primitive::<Int8Type>().value(row).try_into().ok(),
        DataType::Int16 => keys.as_primitive::<Int16Type>().value(row).try_into().ok(),
        DataType::Int32 => keys.as_primitive::<Int32Type>().value(row).try_into().ok(),
        DataType::Int64 => keys.as_primitive::<Int64Type>().value(row).try_into().ok(),
        DataType::UInt8 => Some(keys.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => Some(keys.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => keys.as_primitive::<UInt32Type>().value(row).try_into().ok(),
        DataType::UInt64 => keys.as_primitive::<UInt64Type>().value(row).try_into().ok(),
        _ => None,
    }
}

impl<'py> Types<'py> {
    /// One value of a column. Geometries are WKT.
    pub fn value_at(&self, field: &Field, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py();
        if array.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        match field.data_type() {
            DataType::Null => Ok(py.None().into_bound(py)),
            DataType::Boolean => array.as_boolean().value(row).into_bound_py_any(py),
            DataType::Int8 => number::<Int8Type>(py, array, row),
            DataType::Int16 => number::<Int16Type>(py, array, row),
            DataType::Int32 => number::<Int32Type>(py, array, row),
            DataType::Int64 => number::<Int64Type>(py, array, row),
            DataType::UInt8 => number::<UInt8Type>(py, array, row),
            DataType::UInt16 => number::<UInt16Type>(py, array, row),
            DataType::UInt32 => number::<UInt32Type>(py, array, row),
            DataType::UInt64 => number::<UInt64Type>(py, array, row),
            DataType::Float16 => f64::from(array.as_primitive::<Float16Type>().value(row)).into_bound_py_any(py),
            DataType::Float32 => number::<Float32Type>(py, array, row),
            DataType::Float64 => number::<Float64Type>(py, array, row),
            DataType::Utf8 => array.as_string::<i32>().value(row).into_bound_py_any(py),
            DataType::LargeUtf8 => array.as_string::<i64>().value(row).into_bound_py_any(py),
            DataType::Utf8View => array.as_string_view().value(row).into_bound_py_any(py),
            DataType::Binary => bytes(py, field, array.as_binary::<i32>().value(row)),
            DataType::LargeBinary => bytes(py, field, array.as_binary::<i64>().value(row)),
            DataType::BinaryView => bytes(py, field, array.as_binary_view().value(row)),
            DataType::FixedSizeBinary(16) => self.uuid_of(array.as_fixed_size_binary().value(row)),
            DataType::FixedSizeBinary(_) => bytes(py, field, array.as_fixed_size_binary().value(row)),
            DataType::List(item) => self.list(item, &array.as_list::<i32>().value(row)),
            DataType::LargeList(item) => self.list(item, &array.as_list::<i64>().value(row)),
            DataType::FixedSizeList(item, _) => self.list(item, &array.as_fixed_size_list().value(row)),
            DataType::ListView(item) => self.list(item, &array.as_list_view::<i32>().value(row)),
            DataType::LargeListView(item) => self.list(item, &array.as_list_view::<i64>().value(row)),
            DataType::Struct(fields) => {
                let dict = PyDict::new(py);
                for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                    dict.set_item(field.name(), self.value_at(field, column, row)?)?;
                }
                Ok(dict.into_any())
            }
            DataType::Map(..) => self.map(array, row),
            DataType::Dictionary(_, values) => {
                let dictionary = array.as_any_dictionary();
                match dictionary_key(dictionary.keys(), row) {
                    Some(key) => self.value_at(&of_type(field, values), dictionary.values(), key),
                    None => text(py, array, row),
                }
            }
            DataType::RunEndEncoded(ends, values) => {
                let (run, values_of_runs) = match ends.data_type() {
                    DataType::Int16 => {
                        let runs = array.as_run::<Int16Type>();
                        (runs.get_physical_index(row), runs.values())
                    }
                    DataType::Int32 => {
                        let runs = array.as_run::<Int32Type>();
                        (runs.get_physical_index(row), runs.values())
                    }
                    _ => {
                        let runs = array.as_run::<Int64Type>();
                        (runs.get_physical_index(row), runs.values())
                    }
                };
                self.value_at(&of_type(field, values.data_type()), values_of_runs, run)
            }
            DataType::Union(..) => {
                let value = array.as_union().value(row);
                self.value_at(&of_type(field, value.data_type()), &value, 0)
            }
            _ => match self.time_or_decimal(array, row)? {
                Some(value) => Ok(value),
                None => text(py, array, row),
            },
        }
    }

    /// A value of a class of the standard library; `None` if it has none, or is out of its range.
    fn time_or_decimal(&self, array: &ArrayRef, row: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = match array.data_type() {
            DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
                return self.decimal_of(&text(self.py(), array, row)?).map(Some);
            }
            DataType::Date32 => self.day(array.as_primitive::<Date32Type>().value(row)),
            DataType::Date64 => {
                let days = array.as_primitive::<Date64Type>().value(row).div_euclid(MILLISECONDS_A_DAY);
                let Ok(days) = i32::try_from(days) else { return Ok(None) };
                self.day(days)
            }
            DataType::Interval(IntervalUnit::DayTime) => {
                let interval = array.as_primitive::<IntervalDayTimeType>().value(row);
                self.duration(interval.days.into(), i64::from(interval.milliseconds) * 1000)
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let interval = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                if interval.months != 0 {
                    // A month has no fixed length.
                    return Ok(None);
                }
                self.duration(interval.days.into(), interval.nanoseconds.div_euclid(1000))
            }
            data_type => {
                let Some(microseconds) = microseconds(array, row) else { return Ok(None) };
                match data_type {
                    DataType::Timestamp(_, zone) => self.timestamp(microseconds, zone.is_some()),
                    DataType::Duration(_) => self.duration(0, microseconds),
                    // A time of a day.
                    _ if (0..DAY).contains(&microseconds) => {
                        self.timestamp(microseconds, false).and_then(|time| time.call_method0("time"))
                    }
                    _ => return Ok(None),
                }
            }
        };
        // Python's classes end at the year 9999, and at a billion days.
        Ok(value.ok())
    }

    fn list(&self, item: &Field, items: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
        let list = PyList::empty(self.py());
        for row in 0..items.len() {
            list.append(self.value_at(item, items, row)?)?;
        }
        Ok(list.into_any())
    }

    /// A dict, or a list of pairs where keys are no keys of a dict.
    fn map(&self, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py();
        let entries = array.as_map().value(row);
        let [keys, values] = entries.columns() else { return Ok(py.None().into_bound(py)) };
        let [key, value] = &**entries.fields() else { return Ok(py.None().into_bound(py)) };
        let pairs = (0..entries.len())
            .map(|row| Ok((self.value_at(key, keys, row)?, self.value_at(value, values, row)?)))
            .collect::<PyResult<Vec<_>>>()?;
        let dict = PyDict::new(py);
        let is_dict = pairs.iter().all(|(key, value)| dict.set_item(key, value).is_ok()) && dict.len() == pairs.len();
        if is_dict { Ok(dict.into_any()) } else { pairs.into_bound_py_any(py) }
    }
}

/// A field with the metadata of another, which says what its values mean.
fn of_type(field: &Field, data_type: &DataType) -> Field {
    field.clone().with_data_type(data_type.clone())
}

fn bytes<'py>(py: Python<'py>, field: &Field, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if !is_geometry(field) {
        return Ok(PyBytes::new(py, bytes).into_any());
    }
    let wkt = terrane_space::geometry::to_wkt(bytes);
    wkt.map_err(|error| CorruptionError::new_err(error.to_string()))?.into_bound_py_any(py)
}

/// A value as Arrow writes it.
fn text<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    let options = FormatOptions::default().with_display_error(true);
    let text = ArrayFormatter::try_new(array, &options).map(|formatter| formatter.value(row).to_string());
    let text = text.unwrap_or_else(|error| error.to_string());
    Ok(PyString::new(py, &text).into_any())
}
