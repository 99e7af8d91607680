//! Changes that a search could overlook: splits that leave each box as it is, and roots that go and
//! come back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support::{BOTH, FORMS, Model, options, random, rect};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::{At, Interrupting, Stopped, interrupt, interrupt_again, loads_of};
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{FbrTree, Options, SearchMode};
use terrane_testkit::crash::Controller;

pub type Tree = FbrTree<2, Interrupting>;

pub fn all_options() -> impl Iterator<Item = Options> {
    let all = FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing)));
    all.map(|(leaves, rebalancing)| Options { leaves, ..options(PersistenceDomain::Adr, 4, rebalancing) })
}

pub fn tree(options: &Options, entries: &[(Rect<2>, u64)]) -> Arc<Tree> {
    let tree = Tree::create(&*Controller::new().storage(), "tree", options).unwrap();
    insert(&tree, entries);
    Arc::new(tree)
}

fn insert(tree: &Tree, entries: &[(Rect<2>, u64)]) {
    entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
}

fn delete(tree: &Tree, entries: &[(Rect<2>, u64)]) {
    entries.iter().for_each(|(rect, payload)| assert!(tree.delete(rect, *payload).unwrap()));
}

/// Everything that a search finds, by windows or by distance.
pub fn search(tree: &Tree, is_by_distance: bool) -> Vec<u64> {
    let mut found = Vec::new();
    if is_by_distance {
        let nearest = tree.nearest(&[0.0; 2], usize::MAX, SearchMode::Validated, |_, _| true).unwrap();
        found.extend(nearest.iter().map(|&(.., payload)| payload));
    } else {
        let everywhere = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
        tree.window(&everywhere, SearchMode::Validated, |_, payload| found.push(payload)).unwrap();
    }
    found.sort_unstable();
    found
}

/// The numbers of permanent entries among those that were found.
fn permanent(found: Vec<u64>, entries: &[(Rect<2>, u64)]) -> Vec<u64> {
    let is_permanent = |number: &u64| entries.iter().any(|(_, payload)| payload == number);
    found.into_iter().filter(is_permanent).collect()
}

/// Any number of insertions between any two loads of a search, in trees of two and of three levels.
#[test]
fn halves_of_nodes_that_are_split_into_equal_boxes_are_found() {
    let equal = |numbers: std::ops::Range<u64>| -> Vec<(Rect<2>, u64)> {
        numbers.map(|number| (Rect::new([0.0; 2], [9.0; 2]).unwrap(), number)).collect()
    };
    for (options, count) in all_options().flat_map(|options| [5, 14].map(|count| (options.clone(), count))) {
        let entries = equal(0..count);
        let numbers: Vec<u64> = (0..count).collect();
        for (inserted, is_by_distance) in (1..=4).flat_map(|inserted| [(inserted, false), (inserted, true)]) {
            for load in 0.. {
                let tree = tree(&options, &entries);
                let (writer, new) = (tree.clone(), equal(100..100 + inserted));
                let write = move || insert(&writer, &new);
                let (found, was_interrupted) = interrupt(At::Load, load, write, || search(&tree, is_by_distance));
                let what = format!("{options:?}, {inserted} after {load} loads, by distance: {is_by_distance}");
                assert_eq!(permanent(found, &entries), numbers, "{what}");
                if !was_interrupted {
                    break;
                }
            }
        }
    }
}

