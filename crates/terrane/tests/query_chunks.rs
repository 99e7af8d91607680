//! Answers larger than a query may hold at once are complete.

use std::sync::Arc;

use crate::support::{keys_of, schema, small_options};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Geometry, Key, Query, Record, Store, Value};
use terrane_space::Point;
use terrane_testkit::MemoryStorage;

/// Fills a dataset and queries everything through the spatial index, with the smallest memory
/// limit.
fn answer_of(key_type: KeyType, count: i64, key: impl Fn(i64) -> Key) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let schema = schema(key_type, true, CoordinateSystem::Planar);
    let mut importer = store.importer("d", schema.clone()).unwrap();
    for start in (0..count).step_by(1000) {
        let records: Vec<Record> = (start..(start + 1000).min(count))
            .map(|number| Record {
                key: key(number),
                geometry: Some(Geometry::Point(Point::new((number % 251) as f64, (number % 241) as f64))),
                values: vec![Value::Null, Value::Int(number)],
            })
            .collect();
        importer.push(&crate::support::workload::batch(&schema, &records)).unwrap();
    }
    importer.finish(&mut |row| Err(row.error)).unwrap();
    let snapshot = store.dataset("d").unwrap().snapshot();
    let query = Query::new().window(-1.0, -1.0, 300.0, 300.0);
    let mut keys = keys_of(&snapshot, &query);
    keys.sort();
    let mut wanted: Vec<Key> = (0..count).map(key).collect();
    wanted.sort();
    assert_eq!(keys.len(), wanted.len());
    assert!(keys == wanted);
    assert_eq!(snapshot.count(&query).unwrap(), count as u64);
    let rows: usize = snapshot.query(&query).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows as i64, count, "with all columns");
}

#[test]
fn answers_with_many_short_keys_are_complete() {
    answer_of(KeyType::Int64, 40_000, Key::Int);
}

#[test]
fn answers_with_many_long_keys_are_complete() {
    answer_of(KeyType::Utf8, 5_000, |number| Key::Utf8(format!("{}{number}", "k".repeat(600))));
}
