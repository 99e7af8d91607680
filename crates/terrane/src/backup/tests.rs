//! Backups and readers of a store in which merges have taken the front of components.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

use terrane_lsm::index::{Cancellation, DiskPart};
use terrane_lsm::manifest;
use terrane_space::CoordinateSystem;
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

use super::take::take;
use crate::schema::KeyType;
use crate::testing::{delete, points_on, put, unmerged};
use crate::{Dataset, DiskReserve, Error, Key, Options, Query, Store};
use terrane_testkit::hook::HookedStorage;

/// Bytes that a merge takes of each component, more or less.
const PART: u64 = 16 << 10;

/// Merges the front parts of what the indexes have; how many components are left of which something is gone.
fn merge_fronts_once(dataset: &Dataset) -> usize {
    let (engine, partitions) = (&dataset.engine, &dataset.handle.partitions);
    let places = partitions.version(0).indexes.len();
    let mut trimmed = 0;
    for place in 0..places {
        partitions.merge_front(&engine.workshop, (0, place), PART, &Cancellation::default()).unwrap();
        let version = partitions.version(0);
        trimmed += version.components(place).iter().filter(|part| part.file().meta().gone.is_some()).count();
    }
    trimmed
}

/// In ascending order.
fn keys_of(dataset: &Dataset) -> Vec<i64> {
    let rows = dataset.snapshot().query(&Query::new().columns(["id"])).unwrap();
    let batches = rows.map(|batch| batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec());
    let mut keys: Vec<i64> = batches.flatten().collect();
    keys.sort_unstable();
    keys
}

fn restored_keys(backup: &Arc<dyn Storage>, point: &str) -> Vec<i64> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    Store::restore_on(backup, storage.clone(), Some(point), &Options::default()).unwrap();
    let store = Store::open_on(storage, Options::default()).unwrap();
    let report = store.check(false).unwrap();
    assert!(report.is_clean() && report.foreign_files.is_empty(), "{point}: {report}");
    let dataset = store.dataset("d").unwrap();
    let found = keys_of(&dataset);
    // What is left is merged like anything else.
    dataset.compact().unwrap();
    assert_eq!(keys_of(&dataset), found, "{point}");
    store.close().unwrap();
    found
}

const COUNT: i64 = 12_000;

/// A store with components of which three quarters are deleted.
fn mostly_deleted() -> (Store, Dataset) {
    mostly_deleted_on(Arc::new(MemoryStorage::new()), unmerged())
}

fn mostly_deleted_on(storage: Arc<dyn Storage>, options: Options) -> (Store, Dataset) {
    let (store, dataset) = points_on(storage, options, CoordinateSystem::Planar, KeyType::Int64);
    put(&dataset, (0..COUNT).map(|number| (Key::Int(number), (number % 100) as f64, (number / 100) as f64)));
    dataset.flush().unwrap();
    delete(&dataset, (0..COUNT).filter(|number| number % 4 > 0).map(Key::Int));
    dataset.flush().unwrap();
    (store, dataset)
}

#[test]
fn every_point_of_a_store_between_two_merges_by_front_parts_is_restored() {
    let (store, dataset) = mostly_deleted();
    let backup: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (mut points, mut trimmed) = (Vec::new(), 0);
    loop {
        points.push(store.backup_to(backup.clone(), None).unwrap().point);
        let left = merge_fronts_once(&dataset);
        trimmed += usize::from(left > 0);
        if left == 0 {
            break;
        }
    }
    points.push(store.backup_to(backup.clone(), None).unwrap().point);
    assert!(trimmed > 2, "{trimmed} backups of trimmed components");
    let expected: Vec<i64> = (0..COUNT).step_by(4).collect();
    for point in &points {
        assert!(restored_keys(&backup, point) == expected, "{point} of {points:?}");
    }
    store.close().unwrap();
}

/// Nothing keeps the parts of files that are given up between the manifest that a reader has read and its opening of them.
#[test]
fn who_has_read_the_manifest_of_before_a_merge_by_front_parts_reads_it_again() {
    type Read = fn(Arc<dyn Storage>) -> Vec<i64>;
    let open: Read = |storage| {
        let reader = Store::open_read_only_on(storage, Options::default()).unwrap();
        keys_of(&reader.dataset("d").unwrap())
    };
    let back_up: Read = |storage| {
        let backup: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let report = take(&storage, &backup, &Options::default(), None).unwrap();
        restored_keys(&backup, &report.point)
    };
    for read in [open, back_up] {
        let (store, dataset) = mostly_deleted();
        let hooked = Arc::new(HookedStorage::new(dataset.engine.storage.clone()));
        let (dataset, is_first) = (Arc::new(dataset), AtomicBool::new(true));
        hooked.on_opened({
            let dataset = dataset.clone();
            move |name| {
                // What is open is the manifest of before.
                if name == manifest::NAME && is_first.swap(false, Ordering::Relaxed) {
                    assert!(merge_fronts_once(&dataset) > 0);
                }
            }
        });
        assert!(read(hooked.clone()) == (0..COUNT).step_by(4).collect::<Vec<_>>());
        assert!(dataset.handle.partitions.version(0).components(0).len() > 2, "nothing was merged meanwhile");
        hooked.unhook();
        drop(dataset);
        store.close().unwrap();
    }
}

