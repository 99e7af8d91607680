//! Nearest neighbours among the records that meet conditions, and behind anti-matter.

use std::sync::Arc;

use crate::support::workload::batch;
use crate::support::{keys_of, schema, small_options};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Dataset, Geometry, Key, MergePolicy, Options, Query, Record, Store, Value};
use terrane_space::geometry::from_wkt;
use terrane_testkit::MemoryStorage;

fn dataset(system: CoordinateSystem, points: bool) -> (Store, Dataset) {
    // Every flush stays a separate component.
    let merge_policy = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    let options = Options { merge_policy, ..small_options() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let dataset = store.create_dataset("d", schema(KeyType::Int64, points, system)).unwrap();
    (store, dataset)
}

fn line(key: i64, wkt: &str) -> Record {
    let geometry = Some(Geometry::Wkb(from_wkt(wkt).unwrap()));
    Record { key: Key::Int(key), geometry, values: vec![Value::Null, Value::Null] }
}

/// From a pole, the boxes of a deleted line and of its anti-matter are as far as the node around
/// the anti-matter. The distance of the node is computed along another meridian.
#[test]
fn anti_matter_precedes_its_entry_from_every_side_of_a_pole() {
    for longitude in (-170..=170).step_by(5) {
        let (_store, dataset) = dataset(CoordinateSystem::LonLat, false);
        let from = |shift: i32| longitude + shift;
        dataset.insert(&line(1, &format!("LINESTRING({} 79,{} 80)", from(1), from(1)))).unwrap();
        dataset.insert(&line(2, &format!("LINESTRING({} 82,{} 83)", from(5), from(5)))).unwrap();
        dataset.flush().unwrap();
        dataset.delete(&Key::Int(1)).unwrap();
        dataset.insert(&line(3, &format!("LINESTRING({} 78,{} 79)", from(-1), from(-1)))).unwrap();
        for flushed in [false, true] {
            if flushed {
                dataset.flush().unwrap();
            }
            for place in [(0.0, 90.0), (f64::from(longitude), 90.0), (f64::from(longitude), 89.0)] {
                let found = keys_of(&dataset.snapshot(), &Query::new().nearest(place.0, place.1, 3));
                assert_eq!(found, [Key::Int(2), Key::Int(3)], "from {place:?}, lines at {longitude}");
            }
        }
    }
}

/// A box ends where floats are finest, at the equator or the meridian of Greenwich. Beside it, the
/// distance is a matter of nanometres. The node around its anti-matter must keep them too.
#[test]
fn anti_matter_precedes_its_entry_from_close_by() {
    let west = |x: i32| format!("POLYGON(({x} 0,{0} 0,{0} 1,{x} 1,{x} 0))", x + 1);
    let south = |y: i32| format!("POLYGON((0 {y},1 {y},1 {0},0 {0},0 {y}))", y + 1);
    for exponent in 8..=20 {
        let beside = 10f64.powi(-exponent);
        for (tile, place) in [(&west as &dyn Fn(i32) -> String, (beside, 0.5)), (&south, (0.5, beside))] {
            for moved in [false, true] {
                let (_store, dataset) = dataset(CoordinateSystem::LonLat, false);
                for (key, from) in [(1, -1), (2, 0), (3, 5)] {
                    dataset.insert(&line(key, &tile(from))).unwrap();
                }
                dataset.flush().unwrap();
                if moved {
                    dataset.upsert(&line(1, &tile(-9))).unwrap();
                } else {
                    dataset.delete(&Key::Int(1)).unwrap();
                }
                dataset.flush().unwrap();
                let found = keys_of(&dataset.snapshot(), &Query::new().nearest(place.0, place.1, 10));
                let wanted: &[i64] = if moved { &[2, 3, 1] } else { &[2, 3] };
                assert_eq!(found, wanted.iter().copied().map(Key::Int).collect::<Vec<_>>(), "from {place:?}");
            }
        }
    }
}

/// The squares of such distances are 0.
#[test]
fn tiny_distances_are_in_order() {
    let (_store, dataset) = dataset(CoordinateSystem::Planar, false);
    for key in [5, 2, 9, 1, 7] {
        let (near, far) = (f64::from(key) * 1e-300, f64::from(key) * 1e-300 + 1e-301);
        let tile =
            format!("POLYGON(({near:e} -1e-300,{far:e} -1e-300,{far:e} 1e-300,{near:e} 1e-300,{near:e} -1e-300))");
        dataset.insert(&line(i64::from(key), &tile)).unwrap();
    }
    for flushed in [false, true] {
        if flushed {
            dataset.flush().unwrap();
        }
        let found = keys_of(&dataset.snapshot(), &Query::new().nearest(0.0, 0.0, 5));
        assert_eq!(found, [1, 2, 5, 7, 9].map(Key::Int), "flushed: {flushed}");
    }
}

/// If fewer records than wanted meet the conditions, the search still reads only the part of the
/// index that meets the conditions' window.
#[test]
fn nearest_with_a_window_reads_only_nodes_in_the_window() {
    for system in [CoordinateSystem::Planar, CoordinateSystem::LonLat] {
        let (_store, dataset) = dataset(system, true);
        for number in 0..6_000_i64 {
            let (x, y) = ((number % 100) as f64 / 2.0, (number / 100) as f64 / 2.0);
            dataset.insert(&Record::at(number, x, y, vec![Value::Null, Value::Null])).unwrap();
        }
        dataset.flush().unwrap();
        let snapshot = dataset.snapshot();
        let window = |query: Query| query.window(40.1, 20.1, 41.1, 20.6);
        let mut rows = snapshot.query(&window(Query::new()).nearest(1.0, 1.0, 10)).unwrap();
        let found: usize = rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(found, 2, "{system:?}");
        let explanation = rows.explanation();
        assert!(explanation.candidates <= 8, "{system:?}: {explanation:?}");
        assert!(explanation.pages_visited <= 8, "{system:?}: {explanation:?}");
    }
}

/// A component farther away than the answer is not searched, and the explanation says so.
#[test]
fn far_components_are_pruned() {
    for points in [true, false] {
        let (_store, dataset) = dataset(CoordinateSystem::Planar, points);
        for (part, x) in [0.0, 100.0, 200.0].into_iter().enumerate() {
            for number in 0..50 {
                let key = (part * 50 + number) as i64;
                let (x, y) = (x + number as f64 / 10.0, number as f64 / 10.0);
                let record = match points {
                    true => Record::at(key, x, y, vec![Value::Null, Value::Null]),
                    false => line(key, &format!("LINESTRING({x} {y},{} {y})", x + 0.5)),
                };
                dataset.insert(&record).unwrap();
            }
            dataset.flush().unwrap();
        }
        let mut rows = dataset.snapshot().query(&Query::new().nearest(101.0, 1.0, 5)).unwrap();
        assert_eq!(rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 5);
        let explanation = rows.explanation();
        assert_eq!((explanation.components_searched, explanation.components_pruned), (1, 2), "points: {points}");
    }
}

/// Many records may be skipped before one meets the conditions. Memory is used only for undecided
/// entries.
#[test]
fn a_rarely_met_condition_takes_little_memory() {
    let (store, dataset) = dataset(CoordinateSystem::Planar, true);
    let records: Vec<Record> = (0..120_000_i64)
        .map(|number| Record::at(number, (number % 400) as f64, (number / 400) as f64, vec![Value::Null, Value::Null]))
        .collect();
    let mut importer = store.importer("many", dataset.schema().as_ref().clone()).unwrap();
    importer.push(&batch(&dataset.schema(), &records)).unwrap();
    importer.finish(&mut |row| Err(row.error)).unwrap();
    let snapshot = store.dataset("many").unwrap().snapshot();
    let rare = |record: &terrane::record::RecordView<'_>| {
        Ok(
            matches!(record.geometry(), Some(terrane::record::GeometryRef::Point(point)) if point.x == 390.0 && point.y == 290.0),
        )
    };
    let found = keys_of(&snapshot, &Query::new().predicate(rare).nearest(0.0, 0.0, 3));
    assert_eq!(found, [Key::Int(290 * 400 + 390)]);
}
