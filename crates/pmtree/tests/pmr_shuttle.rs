//! Threads that insert into, delete from and search in one PM-RTREE, in random orders by shuttle.
//! Their results, and the state after a crash at any instant, are linearizable for each entry.
//!
//! Threads allocate leaves, change the words that link them, and lose power in between. Each
//! recovery checks that exactly the leaves of the chain are acquired.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::entries::{Call, Counts, check, counts, recover, rect, run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::explorer::Subject;
use terrane_pmem::{PersistenceDomain, Traced};
use terrane_pmtree::explored::{Explored, ExploredTree, Pmr, Step};
use terrane_pmtree::pmr::{Options, PmrTree};
use terrane_pmtree::{PersistentRTree, Rect};
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::linearizability::{calls_at, record};
use terrane_testkit::orders::{explore, is_kept};

type Tree = PmrTree<2, Traced>;

/// Numbers of threads, and the most operations of all of them together.
const THREADS: std::ops::RangeInclusive<usize> = 2..=4;
const OPERATIONS: usize = 12;

const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

/// Entries that threads insert and delete.
const ENTRIES: u64 = 4;

/// Changes of next words in all runs.
static REPLACEMENTS: AtomicUsize = AtomicUsize::new(0);

fn small(seed: u64) -> Options {
    let is_meant = |subject: &Explored<Pmr>| {
        let is_planar = !subject.configuration().starts_with("four");
        is_planar && subject.tree.has_small_nodes() && subject.domain() == PersistenceDomain::Adr
    };
    let subjects: Vec<_> = Pmr::configurations().into_iter().filter(is_meant).collect();
    subjects[seed as usize / 2 % subjects.len()].tree.options.clone()
}

fn next_step(random: &mut SmallRng) -> Step {
    let payload = random.random_range(0..ENTRIES);
    match random.random_range(0..8) {
        0..3 => Step::Insert(rect(payload), payload),
        3..6 => Step::Delete(rect(payload), payload),
        _ => Step::LookUp(rect(payload), payload),
    }
}

/// Searches for everything. An entry that a window shows was there, and stays after a crash.
fn search_everything(controller: &Controller, tree: &Tree) -> Vec<Call> {
    let look_up = |payload| Step::LookUp(rect(payload), payload);
    let (looked, mut found) = (Mutex::default(), Counts::new());
    record(&looked, controller, look_up(0), |_| {
        found = counts(tree);
        true
    });
    let looked: Vec<Call> = looked.into_inner().unwrap();
    let found = found.into_keys().filter(|payload| *payload < ENTRIES);
    found
        .flat_map(|payload| looked.iter().map(move |call| Call { operation: look_up(payload), ..call.clone() }))
        .collect()
}

fn run_threads(controller: &Arc<Controller>, tree: &Arc<Tree>, random: &mut SmallRng) -> Vec<Call> {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let threads = random.random_range(THREADS);
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let (controller, tree, calls) = (controller.clone(), tree.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                for number in 0..random.random_range(1..=OPERATIONS / threads) {
                    let (step, looks_around) = (next_step(&mut random), random.random_range(0..6) == 0);
                    if !is_kept(thread, number) {
                        continue;
                    }
                    match looks_around {
                        true => {
                            let found = search_everything(&controller, &tree);
                            calls.lock().unwrap().extend(found);
                        }
                        false => _ = record(&calls, &controller, step, |step| run(&*tree, step)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let calls = calls.lock().unwrap();
    calls.clone()
}

fn entries_are_linearizable(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let options = small(seed);
    let controller = Controller::new();
    let tree = Arc::new(Tree::create(&*controller.storage(), "tree", &options).unwrap());
    // Leaves are about to be split, or about to be merged.
    let others = random.random_range(1..14);
    (ENTRIES..ENTRIES + others).for_each(|payload| tree.insert(&rect(payload), payload).unwrap());
    for payload in (0..ENTRIES).filter(|_| random.random()) {
        tree.insert(&rect(payload), payload).unwrap();
    }
    let start = counts(&*tree);
    let first = controller.events();
    let calls = run_threads(&controller, &tree, &mut random);
    check(&calls, &start, &counts(&*tree), &"at the end");
    let mut tree = Arc::into_inner(tree).unwrap();
    tree.check().unwrap();
    drop(tree);
    let last = controller.events();
    let log = controller.log();
    let is_decision = |event: &&Event| matches!(event, Event::Pool(PoolEvent::Fence { site: "pmwcas.decide", .. }));
    REPLACEMENTS.fetch_add(log.iter().skip(first).filter(is_decision).count(), Ordering::Relaxed);
    let ends: Vec<usize> = calls.iter().filter_map(|call| call.ended).map(|(at, _)| at).collect();
    let cuts = (0..3).map(|_| random.random_range(first..=last)).collect::<Vec<_>>();
    for cut in ends.into_iter().chain(cuts) {
        let calls = calls_at(&calls, cut);
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            check(&calls, &start, &recover::<Tree>(&*image.storage(), &options), &image);
        }
    }
}

#[test]
fn what_threads_see_of_a_pm_rtree_and_what_a_crash_leaves_of_it_is_linearizable() {
    explore("what_threads_see_of_a_pm_rtree", 6, entries_are_linearizable);
    let replacements = REPLACEMENTS.load(Ordering::Relaxed);
    let is_one_seed = std::env::var_os("TERRANE_TEST_SEED").is_some();
    assert!(replacements > 100 || is_one_seed, "{replacements} leaves were replaced among others' operations");
}

/// Points beyond all other boxes.
const SIDES: [[f64; 2]; 4] = [[-99.0, 0.0], [99.0, 0.0], [0.0, -99.0], [0.0, 99.0]];

/// Each thread inserts boxes that reach beyond all others on another side.
fn no_growth_is_lost(seed: u64) {
    let options = small(seed);
    let controller = Controller::new();
    let tree = Arc::new(Tree::create(&*controller.storage(), "tree", &options).unwrap());
    (0..3).for_each(|payload| tree.insert(&rect(payload), payload).unwrap());
    let of = |side: usize| (Rect::point(SIDES[side]).unwrap(), 100 + side as u64);
    let threads: Vec<_> = (0..SIDES.len())
        .map(|side| {
            let tree = tree.clone();
            shuttle::thread::spawn(move || tree.insert(&of(side).0, of(side).1).unwrap())
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for (rect, payload) in (0..SIDES.len()).map(of) {
        assert!(PersistentRTree::contains(&*tree, &rect, payload).unwrap(), "{payload} lies outside of its leaf's box");
    }
    Arc::into_inner(tree).unwrap().check().unwrap();
}

/// Hole 3: with the paper's plain store of a union, one of two growths is lost, and the entry is
/// never found again.
#[test]
fn boxes_that_several_threads_enlarge_contain_the_entries_of_all() {
    explore("boxes_that_several_threads_enlarge", 16, no_growth_is_lost);
}
