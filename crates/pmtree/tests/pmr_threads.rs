//! The PM-RTREE under several threads: operations that are stopped or interrupted anywhere, the
//! races that the paper leaves open, and real threads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rand::Rng;
use terrane_pmem::interrupting::{At, Interrupting, Stopped, interrupt};
use terrane_pmem::{Instruction, Native, PersistenceDomain};
use terrane_pmtree::Rect;
use terrane_pmtree::pmr::{Options, PmrTree, Publication};
use terrane_storage::RealStorage;
use terrane_testkit::crash::{Budget, Controller, NameOrder};
use terrane_testkit::is_soak;

use crate::pmr::options;
use crate::support::{directory, random, rect};

type Tree = PmrTree<2, Interrupting>;

/// Every named step outside of the allocator, with a fence.
const STEPS: [&str; 8] = [
    "pmr.insert.entry",
    "pmr.insert.map",
    "pmr.delete.map",
    "pmwcas.announce",
    "pmwcas.prepare",
    "pmwcas.install",
    "pmwcas.decide",
    "pmwcas.complete",
];

fn point(payload: u64) -> Rect<2> {
    Rect::point([(payload * 7 % 31) as f64, (payload * 11 % 29) as f64]).unwrap()
}

fn everything() -> Rect<2> {
    Rect::new([-1e9; 2], [1e9; 2]).unwrap()
}

fn small(publication: Publication) -> Options {
    Options { publication, ..options(PersistenceDomain::Adr, 4) }
}

fn new_tree(options: &Options, payloads: impl IntoIterator<Item = u64>) -> (Arc<Controller>, Arc<Tree>) {
    let controller = Controller::new();
    let tree = Tree::create(&*controller.storage(), "tree", options).unwrap();
    payloads.into_iter().for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    (controller, Arc::new(tree))
}

fn found(tree: &Tree) -> Vec<u64> {
    let mut payloads = Vec::new();
    tree.window(&everything(), |rect, payload| {
        assert_eq!(*rect, point(payload));
        payloads.push(payload);
    })
    .unwrap();
    payloads.sort_unstable();
    payloads
}

fn check(tree: Arc<Tree>, expected: impl IntoIterator<Item = u64>, what: &dyn std::fmt::Debug) {
    let mut tree = Arc::into_inner(tree).expect("every other thread has ended");
    tree.check().unwrap_or_else(|error| panic!("{what:?}: {error}"));
    assert_eq!(found(&tree), expected.into_iter().collect::<Vec<_>>(), "{what:?}");
}

/// The operations split and merge leaves and inner nodes. If a thread waited for the stopped one,
/// this test would not end.
#[test]
fn a_thread_that_is_stopped_at_any_named_step_keeps_nobody_from_finishing() {
    for publication in [Publication::CompareAndSwap, Publication::Descriptor] {
        let stride = if is_soak() { 1 } else { 3 };
        for step in STEPS {
            let mut reached = 0;
            for number in (0..).step_by(stride) {
                let (_, tree) = new_tree(&small(publication), 0..30);
                let stopped = tree.clone();
                let stopped = Stopped::start(At::Fence(step), number, move || {
                    (100..112).for_each(|payload| stopped.insert(&point(payload), payload).unwrap());
                    (0..15).for_each(|payload| assert!(stopped.delete(&point(payload), payload).unwrap()));
                });
                (200..215).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
                (15..30).for_each(|payload| assert!(tree.delete(&point(payload), payload).unwrap()));
                assert!((200..215).all(|payload| tree.contains(&point(payload), payload).unwrap()));
                assert!(found(&tree).into_iter().filter(|payload| *payload >= 200).eq(200..215));
                let was_stopped = Stopped::end([stopped]) == [true];
                check(tree, (100..112).chain(200..215), &(step, number, publication));
                if !was_stopped {
                    break;
                }
                reached += 1;
            }
            let is_used = publication == Publication::CompareAndSwap || !step.ends_with(".map");
            assert_eq!(reached > 0, is_used, "{step}");
        }
    }
}

/// Hole 2: with the paper's Algorithm 2, both take the first free slot.
#[test]
fn two_insertions_into_one_leaf_take_different_slots() {
    let (_, tree) = new_tree(&small(Publication::CompareAndSwap), [1]);
    let other = tree.clone();
    let stopped = Stopped::start(At::Fence("pmr.insert.entry"), 0, move || other.insert(&point(2), 2).unwrap());
    tree.insert(&point(3), 3).unwrap();
    assert_eq!(Stopped::end([stopped]), [true]);
    check(tree, [1, 2, 3], &"two insertions");
}

