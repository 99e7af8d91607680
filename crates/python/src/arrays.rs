//! Numbers and boxes of an index: arrays of NumPy, and what NumPy makes an array of.

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use terrane_pmtree::Rect;

use crate::error::{Failure, Result, usage};

/// The box of four numbers.
pub fn rect(corners: [f64; 4]) -> Result<Rect<2>> {
    let [x0, y0, x1, y1] = corners;
    Ok(Rect::new([x0, y0], [x1, y1])?)
}

/// An array, and the kind of its values: one letter of NumPy.
fn array<'py>(value: &Bound<'py, PyAny>, what: &str) -> Result<(Bound<'py, PyUntypedArray>, String)> {
    let array = value.py().import(intern!(value.py(), "numpy"))?.call_method1(intern!(value.py(), "asarray"), (value,));
    let array = array.map_err(|error| usage(format!("{what} are no array: {error}")))?;
    let array = array.cast_into::<PyUntypedArray>().map_err(|_| usage(format!("{what} are no array")))?;
    let kind: String = array.dtype().getattr("kind")?.extract()?;
    // An empty list is an array of floats.
    Ok((array, kind))
}

fn converted<'py>(array: &Bound<'py, PyUntypedArray>, to: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    array.call_method1(intern!(py, "astype"), (to,))
}

/// The numbers of boxes.
pub fn numbers(value: &Bound<'_, PyAny>) -> Result<Vec<u64>> {
    let (array, kind) = array(value, "numbers")?;
    if array.ndim() != 1 {
        return Err(usage(format!("numbers are an array of one dimension, and this has {}", array.ndim())));
    }
    let is_whole = match kind.as_str() {
        _ if array.len() == 0 => return Ok(Vec::new()),
        "u" => true,
        "i" => {
            if array.call_method0("min")?.lt(0)? {
                return Err(usage("numbers of boxes are at least 0, and one of these is negative"));
            }
            true
        }
        "b" => return Err(usage("numbers of boxes are integers, and these are bool")),
        _ => false,
    };
    if !is_whole {
        // NumPy makes floats or objects of Python's integers if some are large.
        let list = value.extract::<Vec<u64>>();
        return list
            .map_err(|_| usage(format!("numbers of boxes are integers from 0 to 2**64-1, not {}", array.dtype())));
    }
    let array = converted(&array, "uint64")?.extract::<PyReadonlyArray1<'_, u64>>()?;
    Ok(array.as_array().to_vec())
}

/// Boxes, the rows of an array. One that is NaN throughout is that of an empty geometry: `None`.
pub fn boxes(value: &Bound<'_, PyAny>) -> Result<Vec<Option<Rect<2>>>> {
    let (array, kind) = array(value, "boxes")?;
    if array.ndim() == 1 && array.len() == 0 {
        return Ok(Vec::new());
    }
    match array.shape() {
        [_, 4] => {}
        [_, count] => return Err(usage(format!("boxes are rows of x0, y0, x1, y1, and these have {count} numbers"))),
        _ => return Err(usage("boxes are rows of x0, y0, x1, y1: an array of shape (n, 4)")),
    }
    if !["f", "i", "u"].contains(&kind.as_str()) {
        return Err(usage(format!("boxes are numbers, and these are {}", array.dtype())));
    }
    let array = converted(&array, "float64")?.extract::<PyReadonlyArray2<'_, f64>>()?;
    let rows = array.as_array();
    let rects = rows.rows().into_iter().enumerate().map(|(row, corners)| {
        if corners.iter().all(|corner| corner.is_nan()) {
            return Ok(None);
        }
        let corners = [corners[0], corners[1], corners[2], corners[3]];
        rect(corners).map(Some).map_err(|failure| match failure {
            Failure::Python(error) => usage(format!("box {row}: {}", error.value(value.py()))),
            other => other,
        })
    });
    rects.collect()
}
