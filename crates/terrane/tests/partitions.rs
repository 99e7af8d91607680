//! Partitioned datasets: writes and queries do not depend on partitions, and several threads work
//! on them.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::support::workload::{MAIN, batch, first_schema};
use crate::support::{keys_of, small_options};
use terrane::{
    BatchOutcome, Condition, Dataset, DatasetOptions, Error, Explanation, IndexKind, Key, KeyRef, OnConflict, Options,
    Query, Record, Snapshot, Store, Value,
};
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::hook::HookedStorage;

fn at(key: i64) -> Record {
    let (x, y) = ((key * 37 % 1000) as f64 / 10.0, (key * 91 % 700) as f64 / 10.0);
    Record::at(key, x, y, vec![Value::Utf8(format!("w{} w{}", key % 3, key % 50)), Value::Int(key % 40)])
}

fn options(threads: usize) -> Options {
    Options { memory_limit: 32 << 20, threads_max: Some(threads), ..small_options() }
}

fn create(storage: Arc<dyn Storage>, threads: usize, partitions: usize) -> (Store, Dataset) {
    let store = Store::open_on(storage, options(threads)).unwrap();
    let dataset = store.create_dataset_with(MAIN, first_schema(), &DatasetOptions { partitions }).unwrap();
    (store, dataset)
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn import(store: &Store, keys: impl Iterator<Item = i64>) -> (u64, Vec<usize>) {
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    let records: Vec<Record> = keys.map(at).collect();
    for records in records.chunks(4096) {
        assert!(importer.push(&batch(&first_schema(), records)).unwrap().is_empty());
    }
    let mut refused = Vec::new();
    let report = importer.finish(&mut |row| {
        refused.push(row.row);
        Ok(())
    });
    (report.unwrap().records, refused)
}

#[test]
fn an_invalid_number_of_partitions_is_refused() {
    let store = Store::open_on(memory(), options(2)).unwrap();
    for partitions in [0, 65, usize::MAX] {
        let options = DatasetOptions { partitions };
        let created = store.create_dataset_with("d", first_schema(), &options).map(drop);
        let imported = store.importer_with("d", first_schema(), &options).map(drop);
        for error in [created.unwrap_err(), imported.unwrap_err()] {
            assert!(matches!(error, Error::Usage(_)) && error.to_string().contains("1 to 64"), "{error}");
        }
    }
    let dataset = store.create_dataset_with("d", first_schema(), &DatasetOptions { partitions: 64 }).unwrap();
    assert_eq!(dataset.partitions(), 64);
}

/// The opened files show which threads build.
#[test]
fn the_partitions_of_a_flush_are_built_by_several_threads() {
    for (threads, partitions, wanted) in [(1, 4, 1), (3, 4, 3), (8, 4, 4), (3, 1, 1)] {
        let builders: Arc<Mutex<HashSet<ThreadId>>> = Arc::default();
        let seen = builders.clone();
        let storage = HookedStorage::wrapping(memory(), move |file| {
            seen.lock().unwrap().insert(std::thread::current().id());
            file
        });
        let (store, dataset) = create(Arc::new(storage), threads, partitions);
        (0..100).for_each(|key| dataset.insert(&at(key)).unwrap());
        builders.lock().unwrap().clear();
        dataset.flush().unwrap();
        assert_eq!(builders.lock().unwrap().len(), wanted, "{threads} threads, {partitions} partitions");
        let counters = store.maintenance();
        assert_eq!((counters.flushes, counters.flush_threads), (1, wanted as u64), "{threads} of {partitions}");
        // One thread does the work of one partition.
        dataset.upsert(&at(1)).unwrap();
        dataset.flush().unwrap();
        let counters = store.maintenance();
        assert_eq!((counters.flushes, counters.flush_threads), (2, wanted as u64 + 1), "{threads} of {partitions}");
        assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 100);
    }
}

