//! Everything at once: writers, readers, index creations and drops, flushes, merges and backups, in
//! a process that is killed and restarted. Every acknowledged write is stored, every index agrees
//! with the primary, and the newest backup can be restored. Runs for hours with `TERRANE_SOAK=1`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Error, IndexKind, IndexOptions, Isolation, Key, LogOptions,
    MergePolicy, OnConflict, Options, Query, Record, Store, Value,
};
use terrane_testkit::killed;

use crate::support::workload::batch;
use crate::support::{keys_of, seeded, small_options};
use terrane_testkit::is_soak;

const TEST: &str = "mixed_run::a_store_under_everything_at_once_is_right_after_each_kill";
const WRITERS: u64 = 3;
/// Numbers of readers and of the maintaining thread follow those of the writers.
const READERS: u64 = 2;
const THREADS: u64 = WRITERS + READERS + 1;
/// Number of keys per writer. Writers share no keys.
const SLOTS: i64 = 400;
const DATASET: &str = "d";
const BACKUP: &str = "backup";
const INDEXES: [(&str, IndexKind, &[&str]); 8] = [
    ("by_number", IndexKind::BTree, &["number"]),
    ("by_flag", IndexKind::BTree, &["flag", "number"]),
    ("words", IndexKind::Inverted, &["text"]),
    ("curve", IndexKind::Dhvb, &[]),
    ("places", IndexKind::Dhb, &[]),
    ("grid", IndexKind::Shb, &[]),
    ("cells", IndexKind::Sif, &[]),
    ("boxes", IndexKind::RTree, &[]),
];

fn options() -> Options {
    Options {
        background: true,
        log: LogOptions { segment_size: 256 << 10, first_segment_size: 64 << 10, spare_segments: 2 },
        ..small_options()
    }
}

fn schema() -> Schema {
    let columns = vec![
        Column::new("number", ColumnType::Int64),
        Column::new("flag", ColumnType::Bool),
        Column::new("text", ColumnType::Utf8),
    ];
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    Schema::new(key, geometry, CoordinateSystem::Planar, columns).unwrap()
}

/// The record of a key after the change with a number.
fn record(key: i64, number: u64) -> Record {
    let mut rng = SmallRng::seed_from_u64(number << 20 ^ key as u64);
    let text = format!("w{} w{} {}", rng.random_range(0..40), number % 7, "x".repeat(rng.random_range(0..900)));
    let flag = if number.is_multiple_of(5) { Value::Null } else { Value::Bool(number.is_multiple_of(3)) };
    let (x, y) = (f64::from(rng.random_range(-200..200)), f64::from(rng.random_range(-200..200)));
    Record::at(key, x, y, vec![Value::Int(number as i64), flag, Value::Utf8(text)])
}

/// The effect of a writer's change on some of its keys: its number, or a delete.
struct Change {
    keys: BTreeMap<i64, Option<u64>>,
    is_atomic: bool,
}

/// A change is determined by its number.
fn change(writer: u64, number: u64) -> Change {
    let mut rng = SmallRng::seed_from_u64(writer << 48 ^ number);
    let (count, deletes, is_atomic) = match rng.random_range(0..10) {
        0..6 => (1, false, true),
        6..8 => (1, true, true),
        8 => (5, rng.random(), true),
        _ => (8, false, false),
    };
    let first = writer as i64 * SLOTS;
    let mut change = |deleted: bool| (first + rng.random_range(0..SLOTS), (!deleted).then_some(number));
    Change { keys: (0..count).map(|place| change(deletes && place % 2 == 0)).collect(), is_atomic }
}

fn apply(dataset: &Dataset, change: &Change) {
    match (change.is_atomic, change.keys.iter().next()) {
        (true, Some((key, Some(number)))) if change.keys.len() == 1 => dataset.upsert(&record(*key, *number)).unwrap(),
        (true, Some((key, None))) if change.keys.len() == 1 => drop(dataset.delete(&Key::Int(*key)).unwrap()),
        (true, _) => {
            let mut batch = dataset.atomic_batch();
            for (key, number) in &change.keys {
                match number {
                    Some(number) => batch.upsert(&record(*key, *number)).unwrap(),
                    None => batch.delete(&Key::Int(*key)).unwrap(),
                }
            }
            batch.commit().unwrap();
        }
        (false, _) => {
            let rows: Vec<Record> =
                change.keys.iter().filter_map(|(key, number)| Some(record(*key, (*number)?))).collect();
            dataset.write_batch(&batch(&dataset.schema(), &rows), OnConflict::Replace).unwrap();
        }
    }
}

