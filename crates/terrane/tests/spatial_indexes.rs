//! Spatial indexes beside the one that every dataset has: refusals, their use in queries,
//! explanations, and their options in the catalog. `store_model` shows that their answers are
//! right.

use std::sync::Arc;

use crate::support::kinds::{EXTENDED, KINDS};
use crate::support::{keys_of, schema, small_options};
use terrane::schema::KeyType;
use terrane::{
    Condition, CoordinateSystem, Dataset, Error, Explanation, Geometry, IndexKind, IndexOptions, Join, JoinOn, Key,
    MergePolicy, Options, Query, Record, Snapshot, Store, Value,
};
use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::{Manifest, ManifestFile};
use terrane_space::geometry::from_wkt;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const SYSTEMS: [CoordinateSystem; 2] = [CoordinateSystem::Planar, CoordinateSystem::LonLat];

fn created(points: bool, system: CoordinateSystem) -> (Arc<dyn Storage>, Store, Dataset) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = store.create_dataset("d", schema(KeyType::Int64, points, system)).unwrap();
    (storage, store, dataset)
}

fn grid() -> IndexOptions {
    IndexOptions::default().domain(0.0, 0.0, 64.0, 64.0)
}

fn has_grid(kind: IndexKind) -> bool {
    matches!(kind, IndexKind::Shb | IndexKind::Sif)
}

/// An index of the kind on a planar dataset, named like the kind.
fn create(dataset: &Dataset, kind: IndexKind) {
    let options = if has_grid(kind) { grid() } else { IndexOptions::default() };
    dataset.create_index_with(kind.name(), kind, &[], &options).unwrap();
}

/// Points on a square of 60 by 60.
fn put_points(dataset: &Dataset, numbers: impl Iterator<Item = i64>) {
    for number in numbers {
        let (x, y) = ((number % 60) as f64, (number / 60) as f64);
        dataset.upsert(&Record::at(number, x, y, vec![Value::Null, Value::Int(number % 500)])).unwrap();
    }
}

/// Rectangles, each of many small cells.
fn put_rectangles(dataset: &Dataset) {
    for number in 0..400 {
        let (x, y) = ((number % 20) * 3, (number / 20) * 3);
        let wkt = format!("POLYGON(({x} {y},{} {y},{} {},{x} {},{x} {y}))", x + 2, x + 2, y + 2, y + 2);
        let geometry = Some(Geometry::Wkb(from_wkt(&wkt).unwrap()));
        let values = vec![Value::Null, Value::Int(number)];
        dataset.upsert(&Record { key: Key::Int(number), geometry, values }).unwrap();
    }
}

fn explained(snapshot: &Snapshot, query: &Query) -> Explanation {
    let mut rows = snapshot.query(query).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    rows.explanation()
}

/// Whether an index was used, and the reason.
fn reason(explanation: &Explanation, index: &str) -> (bool, String) {
    let found = explanation.considered.iter().find(|considered| considered.index == index);
    let found = found.unwrap_or_else(|| panic!("{index} was not considered: {explanation}"));
    let shown =
        format!("index       {index}: {}, as {}", if found.is_used { "used" } else { "not used" }, found.reason);
    assert!(explanation.to_string().contains(&shown) || found.entries.is_some(), "{explanation}");
    (found.is_used, found.reason.clone())
}

