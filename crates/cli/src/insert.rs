//! `terrane insert`: records from standard input, each acknowledged by its key.
//!
//! What has arrived is written as one batch, with one sync, before more is waited for: a lone
//! producer gets its key at once, and a fast one shares syncs.

mod batch;
mod first;
mod lines;
mod row;

use std::io::{self, BufWriter, Write};

use terrane::schema::Schema;
use terrane::{CoordinateSystem, Dataset, OnConflict, Store};
use terrane_formats::{JsonRecord, parse_record};

use crate::args::{Common, InsertArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::StorePlace;

use lines::{Line, Lines};
use row::Row;

/// Records that are written with one sync, at most.
const BATCH_LINES_MAX: usize = 1000;

pub fn run(arguments: &InsertArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let place = StorePlace::examine(&arguments.store)?;
    let store = place.open(arguments.durability, common)?;
    let mut insertion = Insertion::new(arguments, &store, messages)?;
    let outcome = insertion.run();
    let (inserted, refused) = (insertion.inserted, insertion.refused);
    drop(insertion);
    if let Err(failure) = outcome {
        place.undo(store);
        return Err(failure);
    }
    store.close()?;
    messages.info(format_args!("inserted {inserted} records into {}", arguments.dataset));
    match refused {
        0 => Ok(()),
        _ => Err(Failure::refused(format!("{refused} records were refused"))),
    }
}

/// The records of one standard input on their way into a dataset.
struct Insertion<'a> {
    arguments: &'a InsertArguments,
    messages: &'a Messages,
    store: &'a Store,
    /// `None` until the first valid record shows what the dataset is like.
    dataset: Option<Dataset>,
    inserted: u64,
    refused: u64,
}

impl<'a> Insertion<'a> {
    fn new(arguments: &'a InsertArguments, store: &'a Store, messages: &'a Messages) -> Result<Self, Failure> {
        let dataset = match store.dataset(&arguments.dataset) {
            Ok(dataset) => Some(dataset),
            Err(terrane::Error::UnknownDataset { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(dataset) = &dataset
            && arguments.planar
            && dataset.schema().system != CoordinateSystem::Planar
        {
            return Err(Failure::usage(format!(
                "dataset {:?} holds longitude and latitude; leave --planar out, or insert into another dataset",
                arguments.dataset
            )));
        }
        Ok(Self { arguments, messages, store, dataset, inserted: 0, refused: 0 })
    }

    fn run(&mut self) -> Result<(), Failure> {
        let mut lines = Lines::new(io::stdin().lock());
        loop {
            let arrived = lines.next(BATCH_LINES_MAX).map_err(|error| Failure::io("read standard input", &error))?;
            if arrived.is_empty() {
                return Ok(());
            }
            let mut rows = Vec::with_capacity(arrived.len());
            for line in &arrived {
                match self.take(line)? {
                    Ok(row) => rows.push(row),
                    Err(reason) => self.refuse(line.number, reason),
                }
            }
            self.write(&rows)?;
        }
    }

    /// A line as a row of the dataset, which is created if this is the first; or the reason
    /// why the line is refused.
    fn take(&mut self, line: &Line) -> Result<Result<Row, String>, Failure> {
        let text = match &line.text {
            Ok(text) => text,
            Err(reason) => return Ok(Err(reason.clone())),
        };
        let record = match parse_record(text) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let dataset = match &self.dataset {
            Some(dataset) => dataset,
            None => match first::schema_of(&record, text, self.arguments.planar) {
                Ok(schema) => {
                    if let Err(reason) = row::convert(&record, &schema, line.number) {
                        return Ok(Err(reason));
                    }
                    self.create(schema)?
                }
                Err(reason) => return Ok(Err(reason)),
            },
        };
        convert_and_extend(dataset, &record, line.number)
    }

    fn create(&mut self, schema: Schema) -> Result<&Dataset, Failure> {
        let name = &self.arguments.dataset;
        self.messages.info(first::description(name, &schema));
        let dataset = self.store.create_dataset(name, schema)?;
        Ok(self.dataset.insert(dataset))
    }

    /// Writes rows, and prints the keys of those that are durable then.
    fn write(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let Some(dataset) = self.dataset.clone() else {
            return Ok(());
        };
        let on_conflict = match self.arguments.upsert {
            true => OnConflict::Replace,
            false => OnConflict::Refuse,
        };
        let schema = dataset.schema();
        // A batch brings keys for all of its rows or for none.
        for group in rows.chunk_by(|a, b| a.key.is_some() == b.key.is_some()) {
            let batch = batch::of_rows(group, &schema)?;
            let outcome = dataset.write_batch(&batch, on_conflict)?;
            self.inserted += outcome.keys.len() as u64;
            print_keys(&outcome.keys, self.inserted)?;
            for refused in outcome.refused {
                let line = group.get(refused.row).map_or(0, |row| row.line);
                self.refuse(line, reason_of(&refused.error));
            }
        }
        Ok(())
    }

    fn refuse(&mut self, line: u64, reason: String) {
        self.refused += 1;
        self.messages.error(format_args!("line {line}: {reason}"));
    }
}

fn reason_of(error: &terrane::Error) -> String {
    match error {
        terrane::Error::DuplicateKey { key } => {
            format!("a record with the key {key} exists already; --upsert replaces it")
        }
        other => other.to_string(),
    }
}

/// Turns a record into a row, after the dataset got the columns that the record calls for.
fn convert_and_extend(dataset: &Dataset, record: &JsonRecord, line: u64) -> Result<Result<Row, String>, Failure> {
    let row = match row::convert(record, &dataset.schema(), line) {
        Ok(row) => row,
        Err(reason) => return Ok(Err(reason)),
    };
    for column in &row.added {
        match dataset.add_column(column.clone()) {
            Ok(()) => {}
            Err(error) if error.is_refusal() => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
    for name in &row.widened {
        dataset.widen_column(name)?;
    }
    Ok(Ok(row))
}

/// Prints keys as JSON scalars, one a line. Whoever sees one can rely on its record.
fn print_keys(keys: &[terrane::Key], inserted: u64) -> Result<(), Failure> {
    let mut output = BufWriter::new(io::stdout().lock());
    let printed = keys.iter().try_for_each(|key| writeln!(output, "{key}")).and_then(|()| output.flush());
    printed.map_err(|error| match error.kind() {
        // Unlike the rows of a query, records that are not read from standard input are lost.
        io::ErrorKind::BrokenPipe => Failure::new(
            Failure::FAILURE,
            format!("standard output was closed; stopped after {inserted} durable records"),
        ),
        _ => Failure::stdout(&error),
    })
}
