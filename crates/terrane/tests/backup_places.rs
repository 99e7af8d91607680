//! Places of backups and restorations: the root of a new file system, and the files of a killed
//! restoration.

use std::sync::Arc;

use terrane::{Error, Options, Store};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Budget, Controller};

use crate::support::small_options;
use crate::support::workload::{MAIN, first_schema};

const OF_FILE_SYSTEM: &str = "lost+found";

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

/// A file system that was just made.
fn new_root() -> Arc<dyn Storage> {
    let root = memory();
    root.create_directory(OF_FILE_SYSTEM).unwrap();
    root
}

fn store() -> Store {
    let store = Store::open_on(memory(), small_options()).unwrap();
    store.create_dataset(MAIN, first_schema()).unwrap();
    store
}

fn restore(backup: &Arc<dyn Storage>, place: &Arc<dyn Storage>) -> terrane::Result<()> {
    Store::restore_on(backup, place.clone(), None, &small_options()).map(drop)
}

fn is_refused<T>(result: terrane::Result<T>, reason: &str) {
    let Err(error) = result else { panic!("it is not refused: {reason}") };
    assert!(matches!(error, Error::Usage(_)) && error.to_string().contains(reason), "{error}");
}

#[test]
fn the_root_of_a_new_file_system_is_empty() {
    let (store, backup, place) = (store(), new_root(), new_root());
    for _ in 0..2 {
        store.backup_to(backup.clone(), None).unwrap();
    }
    restore(&backup, &place).unwrap();
    for place in [place, new_root()] {
        let store = Store::open_on(place.clone(), small_options()).unwrap();
        assert_eq!(store.check(false).unwrap().foreign_files, Vec::<String>::new());
        store.close().unwrap();
        assert_eq!(place.list_directories(OF_FILE_SYSTEM).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_place_with_recovered_files_is_not_empty() {
    let store = store();
    let backup = memory();
    store.backup_to(backup.clone(), None).unwrap();
    let with_file = new_root();
    with_file.open("lost+found/#12", OpenMode::CreateNew).unwrap();
    let with_directory = new_root();
    with_directory.create_directory("lost+found/#13").unwrap();
    for place in [with_file, with_directory] {
        is_refused(store.backup_to(place.clone(), None), "it is not empty (it has lost+found)");
        is_refused(restore(&backup, &place), "it is not empty (it has lost+found)");
    }
}

#[test]
fn a_killed_restoration_is_distinguished_from_a_store_without_its_manifest() {
    let backup = memory();
    let source = store();
    source.flush().unwrap();
    source.backup_to(backup.clone(), None).unwrap();
    let controller = Controller::new();
    Store::restore_on(&backup, controller.storage(), None, &small_options()).unwrap();
    let budget = Budget { exhaustive_pending: 4, samples: 2, ..Budget::default() };
    let (mut unfinished, mut whole) = (0, 0);
    for cut in 0..=controller.events() {
        for image in controller.images(cut, &budget, 8) {
            let storage = image.restart().storage();
            let opened = Store::open_read_only_on(storage.clone(), small_options());
            if storage.exists("MANIFEST").unwrap() {
                opened.unwrap();
                let store = Store::open_on(storage.clone(), small_options()).unwrap();
                assert!(store.check(false).unwrap().foreign_files.is_empty(), "{}", image.describe());
                store.close().unwrap();
                assert!(!storage.exists("RESTORING").unwrap(), "{}", image.describe());
                whole += 1;
            } else if storage.exists("RESTORING").unwrap() {
                is_refused(opened, "is what a restoration left that did not end; remove it and restore again");
                for create in [false, true] {
                    let opened = Store::open_on(storage.clone(), Options { create, ..small_options() });
                    is_refused(opened, "is what a restoration left that did not end");
                }
                is_refused(restore(&backup, &storage), "left from an interrupted restoration: remove it");
                unfinished += 1;
            } else {
                // Nothing there could be taken for a store's file.
                is_refused(opened, "there is no store");
                restore(&backup, &storage).unwrap();
            }
        }
    }
    assert!(unfinished > 0 && whole > 0, "{unfinished} unfinished, {whole} whole");
}
