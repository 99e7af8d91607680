//! Threads that insert into, delete from and look up in one tree, in orders drawn by shuttle: what they see, and what a crash
//! at any instant leaves, is linearizable, entry by entry.
//!
//! One seed gives the tree, the operations and their orders.
#![cfg(shuttle)]

#[path = "../../pmem/tests/support/orders.rs"]
mod orders;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use orders::explore;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::explorer::Subject;
use terrane_pmem::explorer::linearizability::{self, Specification, calls_at, is_linearizable, record};
use terrane_pmem::{PersistenceDomain, Traced};
use terrane_pmtree::explored::{Explored, Kind, Step};
use terrane_pmtree::{FbrTree, Options, Rect, SearchMode};
use terrane_storage::Storage;
use terrane_storage::crash::{Budget, Controller, NameOrder};

const THREADS: usize = 3;
const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

/// Entries that threads insert and delete.
const ENTRIES: u64 = 4;

type Tree = FbrTree<2, Traced>;

/// How often each entry is there.
type Held = HashMap<u64, u64>;

/// A tree as a multiset of entries; each payload has one box.
#[derive(Clone, Debug)]
struct Entries;

impl Specification for Entries {
    type Operation = Step;
    /// Whether there was one.
    type Outcome = bool;
    type Key = u64;
    /// How many there are.
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

type Call = linearizability::Call<Entries>;

/// The box of a payload; those that threads change and those that only fill the tree lie among each other.
fn rect(payload: u64) -> Rect<2> {
    let corner = [(payload * 5 % 8) as f64, (payload * 3 % 7) as f64];
    Rect::new(corner, corner.map(|low| low + 1.0)).unwrap()
}

fn run(tree: &Tree, step: &Step) -> bool {
    match step {
        Step::Insert(rect, payload) => tree.insert(rect, *payload).map(|()| true),
        Step::Delete(rect, payload) => tree.delete(rect, *payload),
        Step::LookUp(rect, payload) => tree.contains(rect, *payload),
        Step::Sync => Ok(true),
    }
    .unwrap()
}

fn next_step(random: &mut SmallRng) -> Step {
    let payload = random.random_range(0..ENTRIES);
    match random.random_range(0..8) {
        0..3 => Step::Insert(rect(payload), payload),
        3..6 => Step::Delete(rect(payload), payload),
        _ => Step::LookUp(rect(payload), payload),
    }
}

/// Runs a few operations in each thread; the calls, with the number of events at which they began and ended.
fn run_threads(controller: &Arc<Controller>, tree: &Arc<Tree>, random: &mut SmallRng) -> Vec<Call> {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (controller, tree, calls) = (controller.clone(), tree.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                for _ in 0..random.random_range(1..=4) {
                    record(&calls, &controller, next_step(&mut random), |step| run(&tree, step));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let calls = calls.lock().unwrap();
    calls.clone()
}

/// The entries of a tree that a crash has left, after a check of it.
fn recover(storage: &dyn Storage, options: &Options) -> Held {
    let mut tree = Tree::open(storage, "tree", options).unwrap();
    tree.check().unwrap();
    held(&tree)
}

fn held(tree: &Tree) -> Held {
    let everything = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
    let mut held = Held::new();
    let count = |found: &Rect<2>, payload| {
        assert_eq!(*found, rect(payload));
        *held.entry(payload).or_default() += 1;
    };
    tree.window(&everything, SearchMode::Validated, count).unwrap();
    held
}

fn check(calls: &[Call], start: &Held, end: &Held, what: &dyn std::fmt::Debug) {
    let count = |held: &Held, payload: &u64| held.get(payload).copied().unwrap_or(0);
    assert!(
        is_linearizable(calls, |payload| count(start, payload), |payload| count(end, payload)),
        "{end:?} after {start:?} and {calls:#?}, {what:?}"
    );
    let is_changed = |payload: &u64| calls.iter().any(|call| Entries::key(&call.operation) == *payload);
    for payload in start.keys().chain(end.keys()).filter(|payload| !is_changed(payload)) {
        assert_eq!(count(start, payload), count(end, payload), "{payload} was not touched, {what:?}");
    }
}

fn entries_are_linearizable(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let configurations = Explored::configurations();
    let is_meant = |subject: &&Explored| {
        subject.kind() == Kind::Fbr && subject.options().fan_out == 4 && subject.domain() == PersistenceDomain::Adr
    };
    let subjects: Vec<&Explored> = configurations.iter().filter(is_meant).collect();
    let options = subjects[seed as usize / 2 % subjects.len()].options();
    let controller = Controller::new();
    let tree = Arc::new(Tree::create(&*controller.storage(), "tree", options).unwrap());
    // Nodes are about to split, or about to merge.
    for payload in ENTRIES..ENTRIES + random.random_range(1..9) {
        tree.insert(&rect(payload), payload).unwrap();
    }
    for payload in (0..ENTRIES).filter(|_| random.random()) {
        tree.insert(&rect(payload), payload).unwrap();
    }
    let start = held(&tree);
    let first = controller.events();
    let calls = run_threads(&controller, &tree, &mut random);
    check(&calls, &start, &held(&tree), &"at the end");
    let last = controller.events();
    drop(tree);
    // Anywhere, and right after something was seen.
    let ends: Vec<usize> = calls.iter().filter_map(|call| call.ended).map(|(at, _)| at).collect();
    let cuts = (0..3).map(|_| random.random_range(first..=last)).collect::<Vec<_>>();
    for cut in ends.into_iter().chain(cuts) {
        let calls = calls_at(&calls, cut);
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            check(&calls, &start, &recover(&*image.storage(), options), &image);
        }
    }
}

#[test]
fn what_threads_see_of_entries_and_what_a_crash_leaves_is_linearizable() {
    explore("what_threads_see_of_entries", 16, entries_are_linearizable);
}
