//! Power losses and kills at any instant of insertions and deletions, and of the recovery that follows.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::Rng;
use support::{Model, configurations, random, rect};
use terrane_pmem::{Dropping, Instruction, PersistenceDomain, Traced};
use terrane_pmtree::{FbrTree, Options, Rect, SearchMode};
use terrane_storage::Storage;
use terrane_storage::crash::{Budget, Controller, Event, Image, NameOrder, PoolEvent};

const BUDGET: Budget = Budget { exhaustive_pending: 8, samples: 24, name_order: NameOrder::AnySubset };

type Checked<T> = Result<T, String>;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(Rect<2>, u64),
    Delete(Rect<2>, u64),
}

/// A run: the events, the entries before each step and at the end.
struct History {
    controller: Arc<Controller>,
    models: Vec<Model<2>>,
    options: Options,
}

fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = random(seed);
    let mut model = Model::<2>::default();
    let mut steps = Vec::new();
    for step in 0..count {
        if model.0.len() < 2 || random.random_bool(if step < count / 2 { 0.9 } else { 0.15 }) {
            let entry = (rect(&mut random, 12), step as u64);
            model.0.push(entry);
            steps.push(Step::Insert(entry.0, entry.1));
        } else {
            let entry = model.0.swap_remove(random.random_range(0..model.0.len()));
            steps.push(Step::Delete(entry.0, entry.1));
        }
    }
    steps
}

fn history(steps: &[Step], options: Options, dropped: Option<(Instruction, &str)>) -> History {
    let controller = Controller::new();
    let tree: FbrTree<2, Dropping<Traced>> = FbrTree::create(&*controller.storage(), "tree", &options).unwrap();
    if let Some((instruction, site)) = dropped {
        tree.pool().backend().leave_out(instruction, site);
    }
    let mut models = vec![Model::default()];
    controller.mark(0);
    for (number, step) in steps.iter().enumerate() {
        let mut model = models[number].clone();
        match step {
            Step::Insert(rect, payload) => model.0.push((*rect, *payload)),
            Step::Delete(rect, payload) => assert!(model.delete(rect, *payload)),
        }
        // Two threads in turn: what one of them has not fenced, the other one's fences do not make durable.
        let run = || match step {
            Step::Insert(rect, payload) => tree.insert(rect, *payload).unwrap(),
            Step::Delete(rect, payload) => assert!(tree.delete(rect, *payload).unwrap()),
        };
        if number % 2 == 0 {
            run()
        } else {
            std::thread::scope(|scope| scope.spawn(run).join().unwrap())
        }
        models.push(model);
        controller.mark(number as u64 + 1);
    }
    History { controller, models, options }
}

/// Cuts right before something becomes durable. Where stores wait for that, such a cut can lose any of them, as those
/// before it could.
fn durable_cuts(controller: &Controller) -> Vec<usize> {
    let log = controller.log();
    let waits =
        |cut: &usize| matches!(log.get(*cut), Some(Event::Pool(PoolEvent::Store { .. } | PoolEvent::Flush { .. })));
    (0..=log.len()).filter(|cut| !waits(cut)).collect()
}

fn everything() -> Rect<2> {
    Rect::new([-1e9; 2], [1e9; 2]).unwrap()
}

fn payloads<B: terrane_pmem::Backend>(tree: &FbrTree<2, B>) -> Vec<u64> {
    support::window(tree, &everything(), SearchMode::Validated)
}

impl History {
    /// Cuts that lose all that any cut can lose, each with the steps done before.
    fn cuts(&self) -> impl Iterator<Item = (usize, usize)> {
        let cuts = match self.options.pool.domain {
            // Every store is durable at once.
            PersistenceDomain::Eadr => (0..=self.controller.events()).collect(),
            _ => durable_cuts(&self.controller),
        };
        cuts.into_iter().filter_map(|cut| Some((cut, self.steps_done(cut)?)))
    }

    fn steps_done(&self, cut: usize) -> Option<usize> {
        self.controller.marks(cut).last().map(|&number| number as usize)
    }

    /// Checks what a crash has left after so many steps, and that it works on.
    fn recover(&self, storage: &dyn Storage, steps: usize) -> Checked<()> {
        let mut tree: FbrTree<2, Traced> = FbrTree::open(storage, "tree", &self.options).map_err(text)?;
        tree.check().map_err(text)?;
        let found = payloads(&tree);
        let possible = &self.models[steps..(steps + 2).min(self.models.len())];
        let Some(model) = possible.iter().find(|model| model.window(&everything()) == found) else {
            return Err(format!("{found:?} after {steps} steps"));
        };
        for (rect, payload) in &model.0 {
            if !tree.contains(rect, *payload).map_err(text)? {
                return Err(format!("{payload} is not where it should be"));
            }
        }
        let mut random = random(9);
        let mut model = model.clone();
        for payload in 1000..1006 {
            let rect = rect(&mut random, 12);
            tree.insert(&rect, payload).map_err(text)?;
            model.0.push((rect, payload));
        }
        while let Some((rect, payload)) = model.0.pop() {
            if !tree.delete(&rect, payload).map_err(text)? {
                return Err(format!("{payload} cannot be deleted"));
            }
        }
        tree.check().map_err(text)?;
        if payloads(&tree).is_empty() { Ok(()) } else { Err("there are more".to_owned()) }
    }
}

fn text(error: terrane_pmtree::Error) -> String {
    error.to_string()
}

