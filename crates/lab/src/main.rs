//! `terrane-lab`: the laboratory of Terrane.
//!
//! - `compare` measures Terrane beside its peers.
//! - `run` runs one experiment.
//! - `crash` searches for crashes that a structure does not survive.
//! - `map` draws an answer.
//!
//! Figures go to standard output, messages to standard error. Exit codes: 0 success, 1 failure, 2
//! usage.

#![forbid(unsafe_code)]

mod compare;
mod crash;
mod experiments;
mod map;
mod measure;
mod neighbours;
mod ordered;
mod parquet_file;
#[cfg(feature = "peers")]
mod peers;
mod progress;
mod report;
mod running;
mod system;
mod systems;
mod workload;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use compare::{Section, child};
use experiments::fbr::reopen;
use experiments::{Experiment, Setup, Unavailable};

#[derive(Parser)]
#[command(name = "terrane-lab", version, about = "The laboratory of Terrane")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments, systems and structures.
    List,
    /// Run one experiment. Each takes some of the options; an error names them.
    Run {
        /// Name of the experiment; `list` shows them.
        experiment: String,
        #[command(flatten)]
        options: compare::Options,
        #[command(flatten)]
        of_papers: experiments::Options,
    },
    /// Search for crashes that a persistent-memory structure does not survive.
    Crash(crash::Options),
    /// Compare Terrane with its peers.
    Compare(compare::Options),
    /// Draw a map of points, an answer and an outline.
    Map(map::Options),
    /// A task of `compare` that needs a process of its own.
    #[command(hide = true)]
    Child(child::Task),
    /// The process that `run fbr/reopen` kills.
    #[command(hide = true)]
    Grow(reopen::Growth),
}

const USAGE: u8 = 2;

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut out = io::stdout().lock();
    let outcome = match &cli.command {
        Command::List => list(&mut out).map_err(Into::into),
        Command::Run { experiment, options, of_papers } => {
            let given = matches.subcommand_matches("run").map(given_options).unwrap_or_default();
            match run(experiment, options, of_papers, &given, &mut out) {
                Ok(outcome) => outcome,
                Err(reason) => return usage(&reason),
            }
        }
        Command::Crash(options) => match crash::run(options, &mut out) {
            Ok(crash::Verdict::Clean) => Ok(()),
            Ok(crash::Verdict::Violation) => return ExitCode::FAILURE,
            Err(error) if error.is::<crash::Usage>() => return usage(&error.to_string()),
            Err(error) => Err(error),
        },
        Command::Compare(options) => {
            if let Some(reason) = options.refuse() {
                return usage(&reason);
            }
            compare::run(options, &mut out)
        }
        Command::Map(options) => map::run(options),
        Command::Child(task) => child::run(task, &mut out),
        Command::Grow(growth) => reopen::grow(growth, &mut out),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the figures has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Unavailable>() => usage(&format!("{error:#}")),
        Err(error) => {
            eprintln!("terrane-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Names of the options of `run` that were given.
fn given_options(matches: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    let options = command.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    options
        .map(|option| option.get_id().as_str())
        .filter(|id| *id != "experiment" && matches.value_source(id) == Some(ValueSource::CommandLine))
        .map(str::to_owned)
        .collect()
}

/// Runs a section of `compare` or an experiment of a paper. The error is one of usage.
fn run(
    name: &str,
    options: &compare::Options,
    of_papers: &experiments::Options,
    given: &[String],
    out: &mut impl io::Write,
) -> Result<anyhow::Result<()>, String> {
    let refuse_others = |takes: &[&str]| match given.iter().find(|option| !takes.contains(&option.as_str())) {
        Some(option) => {
            let takes = takes.iter().map(|name| flag(name)).collect::<Vec<_>>().join(", ");
            Err(format!("{name} takes no {}; it takes {takes}", flag(option)))
        }
        None => Ok(()),
    };
    if let Some(section) = Section::ALL.into_iter().find(|section| section.name() == name) {
        if !options.only.is_empty() {
            return Err("--only chooses sections of `compare`; `run` runs the one it names".to_owned());
        }
        refuse_others(&[section.takes(), &compare::COMMON].concat())?;
        let options = compare::Options { only: vec![section], ..options.clone() };
        return options.refuse().map_or_else(|| Ok(compare::run(&options, out)), Err);
    }
    let Some(experiment) = experiments::all().find(|experiment| experiment.name == name) else {
        let names: Vec<&str> =
            Section::ALL.map(Section::name).into_iter().chain(experiments::all().map(|other| other.name)).collect();
        return Err(format!("no experiment {name}; there are: {}", names.join(", ")));
    };
    refuse_others(&[experiment.takes, &experiments::COMMON].concat())?;
    if let Some(reason) = options.refuse().or_else(|| of_papers.refuse()) {
        return Err(reason);
    }
    let setup = Setup { options: of_papers.clone(), rounds: options.rounds, dir: options.dir.clone() };
    Ok(Experiment::run(experiment, &setup, options.format, out))
}

/// An option's name as it is given.
fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn usage(message: &str) -> ExitCode {
    eprintln!("terrane-lab: {message}");
    ExitCode::from(USAGE)
}

fn list(out: &mut impl io::Write) -> io::Result<()> {
    let systems = systems::all();
    let sections = Section::ALL.into_iter().map(|section| (section.name(), section.description()));
    let experiments = experiments::all().map(|experiment| (experiment.name, experiment.description));
    let groups: [(&str, Vec<(&str, &str)>); 3] = [
        ("experiments (terrane-lab run NAME)", sections.chain(experiments).collect()),
        ("systems (--systems NAME,…)", systems.iter().map(|system| (system.name(), system.settings())).collect()),
        ("structures (terrane-lab crash NAME)", crash::structures().collect()),
    ];
    let width = groups.iter().flat_map(|(_, rows)| rows).map(|(name, _)| name.len()).max().unwrap_or(0);
    for (title, rows) in groups {
        writeln!(out, "{title}")?;
        rows.into_iter().try_for_each(|(name, what)| writeln!(out, "  {name:<width$}  {what}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_experiment_takes_are_options_of_run() {
        let command = Cli::command();
        let options: Vec<&str> =
            command.find_subcommand("run").unwrap().get_arguments().map(|option| option.get_id().as_str()).collect();
        let of_sections = Section::ALL.into_iter().map(|section| (section.name(), section.takes()));
        let of_papers = experiments::all().map(|experiment| (experiment.name, experiment.takes));
        let common = [("a section", &compare::COMMON[..]), ("an experiment", &experiments::COMMON)];
        for (name, takes) in of_sections.chain(of_papers).chain(common) {
            for option in takes {
                assert!(options.contains(option), "{name} takes {option}");
            }
        }
    }
}
