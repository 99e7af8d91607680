//! `terrane`: the command line of the Terrane spatial database.
//!
//! Results go to standard output, messages and progress to standard error. Exit codes: 0 success, 1
//! failure, 2 usage, 3 corruption found, 4 store locked, 5 data refused.

#![forbid(unsafe_code)]

mod args;
mod backup;
mod check;
mod column;
mod compact;
mod delete;
mod drop;
mod environment;
mod failure;
mod file_size;
mod import;
mod index;
mod info;
mod insert;
mod join;
mod lab;
mod map;
mod messages;
mod open_files;
mod output;
mod place;
mod policy;
mod query;
mod reading;
mod shape;
mod size;
#[cfg(feature = "sql")]
mod sql;

use std::io::{self, Write};
use std::process::ExitCode;

use args::{Cli, Command};
use failure::Failure;
use messages::Messages;

fn main() -> ExitCode {
    let cli = match Cli::from_command_line() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output. A reader that has closed it is no failure.
            let repeats_control = || std::env::args_os().any(|text| messages::has_control(&text.to_string_lossy()));
            let _ = match error.use_stderr() && repeats_control() {
                true => write!(io::stderr(), "{}", messages::escaped(&error)),
                false => error.print(),
            };
            return if error.use_stderr() { ExitCode::from(Failure::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let (messages, known) = environment::messages(&cli.common);
    messages.print_events();
    open_files::raise_limit();
    file_size::report_limit();
    match known.and_then(|()| run(&cli, &messages)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                messages.error(message);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: &Cli, messages: &Messages) -> Result<(), Failure> {
    let common = &environment::common(&cli.common)?;
    match &cli.command {
        Command::Import(arguments) => import::run(arguments, common, messages),
        Command::Insert(arguments) => insert::run(arguments, common, messages),
        Command::Delete(arguments) => delete::run(arguments, common, messages),
        Command::Query(arguments) => query::run(arguments, common, messages),
        Command::Map(arguments) => map::run(arguments, common, messages),
        #[cfg(feature = "sql")]
        Command::Sql(arguments) => sql::run(arguments, common, messages),
        Command::Join(arguments) => join::run(arguments, common, messages),
        Command::Index(arguments) => index::run(arguments, common, messages),
        Command::Column(arguments) => column::run(arguments, common, messages),
        Command::Drop(arguments) => drop::run(arguments, common, messages),
        Command::Policy(arguments) => policy::run(arguments, common, messages),
        Command::Info(arguments) => info::run(arguments, common),
        Command::Check(arguments) => check::run(arguments, common, messages),
        Command::Backup(arguments) => backup::take(arguments, common, messages),
        Command::Restore(arguments) => backup::restore(arguments, common, messages),
        Command::Compact(arguments) => compact::run(arguments, common, messages),
        Command::Lab(arguments) => lab::run(arguments),
    }
}
