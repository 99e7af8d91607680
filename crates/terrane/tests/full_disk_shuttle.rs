//! Threads write, delete, flush, merge, and create and drop indexes while the disk fills and is
//! freed. Shuttle draws their order, and reports every deadlock.
//!
//! - The user of the reserve waits for flushes and merges that others have begun. A thread that
//!   waits until the reserve is unused may keep out writers.
//! - A refused operation has not happened. Each thread has keys of its own, and finds them as they
//!   were acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use shuttle::rand::RngCore;
use terrane::schema::KeyType;
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, DiskReserve, Error, IndexKind, Key, LogOptions, MergePolicy,
    Options, Query, Record, Result, Store, Value,
};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

use crate::support::{schema, small_options};
use terrane_testkit::gate::asking;
use terrane_testkit::hook::HookedStorage;
use terrane_testkit::orders::{explore, is_kept};

const THREADS: usize = 4;
/// Keys of each thread that are there from the beginning, and those that may come.
const STORED: i64 = 24;
const KEYS: i64 = 32;
/// The index that comes and goes.
const BY_NAME: &str = "by-name";
/// What is left free when the disk is full, at most.
const FREE_MAX: u64 = 64 << 10;

/// What a thread does.
#[derive(Clone, Debug)]
enum Step {
    /// Of so many records from one of the thread's on.
    Upsert(i64, i64),
    Delete(i64, i64),
    /// Of all of the thread's from one on, in one call.
    DeleteWhere(i64),
    Flush,
    Compact,
    /// Creates the index that comes and goes, or drops it.
    Index,
    /// Goes on with an index that could not be completed.
    BuildIndexes,
    /// Another program leaves so many bytes.
    Fill(u64),
    Free,
}

/// A store, what it has to begin with, and what threads do to it.
#[derive(Debug)]
struct Plan {
    options: Options,
    partitions: usize,
    steps: Vec<Vec<Step>>,
    /// Keys of each thread that are deleted and not merged when the threads begin, and what is free
    /// then.
    deleted: i64,
    free: Option<u64>,
    /// Whether the index that comes and goes had no room when it was created before.
    is_unbuilt: bool,
    /// Bytes of a name.
    name_length: usize,
}

/// What happened in all orders, so that the search is known to have met what it is for.
static REFUSED: AtomicU64 = AtomicU64::new(0);
static RELEASED: AtomicU64 = AtomicU64::new(0);
static UNCREATED: AtomicU64 = AtomicU64::new(0);
static UNBUILT: AtomicU64 = AtomicU64::new(0);
static DELETED_WHILE_RELEASED: AtomicU64 = AtomicU64::new(0);
static MERGES: AtomicU64 = AtomicU64::new(0);

impl Plan {
    fn drawn(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let reserve = *[16 << 10, 64 << 10, 2 << 20].choose(&mut random).expect("there are some");
        let segment_size = *[8 << 10, 32 << 10].choose(&mut random).expect("there are some");
        // What is deleted stays to be freed unless somebody compacts.
        let components_max = if random.random() { usize::MAX } else { 2 };
        let options = Options {
            background: random.random(),
            // The end of a thread of shuttle's scopes wakes who began it, whatever that waits for.
            threads_max: Some(1),
            disk_reserve: DiskReserve::Bytes(reserve),
            merge_policy: MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max },
            log: LogOptions { segment_size, first_segment_size: 8 << 10, spare_segments: 1 },
            ..small_options()
        };
        let partitions = random.random_range(1..=2);
        let deleted = random.random_range(0..STORED);
        let free = random.random_bool(0.7).then(|| random.random_range(0..FREE_MAX));
        let is_unbuilt = random.random();
        let name_length = *[20, 400, 2000].choose(&mut random).expect("there are some");
        let mut steps_of = |thread| {
            let count = random.random_range(2..=5);
            (0..count).map(|_| step(thread, &mut random)).collect()
        };
        let steps = (0..THREADS).map(&mut steps_of).collect();
        Self { options, partitions, steps, deleted, free, is_unbuilt, name_length }
    }

    fn record(&self, key: i64, value: i64) -> Record {
        let name = format!("{value:0width$}", width = self.name_length);
        Record::at(key, key as f64, value as f64, vec![Value::Utf8(name), Value::Int(value)])
    }
}

