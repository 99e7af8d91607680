//! `terrane import`: files into a dataset, all of their records or none.
//!
//! A file that cannot be taken is noticed before a store is created for it, where it is the
//! first; a store that was created for an import that fails is taken away again.

mod positions;
mod refusal;
mod rejects;
mod source;

use std::path::{Path, PathBuf};
use std::time::Instant;

use terrane::schema::Schema;
use terrane::{Importer, RefusedRow, Store};
use terrane_formats::{Batch, Source};

use crate::args::{Common, ImportArguments, OnInvalid};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::place::StorePlace;

use positions::Positions;
use refusal::Refusal;
use rejects::Rejects;

pub fn run(arguments: &ImportArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let started = Instant::now();
    let place = StorePlace::examine(&arguments.store)?;
    let mut import =
        Import { arguments, messages, rejects: Rejects::new(arguments)?, guessed_key: None, taken: 0, refused: 0 };
    let first = match place.is_vacant() {
        true => Some(source::open(arguments, &arguments.files[0], None)?),
        false => None,
    };
    let store = place.open(arguments.durability, common)?;
    if let Err(failure) = import.run(&store, first) {
        place.undo(store);
        return Err(failure);
    }
    store.close()?;
    let seconds = started.elapsed().as_secs_f64();
    messages.info(format_args!("imported {} records into {} in {seconds:.1} s", import.taken, arguments.dataset));
    Ok(())
}

/// An import under way.
struct Import<'a> {
    arguments: &'a ImportArguments,
    messages: &'a Messages,
    rejects: Rejects,
    /// The key column of a new dataset, where no flag named it.
    guessed_key: Option<String>,
    taken: u64,
    refused: u64,
}

impl Import<'_> {
    fn run(&mut self, store: &Store, first: Option<Source>) -> Result<(), Failure> {
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
        let schema = match &existing {
            Some(schema) => (**schema).clone(),
            None => self.new_schema(&first)?,
        };
        let mut importer = store.importer(&arguments.dataset, schema)?;
        let positions = self.read_files(first, &mut importer)?;
        self.check_any_taken()?;
        self.finish(importer, &positions)?;
        self.check_any_taken()?;
        self.rejects.finish(self.messages)?;
        if self.refused > 0 {
            self.messages.warn(format_args!("{} rows were refused", self.refused));
        }
        Ok(())
    }

    fn new_schema(&mut self, first: &Source) -> Result<Schema, Failure> {
        let schema = source::schema_of(self.arguments, first)?;
        if self.arguments.key.is_none() && !schema.key.generated {
            self.guessed_key = Some(schema.key.name.clone());
        }
        Ok(schema)
    }

    /// Hands the rows of all files to the importer.
    fn read_files(&mut self, first: Source, importer: &mut Importer) -> Result<Positions, Failure> {
        let schema = importer.schema().clone();
        let mut positions = Positions::default();
        let mut next = Some(first);
        for (number, path) in self.arguments.files.iter().enumerate() {
            let mut file = match next.take() {
                Some(first) => first,
                None => source::open(self.arguments, path, Some(&schema))?,
            };
            source::check_columns(&file, &schema)?;
            self.messages.info(source::description(&file, &schema));
            for warning in &file.warnings {
                self.messages.warn(format_args!("{}: {warning}", path.display()));
            }
            positions.begin_file(number);
            self.read(&mut file, path, importer, &mut positions)?;
        }
        Ok(positions)
    }

    fn read(
        &mut self,
        file: &mut Source,
        path: &Path,
        importer: &mut Importer,
        positions: &mut Positions,
    ) -> Result<(), Failure> {
        let bar = self.messages.progress(path, file.row_count_hint);
        while let Some(batch) = file.next_batch()? {
            let refused = importer.push(&batch.batch).map_err(|error| Failure::from(error).within(path.display()))?;
            positions.push(&batch.rows);
            self.taken += (batch.rows.len() - refused.len()) as u64;
            self.refuse_rows(path, &batch, refused)?;
            bar.inc((batch.rows.len() + batch.rejected.len()) as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Puts the refused rows of a batch aside, or ends the import at the first of them.
    fn refuse_rows(&mut self, path: &Path, batch: &Batch, refused: Vec<RefusedRow>) -> Result<(), Failure> {
        let mut refusals: Vec<Refusal> = batch.rejected.iter().map(Refusal::by_reader).collect();
        refusals.extend(refused.into_iter().map(|row| Refusal::by_store(batch, row)));
        refusals.sort_by_key(|refusal| refusal.row);
        refusals.iter().try_for_each(|refusal| self.refuse(Some(path), refusal))
    }

    fn refuse(&mut self, path: Option<&Path>, refusal: &Refusal) -> Result<(), Failure> {
        self.refused += 1;
        if self.arguments.on_invalid == OnInvalid::Skip {
            return self.rejects.write(path, refusal);
        }
        let guess = match &self.guessed_key {
            Some(key) if refusal.is_duplicate => {
                format!(
                    "; that column {key:?} is the key was a guess: name another with --key, or number the rows with --key ''"
                )
            }
            _ => String::new(),
        };
        Err(Failure::refused(format!(
            "{}; nothing was imported{guess} (--on-invalid skip puts such rows aside)",
            refusal.describe(path)
        )))
    }

    /// Makes the records durable, all at once. Keys that occur twice are found out here.
    fn finish(&mut self, importer: Importer, positions: &Positions) -> Result<(), Failure> {
        let files = &self.arguments.files;
        let mut failure = None;
        let outcome = importer.finish(&mut |refused| {
            self.taken -= 1;
            let position = positions.find(refused.row as u64);
            let path = match (position, &files[..]) {
                (Some((file, _)), _) => files.get(file),
                (None, [only]) => Some(only),
                (None, _) => None,
            };
            let refusal = Refusal::at_end(position.map(|(_, row)| row), &refused.error);
            self.refuse(path.map(PathBuf::as_path), &refusal).map_err(|refusal| {
                failure = Some(refusal);
                terrane::Error::Cancelled
            })
        });
        match failure {
            Some(failure) => Err(failure),
            None => outcome.map(|_| ()).map_err(Failure::from),
        }
    }

    /// An import of which nothing is left is a failure.
    fn check_any_taken(&mut self) -> Result<(), Failure> {
        if self.taken > 0 || self.refused == 0 {
            return Ok(());
        }
        self.rejects.finish(self.messages)?;
        Err(Failure::refused(format!("all {} rows were refused, nothing was imported", self.refused)))
    }
}