fn refusal(result: terrane::Result<impl Sized>) -> String {
    let Err(error) = result else { panic!("it is not refused") };
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn unsuitable_geometries_are_refused_with_the_suitable_kinds() {
    for system in SYSTEMS {
        let (_storage, store, dataset) = created(false, system);
        put_rectangles(&dataset);
        for kind in KINDS {
            let options =
                if system == CoordinateSystem::Planar && has_grid(kind) { grid() } else { Default::default() };
            let result = dataset.create_index_with("i", kind, &[], &options);
            if EXTENDED.contains(&kind) {
                result.unwrap();
                dataset.drop_index("i").unwrap();
            } else {
                let refused = refusal(result);
                assert!(refused.contains(kind.name()) && refused.contains("kinds rtree and shb"), "{refused}");
            }
        }
        assert_eq!(store.info().unwrap().datasets[0].indexes.len(), 2);
    }
}

#[test]
fn unknown_and_invalid_options_of_a_kind_are_refused() {
    let planar = created(true, CoordinateSystem::Planar);
    let lonlat = created(true, CoordinateSystem::LonLat);
    let shapes = created(false, CoordinateSystem::Planar);
    let none = IndexOptions::default;
    let levels = |levels: &str| none().levels(levels.parse().unwrap());
    for (dataset, kind, options, reason) in [
        (&planar.2, IndexKind::Shb, none(), "needs a domain"),
        (&planar.2, IndexKind::Sif, levels("h"), "needs a domain"),
        (&lonlat.2, IndexKind::Shb, grid(), "leave the domain out"),
        (&lonlat.2, IndexKind::Sif, grid(), "leave the domain out"),
        (&planar.2, IndexKind::Shb, none().domain(0.0, 0.0, 0.0, 1.0), "a width and a height"),
        (&planar.2, IndexKind::Sif, none().domain(0.0, 0.0, f64::INFINITY, 1.0), "finite"),
        (&planar.2, IndexKind::Sif, none().domain(0.0, f64::NAN, 1.0, 1.0), "finite"),
        (
            &planar.2,
            IndexKind::Shb,
            none().domain(-1e308, -1e308, 1e308, 1e308),
            "wider or higher than float64 can hold",
        ),
        (&lonlat.2, IndexKind::Sif, levels("h,h,h,h,h,h,h,h"), "at most 28 in all"),
        (&planar.2, IndexKind::Dhb, levels("h"), "kind dhb does not take levels"),
        (&planar.2, IndexKind::Dhvb, grid(), "kind dhvb does not take a domain"),
        (&planar.2, IndexKind::RTree, grid(), "kind rtree does not take a domain"),
        (&planar.2, IndexKind::BTree, levels("h"), "kind btree does not take levels"),
        (&planar.2, IndexKind::Shb, grid().cells_per_object_max(4), "does not take a most number of cells"),
        (&planar.2, IndexKind::Sif, grid().cells_per_object_max(4), "does not take a most number of cells"),
        (&shapes.2, IndexKind::Shb, grid().cells_per_object_max(0), "1 to 1024 are possible"),
        (&shapes.2, IndexKind::Shb, grid().cells_per_object_max(1025), "1 to 1024 are possible"),
    ] {
        let columns: &[&str] = if kind == IndexKind::BTree { &["size"] } else { &[] };
        let refused = refusal(dataset.create_index_with("i", kind, columns, &options));
        assert!(refused.contains(reason), "{refused} instead of {reason}");
    }
    // An existing index with other options is another index.
    create(&planar.2, IndexKind::Sif);
    assert!(refusal(planar.2.create_index_with("sif", IndexKind::Sif, &[], &grid())).contains("already"));
    assert!(refusal(planar.2.create_index("j", IndexKind::Dhb, &["size"])).contains("which is x, y; not on size"));
}

#[test]
fn the_built_in_index_is_the_default_and_others_can_be_named() {
    let (_storage, store, dataset) = created(true, CoordinateSystem::Planar);
    put_points(&dataset, 0..3600);
    for kind in KINDS {
        create(&dataset, kind);
    }
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    let snapshot = dataset.snapshot();
    let window = Query::new().window(10.0, 10.0, 19.0, 19.0);
    let plain = explained(&snapshot, &window);
    assert_eq!(reason(&plain, "geometry"), (true, "it is the first usable spatial index".into()));
    for kind in KINDS {
        assert_eq!(reason(&plain, kind.name()), (false, "geometry comes first".into()));
        let named = window.clone().using_index(kind.name());
        let explanation = explained(&snapshot, &named);
        assert_eq!(reason(&explanation, kind.name()), (true, "it was asked for".into()));
        assert_eq!((explanation.plan, explanation.considered.len()), ("spatial index", 1), "{explanation}");
        assert_eq!((explanation.matches, explanation.lookups), (100, 100), "{explanation}");
        // Keys alone are answered from the index alone.
        let explanation = explained(&snapshot, &named.clone().columns(["id"]));
        assert_eq!((explanation.plan, explanation.matches, explanation.lookups), ("spatial index only", 100, 0));
        assert_eq!(snapshot.count(&named).unwrap(), 100);
    }
    let seven = || Query::new().condition(Condition::on("size").equals(7));
    for (query, plan, matches) in [
        (window.clone().using_index("primary"), "primary scan", 100),
        (Query::new().using_index("primary"), "primary scan", 3600),
        (Query::new().condition(Condition::on("id").less_than(5)).using_index("primary"), "primary range", 5),
        (seven().using_index("sizes"), "attribute index", 8),
        (seven().window(0.0, 0.0, 7.0, 9.0).using_index("sizes"), "attribute index", 1),
        (seven().window(0.0, 0.0, 7.0, 9.0).using_index("dhb"), "spatial index", 1),
    ] {
        let explanation = explained(&snapshot, &query);
        assert_eq!((explanation.plan, explanation.matches), (plan, matches), "{query:?} {explanation}");
        assert!(explanation.considered[0].is_used, "{explanation}");
    }
    for (query, reason) in [
        (window.clone().using_index("places"), "has no index \"places\"; it has primary, geometry, rtree, dhb"),
        (window.using_index("sizes"), "demands nothing of its first column, size"),
        (seven().using_index("dhvb"), "\"dhvb\", of kind dhvb: the query has no condition on places"),
        (Query::new().using_index("geometry"), "no condition on places"),
    ] {
        let refused = refusal(snapshot.query(&query));
        assert!(refused.contains(reason), "{refused} instead of {reason}");
        assert!(refusal(snapshot.count(&query)).contains(reason));
    }
    drop((snapshot, dataset));
    assert!(store.check(false).unwrap().findings.is_empty());
}

#[test]
fn trees_of_boxes_find_the_nearest_and_other_kinds_refuse() {
    let (_storage, _store, dataset) = created(true, CoordinateSystem::Planar);
    put_points(&dataset, 0..3600);
    for kind in KINDS {
        create(&dataset, kind);
    }
    dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
    let snapshot = dataset.snapshot();
    let near = Query::new().nearest(20.2, 30.1, 9);
    let plain = explained(&snapshot, &near);
    assert!(plain.plan == "nearest" && reason(&plain, "geometry").0, "{plain}");
    let wanted = keys_of(&snapshot, &near);
    for (name, plan) in [("geometry", "nearest"), ("rtree", "nearest"), ("primary", "nearest by primary scan")] {
        let named = near.clone().using_index(name);
        assert_eq!(keys_of(&snapshot, &named), wanted, "{name}");
        let explanation = explained(&snapshot, &named);
        assert_eq!((explanation.plan, reason(&explanation, name).0), (plan, true), "{explanation}");
    }
    for kind in &KINDS[1..] {
        assert!(!reason(&plain, kind.name()).0, "{plain}");
        let refused = refusal(snapshot.query(&near.clone().using_index(kind.name())));
        assert!(refused.contains("not trees of boxes") && refused.contains("use one of kind rtree"), "{refused}");
    }
    assert!(refusal(snapshot.query(&near.using_index("sizes"))).contains("it is not spatial"));
}

/// The numbers of shb and sif are entries, and an object has several.
#[test]
fn kinds_with_several_entries_per_object_change_no_plan() {
    for points in [true, false] {
        let (_storage, _store, dataset) = created(points, CoordinateSystem::Planar);
        if points {
            put_points(&dataset, 0..3600)
        } else {
            put_rectangles(&dataset)
        }
        dataset.flush().unwrap();
        dataset.create_index("sizes", IndexKind::BTree, &["size"]).unwrap();
        let plans = || {
            let snapshot = dataset.snapshot();
            let mut plans = Vec::new();
            for side in [1.0, 3.0, 6.0, 12.0, 30.0] {
                for sizes in [1, 5, 25, 125, 400] {
                    let few = Condition::on("size").less_than(sizes);
                    plans.push(explained(&snapshot, &Query::new().window(0.0, 0.0, side, side).condition(few)).plan);
                }
            }
            plans
        };
        let before = plans();
        assert!(before.contains(&"spatial index") && before.contains(&"attribute index"), "{before:?}");
        let cells = if points { grid() } else { grid().cells_per_object_max(300) };
        dataset.create_index_with("cells", IndexKind::Shb, &[], &cells).unwrap();
        if points {
            create(&dataset, IndexKind::Sif);
        }
        assert_eq!(plans(), before);
        // Each object is a candidate once, regardless of its number of cells.
        let snapshot = dataset.snapshot();
        let window = Query::new().window(1.0, 1.0, 40.0, 41.0);
        let (plain, cells) =
            (explained(&snapshot, &window), explained(&snapshot, &window.clone().using_index("cells")));
        assert_eq!((cells.candidates, cells.lookups), (plain.candidates, plain.lookups), "{cells}");
    }
}

/// The deleted keys of the first index do not fit in memory. An index with fewer is used.
#[test]
fn an_index_with_fewer_deletes_replaces_an_unusable_first_one() {
    let options = Options {
        merge_policy: MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX },
        ..small_options()
    };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let dataset = store.create_dataset("d", schema(KeyType::Int64, true, CoordinateSystem::Planar)).unwrap();
    let change = |keys: std::ops::Range<i64>, delete: bool| {
        for first in keys.step_by(500) {
            let mut batch = dataset.atomic_batch();
            for key in first..first + 500 {
                if delete {
                    batch.delete(&Key::Int(key)).unwrap();
                } else {
                    let (x, y) = ((key % 60) as f64, (key / 60) as f64);
                    batch.upsert(&Record::at(key, x, y, vec![Value::Null, Value::Null])).unwrap();
                }
            }
            batch.commit().unwrap();
        }
    };
    change(0..60_000, false);
    dataset.flush().unwrap();
    change(0..50_000, true);
    dataset.flush().unwrap();
    let everything = Query::new().window(-1.0, -1.0, 1e6, 1e6);
    let plain = explained(&dataset.snapshot(), &everything);
    let unfit = "its deleted keys do not fit in memory";
    assert_eq!((plain.plan, reason(&plain, "geometry")), ("primary scan", (false, unfit.into())), "{plain}");
    let (outer, inner) = dataset.snapshot_with(&dataset).unwrap();
    for (distance, of_records) in [(0.5, 0), (1e6, 2)] {
        let join = Join::new(JoinOn::WithinDistance(distance)).outer(Query::new().window(0.0, 900.0, 1.0, 900.0));
        let (pairs, told) = outer.count_join_explained(&inner, &join).unwrap();
        assert_eq!((told.probes, told.probes_of_records), (2, of_records), "{told}");
        assert_eq!(pairs, if of_records == 0 { 2 } else { 20_000 }, "{told}");
        assert_eq!(told.to_string().contains(&format!("2, 2 of them through all records, as {unfit}")), of_records > 0);
    }
    create(&dataset, IndexKind::Dhb);
    let snapshot = dataset.snapshot();
    let other = explained(&snapshot, &everything);
    assert_eq!((other.plan, other.matches), ("spatial index", 10_000), "{other}");
    assert!(!reason(&other, "geometry").0 && reason(&other, "dhb").0, "{other}");
    // It was loaded into one component and is searched. The other is not.
    assert_eq!((other.components_searched, other.components_pruned), (1, 0), "{other}");
    let few = Query::new().window(900.0, 900.0, 901.0, 901.0);
    assert!(explained(&snapshot, &few).components_pruned > 1);
    assert_eq!(explained(&snapshot, &few.using_index("dhb")).components_pruned, 1);
    create(&dataset, IndexKind::RTree);
    let near = Query::new().nearest(0.0, 900.0, 3).using_index("rtree");
    let near = explained(&dataset.snapshot(), &near);
    assert_eq!((near.plan, near.components_searched + near.components_pruned), ("nearest", 1), "{near}");
    // An index that the query names is reported too.
    let named = explained(&snapshot, &everything.clone().using_index("geometry"));
    assert_eq!((named.plan, named.matches), ("primary scan", 10_000), "{named}");
    assert_eq!(reason(&named, "geometry"), (false, unfit.into()));
}

