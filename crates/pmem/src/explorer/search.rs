//! Recovery from the images of a history's cuts.

use std::collections::{BTreeSet, HashMap};
use std::ops::AddAssign;

use terrane_storage::event::PersistenceDomain;
use terrane_testkit::crash::{self, Budget, Controller, Image, NameOrder};
use terrane_testkit::{Reads, WordsRead};

use super::history::sufficient;
use super::near::{Near, left_out};
use super::{Checked, Crash, Dropped, Failure, History, Subject, guarded, recover};

/// How many images of a cut are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breadth {
    /// The most images that recovery can distinguish. If there are no more, all of them are tried.
    pub branches: usize,
    /// If there are more: nothing kept, everything kept, and this many random ones.
    pub samples: usize,
    /// Their seed.
    pub seed: u64,
}

/// The cuts in the steps after a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// All of them.
    All,
    /// Those at which a step has returned and no other one has begun. A loss there is one of
    /// acknowledged contents.
    BetweenSteps,
}

/// Random power losses for each cut whose recovery is interrupted.
const FIRST_SAMPLES: usize = 2;

/// Random power losses for each cut on the page cache, where they can only lead to a refused pool.
const REFUSED: usize = 4;

/// If a recovery left the same contents as an earlier one, its further use is checked in one of
/// this many cases. This shows whether more than the contents matters.
const USABLE_CHECKED_AGAIN: u64 = 16;

/// The size of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Histories.
    pub histories: u64,
    /// Cuts of histories and of recoveries.
    pub cuts: u64,
    /// Cuts at which not every image was tried that recovery can distinguish.
    pub cuts_sampled: u64,
    /// Images.
    pub images: u64,
    /// Images that were recovered from. The others had the same contents as one of these.
    pub distinct: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.histories += other.histories;
        self.cuts += other.cuts;
        self.cuts_sampled += other.cuts_sampled;
        self.images += other.images;
        self.distinct += other.distinct;
    }
}

/// The result of recovery from an image. It depends only on the contents.
#[derive(Debug)]
struct Outcome<Model> {
    found: Checked<Model>,
    /// Whether opening reported that it cannot be opened. False if it panicked or opened something
    /// wrong.
    is_refused: bool,
    reads: Reads,
}

/// The search in one subject's images, with the outcome of each.
#[derive(Debug)]
pub struct Explorer<'s, S: Subject> {
    subject: &'s S,
    outcomes: HashMap<u64, Outcome<S::Model>>,
    /// Contents after recovery that were usable, with the words that this check read.
    usable: HashMap<u64, WordsRead>,
    /// The size of the search so far.
    pub tally: Tally,
}

/// The end of a search: nothing, or the first problem.
pub(super) type Search<S> = Result<(), Box<Failure<<S as Subject>::Step>>>;

impl<'s, S: Subject> Explorer<'s, S> {
    /// An explorer that has seen no image.
    pub fn new(subject: &'s S) -> Self {
        Self { subject, outcomes: HashMap::new(), usable: HashMap::new(), tally: Tally::default() }
    }

