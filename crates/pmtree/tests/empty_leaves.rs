//! Leaves that crashes have left empty. Each had two crashes between a deletion and the repair of
//! the leaf.

use std::sync::Arc;

use crate::support::{BOTH, FORMS, Model, TestedTree, options, random, rect, window};
use rand::Rng;
use terrane_pmem::{PersistenceDomain, Traced};
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{FbrTree, Options};
use terrane_pmtree::logged::{self, LoggedTree};
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::Controller;

/// Names of the fences after which a deletion has removed its entry, and not repaired the leaf.
const REMOVED: [&str; 3] = ["logged.log.clear", "fbr.delete.metadata", "fbr.tags.generation"];

/// A tree, its storage and its expected entries.
struct Interrupted<T: TestedTree<2>> {
    options: T::Options,
    controller: Arc<Controller>,
    tree: T,
    model: Model<2>,
}

impl<T: TestedTree<2>> Interrupted<T> {
    fn new(options: &T::Options) -> Self {
        let controller = Controller::new();
        let tree = T::create(&*controller.storage(), "tree", options).unwrap();
        Self { options: options.clone(), controller, tree, model: Model::default() }
    }

    fn insert(&mut self, rect: Rect<2>, payload: u64) {
        self.tree.insert(&rect, payload).unwrap();
        self.model.0.push((rect, payload));
        self.compare();
    }

    fn delete(&mut self, (rect, payload): (Rect<2>, u64)) {
        assert!(self.tree.delete(&rect, payload).unwrap() && self.model.delete(&rect, payload));
        self.compare();
    }

    /// Deletes an entry, and kills the process before the next step.
    fn delete_and_kill(&mut self, (rect, payload): (Rect<2>, u64)) {
        let start = self.controller.events();
        assert!(self.tree.delete(&rect, payload).unwrap() && self.model.delete(&rect, payload));
        let is_removed =
            |event: &Event| matches!(event, Event::Pool(PoolEvent::Fence { site, .. }) if REMOVED.contains(site));
        let log = self.controller.log();
        let cut = (start..log.len()).find(|&event| is_removed(&log[event])).unwrap() + 1;
        self.controller = self.controller.process_kill(cut).restart();
        self.tree = T::open(&*self.controller.storage(), "tree", &self.options).unwrap();
        self.compare();
    }

    /// Checks the tree, and compares its entries and the results of searches with the model.
    fn compare(&mut self) {
        let census = self.tree.check().unwrap_or_else(|error| panic!("{:?}: {error}", self.options));
        assert_eq!(census.entries, self.model.0.len() as u64, "{:?}", self.options);
        for (rect, payload) in &self.model.0 {
            assert!(self.tree.contains(rect, *payload).unwrap(), "{rect:?}, {:?}", self.options);
        }
        for query in [[0.0, 5.0], [0.0, 40.0], [20.0, 30.0]].map(|[min, max]| Rect::new([min; 2], [max; 2]).unwrap()) {
            for &mode in T::MODES {
                assert_eq!(window(&self.tree, &query, mode), self.model.window(&query), "{mode:?}, {:?}", self.options);
            }
            let nearest = self.tree.nearest(query.max(), 4, &|_, _| true).unwrap();
            let distances: Vec<f64> = nearest.iter().map(|&(distance, ..)| distance).collect();
            assert_eq!(distances, self.model.distances(query.max(), 4), "{:?}", self.options);
        }
    }
}

fn logged() -> logged::Options {
    LoggedTree::<2>::options(PersistenceDomain::Adr, 4)
}

fn of_fbr() -> impl Iterator<Item = Options> {
    let forms = FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing)));
    forms.map(|(leaves, rebalancing)| Options { leaves, ..options(PersistenceDomain::Adr, 4, rebalancing) })
}

/// The leaf of two entries loses both, and the next one lies beside them.
fn fill_an_empty_leaf<T: TestedTree<2>>(options: &T::Options) {
    let point = |x: u32, y: u32| Rect::point([f64::from(x), f64::from(y)]).unwrap();
    let mut tree = Interrupted::<T>::new(options);
    let points = [point(0, 0), point(0, 9), point(100, 0), point(100, 9), point(101, 3)];
    (0..).zip(points).for_each(|(payload, point)| tree.insert(point, payload));
    (0..).zip(points).take(2).for_each(|(payload, point)| tree.delete_and_kill((point, payload)));
    let census = tree.tree.check().unwrap();
    assert_eq!((census.leaves, census.underfull), (2, 1), "{options:?}: no leaf is empty");
    tree.insert(point(1, 4), 5);
}

#[test]
fn an_insertion_into_a_leaf_that_crashes_have_left_empty_leaves_a_sound_logged_tree() {
    fill_an_empty_leaf::<LoggedTree<2, Traced>>(&logged());
}

#[test]
fn an_insertion_into_a_leaf_that_crashes_have_left_empty_leaves_a_sound_fbr_tree() {
    of_fbr().for_each(|options| fill_an_empty_leaf::<FbrTree<2, Traced>>(&options));
}

/// Empties all leaves of a tree except `left` entries, deletes these, and fills and empties the
/// tree again.
fn empty_all_leaves_but_of<T: TestedTree<2>>(options: &T::Options, left: usize, seed: u64) {
    const ENTRIES: u64 = 24;
    let mut random = random(seed);
    let mut tree = Interrupted::<T>::new(options);
    (0..ENTRIES).for_each(|payload| tree.insert(rect(&mut random, 40), payload));
    let leaves = tree.tree.check().unwrap().leaves;
    while tree.model.0.len() > left {
        let entry = tree.model.0[random.random_range(0..tree.model.0.len())];
        tree.delete_and_kill(entry);
    }
    let census = tree.tree.check().unwrap();
    let has_empty_leaves = census.leaves == leaves && leaves >= left as u64 + 2 && census.height > 1;
    assert!(has_empty_leaves, "{options:?}: {census:?}");
    while let Some(&entry) = tree.model.0.first() {
        tree.delete(entry);
    }
    (0..ENTRIES).for_each(|payload| tree.insert(rect(&mut random, 40), payload));
    while let Some(&entry) = tree.model.0.first() {
        tree.delete(entry);
    }
}

#[test]
fn a_logged_tree_of_empty_leaves_is_used_as_any_other() {
    for (left, seed) in (0..6).flat_map(|left| (0..4).map(move |seed| (left, seed))) {
        empty_all_leaves_but_of::<LoggedTree<2, Traced>>(&logged(), left, seed);
    }
}

#[test]
fn an_fbr_tree_of_empty_leaves_is_used_as_any_other() {
    for options in of_fbr() {
        for (left, seed) in (0..6).flat_map(|left| (0..4).map(move |seed| (left, seed))) {
            empty_all_leaves_but_of::<FbrTree<2, Traced>>(&options, left, seed);
        }
    }
}
