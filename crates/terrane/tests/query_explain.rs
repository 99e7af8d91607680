//! Explanations: stages named by their work, and pages read during the query.

use std::sync::Arc;

use crate::support::{schema, small_options};
use terrane::schema::KeyType;
use terrane::{Condition, CoordinateSystem, Explanation, Geometry, IndexKind, Key, Query, Record, Store, Value};
use terrane_space::geometry::from_wkt;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const RECORDS: i64 = 20_000;

/// Squares in a row, in one component of each index.
fn squares() -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let schema = schema(KeyType::Int64, false, CoordinateSystem::Planar);
    let mut importer = store.importer("d", schema.clone()).unwrap();
    let records: Vec<Record> = (0..RECORDS)
        .map(|x| {
            let wkt = format!("POLYGON(({x} 0,{} 0,{} 1,{x} 1,{x} 0))", x + 1, x + 1);
            let geometry = Some(Geometry::Wkb(from_wkt(&wkt).unwrap()));
            Record { key: Key::Int(x), geometry, values: vec![Value::Utf8("n".repeat(100)), Value::Null] }
        })
        .collect();
    for records in records.chunks(1000) {
        importer.push(&crate::support::workload::batch(&schema, records)).unwrap();
    }
    importer.finish(&mut |row| Err(row.error)).unwrap();
    store.close().unwrap();
    storage
}

fn explained(store: &Store, query: &Query) -> Explanation {
    let snapshot = store.dataset("d").unwrap().snapshot();
    let mut rows = snapshot.query(query).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    rows.explanation()
}

#[test]
fn stages_are_named_by_their_work() {
    let store = Store::open_on(squares(), small_options()).unwrap();
    let window = Query::new().window(100.5, 0.5, 2000.5, 0.75);
    let cases = [
        (window.clone(), &["planning", "index search", "primary look-ups", "conditions and decoding"][..]),
        (Query::new(), &["planning", "primary scan", "conditions and decoding"]),
        (window.nearest(7.0, 7.0, 20), &["planning", "nearest search", "primary look-ups", "conditions and decoding"]),
    ];
    for (query, wanted) in cases {
        let explanation = explained(&store, &query);
        let stages: Vec<&str> = explanation.stages.iter().map(|stage| stage.name).collect();
        assert_eq!(stages, wanted, "{query:?}");
        let shown = explanation.to_string();
        assert!(wanted.iter().all(|stage| shown.contains(stage)), "{shown}");
    }
}

#[test]
fn no_record_is_looked_up_twice() {
    let store = Store::open_on(squares(), small_options()).unwrap();
    let window = Query::new().window(100.5, 0.5, 9999.5, 0.75).using_index("geometry");
    for (query, lookups) in [(window.clone(), 9900), (window.clone().limit(70), 70), (window.limit(5), 5)] {
        let explanation = explained(&store, &query);
        assert_eq!((explanation.lookups, explanation.matches), (lookups, lookups), "{query:?}");
    }
}

#[test]
fn pages_that_others_read_between_two_batches_are_not_counted() {
    let storage = squares();
    let query = Query::new().columns(["id"]);
    let alone = explained(&Store::open_on(storage.clone(), small_options()).unwrap(), &query);
    let store = Store::open_on(storage, small_options()).unwrap();
    let snapshot = store.dataset("d").unwrap().snapshot();
    let mut rows = snapshot.query(&query).unwrap();
    drop(rows.next().unwrap().unwrap());
    let report = store.check(false).unwrap();
    assert!(report.pages > 0 && report.findings.is_empty(), "{report}");
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    let pages = rows.explanation().pages_read;
    assert!(alone.pages_read > 0 && pages <= alone.pages_read, "{pages} pages, alone {}", alone.pages_read);
}

/// Estimates read pages of the index, which the search then finds in the cache.
#[test]
fn pages_read_by_planning_are_counted() {
    let storage = squares();
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    store.dataset("d").unwrap().create_index("by_name", IndexKind::BTree, &["name"]).unwrap();
    store.close().unwrap();
    for query in [
        Query::new().window(100.5, 0.5, 100.6, 0.75),
        Query::new().condition(Condition::parse("name = 'none'").unwrap()).using_index("by_name"),
    ] {
        let query = query.columns(["id"]);
        let store = Store::open_on(storage.clone(), small_options()).unwrap();
        let snapshot = store.dataset("d").unwrap().snapshot();
        let planned = snapshot.query(&query).unwrap().explanation().pages_read;
        let rest = explained(&store, &query).pages_read;
        assert!(planned > 0, "{planned} pages, {rest} after that: {query:?}");
    }
}

