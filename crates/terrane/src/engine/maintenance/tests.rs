use terrane_lsm::log::LogOptions;
use terrane_lsm::policy::MergePolicy;
use terrane_storage::{MemoryStorage, Storage};

use super::*;
use crate::dataset::Dataset;
use crate::options::Options;
use crate::record::Record;
use crate::schema::{GeometryColumn, KeyColumn, KeyType, Schema};

fn dataset(engine: &Arc<Engine>, name: &str) -> Dataset {
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let schema = Schema::new(key, geometry, terrane_space::CoordinateSystem::Planar, Vec::new()).unwrap();
    Dataset { engine: engine.clone(), handle: engine.create_dataset(name, schema).unwrap() }
}

/// A write for which no flush can make room is refused, and does not wait for ever.
#[test]
fn a_write_that_can_never_have_room_is_refused() {
    for background in [false, true] {
        let options = Options { background: false, ..Options::default() };
        let mut engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
        let changed = Arc::get_mut(&mut engine).unwrap();
        changed.shares.components = 0;
        changed.options.background = background;
        engine.start_maintenance().unwrap();
        let refused = dataset(&engine, "d").insert(&Record::at(1, 1.0, 2.0, Vec::new()));
        assert!(matches!(refused, Err(Error::Memory { .. })), "{refused:?}");
        engine.close().unwrap();
    }
}

/// Merges that are far behind slow the writes, and let them pass.
#[test]
fn writes_are_slowed_while_merges_are_far_behind() {
    let none = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    let options = Options { background: false, merge_policy: none, ..Options::default() };
    let mut engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
    let begun = dataset(&engine, "d");
    let insert = |dataset: &Dataset, key| dataset.insert(&Record::at(key, 1.0, 2.0, Vec::new())).unwrap();
    for key in 0..25 {
        insert(&begun, key);
        begun.flush().unwrap();
    }
    drop(begun);
    // In the background, where nobody merges: there are no threads.
    let changed = Arc::get_mut(&mut engine).unwrap();
    changed.options.background = true;
    changed.options.merge_policy = MergePolicy::Prefix { mergeable_bytes_max: 1 << 30, components_max: 2 };
    let slowed = |engine: &Engine| engine.maintenance.counters().slowed;
    let reached = Dataset { engine: engine.clone(), handle: engine.dataset("d").unwrap() };
    engine.note_components();
    insert(&reached, 100);
    assert_eq!(slowed(&engine), 1);
    engine.compact(&reached.handle).unwrap();
    insert(&reached, 101);
    assert_eq!(slowed(&engine), 1, "compacted");
    engine.maintenance.crowded.store(true, Ordering::Relaxed);
    engine.merge_all().unwrap();
    insert(&reached, 102);
    assert_eq!(slowed(&engine), 1, "merges have caught up");
    assert_eq!(reached.snapshot().count(&crate::Query::new()).unwrap(), 28);
}

/// Datasets are merged in turn, and of an index all that is there.
#[test]
fn merges_take_all_small_components_at_once() {
    let none = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    let options = Options { background: false, merge_policy: none, ..Options::default() };
    let mut engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
    for (name, flushes) in [("a", 12), ("b", 3)] {
        let dataset = dataset(&engine, name);
        for key in 0..flushes {
            dataset.insert(&Record::at(key, 1.0, 2.0, Vec::new())).unwrap();
            dataset.flush().unwrap();
        }
    }
    let policy = MergePolicy::Prefix { mergeable_bytes_max: 1 << 30, components_max: 3 };
    Arc::get_mut(&mut engine).unwrap().options.merge_policy = policy;
    engine.merge_all().unwrap();
    assert_eq!(engine.maintenance.counters().merges, 4, "one of each index");
    for handle in engine.datasets.load().values() {
        assert!(handle.partition.version().components.iter().all(|parts| parts.len() == 1));
    }
}

/// A flush may take its manifest step between another one's step and its exchange of the
/// version. It then meets a generation of the other dataset that is on disk already, and whose
/// part of the log is about to be removed.
#[test]
fn a_flush_that_meets_a_generation_already_on_disk_leaves_the_low_water_mark() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let log = LogOptions { segment_size: 8 << 10, first_segment_size: 8 << 10, spare_segments: 0 };
    let options = Options { background: false, log, ..Options::default() };
    let engine = Engine::open(storage.clone(), options.clone()).unwrap();
    let (older, newer) = (dataset(&engine, "older"), dataset(&engine, "newer"));
    let log = engine.log.as_ref().unwrap();
    let begin = log.end_lsn();
    // The first flush has not come to removing segments when the second takes its step.
    let held = log.hold(begin).unwrap();
    for key in 0..200 {
        older.insert(&Record::at(key, 1.0, 2.0, Vec::new())).unwrap();
    }
    newer.insert(&Record::at(1, 1.0, 2.0, Vec::new())).unwrap();
    let first_lsn = older.handle.partition.active().first_lsn().unwrap();
    older.flush().unwrap();
    let raised = engine.workshop.manifest.current().low_water;
    assert!(raised.segment > log.position_of(first_lsn).unwrap().segment, "{raised:?}");
    // As if the generation were still in the version.
    older.handle.partition.active().note_lsn(first_lsn);
    newer.flush().unwrap();
    let kept = engine.workshop.manifest.current().low_water;
    assert!(kept >= raised, "{kept:?} after {raised:?}");
    drop(held);
    log.set_low_water(raised).unwrap();
    engine.close().unwrap();
    drop((older, newer, engine));
    let engine = Engine::open(storage, options).unwrap();
    for (name, count) in [("older", 200), ("newer", 1)] {
        let dataset = Dataset { engine: engine.clone(), handle: engine.dataset(name).unwrap() };
        assert_eq!(dataset.snapshot().count(&crate::Query::new()).unwrap(), count, "{name}");
    }
}
