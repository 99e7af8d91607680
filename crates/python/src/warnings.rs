//! Notices on changes of values, as warnings of Python.

use std::ffi::CString;

use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;

/// Warns the caller. A filter may turn a warning into an error, which is returned.
pub fn warn(messages: impl IntoIterator<Item = String>) -> PyResult<()> {
    for message in messages {
        Python::attach(|py| {
            let message = CString::new(message.replace('\0', "\\0"))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)
        })?;
    }
    Ok(())
}
