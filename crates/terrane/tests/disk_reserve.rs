//! A full disk refuses inserts and loses nothing. Deletes continue while the reserve lasts; flushes
//! and drops end.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::files::{Files, files_of, memory_of, put_files};
use crate::support::seeded;
use crate::support::workload::{MAIN, SIDE, first_schema, options};
use rand::Rng;
use terrane::{
    Dataset, DatasetOptions, DiskReserve, Durability, Error, IndexKind, Key, KeyRef, LogOptions, MergePolicy, Options,
    Record, Store, Value,
};
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Budget, Controller};

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

/// With memory for more than the disks of the tests take.
fn roomy(disk_reserve: DiskReserve) -> Options {
    Options {
        memory_limit: 64 << 20,
        log: LogOptions { segment_size: 256 << 10, first_segment_size: 12 << 10, spare_segments: 2 },
        ..reserving(disk_reserve)
    }
}

fn record(key: i64) -> Record {
    Record::at(key, key as f64, -1.0, vec![Value::Utf8("a name of some length".into()), Value::Int(key)])
}

fn open_with(disk: &MemoryStorage, options: Options) -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
    let dataset = store.dataset(MAIN).or_else(|_| store.create_dataset(MAIN, first_schema())).unwrap();
    (store, dataset)
}

fn open(disk: &MemoryStorage, disk_reserve: DiskReserve) -> (Store, Dataset) {
    open_with(disk, reserving(disk_reserve))
}

fn close((store, dataset): (Store, Dataset)) {
    drop(dataset);
    happens(store.close());
}

fn reserve_len(disk: &dyn Storage) -> Option<u64> {
    disk.open(RESERVE, OpenMode::Read).ok().map(|file| file.len().unwrap())
}

/// The store of a process that was killed, on a disk of which others have taken the rest.
fn killed(disk: &MemoryStorage) -> MemoryStorage {
    let image = memory_of(&files_of(disk));
    image.set_capacity(image.used_bytes());
    image
}

