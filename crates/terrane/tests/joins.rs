//! The pairs of joins, compared with nested loops over the records: every kind of index, points and
//! other geometries, in the plane and on the sphere.

use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::KeyType;
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Filter, Geometry, IndexKind, Join, JoinOn, JoinPairs, Key,
    Query, Record, Store, Value,
};
use terrane_space::geometry::from_wkt;

use crate::support::joins::{Pairs, assert_same, nested_loops, pairs_of, store_with};
use crate::support::kinds::{EXTENDED, KINDS, options};
use crate::support::oracle::matching;
use crate::support::shapes::Shape;
use crate::support::{Model, encoded, schema, seeded, small_options};

const SYSTEMS: [CoordinateSystem; 2] = [CoordinateSystem::Planar, CoordinateSystem::LonLat];

struct Sides {
    _store: Store,
    outer: Dataset,
    inner: Dataset,
    outer_model: Model,
    inner_model: Model,
}

/// Inserts, replaces and deletes records of a dataset, in several disk components and in memory.
fn fill(rng: &mut SmallRng, dataset: &Dataset, shape: Shape, system: CoordinateSystem, count: i64) -> Model {
    let mut model = Model::new();
    for step in 0..count * 2 {
        let key = Key::Int(rng.random_range(0..count));
        if rng.random_ratio(1, 5) {
            dataset.delete(&key).unwrap();
            model.remove(&encoded(&key));
        } else {
            let geometry = (!rng.random_ratio(1, 25)).then(|| shape.geometry(rng, system));
            let values = vec![Value::Utf8(format!("name {step}")), Value::Int(rng.random_range(-9..9))];
            let record = Record { key: key.clone(), geometry, values };
            dataset.upsert(&record).unwrap();
            model.insert(encoded(&key), record);
        }
        if rng.random_ratio(3, count as u32) {
            dataset.flush().unwrap();
        }
    }
    model
}

fn sides(rng: &mut SmallRng, shapes: [Shape; 2], system: CoordinateSystem, count: i64) -> Sides {
    let store = store_with(small_options());
    // With one partition, and with several.
    let [of_outer, of_inner] = if system == CoordinateSystem::Planar { [1, 3] } else { [2, 1] };
    let mut side = |name: &str, shape: Shape, partitions| {
        let (schema, options) = (schema(KeyType::Int64, shape.is_coordinates(), system), DatasetOptions { partitions });
        let dataset = store.create_dataset_with(name, schema, &options).unwrap();
        let model = fill(rng, &dataset, shape, system, count);
        (dataset, model)
    };
    let (outer, outer_model) = side("outer", shapes[0], of_outer);
    let (inner, inner_model) = side("inner", shapes[1], of_inner);
    Sides { _store: store, outer, inner, outer_model, inner_model }
}

fn predicates(system: CoordinateSystem) -> Vec<JoinOn> {
    let unit = if system == CoordinateSystem::LonLat { 1e5 } else { 1.0 };
    let distances = [0.0, 0.6, 2.3].map(|distance| JoinOn::WithinDistance(distance * unit));
    [&distances[..], &[JoinOn::Intersects, JoinOn::Within, JoinOn::Contains]].concat()
}

/// Joins through every kind of index against nested loops.
fn check_joins(seed: u64, shapes: [Shape; 2], system: CoordinateSystem, count: i64) {
    let (mut rng, seed) = seeded(seed);
    let sides = sides(&mut rng, shapes, system, count);
    let kinds: &[IndexKind] = if shapes[1].is_coordinates() { &KINDS } else { &EXTENDED };
    for kind in kinds {
        let options = options(&mut rng, *kind, shapes[1].is_coordinates(), system);
        sides.inner.create_index_with(kind.name(), *kind, &[], &options).unwrap();
    }
    // Some records are in memory again.
    let key = Key::Int(1);
    let record = Record { key: key.clone(), ..sides.inner_model.values().next().unwrap().clone() };
    sides.inner.upsert(&record).unwrap();
    let mut inner_model = sides.inner_model.clone();
    inner_model.insert(encoded(&key), record);
    let (outer, inner) = sides.outer.snapshot_with(&sides.inner).unwrap();
    for on in predicates(system) {
        let wanted = nested_loops(&sides.outer_model, &inner_model, system, on);
        let positive: Pairs =
            wanted.clone().into_iter().filter(|((_, inner), _)| size(&inner_model, inner) > 0).collect();
        for index in kinds.iter().map(|kind| kind.name()).chain(["geometry", "primary"]) {
            let context = format!("{shapes:?} {system:?} {on:?} through {index}, seed {seed}");
            let join = Join::new(on).inner(Query::new().using_index(index));
            assert_same(&pairs_of(&outer, &inner, &join), &wanted, &context);
            assert_eq!(outer.count_join(&inner, &join).unwrap(), wanted.len() as u64, "{context}");
            let keys = Query::new().columns(["id"]);
            let only = Join::new(on).outer(keys.clone()).inner(keys.using_index(index));
            assert_same(&pairs_of(&outer, &inner, &only), &wanted, &context);
            let condition = Query::new().condition(Condition::on("size").greater_than(0)).using_index(index);
            let conditional = Join::new(on).inner(condition);
            assert_same(&pairs_of(&outer, &inner, &conditional), &positive, &context);
            assert_eq!(outer.count_join(&inner, &conditional).unwrap(), positive.len() as u64, "{context}");
        }
    }
}

