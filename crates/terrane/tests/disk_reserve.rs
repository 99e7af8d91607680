//! A full disk: what makes room goes on with the reserve, what brings more waits until it is whole again.

use std::sync::Arc;

use crate::support::files::{files_of, memory_of};
use crate::support::workload::{MAIN, first_schema, options};
use terrane::{
    Dataset, DatasetOptions, DiskReserve, Durability, Error, IndexKind, Key, LogOptions, MergePolicy, Options, Query,
    Record, Store, Value, schema::Schema,
};
use terrane_storage::{MemoryStorage, OpenMode, Storage};

const RESERVE: &str = "RESERVE";
/// Room for what the tests flush and merge.
const BYTES: u64 = 96 << 10;

fn reserving(disk_reserve: DiskReserve) -> Options {
    Options {
        disk_reserve,
        log: LogOptions { segment_size: 24 << 10, first_segment_size: 12 << 10, spare_segments: 1 },
        ..options(Durability::Power)
    }
}

fn record(key: i64) -> Record {
    Record::at(key, key as f64, -1.0, vec![Value::Utf8("a name of some length".into()), Value::Int(key)])
}

fn schema() -> Schema {
    first_schema()
}

fn open(disk: &MemoryStorage, disk_reserve: DiskReserve) -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(disk.clone()), reserving(disk_reserve)).unwrap();
    let dataset = match store.dataset(MAIN) {
        Ok(dataset) => dataset,
        Err(_) => store.create_dataset(MAIN, schema()).unwrap(),
    };
    (store, dataset)
}

fn reserve_len(disk: &MemoryStorage) -> Option<u64> {
    let file = disk.open(RESERVE, OpenMode::Read).ok()?;
    Some(file.len().unwrap())
}

/// Inserts records from a key on until the disk is full; the first key that is not there.
fn fill(dataset: &Dataset, from: i64) -> i64 {
    for key in from.. {
        match dataset.insert(&record(key)) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return key,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("the disk has an end")
}

/// A store with components on a disk that its inserts have filled, and the keys of its records.
fn full_store(disk: &MemoryStorage, disk_reserve: DiskReserve) -> (Store, Dataset, std::ops::Range<i64>) {
    let (store, dataset) = open(disk, disk_reserve);
    (0..400).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    disk.set_capacity(disk.used_bytes() + (64 << 10));
    let end = fill(&dataset, 400);
    (store, dataset, 0..end)
}

fn keys(dataset: &Dataset) -> Vec<i64> {
    let mut keys = Vec::new();
    let visit = |key: terrane::KeyRef<'_>| {
        let terrane::KeyRef::Int(key) = key else { panic!("{key:?}") };
        keys.push(key);
        std::ops::ControlFlow::Continue(())
    };
    dataset.snapshot().visit_window(-1e9, -1e9, 1e9, 1e9, visit).unwrap();
    keys.sort_unstable();
    keys
}

#[test]
fn deletes_flushes_and_merges_go_on_where_inserts_have_filled_the_disk() {
    let disk = MemoryStorage::new();
    let (store, dataset, all) = full_store(&disk, DiskReserve::Bytes(BYTES));
    assert_eq!(reserve_len(&disk), Some(BYTES), "inserts do not take it");
    dataset.flush().unwrap();
    // Nothing is left that a flush would give back.
    disk.set_capacity(disk.used_bytes());
    let mut was_spent = false;
    // More deletes than the log has room for.
    for key in all.clone().filter(|key| key % 10 != 3) {
        assert!(dataset.delete(&Key::Int(key)).unwrap(), "{key}");
        was_spent |= reserve_len(&disk) == Some(0);
    }
    assert!(was_spent, "it is what they took");
    dataset.flush().unwrap();
    dataset.compact().unwrap();
    let left: Vec<i64> = all.clone().filter(|key| key % 10 == 3).collect();
    assert_eq!(keys(&dataset), left);
    // What the merge has freed makes it whole again.
    assert_eq!(reserve_len(&disk), Some(BYTES));
    dataset.insert(&record(all.end)).unwrap();
    store.close().unwrap();
    drop(dataset);
    let (_store, dataset) = open(&disk, DiskReserve::Bytes(BYTES));
    assert_eq!(keys(&dataset), [left, vec![all.end]].concat());
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), keys(&dataset).len() as u64);
}

