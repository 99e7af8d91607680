use terrane_lsm::log::LogOptions;
use terrane_lsm::manifest::Manifest;
use terrane_lsm::policy::MergePolicy;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

use super::*;
use crate::dataset::{AtomicBatch, Dataset};
use crate::engine::Engine;
use crate::options::{DatasetOptions, Durability, MEMORY_LIMIT_MIN, MemoryShares, Options};
use crate::record::Record;
use crate::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use crate::value::Value;

fn dataset(engine: &Arc<Engine>, name: &str) -> Dataset {
    with_columns(engine, name, Vec::new())
}

/// A dataset with a text.
fn texts(engine: &Arc<Engine>, name: &str) -> Dataset {
    with_columns(engine, name, vec![Column::new("text", ColumnType::Utf8)])
}

fn with_columns(engine: &Arc<Engine>, name: &str, columns: Vec<Column>) -> Dataset {
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let schema = Schema::new(key, geometry, terrane_space::CoordinateSystem::Planar, columns).unwrap();
    Dataset { engine: engine.clone(), handle: engine.catalog.create(name, schema, &DatasetOptions::default()).unwrap() }
}

/// A write for which no flush can make room is refused, and does not wait for ever.
#[test]
fn a_write_that_can_never_have_room_is_refused() {
    for background in [false, true] {
        let options = Options { background, ..Options::default() };
        let shares = MemoryShares { components: 0, ..MemoryShares::of(&options).unwrap() };
        let engine = Engine::open_without_threads(Arc::new(MemoryStorage::new()), options, shares).unwrap();
        engine.maintenance.start().unwrap();
        let refused = dataset(&engine, "d").insert(&Record::at(1, 1.0, 2.0, Vec::new()));
        assert!(matches!(refused, Err(Error::Memory { .. })), "{refused:?}");
        engine.close().unwrap();
    }
}

/// An atomic batch that puts so many bytes under keys from `first` on, in records that are large.
fn batch(dataset: &Dataset, first: i64, bytes: usize) -> AtomicBatch {
    const RECORD_LENGTH: usize = 1000;
    let mut batch = dataset.atomic_batch();
    for key in first..first + (bytes / RECORD_LENGTH) as i64 {
        batch.upsert(&Record::at(key, 1.0, 2.0, vec![Value::Utf8("t".repeat(RECORD_LENGTH))])).unwrap();
    }
    batch
}

/// What is admitted and not applied yet counts as memory, for small writes too; who has to wait
/// goes on as soon as there is room.
#[test]
fn large_writes_wait_for_those_that_are_on_their_way() {
    for background in [false, true] {
        let options = Options { memory_limit: MEMORY_LIMIT_MIN, background, ..Options::default() };
        let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
        let dataset = texts(&engine, "d");
        let share = engine.environment().shares.components;
        let first = engine.maintenance.admit_write(share / 10 * 6).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                batch(&dataset, 0, share / 10 * 6).commit().unwrap();
                is_done.store(true, Ordering::Relaxed);
            });
            while engine.maintenance.ticket.try_lock().is_some() && !is_done.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            assert!(!is_done.load(Ordering::Relaxed), "background {background}: both at once");
            // A small one does not wait for a large one that waits.
            batch(&dataset, 1_000_000, 1000).commit().unwrap();
            assert_eq!(engine.maintenance.claimed(), share / 10 * 6);
            drop(first);
        });
        assert_eq!(engine.maintenance.claimed(), 0);
        engine.close().unwrap();
    }
}

