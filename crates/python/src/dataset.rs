//! A dataset, as Python has it.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use terrane::schema::{ColumnType, GeometryColumn};
use terrane::{Condition, CoordinateSystem, Dataset, Filter, Geometry, IndexKind, OnConflict, Query, Record};
use terrane_space::geometry::{from_wkt, normalise, to_wkt};
use terrane_sql::Sorting;

use crate::database::Owner;
use crate::error::{Failure, Result, usage};
use crate::input::Target;
use crate::load::{self, Shape};
use crate::result::PyAnswer;
use crate::unlocked::detached;
use crate::values::{Types, type_name};
use crate::{arguments, input, order, rows};

/// A dataset of records, each with a key, a geometry and attributes.
///
/// ```python
/// >>> import tempfile, terrane
/// >>> db = terrane.open(tempfile.mkdtemp() + "/places.terrane")
/// >>> home = {"id": 1, "lon": -122.42, "lat": 37.77, "name": "home"}
/// >>> places = db.create("places", [home], key="id")
/// >>> places.insert({"id": 2, "lon": -122.27, "lat": 37.8, "name": "Oakland"})
/// 2
/// >>> places.upsert([{"id": 2, "lon": -122.27, "lat": 37.8, "name": "work"}])
/// 1
/// >>> places.query(bbox=(-122.3, 37, -122.2, 38), columns=["id", "name"]).fetchall()
/// [(2, 'work')]
/// >>> places.nearest((-122.4, 37.7), k=1, columns=["name"]).columns
/// ['name', 'distance']
/// >>> places.count(where="name = 'home'"), places.get(1)["name"]
/// (1, 'home')
/// >>> places.create_index("names", "btree", "name")
/// >>> places.delete(1), len(places)
/// (1, 1)
/// >>> db.close()
///
/// ```
#[pyclass(module = "terrane", name = "Dataset", frozen)]
pub struct PyDataset {
    owner: Arc<Owner>,
    dataset: Dataset,
}

/// The conditions of a query, as Python gives them.
struct Conditions<'a, 'py> {
    bbox: Option<[f64; 4]>,
    intersects: Option<&'a Bound<'py, PyAny>>,
    within: Option<&'a Bound<'py, PyAny>>,
    circle: Option<[f64; 3]>,
    condition: Option<&'a str>,
    words: Option<&'a str>,
}

impl Conditions<'_, '_> {
    fn query(&self) -> Result<Query> {
        let mut query = Query::new();
        if let Some([x0, y0, x1, y1]) = self.bbox {
            query = query.window(x0, y0, x1, y1);
        }
        if let Some(geometry) = self.intersects {
            query = query.filter(Filter::Intersects(wkb("intersects", geometry)?));
        }
        if let Some(geometry) = self.within {
            query = query.filter(Filter::Within(wkb("within", geometry)?));
        }
        if let Some([x, y, radius]) = self.circle {
            query = query.circle(x, y, radius);
        }
        if let Some(text) = self.condition {
            query = query.condition(Condition::parse(text).map_err(|error| usage(format!("where: {error}")))?);
        }
        if let Some(words) = self.words {
            query = query.condition(Condition::matches_anywhere(words));
        }
        Ok(query)
    }
}

/// The WKB of a condition's geometry: WKT, WKB, or an object such as shapely's.
fn wkb(name: &str, value: &Bound<'_, PyAny>) -> Result<Vec<u8>> {
    let refused = |error: terrane_space::geometry::GeometryError| usage(format!("{name}: {error}"));
    if let Ok(text) = value.extract::<String>() {
        return from_wkt(&text).map_err(refused);
    }
    if let Ok(bytes) = value.extract::<Vec<u8>>() {
        return normalise(&bytes).map_err(refused);
    }
    if value.hasattr("__geo_interface__")? {
        return Ok(rows::geometry(value)?);
    }
    Err(usage(format!("{name} is WKT, WKB, or a geometry such as shapely's, and not {}", type_name(value))))
}

/// Whether it is a scalar of NumPy.
fn is_scalar(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.hasattr("dtype")? && value.getattr("ndim").and_then(|ndim| ndim.extract::<usize>()).is_ok_and(|n| n == 0))
}