fn query(rng: &mut SmallRng) -> Query {
    let number = rng.random_range(0..3000_i64);
    let condition = match rng.random_range(0..6) {
        0 => Condition::on("number").between(number, number + 200),
        1 => Condition::on("flag").equals(true).and(Condition::on("number").at_most(number)),
        2 => Condition::on("text").matches(format!("w{}", rng.random_range(0..40))),
        3 => Condition::on("id").between(number / 3, number),
        _ => Condition::on("number").at_least(0),
    };
    let query = Query::new().condition(condition);
    let (x, y) = (f64::from(rng.random_range(-200..150)), f64::from(rng.random_range(-200..150)));
    match rng.random_range(0..3) {
        0 => query,
        1 => query.window(x, y, x + 50.0, y + 80.0),
        _ => Query::new().circle(x, y, 60.0),
    }
}

/// Runs queries until it is killed. Each answer equals that of a scan, and each row was written by
/// a writer.
fn read(dataset: &Dataset, thread: u64) {
    let mut rng = SmallRng::seed_from_u64(thread);
    for number in 0.. {
        let query = query(&mut rng);
        let snapshot = dataset.snapshot();
        let found: BTreeSet<Key> = keys_of(&snapshot, &query).into_iter().collect();
        let scanned: BTreeSet<Key> = keys_of(&snapshot, &query.clone().using_index("primary")).into_iter().collect();
        assert_eq!(found, scanned, "{query:?}");
        assert_eq!(snapshot.count(&query).unwrap(), found.len() as u64, "{query:?}");
        if let Some(key) = found.iter().next() {
            assert!(snapshot.get(key).unwrap().is_some_and(|found| is_written(&found)), "{key:?} of {query:?}");
        }
        match read_committed(dataset, &query.isolation(Isolation::ReadCommitted)) {
            Err(Error::Failed(reason)) if reason.contains("the index that it went through was dropped") => {}
            outcome => outcome.unwrap(),
        }
        killed::acknowledge(thread, number);
    }
}

/// Each row was written by a writer, from whatever state it was read.
fn read_committed(dataset: &Dataset, query: &Query) -> terrane::Result<()> {
    for batch in dataset.query(&query.clone().columns(["id", "number"]))? {
        let batch = batch?;
        let values = |column: usize| batch.column(column).as_primitive::<Int64Type>().values();
        for (key, number) in values(0).iter().zip(values(1)) {
            let change = change((key / SLOTS) as u64, *number as u64);
            assert_eq!(change.keys.get(key), Some(&Some(*number as u64)), "{key} of {query:?}");
        }
    }
    Ok(())
}

fn is_written(found: &Record) -> bool {
    match (&found.key, &found.values[0]) {
        (Key::Int(key), Value::Int(number)) => *found == record(*key, *number as u64),
        _ => false,
    }
}

/// Creates and drops indexes, flushes, merges, and takes backups.
fn maintain(store: &Store, dataset: &Dataset, backup: &Path, thread: u64, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    for number in 0.. {
        match rng.random_range(0..13) {
            0..8 => {
                let (name, kind, columns) = INDEXES[rng.random_range(0..INDEXES.len())];
                let info = store.info().unwrap();
                match info.datasets[0].indexes.iter().any(|index| index.name == name) {
                    true => dataset.drop_index(name).unwrap(),
                    false => {
                        let options = match kind {
                            IndexKind::Sif | IndexKind::Shb => {
                                IndexOptions::default().domain(-250.0, -250.0, 250.0, 250.0)
                            }
                            _ => IndexOptions::default(),
                        };
                        dataset.create_index_with(name, kind, columns, &options).unwrap();
                    }
                }
            }
            8..10 => dataset.flush().unwrap(),
            10 => dataset.compact().unwrap(),
            11 => drop(store.backup(backup, Some(2)).unwrap()),
            _ => {
                let policies = [MergePolicy::CONSTANT, MergePolicy::SIZE_TIERED];
                dataset.set_merge_policy(policies.get(rng.random_range(0..3)).copied()).unwrap();
            }
        }
        killed::acknowledge(thread, number);
    }
}

/// The numbers at which the writers continue.
fn starts(directory: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(directory.join("starts")).unwrap();
    text.split_whitespace().map(|start| start.parse().unwrap()).collect()
}

fn run_until_killed(directory: &Path) {
    let store = Store::open(directory.join("store"), options()).unwrap();
    let dataset = store.dataset(DATASET).unwrap();
    let starts = starts(directory);
    let seed = starts.iter().sum();
    let (store, dataset) = (&store, &dataset);
    std::thread::scope(|scope| {
        for (writer, start) in (0..WRITERS).zip(starts) {
            scope.spawn(move || {
                for number in start.. {
                    apply(dataset, &change(writer, number));
                    killed::acknowledge(writer, number);
                }
            });
        }
        for reader in 0..READERS {
            scope.spawn(move || read(dataset, WRITERS + reader));
        }
        scope.spawn(move || maintain(store, dataset, &directory.join(BACKUP), THREADS - 1, seed));
    });
}

