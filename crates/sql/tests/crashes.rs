//! The power is cut, and storage fails, while statements write. Acknowledged statements are there.
//! Of the one in progress, each record is as before or as after it; all of them together if it is
//! atomic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use terrane::{DiskReserve, Durability, LogOptions, Options, Query, Store};
use terrane_sql::SqlError;
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller, Image};
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage, is_soak};

use crate::database::Connection;

/// What a crash leaves of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// All of it or nothing.
    Statement,
    /// Each record, by its tag.
    Record,
}
use Unit::{Record, Statement};

const STEPS: &[(Unit, &str)] = &[
    (Statement, "CREATE TABLE t (id BIGINT PRIMARY KEY, tag TEXT, n BIGINT, place GEOMETRY(Point, 4326))"),
    (
        Record,
        "INSERT INTO t SELECT value, 'tag ' || value, value, ST_Point(value % 10, value % 7) FROM generate_series(1, 40)",
    ),
    (
        Record,
        "INSERT INTO t VALUES (50, 'tag 50', 1, 'POINT(1 1)'), (51, 'tag 51', 2, NULL), (52, 'tag 52', 3, 'POINT(2 2)')",
    ),
    (Record, "UPDATE t SET n = n + 100 WHERE id % 2 = 0"),
    (Record, "UPDATE t SET id = id + 1000 WHERE id > 30"),
    (Record, "DELETE FROM t WHERE n < 9"),
    (
        Record,
        "INSERT INTO t AS o (id, tag, n) SELECT value, 'tag ' || value, 1 FROM generate_series(1, 20) \
         ON CONFLICT (id) DO UPDATE SET n = o.n + excluded.n",
    ),
    (
        Record,
        "MERGE INTO t USING (SELECT value AS id FROM generate_series(10, 25)) AS s ON t.id = s.id \
         WHEN MATCHED AND t.n > 100 THEN DELETE WHEN MATCHED THEN UPDATE SET n = 7 \
         WHEN NOT MATCHED THEN INSERT (id, tag, n) VALUES (s.id, 'merged ' || s.id, 0)",
    ),
    (Statement, "CALL checkpoint()"),
    (Statement, "SET terrane.atomic = true; UPDATE t SET n = n + 1"),
    (Statement, "UPDATE t SET id = id + 10"),
    (Statement, "INSERT INTO t (id, tag) SELECT value, 'late ' || value FROM generate_series(2001, 2030)"),
    (
        Statement,
        "INSERT INTO t AS o (id, tag, n) SELECT value, 'late ' || value, 5 FROM generate_series(2020, 2040) \
         ON CONFLICT (id) DO UPDATE SET n = excluded.n",
    ),
    (Statement, "DELETE FROM t WHERE id % 3 = 0"),
    (Statement, "CREATE INDEX by_n ON t (n)"),
    (
        Statement,
        "BEGIN; DELETE FROM t WHERE n = 5; INSERT INTO t (id, tag, n) VALUES (5000, 'in a transaction', 1); \
         INSERT INTO t (id, tag, n) VALUES (5001, 'the same', 1); COMMIT",
    ),
    (Statement, "ALTER TABLE t ADD COLUMN more TEXT"),
    (Record, "SET terrane.atomic = false; UPDATE t SET more = tag WHERE n > 0"),
    (Statement, "ALTER TABLE t RENAME COLUMN more TO note"),
    (Statement, "CREATE TABLE copy (PRIMARY KEY (id)) AS SELECT id, tag, note, place FROM t"),
    (Statement, "CALL compact()"),
    (Statement, "ALTER TABLE t DROP COLUMN note"),
    (Statement, "TRUNCATE t"),
    (Record, "INSERT INTO t (id, tag) SELECT id, tag FROM copy"),
    (Statement, "DROP TABLE copy"),
];

/// The columns of a table, and its records by their tags.
type Table = (Vec<String>, BTreeMap<String, String>);
type State = BTreeMap<String, Table>;

fn options() -> Options {
    Options {
        durability: Some(Durability::Power),
        log: LogOptions { segment_size: 12 << 10, first_segment_size: 8 << 10, spare_segments: 2 },
        threads_max: Some(1),
        disk_reserve: DiskReserve::Bytes(8 << 10),
        memory_limit: 64 << 20,
        ..Options::default()
    }
}

fn state_of(store: &Store) -> State {
    let table = |name: String| {
        let snapshot = store.dataset(&name).unwrap().snapshot();
        let schema = snapshot.schema();
        let columns: Vec<String> = schema.column_names().map(str::to_owned).collect();
        let mut records = BTreeMap::new();
        for batch in snapshot.query(&Query::new()).unwrap() {
            let batch = batch.unwrap();
            let tags = batch.column_by_name("tag").unwrap().as_string::<i32>().clone();
            let format = FormatOptions::default().with_null("NULL");
            let shown: Vec<_> =
                batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &format).unwrap()).collect();
            for row in 0..batch.num_rows() {
                let record = shown.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" | ");
                assert_eq!(records.insert(tags.value(row).to_owned(), record), None, "{} twice", tags.value(row));
            }
        }
        (name, (columns, records))
    };
    store.dataset_names().into_iter().map(table).collect()
}

