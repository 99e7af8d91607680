//! Failed openings, and dropped stores: they do not lock others out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::keys_of;
use crate::support::workload::{MAIN, batch, first_schema};
use terrane::schema::{Column, ColumnType};
use terrane::{Error, Key, LogOptions, Options, Query, Record, Store, Value};
use terrane_storage::{LockKind, OpenMode, RealStorage, Storage};
use terrane_testkit::hook::HookedStorage;
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

const SESSIONS: i64 = 3;

fn options(background: bool) -> Options {
    let log = LogOptions { segment_size: 16 << 10, first_segment_size: 16 << 10, spare_segments: 0 };
    Options { background, log, ..Options::default() }
}

/// A store with enough segments to replay that the next opening flushes.
fn store_with_a_long_tail(background: bool) -> MemoryStorage {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Store::open_on(storage.clone(), options(background)).unwrap().create_dataset(MAIN, first_schema()).unwrap();
    for key in 0..SESSIONS {
        let store = Store::open_on(storage.clone(), options(background)).unwrap();
        let record = Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)]);
        store.dataset(MAIN).unwrap().insert(&record).unwrap();
        store.close().unwrap();
    }
    disk
}

fn verify(storage: Arc<dyn Storage>, background: bool, what: &str) {
    let store = Store::open_on(storage, options(background)).unwrap_or_else(|error| panic!("{error}, {what}"));
    let snapshot = store.dataset(MAIN).unwrap().snapshot();
    assert_eq!(snapshot.count(&Query::new()).unwrap(), SESSIONS as u64, "{what}");
}

/// Any call may fail. The same process can open the store once the cause is gone.
#[test]
fn a_failed_opening_releases_the_lock() {
    for background in [false, true] {
        for fault in [Fault::Eio, Fault::StorageFull] {
            let (mut failed, mut ended) = (0, false);
            for at in 1.. {
                let what = format!("{fault:?} at call {at}, background {background}");
                let storage: Arc<dyn Storage> = Arc::new(store_with_a_long_tail(background));
                let plan = FaultPlan { at, fault, persistent: true };
                let faulty = Arc::new(FaultyStorage::with_plan(storage.clone(), plan));
                match Store::open_on(faulty.clone(), options(background)) {
                    Ok(store) => {
                        ended = faulty.faults() == 0;
                        assert!(!ended || store.maintenance().flushes > 0, "the opening flushes, {what}");
                    }
                    Err(error) => {
                        failed += 1;
                        assert!(!matches!(error, Error::Locked { .. }), "{what}");
                    }
                }
                verify(storage, background, &what);
                if ended {
                    break;
                }
            }
            assert!(failed > 10, "{failed} openings failed");
        }
    }
}

/// Dropping the last handle closes a store.
#[test]
fn a_store_that_is_dropped_can_be_opened_again() {
    for background in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(store_with_a_long_tail(background));
        let store = Store::open_on(storage.clone(), options(background)).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        drop(store);
        let refused = Store::open_on(storage.clone(), options(background)).err();
        assert!(matches!(refused, Some(Error::Locked { .. })), "a dataset holds it open: {refused:?}");
        drop(dataset);
        Store::open_on(storage, options(background)).unwrap().close().unwrap();
    }
}

/// Another process removes a store and its lock file, just after this process has opened that file.
/// With `opens`, a third process has its own store at this place by then.
fn open_while_the_lock_goes(
    inner: &Arc<dyn Storage>,
    third: &Arc<Mutex<Option<Store>>>,
    opens: bool,
) -> Result<Store, Error> {
    let hooked = Arc::new(HookedStorage::new(inner.clone()));
    let (disk, third, mut gone) = (inner.clone(), third.clone(), false);
    hooked.on_opened(move |name| {
        if name == "LOCK" && !std::mem::replace(&mut gone, true) {
            disk.remove("LOCK").unwrap();
            if opens {
                *third.lock().unwrap() = Some(Store::open_on(disk.clone(), options(false)).unwrap());
            }
        }
    });
    Store::open_on(hooked, options(false))
}