/// A leaf that is the root is split while a search reads it, and merged with its other half later
/// in the same search; or it is read when the deletion that merges them has begun.
#[test]
fn what_was_in_the_other_half_of_a_root_that_comes_back_is_found() {
    let cluster = |at: u64, numbers: std::ops::Range<u64>| -> Vec<(Rect<2>, u64)> {
        let point = |number: u64| Rect::point([(100 * at + number) as f64, number as f64]).unwrap();
        numbers.map(|number| (point(number), 10 * at + number)).collect()
    };
    for (options, at) in all_options().flat_map(|options| [(options.clone(), 0), (options, 1)]) {
        let entries = cluster(at, 0..2);
        let numbers: Vec<u64> = entries.iter().map(|&(_, payload)| payload).collect();
        let passing = cluster(1 - at, 0..2);
        let third = cluster(1 - at, 2..3);
        for (is_by_distance, is_begun) in [(false, false), (true, false), (false, true)] {
            for first in 0.. {
                let mut second = 0;
                let is_whole = loop {
                    let tree = tree(&options, &[&entries[..], &passing[..]].concat());
                    let (splits, merges) = (tree.clone(), tree.clone());
                    let (third, gone) = (third.clone(), passing.clone());
                    let split = move || {
                        insert(&splits, &third);
                        let merge = move || delete(&merges, &gone);
                        if is_begun {
                            // The last entry is gone, and its node will take the other half.
                            let begun = Stopped::start(At::Fence("fbr.merge.entries"), 0, merge);
                            interrupt_again(At::Load, second, move || _ = Stopped::end([begun]));
                        } else {
                            interrupt_again(At::Load, second, merge);
                        }
                    };
                    let (found, was_interrupted) = interrupt(At::Load, first, split, || search(&tree, is_by_distance));
                    let what = format!(
                        "loads {first} and {second}, by distance: {is_by_distance}, begun: {is_begun}, {at}, {options:?}"
                    );
                    assert_eq!(permanent(found, &entries), numbers, "{what}");
                    if !was_interrupted {
                        break second == 0;
                    }
                    second += 1;
                };
                if is_whole {
                    break;
                }
            }
        }
    }
}

/// Usually long enough for a thread that waits for nothing.
const A_MOMENT: Duration = Duration::from_millis(3);

/// Whether the other thread waits, or only takes its time. It drops its end when it is done.
pub fn waits(done: &mpsc::Receiver<()>) -> bool {
    done.recv_timeout(A_MOMENT) == Err(mpsc::RecvTimeoutError::Timeout)
}

/// Everything that a search with shared locks finds.
fn search_with_locks(tree: &Tree) -> Vec<u64> {
    let everywhere = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
    let mut found = Vec::new();
    tree.window(&everywhere, SearchMode::SharedLock, |_, payload| found.push(payload)).unwrap();
    found.sort_unstable();
    found
}

/// An entry to insert or delete.
pub type Operation = (bool, (Rect<2>, u64));

/// Some entries, and then operations: others are inserted one after the other and deleted, and then
/// some more are deleted.
fn coming_and_going(early: usize, coming: usize, going: usize) -> (Vec<(Rect<2>, u64)>, Vec<Operation>) {
    let mut random = random(3);
    let entries: Vec<(Rect<2>, u64)> =
        (0..(early + coming) as u64).map(|number| (rect(&mut random, 30), number)).collect();
    let comes = entries[early..].iter().map(|entry| (true, *entry));
    let operations = comes.chain(entries.iter().rev().take(going).map(|entry| (false, *entry))).collect();
    (entries[..early].to_vec(), operations)
}

pub fn operate(tree: &Tree, (is_coming, entry): Operation) {
    match is_coming {
        true => insert(tree, &[entry]),
        false => delete(tree, &[entry]),
    }
}

/// A tree before its last operation, which is also given.
fn before_the_last(options: &Options, early: &[(Rect<2>, u64)], operations: &[Operation]) -> (Arc<Tree>, Operation) {
    let tree = tree(options, early);
    let (last, earlier) = operations.split_last().unwrap();
    earlier.iter().for_each(|&operation| operate(&tree, operation));
    (tree, *last)
}