fn size(model: &Model, key: &[u8]) -> i64 {
    match model[key].values[1] {
        Value::Int(size) => size,
        _ => 0,
    }
}

#[test]
fn points_with_points_in_a_plane() {
    check_joins(0x4a01, [Shape::Coordinates; 2], CoordinateSystem::Planar, 150);
}

#[test]
fn points_with_points_on_the_sphere() {
    check_joins(0x4a02, [Shape::Coordinates; 2], CoordinateSystem::LonLat, 150);
}

#[test]
fn points_with_other_geometries() {
    for system in SYSTEMS {
        check_joins(0x4a03, [Shape::Coordinates, Shape::Mixed], system, 60);
    }
}

#[test]
fn other_geometries_with_points() {
    for system in SYSTEMS {
        check_joins(0x4a04, [Shape::Mixed, Shape::Coordinates], system, 60);
    }
}

#[test]
fn other_geometries_with_other_geometries() {
    for system in SYSTEMS {
        check_joins(0x4a05, [Shape::Mixed, Shape::Mixed], system, 70);
        check_joins(0x4a06, [Shape::MultiPolygon, Shape::Polygon], system, 50);
    }
}

#[test]
fn both_sides_have_conditions_and_the_outer_one_a_limit() {
    let (mut rng, seed) = seeded(0x4a07);
    for shape in [Shape::Coordinates, Shape::Mixed] {
        let sides = sides(&mut rng, [shape; 2], CoordinateSystem::Planar, 120);
        let (outer, inner) = sides.outer.snapshot_with(&sides.inner).unwrap();
        let on = JoinOn::WithinDistance(1.5);
        let window = |x0, y0, x1, y1| Filter::Window { x0, y0, x1, y1 };
        let (left, right) = (window(-8.0, -9.0, 2.0, 9.0), window(-2.0, -9.0, 9.0, 4.0));
        let lies = |model: &Model, filter: &Filter| -> Vec<Vec<u8>> {
            matching(model, CoordinateSystem::Planar, std::slice::from_ref(filter)).iter().map(encoded).collect()
        };
        let (outer_keys, inner_keys) = (lies(&sides.outer_model, &left), lies(&sides.inner_model, &right));
        let all = nested_loops(&sides.outer_model, &sides.inner_model, CoordinateSystem::Planar, on);
        let mut wanted = all.clone();
        wanted.retain(|(outer, inner), _| {
            outer_keys.contains(outer) && inner_keys.contains(inner) && size(&sides.inner_model, inner) < 5
        });
        assert!(wanted.len() > 10, "{}", wanted.len());
        let condition = || Condition::on("size").less_than(5);
        let join = Join::new(on)
            .outer(Query::new().filter(left.clone()))
            .inner(Query::new().filter(right.clone()).condition(condition()));
        assert_same(&pairs_of(&outer, &inner, &join), &wanted, &format!("{shape:?}, seed {seed}"));
        // A circle, for which windows are less exact.
        let circle = Filter::Circle { x: 1.0, y: 1.0, radius: 6.0 };
        let in_circle = lies(&sides.inner_model, &circle);
        let mut round = wanted.clone();
        round.retain(|(_, inner), _| in_circle.contains(inner));
        assert!(round.len() < wanted.len());
        let both = Query::new().filter(right.clone()).filter(circle.clone()).condition(condition());
        let rounded = join.clone().inner(both.clone());
        assert_same(&pairs_of(&outer, &inner, &rounded), &round, &format!("{shape:?} in a circle, seed {seed}"));
        // With keys and points only, the index decides alone.
        let mut near = all;
        near.retain(|(_, inner), _| in_circle.contains(inner));
        let alone =
            Join::new(on).outer(Query::new().columns(["id"])).inner(Query::new().filter(circle).columns(["id"]));
        assert_same(&pairs_of(&outer, &inner, &alone), &near, &format!("{shape:?} in a circle alone, seed {seed}"));
        assert_eq!(outer.count_join(&inner, &alone).unwrap(), near.len() as u64);
        // Half of the pairs, all of them correct.
        let limit = wanted.len() as u64 / 2;
        let some = pairs_of(&outer, &inner, &join.clone().limit(limit));
        assert_eq!(some.len() as u64, limit);
        assert!(some.keys().all(|pair| wanted.contains_key(pair)));
        assert_eq!(outer.count_join(&inner, &join.clone().limit(limit)).unwrap(), limit);
        // The pairs of some outer rows are all pairs of these rows.
        let few = join.outer(Query::new().filter(left.clone()).limit(7));
        let found = pairs_of(&outer, &inner, &few);
        let rows: std::collections::BTreeSet<&Vec<u8>> = found.keys().map(|(outer, _)| outer).collect();
        assert!(rows.len() <= 7);
        for row in rows {
            let of_row = |pairs: &Pairs| pairs.keys().filter(|(outer, _)| outer == row).count();
            assert_eq!(of_row(&found), of_row(&wanted));
        }
        // The nearest outer rows have a distance column too.
        let nearest = Join::new(on).outer(Query::new().nearest(0.0, 0.0, 3).columns(["id"]));
        let rows = outer.join(&inner, &nearest).unwrap();
        let names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names[..3], ["outer_id", "distance", "inner_id"]);
        assert_eq!(names.last().map(String::as_str), Some("distance_m"));
        let pairs: usize = rows.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(pairs as u64, outer.count_join(&inner, &nearest).unwrap());
    }
}

