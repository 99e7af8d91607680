//! `terrane-lab crash`: looks for crashes that a structure in persistent memory does not survive.

mod show;
mod structures;

use std::collections::BTreeSet;
use std::io::Write;
use std::str::FromStr;
use std::time::Instant;

use anyhow::Result;
use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::{
    Breadth, Case, Dropped, Failure, Gate, Part, Sample, Tally, check_canary, gate, names, replay, sample, shrink,
};

pub use show::Format;
use structures::{Structure, Visitor};

/// Default number of images to try.
const BUDGET: u64 = 100_000;

/// Histories that are drawn for each omitted flush or fence, until it is caught.
const GATE_SEEDS: u64 = 20;

/// Histories that are drawn to reach a flush or fence by its name.
const SITE_SEEDS: u64 = 5;

/// Seeds count up from the given one.
const SEED_MAX: u64 = u64::MAX >> 1;

/// How many images of each cut are tried to see that a fault is caught.
const BREADTH: Breadth = Breadth { branches: 128, samples: 32, seed: 1 };

/// Options that lead to another search than the exhaustive one. If one is given, clap no longer
/// demands the options that another option requires.
const OTHER_SEARCHES: [&str; 3] = ["gate", "drop", "replay"];

/// Options of `crash`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Structure to explore; `terrane-lab list` shows them.
    pub structure: String,
    /// Configurations to explore; all when absent. An unknown name lists them.
    #[arg(long, value_name = "CONFIGURATION,…", value_delimiter = ',', conflicts_with = "replay")]
    pub only: Vec<String>,
    /// Seed of the histories and crashes.
    #[arg(long, default_value_t = crate::workload::SEED, value_parser = clap::value_parser!(u64).range(..=SEED_MAX),
        conflicts_with = "exhaustive")]
    pub seed: u64,
    /// Number of crash images to examine.
    #[arg(long, value_name = "IMAGES", default_value_t = BUDGET, value_parser = clap::value_parser!(u64).range(1..),
        conflicts_with_all = ["gate", "exhaustive", "replay"])]
    pub budget: u64,
    /// Flush or fence to leave out, to see that its absence is caught: NAME, flush:NAME or
    /// fence:NAME. If random crashes do not catch it, the search of --gate follows.
    #[arg(long, value_name = "SITE", conflicts_with_all = ["gate", "exhaustive"])]
    pub drop: Option<String>,
    /// Leave out each flush and fence in turn, and report what catches it.
    #[arg(long, conflicts_with = "exhaustive")]
    pub gate: bool,
    /// Try every small case in place of random ones. Of trees: the configurations of 4 entries a
    /// node on adr. Of pmwcas: every cut of ten histories, with all of its images, or 2048 and 200
    /// random ones if there are more. Of a page cache: 4 random images.
    #[arg(long)]
    pub exhaustive: bool,
    /// Try a part of the small cases, such as 1/4 for the first of four. This divides a long
    /// search.
    #[arg(long, value_name = "K/N", requires = "exhaustive", conflicts_with_all = OTHER_SEARCHES,
        default_value_t = Part::ALL)]
    pub part: Part,
    /// For the small cases, also try crashes inside of every recovery, which takes four times as
    /// long.
    #[arg(long, requires = "exhaustive", conflicts_with_all = OTHER_SEARCHES)]
    pub in_recoveries: bool,
    /// Run one case again, as a failure has printed it.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["gate", "exhaustive"])]
    pub replay: Option<String>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No violation was found.
    Clean,
    /// One was found, or the explorer does not work. It has been printed.
    Violation,
}

/// A request for something that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

/// Names and descriptions of the structures.
pub fn structures() -> impl Iterator<Item = (&'static str, &'static str)> {
    structures::ALL.into_iter()
}

/// Runs the search. An error that is [`Usage`] is the caller's.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Verdict> {
    // A structure that is wrong may panic over meaningless words. That is reported as a failure.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let outcome = structures::visit(&options.structure, &mut Run { options, out });
    std::panic::set_hook(hook);
    outcome.unwrap_or_else(|| {
        let names: Vec<_> = structures().map(|(name, _)| name).collect();
        Err(Usage(format!("no structure {}; there are: {}", options.structure, names.join(", "))).into())
    })
}

struct Run<'r> {
    options: &'r Options,
    out: &'r mut dyn Write,
}

