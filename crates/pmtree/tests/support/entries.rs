//! A tree as a multiset of entries, for searches in orders of threads. Each payload has one box.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex};

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use terrane_pmem::explorer::Subject;
use terrane_pmem::{PersistenceDomain, Traced};
use terrane_pmtree::explored::{Explored, ExploredTree, Step};
use terrane_pmtree::fbr::FbrTree;
use terrane_pmtree::{PersistentRTree, PersistentTree, Rect};
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::linearizability::{self, Specification, calls_at, is_linearizable, record};
use terrane_testkit::orders::is_kept;

pub type Tree = FbrTree<2, Traced>;

/// The number of copies of each entry.
pub type Counts = HashMap<u64, u64>;

/// A tree as a multiset of entries. Each payload has one box.
#[derive(Clone, Debug)]
pub struct Entries;

impl Specification for Entries {
    type Operation = Step;
    /// Whether there was one.
    type Outcome = bool;
    type Key = u64;
    /// The number of copies.
    type State = u64;

    fn key(step: &Step) -> u64 {
        match step {
            Step::Insert(_, payload) | Step::Delete(_, payload) | Step::LookUp(_, payload) => *payload,
            Step::Sync => unreachable!("threads take no such step"),
        }
    }

    fn apply(step: &Step, count: &mut u64) -> bool {
        let was_there = *count > 0;
        match step {
            Step::Insert(..) => *count += 1,
            Step::Delete(..) => *count -= u64::from(was_there),
            Step::LookUp(..) | Step::Sync => {}
        }
        match step {
            Step::Delete(..) | Step::LookUp(..) => was_there,
            Step::Insert(..) | Step::Sync => true,
        }
    }
}

pub type Call = linearizability::Call<Entries>;

/// Payloads of boxes that reach beyond most others, so that the boxes of all nodes above them grow.
pub const LARGE: Range<u64> = 64..72;

/// The box of a payload. Entries that threads change and those that only fill the tree lie among
/// each other.
pub fn rect(payload: u64) -> Rect<2> {
    let corner = [(payload * 5 % 8) as f64, (payload * 3 % 7) as f64];
    let [below, above] = if LARGE.contains(&payload) { [8.0, 9.0] } else { [0.0, 1.0] };
    Rect::new(corner.map(|low| low - below), corner.map(|low| low + above)).unwrap()
}

pub fn run(tree: &impl PersistentRTree<2>, step: &Step) -> bool {
    match step {
        Step::Insert(rect, payload) => tree.insert(rect, *payload).map(|()| true),
        Step::Delete(rect, payload) => tree.delete(rect, *payload),
        Step::LookUp(rect, payload) => tree.contains(rect, *payload),
        Step::Sync => Ok(true),
    }
    .unwrap()
}

/// The entries of a tree that a crash has left, after a check of it.
pub fn recover<T: PersistentRTree<2> + PersistentTree<Options: Sized>>(
    storage: &dyn Storage,
    options: &T::Options,
) -> Counts {
    let mut tree = T::open(storage, "tree", options).unwrap();
    tree.check().unwrap();
    counts(&tree)
}

pub fn counts(tree: &impl PersistentRTree<2>) -> Counts {
    let mut counts = Counts::new();
    tree.window(&everything(), &mut |found, payload| count(&mut counts, found, payload)).unwrap();
    counts
}

pub fn everything() -> Rect<2> {
    Rect::new([-1e9; 2], [1e9; 2]).unwrap()
}

pub fn count(counts: &mut Counts, found: &Rect<2>, payload: u64) {
    assert_eq!(*found, rect(payload));
    *counts.entry(payload).or_default() += 1;
}

pub fn check(calls: &[Call], start: &Counts, end: &Counts, what: &dyn std::fmt::Debug) {
    let count = |counts: &Counts, payload: &u64| counts.get(payload).copied().unwrap_or(0);
    assert!(
        is_linearizable(calls, |payload| count(start, payload), |payload| count(end, payload)),
        "{end:?} after {start:?} and {calls:#?}, {what:?}"
    );
    let is_changed = |payload: &u64| calls.iter().any(|call| Entries::key(&call.operation) == *payload);
    for payload in start.keys().chain(end.keys()).filter(|payload| !is_changed(payload)) {
        assert_eq!(count(start, payload), count(end, payload), "{payload} was not touched, {what:?}");
    }
}

/// Entries that threads insert and delete.
pub const ENTRIES: u64 = 4;

/// The most operations of all threads together.
const OPERATIONS: usize = 12;

const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

/// What a thread may do besides operations on entries. Gives the calls that it has made.
pub type Other<T> = fn(&Controller, &T, &mut SmallRng) -> Vec<Call>;

fn next_step(random: &mut SmallRng) -> Step {
    let payload = random.random_range(0..ENTRIES);
    match random.random_range(0..8) {
        0..3 => Step::Insert(rect(payload), payload),
        3..6 => Step::Delete(rect(payload), payload),
        _ => Step::LookUp(rect(payload), payload),
    }
}

