//! Flushes and fences of the PeaR-Tree whose loss no history of one thread shows.

use std::sync::Arc;

use terrane_pmem::explorer::{Breadth, Dropped, Explorer, History, Subject};
use terrane_pmem::interrupting::{At, Interrupting, Stopped};
use terrane_pmem::{Dropping, Instruction, PersistenceDomain, Traced};
use terrane_pmtree::Rect;
use terrane_pmtree::explored::{ExploredTree, Pear, random_steps};
use terrane_pmtree::pear::{Budget, Options, PearTree};
use terrane_storage::Storage;
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget as Images, Controller, Image, NameOrder};

use crate::pear::options;
use crate::scenario::NOTHING_LEFT;

pub type Tree = PearTree<2, Dropping<Traced>>;

pub const BOTH: [Instruction; 2] = [Instruction::Flush, Instruction::Fence];

pub fn in_pool() -> Options {
    options(PersistenceDomain::Adr, 4, Budget::Nodes(0))
}

pub fn at(x: f64, y: f64) -> Rect<2> {
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

/// What happens after a crash whose recovery has a flush and a fence of some name.
pub struct AfterRecovery<'a, R, C, S> {
    pub site: &'a str,
    /// Runs on the opened tree, and belongs to the recovery.
    pub repair: R,
    /// Runs in a thread of its own, whose fences are not those of the recovery.
    pub change: C,
    /// Judges what a power loss leaves that keeps nothing but fenced lines, by what `change` gave.
    pub is_right: S,
}

impl<T, R, C, S> AfterRecovery<'_, R, C, S>
where
    T: Send,
    R: Fn(&Tree),
    C: Fn(&Tree) -> T + Sync,
    S: Fn(&mut Tree, &T) -> bool,
{
    /// Recovers from each crash since an event. Gives how many of the recoveries reached the name,
    /// and whether everything was right in the end.
    pub fn try_all(
        &self,
        (controller, since): (&Controller, usize),
        images: &Images,
        dropped: Option<Instruction>,
    ) -> (usize, bool) {
        let options = in_pool();
        let open = |storage: &dyn Storage| Tree::open(storage, "tree", &options).unwrap();
        let (mut found, mut is_right) = (0, true);
        let cuts = since..controller.events();
        for image in cuts.flat_map(|cut| controller.images(cut, images, 1).collect::<Vec<_>>()) {
            let probe = image.restart();
            (self.repair)(&open(&*probe.storage()));
            if !Instruction::sites(&probe).iter().any(|(_, site)| *site == self.site) {
                continue;
            }
            found += 1;
            let restarted = image.restart();
            let storage = restarted.storage();
            let tree = match dropped {
                Some(instruction) => Dropping::<Traced>::leaving_out(instruction, self.site, || open(&*storage)),
                None => open(&*storage),
            };
            (self.repair)(&tree);
            let change = &self.change;
            let changed = std::thread::scope(|scope| scope.spawn(|| change(&tree)).join().unwrap());
            drop(tree);
            is_right &= restarted.images(restarted.events(), &NOTHING_LEFT, 1).all(|image| {
                let opened = Tree::open(&*image.storage(), "tree", &options);
                opened.is_ok_and(|mut tree| tree.check().is_ok() && (self.is_right)(&mut tree, &changed))
            });
        }
        (found, is_right)
    }
}

/// Recovers from crashes after which the block of a removed node is free and still named as
/// leaving, and inserts into it. Gives how many these were, and whether each insertion is there
/// after a power loss.
fn insertions_into_what_has_left(dropped: Option<Instruction>) -> (usize, bool) {
    let images = Images { exhaustive_pending: 4, samples: 4, name_order: NameOrder::AnySubset };
    let controller = Controller::new();
    let tree = Tree::create(&*controller.storage(), "tree", &in_pool()).unwrap();
    (0..16).for_each(|number| tree.insert(&at(f64::from(number), 0.0), 0).unwrap());
    let grown = controller.events();
    (0..12).for_each(|number| assert!(tree.delete(&at(f64::from(number), 0.0), 0).unwrap()));
    drop(tree);
    let new: Vec<Rect<2>> = (0..20).map(|number| at(f64::from(number % 10), f64::from(number))).collect();
    let later = AfterRecovery {
        site: "pear.recover.dying.clear",
        repair: |_: &Tree| {},
        change: |tree: &Tree| new.iter().for_each(|rect| tree.insert(rect, 1).unwrap()),
        is_right: |tree: &mut Tree, _: &()| new.iter().all(|rect| tree.contains(rect, 1).is_ok_and(|found| found)),
    };
    later.try_all((&controller, grown), &images, dropped)
}

