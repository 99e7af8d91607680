//! The store against a map and a linear scan, under random mixes of operations, with
//! snapshots held open over flushes, merges and reopenings.

mod support;

use std::sync::Arc;

use rand::Rng;
use support::{Model, encoded, key, keys_of, record, schema, seeded, small_options};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Error, Geometry, Key, Query, Snapshot, Store};
use terrane_space::geometry::{distance_bytes, from_wkt, intersects, point_wkb, to_geo, within};
use terrane_storage::{MemoryStorage, Storage};

fn wkb(geometry: &Geometry) -> Vec<u8> {
    match geometry {
        Geometry::Point(point) => point_wkb(*point).to_vec(),
        Geometry::Wkb(bytes) => bytes.clone(),
    }
}

fn expected(model: &Model, test: impl Fn(&[u8]) -> bool) -> Vec<Key> {
    model
        .values()
        .filter(|record| record.geometry.as_ref().is_some_and(|geometry| test(&wkb(geometry))))
        .map(|record| record.key.clone())
        .collect()
}

fn sorted(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by_key(encoded);
    keys
}

fn compare(snapshot: &Snapshot, model: &Model, rng: &mut impl Rng, what: &str) {
    let all = sorted(keys_of(snapshot, &Query::new()));
    assert_eq!(all, model.values().map(|record| record.key.clone()).collect::<Vec<_>>(), "all records, {what}");
    assert_eq!(snapshot.count(&Query::new()).unwrap(), model.len() as u64, "{what}");
    let (x, y) = (f64::from(rng.random_range(-40..40)) / 4.0, f64::from(rng.random_range(-40..40)) / 4.0);
    let (width, height) = (f64::from(rng.random_range(0..30)) / 4.0, f64::from(rng.random_range(0..30)) / 4.0);
    let (x1, y1) = (x + width, y + height);
    let ring = format!("POLYGON(({x} {y},{x1} {y},{x1} {y1},{x} {y1},{x} {y}))");
    let area = width > 0.0 && height > 0.0;
    let window = Query::new().window(x, y, x1, y1);
    let shape = from_wkt(&match (width > 0.0, height > 0.0) {
        (true, true) => ring.clone(),
        (false, false) => format!("POINT({x} {y})"),
        _ => format!("LINESTRING({x} {y},{x1} {y1})"),
    })
    .unwrap();
    let query_shape = to_geo(&shape).unwrap();
    let wanted = expected(model, |wkb| intersects(&to_geo(wkb).unwrap(), &query_shape).unwrap());
    assert_eq!(sorted(keys_of(snapshot, &window)), wanted, "window {x} {y} {x1} {y1}, {what}");
    assert_eq!(snapshot.count(&window).unwrap(), wanted.len() as u64, "{what}");
    if area {
        let wanted = expected(model, |wkb| within(&to_geo(wkb).unwrap(), &query_shape).unwrap());
        assert_eq!(
            sorted(keys_of(snapshot, &Query::new().filter(terrane::Filter::Within(shape.clone())))),
            wanted,
            "within {ring}, {what}"
        );
        let both = Query::new().filter(terrane::Filter::Intersects(shape.clone())).circle(x, y, width);
        let wanted = expected(model, |wkb| {
            intersects(&to_geo(wkb).unwrap(), &query_shape).unwrap()
                && distance_bytes(CoordinateSystem::Planar, terrane_space::Point::new(x, y), wkb)
                    .unwrap()
                    .is_some_and(|distance| distance <= width)
        });
        assert_eq!(sorted(keys_of(snapshot, &both)), wanted, "circle and polygon, {what}");
    }
    let k = rng.random_range(1..20);
    let mut by_distance: Vec<(f64, Vec<u8>, Key)> = model
        .values()
        .filter_map(|record| {
            let distance = distance_bytes(
                CoordinateSystem::Planar,
                terrane_space::Point::new(x, y),
                &wkb(record.geometry.as_ref()?),
            )
            .unwrap()?;
            Some((distance, encoded(&record.key), record.key.clone()))
        })
        .collect();
    by_distance.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let wanted: Vec<Key> = by_distance.into_iter().take(k).map(|(.., key)| key).collect();
    assert_eq!(keys_of(snapshot, &Query::new().nearest(x, y, k)), wanted, "nearest {k} to {x} {y}, {what}");
}

