//! The mutation gate: is each flush and each fence needed, and is its loss caught?

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use terrane_storage::event::{Event, PersistenceDomain};
use terrane_testkit::crash::{Budget, NameOrder};

use super::near::{Near, left_out};
use super::{Breadth, Dropped, Explorer, Failure, History, Subject, Tally, places, recover};
use crate::Instruction;

/// The size of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The seeds of histories, one after the other until the loss is caught.
    pub seeds: std::ops::Range<u64>,
    /// The instruction to leave out; each in turn, if `None`.
    pub only: Option<Dropped>,
    /// How many images of each cut are tried.
    pub breadth: Breadth,
    /// The same for cuts soon after something was left out. These are few, and show most.
    pub near: Breadth,
    /// Recovery is run from one in this many cuts, to learn its flushes and fences.
    pub names_stride: usize,
    /// Whether a name is searched for in every configuration that has it, and not only until one
    /// has shown it.
    pub in_all: bool,
    /// If other crashes have shown nothing, crashes inside of recovery are tried at one in this
    /// many cuts.
    pub inside_stride: usize,
}

/// The case that shows that an instruction is needed.
#[derive(Clone, Debug)]
pub struct Catch<Step> {
    /// The instruction that was left out.
    pub dropped: Dropped,
    /// The failure without it, as it was found: with all steps of the history.
    pub failure: Failure<Step>,
    /// The seed of the history.
    pub seed: u64,
    /// Steps that had returned.
    pub steps_done: usize,
    /// The step that the crash interrupts or follows, or the creation.
    pub step: String,
}

impl<Step> Catch<Step> {
    /// Configuration of the structure.
    pub fn configuration(&self) -> &str {
        &self.failure.case.configuration
    }

    /// Events before each of the crashes.
    pub fn cuts(&self) -> Vec<usize> {
        self.failure.case.crashes.iter().map(|crash| crash.cut).collect()
    }
}

/// The cases that caught the loss of each name.
#[derive(Clone, Debug)]
pub struct GateReport<Step> {
    /// Name of the structure.
    pub structure: &'static str,
    /// At least one for each name.
    pub caught: Vec<Catch<Step>>,
    /// Names whose loss another test shows, each with the test.
    pub elsewhere: BTreeMap<Dropped, &'static str>,
    /// Names whose loss nothing has shown, each with the configuration.
    pub uncaught: Vec<(Dropped, String)>,
    /// Names of the structure that no run has reached, without a test of their own.
    pub unreached: BTreeSet<Dropped>,
    /// Names of the structure that a run has reached with an instruction that it does not list.
    pub unlisted: BTreeSet<Dropped>,
    /// The size of the search so far.
    pub tally: Tally,
}

impl<Step> GateReport<Step> {
    fn new() -> Self {
        Self {
            structure: "",
            caught: Vec::new(),
            elsewhere: BTreeMap::new(),
            uncaught: Vec::new(),
            unreached: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    /// Whether every flush and fence of the structure was left out and its loss caught.
    pub fn is_closed(&self) -> bool {
        self.uncaught.is_empty() && self.unreached.is_empty() && self.unlisted.is_empty()
    }

    /// The distinct names that were caught.
    pub fn names(&self) -> BTreeSet<&Dropped> {
        self.caught.iter().map(|caught| &caught.dropped).collect()
    }
}

/// A table in Markdown, by name.
impl<Step> fmt::Display for GateReport<Step> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caught = self.caught.iter().map(|caught| {
            let Catch { dropped, seed, steps_done, step, .. } = caught;
            let cuts: Vec<String> = caught.cuts().iter().map(usize::to_string).collect();
            let case = format!("seed {seed}, after {steps_done} steps at `{step}`, cut {}", cuts.join(", then "));
            (dropped, caught.configuration(), case)
        });
        let elsewhere = self.elsewhere.iter().map(|(dropped, test)| (dropped, "", (*test).to_owned()));
        let uncaught =
            self.uncaught.iter().map(|(dropped, in_which)| (dropped, in_which.as_str(), "NOT CAUGHT".into()));
        let unreached = self.unreached.iter().map(|dropped| (dropped, "", "NOT REACHED".into()));
        let unlisted = self.unlisted.iter().map(|dropped| (dropped, "", "NOT LISTED".into()));
        let mut rows: Vec<(&Dropped, &str, String)> =
            caught.chain(elsewhere).chain(uncaught).chain(unreached).chain(unlisted).collect();
        rows.sort_by_key(|(dropped, ..)| (&dropped.site, dropped.instruction));
        writeln!(formatter, "| left out | structure | what shows its loss |\n|---|---|---|")?;
        rows.iter().try_for_each(|(dropped, configuration, what)| {
            let structure = [self.structure, configuration].join(" ");
            writeln!(formatter, "| `{dropped}` | {} | {what} |", structure.trim_end())
        })
    }
}

