//! Every small history: two operations on each tree of a few entries.
//!
//! - The domain are [`RECTS`], each with its number as payload.
//! - The trees are all those of up to [`ENTRIES_MAX`] distinct entries that insertions and
//!   deletions can make, also by way of larger trees. Trees that differ only in the places of
//!   entries within nodes count once. Before the operations, the tree is durable.
//! - The operations are the insertion of each of the eight boxes (a second time, if it is there),
//!   the deletion of each that is there, and the look-up of each.
//!
//! Look-ups usually change nothing. Then a history with a look-up has the same crashes as the
//! history without it. This is checked at every tree and after every first operation. Where
//! look-ups do change something, as repairing ones do, a history of all eight look-ups is cut as
//! well.
//!
//! Of each history, every cut after the creation is tried, with every image that recovery can
//! distinguish. With [`Recoveries::Cut`], power is lost again at every cut of the recovery. The
//! first crash is a kill there, or a power loss that keeps nothing or everything. That is three
//! quarters of the work.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use terrane_pmem::explorer::{Breadth, Checked, Explorer, Failure, History, Part, Tally};
use terrane_testkit::MemoryStorage;

use super::steps::Step;
use super::subject::{Explored, ExploredTree};
use crate::Rect;

/// The most entries of the trees.
const ENTRIES_MAX: usize = 6;

/// Two clusters (in one, boxes touch), a box between them, one around all, and a point.
const RECTS: [[f64; 4]; 8] = [
    [0.0, 0.0, 1.0, 1.0],
    [1.0, 0.0, 2.0, 1.0],
    [0.0, 2.0, 1.0, 3.0],
    [6.0, 0.0, 7.0, 1.0],
    [6.0, 2.0, 7.0, 3.0],
    [7.0, 2.0, 7.0, 2.0],
    [3.0, 1.0, 4.0, 2.0],
    [0.0, 0.0, 7.0, 3.0],
];

/// More images than any cut has.
const BREADTH: Breadth = Breadth { branches: 1 << 20, samples: 0, seed: 0 };

/// How the recovery from a crash runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recoveries {
    /// It runs to its end.
    Whole,
    /// It crashes as well, at every cut.
    Cut,
}

/// The end of a search: nothing, or the first problem.
type Outcome = Result<(), Box<Failure<Step>>>;

/// The size of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallTrees {
    /// Number of trees.
    pub trees: u64,
    /// Trees whose histories were tried.
    pub trees_tried: u64,
    /// Histories of two operations of these, including those with look-ups.
    pub histories: u64,
    /// Crashes that were tried.
    pub tally: Tally,
}

/// Tries all histories of two operations from a part of the trees, on as many threads as there are
/// processors.
pub fn small_trees<T: ExploredTree>(
    subject: &Explored<T>,
    part: Part,
    recoveries: Recoveries,
) -> Result<SmallTrees, Box<Failure<Step>>> {
    let trees = trees(subject)?;
    let chosen: Vec<&Vec<Step>> = part.of_all(&trees).collect();
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut found = SmallTrees::default();
        while let Some(tree) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            if let Err(failure) = explore_tree(subject, tree, recoveries, &mut found) {
                is_over.store(true, Ordering::Relaxed);
                return Err(failure);
            }
        }
        Ok(found)
    };
    let mut all = SmallTrees { trees: trees.len() as u64, ..SmallTrees::default() };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let found = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.trees_tried += found.trees_tried;
            all.histories += found.histories;
            all.tally += found.tally;
        }
        Ok(all)
    })
}

