//! Entries of the log that this version cannot redo are refused, with their place.

use std::sync::Arc;

use crate::support::small_options;
use crate::support::workload::{MAIN, first_schema};
use terrane::{Error, LogOptions, Record, Store, Value};
use terrane_lsm::log::Log;
use terrane_lsm::manifest::Manifest;
use terrane_lsm::operation::{ENTRY_HEADER_LEN, EntryHeader, EntryKind, Operation, encode_header, encode_operation};
use terrane_storage::{MemoryStorage, Storage};

/// A closed store with an entry behind its others, and where that lies.
fn store_with(entry: &[u8]) -> (Arc<dyn Storage>, u64) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
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

/// What opening says, for writing and for reading.
fn refusals(entry: &[u8]) -> ([Error; 2], u64) {
    let (storage, lsn) = store_with(entry);
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
