//! Creations that are asked to stop, as a store that is closed asks them.

use std::sync::Arc;

use terrane_lsm::manifest::{Loaded, Manifest};
use terrane_space::CoordinateSystem;
use terrane_storage::{MemoryStorage, Storage};

use crate::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use crate::{DatasetOptions, Error, IndexKind, Options, Query, Record, Store, Value};

const RECORDS: i64 = 10_000;

fn open(storage: &MemoryStorage) -> Store {
    Store::open_on(Arc::new(storage.clone()), Options { background: false, ..Options::default() }).unwrap()
}

fn loads(storage: &dyn Storage) -> Vec<Loaded> {
    let manifest = Manifest::read(storage).unwrap().unwrap();
    let indexes = manifest.datasets.into_iter().flat_map(|dataset| dataset.partitions);
    indexes.flat_map(|partition| partition.indexes).filter_map(|index| index.loaded).collect()
}

/// A store that is closed while it builds keeps what it has, and sessions that are too short for the whole creation
/// complete it together.
#[test]
fn creations_that_are_asked_to_stop_keep_what_they_have() {
    for (kind, partitions) in [(IndexKind::Dhb, 1), (IndexKind::BTree, 2)] {
        let storage = MemoryStorage::new();
        let store = open(&storage);
        let id = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
        let point = GeometryColumn::Point { x: "x".into(), y: "y".into() };
        let schema =
            Schema::new(id, point, CoordinateSystem::Planar, vec![Column::new("size", ColumnType::Int64)]).unwrap();
        let options = DatasetOptions { partitions };
        let dataset = store.create_dataset_with("d", schema, &options).unwrap();
        let put =
            |key: i64, y: f64| dataset.upsert(&Record::at(key, key as f64, y, vec![Value::Int(key % 100)])).unwrap();
        (0..RECORDS).for_each(|key| put(key, 0.0));
        let columns: &[&str] = if kind == IndexKind::BTree { &["size"] } else { &[] };
        dataset.engine.maintenance.builds().cancel();
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
            dataset.engine.maintenance.builds().cancel();
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