/// How many components have zeros in the place of what is gone of them.
fn count_given_up(dataset: &Dataset) -> usize {
    let version = dataset.handle.partitions.version(0);
    let parts = (0..version.indexes.len()).flat_map(|place| version.components(place).to_vec());
    let is_given_up = |part: &Arc<dyn DiskPart>| {
        let file = dataset.engine.storage.open(&part.file().name(), OpenMode::Read).unwrap();
        let mut page = [1; 64];
        file.read_exact_at(&mut page, 0).unwrap();
        page == [0; 64]
    };
    parts.filter(|part| part.file().meta().gone.is_some()).filter(is_given_up).count()
}

#[test]
fn what_merges_by_front_parts_take_while_a_backup_is_taken_stays_for_it() {
    for is_other_process in [false, true] {
        let (store, dataset) = mostly_deleted();
        let backup: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let hooked = Arc::new(HookedStorage::new(backup.clone()));
        let (dataset, is_first) = (Arc::new(dataset), AtomicBool::new(true));
        hooked.on_create({
            let dataset = dataset.clone();
            move |name| {
                if name.starts_with("components/") && is_first.swap(false, Ordering::Relaxed) {
                    assert!(merge_fronts_once(&dataset) > 0);
                    assert_eq!(count_given_up(&dataset), 0);
                }
            }
        });
        let report = match is_other_process {
            false => store.backup_to(hooked.clone(), None).unwrap(),
            true => {
                let target: Arc<dyn Storage> = hooked.clone();
                take(&dataset.engine.storage, &target, &Options::default(), None).unwrap()
            }
        };
        hooked.unhook();
        assert!(restored_keys(&backup, &report.point) == (0..COUNT).step_by(4).collect::<Vec<_>>());
        if is_other_process {
            // The writer does not hear when it has ended, and looks when it needs room.
            assert_eq!(count_given_up(&dataset), 0);
            assert!(dataset.engine.component_files().iter().any(|file| file.give_up_kept()));
        }
        assert!(count_given_up(&dataset) > 0);
        drop(dataset);
        store.close().unwrap();
    }
}

#[test]
fn what_a_query_has_kept_that_ends_while_a_backup_is_taken_is_given_up_then() {
    let (store, dataset) = mostly_deleted();
    let hooked = Arc::new(HookedStorage::new(Arc::new(MemoryStorage::new())));
    let mut snapshot = Some(dataset.snapshot());
    assert!(merge_fronts_once(&dataset) > 0);
    hooked.on_create(move |name| {
        if name.starts_with("components/") {
            drop(snapshot.take());
        }
    });
    store.backup_to(hooked.clone(), None).unwrap();
    assert!(count_given_up(&dataset) > 0);
    drop(dataset);
    store.close().unwrap();
}

#[test]
fn a_backup_is_not_taken_for_a_store_that_has_lost_its_manifest() {
    let (store, _) = mostly_deleted();
    let backup: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    store.backup_to(backup.clone(), None).unwrap();
    let told = Store::open_read_only_on(backup, Options::default()).unwrap_err();
    assert!(matches!(told, Error::Usage { .. }) && told.to_string().contains("is a backup and no store"), "{told}");
}

/// One that was killed before it had its point, and a file that has the name of what backups have.
#[test]
fn what_a_first_backup_has_begun_is_not_taken_for_a_store_either() {
    let (store, _) = mostly_deleted();
    let disk = MemoryStorage::new();
    store.backup_to(Arc::new(disk.clone()), None).unwrap();
    for name in disk.list(super::POINTS).unwrap() {
        disk.remove(&format!("{}/{name}", super::POINTS)).unwrap();
    }
    for create in [false, true] {
        let told = Store::open_on(Arc::new(disk.clone()), Options { create, ..Options::default() }).unwrap_err();
        let expected = if create { "is no store, and it is not empty" } else { "has not been completed" };
        assert!(matches!(told, Error::Usage { .. }) && told.to_string().contains(expected), "{told}");
    }
    store.backup_to(Arc::new(disk), None).unwrap();

    let lost = MemoryStorage::new();
    ["components", "log", super::POINTS].iter().for_each(|name| lost.create_directory(name).unwrap());
    lost.open("components/000000000001.tc", OpenMode::CreateNew).unwrap();
    let told = Store::open_read_only_on(Arc::new(lost), Options::default()).unwrap_err();
    assert!(told.is_damage(), "{told}");

    let other = MemoryStorage::new();
    other.open(super::POINTS, OpenMode::CreateNew).unwrap();
    let told = Store::open_read_only_on(Arc::new(other.clone()), Options::default()).unwrap_err();
    assert!(matches!(told, Error::Usage { .. }) && told.to_string().contains("there is no store"), "{told}");
}