/// The number of the change that wrote each stored record.
fn numbers(dataset: &Dataset) -> BTreeMap<i64, u64> {
    let snapshot = dataset.snapshot();
    let keys = keys_of(&snapshot, &Query::new()).into_iter();
    keys.map(|key| {
        let found = snapshot.get(&key).unwrap().expect("a scan found it");
        assert!(is_written(&found), "{found:?}");
        match (key, &found.values[0]) {
            (Key::Int(key), Value::Int(number)) => (key, *number as u64),
            other => panic!("{other:?}"),
        }
    })
    .collect()
}

/// Acknowledged changes are stored. The unfinished change may be stored.
fn verify_writer(held: &BTreeMap<i64, u64>, expected: &BTreeMap<i64, u64>, writer: u64, pending: &Change) {
    let own = writer as i64 * SLOTS..(writer as i64 + 1) * SLOTS;
    let mut moved = BTreeSet::new();
    for key in own {
        let (held, expected) = (held.get(&key).copied(), expected.get(&key).copied());
        match pending.keys.get(&key) {
            Some(changed) if *changed != expected => {
                assert!(held == expected || held == *changed, "{key}: {held:?}, {expected:?} or {changed:?} expected");
                moved.insert(held == *changed);
            }
            _ => assert_eq!(held, expected, "{key} of writer {writer}"),
        }
    }
    assert!(!pending.is_atomic || moved.len() < 2, "a part of an atomic batch of writer {writer}");
}

#[test]
fn a_store_under_everything_at_once_is_right_after_each_kill() {
    // The test runs itself as this process.
    if let Some(directory) = killed::place() {
        return run_until_killed(&directory);
    }
    let (mut rng, _) = seeded(1);
    let directory = tempfile::tempdir().unwrap();
    for partitions in [1, 3] {
        let directory = directory.path().join(partitions.to_string());
        std::fs::create_dir(&directory).unwrap();
        let store = Store::open(directory.join("store"), options()).unwrap();
        drop(store.create_dataset_with(DATASET, schema(), &DatasetOptions { partitions }).unwrap());
        store.close().unwrap();
        let kills = if is_soak() { 150 } else { 4 };
        let changes_max = if is_soak() { 30_000 } else { 2_500 };
        kill_again_and_again(&directory, &mut rng, kills, changes_max);
    }
}

fn kill_again_and_again(directory: &Path, rng: &mut SmallRng, kills: usize, changes_max: usize) {
    let mut starts = vec![0; WRITERS as usize];
    let mut expected: BTreeMap<i64, u64> = BTreeMap::new();
    for kill in 0..kills {
        let text: Vec<String> = starts.iter().map(u64::to_string).collect();
        std::fs::write(directory.join("starts"), text.join(" ")).unwrap();
        let changes = rng.random_range(1..changes_max);
        let acknowledged = killed::run_and_kill(TEST, directory, THREADS, changes);
        let store = Store::open(directory.join("store"), options()).unwrap();
        let report = store.check(false).unwrap();
        assert!(report.findings.is_empty(), "kill {kill} after {changes} changes: {:?}", report.findings);
        let dataset = store.dataset(DATASET).unwrap();
        let held = numbers(&dataset);
        for (writer, start) in (0..).zip(&mut starts) {
            let last = acknowledged[writer as usize];
            for number in *start..last.map_or(*start, |last| last + 1) {
                for (key, number) in change(writer, number).keys {
                    match number {
                        Some(number) => expected.insert(key, number),
                        None => expected.remove(&key),
                    };
                }
            }
            let pending = last.map_or(*start, |last| last + 1);
            verify_writer(&held, &expected, writer, &change(writer, pending));
            *start = pending + 1;
        }
        expected = held;
        drop(dataset);
        store.close().unwrap();
        restore_newest(&directory.join(BACKUP));
    }
}

/// If there is a backup, its newest point is a store in which every record was written by a writer.
fn restore_newest(backup: &Path) {
    if Store::backup_points(backup).is_err() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let place = place.path().join("restored");
    Store::restore(backup, &place, None, &options()).unwrap();
    let store = Store::open(place, options()).unwrap();
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert!(numbers(&store.dataset(DATASET).unwrap()).len() <= WRITERS as usize * SLOTS as usize);
}
