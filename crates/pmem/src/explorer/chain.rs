//! Histories that continue after each crash, and crash again.

use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use terrane_testkit::crash::{Controller, Image};

use super::search::Search;
use super::{Breadth, Crash, Explorer, Failure, History, Subject, recover};

/// The most steps between two crashes.
const STEPS_MAX: usize = 3;

/// One in this many recoveries crashes as well.
const INSIDE: u32 = 4;

/// Random power losses per cut. One of them may be taken.
const SAMPLES: usize = 1;

/// A crash, the one whose recovery it interrupted, and the contents after it.
struct Crashed<Model> {
    before: Option<Image>,
    last: Image,
    found: Model,
}

impl<S: Subject> Explorer<'_, S> {
    /// Follows one random path through a history. It crashes every few steps, also in some of the
    /// recoveries, and continues with the step after the interrupted one. It checks the contents
    /// after each crash, and those that the steps lead to without a crash. The first crash is in
    /// the last of the `first` steps.
    ///
    /// Two crashes together may do harm that neither does alone, and only in later steps. Other
    /// searches try every crash of one history, and stop at the second one.
    pub fn chain(&mut self, steps: &[S::Step], first: usize, seed: u64) -> Search<S> {
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut run, mut left) = steps.split_at(first.min(steps.len()));
        let mut history = History::record(self.subject(), run.to_vec(), None)?;
        self.tally.histories += 1;
        loop {
            let from = run.len().saturating_sub(STEPS_MAX);
            let Some(cut) = history.cuts_from(from).choose(&mut random) else { return Ok(()) };
            let Crashed { before, last, found } = self.random_crash(&history, cut, &mut random)?;
            // Steps that were not begun come next.
            let begun = history.steps_done(cut).map_or(0, |done| done + 1).min(run.len());
            let undone = steps.len() - left.len() - (run.len() - begun);
            if undone == steps.len() {
                return Ok(());
            }
            let count = random.random_range(1..=STEPS_MAX).min(steps.len() - undone);
            (run, left) = steps[undone..].split_at(count);
            let before: Vec<&Image> = before.iter().collect();
            history = history.resume((&before, &last), found, run.to_vec())?;
        }
    }

    /// A crash at a cut, and perhaps one in the recovery from it.
    fn random_crash(
        &mut self,
        history: &History<'_, S>,
        cut: usize,
        random: &mut SmallRng,
    ) -> Result<Crashed<S::Model>, Box<Failure<S::Step>>> {
        let first = self.random_image(&history.controller, cut, random);
        let found = self.survive(history, &[], &first, history.allowed(cut))?;
        if !random.random_ratio(1, INSIDE) {
            return Ok(Crashed { before: None, last: first, found });
        }
        let restarted = first.restart();
        recover(self.subject(), &restarted, None)
            .map_err(|problem| history.failure(vec![Crash::described(&first)], problem))?;
        let cut_inside = random.random_range(0..=restarted.events());
        let last = self.random_image(&restarted, cut_inside, random);
        // Contents that were observed must stay.
        let seen = std::slice::from_ref(&found);
        let allowed = if cut_inside == restarted.events() { seen } else { history.allowed(cut) };
        let found = self.survive(history, &[&first], &last, allowed)?;
        Ok(Crashed { before: Some(first), last, found })
    }

    /// A random image of those that a crash at a cut can leave.
    fn random_image(&self, controller: &Controller, cut: usize, random: &mut SmallRng) -> Image {
        let breadth = Breadth { branches: 0, samples: SAMPLES, seed: random.random() };
        let crashes = self.crashes_at(controller, cut, &breadth);
        crashes.choose(random).unwrap_or_else(|| controller.process_kill(cut))
    }
}
