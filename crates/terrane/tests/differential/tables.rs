//! Real data for the differential tests: rows of files, with geometries of the `geo` crate.
//!
//! `TERRANE_DATA` names the folder of the files. By default, the samples of the repository are
//! read.

use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use geo::{BoundingRect, Coord, Geometry as Geo, LineString, MultiPolygon, Polygon};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, Geometry, Key, Record, Value};
use terrane_formats::{ReadOptions, open};
use terrane_space::Point;
use terrane_space::geometry::{check_valid, from_geo, to_geo};

use terrane_testkit::is_soak;

/// Number of consecutive rows taken together, so that neighbours and ties stay together.
const BLOCK_ROWS: usize = 32;

/// A file, and the part of it that is read.
#[derive(Clone, Copy)]
pub struct File {
    /// The dataset's name.
    pub name: &'static str,
    path: &'static str,
    /// Columns of longitude and latitude; `None` if there is a geometry column.
    coordinates: Option<(&'static str, &'static str)>,
    attributes: &'static [&'static str],
    /// Maximal number of rows in an ordinary run and in a long one.
    rows_max: [usize; 2],
    /// Minimal number of vertices of each ring. Edges are divided to reach it.
    vertices_min: usize,
}

const fn points(
    name: &'static str,
    path: &'static str,
    attributes: &'static [&'static str],
    rows_max: [usize; 2],
) -> File {
    File { name, path, coordinates: Some(("lon", "lat")), attributes, rows_max, vertices_min: 0 }
}

const fn shapes(
    name: &'static str,
    path: &'static str,
    attributes: &'static [&'static str],
    rows_max: [usize; 2],
) -> File {
    File { name, path, coordinates: None, attributes, rows_max, vertices_min: 0 }
}

pub const CITIES: File = points("cities", "geonames_cities1000.parquet", &["name", "cc", "place_id"], [2_000, 150_000]);
pub const QUAKES: File = points("quakes", "usgs_earthquakes_1965_2016.parquet", &["magnitude"], [2_000, 25_000]);
/// Most rows share their place with others.
pub const HOSPITALS: File = points(
    "hospitals",
    "us_hospital_drg_2016.parquet",
    &["drg", "state", "discharges", "avg_total_payments_usd"],
    [2_000, 100_000],
);
/// More rows than a query collects as candidates at once.
pub const FIRES: File =
    points("fires", "firms_modis_fires_2020.parquet", &["country", "confidence", "brightness_k"], [22_000, 200_000]);
pub const TEXTS: File = points("texts", "geotagged_text.parquet", &["message", "source"], [2_000, 15_000]);
/// Polygons of a thousand and more vertices.
pub const ZIP_AREAS: File =
    shapes("zip_areas", "us_zcta_nyc_sfbay_fullres.parquet", &["zcta", "state", "area_m2"], [160, 1_000]);
pub const ZIP_AREAS_SIMPLE: File =
    shapes("zip_areas_simple", "us_zcta_2010s_simplified.parquet", &["zcta", "state", "area_m2"], [600, 40_000]);
pub const COUNTIES: File =
    shapes("counties", "us_counties_2010.parquet", &["name", "state_fips", "census_area_sqmi"], [400, 4_000]);
pub const COUNTRIES: File =
    shapes("countries", "ne_50m_countries.parquet", &["name", "continent", "pop_est"], [120, 300]);
pub const LAKES: File = shapes("lakes", "ne_10m_lakes.parquet", &["name", "scalerank", "admin"], [400, 2_000]);
pub const RIVERS: File = shapes("rivers", "ne_10m_rivers.parquet", &["name", "featurecla", "rivernum"], [400, 2_000]);

/// Cab rides of the repository.
const SAMPLE_RIDES: File = File {
    coordinates: Some(("pickup_lon", "pickup_lat")),
    ..points("rides", "sf_cab_rides.parquet", &["cab_id", "n_fixes"], [22_000, 100_000])
};
/// Cities of the repository.
const SAMPLE_CITIES: File =
    points("cities", "cities200.csv", &["name", "name_ru", "adm0name", "pop_max"], [1_000, 1_000]);
/// Areas of the repository, with as many vertices as surveyed areas have.
const SAMPLE_AREAS: File =
    File { vertices_min: 4_000, ..shapes("zip_areas", "zcta42.geojson", &["zcta", "note", "seq"], [100, 100]) };

/// The given files, or the samples if `TERRANE_DATA` is not set.
pub fn tables(files: &[File], samples: &[File]) -> Vec<Table> {
    match std::env::var_os("TERRANE_DATA").map(PathBuf::from) {
        Some(folder) => files.iter().map(|file| Table::read(*file, &folder)).collect(),
        None => {
            eprintln!("TERRANE_DATA is not set: the samples of the repository are used instead of all data");
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data");
            samples.iter().map(|file| Table::read(*file, &folder)).collect()
        }
    }
}

/// All samples of points.
pub const SAMPLES_OF_POINTS: [File; 2] = [SAMPLE_RIDES, SAMPLE_CITIES];
/// All samples of areas.
pub const SAMPLES_OF_SHAPES: [File; 1] = [SAMPLE_AREAS];
/// Samples that can be joined.
pub const SAMPLES_TO_JOIN: [File; 3] =
    [File { rows_max: [3_000, 100_000], ..SAMPLE_RIDES }, SAMPLE_CITIES, SAMPLE_AREAS];

/// A row of a file.
#[derive(Clone)]
pub struct Row {
    pub geometry: Geometry,
    pub values: Vec<Value>,
    pub geo: Geo<f64>,
    /// West, south, east, north.
    pub rect: [f64; 4],
}