/// Whether something happened, or the disk had no room for it.
#[track_caller]
fn happens<T>(outcome: Result<T, Error>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(Error::Full { .. }) => false,
        Err(Error::Unmerged { cause, .. }) if matches!(*cause, Error::Full { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

/// How many bytes have to be free, as a refusal says.
#[track_caller]
fn missing(refused: &Error) -> u64 {
    let message = refused.to_string();
    assert!(matches!(refused, Error::Full { .. }), "{message}");
    let bytes = message.split_once("until ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    bytes.expect(&message)
}

/// A store with components on a disk that its inserts have filled, and the first key that it does
/// not have.
fn full_store(disk: &MemoryStorage, disk_reserve: DiskReserve) -> (Store, Dataset, i64) {
    let (store, dataset) = open(disk, disk_reserve);
    (0..400).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    disk.set_capacity(disk.used_bytes() + (64 << 10));
    let end = (400..).find(|key| !happens(dataset.insert(&record(*key)))).unwrap();
    (store, dataset, end)
}

fn keys(dataset: &Dataset) -> Vec<i64> {
    let mut keys = Vec::new();
    let visit = |key: KeyRef<'_>| {
        let KeyRef::Int(key) = key else { panic!("{key:?}") };
        keys.push(key);
        ControlFlow::Continue(())
    };
    dataset.snapshot().visit_window(-1e9, -1e9, 1e9, 1e9, visit).unwrap();
    keys.sort_unstable();
    keys
}

fn delete(dataset: &Dataset, key: i64) -> bool {
    happens(dataset.delete(&Key::Int(key)).inspect(|is_there| assert!(is_there, "{key}")))
}

#[test]
fn a_full_disk_refuses_inserts_until_as_much_is_free_as_it_says() {
    let disk = MemoryStorage::new();
    let (_store, dataset, end) = full_store(&disk, DiskReserve::Bytes(BYTES));
    assert!(reserve_len(&disk) >= Some(BYTES), "inserts do not take it: {:?}", reserve_len(&disk));
    let refused = dataset.insert(&record(end)).unwrap_err();
    assert!(refused.to_string().contains("another file of the log"), "{refused}");
    assert_eq!(keys(&dataset), (0..end).collect::<Vec<_>>());
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    dataset.insert(&record(end)).unwrap();
    assert_eq!(keys(&dataset), (0..=end).collect::<Vec<_>>());
}

#[test]
fn deletes_continue_with_the_reserve_and_make_room_for_inserts() {
    let disk = MemoryStorage::new();
    let (store, dataset, end) = full_store(&disk, DiskReserve::Bytes(BYTES));
    happens(dataset.flush());
    // Nothing is left that a flush would give back.
    disk.set_capacity(disk.used_bytes());
    let unreserved = killed(&disk);
    (0..end).filter(|key| key % 10 != 3).for_each(|key| assert!(delete(&dataset, key), "{key}"));
    dataset.flush().unwrap();
    dataset.compact().unwrap();
    assert!(reserve_len(&disk) >= Some(BYTES), "it is whole again");
    dataset.insert(&record(end)).unwrap();
    let left: Vec<i64> = (0..=end).filter(|key| key % 10 == 3 || *key == end).collect();
    assert_eq!(keys(&dataset), left);
    close((store, dataset));
    assert_eq!(keys(&open(&disk, DiskReserve::Bytes(BYTES)).1), left);
    // Of a store that does without, others have the space.
    let (_store, dataset) = open(&unreserved, DiskReserve::Bytes(0));
    unreserved.set_capacity(unreserved.used_bytes());
    assert!(!(0..end).filter(|key| key % 10 != 3).all(|key| delete(&dataset, key)), "there was room without it");
}

#[test]
fn deletes_are_refused_when_the_reserve_is_used_up_and_continue_when_there_is_space() {
    let disk = MemoryStorage::new();
    let options = Options {
        merge_policy: MergePolicy::Constant { components_max: usize::MAX },
        ..reserving(DiskReserve::Bytes(BYTES))
    };
    let (_store, dataset) = open_with(&disk, options.clone());
    (0..4000).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    // Others take all that comes free.
    let deleted = (0..4000).find(|key| {
        disk.set_capacity(disk.used_bytes());
        !delete(&dataset, *key)
    });
    let deleted = deleted.expect("the reserve has an end");
    assert!(deleted > 100, "{deleted} deletes");
    let info = dataset_info(&disk, &options);
    assert!(info.contains("its reserve is released"), "{info}");
    assert_eq!(keys(&dataset), (deleted..4000).collect::<Vec<_>>());
    let refused = dataset.delete(&Key::Int(deleted)).unwrap_err();
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    assert!(delete(&dataset, deleted));
    assert!(matches!(dataset.insert(&record(4000)), Err(Error::Full { .. })), "that is too little for the reserve");
    disk.set_capacity(u64::MAX);
    dataset.insert(&record(4000)).unwrap();
    assert_eq!(keys(&dataset), (deleted + 1..=4000).collect::<Vec<_>>());
}

fn dataset_info(disk: &MemoryStorage, options: &Options) -> String {
    let reader = Store::open_read_only_on(Arc::new(disk.clone()), options.clone()).unwrap();
    reader.info().unwrap().to_string()
}

#[test]
fn flushes_and_drops_end_on_a_full_disk() {
    let disk = MemoryStorage::new();
    let (store, dataset) = open(&disk, DiskReserve::Bytes(BYTES));
    let side = store.create_dataset(SIDE, first_schema()).unwrap();
    (0..400).for_each(|key| side.insert(&record(key)).unwrap());
    dataset.create_index("by_size", IndexKind::BTree, &["size"]).unwrap();
    (0..100).for_each(|key| dataset.insert(&record(key)).unwrap());
    disk.set_capacity(disk.used_bytes());
    dataset.flush().unwrap();
    disk.set_capacity(disk.used_bytes());
    dataset.drop_index("by_size").unwrap();
    disk.set_capacity(disk.used_bytes());
    drop(side);
    store.drop_dataset(SIDE).unwrap();
    assert!(disk.list("components").unwrap().len() <= 2, "{:?}", disk.list("components"));
    assert_eq!(keys(&dataset), (0..100).collect::<Vec<_>>());
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn a_merge_that_does_not_fit_is_given_up_and_made_when_there_is_space() {
    let disk = MemoryStorage::new();
    let (store, dataset, end) = full_store(&disk, DiskReserve::Bytes(6 << 10));
    happens(dataset.flush());
    disk.set_capacity(disk.used_bytes());
    assert!(!happens(dataset.compact()));
    assert!(reserve_len(&disk) >= Some(6 << 10), "it is whole again: {:?}", reserve_len(&disk));
    assert_eq!(keys(&dataset), (0..end).collect::<Vec<_>>());
    disk.set_capacity(u64::MAX);
    dataset.insert(&record(end)).unwrap();
    happens(dataset.flush());
    dataset.compact().unwrap();
    assert_eq!(store.info().unwrap().datasets[0].indexes[0].components, 1);
    assert_eq!(keys(&dataset), (0..=end).collect::<Vec<_>>());
}

#[test]
fn whatever_has_inserts_is_refused_while_the_reserve_is_released_in_later_sessions_too() {
    let disk = MemoryStorage::new();
    let (store, dataset, end) = full_store(&disk, DiskReserve::Bytes(BYTES));
    dataset.flush().unwrap();
    // Somebody else takes space.
    disk.set_capacity(disk.used_bytes() - BYTES / 2);
    let is_released = |key: &i64| delete(&dataset, *key) && reserve_len(&disk) == Some(0);
    let first = (0..end).find(is_released).unwrap() + 1;
    assert!(dataset.insert(&record(end)).unwrap_err().to_string().contains("its reserve is released"));
    close((store, dataset));
    disk.set_capacity(disk.used_bytes() + BYTES / 4);
    let (store, dataset) = open(&disk, DiskReserve::Bytes(BYTES));
    assert!(!happens(dataset.insert(&record(end))));
    assert!(!happens(dataset.upsert(&record(0))));
    let mut batch = dataset.atomic_batch();
    batch.delete(&Key::Int(first)).unwrap();
    batch.upsert(&record(end)).unwrap();
    assert!(!happens(batch.commit()));
    assert!(!happens(dataset.create_index("by_size", IndexKind::BTree, &["size"])));
    assert!(!happens(store.importer_with(MAIN, first_schema(), &DatasetOptions::default())));
    assert!(delete(&dataset, first));
    let refused = dataset.insert(&record(end)).unwrap_err();
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    dataset.insert(&record(end)).unwrap();
    assert_eq!(store.info().unwrap().disk_reserve_bytes, reserve_len(&disk));
    assert_eq!(keys(&dataset), (first + 1..=end).collect::<Vec<_>>());
}

#[test]
fn a_store_is_opened_on_a_full_disk_in_any_number_of_sessions() {
    let first = MemoryStorage::new();
    let (_store, _dataset, end) = full_store(&first, DiskReserve::Bytes(BYTES));
    let mut disk = killed(&first);
    // There is no room even for the number of the process.
    let capacity = disk.used_bytes() - 100;
    disk.set_capacity(capacity);
    for session in 0..40 {
        let (store, dataset) = open(&disk, DiskReserve::Bytes(BYTES));
        assert_eq!(keys(&dataset), (session..end).collect::<Vec<_>>());
        assert!(delete(&dataset, session), "session {session}");
        if session % 2 == 0 {
            close((store, dataset));
        } else {
            disk = memory_of(&files_of(&disk));
            disk.set_capacity(capacity);
        }
    }
}

#[test]
fn an_opening_without_room_says_how_much_it_needs_and_changes_nothing() {
    let first = MemoryStorage::new();
    let options = roomy(DiskReserve::Bytes(BYTES));
    let (_store, dataset) = open_with(&first, options.clone());
    (0..400).for_each(|key| dataset.insert(&record(key)).unwrap());
    first.open(RESERVE, OpenMode::Write).unwrap().set_len(0).unwrap();
    let disk = killed(&first);
    let refused = Store::open_on(Arc::new(disk.clone()), options.clone()).unwrap_err();
    assert!(refused.to_string().contains("to open the store"), "{refused}");
    let contents = |disk: &MemoryStorage| -> Files {
        let is_content = |name: &String| name.starts_with("components/") || name == "MANIFEST";
        files_of(disk).into_iter().filter(|(name, _)| is_content(name)).collect()
    };
    assert!(contents(&disk) == contents(&first));
    let reader = Store::open_read_only_on(Arc::new(disk.clone()), options.clone()).unwrap();
    assert_eq!(keys(&reader.dataset(MAIN).unwrap()), (0..400).collect::<Vec<_>>(), "readers need no room");
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    let (_store, dataset) = open_with(&disk, options);
    assert_eq!(keys(&dataset), (0..400).collect::<Vec<_>>());
    assert!(delete(&dataset, 0));
}

#[test]
fn without_a_reserve_a_full_disk_has_no_room_for_a_flush() {
    let disk = MemoryStorage::new();
    let (_store, dataset) = open(&disk, DiskReserve::Bytes(0));
    (0..100).for_each(|key| dataset.insert(&record(key)).unwrap());
    assert_eq!(reserve_len(&disk), None);
    disk.set_capacity(disk.used_bytes());
    assert!(!happens(dataset.flush()));
    assert_eq!(keys(&dataset), (0..100).collect::<Vec<_>>());
}

#[test]
fn the_reserve_has_the_size_that_is_asked_for() {
    let disk = MemoryStorage::new();
    let reopened = |reserve: DiskReserve| {
        close(open(&disk, reserve));
        reserve_len(&disk)
    };
    assert_eq!(reopened(DiskReserve::Bytes(50_000)), Some(50_000));
    assert_eq!(reopened(DiskReserve::Automatic), Some(2 << 20));
    assert_eq!(reopened(DiskReserve::Bytes(40_000)), Some(40_000));
    assert_eq!(reopened(DiskReserve::Bytes(0)), None);
}

/// Copies of a store may leave out what is all zeros.
#[test]
fn a_reserve_that_was_copied_without_its_space_gets_it_again() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let options = reserving(DiskReserve::Automatic);
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    let store = Store::open(&path, options.clone()).unwrap();
    // As a kill leaves it.
    put_files(&RealStorage::new(&copy), &files_of(&RealStorage::new(&path)));
    let reserve = copy.join(RESERVE);
    let length = std::fs::metadata(&reserve).unwrap().len();
    let allocated = || std::fs::metadata(&reserve).unwrap().blocks() * 512;
    std::fs::File::create(&reserve).unwrap().set_len(length).unwrap();
    assert!(allocated() < length, "the file system knows holes");
    let copy = Store::open(&copy, options).unwrap();
    assert!(allocated() >= length);
    copy.close().unwrap();
    store.close().unwrap();
}

/// What is in memory has room on disk at any time, be it in the reserve.
#[test]
fn inserts_never_bring_more_into_memory_than_the_reserve_can_flush() {
    let disk = MemoryStorage::new();
    disk.set_capacity(4 << 20);
    let options = roomy(DiskReserve::Bytes(64 << 10));
    let (_store, dataset) = open_with(&disk, options.clone());
    let mut looked_at = 0;
    for key in 0.. {
        if !happens(dataset.insert(&record(key))) {
            break;
        }
        if key % 1499 == 0 {
            let (_store, dataset) = open_with(&killed(&disk), options.clone());
            let flushed = dataset.flush();
            assert!(matches!(flushed, Ok(()) | Err(Error::Unmerged { .. })), "after {key}: {flushed:?}");
            assert_eq!(keys(&dataset).len() as i64, key + 1);
            looked_at += 1;
        }
    }
    assert!(looked_at > 10, "{looked_at} times");
}

/// Threads fill the disk while flushes and merges in the background release the reserve and restore
/// it.
#[test]
fn threads_that_fill_a_disk_leave_room_for_their_flush() {
    const THREADS: i64 = 4;
    let disk = MemoryStorage::new();
    disk.set_capacity(6 << 20);
    let options = Options { background: true, threads_max: None, ..roomy(DiskReserve::Bytes(256 << 10)) };
    let (store, dataset) = open_with(&disk, options.clone());
    let inserted: usize = std::thread::scope(|scope| {
        let fill = |first: i64| {
            let keys = (first..).step_by(THREADS as usize);
            keys.take_while(|&key| happens(dataset.insert(&record(key)))).count()
        };
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || fill(first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(keys(&dataset).len(), inserted);
    assert!(inserted * 150 > 2 << 20, "{inserted} records are no reason for a full disk of 6 MiB");
    drop(dataset);
    happens(store.close());
    let (_store, dataset) = open_with(&disk, Options { background: false, ..options });
    happens(dataset.flush());
    assert!(delete(&dataset, 0));
    assert_eq!(keys(&dataset).len(), inserted - 1);
}

#[test]
fn a_crash_while_the_reserve_changes_loses_nothing() {
    let controller = Controller::new();
    let options = reserving(DiskReserve::Bytes(BYTES));
    let store = Store::open_on(controller.storage(), options.clone()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    (0..60).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    let disk = controller.memory();
    disk.set_capacity(disk.used_bytes());
    let before = controller.events();
    // Each step deletes one more, with the reserve released, restored, used by a merge.
    let mut states = vec![before];
    for key in 0..40 {
        assert!(delete(&dataset, key));
        states.push(controller.events());
        if key % 10 == 9 {
            dataset.flush().unwrap();
            disk.set_capacity(disk.used_bytes());
        }
    }
    let budget = Budget { samples: 2, ..Budget::default() };
    let mut lengths = std::collections::BTreeSet::new();
    for cut in before..=controller.events() {
        let acknowledged = states.iter().filter(|end| **end <= cut).count() as i64 - 1;
        for image in controller.images(cut, &budget, cut as u64).chain([controller.process_kill(cut)]) {
            lengths.insert(image.read(RESERVE).map(|bytes| bytes.len()));
            let store = Store::open_on(image.storage(), options.clone()).unwrap();
            let found = keys(&store.dataset(MAIN).unwrap());
            let expected = |deleted: i64| found == (deleted..60).collect::<Vec<_>>();
            assert!(expected(acknowledged) || expected(acknowledged + 1), "{found:?}: {}", image.describe());
        }
    }
    assert!(lengths.len() > 2, "{lengths:?}");
}

/// Whatever a full disk refuses has not happened, and everything else has; after kills with a
/// reserve of any length as well.
#[test]
fn a_random_run_on_a_disk_that_fills_and_is_freed_agrees_with_a_model() {
    let (mut random, seed) = seeded(77);
    let sizes = [0, 16 << 10, BYTES];
    let mut refused = 0;
    for round in 0..12 {
        let options = reserving(DiskReserve::Bytes(sizes[round % sizes.len()]));
        let mut disk = MemoryStorage::new();
        let (mut store, mut dataset) = open_with(&disk, options.clone());
        let mut model = BTreeMap::new();
        for step in 0..150 {
            let at = format!("seed {seed}, round {round}, step {step}");
            let key = random.random_range(0..300);
            match random.random_range(0..20) {
                0..8 => {
                    for key in key..key + 20 {
                        if happens(dataset.upsert(&record(key))) {
                            model.insert(key, ());
                        } else {
                            refused += 1;
                        }
                    }
                }
                8..13 => {
                    for key in key..key + 20 {
                        match dataset.delete(&Key::Int(key)) {
                            Ok(was_there) => assert_eq!(was_there, model.remove(&key).is_some(), "{key}: {at}"),
                            refused => assert!(!happens(refused), "{at}"),
                        }
                    }
                }
                13 | 14 => _ = happens(dataset.flush()),
                15 => _ = happens(dataset.compact()),
                16 | 17 => disk.set_capacity(disk.used_bytes() + random.random_range(0..64 << 10)),
                18 => disk.set_capacity(u64::MAX),
                _ => {
                    let mut files = files_of(&disk);
                    drop((store, dataset));
                    match random.random_range(0..3) {
                        0 => _ = files.remove(RESERVE),
                        1 => _ = files.insert(RESERVE.into(), vec![0; random.random_range(0..200 << 10)]),
                        _ => {}
                    }
                    disk = memory_of(&files);
                    disk.set_capacity(disk.used_bytes() + random.random_range(0..20 << 10));
                    let opened = Store::open_on(Arc::new(disk.clone()), options.clone());
                    store = opened.unwrap_or_else(|error| {
                        assert!(!happens(Err::<(), _>(error)), "{at}");
                        disk.set_capacity(u64::MAX);
                        Store::open_on(Arc::new(disk.clone()), options.clone()).unwrap()
                    });
                    dataset = store.dataset(MAIN).unwrap();
                }
            }
            assert_eq!(keys(&dataset), model.keys().copied().collect::<Vec<_>>(), "{at}");
        }
        disk.set_capacity(u64::MAX);
        dataset.upsert(&record(-1)).unwrap();
        dataset.compact().unwrap();
        assert_eq!(keys(&dataset).len(), model.len() + 1, "seed {seed}, round {round}");
        let report = store.check(false).unwrap();
        assert!(report.findings.is_empty(), "seed {seed}, round {round}: {report}");
    }
    assert!(refused > 0, "the disk was never full");
}
