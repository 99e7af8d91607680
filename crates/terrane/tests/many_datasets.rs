//! More datasets than the memory components can hold at once.

use std::sync::Arc;

use crate::support::small_options;
use crate::support::workload::{SIDE, first_schema, schema_of};
use terrane::{Error, MEMORY_LIMIT_MIN, Options, Query, Record, Store, Value};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const DATASETS: usize = 90;
const ROUNDS: i64 = 4;

fn name(number: usize) -> String {
    format!("d{number:03}")
}

fn at(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Utf8("n".repeat(2000)), Value::Int(key)])
}

fn verify(store: &Store, what: &str) {
    assert_eq!(store.dataset_names().len(), DATASETS, "{what}");
    for name in store.dataset_names() {
        let snapshot = store.dataset(&name).unwrap().snapshot();
        assert_eq!(snapshot.count(&Query::new()).unwrap(), ROUNDS as u64, "{name}, {what}");
        assert_eq!(snapshot.count(&Query::new().window(-1.0, 0.0, 100.0, 2.0)).unwrap(), ROUNDS as u64);
    }
}

fn memory(store: &Store) -> u64 {
    store.info().unwrap().datasets.iter().map(|dataset| dataset.memory_bytes).sum()
}

fn run(background: bool) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = Options { background, ..small_options() };
    let store = Store::open_on(storage.clone(), options.clone()).unwrap();
    for number in 0..DATASETS {
        store.create_dataset(&name(number), first_schema()).unwrap();
    }
    assert_eq!(memory(&store), 0, "empty datasets count for nothing");
    for round in 0..ROUNDS {
        for number in 0..DATASETS {
            store.dataset(&name(number)).unwrap().insert(&at(round)).unwrap();
            assert!(memory(&store) <= MEMORY_LIMIT_MIN as u64 / 8 * 3);
        }
    }
    verify(&store, "written");
    let flushes = store.maintenance().flushes;
    assert!(flushes < DATASETS as u64 * ROUNDS as u64 / 2, "{flushes} flushes");
    store.close().unwrap();
    verify(&Store::open_read_only_on(storage.clone(), options.clone()).unwrap(), "read only");
    let store = Store::open_on(storage, options).unwrap();
    verify(&store, "opened again");
    assert!(store.check(false).unwrap().findings.is_empty());
}

#[test]
fn writes_succeed_with_any_number_of_datasets() {
    run(false);
}

#[test]
fn writes_succeed_with_any_number_of_datasets_and_background_work() {
    run(true);
}

#[test]
fn a_dataset_is_opened_or_created_by_concurrent_threads() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage, small_options()).unwrap();
    std::thread::scope(|scope| {
        for key in 0..4 {
            let store = &store;
            scope.spawn(move || store.open_or_create_dataset("d", first_schema()).unwrap().insert(&at(key)).unwrap());
        }
    });
    // An existing dataset keeps its schema.
    let dataset = store.open_or_create_dataset("d", schema_of(SIDE)).unwrap();
    assert_eq!((dataset.count(&Query::new()).unwrap(), dataset.schema().geometry.names().count()), (4, 2));
    assert!(matches!(store.open_or_create_dataset("-d", first_schema()), Err(Error::Usage(_))));
    assert_eq!(store.dataset_names(), ["d"]);
}
