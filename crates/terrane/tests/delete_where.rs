//! Deleting the records that meet a condition: all of them and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::crash::syncs;
use crate::support::workload::{MAIN, batch, first_schema};
use crate::support::{schema, seeded, small_options};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::schema::KeyType;
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, DiskReserve, Error, Filter, Key, LogOptions, Options, Query,
    Record, Store, Value,
};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::Controller;

fn sized(key: i64, size: i64) -> Record {
    let place = (key % 100) as f64;
    Record::at(key, place, place, vec![Value::Utf8("n".repeat(20)), Value::Int(size)])
}

fn condition(text: &str) -> Condition {
    Condition::parse(text).unwrap()
}

fn count(dataset: &Dataset, text: &str) -> u64 {
    dataset.snapshot().count(&Query::new().condition(condition(text))).unwrap()
}

/// More records than fit in a batch of keys, or in the memory components.
const RECORDS: i64 = 30_000;

fn filled(storage: &Arc<dyn Storage>) -> (Store, Dataset) {
    filled_with(storage, small_options())
}

fn filled_with(storage: &Arc<dyn Storage>, options: Options) -> (Store, Dataset) {
    let store = Store::open_on(storage.clone(), options).unwrap();
    let partitions = DatasetOptions { partitions: 3 };
    let dataset = store.create_dataset_with(MAIN, first_schema(), &partitions).unwrap();
    let records: Vec<Record> = (0..RECORDS).map(|key| sized(key, key % 10)).collect();
    for records in records.chunks(5000) {
        dataset.write_batch(&batch(&first_schema(), records), terrane::OnConflict::Refuse).unwrap();
    }
    (store, dataset)
}

#[test]
fn exactly_the_records_that_meet_condition_and_filters_are_deleted() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (store, dataset) = filled(&storage);
    assert_eq!(dataset.delete_where(&condition("size >= 4"), &[]).unwrap(), 18_000);
    assert_eq!((count(&dataset, "size >= 4"), count(&dataset, "size < 4")), (0, 12_000));
    assert_eq!(dataset.delete_where(&condition("size >= 4"), &[]).unwrap(), 0);
    let window = Filter::Window { x0: 0.0, y0: 0.0, x1: 49.5, y1: 99.0 };
    let circle = Filter::Circle { x: 0.0, y: 0.0, radius: 30.0 };
    let inside = |key: &i64| key % 10 == 1 && key % 100 <= 21;
    let wanted = (0..RECORDS).filter(inside).count() as u64;
    assert_eq!(dataset.delete_where(&condition("size = 1"), &[window, circle]).unwrap(), wanted);
    drop(dataset);
    store.close().unwrap();
    let store = Store::open_on(storage, small_options()).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    assert_eq!(count(&dataset, "id >= 0"), 12_000 - wanted);
    assert_eq!(count(&dataset, "size = 1"), 3000 - wanted);
    for key in (0..RECORDS).step_by(7) {
        let is_there = dataset.get(&Key::Int(key)).unwrap().is_some();
        assert_eq!(is_there, key % 10 < 4 && !inside(&key), "{key}");
    }
    let everywhere = dataset.snapshot().count(&Query::new().window(-1.0, -1.0, 100.0, 100.0)).unwrap();
    assert_eq!(everywhere, 12_000 - wanted);
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn invalid_conditions_delete_nothing() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (store, dataset) = filled(&storage);
    for text in ["sise = 1", "size = 'x'", "name match ''"] {
        assert!(matches!(dataset.delete_where(&condition(text), &[]), Err(Error::Usage(_))), "{text}");
    }
    let filter = Filter::Circle { x: 0.0, y: 0.0, radius: -1.0 };
    assert!(matches!(dataset.delete_where(&condition("size = 1"), &[filter]), Err(Error::Usage(_))));
    assert_eq!(count(&dataset, "id is not null"), RECORDS as u64);
    drop(dataset);
    store.close().unwrap();
    let store = Store::open_read_only_on(storage, small_options()).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    assert!(matches!(dataset.delete_where(&condition("size = 1"), &[]), Err(Error::ReadOnly)));
}