#[test]
fn merges_go_on_where_flushes_have_filled_the_disk() {
    let disk = MemoryStorage::new();
    let (store, dataset, all) = full_store(&disk, DiskReserve::Bytes(BYTES));
    dataset.set_merge_policy(Some(MergePolicy::Constant { components_max: 9 })).unwrap();
    dataset.flush().unwrap();
    dataset.upsert(&record(0)).unwrap();
    dataset.flush().unwrap();
    let components = |store: &Store| store.info().unwrap().datasets[0].indexes[0].components;
    assert_eq!(components(&store), 3);
    // Enough for the manifest in which the policy is, and for nothing else.
    disk.set_capacity(disk.used_bytes() + (4 << 10));
    dataset.set_merge_policy(None).unwrap();
    assert_eq!(components(&store), 1);
    assert_eq!(keys(&dataset), all.clone().collect::<Vec<_>>());
    disk.set_capacity(u64::MAX);
    dataset.upsert(&record(1)).unwrap();
    dataset.flush().unwrap();
    disk.set_capacity(disk.used_bytes());
    dataset.compact().unwrap();
    assert_eq!((components(&store), reserve_len(&disk)), (1, Some(BYTES)));
    assert_eq!(keys(&dataset), all.collect::<Vec<_>>());
}

#[test]
fn what_has_no_room_with_the_reserve_leaves_it_to_others() {
    const LITTLE: u64 = 6 << 10;
    let disk = MemoryStorage::new();
    let (_store, dataset, all) = full_store(&disk, DiskReserve::Bytes(LITTLE));
    disk.set_capacity(disk.used_bytes());
    assert!(matches!(dataset.compact().unwrap_err(), Error::Full { .. }));
    assert_eq!(reserve_len(&disk), Some(LITTLE));
    assert_eq!(keys(&dataset), all.collect::<Vec<_>>());
}

#[test]
fn without_a_reserve_a_full_disk_has_no_room_for_a_flush() {
    let disk = MemoryStorage::new();
    let (_store, dataset, all) = full_store(&disk, DiskReserve::Bytes(0));
    assert_eq!(reserve_len(&disk), None);
    assert!(matches!(dataset.compact().unwrap_err(), Error::Full { .. }));
    assert_eq!(keys(&dataset), all.collect::<Vec<_>>());
}

#[test]
fn what_brings_more_is_refused_until_the_reserve_is_whole_in_later_sessions_too() {
    let disk = MemoryStorage::new();
    let (store, dataset, all) = full_store(&disk, DiskReserve::Bytes(BYTES));
    dataset.flush().unwrap();
    // Somebody else takes space.
    disk.set_capacity(disk.used_bytes() - BYTES / 2);
    let deleted = all.clone().find(|key| {
        assert!(dataset.delete(&Key::Int(*key)).unwrap(), "{key}");
        reserve_len(&disk) == Some(0)
    });
    let rest = deleted.unwrap() + 1..=all.end;
    let refused = dataset.insert(&record(all.end)).unwrap_err();
    assert!(matches!(&refused, Error::Full { what } if what.contains("reserve")), "{refused}");
    store.close().unwrap();
    drop(dataset);
    // Some space comes free, but not enough.
    disk.set_capacity(disk.used_bytes() + BYTES / 4);
    let (store, dataset) = open(&disk, DiskReserve::Bytes(BYTES));
    assert_eq!(store.info().unwrap().disk_reserve_bytes, Some(0));
    let is_full = |outcome: Result<(), Error>| match outcome {
        Err(Error::Full { what }) => what.contains("reserve"),
        other => panic!("{other:?}"),
    };
    assert!(is_full(dataset.insert(&record(all.end))));
    assert!(is_full(dataset.upsert(&record(0))));
    let mut batch = dataset.atomic_batch();
    batch.delete(&Key::Int(*rest.start())).unwrap();
    batch.upsert(&record(all.end)).unwrap();
    assert!(is_full(batch.commit().map(|_| ())));
    assert!(is_full(dataset.create_index("by_size", IndexKind::BTree, &["size"]).map(|_| ())));
    assert!(is_full(store.importer_with(MAIN, schema(), &DatasetOptions::default()).map(|_| ())));
    assert!(dataset.delete(&Key::Int(*rest.start())).unwrap());
    // More space, from whoever had it.
    disk.set_capacity(disk.used_bytes() + 3 * BYTES);
    dataset.insert(&record(all.end)).unwrap();
    assert_eq!(store.info().unwrap().disk_reserve_bytes, Some(BYTES));
    assert_eq!(keys(&dataset), rest.skip(1).collect::<Vec<_>>());
}

