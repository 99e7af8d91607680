//! Slow readers and memory, results that do not fit, and the names in errors of damage.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use terrane_lsm::partition::{Generation, Version};
use terrane_lsm::search::{NearestSearch, Next, spatial_sources};
use terrane_space::{CoordinateSystem, Point, Rect};

use super::Query;
use super::index::antimatter_fits;
use super::metric::PlanarMetric;
use crate::schema::KeyType;
use crate::secondary::SPATIAL;
use crate::snapshot::RECORDS_STEP;
use crate::testing::{delete, points, points_within, put, replace_primary, replace_spatial};
use crate::{Condition, Dataset, Error, Key, KeyRef};

#[test]
fn a_slow_reader_holds_no_sealed_memory_of_any_window() {
    let (_store, dataset) = points_within(64 << 20, CoordinateSystem::LonLat, KeyType::Int64);
    // Disk components in the east, sealed and active memory in the west. The active part is more
    // than a chunk.
    put(&dataset, (0..2000).map(|number| (Key::Int(number), 175.0, number as f64 / 100.0)));
    dataset.flush().unwrap();
    put(&dataset, (2000..2100).map(|number| (Key::Int(number), -175.0, 1.0)));
    assert!(dataset.engine.seal(&dataset.handle).unwrap());
    put(&dataset, (2100..19_000).map(|number| (Key::Int(number), -175.0, number as f64 / 1000.0)));
    let snapshot = dataset.snapshot();
    let version = snapshot.versions_full();
    let [_, sealed] = &version[0].generations[..] else { panic!("{version:?}") };
    let sealed = Arc::downgrade(sealed);
    drop(version);
    let both = Query::new().window(170.0, -90.0, -170.0, 90.0).using_index("geometry");
    let mut rows = snapshot.query(&both).unwrap();
    let mut count = rows.next_batch().unwrap().unwrap().num_rows();
    dataset.flush().unwrap();
    while let Some(batch) = rows.next_batch().unwrap() {
        assert!(sealed.upgrade().is_none(), "the sealed generation lives after {count} rows");
        count += batch.num_rows();
    }
    assert_eq!(count, 19_000);
    assert_eq!(rows.explanation().windows, 2);
}

fn only_generation(version: &Version) -> Weak<Generation> {
    let [generation] = &version.generations[..] else { panic!("{version:?}") };
    Arc::downgrade(generation)
}

#[test]
fn a_scan_without_matches_holds_no_sealed_memory() {
    let (_store, dataset) = points_within(64 << 20, CoordinateSystem::Planar, KeyType::Int64);
    put(&dataset, (0..30_000).map(|number| (Key::Int(number), number as f64, 1.0)));
    let snapshot = dataset.snapshot();
    let sealed = only_generation(&snapshot.versions_full()[0]);
    let (seen, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, count_alive, flushed) = (seen.clone(), alive.clone(), dataset.clone());
    let matches_nothing = Query::new().predicate(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == 100 {
            flushed.flush()?;
        }
        count_alive.fetch_add(usize::from(sealed.upgrade().is_some()), Ordering::Relaxed);
        Ok(false)
    });
    assert_eq!(snapshot.count(&matches_nothing).unwrap(), 0);
    assert_eq!(seen.load(Ordering::Relaxed), 30_000);
    let alive = alive.load(Ordering::Relaxed);
    assert!(alive <= RECORDS_STEP, "the flushed generation lived for {alive} records");
}

#[test]
fn an_import_holds_no_sealed_memory_of_existing_records() {
    let (store, dataset) = points_within(64 << 20, CoordinateSystem::Planar, KeyType::Int64);
    put(&dataset, (0..30_000).map(|number| (Key::Int(number), number as f64, 1.0)));
    let sealed = only_generation(&dataset.handle.partitions.version(0));
    let keys = Int64Array::from_iter_values(0..30_000);
    let places = Arc::new(Float64Array::from(vec![1.0; keys.len()]));
    let columns: [(&str, ArrayRef); 3] = [("id", Arc::new(keys)), ("x", places.clone()), ("y", places)];
    let mut importer = store.importer("d", (*dataset.schema()).clone()).unwrap();
    assert!(importer.push(&RecordBatch::try_from_iter(columns).unwrap()).unwrap().is_empty());
    let (mut refused, mut alive) = (0, 0);
    let report = importer.finish(&mut |_| {
        refused += 1;
        if refused == 100 {
            dataset.flush()?;
        }
        alive += usize::from(sealed.upgrade().is_some());
        Ok(())
    });
    assert_eq!((report.unwrap().records, refused), (0, 30_000));
    assert!(alive <= RECORDS_STEP, "the flushed generation lived for {alive} records");
}

