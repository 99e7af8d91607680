//! Pairs of joins: those of the join, and those of nested loops over the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Filter, Join, JoinOn, Options, Record, Snapshot, Store};
use terrane_space::Point;
use terrane_space::geometry::{QueryGeometry, distance_bytes, to_geo};
use terrane_testkit::MemoryStorage;

use super::oracle::{matching, wkb};
use super::{Model, array_key, encoded};

/// Outer key, inner key, and the distance for joins on distances.
pub type Pairs = BTreeMap<(Vec<u8>, Vec<u8>), Option<f64>>;

/// A store in memory.
pub fn store_with(options: Options) -> Store {
    Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap()
}

/// The pairs of a join.
pub fn pairs_of(outer: &Snapshot, inner: &Snapshot, join: &Join) -> Pairs {
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

/// Whether two great-circle arcs cross, from the two intersections of their circles.
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

/// The positions of a geometry, and its edges as pairs of positions.
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

/// The distance between two geometries: 0 if they intersect, else the least from a position of one
/// to the other.
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

/// The pairs found by nested loops over all records.
pub fn nested_loops(outer: &Model, inner: &Model, system: CoordinateSystem, on: JoinOn) -> Pairs {
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

/// Asserts equal pairs, and distances that differ at most by rounding.
#[track_caller]
pub fn assert_same(found: &Pairs, wanted: &Pairs, context: &str) {
    let keys = |pairs: &Pairs| pairs.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(wanted), "{context}");
    for (pair, distance) in found {
        let (Some(distance), Some(wanted)) = (distance, &wanted[pair]) else { continue };
        assert!((distance - wanted).abs() <= 1e-9 * wanted.max(1.0), "{context}: {distance} instead of {wanted}");
    }
}
