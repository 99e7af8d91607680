//! `terrane insert`: inserts records from standard input and acknowledges each by its key.
//!
//! All records that have arrived are written as one batch, with one sync. A lone producer therefore
//! gets its key at once, and a fast one shares syncs.

mod atomic;
mod batch;
mod first;
mod follow;
mod lines;
mod row;
mod source;
mod stop;

use std::collections::HashSet;
use std::io::{self, BufWriter, Read, Write};
use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use terrane::batch::BatchRecords;
use terrane::schema::Schema;
use terrane::{
    BatchOutcome, CoordinateSystem, Dataset, Durability, FeedReceiver, FeedSender, OnConflict, OnOverload, Store,
    counted,
};
use terrane_formats::{ForeignMembers, RecordOptions, RecordReader};

use crate::args::{Common, InsertArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::{self, StorePlace};
use crate::reading::check_reading;

use atomic::AtomicRows;
use follow::Follow;
use lines::{Line, Lines};
use row::{Reading, Row};
use source::{Place, Source};
use stop::{Input, Stop};

/// Most records that are written with one sync.
const BATCH_LINES_MAX: usize = 1000;
/// Time between two messages on the number of discarded records.
const DISCARDS_PAUSE: Duration = Duration::from_secs(1);
/// Share of the working memory for lines that wait to be written.
const QUEUE_SHARE: usize = 8;
/// Most bytes of lines that wait if the source can wait itself: enough for a batch.
const THROTTLED_BYTES_MAX: usize = 1 << 20;

pub fn run(arguments: &InsertArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    terrane::check_dataset_name(&arguments.dataset)?;
    let place = StorePlace::examine(&arguments.store)?;
    let source = Source::new(arguments)?;
    let keeps_position = source.is_some();
    let stop = Stop::listen().map_err(|error| Failure::io("listen for signals", &error))?;
    let store = place.open(arguments.creation.durability, common, messages)?;
    let mut insertion = Insertion::new(arguments, source, &store, messages)?;
    insertion.atomic_rows = arguments.atomic.then(|| AtomicRows::new(place::decoding_memory(common)));
    let outcome = insertion.run(&stop, place::working_memory(common) / QUEUE_SHARE);
    for notice in insertion.reading.records.notices() {
        messages.warn(notice);
    }
    let Insertion { inserted, refused, repeated, discarded, .. } = insertion;
    let feed = insertion.source.as_ref().map(|source| (source.name().to_owned(), source.position()));
    let is_missing = insertion.dataset.is_none();
    drop((insertion.dataset, insertion.source));
    if let Err(failure) = outcome {
        match store.durability() {
            // Acknowledged records may be in memory only.
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
        messages.warn(format_args!("dataset {} was not created: there was no valid record", arguments.dataset));
    }
    if let Some((name, position)) = feed {
        messages.info(format_args!("feed {name:?} continues at position {position}"));
    }
    if repeated > 0 {
        messages.info(format_args!("skipped {} that had been read before", counted(repeated, "record", "records")));
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
                true => format!("stopped by {name}; started again, the feed continues behind the last stored record"),
                false => format!("stopped by {name}; records whose keys were not printed are not inserted"),
            });
            Err(Failure::silent(exit_code))
        }
        None if refused > 0 => Err(Failure::silent(Failure::REFUSED)),
        None => Ok(()),
    }
}