/// Hole 5: the leaf is split between the insertion's entry and its bit. The paper's version sets
/// the bit in the leaf that has been copied.
#[test]
fn an_insertion_that_a_split_overtakes_is_not_lost() {
    let (_, tree) = new_tree(&small(Publication::CompareAndSwap), [1]);
    let other = tree.clone();
    let stopped = Stopped::start(At::Fence("pmr.insert.entry"), 0, move || other.insert(&point(2), 2).unwrap());
    (3..12).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    assert_eq!(Stopped::end([stopped]), [true]);
    check(tree, 1..12, &"a split");
}

/// The split has copied its leaf and is about to link the copies.
#[test]
fn a_deletion_that_meets_a_split_is_not_undone_by_it() {
    let (_, tree) = new_tree(&small(Publication::CompareAndSwap), 1..5);
    let other = tree.clone();
    let stopped = Stopped::start(At::Fence("pmwcas.prepare"), 0, move || other.insert(&point(5), 5).unwrap());
    assert!(tree.delete(&point(2), 2).unwrap());
    assert_eq!(Stopped::end([stopped]), [true]);
    check(tree, [1, 3, 4, 5], &"a split");
}

/// Hole 0: a version of 8 bits has its old value again after 256 changes of a leaf. A search in
/// between would take parts of different entries for one.
#[test]
fn changes_as_many_as_a_version_has_values_give_no_torn_entry() {
    for fan_out in [4, 100] {
        for number in (0..).step_by(if fan_out == 4 { 1 } else { 17 }) {
            let (_, tree) = new_tree(&options(PersistenceDomain::Adr, fan_out), 0..3);
            let writer = tree.clone();
            let write = move || {
                for payload in 0..128 {
                    assert!(writer.delete(&point(payload), payload).unwrap());
                    writer.insert(&point(payload + 3), payload + 3).unwrap();
                }
            };
            let ((), was_interrupted) = interrupt(At::Load, number, write, || _ = found(&tree));
            if !was_interrupted {
                break;
            }
        }
    }
}

/// Splits and merges move entries between leaves and inner nodes.
#[test]
fn operations_between_any_two_loads_of_a_search_lose_and_repeat_nothing() {
    for number in 0.. {
        let (_, tree) = new_tree(&small(Publication::CompareAndSwap), 0..30);
        let writer = tree.clone();
        let write = move || {
            (100..140).for_each(|payload| writer.insert(&point(payload), payload).unwrap());
            (0..15).for_each(|payload| assert!(writer.delete(&point(payload), payload).unwrap()));
            (100..140).for_each(|payload| assert!(writer.delete(&point(payload), payload).unwrap()));
        };
        let (seen, was_interrupted) = interrupt(At::Load, number, write, || found(&tree));
        let permanent: Vec<u64> = seen.iter().copied().filter(|payload| (15..30).contains(payload)).collect();
        assert_eq!(permanent, Vec::from_iter(15..30), "after {number} loads");
        assert_eq!(BTreeSet::from_iter(&seen).len(), seen.len(), "after {number} loads");
        if !was_interrupted {
            break;
        }
    }
}

/// One of two equal entries is always there. They lie in different leaves.
#[test]
fn a_look_up_finds_one_of_two_copies_that_come_and_go() {
    for number in 0.. {
        let (_, tree) = new_tree(&small(Publication::CompareAndSwap), [1; 9].into_iter().chain(2..20));
        // All leaves of these contain its place.
        let around = |tree: &Tree| tree.insert(&everything(), 99).unwrap();
        (0..8).for_each(|_| around(&tree));
        let writer = tree.clone();
        let write = move || {
            writer.insert(&point(1), 1).unwrap();
            (0..9).for_each(|_| assert!(writer.delete(&point(1), 1).unwrap()));
        };
        let (is_there, was_interrupted) = interrupt(At::Load, number, write, || tree.contains(&point(1), 1).unwrap());
        assert!(is_there, "after {number} loads");
        if !was_interrupted {
            break;
        }
    }
}

