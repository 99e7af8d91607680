//! `terrane sql`: runs SQL statements and prints their rows.

mod shell;

use std::io::{self, IsTerminal, Read};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use terrane::Store;
use terrane_formats::OutputFormat;
use terrane_sql::{Answer, Script, Session, SqlError};

use crate::args::{Common, SqlArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::{self, StorePlace};
use crate::{environment, output, shape};

pub fn run(arguments: &SqlArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = output::row_format(environment::query_format(arguments.format)?)?;
    let session = Session::new(&place::session_options(common))?;
    let connection = Connection { session, arguments, common, messages, writer: None };
    let has_statements = !arguments.sql.is_empty() || !arguments.files.is_empty();
    if !has_statements && io::stdin().is_terminal() && io::stdout().is_terminal() {
        return shell::Shell::new(connection, format)?.run();
    }
    run_texts(connection, &texts(arguments)?, format)
}

fn run_texts(mut connection: Connection<'_>, texts: &[String], format: OutputFormat) -> Result<(), Failure> {
    // All are parsed before the first one runs.
    let scripts = texts.iter().map(|text| connection.session.parse(text)).collect::<Result<Vec<Script>, SqlError>>()?;
    let mut outcome = Ok(());
    for mut script in scripts {
        while !script.is_empty() && outcome.is_ok() {
            outcome = connection.run_next(&mut script, format);
        }
    }
    outcome.and(connection.close())
}

/// The store of a run. A statement that reads opens it anew, for the newest state. The first one
/// that changes it opens it for writing, until the connection is closed.
struct Connection<'a> {
    session: Session,
    arguments: &'a SqlArguments,
    common: &'a Common,
    messages: &'a Messages,
    writer: Option<(StorePlace, Arc<Store>)>,
}

impl Connection<'_> {
    /// Runs the next statement of a script, and prints its rows.
    fn run_next(&mut self, script: &mut Script, format: OutputFormat) -> Result<(), Failure> {
        let store = self.store(self.session.changes_next(script))?;
        if let Some(answer) = self.session.run_next(script, &store, &self.arguments.params)? {
            let done = answer.done();
            print(answer, format, self.common, self.messages)?;
            if let Some((done, rows)) = done {
                self.messages.answer(format_args!("{} {done}", terrane::counted(rows, "row", "rows")));
            }
        }
        Ok(())
    }

    fn store(&mut self, to_write: bool) -> Result<Arc<Store>, Failure> {
        if let Some((_, store)) = &self.writer {
            return Ok(store.clone());
        }
        let path = &self.arguments.store;
        if !to_write {
            return Ok(Arc::new(place::open_to_query(path, self.common, self.messages)?));
        }
        if self.arguments.read_only {
            return Err(Failure::usage("the statement changes the store, which --read-only forbids"));
        }
        let place = StorePlace::examine(path)?;
        let store = Arc::new(place.open(None, self.common, self.messages)?);
        self.writer = Some((place, store.clone()));
        Ok(store)
    }

    /// Closes the store if it is open for writing.
    fn close(&mut self) -> Result<(), Failure> {
        if self.session.roll_back() {
            self.messages.warn("the transaction was not committed, so it has changed nothing");
        }
        let Some((place, store)) = self.writer.take() else { return Ok(()) };
        match Arc::into_inner(store) {
            Some(store) => place.close(store, self.messages),
            None => Err(Failure::new(Failure::FAILURE, "the store is in use and cannot be closed".to_owned())),
        }
    }
}

/// The texts of statements: arguments and files, or standard input.
fn texts(arguments: &SqlArguments) -> Result<Vec<String>, Failure> {
    let mut texts = arguments.sql.clone();
    for file in &arguments.files {
        texts.push(shape::read_file("--file", file)?);
    }
    if texts.is_empty() {
        if io::stdin().is_terminal() {
            return Err(Failure::usage("no statement is given; add one, use --file, or write to standard input"));
        }
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|error| Failure::io("read standard input", &error))?;
        texts.push(text);
    }
    Ok(texts)
}

/// Prints the rows of an answer. A statement without columns prints nothing.
fn print(mut answer: Answer, format: OutputFormat, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let schema: SchemaRef = answer.schema().clone();
    let first = answer.next_batch()?;
    if schema.fields().is_empty() && first.as_ref().is_none_or(|batch| batch.num_rows() == 0) {
        return Ok(());
    }
    let writer = output::answers_to_stdout(format, terrane_sql::write_options(&schema), place::working_memory(common));
    let mut failed = None;
    let rest = std::iter::from_fn(|| {
        let next = answer.next_batch().transpose()?;
        Some(next.map_err(|error| {
            failed = Some(error);
            terrane::Error::Cancelled
        }))
    });
    let mut batches = first.into_iter().map(Ok).chain(rest);
    let printed = output::print_batches(&schema, &mut batches, writer, messages);
    drop(batches);
    failed.map_or(printed, |error| Err(error.into()))
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Store(error) => error.into(),
            other => Self::new(u8::try_from(other.exit_code()).unwrap_or(Self::FAILURE), other.to_string()),
        }
    }
}
