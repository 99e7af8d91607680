//! Queries beside a writer that holds a key until its sync ends.

use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use terrane_space::CoordinateSystem;
use terrane_testkit::MemoryStorage;

use crate::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use crate::testing::{points_within, put};
use crate::{
    Condition, Dataset, DatasetOptions, Error, Explanation, IndexKind, Isolation, Key, Options, Query, Record, Result,
    Store, Value,
};
use terrane_testkit::gate::{Gate, gated};

/// Points 1, 2 and 3 at (1, 1), on disk, with their keys as attribute; and one far away. Syncs pass
/// a gate.
fn dataset(gate: &Arc<Gate>) -> (Store, Dataset) {
    let storage = gated(Arc::new(MemoryStorage::new()), gate.clone());
    let store = Store::open_on(storage, Options { background: false, ..Options::default() }).unwrap();
    let id = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let columns = vec![Column::new("n", ColumnType::Int64)];
    let schema = Schema::new(id, geometry, CoordinateSystem::Planar, columns).unwrap();
    let dataset = store.create_dataset("d", schema).unwrap();
    dataset.create_index("by_n", IndexKind::BTree, &["n"]).unwrap();
    (1..=3).for_each(|key| dataset.insert(&record(key, 1.0, key)).unwrap());
    dataset.insert(&record(4, 500.0, 4)).unwrap();
    dataset.flush().unwrap();
    (store, dataset)
}

fn record(key: i64, place: f64, n: i64) -> Record {
    Record::at(key, place, place, vec![Value::Int(n)])
}

/// Opens a gate if a test fails, so that no thread waits for ever.
struct Opens<'g>(&'g Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A query of the points near (1, 1).
fn near(isolation: Isolation) -> Query {
    Query::new().window(0.0, 0.0, 9.0, 9.0).isolation(isolation)
}

/// The first two columns of the rows, or only the first, sorted.
fn rows(dataset: &Dataset, query: &Query) -> (Vec<Vec<i64>>, Explanation) {
    let mut answer = dataset.query(query).unwrap();
    let mut rows = Vec::new();
    for batch in answer.by_ref() {
        let batch = batch.unwrap();
        let value = |row: usize, column: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
        rows.extend(
            (0..batch.num_rows()).map(|row| (0..batch.num_columns()).map(|column| value(row, column)).collect()),
        );
    }
    rows.sort();
    (rows, answer.explanation())
}

fn hash_of(dataset: &Dataset, key: i64) -> u64 {
    dataset.handle.lock_hash(&Key::Int(key).to_encoded().unwrap())
}

/// Spins until a thread waits for a key's lock, or has ended without waiting.
fn await_waiter<T>(dataset: &Dataset, key: i64, reader: &ScopedJoinHandle<'_, T>) {
    while dataset.engine.locks.waiting(hash_of(dataset, key)) == 0 {
        assert!(!reader.is_finished(), "the query did not wait for the writer");
        thread::yield_now();
    }
}

/// Reads while a writer of key 2 waits for its sync, which ends after `meanwhile`.
fn read_beside<R: Send>(
    write: impl Fn(&Dataset) -> Result<()> + Sync,
    read: impl FnOnce(&Dataset) -> R + Send,
    meanwhile: impl FnOnce(&Dataset, &ScopedJoinHandle<'_, R>),
) -> R {
    let gate = Arc::new(Gate::default());
    let (_store, dataset) = dataset(&gate);
    gate.close();
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&dataset));
        let _opens = Opens(&gate);
        gate.wait_until_one_waits();
        let reader = scope.spawn(|| read(&dataset));
        meanwhile(&dataset, &reader);
        gate.open();
        writer.join().unwrap().unwrap();
        let found = reader.join().unwrap();
        assert_eq!(dataset.engine.locks.held(), 0, "instant locks are released");
        found
    })
}

/// Runs a query at read committed that waits for a writer of key 2.
fn beside_writer(write: impl Fn(&Dataset) -> Result<()> + Sync, query: &Query) -> (Vec<Vec<i64>>, Explanation) {
    let read = |dataset: &Dataset| rows(dataset, query);
    read_beside(write, read, |dataset, reader| {
        // A snapshot waits for no writer.
        assert_eq!(dataset.count(&query.clone().isolation(Isolation::Snapshot)).unwrap(), 3);
        await_waiter(dataset, 2, reader);
        assert_eq!(dataset.engine.locks.held(), 1, "the waiting query holds nothing, and the writer holds its key");
    })
}

