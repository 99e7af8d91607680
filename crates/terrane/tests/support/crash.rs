//! Runs a plan under the crash controller, cuts the power and looks at what recovery makes of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use super::workload::{Held, MAIN, PLACES, Plan, Runner, State, Step, options, state_of};
use terrane::{Durability, Error, Key, Query, Record, Store, Value};
use terrane_storage::event::{DiskEvent, Event};
use terrane_testkit::crash::{Budget, Controller, Crash, Image};
use terrane_testkit::is_soak;

/// How many files have been synced since so many events.
pub fn syncs(controller: &Controller, events: usize) -> usize {
    let is_sync = |event: &&Event| matches!(event, Event::Disk(DiskEvent::Sync { .. }));
    controller.log()[events..].iter().filter(is_sync).count()
}

/// The work that a run did beside its steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Generations sealed and flushed.
    pub flushes: u64,
    /// Merges, also those that a step asks for.
    pub merges: u64,
    /// Segments of the log that were used again.
    pub recycled: usize,
}

/// How thoroughly a run is explored. With [`is_soak`] everything is, however long it takes.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The power is cut after every so many events.
    pub stride: usize,
    /// The recovery of one in so many images is cut once more.
    pub again: usize,
    /// Pending changes of which all combinations are tried.
    pub exhaustive_pending: usize,
    /// Images drawn where there are more.
    pub samples: usize,
}

impl Effort {
    /// A few images of each cut.
    pub fn sampled(stride: usize, again: usize) -> Self {
        Self { stride, again, exhaustive_pending: 3, samples: 2 }
    }
}

/// Runs a plan; each acknowledged step `n` leaves the mark `n + 1`.
pub fn run(plan: &Plan, durability: Durability) -> (Arc<Controller>, Work) {
    let controller = Controller::new();
    let runner = Runner::open(controller.storage(), options(durability)).unwrap();
    let mut runner = runner.with_partitions(plan.partitions);
    let mut generation = 0;
    let mut work = Work::default();
    for (number, step) in plan.steps.iter().enumerate() {
        let before = runner.store().maintenance();
        runner.apply(step).unwrap_or_else(|error| panic!("step {number} {step:?}: {error}"));
        controller.mark(number as u64 + 1);
        if !matches!(step, Step::Reopen) {
            work.flushes += runner.store().maintenance().flushes - before.flushes;
            work.merges += runner.store().maintenance().merges - before.merges;
        }
        let now = runner.store().info().unwrap().manifest_generation;
        assert!(now >= generation, "manifest generations ascend");
        generation = now;
    }
    assert_eq!(&state_of(runner.store()), &plan.states[plan.steps.len()], "the run itself");
    let segment = |name: &str| name.starts_with("log/") && name.ends_with(".log");
    let recycles = |event: &&Event| match event {
        Event::Disk(DiskEvent::Rename { from, to, .. }) => segment(from) && segment(to),
        _ => false,
    };
    work.recycled = controller.log().iter().filter(recycles).count();
    (controller, work)
}

/// The number of the first state that a store may be in at a cut, for a dataset.
fn floor(plan: &Plan, durability: Durability, acknowledged: usize, dataset: &str) -> usize {
    if durability == Durability::Power {
        return acknowledged;
    }
    let secures = |step: &Step| match step {
        Step::Reopen => true,
        Step::Flush | Step::Compact => dataset == MAIN,
        Step::Import(name, _) | Step::ImportUpsert(name, _) | Step::ImportReplace(name, _) | Step::Drop(name) => {
            name == dataset
        }
        _ => false,
    };
    (0..acknowledged).rev().find(|&number| secures(&plan.steps[number])).map_or(0, |number| number + 1)
}

