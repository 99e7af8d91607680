//! Copies of a store's files that are written independently. Each has its own history, and a backup
//! has only one.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rand::Rng;
use terrane::{Durability, Error, Key, Options, Query, Record, Store, Value};
use terrane_storage::{RealStorage, Storage};

use crate::support::files::{files_of, put_files};
use crate::support::workload::{MAIN, first_schema};
use crate::support::{keys_of, seeded, small_options};

/// The changes of a history between two backups.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// All changes are in the log.
    Kept,
    Flushed,
    /// One component has these changes and all earlier ones.
    Compacted,
}

const ENDS: [End; 3] = [End::Kept, End::Flushed, End::Compacted];

fn options(durability: Durability) -> Options {
    Options { durability: Some(durability), ..small_options() }
}

fn record(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Utf8("n".repeat(50)), Value::Int(key)])
}

/// On disks, whose clocks distinguish sessions and files.
fn at(directory: &Path, name: &str) -> Arc<dyn Storage> {
    Arc::new(RealStorage::new(directory.join(name)))
}

/// Opens a store and inserts.
fn insert_into(storage: &Arc<dyn Storage>, durability: Durability, keys: Range<i64>, end: End) -> Store {
    let store = Store::open_on(storage.clone(), options(durability)).unwrap();
    let dataset = store.dataset(MAIN).or_else(|_| store.create_dataset(MAIN, first_schema())).unwrap();
    keys.for_each(|key| dataset.insert(&record(key)).unwrap());
    match end {
        End::Kept => {}
        End::Flushed => store.flush().unwrap(),
        End::Compacted => store.compact().unwrap(),
    }
    store
}

fn restored_keys(backup: &Arc<dyn Storage>) -> Vec<Key> {
    let directory = tempfile::tempdir().unwrap();
    let place = at(directory.path(), "restored");
    Store::restore_on(backup, place.clone(), None, &small_options()).unwrap();
    let store = Store::open_read_only_on(place, small_options()).unwrap();
    let mut keys = keys_of(&store.dataset(MAIN).unwrap().snapshot(), &Query::new());
    keys.sort_unstable_by_key(|key| format!("{key:?}").len());
    keys
}

/// Backs up a store into the backup of another history, which must remain unchanged.
fn is_refused(store: &Store, backup: &Arc<dyn Storage>, context: &str) {
    let contents = || ["components", "points"].map(|directory| backup.list(directory).unwrap());
    let before = contents();
    let error = store.backup_to(backup.clone(), None).expect_err(context);
    assert!(matches!(error, Error::Usage(_)), "{context}: {error}");
    assert!(error.to_string().contains("with a different history; take the backup to another directory"), "{error}");
    assert_eq!(contents(), before, "{context}");
}

#[test]
fn a_diverged_copy_is_distinguished_from_the_store() {
    let histories = ENDS.into_iter().flat_map(|ours| ENDS.map(|theirs| (ours, theirs)));
    for (ours, theirs) in histories {
        for (is_closed, is_copy_first) in [(true, false), (true, true), (false, false)] {
            let context = format!("{ours:?}, {theirs:?}, closed: {is_closed}, copy first: {is_copy_first}");
            let directory = tempfile::tempdir().unwrap();
            let [source, copy, backup] = ["store", "copy", "backup"].map(|name| at(directory.path(), name));
            let store = insert_into(&source, Durability::Power, 0..10, End::Kept);
            store.backup_to(backup.clone(), None).unwrap();
            if is_closed {
                store.close().unwrap();
                put_files(&*copy, &files_of(&*source));
            } else {
                put_files(&*copy, &files_of(&*source));
                store.close().unwrap();
            }
            let (first, second) = if is_copy_first { (&copy, &source) } else { (&source, &copy) };
            let store = insert_into(first, Durability::Power, 10..20, ours);
            store.backup_to(backup.clone(), None).unwrap();
            // It has more commits.
            let other = insert_into(second, Durability::Power, 20..60, theirs);
            is_refused(&other, &backup, &context);
            assert_eq!(restored_keys(&backup), (0..20).map(Key::Int).collect::<Vec<_>>(), "{context}");
            // The store of the backup continues.
            store.close().unwrap();
            insert_into(first, Durability::Power, 20..21, End::Flushed).backup_to(backup.clone(), None).unwrap();
        }
    }
}

/// The copy has the beginning of a segment in which the store continued.
#[test]
fn a_diverged_copy_from_before_the_backup_is_distinguished_from_the_store() {
    for end in ENDS {
        let directory = tempfile::tempdir().unwrap();
        let [source, copy, backup] = ["store", "copy", "backup"].map(|name| at(directory.path(), name));
        let store = insert_into(&source, Durability::Power, 0..10, End::Kept);
        put_files(&*copy, &files_of(&*source));
        (10..20).for_each(|key| store.dataset(MAIN).unwrap().insert(&record(key)).unwrap());
        store.backup_to(backup.clone(), None).unwrap();
        is_refused(&insert_into(&copy, Durability::Power, 20..60, end), &backup, &format!("{end:?}"));
    }
}

#[test]
fn without_a_log_copies_are_distinguished_by_their_components() {
    for end in [End::Flushed, End::Compacted] {
        let directory = tempfile::tempdir().unwrap();
        let [source, copy, backup] = ["store", "copy", "backup"].map(|name| at(directory.path(), name));
        insert_into(&source, Durability::None, 0..10, End::Flushed).close().unwrap();
        put_files(&*copy, &files_of(&*source));
        insert_into(&source, Durability::None, 10..20, end).backup_to(backup.clone(), None).unwrap();
        is_refused(&insert_into(&copy, Durability::None, 20..60, end), &backup, &format!("{end:?}"));
    }
}

/// Sessions that are closed, and others that are killed and continue at another place.
#[test]
fn a_history_may_have_closed_and_killed_sessions() {
    let (mut rng, seed) = seeded(0x6a);
    let directory = tempfile::tempdir().unwrap();
    let backup = at(directory.path(), "backup");
    let mut storage = at(directory.path(), "store");
    for session in 0..40 {
        let keys = session * 10..session * 10 + rng.random_range(0..10);
        let store = insert_into(&storage, Durability::Power, keys, ENDS[rng.random_range(0..3)]);
        for _ in 0..rng.random_range(0..3) {
            store.backup_to(backup.clone(), Some(3)).unwrap_or_else(|error| panic!("{error}, seed {seed}"));
        }
        if rng.random() {
            store.close().unwrap();
        } else {
            let next = at(directory.path(), &format!("store {session}"));
            put_files(&*next, &files_of(&*storage));
            storage = next;
        }
    }
}