/// A snapshot does not have later indexes.
#[test]
fn an_index_is_unknown_to_older_snapshots() {
    let (_storage, _store, dataset) = created(true, CoordinateSystem::Planar);
    put_points(&dataset, 0..100);
    let before = dataset.snapshot();
    create(&dataset, IndexKind::Dhb);
    let query = Query::new().window(0.0, 0.0, 9.0, 9.0).using_index("dhb");
    assert!(refusal(before.query(&query)).contains("has no index \"dhb\""));
    let seen = dataset.snapshot();
    dataset.drop_index("dhb").unwrap();
    assert_eq!(seen.count(&query).unwrap(), 20);
    assert!(refusal(dataset.snapshot().query(&query)).contains("has no index \"dhb\""));
}

/// Changes the last index in the catalog, and opens the store.
fn reopened_with(files: &Arc<dyn Storage>, change: impl Fn(&mut serde_json::Value)) -> terrane::Result<Store> {
    reopened_with_indexes(files, |indexes| change(indexes.last_mut().unwrap()))
}

fn reopened_with_indexes(
    files: &Arc<dyn Storage>,
    change: impl Fn(&mut Vec<serde_json::Value>),
) -> terrane::Result<Store> {
    let mut manifest = Manifest::read(&**files).unwrap().unwrap();
    change(manifest.datasets[0].catalog["indexes"].as_array_mut().unwrap());
    files.remove("MANIFEST").unwrap();
    drop(ManifestFile::create(files.clone(), manifest).unwrap());
    Store::open_on(files.clone(), small_options())
}

