//! Shrinking failures, and replaying them.

use std::ops::RangeInclusive;

use terrane_testkit::crash::{Controller, Image};

use super::search::Search;
use super::{Breadth, Case, Checked, Crash, Cuts, Explorer, Failure, History, Loss, Subject, recover};

/// The most histories that are tried.
const HISTORIES: usize = 300;

const BREADTH: Breadth = Breadth { branches: 48, samples: 24, seed: 1 };
const BREADTH_INSIDE: Breadth = Breadth { branches: 4, samples: 4, seed: 1 };

/// A smaller failure, as far as one is found soon: with fewer steps, then an earlier cut, then
/// fewer losses. If there is more than one recovery with steps after it, only with fewer losses,
/// since the earlier crashes fit these steps only.
pub fn shrink<S: Subject>(subject: &S, failure: Failure<S::Step>) -> Failure<S::Step> {
    let mut smallest = failure;
    let mut left = HISTORIES;
    let mut case = smallest.case.clone();
    // Steps after the one that the crash interrupts do not matter.
    if let (Some(crash), Ok(history)) = (case.crashes.first(), record(subject, &case)) {
        case.steps.truncate(history.steps_done(crash.cut).unwrap_or(0) + 1);
    }
    if let Some(found) = find(subject, &case) {
        smallest = found;
    }
    // Later steps first: a step that is needed often needs few of the others.
    for run in (0..=smallest.case.crashes.len()).rev() {
        let length = |smallest: &Failure<S::Step>| smallest.case.clone().run_mut(run).len();
        let mut size = length(&smallest).div_ceil(2);
        while size > 0 && left > 0 {
            let mut start = 0;
            let before = length(&smallest);
            while start < length(&smallest) && left > 0 {
                left -= 1;
                let mut fewer = smallest.case.clone();
                let end = (start + size).min(length(&smallest));
                fewer.run_mut(run).drain(start..end);
                // Without any later step, it would be another failure.
                let is_alike = run == 0 || !fewer.run_mut(run).is_empty();
                match is_alike.then(|| find(subject, &fewer)).flatten() {
                    Some(found) => smallest = found,
                    None => start += size,
                }
            }
            size = match size {
                // Without one step, another one may be needless too.
                1 if length(&smallest) < before => 1,
                size => size / 2,
            };
        }
    }
    keep_more(subject, smallest)
}

fn record<'s, S: Subject>(subject: &'s S, case: &Case<S::Step>) -> Result<History<'s, S>, Box<Failure<S::Step>>> {
    History::record(subject, case.steps.clone(), case.dropped.clone())
}

/// The first failure of a case's steps, in the last of them or after it, with the same number of
/// crashes.
fn find<S: Subject>(subject: &S, case: &Case<S::Step>) -> Option<Failure<S::Step>> {
    if case.crashes.iter().skip(1).any(|crash| !crash.then.is_empty()) {
        return None;
    }
    let history = match record(subject, case) {
        Ok(history) => history,
        Err(failure) => return Some(*failure).filter(|_| case.crashes.is_empty()),
    };
    let last = history.len().saturating_sub(1);
    let mut explorer = Explorer::new(subject);
    let in_last =
        |search: &mut dyn FnMut(usize) -> Search<S>| history.power_cuts_from(last).into_iter().try_for_each(search);
    let search = match case.crashes.as_slice() {
        [] => return None,
        [Crash { then, .. }] if then.is_empty() => explorer.all_crashes(&history, last, &BREADTH),
        [Crash { then, .. }, ..] if then.is_empty() => {
            in_last(&mut |cut| explorer.inside_recovery(&history, cut, &BREADTH_INSIDE))
        }
        [Crash { then, .. }, ..] => {
            in_last(&mut |cut| explorer.after_recovery_then(&history, cut, then, Cuts::All, &BREADTH_INSIDE))
        }
    };
    search.err().map(|failure| *failure).filter(|failure| failure.case.crashes.len() == case.crashes.len())
}

