//! Records that change between the choice of their keys and their deletion.

use std::sync::Arc;

use terrane_space::CoordinateSystem;
use terrane_testkit::MemoryStorage;

use super::Deletion;
use crate::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use crate::{Condition, Dataset, Key, Options, Query, Record, Store, Value};

fn dataset() -> (Store, Dataset) {
    let store =
        Store::open_on(Arc::new(MemoryStorage::new()), Options { background: false, ..Options::default() }).unwrap();
    let id = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let columns = vec![Column::new("size", ColumnType::Int64)];
    let schema = Schema::new(id, geometry, CoordinateSystem::Planar, columns).unwrap();
    let dataset = store.create_dataset("d", schema).unwrap();
    (store, dataset)
}

fn put(dataset: &Dataset, key: i64, x: f64, size: Value) {
    let mut values = vec![size];
    values.resize(dataset.schema().columns.len(), Value::Null);
    dataset.upsert(&Record::at(key, x, 0.0, values)).unwrap();
}

/// Runs `meanwhile` after a snapshot, then deletes the records that match the query in the
/// snapshot.
fn delete_after(dataset: &Dataset, query: Query, meanwhile: impl FnOnce()) -> u64 {
    let snapshot = dataset.snapshot();
    let keys = snapshot.query(&query.clone().columns(["id"])).unwrap().next_batch().unwrap().unwrap();
    meanwhile();
    let mut deletion = Deletion::new(dataset, &snapshot.history, &query).unwrap();
    deletion.delete(&keys).unwrap();
    deletion.deleted
}

fn remaining(dataset: &Dataset) -> Vec<i64> {
    let keys = (0..10).filter(|key| dataset.get(&Key::Int(*key)).unwrap().is_some());
    keys.collect()
}

#[test]
fn records_that_no_longer_match_stay() {
    let (store, dataset) = dataset();
    (0..6).for_each(|key| put(&dataset, key, 1.0, Value::Int(5)));
    put(&dataset, 6, 1.0, Value::Int(4));
    let query = Query::new().window(0.0, 0.0, 2.0, 2.0).condition(Condition::on("size").equals(5));
    let deleted = delete_after(&dataset, query, || {
        put(&dataset, 1, 1.0, Value::Int(6));
        put(&dataset, 2, 3.0, Value::Int(5));
        put(&dataset, 3, 0.5, Value::Int(5));
        put(&dataset, 4, 1.0, Value::Null);
        dataset.delete(&Key::Int(5)).unwrap();
        put(&dataset, 7, 1.0, Value::Int(5));
    });
    assert_eq!((deleted, remaining(&dataset)), (2, vec![1, 2, 4, 6, 7]));
    assert!(store.check(false).unwrap().findings.is_empty());
}

/// Records of a schema version unknown to the snapshot, and integers that have become floats.
#[test]
fn records_are_judged_by_the_current_schema() {
    let (store, dataset) = dataset();
    (0..4).for_each(|key| put(&dataset, key, 1.0, Value::Int(5)));
    let deleted = delete_after(&dataset, Query::new().condition(Condition::on("size").equals(5)), || {
        dataset.widen_column("size").unwrap();
        put(&dataset, 1, 1.0, Value::Float64(5.5));
        dataset.add_column(Column::new("new", ColumnType::Bool)).unwrap();
        put(&dataset, 2, 1.0, Value::Float64(5.0));
    });
    assert_eq!((deleted, remaining(&dataset)), (3, vec![1]));
    assert!(store.check(false).unwrap().findings.is_empty());
}

/// The name in the condition now belongs to another column, or to none.
#[test]
fn a_deletion_stops_if_a_column_is_renamed() {
    let changes: [fn(&Dataset); 2] = [
        |dataset| {
            dataset.rename_column("size", "old").unwrap();
            dataset.rename_column("other", "size").unwrap();
        },
        |dataset| {
            dataset.drop_column("size").unwrap();
            dataset.add_column(Column::new("size", ColumnType::Int64)).unwrap();
        },
    ];
    for change in changes {
        let (store, dataset) = dataset();
        dataset.add_column(Column::new("other", ColumnType::Int64)).unwrap();
        let both = |key: i64| dataset.upsert(&Record::at(key, 1.0, 0.0, vec![Value::Int(5), Value::Int(5)])).unwrap();
        (0..3).for_each(both);
        let query = Query::new().condition(Condition::on("size").equals(5));
        let snapshot = dataset.snapshot();
        let keys = snapshot.query(&query.clone().columns(["id"])).unwrap().next_batch().unwrap().unwrap();
        let mut deletion = Deletion::new(&dataset, &snapshot.history, &query).unwrap();
        change(&dataset);
        let error = deletion.delete(&keys).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("renamed or dropped meanwhile"), "{error}");
        assert_eq!((deletion.deleted, remaining(&dataset)), (0, vec![0, 1, 2]));
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

/// All locks are released, so later writers do not wait.
#[test]
fn all_locks_are_released() {
    let (_store, dataset) = dataset();
    put(&dataset, 1, 1.0, Value::Int(5));
    let hash = dataset.lock_hash(&dataset.encode_key(&Key::Int(1)).unwrap());
    assert_eq!(dataset.delete_where(&Condition::on("size").equals(5), &[]).unwrap(), 1);
    assert!(dataset.engine.locks.try_lock(hash).is_some());
}
