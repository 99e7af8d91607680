//! Indexes are created and dropped while the dataset is in use. They always agree with the records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::kinds::KINDS;
use crate::support::workload::batch;
use crate::support::{key, record, schema, seeded, small_options};
use rand::Rng;
use terrane::schema::{Column, ColumnType, KeyType};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Error, Finding, IndexKind, IndexOptions, Key, OnConflict,
    Options, Query, Record, Snapshot, Store, Value,
};
use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

fn open(storage: &Arc<MemoryStorage>) -> Store {
    open_with(storage, small_options())
}

fn open_with(storage: &Arc<MemoryStorage>, options: Options) -> Store {
    Store::open_on(storage.clone(), options).unwrap()
}

/// A store with a dataset of points.
fn created(key_type: KeyType) -> (Arc<MemoryStorage>, Store, Dataset) {
    let storage = Arc::new(MemoryStorage::new());
    let store = open(&storage);
    let options = DatasetOptions { partitions: if key_type == KeyType::Int64 { 1 } else { 3 } };
    let schema = schema(key_type, true, CoordinateSystem::Planar);
    let dataset = store.create_dataset_with("d", schema, &options).unwrap();
    (storage, store, dataset)
}

fn assert_agrees(store: &Store) {
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

/// Creates an index of a spatial kind, named like the kind, with three levels if it has a grid.
fn create_spatial(dataset: &Dataset, kind: IndexKind) {
    let grid = || IndexOptions::default().levels("m,l,l".parse().unwrap()).domain(-8.0, -8.0, 8.0, 8.0);
    let options = if matches!(kind, IndexKind::Shb | IndexKind::Sif) { grid() } else { IndexOptions::default() };
    dataset.create_index_with(kind.name(), kind, &[], &options).unwrap();
}

/// The number of entries of an index in disk components, after merging all.
fn entries(store: &Store, name: &str) -> u64 {
    store.compact().unwrap();
    let info = store.info().unwrap();
    let index = info.datasets[0].indexes.iter().find(|index| index.name == name).unwrap();
    assert!(!index.is_building && index.antimatter == 0, "{index:?}");
    index.entries
}

#[test]
fn indexes_have_existing_and_new_records() {
    let (mut rng, _) = seeded(91);
    for key_type in [KeyType::Int64, KeyType::UInt64, KeyType::Utf8, KeyType::Binary, KeyType::Uuid] {
        let (storage, store, dataset) = created(key_type);
        let mut change = |dataset: &Dataset, count: usize| {
            for _ in 0..count {
                let key = key(&mut rng, key_type, 60);
                match rng.random_range(0..4) {
                    0 => drop(dataset.delete(&key).unwrap()),
                    _ => dataset.upsert(&record(&mut rng, key, true)).unwrap(),
                }
            }
        };
        change(&dataset, 100);
        dataset.flush().unwrap();
        change(&dataset, 100);
        dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
        assert_agrees(&store);
        change(&dataset, 100);
        dataset.create_index("names", IndexKind::BTree, &["name", "size"]).unwrap();
        for kind in KINDS {
            create_spatial(&dataset, kind);
        }
        dataset.create_index("words", IndexKind::Inverted, &["name"]).unwrap();
        change(&dataset, 100);
        assert_agrees(&store);
        dataset.flush().unwrap();
        change(&dataset, 50);
        dataset.drop_index("sizes").unwrap();
        change(&dataset, 50);
        dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
        change(&dataset, 50);
        assert_agrees(&store);
        drop(dataset);
        store.close().unwrap();
        let store = open(&storage);
        assert_agrees(&store);
        let dataset = store.dataset("d").unwrap();
        change(&dataset, 50);
        assert_agrees(&store);
        let records = dataset.snapshot().count(&Query::new()).unwrap();
        for name in ["sizes", "names"] {
            assert_eq!(entries(&store, name), records, "{name} of {key_type}");
        }
        let objects = entries(&store, "geometry");
        for (kind, each) in KINDS.into_iter().zip([1, 1, 1, 1, 3]) {
            assert_eq!(entries(&store, kind.name()), each * objects, "{kind} of {key_type}");
        }
        assert_agrees(&store);
    }
}

#[test]
fn an_unchanged_entry_is_not_written_again() {
    let (_storage, store, dataset) = created(KeyType::Int64);
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    let with_name = |name: &str| Record::at(1, 1.0, 2.0, vec![Value::Utf8(name.into()), Value::Int(5)]);
    for name in ["a", "b", "c"] {
        dataset.upsert(&with_name(name)).unwrap();
    }
    dataset.flush().unwrap();
    let info = store.info().unwrap();
    let counts: Vec<(u64, u64)> =
        info.datasets[0].indexes.iter().map(|index| (index.entries, index.antimatter)).collect();
    assert_eq!(counts, [(1, 0); 3]);
}

#[test]
fn imports_and_batches_reach_every_index() {
    let (mut rng, _) = seeded(92);
    let (_storage, store, dataset) = created(KeyType::Int64);
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    create_spatial(&dataset, IndexKind::Sif);
    let mut records = |range: std::ops::Range<i64>| -> Vec<Record> {
        range.map(|number| record(&mut rng, Key::Int(number), true)).collect()
    };
    let schema = dataset.schema();
    let mut importer = store.importer("d", (*schema).clone()).unwrap();
    assert!(importer.push(&batch(&schema, &records(0..300))).unwrap().is_empty());
    // This index is created while rows are read. The import loads it too.
    dataset.create_index("names", IndexKind::BTree, &["name"]).unwrap();
    importer.finish(&mut |row| Err(row.error)).unwrap();
    assert_agrees(&store);
    dataset.write_batch(&batch(&schema, &records(200..400)), OnConflict::Replace).unwrap();
    let mut atomic = dataset.atomic_batch();
    records(390..420).iter().for_each(|record| atomic.upsert(record).unwrap());
    (0..100).for_each(|number| atomic.delete(&Key::Int(number)).unwrap());
    atomic.commit().unwrap();
    assert_agrees(&store);
    assert_eq!((entries(&store, "sizes"), entries(&store, "names")), (320, 320));
    // This index is dropped while rows are read. Nothing of it is installed, and no file remains.
    let mut importer = store.importer("d", (*schema).clone()).unwrap();
    assert!(importer.push(&batch(&schema, &records(500..600))).unwrap().is_empty());
    dataset.drop_index("sizes").unwrap();
    dataset.drop_index("sif").unwrap();
    create_spatial(&dataset, IndexKind::Shb);
    importer.finish(&mut |row| Err(row.error)).unwrap();
    assert_agrees(&store);
    assert_eq!(entries(&store, "names"), 420);
}

#[test]
fn indexes_remain_valid_when_columns_are_widened_or_added() {
    let (_storage, store, dataset) = created(KeyType::Int64);
    let put = |key: i64, values: Vec<Value>| dataset.upsert(&Record::at(key, 0.0, 0.0, values)).unwrap();
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    put(1, vec![Value::Null, Value::Int(7)]);
    dataset.flush().unwrap();
    dataset.widen_column("size").unwrap();
    put(2, vec![Value::Null, Value::Float64(7.5)]);
    assert_agrees(&store);
    dataset.add_column(Column::new("more", ColumnType::Bool)).unwrap();
    dataset.create_index("mores", IndexKind::BTree, &["more", "size"]).unwrap();
    put(1, vec![Value::Null, Value::Float64(1.0), Value::Bool(true)]);
    assert_agrees(&store);
    assert_eq!((entries(&store, "sizes"), entries(&store, "mores")), (2, 2));
}

#[test]
fn invalid_columns_of_an_index_are_refused_with_a_reason() {
    let (_storage, store, dataset) = created(KeyType::Int64);
    let refused = |name: &str, kind: IndexKind, columns: &[&str], reason: &str| {
        let error = dataset.create_index(name, kind, columns).unwrap_err();
        assert!(matches!(&error, Error::Usage(_)) || error.exit_code() == 2, "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused("i", IndexKind::BTree, &["id"], "is the key");
    refused("i", IndexKind::BTree, &["x"], "spatial kinds of index");
    refused("i", IndexKind::BTree, &["sise"], "size");
    refused("i", IndexKind::BTree, &[], "1 to 8 attributes, not on 0");
    refused("i", IndexKind::BTree, &["size", "name", "size"], "on \"size\" twice");
    refused("i", IndexKind::RTree, &["size"], "which is x, y; not on size");
    refused("a/b", IndexKind::BTree, &["size"], "not a valid name for an index");
    refused("geometry", IndexKind::BTree, &["size"], "already, of kind rtree on x, y");
    assert!("hash".parse::<IndexKind>().unwrap_err().to_string().contains("btree, inverted, rtree"));
    refused("i", IndexKind::Inverted, &["size"], "and \"size\" is an int64");
    refused("i", IndexKind::Inverted, &["name", "size"], "is on 1 attribute, not on 2");
    dataset.create_index("i", IndexKind::BTree, &["size"]).unwrap();
    refused("i", IndexKind::BTree, &["size"], "has an index \"i\" already");
    let undropped = |name: &str, reason: &str| {
        let error = dataset.drop_index(name).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    };
    undropped("primary", "part of every dataset");
    undropped("geometry", "part of every dataset");
    undropped("j", "has no index \"j\"; it has primary, geometry, i");
    dataset.drop_index("i").unwrap();
    undropped("i", "has no index");
    assert_agrees(&store);
}

#[test]
fn damaged_indexes_are_found_and_repaired_one_by_one() {
    let (mut rng, _) = seeded(93);
    let (storage, store, dataset) = created(KeyType::Utf8);
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    dataset.create_index("names", IndexKind::BTree, &["name"]).unwrap();
    for kind in &KINDS[1..] {
        create_spatial(&dataset, *kind);
    }
    for _ in 0..300 {
        let key = key(&mut rng, KeyType::Utf8, 1000);
        dataset.upsert(&record(&mut rng, key, true)).unwrap();
    }
    // A repair reads records whose columns have other names and positions than when they were
    // written.
    dataset.rename_column("name", "title").unwrap();
    dataset.add_column(Column::new("name", ColumnType::Bool)).unwrap();
    drop(dataset);
    store.compact().unwrap();
    store.close().unwrap();
    // Damages one byte of one component per index in turn, in one partition.
    for name in ["sizes", "names", "dhb", "dhvb", "shb", "sif"] {
        let manifest = Manifest::read(&*storage).unwrap().unwrap();
        let dataset = &manifest.datasets[0];
        let definitions = dataset.catalog["indexes"].as_array().unwrap();
        let id = definitions.iter().find(|index| index["name"] == name).unwrap()["id"].as_u64().unwrap();
        let index = dataset.partitions[1].indexes.iter().find(|index| u64::from(index.id) == id).unwrap();
        let (file, bytes) = (component_name(index.components[0].file_id), index.components[0].file_len);
        let file = storage.open(&file, terrane_storage::OpenMode::Write).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, bytes / 3).unwrap();
        file.write_all_at(&[byte[0] ^ 4], bytes / 3).unwrap();
        let store = open(&storage);
        let report = store.check(false).unwrap();
        let is_named = |finding: &Finding| (finding.index.as_str(), finding.partition) == (name, Some(1));
        assert!(!report.findings.is_empty() && report.findings.iter().all(is_named), "{report}");
        let report = store.check(true).unwrap();
        assert!(report.is_clean() && !report.findings.is_empty(), "{report}");
        assert_agrees(&store);
        store.close().unwrap();
    }
}

#[test]
fn indexes_are_created_beside_writers_and_merges() {
    let (_, seed) = seeded(94);
    let storage = Arc::new(MemoryStorage::new());
    let store = open_with(&storage, Options { background: true, ..small_options() });
    let dataset = store.create_dataset("d", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (dataset, stop) = (dataset.clone(), &stop);
            scope.spawn(move || {
                let mut rng = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(seed + writer);
                while !stop.load(Ordering::Relaxed) {
                    let key = key(&mut rng, KeyType::Int64, 500);
                    match rng.random_range(0..4) {
                        0 => drop(dataset.delete(&key).unwrap()),
                        _ => dataset.upsert(&record(&mut rng, key, true)).unwrap(),
                    }
                }
            });
        }
        for round in 0..12 {
            let name = format!("sizes{}", round % 3);
            dataset.create_index(&name, IndexKind::BTree, &["size", "name"]).unwrap();
            let kind = KINDS[round % KINDS.len()];
            create_spatial(&dataset, kind);
            if round % 3 == 0 {
                store.flush().unwrap();
            }
            let report = store.check(false).unwrap();
            assert!(report.findings.is_empty(), "round {round}: {report}");
            let snapshot = dataset.snapshot();
            let window = Query::new().window(-6.0, -3.0, 1.0, 8.0);
            let by = |name: &str| snapshot.count(&window.clone().using_index(name)).unwrap();
            assert_eq!(by(kind.name()), by("primary"), "round {round} by {kind}");
            drop(snapshot);
            dataset.drop_index(kind.name()).unwrap();
            if round % 3 == 2 {
                (0..3).for_each(|number| dataset.drop_index(&format!("sizes{number}")).unwrap());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    drop(dataset);
    assert_agrees(&store);
    store.close().unwrap();
    let store = open(&storage);
    assert_agrees(&store);
    let named: usize = store.info().unwrap().datasets[0].indexes.iter().map(|index| index.components).sum();
    assert_eq!(storage.list("components").unwrap().len(), named, "no file of dropped indexes remains");
}

/// Snapshots still have the entries of a dropped index that were only in memory, even after
/// flushes.
#[test]
fn snapshots_keep_all_entries_of_a_dropped_index() {
    let (_storage, store, dataset) = created(KeyType::Int64);
    let put = |keys: std::ops::Range<i64>| {
        for key in keys {
            dataset.upsert(&Record::at(key, 1.0, 1.0, vec![Value::Null, Value::Int(key % 40)])).unwrap();
        }
    };
    let query = Query::new().condition(Condition::on("size").equals(7));
    let look = |snapshot: &Snapshot| {
        let mut rows = snapshot.query(&query).unwrap();
        let found: usize = rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        (found, rows.explanation().plan)
    };
    put(0..400);
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    put(400..800);
    let snapshot = dataset.snapshot();
    assert_eq!(look(&snapshot), (20, "attribute index"));
    dataset.drop_index("sizes").unwrap();
    assert_eq!(look(&snapshot), (20, "attribute index"));
    put(800..900);
    dataset.flush().unwrap();
    dataset.compact().unwrap();
    assert_eq!(look(&snapshot), (20, "attribute index"));
    assert_eq!(look(&dataset.snapshot()), (23, "primary scan"));
    drop(snapshot);
    assert_agrees(&store);
}

/// Checks, index creations and drops, and merges at the same time find no damage and do not fail.
#[test]
fn checks_run_beside_index_creations_and_drops() {
    let (_, seed) = seeded(95);
    let storage = Arc::new(MemoryStorage::new());
    let store = open_with(&storage, Options { background: true, ..small_options() });
    let dataset = store.create_dataset("d", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut rng = <rand::rngs::SmallRng as rand::SeedableRng>::seed_from_u64(seed);
        let (writer, stop) = (dataset.clone(), &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let key = key(&mut rng, KeyType::Int64, 200);
                writer.upsert(&record(&mut rng, key, true)).unwrap();
            }
        });
        let changer = dataset.clone();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                changer.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
                changer.drop_index("sizes").unwrap();
            }
        });
        let merger = dataset.clone();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                merger.flush().unwrap();
                merger.compact().unwrap();
            }
        });
        for _ in 0..150 {
            let report = store.check(false).unwrap();
            assert!(report.findings.is_empty(), "{report}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(dataset);
    store.close().unwrap();
    assert_agrees(&open(&storage));
}

/// An unfinished index is dropped while the next session begins to complete it.
#[test]
fn dropping_an_index_during_its_completion_fails_nothing() {
    let (mut rng, _) = seeded(96);
    for round in 0..30 {
        let storage = Arc::new(MemoryStorage::new());
        let store = open_with(&storage, Options { background: true, ..small_options() });
        let dataset = store.create_dataset("d", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
        (0..300).for_each(|number| dataset.upsert(&record(&mut rng, Key::Int(number), true)).unwrap());
        dataset.flush().unwrap();
        // Closed during the completion, or just before or after it.
        std::thread::scope(|scope| {
            let creator = dataset.clone();
            let created = scope.spawn(move || creator.create_index("sizes", IndexKind::BTree, &["size"]));
            if round % 2 == 0 {
                while store.info().unwrap().datasets[0].indexes.len() == 2 && !created.is_finished() {}
            }
            store.close().unwrap();
            drop(created.join().unwrap());
        });
        drop(dataset);
        let store = open_with(&storage, Options { background: true, ..small_options() });
        let dataset = store.dataset("d").unwrap();
        if store.info().unwrap().datasets[0].indexes.len() > 2 {
            dataset.drop_index("sizes").unwrap();
        }
        drop(dataset);
        store.close().unwrap();
        let store = open(&storage);
        assert_eq!(store.info().unwrap().datasets[0].indexes.len(), 2);
        assert_agrees(&store);
    }
}
