//! Many writers on few keys, with flushes, merges and readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::workload::{MAIN, batch, first_schema};
use crate::support::{encoded, keys_of, record, seeded, small_options};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::{Error, Key, LogOptions, MEMORY_LIMIT_MIN, Options, Query, Record, Snapshot, Store, Value};
use terrane_storage::{RealStorage, Storage};
use terrane_testkit::MemoryStorage;

const WRITERS: usize = 6;

fn options() -> Options {
    Options {
        background: true,
        log: LogOptions { segment_size: 64 << 10, first_segment_size: 16 << 10, spare_segments: 2 },
        ..small_options()
    }
}

/// A record with a long name, so that memory fills.
fn large(rng: &mut SmallRng, key: i64) -> Record {
    let mut record = record(rng, Key::Int(key), true);
    record.values[0] = Value::Utf8("n".repeat(rng.random_range(0..3000)));
    record
}

/// One random write. Refusals are expected.
fn write(store: &Store, rng: &mut SmallRng, keys: i64) {
    let dataset = store.dataset(MAIN).unwrap();
    let key = rng.random_range(0..keys);
    match rng.random_range(0..10) {
        0..3 => match dataset.insert(&large(rng, key)) {
            Ok(()) | Err(Error::DuplicateKey { .. }) => {}
            Err(error) => panic!("{error}"),
        },
        3..6 => dataset.upsert(&large(rng, key)).unwrap(),
        6..8 => {
            dataset.delete(&Key::Int(key)).unwrap();
        }
        8 => {
            let mut batch = dataset.atomic_batch();
            for key in [rng.random_range(0..keys), rng.random_range(0..keys), key] {
                match rng.random_ratio(1, 3) {
                    true => batch.delete(&Key::Int(key)).unwrap(),
                    false => batch.upsert(&large(rng, key)).unwrap(),
                }
            }
            batch.commit().unwrap();
        }
        _ => {
            let rows: Vec<i64> = (0..8).map(|_| rng.random_range(0..keys)).collect();
            let rows: Vec<Record> = rows.into_iter().map(|key| large(rng, key)).collect();
            dataset.write_batch(&batch(&dataset.schema(), &rows), terrane::OnConflict::Replace).unwrap();
        }
    }
}

/// All records of a snapshot, from the primary.
fn records(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Record> {
    let keys = keys_of(snapshot, &Query::new()).into_iter();
    keys.map(|key| (encoded(&key), snapshot.get(&key).unwrap().expect("a scan found the key"))).collect()
}

/// The spatial index and the primary agree within a snapshot.
fn verify(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Record> {
    let all = records(snapshot);
    let everywhere = Query::new().window(-1e6, -1e6, 1e6, 1e6);
    let placed: Vec<&Vec<u8>> =
        all.iter().filter(|(_, record)| record.geometry.is_some()).map(|(key, _)| key).collect();
    let mut indexed: Vec<Vec<u8>> = keys_of(snapshot, &everywhere).iter().map(encoded).collect();
    indexed.sort();
    let missing = placed.iter().filter(|key| indexed.binary_search(key).is_err()).count();
    assert_eq!((indexed.len(), missing), (placed.len(), 0), "index and primary at {}", snapshot.sequence());
    assert_eq!(snapshot.count(&everywhere).unwrap(), placed.len() as u64);
    assert_eq!(snapshot.count(&Query::new()).unwrap(), all.len() as u64);
    all
}

/// Runs writers to their end. Meanwhile another thread repeats `meanwhile`.
fn race(store: &Store, seed: u64, writes: usize, keys: i64, meanwhile: impl Fn(&mut SmallRng) + Send + Sync) -> usize {
    let done = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS as u64)
            .map(|writer| {
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed ^ (writer + 1).wrapping_mul(0x9e37_79b9));
                    (0..writes).for_each(|_| write(store, &mut rng, keys));
                })
            })
            .collect();
        for reader in 0..2 {
            let (done, rounds, meanwhile) = (&done, &rounds, &meanwhile);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed ^ 0xabcd ^ reader);
                while !done.load(Ordering::Acquire) || rounds.load(Ordering::Relaxed) == 0 {
                    meanwhile(&mut rng);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Release);
        outcomes.into_iter().for_each(|outcome| outcome.expect("a writer panicked"));
    });
    rounds.into_inner()
}

