//! Joins whose outer geometries exceed the join's memory. The pairs are the same at any limit.

use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Dataset, Geometry, Join, JoinOn, Key, Options, Record, Store, Value};
use terrane_space::geometry::from_wkt;

use crate::support::joins::{pairs_of, store_with};
use crate::support::schema;

/// A ring with this many vertices around a centre.
fn ring(x: f64, y: f64, vertices: usize) -> Geometry {
    let position = |step: usize| {
        let angle = (step % vertices) as f64 / vertices as f64 * std::f64::consts::TAU;
        format!("{} {}", x + angle.cos(), y + angle.sin())
    };
    let positions: Vec<String> = (0..=vertices).map(position).collect();
    Geometry::Wkb(from_wkt(&format!("POLYGON(({}))", positions.join(","))).unwrap())
}

/// Rings far apart, and one point in the last of them.
fn rings_and_a_point(memory_limit: usize, rings: usize, vertices: usize) -> (Store, Dataset, Dataset) {
    let store = store_with(Options { memory_limit, ..Options::default() });
    let system = CoordinateSystem::Planar;
    let polygons = store.create_dataset("polygons", schema(KeyType::Int64, false, system)).unwrap();
    let points = store.create_dataset("points", schema(KeyType::Int64, true, system)).unwrap();
    let values = vec![Value::Null, Value::Null];
    for number in 0..rings {
        let geometry = Some(ring(number as f64 * 10.0, 0.0, vertices));
        polygons.insert(&Record { key: Key::Int(number as i64), geometry, values: values.clone() }).unwrap();
    }
    points.insert(&Record::at(0, (rings - 1) as f64 * 10.0, 0.0, values)).unwrap();
    (store, polygons, points)
}

#[test]
fn outer_geometries_that_fill_the_budget_without_a_candidate_are_dropped() {
    let cases = [
        // Many rings, which together fill the budget.
        (16 << 20, 300, 2_000),
        (64 << 20, 300, 2_000),
        // Each ring exceeds the whole budget.
        (16 << 20, 3, 150_000),
    ];
    for (memory_limit, rings, vertices) in cases {
        let (_store, polygons, points) = rings_and_a_point(memory_limit, rings, vertices);
        for on in [JoinOn::Within, JoinOn::Intersects, JoinOn::WithinDistance(0.5)] {
            let join = Join::new(on);
            let (outer, inner) = polygons.snapshot_with(&points).unwrap();
            let context = format!("{memory_limit} bytes, {rings} rings of {vertices} vertices, {on}");
            assert_eq!(outer.count_join(&inner, &join).unwrap(), 1, "{context}");
            assert_eq!(pairs_of(&outer, &inner, &join).len(), 1, "{context}");
        }
    }
}