#[test]
fn a_removed_lock_file_is_not_taken_for_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let places: [Arc<dyn Storage>; 2] =
        [Arc::new(MemoryStorage::new()), Arc::new(RealStorage::new(directory.path().join("s")))];
    for inner in places {
        Store::open_on(inner.clone(), options(false)).unwrap().close().unwrap();
        let third = Arc::new(Mutex::new(None));
        let refused = open_while_the_lock_goes(&inner, &third, true).err();
        let Some(Error::Locked { pid }) = refused else { panic!("{refused:?}") };
        assert_eq!(pid, Some(std::process::id()));
        third.lock().unwrap().take().unwrap().close().unwrap();
        let store = open_while_the_lock_goes(&inner, &third, false).unwrap();
        let refused = Store::open_on(inner.clone(), options(false)).err();
        assert!(matches!(refused, Some(Error::Locked { .. })), "{refused:?}");
        store.close().unwrap();
    }
}

/// The lock's holder may not have written its number yet, or only a part of it.
#[test]
fn a_lock_without_a_complete_number_is_held_by_an_unknown_process() {
    for (text, wanted) in [("", None), ("12", None), ("x\n", None), ("123\n", Some(123))] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let file = storage.open("LOCK", OpenMode::CreateNew).unwrap();
        assert!(file.try_lock(LockKind::Exclusive).unwrap());
        file.write_all_at(text.as_bytes(), 0).unwrap();
        let refused = Store::open_on(storage, options(false)).err();
        let Some(Error::Locked { pid }) = refused else { panic!("{refused:?}") };
        assert_eq!(pid, wanted, "{text:?}");
    }
}

fn record(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)])
}

fn keys(store: &Store, name: &str) -> Vec<i64> {
    let snapshot = store.dataset(name).unwrap().snapshot();
    let mut keys: Vec<i64> = keys_of(&snapshot, &Query::new())
        .into_iter()
        .map(|key| match key {
            Key::Int(key) => key,
            other => panic!("{other}"),
        })
        .collect();
    keys.sort_unstable();
    keys
}

