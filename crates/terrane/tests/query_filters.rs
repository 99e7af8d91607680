//! Several conditions together select the records that each of them selects, for every kind of
//! geometry.

use std::sync::Arc;

use crate::support::oracle::{filters, matching, nearest, query};
use crate::support::shapes::{Shape, place};
use crate::support::{Model, encoded, keys_of, schema, seeded, small_options};
use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use rand::rngs::SmallRng;
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Filter, Geometry, Key, Query, Record, Snapshot, Store, Value};
use terrane_space::geometry::from_wkt;
use terrane_testkit::MemoryStorage;

const RECORDS: i64 = 200;

fn sorted(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by_key(encoded);
    keys
}

/// Records in two disk components and in memory.
fn filled(rng: &mut SmallRng, shape: Shape, system: CoordinateSystem) -> (Store, Snapshot, Model) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let schema = schema(KeyType::Int64, shape.is_coordinates(), system);
    let dataset = store.create_dataset("d", schema).unwrap();
    let mut model = Model::new();
    for number in 0..RECORDS {
        let geometry = Some(shape.geometry(rng, system));
        let record = Record { key: Key::Int(number), geometry, values: vec![Value::Null, Value::Null] };
        dataset.insert(&record).unwrap();
        model.insert(encoded(&record.key), record);
        if number % 80 == 79 {
            dataset.flush().unwrap();
        }
    }
    let snapshot = dataset.snapshot();
    (store, snapshot, model)
}

fn compare(system: CoordinateSystem, default_seed: u64) {
    let (mut rng, seed) = seeded(default_seed);
    for shape in Shape::ALL {
        let (_store, snapshot, model) = filled(&mut rng, shape, system);
        let mut met = 0;
        for round in 0..120 {
            let filters = filters(&mut rng, system, 2 + round % 2);
            let what = format!("{filters:?}, {shape:?} {system:?}, round {round}, seed {seed}");
            let wanted = matching(&model, system, &filters);
            met += wanted.len();
            assert_eq!(sorted(keys_of(&snapshot, &query(&filters))), wanted, "{what}");
            assert_eq!(snapshot.count(&query(&filters)).unwrap(), wanted.len() as u64, "{what}");
            let (x, y) = place(&mut rng, system);
            let wanted = nearest(&model, system, &filters[..1], (x, y), 5);
            assert_eq!(keys_of(&snapshot, &query(&filters[..1]).nearest(x, y, 5)), wanted, "near {x} {y}, {what}");
        }
        assert!(met > 0, "no combination selects anything: {shape:?} {system:?}");
    }
}

#[test]
fn planar_conditions_combine() {
    compare(CoordinateSystem::Planar, 0xF117_0001);
}

#[test]
fn conditions_on_the_globe_combine() {
    compare(CoordinateSystem::LonLat, 0xF117_0002);
}

fn polygons(wkts: &[&str]) -> (Store, terrane::Dataset) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset("d", schema(KeyType::Int64, false, CoordinateSystem::Planar)).unwrap();
    for (number, wkt) in wkts.iter().enumerate() {
        dataset.insert(&record(number as i64, wkt)).unwrap();
    }
    (store, dataset)
}

fn record(key: i64, wkt: &str) -> Record {
    let geometry = Some(Geometry::Wkb(from_wkt(wkt).unwrap()));
    Record { key: Key::Int(key), geometry, values: vec![Value::Null, Value::Null] }
}

#[test]
fn a_polygon_meets_disjoint_conditions() {
    let (_store, dataset) = polygons(&["POLYGON((0 0,10 0,10 10,0 10,0 0))"]);
    let far = Filter::Intersects(from_wkt("POINT(9 9)").unwrap());
    let both = Query::new().window(1.0, 1.0, 2.0, 2.0).filter(far);
    assert_eq!(dataset.snapshot().count(&both).unwrap(), 1);
}

