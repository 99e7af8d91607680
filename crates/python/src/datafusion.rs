//! Datasets as tables of DataFusion in Python.

use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use terrane::Dataset;

use crate::error::usage;

/// The capsule from which DataFusion makes a table: the present state of a dataset.
///
/// The session gives what decodes the conditions that DataFusion hands over.
pub fn table<'py>(session: &Bound<'py, PyAny>, dataset: &Dataset) -> PyResult<Bound<'py, PyCapsule>> {
    let py = session.py();
    check_version(py)?;
    let codec = session.call_method0("__datafusion_logical_extension_codec__")?.cast_into::<PyCapsule>()?;
    let pointer = codec.pointer_checked(Some(c"datafusion_logical_extension_codec"))?;
    // SAFETY: a capsule of this name holds such a codec, and its layout is that of the version that
    // was checked. The capsule lives until the codec is cloned.
    let codec = unsafe { pointer.cast::<FFI_LogicalExtensionCodec>().as_ref() }.clone();
    let table = terrane_sql::table_of(dataset.name(), dataset.snapshot());
    let table = FFI_TableProvider::new_with_ffi_codec(table, true, None, codec);
    PyCapsule::new_with_value(py, table, c"datafusion_table_provider")
}

/// Refuses another version of DataFusion, whose structures may have another layout.
fn check_version(py: Python<'_>) -> PyResult<()> {
    let own = datafusion_ffi::version();
    let installed: String = py.import("datafusion")?.getattr("__version__")?.extract()?;
    match installed.split('.').next().and_then(|major| major.parse().ok()) == Some(own) {
        true => Ok(()),
        false => Err(usage(format!(
            "a dataset is a table for version {own} of datafusion, and {installed} is installed; install that version, \
             or hand over db.sql(…), which any version reads as Arrow"
        ))
        .into()),
    }
}
