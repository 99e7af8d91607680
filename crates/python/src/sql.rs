//! SQL: one session for each open store.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::intern;
use pyo3::prelude::*;
use terrane::{Options, Rows, Store};
use terrane_space::geometry::to_wkt;
use terrane_sql::{Again, Answer, CallerTables, Param, Script, Session, SessionOptions, Sorting, SqlError};

use crate::error::{Error, Failure, MemoryLimitError, RefusedError, Result, UsageError, usage};
use crate::unlocked::unlocked;
use crate::values::{Plain, plain, type_name};

/// Statements with what they read beside the store.
pub struct Statements {
    pub script: Script,
    pub params: Vec<Param>,
    pub callers: Arc<CallerTables>,
}

/// A session of a store, and the process that began it.
pub struct SqlSession(Session, u32);

/// All sessions, whose threads have to end before Python does.
static SESSIONS: Mutex<Vec<Weak<SqlSession>>> = Mutex::new(Vec::new());

/// Ends the threads of all sessions. Those that read tables of Python may wait for its lock.
#[pyfunction]
pub fn _end_sessions() {
    let sessions = std::mem::take(&mut *SESSIONS.lock().unwrap_or_else(PoisonError::into_inner));
    let sessions: Vec<Arc<SqlSession>> = sessions.iter().filter_map(Weak::upgrade).collect();
    sessions.iter().for_each(|session| session.end());
}

impl Drop for SqlSession {
    fn drop(&mut self) {
        self.end();
    }
}

impl SqlSession {
    /// Ends its threads, which a fork of the process has not.
    fn end(&self) {
        match self.1 == std::process::id() {
            true => unlocked(|| self.0.shut_down()),
            false => self.0.forget_threads(),
        }
    }

    /// Starts the threads of a session.
    pub fn new(options: &Options) -> Result<Arc<Self>> {
        let options = SessionOptions { reads_files: true, ..SessionOptions::of_store(options) };
        let session = Arc::new(Self(Session::new(&options)?, std::process::id()));
        let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&session));
        Ok(session)
    }

    /// Runs work, and leaves no transaction open that it has begun if it fails.
    pub fn whole<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let was_in_transaction = self.0.is_in_transaction();
        work(self).inspect_err(|_| {
            if !was_in_transaction {
                self.0.roll_back();
            }
        })
    }

    /// Runs a statement once more, on the state that it has read before.
    pub fn run_again(&self, again: &Again) -> Result<Answer> {
        Ok(self.0.run_again(again)?)
    }

    /// Parses statements.
    pub fn parse(&self, text: &str) -> Result<Script> {
        match self.0.parse(text)? {
            script if script.is_empty() => Err(usage("there is no statement")),
            script => Ok(script),
        }
    }

    /// The names of the tables that statements name.
    pub fn relations(&self, script: &Script) -> Vec<String> {
        self.0.relations(script)
    }

    /// Runs all statements but the last.
    pub fn run_all_but_last(&self, store: &Arc<Store>, statements: &mut Statements) -> Result<()> {
        let Statements { script, params, callers } = statements;
        while script.len() > 1 {
            if let Some(mut answer) = self.0.run_next_with(script, store, params, callers)? {
                while answer.next_batch()?.is_some() {}
            }
        }
        Ok(())
    }

    /// Whether the next statement changes the store.
    pub fn changes(&self, script: &Script) -> bool {
        self.0.changes_next(script)
    }

    /// Begins the answer of a single statement.
    pub fn run(&self, store: &Arc<Store>, statement: &Statements) -> Result<Answer> {
        let mut script = statement.script.clone();
        let answer = self.0.run_next_with(&mut script, store, &statement.params, &statement.callers)?;
        answer.ok_or_else(|| usage("there is no statement"))
    }

    /// Begins to sort the rows of a query.
    pub fn sort(&self, rows: Rows, sorting: Sorting) -> Result<Answer> {
        let schema = rows.schema().clone();
        Ok(self.0.sort(&schema, rows, sorting)?)
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

/// A parameter: None, a bool, a number, a text, bytes, or the text of a date, a time, a UUID or a
/// geometry. Scalars of NumPy and members of enumerations stand for their values.
pub fn param(value: &Bound<'_, PyAny>) -> PyResult<Param> {
    let py = value.py();
    let text = || value.str()?.extract::<String>();
    let is_one_of = |module: &str, names: &[&str]| -> PyResult<bool> {
        // A module that was never imported has no values.
        let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
        let Ok(module) = modules.get_item(module) else { return Ok(false) };
        names.iter().try_fold(false, |found, name| Ok(found || value.is_instance(&module.getattr(*name)?)?))
    };
    if value.is_none() || is_missing(value)? {
        return Ok(Param::Null);
    }
    if is_one_of("enum", &["Enum"])? {
        return param(&value.getattr(intern!(py, "value"))?);
    }
    if is_one_of("numpy", &["generic"])? {
        let item = value.call_method0(intern!(py, "item"))?;
        // A time of NumPy in nanoseconds has no value of Python but a number.
        if is_one_of("numpy", &["datetime64", "timedelta64"])? {
            return Ok(Param::Text(text()?));
        }
        // A long double has no value of Python, and is its own item.
        if !item.get_type().is(value.get_type()) {
            return param(&item);
        }
    }
    Ok(match plain(value) {
        Some(Plain::Bool) => Param::Bool(value.extract()?),
        Some(Plain::Int) => Param::Number(text()?),
        // An infinity or NaN has no literal; its text is converted.
        Some(Plain::Float) if value.extract::<f64>()?.is_finite() => Param::Number(text()?),
        Some(Plain::Float | Plain::Text) => Param::Text(text()?),
        Some(Plain::Bytes) => Param::Bytes(value.extract()?),
        None if value.hasattr(intern!(py, "__geo_interface__"))? => {
            let wkt = to_wkt(&crate::rows::geometry(value)?);
            Param::Text(wkt.map_err(|error| UsageError::new_err(error.to_string()))?)
        }
        None if is_one_of("decimal", &["Decimal"])? && value.call_method0("is_finite")?.is_truthy()? => {
            Param::Number(value.call_method1("__format__", ("f",))?.extract()?)
        }
        None if is_one_of("decimal", &["Decimal"])? => Param::Text(text()?),
        None if is_one_of("datetime", &["date", "time"])? || is_one_of("uuid", &["UUID"])? => Param::Text(text()?),
        None => {
            let message = format!(
                "a parameter is None, a bool, a number, a str, bytes, a date, a time, a UUID or a geometry, and not {}",
                type_name(value)
            );
            return Err(UsageError::new_err(message));
        }
    })
}

/// Whether a value is one of those with which pandas says that there is none.
fn is_missing(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let modules = value.py().import(intern!(value.py(), "sys"))?.getattr(intern!(value.py(), "modules"))?;
    let Ok(pandas) = modules.get_item(intern!(value.py(), "pandas")) else { return Ok(false) };
    Ok(value.is(&pandas.getattr("NA")?) || value.is(&pandas.getattr("NaT")?))
}
