//! A component file of another store, or of a diverged copy, is never read as the store's own.

use std::sync::Arc;

use crate::support::files::{Files, files_of, storage_of};
use crate::support::{schema, small_options};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Error, Key, Query, Record, Store, Value};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const KEYS: i64 = 300;

/// Writes a value into every record and flushes, so that stores differ only in the value.
fn write(storage: &Arc<dyn Storage>, value: i64) {
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = match store.dataset("d") {
        Ok(dataset) => dataset,
        Err(_) => store.create_dataset("d", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap(),
    };
    for key in 0..KEYS {
        let record = Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(value)]);
        dataset.upsert(&record).unwrap();
    }
    dataset.flush().unwrap();
    store.close().unwrap();
}

/// The values of all records, or the first error.
fn values(files: &Files) -> Result<Vec<i64>, Error> {
    let store = Store::open_on(storage_of(files), small_options())?;
    let snapshot = store.dataset("d")?.snapshot();
    assert_eq!(snapshot.count(&Query::new())?, KEYS as u64);
    let mut values = Vec::new();
    for key in 0..KEYS {
        let record = snapshot.get(&Key::Int(key))?.expect("every record is there");
        let Value::Int(value) = record.values[1] else { panic!("{record:?}") };
        values.push(value);
    }
    values.dedup();
    Ok(values)
}

/// Puts the component files of one store into the other, one at a time and all together.
fn swap(own: &Files, foreign: &Files, value: i64) {
    assert_eq!(values(own).unwrap(), [value]);
    let components = || foreign.iter().filter(|(name, _)| name.starts_with("components/") && own.contains_key(*name));
    let different: Vec<_> = components().filter(|(name, bytes)| own[*name] != **bytes).collect();
    assert!(different.len() >= 2, "primary and spatial index have a file of one name in both stores");
    for replaced in different.iter().map(std::slice::from_ref).chain([&different[..]]) {
        let mut files = own.clone();
        for (name, bytes) in replaced {
            assert_eq!(own[*name].len(), bytes.len(), "the files differ only in their contents");
            files.insert((*name).clone(), (*bytes).clone());
        }
        match values(&files) {
            Err(Error::Damaged { file, .. }) => assert!(file.starts_with("components/"), "{file}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn files_of_another_store_are_noticed() {
    let stores = [MemoryStorage::new(), MemoryStorage::new()].map(|storage| Arc::new(storage) as Arc<dyn Storage>);
    write(&stores[0], 7);
    write(&stores[1], 8);
    swap(&files_of(&*stores[0]), &files_of(&*stores[1]), 7);
}

#[test]
fn files_of_a_diverged_copy_are_noticed() {
    let origin: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    write(&origin, 5);
    let copy = storage_of(&files_of(&*origin));
    write(&origin, 7);
    write(&copy, 8);
    swap(&files_of(&*origin), &files_of(&*copy), 7);
}
