//! Trees and operations on them, for searches in the middle of the operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use terrane_testkit::is_soak;

use crate::support::{Model, random, rect};
use terrane_pmem::interrupting::{At, Interrupting};
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{FbrTree, Options, SearchMode};
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};

pub type Tree = FbrTree<2, Interrupting>;

/// A change counts from here, and nothing of it was applied to the nodes.
pub const COMMIT: At = At::Fence("fbr.log.commit");

/// Everything unfenced is lost.
pub const NOTHING_LEFT: Budget = Budget { exhaustive_pending: 0, samples: 0, name_order: NameOrder::AnySubset };

/// One operation of a writer.
#[derive(Clone, Debug)]
pub enum Operation {
    Insert(Rect<2>, u64),
    Delete(Rect<2>, u64),
}

/// A tree's entries, the operations on it, and a name.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub options: Options,
    pub entries: Vec<(Rect<2>, u64)>,
    pub operations: Vec<Operation>,
}

pub fn point(x: f64, y: f64) -> Rect<2> {
    Rect::point([x, y]).unwrap()
}

pub fn entries(count: u64) -> Vec<(Rect<2>, u64)> {
    let mut random = random(5);
    (0..count).map(|payload| (rect(&mut random, 30), payload)).collect()
}

pub fn inserts(count: u64) -> Vec<Operation> {
    let mut random = random(6);
    (0..count).map(|number| Operation::Insert(rect(&mut random, 30), 1000 + number)).collect()
}

impl Scenario {
    /// The pool after the first operations. Trees can be opened from it any number of times.
    pub fn after(&self, count: usize) -> Image {
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &self.options).unwrap();
        self.entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
        Self::run(&tree, &self.operations[..count]);
        tree.close().unwrap();
        controller.process_kill(controller.events())
    }

    pub fn open(&self, storage: &dyn Storage) -> Arc<Tree> {
        Arc::new(Tree::open(storage, "tree", &self.options).unwrap())
    }

    /// Operations to examine at every step. Those of long series are alike.
    pub fn chosen(&self) -> impl Iterator<Item = (usize, &Operation)> {
        let count = self.operations.len();
        let is_chosen = move |done: usize| done < 4 || done + 2 >= count || done.is_multiple_of(5) && done < 40;
        self.operations.iter().enumerate().filter(move |(done, _)| is_chosen(*done))
    }

    pub fn run(tree: &Tree, operations: &[Operation]) {
        for operation in operations {
            match operation {
                Operation::Insert(rect, payload) => tree.insert(rect, *payload).unwrap(),
                Operation::Delete(rect, payload) => assert!(tree.delete(rect, *payload).unwrap()),
            }
        }
    }

    /// The entries after the first operations.
    pub fn model(&self, count: usize) -> Model<2> {
        let mut model = Model(self.entries.clone());
        for operation in &self.operations[..count] {
            match operation {
                Operation::Insert(rect, payload) => model.0.push((*rect, *payload)),
                Operation::Delete(rect, payload) => assert!(model.delete(rect, *payload)),
            }
        }
        model
    }

    /// The entries closest to the one that an operation changes, which move with it; all in a long
    /// search.
    pub fn neighbours(&self, done: usize) -> Vec<(Rect<2>, u64)> {
        let (Operation::Insert(changed, _) | Operation::Delete(changed, _)) = &self.operations[done];
        let mut entries = self.model(done + 1).0;
        entries.sort_by(|left, right| {
            let [left, right] = [left, right].map(|(rect, _)| rect.distance_squared(changed.min()));
            left.total_cmp(&right)
        });
        entries.truncate(if is_soak() { usize::MAX } else { 7 });
        entries
    }

    /// Checks the results of a search beside some operations: entries that were there throughout,
    /// once, and none that was never there.
    pub fn check(&self, search: &Search, found: &[(Rect<2>, u64)], from: usize, to: usize, what: &str) {
        let what = format!("{search:?}, {what}");
        let models: Vec<Model<2>> = (from..=to).map(|count| self.model(count)).collect();
        let mut times = BTreeMap::new();
        for (rect, payload) in found {
            *times.entry(*payload).or_insert(0) += 1;
            let was_there = models.iter().any(|model| model.0.contains(&(*rect, *payload)));
            assert!(was_there, "{}, {:?}, {what}: {payload} at {rect:?} never was", self.name, self.options);
        }
        assert!(times.values().all(|&times| times == 1), "{self:?}, {what}: found twice: {times:?}");
        let has_to_be_found = |entry: &&(Rect<2>, u64)| {
            search.reaches(found, &entry.0) && models.iter().all(|model| model.0.contains(entry))
        };
        for entry in models[0].0.iter().filter(has_to_be_found) {
            assert!(times.contains_key(&entry.1), "{}, {:?}, {what}: {entry:?} is missing", self.name, self.options);
        }
    }
}

/// A kind of search. Searches that skip parts of the tree depend on boxes that change.
#[derive(Clone, Copy, Debug)]
pub enum Search {
    Window([f64; 2], [f64; 2]),
    Nearest(f64, usize),
}

pub const SEARCHES: [Search; 6] = [
    Search::Window([-1e9; 2], [1e9; 2]),
    Search::Window([0.0; 2], [7.0; 2]),
    Search::Window([9.0; 2], [12.0; 2]),
    Search::Nearest(10.0, usize::MAX),
    Search::Nearest(10.0, 3),
    Search::Nearest(0.0, 7),
];

impl Search {
    pub fn run(&self, tree: &Tree) -> Vec<(Rect<2>, u64)> {
        match *self {
            Self::Window(min, max) => {
                let mut found = Vec::new();
                let window = Rect::new(min, max).unwrap();
                tree.window(&window, SearchMode::Validated, |rect, payload| found.push((*rect, payload))).unwrap();
                found
            }
            Self::Nearest(from, count) => {
                let found = tree.nearest(&[from; 2], count, SearchMode::Validated, |_, _| true).unwrap();
                found.into_iter().map(|(_, rect, payload)| (rect, payload)).collect()
            }
        }
    }

    /// Whether a box must be among the results.
    pub fn reaches(&self, found: &[(Rect<2>, u64)], rect: &Rect<2>) -> bool {
        match *self {
            Self::Window(min, max) => rect.overlaps(&Rect::new(min, max).unwrap()),
            Self::Nearest(from, count) => {
                let distance = |rect: &Rect<2>| rect.distance_squared(&[from; 2]);
                found.len() < count || found.last().is_some_and(|(farthest, _)| distance(rect) < distance(farthest))
            }
        }
    }
}
