//! A store, as Python has it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::prelude::*;
use pyo3::types::PyType;
use terrane::{Durability, ImportMode, Options, Store};
use terrane_formats::ReadOptions;

use crate::dataset::PyDataset;
use crate::error::{ClosedError, Failure, Result, missing, usage};
use crate::frames::Variables;
use crate::input::{self, Input, Target};
use crate::load::{self, Shape};
use crate::progress::Progress;
use crate::result::{Begun, PyAnswer};
use crate::size;
use crate::sql::{SqlSession, Statements, param};
use crate::unlocked::{detached, unlocked};

/// An open store, and the process that opened it.
pub struct Owner {
    store: Mutex<Option<Arc<Store>>>,
    /// The session of SQL, once there was a statement.
    session: Mutex<Option<Arc<SqlSession>>>,
    /// The last answer of SQL that was begun, and may not have been read.
    unread: Mutex<Weak<Begun>>,
    options: Options,
    path: PathBuf,
    pid: u32,
}

impl Owner {
    /// Refuses the use of a store that was closed, or inherited by a child process: its threads are
    /// not in the child, and both would write the same files.
    pub fn check(&self) -> PyResult<()> {
        self.store().map(drop)
    }

    /// The session of SQL.
    pub fn session(&self) -> Result<Arc<SqlSession>> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match &*session {
            Some(session) => Ok(session.clone()),
            None => Ok(session.insert(SqlSession::new(&self.options)?).clone()),
        }
    }

    /// Notes the answer that was begun. The one before it is begun anew if it is read: it would
    /// hold memory until then.
    pub fn note_begun(&self, begun: &Arc<Begun>) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *unread, Arc::downgrade(begun)).upgrade();
        drop(unread);
        if let Some(before) = before {
            drop(before.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    /// The store.
    pub fn store(&self) -> PyResult<Arc<Store>> {
        if self.pid != std::process::id() {
            return Err(ClosedError::new_err(format!(
                "the store {} was opened in process {}, and this is a fork of it; open it here for reading, or use \
                 multiprocessing with \"spawn\"",
                self.path.display(),
                self.pid
            )));
        }
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).clone();
        store.ok_or_else(|| ClosedError::new_err(format!("the store {} is closed", self.path.display())))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let store = self.store.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match self.pid == std::process::id() {
            true => unlocked(|| drop((session, store))),
            // A fork has neither the threads nor the right to write.
            false => std::mem::forget((session, store)),
        }
    }
}

/// A store of datasets. Use it as a context manager, or close it.
#[pyclass(module = "terrane", name = "Database", frozen)]
pub struct PyDatabase {
    owner: Arc<Owner>,
    read_only: bool,
}

/// Opens a store, which is a directory; it is created if it is missing.
///
/// `memory_limit` is a number of bytes or a text such as "256MiB". `durability` is "power" (the
/// default: acknowledged writes survive kill and power loss) or "none" (only a clean close keeps
/// them).
#[pyfunction]
#[pyo3(signature = (path, read_only=false, *, memory_limit=None, durability=None))]
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    read_only: bool,
    memory_limit: Option<Bound<'_, PyAny>>,
    durability: Option<&str>,
) -> PyResult<PyDatabase> {
    let mut options = Options::default();
    if let Some(limit) = memory_limit {
        options.memory_limit = size::parse(&limit)?;
    }
    if let Some(mode) = durability {
        options.durability = Some(mode.parse::<Durability>().map_err(Failure::from)?);
    }
    let store = py.detach(|| match read_only {
        true => Store::open_read_only(&path, options.clone()),
        false => Store::open(&path, options.clone()),
    });
    let store = Mutex::new(Some(Arc::new(store.map_err(Failure::from)?)));
    let (session, unread) = (Mutex::default(), Mutex::default());
    let owner = Owner { store, session, unread, options, path, pid: std::process::id() };
    Ok(PyDatabase { owner: Arc::new(owner), read_only })
}

fn mode_of(mode: &str) -> Result<ImportMode> {
    match mode {
        "append_or_create" => Ok(ImportMode::CreateOrAppend),
        "create" => Ok(ImportMode::Create),
        "append" => Ok(ImportMode::Append),
        "upsert" => Ok(ImportMode::Upsert),
        "replace" => Ok(ImportMode::Replace),
        _ => Err(usage(format!(
            "the mode {mode:?} is unknown; it is append_or_create, create, append, upsert or replace"
        ))),
    }
}

