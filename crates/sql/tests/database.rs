//! A store with small datasets, and connections to it for `.slt` files.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::{DBOutput, DefaultColumnType};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, Dataset, Durability, Geometry, IndexKind, Options, Record, Store, Value};
use terrane_space::geometry::from_wkt;
use terrane_sql::{Session, SessionOptions, SqlError};

/// How the answers are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Indexed,
    NoPushdown,
    NoIndexes,
    LittleMemory,
}

/// A store, which is removed at the end.
pub struct Database {
    pub store: Arc<Store>,
    mode: Mode,
    options: Options,
    _directory: tempfile::TempDir,
}

impl Database {
    pub fn create(mode: Mode) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let memory_limit = if mode == Mode::LittleMemory { 32 << 20 } else { 256 << 20 };
        let options = Options { memory_limit, durability: Some(Durability::None), ..Options::default() };
        let store = Arc::new(Store::open(directory.path(), options.clone()).unwrap());
        let has_indexes = mode != Mode::NoIndexes;
        create_places(&store, has_indexes);
        create_zones(&store);
        create_grid(&store, has_indexes);
        create_numbers(&store, has_indexes);
        store.flush().unwrap();
        Self { store, mode, options, _directory: directory }
    }

    /// A session, as a connection of `sqllogictest`.
    pub fn connect(&self) -> Connection {
        let connection = Connection::new(&self.options, self.store.clone());
        if self.mode == Mode::NoPushdown {
            connection.rows("SET terrane.pushdown = false").unwrap();
        }
        connection
    }
}

pub struct Connection {
    pub session: Session,
    store: Arc<Store>,
}

impl Connection {
    pub fn new(options: &Options, store: Arc<Store>) -> Self {
        let options = SessionOptions { reads_files: true, ..SessionOptions::of_store(options) };
        Self { session: Session::new(&options).unwrap(), store }
    }

    /// The types and the texts of the rows of the last statement.
    pub fn rows(&self, sql: &str) -> Result<(Vec<DefaultColumnType>, Vec<Vec<String>>), SqlError> {
        let mut script = self.session.parse(sql)?;
        let (mut types, mut rows) = (Vec::new(), Vec::new());
        while let Some(mut answer) = self.session.run_next(&mut script, &self.store, &[])? {
            types = answer.schema().fields().iter().map(|field| column_type(field.data_type())).collect();
            rows.clear();
            while let Some(batch) = answer.next_batch()? {
                let options = FormatOptions::default().with_null("NULL");
                let columns: Vec<ArrayFormatter> =
                    batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
                for row in 0..batch.num_rows() {
                    rows.push(columns.iter().map(|column| column.value(row).to_string()).collect());
                }
            }
        }
        Ok((types, rows))
    }
}

impl Connection {
    /// The first column of the last statement's first batch.
    pub fn column(&mut self, sql: &str) -> Result<ArrayRef, SqlError> {
        let mut script = self.session.parse(sql)?;
        let mut column: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
        while let Some(mut answer) = self.session.run_next(&mut script, &self.store, &[])? {
            while let Some(batch) = answer.next_batch()? {
                if batch.num_rows() > 0 {
                    column = batch.column(0).clone();
                }
            }
        }
        Ok(column)
    }
}

fn column_type(data_type: &datafusion::arrow::datatypes::DataType) -> DefaultColumnType {
    match data_type {
        other if other.is_integer() => DefaultColumnType::Integer,
        other if other.is_floating() => DefaultColumnType::FloatingPoint,
        other if other.is_string() => DefaultColumnType::Text,
        _ => DefaultColumnType::Any,
    }
}

impl sqllogictest::DB for Connection {
    type Error = SqlError;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SqlError> {
        let (types, rows) = self.rows(sql)?;
        match types.is_empty() {
            true => Ok(DBOutput::StatementComplete(0)),
            false => Ok(DBOutput::Rows { types, rows }),
        }
    }
}

fn key(name: &str, key_type: KeyType) -> KeyColumn {
    KeyColumn { name: name.into(), key_type, generated: false }
}

fn points() -> GeometryColumn {
    GeometryColumn::Point { x: "lon".into(), y: "lat".into() }
}

fn text(text: &str) -> Value {
    Value::Utf8(text.into())
}

/// Six cities, and a record without a place or attributes.
fn create_places(store: &Store, has_indexes: bool) {
    let columns = vec![
        Column::new("Name", ColumnType::Utf8),
        Column::new("population", ColumnType::Int64),
        Column::new("height", ColumnType::Float64),
        Column::new("founded", ColumnType::Date),
        Column::new("seen", ColumnType::Timestamp { utc: true }),
        Column::new("capital", ColumnType::Bool),
    ];
    let schema = Schema::new(key("id", KeyType::Int64), points(), CoordinateSystem::LonLat, columns).unwrap();
    let places = store.create_dataset("places", schema).unwrap();
    if has_indexes {
        places.create_index("by_population", IndexKind::BTree, &["population"]).unwrap();
        places.create_index("by_name", IndexKind::BTree, &["Name"]).unwrap();
        places.create_index("by_height", IndexKind::BTree, &["height"]).unwrap();
    }
    let cities: [(i64, f64, f64, &str, i64, f64, bool); 6] = [
        (1, 13.4, 52.5, "Berlin", 3_700_000, 34.0, true),
        (2, 2.35, 48.86, "Paris", 2_100_000, 35.0, true),
        (3, -122.42, 37.77, "San Francisco", 870_000, 16.0, false),
        (4, 180.0, -16.5, "Waiyevo", 100, f64::NAN, false),
        (5, -179.99, -16.8, "Taveuni", 9_000, 10.5, false),
        (6, 13.06, 52.4, "Potsdam", 180_000, -1.5, false),
    ];
    for (id, lon, lat, name, population, height, capital) in cities {
        let days = i32::try_from(id * 1000).unwrap();
        let values = vec![
            text(name),
            Value::Int(population),
            Value::Float64(height),
            Value::Date(days),
            Value::Timestamp(id * 3_600_000_000 + 5),
            Value::Bool(capital),
        ];
        places.insert(&Record::at(id, lon, lat, values)).unwrap();
    }
    places.insert(&Record { key: 7.into(), geometry: None, values: vec![Value::Null; 6] }).unwrap();
}

