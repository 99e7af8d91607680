//! `terrane sql`: runs SQL statements and prints their rows.

use std::io::{self, IsTerminal, Read};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use terrane::Store;
use terrane_formats::{GeometryColumns, OutputFormat, WriteOptions};
use terrane_sql::{Answer, Script, Session, SqlError};

use crate::args::{Common, SqlArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::{environment, output, place, shape};

pub fn run(arguments: &SqlArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = output::row_format(environment::query_format(arguments.format)?)?;
    let session = Session::new(&place::session_options(common))?;
    let texts = texts(arguments)?;
    // All are parsed before the first one runs.
    let scripts = texts.iter().map(|text| session.parse(text)).collect::<Result<Vec<Script>, SqlError>>()?;
    let mut store = open(arguments, common, messages)?;
    let mut is_first = true;
    for mut script in scripts {
        while !script.is_empty() {
            if !is_first {
                // The newest state. The old one is closed first: one memory limit holds for both.
                session.forget_store();
                drop(store);
                store = open(arguments, common, messages)?;
            }
            is_first = false;
            if let Some(answer) = session.run_next(&mut script, &store, &arguments.params)? {
                print(answer, format, common, messages)?;
            }
        }
    }
    Ok(())
}

fn open(arguments: &SqlArguments, common: &Common, messages: &Messages) -> Result<Arc<Store>, Failure> {
    Ok(Arc::new(place::open_to_query(&arguments.store, common, messages)?))
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
    let writer = output::answers_to_stdout(format, write_options(&schema), place::working_memory(common));
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

/// The first column of geometries is that of the rows.
fn write_options(schema: &SchemaRef) -> WriteOptions {
    let extension = |name: &str, field: &arrow_schema::Field| field.metadata().get(name).cloned().unwrap_or_default();
    let geometry = schema.fields().iter().find(|field| extension("ARROW:extension:name", field) == "geoarrow.wkb");
    WriteOptions {
        geometry: geometry
            .map_or(GeometryColumns::None, |field| GeometryColumns::Column { name: field.name().clone() }),
        planar: geometry.is_some_and(|field| !extension("ARROW:extension:metadata", field).contains("OGC:CRS84")),
        ..WriteOptions::default()
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Store(error) => error.into(),
            other => Self::new(u8::try_from(other.exit_code()).unwrap_or(Self::FAILURE), other.to_string()),
        }
    }
}
