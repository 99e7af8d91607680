//! The anomalies that each isolation level excludes. Each anomaly is shown at read committed. With
//! the same writes at the same moments, it does not occur at snapshot. Writes happen between the
//! batches of an answer.
//!
//! Queries beside a writer that holds a key are tested in `src/query/read_committed_tests.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use crate::support::{seeded, small_options};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Durability, Error, IndexKind, Isolation, Join, JoinOn, Key,
    Options, Query, Record, Rows, Store, Value,
};
use terrane_testkit::MemoryStorage;

const LEVELS: [Isolation; 2] = [Isolation::Snapshot, Isolation::ReadCommitted];

/// A long key, so that few candidates fit in the memory of a query.
fn key(number: i64) -> Key {
    Key::Utf8(format!("{number:05}{}", "k".repeat(900)))
}

/// A point with a number, and a text of the given length.
fn record(number: i64, place: f64, n: i64, bytes: usize) -> Record {
    Record::at(key(number), place, place, vec![Value::Int(n), Value::Utf8("t".repeat(bytes))])
}

fn open(partitions: usize, options: Options) -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let id = KeyColumn { name: "id".into(), key_type: KeyType::Utf8, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let columns = vec![Column::new("n", ColumnType::Int64), Column::new("text", ColumnType::Utf8)];
    let schema = Schema::new(id, geometry, CoordinateSystem::Planar, columns).unwrap();
    let dataset = store.create_dataset_with("d", schema, &DatasetOptions { partitions }).unwrap();
    (store, dataset)
}

/// Writes records in few commits, to disk.
fn fill(dataset: &Dataset, records: impl IntoIterator<Item = Record>) {
    let mut batch = dataset.atomic_batch();
    for record in records {
        batch.upsert(&record).unwrap();
        if batch.len() == 100 {
            std::mem::replace(&mut batch, dataset.atomic_batch()).commit().unwrap();
        }
    }
    batch.commit().unwrap();
    dataset.flush().unwrap();
}

fn commit(dataset: &Dataset, records: &[Record]) {
    let mut batch = dataset.atomic_batch();
    records.iter().for_each(|record| batch.upsert(record).unwrap());
    batch.commit().unwrap();
}

/// Moves records to another place, with another number.
fn move_all(dataset: &Dataset, numbers: &[i64], place: f64) {
    for numbers in numbers.chunks(300) {
        commit(dataset, &numbers.iter().map(|number| record(*number, place, 1, 0)).collect::<Vec<_>>());
    }
}

fn numbers(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_string::<i32>().iter().map(|key| key.unwrap()[..5].parse().unwrap()).collect()
}

/// The numbers of the keys, with the values of column `n`.
fn numbered(batch: &RecordBatch) -> Vec<(i64, i64)> {
    let n = batch.column_by_name("n").unwrap().as_primitive::<Int64Type>();
    numbers(batch).into_iter().zip(n.values().iter().copied()).collect()
}

/// The rows of the first batch, and those of all. `between` runs after the first.
fn rows_around<T>(mut rows: Rows, of: fn(&RecordBatch) -> Vec<T>, between: impl FnOnce(&[T])) -> Vec<T> {
    let first = of(&rows.next_batch().unwrap().expect("a first batch"));
    between(&first);
    let mut all = first;
    rows.by_ref().for_each(|batch| all.extend(of(&batch.unwrap())));
    all
}

fn counts(rows: &[(i64, i64)]) -> BTreeMap<i64, Vec<i64>> {
    let mut values: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    rows.iter().for_each(|(key, n)| values.entry(*key).or_default().push(*n));
    values
}

