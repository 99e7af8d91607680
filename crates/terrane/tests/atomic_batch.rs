//! An atomic batch is bounded by the memory that its changes go to.

use std::sync::Arc;

use crate::support::small_options;
use crate::support::workload::{MAIN, first_schema};
use terrane::{
    AtomicBatch, Dataset, Durability, Error, Key, LogOptions, OnConflict, Options, Query, Record, Store, Value,
};
use terrane_storage::MemoryStorage;
use terrane_storage::crash::{Controller, DiskEvent, Event};

/// The memory components' share of the memory limit.
const SHARE: usize = terrane::MEMORY_LIMIT_MIN / 8 * 3;
const TEXT_LENGTH: usize = 64 << 10;

fn fill(dataset: &Dataset, bytes: usize) -> AtomicBatch<'_> {
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

        // Writes go on, also of batches that are nearly as large.
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

/// What the log holds until it is synced counts too.
#[test]
fn rows_of_a_long_batch_are_written_before_they_fill_the_memory() {
    let controller = Controller::new();
    let log = LogOptions { segment_size: 16 << 20, first_segment_size: 16 << 20, spare_segments: 0 };
    let store = Store::open_on(controller.storage(), Options { log, ..small_options() }).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let record =
        |key: i64| Record::at(key, key as f64 / 1e6, 1.0, vec![Value::Utf8("t".repeat(TEXT_LENGTH)), Value::Int(key)]);
    let records: Vec<Record> = (0..32).map(record).collect();
    let batch = crate::support::workload::batch(&dataset.schema(), &records);
    let before = controller.events();
    assert_eq!(dataset.write_batch(&batch, OnConflict::Refuse).unwrap().keys.len(), records.len());
    let is_sync = |event: &&Event| matches!(event, Event::Disk(DiskEvent::Sync { .. }));
    let syncs = controller.log()[before..].iter().filter(is_sync).count();
    // 2 MiB of texts, and a working memory of which a quarter is half of one.
    assert!((3..=8).contains(&syncs), "{syncs}");
}
