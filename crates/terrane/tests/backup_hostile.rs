//! Backups from which something was taken away: errors that say where.

use std::sync::Arc;

use terrane::{Error, Key, Store};
use terrane_storage::{MemoryStorage, Storage};

use crate::support::workload::{MAIN, first_schema};
use crate::support::{record, seeded, small_options};

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

/// A backup of a store with records in its log, and the name of that.
fn backup() -> (Store, Arc<dyn Storage>, String) {
    let (mut rng, _) = seeded(34);
    let store = Store::open_on(memory(), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    for key in 0..10 {
        dataset.insert(&record(&mut rng, Key::Int(key), true)).unwrap();
    }
    let backup = memory();
    let point = store.backup_to(backup.clone(), None).unwrap().point;
    (store, backup, format!("points/{point}.log"))
}

fn refusal(backup: &Arc<dyn Storage>) -> String {
    let place = memory();
    let error = Store::restore_on(backup, place.clone(), None, &small_options()).unwrap_err();
    assert!(matches!(error, Error::DamagedBackup { .. }) && error.exit_code() == Error::CORRUPTION, "{error}");
    assert!(!place.exists("MANIFEST").unwrap());
    error.to_string()
}

#[test]
fn a_log_that_was_taken_away_is_damage_and_stands_in_no_later_ones_way() {
    let (store, backup, name) = backup();
    backup.remove(&name).unwrap();
    let refused = refusal(&backup);
    assert!(refused.contains(&name) && refused.contains("the file is missing; take it again"), "{refused}");
    store.backup_to(backup.clone(), None).unwrap();
    Store::restore_on(&backup, memory(), None, &small_options()).unwrap();
}
