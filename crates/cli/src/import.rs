//! `terrane import`: imports files into a dataset, all of their records or none.
//!
//! If the first file cannot be read, no store is created. A store that was created for a failed
//! import is removed again. If its creation fails half way, as on a full disk, an empty store is
//! left.

mod destination;
mod positions;
mod refusal;
mod rejects;
mod source;
mod spool;

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use terrane::schema::Schema;
use terrane::{ImportMode, Importer, RefusedRow, Snapshot, Store, counted};
use terrane_formats::{Batch, Source};
use terrane_load::{Union, Validity};

use crate::args::{Common, ImportArguments, OnInvalid};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::{self, StorePlace};

use positions::Positions;
use refusal::Refusal;
use rejects::Rejects;
use spool::Inputs;

pub fn run(arguments: &ImportArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let started = Instant::now();
    let place = StorePlace::examine(&arguments.store)?;
    let rejects = Rejects::new(arguments)?;
    let inputs = Inputs::new(&arguments.files, &arguments.store)?;
    let mut import = Import {
        arguments,
        common,
        messages,
        inputs: &inputs,
        rejects,
        validity: Validity::default(),
        guessed_key: None,
        taken: 0,
        refused: 0,
    };
    let first = match place.is_vacant() {
        true => Some(source::open(arguments, common, (&inputs, 0), None)?),
        false => None,
    };
    let store = place.open(arguments.creation.durability, common, messages)?;
    if let Err(failure) = import.run(&store, first) {
        place.undo(store);
        return Err(failure);
    }
    place::close(store, messages)?;
    let seconds = started.elapsed().as_secs_f64();
    let records = counted(import.taken, "record", "records");
    messages.info(format_args!("imported {records} into {} in {seconds:.1} s", arguments.dataset));
    Ok(())
}

/// Passes the batches of a file to `take` while the next one is read, until one fails.
fn each_batch(file: &mut Source, mut take: impl FnMut(Batch) -> Result<(), Failure>) -> Result<(), Failure> {
    thread::scope(|scope| {
        // One batch is in `take` while one is read. Neither side runs further ahead.
        let (sender, batches) = mpsc::sync_channel(0);
        scope.spawn(move || {
            loop {
                let batch = file.next_batch().transpose();
                let is_last = !matches!(batch, Some(Ok(_)));
                if sender.send(batch).is_err() || is_last {
                    return;
                }
            }
        });
        // A reader that stops without an end has panicked. The scope passes the panic on.
        while let Ok(Some(batch)) = batches.recv() {
            take(batch?)?;
        }
        Ok(())
    })
}

/// An import in progress.
struct Import<'a> {
    arguments: &'a ImportArguments,
    common: &'a Common,
    messages: &'a Messages,
    inputs: &'a Inputs,
    rejects: Rejects,
    validity: Validity,
    /// The key column of a new dataset, if it was guessed.
    guessed_key: Option<String>,
    taken: u64,
    refused: u64,
}

