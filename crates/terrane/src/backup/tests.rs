//! What is and what is not taken for a store or a backup.

use std::sync::Arc;

use terrane_space::CoordinateSystem;
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

use crate::schema::KeyType;
use crate::testing::{points, put};
use crate::{Error, Key, Options, Store};

/// A store with a component of each index.
fn stored() -> Store {
    let (store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    put(&dataset, (0..10).map(|number| (Key::Int(number), number as f64, 0.0)));
    dataset.flush().unwrap();
    store
}

#[test]
fn a_backup_is_not_taken_for_a_store_that_has_lost_its_manifest() {
    let store = stored();
    let backup: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    store.backup_to(backup.clone(), None).unwrap();
    let told = Store::open_read_only_on(backup, Options::default()).unwrap_err();
    assert!(matches!(told, Error::Usage { .. }) && told.to_string().contains("is a backup and no store"), "{told}");
}

/// One that was killed before it had its point, and a file that has the name of what backups have.
#[test]
fn what_a_first_backup_has_begun_is_not_taken_for_a_store_either() {
    let store = stored();
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
