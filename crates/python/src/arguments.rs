//! Arguments of calls. Those of a wrong type or shape are a `UsageError`.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat};

use crate::error::usage;
use crate::values::type_name;

fn wrong(expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let shown = value.repr().map_or_else(|_| type_name(value), |text| text.to_string());
    let shown = if shown.chars().count() > 60 { type_name(value) } else { shown };
    usage(format!("{expected}, and not {shown}")).into()
}

fn numbers<const N: usize>(expected: &str, value: &Bound<'_, PyAny>) -> PyResult<[f64; N]> {
    // An array of NumPy is no sequence of Python.
    let list = if value.hasattr("tolist")? { value.call_method0("tolist")? } else { value.clone() };
    list.extract().map_err(|_| wrong(expected, value))
}

fn unless_none<'py, T>(
    value: &Bound<'py, PyAny>,
    read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if value.is_none() { Ok(None) } else { read(value).map(Some) }
}

/// A bounding box.
pub fn bbox(value: &Bound<'_, PyAny>) -> PyResult<Option<[f64; 4]>> {
    unless_none(value, |value| numbers("bbox is (x0, y0, x1, y1)", value))
}

/// A circle.
pub fn circle(value: &Bound<'_, PyAny>) -> PyResult<Option<[f64; 3]>> {
    unless_none(value, |value| numbers("circle is (x, y, metres)", value))
}

/// A place.
pub fn place(value: &Bound<'_, PyAny>) -> PyResult<[f64; 2]> {
    numbers("a place is (x, y)", value)
}

/// The corners of a box of an index.
pub fn corners(value: &Bound<'_, PyAny>) -> PyResult<[f64; 4]> {
    numbers("a box is (x0, y0, x1, y1)", value)
}

/// A whole number from 0.
fn whole(expected: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let is_other = value.is_instance_of::<PyBool>() || value.is_instance_of::<PyFloat>();
    let number = if is_other { None } else { value.extract().ok() };
    number.ok_or_else(|| wrong(expected, value))
}

/// A largest number of records.
pub fn limit(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    unless_none(value, |value| whole("limit is a number of records, at least 0", value))
}

/// A number of neighbours.
pub fn k(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let number = whole("k is a number of neighbours, at least 0", value)?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// The number of a box of an index.
pub fn id(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    whole("a box has a number from 0 to 2**64-1", value)
}

/// Names of columns.
pub fn columns(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<String>>> {
    unless_none(value, |value| value.extract().map_err(|_| wrong("columns is a list of names", value)))
}

/// The text of `where`.
pub fn condition(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    unless_none(value, |value| value.extract().map_err(|_| wrong("where is a text such as \"speed > 3\"", value)))
}

/// The text of `match`.
pub fn words(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    unless_none(value, |value| value.extract().map_err(|_| wrong("match is a text of words", value)))
}
