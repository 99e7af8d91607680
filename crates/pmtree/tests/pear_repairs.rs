//! Flushes and fences of the PeaR-Tree's repairs. Only changes after a repair show their loss, by
//! another thread, and a power loss that keeps nothing but these.

use terrane_pmem::Instruction;
use terrane_testkit::crash::{Budget as Images, Controller, NameOrder};

use crate::pear_fences::{AfterRecovery, BOTH, Tree, at, in_pool};

/// A tree, the change that a crash interrupts, and one after the repair.
struct Interrupted {
    points: Vec<[f64; 2]>,
    change: Change,
    later: Change,
}

#[derive(Clone, Copy)]
enum Change {
    Insert([f64; 2]),
    Delete([f64; 2]),
}

impl Change {
    fn apply(self, tree: &Tree, points: &mut Vec<[f64; 2]>) {
        match self {
            Self::Insert([x, y]) => {
                tree.insert(&at(x, y), 0).unwrap();
                points.push([x, y]);
            }
            Self::Delete([x, y]) => {
                assert!(tree.delete(&at(x, y), 0).unwrap());
                points.retain(|point| *point != [x, y]);
            }
        }
    }
}

impl Interrupted {
    /// Gives how many crashes have led to repairs with this flush or fence, and whether all points
    /// were there in the end, once.
    fn survives(&self, site: &str, dropped: Option<Instruction>) -> (usize, bool) {
        let images = Images { exhaustive_pending: 6, samples: 8, name_order: NameOrder::AnySubset };
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &in_pool()).unwrap();
        let mut points = Vec::new();
        self.points.iter().for_each(|&point| Change::Insert(point).apply(&tree, &mut points));
        let grown = controller.events();
        self.change.apply(&tree, &mut points);
        drop(tree);
        let later = AfterRecovery {
            site,
            repair: |tree: &Tree| tree.repair_all().unwrap(),
            change: |tree: &Tree| {
                let mut there = points_of(tree);
                self.later.apply(tree, &mut there);
                there.sort_by(|left, right| left.partial_cmp(right).unwrap());
                there
            },
            is_right: |tree: &mut Tree, there: &Vec<[f64; 2]>| points_of(tree) == *there,
        };
        later.try_all((&controller, grown), &images, dropped)
    }

    fn needs_flush_and_fence(&self, site: &str) {
        let (found, is_whole) = self.survives(site, None);
        assert!(found > 0 && is_whole, "{found} crashes");
        for instruction in BOTH {
            assert!(!self.survives(site, Some(instruction)).1, "{instruction:?} can be left out");
        }
    }
}

/// All points of a tree, in order.
fn points_of(tree: &Tree) -> Vec<[f64; 2]> {
    let mut points = Vec::new();
    let everything = terrane_pmtree::Rect::new([f64::MIN; 2], [f64::MAX; 2]).unwrap();
    tree.window(&everything, |rect, _| points.push(*rect.min())).unwrap();
    points.sort_by(|left, right| left.partial_cmp(right).unwrap());
    points
}

/// A leaf was split. After the repair its parent is split, and the halves come below different
/// parents.
#[test]
fn a_split_that_was_completed_is_not_completed_again() {
    let leaf = [[0.0, 0.0], [0.1, 0.0]];
    let upper = [[0.0, 1.0], [0.1, 1.0], [10.0, 1.0], [10.1, 1.0], [10.05, 1.0]];
    let lower = [[10.0, 0.0], [10.1, 0.0], [10.2, 1.0]];
    let points = leaf.into_iter().chain(upper).chain(lower).collect();
    let (change, later) = (Change::Insert([0.2, 0.0]), Change::Insert([10.3, 1.0]));
    Interrupted { points, change, later }.needs_flush_and_fence("pear.repair.split");
}

/// A leaf was to get entries of its full sibling, which is undone. After the repair the sibling is
/// changed.
#[test]
fn a_redistribution_that_was_undone_stays_undone() {
    let points = [0.0, 1.0, 10.0, 11.0, 12.0, 13.0].map(|x| [x, 0.0]).to_vec();
    let (change, later) = (Change::Delete([0.0, 0.0]), Change::Delete([13.0, 0.0]));
    Interrupted { points, change, later }.needs_flush_and_fence("pear.repair.unmark");
}
