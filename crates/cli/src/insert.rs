//! `terrane insert`: records from standard input, each acknowledged by its key.
//!
//! What has arrived is written as one batch, with one sync, before more is waited for: a lone
//! producer gets its key at once, and a fast one shares syncs.

mod atomic;
mod backlog;
mod batch;
mod first;
mod follow;
mod lines;
mod mark;
mod row;
mod source;
mod spill;
mod stop;

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use terrane::batch::BatchRecords;
use terrane::schema::Schema;
use terrane::{BatchOutcome, CoordinateSystem, Dataset, Durability, OnConflict, Store, counted};
use terrane_formats::{ForeignMembers, RecordOptions, RecordReader};

use crate::args::{Common, InsertArguments, OnOverload};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::{self, StorePlace};
use crate::reading::check_reading;

use atomic::Together;
use backlog::{Backlog, Excess};
use follow::Follow;
use lines::{Arrivals, Line, Lines};
use mark::LastBytes;
use row::{Reading, Row};
use source::{Place, Source};
use stop::{Input, Stop};

/// Records that are written with one sync, at most.
const BATCH_LINES_MAX: usize = 1000;
/// Time between two messages of how many records were discarded.
const DISCARDS_PAUSE: Duration = Duration::from_secs(1);
/// Part of the working memory that lines may take that wait for their turn.
const BACKLOG_SHARE: usize = 8;