fn step(thread: usize, random: &mut SmallRng) -> Step {
    let first = random.random_range(0..KEYS);
    let end = (first + random.random_range(1..=8)).min(KEYS);
    match random.random_range(0..16) {
        0..4 => Step::Upsert(first, end),
        4..7 => Step::Delete(first, end),
        7 => Step::DeleteWhere(first),
        8 | 9 => Step::Flush,
        10 => Step::Compact,
        // One thread alone knows whether the index is there.
        11 | 12 if thread == 0 => Step::Index,
        11 | 12 => Step::BuildIndexes,
        13 | 14 => Step::Fill(random.random_range(0..FREE_MAX)),
        _ => Step::Free,
    }
}

/// A store under its threads.
struct World {
    store: Store,
    dataset: Dataset,
    disk: MemoryStorage,
    /// Whether the index that comes and goes is there, unfinished.
    has_index: bool,
    plan: Arc<Plan>,
}

impl World {
    fn create(plan: Arc<Plan>) -> Self {
        let disk = MemoryStorage::new();
        let hooked = Arc::new(HookedStorage::new(Arc::new(disk.clone())));
        let storage = asking(hooked.clone(), || {
            let steps = shuttle::rand::thread_rng().next_u32() % 64;
            (0..steps >> (steps % 8)).for_each(|_| shuttle::thread::yield_now());
            true
        });
        let store = Store::open_on(storage, plan.options.clone()).unwrap();
        let partitions = DatasetOptions { partitions: plan.partitions };
        let schema = schema(KeyType::Int64, true, CoordinateSystem::Planar);
        let dataset = store.create_dataset_with("d", schema, &partitions).unwrap();
        let keys = |count| (0..THREADS as i64).flat_map(move |thread| thread * KEYS..thread * KEYS + count);
        let mut batch = dataset.atomic_batch();
        keys(STORED).for_each(|key| batch.upsert(&plan.record(key, 0)).unwrap());
        batch.commit().unwrap();
        dataset.flush().unwrap();
        if plan.deleted > 0 {
            let mut batch = dataset.atomic_batch();
            keys(plan.deleted).for_each(|key| batch.delete(&Key::Int(key)).unwrap());
            batch.commit().unwrap();
            dataset.flush().unwrap();
        }
        let mut has_index = false;
        if plan.is_unbuilt {
            let filled = disk.clone();
            hooked.on_create(move |name| {
                if name.starts_with("components/") {
                    filled.set_capacity(0);
                }
            });
            let told = dataset.create_index(BY_NAME, IndexKind::BTree, &["name"]).unwrap_err();
            // A merge in the background may have come before.
            has_index = matches!(told, Error::Unbuilt { .. });
            hooked.unhook();
            disk.set_capacity(u64::MAX);
        }
        if let Some(free) = plan.free {
            disk.set_capacity(disk.used_bytes() + free);
        }
        Self { store, dataset, disk, has_index, plan }
    }

    /// What is there of the thread's keys in the end.
    fn run(&self, thread: usize) -> BTreeMap<i64, i64> {
        let keys = thread as i64 * KEYS..(thread as i64 + 1) * KEYS;
        let mut model: BTreeMap<i64, i64> =
            (keys.start + self.plan.deleted..keys.start + STORED).map(|key| (key, 0)).collect();
        let mut has_index = self.has_index;
        for (number, step) in self.plan.steps[thread].iter().enumerate() {
            let value = number as i64 + 1;
            match step {
                _ if !is_kept(thread, number) => {}
                Step::Upsert(first, end) => {
                    for key in keys.start + first..keys.start + end {
                        if happens(self.dataset.upsert(&self.plan.record(key, value))).is_some() {
                            model.insert(key, value);
                        }
                        self.assert_has(&model, key);
                    }
                }
                Step::Delete(first, end) => {
                    for key in keys.start + first..keys.start + end {
                        if let Some(was_there) = happens(self.dataset.delete(&Key::Int(key))) {
                            DELETED_WHILE_RELEASED
                                .fetch_add(u64::from(was_there && self.is_released()), Ordering::Relaxed);
                            assert_eq!(was_there, model.remove(&key).is_some(), "{key}");
                        }
                        self.assert_has(&model, key);
                    }
                }
                Step::DeleteWhere(first) => {
                    let condition = Condition::on("id").between(keys.start + first, keys.end - 1);
                    let is_done = happens(self.dataset.delete_where(&condition, &[])).is_some();
                    for key in keys.start + first..keys.end {
                        // Some of them may be deleted, which it tells.
                        if is_done || self.value(key).is_none() {
                            model.remove(&key);
                        }
                        self.assert_has(&model, key);
                    }
                }
                Step::Flush => _ = happens(self.dataset.flush()),
                Step::Compact => _ = happens(self.dataset.compact()),
                Step::Index if has_index => has_index = happens(self.dataset.drop_index(BY_NAME)).is_none(),
                Step::Index => match self.dataset.create_index(BY_NAME, IndexKind::BTree, &["name"]) {
                    Err(Error::Uncreated { .. }) => _ = UNCREATED.fetch_add(1, Ordering::Relaxed),
                    created => has_index = happens(created).is_some() || self.lists_index(),
                },
                Step::BuildIndexes => _ = happens(self.dataset.build_indexes()),
                Step::Fill(free) => self.disk.set_capacity(self.disk.used_bytes() + free),
                Step::Free => self.disk.set_capacity(u64::MAX),
            }
            RELEASED.fetch_add(u64::from(self.is_released()), Ordering::Relaxed);
        }
        model
    }