#[test]
fn records_that_move_along_an_index_are_read_twice_or_missed() {
    for isolation in LEVELS {
        let (_store, dataset) = open(1, small_options());
        fill(&dataset, (0..2600).map(|number| record(number, 1.0, number * 10, 0)));
        dataset.create_index("by_n", IndexKind::BTree, &["n"]).unwrap();
        let condition = Condition::parse("n >= -100").unwrap();
        let query = Query::new().condition(condition).using_index("by_n").columns(["id", "n"]).isolation(isolation);
        let found = rows_around(dataset.query(&query).unwrap(), numbered, |first| {
            assert!(first.contains(&(0, 0)) && first.len() < 1024, "{} rows", first.len());
            // Ahead of the search, and behind it. Each version meets the condition.
            dataset.upsert(&record(0, 1.0, 100_000, 0)).unwrap();
            dataset.upsert(&record(2500, 1.0, -50, 0)).unwrap();
            dataset.insert(&record(9000, 1.0, 100_001, 0)).unwrap();
            dataset.delete(&key(2400)).unwrap();
        });
        let found = counts(&found);
        let mut wanted: BTreeMap<i64, Vec<i64>> = (0..2600).map(|number| (number, vec![number * 10])).collect();
        if isolation == Isolation::ReadCommitted {
            // A non-repeatable read, a missed record, a phantom, and a deleted record.
            wanted.insert(0, vec![0, 100_000]);
            wanted.remove(&2500);
            wanted.insert(9000, vec![100_001]);
            wanted.remove(&2400);
        }
        assert_eq!(found, wanted, "{isolation}");
    }
}

/// Also if no record has been fetched since.
#[test]
fn each_step_of_an_index_reads_the_newest_entries() {
    for isolation in LEVELS {
        let (_store, dataset) = open(1, small_options());
        fill(&dataset, (0..2600).map(|number| record(number, 1.0, number * 10, 0)));
        dataset.create_index("by_n", IndexKind::BTree, &["n"]).unwrap();
        let written = dataset.clone();
        // The last of those that the first step finds.
        let query = Query::new().condition(Condition::parse("n >= 0").unwrap()).using_index("by_n");
        let query = query.isolation(isolation).predicate(move |record| {
            if record.value(0)? == terrane::value::ValueRef::Int(10_230) {
                written.insert(&self::record(9000, 1.0, 10_245, 0))?;
            }
            Ok(true)
        });
        let wanted = if isolation == Isolation::ReadCommitted { 2601 } else { 2600 };
        assert_eq!(dataset.count(&query).unwrap(), wanted, "{isolation}");
    }
}

