//! The answer of a query: Arrow batches, made as they are read.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::{PyKeyboardInterrupt, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema};
use std::sync::{Arc, Mutex, PoisonError};
use terrane::schema::{GeometryColumn, Schema};
use terrane::{Query, Rows, Snapshot};
use terrane_formats::{GeometryColumns, OutputFormat, WriteError, WriteOptions, writer};
use terrane_sql::{Again, Answer, Sorting, SqlError, srid_of};

use crate::database::Owner;
use crate::error::{Failure, Result, usage};
use crate::input;
use crate::sql::SqlSession;
use crate::unlocked::{detached, interrupt, locked, signal, stoppable, unlocked};
use crate::values::Types;

/// Rows as they are found, of a query or of a statement.
pub enum Reading {
    Rows(Rows),
    /// The session ends after its answers.
    Statement(Box<Answer>, Arc<SqlSession>),
    Kept(std::vec::IntoIter<RecordBatch>),
}

impl Reading {
    fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ReadError> {
        match self {
            Self::Rows(rows) => Ok(rows.next_batch()?),
            Self::Statement(answer, _) => Ok(answer.next_batch()?),
            Self::Kept(batches) => Ok(batches.next()),
        }
    }
}

/// Why rows cannot be read. Its text needs no Python, whose lock a reader of a stream may lack.
#[derive(Debug)]
enum ReadError {
    Engine(terrane::Error),
    Statement(SqlError),
}

impl From<terrane::Error> for ReadError {
    fn from(error: terrane::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<SqlError> for ReadError {
    fn from(error: SqlError) -> Self {
        Self::Statement(error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Engine(error) => error.into(),
            ReadError::Statement(error) => error.into(),
        }
    }
}

impl From<ReadError> for PyErr {
    fn from(error: ReadError) -> Self {
        Failure::from(error).into()
    }
}

/// Rows that were begun and wait to be read.
pub type Begun = Mutex<Option<Reading>>;

/// Rows as a reader of Arrow batches.
struct Reader {
    owner: Arc<Owner>,
    rows: Reading,
    schema: SchemaRef,
}

impl Iterator for Reader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match self.owner.store() {
            Ok(_) => unlocked(|| stoppable(|| self.rows.next_batch())).map_err(Failure::from),
            Err(error) => Err(error.into()),
        };
        let failure = match (signal(), next) {
            (None, Ok(batch)) => return batch.map(Ok),
            (Some(error), _) => error.into(),
            (None, Err(failure)) => failure,
        };
        // A reader of a stream of Arrow gets a text alone.
        let text = locked(|py| {
            let error = PyErr::from(failure);
            let text = error.to_string();
            if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                interrupt();
            }
            text
        });
        Some(Err(ArrowError::ExternalError(text.into())))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The question of an answer.
enum Question {
    Query {
        snapshot: Box<Snapshot>,
        query: Box<Query>,
        sorting: Option<Sorting>,
    },
    /// Nothing, if it had no rows.
    Statement(Option<Again>),
    /// A statement that changed the store, which is never run again: the rows that it returned, and
    /// the number of rows that it changed.
    Change {
        batches: Vec<RecordBatch>,
        rows: Option<u64>,
    },
}

/// The answer of a query. Each use runs the query again, on the same state.
#[pyclass(module = "terrane", name = "Result", frozen)]
pub struct PyAnswer {
    owner: Arc<Owner>,
    schema: SchemaRef,
    question: Question,
    /// The rows that were begun when the question was asked, for the first use.
    begun: Arc<Begun>,
}

impl PyAnswer {
    /// The answer of a query whose rows have begun: wrong names and places are found at once.
    pub fn new(
        owner: Arc<Owner>,
        snapshot: Snapshot,
        query: Query,
        sorting: Option<Sorting>,
        rows: Rows,
    ) -> Result<Self> {
        let reading = reading(&owner, rows, sorting.as_ref())?;
        let schema = match &reading {
            Reading::Statement(answer, _) => answer.schema().clone(),
            Reading::Rows(rows) => rows.schema().clone(),
            Reading::Kept(_) => SchemaRef::new(arrow_schema::Schema::empty()),
        };
        let question = Question::Query { snapshot: Box::new(snapshot), query: Box::new(query), sorting };
        Ok(Self::of_question(owner, schema, question, Some(reading)))
    }

