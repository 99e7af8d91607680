//! Searches in the middle of writers' operations, and these in the middle of searches, at every place.

#[path = "support/interrupting.rs"]
mod interrupting;
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};

use interrupting::{At, Interrupting, interrupt};
use support::{BOTH, Model, options, random, rect};
use terrane_pmem::PersistenceDomain;
use terrane_pmtree::{FbrTree, Options, Rebalancing, Rect, SearchMode};
use terrane_storage::Storage;
use terrane_storage::crash::{Budget, Controller, Image, NameOrder};

type Tree = FbrTree<2, Interrupting>;

/// What a writer does at once.
#[derive(Clone, Debug)]
enum Operation {
    Insert(Rect<2>, u64),
    Delete(Rect<2>, u64),
}

/// A tree's entries, what is done to it, and what that is called.
#[derive(Clone, Debug)]
struct Scenario {
    name: &'static str,
    fan_out: usize,
    rebalancing: Rebalancing,
    entries: Vec<(Rect<2>, u64)>,
    operations: Vec<Operation>,
}

fn point(x: f64, y: f64) -> Rect<2> {
    Rect::point([x, y]).unwrap()
}

fn entries(count: u64) -> Vec<(Rect<2>, u64)> {
    let mut random = random(5);
    (0..count).map(|payload| (rect(&mut random, 30), payload)).collect()
}

fn inserts(count: u64) -> Vec<Operation> {
    let mut random = random(6);
    (0..count).map(|number| Operation::Insert(rect(&mut random, 30), 1000 + number)).collect()
}

/// Insertions that split leaves, inner nodes and the root; deletions that merge and redistribute; an entry's place
/// used again, once and as often as a version of 8 bits has values.
fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for rebalancing in BOTH {
        for fan_out in [4, 60] {
            let scenario = |name, entries, operations| Scenario { name, fan_out, rebalancing, entries, operations };
            let few = if fan_out == 4 { 21 } else { 75 };
            scenarios.push(scenario("splits", entries(few), inserts(few)));
            scenarios.push(scenario("a split of the root", entries(fan_out as u64), inserts(1)));
            let all = entries(few);
            let deletes = all.iter().take(few as usize - 3).map(|&(rect, payload)| Operation::Delete(rect, payload));
            scenarios.push(scenario("merges", all.clone(), deletes.collect()));
            let reuse = vec![Operation::Delete(all[0].0, 0), Operation::Insert(point(29.0, 29.0), 7777)];
            scenarios.push(scenario("a place used again", all[..3].to_vec(), reuse));
            let mut wrap = vec![Operation::Delete(all[0].0, 0)];
            for number in 0..127 {
                let passing = point(f64::from(number), 5.0);
                wrap.push(Operation::Insert(passing, 8000));
                wrap.push(Operation::Delete(passing, 8000));
            }
            wrap.push(Operation::Insert(point(3.0, 29.0), 8001));
            scenarios.push(scenario("a place used 128 times", all[..3].to_vec(), wrap));
        }
    }
    scenarios
}

impl Scenario {
    fn options(&self) -> Options {
        options(PersistenceDomain::Adr, self.fan_out, self.rebalancing)
    }

    /// The pool after the first operations, from which trees can be opened any number of times.
    fn after(&self, count: usize) -> Image {
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &self.options()).unwrap();
        self.entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
        Self::run(&tree, &self.operations[..count]);
        tree.close().unwrap();
        controller.process_kill(controller.events())
    }

    fn open(&self, storage: &dyn Storage) -> Arc<Tree> {
        Arc::new(Tree::open(storage, "tree", &self.options()).unwrap())
    }

    /// Operations that are worth being looked into at every step: those of long series are alike.
    fn chosen(&self) -> impl Iterator<Item = (usize, &Operation)> {
        let count = self.operations.len();
        let is_chosen = move |done: usize| done < 4 || done + 2 >= count || done.is_multiple_of(5) && done < 40;
        self.operations.iter().enumerate().filter(move |(done, _)| is_chosen(*done))
    }

    fn run(tree: &Tree, operations: &[Operation]) {
        for operation in operations {
            match operation {
                Operation::Insert(rect, payload) => tree.insert(rect, *payload).unwrap(),
                Operation::Delete(rect, payload) => assert!(tree.delete(rect, *payload).unwrap()),
            }
        }
    }

    /// The entries after the first operations.
    fn model(&self, count: usize) -> Model<2> {
        let mut model = Model(self.entries.clone());
        for operation in &self.operations[..count] {
            match operation {
                Operation::Insert(rect, payload) => model.0.push((*rect, *payload)),
                Operation::Delete(rect, payload) => assert!(model.delete(rect, *payload)),
            }
        }
        model
    }

    /// Checks what a search found while some operations were made: what was there throughout, once, and nothing that was
    /// not there at any time.
    fn check(&self, found: &[(Rect<2>, u64)], from: usize, to: usize, what: &str) {
        let models: Vec<Model<2>> = (from..=to).map(|count| self.model(count)).collect();
        let mut times = BTreeMap::new();
        for (rect, payload) in found {
            *times.entry(*payload).or_insert(0) += 1;
            let was_there = models.iter().any(|model| model.0.contains(&(*rect, *payload)));
            assert!(was_there, "{}, {:?}, {what}: {payload} at {rect:?} never was", self.name, self.rebalancing);
        }
        assert!(times.values().all(|&times| times == 1), "{self:?}, {what}: found twice: {times:?}");
        for entry in models[0].0.iter().filter(|entry| models.iter().all(|model| model.0.contains(entry))) {
            assert!(
                times.contains_key(&entry.1),
                "{}, {:?}, {what}: {entry:?} is missing",
                self.name,
                self.rebalancing
            );
        }
    }
}

