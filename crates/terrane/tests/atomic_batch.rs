//! An atomic batch is bounded by the memory components that its changes go to.

use std::sync::Arc;

use crate::support::crash::syncs;
use crate::support::small_options;
use crate::support::workload::{MAIN, first_schema};
use arrow_array::RecordBatch;
use terrane::{
    AtomicBatch, BatchOutcome, Dataset, Durability, Error, Key, LogOptions, OnConflict, Options, Query, Record, Store,
    Value,
};
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller};
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

/// The memory components' share of the memory limit.
const SHARE: usize = terrane::MEMORY_LIMIT_MIN / 8 * 3;
const TEXT_LENGTH: usize = 64 << 10;
/// Rows with long texts. Their number is below what is flushed, because a flush would sync the log
/// too.
const LONG_BATCH_ROWS: i64 = 22;

fn fill(dataset: &Dataset, bytes: usize) -> AtomicBatch {
    let mut batch = dataset.atomic_batch();
    for key in 0..(bytes / TEXT_LENGTH) as i64 {
        let text = Value::Utf8("t".repeat(TEXT_LENGTH));
        batch.upsert(&Record::at(key, key as f64 / 1e6, 1.0, vec![text, Value::Int(key)])).unwrap();
    }
    batch
}

#[test]
fn a_batch_that_would_fill_the_memory_components_is_refused_whole() {
    let log = LogOptions { segment_size: 4 * SHARE as u64, first_segment_size: 64 << 10, spare_segments: 0 };
    for durability in [Durability::Power, Durability::None] {
        let options = Options { log, durability: Some(durability), ..small_options() };
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage.clone(), options.clone()).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        let before = Record::at(1, 1.0, 1.0, vec![Value::Null, Value::Int(1)]);
        dataset.insert(&before).unwrap();

        let error = fill(&dataset, SHARE + SHARE / 4).commit().unwrap_err();
        let Error::Memory { needed_bytes, available_bytes, .. } = error else { panic!("{error:?}") };
        assert_eq!(available_bytes, SHARE as u64);
        assert!(needed_bytes > available_bytes && needed_bytes < 2 * available_bytes, "{error}");
        let message = error.to_string();
        assert!(message.contains("changes") && message.contains("smaller batches"), "{message}");
        let snapshot = dataset.snapshot();
        assert_eq!(snapshot.count(&Query::new()).unwrap(), 1);
        assert_eq!(snapshot.get(&Key::Int(1)).unwrap(), Some(before));
        drop(snapshot);

        // Later writes succeed, including batches that are almost as large.
        let batch = fill(&dataset, SHARE - SHARE / 8);
        let changes = batch.len() as u64;
        batch.commit().unwrap();
        store.close().unwrap();
        drop(dataset);
        let store = Store::open_on(storage, options).unwrap();
        assert!(store.check(false).unwrap().findings.is_empty());
        assert_eq!(store.dataset(MAIN).unwrap().snapshot().count(&Query::new()).unwrap(), changes);
    }
}

fn long_store(storage: Arc<dyn Storage>) -> (Store, Dataset, RecordBatch) {
    let log = LogOptions { segment_size: 16 << 20, first_segment_size: 16 << 20, spare_segments: 0 };
    let store = Store::open_on(storage, Options { log, ..small_options() }).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let record =
        |key: i64| Record::at(key, key as f64 / 1e6, 1.0, vec![Value::Utf8("t".repeat(TEXT_LENGTH)), Value::Int(key)]);
    let records: Vec<Record> = (0..LONG_BATCH_ROWS).map(record).collect();
    let batch = crate::support::workload::batch(&dataset.schema(), &records);
    (store, dataset, batch)
}

/// The bytes that the log holds until a sync count too.
#[test]
fn rows_of_a_long_batch_are_written_before_they_fill_the_memory() {
    let controller = Controller::new();
    let (_store, dataset, batch) = long_store(controller.storage());
    let before = controller.events();
    assert_eq!(dataset.write_batch(&batch, OnConflict::Refuse).unwrap().keys.len(), batch.num_rows());
    // With this working memory, a quarter of it is half a MiB.
    assert_eq!(syncs(&controller, before), 3);
}

