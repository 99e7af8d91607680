//! A full disk: what makes room goes on with the reserve, what brings more waits until it is whole again.

use std::sync::Arc;

use crate::support::files::{files_of, memory_of, put_files};
use crate::support::workload::{MAIN, first_schema, options};
use terrane::{
    Dataset, DatasetOptions, DiskReserve, Durability, Error, IndexKind, Key, LogOptions, MergePolicy, Options, Query,
    Record, Store, Value, schema::Schema,
};
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;

const RESERVE: &str = "RESERVE";
/// What only merges by front parts and opening have of a reserve of 2 MiB and more.
const LAST: u64 = (512 << 10) - 512;
/// Room for what the tests flush and merge.
const BYTES: u64 = 96 << 10;
/// Records of a few MiB.
const COUNT: i64 = 20_000;

fn reserving(disk_reserve: DiskReserve) -> Options {
    Options {
        disk_reserve,
        log: LogOptions { segment_size: 24 << 10, first_segment_size: 12 << 10, spare_segments: 1 },
        ..options(Durability::Power)
    }
}

/// With memory for more than the disks of the tests take.
fn roomy(disk_reserve: DiskReserve) -> Options {
    Options {
        memory_limit: 256 << 20,
        log: LogOptions { segment_size: 256 << 10, first_segment_size: 12 << 10, spare_segments: 2 },
        ..reserving(disk_reserve)
    }
}

fn record(key: i64) -> Record {
    Record::at(key, key as f64, -1.0, vec![Value::Utf8("a name of some length".into()), Value::Int(key)])
}

fn schema() -> Schema {
    first_schema()
}

fn open(disk: &MemoryStorage, disk_reserve: DiskReserve) -> (Store, Dataset) {
    open_with(disk, reserving(disk_reserve))
}

fn open_with(disk: &MemoryStorage, options: Options) -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
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

/// Whether there is so much in reserve for deletes and merges. The flush of memory has its place beside that.
fn keeps(disk: &MemoryStorage, bytes: u64) -> bool {
    reserve_len(disk).is_some_and(|len| (bytes..bytes + BYTES).contains(&len))
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
    assert!(keeps(&disk, BYTES), "inserts do not take it: {:?}", reserve_len(&disk));
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
    assert!(keeps(&disk, BYTES), "{:?}", reserve_len(&disk));
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
    disk.set_capacity(disk.used_bytes() + (64 << 10));
    for _ in 0..2 {
        dataset.upsert(&record(0)).unwrap();
        dataset.flush().unwrap();
    }
    let components = |store: &Store| store.info().unwrap().datasets[0].indexes[0].components;
    assert!(components(&store) >= 3);
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
    assert_eq!(components(&store), 1);
    assert!(keeps(&disk, BYTES), "{:?}", reserve_len(&disk));
    assert_eq!(keys(&dataset), all.collect::<Vec<_>>());
}

