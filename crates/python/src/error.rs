//! Errors as Python exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError};
use pyo3::prelude::*;
use terrane::Error as EngineError;
use terrane_formats::FormatError;
use terrane_load::LoadError;

create_exception!(terrane, Error, PyException, "The base of all errors of Terrane.");
create_exception!(terrane, UsageError, Error, "The call is wrong: change it.");
create_exception!(terrane, NotFoundError, UsageError, "No dataset, column or index has this name.");
create_exception!(
    terrane,
    RefusedError,
    Error,
    "A row was refused: correct the data. `row` is its number from 0 and `column` its column, if known."
);
create_exception!(terrane, DuplicateKeyError, RefusedError, "A record with this key exists. `key` is the key.");
create_exception!(terrane, LockedError, Error, "Another process has the store open for writing. `pid` is its number.");
create_exception!(terrane, CorruptionError, Error, "Stored bytes are damaged.");
create_exception!(terrane, StorageError, Error, "The disk is full, or the operating system reported an error.");
create_exception!(terrane, MemoryLimitError, Error, "The work needs more memory than `memory_limit` allows.");
create_exception!(
    terrane,
    ClosedError,
    Error,
    "The store was closed, or is used in another process than it was opened in."
);

/// Adds the exceptions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for (name, class) in [
        ("Error", py.get_type::<Error>()),
        ("UsageError", py.get_type::<UsageError>()),
        ("NotFoundError", py.get_type::<NotFoundError>()),
        ("RefusedError", py.get_type::<RefusedError>()),
        ("DuplicateKeyError", py.get_type::<DuplicateKeyError>()),
        ("LockedError", py.get_type::<LockedError>()),
        ("CorruptionError", py.get_type::<CorruptionError>()),
        ("StorageError", py.get_type::<StorageError>()),
        ("MemoryLimitError", py.get_type::<MemoryLimitError>()),
        ("ClosedError", py.get_type::<ClosedError>()),
    ] {
        module.add(name, class)?;
    }
    Ok(())
}

/// An error of this package.
#[derive(Debug)]
pub enum Failure {
    /// Of the engine, perhaps about a row of the input, numbered from 0.
    Engine(EngineError, Option<u64>),
    /// Python's own.
    Python(PyErr),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error, None)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        match &error {
            FormatError::Usage { .. } => usage(error),
            FormatError::Io { .. } => Self::Python(StorageError::new_err(error.to_string())),
            _ => Self::Engine(EngineError::refused(error.to_string()), None),
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NoGeometry { .. } => {
                usage(format!("{error}; name the coordinates with lon= and lat=, or the geometry with geometry="))
            }
            LoadError::Schema { error, .. } => EngineError::from(error).into(),
            LoadError::UnsupportedColumn { .. } => usage(error),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Engine(error, row) => Python::attach(|py| to_python(py, &error, row)),
        }
    }
}

/// A result of this package.
pub type Result<T> = std::result::Result<T, Failure>;

/// A wrong call.
pub fn usage(message: impl ToString) -> Failure {
    Failure::Python(UsageError::new_err(message.to_string()))
}

fn to_python(py: Python<'_>, error: &EngineError, row: Option<u64>) -> PyErr {
    // The engine's advice names the flag of the command line.
    let message = error.to_string().replace("--memory-limit", "memory_limit");
    let with = |error: PyErr, attributes: &[(&str, Option<String>)]| {
        for (name, value) in attributes {
            // An exception without the attribute is better than another exception.
            let _ = error.value(py).setattr(*name, value.as_deref());
        }
        error
    };
    match error {
        EngineError::Refused { row: line, column, .. } => {
            let number = row.or(line.map(|line| line - 1));
            let message = match (number, line) {
                (Some(number), None) => format!("row {number}: {message}"),
                _ => message,
            };
            let refused = with(RefusedError::new_err(message), &[("column", column.clone())]);
            let _ = refused.value(py).setattr("row", number);
            refused
        }
        EngineError::DuplicateKey { key } => {
            let message = row.map_or(message.clone(), |row| format!("row {row}: {message}"));
            let duplicate =
                with(DuplicateKeyError::new_err(message), &[("column", None), ("key", Some(key.to_string()))]);
            let _ = duplicate.value(py).setattr("row", row);
            duplicate
        }
        EngineError::UnknownDataset { .. } => NotFoundError::new_err(message),
        EngineError::Usage(_) | EngineError::Unsupported { .. } | EngineError::ReadOnly => UsageError::new_err(message),
        EngineError::Dropped { .. } => ClosedError::new_err(message),
        EngineError::Locked { pid } => {
            let locked = LockedError::new_err(message);
            let _ = locked.value(py).setattr("pid", *pid);
            locked
        }
        EngineError::Memory { .. } => MemoryLimitError::new_err(message),
        EngineError::Full { .. } | EngineError::Storage(_) | EngineError::Poisoned { .. } => {
            StorageError::new_err(message)
        }
        error if error.is_damage() => CorruptionError::new_err(message),
        _ => Error::new_err(message),
    }
}

/// A name that is not there, for `container[name]`.
pub fn missing(error: &EngineError) -> PyErr {
    PyKeyError::new_err(error.to_string())
}