impl Row {
    /// The record under a key.
    pub fn record(&self, key: i64) -> Record {
        Record { key: Key::Int(key), geometry: Some(self.geometry.clone()), values: self.values.clone() }
    }
}

/// Rows of a file that have a valid geometry.
pub struct Table {
    pub name: &'static str,
    pub is_points: bool,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

impl Table {
    fn read(file: File, folder: &std::path::Path) -> Self {
        let path = folder.join(file.path);
        let (x, y) = file.coordinates.map_or((None, None), |(x, y)| (Some(x.to_owned()), Some(y.to_owned())));
        let geometry = file.coordinates.is_none().then(|| "geometry".to_owned());
        let options = ReadOptions { x, y, geometry, key: Some(String::new()), ..ReadOptions::default() };
        let mut source = open(&path, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let rows_max = file.rows_max[usize::from(is_soak())];
        // Of a very large file, only the first part is read.
        let rows_read_max = rows_max * 20;
        let rows = source.row_count_hint.map_or(rows_max, |rows| rows as usize).min(rows_read_max);
        let stride = rows.div_ceil(rows_max).max(1);
        let columns: Vec<Column> = file
            .attributes
            .iter()
            .map(|name| {
                let field = source.schema.field_with_name(name).unwrap();
                let column_type = match field.data_type() {
                    arrow_schema::DataType::Int64 => ColumnType::Int64,
                    arrow_schema::DataType::Float32 => ColumnType::Float32,
                    arrow_schema::DataType::Float64 => ColumnType::Float64,
                    arrow_schema::DataType::Utf8 => ColumnType::Utf8,
                    other => panic!("{name} of {} is {other}", file.name),
                };
                Column::new(*name, column_type)
            })
            .collect();
        let mut table = Self { name: file.name, is_points: file.coordinates.is_some(), columns, rows: Vec::new() };
        let mut number = 0;
        while number < rows
            && let Some(batch) = source.next_batch().unwrap()
        {
            for row in 0..batch.batch.num_rows() {
                if (number / BLOCK_ROWS).is_multiple_of(stride) {
                    table.rows.extend(read_row(&batch.batch, row, &file));
                }
                number += 1;
            }
        }
        assert!(table.rows.len() > 20, "{} rows of {}", table.rows.len(), path.display());
        table
    }

    /// The schema of the dataset: the key is a row's number.
    pub fn schema(&self) -> Schema {
        let geometry = match self.is_points {
            true => GeometryColumn::Point { x: "lon".into(), y: "lat".into() },
            false => GeometryColumn::Geometry { name: "geometry".into() },
        };
        let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
        Schema::new(key, geometry, CoordinateSystem::LonLat, self.columns.clone()).unwrap()
    }
}

/// `None` without a valid geometry; predicates are undefined for others.
fn read_row(batch: &RecordBatch, row: usize, file: &File) -> Option<Row> {
    let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name} of {}", file.name));
    let (geometry, geo) = match file.coordinates {
        Some((x, y)) => {
            let [x, y] = [x, y].map(column);
            if x.is_null(row) || y.is_null(row) {
                return None;
            }
            let [x, y] = [x, y].map(|array| array.as_primitive::<Float64Type>().value(row));
            (Geometry::Point(Point::new(x, y)), Geo::Point(geo::Point::new(x, y)))
        }
        None => {
            let column = column("geometry");
            if column.is_null(row) {
                return None;
            }
            let geo = divided(to_geo(column.as_binary::<i32>().value(row)).unwrap(), file.vertices_min);
            check_valid(&geo).ok()?;
            (Geometry::Wkb(from_geo(&geo)), geo)
        }
    };
    let rect = geo.bounding_rect()?;
    let rect = [rect.min().x, rect.min().y, rect.max().x, rect.max().y];
    let value = |name: &&str| {
        let array = column(name);
        match array.data_type() {
            _ if array.is_null(row) => Value::Null,
            arrow_schema::DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
            arrow_schema::DataType::Float32 => Value::Float32(array.as_primitive::<Float32Type>().value(row)),
            arrow_schema::DataType::Float64 => Value::Float64(array.as_primitive::<Float64Type>().value(row)),
            _ => Value::Utf8(array.as_string::<i32>().value(row).to_owned()),
        }
    };
    Some(Row { geometry, values: file.attributes.iter().map(value).collect(), geo, rect })
}

/// Divides the edges of the rings until each ring has this many vertices.
fn divided(geo: Geo<f64>, vertices_min: usize) -> Geo<f64> {
    let ring = |line: &LineString<f64>| {
        let parts = vertices_min.div_ceil(line.0.len().max(1)).max(1);
        let edge = |pair: &[Coord<f64>]| {
            let (from, to) = (pair[0], pair[1]);
            (0..parts).map(move |part| from + (to - from) * (part as f64 / parts as f64)).collect::<Vec<_>>()
        };
        LineString(line.0.windows(2).flat_map(edge).chain(line.0.last().copied()).collect())
    };
    let polygon =
        |polygon: &Polygon<f64>| Polygon::new(ring(polygon.exterior()), polygon.interiors().iter().map(ring).collect());
    match geo {
        _ if vertices_min == 0 => geo,
        Geo::Polygon(whole) => Geo::Polygon(polygon(&whole)),
        Geo::MultiPolygon(parts) => Geo::MultiPolygon(MultiPolygon(parts.0.iter().map(polygon).collect())),
        other => other,
    }
}