/// If a batch fails late, it reports the rows that were durable before.
#[test]
fn a_failed_long_batch_reports_its_durable_keys() {
    let mut told = Vec::new();
    for at in 1..=3 {
        let controller = Controller::new();
        let storage = Arc::new(FaultyStorage::new(controller.storage()));
        let (_store, dataset, batch) = long_store(storage.clone());
        storage.arm(FaultPlan { at, fault: Fault::SyncFailure, persistent: true });
        let mut outcome = BatchOutcome::default();
        let error = dataset.write_batch_into(&batch, OnConflict::Refuse, &mut outcome).unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        told.push(outcome.keys.len());
        let budget = Budget { exhaustive_pending: 0, samples: 2, ..Budget::default() };
        for image in controller.images(controller.events(), &budget, 1) {
            let after = Store::open_on(image.storage(), small_options()).unwrap();
            let snapshot = after.dataset(MAIN).unwrap().snapshot();
            let lost = outcome.keys.iter().find(|key| snapshot.get(key).unwrap().is_none());
            assert_eq!(lost, None, "{}", image.describe());
        }
    }
    assert!(told[0] == 0 && told[1] > 0 && told[1] < told[2] && told[2] < LONG_BATCH_ROWS as usize, "{told:?}");
}

/// Inserts, upserts and deletes of one key.
#[test]
fn a_batch_with_an_insert_of_an_existing_key_changes_nothing() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let at = |key: i64, x: f64| Record::at(key, x, 1.0, vec![Value::Null, Value::Int(key)]);
    dataset.insert(&at(1, 1.0)).unwrap();
    let all = || {
        let snapshot = dataset.snapshot();
        let place = |key: i64| snapshot.get(&Key::Int(key)).unwrap();
        (snapshot.count(&Query::new()).unwrap(), place(1), place(2))
    };
    let before = all();

    let is_duplicate = |outcome: Result<(), Error>, key: i64| match outcome {
        Err(Error::DuplicateKey { key: Key::Int(found) }) => assert_eq!(found, key),
        other => panic!("{other:?}"),
    };
    let mut taken = dataset.atomic_batch();
    taken.upsert(&at(7, 7.0)).unwrap();
    taken.insert(&at(1, 9.0)).unwrap();
    is_duplicate(taken.commit(), 1);
    // An upsert after an insert does not permit the key to exist before.
    let mut replaced = dataset.atomic_batch();
    replaced.insert(&at(1, 9.0)).unwrap();
    replaced.upsert(&at(1, 10.0)).unwrap();
    is_duplicate(replaced.commit(), 1);
    let mut deleted = dataset.atomic_batch();
    deleted.insert(&at(1, 9.0)).unwrap();
    deleted.delete(&Key::Int(1)).unwrap();
    is_duplicate(deleted.commit(), 1);
    let mut twice = dataset.atomic_batch();
    twice.insert(&at(2, 2.0)).unwrap();
    is_duplicate(twice.insert(&at(2, 3.0)), 2);
    drop(twice);
    assert_eq!(all(), before);

    let mut anew = dataset.atomic_batch();
    anew.delete(&Key::Int(1)).unwrap();
    anew.insert(&at(1, 9.0)).unwrap();
    anew.insert(&at(2, 2.0)).unwrap();
    anew.insert(&at(3, 3.0)).unwrap();
    anew.delete(&Key::Int(3)).unwrap();
    anew.commit().unwrap();
    assert_eq!(all(), (2, Some(at(1, 9.0)), Some(at(2, 2.0))));
    assert!(store.check(false).unwrap().findings.is_empty());
}

#[test]
fn rows_of_a_record_batch_are_committed_together_or_named() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let rows = |keys: &[(i64, f64)]| {
        let records: Vec<Record> =
            keys.iter().map(|(key, x)| Record::at(*key, *x, 1.0, vec![Value::Null, Value::Int(*key)])).collect();
        crate::support::workload::batch(&dataset.schema(), &records)
    };
    let mut batch = dataset.atomic_batch();
    let outcome = batch.push(&rows(&[(4, 1.0), (5, 1.0), (4, 2.0)]), OnConflict::Refuse).unwrap();
    assert_eq!(outcome.keys, [Key::Int(4), Key::Int(5)]);
    let [refused] = &outcome.refused[..] else { panic!("{outcome:?}") };
    assert!(refused.row == 2 && matches!(refused.error, Error::DuplicateKey { .. }), "{refused:?}");
    let outcome = batch.push(&rows(&[(5, 3.0)]), OnConflict::Replace).unwrap();
    assert!(outcome.refused.is_empty() && batch.len() == 2);
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 0);
    batch.commit().unwrap();
    let snapshot = dataset.snapshot();
    let x = |key: i64| snapshot.get(&Key::Int(key)).unwrap().map(|record| record.geometry);
    assert_eq!(snapshot.count(&Query::new()).unwrap(), 2);
    assert_eq!(x(4), Some(Record::at(4, 1.0, 1.0, vec![]).geometry));
    assert_eq!(x(5), Some(Record::at(5, 3.0, 1.0, vec![]).geometry));
}
