//! `terrane-lab`: the laboratory of Terrane.
//!
//! `compare` measures Terrane beside its peers, `run` one experiment, `crash` looks for crashes a structure does
//! not survive, `map` draws an answer. Figures go to standard output, messages to standard error.
//! Exit codes: 0 success, 1 failure, 2 usage.

#![forbid(unsafe_code)]

mod compare;
mod crash;
mod map;
mod measure;
mod neighbours;
mod parquet_file;
#[cfg(feature = "peers")]
mod peers;
mod report;
mod system;
mod systems;
mod workload;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use compare::{Section, child};

#[derive(Parser)]
#[command(name = "terrane-lab", version, about = "The laboratory of Terrane")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments, systems and structures there are.
    List,
    /// Run one experiment.
    Run {
        /// Name of the experiment; `list` shows them.
        experiment: String,
        #[command(flatten)]
        options: compare::Options,
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
}

const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    let outcome = match &cli.command {
        Command::List => list(&mut out).map_err(Into::into),
        Command::Run { experiment, options } => {
            let section = Section::ALL.into_iter().find(|section| section.name() == experiment);
            let Some(section) = section else {
                return usage(&format!(
                    "no experiment {experiment}; there are: {}",
                    Section::ALL.map(Section::name).join(", ")
                ));
            };
            if !options.only.is_empty() {
                return usage("--only chooses sections of `compare`; `run` runs the one it names");
            }
            let options = compare::Options { only: vec![section], ..options.clone() };
            if let Some(reason) = options.refuse() {
                return usage(&reason);
            }
            compare::run(&options, &mut out)
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
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the figures has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("terrane-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn usage(message: &str) -> ExitCode {
    eprintln!("terrane-lab: {message}");
    ExitCode::from(USAGE)
}

fn list(out: &mut impl io::Write) -> io::Result<()> {
    writeln!(out, "experiments (terrane-lab run NAME)")?;
    for section in Section::ALL {
        writeln!(out, "  {:<18}{}", section.name(), section.description())?;
    }
    writeln!(out, "systems (--systems NAME,…)")?;
    for system in systems::all() {
        writeln!(out, "  {:<18}{}", system.name(), system.settings())?;
    }
    writeln!(out, "structures (terrane-lab crash NAME)")?;
    crash::structures().try_for_each(|(name, what)| writeln!(out, "  {name:<18}{what}"))
}
