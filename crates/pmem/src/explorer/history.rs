//! A run of steps under the crash controller.

use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use terrane_storage::event::{DiskEvent, Event, PersistenceDomain, PoolEvent};
use terrane_testkit::crash::{Controller, Image};

use super::{Checked, Crash, Dropped, Failure, Subject, guarded, leaving_out};

/// Only one history runs at a time: numbering threads of several would change their actions.
static RUNNING: Mutex<()> = Mutex::new(());

/// The events of a run, and the structure's contents before and after each step.
#[derive(Debug)]
pub struct History<'s, S: Subject> {
    pub(super) subject: &'s S,
    pub(super) steps: Vec<S::Step>,
    pub(super) dropped: Option<Dropped>,
    /// The events, with a mark for each step that has returned, and mark 0 before the first.
    pub controller: Arc<Controller>,
    models: Vec<S::Model>,
    /// The first cut at which the pool exists, whatever is lost.
    pool_made: usize,
    /// The cut before the first step, and the cut at each step's end.
    ends: Vec<usize>,
    /// The history before, if this run follows a crash.
    before: Option<Before<S::Step>>,
}

/// The steps before the first crash, and each crash with its description. The last crash holds the
/// present steps.
#[derive(Clone, Debug)]
struct Before<Step> {
    steps: Vec<Step>,
    crashes: Vec<(Crash<Step>, String)>,
}

impl<'s, S: Subject> History<'s, S> {
    /// Runs steps, on two threads in turn, so that one thread's fences do not make the other's
    /// stores durable. It is an error if the steps go wrong without a crash.
    pub fn record(
        subject: &'s S,
        steps: Vec<S::Step>,
        dropped: Option<Dropped>,
    ) -> Result<Self, Box<Failure<S::Step>>> {
        Self::recorded(Self::new(subject, steps, dropped, Controller::new(), None), |history| {
            let (subject, controller) = (history.subject, history.controller.clone());
            let structure = leaving_out(history.dropped.as_ref(), || subject.create(&*controller.storage()))?;
            let is_named = |event: &Event| matches!(event, Event::Disk(DiskEvent::SyncDirectory { .. }));
            history.pool_made = controller.log().iter().rposition(is_named).map_or(0, |at| at + 1);
            history.run(structure, S::Model::default())
        })
    }

    /// Recovers from a crash of this history and runs other steps. The crash is the last of
    /// several, each in the recovery from the one before. `found` is what the recovery finds. The
    /// cuts are those from the end of the recovery on.
    pub(super) fn resume(
        &self,
        (before, last): (&[&Image], &Image),
        found: S::Model,
        steps: Vec<S::Step>,
    ) -> Result<Self, Box<Failure<S::Step>>> {
        let mut past = self.past(before.iter().copied().chain([last]).map(Crash::described));
        if let Some((crash, _)) = past.crashes.last_mut() {
            crash.then = steps.clone();
        }
        let history = Self::new(self.subject, steps, self.dropped.clone(), last.restart(), Some(past));
        Self::recorded(history, |history| {
            let (subject, controller) = (history.subject, history.controller.clone());
            let structure = leaving_out(history.dropped.as_ref(), || subject.open(&*controller.storage()))?;
            history.pool_made = controller.events() + 1;
            history.run(structure, found)
        })
    }

    fn new(
        subject: &'s S,
        steps: Vec<S::Step>,
        dropped: Option<Dropped>,
        controller: Arc<Controller>,
        before: Option<Before<S::Step>>,
    ) -> Self {
        Self { subject, steps, dropped, controller, models: Vec::new(), pool_made: 0, ends: Vec::new(), before }
    }

    fn recorded(mut history: Self, run: impl FnOnce(&mut Self) -> Checked<()>) -> Result<Self, Box<Failure<S::Step>>> {
        let _running = RUNNING.lock();
        match guarded(|| run(&mut history)) {
            Ok(()) => Ok(history),
            Err(problem) => Err(history.failure(Vec::new(), problem)),
        }
    }

