//! Random schemas, values and records for the tests of the stored form.
#![allow(dead_code, reason = "each test file uses a part")]

use proptest::collection::vec;
use proptest::prelude::*;
use terrane::key::{Key, KeyType};
use terrane::record::{Geometry, Record};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, Schema, SchemaHistory};
use terrane::value::Value;
use terrane_space::{CoordinateSystem, Point};

pub const COLUMN_TYPES: [ColumnType; 10] = [
    ColumnType::Bool,
    ColumnType::Int64,
    ColumnType::Float32,
    ColumnType::Float64,
    ColumnType::Utf8,
    ColumnType::Binary,
    ColumnType::Uuid,
    ColumnType::Date,
    ColumnType::Timestamp { utc: false },
    ColumnType::Timestamp { utc: true },
];

pub fn points() -> GeometryColumn {
    GeometryColumn::Point { x: "lon".to_owned(), y: "lat".to_owned() }
}

pub fn shapes() -> GeometryColumn {
    GeometryColumn::Geometry { name: "geometry".to_owned() }
}

pub fn key_column(key_type: KeyType) -> KeyColumn {
    KeyColumn { name: "id".to_owned(), key_type, generated: false }
}

/// Columns named `c0`, `c1`, ….
pub fn columns(types: &[ColumnType]) -> Vec<Column> {
    types.iter().enumerate().map(|(index, column_type)| Column::new(format!("c{index}"), *column_type)).collect()
}

pub fn history(key_type: KeyType, geometry: GeometryColumn, types: &[ColumnType]) -> SchemaHistory {
    let schema = Schema::new(key_column(key_type), geometry, CoordinateSystem::LonLat, columns(types));
    SchemaHistory::new(schema.expect("a sound schema")).expect("a first version")
}

pub fn any_column_type() -> impl Strategy<Value = ColumnType> {
    proptest::sample::select(COLUMN_TYPES.to_vec())
}

pub fn any_value(column_type: ColumnType) -> BoxedStrategy<Value> {
    let value = match column_type {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int64 => any::<i64>().prop_map(Value::Int).boxed(),
        ColumnType::Float32 => any::<u32>().prop_map(|bits| Value::Float32(f32::from_bits(bits))).boxed(),
        // All bit patterns, including NaN and -0.0.
        ColumnType::Float64 => any::<u64>().prop_map(|bits| Value::Float64(f64::from_bits(bits))).boxed(),
        ColumnType::Utf8 => ".{0,12}".prop_map(Value::Utf8).boxed(),
        ColumnType::Binary => vec(any::<u8>(), 0..20).prop_map(Value::Binary).boxed(),
        ColumnType::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        ColumnType::Date => any::<i32>().prop_map(Value::Date).boxed(),
        ColumnType::Timestamp { .. } => any::<i64>().prop_map(Value::Timestamp).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 4 => value].boxed()
}

pub fn any_key(key_type: KeyType) -> BoxedStrategy<Key> {
    match key_type {
        KeyType::Int64 => any::<i64>().prop_map(Key::Int).boxed(),
        KeyType::UInt64 => any::<u64>().prop_map(Key::UInt).boxed(),
        KeyType::Utf8 => ".{0,80}".prop_map(Key::Utf8).boxed(),
        KeyType::Binary => vec(any::<u8>(), 0..200).prop_map(Key::Binary).boxed(),
        KeyType::Uuid => any::<[u8; 16]>().prop_map(Key::Uuid).boxed(),
    }
}

pub fn any_key_type() -> impl Strategy<Value = KeyType> {
    proptest::sample::select(vec![KeyType::Int64, KeyType::UInt64, KeyType::Utf8, KeyType::Binary, KeyType::Uuid])
}

pub fn any_point() -> impl Strategy<Value = Point> {
    (-180.0..=180.0f64, -90.0..=90.0f64).prop_map(|(x, y)| Point::new(x, y))
}

pub fn point_wkb(point: Point) -> Vec<u8> {
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend(point.x.to_le_bytes());
    wkb.extend(point.y.to_le_bytes());
    wkb
}

pub fn line_wkb(points: &[Point]) -> Vec<u8> {
    let mut wkb = vec![1, 2, 0, 0, 0];
    wkb.extend((points.len() as u32).to_le_bytes());
    for point in points {
        wkb.extend(point.x.to_le_bytes());
        wkb.extend(point.y.to_le_bytes());
    }
    wkb
}

/// A geometry in the form in which a dataset with this column returns it.
pub fn any_geometry(column: &GeometryColumn) -> BoxedStrategy<Option<Geometry>> {
    let geometry = match column {
        GeometryColumn::None => return Just(None).boxed(),
        GeometryColumn::Point { .. } => any_point().prop_map(Geometry::Point).boxed(),
        GeometryColumn::Geometry { .. } => prop_oneof![
            any_point().prop_map(|point| Geometry::Wkb(point_wkb(point))),
            vec(any_point(), 2..6).prop_map(|points| Geometry::Wkb(line_wkb(&points))),
            Just(Geometry::Wkb(line_wkb(&[]))),
        ]
        .boxed(),
    };
    proptest::option::weighted(0.8, geometry).boxed()
}

/// A history of one version and a record of it.
pub fn any_record() -> impl Strategy<Value = (SchemaHistory, Record)> {
    let geometry = proptest::sample::select(vec![points(), shapes(), GeometryColumn::None]);
    (any_key_type(), geometry, vec(any_column_type(), 0..20)).prop_flat_map(|(key_type, geometry, types)| {
        let history = history(key_type, geometry.clone(), &types);
        let values: Vec<_> = types.iter().map(|column_type| any_value(*column_type)).collect();
        (any_key(key_type), any_geometry(&geometry), values)
            .prop_map(move |(key, geometry, values)| (history.clone(), Record { key, geometry, values }))
    })
}
