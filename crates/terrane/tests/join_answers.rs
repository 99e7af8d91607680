//! Joins: the moment of their snapshots, refusals, columns and batches of answers, and
//! explanations.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use terrane::schema::{KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Geometry, IndexKind, Join, JoinOn, JoinPairs, Key, Options,
    Query, Record, Value,
};
use terrane_space::geometry::from_wkt;

use crate::support::joins::{pairs_of, store_with};
use crate::support::kinds::{KINDS, options as kind_options};
use crate::support::{schema, seeded, small_options};

#[test]
fn both_sides_are_of_one_moment_beside_writers() {
    const SNAPSHOTS: usize = 500;
    let store = store_with(Options { background: true, ..small_options() });
    let (system, done) = (CoordinateSystem::Planar, AtomicBool::new(false));
    let options = DatasetOptions { partitions: 2 };
    let dataset = |name| store.create_dataset_with(name, schema(KeyType::Int64, true, system), &options).unwrap();
    let (first, second) = (dataset("first"), dataset("second"));
    let record = |key: i64| Record::at(key, (key % 40) as f64, (key / 40) as f64, vec![Value::Null, Value::Int(key)]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..1200 {
                // The second dataset never has a record that the first lacks.
                first.insert(&record(key)).unwrap();
                second.insert(&record(key)).unwrap();
                if key % 100 == 99 {
                    first.flush().unwrap();
                    second.flush().unwrap();
                }
            }
            done.store(true, Ordering::Release);
        });
        let join = Join::new(JoinOn::WithinDistance(0.0));
        let mut kept = Vec::new();
        let mut last = 0;
        loop {
            let is_last = done.load(Ordering::Acquire);
            // So often that a commit falls between the reading of two sequence numbers.
            for _ in 0..SNAPSHOTS {
                let (outer, inner) = first.snapshot_with(&second).unwrap();
                assert_eq!(outer.sequence(), inner.sequence());
            }
            // In both orders.
            let (outer, inner) = if last % 2 == 0 {
                first.snapshot_with(&second).unwrap()
            } else {
                let (second, first) = second.snapshot_with(&first).unwrap();
                (first, second)
            };
            assert_eq!(outer.sequence(), inner.sequence());
            let pairs = outer.count_join(&inner, &join).unwrap();
            let (outer_count, inner_count) = (outer.count(&Query::new()).unwrap(), inner.count(&Query::new()).unwrap());
            assert_eq!(pairs, inner_count, "each record of the second has its partner in the first");
            assert!(outer_count - inner_count <= 1 && pairs >= last);
            last = pairs;
            if kept.len() < 20 {
                kept.push((outer, inner, pairs));
            }
            if is_last {
                break;
            }
        }
        assert_eq!(last, 1200);
        for (outer, inner, pairs) in kept {
            assert_eq!(outer.count_join(&inner, &join).unwrap(), pairs);
            assert_eq!(pairs_of(&outer, &inner, &join).len() as u64, pairs);
        }
    });
}