/// Leaves out one flush or fence of the subjects after the other, and searches for a crash that
/// shows it.
///
/// Subjects on media that need no flushes are skipped. The names come from histories and from the
/// recoveries that follow their crashes. They are compared with the names that the structure lists
/// ([`Subject::places`]). It is an error if a history goes wrong with nothing left out.
///
/// Every subject is searched near what was left out, then between steps, and at last everywhere.
/// The last takes many times as long, and seldom shows more.
pub fn gate<S: Subject>(subjects: &[S], gate: &Gate) -> Result<GateReport<S::Step>, Box<Failure<S::Step>>> {
    let mut report = GateReport::new();
    let (mut all, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let is_meant = |dropped: &&Dropped| gate.only.as_ref().is_none_or(|only| only == *dropped);
    let mut searched = Vec::new();
    for subject in subjects.iter().filter(|subject| subject.domain() == PersistenceDomain::Adr) {
        report.structure = subject.structure();
        let listed = places::all(&subject.places());
        let of_creation =
            own_names(subject, Instruction::sites(&History::record(subject, Vec::new(), None)?.controller));
        let Names { of_history, of_recoveries } = all_names(subject, gate.seeds.start, gate.names_stride)?;
        let reached: BTreeSet<Dropped> = of_history.union(&of_recoveries).filter(is_meant).cloned().collect();
        all.extend(listed.iter().filter(is_meant).cloned());
        report.unlisted.extend(reached.difference(&listed).cloned());
        seen.extend(reached.iter().cloned());
        let (elsewhere, open): (Vec<_>, Vec<_>) =
            reached.into_iter().partition(|dropped| subject.shown_by(dropped).is_some());
        report.elsewhere.extend(elsewhere.into_iter().filter_map(|one| subject.shown_by(&one).map(|test| (one, test))));
        searched.push(Searched { subject, of_creation, of_recoveries, open, logs: BTreeMap::new() });
    }
    let mut caught: BTreeSet<Dropped> = BTreeSet::new();
    for search in [near as Search<S>, between_steps, everywhere] {
        for one in &mut searched {
            one.open.retain(|dropped| gate.in_all || !caught.contains(dropped));
            let found = one.catch_all(search, gate, &mut report.tally)?;
            caught.extend(found.iter().map(|caught| caught.dropped.clone()));
            report.caught.extend(found);
        }
    }
    for Searched { subject, open, .. } in searched {
        let open = open.into_iter().filter(|dropped| gate.in_all || !caught.contains(dropped));
        report.uncaught.extend(open.map(|dropped| (dropped, subject.configuration().to_owned())));
    }
    for dropped in all.difference(&seen) {
        match subjects.iter().find_map(|subject| subject.shown_by(dropped)) {
            Some(test) => _ = report.elsewhere.insert(dropped.clone(), test),
            None => _ = report.unreached.insert(dropped.clone()),
        }
    }
    Ok(report)
}

/// What was caught, unless a history goes wrong with nothing left out.
type Caught<S> = Result<Vec<Catch<<S as Subject>::Step>>, Box<Failure<<S as Subject>::Step>>>;

/// A subject, and its names that no crash has shown yet.
struct Searched<'s, S: Subject> {
    subject: &'s S,
    of_creation: BTreeSet<Dropped>,
    of_recoveries: BTreeSet<Dropped>,
    open: Vec<Dropped>,
    /// The events of each seed's history with nothing left out.
    logs: BTreeMap<u64, Vec<Event>>,
}