impl Visitor for Run<'_> {
    type Output = Result<Verdict>;

    fn visit<S: Structure>(&mut self) -> Result<Verdict> {
        let subjects = chosen::<S>(&self.options.only)?;
        let dropped =
            self.options.drop.as_deref().map(|name| find_site(&subjects, name, self.options.seed)).transpose()?;
        if let Some(text) = &self.options.replay {
            return self.replay(&subjects, text, dropped);
        }
        if let Err(broken) = check_canary(&BREADTH) {
            writeln!(self.out, "{broken}")?;
            return Ok(Verdict::Violation);
        }
        if self.options.gate {
            return self.gate(&subjects, None);
        }
        if self.options.exhaustive {
            return self.exhaust(&subjects);
        }
        // An omitted instruction matters only where lines have to be flushed.
        let subjects: Vec<S> = subjects
            .into_iter()
            .filter(|subject| dropped.is_none() || subject.domain() == PersistenceDomain::Adr)
            .collect();
        let begun = Instant::now();
        let options = Sample { seed: self.options.seed, images: self.options.budget, dropped: dropped.clone() };
        let (tally, failure) = sample(&subjects, &options);
        let configurations: Vec<&str> = subjects.iter().map(|subject| subject.configuration()).collect();
        self.tell(S::NAME, &configurations.join(", "), &tally, begun)?;
        match dropped {
            // The gate searches near the omitted instruction, and inside of recoveries.
            Some(dropped) if failure.is_none() => self.gate(&subjects, Some(dropped)),
            _ => self.conclude(&subjects, failure),
        }
    }
}

impl Run<'_> {
    fn tell(&mut self, structure: &str, configurations: &str, tally: &Tally, begun: Instant) -> Result<()> {
        Ok(show::tally(self.options.format, structure, configurations, tally, begun.elapsed(), self.out)?)
    }

    fn conclude<S: Structure>(&mut self, subjects: &[S], failure: Option<Failure<S::Step>>) -> Result<Verdict> {
        let Some(failure) = failure else { return Ok(Verdict::Clean) };
        let subject = subjects.iter().find(|subject| subject.configuration() == failure.case.configuration);
        let failure = match subject {
            Some(subject) => shrink(subject, failure),
            None => failure,
        };
        show::failure(self.options.format, &failure, self.out)?;
        Ok(Verdict::Violation)
    }

    fn exhaust<S: Structure>(&mut self, subjects: &[S]) -> Result<Verdict> {
        let mut small = subjects.iter().filter(|subject| subject.has_small_cases()).peekable();
        if small.peek().is_none() {
            let named = self.options.only.join(", ");
            let all = S::configurations();
            let others: Vec<&str> =
                all.iter().filter(|other| other.has_small_cases()).map(|other| other.configuration()).collect();
            let others = others.join(", ");
            return Err(Usage(format!("{} has no small cases of {named}, but of {others}", S::NAME)).into());
        }
        for subject in small {
            let begun = Instant::now();
            let part = self.options.part;
            match subject.exhaust(part, self.options.in_recoveries) {
                Ok((tally, _)) if tally.histories == 0 => {
                    let what = format!(
                        "part {part} has no case of {}: there are fewer cases than parts",
                        subject.configuration()
                    );
                    return Err(Usage(what).into());
                }
                Ok((tally, what)) => {
                    self.tell(S::NAME, &format!("{}: {what}", subject.configuration()), &tally, begun)?;
                }
                Err(failure) => return self.conclude(subjects, Some(*failure)),
            }
        }
        Ok(Verdict::Clean)
    }

    fn gate<S: Structure>(&mut self, subjects: &[S], only: Option<Dropped>) -> Result<Verdict> {
        flushing(subjects)?;
        let begun = Instant::now();
        let seed = self.options.seed;
        let options = Gate {
            seeds: seed..seed + GATE_SEEDS,
            only,
            breadth: BREADTH,
            near: BREADTH,
            names_stride: 1,
            in_all: false,
            inside_stride: 3,
        };
        match gate(subjects, &options) {
            Err(failure) => self.conclude(subjects, Some(*failure)),
            Ok(mut report) => {
                show::gate(self.options.format, &report, self.out)?;
                self.tell(S::NAME, "the gate", &report.tally, begun)?;
                if options.only.is_some() {
                    // A catch of the omitted instruction is a violation like any other.
                    return self.conclude(subjects, report.caught.pop().map(|caught| caught.failure));
                }
                Ok(if report.is_closed() { Verdict::Clean } else { Verdict::Violation })
            }
        }
    }

    fn replay<S: Structure>(&mut self, subjects: &[S], text: &str, dropped: Option<Dropped>) -> Result<Verdict> {
        let mut case = Case::<S::Step>::from_str(text).map_err(|error| Usage(error.to_string()))?;
        case.dropped = dropped;
        let foreign = |what: String| match &case.dropped {
            Some(_) => Usage(what),
            None => Usage(format!("{what}; if it was found with a flush or fence left out, name that with --drop")),
        };
        match replay(find_configuration(subjects, &case.configuration)?, &case).map_err(foreign)? {
            None => {
                show::nothing(self.options.format, S::NAME, &case.configuration, self.out)?;
                Ok(Verdict::Clean)
            }
            Some(failure) => {
                show::failure(self.options.format, &failure, self.out)?;
                Ok(Verdict::Violation)
            }
        }
    }
}