fn run(key_type: KeyType, points: bool, default_seed: u64) {
    let (mut rng, seed) = seeded(default_seed);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut store = Store::open_on(storage.clone(), small_options()).unwrap();
    let mut dataset = store.create_dataset("d", schema(key_type, points, CoordinateSystem::Planar)).unwrap();
    let mut model = Model::new();
    let mut held: Vec<(Snapshot, Model)> = Vec::new();
    for step in 0..1500 {
        let what = format!("{key_type:?} points={points} seed {seed} step {step}");
        let key = key(&mut rng, key_type, 150);
        match rng.random_range(0..100) {
            0..35 => {
                let record = record(&mut rng, key, points);
                match dataset.insert(&record) {
                    Ok(()) => assert!(model.insert(encoded(&record.key), record).is_none(), "{what}"),
                    Err(Error::DuplicateKey { .. }) => assert!(model.contains_key(&encoded(&record.key)), "{what}"),
                    Err(error) => panic!("{error} {what}"),
                }
            }
            35..60 => {
                let record = record(&mut rng, key, points);
                dataset.upsert(&record).unwrap();
                model.insert(encoded(&record.key), record);
            }
            60..80 => {
                let deleted = dataset.delete(&key).unwrap();
                assert_eq!(deleted, model.remove(&encoded(&key)).is_some(), "{what}");
            }
            80..84 => {
                let mut batch = dataset.atomic_batch();
                for _ in 0..rng.random_range(0..6) {
                    let key = support::key(&mut rng, key_type, 150);
                    if rng.random_ratio(1, 3) {
                        batch.delete(&key).unwrap();
                        model.remove(&encoded(&key));
                    } else {
                        let record = record(&mut rng, key, points);
                        batch.upsert(&record).unwrap();
                        model.insert(encoded(&record.key), record);
                    }
                }
                batch.commit().unwrap();
            }
            84..90 => assert_eq!(dataset.get(&key).unwrap().as_ref(), model.get(&encoded(&key)), "{what}"),
            90..93 => dataset.flush().unwrap(),
            93 => dataset.compact().unwrap(),
            94..96 => held.push((dataset.snapshot(), model.clone())),
            96 if !held.is_empty() => {
                let (snapshot, model) = held.swap_remove(rng.random_range(0..held.len()));
                compare(&snapshot, &model, &mut rng, &format!("held snapshot, {what}"));
            }
            97 if rng.random_ratio(1, 3) => {
                held.clear();
                drop(dataset);
                store.close().unwrap();
                store = Store::open_on(storage.clone(), small_options()).unwrap();
                dataset = store.dataset("d").unwrap();
            }
            _ => compare(&dataset.snapshot(), &model, &mut rng, &what),
        }
    }
    for (snapshot, model) in &held {
        compare(snapshot, model, &mut rng, "held to the end");
    }
    compare(&dataset.snapshot(), &model, &mut rng, "at the end");
    let report = store.check(false).unwrap();
    assert!(report.is_clean() && report.findings.is_empty(), "{report}");
    assert_eq!(report.records, model.len() as u64);
}

#[test]
fn int_keys_and_points_agree_with_the_model() {
    run(KeyType::Int64, true, 1);
}

#[test]
fn uint_keys_and_points_agree_with_the_model() {
    run(KeyType::UInt64, true, 2);
}

#[test]
fn text_keys_and_all_geometries_agree_with_the_model() {
    run(KeyType::Utf8, false, 3);
}

#[test]
fn binary_keys_and_all_geometries_agree_with_the_model() {
    run(KeyType::Binary, false, 4);
}

#[test]
fn int_keys_and_all_geometries_agree_with_the_model() {
    run(KeyType::Int64, false, 5);
}