fn everything(tree: &Tree) -> Vec<(Rect<2>, u64)> {
    let mut found = Vec::new();
    let all = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
    tree.window(&all, SearchMode::Validated, |rect, payload| found.push((*rect, payload))).unwrap();
    found
}

#[test]
fn operations_between_any_two_loads_of_a_search_lose_and_repeat_nothing() {
    for scenario in scenarios() {
        let image = scenario.after(0);
        for number in 0.. {
            let tree = scenario.open(&*image.storage());
            let (writer, operations) = (tree.clone(), scenario.operations.clone());
            let write = move || Scenario::run(&writer, &operations);
            let (found, was_interrupted) = interrupt(At::Load, number, write, || everything(&tree));
            if !was_interrupted {
                break;
            }
            scenario.check(&found, 0, scenario.operations.len(), &format!("after {number} loads"));
        }
    }
}

#[test]
fn searches_between_any_two_steps_of_operations_lose_and_repeat_nothing() {
    for scenario in scenarios() {
        for (done, operation) in scenario.chosen() {
            let image = scenario.after(done);
            for number in 0.. {
                let tree = scenario.open(&*image.storage());
                let found = Arc::new(Mutex::new(Vec::new()));
                let (reader, finds) = (tree.clone(), found.clone());
                let search = move || {
                    let nearest = reader.nearest(&[10.0, 10.0], usize::MAX, SearchMode::Validated).unwrap();
                    let nearest = nearest.into_iter().map(|(_, rect, payload)| (rect, payload)).collect();
                    *finds.lock().unwrap() = vec![everything(&reader), nearest];
                };
                let write = || Scenario::run(&tree, std::slice::from_ref(operation));
                let (_, was_interrupted) = interrupt(At::Change, number, search, write);
                if !was_interrupted {
                    break;
                }
                for found in &*found.lock().unwrap() {
                    scenario.check(found, done, done + 1, &format!("{operation:?} after {number} changes"));
                }
            }
        }
    }
}

/// The operation is begun at some place of the search, and ended after it, or meanwhile if it has no more steps.
#[test]
fn parts_of_operations_between_any_two_loads_of_a_search_lose_and_repeat_nothing() {
    let stride = if std::env::var_os("TERRANE_SOAK").is_some() { 1 } else { 7 };
    for scenario in scenarios().into_iter().filter(|scenario| scenario.fan_out == 4) {
        for (done, operation) in scenario.chosen().filter(|(done, _)| done % 3 == 0) {
            let image = scenario.after(done);
            let mut place = 0;
            'places: loop {
                for number in (place % stride..).step_by(stride) {
                    let tree = scenario.open(&*image.storage());
                    let (resume, resumed) = mpsc::channel::<()>();
                    let writer = Arc::new(Mutex::new(None));
                    let (begun, writing, operation_begun) = (tree.clone(), writer.clone(), operation.clone());
                    let begin = move || {
                        let (reach, reached) = mpsc::channel();
                        let stop = move || {
                            drop(reach);
                            let _ = resumed.recv();
                        };
                        let run =
                            move || interrupt(At::Change, number, stop, || Scenario::run(&begun, &[operation_begun])).1;
                        *writing.lock().unwrap() = Some(std::thread::spawn(run));
                        // Nothing is sent: the other end goes when the step is reached, or the operation has ended.
                        let _: Result<(), _> = reached.recv();
                    };
                    let (found, was_interrupted) = interrupt(At::Load, place, begin, || everything(&tree));
                    drop(resume);
                    let Some(writer) = writer.lock().unwrap().take() else { break 'places };
                    let has_stopped = writer.join().unwrap();
                    assert!(was_interrupted);
                    scenario.check(
                        &found,
                        done,
                        done + 1,
                        &format!("{operation:?}, {number} changes after {place} loads"),
                    );
                    if !has_stopped {
                        break;
                    }
                }
                place += 1;
            }
        }
    }
}

/// Link-and-persist: power fails right after the search.
#[test]
fn what_a_search_has_seen_of_an_operation_under_way_survives_a_power_loss() {
    let budget = Budget { exhaustive_pending: 6, samples: 12, name_order: NameOrder::AnySubset };
    for scenario in scenarios() {
        for (done, operation) in scenario.chosen() {
            let image = scenario.after(done);
            for number in 0.. {
                let controller = image.restart();
                let tree = scenario.open(&*controller.storage());
                let outcome = Arc::new(Mutex::new(None));
                let (reader, seen, at) = (tree.clone(), outcome.clone(), controller.clone());
                let (Operation::Insert(rect, payload) | Operation::Delete(rect, payload)) = operation.clone();
                let look = move || {
                    let is_there = reader.contains(&rect, payload).unwrap();
                    *seen.lock().unwrap() = Some((is_there, at.events()));
                };
                let write = || Scenario::run(&tree, std::slice::from_ref(operation));
                let (_, was_interrupted) = interrupt(At::Change, number, look, write);
                if !was_interrupted {
                    break;
                }
                let Some((is_there, cut)) = *outcome.lock().unwrap() else { panic!("the search did not run") };
                let is_changed = is_there == matches!(operation, Operation::Insert(..));
                for image in controller.images(cut, &budget, 1) {
                    let tree = scenario.open(&*image.storage());
                    let is_there_now = tree.contains(&rect, payload).unwrap();
                    assert!(
                        !is_changed || is_there_now == is_there,
                        "{}: {operation:?} after {number} changes: seen, and gone: {image:?}",
                        scenario.name
                    );
                }
            }
        }
    }
}
