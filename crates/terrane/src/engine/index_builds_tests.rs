//! Creations that are asked to stop, as a store that is closed asks them, or killed.

use std::sync::Arc;

use terrane_lsm::manifest::{Loaded, Manifest};
use terrane_space::CoordinateSystem;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::Controller;

use crate::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use crate::secondary::IndexDefinition;
use crate::{DatasetOptions, Durability, Error, IndexKind, IndexOptions, Options, Query, Record, Store, Value};

const RECORDS: i64 = 10_000;

fn open(storage: &MemoryStorage) -> Store {
    Store::open_on(Arc::new(storage.clone()), Options { background: false, ..Options::default() }).unwrap()
}

/// Points with a size.
fn schema() -> Schema {
    let id = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let point = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    Schema::new(id, point, CoordinateSystem::Planar, vec![Column::new("size", ColumnType::Int64)]).unwrap()
}

fn loads(storage: &dyn Storage) -> Vec<Loaded> {
    let manifest = Manifest::read(storage).unwrap().unwrap();
    let indexes = manifest.datasets.into_iter().flat_map(|dataset| dataset.partitions);
    indexes.flat_map(|partition| partition.indexes).filter_map(|index| index.loaded).collect()
}

/// A store that is closed while it builds keeps what it has, and sessions that are too short for
/// the whole creation complete it together.
#[test]
fn creations_that_are_asked_to_stop_keep_what_they_have() {
    for (kind, partitions) in [(IndexKind::Dhb, 1), (IndexKind::BTree, 2)] {
        let storage = MemoryStorage::new();
        let store = open(&storage);
        let options = DatasetOptions { partitions };
        let dataset = store.create_dataset_with("d", schema(), &options).unwrap();
        let put =
            |key: i64, y: f64| dataset.upsert(&Record::at(key, key as f64, y, vec![Value::Int(key % 100)])).unwrap();
        (0..RECORDS).for_each(|key| put(key, 0.0));
        let columns: &[&str] = if kind == IndexKind::BTree { &["size"] } else { &[] };
        dataset.engine.index_builds.cancel();
        let stopped = dataset.create_index("i", kind, columns);
        assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
        let mut before = loads(&storage);
        assert_eq!(before.len(), partitions, "{before:?}");
        assert!(before.iter().all(|loaded| loaded.next_key.is_some() && loaded.runs.len() == 1), "{before:?}");
        // Within what is loaded, and behind it.
        [7, 5000, 9999].into_iter().for_each(|key| put(key, 3.0));
        drop((dataset, store));
        loop {
            let store = open(&storage);
            let dataset = store.dataset("d").unwrap();
            dataset.engine.index_builds.cancel();
            let stopped = dataset.build_indexes();
            let loaded = loads(&storage);
            if loaded == before {
                // The rest is less than what is done before the first look.
                break;
            }
            assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
            before = loaded;
        }
        let store = open(&storage);
        let dataset = store.dataset("d").unwrap();
        dataset.build_indexes().unwrap();
        assert_eq!(loads(&storage), []);
        let report = store.check(false).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let count =
            dataset.snapshot().count(&Query::new().window(-1.0, 2.0, 1e9, 4.0).using_index("geometry")).unwrap();
        assert_eq!(count, 3);
    }
}

/// What a kill leaves between the cut and the load, of a store that has what it was given in memory
/// alone.
#[test]
fn numbers_before_the_cut_of_an_index_are_not_given_out_again() {
    let controller = Controller::new();
    let options = Options { background: false, durability: Some(Durability::None), ..Options::default() };
    let store = Store::open_on(controller.storage(), options.clone()).unwrap();
    let dataset = store.create_dataset("d", schema()).unwrap();
    (0..10).for_each(|key| dataset.insert(&Record::at(key, 1.0, 1.0, vec![Value::Null])).unwrap());
    let (engine, handle) = (&dataset.engine, &dataset.handle);
    let cut = engine.core.last_sequence();
    let definition =
        IndexDefinition::new(9, "i", IndexKind::Dhb, &[], &IndexOptions::default(), &dataset.schema()).unwrap();
    let begun = {
        let _changes = engine.catalog.lock();
        engine.index_builds.begin(handle, definition).unwrap()
    };
    let killed = controller.process_kill(controller.events());
    drop(begun);
    let after = Store::open_on(killed.storage(), options).unwrap();
    let dataset = after.dataset("d").unwrap();
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 0, "the records were on disk");
    dataset.insert(&Record::at(77, 1.0, 1.0, vec![Value::Null])).unwrap();
    assert!(dataset.snapshot().sequence() > cut, "{} after {cut}", dataset.snapshot().sequence());
}