impl PyDataset {
    pub fn new(owner: Arc<Owner>, dataset: Dataset) -> Self {
        Self { owner, dataset }
    }

    fn answer(
        &self,
        py: Python<'_>,
        mut query: Query,
        columns: Option<Vec<String>>,
        order_by: Option<&Bound<'_, PyAny>>,
        limit: Option<u64>,
    ) -> Result<PyAnswer> {
        self.owner.check()?;
        let snapshot = self.dataset.snapshot();
        let by = order_by.map_or(Ok(Vec::new()), |order_by| order::parse(order_by, &snapshot.schema()))?;
        let sorting = (!by.is_empty()).then(|| Sorting {
            by,
            limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            columns: columns.clone(),
        });
        if let Some(columns) = sorting.as_ref().map_or(columns, Sorting::columns_read) {
            query = query.columns(columns);
        }
        if let Some(limit) = limit.filter(|_| sorting.is_none()) {
            query = query.limit(limit);
        }
        // Finds wrong names and places at once, and not where the answer is used.
        let answer = detached(py, || {
            let rows = snapshot.query(&query)?;
            PyAnswer::new(self.owner.clone(), snapshot, query, sorting, rows)
        });
        Ok(answer?)
    }

    fn write<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        on_conflict: OnConflict,
    ) -> Result<Bound<'py, PyAny>> {
        self.owner.check()?;
        let is_record = input::is_record(data)?;
        let schema = self.dataset.schema();
        let input = input::batches(data, &Target::of_schema(&schema))?;
        if input.is_nothing() && !is_record {
            return Ok(0_u64.into_bound_py_any(py)?);
        }
        let is_table = input.is_table();
        let mut source = input::source(input, &Shape::default().options(Some(&schema)))?;
        let (loaded, keys) = py.detach(|| load::write(&self.dataset, &mut source, on_conflict, is_table))?;
        match keys.first() {
            Some(key) if is_record => Ok(Types::new(py)?.of_key(key)?),
            _ => Ok(loaded.records.into_bound_py_any(py)?),
        }
    }

    fn record<'py>(&self, py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyDict>> {
        let schema = self.dataset.schema();
        let types = Types::new(py)?;
        let dict = PyDict::new(py);
        dict.set_item(&schema.key.name, types.of_key(&record.key)?)?;
        match (&schema.geometry, &record.geometry) {
            (GeometryColumn::Point { x, y }, Some(Geometry::Point(point))) => {
                dict.set_item(x, point.x)?;
                dict.set_item(y, point.y)?;
            }
            (GeometryColumn::Geometry { name }, Some(geometry)) => {
                let wkb = match geometry {
                    Geometry::Point(point) => terrane_space::geometry::point_wkb(*point).to_vec(),
                    Geometry::Wkb(wkb) => wkb.clone(),
                };
                let wkt = to_wkt(&wkb).map_err(|error| crate::error::CorruptionError::new_err(error.to_string()))?;
                dict.set_item(name, wkt)?;
            }
            (geometry, _) => geometry.names().try_for_each(|name| dict.set_item(name, py.None()))?,
        }
        for (column, value) in schema.columns.iter().zip(&record.values) {
            let utc = matches!(column.column_type, ColumnType::Timestamp { utc: true });
            dict.set_item(&column.name, types.of_value(value, utc)?)?;
        }
        Ok(dict)
    }
}

