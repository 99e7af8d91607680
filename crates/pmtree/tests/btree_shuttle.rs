//! Threads that change and scan one map, in random orders by shuttle. Their results, and the state
//! after a crash at any instant, are linearizable for each key.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::Traced;
use terrane_pmtree::btree::{BTree, Compared, Options, PersistentUnsorted};
use terrane_pmtree::explored::{ExploredMap, MapModel, MapStep, apply_to_model};
use terrane_storage::Storage;
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::linearizability::{self, Specification, calls_at, is_linearizable, record};
use terrane_testkit::orders::{explore, is_kept};

type Map = BTree<PersistentUnsorted, 2, 2, Traced>;

/// Numbers of threads, and the most operations of all of them together.
const THREADS: std::ops::RangeInclusive<usize> = 2..=4;
const OPERATIONS: usize = 12;

const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

/// Keys that threads change. Others only fill the tree.
const KEYS: u64 = 8;

/// Changes of several nodes in all runs.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// The value of one key. An operation gives the value before.
#[derive(Clone, Debug)]
struct Keys;

type Call = linearizability::Call<Keys>;

fn key_of(step: &MapStep) -> u64 {
    match *step {
        MapStep::Insert(key, _)
        | MapStep::Upsert(key, _)
        | MapStep::CompareAndUpdate(key, ..)
        | MapStep::Remove(key)
        | MapStep::Get(key) => key,
        MapStep::Sync => unreachable!("threads take no such step"),
    }
}

impl Specification for Keys {
    type Operation = MapStep;
    type Outcome = Option<u64>;
    type Key = u64;
    type State = Option<u64>;

    fn key(step: &MapStep) -> u64 {
        key_of(step)
    }

    fn apply(step: &MapStep, state: &mut Option<u64>) -> Option<u64> {
        let key = key_of(step);
        let mut model: MapModel = state.map(|value| (key, value)).into_iter().collect();
        let outcome = apply_to_model(&mut model, step);
        *state = model.get(&key).copied();
        outcome
    }
}

fn wide(number: u64) -> [u64; 2] {
    [number, number]
}

fn narrow(value: [u64; 2]) -> u64 {
    assert_eq!(value[0], value[1], "a value is torn");
    value[0]
}

fn run(map: &Map, step: &MapStep) -> Option<u64> {
    let before = match *step {
        MapStep::Insert(..) | MapStep::Sync => unreachable!("threads take no such step"),
        MapStep::Upsert(key, value) => map.upsert(&wide(key), &wide(value)).unwrap(),
        MapStep::CompareAndUpdate(key, from, to) => {
            match map.compare_and_update(&wide(key), &wide(from), &wide(to)).unwrap() {
                Compared::Updated => Some(wide(from)),
                Compared::Different(before) => Some(before),
                Compared::Absent => None,
            }
        }
        MapStep::Remove(key) => map.remove(&wide(key)).unwrap(),
        MapStep::Get(key) => map.get(&wide(key)).unwrap(),
    };
    before.map(narrow)
}