/// The configurations of these names; all when there are none.
fn chosen<S: Structure>(names: &[String]) -> Result<Vec<S>> {
    let mut subjects = S::configurations();
    for name in names {
        find_configuration(&subjects, name)?;
    }
    subjects.retain(|subject| names.is_empty() || names.iter().any(|name| name == subject.configuration()));
    Ok(subjects)
}

/// The configuration of a name.
fn find_configuration<'s, S: Structure>(subjects: &'s [S], name: &str) -> Result<&'s S> {
    subjects.iter().find(|subject| subject.configuration() == name).ok_or_else(|| {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.configuration()).collect();
        Usage(format!("{} has no configuration {name}; there are: {}", S::NAME, names.join(", "))).into()
    })
}

/// The subjects on a medium where a flush or fence matters.
fn flushing<S: Structure>(subjects: &[S]) -> Result<Vec<&S>> {
    let flushing: Vec<&S> = subjects.iter().filter(|subject| subject.domain() == PersistenceDomain::Adr).collect();
    if flushing.is_empty() {
        let what = "a flush or fence matters only on adr, and no such configuration is chosen";
        return Err(Usage(what.to_owned()).into());
    }
    Ok(flushing)
}

/// The flush or fence with a name that one of the subjects has.
fn find_site<S: Structure>(subjects: &[S], name: &str, seed: u64) -> Result<Dropped> {
    let flushing = flushing(subjects)?;
    let is_meant = |site: &&Dropped| site.site == name || site.to_string() == name;
    let listed: BTreeSet<Dropped> = flushing
        .iter()
        .flat_map(|subject| subject.places())
        .flat_map(|place| place.dropped().collect::<Vec<_>>())
        .collect();
    let mut sites = BTreeSet::new();
    for seed in seed..seed + SITE_SEEDS {
        for subject in &flushing {
            sites.extend(names(*subject, seed, 7).map_err(|failure| anyhow::anyhow!("{failure}"))?);
        }
        // Not every history reaches each listed instruction.
        if sites.iter().any(|site| is_meant(&site)) || !listed.iter().any(|site| is_meant(&site)) {
            break;
        }
    }
    let all: BTreeSet<Dropped> = listed.iter().chain(&sites).cloned().collect();
    let meant: Vec<&Dropped> = all.iter().filter(is_meant).collect();
    let elsewhere =
        meant.iter().find_map(|site| flushing.iter().find_map(|subject| Some((*site, subject.shown_by(site)?))));
    let list = |sites: &mut dyn Iterator<Item = &Dropped>| sites.map(Dropped::to_string).collect::<Vec<_>>().join(", ");
    let what = match (meant.as_slice(), elsewhere) {
        (_, Some((dropped, test))) => {
            format!("no history of consecutive steps shows the loss of {dropped}; {test} does")
        }
        ([site], None) if sites.contains(*site) => return Ok((*site).clone()),
        ([site], None) => format!("none of the chosen configurations reaches {site}"),
        ([], None) => format!("no flush or fence {name}; there are: {}", list(&mut all.iter())),
        (several, None) => {
            format!("{name} is the name of a flush and of a fence: {}", list(&mut several.iter().copied()))
        }
    };
    Err(Usage(what).into())
}
