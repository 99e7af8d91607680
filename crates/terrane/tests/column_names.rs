//! Renamed and dropped columns. Records of older columns are read correctly, over flushes, merges,
//! reopenings and kills. Dropped values never return.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::files::{files_of, storage_of};
use crate::support::keys_of;
use crate::support::workload::{MAIN, attributes_of, batch, first_schema, options};
use terrane::schema::{Column, ColumnType};
use terrane::{
    Condition, Dataset, DatasetOptions, Durability, Error, IndexKind, Key, OnConflict, Query, Record, Snapshot, Store,
    Value,
};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

fn at(key: i64, values: Vec<Value>) -> Record {
    Record::at(key, 1.0, 2.0, values)
}

fn text(text: &str) -> Value {
    Value::Utf8(text.into())
}

fn created(durability: Durability, partitions: usize) -> (Arc<dyn Storage>, Store, Dataset) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), options(durability)).unwrap();
    let dataset = store.create_dataset_with(MAIN, first_schema(), &DatasetOptions { partitions }).unwrap();
    (storage, store, dataset)
}

fn values(snapshot: &Snapshot, key: i64) -> Vec<Value> {
    snapshot.get(&Key::Int(key)).unwrap().unwrap().values
}

fn matching(snapshot: &Snapshot, condition: &str) -> Vec<i64> {
    found(snapshot, Query::new().condition(Condition::parse(condition).unwrap()))
}

fn found(snapshot: &Snapshot, query: Query) -> Vec<i64> {
    let names = attributes_of(&snapshot.schema());
    // All columns are read, as for an answer.
    for batch in snapshot.query(&query).unwrap() {
        let batch = batch.unwrap();
        let schema = batch.schema();
        let fields: Vec<&str> = schema.fields().iter().skip(3).map(|field| field.name().as_str()).collect();
        assert_eq!(fields, names);
    }
    let number = |key| match key {
        Key::Int(number) => number,
        key => panic!("{key} is not an integer"),
    };
    let mut keys: Vec<i64> = keys_of(snapshot, &query).into_iter().map(number).collect();
    keys.sort_unstable();
    keys
}