/// The state of inserting one input into a dataset.
struct Insertion<'a> {
    arguments: &'a InsertArguments,
    messages: &'a Messages,
    store: &'a Store,
    reading: Reading,
    /// `None` until the first valid record shows the schema.
    dataset: Option<Dataset>,
    /// The source of the records, if its position is kept.
    source: Option<Source>,
    /// Rows of the dataset's schema that are not written yet.
    pending: Vec<Row>,
    /// The rows of the transaction, with `--atomic`.
    atomic_rows: Option<AtomicRows>,
    foreign: ForeignMembers,
    /// Notices so far on how the values of attributes are read.
    noticed: HashSet<(String, &'static str)>,
    inserted: u64,
    refused: u64,
    /// Records that were read in an earlier run.
    repeated: u64,
    /// Records that were dropped because they arrived too fast.
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
                "dataset {:?} holds longitude and latitude; omit --planar, or insert into another dataset",
                arguments.dataset
            )));
        }
        if let Some(dataset) = &dataset {
            place::check_partitions(arguments.creation.partitions, dataset)?;
            check_reading(&arguments.reading, &arguments.dataset, &dataset.schema())?;
        }
        let planar =
            dataset.as_ref().map_or(arguments.planar, |dataset| dataset.schema().system == CoordinateSystem::Planar);
        let mut coordinates = arguments.reading.coordinates(planar);
        coordinates.plane = dataset.as_ref().map(|dataset| dataset.schema().srid()).filter(|&srid| srid != 0);
        let records = RecordReader::new(RecordOptions { coordinates, nulls: arguments.reading.null.clone() });
        let reading =
            Reading { records: records.map_err(Failure::usage)?, demanded: arguments.reading.demanded_types() };
        if let (Some(source), Some(dataset)) = (&mut source, &dataset) {
            source.open(dataset, messages)?;
        }
        Ok(Self {
            source,
            arguments,
            messages,
            store,
            reading,
            dataset,
            pending: Vec::new(),
            atomic_rows: None,
            foreign: ForeignMembers::default(),
            noticed: HashSet::new(),
            inserted: 0,
            refused: 0,
            repeated: 0,
            discarded: 0,
        })
    }

    /// Inserts records as they arrive, until the input ends or a signal comes. At most
    /// `queue_bytes` of waiting lines are kept in memory.
    fn run(&mut self, stop: &Stop, queue_bytes: usize) -> Result<(), Failure> {
        if self.arguments.follow.is_none() {
            let input = Input::new(stop).map_err(|error| cannot_read(self.arguments, &error))?;
            self.insert_all(Lines::new(input), stop, queue_bytes)?;
            return self.insert_together(stop);
        }
        while let Some((file, position)) = self.followed() {
            let name = file.path().display();
            self.messages.info(format_args!("reading {name} from byte {position} on"));
            let messages = self.messages;
            let inserted = thread::scope(|scope| {
                let (_ended, is_ended) = mpsc::channel();
                let watched = file.clone();
                scope.spawn(move || watched.watch(&is_ended, |warning| messages.warn(warning)));
                self.insert_all(Lines::from_byte(file.read_from(position, stop), position), stop, queue_bytes)
            });
            // Reading may have found one last.
            file.take_warnings().iter().for_each(|warning| messages.warn(warning));
            inserted?;
            if stop.signal().is_some() {
                return Ok(());
            }
            match file.is_truncated() {
                true => self.messages.warn(format_args!("{name} was truncated; it is read from the beginning")),
                false => {
                    self.messages.info(format_args!("{name} was replaced; its old content has been read to the end"))
                }
            }
            self.source.as_mut().map_or(Ok(()), Source::follow)?;
        }
        Ok(())
    }

    /// The followed file, and the position in it.
    fn followed(&self) -> Option<(Arc<Follow>, u64)> {
        let source = self.source.as_ref()?;
        Some((source.file()?.clone(), source.position()))
    }

    /// Inserts the lines of one input. Another thread reads them.
    fn insert_all(&mut self, lines: Lines<impl Read + Send>, stop: &Stop, queue_bytes: usize) -> Result<(), Failure> {
        let on_overload = OnOverload::from(self.arguments.on_overload);
        let queue_bytes = match on_overload {
            OnOverload::Throttle => queue_bytes.min(THROTTLED_BYTES_MAX),
            OnOverload::Spill | OnOverload::Discard => queue_bytes,
        };
        let (sender, receiver) = self.store.feed_queue(on_overload, queue_bytes)?;
        let (arguments, messages, discarded_before) = (self.arguments, self.messages, self.discarded);
        thread::scope(|scope| {
            let reading = scope.spawn(move || send_lines(lines, &sender, stop, arguments));
            let mut ending = EndsReading { stop, is_due: true };
            let inserted = thread::scope(|scope| {
                // Printed now and then too: a killed process cannot print it at the end.
                let (_ended, is_ended) = mpsc::channel::<()>();
                let discarded = || discarded_before + receiver.discarded();
                scope.spawn(move || tell_discarded(messages, &is_ended, discarded));
                self.insert_received(&receiver)
            });
            self.discarded = discarded_before + receiver.discarded();
            // After an error, the thread is still reading.
            ending.is_due = inserted.is_err();
            drop((ending, receiver));
            let read = reading.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            inserted.and(read)
        })
    }

    /// Inserts lines until the queue ends.
    fn insert_received(&mut self, lines: &FeedReceiver<Line>) -> Result<(), Failure> {
        loop {
            let received = lines.receive(BATCH_LINES_MAX)?;
            if received.is_empty() {
                return Ok(());
            }
            for line in received {
                let (number, end) = (line.number, line.end);
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

    /// Converts a line to a row. Creates or changes the dataset if needed. Returns the reason if
    /// the line is refused.
    fn take(&mut self, line: Line) -> Result<Result<(), String>, Failure> {
        let text = match line.text {
            Ok(text) => text,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut record = match self.reading.records.parse(&text) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error.to_string())),
        };
        // Long values are stored once.
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
        let schema = match (self.atomic_rows.as_ref().and_then(AtomicRows::schema), &self.dataset) {
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
        if let Some(atomic_rows) = &mut self.atomic_rows {
            return atomic_rows.add(row, &schema, bytes);
        }
        if (self.dataset.is_none() || row.changes_schema())
            && let Err(reason) = self.prepare_for(&row, &schema)?
        {
            return Ok(Err(reason));
        }
        self.pending.push(row);
        Ok(Ok(()))
    }

    /// Creates the dataset or changes its schema as a row requires. A change of the schema is
    /// durable at once, so a row that is refused anyway causes none.
    fn prepare_for(&mut self, row: &Row, schema: &Schema) -> Result<Result<(), String>, Failure> {
        // Rows of the current schema are written first.
        self.write()?;
        if let Err(reason) = check_fits(row, &row.schema_after(schema))? {
            return Ok(Err(reason));
        }
        let Some(dataset) = &self.dataset else {
            let dataset = self.create(schema)?;
            self.source.as_mut().map_or(Ok(()), |source| source.open(&dataset, self.messages))?;
            self.dataset = Some(dataset);
            return Ok(Ok(()));
        };
        if let Some(key) = row.key.as_ref().filter(|_| !self.arguments.upsert)
            && dataset.get(key)?.is_some()
        {
            return Ok(Err(reason_of(&terrane::Error::DuplicateKey { key: key.clone() })));
        }
        // Operations that may fail precede those that cannot.
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

    /// Inserts the collected records, unless one was refused or the input did not end.
    fn insert_together(&mut self, stop: &Stop) -> Result<(), Failure> {
        let Some(atomic_rows) = self.atomic_rows.take().filter(|_| stop.signal().is_none()) else { return Ok(()) };
        if self.refused == 0 {
            let before = self.dataset.as_ref().map(Dataset::schema);
            let inserted = atomic_rows.insert(self.dataset.as_ref(), self.on_conflict(), |schema| self.create(schema));
            match inserted.inspect_err(|_| self.take_back(before.as_deref()))? {
                Ok(keys) => {
                    self.inserted = keys.len() as u64;
                    return print_keys(&keys, self.inserted);
                }
                Err(refusals) => refusals.into_iter().for_each(|(line, reason)| self.refuse(line, reason)),
            }
        }
        self.messages.warn("nothing was inserted, since --atomic inserts all records or none");
        Ok(())
    }

    /// Restores the columns that the dataset had before a failed commit.
    fn take_back(&self, before: Option<&Schema>) {
        let name = &self.arguments.dataset;
        let Ok(dataset) = self.store.dataset(name) else { return };
        let Some(before) = before else {
            return self.messages.warn(format_args!("dataset {name:?} was created and remains, without records"));
        };
        for column in &dataset.schema().columns {
            let column_name = &column.name;
            match before.column(column_name) {
                Some(old) if old.column_type == column.column_type => {}
                Some(_) => self.messages.warn(format_args!("column {column_name:?} has become float64 and remains so")),
                None => dataset.drop_column(column_name).unwrap_or_else(|error| {
                    self.messages
                        .warn(format_args!("column {column_name:?} was added and remains, without values: {error}"));
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
            // In a batch, all rows bring keys or none does.
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
            // If a row failed, as on a full disk, the rows before it are durable all the same.
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

    /// The unit by which lines are numbered.
    fn unit(&self) -> &'static str {
        match self.arguments.follow {
            Some(_) => "byte",
            None => "line",
        }
    }
}

/// Ends the reading of an input when it is dropped, also by a panic.
struct EndsReading<'a> {
    stop: &'a Stop,
    is_due: bool,
}

impl Drop for EndsReading<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.stop.end();
        }
    }
}

/// Sends lines as they arrive, until the input or its reading ends.
fn send_lines(
    mut lines: Lines<impl Read>,
    sender: &FeedSender<Line>,
    stop: &Stop,
    arguments: &InsertArguments,
) -> Result<(), Failure> {
    loop {
        match lines.next(BATCH_LINES_MAX) {
            Ok(arrived) if arrived.is_empty() => return Ok(()),
            Ok(arrived) => {
                if !sender.send(arrived)? {
                    return Ok(());
                }
            }
            Err(_) if stop.signal().is_some() => return Ok(()),
            Err(error) => return Err(cannot_read(arguments, &error)),
        }
    }
}

fn cannot_read(arguments: &InsertArguments, error: &io::Error) -> Failure {
    match &arguments.follow {
        Some(path) => Failure::io(format_args!("read {}", path.display()), error),
        None => Failure::io("read standard input", error),
    }
}

/// Whether a dataset of this schema would accept the row.
fn check_fits(row: &Row, schema: &Schema) -> Result<Result<(), String>, Failure> {
    if let Err(error) = schema.validate() {
        return Ok(Err(error.to_string()));
    }
    let batch = batch::of_rows(std::slice::from_ref(row), schema)?;
    let mut records = BatchRecords::new(&batch, schema).map_err(terrane::Error::from)?;
    let encoded = records.encode_row(0, &mut Vec::new(), &mut Vec::new());
    Ok(encoded.map(|_| ()).map_err(|error| terrane::Error::from(error).to_string()))
}

/// Prints now and then how many records were dropped so far, until the other end of the channel is
/// dropped.
fn tell_discarded(messages: &Messages, is_ended: &mpsc::Receiver<()>, discarded: impl Fn() -> u64) {
    let mut reported = discarded();
    while let Err(RecvTimeoutError::Timeout) = is_ended.recv_timeout(DISCARDS_PAUSE) {
        let so_far = discarded();
        if so_far > reported {
            reported = so_far;
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

/// Prints keys as JSON scalars, one per line. A printed key means that its record is stored.
fn print_keys(keys: &[terrane::Key], inserted: u64) -> Result<(), Failure> {
    let mut output = BufWriter::new(io::stdout().lock());
    let printed = keys.iter().try_for_each(|key| writeln!(output, "{key}")).and_then(|()| output.flush());
    printed.map_err(|error| match error.kind() {
        // Unlike rows of a query, records that are not read from standard input would be lost.
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