    /// The answer of a single statement that has begun.
    pub fn of_statement(owner: Arc<Owner>, answer: Answer) -> Result<Self> {
        let (schema, question) = (answer.schema().clone(), Question::Statement(answer.again()));
        let reading = Reading::Statement(Box::new(answer), owner.session()?);
        let answer = Self::of_question(owner, schema, question, Some(reading));
        answer.owner.note_begun(&answer.begun);
        Ok(answer)
    }

    fn of_question(owner: Arc<Owner>, schema: SchemaRef, question: Question, begun: Option<Reading>) -> Self {
        Self { owner, schema, question, begun: Arc::new(Mutex::new(begun)) }
    }

    /// The answer of a statement that has changed the store.
    pub fn of_change(owner: Arc<Owner>, mut answer: Answer) -> Result<Self> {
        let (schema, rows) = (answer.schema().clone(), answer.done().map(|(_, rows)| rows));
        let mut batches = Vec::new();
        while let Some(batch) = answer.next_batch()? {
            batches.push(batch);
        }
        Ok(Self::of_question(owner, schema, Question::Change { batches, rows }, None))
    }

    fn run(&self, py: Python<'_>) -> PyResult<Reading> {
        self.owner.check()?;
        detached(py, || self.begin())
    }

    fn reader_of(&self, rows: Reading) -> Reader {
        Reader { owner: self.owner.clone(), rows, schema: self.schema.clone() }
    }

    /// The rows as a reader of Arrow batches, for a thread without Python; or why there is none.
    pub fn reader(&self) -> std::result::Result<input::Reader, String> {
        match self.begin() {
            Ok(rows) => Ok(Box::new(self.reader_of(rows))),
            Err(Failure::Engine(error, _)) => Err(error.to_string()),
            Err(Failure::Python(error)) => Err(error.to_string()),
        }
    }

    fn begin(&self) -> Result<Reading> {
        self.owner.store()?;
        if let Some(reading) = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(reading);
        }
        match &self.question {
            Question::Query { snapshot, query, sorting } => {
                reading(&self.owner, snapshot.query(query)?, sorting.as_ref())
            }
            Question::Statement(None) => Ok(Reading::Kept(Vec::new().into_iter())),
            Question::Statement(Some(again)) => {
                let session = self.owner.session()?;
                Ok(Reading::Statement(Box::new(session.run_again(again)?), session))
            }
            Question::Change { batches, .. } => Ok(Reading::Kept(batches.clone().into_iter())),
        }
    }

    /// The schema of the dataset that is asked, unless it is a statement of SQL.
    fn dataset_schema(&self) -> Option<Arc<Schema>> {
        match &self.question {
            Question::Query { snapshot, .. } => Some(snapshot.schema()),
            Question::Statement(_) | Question::Change { .. } => None,
        }
    }
}

fn epsg(srid: i64) -> Option<String> {
    (srid != 0).then(|| format!("EPSG:{srid}"))
}

/// The rows of a query, in an order if there is one.
fn reading(owner: &Owner, rows: Rows, sorting: Option<&Sorting>) -> Result<Reading> {
    Ok(match sorting {
        Some(sorting) => {
            let session = owner.session()?;
            Reading::Statement(Box::new(session.sort(rows, sorting.clone())?), session)
        }
        None => Reading::Rows(rows),
    })
}

#[pymethods]
impl PyAnswer {
    /// The rows as a stream of the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.reader_of(self.run(py)?);
        let reader = PyRecordBatchReader::new(Box::new(reader));
        reader.into_pyobject(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// The schema, by the Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(self.schema.clone()).into_pyobject(py)?.call_method0("__arrow_c_schema__")
    }

