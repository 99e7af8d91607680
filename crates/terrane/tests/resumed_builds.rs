//! Indexes whose creation is interrupted: it goes on after what was loaded, from what the records
//! are by then.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use crate::support::{schema, small_options};
use terrane::schema::KeyType;
use terrane::{
    Condition, CoordinateSystem, Dataset, Durability, Error, Geometry, IndexKind, IndexOptions, Key, Options, Query,
    Record, Store, Value,
};
use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::{IndexState, Loaded, Manifest};
use terrane_space::geometry::from_wkt;
use terrane_storage::Storage;
use terrane_storage::event::{DiskEvent, Event};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};
use terrane_testkit::hook::HookedStorage;

const RECORDS: i64 = 4500;

fn options() -> Options {
    Options { threads_max: Some(1), disk_reserve: terrane::DiskReserve::Bytes(0), ..small_options() }
}

/// A name of many words, and a square of many cells; both differ from those of other versions.
fn record(key: i64, version: i64) -> Record {
    let words: Vec<String> = (0..24).map(|word| format!("w{}", (key * 7 + word * 13 + version) % 5000)).collect();
    let (x, y) = (((key * 17 + version) % 97) as f64, ((key * 29 + version * 3) % 89) as f64);
    let wkt = format!("POLYGON(({x} {y},{} {y},{} {},{x} {},{x} {y}))", x + 9.0, x + 9.0, y + 9.0, y + 9.0);
    let geometry = Some(Geometry::Wkb(from_wkt(&wkt).unwrap()));
    Record { key: Key::Int(key), geometry, values: vec![Value::Utf8(words.join(" ")), Value::Int(version)] }
}

/// A dataset that was closed, of as many partitions.
fn base(partitions: usize) -> Image {
    base_with(partitions, options())
}