const EVERYTHING: Rect = Rect::new(f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY);

/// A dataset with `count` keys. All but every tenth are deleted from an older component.
fn mostly_deleted(count: u64, key_type: KeyType, key: impl Fn(u64) -> Key) -> (crate::Store, Dataset) {
    let (store, dataset) = points(CoordinateSystem::Planar, key_type);
    put(&dataset, (0..count).map(|number| (key(number), (number % 100) as f64, 1.0)));
    dataset.flush().unwrap();
    delete(&dataset, (0..count).filter(|number| number % 10 > 0).map(&key));
    dataset.flush().unwrap();
    (store, dataset)
}

fn visited(dataset: &Dataset, stop_after: usize) -> usize {
    let mut visited = 0;
    let visit = |_: KeyRef<'_>| {
        visited += 1;
        if visited == stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    dataset.snapshot().visit_window(-1.0, 0.0, 50.0, 2.0, visit).unwrap();
    visited
}

#[test]
fn with_too_many_deletes_the_records_are_scanned() {
    for (count, fits, key_type) in
        [(3_000, true, KeyType::UInt64), (60_000, false, KeyType::UInt64), (8_000, false, KeyType::Utf8)]
    {
        let key = |number| match key_type {
            KeyType::UInt64 => Key::UInt(number),
            _ => Key::Utf8(format!("{number}{}", "k".repeat(900))),
        };
        let (_store, dataset) = mostly_deleted(count, key_type, key);
        let snapshot = dataset.snapshot();
        let version = snapshot.versions_full();
        let what = format!("{count} keys of type {key_type}");
        assert_eq!(antimatter_fits(&snapshot, &version, SPATIAL as usize, &[EVERYTHING]).unwrap(), fits, "{what}");
        // Elsewhere nothing is deleted.
        let elsewhere = Rect::new(200.0, 0.0, 300.0, 1.0);
        assert!(antimatter_fits(&snapshot, &version, SPATIAL as usize, &[elsewhere]).unwrap(), "{what}");
        // A small part of the same components has few deletes.
        let small = Rect::new(2.5, 0.0, 3.5, 2.0);
        assert!(antimatter_fits(&snapshot, &version, SPATIAL as usize, &[small]).unwrap(), "{what}");
        let mut rows = snapshot.query(&Query::new().window(2.5, 0.0, 3.5, 2.0)).unwrap();
        assert_eq!(rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 0, "{what}");
        assert_eq!(rows.explanation().plan, "spatial index", "{what}");
        let window = Query::new().window(-1.0, 0.0, 50.0, 2.0);
        let wanted = (0..count).filter(|number| number % 10 == 0 && number % 100 <= 50).count();
        let mut rows = snapshot.query(&window.clone().columns(["id"])).unwrap();
        let found: usize = rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(found, wanted, "{what}");
        let plan = if fits { "spatial index only" } else { "primary scan" };
        assert_eq!(rows.explanation().plan, plan, "{what}");
        assert_eq!(snapshot.count(&window).unwrap(), wanted as u64, "{what}");
        assert_eq!(visited(&dataset, usize::MAX), wanted, "{what}");
        assert_eq!(visited(&dataset, 7), 7, "{what}");
    }
}

