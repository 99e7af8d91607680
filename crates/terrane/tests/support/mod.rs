//! A store in memory and a model of it, for tests by behaviour.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod affine;
#[path = "../../src/locks/collisions.rs"]
pub mod collisions;
#[path = "../../src/condition/plans.rs"]
pub mod conditions;
pub mod crash;
pub mod files;
pub mod indexed;
pub mod joins;
pub mod kinds;
pub mod oracle;
pub mod shapes;
pub mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    CoordinateSystem, Dataset, Geometry, Isolation, Key, LogOptions, MergePolicy, Options, Query, Record, Snapshot,
    Value,
};
use terrane_space::Point;
use terrane_space::geometry::{from_wkt, point_wkb};

/// Options with which little data makes many components, without background threads.
pub fn small_options() -> Options {
    Options {
        memory_limit: terrane::MEMORY_LIMIT_MIN,
        background: false,
        merge_policy: MergePolicy::Prefix { mergeable_bytes_max: 1 << 30, components_max: 3 },
        log: LogOptions { segment_size: 64 << 10, first_segment_size: 16 << 10, spare_segments: 1 },
        ..Options::default()
    }
}

/// A schema with two attributes.
pub fn schema(key_type: KeyType, points: bool, system: CoordinateSystem) -> Schema {
    let geometry = if points {
        GeometryColumn::Point { x: "x".into(), y: "y".into() }
    } else {
        GeometryColumn::Geometry { name: "geometry".into() }
    };
    let columns = vec![Column::new("name", ColumnType::Utf8), Column::new("size", ColumnType::Int64)];
    Schema::new(KeyColumn { name: "id".into(), key_type, generated: false }, geometry, system, columns).unwrap()
}

/// A random key among `count` possible ones.
pub fn key(rng: &mut SmallRng, key_type: KeyType, count: u64) -> Key {
    let number = rng.random_range(0..count);
    match key_type {
        KeyType::Int64 => Key::Int(number as i64 - count as i64 / 2),
        KeyType::UInt64 => Key::UInt(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        KeyType::Utf8 => Key::Utf8(format!("key-{}-{number}", "x".repeat((number % 70) as usize))),
        KeyType::Binary => {
            Key::Binary(number.to_be_bytes()[8 - (1 + number as usize % 8)..].repeat(1 + number as usize % 3))
        }
        KeyType::Uuid => {
            Key::Uuid(u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes())
        }
    }
}

/// A random geometry on a coarse grid, so that places repeat.
pub fn geometry(rng: &mut SmallRng, points: bool) -> Option<Geometry> {
    if rng.random_ratio(1, 20) {
        return None;
    }
    let (x, y) = (f64::from(rng.random_range(-40..40)) / 4.0, f64::from(rng.random_range(-40..40)) / 4.0);
    if points || rng.random_ratio(1, 4) {
        let point = Point::new(x, y);
        return Some(if points { Geometry::Point(point) } else { Geometry::Wkb(point_wkb(point).to_vec()) });
    }
    let size = f64::from(rng.random_range(1..12)) / 4.0;
    let wkt = match rng.random_range(0..5) {
        0 => format!("LINESTRING({x} {y},{} {})", x + size, y - size),
        1 => format!("POLYGON(({x} {y},{} {y},{} {},{x} {y}))", x + size, x + size, y + size),
        2 => format!("MULTIPOINT(({x} {y}),({} {}))", x + size, y),
        3 => format!("GEOMETRYCOLLECTION(POINT({x} {y}),LINESTRING({x} {y},{x} {}))", y + size),
        _ => "POLYGON EMPTY".to_owned(),
    };
    Some(Geometry::Wkb(from_wkt(&wkt).unwrap()))
}

/// A random record.
pub fn record(rng: &mut SmallRng, key: Key, points: bool) -> Record {
    let name = if rng.random_ratio(1, 5) { Value::Null } else { Value::Utf8("n".repeat(rng.random_range(0..40))) };
    Record { key, geometry: geometry(rng, points), values: vec![name, Value::Int(rng.random_range(-9..9))] }
}

/// A generator and its seed, from `TERRANE_TEST_SEED` or the test's default.
pub fn seeded(default: u64) -> (SmallRng, u64) {
    let seed = std::env::var("TERRANE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(default);
    eprintln!("replay with TERRANE_TEST_SEED={seed}");
    (SmallRng::seed_from_u64(seed), seed)
}

/// The expected contents of the store.
pub type Model = BTreeMap<Vec<u8>, Record>;

/// The sort key of a key.
pub fn encoded(key: &Key) -> Vec<u8> {
    key.to_encoded().unwrap().to_vec()
}

/// The keys of a query's answer, sorted.
pub fn keys_of(snapshot: &Snapshot, query: &Query) -> Vec<Key> {
    let schema = snapshot.schema();
    keys_in(snapshot.query(&query.clone().columns([&schema.key.name])).unwrap(), schema.key.key_type)
}

/// The keys of a query's answer at read committed.
pub fn committed_keys_of(dataset: &Dataset, query: &Query) -> Vec<Key> {
    let schema = dataset.schema();
    let query = query.clone().columns([&schema.key.name]).isolation(Isolation::ReadCommitted);
    let mut rows = dataset.query(&query).unwrap();
    let keys = keys_in(rows.by_ref(), schema.key.key_type);
    assert_eq!(rows.explanation().isolation, Isolation::ReadCommitted);
    assert_eq!(dataset.count(&query).unwrap(), keys.len() as u64, "{query:?}");
    keys
}

/// The keys in the first columns of batches.
fn keys_in(batches: impl Iterator<Item = terrane::Result<RecordBatch>>, key_type: KeyType) -> Vec<Key> {
    let mut keys = Vec::new();
    for batch in batches {
        let batch = batch.unwrap();
        keys.extend((0..batch.num_rows()).map(|row| array_key(batch.column(0), row, key_type)));
    }
    keys
}

/// A key from an Arrow column.
pub fn array_key(array: &Arc<dyn arrow_array::Array>, row: usize, key_type: KeyType) -> Key {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt64Type};
    match key_type {
        KeyType::Int64 => Key::Int(array.as_primitive::<Int64Type>().value(row)),
        KeyType::UInt64 => Key::UInt(array.as_primitive::<UInt64Type>().value(row)),
        KeyType::Utf8 => Key::Utf8(array.as_string::<i32>().value(row).to_owned()),
        KeyType::Binary => Key::Binary(array.as_binary::<i32>().value(row).to_vec()),
        KeyType::Uuid => Key::Uuid(array.as_fixed_size_binary().value(row).try_into().unwrap()),
    }
}