fn explore_tree<T: ExploredTree>(
    subject: &Explored<T>,
    tree: &[Step],
    recoveries: Recoveries,
    found: &mut SmallTrees,
) -> Outcome {
    // Images of one tree's histories are often the same.
    let mut explorer = Explorer::new(subject);
    let mut recovered = BTreeSet::new();
    let mut lose_power = |history: &History<'_, Explored<T>>, from_step: usize| {
        explorer.all_power_losses(history, from_step, &BREADTH)?;
        match recoveries {
            Recoveries::Whole => Ok(()),
            Recoveries::Cut => explorer.inside_all_recoveries(history, from_step, &BREADTH, &mut recovered),
        }
    };
    let tree = &[tree, &[Step::Sync]].concat();
    let record = |operations: &[Step]| History::record(subject, [tree, operations].concat(), None);
    let after_look_ups = |steps: &[Step]| {
        let looking = record(&[steps, look_ups().as_slice()].concat());
        looking.map(|looking| change_something(&looking, tree.len() + steps.len()).then_some(looking))
    };
    if let Some(looking) = after_look_ups(&[])? {
        lose_power(&looking, tree.len())?;
    }
    let first_operations = operations(tree);
    for first in &first_operations {
        let after_first = [tree, std::slice::from_ref(first)].concat();
        if let Some(looking) = after_look_ups(&[*first])? {
            lose_power(&looking, after_first.len())?;
        }
        lose_power(&record(&[*first])?, tree.len())?;
        for second in operations(&after_first) {
            lose_power(&record(&[*first, second])?, after_first.len())?;
        }
        found.histories += (operations(&after_first).len() + RECTS.len()) as u64;
    }
    // A look-up, and then any operation.
    found.histories += (RECTS.len() * (first_operations.len() + RECTS.len())) as u64;
    found.trees_tried += 1;
    found.tally += explorer.tally;
    Ok(())
}

/// Whether the look-ups at the end of a history store, flush or fence anything.
fn change_something<T: ExploredTree>(looking: &History<'_, Explored<T>>, first: usize) -> bool {
    // A mark follows each.
    looking.cuts_from(first).count() - 1 > RECTS.len()
}

fn rect(number: usize) -> Rect<2> {
    let [x0, y0, x1, y1] = RECTS[number];
    Rect::raw([x0, y0], [x1, y1])
}

fn insertion(number: usize) -> Step {
    Step::Insert(rect(number), number as u64)
}

fn deletion(number: usize) -> Step {
    Step::Delete(rect(number), number as u64)
}

fn look_ups() -> Vec<Step> {
    (0..RECTS.len()).map(|number| Step::LookUp(rect(number), number as u64)).collect()
}

/// The operations on a tree made by these steps, without look-ups.
fn operations(steps: &[Step]) -> Vec<Step> {
    let entries = entries(steps);
    let is_there = |number: usize| entries.contains(&number);
    (0..RECTS.len()).map(insertion).chain((0..RECTS.len()).filter(|&number| is_there(number)).map(deletion)).collect()
}

/// The numbers of the boxes in a tree made by these steps. A box that is there twice appears twice.
fn entries(steps: &[Step]) -> Vec<usize> {
    let mut entries = Vec::new();
    for step in steps {
        match step {
            Step::Insert(_, payload) => entries.push(*payload as usize),
            Step::Delete(_, payload) => {
                if let Some(place) = entries.iter().position(|number| *number as u64 == *payload) {
                    entries.swap_remove(place);
                }
            }
            _ => {}
        }
    }
    entries
}

/// A tree's steps, followed by the insertion of a box that is not there, or the deletion of one
/// that is.
fn next(steps: &[Step]) -> Vec<Vec<Step>> {
    let entries = entries(steps);
    let toggle = |number: usize| if entries.contains(&number) { deletion(number) } else { insertion(number) };
    (0..RECTS.len()).map(|number| [steps, &[toggle(number)]].concat()).collect()
}

/// The first of the shortest histories for each tree, those of few entries first.
///
/// A tree of at most [`ENTRIES_MAX`] entries may only be reached through a larger one.
fn trees<T: ExploredTree>(subject: &Explored<T>) -> Result<Vec<Vec<Step>>, Box<Failure<Step>>> {
    let mut seen = BTreeSet::new();
    let mut trees = Vec::new();
    let mut latest = vec![Vec::new()];
    while !latest.is_empty() {
        let mut new = Vec::new();
        for steps in latest {
            let shape =
                shape(subject, &steps).map_err(|problem| Failure::without_crash(subject, steps.clone(), problem))?;
            if seen.insert(shape) {
                new.push(steps);
            }
        }
        latest = new.iter().flat_map(|steps| next(steps)).collect();
        trees.append(&mut new);
    }
    trees.retain(|steps| entries(steps).len() <= ENTRIES_MAX);
    trees.sort_by_key(|steps| entries(steps).len());
    Ok(trees)
}

/// The text that distinguishes trees.
fn shape<T: ExploredTree>(subject: &Explored<T>, steps: &[Step]) -> Checked<String> {
    let tree = subject.tree.create(&MemoryStorage::new(), "tree")?;
    for step in steps {
        match step {
            Step::Insert(rect, payload) => tree.insert(rect, *payload)?,
            Step::Delete(rect, payload) => assert!(tree.delete(rect, *payload)?),
            step => return Err(format!("{step} makes no tree")),
        }
    }
    tree.shape()
}

