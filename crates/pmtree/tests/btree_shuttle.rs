//! Threads that change and scan one map, in random orders by shuttle. Their results, and the state
//! after a crash at any instant, are linearizable for each key.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::Traced;
use terrane_pmem::explorer::Subject;
use terrane_pmtree::btree::{
    BTree, BTreeLs, BTreeWal, Compared, FastFair, FastFairSp, Options, PersistentMap, PersistentUnsorted,
};
use terrane_pmtree::explored::{ExploredMap, MapModel, MapStep, apply_to_model};
use terrane_pmtree::map::{self, Map};
use terrane_pmtree::{PersistenceDomain, PersistentTree};
use terrane_storage::Storage;
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::linearizability::{self, Specification, calls_at, is_linearizable, record};
use terrane_testkit::orders::{explore, is_kept};

/// Numbers of threads, and the most operations of all of them together.
const THREADS: std::ops::RangeInclusive<usize> = 2..=4;
const OPERATIONS: usize = 12;

const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

/// Keys that threads change. Others only fill the tree.
const KEYS: u64 = 8;

/// Entries before those that threads change. An iterator reads 64 at once, so it reads anew among
/// the others.
const FILLED: u64 = 60;

/// A map that threads share.
trait Shared: Send + Sync + Sized + 'static {
    /// The fence whose number shows how often several nodes, or blocks, have changed.
    const CHANGE: &'static str;
    /// Whether an upsert gives the value before, and not only whether there was one.
    const TELLS_VALUES: bool;

    /// That number in all runs.
    fn changes() -> &'static AtomicUsize;

    fn create(storage: &dyn Storage) -> Self;
    fn open(storage: &dyn Storage) -> Self;
    /// Takes a step, and gives the value before.
    fn run(&self, step: &MapStep) -> Option<u64>;
    /// The entries by a scan, forwards or backwards.
    fn entries(&self, backwards: bool) -> MapModel;
    /// Adds entries before the others, so that a scan reads several times.
    fn fill(&self) {}
    fn check(&mut self);
}

/// The value of one key. An operation gives the value before. An upsert that does not tell it gives
/// 0 in its place.
#[derive(Clone, Debug)]
struct Keys<const TELLS_VALUES: bool>;

type Call<const TELLS_VALUES: bool> = linearizability::Call<Keys<TELLS_VALUES>>;

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

impl<const TELLS_VALUES: bool> Specification for Keys<TELLS_VALUES> {
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
        match step {
            MapStep::Upsert(..) if !TELLS_VALUES => outcome.map(|_| 0),
            _ => outcome,
        }
    }
}

fn wide(number: u64) -> [u64; 2] {
    [number, number]
}

fn narrow(value: [u64; 2]) -> u64 {
    assert_eq!(value[0], value[1], "a value is torn");
    value[0]
}

/// Nodes so small that a few entries make several, and segments of few records.
fn options(configuration: &str) -> Options {
    let all = ExploredMap::configurations();
    all.into_iter().find(|subject| subject.configuration() == configuration).unwrap().options
}

/// A tree, and its configuration.
trait Configured: Sized + PersistentMap<2, 2, Options = Options> + PersistentTree<Census: Sized> + 'static {
    const CONFIGURATION: &'static str;
    const CHANGE: &'static str;
    fn changes() -> &'static AtomicUsize;
}

macro_rules! configured {
    ($method:ty, $configuration:literal, $change:literal) => {
        impl Configured for BTree<$method, 2, 2, Traced> {
            const CONFIGURATION: &'static str = $configuration;
            const CHANGE: &'static str = $change;

            fn changes() -> &'static AtomicUsize {
                static CHANGES: AtomicUsize = AtomicUsize::new(0);
                &CHANGES
            }
        }
    };
}

