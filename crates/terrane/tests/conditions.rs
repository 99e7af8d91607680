//! Conditions on attributes in every kind of query, against a plain evaluation over all records.

use std::sync::Arc;

use crate::support::conditions::{Plan, any_key_type, any_plan, any_record, points, schema};
use crate::support::workload::{MAIN, first_schema};
use crate::support::{Model, encoded, keys_of, small_options};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use terrane::condition::Condition;
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyType};
use terrane::{Dataset, Error, Geometry, Key, Query, Record, Snapshot, Store, Value};
use terrane_space::Point;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

/// The spatial part of a query, beside its condition.
#[derive(Clone, Copy, Debug)]
enum Shape {
    All,
    Window,
    Circle,
    Nearest(usize),
}

const SHAPES: [Shape; 5] = [Shape::All, Shape::Window, Shape::Circle, Shape::Nearest(3), Shape::Nearest(1000)];

impl Shape {
    fn query(self, condition: Condition) -> Query {
        let query = Query::new().condition(condition);
        match self {
            Self::All => query,
            Self::Window => query.window(1.0, 1.0, 5.0, 6.0),
            Self::Circle => query.circle(3.0, 3.0, 2.5),
            Self::Nearest(k) => query.nearest(3.25, 3.0, k),
        }
    }

    /// The keys of the records for which the condition is true.
    fn select(self, model: &Model, plan: &Plan) -> Vec<Key> {
        let place = |record: &Record| match record.geometry {
            Some(Geometry::Point(point)) => Some(point),
            _ => None,
        };
        let distance = |record: &Record, x: f64, y: f64| place(record).map(|p| (p.x - x).hypot(p.y - y));
        let matching = model.values().filter(|record| plan.truth(record) == Some(true));
        match self {
            Self::All => matching.map(|record| record.key.clone()).collect(),
            Self::Window => {
                let inside = |p: Point| (1.0..=5.0).contains(&p.x) && (1.0..=6.0).contains(&p.y);
                matching.filter(|record| place(record).is_some_and(inside)).map(|record| record.key.clone()).collect()
            }
            Self::Circle => matching
                .filter(|record| distance(record, 3.0, 3.0).is_some_and(|distance| distance <= 2.5))
                .map(|record| record.key.clone())
                .collect(),
            Self::Nearest(k) => {
                let mut found: Vec<(f64, Vec<u8>, Key)> = matching
                    .filter_map(|record| Some((distance(record, 3.25, 3.0)?, encoded(&record.key), record.key.clone())))
                    .collect();
                found.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
                found.into_iter().take(k).map(|(.., key)| key).collect()
            }
        }
    }

    fn is_ordered(self) -> bool {
        matches!(self, Self::Nearest(_))
    }
}

/// Records on disk and in memory, some of them replaced.
fn filled(key_type: KeyType, geometry: GeometryColumn, records: &[Record]) -> (Store, Snapshot, Model) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset("d", schema(key_type, geometry)).unwrap();
    let mut model = Model::new();
    for (number, record) in records.iter().enumerate() {
        dataset.upsert(record).unwrap();
        model.insert(encoded(&record.key), record.clone());
        if number == records.len() / 2 {
            dataset.flush().unwrap();
        }
    }
    let snapshot = dataset.snapshot();
    (store, snapshot, model)
}

