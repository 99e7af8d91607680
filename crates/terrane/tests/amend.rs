//! Changes of records that must still be as they were read.

use std::sync::Arc;

use crate::support::small_options;
use crate::support::workload::{MAIN, batch, first_schema};
use terrane::{Dataset, DatasetOptions, Error, Record, Store, Value};
use terrane_testkit::MemoryStorage;

fn at(key: i64, size: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Utf8("w".into()), Value::Int(size)])
}

fn create() -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset_with(MAIN, first_schema(), &DatasetOptions { partitions: 2 }).unwrap();
    (0..4).for_each(|key| dataset.insert(&at(key, 0)).unwrap());
    (store, dataset)
}

fn size(dataset: &Dataset, key: i64) -> Option<Value> {
    dataset.get(&key.into()).unwrap().map(|record| record.values[1].clone())
}

#[test]
fn only_records_that_are_as_they_were_read_are_changed() {
    let (_store, dataset) = create();
    let read = dataset.snapshot();
    dataset.upsert(&at(1, 5)).unwrap();
    dataset.delete(&2.into()).unwrap();
    let rows: Vec<Record> = (0..5).map(|key| at(key, 9)).collect();
    let rows = batch(&first_schema(), &rows);
    // Of the rows, 4 was not there when it was read, and still is not.
    let outcome = dataset.replace_unchanged(&read, &rows).unwrap();
    assert_eq!((outcome.written, outcome.changed.as_slice()), (3, [1, 2].as_slice()));
    let sizes: Vec<Option<Value>> = (0..5).map(|key| size(&dataset, key)).collect();
    assert_eq!(sizes, [Some(Value::Int(9)), Some(Value::Int(5)), None, Some(Value::Int(9)), Some(Value::Int(9))]);
    let outcome = dataset.delete_unchanged(&dataset.snapshot(), &rows).unwrap();
    assert_eq!((outcome.written, outcome.changed.len()), (4, 0));
    let outcome = dataset.delete_unchanged(&read, &rows).unwrap();
    assert_eq!((outcome.written, outcome.changed.as_slice()), (0, [0, 1, 2, 3].as_slice()));
}

#[test]
fn an_atomic_batch_fails_whole_if_a_record_was_changed() {
    let (store, dataset) = create();
    let read = dataset.snapshot();
    dataset.upsert(&at(1, 5)).unwrap();
    let mut changes = dataset.atomic_batch().unchanged_since(&read).unwrap();
    (0..2).for_each(|key| changes.upsert(&at(key, 9)).unwrap());
    assert!(matches!(changes.commit(), Err(Error::Changed { key }) if key == 1.into()));
    assert_eq!(size(&dataset, 0), Some(Value::Int(0)));
    // A move: the old key is checked, the new one must be free.
    let mut changes = dataset.atomic_batch().unchanged_since(&read).unwrap();
    changes.delete(&3.into()).unwrap();
    changes.insert(&at(30, 9)).unwrap();
    changes.commit().unwrap();
    assert_eq!((size(&dataset, 3), size(&dataset, 30)), (None, Some(Value::Int(9))));
    let other = store.create_dataset("other", first_schema()).unwrap();
    assert!(matches!(other.atomic_batch().unchanged_since(&read), Err(Error::Usage(_))));
    assert!(matches!(other.delete_unchanged(&read, &batch(&first_schema(), &[])), Err(Error::Usage(_))));
}
