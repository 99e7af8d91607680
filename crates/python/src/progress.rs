//! The progress of an import: a bar of tqdm.

use pyo3::prelude::*;

use crate::error::Result;

/// A bar, if one is shown.
pub struct Progress(Option<Py<PyAny>>);

impl Progress {
    /// None.
    pub fn hidden() -> Self {
        Self(None)
    }

    /// A bar for the import of a dataset. `wanted` is None where tqdm and the output decide.
    pub fn begin(py: Python<'_>, name: &str, wanted: Option<bool>) -> PyResult<Self> {
        let bar = py.import("terrane._progress")?.call_method1("bar", (name, wanted))?;
        Ok(Self((!bar.is_none()).then(|| bar.unbind())))
    }

    /// Says how many rows there are.
    pub fn expect(&self, rows: u64) -> Result<()> {
        self.with(|bar| bar.setattr("total", rows))
    }

    /// Adds rows that were read. Also notices whether the user interrupts.
    pub fn add(&self, rows: usize) -> Result<()> {
        Python::attach(|py| py.check_signals())?;
        self.with(|bar| bar.call_method1("update", (rows,)).map(drop))
    }

    /// Ends the bar.
    pub fn end(&self) -> Result<()> {
        self.with(|bar| bar.call_method0("close").map(drop))
    }

    fn with(&self, change: impl Fn(&Bound<'_, PyAny>) -> PyResult<()>) -> Result<()> {
        match &self.0 {
            Some(bar) => Ok(Python::attach(|py| change(bar.bind(py)))?),
            None => Ok(()),
        }
    }
}