    fn lists_index(&self) -> bool {
        self.store.info().unwrap().datasets[0].indexes.iter().any(|index| index.name == BY_NAME)
    }

    /// Whether the reserve is released.
    fn is_released(&self) -> bool {
        let reserve = self.disk.open("RESERVE", OpenMode::Read).and_then(|file| file.len());
        reserve.is_ok_and(|length| length == 0)
    }

    fn value(&self, key: i64) -> Option<i64> {
        self.dataset.get(&Key::Int(key)).unwrap().map(|record| match record.values[1] {
            Value::Int(value) => value,
            ref other => panic!("{other:?} is no value"),
        })
    }

    fn assert_has(&self, model: &BTreeMap<i64, i64>, key: i64) {
        assert_eq!(self.value(key), model.get(&key).copied(), "{key}");
    }
}

/// What a call came to that a full disk may refuse.
fn happens<T>(outcome: Result<T>) -> Option<T> {
    let is_full = |error: &Error| match error {
        Error::Full { .. } => true,
        Error::PartlyDeleted { cause, .. } | Error::Unmerged { cause, .. } => matches!(**cause, Error::Full { .. }),
        _ => false,
    };
    match outcome {
        Ok(outcome) => Some(outcome),
        Err(Error::Unbuilt { cause, .. }) if is_full(&cause) => {
            UNBUILT.fetch_add(1, Ordering::Relaxed);
            None
        }
        Err(error) if is_full(&error) => {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn threads_agree(seed: u64) {
    let plan = Arc::new(Plan::drawn(seed));
    let world = Arc::new(World::create(plan));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let world = world.clone();
            shuttle::thread::spawn(move || world.run(thread))
        })
        .collect();
    let model: BTreeMap<i64, i64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    world.disk.set_capacity(u64::MAX);
    // Everything goes on once there is room.
    world.dataset.build_indexes().unwrap();
    world.dataset.upsert(&world.plan.record(-1, -1)).unwrap();
    world.dataset.delete(&Key::Int(-1)).unwrap();
    world.dataset.compact().unwrap();
    let count = world.dataset.query(&Query::new().columns(["id"])).unwrap().map(|batch| batch.unwrap().num_rows());
    assert_eq!(count.sum::<usize>(), model.len());
    for (key, value) in &model {
        assert_eq!(world.value(*key), Some(*value), "{key}");
    }
    let report = world.store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    MERGES.fetch_add(world.store.maintenance().merges, Ordering::Relaxed);
    let world = Arc::into_inner(world).expect("no other thread has it any more");
    drop(world.dataset);
    // It tells what had no room in the background.
    happens(world.store.close());
}

#[test]
fn no_order_of_threads_on_a_disk_that_fills_ends_in_a_deadlock() {
    explore("no_order_of_threads_on_a_disk", 16, threads_agree);
    if std::env::var_os("TERRANE_TEST_SEED").is_none() {
        for (what, sum) in [
            ("a write that is refused", &REFUSED),
            ("a reserve that is released", &RELEASED),
            ("an index that has no room", &UNCREATED),
            ("an index that remains unfinished", &UNBUILT),
            ("a delete that had the reserve", &DELETED_WHILE_RELEASED),
            ("a merge", &MERGES),
        ] {
            assert!(sum.load(Ordering::Relaxed) > 0, "the orders were without {what}");
        }
    }
}
