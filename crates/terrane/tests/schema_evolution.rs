//! Columns that are added and widened: records of every version read alike, over flushes,
//! merges and reopenings.

mod support;

use std::sync::Arc;

use support::workload::{MAIN, first_schema};
use support::{keys_of, small_options};
use terrane::schema::{Column, ColumnType};
use terrane::{Error, Key, Query, Record, Store, Value};
use terrane_storage::MemoryStorage;

fn at(key: i64, values: Vec<Value>) -> Record {
    Record::at(key, 1.0, 2.0, values)
}

#[test]
fn records_of_older_versions_have_nulls_and_widened_values() {
    for (flush, compact) in [(false, false), (true, false), (true, true)] {
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage.clone(), small_options()).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        let settle = || {
            if flush {
                dataset.flush().unwrap();
            }
            if compact {
                dataset.compact().unwrap();
            }
        };
        dataset.insert(&at(1, vec![Value::Utf8("a".into()), Value::Int(5)])).unwrap();
        settle();
        let before = dataset.snapshot();
        dataset.add_column(Column::new("added", ColumnType::Utf8)).unwrap();
        dataset.insert(&at(2, vec![Value::Null, Value::Int(6), Value::Utf8("b".into())])).unwrap();
        settle();
        dataset.widen_column("size").unwrap();
        dataset.insert(&at(3, vec![Value::Null, Value::Float(0.5), Value::Null])).unwrap();
        settle();
        assert_eq!(before.schema().columns.len(), 2, "a snapshot keeps its schema");
        assert_eq!(keys_of(&before, &Query::new()), [Key::Int(1)]);
        drop((before, dataset));
        store.close().unwrap();
        let store = Store::open_on(storage, small_options()).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        let values = |key: i64| dataset.get(&Key::Int(key)).unwrap().unwrap().values;
        assert_eq!(values(1), [Value::Utf8("a".into()), Value::Float(5.0), Value::Null]);
        assert_eq!(values(2), [Value::Null, Value::Float(6.0), Value::Utf8("b".into())]);
        assert_eq!(values(3), [Value::Null, Value::Float(0.5), Value::Null]);
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

#[test]
fn a_change_that_makes_no_sense_changes_nothing() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let generation = store.info().unwrap().manifest_generation;
    assert!(dataset.add_column(Column::new("name", ColumnType::Utf8)).is_err(), "the name is taken");
    assert!(dataset.add_column(Column::new("id", ColumnType::Utf8)).is_err(), "the key has it");
    assert!(dataset.widen_column("name").is_err(), "text has no fractions");
    assert!(dataset.widen_column("nothing").is_err());
    assert!(matches!(store.create_dataset(MAIN, first_schema()), Err(Error::Usage(_))));
    assert_eq!(*dataset.schema(), first_schema());
    assert_eq!(store.info().unwrap().manifest_generation, generation);
}