#[test]
fn an_atomic_batch_is_read_in_part() {
    for isolation in LEVELS {
        for (partitions, durability) in [(1, Durability::Power), (3, Durability::Power), (1, Durability::None)] {
            let options = Options { durability: Some(durability), ..small_options() };
            let (_store, dataset) = open(partitions, options);
            fill(&dataset, (0..12).map(|number| record(number, 1.0, 0, 100_000)));
            let mut changed = None;
            let query = Query::new().using_index("primary").isolation(isolation);
            let found = rows_around(dataset.query(&query).unwrap(), numbered, |first| {
                let seen = first[0].0;
                let unseen = (0..12).find(|number| !first.contains(&(*number, 0))).expect("more than one batch");
                commit(&dataset, &[record(seen, 1.0, 1, 0), record(unseen, 1.0, 1, 0)]);
                changed = Some((seen, unseen));
            });
            let (seen, unseen) = changed.unwrap();
            let found = counts(&found);
            assert_eq!(found.keys().copied().collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
            let second = if isolation == Isolation::ReadCommitted { 1 } else { 0 };
            assert_eq!((&found[&seen], &found[&unseen]), (&vec![0], &vec![second]), "{isolation}, {partitions}");
        }
    }
}

#[test]
fn a_scan_shows_concurrent_inserts_and_deletes() {
    for isolation in LEVELS {
        let (_store, dataset) = open(1, small_options());
        fill(&dataset, (0..12).map(|number| record(number, 1.0, 0, 100_000)));
        let query = Query::new().isolation(isolation);
        let found = rows_around(dataset.query(&query).unwrap(), numbers, |first| {
            assert!(first.len() < 9, "{first:?}");
            dataset.insert(&record(100, 1.0, 0, 0)).unwrap();
            dataset.delete(&key(10)).unwrap();
        });
        let mut wanted: Vec<i64> = (0..12).collect();
        if isolation == Isolation::ReadCommitted {
            wanted.remove(10);
            wanted.push(100);
        }
        assert_eq!(found, wanted, "{isolation}");
    }
}

/// A scan without matches for a long time proceeds in steps too.
#[test]
fn a_scan_without_rows_reads_newer_states_too() {
    for isolation in LEVELS {
        let (_store, dataset) = open(1, Options { memory_limit: 64 << 20, ..small_options() });
        fill(&dataset, (0..9000).map(|number| record(number, 1.0, 0, 0)));
        let (written, is_written) = (dataset.clone(), AtomicBool::new(false));
        let query = Query::new().isolation(isolation).columns(["id", "n"]).predicate(move |record| {
            if !is_written.swap(true, Ordering::Relaxed) {
                written.upsert(&self::record(8999, 1.0, 1, 0))?;
            }
            Ok(record.value(0)? == terrane::value::ValueRef::Int(1))
        });
        let wanted = if isolation == Isolation::ReadCommitted { 1 } else { 0 };
        assert_eq!(dataset.count(&query).unwrap(), wanted, "{isolation}");
    }
}

/// Points in two partitions. A query reads the partitions in turn, some hundred points at a time.
fn in_two_partitions() -> (Store, Dataset) {
    let (store, dataset) = open(2, small_options());
    fill(&dataset, (0..3000).map(|number| record(number, 1.0, 0, 0)));
    (store, dataset)
}

fn window(isolation: Isolation) -> Query {
    Query::new().window(0.0, 0.0, 9.0, 9.0).isolation(isolation)
}

#[test]
fn an_index_alone_shows_places_that_records_have_left() {
    for isolation in LEVELS {
        let (_store, dataset) = in_two_partitions();
        // All points that the first batch has not shown move away.
        let mut left = Vec::new();
        let mut leave = |first: &[i64]| {
            left = (0..3000).filter(|number| !first.contains(number)).collect();
            move_all(&dataset, &left, 99.0);
        };
        let query = window(isolation).columns(["id"]);
        let mut rows = dataset.query(&query).unwrap();
        let first = numbers(&rows.next_batch().unwrap().unwrap());
        leave(&first);
        let mut second = Vec::new();
        rows.by_ref().for_each(|batch| second.extend(numbers(&batch.unwrap())));
        let explanation = rows.explanation();
        assert_eq!((explanation.plan, explanation.lookups), ("spatial index only", 0));
        let (found, left): (BTreeSet<i64>, BTreeSet<i64>) = (second.into_iter().collect(), left.into_iter().collect());
        match isolation {
            Isolation::Snapshot => assert_eq!(found, left),
            // Points of the partition being searched, as of the beginning of its search; none of
            // the other partition.
            Isolation::ReadCommitted => {
                assert!(!found.is_empty() && found.is_subset(&left), "{} rows", found.len());
                assert!(left.difference(&found).count() > 500, "{} rows of {}", found.len(), left.len());
            }
        }
    }
}

#[test]
fn a_record_that_has_moved_away_is_not_returned() {
    for isolation in LEVELS {
        let (_store, dataset) = in_two_partitions();
        let query = window(isolation).columns(["id", "n"]);
        let mut shown = 0;
        let found = rows_around(dataset.query(&query).unwrap(), numbered, |first| {
            shown = first.len();
            let left: Vec<i64> = (0..3000).filter(|number| !first.contains(&(*number, 0))).collect();
            move_all(&dataset, &left, 99.0);
        });
        let wanted = if isolation == Isolation::ReadCommitted { shown } else { 3000 };
        assert_eq!(found.len(), wanted, "{isolation}");
        assert!(found.iter().all(|(_, n)| *n == 0), "{isolation}");
    }
}

#[test]
fn records_that_move_within_a_window_are_returned_once() {
    for isolation in LEVELS {
        for columns in [&["id"][..], &["id", "n"]] {
            let (_store, dataset) = in_two_partitions();
            let query = window(isolation).columns(columns.iter().copied());
            let mut found = rows_around(dataset.query(&query).unwrap(), numbers, |_| {
                move_all(&dataset, &(0..3000).collect::<Vec<_>>(), 5.0);
            });
            found.sort();
            assert_eq!(found, (0..3000).collect::<Vec<_>>(), "{isolation}, {columns:?}");
        }
    }
}

#[test]
fn operations_on_a_single_state_are_refused_at_read_committed() {
    let (_store, dataset) = open(1, small_options());
    let committed = Query::new().isolation(Isolation::ReadCommitted);
    let snapshot = dataset.snapshot();
    let join = || Join::new(JoinOn::Intersects);
    let refusals = [
        (dataset.query(&committed.clone().nearest(1.0, 1.0, 3)).map(drop), "a nearest-neighbour query"),
        (dataset.count(&committed.clone().nearest(1.0, 1.0, 3)).map(drop), "a nearest-neighbour query"),
        (snapshot.query(&committed).map(drop), "a snapshot"),
        (snapshot.count(&committed).map(drop), "a snapshot"),
        (snapshot.join(&snapshot, &join().outer(committed.clone())).map(drop), "a join"),
        (snapshot.join(&snapshot, &join().inner(committed.clone())).map(drop), "a join"),
        (snapshot.count_join(&snapshot, &join().inner(committed.clone())).map(drop), "a join"),
    ];
    for (refused, what) in refusals {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains("read committed") && text.contains("ask at snapshot"), "{text}");
    }
}