#[test]
fn a_self_join_excludes_identical_and_mirrored_pairs() {
    let (mut rng, seed) = seeded(0x4a08);
    for (shape, system) in [(Shape::Coordinates, SYSTEMS[1]), (Shape::Mixed, SYSTEMS[0])] {
        let sides = sides(&mut rng, [shape; 2], system, 120);
        let (outer, inner) = sides.inner.snapshot_with(&sides.inner).unwrap();
        let on = JoinOn::WithinDistance(if system == CoordinateSystem::LonLat { 2e5 } else { 1.5 });
        let all = nested_loops(&sides.inner_model, &sides.inner_model, system, on);
        for (pairs, wants) in [
            (JoinPairs::All, (|_, _| true) as fn(&Vec<u8>, &Vec<u8>) -> bool),
            (JoinPairs::Distinct, |outer, inner| outer != inner),
            (JoinPairs::Ordered, |outer, inner| outer < inner),
        ] {
            let mut wanted = all.clone();
            wanted.retain(|(outer, inner), _| wants(outer, inner));
            let join = Join::new(on).pairs(pairs);
            let context = format!("{shape:?} {pairs:?}, seed {seed}");
            assert_same(&pairs_of(&outer, &inner, &join), &wanted, &context);
            assert_eq!(outer.count_join(&inner, &join).unwrap(), wanted.len() as u64, "{context}");
        }
    }
}