#[test]
fn infinite_windows_contain_all_geometries() {
    let (_store, dataset) = polygons(&[
        "POLYGON((1e149 1e149,1e150 1e149,1e150 1e150,1e149 1e149))",
        "LINESTRING(-1e150 -1e150,-1e150 0)",
        "POINT(1e200 1e200)",
        "POLYGON((0 0,1 0,1 1,0 0))",
    ]);
    let snapshot = dataset.snapshot();
    let count = |x0, y0, x1, y1| snapshot.count(&Query::new().window(x0, y0, x1, y1)).unwrap();
    assert_eq!(count(-1e300, -1e300, 1e300, 1e300), 4);
    assert_eq!(count(f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY), 4);
    assert_eq!(count(1e150, 1e150, 1e300, 1e300), 2);
    assert_eq!(count(1.1e150, -1e300, 1e300, 1e300), 1, "the point alone");
    assert_eq!(count(-1e300, -1e300, -1.1e150, 1e300), 0);
    assert_eq!(count(-1e300, 5.0, -1.0, 1e300), 0);
}

#[test]
fn shapes_too_large_for_exact_predicates_are_refused_everywhere() {
    let (_store, dataset) = polygons(&["POLYGON((0 0,1 0,1 1,0 0))"]);
    let huge = "POLYGON((0 0,1e200 0,1e200 1e200,0 0))";
    let refused = dataset.insert(&record(7, huge)).unwrap_err();
    assert!(refused.is_refusal() && refused.to_string().contains("1e150"), "{refused}");
    let snapshot = dataset.snapshot();
    let shape = from_wkt(huge).unwrap();
    for query in [
        Query::new().filter(Filter::Intersects(shape.clone())),
        Query::new().filter(Filter::Within(shape)),
        Query::new().circle(1e200, 0.0, 1e300),
        Query::new().nearest(0.0, -1e200, 1),
    ] {
        let error = snapshot.query(&query).unwrap_err();
        assert!(error.exit_code() == terrane::Error::USAGE && error.to_string().contains("1e150"), "{error}");
    }
    assert_eq!(snapshot.count(&Query::new().circle(0.0, 0.0, 1e300)).unwrap(), 1);
}

#[test]
fn unknown_columns_are_refused_even_in_counts() {
    let (_store, dataset) = polygons(&["POLYGON((0 0,1 0,1 1,0 0))"]);
    let snapshot = dataset.snapshot();
    for query in [Query::new(), Query::new().circle(0.0, 0.0, 1.0)] {
        assert_eq!(snapshot.count(&query.clone().columns(["id"])).unwrap(), 1);
        for columns in [vec!["nothing"], vec!["id", "id"]] {
            let query = query.clone().columns(columns.clone());
            let errors = [snapshot.query(&query).unwrap_err(), snapshot.count(&query).unwrap_err()];
            let [rows, count] = errors.map(|error| (error.exit_code(), error.to_string()));
            assert!(rows == count && rows.0 == terrane::Error::USAGE && rows.1.contains(columns[0]), "{rows:?}");
        }
    }
}

#[test]
fn shapes_too_large_for_exact_predicates_are_refused_by_imports() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let schema = schema(KeyType::Int64, false, CoordinateSystem::Planar);
    let shapes = ["LINESTRING(0 0,1 1)", "LINESTRING(0 0,0 -1e200)", "POINT(0 -1e200)"];
    let shapes = shapes.map(|wkt| from_wkt(wkt).unwrap());
    let mut importer = store.importer("d", schema.clone()).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3])),
        Arc::new(BinaryArray::from_iter_values(shapes)),
        Arc::new(StringArray::from(vec![None::<&str>; 3])),
        Arc::new(Int64Array::from(vec![None::<i64>; 3])),
    ];
    let refused = importer.push(&RecordBatch::try_new(Arc::new(schema.to_arrow()), columns).unwrap()).unwrap();
    let [one] = &refused[..] else { panic!("{refused:?}") };
    assert!(one.row == 1 && one.error.to_string().contains("coordinate y is -1e200"), "{one:?}");
    importer.finish(&mut |row| Err(row.error)).unwrap();
    assert_eq!(store.dataset("d").unwrap().snapshot().count(&Query::new()).unwrap(), 2);
}