fn base_with(partitions: usize, options: Options) -> Image {
    let controller = Controller::new();
    let store = Store::open_on(controller.storage(), options).unwrap();
    let dataset_options = terrane::DatasetOptions { partitions };
    let dataset =
        store.create_dataset_with("d", schema(KeyType::Int64, false, CoordinateSystem::Planar), &dataset_options);
    let dataset = dataset.unwrap();
    (0..RECORDS).for_each(|key| dataset.insert(&record(key, 0)).unwrap());
    dataset.flush().unwrap();
    drop(dataset);
    store.close().unwrap();
    controller.process_kill(controller.events())
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn create(dataset: &Dataset, kind: IndexKind) -> terrane::Result<()> {
    match kind {
        IndexKind::Inverted => dataset.create_index("i", kind, &["name"]),
        _ => {
            let grid = IndexOptions::default().domain(0.0, 0.0, 128.0, 128.0).cells_per_object_max(60);
            dataset.create_index_with("i", kind, &[], &grid)
        }
    }
}

/// What the manifest says of the index in each partition.
fn states(storage: &dyn Storage) -> Vec<IndexState> {
    let manifest = Manifest::read(storage).unwrap().unwrap();
    let partitions = manifest.datasets[0].partitions.iter();
    partitions.filter_map(|partition| partition.indexes.get(2).cloned()).collect()
}

fn loads(storage: &dyn Storage) -> Vec<Loaded> {
    states(storage).into_iter().filter_map(|state| state.loaded).collect()
}

fn assert_no_strays(storage: &dyn Storage) {
    let mut files = storage.list("components").unwrap();
    files.sort();
    let manifest = Manifest::read(storage).unwrap().unwrap();
    let mut named: Vec<String> = manifest.components().map(|meta| component_name(meta.file_id)).collect();
    named.iter_mut().for_each(|name| *name = name.trim_start_matches("components/").to_owned());
    named.sort();
    assert_eq!(files, named);
}

/// Component files that were begun under a controller.
fn components_made(controller: &Controller) -> usize {
    let is_one =
        |event: &Event| matches!(event, Event::Disk(DiskEvent::Create { name, .. }) if name.starts_with("components/"));
    controller.log().iter().filter(|event| is_one(event)).count()
}

/// Changes records on both sides of where the load stopped, whatever that is.
fn change(dataset: &Dataset, model: &mut BTreeMap<i64, i64>, version: i64) {
    for key in (version..RECORDS).step_by(37) {
        if model.remove(&key).is_some() {
            assert!(dataset.delete(&Key::Int(key)).unwrap());
        }
    }
    for key in (version * 5..RECORDS + 60).step_by(41) {
        dataset.upsert(&record(key, version)).unwrap();
        model.insert(key, version);
    }
}

/// Every entry once, and as the records say.
fn assert_agrees(store: &Store, dataset: &Dataset, model: &BTreeMap<i64, i64>, kind: IndexKind, what: &str) {
    let report = store.check(false).unwrap();
    assert!(report.is_clean(), "{what}: {report:?}");
    let index = store.info().unwrap().datasets[0].indexes[2].clone();
    assert!(!index.is_building && index.name == "i", "{what}: {index:?}");
    let snapshot = dataset.snapshot();
    let query = match kind {
        IndexKind::Inverted => Query::new().condition(Condition::on("name").matches("w77")),
        _ => Query::new().window(20.5, 20.5, 25.5, 25.5),
    };
    let count = |index: &str| snapshot.count(&query.clone().using_index(index)).unwrap();
    assert_eq!(count("i"), count("primary"), "{what}");
    assert_eq!(snapshot.count(&Query::new()).unwrap(), model.len() as u64, "{what}");
}

/// Places behind steps of the manifest from an event on.
fn steps(controller: &Controller, from: usize) -> Vec<usize> {
    let is_step = |event: &Event| matches!(event, Event::Disk(DiskEvent::Rename { to, .. }) if &**to == "MANIFEST");
    let log = controller.log();
    log.iter().enumerate().skip(from).filter(|(_, event)| is_step(event)).map(|(at, _)| at + 1).collect()
}

/// Those of which each has loaded more than the one before.
fn cuts(controller: &Controller, from: usize) -> Vec<usize> {
    let mut cuts = steps(controller, from);
    let mut before = Vec::new();
    cuts.retain(|&cut| {
        let loaded = loads(&*controller.process_kill(cut).storage());
        let is_more = !loaded.is_empty() && loaded != before;
        before = loaded;
        is_more
    });
    cuts
}

#[test]
fn a_creation_that_a_crash_interrupts_goes_on_behind_the_runs_that_it_has() {
    for (kind, partitions) in [(IndexKind::Inverted, 2), (IndexKind::Shb, 1)] {
        let base = base(partitions);
        let controller = base.restart();
        let store = Store::open_on(controller.storage(), options()).unwrap();
        let dataset = store.dataset("d").unwrap();
        create(&dataset, kind).unwrap();
        let whole = components_made(&controller);
        let cuts = cuts(&controller, 0);
        assert!(cuts.len() > 1, "{kind:?}: {cuts:?}");
        for (number, cut) in cuts.into_iter().enumerate() {
            let budget = Budget { exhaustive_pending: 0, samples: 1, name_order: NameOrder::AnySubset };
            let crashes = controller.images(cut, &budget, 1).chain([controller.process_kill(cut)]);
            for image in crashes {
                let what = format!("{kind:?}, {partitions} partitions, {}", image.describe());
                let mut model: BTreeMap<i64, i64> = (0..RECORDS).map(|key| (key, 0)).collect();
                let controller = image.restart();
                let kept: usize = loads(&*controller.storage()).iter().map(|loaded| loaded.runs.len()).sum();
                let store = Store::open_on(controller.storage(), options()).unwrap();
                let dataset = store.dataset("d").unwrap();
                dataset.build_indexes().unwrap();
                assert_eq!(components_made(&controller) + kept, whole, "{what}: {kept} runs were there");
                assert_agrees(&store, &dataset, &model, kind, &what);
                drop((dataset, store));
                // The same after changes, of which some are on disk and some in the log.
                let storage = image.storage();
                let store = Store::open_on(storage.clone(), options()).unwrap();
                let dataset = store.dataset("d").unwrap();
                change(&dataset, &mut model, 1 + number as i64);
                dataset.flush().unwrap();
                change(&dataset, &mut model, 20 + number as i64);
                dataset.build_indexes().unwrap();
                assert_agrees(&store, &dataset, &model, kind, &what);
                change(&dataset, &mut model, 40 + number as i64);
                dataset.flush().unwrap();
                dataset.compact().unwrap();
                assert_agrees(&store, &dataset, &model, kind, &what);
                assert_no_strays(&*storage);
            }
        }
    }
}

/// Records that are in memory when a creation begins are not kept by a log, and may be by runs.
#[test]
fn without_a_log_no_run_has_an_entry_of_a_record_that_a_crash_takes() {
    let options = || Options { durability: Some(Durability::None), ..options() };
    let controller = base_with(2, options()).restart();
    let store = Store::open_on(controller.storage(), options()).unwrap();
    let dataset = store.dataset("d").unwrap();
    // New ones before, among and behind those on disk, and old ones that change.
    (-200..0).chain((0..RECORDS + 200).step_by(9)).for_each(|key| dataset.upsert(&record(key, 1)).unwrap());
    let begun = controller.events();
    create(&dataset, IndexKind::Inverted).unwrap();
    let cuts = cuts(&controller, begun);
    assert!(cuts.len() > 1, "{cuts:?}");
    for cut in cuts {
        let image = controller.process_kill(cut);
        let store = Store::open_on(image.storage(), options()).unwrap();
        let dataset = store.dataset("d").unwrap();
        dataset.build_indexes().unwrap();
        let left = dataset.snapshot().count(&Query::new()).unwrap();
        assert!(left >= RECORDS as u64, "{left} records");
        let model = (0..left as i64).map(|key| (key, 0)).collect();
        assert_agrees(&store, &dataset, &model, IndexKind::Inverted, &image.describe());
    }
}

#[test]
fn a_creation_that_goes_on_can_be_interrupted_at_any_step_and_dropped() {
    let kind = IndexKind::Shb;
    let controller = base(1).restart();
    let store = Store::open_on(controller.storage(), options()).unwrap();
    create(&store.dataset("d").unwrap(), kind).unwrap();
    let first = cuts(&controller, 0)[1];
    // Changes, and the rest of the creation.
    let again = controller.process_kill(first).restart();
    let store = Store::open_on(again.storage(), options()).unwrap();
    let dataset = store.dataset("d").unwrap();
    let mut model: BTreeMap<i64, i64> = (0..RECORDS).map(|key| (key, 0)).collect();
    change(&dataset, &mut model, 3);
    let changed = again.events();
    dataset.build_indexes().unwrap();
    let cuts = cuts(&again, changed);
    let is_merging = |cut: &&usize| loads(&*again.process_kill(**cut).storage()) == [Loaded::OVERLAPPING];
    assert_eq!(cuts.iter().filter(is_merging).count(), 1, "it is merged once all is there");
    for cut in cuts {
        let image = again.process_kill(cut);
        let storage = image.storage();
        let store = Store::open_on(storage.clone(), options()).unwrap();
        let dataset = store.dataset("d").unwrap();
        let refused = dataset.snapshot().count(&Query::new().window(0.0, 0.0, 1.0, 1.0).using_index("i")).unwrap_err();
        assert!(refused.to_string().contains("not built"), "{refused}");
        let mut changed = model.clone();
        change(&dataset, &mut changed, 50);
        dataset.build_indexes().unwrap();
        assert_agrees(&store, &dataset, &changed, kind, &image.describe());
        assert_no_strays(&*storage);
        drop((dataset, store));

        // A backup has no runs, and the creation begins anew where it is restored.
        let (storage, backup, place) = (image.storage(), memory(), memory());
        let store = Store::open_on(storage, options()).unwrap();
        store.backup_to(backup.clone(), None).unwrap();
        Store::restore_on(&backup, place.clone(), None, &options()).unwrap();
        drop(store);
        let store = Store::open_on(place.clone(), options()).unwrap();
        let dataset = store.dataset("d").unwrap();
        dataset.build_indexes().unwrap();
        assert_agrees(&store, &dataset, &model, kind, &image.describe());
        assert_no_strays(&*place);
        drop((dataset, store));

        let storage = image.storage();
        let store = Store::open_on(storage.clone(), options()).unwrap();
        let dataset = store.dataset("d").unwrap();
        dataset.drop_index("i").unwrap();
        assert_eq!(states(&*storage), []);
        assert_no_strays(&*storage);
        create(&dataset, kind).unwrap();
        assert_agrees(&store, &dataset, &model, kind, &image.describe());
    }
}

#[test]
fn a_run_that_is_damaged_is_told_and_the_next_creation_begins_anew() {
    let kind = IndexKind::Inverted;
    let controller = base(1).restart();
    let store = Store::open_on(controller.storage(), options()).unwrap();
    create(&store.dataset("d").unwrap(), kind).unwrap();
    let cut = *cuts(&controller, 0).last().unwrap();
    let storage: Arc<dyn Storage> = controller.process_kill(cut).storage();
    let run = component_name(loads(&*storage)[0].runs[0].file_id);
    let file = storage.open(&run, terrane_storage::OpenMode::Write).unwrap();
    file.write_all_at(&[0xff; 64], 4096).unwrap();
    let store = Store::open_on(storage.clone(), options()).unwrap();
    let dataset = store.dataset("d").unwrap();
    let error = dataset.build_indexes().unwrap_err();
    assert!(error.is_damage() && error.to_string().contains(&run), "{error}");
    assert_eq!(loads(&*storage), []);
    drop((dataset, store));
    let store = Store::open_on(storage.clone(), options()).unwrap();
    let dataset = store.dataset("d").unwrap();
    dataset.build_indexes().unwrap();
    let model: BTreeMap<i64, i64> = (0..RECORDS).map(|key| (key, 0)).collect();
    assert_agrees(&store, &dataset, &model, kind, "anew");
    assert_no_strays(&*storage);
}

/// Whoever asks for an index again whose creation was interrupted finds it built, also where the
/// background was faster.
#[test]
fn a_creation_that_is_asked_for_again_succeeds_once_although_it_was_completed_meanwhile() {
    let kind = IndexKind::Inverted;
    let controller = base(1).restart();
    let store = Store::open_on(controller.storage(), options()).unwrap();
    create(&store.dataset("d").unwrap(), kind).unwrap();
    let cut = cuts(&controller, 0)[0];
    let model: BTreeMap<i64, i64> = (0..RECORDS).map(|key| (key, 0)).collect();
    let refused = |result: terrane::Result<()>, advice: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, terrane::Error::Usage(_)) && error.to_string().contains(advice), "{error}");
    };
    for is_completed_before in [true, false] {
        let storage: Arc<dyn Storage> = controller.process_kill(cut).storage();
        let store = Store::open_on(storage.clone(), options()).unwrap();
        let dataset = store.dataset("d").unwrap();
        if is_completed_before {
            dataset.build_indexes().unwrap();
        }
        refused(dataset.create_index("i", IndexKind::BTree, &["size"]), "choose another name, or drop it first");
        for name in ["primary", "geometry"] {
            let of_all = dataset.create_index(name, IndexKind::BTree, &["size"]);
            refused(of_all, "choose another name, as every dataset has this one");
        }
        create(&dataset, kind).unwrap();
        assert_agrees(&store, &dataset, &model, kind, "asked for again");
        refused(create(&dataset, kind), "it is complete, and as it was asked for, so nothing is left to do");
        drop((dataset, store));
        // Of an index that is there, nobody knows how it came about.
        let store = Store::open_on(storage, options()).unwrap();
        refused(create(&store.dataset("d").unwrap(), kind), "it is complete, and as it was asked for");
    }
    // One that is dropped meanwhile is created anew.
    let store = Store::open_on(controller.process_kill(cut).storage(), options()).unwrap();
    let dataset = store.dataset("d").unwrap();
    dataset.build_indexes().unwrap();
    dataset.drop_index("i").unwrap();
    create(&dataset, kind).unwrap();
    assert_agrees(&store, &dataset, &model, kind, "dropped");
    refused(create(&dataset, kind), "it is complete");
}