/// Polygons, one with a hole, and an empty geometry.
fn create_zones(store: &Store) {
    let geometry = GeometryColumn::Geometry { name: "geometry".into() };
    let columns = vec![Column::new("note", ColumnType::Utf8)];
    let schema = Schema::new(key("zone", KeyType::Utf8), geometry, CoordinateSystem::LonLat, columns).unwrap();
    let zones = store.create_dataset("Zones", schema).unwrap();
    let shapes = [
        ("brandenburg", "POLYGON((12 51.5, 15 51.5, 15 53.5, 12 53.5, 12 51.5))"),
        ("europe", "POLYGON((-10 36, 30 36, 30 60, -10 60, -10 36))"),
        (
            "ring",
            "POLYGON((13 52, 14 52, 14 53, 13 53, 13 52), (13.2 52.45, 13.6 52.45, 13.6 52.6, 13.2 52.6, 13.2 52.45))",
        ),
        ("river", "LINESTRING(12 51.5, 13.4 52.5, 15 53.5)"),
        ("void", "POLYGON EMPTY"),
    ];
    for (zone, wkt) in shapes {
        insert_shape(&zones, zone, wkt);
    }
}

fn insert_shape(dataset: &Dataset, zone: &str, wkt: &str) {
    let geometry = Some(Geometry::Wkb(from_wkt(wkt).unwrap()));
    dataset.insert(&Record { key: zone.into(), geometry, values: vec![Value::Null] }).unwrap();
}

/// Points of a planar grid of 150 by 200 in four partitions. Every seventh was deleted.
fn create_grid(store: &Store, has_indexes: bool) {
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let columns = vec![Column::new("class", ColumnType::Utf8), Column::new("value", ColumnType::Float64)];
    let schema = Schema::new(key("id", KeyType::Int64), geometry, CoordinateSystem::Planar, columns).unwrap();
    let options = terrane::DatasetOptions { partitions: 4 };
    let grid = store.create_dataset_with("grid", schema, &options).unwrap();
    if has_indexes {
        grid.create_index("by_class", IndexKind::BTree, &["class"]).unwrap();
        grid.create_index("by_value", IndexKind::BTree, &["value"]).unwrap();
    }
    let ids = Int64Array::from_iter_values(0..30_000);
    let floats = |of: fn(i64) -> f64| Float64Array::from_iter_values((0..30_000).map(of));
    let classes = StringArray::from_iter_values((0..30_000).map(|id| ["a", "b", "c"][id % 3]));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(ids)),
        ("x", Arc::new(floats(|id| (id % 150) as f64))),
        ("y", Arc::new(floats(|id| (id / 150) as f64))),
        ("class", Arc::new(classes)),
        ("value", Arc::new(floats(|id| (id % 1000) as f64 / 8.0))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let outcome = grid.write_batch(&batch, terrane::OnConflict::Refuse).unwrap();
    assert!(outcome.refused.is_empty());
    store.flush().unwrap();
    for id in (0..30_000).step_by(7) {
        grid.delete(&id.into()).unwrap();
    }
}

/// Numbers at the limits of their types, and one record without any.
fn create_numbers(store: &Store, has_indexes: bool) {
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let columns = vec![
        Column::new("i", ColumnType::Int64),
        Column::new("f", ColumnType::Float64),
        Column::new("r", ColumnType::Float32),
    ];
    let schema = Schema::new(key("id", KeyType::Int64), geometry, CoordinateSystem::Planar, columns).unwrap();
    let numbers = store.create_dataset("numbers", schema).unwrap();
    if has_indexes {
        for column in ["i", "f", "r"] {
            numbers.create_index(&format!("by_{column}"), IndexKind::BTree, &[column]).unwrap();
        }
    }
    let rows: [(i64, i64, f64, f32); 7] = [
        (1, (1 << 53) + 1, 9_007_199_254_740_992.0, 0.1),
        (2, 1 << 53, -0.0, -0.0),
        (3, 0, 0.0, f32::NAN),
        (4, i64::MIN, f64::NAN, f32::INFINITY),
        (5, i64::MAX, f64::INFINITY, f32::MAX),
        (7, 1, f64::NEG_INFINITY, f32::NEG_INFINITY),
        (8, 2, 2.5, 2.5),
    ];
    for (id, i, f, r) in rows {
        let values = vec![Value::Int(i), Value::Float64(f), Value::Float32(r)];
        numbers.insert(&Record::at(id, 0.0, 0.0, values)).unwrap();
    }
    numbers.insert(&Record::at(6, 0.0, 0.0, vec![Value::Null; 3])).unwrap();
}