/// All partitions advance together, including those without writes.
#[test]
fn one_manifest_step_installs_the_flush_of_all_partitions() {
    let storage = memory();
    let (store, dataset) = create(storage.clone(), 2, 5);
    for round in 1..3 {
        let before = Manifest::read(&*storage).unwrap().unwrap().generation;
        dataset.upsert(&at(1)).unwrap();
        dataset.upsert(&at(round)).unwrap();
        dataset.flush().unwrap();
        let manifest = Manifest::read(&*storage).unwrap().unwrap();
        assert_eq!(manifest.generation, before + 1);
        let partitions = &manifest.datasets[0].partitions;
        let flushed: Vec<u64> = partitions.iter().map(|partition| partition.flushed_sequence).collect();
        assert_eq!(flushed, [2 * round as u64; 5]);
    }
    // A manifest that says otherwise was not written by this program.
    drop(dataset);
    store.close().unwrap();
    let mut manifest = Manifest::read(&*storage).unwrap().unwrap();
    manifest.datasets[0].partitions[2].flushed_sequence -= 1;
    storage.remove("MANIFEST").unwrap();
    manifest.write_to(&*storage, "MANIFEST").unwrap();
    let error = Store::open_on(storage, options(2)).unwrap_err();
    assert!(matches!(&error, Error::Damaged { file, .. } if file == "MANIFEST"), "{error:?}");
    assert!(error.to_string().contains("partition 2"), "{error}");
}

/// A flush includes all partitions, even if only one was written.
#[test]
fn changes_of_one_entry_are_flushed_from_all_its_partitions() {
    let storage = memory();
    let (store, dataset) = create(storage.clone(), 2, 3);
    for round in 0..3 {
        let mut batch = dataset.atomic_batch();
        (0..30).for_each(|key| batch.upsert(&at(key + round)).unwrap());
        batch.commit().unwrap();
        dataset.flush().unwrap();
        assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 30 + round as u64);
    }
    drop(dataset);
    store.close().unwrap();
    let store = Store::open_on(storage, options(2)).unwrap();
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty() && report.records == 32, "{report}");
}

/// A feed's position is the last one of all partitions.
#[test]
fn a_feeds_position_survives_a_flush_whatever_partition_has_its_last_record() {
    let storage = memory();
    let (store, dataset) = create(storage.clone(), 2, 3);
    drop((dataset, store));
    for position in 1..12 {
        let store = Store::open_on(storage.clone(), options(2)).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        let mut feed = dataset.feed("source").unwrap();
        assert_eq!(feed.position(), position - 1);
        let batch = batch(&first_schema(), &[at(position as i64)]);
        feed.write_batch(&batch, &[position], OnConflict::Refuse, &mut BatchOutcome::default()).unwrap();
        dataset.flush().unwrap();
        assert_eq!(dataset.feeds()[0].position, position);
    }
}

/// Two datasets, with one partition and with several, that have the same records, on disk and in
/// memory, some of them deleted.
fn twins(threads: usize) -> [(Store, Dataset); 2] {
    [1, 5].map(|partitions| {
        let (store, dataset) = create(memory(), threads, partitions);
        assert_eq!(import(&store, (0..24_000).rev()), (24_000, Vec::new()));
        dataset.create_index("by-size", IndexKind::BTree, &["size"]).unwrap();
        dataset.create_index("words", IndexKind::Inverted, &["name"]).unwrap();
        dataset.create_index("on-curve", IndexKind::Dhvb, &[]).unwrap();
        for round in 0..3 {
            let mut batch = dataset.atomic_batch();
            for key in (round..24_000).step_by(60) {
                match key % 2 {
                    0 => batch.delete(&Key::Int(key)).unwrap(),
                    _ => batch.upsert(&Record { key: Key::Int(key), ..at(key + 7) }).unwrap(),
                }
            }
            (0..50).for_each(|key| batch.upsert(&at(30_000 + round * 100 + key)).unwrap());
            batch.commit().unwrap();
            if round < 2 {
                dataset.flush().unwrap();
            }
        }
        (store, dataset)
    })
}

fn explanation(snapshot: &Snapshot, query: &Query) -> Explanation {
    let mut rows = snapshot.query(query).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    rows.explanation()
}

fn sorted(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by_key(crate::support::encoded);
    keys
}

