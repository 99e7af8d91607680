//! The PM-RTREE under several threads: operations that are stopped or interrupted anywhere, and
//! real threads.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use terrane_pmem::interrupting::{At, Interrupting, Stopped, interrupt};
use terrane_pmem::pmwcas::Descriptor;
use terrane_pmem::{Guard, Instruction, Native, PersistenceDomain};
use terrane_pmtree::pmr::{LeafForm, Options, PmrTree, Publication};
use terrane_testkit::crash::Controller;
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, is_soak};

use crate::beside_writers::finds_what_is_always_there;
use crate::pmr::options;
use crate::seen::{IMAGES, everything, is_seen_and_gone, point};

pub type Tree = PmrTree<2, Interrupting>;

/// Every named step outside of the allocator, except that of searches.
const STEPS: [At; 11] = [
    At::Flush("pmr.copy"),
    At::Fence("pmr.insert.entry"),
    At::Fence("pmr.insert.map"),
    At::Fence("pmr.delete.map"),
    At::Fence("pmr.tags.entry"),
    At::Fence("pmr.tags.revoke"),
    At::Fence("pmwcas.announce"),
    At::Fence("pmwcas.prepare"),
    At::Fence("pmwcas.install"),
    At::Fence("pmwcas.decide"),
    At::Fence("pmwcas.complete"),
];

/// Bytes of a leaf of four entries that validate themselves.
const LEAF_LENGTH: u64 = 5 * 64;

/// The ways in which entries become valid.
const FORMS: [(LeafForm, Publication); 3] = [
    (LeafForm::Bitmap, Publication::CompareAndSwap),
    (LeafForm::Bitmap, Publication::Descriptor),
    (LeafForm::SelfValidating, Publication::CompareAndSwap),
];

fn small((leaves, publication): (LeafForm, Publication)) -> Options {
    Options { leaves, publication, ..options(PersistenceDomain::Adr, 4) }
}

pub fn new_tree(options: &Options, payloads: impl IntoIterator<Item = u64>) -> (Arc<Controller>, Arc<Tree>) {
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
    for form in FORMS {
        let stride = if is_soak() { 1 } else { 3 };
        for step in STEPS {
            let mut reached = 0;
            for number in (0..).step_by(stride) {
                let (_, tree) = new_tree(&small(form), 0..30);
                let stopped = tree.clone();
                let stopped = Stopped::start(step, number, move || {
                    (100..112).for_each(|payload| stopped.insert(&point(payload), payload).unwrap());
                    (0..15).for_each(|payload| assert!(stopped.delete(&point(payload), payload).unwrap()));
                });
                (200..215).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
                (15..30).for_each(|payload| assert!(tree.delete(&point(payload), payload).unwrap()));
                assert!((200..215).all(|payload| tree.contains(&point(payload), payload).unwrap()));
                assert!(found(&tree).into_iter().filter(|payload| *payload >= 200).eq(200..215));
                let was_stopped = Stopped::end([stopped]) == [true];
                check(tree, (100..112).chain(200..215), &(step, number, form));
                if !was_stopped {
                    break;
                }
                reached += 1;
            }
            let unused: &[&'static str] = match form {
                (LeafForm::Bitmap, Publication::CompareAndSwap) => &["pmr.tags.entry", "pmr.tags.revoke"],
                (LeafForm::Bitmap, Publication::Descriptor) => {
                    &["pmr.tags.entry", "pmr.tags.revoke", "pmr.insert.map", "pmr.delete.map"]
                }
                (LeafForm::SelfValidating, _) => &["pmr.insert.entry", "pmr.insert.map", "pmr.delete.map"],
            };
            let is_used = !unused.iter().any(|name| step == At::Fence(name));
            assert_eq!(reached > 0, is_used, "{step:?}, {form:?}");
        }
    }
}

/// The insertion leaves its word dirty, and the search makes it durable.
#[test]
fn a_search_that_is_stopped_keeps_nobody_from_finishing() {
    let (_, tree) = new_tree(&small(FORMS[0]), 0..3);
    let (writer, reader) = (tree.clone(), tree.clone());
    let inserts = Stopped::start(At::Fence("pmr.insert.map"), 0, move || writer.insert(&point(3), 3).unwrap());
    let searches = Stopped::start(At::Fence("pmr.read.persist"), 0, move || {
        assert!(reader.contains(&point(3), 3).unwrap());
    });
    (4..20).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    (0..4).for_each(|payload| assert!(tree.delete(&point(payload), payload).unwrap()));
    assert_eq!(Stopped::end([inserts, searches]), [true, true]);
    check(tree, 4..20, &"a search");
}