/// What is wrong with a state after a crash when this many steps were acknowledged.
pub fn violation(plan: &Plan, durability: Durability, acknowledged: usize, found: &State) -> Option<String> {
    let last = (acknowledged + 1).min(plan.steps.len());
    let mut names: Vec<&String> = found.keys().chain(plan.states[last].keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let allowed = floor(plan, durability, acknowledged, name)..=last;
        // Columns are changed by a manifest step of their own, so without a log they are ahead.
        let columns = |held: Option<&Held>| held.map(|held| held.columns.clone());
        let found = found.get(name);
        let mut with_columns = acknowledged..=last;
        let Some(with_columns) = with_columns.find(|&number| columns(plan.states[number].get(name)) == columns(found))
        else {
            return Some(format!("{name} has columns {:?} after {acknowledged} steps", columns(found)));
        };
        let indexes =
            (acknowledged..=last).map(|number| plan.states[number].get(name).map(|held| held.indexes.clone()));
        let indexes: Vec<_> = indexes.collect();
        if !indexes.contains(&found.map(|held| held.indexes.clone())) {
            return Some(format!("{name} has indexes {:?} instead of {indexes:?}", found.map(|held| &held.indexes)));
        }
        let records = |held: Option<&Held>| held.map(|held| (held.records.clone(), held.read));
        if !allowed.clone().any(|number| plan.held_under(number, with_columns, name) == records(found)) {
            let wanted = plan.states[acknowledged].get(name);
            return Some(format!("{name} is in none of the states {allowed:?}: {found:?}\nwanted {wanted:?}"));
        }
    }
    None
}

/// What recovered stores held. Millions of disks hold a few thousand states, so each state is kept
/// once.
#[derive(Default)]
pub struct Recovered {
    distinct: Vec<Rc<State>>,
    /// States of stores that were worked on, by what was on their disks.
    worked_on: HashMap<u64, Rc<State>>,
}

impl Recovered {
    fn keep(&mut self, found: State) -> Rc<State> {
        // Most states are those of the last few disks.
        if let Some(known) = self.distinct.iter().rev().find(|known| ***known == found) {
            return known.clone();
        }
        self.distinct.push(Rc::new(found));
        self.distinct[self.distinct.len() - 1].clone()
    }
}

/// Recovers on an image and looks at everything; what the store holds then. What works on where the
/// same disk holds the same is not tried again.
pub fn recover(
    image: &Image,
    plan: &Plan,
    durability: Durability,
    acknowledged: usize,
    recovered: &mut Recovered,
) -> Rc<State> {
    let controller = image.restart();
    let storage = controller.storage();
    let check = |what: &str, ok: bool, details: &dyn Fn() -> String| {
        assert!(ok, "{what}: {}\nin {} after {acknowledged} steps: {}", image.describe(), durability, details());
    };
    let store = match Store::open_on(storage.clone(), options(durability)) {
        Ok(store) => store,
        Err(error) => panic!("cannot reopen: {error}\n{} after {acknowledged} steps", image.describe()),
    };
    let found = recovered.keep(state_of(&store));
    check_state(image, plan, durability, acknowledged, &found);
    let check_all = |store: &Store| {
        let report = store.check(false).unwrap();
        check("check", report.findings.is_empty(), &|| report.to_string());
    };
    check_all(&store);
    check_places(&store, image);
    let named: u64 = store
        .info()
        .unwrap()
        .datasets
        .iter()
        .flat_map(|dataset| &dataset.indexes)
        .map(|index| index.components as u64)
        .sum();
    let files = storage.list("components").unwrap();
    check("stray files", files.len() as u64 == named, &|| format!("{files:?}, {named} of them in use"));
    check("stray manifest", !storage.exists("MANIFEST.new").unwrap(), &String::new);
    let disk = controller.process_kill(controller.events()).hash_contents();
    if recovered.worked_on.get(&disk) == Some(&found) {
        return found;
    }
    if let Ok(dataset) = store.dataset(MAIN) {
        let mut values = vec![Value::Null; dataset.schema().columns.len()];
        values[1] = Value::Int(7);
        let record = Record::at(777, 1.0, 2.0, values);
        dataset.insert(&record).unwrap();
        assert!(matches!(dataset.insert(&record), Err(Error::DuplicateKey { .. })));
        dataset.flush().unwrap();
        // What the crash interrupted can be completed.
        dataset.build_indexes().unwrap();
        let info = store.info().unwrap();
        let unbuilt = info.datasets.iter().flat_map(|dataset| &dataset.indexes).any(|index| index.is_building);
        check("indexes are built", !unbuilt, &|| info.to_string());
        check_all(&store);
        drop(dataset);
        store.close().unwrap();
        let store = Store::open_on(storage, options(durability)).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        check("works on", dataset.get(&Key::Int(777)).unwrap() == Some(record), &String::new);
        assert!(dataset.delete(&Key::Int(777)).unwrap());
        let now = state_of(&store);
        check("works on", now == *found, &|| format!("{now:?} instead of {found:?}"));
    }
    recovered.worked_on.insert(disk, found.clone());
    found
}