#[cfg(test)]
mod tests {
    use terrane_pmem::explorer::Place;
    use terrane_storage::Storage;

    use super::*;
    use crate::PersistenceDomain;
    use crate::explored::Fbr;
    use crate::explored::spread::PlanarTree;
    use crate::explored::steps::Model;

    #[test]
    fn shapes_tell_trees_apart_and_not_the_places_in_their_nodes() {
        let subject = &Fbr::configurations()[0];
        let shape = |numbers: &[usize]| {
            let steps: Vec<Step> = numbers.iter().copied().map(insertion).collect();
            shape(subject, &steps).unwrap()
        };
        assert_eq!(shape(&[0, 1, 2]), shape(&[2, 0, 1]));
        assert_ne!(shape(&[0, 1, 2]), shape(&[0, 1, 3]));
        let orders: BTreeSet<String> =
            [[0, 1, 2, 3, 4, 5], [0, 3, 1, 4, 2, 5], [5, 4, 0, 2, 7, 6]].iter().map(|order| shape(order)).collect();
        assert!(orders.len() > 1, "{orders:?}");
        assert_eq!(operations(&[insertion(2)]).len(), 9);
    }

    /// An FBR-tree whose look-ups delete what they find and insert it again.
    #[derive(Clone, Debug)]
    struct Meddling(Explored<Fbr>);

    #[derive(Debug)]
    struct MeddlingTree(Box<dyn PlanarTree>);

    impl PlanarTree for MeddlingTree {
        fn insert(&self, rect: &Rect<2>, payload: u64) -> Checked<()> {
            self.0.insert(rect, payload)
        }

        fn delete(&self, rect: &Rect<2>, payload: u64) -> Checked<bool> {
            self.0.delete(rect, payload)
        }

        fn contains(&self, rect: &Rect<2>, payload: u64) -> Checked<bool> {
            let is_there = self.0.delete(rect, payload)?;
            if is_there {
                self.0.insert(rect, payload)?;
            }
            Ok(is_there)
        }

        fn entries(&mut self) -> Checked<Model> {
            self.0.entries()
        }

        fn shape(&self) -> Checked<String> {
            self.0.shape()
        }
    }

    impl ExploredTree for Meddling {
        const NAME: &'static str = Fbr::NAME;

        fn configurations() -> Vec<Explored<Self>> {
            let named = |fbr: Explored<Fbr>| Explored { configuration: fbr.configuration.clone(), tree: Self(fbr) };
            Fbr::configurations().into_iter().map(named).collect()
        }

        fn domain(&self) -> PersistenceDomain {
            self.0.tree.domain()
        }

        fn has_small_nodes(&self) -> bool {
            self.0.tree.has_small_nodes()
        }

        fn create(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
            Ok(Box::new(MeddlingTree(self.0.tree.create(storage, name)?)))
        }

        fn open(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
            Ok(Box::new(MeddlingTree(self.0.tree.open(storage, name)?)))
        }

        fn steps(&self, seed: u64) -> Vec<Step> {
            self.0.tree.steps(seed)
        }

        fn places() -> Vec<Place> {
            Fbr::places()
        }
    }

    #[test]
    fn look_ups_that_change_something_are_cut_as_other_operations_are() {
        let subject = &Meddling::configurations()[0];
        let failure = explore_tree(subject, &[], Recoveries::Whole, &mut SmallTrees::default()).unwrap_err();
        assert!(matches!(failure.case.steps.last(), Some(Step::LookUp(..))), "{failure}");
        let sound = &Fbr::configurations()[0];
        explore_tree(sound, &[], Recoveries::Whole, &mut SmallTrees::default()).unwrap();
    }

    #[test]
    fn trees_are_among_them_that_only_deletions_leave() {
        let subject = &Fbr::configurations()[0];
        let trees = trees(subject).unwrap();
        let nodes = |steps: &[Step]| shape(subject, steps).unwrap().matches('(').count();
        let of_six = |steps: &&Vec<Step>| entries(steps).len() == ENTRIES_MAX;
        // Insertions alone make three leaves only of seven entries.
        assert!(trees.iter().filter(of_six).any(|steps| nodes(steps) == 4), "no three leaves of two entries each");
        assert!(trees.iter().all(|steps| entries(steps).len() <= ENTRIES_MAX));
    }
}