/// Splits and merges move entries between leaves and inner nodes.
#[test]
fn operations_between_any_two_loads_of_a_search_lose_and_repeat_nothing() {
    for number in 0.. {
        let (_, tree) = new_tree(&small(FORMS[0]), 0..30);
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
        let (_, tree) = new_tree(&small(FORMS[0]), [1; 9].into_iter().chain(2..20));
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

#[test]
fn what_a_search_has_seen_survives_a_power_loss() {
    let is_gone = |dropped| is_seen_and_gone::<Tree>(&small(FORMS[0]), "pmr.read.persist", dropped);
    assert!(!is_gone(None));
    for instruction in [Instruction::Flush, Instruction::Fence] {
        assert!(is_gone(Some(instruction)), "{instruction:?} can be left out");
    }
}

/// An operation has changed a tag, another one freezes the leaf and stops, and the file cannot grow
/// for copies of the leaf. So the first one fails. Gives whether a power loss shows its change.
fn is_failed_and_there(dropped: Option<Instruction>) -> bool {
    let mut options = small(FORMS[2]);
    options.pool.chunk_length = 1 << 13;
    for is_insertion in [true, false] {
        let controller = Controller::new();
        let storage = FaultyStorage::new(controller.storage());
        let tree = Arc::new(Tree::create(&storage, "tree", &options).unwrap());
        let present = 0..if is_insertion { 3 } else { 4 };
        present.clone().for_each(|payload| tree.insert(&point(payload), payload).unwrap());
        if let Some(instruction) = dropped {
            tree.pool().backend().0.leave_out(instruction, "pmr.tags.restore");
        }
        let step = if is_insertion { "pmr.tags.entry" } else { "pmr.tags.revoke" };
        let (other, outcome) = (tree.clone(), Arc::new(Mutex::new(None)));
        let failed = outcome.clone();
        let fails = Stopped::start(At::Fence(step), 0, move || {
            let result = match is_insertion {
                true => other.insert(&point(9), 9),
                false => other.delete(&point(1), 1).map(drop),
            };
            *failed.lock().unwrap() = Some(result.is_err());
        });
        let other = tree.clone();
        let splits = Stopped::start(At::Fence("pmwcas.prepare"), 0, move || other.insert(&point(8), 8).unwrap());
        {
            let guard = tree.pool().pin();
            let mut held = Vec::new();
            storage.arm(FaultPlan { at: 1, fault: Fault::Eio, persistent: true });
            while let Ok(descriptor) = hold_block(&tree, &guard) {
                held.push(descriptor);
            }
            assert_eq!(Stopped::end([fails]), [true]);
            assert_eq!(*outcome.lock().unwrap(), Some(true), "there was space");
            storage.disarm();
            for image in controller.images(controller.events(), &IMAGES, 1) {
                let recovered = Tree::open(&*image.storage(), "tree", &options).unwrap();
                let payload = if is_insertion { 9 } else { 1 };
                if recovered.contains(&point(payload), payload).unwrap() == is_insertion {
                    return true;
                }
            }
        }
        assert_eq!(Stopped::end([splits]), [true]);
        check(tree, present.chain([8]), &step);
    }
    false
}

/// A descriptor that has a block of a leaf's length.
fn hold_block<'g>(tree: &'g Tree, guard: &'g Guard<'g>) -> terrane_pmem::Result<Descriptor<'g, Interrupting>> {
    let mut descriptor = Descriptor::new(tree.pool(), guard)?;
    descriptor.acquire(LEAF_LENGTH)?;
    Ok(descriptor)
}

#[test]
fn what_a_failed_operation_has_written_does_not_count() {
    assert!(!is_failed_and_there(None));
    for instruction in [Instruction::Flush, Instruction::Fence] {
        assert!(is_failed_and_there(Some(instruction)), "{instruction:?} can be left out");
    }
}

#[test]
fn searches_beside_threads_that_write_find_what_is_always_there_exactly_once() {
    for (fan_out, (leaves, publication)) in [(4, FORMS[0]), (60, FORMS[0]), (6, FORMS[1]), (5, FORMS[2])] {
        let options = Options { leaves, publication, ..options(PersistenceDomain::PageCache, fan_out) };
        finds_what_is_always_there::<PmrTree<2, Native>>(&options, |_| std::thread::yield_now());
    }
}