#[test]
fn overlapping_areas_in_one_stored_geometry_both_count() {
    let store = store_with(small_options());
    let dataset = store.create_dataset("areas", schema(KeyType::Int64, false, CoordinateSystem::Planar)).unwrap();
    let put = |key: i64, wkt: &str| {
        let geometry = Some(Geometry::Wkb(from_wkt(wkt).unwrap()));
        dataset.upsert(&Record { key: Key::Int(key), geometry, values: vec![Value::Null, Value::Null] }).unwrap();
    };
    put(1, "MULTIPOLYGON(((0 0,4 0,4 4,0 4,0 0)),((2 0,6 0,6 4,2 4,2 0)))");
    put(2, "POINT(3 2)");
    put(3, "POLYGON((2.5 1,3.5 1,3.5 3,2.5 3,2.5 1))");
    let (outer, inner) = dataset.snapshot_with(&dataset).unwrap();
    let first = || Query::new().condition(Condition::on("id").equals(1));
    for (join, wanted) in [
        (Join::new(JoinOn::Intersects).outer(first()), 3),
        (Join::new(JoinOn::Within).outer(first()), 3),
        (Join::new(JoinOn::WithinDistance(0.0)).outer(first()), 3),
        (Join::new(JoinOn::Contains).inner(first()), 3),
    ] {
        assert_eq!(outer.count_join(&inner, &join).unwrap(), wanted, "{join:?}");
    }
}

/// A dataset of geometries. Their numbers from 1 are the keys.
fn geometries(store: &Store, name: &str, system: CoordinateSystem, wkts: &[&str]) -> Dataset {
    let dataset = store.create_dataset(name, schema(KeyType::Int64, false, system)).unwrap();
    for (key, wkt) in (1..).zip(wkts) {
        let geometry = Some(Geometry::Wkb(from_wkt(wkt).unwrap()));
        dataset.insert(&Record { key: Key::Int(key), geometry, values: vec![Value::Null, Value::Null] }).unwrap();
    }
    dataset
}

/// A dataset of points. Their numbers from 1 are the keys.
fn coordinates(store: &Store, name: &str, system: CoordinateSystem, places: &[(f64, f64)]) -> Dataset {
    let dataset = store.create_dataset(name, schema(KeyType::Int64, true, system)).unwrap();
    for (key, (x, y)) in (1_i64..).zip(places) {
        dataset.insert(&Record::at(key, *x, *y, vec![Value::Null, Value::Null])).unwrap();
    }
    dataset
}

/// The keys of the pairs of two datasets, from memory and from disk.
fn keys_of_pairs(outer: &Dataset, inner: &Dataset, join: &Join) -> Vec<(i64, i64)> {
    let pairs = || {
        let (outer, inner) = outer.snapshot_with(inner).unwrap();
        let pairs = pairs_of(&outer, &inner, join);
        assert_eq!(outer.count_join(&inner, join).unwrap(), pairs.len() as u64);
        let key = |key: &[u8]| (1..100).find(|number| encoded(&Key::Int(*number)) == key).expect("keys are small");
        pairs.keys().map(|(outer, inner)| (key(outer), key(inner))).collect::<Vec<_>>()
    };
    let in_memory = pairs();
    outer.flush().unwrap();
    inner.flush().unwrap();
    assert_eq!(pairs(), in_memory);
    in_memory
}

/// Between two places at one latitude, the arc passes a thousand miles closer to the pole.
#[test]
fn neighbours_of_an_arc_are_found_outside_the_box_of_its_ends() {
    let store = store_with(small_options());
    let system = CoordinateSystem::LonLat;
    let arcs = geometries(&store, "arcs", system, &["LINESTRING(-60 50,60 50)", "LINESTRING(-60 -50,60 -50)"]);
    let near = geometries(
        &store,
        "near",
        system,
        &[
            "LINESTRING(-1 67.5,1 67.5)",
            "LINESTRING(-1 49,1 49)",
            "POINT(0 -67.5)",
            "LINESTRING(-60 50,-61 50)",
            "LINESTRING(0 60,0 70)",
        ],
    );
    let points = coordinates(&store, "points", system, &[(0.0, 67.5), (0.0, 50.0), (0.0, -67.5)]);
    let join = Join::new(JoinOn::WithinDistance(100_000.0));
    // The last one crosses the arc, far from its ends and from the straight line between them.
    assert_eq!(keys_of_pairs(&arcs, &near, &join), [(1, 1), (1, 4), (1, 5), (2, 3)]);
    assert_eq!(keys_of_pairs(&near, &arcs, &join), [(1, 1), (3, 2), (4, 1), (5, 1)]);
    // A point on the line that is straight in degrees is on the geometry too.
    assert_eq!(keys_of_pairs(&arcs, &points, &join), [(1, 1), (1, 2), (2, 3)]);
    assert_eq!(keys_of_pairs(&points, &arcs, &join), [(1, 1), (2, 1), (3, 2)]);
}