/// Every dataset has a primary and an R-tree, and slots of indexes are in the order of their
/// numbers.
#[test]
fn a_catalog_without_the_indexes_of_every_dataset_is_refused() {
    type Change = fn(&mut Vec<serde_json::Value>);
    let changes: [Change; 5] = [
        |indexes| indexes.clear(),
        |indexes| indexes.truncate(1),
        |indexes| drop(indexes.remove(0)),
        |indexes| indexes.swap(1, 2),
        |indexes| indexes[2] = indexes[1].clone(),
    ];
    for change in changes {
        let (storage, store, dataset) = created(true, CoordinateSystem::Planar);
        put_points(&dataset, 0..10);
        create(&dataset, IndexKind::Dhb);
        drop(dataset);
        store.close().unwrap();
        let refused = reopened_with_indexes(&storage, change).unwrap_err();
        assert!(refused.is_damage() && refused.to_string().contains("a catalog has the indexes"), "{refused}");
    }
}

#[test]
fn options_survive_the_session_and_hostile_ones_are_refused() {
    let (storage, store, dataset) = created(false, CoordinateSystem::Planar);
    put_rectangles(&dataset);
    let options = grid().levels("m,l".parse().unwrap()).cells_per_object_max(9);
    dataset.create_index_with("cells", IndexKind::Shb, &[], &options).unwrap();
    drop(dataset);
    store.close().unwrap();
    let store = reopened_with(&storage, |index| {
        let wanted = serde_json::json!({
            "kind": "shb", "cells_per_object_max": 9, "grid": {"levels": "m,l", "domain": [0.0, 0.0, 64.0, 64.0]}
        });
        assert_eq!(index["options"], wanted);
    });
    let store = store.unwrap();
    let info = store.info().unwrap();
    assert_eq!(info.datasets[0].indexes[2].options, Some(options));
    assert!(info.datasets[0].indexes[1].options.is_none());
    assert!(info.to_string().contains("levels m,l, at most 9 cells, domain 0,0,64,64"), "{info}");
    assert!(store.check(false).unwrap().findings.is_empty());
    store.close().unwrap();
    type Change = fn(&mut serde_json::Value);
    let hostile: [(Change, &str); 9] = [
        (|index| index["options"]["grid"]["levels"] = "h,h,h,h,h,h,h,h,h,h".into(), "at most 28 in all"),
        (|index| index["options"]["grid"]["levels"] = "h,x".into(), "l (4x4)"),
        (|index| index["options"]["grid"]["domain"] = serde_json::json!([5.0, 0.0, 5.0, 1.0]), "a width and a height"),
        (|index| index["options"]["grid"]["domain"] = serde_json::Value::Null, "needs a domain"),
        (|index| index["options"]["cells_per_object_max"] = 4_000_000_000u32.into(), "1 to 1024 are possible"),
        (|index| index["options"]["cells_per_object_max"] = (-1).into(), "-1"),
        (|index| index["options"] = serde_json::json!({"kind": "dhb"}), "they are those of kind dhb"),
        (|index| drop(index.as_object_mut().unwrap().remove("options")), "they are missing"),
        (
            |index| {
                index["options"] = serde_json::json!({"kind": "dhb"});
                index["kind"] = "dhb".into();
            },
            "points only",
        ),
    ];
    let manifest = Manifest::read(&*storage).unwrap().unwrap();
    for (change, reason) in hostile {
        let error = reopened_with(&storage, change).unwrap_err();
        assert!(matches!(&error, Error::Damaged { file, .. } if file == "MANIFEST"), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("\"cells\"") && text.contains(reason), "{text} instead of {reason}");
        storage.remove("MANIFEST").unwrap();
        drop(ManifestFile::create(storage.clone(), manifest.clone()).unwrap());
    }
    // A kind from a newer version is not damage, whatever its options are.
    let newer = reopened_with(&storage, |index| {
        (index["kind"], index["options"]) = ("zorder".into(), serde_json::json!({"kind": "zorder", "bits": 7}));
    });
    assert!(matches!(newer, Err(Error::Unsupported { .. })), "{newer:?}");
}

