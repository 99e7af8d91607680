//! A tree as a multiset of entries, for searches in orders of threads. Each payload has one box.

use std::collections::HashMap;
use std::ops::Range;

use terrane_pmem::Traced;
use terrane_pmtree::explored::Step;
use terrane_pmtree::fbr::{FbrTree, SearchMode};
use terrane_pmtree::{PersistentRTree, PersistentTree, Rect};
use terrane_storage::Storage;
use terrane_testkit::linearizability::{self, Specification, is_linearizable};

pub type Tree = FbrTree<2, Traced>;

/// The number of copies of each entry.
pub type Counts = HashMap<u64, u64>;

/// A tree as a multiset of entries. Each payload has one box.
#[derive(Clone, Debug)]
pub struct Entries;

impl Specification for Entries {
    type Operation = Step;
    /// Whether there was one.
    type Outcome = bool;
    type Key = u64;
    /// The number of copies.
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

pub type Call = linearizability::Call<Entries>;

/// Payloads of boxes that reach beyond most others, so that the boxes of all nodes above them grow.
pub const LARGE: Range<u64> = 64..72;

/// The box of a payload. Entries that threads change and those that only fill the tree lie among
/// each other.
pub fn rect(payload: u64) -> Rect<2> {
    let corner = [(payload * 5 % 8) as f64, (payload * 3 % 7) as f64];
    let [below, above] = if LARGE.contains(&payload) { [8.0, 9.0] } else { [0.0, 1.0] };
    Rect::new(corner.map(|low| low - below), corner.map(|low| low + above)).unwrap()
}

pub fn run(tree: &impl PersistentRTree<2>, step: &Step) -> bool {
    match step {
        Step::Insert(rect, payload) => tree.insert(rect, *payload).map(|()| true),
        Step::Delete(rect, payload) => tree.delete(rect, *payload),
        Step::LookUp(rect, payload) => tree.contains(rect, *payload),
        Step::Sync => Ok(true),
    }
    .unwrap()
}

/// The entries of a tree that a crash has left, after a check of it.
pub fn recover<T: PersistentRTree<2> + PersistentTree<Options: Sized>>(
    storage: &dyn Storage,
    options: &T::Options,
) -> Counts {
    let mut tree = T::open(storage, "tree", options).unwrap();
    tree.check().unwrap();
    counts(&tree)
}

pub fn counts(tree: &impl PersistentRTree<2>) -> Counts {
    let mut counts = Counts::new();
    tree.window(&everything(), &mut |found, payload| count(&mut counts, found, payload)).unwrap();
    counts
}

/// The results of a window over everything.
pub fn found_by_window(tree: &Tree, mode: SearchMode) -> Counts {
    let mut counts = Counts::new();
    tree.window(&everything(), mode, |found, payload| count(&mut counts, found, payload)).unwrap();
    counts
}

fn everything() -> Rect<2> {
    Rect::new([-1e9; 2], [1e9; 2]).unwrap()
}

fn count(counts: &mut Counts, found: &Rect<2>, payload: u64) {
    assert_eq!(*found, rect(payload));
    *counts.entry(payload).or_default() += 1;
}

pub fn check(calls: &[Call], start: &Counts, end: &Counts, what: &dyn std::fmt::Debug) {
    let count = |counts: &Counts, payload: &u64| counts.get(payload).copied().unwrap_or(0);
    assert!(
        is_linearizable(calls, |payload| count(start, payload), |payload| count(end, payload)),
        "{end:?} after {start:?} and {calls:#?}, {what:?}"
    );
    let is_changed = |payload: &u64| calls.iter().any(|call| Entries::key(&call.operation) == *payload);
    for payload in start.keys().chain(end.keys()).filter(|payload| !is_changed(payload)) {
        assert_eq!(count(start, payload), count(end, payload), "{payload} was not touched, {what:?}");
    }
}