configured!(PersistentUnsorted, "unsorted-2-2-adr", "btree.log.commit");
configured!(BTreeWal, "wal-2-2-adr", "btree.log.commit");
configured!(FastFair, "fast-2-2-adr", "btree.log.commit");
configured!(FastFairSp, "sp-2-2-adr", "btree.log.commit");
configured!(BTreeLs, "ls-2-2-adr", "btree.ls.unlink");

impl<T: Configured + Send + Sync> Shared for T {
    const CHANGE: &'static str = <T as Configured>::CHANGE;
    const TELLS_VALUES: bool = true;

    fn changes() -> &'static AtomicUsize {
        <T as Configured>::changes()
    }

    fn create(storage: &dyn Storage) -> Self {
        PersistentTree::create(storage, "tree", &options(T::CONFIGURATION)).unwrap()
    }

    fn open(storage: &dyn Storage) -> Self {
        PersistentTree::open(storage, "tree", &options(T::CONFIGURATION)).unwrap()
    }

    fn run(&self, step: &MapStep) -> Option<u64> {
        let before = match *step {
            MapStep::Insert(..) | MapStep::Sync => unreachable!("threads take no such step"),
            MapStep::Upsert(key, value) => self.upsert(&wide(key), &wide(value)).unwrap(),
            MapStep::CompareAndUpdate(key, from, to) => {
                match self.compare_and_update(&wide(key), &wide(from), &wide(to)).unwrap() {
                    Compared::Updated => Some(wide(from)),
                    Compared::Different(before) => Some(before),
                    Compared::Absent => None,
                }
            }
            MapStep::Remove(key) => self.remove(&wide(key)).unwrap(),
            MapStep::Get(key) => self.get(&wide(key)).unwrap(),
        };
        before.map(narrow)
    }

    fn entries(&self, backwards: bool) -> MapModel {
        let mut entries = Vec::new();
        let visit = &mut |key: &[u64; 2], value: &[u64; 2]| {
            entries.push((narrow(*key), narrow(*value)));
            ControlFlow::Continue(())
        };
        let all = (Bound::Unbounded, Bound::Unbounded);
        if backwards { self.range_back(all, visit) } else { self.range(all, visit) }.unwrap();
        in_order(entries, backwards)
    }

    fn check(&mut self) {
        PersistentTree::check(self).unwrap();
    }
}

/// Values in the slot, and in blocks of two lengths. A torn one is noticed.
fn long(value: u64) -> Vec<u8> {
    vec![value as u8; [3, 40, 100][value as usize]]
}

fn short(value: &[u8]) -> u64 {
    let number = u64::from(value[0]);
    assert_eq!(value, long(number), "a value is torn");
    number
}

/// The entries of a scan, whose keys must be in the order of the scan.
fn in_order(mut entries: Vec<(u64, u64)>, backwards: bool) -> MapModel {
    if backwards {
        entries.reverse();
    }
    assert!(entries.is_sorted_by(|one, other| one.0 < other.0), "keys are out of order: {entries:?}");
    entries.into_iter().collect()
}

fn map_options() -> map::Options {
    map::Options {
        node_length: Some(192),
        pool: options("map-integers-adr").pool,
        ..map::Options::on(PersistenceDomain::Adr)
    }
}

impl Shared for Map<u64, Traced> {
    const CHANGE: &'static str = "map.note.name";
    const TELLS_VALUES: bool = false;

