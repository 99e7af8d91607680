//! Two writers on one tree. One stops in the middle of an operation, and the other continues as far
//! as it can, or waits.

use std::sync::{Arc, mpsc};

use crate::support::{random, rect};
use crate::unnoticed::{Operation, Tree, all_options, operate, search, seeds, tree, waits};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane_pmem::interrupting::{At, Stopped};
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::Options;

/// Enough for three levels, so that inner nodes have siblings.
const ENTRIES: u64 = 24;
/// Consecutive operations of the first writer. Each is stopped once in a run.
const OPERATIONS: usize = 30;
/// Operations of the other writer while the first one is stopped.
const MEANWHILE: usize = 3;

/// The tree's entries, and numbers for new ones.
struct Drawn {
    entries: Vec<(Rect<2>, u64)>,
    next: u64,
}

impl Drawn {
    /// An operation on an entry of its own: mostly insertions while the tree grows, mostly
    /// deletions while it shrinks.
    fn operation(&mut self, random: &mut SmallRng, grows: bool) -> Operation {
        if self.entries.is_empty() || random.random_bool(if grows { 0.9 } else { 0.1 }) {
            self.next += 1;
            (true, (rect(&mut crate::support::random(self.next), 30), self.next))
        } else {
            (false, self.entries.swap_remove(random.random_range(0..self.entries.len())))
        }
    }
}

/// Runs the other operations while one waits at a load. Gives whether they had to wait.
fn beside(tree: &Arc<Tree>, load: usize, stopped: Operation, others: Vec<Operation>) -> bool {
    let writer = tree.clone();
    let writer = Stopped::start(At::Load, load, move || operate(&writer, stopped));
    let (other, (tell, told)) = (tree.clone(), mpsc::channel::<()>());
    let other = std::thread::spawn(move || {
        others.into_iter().for_each(|operation| operate(&other, operation));
        drop(tell);
    });
    let has_waited = waits(&told);
    Stopped::end([writer]);
    other.join().unwrap();
    has_waited
}

/// Locks are taken from the root downwards, and by deletions also from a node in the middle. A
/// writer with the wrong locks meets the other writer's half-done changes, and damages the tree or
/// loses an entry.
#[test]
fn what_a_writer_does_while_another_one_stops_is_whole() {
    let all: Vec<Options> = all_options().collect();
    let mut waiting = 0;
    let seeds = seeds(120, 2_000);
    for seed in seeds.clone() {
        // If a writer fails, this is the only report.
        println!("TERRANE_TEST_SEED={seed} runs this again");
        let mut random = random(seed);
        let options = &all[seed as usize % all.len()];
        let mut drawn =
            Drawn { entries: (0..ENTRIES).map(|number| (rect(&mut random, 30), number)).collect(), next: ENTRIES };
        let mut tree = tree(options, &drawn.entries);
        for number in 0..OPERATIONS {
            let grows = number % 20 >= 14;
            let stopped = drawn.operation(&mut random, grows);
            let others: Vec<Operation> = (0..MEANWHILE).map(|_| drawn.operation(&mut random, grows)).collect();
            let load = random.random_range(0..400);
            let come = others.iter().chain([&stopped]).filter(|(is_coming, _)| *is_coming).map(|(_, entry)| *entry);
            drawn.entries.extend(come);
            let what = format!(
                "seed {seed}, operation {number}, load {load}, {stopped:?} beside {others:?}, {options:?}; \
                 TERRANE_TEST_SEED={seed} runs it again"
            );
            waiting += u64::from(beside(&tree, load, stopped, others));
            let mut left: Vec<u64> = drawn.entries.iter().map(|&(_, payload)| payload).collect();
            left.sort_unstable();
            assert_eq!(search(&tree, false), left, "{what}");
            let alone = Arc::get_mut(&mut tree).unwrap();
            alone.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    // One seed alone may have none.
    assert!(waiting > 50 || seeds.count() == 1, "{waiting} writers have waited");
}

/// An insertion reads a root of any number of entries, and stops before it has its lock. If others
/// could divide the root now, the insertion would continue in a half, and beside boxes that do not
/// grow with it.
#[test]
fn nobody_divides_a_root_that_an_insertion_is_about_to_lock() {
    const LOADS: usize = 8;
    let mut random = random(7);
    let entries: Vec<(Rect<2>, u64)> = (0..ENTRIES).map(|number| (rect(&mut random, 30), number)).collect();
    let comes = |entry: &(Rect<2>, u64)| (true, *entry);
    for options in all_options() {
        for (early, load) in (0..entries.len() - MEANWHILE).flat_map(|early| (0..LOADS).map(move |load| (early, load)))
        {
            let mut tree = tree(&options, &entries[..early]);
            let (stopped, others) = (comes(&entries[early]), &entries[early + 1..][..MEANWHILE]);
            beside(&tree, load, stopped, others.iter().map(comes).collect());
            let what = format!("{early} entries, load {load}, {options:?}");
            let numbers: Vec<u64> = (0..=(early + MEANWHILE) as u64).collect();
            assert_eq!(search(&tree, false), numbers, "{what}");
            let alone = Arc::get_mut(&mut tree).unwrap();
            alone.check().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}
