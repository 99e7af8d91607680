//! Runs that can be cut at any instant, of any tree, and what has to be there after.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use rand::Rng;
use terrane_pmem::{Dropping, Instruction, PersistenceDomain, Traced};
use terrane_pmtree::{Options, PersistentRTree, Rect, SearchMode};
use terrane_storage::Storage;
use terrane_storage::crash::{Budget, Controller, Event, NameOrder, PoolEvent};

use super::{Model, random, rect, window};

pub type Checked<T> = Result<T, String>;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Insert(Rect<2>, u64),
    Delete(Rect<2>, u64),
}

/// A run: the events, the entries before each step and at the end; and the tree that opens what is left.
pub struct History<T> {
    pub controller: Arc<Controller>,
    models: Vec<Model<2>>,
    pub options: Options,
    tree: PhantomData<fn() -> T>,
}

/// Insertions first, then mostly deletions.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
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

/// Does the steps with a tree that leaves out some instructions, or none.
pub fn run<R: PersistentRTree<2, Backend = Dropping<Traced>>, T>(
    steps: &[Step],
    options: Options,
    dropped: Option<(Instruction, &str)>,
) -> History<T> {
    let controller = Controller::new();
    let tree = R::create(&*controller.storage(), "tree", &options).unwrap();
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
    History { controller, models, options, tree: PhantomData }
}

/// Cuts right before something becomes durable. Where stores wait for that, such a cut can lose any of them, as those
/// before it could.
pub fn durable_cuts(controller: &Controller) -> Vec<usize> {
    let log = controller.log();
    let waits =
        |cut: &usize| matches!(log.get(*cut), Some(Event::Pool(PoolEvent::Store { .. } | PoolEvent::Flush { .. })));
    (0..=log.len()).filter(|cut| !waits(cut)).collect()
}

fn everything() -> Rect<2> {
    Rect::new([-1e9; 2], [1e9; 2]).unwrap()
}

fn payloads<T: PersistentRTree<2>>(tree: &T) -> Vec<u64> {
    window(tree, &everything(), SearchMode::Validated)
}

impl<T: PersistentRTree<2, Backend = Traced>> History<T> {
    /// Kills in the middle of the line that commits a change, by the name of its flush, and loses power while the
    /// opening that follows undoes it.
    pub fn lose_power_while_undoing(&self, commit: &str) {
        let whole_lines = Budget { exhaustive_pending: 12, samples: 24, name_order: NameOrder::AnySubset };
        let log = self.controller.log();
        let is_commit = |event: &Event| matches!(event, Event::Pool(PoolEvent::Flush { site, .. }) if *site == commit);
        let commits = (0..log.len()).filter(|&at| is_commit(&log[at]));
        let mut images = 0;
        for cut in commits.flat_map(|at| at.saturating_sub(12)..at) {
            let Some(steps) = self.steps_done(cut) else { continue };
            let restarted = self.controller.process_kill(cut).restart();
            drop(T::open(&*restarted.storage(), "tree", &self.options).unwrap());
            for again in durable_cuts(&restarted) {
                for second in restarted.images(again, &whole_lines, 1) {
                    self.recover(&*second.storage(), steps).unwrap_or_else(|what| panic!("{what}: {second:?}"));
                    images += 1;
                }
            }
        }
        assert!(images > 100, "{images}");
    }

    /// Cuts that lose all that any cut can lose, each with the steps done before.
    pub fn cuts(&self) -> impl Iterator<Item = (usize, usize)> {
        let cuts = match self.options.pool.domain {
            // Every store is durable at once.
            PersistenceDomain::Eadr => (0..=self.controller.events()).collect(),
            _ => durable_cuts(&self.controller),
        };
        cuts.into_iter().filter_map(|cut| Some((cut, self.steps_done(cut)?)))
    }

    pub fn steps_done(&self, cut: usize) -> Option<usize> {
        self.controller.marks(cut).last().map(|&number| number as usize)
    }

    /// Checks what a crash has left after so many steps, and that it works on.
    pub fn recover(&self, storage: &dyn Storage, steps: usize) -> Checked<()> {
        let mut tree = T::open(storage, "tree", &self.options).map_err(text)?;
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

/// The names under which a tree flushes and fences, after it was created; those of the pool have tests of their own.
pub fn sites(controller: &Controller, prefix: &str) -> BTreeSet<(Instruction, &'static str)> {
    Instruction::sites_after(controller, 0).into_iter().filter(|(_, site)| site.starts_with(prefix)).collect()
}

pub fn is_soak() -> bool {
    std::env::var_os("TERRANE_SOAK").is_some()
}