#[test]
fn what_has_no_room_with_the_reserve_leaves_it_to_others() {
    const LITTLE: u64 = 6 << 10;
    let disk = MemoryStorage::new();
    let (_store, dataset, all) = full_store(&disk, DiskReserve::Bytes(LITTLE));
    disk.set_capacity(disk.used_bytes());
    assert!(matches!(dataset.compact().unwrap_err(), Error::Full { .. }));
    assert!(keeps(&disk, LITTLE), "{:?}", reserve_len(&disk));
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

/// How many bytes have to come free, as a refusal says.
#[track_caller]
fn missing(refused: &Error) -> u64 {
    let message = refused.to_string();
    let bytes = message.split_once("until ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    bytes.expect(&message)
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
    // As much space as the message asks for, from whoever had it.
    let refused = dataset.insert(&record(all.end)).unwrap_err();
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    dataset.insert(&record(all.end)).unwrap();
    assert!(keeps(&disk, BYTES));
    assert_eq!(store.info().unwrap().disk_reserve_bytes, reserve_len(&disk));
    assert_eq!(keys(&dataset), rest.skip(1).collect::<Vec<_>>());
}

/// Before deletes have taken anything of the reserve.
#[test]
fn what_the_log_has_no_room_for_is_refused_until_so_many_bytes_are_free() {
    let disk = MemoryStorage::new();
    let (_store, dataset, all) = full_store(&disk, DiskReserve::Bytes(BYTES));
    let refused = dataset.insert(&record(all.end)).unwrap_err();
    assert!(refused.to_string().contains("another file of the log"), "{refused}");
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    dataset.insert(&record(all.end)).unwrap();
    assert!(keeps(&disk, BYTES));
}

#[test]
fn a_store_is_opened_on_a_full_disk() {
    let disk = MemoryStorage::new();
    let (store, dataset, all) = full_store(&disk, DiskReserve::Bytes(BYTES));
    // As after a kill: nothing is put in order.
    let files = files_of(&disk);
    drop((store, dataset));
    // On some there is no room even for the number of the process.
    for taken_by_others in [0, 100] {
        let image = memory_of(&files);
        image.set_capacity(image.used_bytes() - taken_by_others);
        let (_store, dataset) = open(&image, DiskReserve::Bytes(BYTES));
        assert_eq!(keys(&dataset), all.clone().collect::<Vec<_>>());
        assert!(dataset.delete(&Key::Int(0)).unwrap());
    }
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
    assert_eq!(store.info().unwrap().disk_reserve_bytes, Some(LAST));
    assert!(store.info().unwrap().to_string().contains("the disk was full, its reserve is in use"));
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
    assert!(reserve_len(&disk).is_none_or(|bytes| bytes < 300 << 10));
    (200..300).for_each(|key| dataset.insert(&record(key)).unwrap());
    assert_eq!(keys(&dataset), (0..300).collect::<Vec<_>>());
}

/// The same disk as it is now, with no more room than is taken, as if the process were killed and another program had taken the rest.
fn taken(disk: &MemoryStorage) -> MemoryStorage {
    let image = memory_of(&files_of(disk));
    image.set_capacity(image.used_bytes());
    image
}

/// What is in memory has room on disk at any time, be it in the reserve.
#[test]
fn inserts_never_bring_more_into_memory_than_has_room_in_components() {
    for reserve in [DiskReserve::Automatic, DiskReserve::Bytes(8 << 10)] {
        let disk = MemoryStorage::new();
        disk.set_capacity(4 << 20);
        let (_store, dataset) = open_with(&disk, roomy(reserve));
        // Before that there was less than one file of the log.
        (0..400).for_each(|key| dataset.insert(&record(key)).unwrap());
        let mut looked_at = 0;
        let end = (400..)
            .find(|&key| match dataset.insert(&record(key)) {
                Ok(()) if key % 1499 == 0 => {
                    let (_store, dataset) = open_with(&taken(&disk), roomy(reserve));
                    merged_or_not(dataset.flush()).unwrap_or_else(|error| panic!("after {key}, {reserve:?}: {error}"));
                    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), key as u64 + 1);
                    looked_at += 1;
                    false
                }
                Ok(()) => false,
                Err(Error::Full { .. }) => true,
                Err(other) => panic!("{other}"),
            })
            .unwrap();
        // They end where the disk does.
        let stored: u64 = disk.list("components").unwrap().iter().map(|name| len_of(&disk, name)).sum();
        assert!(looked_at > 10 && stored > 3 << 19, "{looked_at} times, {stored} bytes of components, {reserve:?}");
        if reserve != DiskReserve::Automatic {
            // What is kept is too little for many deletes.
            continue;
        }
        // Nothing is left for anybody.
        let disk = taken(&disk);
        let (_store, dataset) = open_with(&disk, roomy(reserve));
        let all = 0..end;
        all.clone()
            .filter(|key| key % 10 != 3)
            .for_each(|key| assert!(dataset.delete(&Key::Int(key)).unwrap(), "{key}"));
        dataset.compact().unwrap();
        dataset.insert(&record(end)).unwrap();
        let left: Vec<i64> = all.filter(|key| key % 10 == 3).collect();
        assert_eq!(keys(&dataset), [left, vec![end]].concat());
    }
}

/// What was flushed or closed, be it that there was no room for the merges.
fn merged_or_not(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(Error::Unmerged { cause, .. }) if matches!(*cause, Error::Full { .. }) => Ok(()),
        outcome => outcome,
    }
}

fn len_of(disk: &MemoryStorage, component: &str) -> u64 {
    disk.open(&format!("components/{component}"), OpenMode::Read).unwrap().len().unwrap()
}

/// Threads fill the disk while flushes and merges in the background use the reserve and give it back, or not yet.
#[test]
fn threads_that_fill_a_disk_leave_room_for_what_they_brought() {
    const THREADS: i64 = 4;
    let disk = MemoryStorage::new();
    disk.set_capacity(6 << 20);
    let options = Options { background: true, threads_max: None, ..roomy(DiskReserve::Automatic) };
    let (store, dataset) = open_with(&disk, options.clone());
    let inserted: u64 = std::thread::scope(|scope| {
        let fill = |first: i64| {
            let keys = (first..).step_by(THREADS as usize);
            keys.take_while(|&key| match dataset.insert(&record(key)) {
                Ok(()) => true,
                Err(Error::Full { .. }) => false,
                Err(other) => panic!("{other}"),
            })
            .count() as u64
        };
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || fill(first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), inserted);
    let stored = inserted * 150;
    assert!(stored > 2 << 20, "{inserted} records are no reason for a full disk of 6 MiB");
    merged_or_not(store.close()).unwrap();
    drop(dataset);
    let (_store, dataset) = open_with(&disk, Options { background: false, ..options });
    merged_or_not(dataset.flush()).unwrap();
    assert!(dataset.delete(&Key::Int(0)).unwrap());
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), inserted - 1);
}