fn refusal(result: terrane::Result<impl Sized>) -> String {
    let Err(error) = result else { panic!("it is not refused") };
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn invalid_joins_are_refused_with_the_side_at_fault() {
    let store = store_with(small_options());
    let create = |name, points, system| -> Dataset {
        store.create_dataset(name, schema(KeyType::Int64, points, system)).unwrap()
    };
    let planar = create("planar", true, CoordinateSystem::Planar);
    let shapes = create("shapes", false, CoordinateSystem::Planar);
    let lonlat = create("lonlat", true, CoordinateSystem::LonLat);
    planar.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    let (outer, inner) = shapes.snapshot_with(&planar).unwrap();
    let near = || Join::new(JoinOn::WithinDistance(1.0));
    for (join, reason) in [
        (Join::new(JoinOn::WithinDistance(-1.0)), "-1 is not a distance"),
        (Join::new(JoinOn::WithinDistance(f64::NAN)), "NaN is not a distance"),
        (Join::new(JoinOn::WithinDistance(f64::INFINITY)), "inf is not a distance"),
        (near().pairs(JoinPairs::Distinct), "\"shapes\" and \"planar\" are two datasets"),
        (near().inner(Query::new().nearest(0.0, 0.0, 1)), "the inner side of the join, dataset \"planar\": "),
        (near().inner(Query::new().limit(1)), "cannot have a limit; give the join one"),
        (near().inner(Query::new().using_index("sizes")), "it is not spatial; a join needs"),
        (near().inner(Query::new().using_index("places")), "the inner side of the join, dataset \"planar\": dataset"),
        (near().outer(Query::new().using_index("places")), "the outer side of the join, dataset \"shapes\": dataset"),
        (near().outer(Query::new().columns(["colour"])), "the outer side of the join, dataset \"shapes\": "),
        (near().inner(Query::new().columns(["colour"])), "the inner side of the join, dataset \"planar\": "),
        (near().outer(Query::new().window(1.0, 0.0, 0.0, 0.0)), "the outer side of the join"),
        (near().inner(Query::new().circle(1.0, 0.0, -1.0)), "the inner side of the join"),
        (near().prefixes("", ""), "two columns of the join would be named \"id\""),
        (near().prefixes("x", "x"), "choose other prefixes than \"x\""),
    ] {
        let refused = refusal(outer.join(&inner, &join));
        assert!(refused.contains(reason), "{refused} instead of {reason}");
    }
    let (outer, inner) = planar.snapshot_with(&lonlat).unwrap();
    let refused = refusal(outer.join(&inner, &near()));
    assert!(refused.contains("\"planar\" is planar and dataset \"lonlat\" is lonlat"), "{refused}");
    let before = planar.snapshot();
    planar.insert(&Record::at(1, 0.0, 0.0, vec![Value::Null, Value::Null])).unwrap();
    assert!(refusal(before.join(&planar.snapshot(), &near())).contains("of one moment of one store"));
    let other = store_with(small_options());
    let elsewhere = other.create_dataset("planar", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
    assert!(refusal(planar.snapshot_with(&elsewhere)).contains("different stores"));
    assert!(refusal(planar.snapshot().join(&elsewhere.snapshot(), &near())).contains("one store"));
}

/// Names of the columns of a batch.
fn names(batch: &RecordBatch) -> Vec<String> {
    batch.schema().fields().iter().map(|field| field.name().clone()).collect()
}

#[test]
fn columns_of_both_sides_have_distinct_names() {
    let store = store_with(small_options());
    let planar = CoordinateSystem::Planar;
    let points = store.create_dataset("points", schema(KeyType::Int64, true, planar)).unwrap();
    let mut other: Schema = schema(KeyType::Utf8, false, planar);
    other.columns[1].name = "distance".into();
    let shapes = store.create_dataset("shapes", other).unwrap();
    points.insert(&Record::at(7, 1.0, 2.0, vec![Value::Utf8("p".into()), Value::Int(70)])).unwrap();
    let geometry = Some(Geometry::Wkb(from_wkt("LINESTRING(0 3,2 3)").unwrap()));
    let values = vec![Value::Utf8("s".into()), Value::Int(80)];
    shapes.insert(&Record { key: Key::Utf8("line".into()), geometry, values }).unwrap();
    let (outer, inner) = points.snapshot_with(&shapes).unwrap();
    let only = |join: &Join| outer.join(&inner, join).unwrap().next().unwrap().unwrap();
    let join = Join::new(JoinOn::WithinDistance(5.0));
    let batch = only(&join);
    let wanted =
        ["outer_id", "x", "y", "outer_name", "size", "inner_id", "geometry", "inner_name", "distance", "distance_m"];
    assert_eq!(names(&batch), wanted);
    assert_eq!(batch.column(9).as_primitive::<Float64Type>().value(0), 1.0);
    assert_eq!((batch.column(3).as_string::<i32>().value(0), batch.column(7).as_string::<i32>().value(0)), ("p", "s"));
    let field = batch.schema().field(6).clone();
    assert_eq!(field.metadata().get("ARROW:extension:name").map(String::as_str), Some("geoarrow.wkb"));
    let chosen =
        join.prefixes("", "s.").outer(Query::new().columns(["name", "y"])).inner(Query::new().columns(["name"]));
    assert_eq!(names(&only(&chosen)), ["name", "y", "s.name", "distance"]);
    let plain = Join::new(JoinOn::Intersects).outer(Query::new().columns(["size"]));
    assert!(outer.join(&inner, &plain).unwrap().next().is_none());
    assert_eq!(outer.join(&inner, &plain).unwrap().schema().fields().len(), 1 + 4);
}

#[test]
fn indexes_alone_answer_if_keys_and_points_suffice() {
    let store = store_with(small_options());
    let points = store.create_dataset("points", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
    for key in 0..400_i64 {
        let values = vec![Value::Utf8("n".into()), Value::Int(key)];
        // Not on an axis, because only records have the sign of zero.
        points.insert(&Record::at(key, (key % 20 + 1) as f64, (key / 20 + 1) as f64, values)).unwrap();
    }
    points.flush().unwrap();
    let (outer, inner) = points.snapshot_with(&points).unwrap();
    let explained = |join: &Join| {
        let mut rows = outer.join(&inner, join).unwrap();
        rows.by_ref().for_each(|batch| drop(batch.unwrap()));
        rows.explanation()
    };
    let join = Join::new(JoinOn::WithinDistance(1.0)).pairs(JoinPairs::Ordered);
    let window = Query::new().window(1.0, 1.0, 10.0, 10.0);
    let columns = ["id", "x", "y"];
    let only = join.clone().outer(window.clone().columns(columns)).inner(Query::new().columns(columns));
    let explanation = explained(&only);
    assert_eq!((explanation.probes, explanation.pairs), (100, 200), "{explanation}");
    assert_eq!((explanation.outer.plan, explanation.inner.plan), ("spatial index only", "spatial index only"));
    assert_eq!((explanation.outer.lookups, explanation.inner.lookups), (0, 0), "{explanation}");
    assert!(explanation.inner.considered[0].is_used && explanation.inner.entries >= 200);
    // Attributes are in the records.
    let explanation = explained(&join.clone().outer(window.clone()));
    assert_eq!((explanation.outer.plan, explanation.inner.plan), ("spatial index", "spatial index"));
    assert_eq!((explanation.outer.lookups, explanation.pairs), (100, 200), "{explanation}");
    assert!((119..=200).contains(&explanation.inner.lookups), "each record once in a chunk: {explanation}");
    let text = explanation.to_string();
    for part in ["join        within distance 1, ordered pairs wanted", "probes      100", "outer plan", "inner plan"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // Without an index, all records are read.
    let explanation = explained(&only.clone().inner(Query::new().columns(columns).using_index("primary")));
    assert_eq!((explanation.inner.plan, explanation.pairs), ("primary scan", 200));
    assert!(explanation.inner.entries >= 100 * 400, "{explanation}");
}

/// Every index has +0.0 for -0.0. They are the same place.
#[test]
fn coordinates_are_as_they_are_stored_through_every_index() {
    let zeros = [0.0, -0.0].into_iter().flat_map(|x| [0.0, -0.0, 1.0].map(|y| (x, y)));
    let places: Vec<(f64, f64)> = zeros.chain([(1.0, 0.0), (1.0, -0.0), (1.0, 1.0)]).collect();
    let bits = |(x, y): (f64, f64)| (x.to_bits(), y.to_bits());
    for (system, partitions) in [(CoordinateSystem::Planar, 1), (CoordinateSystem::LonLat, 3)] {
        let store = store_with(small_options());
        let (points_schema, options) = (schema(KeyType::Int64, true, system), DatasetOptions { partitions });
        let dataset = store.create_dataset_with("points", points_schema, &options).unwrap();
        for kind in KINDS {
            let options = kind_options(&mut seeded(7).0, kind, true, system);
            dataset.create_index_with(kind.name(), kind, &[], &options).unwrap();
        }
        for (key, (x, y)) in (0_i64..).zip(&places) {
            dataset.insert(&Record::at(key, *x, *y, vec![Value::Null, Value::Null])).unwrap();
        }
        for is_flushed in [false, true] {
            if is_flushed {
                dataset.flush().unwrap();
            }
            let (outer, inner) = dataset.snapshot_with(&dataset).unwrap();
            for on in [JoinOn::WithinDistance(1e6), JoinOn::Intersects, JoinOn::Within, JoinOn::Contains] {
                for index in KINDS.iter().map(|kind| kind.name()).chain(["geometry", "primary"]) {
                    let context = format!("{system:?} {on:?} through {index}, flushed: {is_flushed}");
                    let side = Query::new().columns(["id", "x", "y"]);
                    // An index alone has the rows of the outer side, of a window or all.
                    let window = side.clone().window(-1.0, -1.0, 2.0, 2.0).using_index(index);
                    for outer_side in [side.clone(), window] {
                        let join = Join::new(on).outer(outer_side).inner(side.clone().using_index(index));
                        let mut pairs = 0;
                        for batch in outer.join(&inner, &join).unwrap() {
                            for ((key, place), (inner_key, inner_place)) in keys_and_places(&batch.unwrap()) {
                                assert_eq!(bits(place), bits(places[key]), "outer {key}, {context}");
                                assert_eq!(bits(inner_place), bits(places[inner_key]), "inner {inner_key}, {context}");
                                pairs += 1;
                            }
                        }
                        // Four points are at (0, 0), and two at each place on an axis.
                        let wanted = if let JoinOn::WithinDistance(_) = on { 9 * 9 } else { 4 * 4 + 2 * 2 * 2 + 1 };
                        assert_eq!(pairs, wanted, "{context}");
                    }
                }
            }
        }
    }
}

/// A key, and where its record is.
type Placed = (usize, (f64, f64));

/// The outer and the inner record of each pair.
fn keys_and_places(pairs: &RecordBatch) -> Vec<(Placed, Placed)> {
    let column = |side: &str, name: &str| pairs.column_by_name(&format!("{side}_{name}")).unwrap().clone();
    let placed = |side: &str, row: usize| {
        let coordinate = |name| column(side, name).as_primitive::<Float64Type>().value(row);
        (column(side, "id").as_primitive::<Int64Type>().value(row) as usize, (coordinate("x"), coordinate("y")))
    };
    (0..pairs.num_rows()).map(|row| (placed("outer", row), placed("inner", row))).collect()
}

#[test]
fn batches_are_bounded_and_a_join_ends_when_it_is_dropped() {
    let store = store_with(small_options());
    let points = store.create_dataset("points", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
    for key in 0..1000_i64 {
        let values = vec![Value::Utf8("x".repeat(if key == 0 { 300_000 } else { 10 })), Value::Int(key)];
        points.insert(&Record::at(key, 0.0, 0.0, values)).unwrap();
    }
    let (outer, inner) = points.snapshot_with(&points).unwrap();
    let join = Join::new(JoinOn::WithinDistance(0.0));
    assert_eq!(outer.count_join(&inner, &join).unwrap(), 1_000_000);
    let bytes_max = Options { memory_limit: terrane::MEMORY_LIMIT_MIN, ..Options::default() }.working_memory() / 4;
    let mut rows = outer.join(&inner, &join).unwrap();
    let mut pairs = 0;
    for batch in rows.by_ref().take(40) {
        let batch = batch.unwrap();
        pairs += batch.num_rows();
        let texts = [3, 8].map(|column| {
            let texts = batch.column(column).as_string::<i32>();
            (0..texts.len()).map(|row| texts.value(row).len()).sum::<usize>()
        });
        assert!(texts[0] + texts[1] <= bytes_max + 600_000, "{texts:?} bytes of texts in {} rows", batch.num_rows());
    }
    assert!(pairs < 1_000_000 && rows.explanation().pairs >= pairs as u64);
    drop(rows);
    drop((outer, inner));
    // On disk, the partners of one record are found leaf by leaf. Those of many do not fit
    // together.
    points.flush().unwrap();
    let (outer, inner) = points.snapshot_with(&points).unwrap();
    let known = Query::new().condition(Condition::on("size").between(100, 799));
    assert_eq!(outer.count_join(&inner, &join.clone().inner(known)).unwrap(), 700 * 1000);
    drop((outer, inner, points));
    store.close().unwrap();
}