/// Searches for everything. An entry that a window shows was there, and stays after a crash. A
/// window may miss entries that move meanwhile.
pub fn search_everything<T>(controller: &Controller, tree: &T, window: impl Fn(&T) -> Counts) -> Vec<Call> {
    let look_up = |payload| Step::LookUp(rect(payload), payload);
    let (looked, mut found) = (Mutex::default(), Counts::new());
    record(&looked, controller, look_up(0), |_| {
        found = window(tree);
        true
    });
    let looked: Vec<Call> = looked.into_inner().unwrap();
    let found = found.into_keys().filter(|payload| *payload < ENTRIES);
    found
        .flat_map(|payload| looked.iter().map(move |call| Call { operation: look_up(payload), ..call.clone() }))
        .collect()
}

/// Runs a few operations in each of some threads, one in six of them each of the others. Gives the
/// calls, with the numbers of events at which they began and ended.
pub fn run_threads<T: PersistentRTree<2> + 'static>(
    controller: &Arc<Controller>,
    tree: &Arc<T>,
    random: &mut SmallRng,
    threads: RangeInclusive<usize>,
    others: &'static [Other<T>],
) -> Vec<Call> {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let threads = random.random_range(threads);
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let (controller, tree, calls) = (controller.clone(), tree.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                for number in 0..random.random_range(1..=OPERATIONS / threads) {
                    let other = others.get(random.random_range(0..6));
                    let step = next_step(&mut random);
                    match other {
                        _ if !is_kept(thread, number) => {}
                        None => _ = record(&calls, &controller, step, |step| run(&*tree, step)),
                        Some(other) => {
                            let made = other(&controller, &*tree, &mut random);
                            calls.lock().unwrap().extend(made);
                        }
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let calls = calls.lock().unwrap();
    calls.clone()
}

/// Checks what crashes leave: anywhere since an event, and right after each call.
pub fn check_crashes<T: PersistentRTree<2> + PersistentTree<Options: Sized>>(
    controller: &Controller,
    calls: &[Call],
    start: &Counts,
    options: &T::Options,
    (seed, random, first): (u64, &mut SmallRng, usize),
) {
    let ends: Vec<usize> = calls.iter().filter_map(|call| call.ended).map(|(at, _)| at).collect();
    let cuts = (0..3).map(|_| random.random_range(first..=controller.events())).collect::<Vec<_>>();
    for cut in ends.into_iter().chain(cuts) {
        let calls = calls_at(calls, cut);
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            check(&calls, start, &recover::<T>(&*image.storage(), options), &image);
        }
    }
}

/// A tree of a few nodes that are about to be split, or about to be merged.
pub fn grown<T: PersistentRTree<2> + PersistentTree<Options: Sized>>(
    controller: &Controller,
    options: &T::Options,
    most_others: u64,
    random: &mut SmallRng,
) -> Arc<T> {
    let tree = T::create(&*controller.storage(), "tree", options).unwrap();
    let others = random.random_range(1..most_others);
    (ENTRIES..ENTRIES + others).for_each(|payload| tree.insert(&rect(payload), payload).unwrap());
    for payload in (0..ENTRIES).filter(|_| random.random()) {
        tree.insert(&rect(payload), payload).unwrap();
    }
    Arc::new(tree)
}

/// Runs threads in a grown tree. Checks what they see, the tree, and what crashes leave. Gives the
/// event at which they began.
pub fn threads_are_linearizable<T: PersistentRTree<2> + PersistentTree<Options: Sized> + 'static>(
    controller: &Arc<Controller>,
    options: &T::Options,
    most_others: u64,
    seed: u64,
    others: &'static [Other<T>],
) -> usize {
    let mut random = SmallRng::seed_from_u64(seed);
    let tree = grown::<T>(controller, options, most_others, &mut random);
    let (start, first) = (counts(&*tree), controller.events());
    let calls = run_threads(controller, &tree, &mut random, 2..=4, others);
    check(&calls, &start, &counts(&*tree), &"at the end");
    let mut tree = Arc::into_inner(tree).unwrap();
    tree.check().unwrap();
    drop(tree);
    check_crashes::<T>(controller, &calls, &start, options, (seed, &mut random, first));
    first
}

/// A planar tree of small nodes where caches are not durable, another one for each second seed.
pub fn small<T: ExploredTree>(seed: u64) -> T {
    let is_meant = |subject: &Explored<T>| {
        let is_planar = !subject.configuration().starts_with("four");
        is_planar && subject.tree.has_small_nodes() && subject.domain() == PersistenceDomain::Adr
    };
    let mut subjects: Vec<_> = T::configurations().into_iter().filter(is_meant).collect();
    let number = seed as usize / 2 % subjects.len();
    subjects.swap_remove(number).tree
}
