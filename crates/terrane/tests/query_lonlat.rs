//! Longitude and latitude: windows and circles over the antimeridian and the poles, and nearest
//! neighbours there. They are compared with a scan that uses the haversine formula.

use std::sync::Arc;

use crate::support::{keys_of, schema, seeded, small_options};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Key, Query, Record, Snapshot, Store, Value};
use terrane_testkit::MemoryStorage;

const RADIUS_M: f64 = 6_371_008.8;

/// Great-circle distance in metres.
fn haversine_m(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (latitude_a, latitude_b) = (a.1.to_radians(), b.1.to_radians());
    let half_latitude = ((latitude_b - latitude_a) / 2.0).sin();
    let half_longitude = ((b.0 - a.0).to_radians() / 2.0).sin();
    let h = half_latitude.powi(2) + latitude_a.cos() * latitude_b.cos() * half_longitude.powi(2);
    2.0 * RADIUS_M * h.sqrt().min(1.0).asin()
}

/// A place that is often near the antimeridian or a pole.
fn place(rng: &mut SmallRng) -> (f64, f64) {
    let longitude = match rng.random_range(0..4) {
        0 => rng.random_range(175.0..=180.0),
        1 => rng.random_range(-180.0..=-175.0),
        _ => rng.random_range(-180.0..=180.0),
    };
    let latitude = match rng.random_range(0..5) {
        0 => rng.random_range(80.0..=90.0),
        1 => rng.random_range(-90.0..=-80.0),
        _ => rng.random_range(-80.0..=80.0),
    };
    (longitude, latitude)
}

/// A dataset of three components and a memory component, and its places by key.
fn dataset(rng: &mut SmallRng) -> (Store, Snapshot, Vec<(f64, f64)>) {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset("d", schema(KeyType::Int64, true, CoordinateSystem::LonLat)).unwrap();
    let mut places = vec![(180.0, 0.0), (-180.0, 0.0), (0.0, 90.0), (77.0, 90.0), (0.0, -90.0), (0.0, 0.0)];
    places.extend((0..1200).map(|_| place(rng)));
    for (number, (x, y)) in places.iter().enumerate() {
        dataset.insert(&Record::at(number as i64, *x, *y, vec![Value::Null, Value::Null])).unwrap();
        if number % 400 == 399 {
            dataset.flush().unwrap();
        }
    }
    let snapshot = dataset.snapshot();
    (store, snapshot, places)
}

fn matching(places: &[(f64, f64)], test: impl Fn((f64, f64)) -> bool) -> Vec<Key> {
    let numbered = places.iter().enumerate().filter(|(_, place)| test(**place));
    numbered.map(|(number, _)| Key::Int(number as i64)).collect()
}

fn sorted(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort();
    keys
}

#[test]
fn windows_may_cross_the_antimeridian() {
    let (mut rng, seed) = seeded(71);
    let (_store, snapshot, places) = dataset(&mut rng);
    for _ in 0..300 {
        let ((x0, y0), (x1, y1)) = (place(&mut rng), place(&mut rng));
        let (y0, y1) = (y0.min(y1), y0.max(y1));
        let inside = |(x, y): (f64, f64)| {
            let across = if x0 <= x1 { (x0..=x1).contains(&x) } else { x >= x0 || x <= x1 };
            across && (y0..=y1).contains(&y)
        };
        let query = Query::new().window(x0, y0, x1, y1);
        let wanted = matching(&places, inside);
        assert_eq!(sorted(keys_of(&snapshot, &query)), wanted, "{x0} {y0} {x1} {y1}, seed {seed}");
        assert_eq!(snapshot.count(&query).unwrap(), wanted.len() as u64, "{x0} {y0} {x1} {y1}, seed {seed}");
    }
}

#[test]
fn circles_reach_over_poles_and_the_antimeridian() {
    let (mut rng, seed) = seeded(72);
    let (_store, snapshot, places) = dataset(&mut rng);
    for _ in 0..300 {
        let centre = place(&mut rng);
        let radius = 10f64.powf(rng.random_range(2.0..7.3));
        let query = Query::new().circle(centre.0, centre.1, radius);
        // The two computations may differ in the last digits, so records near the margin are not
        // judged.
        let sure = matching(&places, |place| haversine_m(centre, place) < radius - 0.01);
        let possible = matching(&places, |place| haversine_m(centre, place) < radius + 0.01);
        let found = sorted(keys_of(&snapshot, &query));
        assert!(sure.iter().all(|key| found.contains(key)), "{centre:?} {radius}, seed {seed}");
        assert!(found.iter().all(|key| possible.contains(key)), "{centre:?} {radius}, seed {seed}");
        assert_eq!(snapshot.count(&query).unwrap(), found.len() as u64);
    }
}

#[test]
fn the_nearest_are_found_over_poles_and_the_antimeridian() {
    let (mut rng, seed) = seeded(73);
    let (_store, snapshot, places) = dataset(&mut rng);
    for _ in 0..300 {
        let centre = place(&mut rng);
        let k = rng.random_range(1..30);
        let mut distances: Vec<f64> = places.iter().map(|place| haversine_m(centre, *place)).collect();
        let found = keys_of(&snapshot, &Query::new().nearest(centre.0, centre.1, k));
        let of = |key: &Key| match key {
            Key::Int(number) => distances[*number as usize],
            _ => panic!("integer keys"),
        };
        let found: Vec<f64> = found.iter().map(of).collect();
        distances.sort_by(f64::total_cmp);
        assert_eq!(found.len(), k);
        for (found, wanted) in found.iter().zip(&distances) {
            assert!((found - wanted).abs() < 0.01, "{found} instead of {wanted}, {centre:?} {k}, seed {seed}");
        }
    }
}

#[test]
fn a_window_over_points_is_answered_from_the_index_alone() {
    let (mut rng, _) = seeded(74);
    let (_store, snapshot, _) = dataset(&mut rng);
    let query = Query::new().window(-90.0, -45.0, 90.0, 45.0);
    let mut rows = snapshot.query(&query.clone().columns(["id"])).unwrap();
    let matches: u64 = rows.by_ref().map(|batch| batch.unwrap().num_rows() as u64).sum();
    let explanation = rows.explanation();
    assert!(matches > 3);
    assert_eq!((explanation.plan, explanation.lookups, explanation.matches), ("spatial index only", 0, matches));
    let mut rows = snapshot.query(&query.clone().limit(3)).unwrap();
    let limited: usize = rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
    let explanation = rows.explanation();
    assert_eq!((limited, explanation.lookups, explanation.matches), (3, 3, 3));
    let rows = snapshot.query(&Query::new().window(200.0, 0.0, 210.0, 1.0));
    assert!(rows.is_err(), "outside of the coordinates");
}