/// A nearest-neighbour search far from all live records meets all deleted ones.
#[test]
fn a_nearest_search_among_deleted_records_stays_within_its_memory() {
    let (_store, dataset) = mostly_deleted(10_000, KeyType::UInt64, Key::UInt);
    let snapshot = dataset.snapshot();
    let version = snapshot.versions_full();
    let sources = spatial_sources(&version, SPATIAL as usize).unwrap();
    let mut search = NearestSearch::new(&sources, PlanarMetric(Point::new(50.0, 1.0)), snapshot.sequence(), None);
    let (mut candidates, mut interruptions, mut memory_max) = (0, 0, 32 << 10);
    loop {
        match search.advance(memory_max).unwrap() {
            Next::Candidate(_) => candidates += 1,
            Next::End => break,
            Next::MemoryFull => {
                // One leaf, or one growth of a list, may come on top.
                let used = search.memory_used();
                assert!(used > memory_max && used < 2 * memory_max + (64 << 10), "{used} bytes of {memory_max}");
                interruptions += 1;
                memory_max += 32 << 10;
            }
        }
    }
    assert_eq!(candidates, 1000);
    assert!(interruptions > 10, "{interruptions} interruptions");
}

#[test]
fn with_too_many_deletes_the_nearest_are_found_by_a_scan() {
    let key_of = |number: u64, key_type| match key_type {
        KeyType::UInt64 => Key::UInt(number),
        _ => Key::Utf8(format!("{number:06}{}", "k".repeat(900))),
    };
    for (count, fits, key_type) in
        [(3_000, true, KeyType::UInt64), (40_000, false, KeyType::UInt64), (4_000, false, KeyType::Utf8)]
    {
        let (_store, dataset) = mostly_deleted(count, key_type, |number| key_of(number, key_type));
        let snapshot = dataset.snapshot();
        let live: Vec<u64> = (0..count).filter(|number| number % 10 == 0).collect();
        for k in [0, 1, 7, 300, 5000] {
            // Many distances are equal, so that keys decide.
            let mut wanted: Vec<(f64, u64)> = live.iter().map(|number| ((number % 100) as f64, *number)).collect();
            wanted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            wanted.truncate(k);
            let what = format!("{k} of {count} keys of type {key_type}");
            let mut found = Vec::new();
            let visit = |key: KeyRef<'_>, distance: f64| {
                let number = match key {
                    KeyRef::UInt(number) => number,
                    KeyRef::Utf8(text) => text[..6].parse().unwrap(),
                    _ => panic!("{key:?}"),
                };
                found.push((distance, number));
                ControlFlow::Continue(())
            };
            snapshot.visit_nearest(0.0, 1.0, k, visit).unwrap();
            assert!(found == wanted, "{what}: {found:?}");
            let condition = Query::new().nearest(0.0, 1.0, k).window(0.0, 0.0, 80.0, 2.0);
            let wanted = live.iter().filter(|number| **number % 100 <= 80).count().min(k);
            let mut rows = snapshot.query(&condition.columns(["id"])).unwrap();
            let found: usize = rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(found, wanted, "{what}");
            if k == 5000 {
                let plan = if fits { "nearest" } else { "nearest by primary scan" };
                assert_eq!(rows.explanation().plan, plan, "{what}");
            }
        }
    }
}

/// Conditions are evaluated on the records of every plan.
#[test]
fn with_too_many_deletes_conditions_are_still_evaluated() {
    let (_store, dataset) = mostly_deleted(60_000, KeyType::UInt64, Key::UInt);
    let snapshot = dataset.snapshot();
    let query =
        Query::new().condition(Condition::parse("id < 20000 and id != 10000 or id = 70000").unwrap()).columns(["id"]);
    let cases = [
        (query.clone().nearest(0.0, 1.0, 5000), "nearest by primary scan", 1999),
        (query.clone().nearest(0.0, 1.0, 5), "nearest", 5),
        (query.clone().window(-1.0, 0.0, 50.0, 2.0), "primary scan", 1199),
        (query, "primary scan", 1999),
    ];
    for (query, plan, wanted) in cases {
        let mut rows = snapshot.query(&query).unwrap();
        let found: usize = rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!((rows.explanation().plan, found), (plan, wanted), "{query:?}");
        assert_eq!(snapshot.count(&query).unwrap(), wanted as u64, "{query:?}");
    }
}