/// Panics if some index on places tells another answer than the records do.
fn check_places(store: &Store, image: &Image) {
    let Ok(dataset) = store.dataset(MAIN) else { return };
    let snapshot = dataset.snapshot();
    let window = Query::new().window(-9.5, -4.0, 3.0, 8.25);
    let count = |index: &str| snapshot.count(&window.clone().using_index(index)).unwrap();
    let records = count("primary");
    let info = store.info().unwrap();
    let indexes = info.datasets.iter().filter(|dataset| dataset.name == MAIN).flat_map(|dataset| &dataset.indexes);
    for index in indexes.filter(|index| !index.is_building && (index.name == PLACES || index.name == "geometry")) {
        let (name, kind) = (&index.name, &index.kind);
        assert_eq!(count(name), records, "a window by {name}, of kind {kind}: {}", image.describe());
    }
}

/// Panics if the store may not be in this state after a crash.
fn check_state(image: &Image, plan: &Plan, durability: Durability, acknowledged: usize, found: &State) {
    if let Some(wrong) = violation(plan, durability, acknowledged, found) {
        panic!("wrong state: {}\nin {durability} after {acknowledged} steps: {wrong}", image.describe());
    }
}

/// Cuts a run after its events and looks at images of each cut; cuts the recovery of some of them
/// once more. Tells what the run did.
pub fn explore(plan: &Plan, durability: Durability, seed: u64, effort: Effort) -> Work {
    let (controller, work) = run(plan, durability);
    let soaked = Effort { stride: 1, again: effort.again.min(50), exhaustive_pending: 6, samples: 48 };
    let Effort { stride, again, exhaustive_pending, samples } = if is_soak() { soaked } else { effort };
    let budget = |samples| Budget { exhaustive_pending, samples, ..Budget::default() };
    let mut images = 0;
    let mut looked = Looked { plan, durability, found: HashMap::new(), recovered: Recovered::default() };
    let log = controller.log();
    let mut acknowledged = 0;
    for cut in 0..=controller.events() {
        if let Some(Event::Mark(_)) = cut.checked_sub(1).map(|last| &log[last]) {
            acknowledged += 1;
        }
        if !(cut + seed as usize).is_multiple_of(stride) {
            continue;
        }
        for image in controller.images(cut, &budget(samples), seed).chain([controller.process_kill(cut)]) {
            images += 1;
            if !looked.look(&image, acknowledged) || !looked.found.len().is_multiple_of(again) {
                continue;
            }
            let recovery = image.restart();
            drop(Store::open_on(recovery.storage(), options(durability)).unwrap());
            let events = recovery.events();
            for second in (0..=events).step_by((events / if is_soak() { 40 } else { 4 }).max(1)) {
                for image in recovery.images(second, &budget(1), seed) {
                    looked.look(&image, acknowledged);
                }
            }
        }
    }
    assert!(images > controller.events() / stride, "every cut was tried");
    work
}

/// What was found on disks that have been looked at. That depends on nothing but the disk, of which
/// many cuts leave the same; only which states are allowed moves with the cut.
struct Looked<'p> {
    plan: &'p Plan,
    durability: Durability,
    found: HashMap<(bool, u64), Rc<State>>,
    recovered: Recovered,
}

impl Looked<'_> {
    /// Recovers on an image, or remembers what was found on it; whether it is new.
    fn look(&mut self, image: &Image, acknowledged: usize) -> bool {
        let Self { plan, durability, found, recovered } = self;
        // After a kill, what was not synced is there and can still be lost.
        match found.entry((image.crash() == Crash::ProcessKill, image.hash_contents())) {
            Entry::Occupied(found) => {
                check_state(image, plan, *durability, acknowledged, found.get());
                false
            }
            Entry::Vacant(place) => {
                place.insert(recover(image, plan, *durability, acknowledged, recovered));
                true
            }
        }
    }
}