fn skips(on_invalid: &str) -> Result<bool> {
    match on_invalid {
        "error" => Ok(false),
        "skip" => Ok(true),
        _ => Err(usage(format!("on_invalid is \"error\" or \"skip\", and not {on_invalid:?}"))),
    }
}

#[pymethods]
impl PyDatabase {
    /// Names of the datasets.
    fn datasets(&self) -> PyResult<Vec<String>> {
        Ok(self.owner.store()?.dataset_names())
    }

    fn __getitem__(&self, name: &str) -> PyResult<PyDataset> {
        match self.owner.store()?.dataset(name) {
            Ok(dataset) => Ok(PyDataset::new(self.owner.clone(), dataset)),
            Err(error @ terrane::Error::UnknownDataset { .. }) => Err(missing(&error)),
            Err(error) => Err(Failure::from(error).into()),
        }
    }

    fn __contains__(&self, name: &str) -> PyResult<bool> {
        Ok(self.owner.store()?.dataset_names().iter().any(|known| known == name))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.owner.store()?.dataset_names().len())
    }

    /// Creates a dataset from records, a table or a data frame: all of its rows, or none. With
    /// `schema` instead of data, an empty one: a dict of names and types, or a schema of Arrow.
    ///
    /// The columns of the coordinates or the geometry, and the key, are recognised by their names
    /// and types, or named. Without a key, records are numbered. `planar` says that coordinates are
    /// not longitude and latitude. `on_invalid="skip"` leaves out rows that cannot be stored.
    #[pyo3(signature = (name, data=None, *, key=None, lon=None, lat=None, geometry=None, schema=None, planar=false, mode="create", on_invalid="error"))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn create(
        &self,
        py: Python<'_>,
        name: &str,
        data: Option<Bound<'_, PyAny>>,
        key: Option<String>,
        lon: Option<String>,
        lat: Option<String>,
        geometry: Option<String>,
        schema: Option<Bound<'_, PyAny>>,
        planar: bool,
        mode: &str,
        on_invalid: &str,
    ) -> PyResult<PyDataset> {
        let store = self.owner.store()?;
        let shape = Shape { key, lon, lat, geometry, planar };
        let mode = mode_of(mode)?;
        let skip = skips(on_invalid)?;
        // A stream can be read once, and an import looks at its only source once.
        let existing = store.dataset(name).ok().filter(|_| mode != ImportMode::Replace).map(|dataset| dataset.schema());
        let target = Target::of_import(&shape, existing.as_deref());
        let mut reader: Option<Input> = Some(match (data, schema) {
            (Some(data), None) => input::batches(&data, &target)?,
            (None, Some(schema)) => input::no_rows(&schema)?,
            _ => return Err(usage("create takes data, or schema=").into()),
        });
        let mut open = |_: usize, options: &ReadOptions| match reader.take() {
            Some(reader) => input::source(reader, options),
            None => Err(usage("the rows do not fit the dataset's columns; convert them before")),
        };
        py.detach(|| load::import(&store, name, &shape, (mode, skip), 1, &Progress::hidden(), &mut open))?;
        self.__getitem__(name)
    }

    /// Imports files, of any format that is known: all of their records, or none. Returns the
    /// number of records. Long imports show their progress by tqdm, if it is installed and the
    /// output is a terminal or a notebook; always with `progress=True`, and never with False.
    #[pyo3(signature = (name, paths, *, key=None, lon=None, lat=None, geometry=None, planar=false, mode="append_or_create", on_invalid="error", progress=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn import_files(
        &self,
        py: Python<'_>,
        name: &str,
        paths: Bound<'_, PyAny>,
        key: Option<String>,
        lon: Option<String>,
        lat: Option<String>,
        geometry: Option<String>,
        planar: bool,
        mode: &str,
        on_invalid: &str,
        progress: Option<bool>,
    ) -> PyResult<u64> {
        let store = self.owner.store()?;
        let paths: Vec<PathBuf> = match paths.extract::<PathBuf>() {
            Ok(path) => vec![path],
            Err(_) => paths.try_iter()?.map(|path| path?.extract()).collect::<PyResult<_>>()?,
        };
        if paths.is_empty() {
            return Err(usage("there is no file to import").into());
        }
        let shape = Shape { key, lon, lat, geometry, planar };
        let mode = mode_of(mode)?;
        let skip = skips(on_invalid)?;
        let mut open = |number: usize, options: &ReadOptions| Ok(terrane_formats::open(&paths[number], options)?);
        let progress = Progress::begin(py, name, progress)?;
        let imported =
            py.detach(|| load::import(&store, name, &shape, (mode, skip), paths.len(), &progress, &mut open));
        progress.end()?;
        let loaded = imported?;
        Ok(loaded.records)
    }

    /// Runs statements of SQL, separated by `;`, and gives the answer of the last. `params` are the
    /// values of `$1`, `$2`, …. A statement that changes the store is done when this returns.
    ///
    /// A table that is no dataset may be a variable of the caller: a data frame of pandas,
    /// GeoPandas or Polars, or anything with Arrow's stream interface.
    #[pyo3(signature = (statements, params=None))]
    fn sql(&self, py: Python<'_>, statements: &str, params: Option<Vec<Bound<'_, PyAny>>>) -> PyResult<PyAnswer> {
        let store = self.owner.store()?;
        let params = params.unwrap_or_default().iter().map(param).collect::<PyResult<Vec<_>>>()?;
        let (script, names) = detached(py, || {
            let session = self.owner.session()?;
            let script = session.parse(statements)?;
            let names = session.relations(&script);
            Ok((script, names))
        })?;
        let datasets = store.dataset_names();
        let is_dataset = |name: &str| datasets.iter().any(|dataset| dataset == name);
        let mut variables = Variables::of_caller(py, &names, is_dataset)?;
        let callers = Arc::new(std::mem::take(&mut variables.tables));
        let begun = detached(py, || {
            let session = self.owner.session()?;
            let mut statements = Statements { script, params, callers };
            session.whole(|session| {
                session.run_all_but_last(&store, &mut statements)?;
                let changes = session.changes(&statements.script);
                let answer = session.run(&store, &statements)?;
                match changes {
                    true => PyAnswer::of_change(self.owner.clone(), answer),
                    false => PyAnswer::of_statement(self.owner.clone(), answer),
                }
            })
        });
        begun.map_err(|error| variables.explained(py, error.into()))
    }

    /// Drops a dataset, with its records and indexes.
    fn drop(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let store = self.owner.store()?;
        py.detach(|| store.drop_dataset(name)).map_err(|error| Failure::from(error).into())
    }

    /// Sizes and counts of the store, as a dict.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let info = self.owner.store()?.info().map_err(Failure::from)?;
        let text = serde_json::to_string(&info).map_err(usage_of_json)?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// Verifies every page and every index. Returns the findings, which are texts; none if all is
    /// well.
    #[pyo3(signature = (*, repair=false))]
    fn check(&self, py: Python<'_>, repair: bool) -> PyResult<Vec<String>> {
        let store = self.owner.store()?;
        let report = py.detach(|| store.check(repair)).map_err(Failure::from)?;
        Ok(report.findings.iter().map(ToString::to_string).collect())
    }

    /// Merges all components of each index into one.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.owner.store()?;
        py.detach(|| store.compact()).map_err(|error| Failure::from(error).into())
    }

    /// Closes the store. Its datasets and answers cannot be used any more, and a transaction that
    /// was not committed has changed nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.owner.pid != std::process::id() {
            return Ok(());
        }
        let session = self.owner.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let store = self.owner.store.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| {
            drop(session);
            store.map_or(Ok(()), |store| store.close_shared())
        })
        .map_err(|error| Failure::from(error).into())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyType>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        match self.close(py) {
            // The first error is the one to see.
            Err(_) if kind.is_some() => Ok(false),
            closed => closed.map(|()| false),
        }
    }

    fn __repr__(&self) -> PyResult<String> {
        let path = self.owner.path.display();
        let Ok(store) = self.owner.store() else { return Ok(format!("<terrane.Database {path}: closed>")) };
        let names = store.dataset_names().join(", ");
        let mode = if self.read_only { ", read-only" } else { "" };
        Ok(format!("<terrane.Database {path}{mode}: {}>", if names.is_empty() { "no datasets" } else { &names }))
    }
}

fn usage_of_json(error: serde_json::Error) -> PyErr {
    crate::error::Error::new_err(error.to_string())
}