/// A writer stops at each of its changes, where it may hold only the locks of leaves. The search
/// has to wait for it, or to see the state before or after it.
#[test]
fn a_search_with_shared_locks_waits_for_writers_of_its_nodes() {
    let (early, operations) = coming_and_going(9, 4, 7);
    for options in all_options() {
        let mut waiting = 0;
        for done in 1..=operations.len() {
            for change in 0.. {
                let (tree, operation) = before_the_last(&options, &early, &operations[..done]);
                let before = search(&tree, false);
                let writer = tree.clone();
                let writer = Stopped::start(At::Change, change, move || operate(&writer, operation));
                let reader = tree.clone();
                let (tell, told) = mpsc::channel::<()>();
                let reader = std::thread::spawn(move || {
                    let found = search_with_locks(&reader);
                    drop(tell);
                    found
                });
                waiting += u64::from(waits(&told));
                let has_stopped = Stopped::end([writer])[0];
                let found = reader.join().unwrap();
                let after = search(&tree, false);
                let what = format!("{options:?}, operation {done}, change {change}: {found:?}");
                assert!(found == before || found == after, "{what}, {before:?} before, {after:?} after");
                if !has_stopped {
                    break;
                }
            }
        }
        assert!(waiting > 10, "{waiting} searches have waited");
    }
}

/// A search stops at each of its loads. A writer that would change nodes which it has not reached
/// yet, including the root, has to wait for it, or to leave its results as they are.
#[test]
fn writers_wait_for_a_search_with_shared_locks_that_has_not_reached_their_nodes() {
    let (early, operations) = coming_and_going(3, 4, 5);
    for options in all_options() {
        let mut waiting = 0;
        for done in 1..=operations.len() {
            for load in 0.. {
                let (tree, operation) = before_the_last(&options, &early, &operations[..done]);
                let before = search(&tree, false);
                let (reader, (find, found)) = (tree.clone(), mpsc::channel());
                let reader = Stopped::start(At::Load, load, move || find.send(search_with_locks(&reader)).unwrap());
                let writer = tree.clone();
                let (tell, told) = mpsc::channel::<()>();
                let writer = std::thread::spawn(move || {
                    operate(&writer, operation);
                    drop(tell);
                });
                waiting += u64::from(waits(&told));
                let has_stopped = Stopped::end([reader])[0];
                writer.join().unwrap();
                let (found, after) = (found.recv().unwrap(), search(&tree, false));
                let what = format!("{options:?}, operation {done}, load {load}: {found:?}");
                assert!(found == before || found == after, "{what}, {before:?} before, {after:?} after");
                if !has_stopped {
                    break;
                }
            }
        }
        assert!(waiting > 10, "{waiting} writers have waited");
    }
}

/// Temporary entries beside permanent ones.
struct Passing {
    tree: Arc<Tree>,
    random: SmallRng,
    grid: u32,
    model: Model<2>,
    next: u64,
}

impl Passing {
    /// Numbers of permanent entries are below this.
    const FIRST: u64 = 1000;

    fn change(&mut self, operations: u32, share_of_insertions: f64) {
        for _ in 0..operations {
            if self.model.0.is_empty() || self.random.random_bool(share_of_insertions) {
                let entry = (rect(&mut self.random, self.grid), self.next);
                self.next += 1;
                insert(&self.tree, &[entry]);
                self.model.0.push(entry);
            } else {
                let place = self.random.random_range(0..self.model.0.len());
                delete(&self.tree, &[self.model.0.swap_remove(place)]);
            }
        }
    }
}

/// Changes a tree at these loads of a search, each counted from the one before.
fn change_at(passing: Rc<RefCell<Passing>>, mut loads: VecDeque<usize>) -> impl FnOnce() {
    move || {
        let mut changed = passing.borrow_mut();
        let operations = changed.random.random_range(1..=12);
        let share_of_insertions = [0.9, 0.5, 0.1][changed.random.random_range(0..3)];
        changed.change(operations, share_of_insertions);
        drop(changed);
        if let Some(load) = loads.pop_front() {
            let more: Box<dyn FnOnce()> = Box::new(change_at(passing, loads));
            interrupt_again(At::Load, load, more);
        }
    }
}

