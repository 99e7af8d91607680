//! Failures made small, and gone through again.

use terrane_storage::crash::Image;

use super::{Breadth, Case, Checked, Crash, Explorer, Failure, History, Loss, Subject, recover};

/// Histories that are tried at most.
const HISTORIES: usize = 300;

const BREADTH: Breadth = Breadth { branches: 48, samples: 24, seed: 1 };
const BREADTH_INSIDE: Breadth = Breadth { branches: 4, samples: 4, seed: 1 };

/// A failure with fewer steps, then an earlier cut, then fewer losses, as far as one can be found soon.
pub fn shrink<S: Subject>(subject: &S, failure: Failure<S::Step>) -> Failure<S::Step> {
    let mut smallest = failure;
    let mut left = HISTORIES;
    let mut steps = smallest.case.steps.clone();
    // What comes after the step that the crash interrupts does not matter.
    if let (Some(crash), Ok(history)) = (smallest.case.crashes.first(), record(subject, &smallest.case, steps.clone()))
    {
        steps.truncate(history.steps_done(crash.cut).unwrap_or(0) + 1);
    }
    if let Some(found) = find(subject, &smallest.case, steps) {
        smallest = found;
    }
    let mut size = smallest.case.steps.len().div_ceil(2);
    while size > 0 && left > 0 {
        let mut start = 0;
        let before = smallest.case.steps.len();
        while start < smallest.case.steps.len() && left > 0 {
            left -= 1;
            let mut fewer = smallest.case.steps.clone();
            fewer.drain(start..(start + size).min(fewer.len()));
            match find(subject, &smallest.case, fewer) {
                Some(found) => smallest = found,
                None => start += size,
            }
        }
        size = match size {
            // Without one step, another one may be needless too.
            1 if smallest.case.steps.len() < before => 1,
            size => size / 2,
        };
    }
    keep_more(subject, smallest)
}

fn record<'s, S: Subject>(
    subject: &'s S,
    case: &Case<S::Step>,
    steps: Vec<S::Step>,
) -> Result<History<'s, S>, Box<Failure<S::Step>>> {
    History::record(subject, steps, case.dropped.clone())
}

/// The first failure of these steps, in the last of them or after it, with as many crashes as there were.
fn find<S: Subject>(subject: &S, case: &Case<S::Step>, steps: Vec<S::Step>) -> Option<Failure<S::Step>> {
    let history = match record(subject, case, steps) {
        Ok(history) => history,
        Err(failure) => return Some(*failure).filter(|_| case.crashes.is_empty()),
    };
    let last = history.len().saturating_sub(1);
    let mut explorer = Explorer::new(subject);
    let search = match case.crashes.len() {
        0 => return None,
        1 => explorer.all_power_losses(&history, last, &BREADTH).and_then(|()| explorer.all_kills(&history, last)),
        _ => {
            let mut cuts = history.power_cuts_from(last).into_iter();
            cuts.try_for_each(|cut| explorer.inside_recovery(&history, cut, &BREADTH_INSIDE))
        }
    };
    search.err().map(|failure| *failure)
}

/// The same failure with fewer losses in its last crash.
fn keep_more<S: Subject>(subject: &S, failure: Failure<S::Step>) -> Failure<S::Step> {
    let Ok(history) = record(subject, &failure.case, failure.case.steps.clone()) else { return failure };
    let Ok(Crashes { images, allowed }) = go_through(&history, &failure.case.crashes) else { return failure };
    let Some((last, before)) = images.split_last() else { return failure };
    let before: Vec<&Image> = before.iter().collect();
    let mut smallest = failure;
    let mut explorer = Explorer::new(subject);
    last.shrink(|image| match explorer.judge_as(&history, &before, image, &allowed) {
        Ok(_) => false,
        Err(failure) => {
            smallest = *failure;
            true
        }
    });
    smallest
}

/// Goes through a case again: what goes wrong, if it does. Fails if the case is not one of the subject's.
pub fn replay<S: Subject>(subject: &S, case: &Case<S::Step>) -> Checked<Option<Failure<S::Step>>> {
    let history = match record(subject, case, case.steps.clone()) {
        Ok(history) => history,
        Err(failure) => return Ok(Some(*failure)),
    };
    let Crashes { images, allowed } = go_through(&history, &case.crashes)?;
    let Some((last, before)) = images.split_last() else { return Ok(None) };
    let before: Vec<&Image> = before.iter().collect();
    let judged = Explorer::new(subject).judge_as(&history, &before, last, &allowed);
    Ok(judged.err().map(|failure| *failure))
}

/// What each of a case's crashes leaves, and what may be there after the last one.
struct Crashes<Model> {
    images: Vec<Image>,
    allowed: Vec<Model>,
}

fn go_through<S: Subject>(history: &History<'_, S>, crashes: &[Crash]) -> Checked<Crashes<S::Model>> {
    let mut images: Vec<Image> = Vec::new();
    let mut allowed = crashes.first().map_or(Vec::new(), |first| history.allowed(first.cut).to_vec());
    let mut controller = history.controller.clone();
    for crash in crashes {
        if let Some(before) = images.last() {
            controller = before.restart();
            let found = recover(history.subject, &controller, history.dropped.as_ref())?;
            if crash.cut >= controller.events() {
                allowed = vec![found];
            }
        }
        images.push(match &crash.loss {
            Loss::Kill => controller.process_kill(crash.cut),
            Loss::Power(choice) => controller.image_with(crash.cut, choice).map_err(|foreign| foreign.to_string())?,
        });
    }
    Ok(Crashes { images, allowed })
}