/// The results themselves must fit, for every plan.
#[test]
fn more_results_than_fit_are_refused() {
    let (_store, dataset) = mostly_deleted(15_000, KeyType::Utf8, |number| Key::Utf8(format!("{number:0900}")));
    let mut found = dataset.snapshot().query(&Query::new().nearest(0.0, 1.0, 700)).unwrap();
    assert_eq!(found.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 700);
    assert_eq!(found.explanation().plan, "nearest by primary scan");
    for k in [5000, usize::MAX] {
        let refused = dataset.snapshot().query(&Query::new().nearest(0.0, 1.0, k));
        let Err(Error::Memory { needed_bytes, .. }) = refused else { panic!("{refused:?}") };
        // There are no more results than records.
        let (found_min, found_max) = (k.min(15_000) as u64, k.min(30_000) as u64);
        assert!(needed_bytes >= found_min * 900, "the keys alone take more than {needed_bytes} bytes");
        assert!(needed_bytes <= found_max * 1000, "{found_max} results take less than {needed_bytes} bytes");
    }
}

#[test]
fn deleted_keys_in_memory_components_count_too() {
    let (_store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    put(&dataset, (0..3000).map(|number| (Key::Int(number), number as f64, 0.0)));
    dataset.flush().unwrap();
    delete(&dataset, (0..2000).map(Key::Int));
    let mut snapshot = dataset.snapshot();
    let version = snapshot.versions_full();
    assert!(antimatter_fits(&snapshot, &version, SPATIAL as usize, &[EVERYTHING]).unwrap());
    // Each window notes its own deleted keys while memory components are searched.
    assert!(!antimatter_fits(&snapshot, &version, SPATIAL as usize, &[EVERYTHING; 12]).unwrap());
    snapshot = dataset.snapshot();
    assert_eq!(snapshot.count(&Query::new().window(0.0, 0.0, 1e9, 1.0)).unwrap(), 1000);
}

/// The errors of all ways to read everything.
fn errors(dataset: &Dataset) -> Vec<Error> {
    let snapshot = dataset.snapshot();
    let queries = [
        Query::new(),
        Query::new().window(0.0, 0.0, 9.0, 9.0),
        Query::new().nearest(1.0, 1.0, 5),
        Query::new().window(0.0, 0.0, 9.0, 9.0).predicate(|record| Ok(record.geometry().is_some())),
        Query::new().nearest(1.0, 1.0, 5).predicate(|record| Ok(record.geometry().is_some())),
    ];
    let read = |query| -> Result<usize, Error> { snapshot.query(&query)?.map(|batch| Ok(batch?.num_rows())).sum() };
    queries.into_iter().filter_map(|query| read(query).err()).collect()
}

#[test]
fn damage_is_named_by_dataset_and_key() {
    let (_store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    put(&dataset, [(Key::Int(7), 1.0, 1.0)]);
    dataset.flush().unwrap();
    let seven = "the record with key 7 of dataset \"d\" is damaged: ";
    replace_primary(&dataset, &[(Key::Int(7), &[9, 9, 9, 9])]);
    let mut found = errors(&dataset);
    assert_eq!(found.len(), 5, "{found:?}");
    found.push(dataset.get(&Key::Int(7)).unwrap_err());
    let report = crate::CheckReport::of(&dataset.engine, false).unwrap();
    assert!(report.findings[0].reason.starts_with(seven), "{report}");
    replace_primary(&dataset, &[]);
    replace_spatial(&dataset, [(Key::Int(7), Rect::new(1.0, 1.0, 1.0, 1.0))]);
    let missing = errors(&dataset);
    assert_eq!(missing.len(), 4, "{missing:?}");
    for error in found.iter().chain(&missing) {
        assert!(error.is_damage() && error.exit_code() == Error::CORRUPTION, "{error:?}");
        assert!(error.to_string().starts_with(seven), "{error}");
    }
    assert!(missing.iter().all(|error| error.to_string().contains("the primary index has no record")), "{missing:?}");
}

#[test]
fn a_key_of_another_type_is_damage_of_its_dataset() {
    let (_store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    let key = Key::Binary(vec![1, 2, 3]);
    replace_spatial(&dataset, [(key, Rect::new(1.0, 1.0, 1.0, 1.0))]);
    let error = dataset.snapshot().visit_window(0.0, 0.0, 9.0, 9.0, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.is_damage(), "{error:?}");
    assert!(error.to_string().starts_with("a record of dataset \"d\" is damaged: 3 bytes"), "{error}");
}
