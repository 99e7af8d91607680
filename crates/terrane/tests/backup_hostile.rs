//! Backups that somebody has changed, with correct checksums. They cost bounded work, and errors
//! name the place.

use std::sync::Arc;

use terrane::{DatasetOptions, Error, Key, Store};
use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::Manifest;
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;

use crate::support::workload::{MAIN, first_schema};
use crate::support::{record, seeded, small_options};

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

/// A backup of a store with records in its log, and the log's name.
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

/// Offset of the first segment's header in an exported log, and of the size within it.
const HEADER: u64 = 8;
const SIZE_IN_HEADER: usize = 56;

#[test]
fn an_oversized_segment_is_refused() {
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
fn a_missing_log_is_damage_and_does_not_prevent_later_backups() {
    let (store, backup, name) = backup();
    backup.remove(&name).unwrap();
    let refused = refusal(&backup);
    assert!(refused.contains(&name) && refused.contains("the file is missing; back up again"), "{refused}");
    // Nor does its removal.
    for keep in [None, Some(1)] {
        store.backup_to(backup.clone(), keep).unwrap();
        Store::restore_on(&backup, memory(), None, &small_options()).unwrap();
    }
    assert_eq!(backup.list("points").unwrap().len(), 2);
}

/// No checksum shows what a manifest lacks, but the files left over do.
#[test]
fn components_missing_from_a_manifest_are_reported() {
    let (mut rng, _) = seeded(35);
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("backup");
    let store = Store::open_on(memory(), small_options()).unwrap();
    let options = DatasetOptions { partitions: 3 };
    let dataset = store.create_dataset_with(MAIN, first_schema(), &options).unwrap();
    for key in 0..100 {
        dataset.insert(&record(&mut rng, Key::Int(key), true)).unwrap();
    }
    store.flush().unwrap();
    let point = store.backup(&place, None).unwrap().point;
    assert_eq!(Store::backup_components_left(&place).unwrap(), Vec::<String>::new());
    let name = format!("points/{point}.manifest");
    let backup = RealStorage::new(&place);
    let mut manifest = Manifest::read_from(&backup, &name).unwrap().unwrap();
    let mut taken = Vec::new();
    for index in &mut manifest.datasets[0].partitions[1].indexes {
        taken.extend(index.components.drain(..).map(|meta| component_name(meta.file_id)));
    }
    backup.remove(&name).unwrap();
    manifest.write_to(&backup, &name).unwrap();
    let mut left = Store::backup_components_left(&place).unwrap();
    left.sort();
    taken.sort();
    assert!(!taken.is_empty() && left == taken, "{left:?} instead of {taken:?}");
    // While a manifest is damaged, they may belong to it.
    backup.open(&name, OpenMode::Write).unwrap().set_len(50).unwrap();
    assert_eq!(Store::backup_components_left(&place).unwrap(), Vec::<String>::new());
}