/// Whoever closes the store is told, unless the index was completed since.
#[test]
fn an_index_that_cannot_be_completed_is_named() {
    let kind = IndexKind::Inverted;
    let controller = base(1).restart();
    let store = Store::open_on(controller.storage(), options()).unwrap();
    create(&store.dataset("d").unwrap(), kind).unwrap();
    let cut = cuts(&controller, 0)[0];
    for is_completed_since in [false, true] {
        let hooked = Arc::new(HookedStorage::new(controller.process_kill(cut).storage()));
        let (begun, has_begun) = mpsc::channel();
        hooked.on_create(move |name| {
            if name.starts_with("components/") {
                let _ = begun.send(());
                panic!("a build that panics on purpose");
            }
        });
        let store = Store::open_on(hooked, Options { background: true, ..options() }).unwrap();
        has_begun.recv().unwrap();
        if is_completed_since {
            store.dataset("d").unwrap().build_indexes().unwrap();
        }
        match store.close() {
            Ok(()) => assert!(is_completed_since),
            Err(told) => {
                assert!(!is_completed_since, "{told}");
                assert!(matches!(&told, Error::Unbuilt { dataset, index, .. } if dataset == "d" && index == "i"));
                let told = told.to_string();
                assert!(told.contains("a build that panics on purpose"), "{told}");
                assert!(told.contains("Create it again") && told.contains("or drop it"), "{told}");
            }
        }
    }
}

