//! The answer of a query: Arrow batches, made as they are read.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema};
use std::sync::{Arc, Mutex, PoisonError};
use terrane::schema::GeometryColumn;
use terrane::{CoordinateSystem, Query, Rows, Snapshot};
use terrane_formats::{GeometryColumns, OutputFormat, WriteError, WriteOptions, writer};

use crate::database::Owner;
use crate::error::{Failure, Result, usage};
use crate::values::Types;

/// Rows as a reader of Arrow batches.
struct Reader {
    rows: Rows,
    schema: SchemaRef,
}

impl Iterator for Reader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.rows.next_batch().transpose()?;
        Some(batch.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The answer of a query. Each use runs the query again, on the same snapshot.
#[pyclass(module = "terrane", name = "Result", frozen)]
pub struct PyAnswer {
    owner: Arc<Owner>,
    schema: SchemaRef,
    snapshot: Snapshot,
    query: Query,
    /// The rows that were begun when the query was made, for the first use.
    begun: Mutex<Option<Rows>>,
}

impl PyAnswer {
    /// The answer whose rows have begun, so that wrong names and places are found at once.
    pub fn new(owner: Arc<Owner>, snapshot: Snapshot, query: Query, rows: Rows) -> Self {
        Self { owner, schema: rows.schema().clone(), snapshot, query, begun: Mutex::new(Some(rows)) }
    }

    fn run(&self, py: Python<'_>) -> Result<Rows> {
        self.owner.check()?;
        if let Some(rows) = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(rows);
        }
        py.detach(|| self.snapshot.query(&self.query)).map_err(Failure::from)
    }
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
        let rows = self.run(py)?;
        let schema = rows.schema().clone();
        let reader = PyRecordBatchReader::new(Box::new(Reader { rows, schema }));
        reader.into_pyobject(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// The schema, by the Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(self.schema.clone()).into_pyobject(py)?.call_method0("__arrow_c_schema__")
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
        match &self.snapshot.schema().geometry {
            GeometryColumn::Point { x, y } => Some((x.clone(), y.clone())),
            GeometryColumn::Geometry { .. } => None,
        }
    }

    /// The coordinate reference system, if coordinates are longitude and latitude.
    #[getter]
    fn crs(&self) -> Option<&'static str> {
        match self.snapshot.schema().system {
            CoordinateSystem::LonLat => Some("EPSG:4326"),
            CoordinateSystem::Planar => None,
        }
    }

    /// All rows as tuples; with `limit`, the first of them. Geometries are WKT.
    #[pyo3(signature = (limit=None))]
    fn fetchall<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let mut rows = self.run(py)?;
        let types = Types::new(py)?;
        let limit = limit.unwrap_or(usize::MAX);
        while list.len() < limit {
            let Some(batch) = py.detach(|| rows.next_batch()).map_err(Failure::from)? else { break };
            py.check_signals()?;
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
        let schema = self.snapshot.schema();
        let options = WriteOptions {
            geometry: match &schema.geometry {
                GeometryColumn::Point { x, y } => GeometryColumns::Coordinates { x: x.clone(), y: y.clone() },
                GeometryColumn::Geometry { name } => GeometryColumns::Column { name: name.clone() },
            },
            planar: schema.system == CoordinateSystem::Planar,
            ..WriteOptions::default()
        };
        let mut page = Vec::new();
        let failed = |error: WriteError| usage(error);
        py.detach(|| -> Result<()> {
            let mut writer = writer(OutputFormat::Map, &mut page, options);
            writer.begin(rows.schema()).map_err(failed)?;
            while let Some(batch) = rows.next_batch()? {
                writer.write(&batch).map_err(failed)?;
            }
            writer.finish().map_err(failed)
        })?;
        String::from_utf8(page).map_err(|error| usage(error).into())
    }

    /// How the answer is found, as text.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        let mut rows = self.run(py)?;
        py.detach(|| {
            while rows.next_batch()?.is_some() {}
            Ok::<_, terrane::Error>(rows.explanation().to_string())
        })
        .map_err(|error| Failure::from(error).into())
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
        let count = py.detach(|| self.snapshot.count(&self.query)).map_err(Failure::from)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }
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
    rows: Mutex<Rows>,
}

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Batch> {
        self.owner.check()?;
        py.check_signals()?;
        let next = py.detach(|| {
            let mut rows = self.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            rows.next_batch()
        });
        match next.map_err(Failure::from)? {
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
