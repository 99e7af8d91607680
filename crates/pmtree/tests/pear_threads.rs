//! The PeaR-Tree under several threads: what searches and insertions see of unfinished ones, and
//! real threads beside one that changes the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::Rng;
use terrane_pmem::interrupting::{At, Interrupting, Stopped};
use terrane_pmem::{Instruction, Native, PersistenceDomain};
use terrane_pmtree::Rect;
use terrane_pmtree::pear::{Budget, Options, PearTree};
use terrane_storage::RealStorage;
use terrane_testkit::crash::Controller;
use terrane_testkit::is_soak;

use crate::pear::options;
use crate::scenario::NOTHING_LEFT;
use crate::seen::{everything, is_seen_and_gone, point};
use crate::support::{directory, random, rect};

type Tree = PearTree<2, Interrupting>;

#[test]
fn what_a_search_of_a_pear_tree_has_seen_survives_a_power_loss() {
    let options = options(PersistenceDomain::Adr, 4, Budget::Nodes(0));
    let is_gone = |dropped| is_seen_and_gone::<Tree>(&options, "pear.read.persist", dropped);
    assert!(!is_gone(None));
    for instruction in [Instruction::Flush, Instruction::Fence] {
        assert!(is_gone(Some(instruction)), "{instruction:?} can be left out");
    }
}

/// An insertion has enlarged the box of an inner node and stops before its fence. Another one
/// below the same node relies on the box, and returns. Gives whether its entry survives a power
/// loss that keeps nothing of the first.
fn survives_beside(dropped: Option<Instruction>) -> bool {
    let options = options(PersistenceDomain::Adr, 4, Budget::Nodes(0));
    let controller = Controller::new();
    let mut tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
    let at = |x: f64, y: f64| Rect::point([x, y]).unwrap();
    // Leaves at the same height, half of them below one inner node.
    for cluster in [0.0, 10.0, 20.0, 1000.0, 1010.0, 1020.0] {
        (0..3).for_each(|number| tree.insert(&at(cluster + f64::from(number) / 10.0, 0.0), 0).unwrap());
    }
    assert_eq!(tree.check().unwrap().height, 2);
    let tree = Arc::new(tree);
    if let Some(instruction) = dropped {
        tree.pool().backend().0.leave_out(instruction, "pear.insert.rely");
    }
    let first = tree.clone();
    let enlarging = Stopped::start(At::BeforeFence, 1, move || first.insert(&at(10.05, 9.0), 1).unwrap());
    let relying = at(0.05, 5.0);
    tree.insert(&relying, 2).unwrap();
    let images: Vec<_> = controller.images(controller.events(), &NOTHING_LEFT, 1).collect();
    assert_eq!(Stopped::end([enlarging]), [true]);
    images.iter().all(|image| {
        let tree = Tree::open(&*image.storage(), "tree", &options).unwrap();
        tree.contains(&relying, 2).unwrap()
    })
}

#[test]
fn an_insertion_into_a_box_that_is_not_durable_yet_stays() {
    assert!(survives_beside(None));
    assert!(!survives_beside(Some(Instruction::Flush)), "the flush can be left out");
}

/// Writers insert and delete their own entries, readers find what is always there, and the budget
/// changes.
#[test]
fn searches_beside_writers_and_moves_find_what_is_always_there_exactly_once() {
    const PERMANENT: u64 = 300;
    const WRITERS: u64 = 3;
    let operations = if is_soak() { 100_000 } else { 3000 };
    for (fan_out, budget) in [(4, Budget::Nodes(0)), (4, Budget::Nodes(20)), (9, Budget::Levels(2))] {
        let directory = directory();
        let storage = RealStorage::new(directory.path());
        let options = Options { ..options(PersistenceDomain::PageCache, fan_out, budget) };
        let mut tree = PearTree::<2, Native>::create(&storage, "tree", &options).unwrap();
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
        let change_budget = || {
            while !is_over.load(Ordering::Relaxed) && budget != Budget::Nodes(0) {
                for budget in [Budget::Nodes(3), Budget::Levels(1), Budget::Nodes(0), Budget::Nodes(60)] {
                    shared.set_budget(budget).unwrap();
                }
            }
        };
        let left: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            (0..2).for_each(|_| _ = scope.spawn(read));
            scope.spawn(change_budget);
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            ended.into_iter().map(Result::unwrap).sum()
        });
        let census = tree.check().unwrap();
        assert_eq!(census.entries, PERMANENT + left, "{fan_out}");
        drop(tree);
        let census = PearTree::<2, Native>::open(&storage, "tree", &options).unwrap().check().unwrap();
        assert_eq!(census.entries, PERMANENT + left, "{fan_out}");
    }
}
