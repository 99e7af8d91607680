//! Terrane for Python: stores, datasets and answers, over the Arrow PyCapsule interface.

mod arguments;
mod arrays;
mod cells;
mod checked;
mod database;
mod datafusion;
mod dataset;
mod decimals;
mod error;
mod frames;
mod index;
mod input;
mod load;
mod order;
mod progress;
mod result;
mod rows;
mod shaped;
mod size;
mod sql;
mod unlocked;
mod values;
mod warnings;

use pyo3::prelude::*;

/// The compiled part of the package `terrane`.
#[pymodule]
fn _terrane(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(shaped::for_polars, module)?)?;
    module.add_class::<database::PyDatabase>()?;
    module.add_class::<dataset::PyDataset>()?;
    module.add_class::<result::PyAnswer>()?;
    module.add_class::<result::Batches>()?;
    module.add_class::<result::Batch>()?;
    module.add_class::<index::PyIndex>()?;
    module.add_function(wrap_pyfunction!(database::open, module)?)?;
    let end = wrap_pyfunction!(sql::_end_sessions, module)?;
    module.py().import("atexit")?.call_method1("register", (end,))?;
    error::register(module)
}
