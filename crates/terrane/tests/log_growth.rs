//! The log grows with the memory components, not with the data.

use std::sync::Arc;

use crate::support::small_options;
use crate::support::workload::first_schema;
use terrane::{Dataset, Error, LogOptions, MEMORY_LIMIT_MIN, Options, Query, Record, Store, Value};
use terrane_storage::{OpenMode, Operation, Storage};
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

const WRITES: i64 = 12_000;
const RECORD_BYTES: usize = 2000;
/// Datasets that are written once.
const QUIET: usize = 3;

fn at(key: i64, bytes: usize) -> Record {
    Record::at(key % 5000, key as f64, 1.0, vec![Value::Utf8("n".repeat(bytes)), Value::Int(key)])
}

fn log_bytes(storage: &dyn Storage) -> u64 {
    let names = storage.list("log").unwrap();
    // A file may be removed after it was listed.
    let files = names.iter().filter_map(|name| storage.open(&format!("log/{name}"), OpenMode::Read).ok());
    files.map(|file| file.len().unwrap()).sum()
}

/// Writes much into one dataset, and a record into each of some others. Returns the number of
/// flushes and the maximal size of the log in bytes.
fn run(background: bool, quiet: usize, log: LogOptions) -> (u64, u64) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = Options { background, log, ..small_options() };
    let store = Store::open_on(storage.clone(), options.clone()).unwrap();
    let busy = store.create_dataset("busy", first_schema()).unwrap();
    let quiet: Vec<Dataset> =
        (0..quiet).map(|number| store.create_dataset(&format!("quiet{number}"), first_schema()).unwrap()).collect();
    quiet.iter().for_each(|dataset| dataset.insert(&at(1, 10)).unwrap());
    let mut bytes_max = 0;
    for key in 0..WRITES {
        busy.upsert(&at(key, RECORD_BYTES)).unwrap();
        if key % 50 == 0 {
            bytes_max = bytes_max.max(log_bytes(&*storage));
        }
    }
    let flushes = store.maintenance().flushes;
    drop((busy, quiet));
    store.close().unwrap();
    let store = Store::open_on(storage, options).unwrap();
    for name in store.dataset_names() {
        let wanted = if name == "busy" { 5000 } else { 1 };
        assert_eq!(store.dataset(&name).unwrap().snapshot().count(&Query::new()).unwrap(), wanted, "{name}");
    }
    (flushes, bytes_max)
}

#[test]
fn rarely_written_datasets_do_not_keep_the_log() {
    let written = WRITES as u64 * RECORD_BYTES as u64;
    let components = MEMORY_LIMIT_MIN as u64 / 8 * 3;
    for background in [false, true] {
        let (alone, _) = run(background, 0, small_options().log);
        let (flushes, bytes) = run(background, QUIET, small_options().log);
        // The bound covers the kept segments, the writes during a background flush, and those until
        // the next flush, which releases them.
        assert!(bytes < 3 * components, "{bytes} bytes of log for {written} bytes, background {background}");
        // Each of them is flushed once, and not with every flush of the busy dataset. Their number
        // varies if flushes run beside the writes.
        if !background {
            assert!(flushes <= alone + QUIET as u64, "{flushes} flushes instead of {alone}");
        }
    }
}

/// A log with whole segments to release is not made shorter than one segment.
#[test]
fn datasets_are_not_flushed_for_less_than_a_log_segment() {
    let log = LogOptions { segment_size: 64 << 20, ..LogOptions::default() };
    let (alone, _) = run(false, 0, log);
    let (flushes, _) = run(false, QUIET, log);
    assert_eq!(flushes, alone);
}

/// A flush succeeds even if the log cannot remove the files that it no longer needs.
#[test]
fn a_flush_whose_freed_log_cannot_be_removed_has_succeeded() {
    let storage = Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new())));
    let log = LogOptions { segment_size: 8 << 10, first_segment_size: 8 << 10, spare_segments: 0 };
    let options = Options { background: false, log, ..small_options() };
    let open = || Store::open_on(storage.clone() as Arc<dyn Storage>, options.clone()).unwrap();
    let fill = |store: &Store, keys: std::ops::Range<i64>| {
        let dataset = store.dataset("main").unwrap();
        keys.for_each(|key| dataset.insert(&at(key, 10)).unwrap());
    };
    let store = open();
    store.create_dataset("main", first_schema()).unwrap();
    fill(&store, 0..300);
    // A flush like the next one, to find the call that removes the first log file.
    storage.record_calls();
    store.flush().unwrap();
    let calls = storage.recorded_calls();
    let first = calls.iter().position(|call| call.operation == Operation::Remove && call.name.starts_with("log/"));
    let at = 1 + first.expect("a flush that gives up a file of the log") as u64;
    fill(&store, 300..600);
    let freed = storage.list("log").unwrap().remove(0);
    storage.arm(FaultPlan { at, fault: Fault::Eio, persistent: false });
    let told = store.flush();
    assert!(matches!(told, Err(Error::Unreclaimed { .. })), "{told:?}");
    assert_eq!(storage.faults(), 1);
    assert!(storage.list("log").unwrap().contains(&freed));
    store.flush().unwrap();
    store.close().unwrap();
    let store = open();
    assert_eq!(store.dataset("main").unwrap().snapshot().count(&Query::new()).unwrap(), 600);
    let left = storage.list("log").unwrap();
    assert!(!left.contains(&freed), "a file of the log that is needed no more is left: {left:?}");
}

/// Each opening for writing begins a segment. Segments that no flush releases are released by an
/// opening.
#[test]
fn sessions_that_leave_nothing_in_memory_do_not_keep_the_log() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open = || Store::open_on(storage.clone(), small_options()).unwrap();
    let store = open();
    store.create_dataset("main", first_schema()).unwrap().insert(&at(1, 10)).unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    for session in 0..30 {
        let store = open();
        let dataset = store.dataset("main").unwrap();
        match session % 3 {
            0 => assert!(matches!(dataset.insert(&at(1, 10)), Err(Error::DuplicateKey { .. }))),
            1 => dataset.compact().unwrap(),
            _ => {}
        }
        assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 1);
        drop(dataset);
        store.close().unwrap();
        let files = storage.list("log").unwrap();
        assert!(files.len() <= 6, "{files:?} after {session} sessions");
    }
    // Row numbers continue.
    let store = open();
    store.dataset("main").unwrap().upsert(&at(1, 20)).unwrap();
    let found = store.dataset("main").unwrap().get(&1.into()).unwrap().unwrap();
    assert_eq!(found, at(1, 20));
}
