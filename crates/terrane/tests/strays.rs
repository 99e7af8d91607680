//! Files that the manifest does not name are removed only once it is known to be the right
//! manifest.

use std::sync::Arc;

use crate::support::files::{Files, files_of, spatial_file, storage_of};
use crate::support::{schema, small_options};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Durability, Error, LogOptions, MergePolicy, Options, Query, Record, Store, Value};
use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::{Manifest, NAME};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::hook::HookedStorage;

const KEYS: i64 = 200;
const STRAY: u64 = 900;

fn put(storage: &dyn Storage, name: &str, bytes: &[u8]) {
    if storage.exists(name).unwrap() {
        storage.remove(name).unwrap();
    }
    storage.open(name, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
}

/// Adds records, one flushed component at a time. With `compact`, all of them become one component.
fn session(storage: &Arc<dyn Storage>, options: &Options, keys: std::ops::Range<i64>, compact: bool) {
    let store = Store::open_on(storage.clone(), options.clone()).unwrap();
    let dataset = match store.dataset("d") {
        Ok(dataset) => dataset,
        Err(_) => store.create_dataset("d", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap(),
    };
    for key in keys {
        dataset.insert(&Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)])).unwrap();
    }
    store.flush().unwrap();
    if compact {
        store.compact().unwrap();
    }
    store.close().unwrap();
}

fn components(storage: &dyn Storage) -> Files {
    files_of(storage).into_iter().filter(|(name, _)| name.starts_with("components/")).collect()
}

fn count(store: &Store) -> u64 {
    store.dataset("d").unwrap().snapshot().count(&Query::new()).unwrap()
}

/// A store, and the manifest that it had before its last session.
fn with_older_manifest(options: &Options, compact: bool) -> (Arc<dyn Storage>, Vec<u8>) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    session(&storage, options, 0..KEYS / 2, false);
    let older = files_of(&*storage)[NAME].clone();
    session(&storage, options, KEYS / 2..KEYS, compact);
    (storage, older)
}

