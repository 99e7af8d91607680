//! Threads that insert into, delete from and look up in one tree, in random orders by shuttle.
//! Their results, and the state after a crash at any instant, are linearizable for each entry.
//!
//! One seed determines the tree, the operations and their orders.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::entries::{
    Counts, ENTRIES, Other, Tree, check, check_crashes, count, counts, everything, rect, run_threads, search_everything,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::Subject;
use terrane_pmtree::explored::{Explored, ExploredTree, Fbr};
use terrane_pmtree::fbr::{LeafForm, Options, Rebalancing, SearchMode};
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::Controller;
use terrane_testkit::orders::explore;

/// Redistributions in all runs, and changes of wide nodes.
static REDISTRIBUTIONS: AtomicUsize = AtomicUsize::new(0);
static WIDE_CHANGES: AtomicUsize = AtomicUsize::new(0);

fn window_in(tree: &Tree, mode: SearchMode) -> Counts {
    let mut found = Counts::new();
    tree.window(&everything(), mode, |rect, payload| count(&mut found, rect, payload)).unwrap();
    found
}

/// Windows without locks, and with shared ones.
const WINDOWS: &[Other<Tree>] = &[
    |controller, tree, _| search_everything(controller, tree, |tree| window_in(tree, SearchMode::Validated)),
    |controller, tree, _| search_everything(controller, tree, |tree| window_in(tree, SearchMode::SharedLock)),
];

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
    let calls = run_threads(&controller, &tree, &mut random, 3..=5, WINDOWS);
    check(&calls, &start, &counts(&*tree), &"at the end");
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
    check_crashes::<Tree>(&controller, &calls, &start, options, (seed, &mut random, first));
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
