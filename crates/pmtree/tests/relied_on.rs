//! Power losses in which one writer has built upon what another one has flushed and not fenced.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::interrupting::{At, Interrupting, Stopped};
use crate::support::{BOTH, FORMS, options};
use terrane_pmem::PersistenceDomain;
use terrane_pmtree::{FbrTree, Options, Rect, Split};
use terrane_storage::crash::{Budget, Controller, Image, NameOrder};

type Tree = FbrTree<2, Interrupting>;

fn point(number: u64) -> Rect<2> {
    Rect::point([(number * 7 % 31) as f64, (number * 11 % 29) as f64]).unwrap()
}

/// Entries in the order in which they come.
const ALL: [u64; 33] = [
    42, 0, 34, 18, 6, 20, 29, 31, 16, 28, 14, 8, 3, 22, 27, 37, 45, 13, 17, 32, 30, 10, 5, 21, 26, 39, 41, 38, 43, 40,
    44, 4, 35,
];

/// Those that go. What is left of their nodes is merged, two levels below the root and one.
const GONE: [u64; 9] = [8, 35, 3, 22, 43, 16, 30, 17, 4];

/// An insertion makes boxes around everything larger, and stops before its first fence, with the lock of its leaf alone. Deletions
/// elsewhere return, and the power fails, so that nothing is left of what nobody has fenced: what is lost of that which stays.
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
    let nothing_left = Budget { exhaustive_pending: 0, samples: 0, name_order: NameOrder::AnySubset };
    let images: Vec<Image> = controller.images(controller.events(), &nothing_left, 1).collect();
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