#[test]
fn an_entry_held_by_a_writer_is_judged_by_its_record() {
    type Write = fn(&Dataset) -> Result<()>;
    let moves_off: Write = |dataset| dataset.upsert(&record(2, 100.0, 2));
    let moves_within: Write = |dataset| dataset.upsert(&record(2, 2.0, 2));
    let is_made_larger: Write = |dataset| dataset.upsert(&record(2, 1.0, 77));
    let deletes: Write = |dataset| dataset.delete(&Key::Int(2)).map(drop);
    let by_place = (near(Isolation::ReadCommitted), "spatial index only");
    let small = Query::new().condition(Condition::on("n").at_most(3)).using_index("by_n");
    let by_attribute = (small.isolation(Isolation::ReadCommitted), "attribute index only");
    for ((query, plan), write, wanted) in [
        (&by_place, moves_off, vec![vec![1], vec![3]]),
        (&by_place, moves_within, vec![vec![1], vec![2], vec![3]]),
        (&by_place, deletes, vec![vec![1], vec![3]]),
        (&by_attribute, is_made_larger, vec![vec![1], vec![3]]),
        (&by_attribute, moves_off, vec![vec![1], vec![2], vec![3]]),
        (&by_attribute, deletes, vec![vec![1], vec![3]]),
    ] {
        let (found, explanation) = beside_writer(write, &query.clone().columns(["id"]));
        assert_eq!(found, wanted);
        assert_eq!((explanation.plan, explanation.isolation), (*plan, Isolation::ReadCommitted));
        let counts = (explanation.answered_from_index, explanation.held_by_writers, explanation.lookups);
        assert_eq!(counts, (2, 1, 1), "{explanation}");
        let shown = explanation.to_string();
        assert!(shown.contains("isolation   read committed"), "{shown}");
        assert!(shown.contains("2 answered from the index, 1 held by writers"), "{shown}");
    }
}

#[test]
fn entries_without_writers_are_rows_without_their_records() {
    let (_store, dataset) = dataset(&Arc::default());
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        let (found, explanation) = rows(&dataset, &near(isolation).columns(["id"]));
        assert_eq!(found, [[1], [2], [3]]);
        let counts = (explanation.answered_from_index, explanation.held_by_writers, explanation.lookups);
        assert_eq!(counts, (3, 0, 0), "{isolation}");
    }
}

#[test]
fn a_record_is_fetched_after_its_writer() {
    let wanted = near(Isolation::ReadCommitted).columns(["id", "n"]);
    let (found, explanation) = beside_writer(|dataset| dataset.upsert(&record(2, 1.0, 77)), &wanted);
    assert_eq!(found, [[1, 1], [2, 77], [3, 3]]);
    let counts = (explanation.answered_from_index, explanation.held_by_writers, explanation.lookups);
    assert_eq!(counts, (0, 0, 3), "{explanation}");
    // A record that moved away or was deleted is not a row.
    let (found, _) = beside_writer(|dataset| dataset.upsert(&record(2, 100.0, 77)), &wanted);
    assert_eq!(found, [[1, 1], [3, 3]]);
    let (found, _) = beside_writer(|dataset| dataset.delete(&Key::Int(2)).map(drop), &wanted);
    assert_eq!(found, [[1, 1], [3, 3]]);
}

#[test]
fn the_count_waits_for_writers_too() {
    let move_off = |dataset: &Dataset| dataset.upsert(&record(2, 100.0, 2));
    let count = |dataset: &Dataset| dataset.count(&near(Isolation::ReadCommitted));
    let counted = read_beside(move_off, count, |dataset, reader| await_waiter(dataset, 2, reader));
    assert_eq!(counted.unwrap(), 2);
}

#[test]
fn uncommitted_changes_are_invisible_at_every_level() {
    let gate = Arc::new(Gate::default());
    let (_store, dataset) = dataset(&gate);
    gate.close();
    let everything = |isolation| Query::new().using_index("primary").columns(["id", "n"]).isolation(isolation);
    let old = [[1, 1], [2, 2], [3, 3], [4, 4]];
    thread::scope(|scope| {
        let writer = scope.spawn(|| dataset.upsert(&record(2, 100.0, 77)));
        let _opens = Opens(&gate);
        gate.wait_until_one_waits();
        for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
            // The changed entry would be found at its new place, and the record with its new
            // number.
            let moved_to = Query::new().window(99.0, 99.0, 101.0, 101.0).isolation(isolation);
            assert_eq!(dataset.count(&moved_to).unwrap(), 0, "{isolation}");
            assert_eq!(rows(&dataset, &everything(isolation)).0, old, "{isolation}");
        }
        let reader = scope.spawn(|| rows(&dataset, &near(Isolation::ReadCommitted).columns(["id", "n"])).0);
        await_waiter(&dataset, 2, &reader);
        gate.open_with_failure();
        assert!(matches!(writer.join().unwrap(), Err(Error::Poisoned { .. })));
        // Its lock was released, but the change never happened.
        assert_eq!(reader.join().unwrap(), old[..3]);
    });
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        assert_eq!(rows(&dataset, &everything(isolation)).0, old, "{isolation}");
        assert_eq!(rows(&dataset, &near(isolation).columns(["id"])).0, [[1], [2], [3]], "{isolation}");
    }
}

