//! Added and widened columns. Records of all versions are read alike, over flushes, merges and
//! reopenings.

use std::sync::Arc;

use crate::support::workload::{MAIN, batch, first_schema};
use crate::support::{keys_of, small_options};
use terrane::schema::{Column, ColumnType, Schema};
use terrane::{Error, Key, Query, Record, Store, Value};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

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
        dataset.insert(&at(3, vec![Value::Null, Value::Float64(0.5), Value::Null])).unwrap();
        settle();
        assert_eq!(before.schema().columns.len(), 2, "a snapshot keeps its schema");
        assert_eq!(keys_of(&before, &Query::new()), [Key::Int(1)]);
        drop((before, dataset));
        store.close().unwrap();
        let store = Store::open_on(storage, small_options()).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        let values = |key: i64| dataset.get(&Key::Int(key)).unwrap().unwrap().values;
        assert_eq!(values(1), [Value::Utf8("a".into()), Value::Float64(5.0), Value::Null]);
        assert_eq!(values(2), [Value::Null, Value::Float64(6.0), Value::Utf8("b".into())]);
        assert_eq!(values(3), [Value::Null, Value::Float64(0.5), Value::Null]);
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

#[test]
fn an_invalid_change_changes_nothing() {
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

const INEXACT: i64 = (1 << 53) + 1;

#[test]
fn a_column_is_not_widened_over_an_integer_that_would_change() {
    for flush in [false, true] {
        let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        dataset.insert(&at(1, vec![Value::Null, Value::Int(-(1 << 53))])).unwrap();
        dataset.insert(&at(2, vec![Value::Null, Value::Int(INEXACT)])).unwrap();
        if flush {
            dataset.flush().unwrap();
        }
        let error = dataset.widen_column("size").unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("9007199254740993"), "{error}");
        assert_eq!(*dataset.schema(), first_schema());
        assert_eq!(dataset.get(&Key::Int(2)).unwrap().unwrap().values[1], Value::Int(INEXACT));
        dataset.delete(&Key::Int(2)).unwrap();
        dataset.widen_column("size").unwrap();
        assert_eq!(dataset.get(&Key::Int(1)).unwrap().unwrap().values[1], Value::Float64(-9007199254740992.0));
    }
}

#[test]
fn a_float_column_takes_integers_only_exactly() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    dataset.widen_column("size").unwrap();
    for (integer, fits) in [(1 << 60, true), (INEXACT, false), (i64::MAX, false), (i64::MIN, true)] {
        let outcome = dataset.upsert(&at(1, vec![Value::Null, Value::Int(integer)]));
        assert_eq!(outcome.is_ok(), fits, "{integer}: {outcome:?}");
        if fits {
            assert_eq!(dataset.get(&Key::Int(1)).unwrap().unwrap().values[1], Value::Float64(integer as f64));
        }
    }
}

#[test]
fn records_made_for_integers_are_refused_after_widening() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let record = at(1, vec![Value::Null, Value::Int(INEXACT)]);
    let mut batch = dataset.atomic_batch();
    batch.upsert(&record).unwrap();
    let importer = store.importer(MAIN, first_schema()).unwrap();
    dataset.add_column(Column::new("added", ColumnType::Utf8)).unwrap();
    dataset.widen_column("size").unwrap();
    assert!(batch.commit().unwrap_err().is_refusal());
    assert!(importer.finish(&mut |_| Ok(())).unwrap_err().is_refusal());
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 0);
}

/// Rows of an import before and after its integer column becomes float64, into an existing dataset
/// and into a new one.
#[test]
fn an_import_widens_a_column_together_with_its_records() {
    for is_new in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage.clone(), small_options()).unwrap();
        if !is_new {
            let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
            dataset.insert(&at(1, vec![Value::Null, Value::Int(5)])).unwrap();
        }
        let importer = || {
            let mut importer = store.importer(MAIN, first_schema()).unwrap();
            let integer = batch(&first_schema(), &[at(2, vec![Value::Null, Value::Int(6)])]);
            assert!(importer.push(&integer).unwrap().is_empty());
            importer.widen_column("size").unwrap();
            assert!(importer.widen_column("size").is_err() && importer.widen_column("name").is_err());
            let fraction = batch(importer.schema(), &[at(3, vec![Value::Null, Value::Float64(0.5)])]);
            assert!(importer.push(&fraction).unwrap().is_empty());
            importer
        };
        // An abandoned import leaves the column unchanged.
        importer().finish_after(&mut |row| Err(row.error), &mut |_| Err(Error::Cancelled)).unwrap_err();
        let schema = store.dataset(MAIN).map(|dataset| Schema::clone(&dataset.schema()));
        assert!(schema.map_or(is_new, |schema| schema == first_schema()));
        assert_eq!(importer().finish(&mut |row| Err(row.error)).unwrap().records, 2);
        store.dataset(MAIN).unwrap().insert(&at(4, vec![Value::Null, Value::Float64(1.5)])).unwrap();
        store.close().unwrap();
        let store = Store::open_on(storage, small_options()).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        assert_eq!(dataset.schema().column("size").unwrap().column_type, ColumnType::Float64);
        let wanted = [(1, 5.0), (2, 6.0), (3, 0.5), (4, 1.5)];
        for (key, size) in wanted.into_iter().skip(usize::from(is_new)) {
            assert_eq!(dataset.get(&Key::Int(key)).unwrap().unwrap().values[1], Value::Float64(size), "{key}");
        }
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

#[test]
fn an_import_widens_no_column_over_an_integer_that_would_change() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let inexact = |key: i64| at(key, vec![Value::Null, Value::Int(INEXACT)]);
    // An integer of its own rows.
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    importer.push(&batch(&first_schema(), &[inexact(1)])).unwrap();
    let error = importer.widen_column("size").unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("9007199254740993"), "{error}");
    drop(importer);
    // An integer inserted into the dataset meanwhile, or a column added meanwhile.
    let refused = |meanwhile: &dyn Fn()| {
        let mut importer = store.importer(MAIN, first_schema()).unwrap();
        importer.widen_column("size").unwrap();
        meanwhile();
        let error = importer.finish(&mut |_| Ok(())).unwrap_err();
        assert!(error.is_refusal(), "{error}");
        assert_eq!(dataset.schema().column("size").unwrap().column_type, ColumnType::Int64);
        error.to_string()
    };
    assert!(refused(&|| dataset.insert(&inexact(2)).unwrap()).contains("9007199254740993"));
    dataset.delete(&Key::Int(2)).unwrap();
    assert!(refused(&|| dataset.add_column(Column::new("new", ColumnType::Bool)).unwrap()).contains("meanwhile"));
}