#[pymethods]
impl PyDataset {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.dataset.name()
    }

    /// The name of the key column.
    #[getter]
    fn key(&self) -> String {
        self.dataset.schema().key.name.clone()
    }

    /// Names and types of the columns: key, geometry, attributes.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let schema = self.dataset.schema();
        let dict = PyDict::new(py);
        dict.set_item(&schema.key.name, schema.key.key_type.to_string())?;
        let kind = if schema.holds_points() { "float64" } else { "geometry" };
        schema.geometry.names().try_for_each(|name| dict.set_item(name, kind))?;
        schema.columns.iter().try_for_each(|column| dict.set_item(&column.name, column.column_type.to_string()))?;
        Ok(dict)
    }

    /// Whether coordinates are planar, and not longitude and latitude.
    #[getter]
    fn planar(&self) -> bool {
        self.dataset.schema().system == CoordinateSystem::Planar
    }

    /// Records that meet all conditions.
    ///
    /// `bbox` is (x0, y0, x1, y1), `circle` (x, y, metres), a geometry WKT or an object such as
    /// shapely's, `where` a condition such as "speed > 3 and name = 'x'", `match` words of a text.
    /// `order_by` is a text such as "speed desc, id", or a list of such columns.
    #[pyo3(signature = (*, bbox=None, intersects=None, within=None, circle=None, r#where=None, r#match=None, columns=None, order_by=None, limit=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn query<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::bbox)] bbox: Option<[f64; 4]>,
        intersects: Option<Bound<'py, PyAny>>,
        within: Option<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::circle)] circle: Option<[f64; 3]>,
        #[pyo3(from_py_with = arguments::condition)] r#where: Option<String>,
        #[pyo3(from_py_with = arguments::words)] r#match: Option<String>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
        order_by: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::limit)] limit: Option<u64>,
    ) -> PyResult<PyAnswer> {
        let conditions = Conditions {
            bbox,
            intersects: intersects.as_ref(),
            within: within.as_ref(),
            circle,
            condition: r#where.as_deref(),
            words: r#match.as_deref(),
        };
        Ok(self.answer(py, conditions.query()?, columns, order_by.as_ref(), limit)?)
    }

    /// The `k` records nearest to a place that meet all conditions, by distance and then by key.
    /// The column `distance` has metres, or units of planar coordinates. It is a column like others
    /// for `insert` and `upsert`: leave it out of a table that goes back.
    #[pyo3(signature = (place, k=1, *, bbox=None, intersects=None, within=None, circle=None, r#where=None, r#match=None, columns=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn nearest<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::place)] place: [f64; 2],
        #[pyo3(from_py_with = arguments::k)] k: usize,
        #[pyo3(from_py_with = arguments::bbox)] bbox: Option<[f64; 4]>,
        intersects: Option<Bound<'py, PyAny>>,
        within: Option<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::circle)] circle: Option<[f64; 3]>,
        #[pyo3(from_py_with = arguments::condition)] r#where: Option<String>,
        #[pyo3(from_py_with = arguments::words)] r#match: Option<String>,
        #[pyo3(from_py_with = arguments::columns)] columns: Option<Vec<String>>,
    ) -> PyResult<PyAnswer> {
        let conditions = Conditions {
            bbox,
            intersects: intersects.as_ref(),
            within: within.as_ref(),
            circle,
            condition: r#where.as_deref(),
            words: r#match.as_deref(),
        };
        let [x, y] = place;
        Ok(self.answer(py, conditions.query()?.nearest(x, y, k), columns, None, None)?)
    }

    /// The present state as a table of DataFusion: `ctx.register_table(name, dataset)`. Conditions
    /// and columns are those that DataFusion needs.
    fn __datafusion_table_provider__<'py>(&self, session: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
        self.owner.check()?;
        crate::datafusion::table(session, &self.dataset)
    }

    /// Number of records that meet all conditions.
    #[pyo3(signature = (*, bbox=None, intersects=None, within=None, circle=None, r#where=None, r#match=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn count<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = arguments::bbox)] bbox: Option<[f64; 4]>,
        intersects: Option<Bound<'py, PyAny>>,
        within: Option<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::circle)] circle: Option<[f64; 3]>,
        #[pyo3(from_py_with = arguments::condition)] r#where: Option<String>,
        #[pyo3(from_py_with = arguments::words)] r#match: Option<String>,
    ) -> PyResult<u64> {
        self.owner.check()?;
        let conditions = Conditions {
            bbox,
            intersects: intersects.as_ref(),
            within: within.as_ref(),
            circle,
            condition: r#where.as_deref(),
            words: r#match.as_deref(),
        };
        let query = conditions.query()?;
        detached(py, || Ok(self.dataset.count(&query)?))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.owner.check()?;
        let count = detached(py, || Ok(self.dataset.count(&Query::new())?))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The record with a key as a dict, or None. Its geometry is WKT.
    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.owner.check()?;
        let key = Types::new(py)?.key(key, self.dataset.schema().key.key_type)?;
        let record = py.detach(|| self.dataset.get(&key)).map_err(Failure::from)?;
        record.map(|record| self.record(py, &record)).transpose()
    }

    /// Inserts a record, records, a table or a data frame; all of it is durable on return. Returns
    /// the key of a single record, or the number of records.
    ///
    /// A refused row raises an error that names it, after the other rows are stored. The points of
    /// a GeoDataFrame go into the coordinates of a dataset of points. A table that adds columns
    /// gives a warning.
    fn insert<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.write(py, data, OnConflict::Refuse)?)
    }

    /// As `insert`; replaces records that have the same key.
    fn upsert<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.write(py, data, OnConflict::Replace)?)
    }

    /// Deletes records by key, or those that meet a condition. Returns their number.
    #[pyo3(signature = (keys=None, *, r#where=None))]
    fn delete<'py>(
        &self,
        py: Python<'py>,
        keys: Option<Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::condition)] r#where: Option<String>,
    ) -> PyResult<u64> {
        self.owner.check()?;
        match (keys, r#where) {
            (Some(keys), None) => {
                let (types, wanted) = (Types::new(py)?, self.dataset.schema().key.key_type);
                // A scalar of NumPy has a shape as an array has, and no length.
                let is_one = crate::values::plain(&keys).is_some() || types.is_uuid(&keys)? || is_scalar(&keys)?;
                let keys = match is_one {
                    true => vec![types.key(&keys, wanted)?],
                    false => {
                        let expected = || usage(format!("keys is a key or several, and not {}", type_name(&keys)));
                        let keys = keys.try_iter().map_err(|_| expected())?.map(|key| types.key(&key?, wanted));
                        keys.collect::<Result<_>>()?
                    }
                };
                py.detach(|| {
                    let deleted = keys.iter().map(|key| self.dataset.delete(key).map(u64::from));
                    deleted.sum::<terrane::Result<u64>>()
                })
                .map_err(|error| Failure::from(error).into())
            }
            (None, Some(text)) => {
                let condition = Condition::parse(&text).map_err(|error| usage(format!("where: {error}")))?;
                py.detach(|| self.dataset.delete_where(&condition, &[])).map_err(|error| Failure::from(error).into())
            }
            _ => Err(usage("delete takes keys, or where=").into()),
        }
    }

    /// Creates an index: "rtree", "btree" on attributes, "inverted" on a text, or a curve's.
    #[pyo3(signature = (name, using, on=None))]
    fn create_index(&self, py: Python<'_>, name: &str, using: &str, on: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.owner.check()?;
        let kind: IndexKind = using.parse().map_err(Failure::from)?;
        let columns: Vec<String> = match on {
            None => Vec::new(),
            Some(on) => match on.extract::<String>() {
                Ok(column) => vec![column],
                Err(_) => {
                    let found = type_name(&on);
                    on.extract().map_err(|_| usage(format!("on is a column or a list of columns, and not {found}")))?
                }
            },
        };
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        py.detach(|| self.dataset.create_index(name, kind, &columns)).map_err(|error| Failure::from(error).into())
    }

    /// Drops an index.
    fn drop_index(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.owner.check()?;
        py.detach(|| self.dataset.drop_index(name)).map_err(|error| Failure::from(error).into())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.dataset.name();
        let Ok(count) = self.__len__(py) else { return Ok(format!("<terrane.Dataset {name}: closed>")) };
        let schema = self.dataset.schema();
        let mut text = format!(
            "<terrane.Dataset {name}: {}, key {} {}",
            terrane::counted(count as u64, "record", "records"),
            schema.key.name,
            schema.key.key_type
        );
        let geometry = schema.geometry.names().collect::<Vec<_>>().join(", ");
        text += &format!(", {} {geometry}", if schema.holds_points() { "points" } else { "geometry" });
        for column in &schema.columns {
            text += &format!(", {} {}", column.name, column.column_type);
        }
        Ok(text + ">")
    }
}