fn expect(outcome: Checked<()>, image: &Image) {
    if let Err(what) = outcome {
        panic!("{what}: {image:?}");
    }
}

fn is_soak() -> bool {
    std::env::var_os("TERRANE_SOAK").is_some()
}

/// Of every so many cuts one is tried: of long runs, which do the same many times over, the fewer.
fn stride(fan_out: usize) -> usize {
    if is_soak() || fan_out < 10 { 1 } else { 5 }
}

/// Steps that make nodes of so many entries split and merge.
fn steps_for(fan_out: usize) -> Vec<Step> {
    if fan_out < 10 { steps(1, 60) } else { steps(1, 150) }
}

#[test]
fn a_power_loss_at_any_instant_leaves_a_tree_with_all_that_was_acknowledged() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr] {
        for options in configurations(domain) {
            let history = history(&steps_for(options.fan_out), options.clone(), None);
            for (cut, steps) in history.cuts().step_by(stride(options.fan_out)) {
                for image in history.controller.images(cut, &BUDGET, 1) {
                    expect(history.recover(&*image.storage(), steps), &image);
                }
            }
        }
    }
}

#[test]
fn a_kill_at_any_instant_leaves_a_tree_with_all_that_was_acknowledged() {
    for options in configurations(PersistenceDomain::PageCache) {
        let history = history(&steps_for(options.fan_out), options.clone(), None);
        for cut in 0..=history.controller.events() {
            let Some(steps) = history.steps_done(cut) else { continue };
            let image = history.controller.process_kill(cut);
            expect(history.recover(&*image.storage(), steps), &image);
        }
    }
}

/// Crashes, and loses power in the opening that follows.
#[test]
fn a_power_loss_inside_recovery_changes_nothing_of_it() {
    let sparse = if is_soak() { 1 } else { 11 };
    let extremes = Budget { exhaustive_pending: 0, samples: 0, ..BUDGET };
    let few = Budget { exhaustive_pending: 4, samples: 4, ..BUDGET };
    for options in configurations(PersistenceDomain::Adr) {
        let history = history(&steps_for(options.fan_out), options.clone(), None);
        for (cut, steps) in history.cuts().step_by(sparse) {
            let losses = history.controller.images(cut, &extremes, 1);
            for image in losses.chain([history.controller.process_kill(cut)]) {
                let restarted = image.restart();
                drop(FbrTree::<2, Traced>::open(&*restarted.storage(), "tree", &history.options).unwrap());
                for again in durable_cuts(&restarted) {
                    for second in restarted.images(again, &few, 1) {
                        expect(history.recover(&*second.storage(), steps), &second);
                    }
                }
            }
        }
    }
}

/// A process that was killed leaves stores that were not made durable. What the next one sees of them stays.
#[test]
fn what_is_seen_after_a_kill_survives_a_power_loss() {
    let few = Budget { exhaustive_pending: 4, samples: 4, ..BUDGET };
    for options in configurations(PersistenceDomain::Adr).filter(|options| options.fan_out < 10) {
        let history = history(&steps_for(options.fan_out), options, None);
        for cut in 0..=history.controller.events() {
            let Some(steps) = history.steps_done(cut) else { continue };
            let restarted = history.controller.process_kill(cut).restart();
            let tree: FbrTree<2, Traced> = FbrTree::open(&*restarted.storage(), "tree", &history.options).unwrap();
            let seen = payloads(&tree);
            for image in restarted.images(restarted.events(), &few, 1) {
                expect(history.recover(&*image.storage(), steps), &image);
                let tree: FbrTree<2, Traced> = FbrTree::open(&*image.storage(), "tree", &history.options).unwrap();
                // What was under way, and is seen as done, is done.
                assert_eq!(payloads(&tree), seen, "after {cut} events: {image:?}");
            }
        }
    }
}

/// The names under which the tree flushes and fences, after it was created; those of the pool have tests of their own.
fn sites(controller: &Controller) -> BTreeSet<(Instruction, &'static str)> {
    Instruction::sites_after(controller, 0).into_iter().filter(|(_, site)| site.starts_with("fbr.")).collect()
}

#[test]
fn no_flush_and_no_fence_can_be_left_out() {
    let mut needless = Vec::new();
    let mut caught_before = BTreeSet::new();
    for options in configurations(PersistenceDomain::Adr) {
        let fan_out = options.fan_out;
        let steps = steps_for(fan_out);
        for dropped in sites(&history(&steps, options.clone(), None).controller) {
            // What small nodes have shown is shown again by larger ones only in a long search.
            if fan_out > 10 && !is_soak() && caught_before.contains(&dropped) {
                continue;
            }
            let history = history(&steps, options.clone(), Some(dropped));
            let cuts: Vec<(usize, usize)> = history.cuts().collect();
            // Spread over the run, since most of what matters is caught soon.
            let mut spread = (0..cuts.len()).map(|number| cuts[number * 7919 % cuts.len()]);
            let is_caught = spread.any(|(cut, steps)| {
                let mut images = history.controller.images(cut, &BUDGET, 1);
                images.any(|image| history.recover(&*image.storage(), steps).is_err())
            });
            if is_caught {
                caught_before.insert(dropped);
            } else {
                needless.push((fan_out, options.leaves, options.rebalancing, dropped));
            }
        }
    }
    assert!(needless.is_empty(), "{needless:#?}");
}