#[test]
fn writers_of_few_keys_keep_every_index_right_under_readers() {
    let (_, seed) = seeded(41);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let memory_max = AtomicUsize::new(0);
    race(&store, seed, 3000, 30, |rng| {
        let snapshot = dataset.snapshot();
        let before = verify(&snapshot);
        let memory: u64 = store.info().unwrap().datasets.iter().map(|dataset| dataset.memory_bytes).sum();
        memory_max.fetch_max(memory as usize, Ordering::Relaxed);
        if rng.random_ratio(1, 4) {
            dataset.flush().unwrap();
        }
        if rng.random_ratio(1, 12) {
            dataset.compact().unwrap();
        }
        assert_eq!(verify(&snapshot), before, "a snapshot does not change");
    });
    let counters = store.maintenance();
    assert!(counters.flushes > 2 && counters.merges > 0, "{counters:?}");
    let memory_max = memory_max.into_inner();
    assert!(memory_max < MEMORY_LIMIT_MIN / 2, "{memory_max} bytes of memory components");
    let all = verify(&dataset.snapshot());
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    drop(dataset);
    store.close().unwrap();
    let store = Store::open_on(storage, options()).unwrap();
    assert_eq!(verify(&store.dataset(MAIN).unwrap().snapshot()), all, "after reopening");
}

#[test]
fn writers_are_slowed_rather_than_memory_exceeded() {
    let (_, seed) = seeded(42);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage, options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let memory_max = AtomicUsize::new(0);
    race(&store, seed, 2500, 100_000, |_| {
        let memory: u64 = store.info().unwrap().datasets.iter().map(|dataset| dataset.memory_bytes).sum();
        memory_max.fetch_max(memory as usize, Ordering::Relaxed);
    });
    assert!(store.maintenance().flushes > 1, "memory filled: {:?}", store.maintenance());
    // Each admitted writer may exceed the components' share by one write.
    let limit = MEMORY_LIMIT_MIN / 8 * 3 + WRITERS * (64 << 10);
    let memory_max = memory_max.into_inner();
    assert!(memory_max <= limit, "{memory_max} bytes of memory components, {limit} allowed");
    verify(&dataset.snapshot());
    assert!(store.check(false).unwrap().findings.is_empty());
}

#[test]
fn read_only_stores_see_every_earlier_acknowledged_write() {
    let (_, seed) = seeded(43);
    let directory = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new(directory.path()));
    let store = Store::open_on(storage.clone(), options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let next = AtomicUsize::new(0);
    let rounds = race(&store, seed, 150, 40, |rng| {
        // Keys outside the writers' range, each inserted once and never deleted.
        let key = 1_000_000 + next.fetch_add(1, Ordering::Relaxed) as i64;
        let record = large(rng, key);
        dataset.insert(&record).unwrap();
        if rng.random_ratio(1, 3) {
            dataset.flush().unwrap();
        }
        let reader = Store::open_read_only_on(storage.clone(), options()).unwrap();
        let snapshot = reader.dataset(MAIN).unwrap().snapshot();
        let seen = verify(&snapshot);
        assert_eq!(seen.get(&encoded(&Key::Int(key))), Some(&record), "inserted before the reader opened");
        assert!(matches!(reader.dataset(MAIN).unwrap().insert(&record), Err(Error::ReadOnly)));
        dataset.flush().unwrap();
        assert_eq!(verify(&snapshot), seen, "a reader does not change");
    });
    assert!(rounds > 2);
    assert!(store.check(false).unwrap().findings.is_empty());
}
