//! Nearest points of an insert-only dataset equal those of a linear scan, ties by key.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::{schema, seeded, small_options};
use rand::Rng;
use terrane::schema::KeyType;
use terrane::{
    CoordinateSystem, Dataset, DatasetOptions, Key, KeyRef, MergePolicy, Options, Query, Record, Snapshot, Store, Value,
};
use terrane_space::Point;
use terrane_space::sphere::PreparedPoint;
use terrane_testkit::MemoryStorage;

fn dataset(system: CoordinateSystem) -> (Store, Dataset) {
    // Every flush stays a separate component.
    let merge_policy = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    let options = Options { merge_policy, ..small_options() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    // All partitions share one queue.
    let options = DatasetOptions { partitions: if system == CoordinateSystem::LonLat { 3 } else { 1 } };
    let dataset = store.create_dataset_with("d", schema(KeyType::Int64, true, system), &options).unwrap();
    (store, dataset)
}

fn insert(dataset: &Dataset, points: &[(i64, Point)]) {
    for &(key, Point { x, y }) in points {
        dataset.insert(&Record::at(key, x, y, vec![Value::Null, Value::Int(key)])).unwrap();
    }
}

fn nearest(snapshot: &Snapshot, place: Point, k: usize) -> Vec<(f64, i64)> {
    let mut found = Vec::new();
    snapshot
        .visit_nearest(place.x, place.y, k, |key, distance| {
            let KeyRef::Int(key) = key else { panic!("{key:?} is not an int64") };
            found.push((distance, key));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn scan(points: &[(i64, Point)], k: usize, distance: impl Fn(Point) -> f64) -> Vec<(f64, i64)> {
    let mut all: Vec<(f64, i64)> = points.iter().map(|&(key, point)| (distance(point), key)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.truncate(k);
    all
}

/// Points on a grid, so that many distances are equal, in four disk components and in memory.
/// Memory is flushed later. Points inserted after the snapshot must not be found.
fn compare(system: CoordinateSystem, grid: f64, default_seed: u64) {
    let (mut rng, seed) = seeded(default_seed);
    let (_store, dataset) = dataset(system);
    let mut points: Vec<(i64, Point)> = Vec::new();
    let mut draw = |count: usize, points: &mut Vec<(i64, Point)>| {
        for _ in 0..count {
            let point =
                Point::new(f64::from(rng.random_range(-160..160)) * grid, f64::from(rng.random_range(-80..80)) * grid);
            points.push((points.len() as i64 * 7 % 10_007, point));
        }
    };
    for part in 0..5 {
        let start = points.len();
        draw(1_200, &mut points);
        insert(&dataset, &points[start..]);
        if part < 4 {
            dataset.flush().unwrap();
        }
    }
    let snapshot = dataset.snapshot();
    let mut later = points.clone();
    draw(600, &mut later);
    insert(&dataset, &later[points.len()..]);
    for flushed in [false, true] {
        if flushed {
            // The new component has both visible and invisible points.
            dataset.flush().unwrap();
        }
        for k in [0, 1, 2, 10, 97, 1_000, 5_000, 7_000] {
            for _ in 0..20 {
                let (x, y) = (f64::from(rng.random_range(-170..170)), f64::from(rng.random_range(-85..85)) + 0.25);
                let place = Point::new(x, y);
                let prepared = PreparedPoint::new(place);
                let wanted = scan(&points, k, |point| match system {
                    CoordinateSystem::Planar => place.planar_distance(point),
                    CoordinateSystem::LonLat => prepared.distance_m(point),
                });
                let found = nearest(&snapshot, place, k);
                assert!(found == wanted, "nearest {k} to {place:?}, flushed {flushed}, seed {seed}");
            }
        }
    }
}

#[test]
fn planar_points_are_in_the_order_of_a_scan() {
    compare(CoordinateSystem::Planar, 1.0, 0x9EA2_0001);
}

#[test]
fn planar_points_of_uneven_coordinates_are_in_the_order_of_a_scan() {
    compare(CoordinateSystem::Planar, 0.1, 0x9EA2_0002);
}

#[test]
fn points_on_the_globe_are_in_the_order_of_a_scan() {
    compare(CoordinateSystem::LonLat, 1.0, 0x9EA2_0003);
}

#[test]
fn among_very_many_points_at_one_place_keys_decide() {
    let (_store, dataset) = dataset(CoordinateSystem::Planar);
    let points: Vec<(i64, Point)> = (0..30_000).rev().map(|key| (key, Point::new(3.0, 4.0))).collect();
    insert(&dataset, &points);
    dataset.flush().unwrap();
    let found = nearest(&dataset.snapshot(), Point::new(0.0, 0.0), 5);
    assert_eq!(found, (0..5).map(|key| (5.0, key)).collect::<Vec<_>>());
}

#[test]
fn points_far_from_the_centre_of_their_leaf_are_found() {
    let (_store, dataset) = dataset(CoordinateSystem::Planar);
    let points: Vec<(i64, Point)> = (0..200)
        .map(|key| match key {
            0 => (key, Point::new(0.0, 0.0)),
            _ => (key, Point::new(100.0 + (key % 16) as f64 / 16.0, 100.0 + (key / 16) as f64 / 16.0)),
        })
        .collect();
    insert(&dataset, &points);
    dataset.flush().unwrap();
    let place = Point::new(1.0, 1.0);
    let wanted = scan(&points, 10, |point| place.planar_distance(point));
    assert_eq!(nearest(&dataset.snapshot(), place, 10), wanted);
}

#[test]
fn infinite_distances_still_have_an_order() {
    let (_store, dataset) = dataset(CoordinateSystem::Planar);
    let points: Vec<(i64, Point)> =
        (0..2_000).map(|key| (key, Point::new(1e200 * (1 + key % 50) as f64, 1e200))).collect();
    insert(&dataset, &points);
    let place = Point::new(0.0, 0.0);
    for k in [60, 1_500] {
        let wanted = scan(&points, k, |point| place.planar_distance(point));
        assert_eq!(nearest(&dataset.snapshot(), place, k), wanted);
    }
}

#[test]
fn the_smaller_of_limit_and_k_applies() {
    let (_store, dataset) = dataset(CoordinateSystem::Planar);
    let points: Vec<(i64, Point)> = (0..50).map(|key| (key, Point::new(key as f64, 0.0))).collect();
    insert(&dataset, &points);
    let keys = crate::support::keys_of(&dataset.snapshot(), &Query::new().nearest(20.2, 0.0, 9).limit(2));
    assert_eq!(keys, [Key::Int(20), Key::Int(21)]);
}