pub fn run(arguments: &InsertArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    terrane::check_dataset_name(&arguments.dataset)?;
    let place = StorePlace::examine(&arguments.store)?;
    let source = Source::new(arguments)?;
    let keeps_position = source.is_some();
    let stop = Stop::listen().map_err(|error| Failure::io("listen for signals", &error))?;
    let store = place.open(arguments.creation.durability, common, messages)?;
    let mut insertion = Insertion::new(arguments, source, &store, messages)?;
    insertion.together = arguments.atomic.then(|| Together::new(place::decoding_memory(common)));
    let outcome = insertion.run(&stop, place::working_memory(common) / BACKLOG_SHARE);
    for notice in insertion.reading.records.notices() {
        messages.warn(notice);
    }
    let Insertion { inserted, refused, repeated, discarded, .. } = insertion;
    let feed = insertion.source.as_ref().map(|source| (source.name().to_owned(), source.position()));
    let is_missing = insertion.dataset.is_none();
    drop((insertion.dataset, insertion.source));
    if let Err(failure) = outcome {
        match store.durability() {
            // What was acknowledged may be in memory alone.
            Durability::None => {
                if let Err(lost) = place.close(store, messages) {
                    messages.error(lost.message().unwrap_or_default());
                }
            }
            _ => place.undo(store),
        }
        return Err(failure);
    }
    place.close(store, messages)?;
    messages.info(format_args!("inserted {} into {}", counted(inserted, "record", "records"), arguments.dataset));
    if is_missing {
        messages.warn(format_args!("there is no dataset {} yet: no record has shown what it holds", arguments.dataset));
    }
    if let Some((name, position)) = feed {
        messages.info(format_args!("feed {name:?} goes on from position {position}"));
    }
    if repeated > 0 {
        messages.info(format_args!("passed {} that had been read before", counted(repeated, "record", "records")));
    }
    if discarded > 0 {
        let discarded = counted(discarded, "record was discarded", "records were discarded");
        messages.warn(format_args!("{discarded}, as they arrived faster than they could be written"));
    }
    if refused > 0 {
        messages.error(counted(refused, "record was refused", "records were refused"));
    }
    match stop.signal() {
        Some((name, exit_code)) => {
            messages.warn(match keeps_position {
                true => format!("stopped by {name}; started again, the feed goes on behind what is stored"),
                false => format!("stopped by {name}; records whose keys were not printed are not inserted"),
            });
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
    reading: Reading,
    /// `None` until the first valid record shows what the dataset is like.
    dataset: Option<Dataset>,
    /// Where the records come from, if it is kept how far that has been read.
    source: Option<Source>,
    /// Rows of the dataset's schema that are not written yet.
    pending: Vec<Row>,
    /// Those that are to be inserted together, if all are.
    together: Option<Together>,
    foreign: ForeignMembers,
    /// What was said of how the values of attributes are read.
    noticed: HashSet<(String, &'static str)>,
    inserted: u64,
    refused: u64,
    /// Records that were read before.
    repeated: u64,
    /// Records that came too fast.
    discarded: u64,
}

impl<'a> Insertion<'a> {
    fn new(
        arguments: &'a InsertArguments,
        mut source: Option<Source>,
        store: &'a Store,
        messages: &'a Messages,
    ) -> Result<Self, Failure> {
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
        if let Some(dataset) = &dataset {
            place::check_partitions(arguments.creation.partitions, dataset)?;
            check_reading(&arguments.reading, &arguments.dataset, &dataset.schema())?;
        }
        let planar =
            dataset.as_ref().map_or(arguments.planar, |dataset| dataset.schema().system == CoordinateSystem::Planar);
        let records = RecordReader::new(RecordOptions {
            coordinates: arguments.reading.coordinates(planar),
            nulls: arguments.reading.null.clone(),
        });
        let reading =
            Reading { records: records.map_err(Failure::usage)?, demanded: arguments.reading.demanded_types() };
        if let (Some(source), Some(dataset)) = (&mut source, &dataset) {
            source.open(dataset)?;
        }
        Ok(Self {
            source,
            arguments,
            messages,
            store,
            reading,
            dataset,
            pending: Vec::new(),
            together: None,
            foreign: ForeignMembers::default(),
            noticed: HashSet::new(),
            inserted: 0,
            refused: 0,
            repeated: 0,
            discarded: 0,
        })
    }

    /// Inserts what arrives, until the input ends or somebody asks to stop. Of what arrives too fast, some bytes
    /// are kept in memory.
    fn run(&mut self, stop: &Stop, backlog_bytes: usize) -> Result<(), Failure> {
        if self.arguments.follow.is_none() {
            let input = Input::new(stop).map_err(|error| self.cannot_read(&error))?;
            self.insert_all(Lines::new(input), stop, backlog_bytes)?;
            return self.insert_together(stop);
        }
        while let Some((file, last)) = self.followed() {
            let (name, position) = (file.path().display(), last.end());
            self.messages.info(format_args!("reading {name} from byte {position} on"));
            self.insert_all(Lines::from_byte(file.read_behind(last, stop), position), stop, backlog_bytes)?;
            if stop.signal().is_some() {
                return self.source.as_mut().map_or(Ok(()), Source::mark);
            }
            self.messages.info(format_args!("{name} was replaced; all that it held has been read"));
            self.source.as_mut().map_or(Ok(()), Source::follow)?;
        }
        Ok(())
    }

    /// The file that is followed, and what was read last of it.
    fn followed(&self) -> Option<(Arc<Follow>, LastBytes)> {
        let source = self.source.as_ref()?;
        Some((source.file()?.clone(), source.last().clone()))
    }

    fn cannot_read(&self, error: &io::Error) -> Failure {
        match &self.arguments.follow {
            Some(path) => Failure::io(format_args!("read {}", path.display()), error),
            None => Failure::io("read standard input", error),
        }
    }

    /// Inserts the lines of one input.
    fn insert_all(
        &mut self,
        mut lines: impl Arrivals + Send,
        stop: &Stop,
        backlog_bytes: usize,
    ) -> Result<(), Failure> {
        let excess = match self.arguments.on_overload {
            OnOverload::Throttle => return self.insert_arrivals(&mut lines, stop),
            OnOverload::Discard => Excess::Discard,
            OnOverload::Spill => Excess::spill(&self.arguments.store).map_err(|error| {
                Failure::io(format_args!("make a file in {}", self.arguments.store.display()), &error)
            })?,
        };
        let (backlog, discarded_before) = (Backlog::new(backlog_bytes, excess), self.discarded);
        let outcome = thread::scope(|scope| {
            scope.spawn(|| backlog.fill(&mut lines, BATCH_LINES_MAX));
            // Also where writing fails, the thread that reads ends.
            let _end = backlog.end_with(stop);
            // Told also while nothing arrives: who is killed cannot tell at the end.
            let (_ended, is_ended) = mpsc::channel::<()>();
            let (messages, backlog) = (self.messages, &backlog);
            scope.spawn(move || tell_discarded(messages, &is_ended, || discarded_before + backlog.discarded()));
            self.insert_arrivals(&mut &*backlog, stop)
        });
        self.discarded = discarded_before + backlog.discarded();
        outcome
    }

    fn insert_arrivals(&mut self, lines: &mut dyn Arrivals, stop: &Stop) -> Result<(), Failure> {
        loop {
            let arrived = match lines.next(BATCH_LINES_MAX) {
                Ok(arrived) if arrived.is_empty() => return Ok(()),
                Ok(arrived) => arrived,
                Err(_) if stop.signal().is_some() => return Ok(()),
                Err(error) => return Err(self.cannot_read(&error)),
            };
            for line in arrived {
                let (number, end) = (line.number, line.end);
                if let Some(source) = &mut self.source {
                    source.note_bytes(&line);
                }
                if let Err(reason) = self.take(line)? {
                    self.refuse(number, reason);
                }
                if let Some(source) = &mut self.source {
                    source.note_line(end);
                }
            }
            self.write()?;
            self.source.as_mut().map_or(Ok(()), Source::pass)?;
        }
    }

    /// Makes a row of a line, for which the dataset is created or changed if need be; or says
    /// why the line is refused.
    fn take(&mut self, line: Line) -> Result<Result<(), String>, Failure> {
        let text = match line.text {
            Ok(text) => text,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut record = match self.reading.records.parse(&text) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error.to_string())),
        };
        // What is long is kept once.
        let bytes = text.len();
        drop(text);
        let position = match self.source.as_mut().map(|source| source.place(line.end, &record)) {
            None => 0,
            Some(Ok(Place::New(position))) => position,
            Some(Ok(Place::Known)) => {
                self.repeated += 1;
                return Ok(Ok(()));
            }
            Some(Err(reason)) => return Ok(Err(reason)),
        };
        if self.foreign.note(&record.foreign) {
            self.messages.warn(format_args!("{} {}: {}", self.unit(), line.number, self.foreign));
        }
        let schema = match (self.together.as_ref().and_then(Together::schema), &self.dataset) {
            (Some(schema), _) => schema.clone(),
            (None, Some(dataset)) => dataset.schema(),
            (None, None) => match first::schema_of(&mut record, self.arguments.planar, &self.reading) {
                Ok(schema) => Arc::new(schema),
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let row = match row::convert(record, &schema, &self.reading, line.number) {
            Ok(row) => Row { position, ..row },
            Err(reason) => return Ok(Err(reason)),
        };
        for notice in &row.notices {
            if self.noticed.insert(notice.clone()) {
                let (name, notice) = notice;
                self.messages.warn(format_args!("{} {}: column {name:?}: {notice}", self.unit(), line.number));
            }
        }
        if let Some(together) = &mut self.together {
            return together.add(row, &schema, bytes);
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
            let dataset = self.create(schema)?;
            self.source.as_mut().map_or(Ok(()), |source| source.open(&dataset))?;
            self.dataset = Some(dataset);
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

    fn create(&self, schema: &Schema) -> Result<Dataset, Failure> {
        let name = &self.arguments.dataset;
        let options = place::dataset_options(self.arguments.creation.partitions);
        let dataset = self.store.create_dataset_with(name, schema.clone(), &options)?;
        self.messages.info(first::description(name, schema));
        Ok(dataset)
    }

    /// Inserts the records that waited for this, unless one was refused or the input did not end.
    fn insert_together(&mut self, stop: &Stop) -> Result<(), Failure> {
        let Some(together) = self.together.take().filter(|_| stop.signal().is_none()) else { return Ok(()) };
        if self.refused == 0 {
            let before = self.dataset.as_ref().map(Dataset::schema);
            let inserted = together.insert(self.dataset.as_ref(), self.on_conflict(), |schema| self.create(schema));
            match inserted.inspect_err(|_| self.take_back(before.as_deref()))? {
                Ok(keys) => {
                    self.inserted = keys.len() as u64;
                    return print_keys(&keys, self.inserted);
                }
                Err(refusals) => refusals.into_iter().for_each(|(line, reason)| self.refuse(line, reason)),
            }
        }
        self.messages.warn("nothing is inserted, as --atomic inserts all records or none");
        Ok(())
    }

    /// Gives the dataset the columns again that it had before a commit failed.
    fn take_back(&self, before: Option<&Schema>) {
        let name = &self.arguments.dataset;
        let Ok(dataset) = self.store.dataset(name) else { return };
        let Some(before) = before else {
            return self.messages.warn(format_args!("the dataset {name:?} was created and stays, without records"));
        };
        for column in &dataset.schema().columns {
            let column_name = &column.name;
            match before.column(column_name) {
                Some(old) if old.column_type == column.column_type => {}
                Some(_) => self.messages.warn(format_args!("column {column_name:?} has become float64 and stays so")),
                None => dataset.drop_column(column_name).unwrap_or_else(|error| {
                    self.messages
                        .warn(format_args!("column {column_name:?} was added and stays, without values: {error}"));
                }),
            }
        }
    }

    fn on_conflict(&self) -> OnConflict {
        if self.arguments.upsert { OnConflict::Replace } else { OnConflict::Refuse }
    }

    /// Writes the pending rows, and prints the keys of those that are durable then.
    fn write(&mut self) -> Result<(), Failure> {
        let mut rows = std::mem::take(&mut self.pending);
        let Some(dataset) = self.dataset.clone() else {
            return Ok(());
        };
        let (on_conflict, schema) = (self.on_conflict(), dataset.schema());
        while let Some(first) = rows.first() {
            // A batch brings keys for all of its rows or for none.
            let has_keys = first.key.is_some();
            let count = rows.iter().take_while(|row| row.key.is_some() == has_keys).count();
            let batch = batch::of_rows(&rows[..count], &schema)?;
            let (lines, positions): (Vec<u64>, Vec<u64>) =
                rows.drain(..count).map(|row| (row.line, row.position)).unzip();
            let mut outcome = BatchOutcome::default();
            let written = match &mut self.source {
                Some(source) => source.write(&batch, &positions, on_conflict, &mut outcome),
                None => dataset.write_batch_into(&batch, on_conflict, &mut outcome).map_err(Failure::from),
            };
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
        self.messages.error(format_args!("{} {line}: {reason}", self.unit()));
    }

    /// What lines are numbered by.
    fn unit(&self) -> &'static str {
        match self.arguments.follow {
            Some(_) => "byte",
            None => "line",
        }
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

/// Tells now and then how many records were dropped so far, until the other end of the channel is.
fn tell_discarded(messages: &Messages, is_ended: &mpsc::Receiver<()>, discarded: impl Fn() -> u64) {
    let mut told = discarded();
    while let Err(RecvTimeoutError::Timeout) = is_ended.recv_timeout(DISCARDS_PAUSE) {
        let so_far = discarded();
        if so_far > told {
            told = so_far;
            let so_far = counted(so_far, "record was discarded", "records were discarded");
            messages.warn(format_args!("{so_far} so far, as they arrive faster than they can be written"));
        }
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
