//! SQL: one session for each open store.

use std::sync::Arc;

use pyo3::prelude::*;
use terrane::{Options, Store};
use terrane_space::geometry::to_wkt;
use terrane_sql::{Answer, Param, Script, Session, SessionOptions, SqlError};

use crate::error::{Error, Failure, MemoryLimitError, RefusedError, Result, UsageError, usage};
use crate::values::{Plain, plain};

/// A session of a store.
pub struct SqlSession(Session);

impl SqlSession {
    /// Starts the threads of a session.
    pub fn new(options: &Options) -> Result<Self> {
        let options = SessionOptions { reads_files: true, ..SessionOptions::of_store(options) };
        Ok(Self(Session::new(&options)?))
    }

    /// Runs all statements of a text but the last, and gives that one.
    pub fn run_all_but_last(&self, store: &Arc<Store>, text: &str, params: &[Param]) -> Result<Script> {
        let mut script = self.0.parse(text)?;
        if script.is_empty() {
            return Err(usage("there is no statement"));
        }
        while script.len() > 1 {
            if let Some(mut answer) = self.0.run_next(&mut script, store, params)? {
                while answer.next_batch()?.is_some() {}
            }
        }
        Ok(script)
    }

    /// Whether the next statement changes the store.
    pub fn changes(&self, script: &Script) -> bool {
        self.0.changes_next(script)
    }

    /// Begins the answer of a script of one statement.
    pub fn run(&self, store: &Arc<Store>, mut script: Script, params: &[Param]) -> Result<Answer> {
        self.0.run_next(&mut script, store, params)?.ok_or_else(|| usage("there is no statement"))
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        let message = error.to_string();
        match error {
            SqlError::Store(error) => Self::Engine(error, None),
            SqlError::Memory { .. } => Self::Python(MemoryLimitError::new_err(message)),
            SqlError::Refused(_) => Self::Python(RefusedError::new_err(message)),
            SqlError::Execution(_) => Self::Python(Error::new_err(message)),
            _ => Self::Python(UsageError::new_err(message)),
        }
    }
}

/// A parameter: None, a bool, a number, or else its text, such as that of a date or a geometry.
pub fn param(value: &Bound<'_, PyAny>) -> PyResult<Param> {
    let text = || value.str()?.extract::<String>();
    Ok(match plain(value) {
        _ if value.is_none() => Param::Null,
        Some(Plain::Bool) => Param::Bool(value.extract()?),
        Some(Plain::Int) => Param::Number(text()?),
        // An infinity or NaN has no literal; its text is converted.
        Some(Plain::Float) if value.extract::<f64>()?.is_finite() => Param::Number(text()?),
        _ if value.hasattr("__geo_interface__")? => {
            let wkt = to_wkt(&crate::rows::geometry(value)?);
            Param::Text(wkt.map_err(|error| UsageError::new_err(error.to_string()))?)
        }
        _ => Param::Text(text()?),
    })
}