    fn changes() -> &'static AtomicUsize {
        static CHANGES: AtomicUsize = AtomicUsize::new(0);
        &CHANGES
    }

    fn create(storage: &dyn Storage) -> Self {
        Map::create(storage, "tree", &map_options()).unwrap()
    }

    fn open(storage: &dyn Storage) -> Self {
        Map::open(storage, "tree", &map_options()).unwrap()
    }

    fn run(&self, step: &MapStep) -> Option<u64> {
        match *step {
            MapStep::Upsert(key, value) => self.upsert(&(FILLED + key), &long(value)).unwrap().then_some(0),
            MapStep::Remove(key) => self.remove(&(FILLED + key)).unwrap().map(|value| short(&value)),
            MapStep::Get(key) => self.get(&(FILLED + key)).unwrap().map(|value| short(&value)),
            MapStep::Insert(..) | MapStep::CompareAndUpdate(..) | MapStep::Sync => {
                unreachable!("threads take no such step")
            }
        }
    }

    fn entries(&self, backwards: bool) -> MapModel {
        let read = |entry: Result<(u64, Vec<u8>), _>| entry.map(|(key, value)| (key, short(&value))).unwrap();
        let entries = match backwards {
            true => self.iter().rev().map(read).collect(),
            false => self.iter().map(read).collect(),
        };
        let entries: Vec<(u64, u64)> = in_order(entries, backwards).into_iter().collect();
        let (filled, others) = entries.split_at(entries.partition_point(|(key, _)| *key < FILLED));
        assert!(filled.is_empty() || filled.len() as u64 == FILLED, "{filled:?}");
        others.iter().map(|(key, value)| (key - FILLED, *value)).collect()
    }

    fn fill(&self) {
        // Short values, which take no notes.
        (0..FILLED).for_each(|number| _ = self.upsert(&number, &long(0)).unwrap());
    }

    fn check(&mut self) {
        Map::check(self).unwrap();
    }
}

fn check<const TELLS: bool>(calls: &[Call<TELLS>], start: &MapModel, end: &MapModel, what: &dyn std::fmt::Debug) {
    let is_possible = is_linearizable(calls, |key| start.get(key).copied(), |key| end.get(key).copied());
    assert!(is_possible, "{end:?} after {start:?} and {calls:#?}, {what:?}");
    let is_changed = |key: &u64| calls.iter().any(|call| key_of(&call.operation) == *key);
    for key in start.keys().chain(end.keys()).filter(|key| !is_changed(key)) {
        assert_eq!(start.get(key), end.get(key), "{key} was not touched, {what:?}");
    }
}

/// A map that does not tell values has no compare-and-update.
fn next_step(random: &mut SmallRng, tells_values: bool) -> MapStep {
    let (key, value) = (random.random_range(0..KEYS) * 3, random.random_range(0..3));
    match random.random_range(0..9) {
        0..4 => MapStep::Upsert(key, value),
        4 if tells_values => MapStep::CompareAndUpdate(key, value, (value + 1) % 3),
        4 => MapStep::Get(key),
        5..8 => MapStep::Remove(key),
        _ => MapStep::Get(key),
    }
}

/// Scans the map. A scan is no instant, but each key that nobody changes meanwhile is found, and
/// the others are looked up at some instant of it.
fn scan<T: Shared, const TELLS: bool>(controller: &Controller, map: &T, backwards: bool) -> Vec<Call<TELLS>> {
    let (scanned, mut found) = (Mutex::default(), MapModel::new());
    record(&scanned, controller, MapStep::Get(0), |_| {
        found = map.entries(backwards);
        None
    });
    let call: Call<TELLS> = scanned.into_inner().unwrap().remove(0);
    let ended = |key: &u64| call.ended.as_ref().map(|(at, _)| (*at, found.get(key).copied()));
    let calls = (0..KEYS).map(|key| key * 3);
    calls.map(|key| Call { operation: MapStep::Get(key), began: call.began, ended: ended(&key) }).collect()
}

