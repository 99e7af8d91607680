//! Joins against nested loops over the records: every kind of index, points and other geometries, in the plane and on the
//! sphere; which moment they see, what they refuse, and what they say of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, RecordBatch};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::{KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Filter, Geometry, IndexKind, Join, JoinOn, JoinPairs, Key,
    Options, Query, Record, Snapshot, Store, Value,
};
use terrane_space::Point;
use terrane_space::geometry::{QueryGeometry, distance_bytes, from_wkt, to_geo};
use terrane_storage::MemoryStorage;

use crate::support::kinds::{EXTENDED, KINDS, options};
use crate::support::oracle::{matching, wkb};
use crate::support::shapes::Shape;
use crate::support::{Model, array_key, encoded, schema, seeded, small_options};

const SYSTEMS: [CoordinateSystem; 2] = [CoordinateSystem::Planar, CoordinateSystem::LonLat];

/// Outer key, inner key, and the distance of joins that have one.
type Pairs = BTreeMap<(Vec<u8>, Vec<u8>), Option<f64>>;

struct Sides {
    _store: Store,
    outer: Dataset,
    inner: Dataset,
    outer_model: Model,
    inner_model: Model,
}

fn store_with(options: Options) -> Store {
    Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap()
}

/// Inserts, replaces and deletes records of a dataset, in several components on disk and one in memory.
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
    // Of one partition, and of several.
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

/// The pairs that a join gives.
fn pairs_of(outer: &Snapshot, inner: &Snapshot, join: &Join) -> Pairs {
    let mut pairs = Pairs::new();
    for batch in outer.join(inner, join).unwrap() {
        let batch = batch.unwrap();
        assert!(batch.num_rows() > 0);
        let key = |name: &str, row| encoded(&array_key(batch.column_by_name(name).unwrap(), row, KeyType::Int64));
        for row in 0..batch.num_rows() {
            let distance = batch.column_by_name("distance").map(|array| array.as_primitive::<Float64Type>().value(row));
            let earlier = pairs.insert((key("outer_id", row), key("inner_id", row)), distance);
            assert!(earlier.is_none(), "a pair comes twice");
        }
    }
    pairs
}