#[test]
fn the_two_longitudes_of_the_antimeridian_are_one_place() {
    let store = store_with(small_options());
    let system = CoordinateSystem::LonLat;
    let west = coordinates(&store, "west", system, &[(-180.0, 10.0), (-180.0, 20.0), (-179.0, 30.0)]);
    let east = coordinates(&store, "east", system, &[(180.0, 10.0), (179.0, 30.0), (180.0, -20.0)]);
    let shapes = geometries(&store, "shapes", system, &["POINT(180 10)", "LINESTRING(179 20,180 20)"]);
    for on in [JoinOn::Intersects, JoinOn::Within, JoinOn::Contains, JoinOn::WithinDistance(0.0)] {
        assert_eq!(keys_of_pairs(&west, &east, &Join::new(on)), [(1, 1)], "{on}");
    }
    for on in [JoinOn::Intersects, JoinOn::WithinDistance(0.0)] {
        assert_eq!(keys_of_pairs(&west, &shapes, &Join::new(on)), [(1, 1), (2, 2)], "{on}");
        assert_eq!(keys_of_pairs(&shapes, &west, &Join::new(on)), [(1, 1), (2, 2)], "{on}");
    }
}

/// The difference of the coordinates is rounded to the distance. One coordinate plus the distance
/// is rounded too, to less than the other coordinate.
#[test]
fn pairs_at_the_distance_are_found_despite_rounding() {
    let (x, distance) = (-1e-16, 1.0);
    assert!(1.0 - x <= distance && x + distance < 1.0);
    let (store, system) = (store_with(small_options()), CoordinateSystem::Planar);
    let places = [(x, 0.0), (1.0, 0.0), (0.0, 1.0)];
    let points = coordinates(&store, "points", system, &places[..1]);
    let others = coordinates(&store, "others", system, &places[1..]);
    let line = format!("LINESTRING({x} -1,{x} 1)");
    let lines = geometries(&store, "lines", system, &[line.as_str(), "LINESTRING(1 -1,1 1)"]);
    let join = Join::new(JoinOn::WithinDistance(distance));
    assert_eq!(keys_of_pairs(&points, &others, &join), [(1, 1), (1, 2)]);
    assert_eq!(keys_of_pairs(&others, &points, &join), [(1, 1), (2, 1)]);
    assert_eq!(keys_of_pairs(&points, &lines, &join), [(1, 1), (1, 2)]);
    assert_eq!(keys_of_pairs(&lines, &lines, &join), [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

#[test]
fn windows_of_both_sides_hold_if_indexes_alone_answer() {
    let (store, system) = (store_with(small_options()), CoordinateSystem::Planar);
    let places: Vec<(f64, f64)> = (0..60).map(|number| (f64::from(number % 3), f64::from(number / 3))).collect();
    let points = coordinates(&store, "points", system, &places);
    let (outer, inner) = points.snapshot_with(&points).unwrap();
    let keys = || Query::new().columns(["id"]);
    for (join, wanted) in [
        (Join::new(JoinOn::WithinDistance(0.0)).outer(keys().limit(7)).inner(keys()), 7),
        (Join::new(JoinOn::Intersects).outer(keys().limit(100)).inner(keys()), 60),
        (Join::new(JoinOn::WithinDistance(0.0)).outer(keys()).inner(keys()).limit(11), 11),
        (Join::new(JoinOn::WithinDistance(1000.0)).outer(keys()).inner(keys()).limit(11), 11),
        (Join::new(JoinOn::WithinDistance(1000.0)).outer(keys().limit(3)).inner(keys()).limit(171), 171),
        (Join::new(JoinOn::WithinDistance(1000.0)).outer(keys().limit(3)).inner(keys()), 180),
        (Join::new(JoinOn::WithinDistance(1000.0)).outer(keys().limit(0)).inner(keys()), 0),
        (Join::new(JoinOn::WithinDistance(1000.0)).outer(keys()).inner(keys()).limit(0), 0),
    ] {
        assert_eq!(pairs_of(&outer, &inner, &join).len(), wanted, "{join:?}");
        let (count, explanation) = outer.count_join_explained(&inner, &join).unwrap();
        assert_eq!((count, explanation.inner.lookups), (wanted as u64, 0), "{join:?}");
        assert_eq!(explanation.outer.plan, "spatial index only", "{join:?}");
    }
}
