//! A process that is killed while its threads change a tree. Acknowledged changes are there, and
//! the tree is sound.

mod map_kill;
mod support;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use support::{BOTH, FORMS, TestedTree, options, random, rect, window};
use terrane_pmem::PersistenceDomain;
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{FbrTree, Options, Rebalancing, SearchMode};
use terrane_pmtree::logged::{self, LoggedTree};
use terrane_pmtree::pear::{self, PearTree};
use terrane_pmtree::pmr::{self, PmrTree};
use terrane_storage::RealStorage;
use terrane_testkit::killed;

/// Held by the test that runs. A process that another test starts would keep a pool locked which is
/// open here, until the process has begun its own program.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for the other tests.
fn alone() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const THREADS: u64 = 4;
/// A thread deletes each entry after this many further insertions.
const LIFETIME: u64 = 300;

/// Names of the pools.
const FBR: &str = "fbr";
const LOGGED: &str = "logged";
const PMR: &str = "pmr";
const PEAR: &str = "pear";

fn small() -> Options {
    options(PersistenceDomain::PageCache, 6, Rebalancing::InPlace)
}

fn small_logged() -> logged::Options {
    LoggedTree::<2>::options(PersistenceDomain::PageCache, 6)
}

fn small_pmr() -> pmr::Options {
    PmrTree::<2>::options(PersistenceDomain::PageCache, 6)
}

fn small_pear() -> pear::Options {
    PearTree::<2>::options(PersistenceDomain::PageCache, 6)
}

fn open<T: TestedTree<2>>(directory: &Path, name: &str, options: &T::Options) -> T {
    T::open(&RealStorage::new(directory), name, options).unwrap()
}

fn payload(thread: u64, number: u64) -> u64 {
    thread << 32 | number
}

fn rect_of(payload: u64) -> Rect<2> {
    rect(&mut random(payload), 200)
}

/// Continues where the thread's entries end. Reports each insertion, together with its deletion.
fn change_until_killed(tree: &impl TestedTree<2>, thread: u64) {
    let everything = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
    let own = window(tree, &everything, SearchMode::Validated).into_iter().filter(|payload| payload >> 32 == thread);
    let first = own.max().map_or(0, |payload| (payload & 0xffff_ffff) + 1);
    for number in first.. {
        let own = payload(thread, number);
        tree.insert(&rect_of(own), own).unwrap();
        if let Some(old) = number.checked_sub(LIFETIME) {
            tree.delete(&rect_of(payload(thread, old)), payload(thread, old)).unwrap();
        }
        killed::acknowledge(thread, number);
    }
}

/// Changes the tree of a directory in several threads.
fn change_by_threads<T: TestedTree<2>>(directory: &Path, name: &str, options: &T::Options) {
    let tree: T = open(directory, name, options);
    let tree = &tree;
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || change_until_killed(tree, thread))))
    });
}

#[test]
fn a_tree_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged() {
    // The test runs itself as that process.
    if let Some(directory) = killed::place() {
        match [LOGGED, PMR, PEAR].into_iter().find(|name| directory.join(name).exists()) {
            Some(LOGGED) => change_by_threads::<LoggedTree<2>>(&directory, LOGGED, &small_logged()),
            Some(PEAR) => change_by_threads::<PearTree<2>>(&directory, PEAR, &small_pear()),
            Some(_) => change_by_threads::<PmrTree<2>>(&directory, PMR, &small_pmr()),
            None => change_by_threads::<FbrTree<2>>(&directory, FBR, &small()),
        }
        return;
    }
    let _turn = alone();
    for leaves in FORMS {
        let both = BOTH.map(|rebalancing| Options { leaves, rebalancing, ..small() });
        kill_again_and_again::<FbrTree<2>>(FBR, &both);
    }
    kill_again_and_again::<LoggedTree<2>>(LOGGED, &[small_logged()]);
    kill_again_and_again::<PmrTree<2>>(PMR, &[small_pmr()]);
    let in_pool = pear::Options { budget: pear::Budget::Nodes(0), ..small_pear() };
    kill_again_and_again::<PearTree<2>>(PEAR, &[small_pear(), in_pool]);
}

/// Opens it with the next of the options each time.
fn kill_again_and_again<T: TestedTree<2>>(name: &str, options: &[T::Options]) {
    let directory = support::directory();
    drop(T::create(&RealStorage::new(directory.path()), name, &options[0]).unwrap());
    for (round, changes) in [1, 10, 100, 1000, 3000, 3001, 5000].into_iter().enumerate() {
        let test = "a_tree_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged";
        let acknowledged = killed::run_and_kill(test, directory.path(), THREADS, changes);
        let mut tree: T = open(directory.path(), name, &options[round % options.len()]);
        tree.check().unwrap();
        for (thread, acknowledged) in (0..).zip(acknowledged) {
            let Some(last) = acknowledged else { continue };
            // A change after the last acknowledged one may have deleted one more.
            for number in (last + 2).saturating_sub(LIFETIME)..=last {
                let own = payload(thread, number);
                assert!(
                    tree.contains(&rect_of(own), own).unwrap(),
                    "{number} of thread {thread} of {name} after {changes} changes"
                );
            }
        }
    }
}