/// Runs the steps until one fails; gives the number of those that did not.
fn run(store: &Arc<Store>, mut done: impl FnMut(usize)) -> (usize, Option<SqlError>) {
    let connection = Connection::new(&options(), store.clone());
    for (number, (_, text)) in STEPS.iter().enumerate() {
        if let Err(error) = connection.rows(text) {
            return (number, Some(error));
        }
        done(number + 1);
    }
    (STEPS.len(), None)
}

/// The states after each number of steps.
fn states() -> Vec<State> {
    let store = Arc::new(Store::open_on(Arc::new(MemoryStorage::new()), options()).unwrap());
    let mut states = vec![State::new()];
    let (_, error) = run(&store, |_| states.push(state_of(&store)));
    assert!(error.is_none(), "{error:?}");
    states
}

/// What is wrong with a state if a number of steps was acknowledged and the next one in progress.
fn violation(states: &[State], acknowledged: usize, found: &State) -> Option<String> {
    let before = &states[acknowledged];
    let Some(after) = states.get(acknowledged + 1) else {
        return (found != before).then(|| format!("{found:?} at the end instead of {before:?}"));
    };
    if [before, after].contains(&found) {
        return None;
    }
    let (unit, text) = STEPS[acknowledged];
    let names = |state: &State| state.iter().map(|(name, table)| (name.clone(), table.0.clone())).collect::<Vec<_>>();
    if unit == Unit::Statement || names(found) != names(before) {
        return Some(format!("neither before nor after {text}: {found:?}\nbefore {before:?}"));
    }
    let tags = |state: &State| {
        let of_table =
            |(name, table): (&String, &Table)| table.1.keys().map(|tag| (name.clone(), tag.clone())).collect();
        state.iter().flat_map(|table| -> Vec<_> { of_table(table) }).collect::<BTreeSet<_>>()
    };
    let all = &(&tags(before) | &tags(after)) | &tags(found);
    let wrong = all.iter().find(|(name, tag)| {
        let held = |state: &State| state[name].1.get(tag).cloned();
        ![held(before), held(after)].contains(&held(found))
    });
    wrong.map(|(name, tag)| format!("{tag} of {name} neither before nor after {text}: {:?}", found[name].1.get(tag)))
}

/// Opens what is left, and looks at it.
fn verify(storage: Arc<dyn Storage>, states: &[State], acknowledged: usize, what: &dyn Fn() -> String) {
    let store = Store::open_on(storage, options()).unwrap_or_else(|error| panic!("{error}: {}", what()));
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}: {}", what());
    if let Some(wrong) = violation(states, acknowledged, &state_of(&store)) {
        panic!("{wrong}\nafter {acknowledged} steps: {}", what());
    }
}

#[test]
fn statements_survive_a_power_loss_after_any_event() {
    const SEED: u64 = 7;
    let states = states();
    let controller = Controller::new();
    let store = Arc::new(Store::open_on(controller.storage(), options()).unwrap());
    let (steps, error) = run(&store, |number| controller.mark(number as u64));
    assert_eq!(steps, STEPS.len(), "{error:?}");
    drop(store);
    let (stride, samples, exhaustive_pending) = if is_soak() { (1, 24, 5) } else { (3, 1, 2) };
    let budget = Budget { exhaustive_pending, samples, ..Budget::default() };
    let mut tried = BTreeSet::new();
    for cut in (0..=controller.events()).step_by(stride) {
        let acknowledged = controller.marks(cut).last().map_or(0, |mark| *mark as usize);
        tried.insert(acknowledged);
        for image in controller.images(cut, &budget, SEED) {
            let describe = |image: &Image| image.describe();
            verify(image.restart().storage(), &states, acknowledged, &|| describe(&image));
        }
    }
    assert!(tried.len() > STEPS.len() * 3 / 4, "most statements are cut: {tried:?}");
}

#[test]
fn statements_that_storage_fails_lose_nothing() {
    let states = states();
    for (fault, stride) in [(Fault::Eio, 13), (Fault::StorageFull, 7), (Fault::ShortWrite, 5), (Fault::SyncFailure, 5)]
    {
        let counted = FaultyStorage::new(Arc::new(MemoryStorage::new()));
        let store = Arc::new(Store::open_on(Arc::new(counted.clone()), options()).unwrap());
        run(&store, |_| ());
        drop(store);
        let calls = counted.calls_open_to(fault);
        let mut failures = 0;
        for at in (1..=calls).step_by(if is_soak() { 1 } else { stride }) {
            for persistent in [false, true] {
                let what = || format!("{fault:?} at call {at}, persistent: {persistent}");
                let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
                let faulty = FaultyStorage::with_plan(memory.clone(), FaultPlan { at, fault, persistent });
                let Ok(store) = Store::open_on(Arc::new(faulty), options()) else { continue };
                let store = Arc::new(store);
                let (acknowledged, error) = run(&store, |_| ());
                if let Some(error) = error {
                    failures += 1;
                    let text = error.to_string();
                    assert!(
                        matches!(error, SqlError::Store(_) | SqlError::Execution(_) | SqlError::Refused(_)),
                        "{error:?}"
                    );
                    assert!(!text.contains("panicked"), "{text}: {}", what());
                }
                drop(store);
                verify(memory, &states, acknowledged, &what);
            }
        }
        assert!(failures > 9, "{fault:?} fails statements: {failures} of {calls} calls");
    }
}
