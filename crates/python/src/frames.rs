//! Tables in the caller's variables, such as data frames, which SQL reads by name.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::ArrowError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use terrane_formats::{FormatError, ReadOptions, open_batches};
use terrane_sql::{CallerTable, CallerTables};

use crate::error::{Failure, Result, UsageError, usage};
use crate::input::{self, Reader, Target};
use crate::result::PyAnswer;
use crate::values::type_name;

/// The caller's variables that statements name.
#[derive(Default)]
pub struct Variables {
    pub tables: CallerTables,
    /// Names and types of those that are no tables.
    others: Vec<(String, String)>,
}

impl Variables {
    /// Looks for names among the local variables of the calling function, then among the global
    /// ones of its module. A name that is not found is looked for in lower case. `is_taken` tells
    /// which names need no variable.
    pub fn of_caller(py: Python<'_>, names: &[String], is_taken: impl Fn(&str) -> bool) -> PyResult<Self> {
        let mut found = Self::default();
        if names.iter().all(|name| is_taken(name)) {
            return Ok(found);
        }
        let frame = py.import(intern!(py, "sys"))?.call_method1(intern!(py, "_getframe"), (0,))?;
        let scopes = [frame.getattr(intern!(py, "f_locals"))?, frame.getattr(intern!(py, "f_globals"))?];
        for name in names.iter().filter(|name| !is_taken(name)) {
            for spelling in [name.clone(), name.to_lowercase()] {
                // A scope that lacks the name raises KeyError.
                let value = scopes.iter().find_map(|scope| scope.get_item(&spelling).ok());
                let Some(value) = value else { continue };
                match is_table(&value)? {
                    true => drop(found.tables.insert(spelling.clone(), table(spelling, &value)?)),
                    false => found.others.push((spelling, type_name(&value))),
                }
                break;
            }
        }
        Ok(found)
    }

    /// An error, which says of a variable that was no table that it is none.
    pub fn explained(&self, py: Python<'_>, failure: Failure) -> PyErr {
        let error = PyErr::from(failure);
        if !error.is_instance_of::<UsageError>(py) {
            return error;
        }
        let message = error.value(py).to_string();
        match self.others.iter().find(|(name, _)| message.contains(name)) {
            Some((name, kind)) => UsageError::new_err(format!(
                "{message}; the variable {name} is of type {kind}, which is no table: SQL reads data frames, and what \
                 has __arrow_c_stream__"
            )),
            None => error,
        }
    }
}

fn is_table(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let has_rows = value.hasattr(intern!(value.py(), "__arrow_c_stream__"))? || input::is_geodataframe(value)?;
    Ok(has_rows && !value.is_instance_of::<PyType>())
}

/// The table of a variable. Python is asked for its rows here, on the caller's thread: not all of
/// its packages work on others.
fn table(name: String, value: &Bound<'_, PyAny>) -> Result<CallerTable> {
    if let Ok(answer) = value.cast::<PyAnswer>() {
        let answer = answer.clone().unbind();
        return Ok(of_readers(name, move || answer.get().reader()));
    }
    let py = value.py();
    // Others may change a frame of pandas while it is read, and Arrow shares its memory.
    let copied = match value.hasattr(intern!(py, "reset_index"))? {
        true => value.call_method0(intern!(py, "copy"))?,
        false => value.clone(),
    };
    let reader = input::batches(&copied, &Target::default())?.reader;
    if value.hasattr(intern!(value.py(), "__len__"))? {
        let schema = reader.schema();
        let batches = reader.collect::<std::result::Result<Vec<RecordBatch>, _>>();
        let batches: Arc<[RecordBatch]> = batches.map_err(|error| unreadable(&name, error))?.into();
        return Ok(of_readers(name, move || {
            let batches: Vec<_> = batches.iter().cloned().map(Ok).collect();
            Ok(Box::new(RecordBatchIterator::new(batches, schema.clone())))
        }));
    }
    let reader = Mutex::new(Some(reader));
    Ok(of_readers(name, move || {
        reader.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(|| {
            "a reader can be read once, and the statement or its answer reads it again; make a table of it first, as \
             with read_all()"
                .to_owned()
        })
    }))
}

/// Why the rows of a table cannot be read.
fn unreadable(name: &str, error: ArrowError) -> Failure {
    let error = match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<FormatError>() {
            Ok(own) => return Failure::from(*own),
            Err(inner) => ArrowError::ExternalError(inner),
        },
        error => error,
    };
    usage(format!("{name}: {error}"))
}

/// A table whose rows are opened by a function, or the reason why they cannot be. Only declared
/// geometries are geometries, and those that their name and all of the first values show to be
/// some: numbers may mean anything.
fn of_readers(
    name: String,
    open: impl Fn() -> std::result::Result<Reader, String> + Send + Sync + 'static,
) -> CallerTable {
    let options = ReadOptions { no_guessed_coordinates: true, ..ReadOptions::default() };
    CallerTable::new(move || {
        let reader = open().map_err(|reason| FormatError::Usage { path: name.as_str().into(), reason })?;
        let schema = reader.schema();
        open_batches(&name, &schema, reader, &options)
    })
}