#[test]
fn a_block_that_a_removed_node_has_left_is_not_removed_again() {
    let (found, is_whole) = insertions_into_what_has_left(None);
    assert!(found > 0 && is_whole, "{found} crashes");
    for instruction in BOTH {
        assert!(!insertions_into_what_has_left(Some(instruction)).1, "{instruction:?} can be left out");
    }
}

/// Points on a line in a tree whose leaves have up to four.
struct Line {
    controller: Arc<Controller>,
    tree: Tree,
    points: Vec<f64>,
}

impl Line {
    fn new(points: &[f64]) -> Self {
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &in_pool()).unwrap();
        let mut line = Self { controller, tree, points: Vec::new() };
        line.insert(points);
        line
    }

    fn leave_out(&self, dropped: Option<Instruction>, site: &str) {
        if let Some(instruction) = dropped {
            self.tree.pool().backend().leave_out(instruction, site);
        }
    }

    fn insert(&mut self, points: &[f64]) {
        points.iter().for_each(|&x| self.tree.insert(&at(x, 0.0), 0).unwrap());
        self.points.extend(points);
    }

    /// Blocks that this frees are the next that are acquired.
    fn delete(&mut self, points: &[f64]) {
        points.iter().for_each(|&x| assert!(self.tree.delete(&at(x, 0.0), 0).unwrap()));
        self.points.retain(|x| !points.contains(x));
        self.tree.pool().reclaim().unwrap();
    }

    /// Whether all points survive any power loss since an event. The tree must be sound, and stay
    /// so while all are deleted.
    fn survives(&self, since: usize, images: &Images) -> bool {
        (since..=self.controller.events())
            .all(|cut| self.controller.images(cut, images, 1).all(|image| is_sound(&image, &self.points)))
    }
}

/// Whether a tree is sound and has points, and stays sound while they are deleted.
pub fn is_sound(image: &Image, points: &[f64]) -> bool {
    Tree::open(&*image.storage(), "tree", &in_pool()).is_ok_and(|mut tree| {
        tree.check().is_ok()
            && points.iter().all(|&x| tree.contains(&at(x, 0.0), 0).is_ok_and(|is_there| is_there))
            && points.iter().all(|&x| tree.delete(&at(x, 0.0), 0).is_ok_and(|was_there| was_there))
            && points.iter().all(|&x| tree.contains(&at(x, 0.0), 0).is_ok_and(|is_there| !is_there))
            && tree.check().is_ok()
    })
}

/// Leaves of a line: {0, 1}, {20, 21} and {22, 40, 41}.
const THREE_LEAVES: [f64; 7] = [0.0, 1.0, 20.0, 21.0, 22.0, 40.0, 41.0];

/// The second leaf merges with the third one, whose block the half of another leaf gets then.
#[test]
fn a_block_that_a_merged_node_has_left_is_not_removed_again() {
    let survives = |dropped: Option<Instruction>| {
        let mut line = Line::new(&THREE_LEAVES);
        line.delete(&[40.0]);
        line.leave_out(dropped, "pear.chain.dying.clear");
        line.delete(&[41.0]);
        line.insert(&[2.0, 3.0, 4.0]);
        line.survives(line.controller.events(), &NOTHING_LEFT)
    };
    assert!(survives(None));
    assert!(!survives(Some(Instruction::Flush)), "the flush can be left out");
}

