//! The shell of `terrane sql`: statements that are typed, with history and completion.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use clap::ValueEnum;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Editor, Helper};
use signal_hook::consts::SIGINT;
use terrane_formats::OutputFormat;
use terrane_sql::ends_with_semicolon;

use super::Connection;
use crate::args::QueryFormat;
use crate::failure::Failure;
use crate::{output, shape};

const HELP: &str = "\
Statements end with a semicolon. Commands begin with a dot:
  .tables         the datasets
  .schema [NAME]  the columns of a dataset, or of all
  .timer on|off   print the time of each statement
  .mode FORMAT    the output format: table, ndjson, csv, geojson
  .read FILE      run the statements of a file
  .help           this text
  .quit           leave, as Ctrl-D does
Ctrl-C stops the statement that runs.";

/// Keywords for completion.
const KEYWORDS: &str = "ANALYZE BETWEEN BY CONFLICT COPY CREATE DELETE DESCRIBE DISTINCT DROP EXECUTE EXISTS EXPLAIN FROM \
                        GROUP HAVING INDEX INSERT INTO JOIN LEFT LIMIT ORDER PREPARE RETURNING SELECT SET SHOW TABLE \
                        TABLES UPDATE USING VALUES WHERE WITH";

/// Whether Ctrl-C was typed since the last statement began.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The state of a shell.
pub(super) struct Shell<'a> {
    connection: Connection<'a>,
    format: OutputFormat,
    has_timer: bool,
}

impl<'a> Shell<'a> {
    pub fn new(connection: Connection<'a>, format: OutputFormat) -> Result<Self, Failure> {
        signal_hook::flag::register(SIGINT, INTERRUPTED.clone())
            .map_err(|error| Failure::io("handle interrupts", &error))?;
        Ok(Self { connection, format, has_timer: false })
    }

    /// Reads and runs statements until the end of the input.
    pub fn run(mut self) -> Result<(), Failure> {
        let failed =
            |error: ReadlineError| Failure::new(Failure::FAILURE, format!("cannot read the terminal: {error}"));
        let mut editor: Editor<Names, DefaultHistory> = Editor::new().map_err(failed)?;
        editor.set_helper(Some(Names(self.names()?)));
        let history = history_file();
        if let Some(file) = &history {
            // There is none yet for the first shell.
            let _ = editor.load_history(file);
        }
        println!("Statements end with a semicolon; .help lists commands, Ctrl-D leaves.");
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { "terrane> " } else { "    ...> " };
            match editor.readline(prompt) {
                Ok(line) if text.is_empty() && line.trim().is_empty() => continue,
                Ok(line) if text.is_empty() && line.trim_start().starts_with('.') => {
                    let _ = editor.add_history_entry(line.trim());
                    match self.command(line.trim()) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(failure) => self.report(&failure),
                    }
                }
                Ok(line) => {
                    text.push_str(&line);
                    text.push('\n');
                    if ends_with_semicolon(&text) {
                        let statements = std::mem::take(&mut text);
                        let _ = editor.add_history_entry(statements.trim());
                        self.statements(&statements);
                    }
                }
                Err(ReadlineError::Interrupted) => text.clear(),
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(failed(error)),
            }
        }
        if let Some(file) = history {
            if let Some(folder) = file.parent() {
                let _ = std::fs::create_dir_all(folder);
            }
            if let Err(error) = editor.save_history(&file) {
                self.connection.messages.warn(format_args!("the history is not saved: {error}"));
            }
        }
        Ok(())
    }

    /// The names of datasets, columns and keywords.
    fn names(&mut self) -> Result<Vec<String>, Failure> {
        let store = self.connection.store(false)?;
        let mut names: Vec<String> = KEYWORDS.split_whitespace().map(str::to_owned).collect();
        names.extend(self.connection.session.function_names());
        for dataset in store.dataset_names() {
            if let Ok(found) = store.dataset(&dataset) {
                names.extend(found.schema().column_names().map(str::to_owned));
            }
            names.push(dataset);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn report(&self, failure: &Failure) {
        if let Some(message) = failure.message() {
            self.connection.messages.error(message);
        }
    }

    /// Runs a command; false to leave.
    fn command(&mut self, line: &str) -> Result<bool, Failure> {
        let (command, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (command, argument.trim()) {
            (".quit" | ".exit", _) => return Ok(false),
            (".help", _) => println!("{HELP}"),
            (".tables", _) => self.statements("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"),
            (".schema", "") => self.statements(
                "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'",
            ),
            (".schema", table) => self.statements(&format!("DESCRIBE {table}")),
            (".timer", "on" | "off") => self.has_timer = argument.trim() == "on",
            (".mode", name) => {
                let format = QueryFormat::from_str(name, true)
                    .map_err(|_| Failure::usage(format!("{name:?} is not an output format; see .help")))?;
                self.format = output::row_format(Some(format))?;
            }
            (".read", file) => {
                let text = shape::read_file(".read", file)?;
                self.statements(&text);
            }
            _ => return Err(Failure::usage(format!("{command} is not a command, or lacks its argument; see .help"))),
        }
        Ok(true)
    }

    /// Runs statements until the first error, and reports it.
    fn statements(&mut self, text: &str) {
        let outcome = self.try_statements(text);
        // Other processes may write between two lines.
        if let Err(failure) = outcome.and(self.connection.close()) {
            self.report(&failure);
        }
    }

    fn try_statements(&mut self, text: &str) -> Result<(), Failure> {
        let mut script = self.connection.session.parse(text)?;
        while !script.is_empty() {
            INTERRUPTED.store(false, Ordering::Relaxed);
            let started = Instant::now();
            let run = || self.connection.run_next(&mut script, self.format);
            terrane::interruptible(|| INTERRUPTED.load(Ordering::Relaxed), run)?;
            if self.has_timer {
                let seconds = started.elapsed().as_secs_f64();
                self.connection.messages.answer(format_args!("time: {seconds:.3} s"));
            }
        }
        Ok(())
    }
}

/// The file of the history, beside that of other programs.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    Some(state.or_else(|| home.map(|home| home.join(".local/state")))?.join("terrane/sql_history"))
}

/// Completes names.
struct Names(Vec<String>);

impl Completer for Names {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let start = line[..position]
            .rfind(|sign: char| !(sign.is_alphanumeric() || sign == '_'))
            .map_or(0, |place| place + line[place..].chars().next().map_or(1, char::len_utf8));
        let begun = line[start..position].to_lowercase();
        let fitting = self.0.iter().filter(|name| !begun.is_empty() && name.to_lowercase().starts_with(&begun));
        Ok((start, fitting.cloned().collect()))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}