/// Whether two great-circle arcs cross, by the two places where their circles do.
fn arcs_meet(a: Point, b: Point, c: Point, d: Point) -> bool {
    let unit = |p: Point| {
        let (x, y) = (p.x.to_radians(), p.y.to_radians());
        [y.cos() * x.cos(), y.cos() * x.sin(), y.sin()]
    };
    let cross =
        |a: [f64; 3], b: [f64; 3]| [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let [a, b, c, d] = [a, b, c, d].map(unit);
    let (first, second) = (cross(a, b), cross(c, d));
    let place = cross(first, second);
    if dot(place, place) < 1e-24 {
        return false;
    }
    let is_between =
        |from, to, normal, place| dot(cross(from, place), normal) > 0.0 && dot(cross(place, to), normal) > 0.0;
    [1.0, -1.0].iter().any(|sign| {
        let place = place.map(|part| part * sign);
        is_between(a, b, first, place) && is_between(c, d, second, place)
    })
}

/// Positions, and pairs of those that an edge joins.
fn parts(geo: &geo_types::Geometry<f64>) -> (Vec<Point>, Vec<(Point, Point)>) {
    use geo_types::Geometry as Geo;
    let mut paths: Vec<Vec<Point>> = Vec::new();
    let point = |coord: &geo_types::Coord<f64>| Point::new(coord.x, coord.y);
    fn visit(geo: &Geo<f64>, add: &mut impl FnMut(&[geo_types::Coord<f64>])) {
        match geo {
            Geo::Point(found) => add(&[found.0]),
            Geo::LineString(line) => add(&line.0),
            Geo::Polygon(polygon) => {
                add(&polygon.exterior().0);
                polygon.interiors().iter().for_each(|ring| add(&ring.0));
            }
            Geo::MultiPoint(points) => points.0.iter().for_each(|found| add(&[found.0])),
            Geo::MultiLineString(lines) => lines.0.iter().for_each(|line| add(&line.0)),
            Geo::MultiPolygon(polygons) => {
                polygons.0.iter().for_each(|polygon| visit(&Geo::Polygon(polygon.clone()), add));
            }
            Geo::GeometryCollection(members) => members.0.iter().for_each(|member| visit(member, add)),
            other => panic!("{other:?}"),
        }
    }
    visit(geo, &mut |coords| paths.push(coords.iter().map(point).collect()));
    let edges = paths.iter().flat_map(|path| path.windows(2).map(|edge| (edge[0], edge[1]))).collect();
    (paths.into_iter().flatten().collect(), edges)
}

/// The distance between two geometries: 0 where they meet, else the least from a position of one to the other.
fn distance_between(system: CoordinateSystem, a: &[u8], b: &[u8]) -> Option<f64> {
    let ((positions, edges), (other_positions, other_edges)) = (parts(&to_geo(a).unwrap()), parts(&to_geo(b).unwrap()));
    if QueryGeometry::new(a, system).unwrap().intersects(b).unwrap() {
        return Some(0.0);
    }
    let crosses = |(a, b): &(Point, Point)| other_edges.iter().any(|(c, d)| arcs_meet(*a, *b, *c, *d));
    if system == CoordinateSystem::LonLat && edges.iter().any(crosses) {
        return Some(0.0);
    }
    let from = |positions: &[Point], to: &[u8]| {
        let distances = positions.iter().filter_map(|position| distance_bytes(system, *position, to).unwrap());
        distances.min_by(f64::total_cmp)
    };
    [from(&positions, b), from(&other_positions, a)].into_iter().flatten().min_by(f64::total_cmp)
}

/// The pairs that loops over all records find.
fn nested_loops(outer: &Model, inner: &Model, system: CoordinateSystem, on: JoinOn) -> Pairs {
    let mut pairs = Pairs::new();
    let found = |record: &Record, model: &Model, filter: fn(Vec<u8>) -> Filter| -> Vec<Vec<u8>> {
        let Some(geometry) = &record.geometry else { return Vec::new() };
        matching(model, system, &[filter(wkb(geometry))]).iter().map(encoded).collect()
    };
    match on {
        JoinOn::WithinDistance(distance_max) => {
            for (outer_key, a) in outer {
                for (inner_key, b) in inner {
                    let (Some(a), Some(b)) = (&a.geometry, &b.geometry) else { continue };
                    if let Some(distance) = distance_between(system, &wkb(a), &wkb(b))
                        && distance <= distance_max
                    {
                        pairs.insert((outer_key.clone(), inner_key.clone()), Some(distance));
                    }
                }
            }
        }
        JoinOn::Intersects => outer.iter().for_each(|(key, record)| {
            let partners = found(record, inner, Filter::Intersects);
            pairs.extend(partners.into_iter().map(|partner| ((key.clone(), partner), None)));
        }),
        JoinOn::Within => outer.iter().for_each(|(key, record)| {
            let partners = found(record, inner, Filter::Within);
            pairs.extend(partners.into_iter().map(|partner| ((key.clone(), partner), None)));
        }),
        JoinOn::Contains => inner.iter().for_each(|(key, record)| {
            let partners = found(record, outer, Filter::Within);
            pairs.extend(partners.into_iter().map(|partner| ((partner, key.clone()), None)));
        }),
    }
    pairs
}

/// Demands the same pairs, and distances that differ by rounding at most.
#[track_caller]
fn assert_same(found: &Pairs, wanted: &Pairs, context: &str) {
    let keys = |pairs: &Pairs| pairs.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(wanted), "{context}");
    for (pair, distance) in found {
        let (Some(distance), Some(wanted)) = (distance, &wanted[pair]) else { continue };
        assert!((distance - wanted).abs() <= 1e-9 * wanted.max(1.0), "{context}: {distance} instead of {wanted}");
    }
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
    // Some of it is in memory again.
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
fn both_sides_have_conditions_of_their_own_and_the_outer_one_a_limit() {
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
        let mut wanted = nested_loops(&sides.outer_model, &sides.inner_model, CoordinateSystem::Planar, on);
        wanted.retain(|(outer, inner), _| {
            outer_keys.contains(outer) && inner_keys.contains(inner) && size(&sides.inner_model, inner) < 5
        });
        assert!(wanted.len() > 10, "{}", wanted.len());
        let condition = || Condition::on("size").less_than(5);
        let join = Join::new(on)
            .outer(Query::new().filter(left.clone()))
            .inner(Query::new().filter(right.clone()).condition(condition()));
        assert_same(&pairs_of(&outer, &inner, &join), &wanted, &format!("{shape:?}, seed {seed}"));
        // A circle, of which the windows tell less.
        let circle = Filter::Circle { x: 1.0, y: 1.0, radius: 6.0 };
        let in_circle = lies(&sides.inner_model, &circle);
        let mut round = wanted.clone();
        round.retain(|(_, inner), _| in_circle.contains(inner));
        assert!(round.len() < wanted.len());
        let both = Query::new().filter(right.clone()).filter(circle).condition(condition());
        let rounded = join.clone().inner(both.clone());
        assert_same(&pairs_of(&outer, &inner, &rounded), &round, &format!("{shape:?} in a circle, seed {seed}"));
        // Half of the pairs, all of them real.
        let limit = wanted.len() as u64 / 2;
        let some = pairs_of(&outer, &inner, &join.clone().limit(limit));
        assert_eq!(some.len() as u64, limit);
        assert!(some.keys().all(|pair| wanted.contains_key(pair)));
        assert_eq!(outer.count_join(&inner, &join.clone().limit(limit)).unwrap(), limit);
        // The pairs of some outer rows, which are all that these have.
        let few = join.outer(Query::new().filter(left.clone()).limit(7));
        let found = pairs_of(&outer, &inner, &few);
        let rows: std::collections::BTreeSet<&Vec<u8>> = found.keys().map(|(outer, _)| outer).collect();
        assert!(rows.len() <= 7);
        for row in rows {
            let of_row = |pairs: &Pairs| pairs.keys().filter(|(outer, _)| outer == row).count();
            assert_eq!(of_row(&found), of_row(&wanted));
        }
        // The nearest outer rows have a distance of their own.
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
fn a_self_join_leaves_out_pairs_of_a_record_with_itself_and_mirrored_ones() {
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
fn areas_that_overlap_in_one_stored_geometry_are_both_areas() {
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

#[test]
fn both_sides_are_of_one_moment_while_writers_go_on() {
    let store = store_with(Options { background: true, ..small_options() });
    let (system, done) = (CoordinateSystem::Planar, AtomicBool::new(false));
    let options = DatasetOptions { partitions: 2 };
    let dataset = |name| store.create_dataset_with(name, schema(KeyType::Int64, true, system), &options).unwrap();
    let (first, second) = (dataset("first"), dataset("second"));
    let record = |key: i64| Record::at(key, (key % 40) as f64, (key / 40) as f64, vec![Value::Null, Value::Int(key)]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..1200 {
                // The second never has a record that the first does not have.
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
            // Asked for both ways round.
            let (outer, inner) = if last % 2 == 0 {
                first.snapshot_with(&second).unwrap()
            } else {
                let (second, first) = second.snapshot_with(&first).unwrap();
                (first, second)
            };
            assert_eq!(outer.sequence(), inner.sequence());
            let pairs = outer.count_join(&inner, &join).unwrap();
            let (outer_count, inner_count) = (outer.count(&Query::new()).unwrap(), inner.count(&Query::new()).unwrap());
            assert_eq!(pairs, inner_count, "each of the second has its partner in the first");
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
fn joins_that_make_no_sense_are_refused_with_the_side_at_fault() {
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
        (Join::new(JoinOn::WithinDistance(-1.0)), "-1 is no distance"),
        (Join::new(JoinOn::WithinDistance(f64::NAN)), "NaN is no distance"),
        (Join::new(JoinOn::WithinDistance(f64::INFINITY)), "inf is no distance"),
        (near().pairs(JoinPairs::Distinct), "\"shapes\" and \"planar\" are two datasets"),
        (near().inner(Query::new().nearest(0.0, 0.0, 1)), "the inner side of the join, dataset \"planar\": "),
        (near().inner(Query::new().limit(1)), "cannot have a limit; give the join one"),
        (near().inner(Query::new().using_index("sizes")), "it has no places, by which the two sides"),
        (near().inner(Query::new().using_index("places")), "the inner side of the join, dataset \"planar\": dataset"),
        (near().outer(Query::new().using_index("places")), "the outer side of the join, dataset \"shapes\": dataset"),
        (near().outer(Query::new().columns(["colour"])), "the outer side of the join, dataset \"shapes\": "),
        (near().inner(Query::new().columns(["colour"])), "the inner side of the join, dataset \"planar\": "),
        (near().outer(Query::new().window(1.0, 0.0, 0.0, 0.0)), "the outer side of the join"),
        (near().inner(Query::new().circle(1.0, 0.0, -1.0)), "the inner side of the join"),
        (near().prefixes("", ""), "two columns of the join would be called \"id\""),
        (near().prefixes("x", "x"), "give other prefixes than \"x\""),
    ] {
        let refused = refusal(outer.join(&inner, &join));
        assert!(refused.contains(reason), "{refused} instead of {reason}");
    }
    let (outer, inner) = planar.snapshot_with(&lonlat).unwrap();
    let refused = refusal(outer.join(&inner, &near()));
    assert!(refused.contains("\"planar\" is planar and dataset \"lonlat\" is lonlat"), "{refused}");
    let before = planar.snapshot();
    planar.insert(&Record::at(1, 0.0, 0.0, vec![Value::Null, Value::Null])).unwrap();
    assert!(refusal(before.join(&planar.snapshot(), &near())).contains("at one moment of one store"));
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
fn columns_of_both_sides_come_under_names_of_their_own() {
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
fn indexes_alone_answer_where_keys_and_points_are_enough() {
    let store = store_with(small_options());
    let points = store.create_dataset("points", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
    for key in 0..400_i64 {
        let values = vec![Value::Utf8("n".into()), Value::Int(key)];
        points.insert(&Record::at(key, (key % 20) as f64, (key / 20) as f64, values)).unwrap();
    }
    points.flush().unwrap();
    let (outer, inner) = points.snapshot_with(&points).unwrap();
    let explained = |join: &Join| {
        let mut rows = outer.join(&inner, join).unwrap();
        rows.by_ref().for_each(|batch| drop(batch.unwrap()));
        rows.explanation()
    };
    let join = Join::new(JoinOn::WithinDistance(1.0)).pairs(JoinPairs::Ordered);
    let window = Query::new().window(0.0, 0.0, 9.0, 9.0);
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
    // Without an index, the records are gone through.
    let explanation = explained(&only.clone().inner(Query::new().columns(columns).using_index("primary")));
    assert_eq!((explanation.inner.plan, explanation.pairs), ("primary scan", 200));
    assert!(explanation.inner.entries >= 100 * 400, "{explanation}");
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
    // From disk, the partners of one record come leaf by leaf, and those of many do not fit together.
    points.flush().unwrap();
    let (outer, inner) = points.snapshot_with(&points).unwrap();
    let known = Query::new().condition(Condition::on("size").between(100, 799));
    assert_eq!(outer.count_join(&inner, &join.clone().inner(known)).unwrap(), 700 * 1000);
    drop((outer, inner, points));
    store.close().unwrap();
}