/// A merge takes what is free until it fails, and what is flushed meanwhile has as much room as
/// before.
#[test]
fn a_flush_on_a_full_disk_waits_for_the_merges_under_way() {
    let disk = MemoryStorage::new();
    let options = Options { background: false, disk_reserve: crate::DiskReserve::Bytes(0), ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
    let dataset = texts(&engine, "d");
    batch(&dataset, 0, 100_000).commit().unwrap();
    disk.set_capacity(disk.used_bytes());
    assert!(matches!(engine.maintenance.flush_all(), Err(Error::Full { .. })), "nobody gives space back");
    let merges = &engine.environment().context.merges;
    std::thread::scope(|scope| {
        let merge = merges.begin();
        let flush = scope.spawn(|| engine.maintenance.flush_all());
        while merges.waiting() == 0 && !flush.is_finished() {
            std::thread::yield_now();
        }
        disk.set_capacity(1 << 30);
        drop(merge);
        assert!(flush.join().unwrap().unwrap());
    });
    assert_eq!(engine.datasets.memory_used(), 0);
    engine.close().unwrap();
}

/// Nor are inserts refused for what a merge has taken and gives back.
#[test]
fn an_insert_on_a_full_disk_waits_for_the_merges_under_way() {
    const RESERVE: u64 = 64 << 10;
    let disk = MemoryStorage::new();
    let options = Options { background: false, disk_reserve: crate::DiskReserve::Bytes(RESERVE), ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
    let dataset = texts(&engine, "d");
    batch(&dataset, 0, 100_000).commit().unwrap();
    engine.maintenance.flush_all().unwrap();
    assert!(engine.disk.restore().unwrap());
    let mut is_first = true;
    let with_the_reserve = || match std::mem::take(&mut is_first) {
        true => Err(Error::Full { what: "a merge".to_owned() }),
        // Somebody else takes what was released.
        false => {
            disk.set_capacity(disk.used_bytes());
            Ok(())
        }
    };
    engine.disk.with_room(with_the_reserve).unwrap();
    let insert = |key| batch(&dataset, key, 1000).commit();
    assert!(matches!(insert(1_000), Err(Error::Full { .. })), "nobody gives space back");
    let merges = &engine.environment().context.merges;
    std::thread::scope(|scope| {
        let merge = merges.begin();
        let insert = scope.spawn(|| insert(2_000).map(|_| ()));
        while merges.waiting() == 0 && !insert.is_finished() {
            std::thread::yield_now();
        }
        disk.set_capacity(1 << 30);
        drop(merge);
        insert.join().unwrap().unwrap();
    });
    engine.close().unwrap();
}

/// Batches claim what they bring, but for what trees take ahead: at most an eighth of what they
/// hold.
#[test]
fn a_batch_claims_what_it_brings() {
    let (memory_limit, durability) = (1 << 30, Some(Durability::None));
    let options = Options { background: false, memory_limit, durability, ..Options::default() };
    let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
    let dataset = texts(&engine, "d");
    for (step, length) in [(1, 1000), (7_919_777, 1000), (1, 10), (7_919_777, 10)] {
        // New records, the same again, and the same elsewhere.
        for x in [1.0, 1.0, 2.0] {
            let mut batch = dataset.atomic_batch();
            for place in 1..=10_000i64 {
                let key = place * step % 1_000_000_007;
                batch.upsert(&Record::at(key, x, place as f64, vec![Value::Utf8("t".repeat(length))])).unwrap();
            }
            let (before, needed) = (engine.datasets.memory_used(), batch.memory_needed());
            batch.commit().unwrap();
            let brought = engine.datasets.memory_used() - before;
            assert!(brought <= needed / 8 * 9, "{brought} of {needed}: step {step}, texts of {length}, at {x}");
        }
        engine.maintenance.flush_all().unwrap();
    }
    engine.close().unwrap();
}

/// However many come at once, memory components stay within their share, and nobody waits for ever.
#[test]
fn batches_that_come_at_once_stay_within_the_share() {
    for background in [false, true] {
        let options = Options {
            memory_limit: MEMORY_LIMIT_MIN,
            background,
            durability: Some(Durability::None),
            ..Options::default()
        };
        let engine = Engine::open(Arc::new(MemoryStorage::new()), options).unwrap();
        let dataset = texts(&engine, "d");
        let share = engine.environment().shares.components;
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (engine, dataset, barrier) = (&engine, &dataset, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for round in 0..4 {
                        // Every other thread writes single records. With their places in the trees,
                        // these batches take from half the share to nearly all of it.
                        let bytes = if thread % 2 == 0 { share / 10 * [4, 5, 6, 7][round] } else { 1000 };
                        batch(dataset, thread as i64 * 1_000_000, bytes).commit().unwrap();
                        let (claimed, used) = (engine.maintenance.claimed(), engine.datasets.memory_used());
                        assert!(claimed <= share && used <= share + share / 8, "{claimed} and {used} of {share}");
                    }
                });
            }
        });
        let records = dataset.snapshot().count(&crate::Query::new()).unwrap();
        assert_eq!(records, 4 * (share / 10 * 7 / 1000) as u64 + 4, "background {background}");
        engine.maintenance.stop();
        assert_eq!(engine.datasets.memory_noted(), engine.datasets.memory_used(), "background {background}");
        engine.maintenance.flush_all().unwrap();
        assert_eq!(engine.datasets.memory_noted(), 0, "background {background}");
        engine.close().unwrap();
    }
}

