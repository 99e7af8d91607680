//! Threads that insert into, delete from and search in one PeaR-Tree, and move its nodes, in random
//! orders by shuttle. Their results, and the state after a crash at any instant, are linearizable
//! for each entry.

use rand::Rng;

use super::entries::{Other, counts, search_everything, small, threads_are_linearizable};
use terrane_pmem::Traced;
use terrane_pmtree::explored::Pear;
use terrane_pmtree::pear::{Budget, PearTree};
use terrane_testkit::crash::Controller;
use terrane_testkit::orders::explore;

/// Windows, and changes of the budget.
const OTHERS: &[Other<PearTree<2, Traced>>] = &[
    |controller, tree, _| search_everything(controller, tree, counts),
    |_, tree, random| {
        tree.set_budget(Budget::Nodes(random.random_range(0..4))).unwrap();
        Vec::new()
    },
];

fn entries_are_linearizable(seed: u64) {
    _ = threads_are_linearizable(&Controller::new(), &small::<Pear>(seed).options, 24, seed, OTHERS);
}

#[test]
fn what_threads_see_of_a_pear_tree_and_what_a_crash_leaves_of_it_is_linearizable() {
    explore("what_threads_see_of_a_pear_tree", 6, entries_are_linearizable);
}
