//! After a close, every acknowledged write is stored, even without a log.

use std::sync::{Arc, Mutex};

use crate::support::workload::{MAIN, batch, first_schema, options};
use terrane::{BatchOutcome, DiskReserve, Durability, Error, Key, OnConflict, Options, Query, Record, Store, Value};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::hook::HookedStorage;

fn at(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)])
}

fn count(storage: &Arc<dyn Storage>, durability: Durability) -> u64 {
    let store = Store::open_on(storage.clone(), options(durability)).unwrap();
    store.dataset(MAIN).unwrap().snapshot().count(&Query::new()).unwrap()
}

/// Writes while the close flushes. Each is refused, or found when the store is opened again.
#[test]
fn writes_during_a_close_are_kept_or_refused() {
    for durability in [Durability::None, Durability::Power] {
        let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let hooked = Arc::new(HookedStorage::new(disk.clone()));
        let store = Store::open_on(hooked.clone(), options(durability)).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        dataset.insert(&at(0)).unwrap();
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        hooked.on_create({
            let (dataset, outcomes) = (dataset.clone(), outcomes.clone());
            move |_| {
                let mut outcomes = outcomes.lock().unwrap();
                let key = 1 + 10 * outcomes.len() as i64;
                outcomes.push(dataset.insert(&at(key)));
                outcomes.push(dataset.upsert(&at(key + 1)));
                let rows = batch(&first_schema(), &[at(key + 2)]);
                outcomes.push(dataset.write_batch(&rows, Default::default()).map(|_| ()));
                let mut changes = dataset.atomic_batch();
                changes.upsert(&at(key + 3)).unwrap();
                outcomes.push(changes.commit());
            }
        });
        store.close().unwrap();
        hooked.unhook();
        assert!(matches!(dataset.insert(&at(99)), Err(Error::Usage(_))), "closed");
        drop(dataset);
        let outcomes = outcomes.lock().unwrap();
        let tried = usize::from(durability == Durability::None);
        assert!(outcomes.len() >= tried, "a close without a log creates files");
        let kept = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
        assert_eq!(count(&disk, durability), 1 + kept, "{durability}: {outcomes:?}");
    }
}

/// Handles of a closed store read on, and keep no writer out. An import that was begun does, until
/// it ends: it has files of its own.
#[test]
fn a_closed_store_can_be_opened_while_its_handles_live() {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open = || Store::open_on(disk.clone(), options(Durability::Power));
    let store = open().unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    dataset.insert(&at(0)).unwrap();
    let snapshot = dataset.snapshot();
    assert!(matches!(open(), Err(Error::Locked { .. })));
    store.close_shared().unwrap();
    store.close_shared().unwrap();
    let again = open().unwrap();
    again.dataset(MAIN).unwrap().insert(&at(1)).unwrap();
    assert_eq!(snapshot.count(&Query::new()).unwrap(), 1);
    assert!(matches!(dataset.insert(&at(2)), Err(Error::Usage(_))));
    let import = again.importer(MAIN, first_schema()).unwrap();
    again.close_shared().unwrap();
    assert!(matches!(open(), Err(Error::Locked { .. })), "the import may still write");
    drop(import);
    assert_eq!(count(&disk, Durability::Power), 2);
}

/// Threads write until they are refused. Every acknowledged write is found.
#[test]
fn acknowledged_writes_before_a_close_are_kept() {
    for durability in [Durability::None, Durability::Power] {
        let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Store::open_on(disk.clone(), Options { background: true, ..options(durability) }).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        let acknowledged: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4i64)
                .map(|writer| {
                    let dataset = dataset.clone();
                    scope.spawn(move || {
                        let written = (0..).take_while(|number| dataset.insert(&at(writer << 32 | number)).is_ok());
                        written.count() as u64
                    })
                })
                .collect();
            while dataset.snapshot().count(&Query::new()).unwrap() < 200 {
                std::thread::yield_now();
            }
            store.close().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        drop(dataset);
        assert_eq!(count(&disk, durability), acknowledged, "{durability}");
    }
}

/// Without a log, a close that finds the disk full reports it. The memory components can still be
/// flushed through a remaining dataset.
#[test]
fn a_close_that_cannot_flush_loses_nothing_while_a_dataset_is_held() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let unreserved = Options { disk_reserve: DiskReserve::Bytes(0), ..options(Durability::None) };
    let store = Store::open_on(storage.clone(), unreserved).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    (0..20).for_each(|key| dataset.insert(&at(key)).unwrap());
    disk.set_capacity(disk.used_bytes());
    assert!(matches!(store.flush(), Err(Error::Full { .. })), "can be repeated");
    assert!(matches!(store.close(), Err(Error::Full { .. })));
    assert!(matches!(dataset.insert(&at(99)), Err(Error::Usage(_))), "no more writes are accepted");
    assert!(matches!(dataset.flush(), Err(Error::Full { .. })));
    assert_eq!(dataset.get(&Key::Int(7)).unwrap(), Some(at(7)));
    disk.set_capacity(u64::MAX);
    dataset.flush().unwrap();
    drop(dataset);
    assert_eq!(count(&storage, Durability::None), 20);
}

/// A batch that fills the disk reports which rows are durable. These are exactly the rows that a
/// reader finds later.
#[test]
fn a_batch_that_fills_the_disk_reports_its_durable_rows() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let store = Store::open_on(storage.clone(), options(Durability::Power)).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let records: Vec<Record> = (0..20_000).map(at).collect();
    let rows = batch(&dataset.schema(), &records);
    disk.set_capacity(disk.used_bytes() + (100 << 10));
    let mut outcome = BatchOutcome::default();
    let written = dataset.write_batch_into(&rows, OnConflict::Refuse, &mut outcome);
    assert!(matches!(written, Err(Error::Full { .. })), "{written:?}");
    assert!(!outcome.keys.is_empty() && outcome.keys.len() < records.len());
    disk.set_capacity(u64::MAX);
    let told = outcome.keys.len() as u64;
    drop((dataset, store));
    assert_eq!(count(&storage, Durability::Power), told);
}

/// Without the thread that flushes, a write without room would wait for ever.
#[test]
fn writes_are_refused_after_a_panic_of_the_flush() {
    let hooked = Arc::new(HookedStorage::new(Arc::new(MemoryStorage::new())));
    let options = Options {
        background: true,
        memory_limit: terrane::MEMORY_LIMIT_MIN,
        durability: Some(Durability::None),
        ..Options::default()
    };
    let store = Store::open_on(hooked.clone(), options).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    hooked.on_create(|name| assert!(!name.starts_with("components/"), "a flush that panics on purpose"));
    let text = "t".repeat(64 << 10);
    let refused = (0..1000).find_map(|key| {
        dataset.insert(&Record::at(key, 1.0, 1.0, vec![Value::Utf8(text.clone()), Value::Int(key)])).err()
    });
    let message = refused.expect("more than fits in memory").to_string();
    assert!(message.contains("the thread that flushes panicked") && message.contains("reopen"), "{message}");
    assert_eq!(message.matches("refuses writes").count(), 1, "{message}");
    // The close flushes the acknowledged writes.
    store.close().unwrap();
}