/// Merges that are far behind slow the writes, and let them pass.
#[test]
fn writes_are_slowed_while_merges_are_far_behind() {
    let none = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    let options = Options { background: false, merge_policy: none, ..Options::default() };
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let engine = Engine::open(storage.clone(), options.clone()).unwrap();
    let begun = dataset(&engine, "d");
    let insert = |dataset: &Dataset, key| dataset.insert(&Record::at(key, 1.0, 2.0, Vec::new())).unwrap();
    for key in 0..25 {
        insert(&begun, key);
        begun.flush().unwrap();
    }
    engine.close().unwrap();
    drop((begun, engine));
    // In the background, where nobody merges: there are no threads.
    let merge_policy = MergePolicy::Prefix { mergeable_bytes_max: 1 << 30, components_max: 2 };
    let options = Options { background: true, merge_policy, ..options };
    let shares = MemoryShares::of(&options).unwrap();
    let engine = Engine::open_without_threads(storage, options, shares).unwrap();
    let slowed = |engine: &Engine| engine.maintenance.counters().slowed;
    let reached = Dataset { engine: engine.clone(), handle: engine.datasets.get("d").unwrap() };
    engine.maintenance.note_components();
    insert(&reached, 100);
    assert_eq!(slowed(&engine), 1);
    engine.maintenance.compact(&reached.handle).unwrap();
    insert(&reached, 101);
    assert_eq!(slowed(&engine), 1, "compacted");
    engine.maintenance.crowded.store(true, Ordering::Relaxed);
    engine.maintenance.merge_all().unwrap();
    insert(&reached, 102);
    assert_eq!(slowed(&engine), 1, "merges have caught up");
    assert_eq!(reached.snapshot().count(&crate::Query::new()).unwrap(), 28);
}

/// Datasets are merged in turn, and of an index all that is there.
#[test]
fn merges_take_all_small_components_at_once() {
    let none = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    let options = Options { background: false, merge_policy: none, ..Options::default() };
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let engine = Engine::open(storage.clone(), options.clone()).unwrap();
    for (name, flushes) in [("a", 12), ("b", 3)] {
        let dataset = dataset(&engine, name);
        for key in 0..flushes {
            dataset.insert(&Record::at(key, 1.0, 2.0, Vec::new())).unwrap();
            dataset.flush().unwrap();
        }
    }
    engine.close().unwrap();
    drop(engine);
    let merge_policy = MergePolicy::Prefix { mergeable_bytes_max: 1 << 30, components_max: 3 };
    let engine = Engine::open(storage, Options { merge_policy, ..options }).unwrap();
    assert_eq!(engine.maintenance.counters().merges, 4, "one of each index");
    for handle in engine.datasets.load().values() {
        assert!(handle.partitions.version(0).indexes.iter().all(|index| index.components.len() == 1));
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
    let log = engine.core.log().unwrap();
    for key in 0..200 {
        older.insert(&Record::at(key, 1.0, 2.0, Vec::new())).unwrap();
    }
    newer.insert(&Record::at(1, 1.0, 2.0, Vec::new())).unwrap();
    let first_lsn = older.handle.partitions.active(0).first_lsn().unwrap();
    // A flush that has not come to removing segments yet.
    engine.core.seal(&older.handle).unwrap();
    engine.core.sync().unwrap();
    let raise = |manifest: &mut Manifest| {
        if let Some(position) = engine.maintenance.low_water_after(&older.handle) {
            manifest.raise_low_water(position);
        }
    };
    older.handle.partitions.flush(&engine.environment().context, &|_| Ok(()), &raise).unwrap();
    let raised = engine.environment().context.manifest.current().low_water;
    assert!(raised.segment > log.position_of(first_lsn).unwrap().segment, "{raised:?}");
    // As if the generation were still in the version.
    older.handle.partitions.active(0).note_lsn(first_lsn);
    newer.flush().unwrap();
    let kept = engine.environment().context.manifest.current().low_water;
    assert!(kept >= raised, "{kept:?} after {raised:?}");
    log.set_low_water(raised).unwrap();
    engine.close().unwrap();
    drop((older, newer, engine));
    let engine = Engine::open(storage, options).unwrap();
    for (name, count) in [("older", 200), ("newer", 1)] {
        let dataset = Dataset { engine: engine.clone(), handle: engine.datasets.get(name).unwrap() };
        assert_eq!(dataset.snapshot().count(&crate::Query::new()).unwrap(), count, "{name}");
    }
}
