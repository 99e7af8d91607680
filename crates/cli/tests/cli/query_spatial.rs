//! Answers against a linear scan over the file that was imported.

use std::collections::BTreeSet;
use std::fs;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::support::{Sandbox, import, insert, sample, terrane};

const SEED: u64 = 20_080_517;
const EARTH_RADIUS_M: f64 = 6_371_008.8;

/// The cities by their row numbers: longitude and latitude.
fn cities() -> Vec<(f64, f64)> {
    let text = fs::read_to_string(sample("cities200.csv")).expect("sample");
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).expect("a number");
    let place = |line: &str| {
        let mut fields = line.split(',');
        (number(fields.next()), number(fields.next()))
    };
    text.lines().skip(1).map(place).collect()
}

/// Great-circle distance by the haversine formula.
fn distance_m(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (dx, dy) = ((b.0 - a.0).to_radians(), (b.1 - a.1).to_radians());
    let h = (dy / 2.0).sin().powi(2) + a.1.to_radians().cos() * b.1.to_radians().cos() * (dx / 2.0).sin().powi(2);
    2.0 * EARTH_RADIUS_M * h.sqrt().min(1.0).asin()
}

fn imported() -> Sandbox {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    sandbox
}

fn keys(sandbox: &Sandbox, flags: &[&str]) -> Vec<u64> {
    let rows = terrane("query", &sandbox.store(), &[&["cities"], flags].concat()).exits(0).json_lines();
    let keys: Vec<u64> = rows.iter().filter_map(|row| row["key"].as_u64()).collect();
    let counted = terrane("query", &sandbox.store(), &[&["cities", "--count"], flags].concat()).exits(0).number();
    assert_eq!(counted, keys.len() as u64, "{flags:?}");
    keys
}

fn set(keys: Vec<u64>) -> BTreeSet<u64> {
    let length = keys.len();
    let set: BTreeSet<u64> = keys.into_iter().collect();
    assert_eq!(set.len(), length, "no row comes twice");
    set
}

fn scan(places: &[(f64, f64)], matches: impl Fn((f64, f64)) -> bool) -> BTreeSet<u64> {
    (0..).zip(places).filter(|(_, place)| matches(**place)).map(|(key, _)| key).collect()
}

#[test]
fn windows_also_over_the_antimeridian() {
    let (sandbox, places) = (imported(), cities());
    let mut random = StdRng::seed_from_u64(SEED);
    for round in 0..12 {
        let (x0, x1): (f64, f64) = (random.random_range(-180.0..180.0), random.random_range(-180.0..180.0));
        let (y0, y1) = (random.random_range(-60.0..20.0), random.random_range(20.0..80.0));
        let wanted = scan(&places, |(x, y)| {
            let inside_x = if x0 <= x1 { (x0..=x1).contains(&x) } else { x >= x0 || x <= x1 };
            inside_x && (y0..=y1).contains(&y)
        });
        let found = keys(&sandbox, &["--bbox", &format!("{x0},{y0},{x1},{y1}")]);
        assert_eq!(set(found), wanted, "seed {SEED}, round {round}: {x0},{y0},{x1},{y1}");
    }
}

#[test]
fn circles_and_polygons_and_both() {
    let (sandbox, places) = (imported(), cities());
    let mut random = StdRng::seed_from_u64(SEED + 1);
    for round in 0..8 {
        let center = places[random.random_range(0..places.len())];
        let radius = random.random_range(1e5..6e6);
        let (x0, y0) = (random.random_range(-180.0..100.0), random.random_range(-60.0..30.0));
        let (x1, y1) = (x0 + random.random_range(20.0..80.0), y0 + random.random_range(20.0..50.0));
        let circle = format!("{},{},{radius}", center.0, center.1);
        let polygon = format!("POLYGON (({x0} {y0},{x1} {y0},{x1} {y1},{x0} {y1},{x0} {y0}))");
        let in_circle = |place| distance_m(center, place) <= radius;
        let in_polygon = |(x, y): (f64, f64)| x0 < x && x < x1 && y0 < y && y < y1;
        let at = format!("seed {}, round {round}: {circle} {polygon}", SEED + 1);
        assert_eq!(set(keys(&sandbox, &["--circle", &circle])), scan(&places, in_circle), "{at}");
        for flag in ["--intersects", "--within"] {
            assert_eq!(set(keys(&sandbox, &[flag, &polygon])), scan(&places, in_polygon), "{flag} {at}");
        }
        let both = ["--circle", &circle, "--within", &polygon];
        assert_eq!(set(keys(&sandbox, &both)), scan(&places, |place| in_circle(place) && in_polygon(place)), "{at}");
    }
}

