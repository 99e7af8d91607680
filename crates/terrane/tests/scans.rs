//! Scans in parts: together the rows of the query, at one state, and cancellable.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::workload::{MAIN, batch, first_schema};
use crate::support::{array_key, small_options};
use arrow_array::RecordBatch;
use terrane::key::KeyType;
use terrane::{
    Condition, Dataset, DatasetOptions, Error, Key, OnConflict, Options, Query, Record, Scan, Store, Value,
    interruptible,
};
use terrane_testkit::MemoryStorage;

const RECORDS: i64 = 20_000;

fn at(key: i64) -> Record {
    let (x, y) = ((key * 37 % 1000) as f64 / 10.0, (key * 91 % 700) as f64 / 10.0);
    Record::at(key, x, y, vec![Value::Utf8(format!("w{}", key % 3)), Value::Int(key % 40)])
}

fn create(partitions: usize) -> (Store, Dataset) {
    let options = Options { memory_limit: 32 << 20, threads_max: Some(2), ..small_options() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let dataset = store.create_dataset_with(MAIN, first_schema(), &DatasetOptions { partitions }).unwrap();
    for keys in (0..RECORDS).collect::<Vec<_>>().chunks(4000) {
        let records: Vec<Record> = keys.iter().map(|key| at(*key)).collect();
        let outcome = dataset.write_batch(&batch(&first_schema(), &records), OnConflict::Refuse).unwrap();
        assert!(outcome.refused.is_empty());
    }
    (store, dataset)
}

fn keys_of(batch: &RecordBatch) -> Vec<Key> {
    (0..batch.num_rows()).map(|row| array_key(batch.column(0), row, KeyType::Int64)).collect()
}

fn rows(scan: &Scan, part: usize) -> Vec<Key> {
    scan.read(part).unwrap().flat_map(|batch| keys_of(&batch.unwrap())).collect()
}

#[test]
fn parts_have_the_rows_of_the_query_once_and_of_one_state() {
    for partitions in [1, 4] {
        let (_store, dataset) = create(partitions);
        let snapshot = dataset.snapshot();
        let queries = [
            Query::new(),
            Query::new().window(10.0, 10.0, 80.0, 60.0),
            Query::new().condition(Condition::parse("size < 30").unwrap()),
            Query::new().nearest(50.0, 35.0, 20),
        ];
        for query in queries {
            let wanted: Vec<Key> = snapshot.query(&query).unwrap().flat_map(|batch| keys_of(&batch.unwrap())).collect();
            let scan = snapshot.scan(&query, 3).unwrap();
            let deleted = wanted.iter().any(|key| dataset.delete(key).unwrap());
            assert!(deleted, "there is a later write, which is not seen");
            let found: Vec<Key> = (0..scan.parts()).flat_map(|part| rows(&scan, part)).collect();
            assert_eq!(found.len(), wanted.len(), "{query:?}");
            let (found, wanted): (BTreeSet<Key>, BTreeSet<Key>) =
                (found.into_iter().collect(), wanted.into_iter().collect());
            assert!(found == wanted, "{query:?}");
        }
        assert_eq!(snapshot.scan(&Query::new(), 1).unwrap().parts(), partitions.min(2));
    }
}

#[test]
fn a_limit_holds_for_each_part() {
    let (_store, dataset) = create(4);
    let scan = dataset.snapshot().scan(&Query::new().limit(9_000), 1).unwrap();
    for part in 0..scan.parts() {
        let all = scan.partitions(part).unwrap();
        assert!(!all.is_empty());
        assert!(rows(&scan, part).len() <= 9_000);
    }
    assert!((0..scan.parts()).map(|part| rows(&scan, part).len()).sum::<usize>() >= 9_000);
}

#[test]
fn a_cancelled_part_ends_with_an_error() {
    let (_store, dataset) = create(1);
    let scan = dataset.snapshot().scan(&Query::new(), 1).unwrap();
    let mut rows = scan.read(0).unwrap();
    assert!(rows.next_batch().unwrap().is_some());
    rows.cancellation().cancel();
    assert!(matches!(rows.next_batch(), Err(Error::Cancelled)));
    assert!(matches!(scan.read(1), Err(Error::Usage(_))));
}

/// By the primary index and by the R-tree, in one partition, and in several, where other threads
/// find the rows.
#[test]
fn a_caller_can_interrupt_its_searches() {
    let queries = [
        Query::new().condition(Condition::parse("size < 0").unwrap()),
        Query::new().window(0.0, 0.0, 80.0, 60.0).condition(Condition::parse("size < 30").unwrap()),
    ];
    for (partitions, query) in [1, 4].into_iter().flat_map(|partitions| queries.iter().map(move |q| (partitions, q))) {
        let (_store, dataset) = create(partitions);
        let snapshot = dataset.snapshot();
        // Each asks now and then, so one of them finds out.
        let until_error = |search: &dyn Fn() -> terrane::Result<()>| {
            interruptible(|| true, || std::iter::repeat_with(search).find_map(Result::err))
        };
        let counted = until_error(&|| snapshot.count(query).map(drop));
        assert!(matches!(counted, Some(Error::Cancelled)), "{query:?}: {counted:?}");
        let read = until_error(&|| snapshot.query(query)?.try_for_each(|batch| batch.map(drop)));
        assert!(matches!(read, Some(Error::Cancelled)), "{query:?}: {read:?}");
        assert!(snapshot.query(query).unwrap().all(|batch| batch.is_ok()), "others do not ask");
    }
}

/// Hosts read parts on threads of their own.
#[test]
fn scans_move_between_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Scan>();
    is_sync::<Scan>();
    is_send::<terrane::ScanRows>();
    is_send::<terrane::ScanCancellation>();
}
