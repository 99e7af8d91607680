//! A disk that was filled: all of it can be deleted again, with a reserve that is a small part of the store, and looked at
//! meanwhile.

use std::sync::Arc;

use crate::support::keys_of;
use crate::support::workload::{MAIN, first_schema, options};
use terrane::{
    Condition, Dataset, DatasetOptions, DiskReserve, Durability, Error, IndexKind, IndexOptions, Key, LogOptions,
    Options, Query, Record, Store, Value,
};
use terrane_testkit::MemoryStorage;

/// Bytes of the disk, and of the reserve: a small part, as that of a large store is.
const DISK: u64 = 12 << 20;
const RESERVE: u64 = DISK / 60;
/// Records that are merged before the others come, about half of all.
const COMPACTED: i64 = 10_000;

fn small_log() -> Options {
    Options {
        disk_reserve: DiskReserve::Bytes(RESERVE),
        memory_limit: 64 << 20,
        log: LogOptions { segment_size: 256 << 10, first_segment_size: 16 << 10, spare_segments: 1 },
        ..options(Durability::Power)
    }
}

fn record(key: i64) -> Record {
    let name = format!("{}number{}", "fill ".repeat(80), key % 50);
    Record::at(
        key,
        (key * 7919 % 1000) as f64,
        (key * 104_729 % 997) as f64,
        vec![Value::Utf8(name), Value::Int(key % 100)],
    )
}

/// A store that has filled a disk, with indexes of several kinds, and the number of its records.
fn full_store(disk: &MemoryStorage, partitions: usize) -> (Store, Dataset, i64) {
    let store = Store::open_on(Arc::new(disk.clone()), small_log()).unwrap();
    let options = DatasetOptions { partitions };
    let dataset = store.create_dataset_with(MAIN, first_schema(), &options).unwrap();
    dataset.create_index("by_size", IndexKind::BTree, &["size"]).unwrap();
    let grid = IndexOptions::default().domain(0.0, 0.0, 1000.0, 1000.0);
    dataset.create_index_with("in_cells", IndexKind::Shb, &[], &grid).unwrap();
    dataset.create_index("words", IndexKind::Inverted, &["name"]).unwrap();
    disk.set_capacity(DISK);
    for key in 0.. {
        if key == COMPACTED {
            // One large component of each index, which no merge has room for later.
            dataset.compact().unwrap();
        }
        match dataset.insert(&record(key)) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return (store, dataset, key),
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("the disk has an end")
}

/// What every index finds is what is there.
fn assert_holds(dataset: &Dataset, keys: &[i64]) {
    let snapshot = dataset.snapshot();
    let found = |query: &Query| {
        let mut found = keys_of(&snapshot, query);
        found.sort();
        found
    };
    let expected = |wanted: &dyn Fn(&i64) -> bool| -> Vec<Key> {
        keys.iter().filter(|key| wanted(key)).map(|&key| Key::Int(key)).collect()
    };
    assert_eq!(found(&Query::new()), expected(&|_| true));
    let place = |key: &i64| (key * 7919 % 1000, key * 104_729 % 997);
    let window = |key: &i64| (100..=420).contains(&place(key).0) && (300..=700).contains(&place(key).1);
    for index in ["geometry", "in_cells"] {
        let query = Query::new().window(100.0, 300.0, 420.0, 700.0).using_index(index);
        assert_eq!(found(&query), expected(&window), "{index}");
    }
    for (condition, index) in [("size = 17", "by_size"), ("name match 'number17'", "words")] {
        let query = Query::new().condition(Condition::parse(condition).unwrap()).using_index(index);
        let number = if index == "words" { 50 } else { 100 };
        assert_eq!(found(&query), expected(&|key| key % number == 17), "{condition}");
    }
    let mut nearest = Vec::new();
    let visit = |_: terrane::KeyRef<'_>, distance: f64| {
        nearest.push(distance);
        std::ops::ControlFlow::Continue(())
    };
    snapshot.visit_nearest(500.0, 500.0, 10, visit).unwrap();
    let distance = |key: &i64| ((place(key).0 - 500).pow(2) + (place(key).1 - 500).pow(2)) as f64;
    let mut distances: Vec<f64> = keys.iter().map(|key| distance(key).sqrt()).collect();
    distances.sort_by(f64::total_cmp);
    distances.truncate(10);
    assert_eq!(nearest, distances);
}

#[test]
fn all_that_filled_a_disk_can_be_deleted_one_by_one() {
    for partitions in [1, 2] {
        let disk = MemoryStorage::new();
        let (store, dataset, end) = full_store(&disk, partitions);
        // In an order that leaves something everywhere until the end.
        let mut keys: Vec<i64> = (0..end).collect();
        let mut left = keys.clone();
        keys.sort_by_key(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64));
        for (number, key) in keys.iter().enumerate() {
            assert!(dataset.delete(&Key::Int(*key)).unwrap(), "{key}");
            if number % 4000 == 3999 {
                left.retain(|key| !keys[..=number].contains(key));
                assert_holds(&dataset, &left);
            }
        }
        assert_holds(&dataset, &[]);
        for key in 0..100 {
            dataset.insert(&record(key)).unwrap();
        }
        assert_holds(&dataset, &(0..100).collect::<Vec<i64>>());
        let report = store.check(false).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// By one call, whose own snapshots do not stand in its way.
#[test]
fn all_that_filled_a_disk_can_be_deleted_by_a_condition() {
    for partitions in [1, 2] {
        let disk = MemoryStorage::new();
        let (store, dataset, end) = full_store(&disk, partitions);
        let kept = 20..100;
        let condition = Condition::parse("size < 20 or size >= 100").unwrap();
        let left: Vec<i64> = (0..end).filter(|key| kept.contains(&(key % 100))).collect();
        let some = dataset.delete_where(&condition, &[]).unwrap();
        assert_eq!(some, end as u64 - left.len() as u64);
        assert_holds(&dataset, &left);
        let rest = dataset.delete_where(&Condition::parse("size >= 0").unwrap(), &[]).unwrap();
        assert_eq!(rest, left.len() as u64);
        assert_holds(&dataset, &[]);
        let report = store.check(false).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// A reader in another process has the files as they were when it opened them; what they have is given up when it has gone.
#[test]
fn readers_beside_keep_what_they_have_opened() {
    let disk = MemoryStorage::new();
    let (_store, dataset, end) = full_store(&disk, 1);
    let all: Vec<i64> = (0..end).collect();
    let reader = Store::open_read_only_on(Arc::new(disk.clone()), small_log()).unwrap();
    let read = reader.dataset(MAIN).unwrap();
    let mut deleted = 0;
    let mut delete = |dataset: &Dataset, until: i64| -> bool {
        while deleted < until {
            match dataset.delete(&Key::Int(deleted)) {
                Ok(is_there) => assert!(is_there, "{deleted}"),
                Err(Error::Full { .. }) => return false,
                Err(other) => panic!("{other}"),
            }
            deleted += 1;
        }
        true
    };
    assert!(!delete(&dataset, end), "merges found room although nothing could be given up");
    assert_holds(&read, &all);
    drop((read, reader));
    assert!(delete(&dataset, end), "the files were not given up");
    assert_holds(&dataset, &[]);
}