#[test]
fn nearest_in_order_also_with_a_condition() {
    let (sandbox, places) = (imported(), cities());
    let mut random = StdRng::seed_from_u64(SEED + 2);
    for round in 0..8 {
        let from = (random.random_range(-180.0..180.0), random.random_range(-80.0..80.0));
        let northern = random.random_bool(0.5);
        let mut wanted: Vec<u64> = scan(&places, |(_, y)| !northern || y >= 10.0).into_iter().collect();
        wanted.sort_by(|&a, &b| distance_m(from, places[a as usize]).total_cmp(&distance_m(from, places[b as usize])));
        wanted.truncate(15);
        let place = format!("{},{}", from.0, from.1);
        let mut flags = vec!["--nearest", &place, "--k", "15"];
        if northern {
            flags.extend(["--bbox", "-180,10,180,90"]);
        }
        assert_eq!(keys(&sandbox, &flags), wanted, "seed {}, round {round}: {flags:?}", SEED + 2);
    }
}

#[test]
fn distances_are_great_circle_metres() {
    let (sandbox, places) = (imported(), cities());
    let rows =
        terrane("query", &sandbox.store(), &["cities", "--nearest", "13.4,52.5", "--k", "200"]).exits(0).json_lines();
    assert_eq!(rows.len(), 200);
    for row in &rows {
        let key = row["key"].as_u64().expect("a key") as usize;
        let (found, wanted) = (row["distance"].as_f64().expect("a distance"), distance_m((13.4, 52.5), places[key]));
        assert!((found - wanted).abs() < 0.01, "{key}: {found} and {wanted}");
    }
}

#[test]
fn geometries_come_from_files_as_wkt_and_geojson() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "zcta", &sample("zcta42.geojson"), &[]).exits(0);
    let zcta: Value = serde_json::from_slice(&fs::read(sample("zcta42.geojson")).expect("sample")).expect("JSON");
    let feature = &zcta["features"][30];
    let geojson = sandbox.write("feature.geojson", feature.to_string());
    let count = |flag: &str, path: &std::path::Path| {
        let file = format!("@{}", path.display());
        terrane("query", &store, &["zcta", flag, &file, "--count"]).exits(0).number()
    };
    // A polygon is within itself, and meets itself and its neighbours.
    assert_eq!(count("--within", &geojson), 1);
    assert!(count("--intersects", &geojson) >= 1);
    let wkt = sample("sf_mission_district.wkt");
    assert!(count("--intersects", &wkt) >= 1);
    let nowhere = sandbox.write("point.wkt", " POINT (0 0)\n");
    assert_eq!(count("--intersects", &nowhere), 0);
}

#[test]
fn answers_agree_after_inserts_and_deletes() {
    let sandbox = imported();
    let store = sandbox.store();
    let mut places: Vec<Option<(f64, f64)>> = cities().into_iter().map(Some).collect();
    let mut random = StdRng::seed_from_u64(SEED + 3);
    let mut input = String::new();
    for key in 200..400_u64 {
        let place = (random.random_range(-180.0..180.0), random.random_range(-90.0..90.0));
        input.push_str(&format!("{{\"key\":{key},\"lon\":{},\"lat\":{},\"name\":\"new\"}}\n", place.0, place.1));
        places.push(Some(place));
    }
    insert(&store, "cities", input, &[]).exits(0);
    let gone: Vec<String> = (0..400).step_by(3).map(|key: usize| key.to_string()).collect();
    let mut flags = vec!["cities", "--key"];
    flags.extend(gone.iter().map(String::as_str));
    terrane("delete", &store, &flags).exits(0);
    places.iter_mut().step_by(3).for_each(|place| *place = None);
    let wanted: BTreeSet<u64> = (0..)
        .zip(&places)
        .filter(|(_, place)| place.is_some_and(|(x, y)| (-100.0..=100.0).contains(&x) && (-50.0..=50.0).contains(&y)))
        .map(|(key, _)| key)
        .collect();
    assert_eq!(set(keys(&sandbox, &["--bbox", "-100,-50,100,50"])), wanted, "seed {}", SEED + 3);
    assert_eq!(set(keys(&sandbox, &[])).len(), places.iter().flatten().count());
}