fn run_threads<T: Shared, const TELLS: bool>(
    controller: &Arc<Controller>,
    map: &Arc<T>,
    random: &mut SmallRng,
) -> Vec<Call<TELLS>> {
    let calls: Arc<Mutex<Vec<Call<TELLS>>>> = Arc::default();
    let threads = random.random_range(THREADS);
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let (controller, map, calls) = (controller.clone(), map.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                for number in 0..random.random_range(1..=OPERATIONS / threads) {
                    let (step, turn) = (next_step(&mut random, TELLS), random.random_range(0..12));
                    if !is_kept(thread, number) {
                        continue;
                    }
                    match turn {
                        0 | 1 => {
                            let found = scan(&controller, &*map, turn == 1);
                            calls.lock().unwrap().extend(found);
                        }
                        _ => _ = record(&calls, &controller, step, |step| map.run(step)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let calls = calls.lock().unwrap();
    calls.clone()
}

/// Changes of several nodes or blocks are counted.
fn keys_are_linearizable<T: Shared, const TELLS: bool>(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let controller = Controller::new();
    let map = Arc::new(T::create(&*controller.storage()));
    if random.random() {
        map.fill();
    }
    // Nodes are about to be split, or about to be merged.
    for key in 0..random.random_range(4..KEYS * 3) {
        if random.random() {
            map.run(&MapStep::Upsert(key, random.random_range(0..3)));
        }
    }
    let start = map.entries(false);
    let first = controller.events();
    let calls = run_threads::<T, TELLS>(&controller, &map, &mut random);
    check(&calls, &start, &map.entries(false), &"at the end");
    let mut map = Arc::into_inner(map).unwrap();
    map.check();
    drop(map);
    let last = controller.events();
    let log = controller.log();
    let is_change = |event: &&Event| matches!(event, Event::Pool(PoolEvent::Fence { site, .. }) if *site == T::CHANGE);
    T::changes().fetch_add(log.iter().skip(first).filter(is_change).count(), Ordering::Relaxed);
    let ends: Vec<usize> = calls.iter().filter_map(|call| call.ended.map(|(at, _)| at)).collect();
    let cuts = (0..3).map(|_| random.random_range(first..=last)).collect::<Vec<_>>();
    for cut in ends.into_iter().chain(cuts) {
        let calls = calls_at(&calls, cut);
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            let mut map = T::open(&*image.storage());
            map.check();
            check(&calls, &start, &map.entries(false), &image);
        }
    }
}

fn explore_map<T: Shared, const TELLS: bool>(name: &str) {
    assert_eq!(TELLS, T::TELLS_VALUES);
    explore(name, 20, keys_are_linearizable::<T, TELLS>);
    let changes = T::changes().load(Ordering::Relaxed);
    let is_one_seed = std::env::var_os("TERRANE_TEST_SEED").is_some();
    assert!(changes > 100 || is_one_seed, "{changes} of {} among others' operations", T::CHANGE);
}

#[test]
fn what_threads_see_of_a_map_and_what_a_crash_leaves_of_it_is_linearizable() {
    explore_map::<BTree<PersistentUnsorted, 2, 2, Traced>, true>("what_threads_see_of_a_map");
}

#[test]
fn what_threads_see_of_logged_leaves_and_what_a_crash_leaves_of_them_is_linearizable() {
    explore_map::<BTree<BTreeWal, 2, 2, Traced>, true>("what_threads_see_of_logged_leaves");
}

#[test]
fn what_threads_see_of_shifted_leaves_and_what_a_crash_leaves_of_them_is_linearizable() {
    explore_map::<BTree<FastFair, 2, 2, Traced>, true>("what_threads_see_of_shifted_leaves");
}

#[test]
fn what_threads_see_below_nodes_in_memory_and_what_a_crash_leaves_of_it_is_linearizable() {
    explore_map::<BTree<FastFairSp, 2, 2, Traced>, true>("what_threads_see_below_nodes_in_memory");
}

#[test]
fn what_threads_see_of_leaves_in_logs_and_what_a_crash_leaves_of_them_is_linearizable() {
    explore_map::<BTree<BTreeLs, 2, 2, Traced>, true>("what_threads_see_of_leaves_in_logs");
}

#[test]
fn what_threads_see_of_long_values_and_what_a_crash_leaves_of_them_is_linearizable() {
    explore_map::<Map<u64, Traced>, false>("what_threads_see_of_long_values");
}
