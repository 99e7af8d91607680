//! Boxes without area, and records that lose their geometry: cases that other systems' trees have
//! missed.

use std::sync::Arc;

use crate::support::{schema, small_options};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Geometry, IndexKind, IndexOptions, Key, Query, Record, Store, Value};
use terrane_space::geometry::from_wkt;
use terrane_testkit::MemoryStorage;

const KEYS: i64 = 400;
const INDEXES: [(&str, IndexKind); 2] = [("boxes", IndexKind::RTree), ("cells", IndexKind::Shb)];

fn record(key: i64, wkt: Option<String>) -> Record {
    let geometry = wkt.map(|wkt| Geometry::Wkb(from_wkt(&wkt).unwrap()));
    Record { key: Key::Int(key), geometry, values: vec![Value::Null, Value::Int(key)] }
}

/// A point, or a horizontal or vertical line, far from all others.
fn without_area(key: i64) -> String {
    let (x, y) = (key * 10, key % 7 * 1000);
    match key % 3 {
        0 => format!("POINT({x} {y})"),
        1 => format!("LINESTRING({x} {y},{} {y})", x + 5),
        _ => format!("LINESTRING({x} {y},{x} {})", y + 5),
    }
}

/// The keys found at a record's place, through each index.
fn found(store: &Store, key: i64) -> Vec<Vec<i64>> {
    let snapshot = store.dataset("d").unwrap().snapshot();
    let (x, y) = ((key * 10) as f64, (key % 7 * 1000) as f64);
    let ways = ["geometry", "boxes", "cells", "primary"];
    let keys = |way: &str| {
        let query = Query::new().window(x - 1.0, y - 1.0, x + 1.0, y + 1.0).columns(["id"]);
        let query = if way == "primary" { query } else { query.using_index(way) };
        let batches = snapshot.query(&query).unwrap().map(Result::unwrap);
        let keys = batches.flat_map(|batch| {
            let column = batch.column(0).as_any().downcast_ref::<arrow_array::Int64Array>().unwrap().clone();
            column.values().to_vec()
        });
        keys.collect::<Vec<i64>>()
    };
    ways.map(keys).to_vec()
}

fn store() -> Store {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset("d", schema(KeyType::Int64, false, CoordinateSystem::Planar)).unwrap();
    for (name, kind) in INDEXES {
        let grid = IndexOptions::default().domain(0.0, 0.0, 5000.0, 7000.0);
        let options = if kind == IndexKind::Shb { grid } else { IndexOptions::default() };
        dataset.create_index_with(name, kind, &[], &options).unwrap();
    }
    store
}

#[test]
fn boxes_without_area_enlarge_those_of_their_nodes() {
    let store = store();
    let dataset = store.dataset("d").unwrap();
    for key in 0..KEYS {
        dataset.insert(&record(key, Some(without_area(key)))).unwrap();
        // In memory, in one component, in both, and merged.
        if key == KEYS / 2 {
            dataset.flush().unwrap();
        }
        if key % 50 == 49 {
            (0..=key).for_each(|key| assert_eq!(found(&store, key), vec![vec![key]; 4], "{key}"));
        }
    }
    dataset.compact().unwrap();
    (0..KEYS).for_each(|key| assert_eq!(found(&store, key), vec![vec![key]; 4], "{key}"));
    assert!(store.check(false).unwrap().is_clean());
}

#[test]
fn a_record_that_loses_its_geometry_leaves_no_box_behind() {
    let store = store();
    let dataset = store.dataset("d").unwrap();
    for key in 0..KEYS {
        dataset.insert(&record(key, Some(without_area(key)))).unwrap();
    }
    let flushed = [false, true];
    for (round, is_flushed) in flushed.into_iter().enumerate() {
        if is_flushed {
            dataset.flush().unwrap();
        }
        // In turn: null, empty, and elsewhere.
        for key in (0..KEYS).filter(|key| key % 2 == round as i64) {
            let gone = match key / 2 % 3 {
                0 => None,
                1 => Some("POINT EMPTY".to_owned()),
                _ => Some("POINT(4999 6999)".to_owned()),
            };
            dataset.upsert(&record(key, gone)).unwrap();
            assert_eq!(found(&store, key), vec![Vec::<i64>::new(); 4], "{key}");
        }
    }
    assert!(store.check(false).unwrap().is_clean());
    dataset.compact().unwrap();
    (0..KEYS).for_each(|key| assert_eq!(found(&store, key), vec![Vec::<i64>::new(); 4], "{key}"));
    // They return.
    for key in 0..KEYS {
        dataset.upsert(&record(key, Some(without_area(key)))).unwrap();
        assert_eq!(found(&store, key), vec![vec![key]; 4], "{key}");
    }
    assert!(store.check(false).unwrap().is_clean());
}