impl<S: Subject> Searched<'_, S> {
    /// Searches for the names that are open. Those that are caught are not open any more.
    fn catch_all(&mut self, search: Search<S>, gate: &Gate, tally: &mut Tally) -> Caught<S> {
        let (subject, mut caught) = (self.subject, Vec::new());
        for dropped in std::mem::take(&mut self.open) {
            let is_of_creation = self.of_creation.contains(&dropped);
            let is_of_recovery = self.of_recoveries.contains(&dropped);
            let mut found = None;
            for seed in gate.seeds.clone() {
                if let Entry::Vacant(free) = self.logs.entry(seed) {
                    free.insert(History::record(subject, subject.steps(seed), None)?.controller.log());
                }
                let places = left_out(&self.logs[&seed], &dropped);
                let looked = Omission { dropped: &dropped, seed, places, is_of_creation, is_of_recovery };
                found = catch(subject, &looked, search, gate, tally);
                if found.is_some() {
                    break;
                }
            }
            match found {
                Some(found) => caught.push(found),
                None => self.open.push(dropped),
            }
        }
        Ok(caught)
    }
}

/// The flushes and fences of a subject.
struct Names {
    /// In a history, including its creation.
    of_history: BTreeSet<Dropped>,
    /// In recovery from its crashes.
    of_recoveries: BTreeSet<Dropped>,
}

/// The flushes and fences of a subject in a history, including its creation, and in recovery from
/// crashes at one in `stride` of its cuts.
pub fn names<S: Subject>(subject: &S, seed: u64, stride: usize) -> Result<BTreeSet<Dropped>, Box<Failure<S::Step>>> {
    let Names { of_history, of_recoveries } = all_names(subject, seed, stride)?;
    Ok(of_history.into_iter().chain(of_recoveries).collect())
}

fn all_names<S: Subject>(subject: &S, seed: u64, stride: usize) -> Result<Names, Box<Failure<S::Step>>> {
    let history = History::record(subject, subject.steps(seed), None)?;
    let mut of_recoveries = BTreeSet::new();
    let extremes = Budget { exhaustive_pending: 0, samples: 0, name_order: NameOrder::AnySubset };
    for cut in history.power_cuts_from(0).into_iter().step_by(stride.max(1)) {
        let losses = history.controller.images(cut, &extremes, seed);
        for image in losses.chain([history.controller.process_kill(cut)]) {
            let restarted = image.restart();
            // A problem with it is reported by the search itself.
            let _ = recover(subject, &restarted, None);
            of_recoveries.extend(Instruction::sites(&restarted));
        }
    }
    let of_history = own_names(subject, Instruction::sites(&history.controller));
    Ok(Names { of_history, of_recoveries: own_names(subject, of_recoveries) })
}

fn own_names<S: Subject>(subject: &S, names: BTreeSet<(Instruction, &'static str)>) -> BTreeSet<Dropped> {
    let places = subject.places();
    let own = names.into_iter().filter(|(_, site)| places.iter().any(|place| place.name() == *site));
    own.map(|(instruction, site)| Dropped { instruction, site: site.to_owned() }).collect()
}

/// The instruction that is left out, and from which history.
struct Omission<'d> {
    dropped: &'d Dropped,
    seed: u64,
    /// Its occurrences in the history.
    places: Vec<usize>,
    is_of_creation: bool,
    is_of_recovery: bool,
}