/// With a row limit, the query does not wait for the writers of further records.
#[test]
fn a_limited_query_waits_only_for_the_rows_that_it_returns() {
    let move_off = |dataset: &Dataset| dataset.upsert(&record(2, 100.0, 2));
    let first = near(Isolation::ReadCommitted).columns(["id", "n"]).limit(1);
    let found = read_beside(
        move_off,
        |dataset| rows(dataset, &first).0,
        |dataset, reader| {
            while !reader.is_finished() {
                assert_eq!(
                    dataset.engine.locks.waiting(hash_of(dataset, 2)),
                    0,
                    "the query waits for a record that is not a row"
                );
                thread::yield_now();
            }
        },
    );
    assert_eq!(found, [[1, 1]]);
}

/// The writer that holds a key may be waiting for memory, which a flush frees.
#[test]
fn a_query_that_waits_for_a_writer_holds_no_sealed_memory() {
    let (_store, dataset) = points_within(64 << 20, CoordinateSystem::Planar, KeyType::Int64);
    put(&dataset, (0..5000).map(|number| (Key::Int(number), 1.0, 1.0)));
    assert!(dataset.engine.seal(&dataset.handle).unwrap());
    let version = dataset.snapshot().versions_full()[0].clone();
    let sealed = Arc::downgrade(&version.generations[version.generations.len() - 1]);
    drop(version);
    let held = dataset.engine.locks.lock(hash_of(&dataset, 4000));
    thread::scope(|scope| {
        let reader = scope.spawn(|| rows(&dataset, &near(Isolation::ReadCommitted).columns(["id"])).0.len());
        await_waiter(&dataset, 4000, &reader);
        dataset.flush().unwrap();
        assert!(sealed.upgrade().is_none(), "the sealed generation lives while the query waits");
        drop(held);
        assert_eq!(reader.join().unwrap(), 5000);
    });
}

/// The same holds in every partition. Their searches begin one after the other, while rows are
/// read.
#[test]
fn a_slow_reader_holds_no_sealed_memory_of_a_later_partition() {
    let options = Options { background: false, memory_limit: 16 << 20, ..Options::default() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let id = KeyColumn { name: "id".into(), key_type: KeyType::Utf8, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let schema = Schema::new(id, geometry, CoordinateSystem::Planar, vec![]).unwrap();
    let dataset = store.create_dataset_with("d", schema, &DatasetOptions { partitions: 2 }).unwrap();
    // Keys so long that a query does not collect those of a partition at once.
    let key = |number: i64| Key::Utf8(format!("{number:05}{}", "k".repeat(900)));
    put(&dataset, (0..5000).map(|number| (key(number), 1.0, 1.0)));
    dataset.flush().unwrap();
    let mut answer = dataset.query(&near(Isolation::ReadCommitted).columns(["id"])).unwrap();
    let mut found = answer.next_batch().unwrap().unwrap().num_rows();
    let is_later = |key: &Key| dataset.handle.partition_of(&key.to_encoded().unwrap()) == 1;
    let mut later = (5000..).map(key).filter(is_later).map(|key| (key, 1.0, 1.0));
    put(&dataset, later.by_ref().take(50));
    assert!(dataset.engine.seal(&dataset.handle).unwrap());
    let version = dataset.snapshot().versions_full()[1].clone();
    let sealed = Arc::downgrade(&version.generations[version.generations.len() - 1]);
    drop(version);
    // More than are collected at once, so that the sealed ones would remain for later.
    put(&dataset, later.take(1200));
    let is_new = |key: &str| key[..5].parse::<i64>().unwrap() >= 5000;
    loop {
        let batch = answer.next_batch().unwrap().expect("rows of the second partition");
        found += batch.num_rows();
        if batch.column(0).as_string::<i32>().iter().any(|key| is_new(key.unwrap())) {
            break;
        }
    }
    dataset.flush().unwrap();
    assert!(sealed.upgrade().is_none(), "the sealed generation lives while rows are taken");
    while let Some(batch) = answer.next_batch().unwrap() {
        found += batch.num_rows();
    }
    assert_eq!(found, 5000 + 50 + 1200);
}