    fn run(&mut self, mut structure: S::Structure, mut model: S::Model) -> Checked<()> {
        let (subject, controller) = (self.subject, &self.controller);
        for step in 0..=self.steps.len() {
            controller.mark(step as u64);
            self.ends.push(controller.events());
            self.models.push(model.clone());
            let Some(next) = self.steps.get(step) else { break };
            let run = || {
                subject.apply(&structure, &mut model, next)?;
                Ok(model)
            };
            // A new thread each time: its later fences do not help this step.
            model = match step % 2 {
                0 => run()?,
                _ => std::thread::scope(|scope| scope.spawn(|| guarded(run)).join())
                    .unwrap_or_else(|_| Err("a panic".to_owned()))?,
            };
        }
        let left = subject.observe(&mut structure)?;
        if left == model { Ok(()) } else { Err(format!("it holds {left:?} instead of {model:?}")) }
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Steps that have returned at a cut; `None` during the creation.
    pub fn steps_done(&self, cut: usize) -> Option<usize> {
        self.ends.partition_point(|&end| end <= cut).checked_sub(1)
    }

    /// The contents that a crash at a cut may leave.
    pub(super) fn allowed(&self, cut: usize) -> &[S::Model] {
        let (first, count) = self.steps_done(cut).map_or((0, 1), |done| (done, 2));
        &self.models[first..(first + count).min(self.models.len())]
    }

    /// The cuts before the first step and right after each one.
    pub fn ends(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.ends.iter().copied()
    }

    /// Every cut at which at least this many steps have returned. With no step, this includes the
    /// cuts inside of the creation once the pool exists. For a run that follows a crash, they begin
    /// after recovery.
    pub fn cuts_from(&self, step: usize) -> impl DoubleEndedIterator<Item = usize> + use<S> {
        let (first, last) = self.cuts().into_inner();
        let first = if step == 0 { first } else { self.ends.get(step).copied().unwrap_or(last) };
        first..last + 1
    }

    /// All cuts.
    pub(super) fn cuts(&self) -> RangeInclusive<usize> {
        self.pool_made..=self.ends.last().copied().unwrap_or(0)
    }

    /// The cuts at which power losses leave all that they leave at any cut.
    pub fn power_cuts_from(&self, step: usize) -> Vec<usize> {
        let is_sufficient = sufficient(&self.controller, self.subject.domain());
        self.cuts_from(step).filter(is_sufficient).collect()
    }

    /// A failure of the last of these crashes; without any, of the steps themselves.
    pub fn failure(&self, crashes: Vec<(Crash<S::Step>, String)>, problem: String) -> Box<Failure<S::Step>> {
        let Before { steps, crashes } = self.past(crashes);
        let mut failure = Failure::without_crash(self.subject, steps, problem);
        failure.case.dropped = self.dropped.clone();
        (failure.case.crashes, failure.crashes) = crashes.into_iter().unzip();
        failure
    }

    /// All earlier steps and crashes, followed by these crashes.
    fn past(&self, crashes: impl IntoIterator<Item = (Crash<S::Step>, String)>) -> Before<S::Step> {
        let first = || Before { steps: self.steps.clone(), crashes: Vec::new() };
        let mut past = self.before.clone().unwrap_or_else(first);
        past.crashes.extend(crashes);
        past
    }
}

/// Whether no later cut can lose all that this cut can lose. Where stores wait for a fence or sync,
/// this is right before it. A store or flush never reduces the possible losses of the cuts before
/// it.
pub(super) fn sufficient(controller: &Controller, domain: PersistenceDomain) -> impl FnMut(&usize) -> bool + use<> {
    let log = controller.log();
    move |&cut: &usize| {
        let is_store = matches!(log.get(cut), Some(Event::Pool(PoolEvent::Store { .. } | PoolEvent::Flush { .. })));
        // With durable caches, every store is durable at once.
        domain == PersistenceDomain::Eadr || !is_store
    }
}