/// A leaf enters the chain before the second one. The first one leaves it, and its block gets
/// another leaf, behind the second one. That must not name it as a leaf before it.
#[test]
fn a_leaf_never_names_a_block_as_the_one_before_it_that_comes_behind_it() {
    let survives = |dropped: Option<Instruction>| {
        let mut line = Line::new(&THREE_LEAVES);
        line.leave_out(dropped, "pear.chain.previous");
        line.insert(&[2.0, 3.0, 4.0]);
        line.delete(&[0.0]);
        line.insert(&[42.0, 43.0]);
        line.survives(line.controller.events(), &NOTHING_LEFT)
    };
    assert!(survives(None));
    assert!(!survives(Some(Instruction::Flush)), "the flush can be left out");
}

/// The second leaf merges with the third one. Its block gets a leaf that merges with the same one.
/// A crash then leaves the marks of that leaf, and none of the second merge in its sibling.
#[test]
fn a_leaf_is_not_taken_for_the_one_whose_block_it_has() {
    let images = Images { exhaustive_pending: 6, samples: 64, name_order: NameOrder::AnySubset };
    let survives = |dropped: Option<Instruction>| {
        let mut line = Line::new(&THREE_LEAVES);
        line.delete(&[41.0]);
        line.leave_out(dropped, "pear.merge.done");
        line.delete(&[20.0]);
        line.insert(&[2.0, 9.0, 11.5]);
        line.delete(&[2.0]);
        let before = line.controller.events();
        line.delete(&[9.0]);
        line.survives(before, &images)
    };
    assert!(survives(None));
    assert!(!survives(Some(Instruction::Flush)), "the flush can be left out");
}

/// A leaf gets entries of its full sibling. Then another thread inserts into it, so that its marks
/// leave it durably.
#[test]
fn entries_that_move_to_a_sibling_are_not_in_both_leaves() {
    let survives = |dropped: Option<Instruction>| {
        let mut line = Line::new(&[0.0, 1.0, 10.0, 11.0, 12.0, 13.0]);
        line.leave_out(dropped, "pear.redistribute.lose");
        line.delete(&[0.0]);
        std::thread::scope(|scope| scope.spawn(|| line.insert(&[1.5])).join().unwrap());
        line.survives(line.controller.events(), &NOTHING_LEFT)
    };
    assert!(survives(None));
    for instruction in BOTH {
        assert!(!survives(Some(instruction)), "{instruction:?} can be left out");
    }
}

/// A history in which nodes of one level merge, and exchange entries, while some of them lie in the
/// pool and some in memory. Gives whether a power loss before this fence goes wrong.
fn goes_wrong_before(fence: &str, dropped: Option<Dropped>) -> bool {
    let mut all = Pear::configurations().into_iter();
    let mut subject = all.find(|subject| subject.configuration() == "mixed-4-adr").unwrap();
    subject.tree.options.budget = Budget::Nodes(7);
    let history = History::record(&subject, random_steps(1, 200), dropped).unwrap();
    let mut explorer = Explorer::new(&subject);
    let breadth = Breadth { branches: 64, samples: 16, seed: 1 };
    let is_meant = |event: &Event| matches!(event, Event::Pool(PoolEvent::Fence { site, .. }) if *site == fence);
    let log = history.controller.log();
    let mut cuts = (0..log.len()).filter(|&cut| is_meant(&log[cut])).peekable();
    assert!(cuts.peek().is_some(), "{fence} was not reached");
    cuts.any(|cut| explorer.power_losses(&history, cut, &breadth).is_err())
}

#[test]
fn copies_are_durable_before_they_count_if_the_other_node_is_in_memory() {
    for (copy, gain) in [("pear.merge.copy", "pear.merge.gain"), ("pear.redistribute.copy", "pear.redistribute.gain")] {
        assert!(!goes_wrong_before(gain, None), "{gain}");
        let dropped = Dropped { instruction: Instruction::Fence, site: copy.to_owned() };
        assert!(goes_wrong_before(gain, Some(dropped)), "the fence {copy} can be left out");
    }
}