#[test]
fn a_store_is_opened_on_a_full_disk() {
    let disk = MemoryStorage::new();
    let (store, dataset, all) = full_store(&disk, DiskReserve::Bytes(BYTES));
    // As after a kill: nothing is put in order.
    let image = memory_of(&files_of(&disk));
    drop((store, dataset));
    image.set_capacity(image.used_bytes());
    let (_store, dataset) = open(&image, DiskReserve::Bytes(BYTES));
    assert_eq!(keys(&dataset), all.collect::<Vec<_>>());
    assert!(dataset.delete(&Key::Int(0)).unwrap());
}

#[test]
fn the_reserve_has_the_size_that_is_asked_for() {
    let disk = MemoryStorage::new();
    let reopened = |reserve: DiskReserve| {
        let (store, dataset) = open(&disk, reserve);
        drop(dataset);
        store.close().unwrap();
        reserve_len(&disk)
    };
    assert_eq!(reopened(DiskReserve::Automatic), None, "nothing is stored");
    assert_eq!(reopened(DiskReserve::Bytes(50_000)), Some(50_000));
    assert_eq!(reopened(DiskReserve::Bytes(40_000)), Some(40_000));
    let (store, dataset) = open(&disk, DiskReserve::Bytes(0));
    assert_eq!(reserve_len(&disk), None);
    (0..400).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    drop(dataset);
    store.close().unwrap();
    assert_eq!(reopened(DiskReserve::Automatic), Some(2 << 20));
    assert_eq!(reopened(DiskReserve::Automatic), Some(2 << 20));
}

#[test]
fn a_store_that_was_emptied_needs_no_reserve() {
    let disk = MemoryStorage::new();
    let (store, dataset, all) = full_store(&disk, DiskReserve::Automatic);
    dataset.flush().unwrap();
    disk.set_capacity(disk.used_bytes() - (1 << 20));
    all.clone().for_each(|key| assert!(dataset.delete(&Key::Int(key)).unwrap(), "{key}"));
    assert_eq!(store.info().unwrap().disk_reserve_bytes, Some(0));
    dataset.compact().unwrap();
    let info = store.info().unwrap();
    assert_eq!((info.datasets[0].indexes[0].components, info.disk_reserve_bytes), (0, None));
    dataset.insert(&record(0)).unwrap();
    assert_eq!(keys(&dataset), [0]);
}

#[test]
fn where_there_was_never_room_for_a_reserve_inserts_go_on() {
    let disk = MemoryStorage::new();
    disk.set_capacity(300 << 10);
    let (_store, dataset) = open(&disk, DiskReserve::Automatic);
    (0..200).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    assert_eq!(reserve_len(&disk), None);
    (200..300).for_each(|key| dataset.insert(&record(key)).unwrap());
    assert_eq!(keys(&dataset), (0..300).collect::<Vec<_>>());
}

/// A long log is flushed when a store is opened, which is no reason to refuse it where there is no room for that.
#[test]
fn a_store_with_a_long_log_is_opened_on_a_disk_without_room_for_a_flush() {
    let disk = MemoryStorage::new();
    let (store, dataset) = open(&disk, DiskReserve::Bytes(0));
    disk.set_capacity(400 << 10);
    let end = fill(&dataset, 0);
    // As a kill leaves it.
    let files = files_of(&disk);
    drop((store, dataset));
    let disk = memory_of(&files);
    assert!(disk.list("log").unwrap().len() > 6, "{:?}", disk.list("log"));
    disk.set_capacity(disk.used_bytes() + (14 << 10));
    let (store, dataset) = open(&disk, DiskReserve::Bytes(0));
    assert_eq!(keys(&dataset), (0..end).collect::<Vec<_>>());
    assert!(matches!(dataset.flush(), Err(Error::Full { .. })), "there was no room");
    assert!(dataset.delete(&Key::Int(7)).unwrap());
    disk.set_capacity(1 << 30);
    dataset.flush().unwrap();
    assert_eq!(keys(&dataset).len(), end as usize - 1);
    drop(dataset);
    store.close().unwrap();
}
