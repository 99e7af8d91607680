//! Threads that insert into, delete from and search in one PeaR-Tree, and move its nodes, in random
//! orders by shuttle. Their results, and the state after a crash at any instant, are linearizable
//! for each entry.

use std::sync::{Arc, Mutex};

use super::entries::{Call, check, counts, recover, rect, run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::explorer::Subject;
use terrane_pmem::{PersistenceDomain, Traced};
use terrane_pmtree::explored::{Explored, ExploredTree, Pear, Step};
use terrane_pmtree::pear::{Budget, Options, PearTree};
use terrane_testkit::crash::{Budget as Images, Controller, NameOrder};
use terrane_testkit::linearizability::{calls_at, record};
use terrane_testkit::orders::{explore, is_kept};

type Tree = PearTree<2, Traced>;

/// Numbers of threads, and the most operations of all of them together.
const THREADS: std::ops::RangeInclusive<usize> = 2..=4;
const OPERATIONS: usize = 12;

const IMAGES: Images = Images { exhaustive_pending: 3, samples: 4, name_order: NameOrder::AnySubset };

/// Entries that threads insert and delete.
const ENTRIES: u64 = 4;

fn small(seed: u64) -> Options {
    let is_meant = |subject: &Explored<Pear>| {
        let is_planar = !subject.configuration().starts_with("four");
        is_planar && subject.tree.has_small_nodes() && subject.domain() == PersistenceDomain::Adr
    };
    let subjects: Vec<_> = Pear::configurations().into_iter().filter(is_meant).collect();
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

fn run_threads(controller: &Arc<Controller>, tree: &Arc<Tree>, random: &mut SmallRng) -> Vec<Call> {
    let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
    let threads = random.random_range(THREADS);
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let (controller, tree, calls) = (controller.clone(), tree.clone(), calls.clone());
            let mut random = SmallRng::from_rng(random);
            shuttle::thread::spawn(move || {
                for number in 0..random.random_range(1..=OPERATIONS / threads) {
                    let (step, moves) = (next_step(&mut random), random.random_range(0..6) == 0);
                    let budget = random.random_range(0..4);
                    if !is_kept(thread, number) {
                        continue;
                    }
                    match moves {
                        true => tree.set_budget(Budget::Nodes(budget)).unwrap(),
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
    // Nodes are about to be split, or about to be merged.
    let others = random.random_range(1..24);
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
    let ends: Vec<usize> = calls.iter().filter_map(|call| call.ended).map(|(at, _)| at).collect();
    let cuts = (0..3).map(|_| random.random_range(first..=last)).collect::<Vec<_>>();
    for cut in ends.into_iter().chain(cuts) {
        let calls = calls_at(&calls, cut);
        for image in controller.images(cut, &IMAGES, seed).chain([controller.process_kill(cut)]) {
            check(&calls, &start, &recover::<Tree>(&*image.storage(), &options), &image);
        }
    }
}

#[test]
fn what_threads_see_of_a_pear_tree_and_what_a_crash_leaves_of_it_is_linearizable() {
    explore("what_threads_see_of_a_pear_tree", 6, entries_are_linearizable);
}
