//! Directories that hold something else are left unchanged.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::small_options;
use crate::support::workload::first_schema;
use terrane::{Error, Options, Store};

/// Everything below a directory.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

fn refuses(make: impl Fn(&Path), named: &str) {
    let place = tempfile::tempdir().unwrap();
    make(place.path());
    let before = tree(place.path());
    let error = Store::open(place.path(), small_options()).unwrap_err();
    assert!(matches!(error, Error::Usage(_)), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("is no store") && message.contains(named), "{message}");
    assert_eq!(tree(place.path()), before, "{message}");
}

#[test]
fn a_directory_of_other_files_is_refused_and_unchanged() {
    refuses(|place| fs::write(place.join("notes.txt"), "mine").unwrap(), "notes.txt");
}

#[test]
fn a_directory_of_other_directories_is_refused() {
    refuses(|place| fs::create_dir(place.join("photos")).unwrap(), "photos");
}

#[test]
fn directories_named_as_a_stores_with_other_files_in_them_are_refused() {
    let log = |place: &Path| {
        fs::create_dir(place.join("log")).unwrap();
        fs::write(place.join("log/app.log"), "started").unwrap();
    };
    refuses(log, "log/app.log");
    let components = |place: &Path| {
        fs::create_dir(place.join("components")).unwrap();
        fs::write(place.join("components/button.tsx"), "").unwrap();
    };
    refuses(components, "components/button.tsx");
    refuses(|place| fs::create_dir_all(place.join("log/old")).unwrap(), "log/old");
}

#[test]
fn a_manifest_of_something_else_is_not_locked() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("MANIFEST"), "include README.md and more\n").unwrap();
    let before = tree(place.path());
    let error = Store::open(place.path(), small_options()).unwrap_err();
    assert!(error.is_damage(), "{error:?}");
    assert_eq!(tree(place.path()), before);
}

/// A crash during the creation of a store leaves a place that counts as empty.
#[test]
fn an_unfinished_creation_is_restarted() {
    let place = tempfile::tempdir().unwrap();
    for directory in ["components", "log"] {
        fs::create_dir(place.path().join(directory)).unwrap();
    }
    fs::write(place.path().join("LOCK"), "1\n").unwrap();
    fs::write(place.path().join("MANIFEST.new"), "half").unwrap();
    let store = Store::open(place.path(), small_options()).unwrap();
    store.create_dataset("d", first_schema()).unwrap();
}

#[test]
fn a_lost_manifest_is_damage() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(place.path(), small_options()).unwrap();
    store.create_dataset("d", first_schema()).unwrap();
    store.close().unwrap();
    fs::remove_file(place.path().join("MANIFEST")).unwrap();
    let ways = [
        Store::open(place.path(), small_options()),
        Store::open(place.path(), Options { create: false, ..small_options() }),
        Store::open_read_only(place.path(), small_options()),
    ];
    for opened in ways {
        let error = opened.unwrap_err();
        assert!(error.is_damage() && error.to_string().contains("MANIFEST"), "{error:?}");
    }
}