/// Of several that are not complete, one can be asked for without the others, and who closes the
/// store is told of one that is left.
#[test]
fn what_stops_at_an_index_that_cannot_be_completed_keeps_no_other_from_it() {
    let kind = IndexKind::Inverted;
    let controller = base(1).restart();
    let store = Store::open_on(controller.storage(), options()).unwrap();
    create(&store.dataset("d").unwrap(), kind).unwrap();
    let controller = controller.process_kill(cuts(&controller, 0)[0]).restart();
    let store = Store::open_on(controller.storage(), options()).unwrap();
    let from = controller.events();
    let create_other = |dataset: &Dataset| dataset.create_index("j", IndexKind::BTree, &["size"]);
    create_other(&store.dataset("d").unwrap()).unwrap();
    let both = controller.process_kill(steps(&controller, from)[0]);
    let building = |store: &Store| -> Vec<String> {
        let indexes = store.info().unwrap().datasets[0].indexes.clone();
        indexes.into_iter().filter(|index| index.is_building).map(|index| index.name).collect()
    };
    for (is_dropped, left) in [(false, "i"), (true, "j")] {
        let hooked = Arc::new(HookedStorage::new(both.storage()));
        let (begun, has_begun) = mpsc::channel();
        hooked.on_create(move |name| {
            if name.starts_with("components/") {
                let _ = begun.send(());
                panic!("a build that panics on purpose");
            }
        });
        let store = Store::open_on(hooked.clone(), Options { background: true, ..options() }).unwrap();
        assert_eq!(building(&store), ["i", "j"]);
        has_begun.recv().unwrap();
        let dataset = store.dataset("d").unwrap();
        // Waits until the build has ended.
        dataset.create_index("primary", IndexKind::BTree, &["size"]).unwrap_err();
        match is_dropped {
            true => dataset.drop_index("i").unwrap(),
            false => create_other(&dataset).unwrap(),
        }
        assert_eq!(building(&store), [left]);
        drop(dataset);
        let told = store.close().unwrap_err();
        assert!(matches!(&told, Error::Unbuilt { index, .. } if index == left), "{told}");
        assert!(told.to_string().contains("a build that panics on purpose"), "{told}");
        let of_other = "it was not begun, as the index \"i\" could not be completed before";
        assert_eq!(told.to_string().contains(of_other), is_dropped, "{told}");
    }
}