    /// Number of rows that a statement of SQL inserted, changed or deleted; None for other answers.
    #[getter]
    fn rows_changed(&self) -> Option<u64> {
        match &self.question {
            Question::Change { rows, .. } => *rows,
            _ => None,
        }
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Name and type of each column.
    #[getter]
    fn types(&self) -> Vec<(String, String)> {
        let fields = self.schema.fields().iter();
        fields.map(|field| (field.name().clone(), field.data_type().to_string())).collect()
    }

    /// Names of the columns that hold geometries.
    #[getter]
    fn geometry_columns(&self) -> Vec<String> {
        let fields = self.schema.fields().iter().filter(|field| crate::values::is_geometry(field));
        fields.map(|field| field.name().clone()).collect()
    }

    /// The columns that hold the coordinates of points, if the answer has both.
    #[getter]
    fn point_columns(&self) -> Option<(String, String)> {
        match &self.dataset_schema()?.geometry {
            GeometryColumn::Point { x, y } => Some((x.clone(), y.clone())),
            GeometryColumn::Geometry { .. } | GeometryColumn::None => None,
        }
    }

    /// The coordinate reference system, if coordinates are longitude and latitude.
    #[getter]
    fn crs(&self) -> Option<String> {
        let srid = match self.dataset_schema() {
            Some(schema) => i64::from(schema.srid()),
            None => self.schema.fields().iter().find_map(|field| srid_of(field)).unwrap_or(0),
        };
        epsg(srid)
    }

    /// The coordinate reference system of each column that holds geometries.
    #[getter]
    fn _geometry_crs(&self) -> Vec<(String, Option<String>)> {
        let srids = self.schema.fields().iter().filter_map(|field| Some((field.name().clone(), srid_of(field)?)));
        srids.map(|(name, srid)| (name, epsg(srid))).collect()
    }

    /// All rows as tuples; with `limit`, the first of them. Geometries are WKT.
    #[pyo3(signature = (limit=None))]
    fn fetchall<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let mut rows = self.run(py)?;
        let types = Types::new(py)?;
        let limit = limit.unwrap_or(usize::MAX);
        while list.len() < limit {
            let Some(batch) = next_batch(py, &mut rows)? else { break };
            append_rows(&types, &batch, limit, &list)?;
        }
        Ok(list)
    }