/// Others have taken all that was free by then.
#[test]
fn what_a_reader_has_kept_is_given_up_by_who_opens_the_store() {
    let (disk, options) = (MemoryStorage::new(), Options { disk_reserve: DiskReserve::Bytes(0), ..unmerged() });
    let (store, dataset) = mostly_deleted_on(Arc::new(disk.clone()), options.clone());
    let reader = Store::open_read_only_on(Arc::new(disk.clone()), Options::default()).unwrap();
    assert!(merge_fronts_once(&dataset) > 0);
    assert_eq!(count_given_up(&dataset), 0);
    drop(dataset);
    store.close().unwrap();
    drop(reader);
    disk.set_capacity(disk.used_bytes());
    let store = Store::open_on(Arc::new(disk), options).unwrap();
    let dataset = store.dataset("d").unwrap();
    assert!(keys_of(&dataset) == (0..COUNT).step_by(4).collect::<Vec<_>>());
    assert!(count_given_up(&dataset) > 0);
}

/// It opens the store while the reader is still there, and hears nothing when that has gone.
#[test]
fn what_a_reader_keeps_beside_an_opening_is_given_up_when_room_is_needed() {
    let disk = MemoryStorage::new();
    let (store, dataset) = mostly_deleted_on(Arc::new(disk.clone()), unmerged());
    let reader = Store::open_read_only_on(Arc::new(disk.clone()), Options::default()).unwrap();
    assert!(merge_fronts_once(&dataset) > 0);
    drop(dataset);
    store.close().unwrap();
    let store = Store::open_on(Arc::new(disk.clone()), unmerged()).unwrap();
    let dataset = store.dataset("d").unwrap();
    assert_eq!(count_given_up(&dataset), 0);
    drop(reader);
    dataset.engine.give_up_kept();
    assert!(count_given_up(&dataset) > 0);
}

/// Which then have room with what it gives back alone.
#[test]
fn what_a_reader_has_kept_is_given_up_before_merges_by_front_parts_go_on() {
    let disk = MemoryStorage::new();
    let options = Options { disk_reserve: DiskReserve::Bytes(0), ..unmerged() };
    let (_store, dataset) = mostly_deleted_on(Arc::new(disk.clone()), options);
    let reader = Store::open_read_only_on(Arc::new(disk.clone()), Options::default()).unwrap();
    assert!(merge_fronts_once(&dataset) > 0);
    disk.set_capacity(disk.used_bytes());
    let merge = || dataset.engine.merge_fronts(&dataset.handle).unwrap();
    assert!(!merge(), "the reader is there");
    drop(reader);
    assert!(merge());
    assert!(dataset.engine.component_files().iter().all(|file| file.meta().gone.is_none()), "all is merged");
    assert!(keys_of(&dataset) == (0..COUNT).step_by(4).collect::<Vec<_>>());
}

/// As somebody put it back, from a backup that was none. What takes the place of the parts that are gone stays where it is, for the
/// right manifest.
#[test]
fn a_manifest_of_before_a_merge_by_front_parts_is_refused_and_nothing_removed() {
    let (disk, options) = (MemoryStorage::new(), Options { disk_reserve: DiskReserve::Bytes(0), ..unmerged() });
    let read = || {
        let file = disk.open(manifest::NAME, OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let put_back = |bytes: &[u8]| {
        disk.remove(manifest::NAME).unwrap();
        disk.open(manifest::NAME, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    };
    let (store, dataset) = mostly_deleted_on(Arc::new(disk.clone()), options.clone());
    let mut older = vec![read()];
    for _ in 0..3 {
        assert!(merge_fronts_once(&dataset) > 0);
        older.push(read());
    }
    drop(dataset);
    store.close().unwrap();
    let newest = older.pop().unwrap();
    let components = || (disk.list("components").unwrap(), disk.used_bytes());
    let before = components();
    for (bytes, lenient, is_full) in older.iter().flat_map(|b| [(b, false, false), (b, false, true), (b, true, false)])
    {
        put_back(bytes);
        let capacity = if is_full { disk.used_bytes() } else { u64::MAX };
        disk.set_capacity(capacity);
        let opened = Store::open_on(Arc::new(disk.clone()), Options { lenient, ..options.clone() });
        disk.set_capacity(u64::MAX);
        let told = match opened {
            Ok(store) if lenient => store.check(false).unwrap().to_string(),
            opened => opened.unwrap_err().to_string(),
        };
        assert!(told.contains("older than a merge"), "{told}");
        put_back(&newest);
        assert_eq!(components().0, before.0);
        assert!(components().1 >= before.1);
    }
    let store = Store::open_on(Arc::new(disk.clone()), options).unwrap();
    assert!(store.check(false).unwrap().is_clean());
    assert!(keys_of(&store.dataset("d").unwrap()) == (0..COUNT).step_by(4).collect::<Vec<_>>());
}