/// The seeds of trees and interruptions: the one that is named, otherwise a few, or many in a long
/// search.
pub fn seeds(few: u64, many: u64) -> std::ops::Range<u64> {
    match std::env::var("TERRANE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if terrane_testkit::is_soak() => 0..many,
        None => 0..few,
    }
}

/// Up to three times in one search, several entries are inserted and deleted, in small trees on a
/// coarse grid, where boxes are often equal.
#[test]
fn what_stays_is_found_wherever_searches_are_interrupted() {
    for seed in seeds(400, 20_000) {
        let mut random = random(seed);
        let all: Vec<Options> = all_options().collect();
        let options = Options { fan_out: random.random_range(4..=6), ..all[random.random_range(0..all.len())].clone() };
        let grid = random.random_range(2..10);
        let entries: Vec<(Rect<2>, u64)> =
            (0..random.random_range(1..13)).map(|number| (rect(&mut random, grid), number)).collect();
        let numbers: Vec<u64> = entries.iter().map(|&(_, payload)| payload).collect();
        let tree = tree(&options, &entries);
        let mut passing = Passing { tree: tree.clone(), random, grid, model: Model::default(), next: Passing::FIRST };
        passing.change(20, 0.8);
        let passing = Rc::new(RefCell::new(passing));
        for number in 0..30 {
            let (rect, payload) = entries[number % entries.len()];
            let look = || match number % 3 {
                2 => {
                    if tree.contains(&rect, payload).unwrap() {
                        numbers.clone()
                    } else {
                        Vec::new()
                    }
                }
                way => permanent(search(&tree, way == 1), &entries),
            };
            let count = loads_of(look);
            let mut places: Vec<usize> = {
                let random = &mut passing.borrow_mut().random;
                (0..random.random_range(1..=3)).map(|_| random.random_range(0..count)).collect()
            };
            places.sort_unstable();
            let what = format!(
                "seed {seed}, search {number}, loads {places:?}, {options:?}; TERRANE_TEST_SEED={seed} runs it again"
            );
            let first = places.remove(0);
            let later =
                places.iter().scan(first, |last, &place| Some(place - std::mem::replace(last, place))).collect();
            let (found, _) = interrupt(At::Load, first, change_at(passing.clone(), later), look);
            assert_eq!(found, numbers, "{what}");
        }
        drop(passing);
        Arc::into_inner(tree).unwrap().check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Between the last load of its look-up and the lock of the leaf's parent, an insertion divides
/// that parent, the root. With copies, the old root keeps its contents, and only says that it is no
/// longer part of the tree.
#[test]
fn deletions_that_have_found_their_way_by_a_root_that_is_divided_then_go_another_one() {
    let entries: Vec<(Rect<2>, u64)> =
        (0..10).map(|number| (Rect::point([number as f64, 0.0]).unwrap(), number)).collect();
    let (last, before) = entries.split_last().unwrap();
    for options in all_options() {
        let height = |entries| Arc::into_inner(tree(&options, entries)).unwrap().check().unwrap().height;
        assert_eq!([height(before), height(&entries)], [1, 2], "{options:?}");
        for (rect, payload) in before {
            let shape = tree(&options, before);
            let last_load = loads_of(|| shape.contains(rect, *payload).unwrap()) - 1;
            let (writer, last) = (shape.clone(), *last);
            let write = move || insert(&writer, &[last]);
            let (is_deleted, _) = interrupt(At::Loaded, last_load, write, || shape.delete(rect, *payload).unwrap());
            let mut tree = Arc::into_inner(shape).unwrap();
            let what = format!("{payload} of {options:?}");
            tree.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(is_deleted, "{what}");
            let left: Vec<u64> = (0..10).filter(|number| number != payload).collect();
            assert_eq!(search(&tree, false), left, "{what}");
        }
    }
}
