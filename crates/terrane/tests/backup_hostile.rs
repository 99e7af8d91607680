//! Backups in which somebody has changed something, with checksums that are right: bounded work, and errors that say where.

use std::sync::Arc;

use terrane::{Error, Key, Store};
use terrane_storage::{MemoryStorage, OpenMode, Storage};

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

/// Where the header of the first segment is in an exported log, and where in it its size.
const HEADER: u64 = 8;
const SIZE_IN_HEADER: usize = 56;

#[test]
fn a_segment_is_not_made_larger_than_a_log_has_them() {
    let (_store, backup, name) = backup();
    let file = backup.open(&name, OpenMode::Write).unwrap();
    let mut header = [0; 128];
    file.read_exact_at(&mut header, HEADER).unwrap();
    header[SIZE_IN_HEADER..SIZE_IN_HEADER + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let checksum = crc32c::crc32c(&header[12..]);
    header[8..12].copy_from_slice(&checksum.to_le_bytes());
    file.write_all_at(&header, HEADER).unwrap();
    let refused = refusal(&backup);
    assert!(refused.contains(&name) && refused.contains("a segment of 1099511627776 bytes"), "{refused}");
}

#[test]
fn a_log_that_was_taken_away_is_damage_and_stands_in_no_later_ones_way() {
    let (store, backup, name) = backup();
    backup.remove(&name).unwrap();
    let refused = refusal(&backup);
    assert!(refused.contains(&name) && refused.contains("the file is missing; take it again"), "{refused}");
    // Nor when it goes.
    for keep in [None, Some(1)] {
        store.backup_to(backup.clone(), keep).unwrap();
        Store::restore_on(&backup, memory(), None, &small_options()).unwrap();
    }
    assert_eq!(backup.list("points").unwrap().len(), 2);
}