/// One log operation adds an entry per cell. All of them count in the memory of a batch.
#[test]
fn a_batch_of_objects_of_many_cells_keeps_the_memory_limit() {
    let (_storage, store, dataset) = created(false, CoordinateSystem::Planar);
    let cells = grid().levels("h,h,h".parse().unwrap()).cells_per_object_max(1024);
    dataset.create_index_with("cells", IndexKind::Shb, &[], &cells).unwrap();
    let commit = |objects: i64| {
        let mut batch = dataset.atomic_batch();
        for number in 0..objects {
            let wkt = format!("LINESTRING(0.3 0.3,{} 0.3)", 9.0 + (number * 5 % 7) as f64);
            let geometry = Some(Geometry::Wkb(from_wkt(&wkt).unwrap()));
            batch.upsert(&Record { key: Key::Int(number), geometry, values: vec![Value::Null; 2] }).unwrap();
        }
        batch.commit()
    };
    // For memory components, by the documented share of the limit. An object has 600 or more
    // entries.
    let limit = terrane::MEMORY_LIMIT_MIN as u64 / 8 * 3;
    let refused = commit(200).unwrap_err();
    assert!(matches!(&refused, Error::Memory { available_bytes, .. } if *available_bytes == limit), "{refused:?}");
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 0);
    commit(20).unwrap();
    store.flush().unwrap();
    let info = store.info().unwrap();
    assert!(info.datasets[0].indexes[2].entries > 20 * 500, "{info}");
}

