//! Errors as Python exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use terrane::Error as EngineError;
use terrane_formats::FormatError;
use terrane_load::LoadError;

create_exception!(terrane, Error, PyException, "The base of all errors of Terrane.");
create_exception!(terrane, UsageError, Error, "The call is wrong: change it.");
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

/// `NotFoundError`: a `UsageError`, and a `KeyError` as `container[name]` raises it.
fn not_found_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let members = PyDict::new(py);
        members.set_item("__module__", "terrane")?;
        members.set_item("__doc__", "No dataset, column or index has this name.")?;
        // That of KeyError would put the message in quotes.
        members.set_item("__str__", py.get_type::<PyException>().getattr("__str__")?)?;
        let bases = PyTuple::new(py, [py.get_type::<UsageError>(), py.get_type::<PyKeyError>()])?;
        let class = py.get_type::<PyType>().call1(("NotFoundError", bases, members))?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py))
}

/// No dataset, column or index has a name.
pub fn not_found(message: impl ToString) -> PyErr {
    let message = message.to_string();
    Python::attach(|py| match not_found_class(py) {
        Ok(class) => PyErr::from_type(class.clone(), message),
        Err(error) => error,
    })
}

/// Adds the exceptions to the module. Attributes that an error does not know are None.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let refused = py.get_type::<RefusedError>();
    refused.setattr("row", py.None())?;
    refused.setattr("column", py.None())?;
    py.get_type::<DuplicateKeyError>().setattr("key", py.None())?;
    py.get_type::<LockedError>().setattr("pid", py.None())?;
    module.add("NotFoundError", not_found_class(py)?)?;
    for (name, class) in [
        ("Error", py.get_type::<Error>()),
        ("UsageError", py.get_type::<UsageError>()),
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
            FormatError::Value { row, column, reason, .. } => {
                Self::Python(refused(row.map(|row| row - 1), Some(column), reason))
            }
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
            Failure::Engine(error, row) => Python::attach(|py| to_python(py, &error, row, "")),
        }
    }
}

impl Failure {
    /// The same error, whose message ends with what became of other rows.
    pub fn with_counts(self, counts: &str) -> Self {
        let counts = format!(" (of all rows: {counts})");
        Self::Python(Python::attach(|py| match self {
            Self::Engine(error, row) => to_python(py, &error, row, &counts),
            Self::Python(error) => {
                let value = error.value(py);
                if error.is_instance_of::<Error>(py) {
                    // The message is the only argument. Without the counts it is still right.
                    let _ = value.setattr("args", (format!("{value}{counts}"),));
                }
                error
            }
        }))
    }
}

/// A refused row, numbered from 0.
pub fn refused(row: Option<u64>, column: Option<&str>, reason: impl std::fmt::Display) -> PyErr {
    let row_text = row.map_or_else(String::new, |row| format!("row {row}: "));
    let column_text = column.map_or_else(String::new, |column| format!("column {column:?}: "));
    let error = RefusedError::new_err(format!("{row_text}{column_text}{reason}"));
    Python::attach(|py| {
        // An exception without the attributes is better than another exception.
        let _ = error.value(py).setattr("row", row);
        let _ = error.value(py).setattr("column", column);
    });
    error
}

/// A result of this package.
pub type Result<T> = std::result::Result<T, Failure>;

/// A wrong call.
pub fn usage(message: impl ToString) -> Failure {
    Failure::Python(wrong_call(&in_python(&message.to_string())))
}

/// Parts of the engine's messages about a name that is not there.
const NOT_FOUND: [&str; 3] = ["there is no column ", " has no column ", " has no index "];

fn wrong_call(message: &str) -> PyErr {
    match NOT_FOUND.iter().any(|text| message.contains(text)) {
        true => not_found(message),
        false => UsageError::new_err(message.to_owned()),
    }
}

/// Advice of the engine that names flags of the command line, and how Python's is.
const FLAGS: [(&str, &str); 8] = [
    ("--memory-limit", "memory_limit"),
    ("`terrane check --repair`", "check(repair=True)"),
    ("`terrane check`", "check()"),
    ("use --wrap-longitudes", "subtract 360 from those over 180"),
    (", or give its format with --type COLUMN=date:FORMAT", ""),
    (", or give its format with --type COLUMN=timestamp:FORMAT", ""),
    ("use --type COLUMN=utf8", "give its values as str"),
    ("use --null TEXT", "use None"),
];

/// A message in terms of Python.
pub fn in_python(message: &str) -> String {
    let message = FLAGS.iter().fold(message.to_owned(), |message, (flag, own)| message.replace(flag, own));
    match message.split_once(" with --type ") {
        Some((before, _)) => format!("{before} before"),
        None => message,
    }
}

/// The column that a reason names at its beginning.
fn column_of(reason: &str) -> Option<String> {
    let (name, _) = reason.strip_prefix("column \"")?.split_once('"')?;
    Some(name.to_owned())
}

/// An exception, about a row of the input if it is known. `note` ends its message.
fn to_python(py: Python<'_>, error: &EngineError, row: Option<u64>, note: &str) -> PyErr {
    let message = in_python(&error.to_string()) + note;
    let with = |error: PyErr, attributes: &[(&str, Option<String>)]| {
        for (name, value) in attributes {
            // An exception without the attribute is better than another exception.
            let _ = error.value(py).setattr(*name, value.as_deref());
        }
        error
    };
    match error {
        EngineError::Refused { row: line, column, reason } => {
            let number = row.or(line.map(|line| line - 1));
            let message = match (number, line) {
                (Some(number), None) => format!("row {number}: {message}"),
                _ => message,
            };
            let column = column.clone().or_else(|| column_of(reason));
            let refused = with(RefusedError::new_err(message), &[("column", column)]);
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
        EngineError::UnknownDataset { .. } => not_found(message),
        EngineError::Usage(_) => wrong_call(&message),
        EngineError::Unsupported { .. } | EngineError::ReadOnly => UsageError::new_err(message),
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
    not_found(error)
}
