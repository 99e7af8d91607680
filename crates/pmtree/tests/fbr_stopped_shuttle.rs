//! Threads that are stopped in the middle of an operation while another thread runs, as far as
//! locks permit. Then the power fails. Acknowledged operations stay, and so do entries that a
//! thread has seen.
//!
//! The first thread is stopped at every store, flush and fence. With three threads, the second one
//! is stopped somewhere. When a thread has to wait for a lock, power fails there too, and its
//! holder continues until the lock is free. In another plan, the other thread runs many operations
//! in succession. So they meet nodes far above their changes in the state in which the first thread
//! has left them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::entries::{Call, Counts, LARGE, Tree, check, counts, recover, rect, run};
use rand::rngs::SmallRng;
use rand::seq::{IteratorRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use shuttle::scheduler::{RoundRobinScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{FailurePersistence, Runner};
use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::Subject;
use terrane_pmtree::explored::{Explored, ExploredTree, Fbr, Step};
use terrane_pmtree::fbr::Options;
use terrane_storage::OpenMode;
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};
use terrane_testkit::linearizability::{calls_at, record};
use terrane_testkit::orders::{is_kept, run_seed};

const BUDGET: Budget = Budget { exhaustive_pending: 2, samples: 3, name_order: NameOrder::AnySubset };

/// The number, by shuttle, of the thread that is stopped everywhere. The others follow.
const STOPPED: usize = 1;

/// Payloads that are not in the tree at first, of boxes like the ones in it.
const SMALL: Range<u64> = 40..56;

/// The second of three threads is stopped before one of at most this many changes.
const CHANGES_OF_SECOND: usize = 96;

/// State shared by a run and its scheduler.
#[derive(Default)]
struct Shared {
    /// The events of the run, once it has begun.
    controller: Mutex<Option<Arc<Controller>>>,
    /// Whether the first thread reached its stop.
    has_stopped: AtomicBool,
    /// Numbers of events at which one of the others began to wait.
    waits: Mutex<Vec<usize>>,
}

/// Lets the first thread run to its stop with this number, then the second one of three to one of
/// its changes, then the last one whenever it can. Each execution stops one place later, until the
/// first thread has no more.
struct Stops {
    seed: u64,
    threads: usize,
    number: usize,
    is_begun: bool,
    /// Changes of each thread.
    passed: [usize; 4],
    /// Events at the last call.
    events: usize,
    shared: Arc<Shared>,
}

impl Stops {
    fn new(seed: u64, threads: usize, shared: Arc<Shared>) -> Self {
        Self { seed, threads, number: 0, is_begun: false, passed: [0; 4], events: 0, shared }
    }

    /// Records the progress of a thread since the last call.
    fn pass(&mut self, thread: usize) {
        let controller = self.shared.controller.lock().unwrap();
        let Some(controller) = controller.as_ref() else { return };
        let events = controller.events();
        let new = events - std::mem::replace(&mut self.events, events);
        self.passed[thread] += new;
    }

    /// Whether a thread has reached its stop.
    fn is_stopped(&self, thread: usize) -> bool {
        let second = (self.number * 7919 + self.seed as usize * 104_729) % CHANGES_OF_SECOND;
        match thread {
            STOPPED => self.passed[thread] > self.number,
            _ if thread < self.threads => self.passed[thread] > second,
            _ => false,
        }
    }
}

impl Scheduler for Stops {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.is_begun {
            self.number += 1;
        }
        let is_last = self.is_begun && !self.shared.has_stopped.swap(false, Ordering::Relaxed);
        (self.is_begun, self.passed, self.events) = (true, [0; 4], 0);
        *self.shared.controller.lock().unwrap() = None;
        self.shared.waits.lock().unwrap().clear();
        (!is_last).then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, _: bool) -> Option<TaskId> {
        let of = |number: usize| runnable.iter().map(|task| task.id()).find(|task| usize::from(*task) == number);
        if let Some(current) = current.map(usize::from) {
            self.pass(current);
            if current > STOPPED && of(current).is_none() {
                self.shared.waits.lock().unwrap().push(self.events);
            }
        }
        if self.is_stopped(STOPPED) && (STOPPED + 1..=self.threads).any(|other| of(other).is_some()) {
            self.shared.has_stopped.store(true, Ordering::Relaxed);
        }
        // The first thread of all begins and ends the run. A stopped thread continues when no other
        // can, the last one first.
        let threads = STOPPED..=self.threads;
        let others = threads.clone().filter(|&thread| !self.is_stopped(thread));
        let stopped = threads.rev().filter(|&thread| self.is_stopped(thread));
        [0].into_iter().chain(others).chain(stopped).find_map(of)
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// A tree, and the operations of each thread on it. The first thread's is stopped everywhere.
#[derive(Clone, Debug)]
struct Scenario {
    options: Options,
    payloads: Vec<u64>,
    steps: Vec<Vec<Step>>,
    seed: u64,
}

/// The effect of an operation that has the tree to itself.
#[derive(Clone, Copy, Debug, Default)]
struct Effect {
    /// Commitments, of the log and of the root word.
    commitments: usize,
    /// Redistributions among them.
    redistributions: usize,
    /// Boxes that grow.
    enlargements: usize,
}

/// The pairs of operations to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairs {
    /// All of them.
    Any,
    /// Both change nodes by the log, the first one several.
    Rebalancing,
    /// Both change nodes by the log, and one moves entries from a node to a sibling.
    Redistribution,
    /// The first one makes boxes grow. The other one inserts into boxes that are large enough by
    /// then.
    Enlargement,
}

impl Pairs {
    fn holds(self, [(stopped, of_stopped), (other, of_other)]: [&(Step, Effect); 2]) -> bool {
        let is_insertion = |step: &Step| matches!(step, Step::Insert(..));
        match self {
            Self::Any => true,
            Self::Rebalancing => of_stopped.commitments > 1 && of_other.commitments > 0,
            Self::Redistribution => {
                of_stopped.redistributions + of_other.redistributions > 0
                    && of_stopped.commitments > 0
                    && of_other.commitments > 0
            }
            Self::Enlargement => {
                let are_simple = of_stopped.commitments + of_other.commitments == 0;
                are_simple && is_insertion(stopped) && is_insertion(other) && of_stopped.enlargements > 0
            }
        }
    }
}

impl Scenario {
    /// For a number of threads, each two of them with operations of such a pair.
    fn drawn(options: &Options, pairs: Pairs, threads: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        loop {
            // A leaf that is full and the root, or more.
            let count = match random.random_bool(0.2) {
                true => options.fan_out,
                false => random.random_range(options.fan_out..=5 * options.fan_out),
            };
            let mut payloads: Vec<u64> = (0..40).choose_multiple(&mut random, count);
            payloads.shuffle(&mut random);
            let mut scenario = Self { options: options.clone(), payloads, steps: Vec::new(), seed };
            let effects = scenario.effects(SMALL);
            let all = effects.iter().flat_map(|first| effects.iter().map(move |second| [first, second]));
            let meant = all.filter(|pair| pair[0].0 != pair[1].0 && pairs.holds(*pair));
            let Some([stopped, other]) = meant.choose(&mut random) else { continue };
            let mut steps = vec![stopped.0, other.0];
            let look_up = match stopped.0 {
                Step::Insert(rect, payload) | Step::Delete(rect, payload) => Step::LookUp(rect, payload),
                Step::LookUp(..) | Step::Sync => stopped.0,
            };
            if pairs == Pairs::Any && random.random_bool(0.3) {
                steps[1] = look_up;
            }
            // A third one that both may meet, or a look-up in the first one's changes.
            let more = effects
                .iter()
                .filter(|third| pairs.holds([stopped, third]) && third.0 != stopped.0 && third.0 != other.0);
            match more.choose(&mut random) {
                _ if threads == 2 => {}
                Some(third) if random.random_bool(0.8) => steps.push(third.0),
                _ => steps.push(look_up),
            }
            scenario.steps = steps.into_iter().map(|step| vec![step]).collect();
            return scenario;
        }
    }

    /// A tree of four levels with an operation that makes boxes grow or commits a change of nodes,
    /// and many consecutive operations. Most of these delete neighbours, so that nodes are merged,
    /// and those above them.
    fn in_a_row(options: &Options, seed: u64) -> Self {
        const DELETIONS: f64 = 0.9;
        let options = Options { fan_out: 4, ..options.clone() };
        let mut random = SmallRng::seed_from_u64(seed);
        loop {
            let mut payloads: Vec<u64> = (0..LARGE.start).collect();
            payloads.shuffle(&mut random);
            let mut new = payloads.split_off(random.random_range(32..=48));
            let mut scenario = Self { options: options.clone(), payloads, steps: Vec::new(), seed };
            let effects = scenario.effects(LARGE);
            let is_meant = |(step, effect): &&(Step, Effect)| match seed % 3 {
                0 => effect.commitments > 0,
                _ => matches!(step, Step::Insert(..)) && effect.commitments == 0 && effect.enlargements > 1,
            };
            let Some(&(stopped, _)) = effects.iter().filter(is_meant).choose(&mut random) else { continue };
            let mut old = scenario.payloads.clone();
            old.retain(|&payload| stopped != Step::Delete(rect(payload), payload));
            let middle = *rect(random.random_range(0..LARGE.start)).min();
            let distance = |payload: &u64| {
                let corner = *rect(*payload).min();
                (corner[0] - middle[0]).abs() + (corner[1] - middle[1]).abs()
            };
            old.sort_by(|left, right| distance(right).total_cmp(&distance(left)));
            let mut others = Vec::new();
            for _ in 0..random.random_range(8..=24) {
                let is_deletion = random.random_bool(DELETIONS);
                let from = if is_deletion { &mut old } else { &mut new };
                let Some(payload) = from.pop() else { break };
                let rect = rect(payload);
                others.push(if is_deletion { Step::Delete(rect, payload) } else { Step::Insert(rect, payload) });
            }
            scenario.steps = vec![vec![stopped], others];
            return scenario;
        }
    }

    /// The possible operations on the tree, each with its effect: insertions of these payloads, and
    /// deletions.
    fn effects(&self, new: Range<u64>) -> Vec<(Step, Effect)> {
        let effects: Arc<Mutex<Vec<(Step, Effect)>>> = Arc::default();
        let (scenario, noted) = (self.clone(), effects.clone());
        let run_each_alone = move || {
            let image = scenario.image();
            let insertions = new.clone().map(|payload| Step::Insert(rect(payload), payload));
            let deletions = scenario.payloads.iter().map(|&payload| Step::Delete(rect(payload), payload));
            for step in insertions.chain(deletions) {
                let controller = image.restart();
                let tree = Tree::open(&*controller.storage(), "tree", &scenario.options).unwrap();
                let first = controller.events();
                run(&tree, &step);
                let mut effect = Effect::default();
                for event in controller.log().split_off(first) {
                    match event {
                        Event::Pool(PoolEvent::Fence { site: "fbr.log.commit" | "fbr.split.root.link", .. }) => {
                            effect.commitments += 1;
                        }
                        Event::Pool(PoolEvent::Fence { site: "fbr.complete.redistribute", .. }) => {
                            effect.redistributions += 1;
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

    /// The tree before all of them, durable.
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
        let start: Counts = self.payloads.iter().map(|&payload| (payload, 1)).collect();
        *shared.controller.lock().unwrap() = Some(controller.clone());
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let spawn = |(thread, steps): (usize, &Vec<Step>)| {
            let (controller, tree, calls, steps) = (controller.clone(), tree.clone(), calls.clone(), steps.clone());
            shuttle::thread::spawn(move || {
                for (_, step) in steps.into_iter().enumerate().filter(|(number, _)| is_kept(thread, *number)) {
                    record(&calls, &controller, step, |step| run(&*tree, step));
                }
            })
        };
        let threads: Vec<_> = self.steps.iter().enumerate().map(spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        *shared.controller.lock().unwrap() = None;
        let calls = calls.lock().unwrap().clone();
        check(&calls, &start, &counts(&*tree), &"at the end");
        let mut tree = Arc::into_inner(tree).expect("no other thread has it any more");
        tree.check().unwrap();
        drop(tree);
        let ends = calls.iter().filter_map(|call| call.ended).map(|(at, _)| at);
        for cut in ends.chain(shared.waits.lock().unwrap().iter().copied()) {
            let calls = calls_at(&calls, cut);
            for image in controller.images(cut, &BUDGET, 1) {
                check(&calls, &start, &recover::<Tree>(&*image.storage(), &self.options), &image);
            }
        }
    }

    fn explore(self) {
        let shared: Arc<Shared> = Arc::default();
        let stops = Stops::new(self.seed, self.steps.len(), shared.clone());
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
    // The seed determines everything.
    config.failure_persistence = FailurePersistence::None;
    config
}

/// Trees of nodes so small that most operations rebalance, and some in which only splits do.
fn options() -> Vec<Options> {
    let configurations = Fbr::configurations().into_iter();
    let is_meant = |subject: &Explored<Fbr>| {
        subject.tree.dimensions() == 2
            && subject.tree.options.fan_out == 4
            && subject.domain() == PersistenceDomain::Adr
    };
    let small = configurations.filter(is_meant).map(|subject| subject.tree.options.clone());
    small.flat_map(|small| [Options { fan_out: 6, ..small.clone() }, small]).collect()
}

/// The operations to explore, and the number of threads. The first thread is stopped everywhere.
#[derive(Clone, Copy)]
enum Plan<'p> {
    /// One operation of each thread, of these pairs in turn.
    Pairs { pairs: &'p [Pairs], threads: usize },
    /// Many operations of one other thread.
    InARow,
}

/// Each merge tries an eighth of the seeds, and `make soak` all of them and `soak` more.
fn explore(test: &str, plan: Plan<'_>, seeds: Range<u64>, soak: u64) {
    let seeds = match std::env::var("TERRANE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if terrane_testkit::is_soak() => seeds.start..seeds.end + soak,
        None => seeds.start..seeds.start + (seeds.end - seeds.start) / 8,
    };
    let options = options();
    let explore = |seed: u64| {
        let options = &options[(seed as usize / 5 + seed as usize) % options.len()];
        let scenario = match plan {
            Plan::Pairs { pairs, threads } => {
                Scenario::drawn(options, pairs[seed as usize % pairs.len()], threads, seed)
            }
            Plan::InARow => Scenario::in_a_row(options, seed),
        };
        run_seed(test, seed, || scenario.clone().explore());
    };
    // Each seed is a run of its own, on any thread.
    let next = AtomicU64::new(seeds.start);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || {
            while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
                explore(seed);
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

#[test]
fn what_is_acknowledged_while_another_operation_is_stopped_survives_a_power_loss() {
    let pairs = &[Pairs::Any, Pairs::Rebalancing, Pairs::Rebalancing, Pairs::Redistribution, Pairs::Rebalancing];
    let plan = Plan::Pairs { pairs, threads: 2 };
    explore("what_is_acknowledged_while_another", plan, 20..60, 600);
}

/// Two of them are stopped, each in the middle.
#[test]
fn what_is_acknowledged_while_two_operations_are_stopped_survives_a_power_loss() {
    let pairs = &[Pairs::Redistribution, Pairs::Rebalancing, Pairs::Redistribution, Pairs::Any];
    let plan = Plan::Pairs { pairs, threads: 3 };
    explore("what_is_acknowledged_while_two", plan, 0..16, 400);
}

/// A writer that relies on a box enlarged by another thread flushes it, too.
#[test]
fn what_is_inserted_into_a_box_that_another_insertion_is_enlarging_survives_a_power_loss() {
    let plan = Plan::Pairs { pairs: &[Pairs::Enlargement], threads: 2 };
    explore("what_is_inserted_into_a_box", plan, 32..48, 400);
}

/// A writer that relies on a box in enlargement when it moves entries between nodes flushes it,
/// too.
#[test]
fn what_many_operations_change_beside_one_that_is_stopped_survives_a_power_loss() {
    explore("what_many_operations_change", Plan::InARow, 32..48, 400);
}
