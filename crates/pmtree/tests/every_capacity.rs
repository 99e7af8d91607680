//! Trees on disks of every small capacity. An operation for which there is no space is refused, and
//! the tree stays as it was.

use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::Interrupting;
use terrane_pmtree::pear::{Budget, Options, PearTree, Persisting};
use terrane_pmtree::pmr::{self, LeafForm, PmrTree};
use terrane_pmtree::{Error, Rect};
use terrane_testkit::{MemoryStorage, is_soak};

use crate::support::{TestedTree, ends, random, rect};

type Entry = (Rect<2>, u64);

/// The least part of a disk that can be free or not.
pub const PAGE: u64 = 4096;

pub fn is_refused<T>(outcome: Result<T, Error>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(Error::Pool(terrane_pmem::Error::AddressSpace { .. })) => true,
        Err(Error::Pool(terrane_pmem::Error::Storage(error))) if error.is_storage_full() => true,
        Err(error) => panic!("{error}"),
    }
}

/// Inserts until it was refused often. Entries that need no split are accepted in between.
fn fill<T: TestedTree<2>>(tree: &T, seed: u64, entries: &mut Vec<Entry>) {
    let (mut random, mut refused) = (random(seed), 0);
    while refused < 12 {
        let entry = (rect(&mut random, 1000), entries.len() as u64);
        match is_refused(ends("insert", || tree.insert(&entry.0, entry.1))) {
            true => refused += 1,
            false => entries.push(entry),
        }
    }
}

fn check<T: TestedTree<2>>(tree: &mut T, entries: &[Entry], what: &str) {
    let census = ends("check", || tree.check()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(census.entries, entries.len() as u64, "{what}");
    let is_there = |(rect, payload): &Entry| ends("contains", || tree.contains(rect, *payload).unwrap());
    assert!(entries.iter().all(is_there), "{what}");
}

/// Fills a tree, opens it after a kill, and empties it. `between` runs on the full tree. Gives
/// whether the capacity was enough for an empty tree.
fn works_at<T: TestedTree<2>>(pages: u64, options: &T::Options, between: impl Fn(&T)) -> bool {
    let what = format!("{pages} pages, {options:?}");
    let mut options = options.clone();
    T::pool_of(&mut options).chunk_length = PAGE;
    let storage = MemoryStorage::new();
    storage.set_capacity(pages * PAGE);
    let Ok(mut tree) = T::create(&storage, "tree", &options) else { return false };
    let mut entries = Vec::new();
    fill(&tree, pages, &mut entries);
    check(&mut tree, &entries, &what);
    between(&tree);
    check(&mut tree, &entries, &what);
    fill(&tree, pages + 1, &mut entries);
    drop(tree);
    let opened = ends("open", || T::open(&storage, "tree", &options));
    let mut tree = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&mut tree, &entries, &what);
    between(&tree);
    fill(&tree, pages + 2, &mut entries);
    check(&mut tree, &entries, &what);
    for (rect, payload) in entries {
        assert!(ends("delete", || tree.delete(&rect, payload).unwrap()), "{what}");
    }
    check(&mut tree, &[], &what);
    true
}

fn capacities() -> impl Iterator<Item = u64> {
    (1..64).filter(|pages| is_soak() || *pages < 8 || pages % 8 == 0)
}

#[test]
fn a_pear_tree_refuses_what_it_has_no_space_for_at_every_capacity() {
    type Tree = PearTree<2, Interrupting>;
    let budgets =
        [Budget::Nodes(0), Budget::Nodes(1), Budget::Nodes(5), Budget::Levels(0), Budget::Levels(1), Budget::Levels(9)];
    let mut worked = 0;
    for (budget, fan_out) in budgets.into_iter().flat_map(|budget| [(budget, 4), (budget, 38)]) {
        let modes = [Persisting::InPlace, Persisting::Background];
        for persisting in modes.into_iter().take(if fan_out == 4 { 2 } else { 1 }) {
            let options = Options {
                budget,
                persisting,
                inner_fan_out: fan_out,
                ..Tree::options(PersistenceDomain::Adr, fan_out)
            };
            // In the background mode, budgets that shrink wait for the program.
            let change = |tree: &Tree| {
                for budget in budgets {
                    // A reader keeps slots of intents in use.
                    let _reader = tree.pool().pin();
                    is_refused(ends("set_budget", || tree.set_budget(budget)));
                    is_refused(ends("adapt_step", || tree.adapt_step(3)));
                }
                is_refused(ends("set_budget", || tree.set_budget(budget)));
            };
            worked += capacities().filter(|pages| works_at::<Tree>(*pages, &options, change)).count();
        }
    }
    assert!(worked > 100, "{worked}");
}

#[test]
fn a_pmr_tree_refuses_what_it_has_no_space_for_at_every_capacity() {
    type Tree = PmrTree<2, Interrupting>;
    let mut worked = 0;
    for (leaves, fan_out) in
        [LeafForm::Bitmap, LeafForm::SelfValidating].into_iter().flat_map(|form| [(form, 4), (form, 40)])
    {
        let options = pmr::Options { leaves, ..Tree::options(PersistenceDomain::Adr, fan_out) };
        worked += capacities().filter(|pages| works_at::<Tree>(*pages, &options, |_| {})).count();
    }
    assert!(worked > 20, "{worked}");
}

/// Moves to memory free blocks, and a reader keeps all slots for that in use.
#[test]
fn a_budget_that_grows_on_a_full_disk_leaves_nothing_behind_while_a_reader_stays() {
    let mut options = crate::pear::options(PersistenceDomain::Adr, 4, Budget::Nodes(0));
    options.pool.chunk_length = PAGE;
    let storage = MemoryStorage::new();
    storage.set_capacity(300 * PAGE);
    let mut tree = PearTree::<2, Interrupting>::create(&storage, "tree", &options).unwrap();
    let mut entries = Vec::new();
    fill(&tree, 1, &mut entries);
    {
        let _reader = tree.pool().pin();
        assert!(is_refused(tree.set_budget(Budget::Nodes(u64::MAX))), "there was space for all intents");
    }
    assert!(tree.volatile_nodes() > 0);
    check(&mut tree, &entries, "after the moves");
    // Far outside, so that all boxes above grow.
    let far = (0..200).map(|number| (Rect::point([1e8 + f64::from(number), -1e8]).unwrap(), 1 << 40));
    entries.extend(far.filter(|(rect, payload)| !is_refused(tree.insert(rect, *payload))));
    drop(tree);
    let mut tree = PearTree::<2, Interrupting>::open(&storage, "tree", &options).unwrap();
    check(&mut tree, &entries, "after a kill");
}