/// If the first index is unreadable, answers come from another index or fail. They never lack its
/// rows.
#[test]
fn damaged_indexes_are_skipped_or_refused() {
    let (storage, store, dataset) = created(true, CoordinateSystem::Planar);
    put_points(&dataset, 0..500);
    create(&dataset, IndexKind::RTree);
    create(&dataset, IndexKind::Dhb);
    dataset.flush().unwrap();
    drop(dataset);
    store.close().unwrap();
    let manifest = Manifest::read(&*storage).unwrap().unwrap();
    let window = || Query::new().window(0.0, 0.0, 9.0, 9.0);
    let near = || Query::new().nearest(1.0, 1.0, 5);
    for (place, by_window, by_nearest) in [(1, Some("rtree"), Some("rtree")), (2, Some("dhb"), None), (3, None, None)] {
        for component in &manifest.datasets[0].partitions[0].indexes[place].components {
            storage.remove(&component_name(component.file_id)).unwrap();
        }
        let lenient = Options { lenient: true, ..small_options() };
        let store = Store::open_read_only_on(storage.clone(), lenient).unwrap();
        let snapshot = store.dataset("d").unwrap().snapshot();
        let lost = ["primary", "geometry", "rtree", "dhb"][place];
        let refused = |query: &Query| {
            let error = snapshot.query(query).unwrap_err();
            assert!(matches!(error, Error::DamagedIndex { .. }), "{error:?}");
        };
        refused(&window().using_index(lost));
        for (query, index) in [(window(), by_window), (near(), by_nearest)] {
            let Some(index) = index else {
                refused(&query);
                continue;
            };
            let explanation = explained(&snapshot, &query);
            assert_eq!(explanation.matches, if explanation.plan == "nearest" { 5 } else { 90 }, "{explanation}");
            assert!(reason(&explanation, index).0, "{explanation}");
            assert_eq!(reason(&explanation, "geometry"), (false, "it is damaged".into()));
        }
    }
}

