//! Records without keys get numbers above every existing key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::support::{schema, small_options};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Dataset, DatasetOptions, Key, OnConflict, Query, Record, Store, Value};
use terrane_testkit::MemoryStorage;

fn batch(keys: Option<&[i64]>, rows: usize) -> RecordBatch {
    let coordinate: ArrayRef = Arc::new(Float64Array::from(vec![1.0; rows]));
    let mut columns = vec![("x", coordinate.clone()), ("y", coordinate)];
    if let Some(keys) = keys {
        columns.push(("id", Arc::new(Int64Array::from(keys.to_vec()))));
    }
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn numbers_continue_above_keys_of_the_same_session() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let mut schema = schema(KeyType::Int64, true, CoordinateSystem::Planar);
    schema.key.generated = true;
    let dataset = store.create_dataset("d", schema).unwrap();
    let write = |keys: Option<&[i64]>, rows| {
        let outcome = dataset.write_batch(&batch(keys, rows), OnConflict::Refuse).unwrap();
        assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
        outcome.keys
    };
    assert_eq!(write(None, 2), [Key::Int(0), Key::Int(1)]);
    assert_eq!(write(Some(&[2, 7, -5]), 3), [Key::Int(2), Key::Int(7), Key::Int(-5)]);
    assert_eq!(write(None, 1), [Key::Int(8)]);
    dataset.insert(&terrane::Record::at(20, 0.0, 0.0, vec![terrane::Value::Null, terrane::Value::Null])).unwrap();
    assert_eq!(write(None, 1), [Key::Int(21)]);
}

/// The largest key may be in any partition.
#[test]
fn numbers_continue_above_the_keys_of_all_partitions() {
    let storage: Arc<MemoryStorage> = Arc::new(MemoryStorage::new());
    let mut schema = schema(KeyType::Int64, true, CoordinateSystem::Planar);
    schema.key.generated = true;
    let options = DatasetOptions { partitions: 4 };
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = store.create_dataset_with("d", schema, &options).unwrap();
    drop((dataset, store));
    let mut next = 0;
    for round in 0..8 {
        let store = Store::open_on(storage.clone(), small_options()).unwrap();
        let dataset = store.dataset("d").unwrap();
        let keys = dataset.write_batch(&batch(None, 3), OnConflict::Refuse).unwrap().keys;
        assert_eq!(keys, [next, next + 1, next + 2].map(Key::Int), "in session {round}");
        next += 3;
        if round % 2 == 0 {
            dataset.flush().unwrap();
        }
    }
}

fn store_of(key_type: KeyType) -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let mut schema = schema(key_type, true, CoordinateSystem::Planar);
    schema.key.generated = true;
    let dataset = store.create_dataset("d", schema).unwrap();
    (store, dataset)
}

fn with_key(key: Key) -> Record {
    Record { key, geometry: None, values: vec![Value::Null, Value::Null] }
}

/// There is no row number above the largest key: the record is refused, with the reason.
#[test]
fn numbers_end_at_the_largest_key_and_never_begin_again() {
    let cases = [
        (KeyType::Int64, Key::Int(i64::MAX)),
        (KeyType::UInt64, Key::UInt(u64::MAX)),
        (KeyType::UInt64, Key::UInt(u64::MAX - 1)),
    ];
    for (key_type, largest) in cases {
        for known in [false, true] {
            let (_store, dataset) = store_of(key_type);
            let mut keys = 1;
            if known {
                // The counter has started before the large key is written.
                assert_eq!(dataset.write_batch(&batch(None, 1), OnConflict::Refuse).unwrap().keys.len(), 1);
                keys += 1;
            }
            dataset.insert(&with_key(largest.clone())).unwrap();
            for on_conflict in [OnConflict::Refuse, OnConflict::Replace] {
                let outcome = dataset.write_batch(&batch(None, 2), on_conflict).unwrap();
                assert!(outcome.keys.is_empty(), "{largest}: {:?}", outcome.keys);
                let reasons: Vec<String> = outcome.refused.iter().map(|row| row.error.to_string()).collect();
                assert_eq!(reasons.len(), 2, "{reasons:?}");
                assert!(reasons[0].contains("no row number left"), "{reasons:?}");
            }
            assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), keys);
        }
    }
    // Below the end, one number is left.
    let (_store, dataset) = store_of(KeyType::Int64);
    dataset.insert(&with_key(Key::Int(i64::MAX - 1))).unwrap();
    let outcome = dataset.write_batch(&batch(None, 2), OnConflict::Refuse).unwrap();
    assert_eq!((outcome.keys, outcome.refused.len()), (vec![Key::Int(i64::MAX)], 1));
}

/// Every way of writing a key advances the numbers.
#[test]
fn numbers_continue_above_keys_of_imports_and_atomic_batches() {
    let (store, dataset) = store_of(KeyType::Int64);
    let next = || dataset.write_batch(&batch(None, 1), OnConflict::Refuse).unwrap().keys;
    assert_eq!(next(), [Key::Int(0)]);
    let mut importer = store.importer("d", dataset.schema().as_ref().clone()).unwrap();
    assert!(importer.push(&batch(Some(&[1, 2, 9]), 3)).unwrap().is_empty());
    importer.finish(&mut |row| Err(row.error)).unwrap();
    assert_eq!(next(), [Key::Int(10)]);
    let mut changes = dataset.atomic_batch();
    // Further than numbering advances by itself when it skips taken keys.
    changes.upsert(&with_key(Key::Int(20))).unwrap();
    changes.upsert(&with_key(Key::Int(12))).unwrap();
    changes.delete(&Key::Int(40)).unwrap();
    changes.commit().unwrap();
    assert_eq!(next(), [Key::Int(21)]);
}

/// Another writer may take a number as a key between its choice and its use. The record without a
/// key gets another one.
#[test]
fn numbers_that_others_use_as_keys_are_skipped() {
    let (_store, dataset) = store_of(KeyType::Int64);
    let (next, is_over) = (AtomicI64::new(0), AtomicBool::new(false));
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // The number that the other thread is about to take.
                match dataset.insert(&with_key(Key::Int(next.load(Ordering::Relaxed)))) {
                    Ok(()) | Err(terrane::Error::DuplicateKey { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let mut refused = Vec::new();
        for _ in 0..300 {
            let outcome = dataset.write_batch(&batch(None, 2), OnConflict::Refuse);
            refused.extend(outcome.as_ref().map_or_else(
                |error| vec![error.to_string()],
                |outcome| outcome.refused.iter().map(|row| row.error.to_string()).collect(),
            ));
            if let Some(Key::Int(last)) = outcome.ok().and_then(|outcome| outcome.keys.last().cloned()) {
                next.store(last + 1, Ordering::Relaxed);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        refused
    });
    assert_eq!(refused, Vec::<String>::new());
}
