//! Two threads, one of which is stopped in the middle of an operation while the other one does a whole one, as far as locks let it;
//! then the power fails. What was acknowledged stays, and what one of them has seen.
//!
//! The first one is stopped at every store, flush and fence. Where the other one needs a lock that the first one holds, power fails there
//! too, and the first one goes on until the lock is free.
#![cfg(shuttle)]

#[path = "support/entries.rs"]
mod entries;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use entries::{Call, Held, Tree, check, held, recover, rect, run};
use rand::rngs::SmallRng;
use rand::seq::{IteratorRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use shuttle::scheduler::{RoundRobinScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{FailurePersistence, Runner};
use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::Subject;
use terrane_pmem::explorer::linearizability::{calls_at, record};
use terrane_pmtree::Options;
use terrane_pmtree::explored::{Explored, Kind, Step};
use terrane_storage::OpenMode;
use terrane_storage::crash::{Budget, Controller, Event, Image, NameOrder, PoolEvent};

const BUDGET: Budget = Budget { exhaustive_pending: 2, samples: 3, name_order: NameOrder::AnySubset };

/// Of those that shuttle numbers: the one that is stopped, and the other one.
const STOPPED: usize = 1;
const OTHER: usize = 2;

/// What a run and its scheduler share.
#[derive(Default)]
struct Shared {
    /// The events of the run, once it has begun.
    controller: Mutex<Option<Arc<Controller>>>,
    /// Whether the first thread came to where it is to be stopped.
    has_stopped: AtomicBool,
    /// Numbers of events at which the other one began to wait for it.
    waits: Mutex<Vec<usize>>,
}

/// Lets the first thread run to its change with this number, then the other one whenever it can; one more in each execution,
/// until the first thread has no more.
struct Stops {
    number: usize,
    is_begun: bool,
    passed: usize,
    /// Events at the last look at the first thread.
    events: usize,
    shared: Arc<Shared>,
}

impl Stops {
    /// Takes note of what the first thread has done since it was last looked at.
    fn pass(&mut self) {
        let controller = self.shared.controller.lock().unwrap();
        let Some(controller) = controller.as_ref() else { return };
        let events = controller.events();
        self.passed += events - self.events;
        self.events = events;
    }
}

impl Scheduler for Stops {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.is_begun {
            self.number += 1;
        }
        let is_last = self.is_begun && !self.shared.has_stopped.swap(false, Ordering::Relaxed);
        (self.is_begun, self.passed, self.events) = (true, 0, 0);
        *self.shared.controller.lock().unwrap() = None;
        self.shared.waits.lock().unwrap().clear();
        (!is_last).then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, _: bool) -> Option<TaskId> {
        let of = |number: usize| runnable.iter().map(|task| task.id()).find(|task| usize::from(*task) == number);
        match current.map(usize::from) {
            Some(STOPPED) => self.pass(),
            Some(OTHER) => {
                let controller = self.shared.controller.lock().unwrap();
                self.events = controller.as_ref().map_or(0, |controller| controller.events());
                if of(OTHER).is_none() {
                    self.shared.waits.lock().unwrap().push(self.events);
                }
            }
            _ => {}
        }
        let is_stopped = self.passed > self.number;
        if is_stopped && of(OTHER).is_some() {
            self.shared.has_stopped.store(true, Ordering::Relaxed);
        }
        // The first one of all begins and ends the run.
        let order = if is_stopped { [0, OTHER, STOPPED] } else { [0, STOPPED, OTHER] };
        order.into_iter().find_map(of)
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// A tree, and two operations on it at a time.
#[derive(Clone, Debug)]
struct Scenario {
    options: Options,
    payloads: Vec<u64>,
    stopped: Step,
    other: Step,
}

/// What an operation does that has the tree to itself.
#[derive(Clone, Copy, Debug, Default)]
struct Effect {
    /// Commitments, of the log and of the root word.
    commitments: usize,
    /// Boxes that grow.
    enlargements: usize,
}

/// Which pairs of operations are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairs {
    /// All of them.
    Any,
    /// Both change nodes by way of the log, the first one several.
    Rebalancing,
    /// The first one makes boxes grow, the other one inserts into what is large enough by then.
    Enlargement,
}

impl Pairs {
    fn holds(self, [(stopped, of_stopped), (other, of_other)]: [&(Step, Effect); 2]) -> bool {
        let is_insertion = |step: &Step| matches!(step, Step::Insert(..));
        match self {
            Self::Any => true,
            Self::Rebalancing => of_stopped.commitments > 1 && of_other.commitments > 0,
            Self::Enlargement => {
                let are_simple = of_stopped.commitments + of_other.commitments == 0;
                are_simple && is_insertion(stopped) && is_insertion(other) && of_stopped.enlargements > 0
            }
        }
    }
}

impl Scenario {
    fn drawn(options: &Options, pairs: Pairs, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        loop {
            // A leaf that is full and the root, or more.
            let count = match random.random_bool(0.2) {
                true => options.fan_out,
                false => random.random_range(options.fan_out..=5 * options.fan_out),
            };
            let mut payloads: Vec<u64> = (0..40).choose_multiple(&mut random, count);
            payloads.shuffle(&mut random);
            let nothing = Step::Sync;
            let scenario = Self { options: options.clone(), payloads, stopped: nothing, other: nothing };
            let effects = scenario.effects();
            let all = effects.iter().flat_map(|first| effects.iter().map(move |second| [first, second]));
            let meant = all.filter(|pair| pair[0].0 != pair[1].0 && pairs.holds(*pair));
            if let Some([(stopped, _), (other, _)]) = meant.choose(&mut random) {
                let look_up = match *stopped {
                    Step::Insert(rect, payload) | Step::Delete(rect, payload) => Step::LookUp(rect, payload),
                    Step::LookUp(..) | Step::Sync => *stopped,
                };
                let is_look_up = pairs == Pairs::Any && random.random_bool(0.3);
                return Self { stopped: *stopped, other: if is_look_up { look_up } else { *other }, ..scenario };
            }
        }
    }

    /// What can be done to the tree, each with what it does.
    fn effects(&self) -> Vec<(Step, Effect)> {
        let effects: Arc<Mutex<Vec<(Step, Effect)>>> = Arc::default();
        let (scenario, noted) = (self.clone(), effects.clone());
        let run_each_alone = move || {
            let image = scenario.image();
            let insertions = (40..56).map(|payload| Step::Insert(rect(payload), payload));
            let deletions = scenario.payloads.iter().map(|&payload| Step::Delete(rect(payload), payload));
            for step in insertions.chain(deletions) {
                let controller = image.restart();
                let tree = Tree::open(&*controller.storage(), "tree", &scenario.options).unwrap();
                let first = controller.events();
                run(&tree, &step);
                let mut effect = Effect::default();
                for event in controller.log().split_off(first) {
                    match event {
                        Event::Pool(PoolEvent::Fence { site: "fbr.log.commit" | "fbr.split.root", .. }) => {
                            effect.commitments += 1;
                        }
                        Event::Pool(PoolEvent::Flush { site: "fbr.insert.enlarge", .. }) => effect.enlargements += 1,
                        _ => {}
                    }
                }
                noted.lock().unwrap().push((step, effect));
            }
        };
        Runner::new(RoundRobinScheduler::new(1), config()).run(run_each_alone);
        effects.lock().unwrap().clone()
    }

    /// The tree before both, all of it durable.
    fn image(&self) -> Image {
        let controller = Controller::new();
        let storage = controller.storage();
        let tree = Tree::create(&*storage, "tree", &self.options).unwrap();
        self.payloads.iter().for_each(|&payload| tree.insert(&rect(payload), payload).unwrap());
        drop(tree);
        storage.open("tree", OpenMode::Write).unwrap().sync_data().unwrap();
        controller.process_kill(controller.events())
    }

    fn run(&self, image: &Image, shared: &Shared) {
        let controller = image.restart();
        let tree = Arc::new(Tree::open(&*controller.storage(), "tree", &self.options).unwrap());
        let start: Held = self.payloads.iter().map(|&payload| (payload, 1)).collect();
        *shared.controller.lock().unwrap() = Some(controller.clone());
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let threads = [self.stopped, self.other].map(|step| {
            let (controller, tree, calls) = (controller.clone(), tree.clone(), calls.clone());
            shuttle::thread::spawn(move || {
                record(&calls, &controller, step, |step| run(&tree, step));
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        *shared.controller.lock().unwrap() = None;
        let calls = calls.lock().unwrap().clone();
        check(&calls, &start, &held(&tree), &"at the end");
        drop(tree);
        let ends = calls.iter().filter_map(|call| call.ended).map(|(at, _)| at);
        for cut in ends.chain(shared.waits.lock().unwrap().iter().copied()) {
            let calls = calls_at(&calls, cut);
            for image in controller.images(cut, &BUDGET, 1) {
                check(&calls, &start, &recover(&*image.storage(), &self.options), &image);
            }
        }
    }

    fn explore(self) {
        let shared: Arc<Shared> = Arc::default();
        let stops = Stops { number: 0, is_begun: false, passed: 0, events: 0, shared: shared.clone() };
        let image: Mutex<Option<Image>> = Mutex::default();
        Runner::new(stops, config()).run(move || {
            let image = image.lock().unwrap().get_or_insert_with(|| self.image()).clone();
            self.run(&image, &shared);
        });
    }
}

fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 18;
    // The seed says it all.
    config.failure_persistence = FailurePersistence::None;
    config
}

/// Trees of nodes so small that most operations rebalance, and of some in which only splits do.
fn options() -> Vec<Options> {
    let configurations = Explored::configurations().into_iter();
    let is_meant = |subject: &Explored| {
        subject.kind() == Kind::Fbr && subject.options().fan_out == 4 && subject.domain() == PersistenceDomain::Adr
    };
    let small = configurations.filter(is_meant).map(|subject| subject.options().clone());
    small.flat_map(|small| [Options { fan_out: 6, ..small.clone() }, small]).collect()
}

fn explore(test: &str, pairs: &[Pairs], seeds: Range<u64>) {
    let seeds = match std::env::var("TERRANE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("TERRANE_SOAK").is_some() => 0..3000u64,
        None => seeds,
    };
    let options = options();
    for seed in seeds {
        let pairs = pairs[seed as usize % pairs.len()];
        let scenario = Scenario::drawn(&options[seed as usize % options.len()], pairs, seed);
        let explored = scenario.clone();
        if let Err(panic) = std::panic::catch_unwind(move || explored.explore()) {
            eprintln!("seed {seed}, {scenario:?}; replay with TERRANE_TEST_SEED={seed} make shuttle TEST={test}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn what_is_acknowledged_while_another_operation_is_stopped_survives_a_power_loss() {
    let pairs = [Pairs::Any, Pairs::Rebalancing, Pairs::Rebalancing, Pairs::Rebalancing];
    explore("what_is_acknowledged", &pairs, 20..60);
}

/// Who relies on a box that another thread has enlarged flushes it, too.
#[test]
fn what_is_inserted_into_a_box_that_another_insertion_is_enlarging_survives_a_power_loss() {
    explore("what_is_inserted_into_a_box", &[Pairs::Enlargement], 32..48);
}
