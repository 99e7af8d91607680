//! Queries give the same rows with indexes on attributes and without, whichever way they take.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{keys_of, seeded, small_options};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Error, Explanation, IndexKind, IndexOptions, Key, Query,
    Record, Snapshot, StopWords, Store, Value,
};
use terrane_lsm::manifest::{Manifest, ManifestFile};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

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
        2 => format!("Über t{last}, and W{} w{}", rng.random_range(0..30), rng.random_range(0..30)),
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
        FLOAT => Value::Float64(match rng.random_range(0..12) {
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
    match rng.random_range(0..11) {
        10 => match rng.random_range(0..5) {
            0 => format!("id = {}", rng.random_range(-5..805)),
            1 => format!("id in ({}, {}, {})", rng.random_range(-5..805), rng.random_range(0..9), 7),
            2 => format!("id > {}", rng.random_range(600..805)),
            3 => format!("not id >= {}", rng.random_range(-5..200)),
            _ => format!("id between {} and {}", rng.random_range(-5..400), rng.random_range(300..500)),
        },
        9 => match rng.random_range(0..4) {
            0 => "text match 'ÜBER'".to_owned(),
            1 => format!("text match '{}1 t2'", "long".repeat(400)),
            2 => format!("text match 'w{} and'", rng.random_range(0..30)),
            _ => format!("text match 'w{}'", rng.random_range(0..30)),
        },
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
    created_of(1)
}

fn created_of(partitions: usize) -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset_with("d", schema(), &DatasetOptions { partitions }).unwrap();
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
    dataset.create_index("words", IndexKind::Inverted, &["text"]).unwrap();
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
                for name in ["by_text", "by_int", "by_float_int", "by_flag_time_text", "by_time", "words"] {
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
        assert!(reason(&few, "by_flag").contains("demands nothing of its first column, flag"), "{few}");
        // What is asked of it in another way is not told as nothing.
        for text in ["not int = 7", "int != 7", "int is null", "int = 7 or id = 8", "not (int > 7 and int < 9)"] {
            let explanation = explained(text, false);
            let told = reason(&explanation, "by_int");
            assert!(told.contains("the condition on its first column, int, is not a value, range or list"), "{told}");
            assert!(
                reason(&explanation, "by_flag").contains("demands nothing of its first column, flag"),
                "{explanation}"
            );
            let query = Query::new().condition(Condition::parse(text).unwrap()).using_index("by_int");
            let refused = snapshot.count(&query).unwrap_err().to_string();
            assert!(refused.contains(&told), "{refused}");
        }
        let both = explained("flag and int between 100 and 150", false);
        assert_eq!((both.plan, both.matches, both.lookups), ("attribute index", 26, 26), "{both}");
        assert!(reason(&both, "by_int").contains("another way"), "{both}");
        let many = explained("int > 100", false);
        assert_eq!((many.plan, many.matches), ("primary scan", 3899), "{many}");
        assert!(reason(&many, "by_int").contains("read all records"), "{many}");
        let window = explained("int < 3500", true);
        assert_eq!(window.plan, "spatial index", "{window}");
        assert!(reason(&window, "by_int").contains("the windows cost no more, with about "), "{window}");
        let one = explained("int = 7", true);
        assert_eq!(one.plan, "attribute index");
        // What it was compared with is told.
        let windows = one.considered.iter().find(|considered| considered.index == "geometry").unwrap();
        assert!(!windows.is_used && windows.entries.is_some_and(|entries| entries > 0), "{windows:?}");
        let key = explained("id = 7 and not int > 9", false);
        assert_eq!((key.plan, key.entries, key.matches), ("primary range", 1, 1), "{key}");
        let keys = explained("id in (3, 5000, 9) or flag", false);
        assert_eq!(keys.plan, "primary scan", "{keys}");
        let keys = explained("id >= 3990 and int < 4000", true);
        assert_eq!((keys.plan, keys.entries), ("primary range", 10), "{keys}");
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

#[test]
fn the_rarest_word_is_looked_up() {
    let (store, dataset) = created();
    dataset.create_index("words", IndexKind::Inverted, &["text"]).unwrap();
    let mut batch = dataset.atomic_batch();
    for key in 0..2000 {
        let rare = if key % 400 == 7 { " rare-bird" } else { "" };
        let text = format!("The common, common house{rare} of {}", key % 10);
        let values = vec![Value::Utf8(text), Value::Null, Value::Null, Value::Null, Value::Null];
        batch.upsert(&Record::at(key, 1.0, 1.0, values)).unwrap();
    }
    batch.commit().unwrap();
    for flushed in [false, true] {
        if flushed {
            dataset.compact().unwrap();
            let info = store.info().unwrap();
            let words = info.datasets[0].indexes.iter().find(|index| index.name == "words").unwrap();
            assert_eq!(words.entries, 2000 * 5 + 5 * 2, "the, common, house, of and a number; rare and bird");
        }
        let snapshot = dataset.snapshot();
        let of = |text: &str| explanation(&snapshot, &Query::new().condition(Condition::on("text").matches(text)));
        let rare = of("HOUSE bird");
        assert_eq!((rare.plan, rare.lookups, rare.matches), ("attribute index", 5, 5), "{rare}");
        let both = of("bird 7");
        assert_eq!((both.plan, both.lookups, both.matches), ("attribute index", 5, 5), "{both}");
        assert_eq!(of("bird 8").matches, 0);
        let common = of("house");
        assert_eq!((common.plan, common.matches), ("primary scan", 2000), "{common}");
        let other = explanation(&snapshot, &Query::new().condition(Condition::parse("text = 'house'").unwrap()));
        assert!(other.considered[0].reason.contains("demands no word of its first column, text"), "{other}");
    }
    // Words that stay are not written again.
    let text = Value::Utf8("The common house of 5".into());
    dataset.upsert(&Record::at(5, 1.0, 1.0, vec![text, Value::Int(1), Value::Null, Value::Null, Value::Null])).unwrap();
    dataset.flush().unwrap();
    let info = store.info().unwrap();
    let words = info.datasets[0].indexes.iter().find(|index| index.name == "words").unwrap();
    assert_eq!((words.entries, words.antimatter), (2000 * 5 + 5 * 2, 0));
    drop(dataset);
    assert!(store.check(false).unwrap().findings.is_empty());
}

#[test]
fn words_that_an_index_leaves_out_change_no_answer() {
    let storage = Arc::new(MemoryStorage::new());
    let mut store = Store::open_on(storage.clone(), small_options()).unwrap();
    let mut dataset = store.create_dataset("d", schema()).unwrap();
    let stop_words = StopWords::new(["The", "of", "rare"]).unwrap();
    let options = IndexOptions::default().stop_words(stop_words);
    let record = |key: i64, text: String| {
        Record::at(key, 1.0, 1.0, vec![Value::Utf8(text), Value::Null, Value::Null, Value::Null, Value::Null])
    };
    for key in 0..200 {
        dataset.insert(&record(key, format!("the house OF number {key}"))).unwrap();
    }
    dataset.create_index_with("words", IndexKind::Inverted, &["text"], &options).unwrap();
    dataset.create_index_with("words", IndexKind::Inverted, &["text"], &IndexOptions::default()).unwrap_err();
    for key in 200..400 {
        dataset.insert(&record(key, format!("The House, of the number {key}"))).unwrap();
    }
    // A word that is left out comes and goes with others.
    dataset.upsert(&record(7, "a rare bird of the house".into())).unwrap();
    dataset.upsert(&record(8, "rare".into())).unwrap();
    dataset.upsert(&record(9, "the bird".into())).unwrap();
    for round in 0..3 {
        match round {
            0 => {}
            1 => dataset.compact().unwrap(),
            _ => {
                drop(dataset);
                store.close().unwrap();
                store = Store::open_on(storage.clone(), small_options()).unwrap();
                dataset = store.dataset("d").unwrap();
            }
        }
        let snapshot = dataset.snapshot();
        let words = |text: &str| Query::new().condition(Condition::on("text").matches(text));
        for (text, keys) in [("the bird", &[7, 9][..]), ("rare bird", &[7]), ("RARE the BIRD of house", &[7])] {
            let told = explanation(&snapshot, &words(text));
            assert_eq!((told.plan, told.matches), ("attribute index", keys.len() as u64), "{text}: {told}");
            assert!(told.entries <= 2, "{text}: {told}");
            assert_eq!(set(&snapshot, &words(text)), set(&snapshot, &words(text).using_index("primary")), "{text}");
        }
        // Such words alone are looked for in the records.
        let told = explanation(&snapshot, &words("rare"));
        assert_eq!((told.plan, told.matches), ("primary scan", 2), "{told}");
        assert!(told.considered[0].reason.contains("only stop words"), "{told}");
        assert_eq!(snapshot.count(&words("THE of")).unwrap(), 398);
        let refused = snapshot.count(&words("the").using_index("words")).unwrap_err().to_string();
        assert!(refused.contains("demands only stop words of its first column, text"), "{refused}");
        let info = store.info().unwrap();
        let index = info.datasets[0].indexes.iter().find(|index| index.name == "words").unwrap();
        assert_eq!(index.options.as_ref(), Some(&options));
        assert!(info.to_string().contains("without 3 words"), "{info}");
        if round > 0 {
            assert_eq!(index.entries, 397 * 3 + 3 + 1, "house, number and its number; a, bird, house; bird");
        }
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

#[test]
fn words_to_leave_out_are_for_indexes_of_words_and_hostile_ones_are_damage() {
    let storage = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = store.create_dataset("d", schema()).unwrap();
    let options = IndexOptions::default().stop_words(StopWords::new(["the"]).unwrap());
    for (kind, columns) in [(IndexKind::BTree, &["text"][..]), (IndexKind::RTree, &[])] {
        let refused = dataset.create_index_with("i", kind, columns, &options).unwrap_err().to_string();
        assert!(refused.contains("does not take words to leave out"), "{refused}");
    }
    dataset.create_index_with("words", IndexKind::Inverted, &["text"], &options).unwrap();
    drop(dataset);
    store.close().unwrap();
    let manifest = Manifest::read(&*storage).unwrap().unwrap();
    for (options, reason) in [
        (serde_json::json!({"kind": "inverted", "stop_words": ["The"]}), "not in lower case"),
        (serde_json::json!({"kind": "inverted", "stop_words": ["the", "a"]}), "not in lower case, ascending"),
        (serde_json::json!({"kind": "inverted", "stop_words": ["of the"]}), "not one word"),
        (serde_json::json!({"kind": "inverted", "stop_words": 7}), "expected a sequence"),
        (serde_json::json!({"kind": "inverted"}), "missing field `stop_words`"),
        (serde_json::json!({"kind": "dhb", "stop_words": []}), "those of kind dhb"),
    ] {
        let mut changed = manifest.clone();
        let indexes = changed.datasets[0].catalog["indexes"].as_array_mut().unwrap();
        indexes.last_mut().unwrap()["options"] = options;
        storage.remove("MANIFEST").unwrap();
        drop(ManifestFile::create(storage.clone(), changed).unwrap());
        let error = Store::open_on(storage.clone(), small_options()).unwrap_err();
        assert!(matches!(&error, Error::Damaged { file, .. } if file == "MANIFEST"), "{error:?}");
        assert!(error.to_string().contains(reason), "{error} instead of {reason}");
    }
}

#[test]
fn a_text_of_more_words_than_an_index_holds_is_refused() {
    let (store, dataset) = created();
    let text = |words: u32| {
        let text = (0..words).map(|word| format!("w{word}")).collect::<Vec<_>>().join(" ");
        Record::at(1, 1.0, 1.0, vec![Value::Utf8(text), Value::Null, Value::Null, Value::Null, Value::Null])
    };
    dataset.insert(&text(70_000)).unwrap();
    let refused = dataset.create_index("words", IndexKind::Inverted, &["text"]).unwrap_err();
    assert!(refused.is_refusal() && refused.to_string().contains("more than 65536 different words"), "{refused}");
    assert!(dataset.drop_index("words").is_err(), "it is gone again");
    dataset.delete(&Key::Int(1)).unwrap();
    dataset.create_index("words", IndexKind::Inverted, &["text"]).unwrap();
    let refused = dataset.insert(&text(70_000)).unwrap_err();
    let told = refused.to_string();
    assert!(refused.is_refusal() && told.contains("different words") && told.contains("the index \"words\""), "{told}");
    assert_eq!(dataset.get(&Key::Int(1)).unwrap(), None);
    dataset.insert(&text(60_000)).unwrap();
    dataset.flush().unwrap();
    dataset.upsert(&text(10)).unwrap();
    drop(dataset);
    assert!(store.check(false).unwrap().findings.is_empty());
}