/// Queries, and whether they are large.
fn queries() -> Vec<(Query, bool)> {
    let condition = |text: &str| Query::new().condition(Condition::parse(text).unwrap());
    vec![
        (Query::new(), true),
        (Query::new().window(-1.0, -1.0, 90.0, 60.0), true),
        (Query::new().window(-1.0, -1.0, 90.0, 60.0).columns(["id"]), true),
        (Query::new().window(3.0, 4.0, 6.0, 8.0), false),
        (Query::new().window(-1.0, -1.0, 90.0, 60.0).using_index("on-curve"), true),
        (Query::new().window(-1.0, -1.0, 90.0, 60.0).using_index("primary"), true),
        (condition("size between 3 and 30").using_index("by-size"), true),
        (condition("size = 7"), false),
        (condition("name match 'w1'").using_index("words"), false),
        (condition("name match 'w1' and size < 9").window(-1.0, -1.0, 90.0, 60.0), false),
        (condition("id between 500 and 20000"), true),
        (condition("id between 500 and 900"), false),
        (condition("id in (3, 77, 30105, -5)"), false),
        (condition("id = 77"), false),
        (condition("id = -77"), false),
        (condition("id < 3 and id > 3"), false),
        (Query::new().circle(50.0, 30.0, 40.0), true),
    ]
}

#[test]
fn rows_are_those_of_a_dataset_without_partitions() {
    let [(_one, plain), (_other, parted)] = twins(3);
    let (plain, parted) = (plain.snapshot(), parted.snapshot());
    for (query, is_large) in queries() {
        let wanted = sorted(keys_of(&plain, &query));
        assert_eq!(sorted(keys_of(&parted, &query)), wanted, "{query:?}");
        assert_eq!(keys_of(&parted, &query), keys_of(&parted, &query), "the order is the same again, {query:?}");
        assert_eq!(parted.count(&query).unwrap(), wanted.len() as u64, "{query:?}");
        assert_eq!(plain.count(&query).unwrap(), wanted.len() as u64, "{query:?}");
        let (one, several) = (explanation(&plain, &query), explanation(&parted, &query));
        assert_eq!((one.threads, several.threads), (1, if is_large { 3 } else { 1 }), "{query:?}: {several}");
        assert_eq!((one.plan, one.matches), (several.plan, several.matches), "{query:?}: {several}");
        assert_eq!(one.considered.len(), several.considered.len(), "{query:?}: {several}");
        for limit in [0, 1, 100, 8_500, 9_000] {
            let limited = query.clone().limit(limit);
            let some = keys_of(&parted, &limited);
            let expected = wanted.len().min(limit as usize);
            assert_eq!(some.len(), expected, "{limited:?}");
            assert_eq!(
                some.iter().map(crate::support::encoded).collect::<BTreeSet<_>>().len(),
                expected,
                "{limited:?}"
            );
            assert!(some.iter().all(|key| wanted.contains(key)) || expected > 200, "{limited:?}");
            assert_eq!(parted.count(&limited).unwrap(), expected as u64, "{limited:?}");
        }
    }
}

#[test]
fn the_nearest_are_those_of_a_dataset_without_partitions() {
    let [(_one, plain), (_other, parted)] = twins(3);
    let (plain, parted) = (plain.snapshot(), parted.snapshot());
    for (x, y) in [(0.0, 0.0), (50.05, 30.0), (99.0, -7.0)] {
        for k in [1, 30, 3_000] {
            for (query, _) in queries() {
                let nearest = query.nearest(x, y, k);
                if let Ok(rows) = plain.query(&nearest) {
                    drop(rows);
                    assert_eq!(keys_of(&parted, &nearest), keys_of(&plain, &nearest), "{nearest:?}");
                }
            }
            let visited = |snapshot: &Snapshot| {
                let mut found = Vec::new();
                let visit = |key: KeyRef<'_>, distance: f64| {
                    found.push((format!("{key:?}"), distance));
                    ControlFlow::Continue(())
                };
                snapshot.visit_nearest(x, y, k, visit).unwrap();
                found
            };
            assert_eq!(visited(&parted), visited(&plain), "nearest {k} to {x},{y}");
        }
        let visited = |snapshot: &Snapshot| {
            let mut found = BTreeSet::new();
            let visit = |key: KeyRef<'_>| {
                assert!(found.insert(format!("{key:?}")), "{key:?} comes twice");
                ControlFlow::Continue(())
            };
            snapshot.visit_window(x - 20.0, y - 20.0, x + 20.0, y + 20.0, visit).unwrap();
            found
        };
        assert_eq!(visited(&parted), visited(&plain), "around {x},{y}");
    }
}

