//! `terrane import`: files into a dataset, all of their records or none.
//!
//! A file that cannot be taken is noticed before a store is created for it, where it is the
//! first; a store that was created for an import that fails is taken away again.

mod positions;
mod refusal;
mod rejects;
mod source;

use std::path::Path;
use std::time::Instant;

use terrane::{Importer, RefusedRow, Store};
use terrane_formats::{Batch, Source};

use crate::args::{Common, ImportArguments, OnInvalid};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::StorePlace;

use positions::Positions;
use refusal::Refusal;
use rejects::Rejects;

/// What came of an import.
struct Summary {
    records: u64,
    refused: u64,
}

pub fn run(arguments: &ImportArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let started = Instant::now();
    let place = StorePlace::examine(&arguments.store)?;
    let rejects = Rejects::new(arguments)?;
    let first = match place.is_vacant() {
        true => Some(source::open(arguments, &arguments.files[0], None)?),
        false => None,
    };
    let store = place.open(arguments.durability, common)?;
    match (Import { arguments, messages, rejects }).run(&store, first) {
        Ok(summary) => {
            store.close()?;
            let seconds = started.elapsed().as_secs_f64();
            messages.info(format_args!(
                "imported {} records into {} in {seconds:.1} s",
                summary.records, arguments.dataset
            ));
            if summary.refused > 0 {
                messages.warn(format_args!("{} rows were refused", summary.refused));
            }
            Ok(())
        }
        Err(failure) => {
            place.undo(store);
            Err(failure)
        }
    }
}

/// An import under way.
struct Import<'a> {
    arguments: &'a ImportArguments,
    messages: &'a Messages,
    rejects: Rejects,
}

impl Import<'_> {
    fn run(mut self, store: &Store, first: Option<Source>) -> Result<Summary, Failure> {
        let arguments = self.arguments;
        let existing = match store.dataset(&arguments.dataset) {
            Ok(dataset) => Some(dataset.schema()),
            Err(terrane::Error::UnknownDataset { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(schema) = &existing {
            source::check_flags(arguments, schema)?;
        }
        let first = match first {
            Some(first) => first,
            None => source::open(arguments, &arguments.files[0], existing.as_deref())?,
        };
        let is_key_guessed = existing.is_none() && arguments.key.is_none();
        let schema = match &existing {
            Some(schema) => (**schema).clone(),
            None => source::schema_of(arguments, &first)?,
        };
        let mut importer = store.importer(&arguments.dataset, schema)?;
        let schema = importer.schema().clone();
        let mut positions = Positions::default();
        let mut refused_by_reader = 0;
        let mut next = Some(first);
        for (number, path) in arguments.files.iter().enumerate() {
            let mut file = match next.take() {
                Some(first) => first,
                None => source::open(arguments, path, Some(&schema))?,
            };
            source::check_columns(&file, &schema)?;
            self.messages.info(source::description(&file, &schema));
            for warning in &file.warnings {
                self.messages.warn(format_args!("{}: {warning}", path.display()));
            }
            positions.begin_file(number);
            refused_by_reader += self.read(&mut file, path, &mut importer, &mut positions)?;
        }
        let mut summary = self.finish(importer, &positions, refused_by_reader, is_key_guessed)?;
        summary.refused += refused_by_reader;
        Ok(summary)
    }

    /// Hands the rows of a file to the importer; returns how many the file's reader refused.
    fn read(
        &mut self,
        file: &mut Source,
        path: &Path,
        importer: &mut Importer,
        positions: &mut Positions,
    ) -> Result<u64, Failure> {
        let bar = self.messages.progress(path, file.row_count_hint);
        let mut refused_by_reader = 0;
        while let Some(batch) = file.next_batch()? {
            bar.inc((batch.rows.len() + batch.rejected.len()) as u64);
            refused_by_reader += batch.rejected.len() as u64;
            let refused = importer.push(&batch.batch).map_err(|error| Failure::from(error).within(path.display()))?;
            positions.push(&batch.rows);
            self.refuse(path, &batch, refused)?;
        }
        bar.finish_and_clear();
        Ok(refused_by_reader)
    }

    /// Ends the import at the first refused row of a batch, or puts them all aside.
    fn refuse(&mut self, path: &Path, batch: &Batch, refused: Vec<RefusedRow>) -> Result<(), Failure> {
        let mut refusals: Vec<Refusal> = batch.rejected.iter().map(Refusal::by_reader).collect();
        refusals.extend(refused.into_iter().map(|row| Refusal::by_store(batch, row)));
        refusals.sort_by_key(|refusal| refusal.row);
        if self.arguments.on_invalid == OnInvalid::Error {
            return match refusals.first() {
                Some(first) => Err(give_up(first.describe(path))),
                None => Ok(()),
            };
        }
        refusals.iter().try_for_each(|refusal| self.rejects.write(path, refusal))
    }

    /// Makes the records durable, all at once.
    fn finish(
        mut self,
        importer: Importer,
        positions: &Positions,
        refused_by_reader: u64,
        is_key_guessed: bool,
    ) -> Result<Summary, Failure> {
        let key_name = importer.schema().key.name.clone();
        let mut failure = None;
        let outcome = importer.finish(&mut |refused| {
            let taken = self.refuse_duplicate(positions, refused, is_key_guessed, &key_name);
            taken.map_err(|refusal| {
                failure = Some(refusal);
                terrane::Error::Cancelled
            })
        });
        let report = match (outcome, failure) {
            (_, Some(failure)) => return Err(failure),
            (outcome, None) => outcome?,
        };
        self.rejects.finish(self.messages)?;
        if report.records == 0 && report.refused + refused_by_reader > 0 {
            return Err(Failure::refused(format!(
                "all {} rows were refused, nothing was imported",
                report.refused + refused_by_reader
            )));
        }
        Ok(Summary { records: report.records, refused: report.refused })
    }

    /// A row whose key another row or a record of the dataset has.
    fn refuse_duplicate(
        &mut self,
        positions: &Positions,
        refused: RefusedRow,
        is_key_guessed: bool,
        key_name: &str,
    ) -> Result<(), Failure> {
        let position = positions.find(refused.row as u64);
        let path = position.map_or(self.arguments.files[0].as_path(), |(file, _)| self.arguments.files[file].as_path());
        let refusal = Refusal::of_duplicate(position.map(|(_, row)| row), &refused.error);
        if self.arguments.on_invalid == OnInvalid::Skip {
            return self.rejects.write(path, &refusal);
        }
        let mut message = refusal.describe(path);
        if is_key_guessed {
            message.push_str(&format!(" (that column {key_name:?} is the key was a guess; name another with --key)"));
        }
        Err(give_up(message))
    }
}

fn give_up(message: String) -> Failure {
    Failure::refused(format!("{message}; nothing was imported (--on-invalid skip puts such rows aside)"))
}
