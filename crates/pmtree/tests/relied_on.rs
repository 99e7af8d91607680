//! Power losses after one writer has relied on another one's stores that are flushed and not
//! fenced.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::scenario::NOTHING_LEFT;
use crate::support::{BOTH, FORMS, options};
use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::{At, Interrupting, Stopped};
use terrane_pmtree::fbr::{FbrTree, Options};
use terrane_pmtree::{Rect, Split};
use terrane_testkit::crash::{Controller, Image};

type Tree = FbrTree<2, Interrupting>;

fn point(number: u64) -> Rect<2> {
    Rect::point([(number * 7 % 31) as f64, (number * 11 % 29) as f64]).unwrap()
}

/// Entries in the order of insertion.
const ALL: [u64; 33] = [
    42, 0, 34, 18, 6, 20, 29, 31, 16, 28, 14, 8, 3, 22, 27, 37, 45, 13, 17, 32, 30, 10, 5, 21, 26, 39, 41, 38, 43, 40,
    44, 4, 35,
];

/// Those to delete. The rest of their nodes is merged, two levels below the root and one.
const GONE: [u64; 9] = [8, 35, 3, 22, 43, 16, 30, 17, 4];

/// An insertion enlarges boxes around everything, and stops before its first fence, with only the
/// lock of its leaf. Deletions elsewhere return, and the power fails, so that everything unfenced
/// is lost. Gives the missing ones of the remaining entries.
fn lost(options: &Options) -> Vec<u64> {
    let controller = Controller::new();
    let tree = Tree::create(&*controller.storage(), "tree", options).unwrap();
    ALL.iter().for_each(|&number| tree.insert(&point(number), number).unwrap());
    tree.close().unwrap();
    let controller = controller.process_kill(controller.events()).restart();
    let tree = Arc::new(Tree::open(&*controller.storage(), "tree", options).unwrap());
    let (inserting, deleting) = (tree.clone(), tree);
    let around = Rect::new([-1.0; 2], [50.0; 2]).unwrap();
    let stopped = Stopped::start(At::BeforeFence, 0, move || inserting.insert(&around, 1000).unwrap());
    let (done, is_done) = mpsc::channel();
    let deletions = std::thread::spawn(move || {
        GONE.iter().for_each(|&number| assert!(deleting.delete(&point(number), number).unwrap()));
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(60)).expect("a deletion waits for the insertion that was stopped");
    let images: Vec<Image> = controller.images(controller.events(), &NOTHING_LEFT, 1).collect();
    assert_eq!(Stopped::end([stopped]), [true]);
    deletions.join().unwrap();
    let stays = |number: &&u64| !GONE.contains(number);
    let mut lost = Vec::new();
    for image in images {
        let mut tree = Tree::open(&*image.storage(), "tree", options).unwrap();
        let is_lost = |number: &&u64| !tree.contains(&point(**number), **number).unwrap();
        lost.extend(ALL.iter().filter(stays).filter(is_lost).copied());
        tree.check().unwrap_or_else(|error| panic!("lost {lost:?}: {error}"));
    }
    lost
}

#[test]
fn a_merge_into_a_box_that_is_not_durable_yet_loses_nothing() {
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, split: Split::RStar, ..options(PersistenceDomain::Adr, 4, rebalancing) };
        assert_eq!(lost(&options), Vec::<u64>::new(), "{leaves:?}, {rebalancing:?}");
    }
}

/// Leaves of four entries each at these heights: all except the last below one inner node on the
/// left, the last below one on the right.
const HEIGHTS: [f64; 4] = [0.0, 20.0, 40.0, 60.0];

/// Two insertions enlarge the box of the left inner node, one after the other, and stop: the first
/// before its fence with this number, the second before its first. When the first has ended, a
/// third one returns whose entry is in the box that the second has made. Gives whether that entry
/// survives a power loss that keeps nothing of the second; `None` if the first has no such fence.
fn survives_beside_two(options: &Options, fence: usize) -> Option<bool> {
    let controller = Controller::new();
    let mut tree = Tree::create(&*controller.storage(), "tree", options).unwrap();
    let at = |x: f64, height: usize| Rect::point([x, HEIGHTS[height] + x % 10.0]).unwrap();
    for (left, height) in (0..3).map(|height| (0.0, height)).chain((0..4).map(|height| (1000.0, height))) {
        (0..4).for_each(|number| tree.insert(&at(left + f64::from(number), height), 0).unwrap());
    }
    let census = tree.check().unwrap();
    assert_eq!((census.height, census.inner_nodes, census.leaves), (2, 3, 7), "{options:?}");
    let tree = Arc::new(tree);
    let insert = |x: f64, height: usize| {
        let (tree, rect) = (tree.clone(), at(x, height));
        move || tree.insert(&rect, 1).unwrap()
    };
    let first = Stopped::start(At::BeforeFence, fence, insert(10.0, 0));
    let second = Stopped::start(At::BeforeFence, 0, insert(20.0, 1));
    let has_stopped = Stopped::end([first])[0];
    insert(12.0, 2)();
    let images: Vec<Image> = controller.images(controller.events(), &NOTHING_LEFT, 1).collect();
    assert_eq!(Stopped::end([second]), [true]);
    let survives = |image: &Image| {
        let mut tree = Tree::open(&*image.storage(), "tree", options).unwrap();
        let is_there = tree.contains(&at(12.0, 2), 1).unwrap();
        is_there && tree.check().is_ok() && tree.contains(&at(10.0, 0), 1).unwrap()
    };
    has_stopped.then(|| images.iter().all(survives))
}

/// The first one clears only its own mark (F6). Otherwise the third one would not flush the box.
#[test]
fn an_insertion_that_ends_leaves_the_mark_of_another_one_that_has_enlarged_the_same_box() {
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, split: Split::RStar, ..options(PersistenceDomain::Adr, 6, rebalancing) };
        let outcomes: Vec<bool> = (0..).map_while(|fence| survives_beside_two(&options, fence)).collect();
        assert!(!outcomes.is_empty() && outcomes.iter().all(|&survives| survives), "{outcomes:?}, {options:?}");
    }
}