/// A search of a history that leaves something out.
type Search<S> =
    fn(&mut Explorer<'_, S>, &History<'_, S>, &Omission<'_>, &Gate) -> Option<Box<Failure<<S as Subject>::Step>>>;

/// Tries crashes soon after what was left out, also in recoveries.
fn near<S: Subject>(
    explorer: &mut Explorer<'_, S>,
    history: &History<'_, S>,
    &Omission { dropped, ref places, is_of_creation, is_of_recovery, .. }: &Omission<'_>,
    gate: &Gate,
) -> Option<Box<Failure<S::Step>>> {
    let cuts = history.power_cuts_from(0);
    // If only the creation has it, crashes there show it soonest.
    let is_meant = |cut: &usize| is_of_creation && history.steps_done(*cut).is_none();
    let of_creation: Vec<usize> = cuts.iter().copied().filter(is_meant).collect();
    let near = Near { places, cuts: &cuts }.cuts_of(&history.controller.log());
    near.into_iter()
        .find_map(|cut| explorer.power_losses(history, cut, &gate.near).err())
        .or_else(|| search_cuts(explorer, history, &of_creation, &gate.breadth, 1))
        .or_else(|| is_of_recovery.then(|| near_in_recovery(explorer, history, dropped, gate)).flatten())
}

/// Tries crashes between two steps, long after something was left out. If recoveries have it, the
/// steps follow one of these.
fn between_steps<S: Subject>(
    explorer: &mut Explorer<'_, S>,
    history: &History<'_, S>,
    &Omission { dropped, is_of_recovery, .. }: &Omission<'_>,
    gate: &Gate,
) -> Option<Box<Failure<S::Step>>> {
    let breadth = narrowed(&gate.breadth);
    let mut tried = BTreeSet::new();
    let mut after = |cut| explorer.after_recovery_without(history, cut, dropped, &breadth, &mut tried).err();
    let in_recovery = is_of_recovery.then(|| spread(history.power_cuts_from(0)).into_iter().find_map(&mut after));
    in_recovery.flatten().or_else(|| {
        let mut ends = history.ends();
        ends.find_map(|end| explorer.power_losses(history, end, &breadth).err())
    })
}

/// Tries crashes everywhere.
fn everywhere<S: Subject>(
    explorer: &mut Explorer<'_, S>,
    history: &History<'_, S>,
    _: &Omission<'_>,
    gate: &Gate,
) -> Option<Box<Failure<S::Step>>> {
    search_cuts(explorer, history, &spread(history.power_cuts_from(0)), &gate.breadth, gate.inside_stride)
}

fn catch<S: Subject>(
    subject: &S,
    looked: &Omission<'_>,
    search: Search<S>,
    gate: &Gate,
    tally: &mut Tally,
) -> Option<Catch<S::Step>> {
    let &Omission { dropped, seed, .. } = looked;
    let failure = match History::record(subject, subject.steps(seed), Some(dropped.clone())) {
        Err(failure) => Some((failure, Some(0))),
        Ok(history) => {
            let mut explorer = Explorer::new(subject);
            explorer.tally.histories += 1;
            let found = search(&mut explorer, &history, looked, gate);
            *tally += explorer.tally;
            found.map(|failure| {
                let done = failure.case.crashes.first().and_then(|crash| history.steps_done(crash.cut));
                (failure, done)
            })
        }
    };
    let (failure, steps_done) = failure?;
    let step = match steps_done {
        None => "the creation".to_owned(),
        Some(done) => failure.case.steps.get(done).map_or("the end".to_owned(), S::Step::to_string),
    };
    let steps_done = steps_done.unwrap_or(0);
    Some(Catch { dropped: dropped.clone(), failure: *failure, seed, steps_done, step })
}

/// The first problem after crashes at some cuts. If there is none, the first after crashes at some
/// of these and in the recovery that follows.
fn search_cuts<S: Subject>(
    explorer: &mut Explorer<'_, S>,
    history: &History<'_, S>,
    cuts: &[usize],
    breadth: &Breadth,
    inside_stride: usize,
) -> Option<Box<Failure<S::Step>>> {
    let found = cuts.iter().find_map(|cut| explorer.power_losses(history, *cut, breadth).err());
    let breadth = narrowed(breadth);
    let mut few = cuts.iter().step_by(inside_stride.max(1));
    found.or_else(|| few.find_map(|cut| explorer.inside_recovery(history, *cut, &breadth).err()))
}

/// The first problem after a crash in a recovery, soon after something was left out there.
fn near_in_recovery<S: Subject>(
    explorer: &mut Explorer<'_, S>,
    history: &History<'_, S>,
    dropped: &Dropped,
    gate: &Gate,
) -> Option<Box<Failure<S::Step>>> {
    let mut tried = BTreeSet::new();
    let cuts = spread(history.power_cuts_from(0));
    cuts.into_iter().find_map(|cut| explorer.inside_recovery_near(history, cut, dropped, &gate.near, &mut tried).err())
}

/// For crashes that are many.
fn narrowed(&Breadth { branches, samples, seed }: &Breadth) -> Breadth {
    Breadth { branches: branches.min(8), samples: samples.min(4), seed }
}

/// The cuts in another order, distant ones next to each other: most faults are caught soon
/// somewhere.
fn spread(cuts: Vec<usize>) -> Vec<usize> {
    let keyed: BTreeMap<u32, usize> =
        cuts.iter().enumerate().map(|(number, &cut)| ((number as u32).reverse_bits(), cut)).collect();
    keyed.into_values().collect()
}
