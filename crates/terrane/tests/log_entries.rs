//! Log entries that this version cannot redo are refused, with their place.

use std::sync::Arc;

use crate::support::small_options;
use crate::support::workload::{MAIN, first_schema};
use terrane::{DatasetOptions, Error, Key, LogOptions, Options, Record, Store, Value};
use terrane_lsm::log::{Log, replay_read_only};
use terrane_lsm::manifest::Manifest;
use terrane_lsm::operation::{
    self, ENTRY_HEADER_LEN, EntryHeader, EntryKind, Operation, encode_header, encode_operation,
};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

/// A closed store with one extra entry at the end of its log, and the entry's offset. The dataset
/// has this many partitions.
fn store_with(partitions: usize, entry: &[u8]) -> (Arc<dyn Storage>, u64) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = store.create_dataset_with(MAIN, first_schema(), &DatasetOptions { partitions }).unwrap();
    dataset.insert(&Record::at(1, 1.0, 2.0, vec![Value::Null, Value::Null])).unwrap();
    drop(dataset);
    store.close().unwrap();
    let manifest = Manifest::read(&*storage).unwrap().unwrap();
    let store_id = u128::from_str_radix(&manifest.store_id, 16).unwrap().to_be_bytes();
    let options = LogOptions { segment_size: 64 << 10, ..small_options().log };
    let (log, _) = Log::open(storage.clone(), options, store_id, manifest.low_water, &mut |_, _| Ok(())).unwrap();
    log.reserve(entry.len()).unwrap();
    let appended = log.append(entry).unwrap();
    log.close().unwrap();
    (storage, appended.start_lsn)
}

fn header(kind: EntryKind) -> Vec<u8> {
    let header =
        EntryHeader { sequence: 2, transaction: 0, source_offset: 0, dataset: 1, partition: 0, source: 0, kind };
    let mut entry = Vec::new();
    encode_header(&header, &mut entry);
    entry
}

/// The errors of opening, for writing and for reading.
fn refusals(entry: &[u8]) -> ([Error; 2], u64) {
    refusals_of(1, entry)
}

fn refusals_of(partitions: usize, entry: &[u8]) -> ([Error; 2], u64) {
    let (storage, lsn) = store_with(partitions, entry);
    let writing = Store::open_on(storage.clone(), small_options()).unwrap_err();
    let reading = Store::open_read_only_on(storage, small_options()).unwrap_err();
    ([writing, reading], lsn)
}

#[test]
fn an_entry_of_an_unknown_kind_is_refused() {
    let mut later = header(EntryKind::COMMIT);
    later[36] = 9;
    for (entry, kind) in [(header(EntryKind::COMPONENTS_INSTALLED), 2), (later, 9)] {
        let (errors, lsn) = refusals(&entry);
        for error in errors {
            let message = error.to_string();
            assert!(!error.is_damage() && error.exit_code() == Error::FAILURE, "{error:?}");
            assert!(message.contains(&format!("kind {kind}")) && message.contains("newer"), "{message}");
            assert!(message.contains(&format!("LSN {lsn}")), "{message}");
        }
    }
}

#[test]
fn an_entry_that_cannot_be_read_is_damage_with_its_place() {
    let mut cut = header(EntryKind::COMMIT);
    let operation = Operation { index: 0, delete: false, key: b"12345678", value: b"record" };
    encode_operation(&operation, &mut cut);
    cut.pop();
    for entry in [&header(EntryKind::COMMIT)[..ENTRY_HEADER_LEN - 1], &cut[..]] {
        let (errors, lsn) = refusals(entry);
        for error in errors {
            let Error::Damaged { file, offset, reason } = &error else { panic!("{error:?}") };
            assert!(file.starts_with("log/") && *offset > 0, "{error}");
            assert!(reason.contains(&format!("LSN {lsn}")), "{error}");
        }
    }
}

/// The partition field of an entry for several partitions.
const SEVERAL: u32 = u32::MAX;

#[test]
fn an_entry_of_a_missing_partition_is_damage_with_its_place() {
    let of = |partition: u32, index: u32| {
        let mut entry = header(EntryKind::COMMIT);
        entry[28..32].copy_from_slice(&partition.to_le_bytes());
        let operation = Operation { index, delete: true, key: b"12345678", value: b"" };
        encode_operation(&operation, &mut entry);
        entry
    };
    // A dataset with one partition has no entries of several. An entry of several begins with a
    // change of a record.
    for (partitions, entry) in [(1, of(1, 0)), (1, of(SEVERAL, 0)), (3, of(3, 0)), (3, of(SEVERAL, 1))] {
        let (errors, lsn) = refusals_of(partitions, &entry);
        for error in errors {
            let Error::Damaged { file, reason, .. } = &error else { panic!("{error:?}") };
            assert!(file.starts_with("log/") && reason.contains(&format!("LSN {lsn}")), "{error}");
            assert!(reason.contains("of partition") || reason.contains("of several partitions"), "{error}");
        }
    }
}

/// The partitions named by the entries of a store's log.
fn partitions_of(storage: &Arc<dyn Storage>) -> Vec<u32> {
    let manifest = Manifest::read(&**storage).unwrap().unwrap();
    let store_id = u128::from_str_radix(&manifest.store_id, 16).unwrap().to_be_bytes();
    let mut partitions = Vec::new();
    replay_read_only(&**storage, store_id, manifest.low_water, &mut |_, entry| {
        partitions.push(operation::decode(entry)?.0.partition);
        Ok(())
    })
    .unwrap();
    partitions
}

#[test]
fn entries_name_their_partitions_and_are_redone_there() {
    for (partitions, single, several) in [(1, vec![0; 8], 0), (4, vec![3, 3, 3, 3, 3, 1, 1, 3], SEVERAL)] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = || Options { threads_max: Some(2), ..small_options() };
        let store = Store::open_on(storage.clone(), options()).unwrap();
        let dataset = store.create_dataset_with(MAIN, first_schema(), &DatasetOptions { partitions }).unwrap();
        let at = |key: i64, x: f64| Record::at(key, x, 2.0, vec![Value::Null, Value::Null]);
        (0..8).for_each(|key| dataset.insert(&at(key, 1.0)).unwrap());
        assert_eq!(partitions_of(&storage), single, "of so many: {partitions}");
        let commit = |changes: &[(i64, bool)]| {
            let mut batch = dataset.atomic_batch();
            for &(key, put) in changes {
                match put {
                    true => batch.upsert(&at(key, 5.0)).unwrap(),
                    false => batch.delete(&Key::Int(key)).unwrap(),
                }
            }
            batch.commit().unwrap();
        };
        // Keys of the same partition, and of several.
        commit(&[(0, true), (2, false)]);
        commit(&[(1, true), (3, false), (5, true), (7, false)]);
        assert_eq!(partitions_of(&storage)[8..], [single[0], several]);
        drop(dataset);
        store.close().unwrap();
        let store = Store::open_on(storage, options()).unwrap();
        let snapshot = store.dataset(MAIN).unwrap().snapshot();
        for key in 0..8 {
            let wanted = [Some(5.0), Some(5.0), None, None, Some(1.0), Some(5.0), Some(1.0), None][key as usize];
            assert_eq!(snapshot.get(&Key::Int(key)).unwrap(), wanted.map(|x| at(key, x)), "key {key}");
        }
        let report = store.check(false).unwrap();
        assert!(report.findings.is_empty() && report.records == 5, "{report}");
    }
}