/// Looks an entry up after each change of the operation that inserts or deletes it, and loses
/// power. Gives whether a crash has taken back what was seen.
fn is_seen_and_gone(dropped: Option<Instruction>) -> bool {
    let budget = Budget { exhaustive_pending: 6, samples: 12, name_order: NameOrder::AnySubset };
    let options = small(Publication::CompareAndSwap);
    for is_insertion in [true, false] {
        for number in 0.. {
            let (controller, tree) = new_tree(&options, 0..3);
            if let Some(instruction) = dropped {
                tree.pool().backend().0.leave_out(instruction, "pmr.read.persist");
            }
            let outcome = Arc::new(Mutex::new(None));
            let (reader, seen, at) = (tree.clone(), outcome.clone(), controller.clone());
            let payload = if is_insertion { 7 } else { 1 };
            let look = move || {
                let is_there = reader.contains(&point(payload), payload).unwrap();
                *seen.lock().unwrap() = Some((is_there, at.events()));
            };
            let (_, was_interrupted) = interrupt(At::Change, number, look, || match is_insertion {
                true => tree.insert(&point(payload), payload).unwrap(),
                false => assert!(tree.delete(&point(payload), payload).unwrap()),
            });
            if !was_interrupted {
                break;
            }
            let Some((is_there, cut)) = *outcome.lock().unwrap() else { panic!("the search did not run") };
            for image in controller.images(cut, &budget, 1) {
                let tree = Tree::open(&*image.storage(), "tree", &options).unwrap();
                if is_there == is_insertion && tree.contains(&point(payload), payload).unwrap() != is_there {
                    return true;
                }
            }
        }
    }
    false
}

#[test]
fn what_a_search_has_seen_survives_a_power_loss() {
    assert!(!is_seen_and_gone(None));
    for instruction in [Instruction::Flush, Instruction::Fence] {
        assert!(is_seen_and_gone(Some(instruction)), "{instruction:?} can be left out");
    }
}

/// Writers insert and delete their own entries, and readers find what is always there.
#[test]
fn searches_beside_threads_that_write_find_what_is_always_there_exactly_once() {
    const PERMANENT: u64 = 300;
    const WRITERS: u64 = 3;
    let operations = if is_soak() { 100_000 } else { 3000 };
    for (fan_out, publication) in
        [(4, Publication::CompareAndSwap), (60, Publication::CompareAndSwap), (6, Publication::Descriptor)]
    {
        let directory = directory();
        let storage = RealStorage::new(directory.path());
        let options = Options { publication, ..options(PersistenceDomain::PageCache, fan_out) };
        let mut tree = PmrTree::<2, Native>::create(&storage, "tree", &options).unwrap();
        (0..PERMANENT).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
        let (is_over, shared) = (AtomicBool::new(false), &tree);
        let write = |writer: u64| {
            let (mut random, mut own) = (random(writer), Vec::new());
            for operation in 0..operations {
                let payload = (writer + 1) << 32 | operation;
                if own.len() < 30 || random.random_bool(if operation % 400 < 200 { 0.8 } else { 0.2 }) {
                    let rect = rect::<2>(&mut random, 40);
                    shared.insert(&rect, payload).unwrap();
                    own.push((rect, payload));
                } else {
                    let (rect, payload) = own.swap_remove(random.random_range(0..own.len()));
                    assert!(shared.contains(&rect, payload).unwrap(), "{payload:#x} is not found");
                    assert!(shared.delete(&rect, payload).unwrap(), "{payload:#x} is not found");
                    assert!(!shared.contains(&rect, payload).unwrap(), "{payload:#x} is found after its deletion");
                }
            }
            own.len() as u64
        };
        let read = || {
            while !is_over.load(Ordering::Relaxed) {
                let mut seen = Vec::new();
                shared.window(&everything(), |_, payload| seen.push(payload)).unwrap();
                let all = seen.len();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), all, "an entry is found twice");
                assert!(seen.into_iter().take_while(|payload| *payload < PERMANENT).eq(0..PERMANENT));
                let nearest = shared.nearest(&[3.0; 2], 5, |_, payload| payload < PERMANENT).unwrap();
                let mut distances: Vec<f64> =
                    (0..PERMANENT).map(|payload| point(payload).distance_squared(&[3.0; 2])).collect();
                distances.sort_unstable_by(f64::total_cmp);
                assert!(nearest.iter().map(|(distance, ..)| distance).eq(&distances[..5]));
            }
        };
        let left: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            (0..2).for_each(|_| _ = scope.spawn(read));
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            ended.into_iter().map(Result::unwrap).sum()
        });
        let census = tree.check().unwrap();
        assert_eq!(census.entries, PERMANENT + left, "{fan_out}");
        drop(tree);
        let census = PmrTree::<2, Native>::open(&storage, "tree", &options).unwrap().check().unwrap();
        assert_eq!(census.entries, PERMANENT + left, "{fan_out}");
    }
}