#[test]
fn a_creation_that_has_no_room_tells_what_is_left_of_it() {
    let kind = IndexKind::Inverted;
    // What is free when the load begins: room for the manifest, or not even for that.
    for (free_bytes, is_dropped) in [(Some(16 << 10), true), (None, false)] {
        let disk = MemoryStorage::new();
        let hooked = Arc::new(HookedStorage::new(Arc::new(disk.clone())));
        let store = Store::open_on(hooked.clone(), options()).unwrap();
        let dataset = store.create_dataset("d", schema(KeyType::Int64, false, CoordinateSystem::Planar)).unwrap();
        (0..RECORDS).for_each(|key| dataset.insert(&record(key, 0)).unwrap());
        dataset.flush().unwrap();
        let filled = disk.clone();
        hooked.on_create(move |name| {
            if name.starts_with("components/") {
                filled.set_capacity(free_bytes.map_or(0, |bytes| filled.used_bytes() + bytes));
            }
        });
        let told = create(&dataset, kind).unwrap_err();
        hooked.unhook();
        let indexes = &store.info().unwrap().datasets[0].indexes;
        let left: Vec<bool> = indexes.iter().filter(|index| index.name == "i").map(|index| index.is_building).collect();
        let (index, cause, says) = match &told {
            Error::Uncreated { index, cause, .. } if is_dropped => (index, cause, "was not created"),
            Error::Unbuilt { index, cause, .. } if !is_dropped => (index, cause, "was not completed"),
            _ => panic!("{told}"),
        };
        assert!(index == "i" && matches!(**cause, Error::Full { .. }), "{told}");
        assert!(told.to_string().contains("index \"i\" of dataset \"d\""), "{told}");
        assert!(told.to_string().contains(says), "{told}");
        assert_eq!(left, if is_dropped { vec![] } else { vec![true] });
        if !is_dropped {
            // Who asks again before there is room is told the same.
            let again = create(&dataset, kind).unwrap_err();
            assert!(matches!(&again, Error::Unbuilt { index, .. } if index == "i"), "{again}");
        }
        disk.set_capacity(u64::MAX);
        create(&dataset, kind).unwrap();
        let model: BTreeMap<i64, i64> = (0..RECORDS).map(|key| (key, 0)).collect();
        assert_agrees(&store, &dataset, &model, kind, "once there is room");
    }
}