/// The same failure with fewer losses in its last crash.
fn keep_more<S: Subject>(subject: &S, failure: Failure<S::Step>) -> Failure<S::Step> {
    let Ok(history) = record(subject, &failure.case) else { return failure };
    let Ok(Crashes { history, images, allowed }) = run_again(history, &failure.case) else { return failure };
    let Some((last, before)) = images.split_last() else { return failure };
    let before: Vec<&Image> = before.iter().collect();
    let mut smallest = failure;
    let mut explorer = Explorer::new(subject);
    last.shrink(|image| match explorer.verify_against(&history, &before, image, &allowed) {
        Ok(_) => false,
        Err(failure) => {
            smallest = *failure;
            true
        }
    });
    smallest
}

/// Replays a case, and gives the failure, if it fails again. It is an error if the case does not
/// fit the subject.
pub fn replay<S: Subject>(subject: &S, case: &Case<S::Step>) -> Checked<Option<Failure<S::Step>>> {
    let outcome = record(subject, case).map_err(Unreached::Wrong).and_then(|history| run_again(history, case));
    let Crashes { history, images, allowed } = match outcome {
        Ok(crashes) => crashes,
        Err(Unreached::Wrong(failure)) => return Ok(Some(*failure)),
        Err(Unreached::Foreign(problem)) => return Err(problem),
    };
    let Some((last, before)) = images.split_last() else { return Ok(None) };
    let before: Vec<&Image> = before.iter().collect();
    let judged = Explorer::new(subject).verify_against(&history, &before, last, &allowed);
    Ok(judged.err().map(|failure| *failure))
}

/// The last history of a case, the images of all its crashes, and the contents that may be there
/// after the last one.
struct Crashes<'s, S: Subject> {
    history: History<'s, S>,
    images: Vec<Image>,
    allowed: Vec<S::Model>,
}

/// Why replaying ended early.
enum Unreached<Step> {
    /// The steps go wrong.
    Wrong(Box<Failure<Step>>),
    /// The case does not fit the subject.
    Foreign(String),
}

fn run_again<'s, S: Subject>(
    mut history: History<'s, S>,
    case: &Case<S::Step>,
) -> Result<Crashes<'s, S>, Unreached<S::Step>> {
    let leave = |controller: &Controller, crash: &Crash<S::Step>| match &crash.loss {
        Loss::Kill => Ok(controller.process_kill(crash.cut)),
        Loss::Power(choice) => {
            controller.image_with(crash.cut, choice).map_err(|foreign| Unreached::Foreign(foreign.to_string()))
        }
    };
    let dropped = case.dropped.as_ref();
    let mut images: Vec<Image> = Vec::new();
    let mut allowed = Vec::new();
    for crash in &case.crashes {
        let mut controller = history.controller.clone();
        let outside = |cuts: RangeInclusive<usize>| {
            let (from, to) = cuts.into_inner();
            Unreached::Foreign(format!("there is no cut {}: cuts are from {from} to {to}", crash.cut))
        };
        match images.last() {
            None => {
                let cuts = history.cuts();
                if !cuts.contains(&crash.cut) {
                    return Err(outside(cuts));
                }
                allowed = history.allowed(crash.cut).to_vec();
            }
            Some(before) => {
                controller = before.restart();
                let found = recover(history.subject, &controller, dropped).map_err(Unreached::Foreign)?;
                if crash.cut > controller.events() {
                    return Err(outside(0..=controller.events()));
                }
                if crash.cut >= controller.events() {
                    allowed = vec![found];
                }
            }
        }
        let image = leave(&controller, crash)?;
        if crash.then.is_empty() {
            images.push(image);
            continue;
        }
        let found = recover(history.subject, &image.restart(), dropped).map_err(Unreached::Foreign)?;
        let before: Vec<&Image> = images.iter().collect();
        history = history.resume((&before, &image), found, crash.then.clone()).map_err(Unreached::Wrong)?;
        images.clear();
    }
    Ok(Crashes { history, images, allowed })
}