#[test]
fn a_delete_that_ends_on_a_full_disk_reports_its_progress() {
    let disk = MemoryStorage::new();
    let options = Options { disk_reserve: DiskReserve::Bytes(0), ..small_options() };
    let (_store, dataset) = filled_with(&(Arc::new(disk.clone()) as Arc<dyn Storage>), options);
    disk.set_capacity(disk.used_bytes());
    let error = dataset.delete_where(&condition("size >= 0"), &[]).unwrap_err();
    let Error::PartlyDeleted { deleted, cause } = &error else { panic!("{error:?}") };
    assert!(matches!(**cause, Error::Full { .. }) && *deleted > 0, "{error:?}");
    assert_eq!(count(&dataset, "id is not null"), RECORDS as u64 - deleted);
    let told = error.to_string();
    assert!(told.contains(&format!("{deleted} records were deleted before that")), "{told}");
    assert_eq!(error.exit_code(), Error::FAILURE);
    disk.set_capacity(u64::MAX);
    assert_eq!(dataset.delete_where(&condition("size >= 0"), &[]).unwrap(), RECORDS as u64 - deleted);
}

/// Each key has its own writer, which knows the record. While the record does not meet the
/// condition, it is never deleted, even if it met the condition before.
#[test]
fn a_record_that_does_not_meet_the_condition_is_never_deleted() {
    const WRITERS: i64 = 3;
    let (_, seed) = seeded(0xDE1E_7E01);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage, Options { background: true, ..small_options() }).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let done = AtomicBool::new(false);
    let deleted = std::thread::scope(|scope| {
        let deletion = scope.spawn(|| {
            let mut deleted = 0;
            while !done.load(Ordering::Acquire) || deleted == 0 {
                deleted += dataset.delete_where(&condition("size in (1, 3)"), &[]).unwrap();
            }
            deleted
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let dataset = &dataset;
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed ^ writer as u64);
                    for _ in 0..4000 {
                        let key = rng.random_range(0..8) * WRITERS + writer;
                        dataset.upsert(&sized(key, 1)).unwrap();
                        let size = rng.random_range(0..2) * 2;
                        dataset.upsert(&sized(key, size)).unwrap();
                        let found = dataset.get(&Key::Int(key)).unwrap();
                        assert_eq!(found, Some(sized(key, size)), "key {key}, seed {seed}");
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        // A record to delete, or the deletion might wait for ever.
        dataset.upsert(&sized(1000, 3)).unwrap();
        done.store(true, Ordering::Release);
        let deleted = deletion.join().unwrap();
        outcomes.into_iter().for_each(|outcome| outcome.expect("a writer found what it had written"));
        deleted
    });
    assert!(deleted > 0);
    assert_eq!(count(&dataset, "size in (0, 2)"), 8 * WRITERS as u64);
    assert!(store.check(false).unwrap().findings.is_empty());
}

/// The log holds its bytes in memory until a sync.
#[test]
fn many_deletes_are_acknowledged_before_they_fill_the_memory() {
    const COUNT: u32 = 500;
    let controller = Controller::new();
    let log = LogOptions { segment_size: 4 << 20, first_segment_size: 4 << 20, spare_segments: 0 };
    let store = Store::open_on(controller.storage(), Options { log, ..small_options() }).unwrap();
    let dataset = store.create_dataset(MAIN, schema(KeyType::Binary, true, CoordinateSystem::Planar)).unwrap();
    for number in 0..COUNT {
        // A delete has its key in two indexes, so it takes about 2 KB in the log.
        let key = Key::Binary(number.to_be_bytes().repeat(250));
        dataset.insert(&Record::at(key, 1.0, 1.0, vec![Value::Null, Value::Null])).unwrap();
    }
    dataset.flush().unwrap();
    let before = controller.events();
    assert_eq!(dataset.delete_where(&condition("id is not null"), &[]).unwrap(), u64::from(COUNT));
    // With this working memory, a quarter of it is half a MiB.
    assert_eq!(syncs(&controller, before), 2);
}