/// With the older manifest, the store cannot be opened, and no file is removed. With the right one,
/// it is complete.
fn refuses(options: &Options, compact: bool, lenient: bool, missing: &str) {
    let (storage, older) = with_older_manifest(options, compact);
    let before = components(&*storage);
    let right = files_of(&*storage)[NAME].clone();
    put(&*storage, NAME, &older);
    match Store::open_on(storage.clone(), Options { lenient, ..options.clone() }) {
        Err(Error::Damaged { file, reason, .. }) => {
            assert!(file.starts_with(missing) && reason.contains("missing"), "{file}: {reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(components(&*storage), before);
    put(&*storage, NAME, &right);
    let store = Store::open_on(storage, options.clone()).unwrap();
    assert!(store.check(false).unwrap().findings.is_empty());
    assert_eq!(count(&store), KEYS as u64);
}

#[test]
fn an_older_manifest_whose_components_are_gone_removes_nothing() {
    let none = Options { durability: Some(Durability::None), ..small_options() };
    for options in [small_options(), none] {
        refuses(&options, true, false, "components/");
    }
}

/// All its components exist, but its log does not.
#[test]
fn an_older_manifest_whose_log_is_gone_removes_nothing() {
    let log = LogOptions { segment_size: 16 << 10, first_segment_size: 16 << 10, spare_segments: 0 };
    for lenient in [false, true] {
        refuses(&Options { log, ..small_options() }, false, lenient, "log/");
    }
}

/// A check opens the readable part, and repairs or reports the rest. Files that it cannot assign
/// may be needed.
#[test]
fn a_lenient_opening_removes_no_strays_beside_damage() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    session(&storage, &small_options(), 0..KEYS, false);
    let lenient = Options { lenient: true, ..small_options() };
    let (stray, spatial) = (component_name(STRAY), spatial_file(&*storage));
    put(&*storage, &stray, b"stray");
    let sound = storage_of(&files_of(&*storage));
    drop(Store::open_on(sound.clone(), lenient.clone()).unwrap());
    assert!(!sound.exists(&stray).unwrap(), "nothing is damaged");

    storage.remove(&spatial).unwrap();
    let store = Store::open_on(storage.clone(), lenient).unwrap();
    assert!(storage.exists(&stray).unwrap());
    // Files created meanwhile have their own names.
    assert!(!store.check(true).unwrap().findings.is_empty());
    store.close().unwrap();
    assert_eq!(files_of(&*storage)[&stray], b"stray");
    let manifest = Manifest::read(&*storage).unwrap().unwrap();
    assert!(manifest.components().any(|meta| meta.file_id > STRAY));

    drop(Store::open_on(storage.clone(), small_options()).unwrap());
    assert!(!storage.exists(&stray).unwrap(), "the store is whole again");
}

/// A crash may leave strays that fill the disk. Opening needs space for the log.
#[test]
fn strays_that_fill_the_disk_do_not_keep_a_store_closed() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let log = LogOptions { segment_size: 64 << 10, first_segment_size: 64 << 10, spare_segments: 0 };
    let options = Options { log, ..small_options() };
    session(&storage, &options, 0..KEYS, false);
    put(&*storage, &component_name(STRAY), &vec![7; 256 << 10]);
    disk.set_capacity(disk.used_bytes());
    let store = Store::open_on(storage.clone(), options).unwrap();
    assert_eq!(count(&store), KEYS as u64);
    assert!(!storage.exists(&component_name(STRAY)).unwrap());
}

/// Components replaced by a merge are removed with the last snapshot that reads them. The store
/// stays locked until then.
#[test]
fn files_of_the_last_snapshot_are_removed_under_the_lock() {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let merge_policy = MergePolicy::Prefix { mergeable_bytes_max: 0, components_max: usize::MAX };
    let options = Options { merge_policy, ..small_options() };
    session(&disk, &options, 0..1, false);
    session(&disk, &options, 1..2, false);
    let query = || Query::new().window(-1e3, -1e3, 1e3, 1e3);
    for by_rows in [false, true] {
        let hooked = Arc::new(HookedStorage::new(disk.clone()));
        let store = Store::open_on(hooked.clone(), options.clone()).unwrap();
        let dataset = store.dataset("d").unwrap();
        dataset.upsert(&Record::at(1, 5.0, 1.0, vec![Value::Null, Value::Null])).unwrap();
        dataset.flush().unwrap();
        let snapshot = dataset.snapshot();
        let rows = by_rows.then(|| snapshot.query(&query()).unwrap());
        let snapshot = (!by_rows).then_some(snapshot);
        store.compact().unwrap();
        drop(dataset);
        store.close().unwrap();
        let before = components(&*disk).len();
        let (locked, disk_too) = (Arc::new(std::sync::Mutex::new(Vec::new())), disk.clone());
        hooked.on_remove({
            let locked = locked.clone();
            move |_| {
                let opened = Store::open_on(disk_too.clone(), Options::default());
                locked.lock().unwrap().push(matches!(opened, Err(Error::Locked { .. })));
            }
        });
        drop((snapshot, rows));
        let locked = locked.lock().unwrap();
        assert!(locked.len() > 2 && locked.iter().all(|locked| *locked), "{locked:?}");
        assert_eq!(components(&*disk).len(), before - locked.len());
        assert_eq!(count(&Store::open_on(disk.clone(), small_options()).unwrap()), 2);
    }
}

#[test]
fn a_stray_that_is_already_removed_is_not_a_failure() {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    session(&disk, &small_options(), 0..KEYS, false);
    put(&*disk, &component_name(STRAY), b"stray");
    let hooked = Arc::new(HookedStorage::new(disk.clone()));
    hooked.on_remove({
        let disk = disk.clone();
        move |name| {
            if name == component_name(STRAY) {
                disk.remove(name).unwrap()
            }
        }
    });
    let store = Store::open_on(hooked, small_options()).unwrap();
    assert_eq!(count(&store), KEYS as u64);
    assert!(!disk.exists(&component_name(STRAY)).unwrap());
}