    /// The subject.
    pub fn subject(&self) -> &'s S {
        self.subject
    }

    /// Forgets the images, to free memory.
    pub fn forget(&mut self) {
        self.outcomes.clear();
        self.usable.clear();
    }

    /// Tries power losses at every cut of a history from a step on.
    pub fn all_power_losses(&mut self, history: &History<'_, S>, from_step: usize, breadth: &Breadth) -> Search<S> {
        self.tally.histories += 1;
        let mut cuts = history.power_cuts_from(from_step).into_iter();
        cuts.try_for_each(|cut| self.power_losses(history, cut, breadth))
    }

    /// Tries power losses and kills at every cut of a history from a step on.
    pub fn all_crashes(&mut self, history: &History<'_, S>, from_step: usize, breadth: &Breadth) -> Search<S> {
        self.all_power_losses(history, from_step, breadth)?;
        history.cuts_from(from_step).try_for_each(|cut| self.kill(history, cut))
    }

    /// Tries the states that a power loss at a cut may leave.
    pub fn power_losses(&mut self, history: &History<'_, S>, cut: usize, breadth: &Breadth) -> Search<S> {
        self.losses(&history.controller, cut, breadth, |explorer, image| explorer.verify(history, image))
    }

    /// Tries the state that a kill at a cut leaves.
    pub fn kill(&mut self, history: &History<'_, S>, cut: usize) -> Search<S> {
        self.verify(history, &history.controller.process_kill(cut)).map(drop)
    }

    /// Tries crashes in the recovery from a crash at a cut. The first crash is a kill, or a power
    /// loss that keeps nothing, everything, or random lines.
    pub fn inside_recovery(&mut self, history: &History<'_, S>, cut: usize, breadth: &Breadth) -> Search<S> {
        let mut first = self.crashes_at(&history.controller, cut, breadth);
        first.try_for_each(|image| self.inside(history, &image, None, breadth))
    }

    /// The same at every cut of a history from a step on. Crashes that leave the same contents as
    /// an earlier one are skipped: many crashes lead to few recoveries.
    pub fn inside_all_recoveries(
        &mut self,
        history: &History<'_, S>,
        from_step: usize,
        breadth: &Breadth,
        tried: &mut BTreeSet<u64>,
    ) -> Search<S> {
        history.power_cuts_from(from_step).into_iter().try_for_each(|cut| {
            let mut first = self.new_crashes_at(&history.controller, cut, breadth, tried);
            first.try_for_each(|image| self.inside(history, &image, None, breadth))
        })
    }

    /// Like [`Explorer::inside_recovery`], but crashes each recovery only soon after something that
    /// was left out of it. Does nothing for recoveries without that instruction. Crashes that leave
    /// the same contents as an earlier one are skipped.
    pub(super) fn inside_recovery_near(
        &mut self,
        history: &History<'_, S>,
        cut: usize,
        dropped: &Dropped,
        breadth: &Breadth,
        tried: &mut BTreeSet<u64>,
    ) -> Search<S> {
        let mut first = self.new_crashes_at(&history.controller, cut, breadth, tried);
        first.try_for_each(|image| {
            let places = self.has_left_out(&image, dropped);
            if places.is_empty() { Ok(()) } else { self.inside(history, &image, Some(&places), breadth) }
        })
    }

    /// Tries power losses after the recovery from crashes at a cut, which are those of
    /// [`Explorer::inside_recovery`]. Up to `steps` steps follow the recovery, the next ones of the
    /// history.
    pub fn after_recovery(
        &mut self,
        history: &History<'_, S>,
        cut: usize,
        steps: usize,
        cuts: Cuts,
        breadth: &Breadth,
    ) -> Search<S> {
        self.after_recovery_then(history, cut, &next_steps(history, cut, steps), cuts, breadth)
    }

    /// The same with other steps.
    pub fn after_recovery_then(
        &mut self,
        history: &History<'_, S>,
        cut: usize,
        then: &[S::Step],
        cuts: Cuts,
        breadth: &Breadth,
    ) -> Search<S> {
        let mut first = self.crashes_at(&history.controller, cut, breadth);
        first.try_for_each(|image| self.after(history, &image, then, cuts, breadth))
    }

    /// Like [`Explorer::after_recovery`] with losses between steps, but only after recoveries from
    /// which something was left out. Crashes that leave the same contents as an earlier one are
    /// skipped.
    pub(super) fn after_recovery_without(
        &mut self,
        history: &History<'_, S>,
        cut: usize,
        dropped: &Dropped,
        breadth: &Breadth,
        tried: &mut BTreeSet<u64>,
    ) -> Search<S> {
        let then = next_steps(history, cut, usize::MAX);
        let mut first = self.new_crashes_at(&history.controller, cut, breadth, tried);
        first.try_for_each(|image| match self.has_left_out(&image, dropped).is_empty() {
            true => Ok(()),
            false => self.after(history, &image, &then, Cuts::BetweenSteps, breadth),
        })
    }

    /// Where the recovery from an image would have something, by the run that leaves nothing out.
    fn has_left_out(&self, image: &Image, dropped: &Dropped) -> Vec<usize> {
        let whole = image.restart();
        // A problem with it is reported for the image itself.
        let _ = recover(self.subject, &whole, None);
        left_out(&whole.log(), dropped)
    }

    fn after(
        &mut self,
        history: &History<'_, S>,
        image: &Image,
        then: &[S::Step],
        cuts: Cuts,
        breadth: &Breadth,
    ) -> Search<S> {
        // A problem with it is reported for the image itself.
        let Ok(found) = self.outcome(image).found.clone() else { return self.verify(history, image).map(drop) };
        let resumed = history.resume((&[], image), found, then.to_vec())?;
        match cuts {
            Cuts::All => self.all_power_losses(&resumed, 0, breadth),
            Cuts::BetweenSteps => resumed.ends().try_for_each(|end| self.power_losses(&resumed, end, breadth)),
        }
    }

    /// A kill at a cut, and the power losses that keep nothing, everything, and random lines. No
    /// power losses on the page cache, where they only lead to a refused pool.
    pub(super) fn crashes_at(
        &self,
        controller: &Controller,
        cut: usize,
        breadth: &Breadth,
    ) -> impl Iterator<Item = Image> + use<S> {
        let samples = breadth.samples.min(FIRST_SAMPLES);
        let budget = Budget { exhaustive_pending: 0, samples, name_order: NameOrder::AnySubset };
        let losses = controller.images(cut, &budget, breadth.seed);
        let survives_power = self.subject.domain() != PersistenceDomain::PageCache;
        losses.filter(move |_| survives_power).chain([controller.process_kill(cut)])
    }

    /// The same, without those that leave the same contents as an earlier one.
    fn new_crashes_at<'t>(
        &self,
        controller: &Controller,
        cut: usize,
        breadth: &Breadth,
        tried: &'t mut BTreeSet<u64>,
    ) -> impl Iterator<Item = Image> + use<'t, S> {
        self.crashes_at(controller, cut, breadth).filter(|image| tried.insert(image.hash_contents()))
    }

    /// Tries crashes in the recovery from one image: all of them, or those soon after some of its
    /// events.
    fn inside(
        &mut self,
        history: &History<'_, S>,
        first: &Image,
        places: Option<&[usize]>,
        breadth: &Breadth,
    ) -> Search<S> {
        let restarted = first.restart();
        // A problem with it is reported for the image itself.
        let Ok(found) = recover(self.subject, &restarted, history.dropped.as_ref()) else {
            return self.verify(history, first).map(drop);
        };
        let last = restarted.events();
        let mut is_sufficient = sufficient(&restarted, self.subject.domain());
        let all: Vec<usize> = (0..=last).collect();
        let cuts = places.map(|places| Near { places, cuts: &all }.cuts_of(&restarted.log()));
        for cut in cuts.unwrap_or(all) {
            // Contents that were observed must stay.
            let allowed = if cut == last { std::slice::from_ref(&found) } else { history.allowed(first.cut()) };
            let verify =
                |explorer: &mut Self, image: &Image| explorer.verify_against(history, &[first], image, allowed);
            if is_sufficient(&cut) {
                self.losses(&restarted, cut, breadth, verify)?;
            }
            verify(self, &restarted.process_kill(cut))?;
        }
        Ok(())
    }

    fn losses(
        &mut self,
        controller: &Controller,
        cut: usize,
        breadth: &Breadth,
        mut verify: impl FnMut(&mut Self, &Image) -> Result<Reads, Box<Failure<S::Step>>>,
    ) -> Search<S> {
        self.tally.cuts += 1;
        let breadth = match self.subject.domain() {
            PersistenceDomain::Adr | PersistenceDomain::Eadr => *breadth,
            PersistenceDomain::PageCache => Breadth { branches: 0, samples: breadth.samples.min(REFUSED), ..*breadth },
        };
        let mut branches = controller.branches(cut);
        for _ in 0..breadth.branches {
            let Some(image) = branches.next() else { return Ok(()) };
            let reads = verify(self, &image)?;
            branches.note(&reads);
        }
        if branches.next().is_none() {
            return Ok(());
        }
        self.tally.cuts_sampled += 1;
        let budget = Budget { exhaustive_pending: 0, samples: breadth.samples, name_order: NameOrder::AnySubset };
        controller.images(cut, &budget, breadth.seed).try_for_each(|image| verify(self, &image).map(drop))
    }

    fn verify(&mut self, history: &History<'_, S>, image: &Image) -> Result<Reads, Box<Failure<S::Step>>> {
        self.verify_against(history, &[], image, history.allowed(image.cut()))
    }

    /// Checks that the contents are among the allowed ones. Gives the words that recovery has read.
    pub(super) fn verify_against(
        &mut self,
        history: &History<'_, S>,
        before: &[&Image],
        image: &Image,
        allowed: &[S::Model],
    ) -> Result<Reads, Box<Failure<S::Step>>> {
        let subject = self.subject;
        let has_lost_pages =
            subject.domain() == PersistenceDomain::PageCache && image.crash() == crash::Crash::PowerLoss;
        let outcome = self.outcome(image);
        let wrong = match &outcome.found {
            Ok(_) if has_lost_pages => "it was opened although pages may be lost".to_owned(),
            Ok(model) if allowed.contains(model) => return Ok(outcome.reads.clone()),
            Ok(model) => format!("it holds {model:?} instead of one of {allowed:?}"),
            Err(_) if has_lost_pages && outcome.is_refused => return Ok(outcome.reads.clone()),
            Err(problem) => problem.clone(),
        };
        let crashes = before.iter().copied().chain([image]).map(Crash::described);
        Err(history.failure(crashes.collect(), wrong))
    }

    /// The contents, if they are among the allowed ones.
    pub(super) fn survive(
        &mut self,
        history: &History<'_, S>,
        before: &[&Image],
        image: &Image,
        allowed: &[S::Model],
    ) -> Result<S::Model, Box<Failure<S::Step>>> {
        self.verify_against(history, before, image, allowed)?;
        let found = self.outcome(image).found.clone();
        let crashes = || before.iter().copied().chain([image]).map(Crash::described).collect();
        found.map_err(|problem| history.failure(crashes(), problem))
    }

    fn outcome(&mut self, image: &Image) -> &Outcome<S::Model> {
        self.tally.images += 1;
        self.outcomes.entry(image.hash_contents()).or_insert_with(|| {
            self.tally.distinct += 1;
            let (subject, storage, usable) = (self.subject, image.watched(), &mut self.usable);
            let is_spot_check = self.tally.distinct.is_multiple_of(USABLE_CHECKED_AGAIN);
            let (mut reads, mut is_refused) = (None, false);
            let found = guarded(|| {
                let mut structure = subject.open(&storage).inspect_err(|_| is_refused = true)?;
                let model = subject.observe(&mut structure)?;
                let (left, touched) = (storage.hash_contents(), storage.take_touched());
                let read_then = match usable.get(&left) {
                    Some(read_then) if !is_spot_check => read_then,
                    _ => {
                        subject.check_usable(&mut structure, model.clone())?;
                        let read_then = storage.take_touched().words_read();
                        usable.entry(left).insert_entry(read_then).into_mut()
                    }
                };
                // Another recovery may have stored what this one found.
                reads = Some(touched.reads_with(read_then));
                Ok(model)
            });
            let reads = reads.unwrap_or_else(|| storage.reads());
            Outcome { found, is_refused, reads }
        })
    }
}

/// Up to `steps` steps of a history that had not begun at a cut.
fn next_steps<S: Subject>(history: &History<'_, S>, cut: usize, steps: usize) -> Vec<S::Step> {
    let done = history.steps_done(cut).map_or(0, |done| done + 1).min(history.len());
    history.steps[done..].iter().take(steps).cloned().collect()
}
