//! The PeaR-Tree under several threads: what searches and insertions see of unfinished ones, and
//! real threads beside one that changes the budget.

use std::collections::BTreeSet;
use std::sync::Arc;

use terrane_pmem::interrupting::{At, Interrupting, Stopped, interrupt};
use terrane_pmem::{Instruction, PersistenceDomain};
use terrane_pmtree::Rect;
use terrane_pmtree::pear::{Budget, PearTree};
use terrane_testkit::crash::Controller;

use crate::beside_writers::finds_what_is_always_there;
use crate::pear::options;
use crate::scenario::NOTHING_LEFT;
use crate::seen::{everything, is_seen_and_gone, point};

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

/// An insertion has enlarged the box of an inner node and stops. Another one below the same node
/// relies on the box, and returns. Gives whether its entry survives a power loss that keeps nothing
/// of the first.
fn survives_beside((at_stop, number): (At, usize), dropped: Option<(Instruction, &'static str)>) -> bool {
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
    if let Some((instruction, site)) = dropped {
        tree.pool().backend().0.leave_out(instruction, site);
    }
    let first = tree.clone();
    let enlarging = Stopped::start(at_stop, number, move || first.insert(&at(10.05, 9.0), 1).unwrap());
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
    let before_fence = (At::BeforeFence, 1);
    assert!(survives_beside(before_fence, None));
    let flush = (Instruction::Flush, "pear.insert.rely");
    assert!(!survives_beside(before_fence, Some(flush)), "the flush can be left out");
}

#[test]
fn an_insertion_into_a_box_that_another_one_calls_durable_stays() {
    let at_entry = (At::Flush("pear.insert.entry"), 0);
    assert!(survives_beside(at_entry, None));
    let fence = (Instruction::Fence, "pear.insert.enlarge");
    assert!(!survives_beside(at_entry, Some(fence)), "the fence can be left out");
}

fn new_tree(payloads: impl Iterator<Item = u64>) -> Arc<Tree> {
    let options = options(PersistenceDomain::Adr, 4, Budget::Nodes(0));
    let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
    payloads.for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    Arc::new(tree)
}

fn found(tree: &Tree) -> Vec<u64> {
    let mut payloads = Vec::new();
    tree.window(&everything(), |rect, payload| {
        assert_eq!(*rect, point(payload), "parts of two entries");
        payloads.push(payload);
    })
    .unwrap();
    payloads
}

fn nearest(tree: &Tree) -> Vec<u64> {
    let is_meant = |_: &Rect<2>, payload| payload < 30;
    let found = tree.nearest(&[1.0, 2.0], 30, is_meant).unwrap();
    found
        .into_iter()
        .map(|(_, rect, payload)| (rect, payload))
        .map(|(rect, payload)| {
            assert_eq!(rect, point(payload), "parts of two entries");
            payload
        })
        .collect()
}

/// Hole 9. Splits, merges and redistributions move entries between leaves and between inner nodes.
/// Without a new number, a search has read one node before and the other one afterwards.
#[test]
fn operations_between_any_two_loads_of_a_search_lose_and_repeat_nothing() {
    for search in [found, nearest] {
        for number in 0.. {
            let tree = new_tree(0..30);
            let writer = tree.clone();
            let write = move || {
                (0..15).for_each(|payload| assert!(writer.delete(&point(payload), payload).unwrap()));
                (100..140).for_each(|payload| writer.insert(&point(payload), payload).unwrap());
                (100..140).for_each(|payload| assert!(writer.delete(&point(payload), payload).unwrap()));
            };
            let (seen, was_interrupted) = interrupt(At::Load, number, write, || search(&tree));
            let permanent: BTreeSet<u64> = seen.iter().copied().filter(|payload| (15..30).contains(payload)).collect();
            assert!(permanent.into_iter().eq(15..30), "after {number} loads: {seen:?}");
            assert_eq!(BTreeSet::from_iter(&seen).len(), seen.len(), "after {number} loads: {seen:?}");
            if !was_interrupted {
                break;
            }
        }
    }
}

/// A search that gives payloads.
type Search<'a> = &'a dyn Fn(&Tree) -> Vec<u64>;

/// A single operation that moves entries between the leaves of a line, below one root.
enum Move {
    Redistribution,
    Merge,
    Split,
}

/// Hole 9. Nothing else that the operation does changes a number that the search has read.
#[test]
fn one_move_of_entries_between_any_two_loads_of_a_search_loses_and_repeats_nothing() {
    let at = |x: u64| Rect::point([x as f64, 0.0]).unwrap();
    let window = |tree: &Tree| {
        let mut seen = Vec::new();
        tree.window(&everything(), |_, payload| seen.push(payload)).unwrap();
        seen
    };
    let nearest = |tree: &Tree| {
        let found = tree.nearest(&[3.0, 0.0], 100, |_, _| true).unwrap();
        found.into_iter().map(|(.., payload)| payload).collect()
    };
    let look_ups = |tree: &Tree| (1..50).filter(|&x| tree.contains(&at(x), x).unwrap()).collect();
    let searches: [Search<'_>; 3] = [&window, &nearest, &look_ups];
    for (search, movement) in searches
        .iter()
        .flat_map(|search| [Move::Redistribution, Move::Merge, Move::Split].map(|movement| (search, movement)))
    {
        // Two leaves, the second one full; or three, so that the root stays after a merge.
        let points: &[u64] = match movement {
            Move::Redistribution | Move::Split => &[0, 1, 10, 11, 12, 13],
            Move::Merge => &[0, 1, 20, 21, 22, 40, 41],
        };
        for number in 0.. {
            let tree = new_tree(std::iter::empty());
            points.iter().for_each(|&x| tree.insert(&at(x), x).unwrap());
            let writer = tree.clone();
            let is_split = matches!(movement, Move::Split);
            let change = move || match is_split {
                true => writer.insert(&at(14), 14).unwrap(),
                false => assert!(writer.delete(&at(0), 0).unwrap()),
            };
            let (mut seen, was_interrupted) = interrupt(At::Load, number, change, || search(&tree));
            seen.retain(|x| points[1..].contains(x));
            seen.sort_unstable();
            assert_eq!(seen, points[1..], "after {number} loads");
            if !was_interrupted {
                break;
            }
        }
    }
}

/// Hole 9, for one leaf: its bitmap is the same as before, and another entry has the slot.
#[test]
fn an_entry_that_takes_the_slot_of_another_one_is_not_mixed_with_it() {
    for search in [found, nearest] {
        for number in 0.. {
            let tree = new_tree(0..3);
            let writer = tree.clone();
            let write = move || {
                for payload in 0..3 {
                    assert!(writer.delete(&point(payload), payload).unwrap());
                    writer.insert(&point(payload + 3), payload + 3).unwrap();
                }
            };
            let (_, was_interrupted) = interrupt(At::Load, number, write, || search(&tree));
            if !was_interrupted {
                break;
            }
        }
    }
}

/// Beside all that, the budget changes.
#[test]
fn searches_beside_writers_and_moves_find_what_is_always_there_exactly_once() {
    for (fan_out, budget) in [(4, Budget::Nodes(0)), (4, Budget::Nodes(20)), (9, Budget::Levels(2))] {
        finds_what_is_always_there::<PearTree<2>>(&options(PersistenceDomain::PageCache, fan_out, budget), |tree| {
            if budget == Budget::Nodes(0) {
                return std::thread::yield_now();
            }
            for budget in [Budget::Nodes(3), Budget::Levels(1), Budget::Nodes(0), Budget::Nodes(60)] {
                tree.set_budget(budget).unwrap();
            }
        });
    }
}
