//! Gaps of the PM-RTREE's paper: its steps lose entries or mix them, and ours do not. Each test
//! runs both. That of hole 3 needs orders of threads, and is in `pmr_shuttle`.

use std::sync::Arc;

use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::{At, Stopped, interrupt};
use terrane_pmtree::pmr::{Gap, LeafForm, Options};

use crate::pmr::options;
use crate::pmr_threads::{Tree, new_tree};
use crate::seen::{everything, point};

/// Each form of leaves, with the step at which an entry is written and its bit not set.
const FORMS: [(LeafForm, &str); 2] =
    [(LeafForm::Bitmap, "pmr.insert.entry"), (LeafForm::SelfValidating, "pmr.tags.entry")];

fn small(leaves: LeafForm, gap: Option<Gap>) -> Options {
    Options { leaves, gap, ..options(PersistenceDomain::Adr, 4) }
}

/// Whether a tree is sound and holds exactly these payloads, after a stopped operation has ended.
fn holds(tree: Arc<Tree>, stopped: Stopped, expected: impl IntoIterator<Item = u64>) -> bool {
    assert_eq!(Stopped::end([stopped]), [true]);
    let mut tree = Arc::into_inner(tree).expect("every other thread has ended");
    let mut found = Vec::new();
    tree.window(&everything(), |rect, payload| found.push((payload, *rect))).unwrap();
    found.sort_unstable_by_key(|(payload, _)| *payload);
    tree.check().is_ok() && found.into_iter().eq(expected.into_iter().map(|payload| (payload, point(payload))))
}

/// An insertion comes while another one has written its entry and not set its bit. Gives whether
/// both entries are there.
fn slots_differ(leaves: LeafForm, step: &'static str, gap: Option<Gap>) -> bool {
    let (_, tree) = new_tree(&small(leaves, gap), [1]);
    let other = tree.clone();
    let stopped = Stopped::start(At::Fence(step), 0, move || other.insert(&point(2), 2).unwrap());
    tree.insert(&point(3), 3).unwrap();
    holds(tree, stopped, [1, 2, 3])
}

#[test]
fn only_slots_that_are_not_reserved_are_taken_by_two_insertions() {
    for (leaves, step) in FORMS {
        assert!(slots_differ(leaves, step, None), "{leaves:?}");
        assert!(!slots_differ(leaves, step, Some(Gap::Slots)), "hole 2, {leaves:?}");
    }
}

/// A leaf is split while an insertion has written its entry and not set its bit. Gives whether all
/// entries are there.
fn insertion_outlives_split(leaves: LeafForm, step: &'static str, gap: Option<Gap>) -> bool {
    let (_, tree) = new_tree(&small(leaves, gap), [1]);
    let other = tree.clone();
    let stopped = Stopped::start(At::Fence(step), 0, move || other.insert(&point(2), 2).unwrap());
    (3..12).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    holds(tree, stopped, 1..12)
}

/// A split has copied its leaf and is about to link the copies when an entry is deleted. Gives
/// whether it stays deleted.
fn deletion_outlives_split(leaves: LeafForm, gap: Option<Gap>) -> bool {
    let (_, tree) = new_tree(&small(leaves, gap), 1..5);
    let other = tree.clone();
    let stopped = Stopped::start(At::Fence("pmwcas.prepare"), 0, move || other.insert(&point(5), 5).unwrap());
    assert!(tree.delete(&point(2), 2).unwrap());
    holds(tree, stopped, [1, 3, 4, 5])
}

#[test]
fn only_splits_of_leaves_that_are_not_frozen_lose_operations() {
    for (leaves, step) in FORMS {
        assert!(insertion_outlives_split(leaves, step, None), "{leaves:?}");
        assert!(!insertion_outlives_split(leaves, step, Some(Gap::Freezing)), "hole 5, {leaves:?}");
        assert!(deletion_outlives_split(leaves, None), "{leaves:?}");
        assert!(!deletion_outlives_split(leaves, Some(Gap::Freezing)), "hole 5, {leaves:?}");
    }
}

/// A leaf changes this often between two loads of a search. Gives whether the search takes parts of
/// two entries for one, at any load.
fn is_torn(fan_out: usize, changes: u64, gap: Option<Gap>) -> bool {
    for number in (0..).step_by(if fan_out == 4 { 1 } else { 17 }) {
        let (_, tree) = new_tree(&Options { gap, ..options(PersistenceDomain::Adr, fan_out) }, 0..3);
        let writer = tree.clone();
        let write = move || {
            for payload in 0..changes / 2 {
                assert!(writer.delete(&point(payload), payload).unwrap());
                writer.insert(&point(payload + 3), payload + 3).unwrap();
            }
        };
        let search = || {
            let mut is_torn = false;
            tree.window(&everything(), |rect, payload| is_torn |= *rect != point(payload)).unwrap();
            is_torn
        };
        let (is_torn, was_interrupted) = interrupt(At::Load, number, write, search);
        if is_torn || !was_interrupted {
            return is_torn;
        }
    }
    false
}

/// A version of 8 bits has its old value again after 256 changes, and no earlier.
#[test]
fn only_words_with_versions_that_wrap_give_torn_entries() {
    assert!(!is_torn(4, 256, None) && !is_torn(100, 256, None));
    assert!(!is_torn(4, 254, Some(Gap::Versions)));
    assert!(is_torn(4, 256, Some(Gap::Versions)), "hole 0");
}