fn entries(map: &Map) -> MapModel {
    let mut entries = MapModel::new();
    map.range(.., |key, value| {
        assert!(entries.last_key_value().is_none_or(|(last, _)| *last < key[0]), "{key:?} is out of order");
        entries.insert(narrow(*key), narrow(*value));
        ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

fn recover(storage: &dyn Storage, options: &Options) -> MapModel {
    let mut map = Map::open(storage, "tree", options).unwrap();
    map.check().unwrap();
    entries(&map)
}

fn check(calls: &[Call], start: &MapModel, end: &MapModel, what: &dyn std::fmt::Debug) {
    let is_possible = is_linearizable(calls, |key| start.get(key).copied(), |key| end.get(key).copied());
    assert!(is_possible, "{end:?} after {start:?} and {calls:#?}, {what:?}");
    let is_changed = |key: &u64| calls.iter().any(|call| key_of(&call.operation) == *key);
    for key in start.keys().chain(end.keys()).filter(|key| !is_changed(key)) {
        assert_eq!(start.get(key), end.get(key), "{key} was not touched, {what:?}");
    }
}

fn next_step(random: &mut SmallRng) -> MapStep {
    let (key, value) = (random.random_range(0..KEYS) * 3, random.random_range(0..3));
    match random.random_range(0..9) {
        0..4 => MapStep::Upsert(key, value),
        4 => MapStep::CompareAndUpdate(key, value, (value + 1) % 3),
        5..8 => MapStep::Remove(key),
        _ => MapStep::Get(key),
    }
}

/// Scans the map. A scan is no instant, but each key that nobody changes meanwhile is found, and
/// the others are looked up at some instant of it.
fn scan(controller: &Controller, map: &Map) -> Vec<Call> {
    let (scanned, mut found) = (Mutex::default(), MapModel::new());
    record(&scanned, controller, MapStep::Get(0), |_| {
        found = entries(map);
        None
    });
    let call: Call = scanned.into_inner().unwrap().remove(0);
    let ended = |key: &u64| call.ended.as_ref().map(|(at, _)| (*at, found.get(key).copied()));
    let calls = (0..KEYS).map(|key| key * 3);
    calls.map(|key| Call { operation: MapStep::Get(key), began: call.began, ended: ended(&key) }).collect()
}

fn run_threads(controller: &Arc<Controller>, map: &Arc<Map>, random: &mut SmallRng) -> Vec<Call> {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let threads = random.random_range(THREADS);
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let (controller, map, calls) = (controller.clone(), map.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                for number in 0..random.random_range(1..=OPERATIONS / threads) {
                    let (step, scans) = (next_step(&mut random), random.random_range(0..6) == 0);
                    if !is_kept(thread, number) {
                        continue;
                    }
                    match scans {
                        true => {
                            let found = scan(&controller, &map);
                            calls.lock().unwrap().extend(found);
                        }
                        false => _ = record(&calls, &controller, step, |step| run(&map, step)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let calls = calls.lock().unwrap();
    calls.clone()
}

fn keys_are_linearizable(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let options = ExploredMap::configurations()[0].options.clone();
    let controller = Controller::new();
    let map = Arc::new(Map::create(&*controller.storage(), "tree", &options).unwrap());
    // Nodes are about to be split, or about to be merged.
    for key in 0..random.random_range(4..KEYS * 3) {
        if random.random() {
            map.insert(&wide(key), &wide(random.random_range(0..3))).unwrap();
        }
    }
    let start = entries(&map);
    let first = controller.events();
    let calls = run_threads(&controller, &map, &mut random);
    check(&calls, &start, &entries(&map), &"at the end");
    let mut map = Arc::into_inner(map).unwrap();
    map.check().unwrap();
    drop(map);
    let last = controller.events();
    let log = controller.log();
    let is_commitment =
        |event: &&Event| matches!(event, Event::Pool(PoolEvent::Fence { site: "btree.log.commit", .. }));
    CHANGES.fetch_add(log.iter().skip(first).filter(is_commitment).count(), Ordering::Relaxed);
    let ends: Vec<usize> = calls.iter().filter_map(|call| call.ended.map(|(at, _)| at)).collect();
    let cuts = (0..3).map(|_| random.random_range(first..=last)).collect::<Vec<_>>();
    for cut in ends.into_iter().chain(cuts) {
        let calls = calls_at(&calls, cut);
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            check(&calls, &start, &recover(&*image.storage(), &options), &image);
        }
    }
}

#[test]
fn what_threads_see_of_a_map_and_what_a_crash_leaves_of_it_is_linearizable() {
    explore("what_threads_see_of_a_map", 20, keys_are_linearizable);
    let changes = CHANGES.load(Ordering::Relaxed);
    let is_one_seed = std::env::var_os("TERRANE_TEST_SEED").is_some();
    assert!(changes > 100 || is_one_seed, "{changes} changes of several nodes among others' operations");
}