/// A writer flushes each time the reader reads the manifest, and merges after the reader has opened
/// the components. This does not affect the reader.
#[test]
fn a_reader_does_not_wait_for_flushes_and_merges() {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(disk.clone(), Options::default()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let (looks, merges) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for round in 0..3 {
        let hooked = Arc::new(HookedStorage::new(disk.clone()));
        let (writer, looks, merges) = (dataset.clone(), looks.clone(), merges.clone());
        let (known, looks_before) = (keys(&store, MAIN), looks.load(Ordering::Relaxed));
        let counted = looks.clone();
        hooked.on_opened(move |name| {
            if name == "MANIFEST" {
                let key = counted.fetch_add(1, Ordering::Relaxed) as i64;
                writer.insert(&record(key)).unwrap();
                writer.flush().unwrap();
            } else if name.ends_with(".log") {
                merges.fetch_add(1, Ordering::Relaxed);
                writer.compact().unwrap();
            }
        });
        let reader = Store::open_read_only_on(hooked.clone(), Options::default()).unwrap();
        hooked.unhook();
        let looked = looks.load(Ordering::Relaxed) - looks_before;
        assert!(looked <= 4, "the reader looked {looked} times at the manifest in round {round}");
        let found = keys(&reader, MAIN);
        assert!(known.iter().all(|key| found.contains(key)), "{known:?} were there, {found:?} are found");
        let everywhere = Query::new().window(-180.0, -90.0, 180.0, 90.0);
        let by_place = reader.dataset(MAIN).unwrap().snapshot().count(&everywhere).unwrap();
        assert_eq!(by_place, found.len() as u64);
    }
    assert!(merges.load(Ordering::Relaxed) >= 3);
}

/// A reader that tolerates damage may find that a merge has removed a component that it was about
/// to open. This is not damage. Real damage is still found.
#[test]
fn a_lenient_reader_does_not_take_merged_components_for_damage() {
    let lenient = || Options { lenient: true, ..Options::default() };
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(disk.clone(), Options::default()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let mut write = |key| {
        dataset.insert(&record(key)).unwrap();
        dataset.flush().unwrap();
    };
    (0..3).for_each(&mut write);
    let hooked = Arc::new(HookedStorage::new(disk.clone()));
    let (writer, mut looks) = (dataset.clone(), 0);
    hooked.on_opened(move |name| {
        looks += usize::from(name == "MANIFEST");
        if name == "MANIFEST" && looks == 1 {
            writer.compact().unwrap();
        }
    });
    let reader = Store::open_read_only_on(hooked.clone(), lenient()).unwrap();
    assert_eq!(reader.damage().len(), 0, "{:?}", reader.damage());
    assert_eq!(keys(&reader, MAIN), [0, 1, 2]);
    drop(reader);
    // A component is really missing, while the writer continues.
    let lost = disk.list("components").unwrap().into_iter().next().unwrap();
    disk.remove(&format!("components/{lost}")).unwrap();
    let (writer, mut key) = (dataset.clone(), 3);
    hooked.on_opened(move |name| {
        if name == "MANIFEST" {
            writer.insert(&record(key)).unwrap();
            writer.flush().unwrap();
            key += 1;
        }
    });
    let reader = Store::open_read_only_on(hooked.clone(), lenient()).unwrap();
    hooked.unhook();
    assert_eq!(reader.damage().len(), 1, "{:?}", reader.damage());
}

/// A change without a log entry, such as an import, may happen while a reader replays. If the
/// reader shows anything later, it shows this change too.
#[test]
fn a_reader_that_shows_later_writes_shows_the_import_or_schema_before_them() {
    type Change = fn(&Store);
    let changes: [(&str, Change); 6] = [
        ("import", |store| {
            let mut importer = store.importer(MAIN, first_schema()).unwrap();
            let rows = batch(&importer.schema().clone(), &[record(100)]);
            importer.push(&rows).unwrap();
            importer.finish(&mut |row| Err(row.error)).unwrap();
        }),
        ("column", |store| {
            let column = Column::new("more", ColumnType::Int64);
            store.dataset(MAIN).unwrap().add_column(column).unwrap();
        }),
        ("widening", |store| {
            let dataset = store.dataset(MAIN).unwrap();
            let name = dataset
                .schema()
                .columns
                .iter()
                .find(|column| column.column_type == ColumnType::Int64)
                .unwrap()
                .name
                .clone();
            dataset.widen_column(&name).unwrap();
        }),
        ("renaming", |store| store.dataset(MAIN).unwrap().rename_column("name", "title").unwrap()),
        ("dropping", |store| store.dataset(MAIN).unwrap().drop_column("name").unwrap()),
        ("dataset", |store| {
            store.create_dataset("other", first_schema()).unwrap().insert(&record(100)).unwrap();
        }),
    ];
    for (what, change) in changes {
        let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Arc::new(Store::open_on(disk.clone(), Options::default()).unwrap());
        store.create_dataset(MAIN, first_schema()).unwrap().insert(&record(1)).unwrap();
        let hooked = Arc::new(HookedStorage::new(disk));
        let (writer, mut done) = (store.clone(), false);
        hooked.on_opened(move |name| {
            // The manifest has been read, and the segment is not yet replayed.
            if name.ends_with(".log") && !std::mem::replace(&mut done, true) {
                change(&writer);
                let dataset = writer.dataset(MAIN).unwrap();
                let mut record = record(101);
                let types = dataset.schema().columns.clone();
                record.values = types.iter().map(|_| Value::Null).collect();
                dataset.insert(&record).unwrap();
            }
        });
        let reader = Store::open_read_only_on(hooked.clone(), Options::default()).unwrap();
        hooked.unhook();
        let schemas = [&reader, &*store].map(|store| store.dataset(MAIN).unwrap().schema());
        assert_eq!(schemas[0], schemas[1], "{what}");
        assert_eq!(keys(&reader, MAIN), keys(&store, MAIN), "{what}");
        let names =
            |store: &Store| store.info().unwrap().datasets.into_iter().map(|dataset| dataset.name).collect::<Vec<_>>();
        assert_eq!(names(&reader), names(&store), "{what}");
        assert!(keys(&reader, MAIN).contains(&101), "{what}");
    }
}