impl Import<'_> {
    fn run(&mut self, store: &Store, first: Option<Source>) -> Result<(), Failure> {
        let arguments = self.arguments;
        let mode = arguments.mode.get();
        store.check_import(mode, &arguments.dataset)?;
        let existing = match store.dataset(&arguments.dataset) {
            Ok(dataset) => {
                place::check_partitions(arguments.creation.partitions, &dataset)?;
                // Replaced records do not tell how files are read.
                (mode != ImportMode::Replace).then(|| dataset.snapshot())
            }
            Err(terrane::Error::UnknownDataset { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let schema = existing.as_ref().map(Snapshot::schema);
        if let Some(schema) = &schema {
            source::check_flags(arguments, schema)?;
        }
        let first = match first {
            Some(first) => first,
            None => source::open(arguments, self.common, (self.inputs, 0), schema.as_deref())?,
        };
        let mut files = Union::default();
        let schema = match &schema {
            Some(schema) => {
                files.add(first);
                (**schema).clone()
            }
            None => self.new_schema(first, &mut files)?,
        };
        let options = place::dataset_options(arguments.creation.partitions);
        let mut importer = store.importer_in(mode, &arguments.dataset, schema, &options)?;
        let positions = self.read_files(files, &mut importer)?;
        source::check_demanded_columns(arguments, importer.schema())?;
        self.check_any_taken()?;
        // In an upsert, a refused key is one that occurs twice in the files.
        let refusing = existing.filter(|_| mode != ImportMode::Upsert);
        self.finish(importer, &positions, refusing.as_ref())?;
        self.rejects.describe(self.messages);
        if let Some(warning) = self.validity.warning() {
            self.messages.warn(warning);
        }
        if self.refused > 0 {
            self.messages.warn(counted(self.refused, "row was refused", "rows were refused"));
        }
        Ok(())
    }

    /// The schema of a new dataset, with the columns of all files. Key and geometry are those of
    /// the first file.
    fn new_schema(&mut self, first: Source, union: &mut Union) -> Result<Schema, Failure> {
        // The warnings of a file may explain why it is refused.
        let mut schema = source::schema_of(self.arguments, &first).inspect_err(|_| self.warn(&first))?;
        let bare = schema.without_attributes();
        union.add(first);
        for number in 1..self.arguments.files.len() {
            union.add(source::open(self.arguments, self.common, (self.inputs, number), Some(&bare))?);
            schema = terrane_load::schema_with(&bare, &union.schema()).map_err(terrane::Error::from)?;
        }
        source::check_demanded_columns(self.arguments, &schema)?;
        union.warnings.drain(..).for_each(|warning| self.messages.warn(warning));
        if self.arguments.key.is_none() && !schema.key.generated {
            self.guessed_key = Some(schema.key.name.clone());
        }
        Ok(schema)
    }

    fn warn(&self, file: &Source) {
        for warning in &file.warnings {
            self.messages.warn(format_args!("{}: {warning}", file.path.display()));
        }
    }

    /// Passes the rows of all files to the importer.
    fn read_files(&mut self, mut files: Union, importer: &mut Importer) -> Result<Positions, Failure> {
        let mut positions = Positions::new(place::working_memory(self.common) / 8);
        for (number, path) in self.arguments.files.iter().enumerate() {
            let schema = importer.schema().clone();
            let mut file = match files.take(number, &schema) {
                Some(file) => file,
                None => source::open(self.arguments, self.common, (self.inputs, number), Some(&schema))?,
            };
            self.messages.info(source::description(&file, &schema));
            self.warn(&file);
            for column in terrane_load::new_columns(&file, &schema)? {
                self.messages.info(format_args!("{}: column {:?} is added", path.display(), column.name));
                importer.add_column(column).map_err(|error| Self::failure(Some(path), error))?;
            }
            positions.begin_file(number);
            self.read(&mut file, (number, path), importer, &mut positions)?;
        }
        Ok(positions)
    }

    fn read(
        &mut self,
        file: &mut Source,
        input: (usize, &Path),
        importer: &mut Importer,
        positions: &mut Positions,
    ) -> Result<(), Failure> {
        let (_, path) = input;
        let bar = self.messages.progress(path, file.row_count_hint);
        let geometry = file.geometry.clone();
        each_batch(file, |mut batch| {
            self.fit_numbers(path, &mut batch, importer)?;
            let refused = importer.push(&batch.batch).map_err(|error| Self::failure(Some(path), error))?;
            positions.push(&batch.rows);
            self.taken += (batch.rows.len() - refused.len()) as u64;
            self.validity.check(path, &batch, &geometry);
            self.refuse_rows(input, &batch, refused)?;
            bar.inc((batch.rows.len() + batch.rejected.len()) as u64);
            Ok(())
        })?;
        bar.finish_and_clear();
        for notice in file.notices() {
            self.messages.warn(format_args!("{}: {notice}", path.display()));
        }
        Ok(())
    }

    /// Converts columns of floats to the integers of the dataset, or widens those to float64 if the
    /// file has other numbers.
    fn fit_numbers(&mut self, path: &Path, batch: &mut Batch, importer: &mut Importer) -> Result<(), Failure> {
        let (fitting, others) = terrane_load::fitted(&batch.batch, importer.schema())
            .map_err(|error| Failure::new(Failure::FAILURE, format!("{}: {error}", path.display())))?;
        batch.batch = fitting;
        for name in others {
            importer.widen_column(&name).map_err(|error| Self::failure(Some(path), error))?;
            self.messages.info(format_args!(
                "{}: column {name:?} becomes float64 with this import, since the file has numbers that int64 cannot \
                 hold",
                path.display()
            ));
        }
        Ok(())
    }

    /// Writes the refused rows of a batch to the rejects, or ends the import at the first of them.
    fn refuse_rows(&mut self, input: (usize, &Path), batch: &Batch, refused: Vec<RefusedRow>) -> Result<(), Failure> {
        let mut refusals: Vec<Refusal> = batch.rejected.iter().map(Refusal::by_reader).collect();
        refusals.extend(refused.into_iter().map(|row| Refusal::by_store(batch, row)));
        refusals.sort_by_key(|refusal| refusal.row);
        refusals.iter().try_for_each(|refusal| self.refuse(Some(input), refusal))
    }

    /// Refuses a row of an input, given by its number, or of an unknown one.
    fn refuse(&mut self, input: Option<(usize, &Path)>, refusal: &Refusal) -> Result<(), Failure> {
        self.refused += 1;
        if self.arguments.on_invalid == OnInvalid::Skip {
            return self.rejects.write(input, refusal);
        }
        let guess = match &self.guessed_key {
            Some(key) if refusal.is_duplicate || refusal.lacks(key) => {
                // An upsert needs keys.
                let other = match self.arguments.mode.get() {
                    ImportMode::Upsert => "",
                    _ => ", or number the rows with --key ''",
                };
                format!("; the key column {key:?} was a guess: name another with --key{other}")
            }
            _ => String::new(),
        };
        Err(Failure::refused(format!(
            "nothing was imported: {}{guess} (--on-invalid skip writes such rows to a file of rejects)",
            refusal.describe(input.map(|(_, path)| path))
        )))
    }

    /// Commits all records at once. Duplicate keys are found here. The rejects are complete before
    /// the commit.
    fn finish(
        &mut self,
        importer: Importer,
        positions: &Positions,
        existing: Option<&Snapshot>,
    ) -> Result<(), Failure> {
        let files = &self.arguments.files;
        let import = RefCell::new(self);
        let failure = Cell::new(None);
        let give_up = |reason: Failure| {
            failure.set(Some(reason));
            terrane::Error::Cancelled
        };
        let mut on_refused = |refused: RefusedRow| {
            let import = &mut **import.borrow_mut();
            import.taken -= 1;
            let position = positions.find(refused.row as u64);
            let number = position.map(|(file, _)| file).or((files.len() == 1).then_some(0));
            let input = number.and_then(|number| Some((number, files.get(number)?.as_path())));
            let refusal = Refusal::at_end(position.map(|(_, row)| row), &refused.error, existing)?;
            import.refuse(input, &refusal).map_err(give_up)
        };
        let mut before_commit = |_: &terrane::ImportReport| {
            let import = &mut **import.borrow_mut();
            import.check_any_taken().and_then(|()| import.rejects.publish()).map_err(give_up)
        };
        let outcome = importer.finish_after(&mut on_refused, &mut before_commit);
        match failure.take() {
            Some(failure) => Err(failure),
            None => outcome.map(|_| ()).map_err(|error| Self::failure(None, error)),
        }
    }

    /// The failure for an error that ends the import. It concerns the whole import then, even if
    /// `--on-invalid` is `skip`.
    fn failure(path: Option<&Path>, error: terrane::Error) -> Failure {
        let is_refusal = error.is_refusal();
        let mut failure = Failure::from(error);
        if let Some(path) = path {
            failure = failure.within(path.display());
        }
        if is_refusal { failure.within("nothing was imported") } else { failure }
    }

    /// An import without any valid row is a failure.
    fn check_any_taken(&mut self) -> Result<(), Failure> {
        if self.taken > 0 || self.refused == 0 {
            return Ok(());
        }
        self.rejects.publish()?;
        self.rejects.describe(self.messages);
        let refused = match self.refused {
            1 => "the only row was refused".to_string(),
            rows => format!("all {rows} rows were refused"),
        };
        Err(Failure::refused(format!("{refused}, nothing was imported")))
    }
}