/// While rows are read, threads find more. Dropping the rows ends this.
#[test]
fn dropping_the_rows_ends_the_threads() {
    let storage = memory();
    let (store, dataset) = create(storage.clone(), 2, 4);
    import(&store, 0..80_000);
    let looked_at = Arc::new(AtomicUsize::new(0));
    let count = looked_at.clone();
    let query = Query::new().predicate(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    });
    let mut rows = dataset.snapshot().query(&query).unwrap();
    assert!(rows.next_batch().unwrap().unwrap().num_rows() > 0);
    assert_eq!(rows.explanation().threads, 2);
    drop(rows);
    // At most three batches of 8,192 rows per thread were ready, taken, or waiting.
    let looked_at = looked_at.load(Ordering::Relaxed);
    assert!(looked_at <= 6 * 8192, "{looked_at} of 80,000 records were read");
    // Nothing else holds the store.
    drop(dataset);
    store.close().unwrap();
    Store::open_on(storage, options(4)).unwrap();
}

#[test]
fn an_error_in_one_partition_is_the_error_of_the_query() {
    let (store, dataset) = create(memory(), 4, 4);
    import(&store, 0..40_000);
    let snapshot = dataset.snapshot();
    let (first, at) = (AtomicUsize::new(0), 17_000);
    let fails = Query::new().predicate(move |_| match first.fetch_add(1, Ordering::Relaxed) == at {
        true => Err(Error::Refused { row: None, column: None, reason: "for a test".into() }),
        false => Ok(false),
    });
    let mut rows = snapshot.query(&fails).unwrap();
    let error = std::iter::from_fn(|| rows.next_batch().transpose()).find_map(Result::err).unwrap();
    assert!(error.to_string().contains("for a test"), "{error}");
    assert!(rows.next_batch().unwrap().is_none(), "the answer ends with the error");
    let first = AtomicUsize::new(0);
    let fails = Query::new().predicate(move |_| match first.fetch_add(1, Ordering::Relaxed) == at {
        true => Err(Error::Refused { row: None, column: None, reason: "for a test".into() }),
        false => Ok(false),
    });
    let error = snapshot.count(&fails).unwrap_err();
    assert!(error.to_string().contains("for a test"), "{error}");
    let first = AtomicUsize::new(0);
    let panics = Query::new().predicate(move |_| {
        assert!(first.fetch_add(1, Ordering::Relaxed) < at, "for a test");
        Ok(false)
    });
    let mut rows = snapshot.query(&panics).unwrap();
    let error = std::iter::from_fn(|| rows.next_batch().transpose()).find_map(Result::err).unwrap();
    assert!(error.to_string().contains("panicked"), "{error}");
}

/// With minimal memory, the components of many partitions are not all built at once.
#[test]
fn an_import_into_many_partitions_takes_each_row_once() {
    let options = Options { memory_limit: terrane::MEMORY_LIMIT_MIN, ..options(2) };
    let store = Store::open_on(memory(), options).unwrap();
    let dataset = store.create_dataset_with(MAIN, first_schema(), &DatasetOptions { partitions: 64 }).unwrap();
    (0..3_000).step_by(10).for_each(|key| dataset.insert(&at(key)).unwrap());
    // Out of order, with each of some keys twice, and some existing keys.
    let keys = (0..3_000).map(|number| number * 7 % 2_900);
    let (records, mut refused) = import(&store, keys.clone());
    let mut seen: BTreeSet<i64> = (0..3_000).step_by(10).collect();
    let wanted: Vec<usize> = keys.enumerate().filter(|(_, key)| !seen.insert(*key)).map(|(row, _)| row).collect();
    refused.sort_unstable();
    assert_eq!((records, refused), (3_000 - wanted.len() as u64, wanted));
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), seen.len() as u64);
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty() && report.records == seen.len() as u64, "{report}");
    // The same number of rows, in order, after the existing ones.
    assert_eq!(import(&store, 3_000..6_000), (3_000, Vec::new()));
    assert!(store.check(false).unwrap().findings.is_empty());
    // Keys taken since the import looked fail the whole import.
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    importer.push(&batch(&first_schema(), &[at(7_000), at(7_001), at(7_002)])).unwrap();
    let finished = importer.finish_after(&mut |row| Err(row.error), &mut |_| dataset.insert(&at(7_001)));
    assert!(matches!(finished, Err(Error::DuplicateKey { key: Key::Int(7_001) })), "{finished:?}");
}