#[test]
fn one_entry_is_reported_in_the_singular() {
    let store = Store::open_on(squares(), small_options()).unwrap();
    let dataset = store.dataset("d").unwrap();
    let named = |key: i64, name: &str| Record {
        key: Key::Int(key),
        geometry: None,
        values: vec![Value::Utf8(name.to_owned()), Value::Null],
    };
    [named(-1, "one"), named(-2, "two"), named(-3, "two")].iter().for_each(|record| dataset.insert(record).unwrap());
    dataset.create_index("by_name", IndexKind::BTree, &["name"]).unwrap();
    for (condition, noun) in [("name = 'one'", "1 entry"), ("name = 'two'", "entries")] {
        let shown = explained(&store, &Query::new().condition(Condition::parse(condition).unwrap())).to_string();
        assert!(shown.contains("by_name, about ") && shown.contains(&format!(" {noun}: used")), "{shown}");
    }
}

/// Reading records in order is cheaper than looking them up. So the most candidates may cost least.
#[test]
fn the_reason_for_an_index_agrees_with_the_estimates_of_others() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let schema = schema(KeyType::Int64, true, CoordinateSystem::Planar);
    let dataset = store.create_dataset("d", schema).unwrap();
    let record = |key: i64| Record::at(key, key as f64, 0.0, vec![Value::Null, Value::Int(key % 300)]);
    (0..3000).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.flush().unwrap();
    dataset.create_index("by_size", IndexKind::BTree, &["size"]).unwrap();
    for (condition, used, reason) in [
        ("id between 0 and 3 and size = 5", "primary", "it gives the fewest candidates"),
        ("id between 0 and 29 and size = 5", "primary", "it costs least, as look-ups are counted"),
        ("id between 0 and 2000 and size = 5", "by_size", "it gives the fewest candidates"),
    ] {
        let query = Query::new().columns(["id", "name"]).condition(Condition::parse(condition).unwrap());
        let considered = explained(&store, &query).considered;
        let chosen = considered.iter().find(|considered| considered.is_used).unwrap();
        assert_eq!((chosen.index.as_str(), chosen.reason.as_str()), (used, reason), "{considered:?}");
        let is_fewest = considered.iter().all(|other| other.entries.unwrap() >= chosen.entries.unwrap());
        assert_eq!(is_fewest, reason.contains("fewest"), "{considered:?}");
    }
}

#[test]
fn windows_that_most_records_meet_are_answered_by_a_scan() {
    let store = Store::open_on(squares(), small_options()).unwrap();
    let of_width = |width: f64| Query::new().window(0.5, 0.25, 0.5 + width, 0.75);
    // At 5000, a quarter of the records meets the window.
    for (width, plan) in [(100.0, "spatial index"), (4000.0, "spatial index"), (6000.0, "primary scan")] {
        let query = of_width(width);
        let explanation = explained(&store, &query);
        assert_eq!(explanation.plan, plan, "{width}");
        let [considered] = &explanation.considered[..] else { panic!("{:?}", explanation.considered) };
        assert_eq!(considered.is_used, plan == "spatial index", "{considered:?}");
        if !considered.is_used {
            assert!(considered.reason.contains("all records, about 20000"), "{considered:?}");
            let entries = considered.entries.unwrap();
            assert!((width as u64..=RECORDS as u64).contains(&entries), "{entries}");
        }
        let through_index = explained(&store, &query.clone().using_index("geometry"));
        assert_eq!((through_index.plan, through_index.matches), ("spatial index", width as u64 + 1));
        assert_eq!(explanation.matches, through_index.matches);
    }
    // Rows decided by entries need no record, however many there are.
    let points = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let point_schema = schema(KeyType::Int64, true, CoordinateSystem::Planar);
    let dataset = points.create_dataset("d", point_schema).unwrap();
    for key in 0..RECORDS {
        dataset.insert(&Record::at(key, key as f64, 0.5, vec![Value::Utf8(String::new()), Value::Null])).unwrap();
    }
    dataset.flush().unwrap();
    let all = of_width(1e6);
    assert_eq!(explained(&points, &all).plan, "primary scan");
    assert_eq!(explained(&points, &all.columns(["id"])).plan, "spatial index only");
}