#[test]
fn a_query_ends_when_its_schema_or_index_changes() {
    type Change = fn(&Dataset);
    let add_column: Change = |dataset| dataset.add_column(Column::new("more", ColumnType::Int64)).unwrap();
    let drop_column: Change = |dataset| dataset.drop_column("n").unwrap();
    let drop_index: Change = |dataset| dataset.drop_index("by_n").unwrap();
    let (schema, index) = ("the schema was changed", "the index that it went through was dropped");
    for (change, path, what) in
        [(add_column, "by_n", schema), (drop_column, "primary", schema), (drop_index, "by_n", index)]
    {
        for (isolation, publishes) in LEVELS.into_iter().flat_map(|level| [(level, false), (level, true)]) {
            let (_store, dataset) = open(1, small_options());
            fill(&dataset, (0..2600).map(|number| record(number, 1.0, number, 0)));
            if path == "by_n" {
                dataset.create_index("by_n", IndexKind::BTree, &["n"]).unwrap();
            }
            let condition = Condition::parse(if path == "by_n" { "n >= 0" } else { "id >= ''" }).unwrap();
            let query = Query::new().condition(condition).using_index(path).columns(["id"]).isolation(isolation);
            let mut rows = dataset.query(&query).unwrap();
            let first = rows.next_batch().unwrap().unwrap().num_rows();
            change(&dataset);
            if publishes {
                let newest =
                    Record { values: vec![Value::Null; dataset.schema().columns.len()], ..record(0, 1.0, 0, 0) };
                dataset.upsert(&newest).unwrap();
            }
            let rest: Result<Vec<_>, Error> = rows.by_ref().collect();
            match isolation {
                Isolation::Snapshot => {
                    let rest: usize = rest.unwrap().iter().map(RecordBatch::num_rows).sum();
                    assert_eq!(first + rest, 2600);
                }
                Isolation::ReadCommitted => {
                    let error = rest.unwrap_err();
                    assert!(matches!(error, Error::Failed(_)) && error.to_string().contains(what), "{error}");
                    assert!(error.to_string().starts_with("during a query of dataset \""), "{error}");
                    assert!(rows.next_batch().unwrap().is_none(), "the answer has ended");
                }
            }
        }
    }
}

#[test]
fn without_writers_both_levels_give_the_same_rows() {
    let (_store, dataset) = open(4, Options { threads_max: Some(4), memory_limit: 64 << 20, ..small_options() });
    let place = |number: i64| (number % 10) as f64;
    fill(&dataset, (0..12_000).map(|number| record(number, place(number), number, 0)));
    dataset.create_index("by_n", IndexKind::BTree, &["n"]).unwrap();
    let condition = Condition::parse("n >= 1000").unwrap();
    let many = Query::new().condition(condition).using_index("by_n");
    let windows = Query::new().window(0.0, 0.0, 9.0, 9.0);
    for query in [Query::new(), windows.clone(), windows.columns(["id"]), many] {
        let [one, other] = LEVELS.map(|isolation| {
            let query = query.clone().isolation(isolation);
            let mut rows = dataset.query(&query).unwrap();
            let mut found: Vec<i64> = rows.by_ref().flat_map(|batch| numbers(&batch.unwrap())).collect();
            found.sort();
            let explanation = rows.explanation();
            assert_eq!((explanation.threads, explanation.isolation), (4, isolation), "{query:?}");
            assert_eq!(dataset.count(&query).unwrap(), found.len() as u64, "{query:?}");
            assert_eq!(dataset.count(&query.clone().limit(9000)).unwrap(), 9000.min(found.len() as u64), "{query:?}");
            let limited = dataset.query(&query.clone().limit(10)).unwrap();
            assert_eq!(limited.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 10, "{query:?}");
            let counters = (explanation.entries, explanation.candidates, explanation.lookups, explanation.matches);
            (found, counters, explanation.answered_from_index, explanation.plan)
        });
        assert_eq!(one, other, "{query:?}");
    }
}