fn any_case() -> impl Strategy<Value = (KeyType, GeometryColumn, Vec<Record>, Vec<Plan>)> {
    let geometry = select(vec![points(), GeometryColumn::Geometry { name: "geometry".into() }]);
    (any_key_type(), geometry).prop_flat_map(|(key_type, geometry)| {
        let record = (any_record(key_type), proptest::bool::weighted(0.1)).prop_map(|(mut record, is_nowhere)| {
            record.geometry.take_if(|_| is_nowhere);
            record
        });
        (Just(key_type), Just(geometry), vec(record, 1..60), vec(any_plan(key_type), 6))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_query_finds_what_a_scan_finds((key_type, geometry, records, plans) in any_case()) {
        let (_store, snapshot, model) = filled(key_type, geometry, &records);
        for (plan, shape) in plans.iter().flat_map(|plan| SHAPES.map(|shape| (plan, shape))) {
            let wanted = shape.select(&model, plan);
            let query = shape.query(plan.condition());
            let mut found = keys_of(&snapshot, &query);
            if !shape.is_ordered() {
                found.sort_by_key(encoded);
            }
            prop_assert_eq!(&found, &wanted, "{:?}", query);
            prop_assert_eq!(snapshot.count(&query).unwrap(), wanted.len() as u64, "{:?}", query);
            let limited = keys_of(&snapshot, &query.clone().limit(2));
            prop_assert_eq!(limited.len(), wanted.len().min(2), "{:?}", query);
            prop_assert!(limited.iter().all(|key| wanted.contains(key)), "{:?}", query);
            // Parsed from its text, and given in two parts.
            let read = plan.condition().to_string().parse().unwrap();
            let again = shape.query(plans[0].condition()).condition(read);
            let both = Plan::And(vec![plans[0].clone(), plan.clone()]);
            prop_assert_eq!(snapshot.count(&again).unwrap(), shape.select(&model, &both).len() as u64, "{:?}", again);
        }
    }

    /// Each record meets exactly one of the condition, its negation, and "unknown".
    #[test]
    fn a_record_meets_a_condition_or_its_negation_or_is_unknown((key_type, geometry, records, plans) in any_case()) {
        let (_store, snapshot, model) = filled(key_type, geometry, &records);
        for plan in &plans {
            let count = |condition| snapshot.count(&Query::new().condition(condition)).unwrap() as usize;
            let condition = plan.condition();
            let unknown = model.values().filter(|record| plan.truth(record).is_none()).count();
            let (is_true, is_false) = (count(condition.clone()), count(!condition.clone()));
            prop_assert_eq!(is_true + is_false + unknown, model.len(), "{}", condition);
            prop_assert_eq!(count(condition.clone().or(!condition.clone())), is_true + is_false, "{}", condition);
            prop_assert_eq!(count(condition.clone().and(!condition.clone())), 0, "{}", condition);
        }
    }
}

fn sized(key: i64, size: Value) -> Record {
    Record::at(key, key as f64, 2.0, vec![Value::Utf8(format!("number {key}")), size])
}

fn places() -> (Store, Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    (0..50).for_each(|key| dataset.insert(&sized(key, Value::Int(key % 7))).unwrap());
    (store, dataset)
}

fn keys(snapshot: &Snapshot, text: &str) -> Vec<i64> {
    let query = Query::new().condition(Condition::parse(text).unwrap());
    let mut keys: Vec<i64> = keys_of(snapshot, &query)
        .into_iter()
        .map(|key| match key {
            Key::Int(key) => key,
            other => panic!("{other:?}"),
        })
        .collect();
    keys.sort_unstable();
    keys
}

#[test]
fn explanations_show_the_condition_and_that_records_were_read() {
    let (_store, dataset) = places();
    let condition = Condition::parse("size = 3 and name match 'NUMBER'").unwrap();
    for (query, plan, matches) in [
        (Query::new(), "primary scan", 7),
        (Query::new().window(0.0, 0.0, 20.0, 5.0), "spatial index", 3),
        (Query::new().nearest(0.0, 0.0, 2), "nearest", 2),
    ] {
        // Keys alone cannot answer a condition.
        let query = query.condition(condition.clone()).columns(["id"]);
        let mut rows = dataset.snapshot().query(&query).unwrap();
        let found: usize = rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        let explanation = rows.explanation();
        assert_eq!((explanation.plan, found), (plan, matches), "{query:?}");
        let shown = "condition   size = 3 and name match 'NUMBER' (evaluated on records)";
        assert!(explanation.to_string().lines().any(|line| line == shown), "{explanation}");
        let json = serde_json::to_value(&explanation).unwrap();
        assert_eq!(json["condition"]["text"], condition.to_string());
        assert_eq!(json["condition"]["evaluated_on"], "records");
    }
    let rows = dataset.snapshot().query(&Query::new()).unwrap();
    assert!(!rows.explanation().to_string().contains("condition "), "{}", rows.explanation());
}

#[test]
fn a_condition_and_a_predicate_must_both_be_met() {
    let (_store, dataset) = places();
    let even = |record: &terrane::record::RecordView<'_>| {
        Ok(matches!(record.geometry(), Some(terrane::record::GeometryRef::Point(point)) if point.x % 2.0 == 0.0))
    };
    let query = Query::new().condition(Condition::on("size").equals(3)).predicate(even);
    assert_eq!(dataset.snapshot().count(&query).unwrap(), 3);
    assert_eq!(keys_of(&dataset.snapshot(), &query.nearest(25.0, 2.0, 2)), [Key::Int(24), Key::Int(38)]);
}

/// Integers of a column that is now float64, and nulls of later columns.
#[test]
fn records_of_every_schema_version_are_judged_by_the_newest() {
    for (flush, compact) in [(false, false), (true, false), (true, true)] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage.clone(), small_options()).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        let settle = || {
            if flush {
                dataset.flush().unwrap();
            }
            if compact {
                dataset.compact().unwrap();
            }
        };
        dataset.insert(&sized(1, Value::Int(5))).unwrap();
        dataset.insert(&sized(2, Value::Int(1 << 60))).unwrap();
        dataset.insert(&sized(3, Value::Null)).unwrap();
        settle();
        let before = dataset.snapshot();
        dataset.widen_column("size").unwrap();
        dataset.insert(&sized(4, Value::Float64(5.5))).unwrap();
        settle();
        dataset.add_column(Column::new("added", ColumnType::Utf8)).unwrap();
        let mut newest = sized(5, Value::Float64(5.0));
        newest.values.push(Value::Utf8("here".into()));
        dataset.insert(&newest).unwrap();
        settle();
        assert_eq!(keys(&before, "size > 4.5"), [1, 2]);
        let unknown = before.count(&Query::new().condition(Condition::on("added").is_null())).unwrap_err();
        assert!(matches!(&unknown, Error::Usage(message) if message.contains("id, x, y, name, size")), "{unknown}");
        drop((before, dataset));
        store.close().unwrap();
        let store = Store::open_on(storage, small_options()).unwrap();
        let snapshot = store.dataset(MAIN).unwrap().snapshot();
        for (text, wanted) in [
            ("size = 5", &[1, 5][..]),
            ("size = 5.0", &[1, 5]),
            ("size between 5 and 5.5", &[1, 4, 5]),
            ("size > 1152921504606846975 and size < 1152921504606846977", &[2]),
            ("size is null", &[3]),
            ("size != 5", &[2, 4]),
            ("added is null", &[1, 2, 3, 4]),
            ("added = 'here' or size = 5", &[1, 5]),
            ("not added = 'there'", &[5]),
            ("* match 'here'", &[5]),
            ("name match 'number' and added match 'HERE'", &[5]),
        ] {
            assert_eq!(keys(&snapshot, text), wanted, "{text}, flush {flush}, compact {compact}");
        }
    }
}

#[test]
fn a_condition_that_does_not_fit_is_refused_before_anything_is_read() {
    let (_store, dataset) = places();
    for text in ["sise = 3", "size = 'x'", "x = 3", "name match '-'"] {
        let query = Query::new().condition(Condition::parse(text).unwrap());
        for query in [query.clone(), query.clone().nearest(1.0, 1.0, 3), query.window(0.0, 0.0, 1.0, 1.0)] {
            let error = dataset.snapshot().query(&query).unwrap_err();
            assert!(matches!(error, Error::Usage(_)), "{text}: {error:?}");
            assert!(matches!(dataset.snapshot().count(&query), Err(Error::Usage(_))), "{text}");
        }
    }
}