#[test]
fn a_flush_has_the_space_of_the_spare_files_of_the_log() {
    let disk = MemoryStorage::new();
    let (_store, dataset) = open_with(&disk, roomy(DiskReserve::Bytes(0)));
    (0..8000).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    let files = disk.list("log").unwrap().len();
    assert!(files > 1);
    (8000..8200).for_each(|key| dataset.insert(&record(key)).unwrap());
    disk.set_capacity(disk.used_bytes());
    dataset.flush().unwrap();
    assert!(disk.list("log").unwrap().len() < files);
    assert_eq!(keys(&dataset), (0..8200).collect::<Vec<_>>());
}

/// Deletes on a disk on which others take all that comes free, until there is nothing: then the process is killed.
#[test]
fn deletes_leave_what_it_takes_to_open_the_store_and_to_free_what_they_have_deleted() {
    let disk = MemoryStorage::new();
    let mut options = roomy(DiskReserve::Automatic);
    options.log.spare_segments = 0;
    let (_store, dataset) = open_with(&disk, options.clone());
    (0..COUNT).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    let deleted = (0..COUNT).take_while(|&key| {
        disk.set_capacity(disk.used_bytes());
        match dataset.delete(&Key::Int(key)) {
            Ok(is_deleted) => is_deleted,
            Err(Error::Full { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    });
    let deleted = deleted.count() as i64;
    assert!((1000..COUNT / 2).contains(&deleted), "{deleted} deleted on a disk without room");
    assert_eq!(reserve_len(&disk), Some(LAST));
    let disk = taken(&disk);
    let (_store, dataset) = open_with(&disk, options);
    assert_eq!(keys(&dataset), (deleted..COUNT).collect::<Vec<_>>());
    // Others give a little back.
    disk.set_capacity(disk.used_bytes() + (128 << 10));
    (deleted..COUNT).for_each(|key| assert!(dataset.delete(&Key::Int(key)).unwrap(), "{key}"));
    assert!(keys(&dataset).is_empty());
}

/// Others have all of the reserve, and leave some room, but less than its last bytes.
#[test]
fn deletes_do_not_take_what_the_disk_has_for_opening_and_merges() {
    let disk = MemoryStorage::new();
    let mut options = roomy(DiskReserve::Bytes(4 << 20));
    options.log.spare_segments = 0;
    let (store, dataset) = open_with(&disk, options.clone());
    (0..COUNT).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    drop(dataset);
    store.close().unwrap();
    disk.open(RESERVE, OpenMode::Write).unwrap().set_len(0).unwrap();
    disk.set_capacity(disk.used_bytes() + LAST / 2);
    let (_store, dataset) = open_with(&disk, options);
    // Fewer than would make a merge of what they leave worth while.
    let mut deletes = (0..COUNT / 40).map(|key| (key, dataset.delete(&Key::Int(key))));
    let (next, refused) = deletes.find_map(|(key, outcome)| Some((key, outcome.err()?))).unwrap();
    assert!(matches!(&refused, Error::Full { .. }), "{refused}");
    assert!(reserve_len(&disk).unwrap() > LAST / 2, "{:?}", reserve_len(&disk));
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    assert!(dataset.delete(&Key::Int(next)).unwrap());
    assert_eq!(keys(&dataset), (next + 1..COUNT).collect::<Vec<_>>());
}

/// They come after the usual merges, which have no room with the rest of it.
#[test]
fn merges_by_front_parts_have_the_last_of_the_reserve() {
    let disk = MemoryStorage::new();
    let mut options = roomy(DiskReserve::Bytes(4 << 20));
    options.log.spare_segments = 0;
    let (_store, dataset) = open_with(&disk, options);
    (0..COUNT).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    let is_left = |key: &i64| key % 4 == 3;
    (0..COUNT).filter(|key| !is_left(key)).for_each(|key| assert!(dataset.delete(&Key::Int(key)).unwrap(), "{key}"));
    dataset.flush().unwrap();
    // Others take what all but the last bytes give up.
    disk.set_capacity(disk.used_bytes() - (reserve_len(&disk).unwrap() - LAST));
    let before = disk.used_bytes();
    dataset.compact().unwrap();
    assert_eq!(keys(&dataset), (0..COUNT).filter(is_left).collect::<Vec<_>>());
    assert!(disk.used_bytes() < before);
}

/// Each session begins a file of the log, which the next one gives up again.
#[test]
fn any_number_of_short_sessions_goes_on_on_a_full_disk() {
    let disk = MemoryStorage::new();
    let mut options = roomy(DiskReserve::Automatic);
    options.log.first_segment_size = 256 << 10;
    let (store, dataset) = open_with(&disk, options.clone());
    (0..2000).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    drop(dataset);
    store.close().unwrap();
    // Twice as much as a session takes at first.
    let reserve = disk.open(RESERVE, OpenMode::Write).unwrap();
    reserve.set_len(512 << 10).unwrap();
    disk.set_capacity(disk.used_bytes());
    for key in 0..60 {
        let (store, dataset) = open_with(&disk, options.clone());
        if key % 3 == 2 {
            let refused = dataset.insert(&record(5000)).unwrap_err();
            assert!(matches!(refused, Error::Full { .. }), "{refused}");
        } else {
            assert!(dataset.delete(&Key::Int(key)).unwrap());
        }
        drop(dataset);
        // Every other session ends with a kill.
        if key % 2 == 0 {
            merged_or_not(store.close()).unwrap();
        }
    }
    assert_eq!(open_with(&disk, options).1.snapshot().count(&Query::new()).unwrap(), 1960);
}

#[test]
fn a_store_is_opened_where_a_usual_file_of_the_log_has_no_room() {
    let disk = MemoryStorage::new();
    let mut options = roomy(DiskReserve::Bytes(0));
    options.log.first_segment_size = 256 << 10;
    let (store, dataset) = open_with(&disk, options.clone());
    (0..2000).for_each(|key| dataset.insert(&record(key)).unwrap());
    drop((store, dataset));
    disk.set_capacity(disk.used_bytes() + (64 << 10));
    let (_store, dataset) = open_with(&disk, options);
    assert!(dataset.delete(&Key::Int(7)).unwrap());
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 1999);
}

/// What is left of the reserve is for the flush of the deletes, too.
#[test]
fn deletes_take_little_for_the_log_while_the_reserve_is_in_use() {
    let disk = MemoryStorage::new();
    let mut options = roomy(DiskReserve::Bytes(1 << 20));
    options.log.spare_segments = 0;
    let (store, dataset) = open_with(&disk, options.clone());
    (0..1000).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    drop(dataset);
    store.close().unwrap();
    // It was given up, and others have half of it.
    disk.open(RESERVE, OpenMode::Write).unwrap().set_len(0).unwrap();
    disk.set_capacity(disk.used_bytes() + (512 << 10));
    let (_store, dataset) = open_with(&disk, options);
    let files = disk.list("log").unwrap();
    (0..1000).for_each(|key| assert!(dataset.delete(&Key::Int(key)).unwrap(), "{key}"));
    let new: Vec<String> = disk.list("log").unwrap().into_iter().filter(|name| !files.contains(name)).collect();
    assert!(!new.is_empty());
    for name in new {
        let bytes = disk.open(&format!("log/{name}"), OpenMode::Read).unwrap().len().unwrap();
        assert_eq!(bytes, 12 << 10, "{name}");
    }
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

/// Copies of a store may leave out what is all zeros.
#[test]
fn a_reserve_that_was_copied_without_its_space_gets_it_again() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    // A size that is let be as long as it is about right.
    let options = reserving(DiskReserve::Automatic);
    let path = directory.path().join("store");
    let store = Store::open(&path, options.clone()).unwrap();
    let dataset = store.create_dataset(MAIN, schema()).unwrap();
    (0..10).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    // As a kill leaves it.
    let copy = directory.path().join("copy");
    put_files(&RealStorage::new(&copy), &files_of(&RealStorage::new(&path)));
    let reserve = copy.join(RESERVE);
    let found = std::fs::metadata(&reserve).unwrap();
    assert!(found.len() >= 2 << 20, "{found:?}");
    let allocated = || std::fs::metadata(&reserve).unwrap().blocks() * 512;
    std::fs::File::create(&reserve).unwrap().set_len(found.len()).unwrap();
    assert!(allocated() < found.len(), "the file system knows holes");
    let copy = Store::open(&copy, options).unwrap();
    assert!(allocated() >= found.len());
    copy.close().unwrap();
    drop(dataset);
    store.close().unwrap();
}
