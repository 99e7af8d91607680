//! Threads that insert into, delete from and look up in one tree, in random orders by shuttle.
//! Their results, and the state after a crash at any instant, are linearizable for each entry.
//!
//! One seed determines the tree, the operations and their orders.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::entries::{Call, Counts, Tree, check, counts, found_by_window, recover, rect, run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::Subject;
use terrane_pmtree::explored::{Explored, ExploredTree, Fbr, Step};
use terrane_pmtree::fbr::{LeafForm, Options, Rebalancing, SearchMode};
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::linearizability::{calls_at, record};
use terrane_testkit::orders::{explore, is_kept};

/// Numbers of threads, and the most operations of all of them together.
const THREADS: std::ops::RangeInclusive<usize> = 3..=5;
const OPERATIONS: usize = 12;

/// Redistributions in all runs, and changes of wide nodes.
static REDISTRIBUTIONS: AtomicUsize = AtomicUsize::new(0);
static WIDE_CHANGES: AtomicUsize = AtomicUsize::new(0);
const BUDGET: Budget = Budget { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

/// Entries that threads insert and delete.
const ENTRIES: u64 = 4;

/// The next action of a thread.
enum Work {
    Step(Step),
    LookAround(SearchMode),
}

fn next_work(random: &mut SmallRng) -> Work {
    match random.random_range(0..6) {
        0 => Work::LookAround(SearchMode::Validated),
        1 => Work::LookAround(SearchMode::SharedLock),
        _ => Work::Step(next_step(random)),
    }
}

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
fn search_everything(controller: &Controller, tree: &Tree, mode: SearchMode) -> Vec<Call> {
    let look_up = |payload| Step::LookUp(rect(payload), payload);
    let (looked, mut found) = (Mutex::default(), Counts::new());
    record(&looked, controller, look_up(0), |_| {
        found = found_by_window(tree, mode);
        true
    });
    let looked: Vec<Call> = looked.into_inner().unwrap();
    let found = found.into_keys().filter(|payload| *payload < ENTRIES);
    found
        .flat_map(|payload| looked.iter().map(move |call| Call { operation: look_up(payload), ..call.clone() }))
        .collect()
}

/// Runs a few operations in each thread. Gives the calls, with the numbers of events at which they
/// began and ended.
fn run_threads(controller: &Arc<Controller>, tree: &Arc<Tree>, random: &mut SmallRng) -> Vec<Call> {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let threads = random.random_range(THREADS);
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let (controller, tree, calls) = (controller.clone(), tree.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                for number in 0..random.random_range(1..=OPERATIONS / threads) {
                    match next_work(&mut random) {
                        _ if !is_kept(thread, number) => {}
                        Work::Step(step) => _ = record(&calls, &controller, step, |step| run(&*tree, step)),
                        Work::LookAround(mode) => {
                            let found = search_everything(&controller, &tree, mode);
                            calls.lock().unwrap().extend(found);
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

fn entries_are_linearizable(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let configurations = Fbr::configurations();
    let is_meant = |subject: &&Explored<Fbr>| {
        subject.tree.dimensions() == 2
            && subject.tree.options.fan_out == 4
            && subject.domain() == PersistenceDomain::Adr
    };
    let subjects: Vec<&Explored<Fbr>> = configurations.iter().filter(is_meant).collect();
    let options = &subjects[seed as usize / 2 % subjects.len()].tree.options;
    // Nodes are about to split, or about to merge.
    let count = random.random_range(1..9);
    entries_beside_others_are_linearizable(seed, options, random, count..count);
}

/// Nodes with bitmaps of several words, of each form and way of rebalancing.
fn entries_of_wide_nodes_are_linearizable(seed: u64) {
    const FAN_OUT: u64 = 60;
    let mut random = SmallRng::seed_from_u64(seed);
    let mut options = Options::new(PersistenceDomain::Adr);
    options.fan_out = FAN_OUT as usize;
    options.rebalancing = if seed & 2 == 0 { Rebalancing::CopyOnWrite } else { Rebalancing::InPlace };
    options.leaves = if seed & 4 == 0 { LeafForm::SelfValidating } else { LeafForm::Bitmap };
    options.pool.chunk_length = 1 << 16;
    options.pool.address_space = 1 << 28;
    // The only leaf is about to be split, or two have so few entries that they are about to be
    // merged.
    let filled = match random.random() {
        true => random.random_range(FAN_OUT - 4..FAN_OUT)..FAN_OUT,
        false => random.random_range(44..50)..FAN_OUT + 8,
    };
    entries_beside_others_are_linearizable(seed, &options, random, filled);
}

/// In a tree with a number of other entries, after more of them were there.
fn entries_beside_others_are_linearizable(seed: u64, options: &Options, mut random: SmallRng, others: Range<u64>) {
    let controller = Controller::new();
    let tree = Arc::new(Tree::create(&*controller.storage(), "tree", options).unwrap());
    for payload in ENTRIES..ENTRIES + others.end {
        tree.insert(&rect(payload), payload).unwrap();
    }
    for payload in ENTRIES + others.start..ENTRIES + others.end {
        assert!(tree.delete(&rect(payload), payload).unwrap());
    }
    for payload in (0..ENTRIES).filter(|_| random.random()) {
        tree.insert(&rect(payload), payload).unwrap();
    }
    let start = counts(&*tree);
    let first = controller.events();
    let calls = run_threads(&controller, &tree, &mut random);
    check(&calls, &start, &counts(&*tree), &"at the end");
    let last = controller.events();
    let fences = |sites: &[&str]| {
        let is_one =
            |event: &&Event| matches!(event, Event::Pool(PoolEvent::Fence { site, .. }) if sites.contains(site));
        controller.log().iter().skip(first).filter(is_one).count()
    };
    match options.fan_out {
        4 => REDISTRIBUTIONS.fetch_add(fences(&["fbr.complete.redistribute"]), Ordering::Relaxed),
        _ => WIDE_CHANGES.fetch_add(fences(&["fbr.log.commit", "fbr.split.root.link"]), Ordering::Relaxed),
    };
    drop(tree);
    // Anywhere, and right after a search.
    let ends: Vec<usize> = calls.iter().filter_map(|call| call.ended).map(|(at, _)| at).collect();
    let cuts = (0..3).map(|_| random.random_range(first..=last)).collect::<Vec<_>>();
    for cut in ends.into_iter().chain(cuts) {
        let calls = calls_at(&calls, cut);
        for image in controller.images(cut, &BUDGET, seed).chain([controller.process_kill(cut)]) {
            check(&calls, &start, &recover::<Tree>(&*image.storage(), options), &image);
        }
    }
}

#[test]
fn what_threads_see_of_entries_in_wide_nodes_and_what_a_crash_leaves_is_linearizable() {
    explore("what_threads_see_of_entries_in_wide_nodes", 8, entries_of_wide_nodes_are_linearizable);
    let changes = WIDE_CHANGES.load(Ordering::Relaxed);
    let is_one_seed = std::env::var_os("TERRANE_TEST_SEED").is_some();
    assert!(changes > 5 || is_one_seed, "{changes} splits and merges among others' operations");
}

#[test]
fn what_threads_see_of_entries_and_what_a_crash_leaves_is_linearizable() {
    explore("what_threads_see_of_entries", 16, entries_are_linearizable);
    let redistributions = REDISTRIBUTIONS.load(Ordering::Relaxed);
    let is_one_seed = std::env::var_os("TERRANE_TEST_SEED").is_some();
    assert!(redistributions > 5 || is_one_seed, "{redistributions} redistributions among others' operations");
}
