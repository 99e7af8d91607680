//! Conditions are evaluated on index entries as far as the entries have the attributes. Records are
//! not read if the entries decide.

use std::sync::Arc;

use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Explanation, IndexKind, Isolation, Key, Query, Record, Store,
    Value,
};
use terrane_testkit::MemoryStorage;

use crate::support::{committed_keys_of, keys_of, small_options};

const RECORDS: i64 = 2000;

fn schema() -> Schema {
    let columns = vec![
        Column::new("text", ColumnType::Utf8),
        Column::new("size", ColumnType::Int64),
        Column::new("open", ColumnType::Bool),
    ];
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    Schema::new(key, geometry, CoordinateSystem::Planar, columns).unwrap()
}

/// One text in ten is longer than an entry. One in a hundred has a byte that entries encode as two.
fn record(key: i64) -> Record {
    let text = match key {
        _ if key % 10 == 3 => format!("{} {key} kept", "long ".repeat(400)),
        _ if key % 100 == 7 => format!("zero\0 {key}"),
        _ => format!("short {key}"),
    };
    let open = if key % 5 == 0 { Value::Null } else { Value::Bool(key % 2 == 0) };
    Record::at(key, key as f64, 1.0, vec![Value::Utf8(text), Value::Int(key % 100), open])
}

/// Records, some of them in memory, and some written again.
fn dataset(partitions: usize) -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset_with("d", schema(), &DatasetOptions { partitions }).unwrap();
    for (name, columns) in [("size_text", &["size", "text"][..]), ("size_open", &["size", "open"])] {
        dataset.create_index(name, IndexKind::BTree, columns).unwrap();
    }
    dataset.create_index("words", IndexKind::Inverted, &["text"]).unwrap();
    for key in 0..RECORDS {
        dataset.insert(&record(RECORDS - 1 - key)).unwrap();
        if key == RECORDS / 2 {
            dataset.flush().unwrap();
        }
    }
    for key in (0..RECORDS).step_by(17) {
        dataset.upsert(&Record { values: vec![Value::Null; 3], ..record(key) }).unwrap();
    }
    for key in (0..RECORDS).step_by(34) {
        dataset.upsert(&record(key)).unwrap();
    }
    (store, dataset)
}

fn of(condition: &str) -> Query {
    Query::new().condition(Condition::parse(condition).unwrap())
}

const LEVELS: [Isolation; 2] = [Isolation::Snapshot, Isolation::ReadCommitted];

/// The keys of an answer, sorted. Their number must equal the count.
fn keys(dataset: &Dataset, query: &Query, isolation: Isolation) -> Vec<Key> {
    let mut keys = match isolation {
        Isolation::Snapshot => {
            let snapshot = dataset.snapshot();
            let keys = keys_of(&snapshot, query);
            assert_eq!(snapshot.count(query).unwrap(), keys.len() as u64, "{query:?}");
            keys
        }
        _ => committed_keys_of(dataset, query),
    };
    keys.sort();
    keys
}

/// How the keys were found. They must equal those of a scan.
fn keys_explained(dataset: &Dataset, query: &Query, isolation: Isolation) -> Explanation {
    let wanted = keys(dataset, &query.clone().using_index("primary"), Isolation::Snapshot);
    assert_eq!(keys(dataset, query, isolation), wanted, "{query:?}");
    for limit in [0, 1, wanted.len() / 2, wanted.len(), usize::MAX] {
        let limited = query.clone().limit(limit as u64);
        assert_eq!(keys(dataset, &limited, isolation).len(), limit.min(wanted.len()), "{limited:?}");
    }
    explained(dataset, &query.clone().columns(["id"]).isolation(isolation))
}

fn explained(dataset: &Dataset, query: &Query) -> Explanation {
    let mut rows = dataset.query(query).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    let explanation = rows.explanation();
    assert_eq!(explanation.matches, explanation.answered_from_index + explanation.lookups, "each look-up is a row");
    explanation
}

