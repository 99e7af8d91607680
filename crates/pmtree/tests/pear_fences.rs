//! Flushes and fences of the PeaR-Tree whose loss no history of one thread shows.

use std::sync::Arc;

use terrane_pmem::interrupting::{At, Interrupting, Stopped};
use terrane_pmem::{Dropping, Instruction, PersistenceDomain, Traced};
use terrane_pmtree::Rect;
use terrane_pmtree::pear::{Budget, Options, PearTree};
use terrane_testkit::crash::{Budget as Images, Controller, NameOrder};

use crate::pear::options;
use crate::scenario::NOTHING_LEFT;

const BOTH: [Instruction; 2] = [Instruction::Flush, Instruction::Fence];

fn in_pool() -> Options {
    options(PersistenceDomain::Adr, 4, Budget::Nodes(0))
}

fn at(x: f64, y: f64) -> Rect<2> {
    Rect::point([x, y]).unwrap()
}

/// A thread splits a leaf, and stops when it has no lock. Another one splits the parent, so that
/// the halves come below different parents. Gives whether all entries survive a power loss that
/// keeps nothing of what the first thread has not fenced.
fn halves_below_two_parents_survive(dropped: Option<Instruction>) -> bool {
    const DONE: &str = "pear.split.done";
    let options = in_pool();
    let controller = Controller::new();
    let tree = PearTree::<2, Interrupting>::create(&*controller.storage(), "tree", &options).unwrap();
    // Leaves at the lower left, the upper left and the upper right. The lower one reaches to the
    // right.
    let upper = [(0.0, 1.0), (0.1, 1.0), (10.0, 1.0), (10.1, 1.0), (10.05, 1.0)];
    let lower = [(10.0, 0.0), (10.1, 0.0)];
    let all = [(0.0, 0.0), (0.1, 0.0)].into_iter().chain(upper).chain(lower).chain([(10.2, 1.0)]);
    let all: Vec<Rect<2>> = all.map(|(x, y)| at(x, y)).collect();
    all.iter().for_each(|rect| tree.insert(rect, 0).unwrap());
    if let Some(instruction) = dropped {
        tree.pool().backend().0.leave_out(instruction, DONE);
    }
    let tree = Arc::new(tree);
    let first = tree.clone();
    let splitting = Stopped::start(At::Fence(DONE), 0, move || first.insert(&at(0.2, 0.0), 1).unwrap());
    // Both halves are even again, and they and their parent are unlocked.
    splitting.resume_until(At::Change, 4);
    tree.insert(&at(10.3, 1.0), 2).unwrap();
    let images: Vec<_> = controller.images(controller.events(), &NOTHING_LEFT, 1).collect();
    assert_eq!(Stopped::end([splitting]), [true]);
    images.iter().all(|image| {
        let opened = PearTree::<2, Interrupting>::open(&*image.storage(), "tree", &options);
        let mut tree = opened.unwrap();
        let is_there = all.iter().all(|rect| tree.contains(rect, 0).is_ok_and(|found| found));
        is_there && tree.check().is_ok()
    })
}

#[test]
fn halves_that_come_below_two_parents_are_in_no_recovery_state() {
    assert!(halves_below_two_parents_survive(None));
    for instruction in BOTH {
        assert!(!halves_below_two_parents_survive(Some(instruction)), "{instruction:?} can be left out");
    }
}

/// Opens a tree that was closed, and loses power at each event of some insertions. Gives whether
/// the tree is sound each time.
fn is_sound_after_a_close(dropped: Option<Instruction>) -> bool {
    type Tree = PearTree<2, Dropping<Traced>>;
    let options = in_pool();
    let controller = Controller::new();
    let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
    tree.insert(&at(0.0, 0.0), 0).unwrap();
    tree.close().unwrap();
    let storage = controller.storage();
    let open = || Tree::open(&*storage, "tree", &options).unwrap();
    let tree = match dropped {
        Some(instruction) => Dropping::<Traced>::leaving_out(instruction, "pear.open.clean", open),
        None => open(),
    };
    let opened = controller.events();
    // In a thread of its own, whose fences are not those of the opening.
    let insert = move || (1..8).for_each(|number| tree.insert(&at(f64::from(number), 0.0), 0).unwrap());
    std::thread::spawn(insert).join().unwrap();
    (opened..controller.events()).all(|cut| {
        controller.images(cut, &NOTHING_LEFT, 1).all(|image| {
            let mut tree = Tree::open(&*image.storage(), "tree", &options).unwrap();
            tree.check().is_ok()
        })
    })
}

#[test]
fn a_tree_that_was_opened_is_not_clean_any_more() {
    assert!(is_sound_after_a_close(None));
    for instruction in BOTH {
        assert!(!is_sound_after_a_close(Some(instruction)), "{instruction:?} can be left out");
    }
}

/// Recovers from crashes after which the block of a removed node is free and still named as
/// leaving, and inserts into it. Gives how many these were, and whether each insertion is there
/// after a power loss.
fn insertions_into_what_has_left(dropped: Option<Instruction>) -> (usize, bool) {
    type Tree = PearTree<2, Dropping<Traced>>;
    const CLEAR: &str = "pear.recover.dying.clear";
    let budget = Images { exhaustive_pending: 4, samples: 4, name_order: NameOrder::AnySubset };
    let options = in_pool();
    let controller = Controller::new();
    let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
    (0..16).for_each(|number| tree.insert(&at(f64::from(number), 0.0), 0).unwrap());
    let grown = controller.events();
    (0..12).for_each(|number| assert!(tree.delete(&at(f64::from(number), 0.0), 0).unwrap()));
    drop(tree);
    let (mut found, mut is_whole) = (0, true);
    for image in (grown..controller.events()).flat_map(|cut| controller.images(cut, &budget, 1).collect::<Vec<_>>()) {
        let probe = image.restart();
        drop(Tree::open(&*probe.storage(), "tree", &options).unwrap());
        if !Instruction::sites(&probe).iter().any(|(_, site)| *site == CLEAR) {
            continue;
        }
        found += 1;
        let restarted = image.restart();
        let storage = restarted.storage();
        let open = || Tree::open(&*storage, "tree", &options).unwrap();
        let tree = match dropped {
            Some(instruction) => Dropping::<Traced>::leaving_out(instruction, CLEAR, open),
            None => open(),
        };
        let new: Vec<Rect<2>> = (0..20).map(|number| at(f64::from(number % 10), f64::from(number))).collect();
        // In a thread of its own, whose fences are not those of the opening.
        std::thread::scope(|scope| {
            scope.spawn(|| new.iter().for_each(|rect| tree.insert(rect, 1).unwrap()));
        });
        drop(tree);
        is_whole &= restarted.images(restarted.events(), &NOTHING_LEFT, 1).all(|image| {
            let opened = Tree::open(&*image.storage(), "tree", &options);
            opened.is_ok_and(|mut tree| {
                tree.check().is_ok() && new.iter().all(|rect| tree.contains(rect, 1).is_ok_and(|found| found))
            })
        });
    }
    (found, is_whole)
}

#[test]
fn a_block_that_a_removed_node_has_left_is_not_removed_again() {
    let (found, is_whole) = insertions_into_what_has_left(None);
    assert!(found > 0 && is_whole, "{found} crashes");
    for instruction in BOTH {
        assert!(!insertions_into_what_has_left(Some(instruction)).1, "{instruction:?} can be left out");
    }
}