const KEYS: i64 = 60;

/// Writers give each record increasing numbers, and place it by its number.
fn write(dataset: &Dataset, acknowledged: &[AtomicI64], rng: &mut SmallRng, writer: i64) {
    let number = rng.random_range(0..KEYS / 3) * 3 + writer;
    let n = acknowledged[number as usize].load(Ordering::Acquire) + 1;
    dataset.upsert(&record(number, n as f64, n, rng.random_range(0..2000))).unwrap();
    acknowledged[number as usize].store(n, Ordering::Release);
}

#[test]
fn beside_many_writers_every_row_is_a_committed_version() {
    let (_, seed) = seeded(0x1501);
    for partitions in [1, 3] {
        let (_store, dataset) = open(partitions, Options { background: true, ..small_options() });
        let acknowledged: Vec<AtomicI64> = (0..KEYS).map(|_| AtomicI64::new(0)).collect();
        fill(&dataset, (0..KEYS).map(|number| record(number, 0.0, 0, 0)));
        dataset.create_index("by_n", IndexKind::BTree, &["n"]).unwrap();
        let ended = AtomicBool::new(false);
        let by_n = Query::new().condition(Condition::parse("n >= 0").unwrap()).using_index("by_n");
        let everywhere = Query::new().window(-1.0, -1.0, 1e9, 1e9);
        let queries = [Query::new().using_index("primary"), everywhere.clone(), everywhere.columns(["id"]), by_n];
        thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (dataset, acknowledged) = (&dataset, &acknowledged);
                    let mut rng = SmallRng::seed_from_u64(seed + writer as u64);
                    scope.spawn(move || (0..600).for_each(|_| write(dataset, acknowledged, &mut rng, writer)))
                })
                .collect();
            let readers: Vec<_> = queries
                .iter()
                .enumerate()
                .map(|(which, query)| {
                    let query = query.clone().isolation(Isolation::ReadCommitted);
                    let (dataset, acknowledged, ended) = (&dataset, &acknowledged, &ended);
                    scope.spawn(move || {
                        let mut is_last = false;
                        while !is_last {
                            is_last = ended.load(Ordering::Acquire);
                            read(dataset, acknowledged, &query, which);
                        }
                    })
                })
                .collect();
            // Readers are told to end even if a writer fails.
            let outcomes: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            ended.store(true, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        });
    }
}

/// Checks the rows of a query that every version of every record meets.
fn read(dataset: &Dataset, acknowledged: &[AtomicI64], query: &Query, which: usize) {
    let before: Vec<i64> = acknowledged.iter().map(|n| n.load(Ordering::Acquire)).collect();
    let batches: Vec<RecordBatch> = dataset.query(query).unwrap().map(Result::unwrap).collect();
    let after: Vec<i64> = acknowledged.iter().map(|n| n.load(Ordering::Acquire)).collect();
    let mut found: Vec<i64> = batches.iter().flat_map(numbers).collect();
    if which < 3 {
        found.sort();
        assert_eq!(found, (0..KEYS).collect::<Vec<_>>(), "each record once, {query:?}");
    }
    for batch in batches.iter().filter(|batch| batch.num_columns() > 1) {
        let x = batch.column_by_name("x").unwrap().as_primitive::<arrow_array::types::Float64Type>();
        for ((number, n), x) in numbered(batch).into_iter().zip(x.values()) {
            assert_eq!(n as f64, *x, "one version, {query:?}");
            // One version may be published before its writer knows.
            let (oldest, newest) = (before[number as usize], after[number as usize] + 1);
            assert!((oldest..=newest).contains(&n), "{n} of {number}, between {oldest} and {newest}, {query:?}");
        }
    }
}
