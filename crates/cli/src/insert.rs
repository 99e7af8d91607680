//! `terrane insert`: records from standard input, each acknowledged by its key.
//!
//! What has arrived is written as one batch, with one sync, before more is waited for: a lone
//! producer gets its key at once, and a fast one shares syncs.

mod batch;
mod first;
mod lines;
mod row;
mod stop;

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use terrane::batch::BatchRecords;
use terrane::schema::Schema;
use terrane::{BatchOutcome, CoordinateSystem, Dataset, OnConflict, Store, counted};
use terrane_formats::{ForeignMembers, parse_record};

use crate::args::{Common, InsertArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::{self, StorePlace};

use lines::{Line, Lines};
use row::Row;
use stop::{Input, Stop};

/// Records that are written with one sync, at most.
const BATCH_LINES_MAX: usize = 1000;

pub fn run(arguments: &InsertArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let place = StorePlace::examine(&arguments.store)?;
    let stop = Stop::listen().map_err(|error| Failure::io("listen for signals", &error))?;
    let store = place.open(arguments.durability, common, messages)?;
    let mut insertion = Insertion::new(arguments, &store, messages)?;
    let outcome = insertion.run(&stop);
    let (inserted, refused) = (insertion.inserted, insertion.refused);
    drop(insertion);
    if let Err(failure) = outcome {
        place.undo(store);
        return Err(failure);
    }
    place::close(store, messages)?;
    messages.info(format_args!("inserted {} into {}", counted(inserted, "record", "records"), arguments.dataset));
    if refused > 0 {
        messages.error(counted(refused, "record was refused", "records were refused"));
    }
    match stop.signal() {
        Some((name, exit_code)) => {
            messages.warn(format_args!("stopped by {name}; records whose keys were not printed are not inserted"));
            Err(Failure::silent(exit_code))
        }
        None if refused > 0 => Err(Failure::silent(Failure::REFUSED)),
        None => Ok(()),
    }
}

/// The records of one standard input on their way into a dataset.
struct Insertion<'a> {
    arguments: &'a InsertArguments,
    messages: &'a Messages,
    store: &'a Store,
    /// `None` until the first valid record shows what the dataset is like.
    dataset: Option<Dataset>,
    /// Rows of the dataset's schema that are not written yet.
    pending: Vec<Row>,
    foreign: ForeignMembers,
    /// What was said of how the values of attributes are read.
    noticed: HashSet<(String, &'static str)>,
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
        Ok(Self {
            arguments,
            messages,
            store,
            dataset,
            pending: Vec::new(),
            foreign: ForeignMembers::default(),
            noticed: HashSet::new(),
            inserted: 0,
            refused: 0,
        })
    }

    /// Inserts what arrives, until the input ends or somebody asks to stop.
    fn run(&mut self, stop: &Stop) -> Result<(), Failure> {
        let cannot_read = |error: &io::Error| Failure::io("read standard input", error);
        let mut lines = Lines::new(Input::new(stop).map_err(|error| cannot_read(&error))?);
        loop {
            let arrived = match lines.next(BATCH_LINES_MAX) {
                Ok(arrived) if arrived.is_empty() => return Ok(()),
                Ok(arrived) => arrived,
                Err(_) if stop.signal().is_some() => return Ok(()),
                Err(error) => return Err(cannot_read(&error)),
            };
            for line in arrived {
                let number = line.number;
                if let Err(reason) = self.take(line)? {
                    self.refuse(number, reason);
                }
            }
            self.write()?;
        }
    }

    /// Makes a row of a line, for which the dataset is created or changed if need be; or says
    /// why the line is refused.
    fn take(&mut self, line: Line) -> Result<Result<(), String>, Failure> {
        let text = match line.text {
            Ok(text) => text,
            Err(reason) => return Ok(Err(reason)),
        };
        let planar = self
            .dataset
            .as_ref()
            .map_or(self.arguments.planar, |dataset| dataset.schema().system == CoordinateSystem::Planar);
        let mut record = match parse_record(&text, planar) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error.to_string())),
        };
        // What is long is kept once.
        drop(text);
        if self.foreign.note(&record.foreign) {
            self.messages.warn(format_args!("line {}: {}", line.number, self.foreign));
        }
        let schema = match &self.dataset {
            Some(dataset) => dataset.schema(),
            None => match first::schema_of(&mut record, self.arguments.planar) {
                Ok(schema) => Arc::new(schema),
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let row = match row::convert(record, &schema, line.number) {
            Ok(row) => row,
            Err(reason) => return Ok(Err(reason)),
        };
        for notice in &row.notices {
            if self.noticed.insert(notice.clone()) {
                let (name, notice) = notice;
                self.messages.warn(format_args!("line {}: column {name:?}: {notice}", line.number));
            }
        }
        if (self.dataset.is_none() || row.changes_schema())
            && let Err(reason) = self.prepare_for(&row, &schema)?
        {
            return Ok(Err(reason));
        }
        self.pending.push(row);
        Ok(Ok(()))
    }

    /// Creates the dataset, or gives it what a row calls for, unless the row is refused anyway:
    /// a change of the schema is durable at once.
    fn prepare_for(&mut self, row: &Row, schema: &Schema) -> Result<Result<(), String>, Failure> {
        // Rows that were made for the schema as it is come first.
        self.write()?;
        if let Err(reason) = check_fits(row, &row.schema_after(schema))? {
            return Ok(Err(reason));
        }
        let Some(dataset) = &self.dataset else {
            let name = &self.arguments.dataset;
            self.dataset = Some(self.store.create_dataset(name, schema.clone())?);
            self.messages.info(first::description(name, schema));
            return Ok(Ok(()));
        };
        if let Some(key) = row.key.as_ref().filter(|_| !self.arguments.upsert)
            && dataset.get(key)?.is_some()
        {
            return Ok(Err(reason_of(&terrane::Error::DuplicateKey { key: key.clone() })));
        }
        // What may be refused comes before what is not.
        let widened = row.widened.iter().try_for_each(|name| dataset.widen_column(name));
        let changed = widened.and_then(|()| row.added.iter().try_for_each(|column| dataset.add_column(column.clone())));
        match changed {
            Ok(()) => Ok(Ok(())),
            Err(error) if error.is_refusal() => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the pending rows, and prints the keys of those that are durable then.
    fn write(&mut self) -> Result<(), Failure> {
        let mut rows = std::mem::take(&mut self.pending);
        let Some(dataset) = self.dataset.clone() else {
            return Ok(());
        };
        let on_conflict = match self.arguments.upsert {
            true => OnConflict::Replace,
            false => OnConflict::Refuse,
        };
        let schema = dataset.schema();
        while let Some(first) = rows.first() {
            // A batch brings keys for all of its rows or for none.
            let has_keys = first.key.is_some();
            let count = rows.iter().take_while(|row| row.key.is_some() == has_keys).count();
            let batch = batch::of_rows(&rows[..count], &schema)?;
            let lines: Vec<u64> = rows.drain(..count).map(|row| row.line).collect();
            let mut outcome = BatchOutcome::default();
            let written = dataset.write_batch_into(&batch, on_conflict, &mut outcome);
            // Also where a row failed, as on a full disk: the rows before it are durable.
            self.inserted += outcome.keys.len() as u64;
            print_keys(&outcome.keys, self.inserted)?;
            for refused in outcome.refused {
                self.refuse(lines.get(refused.row).copied().unwrap_or_default(), reason_of(&refused.error));
            }
            written?;
        }
        Ok(())
    }

    fn refuse(&mut self, line: u64, reason: String) {
        self.refused += 1;
        self.messages.error(format_args!("line {line}: {reason}"));
    }
}

/// Whether a dataset of this schema would take the row.
fn check_fits(row: &Row, schema: &Schema) -> Result<Result<(), String>, Failure> {
    if let Err(error) = schema.validate() {
        return Ok(Err(error.to_string()));
    }
    let batch = batch::of_rows(std::slice::from_ref(row), schema)?;
    let mut records = BatchRecords::new(&batch, schema).map_err(terrane::Error::from)?;
    let encoded = records.encode_row(0, &mut Vec::new(), &mut Vec::new());
    Ok(encoded.map(|_| ()).map_err(|error| terrane::Error::from(error).to_string()))
}

fn reason_of(error: &terrane::Error) -> String {
    match error {
        terrane::Error::DuplicateKey { key } => {
            format!("a record with the key {key} exists already; --upsert replaces it")
        }
        other => other.to_string(),
    }
}

/// Prints keys as JSON scalars, one a line. Whoever sees one can rely on its record.
fn print_keys(keys: &[terrane::Key], inserted: u64) -> Result<(), Failure> {
    let mut output = BufWriter::new(io::stdout().lock());
    let printed = keys.iter().try_for_each(|key| writeln!(output, "{key}")).and_then(|()| output.flush());
    printed.map_err(|error| match error.kind() {
        // Unlike the rows of a query, records that are not read from standard input are lost.
        io::ErrorKind::BrokenPipe => Failure::new(
            Failure::FAILURE,
            format!(
                "standard output was closed; stopped after {}",
                counted(inserted, "durable record", "durable records")
            ),
        ),
        _ => Failure::stdout(&error),
    })
}