#[test]
fn an_interrupted_creation_is_completed_only_with_the_same_options() {
    let (storage, store, dataset) = created(true, CoordinateSystem::Planar);
    put_points(&dataset, 0..500);
    let options = grid().levels("h,l".parse().unwrap());
    dataset.create_index_with("cells", IndexKind::Sif, &[], &options).unwrap();
    drop(dataset);
    store.close().unwrap();
    let mut manifest = Manifest::read(&*storage).unwrap().unwrap();
    // The state before the load was installed.
    let state = &mut manifest.datasets[0].partitions[0].indexes[2];
    (state.building, state.components) = (true, Vec::new());
    storage.remove("MANIFEST").unwrap();
    drop(ManifestFile::create(storage.clone(), manifest).unwrap());
    let store = Store::open_on(storage, small_options()).unwrap();
    let dataset = store.dataset("d").unwrap();
    let window = Query::new().window(0.0, 0.0, 9.0, 9.0).using_index("cells");
    assert!(refusal(dataset.snapshot().query(&window)).contains("it is not built yet"));
    let plain = explained(&dataset.snapshot(), &Query::new().window(0.0, 0.0, 9.0, 9.0));
    assert_eq!((plain.plan, plain.matches), ("spatial index", 90), "{plain}");
    let other = dataset.create_index_with("cells", IndexKind::Sif, &[], &grid());
    assert!(refusal(other).contains("has an index \"cells\" already"));
    dataset.create_index_with("cells", IndexKind::Sif, &[], &options).unwrap();
    assert_eq!(dataset.snapshot().count(&window).unwrap(), 90);
    drop(dataset);
    assert!(store.check(false).unwrap().findings.is_empty());
}