#[test]
fn conditions_decided_by_entries_read_no_record() {
    for partitions in [1, 3] {
        let (store, dataset) = dataset(partitions);
        for round in 0..2 {
            for isolation in LEVELS {
                for condition in [
                    "size between 10 and 19 and open",
                    "size between 10 and 19 and open is null",
                    "size in (3, 5, 99) and not open and (open or size > 4)",
                    "size > 20 and size <> 50 and id < 1000",
                    "size >= 0",
                ] {
                    let query = of(condition).using_index("size_open");
                    let told = keys_explained(&dataset, &query, isolation);
                    assert_eq!((told.plan, told.lookups), ("attribute index only", 0), "round {round}: {told}");
                    let shown = "(evaluated on index entries)\n";
                    assert!(told.matches > 10 && told.to_string().contains(shown), "{told}");
                }
            }
            dataset.compact().unwrap();
        }
        drop(dataset);
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

#[test]
fn a_text_truncated_in_its_entry_is_read_from_the_record() {
    let (_store, dataset) = dataset(2);
    let has_whole = |key: i64| key % 10 != 3 && key % 100 != 7;
    let left = |key: &i64| key % 17 != 0 || key % 34 == 0;
    for isolation in LEVELS {
        // Sizes 3 and 7 have the texts that entries truncate, 4 and 5 have others.
        let query = of("size between 3 and 7 and text > 'a'").using_index("size_text");
        let told = keys_explained(&dataset, &query, isolation);
        let found = (0..RECORDS).filter(|key| (3..=7).contains(&(key % 100))).filter(left);
        let (whole, cut): (Vec<i64>, Vec<i64>) = found.partition(|key| has_whole(*key));
        assert!(whole.len() > 50 && cut.len() > 30);
        let counts = (told.plan, told.answered_from_index, told.lookups);
        assert_eq!(counts, ("attribute index only", whole.len() as u64, cut.len() as u64), "{told}");
        // The end of a text is not in its entry.
        let query = of("size = 3 and text match 'kept 103'").using_index("size_text");
        assert_eq!(keys(&dataset, &query, isolation), [Key::Int(103)]);
        let query = of("size = 7 and text match '107'").using_index("size_text");
        assert_eq!(keys(&dataset, &query, isolation), [Key::Int(107)]);
    }
}

#[test]
fn entries_exclude_records_that_do_not_match() {
    let (_store, dataset) = dataset(1);
    let left = |key: &i64| key % 17 != 0 || key % 34 == 0;
    for isolation in LEVELS {
        // The rows need more than keys: only the matching records are read.
        let query = of("size < 50 and open").using_index("size_open").isolation(isolation);
        let told = explained(&dataset, &query);
        assert_eq!((told.plan, told.answered_from_index), ("attribute index", 0), "{told}");
        assert!(told.to_string().contains("(evaluated on index entries)"), "{told}");
        let wanted = (0..RECORDS).filter(|key| key % 100 < 50 && key % 5 != 0 && key % 2 == 0).filter(left).count();
        assert_eq!((told.lookups, told.candidates), (wanted as u64, wanted as u64), "{told}");
        assert!(told.entries > 2 * told.candidates, "{told}");
        // A part of the condition is left to the records.
        let query = of("size < 50 and open and text match '642'").using_index("size_open").isolation(isolation);
        let mut rows = dataset.query(&query).unwrap();
        assert_eq!(rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 1);
        let told = rows.explanation();
        assert_eq!((told.plan, told.lookups), ("attribute index", wanted as u64), "{told}");
        assert!(told.to_string().contains("(evaluated on index entries, then records)"), "{told}");
        // The same for a window, because entries have no geometry.
        let query = of("size < 50 and open").window(0.0, 0.0, 100.0, 2.0).using_index("size_open").isolation(isolation);
        let mut rows = dataset.query(&query.columns(["id"])).unwrap();
        rows.by_ref().for_each(|batch| drop(batch.unwrap()));
        let told = rows.explanation();
        assert_eq!(
            (told.plan, told.lookups, told.answered_from_index),
            ("attribute index", wanted as u64, 0),
            "{told}"
        );
        assert!(told.matches > 10 && told.matches < 50, "{told}");
    }
}

#[test]
fn one_word_is_counted_in_the_index_of_words() {
    let (_store, dataset) = dataset(2);
    for isolation in LEVELS {
        let told = keys_explained(&dataset, &of("text match 'kept'").using_index("words"), isolation);
        assert_eq!((told.plan, told.lookups), ("attribute index only", 0), "{told}");
        assert!(told.matches > 150, "{told}");
        // Two words, or a word and another condition, are not in one entry.
        for condition in
            ["text match 'kept 103'", "text match 'kept' and size = 3", "not text match 'short' and text match 'kept'"]
        {
            let told = told_of_some(&dataset, &of(condition).using_index("words").isolation(isolation));
            assert_eq!((told.plan, told.answered_from_index), ("attribute index", 0), "{condition}: {told}");
        }
    }
    // Words so long that entries truncate them.
    let long = |last: &str| format!("{}{last}", "w".repeat(508));
    for (key, last) in [(5000, ""), (5001, "w"), (5002, "wwwww"), (5003, "wwwwx"), (5004, "wwww")] {
        let values = vec![Value::Utf8(long(last)), Value::Null, Value::Null];
        dataset.insert(&Record::at(key, 1.0, 1.0, values)).unwrap();
    }
    for (last, key) in [("", 5000), ("w", 5001), ("wwwww", 5002), ("wwwwx", 5003), ("wwww", 5004)] {
        let query = Query::new().condition(Condition::on("text").matches(long(last))).using_index("words");
        assert_eq!(keys(&dataset, &query, Isolation::Snapshot), [Key::Int(key)], "{} bytes", 508 + last.len());
    }
}

fn told_of_some(dataset: &Dataset, query: &Query) -> Explanation {
    let mut rows = dataset.query(&query.clone().columns(["id"])).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    rows.explanation()
}

/// The planner counts the cost of look-ups that are not needed as zero.
#[test]
fn an_index_that_decides_is_chosen_if_look_ups_would_cost_more() {
    let (_store, dataset) = dataset(1);
    let told = keys_explained(&dataset, &of("size between 10 and 70"), Isolation::Snapshot);
    assert_eq!((told.plan, told.lookups), ("attribute index only", 0), "{told}");
    let told = explained(&dataset, &of("size between 10 and 14 and open"));
    assert_eq!(told.plan, "attribute index", "{told}");
    let mut rows = dataset.query(&of("size between 10 and 70")).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    assert_eq!(rows.explanation().plan, "primary scan", "rows of all columns: {}", rows.explanation());
}

#[test]
fn entries_are_read_by_the_current_types_of_their_columns() {
    let (_store, dataset) = dataset(1);
    dataset.add_column(Column::new("later", ColumnType::Int64)).unwrap();
    dataset.create_index("size_later", IndexKind::BTree, &["size", "later"]).unwrap();
    let told =
        keys_explained(&dataset, &of("size = 20 and later is null").using_index("size_later"), Isolation::Snapshot);
    assert_eq!((told.plan, told.lookups), ("attribute index only", 0), "{told}");
    dataset.widen_column("size").unwrap();
    let mut record = record(4020);
    record.values[1] = Value::Float64(20.5);
    record.values.push(Value::Int(1));
    dataset.insert(&record).unwrap();
    for condition in ["size > 19.5 and size < 21 and later is null", "size in (20, 20.5)", "size = 20.5 and later = 1"]
    {
        let told = keys_explained(&dataset, &of(condition).using_index("size_later"), Isolation::Snapshot);
        assert_eq!((told.plan, told.lookups), ("attribute index only", 0), "{condition}: {told}");
        assert!(told.matches > 0, "{condition}: {told}");
    }
    dataset.rename_column("later", "soon").unwrap();
    let told = keys_explained(&dataset, &of("size = 20.5 and soon = 1").using_index("size_later"), Isolation::Snapshot);
    assert_eq!((told.matches, told.lookups), (1, 0), "{told}");
}
