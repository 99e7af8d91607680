//! Queries give the same rows with indexes on attributes and without, whichever way they take.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{keys_of, seeded, small_options};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, Explanation, IndexKind, Key, Query, Record, Snapshot, Store, Value,
};
use terrane_storage::MemoryStorage;

const TEXT: usize = 0;
const INT: usize = 1;
const FLOAT: usize = 2;
const FLAG: usize = 3;

fn schema() -> Schema {
    let columns = vec![
        Column::new("text", ColumnType::Utf8),
        Column::new("int", ColumnType::Int64),
        Column::new("float", ColumnType::Float64),
        Column::new("flag", ColumnType::Bool),
        Column::new("time", ColumnType::Timestamp { utc: true }),
    ];
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    Schema::new(key, geometry, CoordinateSystem::Planar, columns).unwrap()
}

/// Texts of which some begin alike for longer than an index keeps of them.
fn text(rng: &mut SmallRng) -> String {
    let last = rng.random_range(0..6);
    match rng.random_range(0..5) {
        0 => String::new(),
        1 => format!("{}{last}", "long".repeat(400)),
        _ => format!("t{last}"),
    }
}

fn value(rng: &mut SmallRng, column: usize) -> Value {
    if rng.random_ratio(1, 8) {
        return Value::Null;
    }
    match column {
        TEXT => Value::Utf8(text(rng)),
        INT => Value::Int(rng.random_range(-20..20)),
        FLOAT => Value::Float(match rng.random_range(0..12) {
            0 => f64::NAN,
            1 => -0.0,
            2 => 0.0,
            3 => f64::INFINITY,
            _ => f64::from(rng.random_range(-20..20)) / 2.0,
        }),
        FLAG => Value::Bool(rng.random_ratio(1, 3)),
        _ => Value::Timestamp(rng.random_range(-5..5) * 86_400_000_000),
    }
}

fn record(rng: &mut SmallRng, key: i64) -> Record {
    let values = (0..5).map(|column| value(rng, column)).collect();
    Record::at(key, f64::from(rng.random_range(-40..40)), f64::from(rng.random_range(-40..40)), values)
}

/// A literal of a column, as the language writes it.
fn literal(rng: &mut SmallRng, column: usize) -> String {
    match column {
        TEXT => format!("'{}'", text(rng)),
        INT => rng.random_range(-22..22).to_string(),
        FLOAT => format!("{:?}", f64::from(rng.random_range(-44..44)) / 4.0),
        FLAG => rng.random_bool(0.5).to_string(),
        _ => format!("'1970-01-0{}T00:00:00Z'", rng.random_range(1..6)),
    }
}

fn comparison(rng: &mut SmallRng) -> String {
    let column = rng.random_range(0..5);
    let name = ["text", "int", "float", "flag", "time"][column];
    match rng.random_range(0..9) {
        0 => format!("{name} between {} and {}", literal(rng, column), literal(rng, column)),
        1 => {
            let items: Vec<String> = (0..rng.random_range(1..5)).map(|_| literal(rng, column)).collect();
            format!("{name} in ({})", items.join(", "))
        }
        2 => format!("{name} is null"),
        3 => format!("not {name} < {}", literal(rng, column)),
        number => {
            let operator = ["=", "=", "<", "<=", ">"][number - 4];
            format!("{name} {operator} {}", literal(rng, column))
        }
    }
}

fn condition(rng: &mut SmallRng) -> Condition {
    let parts: Vec<String> = (0..rng.random_range(1..4))
        .map(|_| match rng.random_range(0..8) {
            0 => format!("({} or {})", comparison(rng), comparison(rng)),
            _ => comparison(rng),
        })
        .collect();
    Condition::parse(&parts.join(" and ")).unwrap()
}

fn query(rng: &mut SmallRng) -> Query {
    let query = Query::new().condition(condition(rng));
    match rng.random_range(0..4) {
        0 => {
            let (x, y) = (f64::from(rng.random_range(-40..30)), f64::from(rng.random_range(-40..30)));
            query.window(x, y, x + f64::from(rng.random_range(0..40)), y + 20.0)
        }
        1 => query.circle(0.0, 0.0, f64::from(rng.random_range(0..40))),
        _ => query,
    }
}

fn set(snapshot: &Snapshot, query: &Query) -> BTreeSet<Key> {
    let keys = keys_of(snapshot, query);
    let set: BTreeSet<Key> = keys.iter().cloned().collect();
    assert_eq!(set.len(), keys.len(), "a row comes twice: {query:?}");
    assert_eq!(snapshot.count(query).unwrap(), set.len() as u64, "{query:?}");
    set
}

/// A query and the keys that it gave.
type Answer = (Query, BTreeSet<Key>);

fn explanation(snapshot: &Snapshot, query: &Query) -> Explanation {
    let mut rows = snapshot.query(query).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    rows.explanation()
}

fn created() -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset("d", schema()).unwrap();
    (store, dataset)
}

fn index_all(dataset: &Dataset) {
    for (name, columns) in [
        ("by_text", &["text"][..]),
        ("by_int", &["int"]),
        ("by_float_int", &["float", "int"]),
        ("by_flag_time_text", &["flag", "time", "text"]),
        ("by_time", &["time"]),
    ] {
        dataset.create_index(name, IndexKind::BTree, columns).unwrap();
    }
}