fn assert_clean(store: &Store) {
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

/// A text column is dropped, the integers behind it are renamed, and a new integer column takes the
/// text's name.
#[test]
fn records_of_all_columns_are_read_and_nothing_dropped_comes_back() {
    for (durability, partitions) in [(Durability::Power, 1), (Durability::Power, 3), (Durability::None, 2)] {
        for (flush, compact) in [(false, false), (true, false), (true, true)] {
            let what = format!("{durability}, {partitions} partitions, flush {flush}, compact {compact}");
            let (storage, store, dataset) = created(durability, partitions);
            let settle = || {
                if flush {
                    dataset.flush().unwrap();
                }
                if compact {
                    dataset.compact().unwrap();
                }
            };
            dataset.insert(&at(1, vec![text("a"), Value::Int(5)])).unwrap();
            settle();
            let before = dataset.snapshot();
            dataset.drop_column("name").unwrap();
            let dropped = dataset.snapshot();
            assert_eq!(values(&dropped, 1), [Value::Int(5)], "{what}");
            dataset.insert(&at(2, vec![Value::Int(6)])).unwrap();
            settle();
            dataset.rename_column("size", "extent").unwrap();
            dataset.widen_column("extent").unwrap();
            dataset.insert(&at(3, vec![Value::Float64(7.5)])).unwrap();
            settle();
            dataset.add_column(Column::new("name", ColumnType::Int64)).unwrap();
            dataset.insert(&at(4, vec![Value::Float64(8.0), Value::Int(80)])).unwrap();
            settle();
            // Earlier snapshots keep their columns and their answers.
            assert_eq!(attributes_of(&before.schema()), ["name", "size"], "{what}");
            assert_eq!(values(&before, 1), [text("a"), Value::Int(5)], "{what}");
            assert_eq!(matching(&before, "name = 'a' and size = 5"), [1], "{what}");
            assert_eq!(attributes_of(&dropped.schema()), ["size"], "{what}");
            assert_eq!(matching(&dropped, "size is not null"), [1], "{what}");
            drop((before, dropped));
            let verify = |store: &Store| {
                let snapshot = store.dataset(MAIN).unwrap().snapshot();
                assert_eq!(attributes_of(&snapshot.schema()), ["extent", "name"], "{what}");
                let stored: Vec<Vec<Value>> = (1..=4).map(|key| values(&snapshot, key)).collect();
                let wanted = [
                    vec![Value::Float64(5.0), Value::Null],
                    vec![Value::Float64(6.0), Value::Null],
                    vec![Value::Float64(7.5), Value::Null],
                    vec![Value::Float64(8.0), Value::Int(80)],
                ];
                assert_eq!(stored, wanted, "{what}");
                assert_eq!(matching(&snapshot, "extent > 5"), [2, 3, 4], "{what}");
                assert_eq!(matching(&snapshot, "name is null"), [1, 2, 3], "{what}");
                assert_eq!(matching(&snapshot, "name = 80"), [4], "{what}");
                let unknown = Query::new().condition(Condition::parse("size = 5").unwrap());
                let error = snapshot.query(&unknown).unwrap_err().to_string();
                assert!(error.contains("the columns are id, x, y, extent, name"), "{error}");
                assert_clean(store);
            };
            verify(&store);
            if durability == Durability::Power {
                // The state after a kill: the log has entries of all columns so far.
                verify(&Store::open_on(storage_of(&files_of(&*storage)), options(durability)).unwrap());
            }
            drop(dataset);
            store.close().unwrap();
            let store = Store::open_on(storage.clone(), options(durability)).unwrap();
            verify(&store);
            store.dataset(MAIN).unwrap().compact().unwrap();
            verify(&store);
        }
    }
}

#[test]
fn invalid_renames_and_drops_are_refused_and_change_nothing() {
    let (_storage, store, dataset) = created(Durability::Power, 1);
    let generation = store.info().unwrap().manifest_generation;
    let refused = |changed: terrane::Result<()>, reason: &str| {
        let error = changed.unwrap_err();
        assert!(matches!(error, Error::Usage(_) | Error::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    for taken in ["size", "id", "x", "y", "name"] {
        refused(dataset.rename_column("name", taken), &format!("there is a column {taken:?} already"));
    }
    refused(dataset.rename_column("name", ""), "the name of column 4 is empty");
    refused(dataset.rename_column("name", &"n".repeat(300)), "at most 255");
    refused(dataset.rename_column("nothing", "other"), "the columns are id, x, y, name, size");
    refused(dataset.drop_column("nothing"), "the columns are id, x, y, name, size");
    refused(dataset.drop_column("id"), "is the key");
    refused(dataset.drop_column("x"), "is the geometry or a part of it");
    refused(dataset.drop_column("y"), "is the geometry or a part of it");
    assert_eq!(*dataset.schema(), first_schema());
    assert_eq!(store.info().unwrap().manifest_generation, generation);
    // One manifest step each.
    dataset.rename_column("name", "title").unwrap();
    dataset.drop_column("title").unwrap();
    dataset.drop_column("size").unwrap();
    assert_eq!(store.info().unwrap().manifest_generation, generation + 3);
    dataset.insert(&at(1, Vec::new())).unwrap();
    assert_eq!(values(&dataset.snapshot(), 1), []);
    assert_clean(&store);
}

#[test]
fn key_and_geometry_go_by_their_new_names() {
    let (storage, store, dataset) = created(Durability::Power, 1);
    dataset.insert(&at(1, vec![text("a"), Value::Int(5)])).unwrap();
    for (from, to) in [("id", "ride"), ("x", "lon"), ("y", "lat")] {
        dataset.rename_column(from, to).unwrap();
    }
    let old = batch(&first_schema(), &[at(2, vec![Value::Null, Value::Null])]);
    assert!(dataset.write_batch(&old, OnConflict::Refuse).unwrap_err().to_string().contains("ride"));
    let new = batch(&dataset.schema(), &[at(2, vec![Value::Null, Value::Null])]);
    assert!(dataset.write_batch(&new, OnConflict::Refuse).unwrap().refused.is_empty());
    drop(dataset);
    store.close().unwrap();
    let store = Store::open_on(storage, options(Durability::Power)).unwrap();
    let snapshot = store.dataset(MAIN).unwrap().snapshot();
    let names: Vec<String> = snapshot.schema().column_names().map(str::to_owned).collect();
    assert_eq!(names, ["ride", "lon", "lat", "name", "size"]);
    assert_eq!(found(&snapshot, Query::new().window(0.0, 0.0, 3.0, 3.0)), [1, 2]);
    assert_eq!(matching(&snapshot, "ride >= 2"), [2]);
    let info = store.info().unwrap();
    let columns: Vec<_> = info.datasets[0].indexes.iter().map(|index| index.columns.clone()).collect();
    assert_eq!(columns, [vec!["ride".to_owned()], vec!["lon".into(), "lat".into()]]);
    assert_clean(&store);
}

/// An index's columns are renamed, and move when an earlier column is dropped.
#[test]
fn indexes_continue_when_columns_are_renamed_and_others_dropped() {
    for (flush, compact) in [(false, false), (true, false), (true, true)] {
        let (storage, store, dataset) = created(Durability::Power, 2);
        let settle = || {
            if flush {
                dataset.flush().unwrap();
            }
            if compact {
                dataset.compact().unwrap();
            }
        };
        dataset.add_column(Column::new("words", ColumnType::Utf8)).unwrap();
        dataset.create_index("by-size", IndexKind::BTree, &["size"]).unwrap();
        dataset.create_index("by-word", IndexKind::Inverted, &["words"]).unwrap();
        for key in 0..40 {
            dataset
                .insert(&at(key, vec![text("other"), Value::Int(key % 4), text(&format!("w{} all", key % 5))]))
                .unwrap();
        }
        settle();
        let before = dataset.snapshot();
        dataset.rename_column("size", "extent").unwrap();
        dataset.drop_column("name").unwrap();
        dataset.rename_column("words", "name").unwrap();
        dataset.upsert(&at(0, vec![Value::Int(9), text("w9")])).unwrap();
        dataset.delete(&Key::Int(4)).unwrap();
        settle();
        let through = |snapshot: &Snapshot, condition: &str, index: &str| {
            let query = Query::new().condition(Condition::parse(condition).unwrap());
            let keys = found(snapshot, query.clone().using_index(index));
            assert_eq!(keys, found(snapshot, query.using_index("primary")), "{condition} by {index}");
            keys
        };
        let verify = |store: &Store| {
            let snapshot = store.dataset(MAIN).unwrap().snapshot();
            assert_eq!(through(&snapshot, "extent = 9", "by-size"), [0]);
            assert_eq!(through(&snapshot, "extent = 0", "by-size"), [8, 12, 16, 20, 24, 28, 32, 36]);
            assert_eq!(through(&snapshot, "name match 'w9'", "by-word"), [0]);
            assert_eq!(through(&snapshot, "name match 'W4'", "by-word").len(), 7);
            let error = snapshot.query(&Query::new().using_index("by-size")).unwrap_err().to_string();
            assert!(error.contains("demands nothing of its first column, extent"), "{error}");
            let info = store.info().unwrap();
            let on = |name: &str| {
                let index = info.datasets[0].indexes.iter().find(|index| index.name == name);
                index.unwrap().columns.clone()
            };
            assert_eq!((on("by-size"), on("by-word")), (vec!["extent".to_owned()], vec!["name".to_owned()]));
            assert_clean(store);
        };
        verify(&store);
        assert_eq!(through(&before, "size = 0", "by-size").len(), 10);
        assert_eq!(through(&before, "words match 'w4'", "by-word").len(), 8);
        verify(&Store::open_on(storage_of(&files_of(&*storage)), options(Durability::Power)).unwrap());
        // An interrupted creation or a repair gives the same index.
        assert!(store.check(true).unwrap().is_clean());
        drop((before, dataset));
        store.close().unwrap();
        let store = Store::open_on(storage, options(Durability::Power)).unwrap();
        verify(&store);
    }
}

#[test]
fn a_column_that_indexes_are_on_is_dropped_after_them() {
    let (_storage, store, dataset) = created(Durability::Power, 1);
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    dataset.create_index("both", IndexKind::BTree, &["name", "size"]).unwrap();
    let refused = |name: &str, reason: &str| {
        let error = dataset.drop_column(name).unwrap_err();
        assert!(matches!(&error, Error::Usage(text) if text.contains(reason)), "{error}");
    };
    refused("size", "column \"size\" is in the indexes \"sizes\", \"both\"; drop those first");
    refused("name", "column \"name\" is in the index \"both\"; drop that first");
    dataset.drop_index("both").unwrap();
    dataset.rename_column("size", "extent").unwrap();
    refused("extent", "column \"extent\" is in the index \"sizes\"; drop that first");
    // A snapshot that has the index, from before both drops.
    dataset.insert(&at(1, vec![Value::Null, Value::Int(5)])).unwrap();
    let before = dataset.snapshot();
    dataset.drop_index("sizes").unwrap();
    dataset.drop_column("extent").unwrap();
    let query = Query::new().condition(Condition::parse("extent = 5").unwrap());
    assert_eq!(found(&before, query.using_index("sizes")), [1]);
    assert_eq!(attributes_of(&dataset.schema()), ["name"]);
    assert_clean(&store);
}

/// Batches and imports that were begun with the old columns.
#[test]
fn batches_made_for_older_columns_are_stored_under_their_columns() {
    let (_storage, store, dataset) = created(Durability::Power, 2);
    let mut atomic = dataset.atomic_batch();
    atomic.upsert(&at(1, vec![text("a"), Value::Int(1)])).unwrap();
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    importer.push(&batch(&first_schema(), &[at(2, vec![text("b"), Value::Int(2)])])).unwrap();
    dataset.drop_column("name").unwrap();
    dataset.rename_column("size", "extent").unwrap();
    dataset.add_column(Column::new("name", ColumnType::Utf8)).unwrap();
    dataset.create_index("extents", IndexKind::BTree, &["extent"]).unwrap();
    dataset.create_index("names", IndexKind::BTree, &["name"]).unwrap();
    importer.push(&batch(&first_schema(), &[at(3, vec![text("c"), Value::Int(3)])])).unwrap();
    atomic.commit().unwrap();
    importer.finish(&mut |row| Err(row.error)).unwrap();
    let snapshot = dataset.snapshot();
    for key in 1..=3 {
        assert_eq!(values(&snapshot, key), [Value::Int(key), Value::Null]);
        let query = Query::new().condition(Condition::parse(&format!("extent = {key}")).unwrap());
        assert_eq!(found(&snapshot, query.using_index("extents")), [key]);
    }
    let named = Query::new().condition(Condition::parse("name >= ''").unwrap());
    assert!(found(&snapshot, named.using_index("names")).is_empty());
    assert_clean(&store);
    // A single record needs one value per column, as always.
    dataset.drop_index("names").unwrap();
    dataset.drop_column("name").unwrap();
    let error = dataset.upsert(&at(4, vec![text("d"), Value::Int(4)])).unwrap_err();
    assert!(error.to_string().contains("the record has 2 attributes, the dataset has 1"), "{error}");
    // An import that widens a column uses a version number that is taken.
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    importer.widen_column("extent").unwrap();
    dataset.rename_column("extent", "size").unwrap();
    let error = importer.finish(&mut |row| Err(row.error)).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("changed meanwhile"), "{error}");
}

#[test]
fn a_reader_in_another_process_keeps_the_columns_that_it_opened() {
    let (storage, store, dataset) = created(Durability::Power, 1);
    dataset.insert(&at(1, vec![text("a"), Value::Int(5)])).unwrap();
    let reader = Store::open_read_only_on(storage.clone(), options(Durability::Power)).unwrap();
    dataset.drop_column("name").unwrap();
    dataset.rename_column("size", "extent").unwrap();
    dataset.flush().unwrap();
    assert_eq!(values(&reader.dataset(MAIN).unwrap().snapshot(), 1), [text("a"), Value::Int(5)]);
    assert!(reader.dataset(MAIN).unwrap().rename_column("size", "s").is_err(), "it cannot write");
    let later = Store::open_read_only_on(storage, options(Durability::Power)).unwrap();
    let snapshot = later.dataset(MAIN).unwrap().snapshot();
    assert_eq!(values(&snapshot, 1), [Value::Int(5)]);
    assert_eq!(matching(&snapshot, "extent = 5"), [1]);
    assert_clean(&store);
}

/// The value of a key's record in a column, by the column's type.
fn value_for(column: &Column, key: i64) -> Value {
    match column.column_type {
        ColumnType::Int64 => Value::Int(key),
        ColumnType::Float64 => Value::Float64(key as f64 + 0.5),
        ColumnType::Bool => Value::Bool(key % 2 == 0),
        _ => text(&format!("n{key}")),
    }
}

/// Writers that use names start again after a change of names. Readers see the right values under
/// every column.
#[test]
fn readers_and_writers_continue_while_columns_change() {
    const KEYS: i64 = 40;
    let (_storage, store, dataset) = created(Durability::Power, 2);
    dataset.create_index("by-size", IndexKind::BTree, &["size"]).unwrap();
    let is_done = AtomicBool::new(false);
    let write = |writer: i64| {
        for key in (0..5 * KEYS).map(|number| 2 * (number % KEYS) + writer) {
            loop {
                let schema = dataset.schema();
                let values = schema.columns.iter().map(|column| value_for(column, key)).collect();
                match dataset.write_batch(&batch(&schema, &[at(key, values)]), OnConflict::Replace) {
                    Ok(outcome) => break assert!(outcome.refused.is_empty(), "{outcome:?}"),
                    Err(error) => assert!(matches!(error, Error::Usage(_) | Error::Refused { .. }), "{error:?}"),
                }
            }
        }
    };
    let read = || {
        while !is_done.load(Ordering::Acquire) {
            let snapshot = dataset.snapshot();
            let schema = snapshot.schema();
            for key in 0..2 * KEYS {
                let Some(record) = snapshot.get(&Key::Int(key)).unwrap() else { continue };
                for (column, value) in schema.columns.iter().zip(&record.values) {
                    assert!(
                        *value == Value::Null || *value == value_for(column, key),
                        "{column:?} of {key} is {value:?}"
                    );
                }
            }
            let size = schema.columns.iter().find(|column| column.column_type == ColumnType::Int64).unwrap();
            let query = Query::new().condition(Condition::parse(&format!("{} in (3, 8, 70)", size.name)).unwrap());
            assert_eq!(found(&snapshot, query.clone().using_index("by-size")), found(&snapshot, query));
        }
    };
    let change = || {
        for round in 0..30 {
            let column_type = [ColumnType::Float64, ColumnType::Bool, ColumnType::Utf8][round % 3];
            dataset.add_column(Column::new("tag", column_type)).unwrap();
            let (from, to) = if round % 2 == 0 { ("size", "extent") } else { ("extent", "size") };
            dataset.rename_column(from, to).unwrap();
            if round % 5 == 0 {
                dataset.flush().unwrap();
            }
            dataset.rename_column("tag", "label").unwrap();
            dataset.drop_column("label").unwrap();
            if round == 7 {
                dataset.drop_column("name").unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(read);
        let changing = [scope.spawn(|| write(0)), scope.spawn(|| write(1)), scope.spawn(change)];
        let ended: Vec<_> = changing.into_iter().map(|thread| thread.join()).collect();
        is_done.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok), "a thread panicked");
    });
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 2 * KEYS as u64);
    assert_clean(&store);
}