    /// The rows in record batches of bounded size.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Batches> {
        Ok(Batches { owner: self.owner.clone(), rows: Mutex::new(self.run(py)?) })
    }

    /// The page of `explore`.
    fn _page(&self, py: Python<'_>) -> PyResult<String> {
        let mut rows = self.run(py)?;
        let geometry = match self.dataset_schema().map(|schema| schema.geometry.clone()) {
            Some(GeometryColumn::Point { x, y }) => GeometryColumns::Coordinates { x, y },
            Some(GeometryColumn::Geometry { name }) => GeometryColumns::Column { name },
            Some(GeometryColumn::None) | None => match self.geometry_columns().into_iter().next() {
                Some(name) => GeometryColumns::Column { name },
                None => return Err(usage("the statement selects no geometry, so there is no map of it").into()),
            },
        };
        let planar = self.crs().is_none_or(|crs| crs != "EPSG:4326");
        let options = WriteOptions { geometry, planar, ..WriteOptions::default() };
        let mut page = Vec::new();
        let failed = |error: WriteError| usage(error);
        detached(py, || {
            let mut writer = writer(OutputFormat::Map, &mut page, options);
            writer.begin(&self.schema).map_err(failed)?;
            while let Some(batch) = rows.next_batch()? {
                writer.write(&batch).map_err(failed)?;
            }
            writer.finish().map_err(failed)
        })?;
        String::from_utf8(page).map_err(|error| usage(error).into())
    }

    /// How the answer is found, as text.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        self.owner.check()?;
        let Question::Query { snapshot, query, .. } = &self.question else {
            return Err(usage("use db.sql(\"EXPLAIN …\") for the plan of a statement").into());
        };
        detached(py, || {
            let mut rows = snapshot.query(query)?;
            while rows.next_batch()?.is_some() {}
            Ok(rows.explanation().to_string())
        })
    }

    /// All rows as a pyarrow.Table.
    fn arrow<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(this, "arrow")
    }

    /// All rows as a pandas.DataFrame. Geometries are WKB.
    fn df<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(this, "df")
    }

    /// All rows as a geopandas.GeoDataFrame.
    fn gdf<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(this, "gdf")
    }

    /// All rows as a polars.DataFrame. Geometries are WKB.
    fn pl<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(this, "pl")
    }

    /// A picture by matplotlib. Keyword arguments are those of GeoDataFrame.plot.
    #[pyo3(signature = (**kwargs))]
    fn plot<'py>(this: &Bound<'py, Self>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        this.py().import("terrane._convert")?.call_method("plot", (this,), kwargs)
    }

    /// An interactive map, which notebooks show; `save` writes it as one HTML page.
    fn explore<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(this, "explore")
    }

    fn __repr__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(this, "text")
    }

    fn _repr_html_<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        converted(this, "html")
    }

    /// Number of rows.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.owner.check()?;
        if let Question::Query { snapshot, query, sorting } = &self.question {
            let count = detached(py, || Ok(snapshot.count(query)?))?;
            let limit = sorting.as_ref().and_then(|sorting| sorting.limit).unwrap_or(usize::MAX);
            return Ok(usize::try_from(count).unwrap_or(usize::MAX).min(limit));
        }
        let mut rows = self.run(py)?;
        let mut count = 0;
        while let Some(batch) = next_batch(py, &mut rows)? {
            count += batch.num_rows();
        }
        Ok(count)
    }
}

fn next_batch(py: Python<'_>, rows: &mut Reading) -> PyResult<Option<RecordBatch>> {
    py.check_signals()?;
    detached(py, || Ok(rows.next_batch()?))
}

/// The answer as a function of the package's Python part makes it.
fn converted<'py>(answer: &Bound<'py, PyAnswer>, function: &str) -> PyResult<Bound<'py, PyAny>> {
    answer.py().import("terrane._convert")?.call_method1(function, (answer,))
}

fn append_rows(types: &Types<'_>, batch: &RecordBatch, limit: usize, list: &Bound<'_, PyList>) -> PyResult<()> {
    let schema = batch.schema();
    for row in 0..batch.num_rows().min(limit - list.len()) {
        let values = schema.fields().iter().zip(batch.columns());
        let values = values.map(|(field, array)| types.value_at(field, array, row)).collect::<PyResult<Vec<_>>>()?;
        list.append(PyTuple::new(list.py(), values)?)?;
    }
    Ok(())
}

/// An iterator of Arrow record batches.
#[pyclass(module = "terrane", name = "Batches", frozen)]
pub struct Batches {
    owner: Arc<Owner>,
    rows: Mutex<Reading>,
}

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Batch> {
        self.owner.check()?;
        let next = detached(py, || {
            let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(rows.next_batch()?)
        });
        match next? {
            Some(batch) => Ok(Batch(batch)),
            None => Err(PyStopIteration::new_err(())),
        }
    }
}

/// A record batch of the Arrow PyCapsule interface.
#[pyclass(module = "terrane", name = "Batch", frozen)]
pub struct Batch(RecordBatch);

#[pymethods]
impl Batch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        PyRecordBatch::new(self.0.clone()).into_pyobject(py)?.call_method1("__arrow_c_array__", (requested_schema,))
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// All rows as tuples. Geometries are WKT.
    fn fetchall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        append_rows(&Types::new(py)?, &self.0, usize::MAX, &list)?;
        Ok(list)
    }
}