#[test]
fn answers_are_the_same_with_indexes_and_without() {
    let (mut rng, _) = seeded(101);
    let ((_one, with), (_other, without)) = (created(), created());
    index_all(&with);
    let mut used = 0;
    for round in 0..10 {
        for _ in 0..300 {
            let key = rng.random_range(0..800);
            if rng.random_ratio(1, 4) {
                assert_eq!(with.delete(&Key::Int(key)).unwrap(), without.delete(&Key::Int(key)).unwrap());
            } else {
                let record = record(&mut rng, key);
                with.upsert(&record).unwrap();
                without.upsert(&record).unwrap();
            }
        }
        match round % 4 {
            0 => {}
            3 => with.compact().unwrap(),
            _ => with.flush().unwrap(),
        }
        let (indexed, scanned) = (with.snapshot(), without.snapshot());
        for _ in 0..120 {
            let query = query(&mut rng);
            assert_eq!(set(&indexed, &query), set(&scanned, &query), "round {round}: {query:?}");
            let explanation = explanation(&indexed, &query);
            assert!(explanation.considered.iter().filter(|considered| considered.is_used).count() <= 1);
            used += usize::from(explanation.plan == "attribute index");
        }
    }
    assert!(used > 200, "the indexes were used {used} times");
}

#[test]
fn snapshots_keep_their_answers_while_indexes_come_and_go() {
    let (mut rng, _) = seeded(102);
    let (_store, dataset) = created();
    let mut held: Vec<(Snapshot, Vec<Answer>)> = Vec::new();
    for round in 0..12 {
        for _ in 0..60 {
            let key = rng.random_range(0..200);
            dataset.upsert(&record(&mut rng, key)).unwrap();
        }
        match round % 4 {
            1 => index_all(&dataset),
            2 => dataset.flush().unwrap(),
            3 => {
                dataset.compact().unwrap();
                for name in ["by_text", "by_int", "by_float_int", "by_flag_time_text", "by_time"] {
                    dataset.drop_index(name).unwrap();
                }
            }
            _ => {}
        }
        let snapshot = dataset.snapshot();
        let answers = (0..10).map(|_| query(&mut rng)).map(|query| (query.clone(), set(&snapshot, &query))).collect();
        held.push((snapshot, answers));
        for (snapshot, answers) in &held {
            for (query, answer) in answers {
                assert_eq!(&set(snapshot, query), answer, "{query:?}");
            }
        }
    }
}

#[test]
fn the_cheapest_way_is_taken_and_explained() {
    let (mut rng, _) = seeded(103);
    let (_store, dataset) = created();
    let mut batch = dataset.atomic_batch();
    for key in 0..4000 {
        let mut record = record(&mut rng, key);
        record.values[INT] = Value::Int(key);
        record.values[FLAG] = Value::Bool(key % 2 == 0);
        batch.upsert(&record).unwrap();
    }
    batch.commit().unwrap();
    dataset.create_index("by_int", IndexKind::BTree, &["int"]).unwrap();
    dataset.create_index("by_flag", IndexKind::BTree, &["flag", "int"]).unwrap();
    for flushed in [false, true] {
        if flushed {
            dataset.compact().unwrap();
        }
        let snapshot = dataset.snapshot();
        let explained = |text: &str, window: bool| {
            let query = Query::new().condition(Condition::parse(text).unwrap());
            explanation(&snapshot, &if window { query.window(0.0, 0.0, 1.0, 1.0) } else { query })
        };
        let reason = |explanation: &Explanation, index: &str| {
            let considered = explanation.considered.iter().find(|considered| considered.index == index).unwrap();
            considered.reason.clone()
        };
        let few = explained("int between 100 and 150", false);
        assert_eq!((few.plan, few.matches, few.lookups), ("attribute index", 51, 51), "{few}");
        assert!(reason(&few, "by_flag").contains("nothing is demanded of flag"), "{few}");
        let both = explained("flag and int between 100 and 150", false);
        assert_eq!((both.plan, both.matches, both.lookups), ("attribute index", 26, 26), "{both}");
        assert!(reason(&both, "by_int").contains("another way"), "{both}");
        let many = explained("int > 100", false);
        assert_eq!((many.plan, many.matches), ("primary scan", 3899), "{many}");
        assert!(reason(&many, "by_int").contains("read all records"), "{many}");
        let window = explained("int < 3500", true);
        assert_eq!(window.plan, "spatial index", "{window}");
        assert!(reason(&window, "by_int").contains("the windows give fewer"), "{window}");
        assert_eq!(explained("int = 7", true).plan, "attribute index");
        assert!(explained("int = 7 or flag", false).considered.iter().all(|considered| !considered.is_used));
        let nothing = explained("int < 5 and int > 9", false);
        assert_eq!((nothing.plan, nothing.entries, nothing.matches), ("nothing can match", 0, 0), "{nothing}");
    }
}

/// Rows are taken slowly while the index goes.
#[test]
fn an_index_that_is_dropped_serves_the_answers_that_have_begun() {
    let (mut rng, _) = seeded(104);
    let (store, dataset) = created();
    let mut batch = dataset.atomic_batch();
    for key in 0..3000 {
        let mut record = record(&mut rng, key);
        record.values[INT] = Value::Int(key % 30);
        record.values[TEXT] = Value::Utf8("x".repeat(300));
        batch.upsert(&record).unwrap();
    }
    batch.commit().unwrap();
    dataset.create_index("by_int", IndexKind::BTree, &["int"]).unwrap();
    let query = Query::new().condition(Condition::on("int").between(3, 8)).columns(["text"]);
    let mut rows = dataset.snapshot().query(&query).unwrap();
    let mut found = rows.next_batch().unwrap().unwrap().num_rows();
    dataset.flush().unwrap();
    dataset.drop_index("by_int").unwrap();
    dataset.compact().unwrap();
    while let Some(batch) = rows.next_batch().unwrap() {
        found += batch.num_rows();
    }
    assert_eq!((found, rows.explanation().plan), (600, "attribute index"));
    drop(rows);
    drop(dataset);
    assert!(store.check(false).unwrap().findings.is_empty());
}
