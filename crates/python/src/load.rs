//! The way of rows into a dataset: by an import, which is atomic, or in batches of the log.

use std::collections::HashSet;

use pyo3::Python;
use terrane::schema::Schema;
use terrane::{CoordinateSystem, Dataset, DatasetOptions, Error, ImportMode, OnConflict, RefusedRow, Store};
use terrane_formats::{Batch, ReadOptions, Source};
use terrane_load::{Union, fit_to, fitted, new_columns, schema_of, schema_with};

use crate::checked::NAME;
use crate::error::{Failure, Result, in_python};
use crate::progress::Progress;
use crate::warnings::warn;

/// How the first rows of a new dataset are understood.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The key column, an empty name for row numbers; guessed if not given.
    pub key: Option<String>,
    /// The column of longitudes or x.
    pub lon: Option<String>,
    /// The column of latitudes or y.
    pub lat: Option<String>,
    /// The column of geometries.
    pub geometry: Option<String>,
    /// Whether coordinates are planar.
    pub planar: bool,
}

impl Shape {
    /// How a source is read; for a dataset if there is one.
    pub fn options(&self, schema: Option<&Schema>) -> ReadOptions {
        let mut options = ReadOptions {
            key: self.key.clone(),
            x: self.lon.clone(),
            y: self.lat.clone(),
            geometry: self.geometry.clone(),
            ..ReadOptions::default()
        };
        options.coordinates.planar = self.planar;
        if let Some(schema) = schema {
            fit_to(&mut options, schema);
        }
        options
    }

    fn schema(&self, source: &Source) -> Result<Schema> {
        let system = if self.planar { CoordinateSystem::Planar } else { CoordinateSystem::LonLat };
        Ok(schema_of(source, self.key.as_deref(), system)?)
    }
}

/// What an import or an insert has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loaded {
    /// Number of records that are stored.
    pub records: u64,
    /// Number of rows that were refused.
    pub refused: u64,
}

/// Imports sources, all of their rows or none. `open` opens the one of a number, for a dataset if
/// there is one. With `skip`, refused rows are left out; else the first of them ends the import.
pub fn import(
    store: &Store,
    name: &str,
    shape: &Shape,
    (mode, skip): (ImportMode, bool),
    count: usize,
    progress: &Progress,
    open: &mut dyn FnMut(usize, &ReadOptions) -> Result<Source>,
) -> Result<Loaded> {
    store.check_import(mode, name)?;
    let existing = match store.dataset(name) {
        Ok(dataset) if mode != ImportMode::Replace => Some(dataset.schema()),
        Ok(_) | Err(Error::UnknownDataset { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let mut union = Union::default();
    let mut notices = Notices::default();
    let first = open(0, &shape.options(existing.as_deref()))?;
    notices.add(&first, &first.warnings)?;
    let schema = match &existing {
        Some(schema) => {
            union.add(first);
            (**schema).clone()
        }
        None => {
            let mut schema = shape.schema(&first)?;
            let bare = schema.without_attributes();
            union.add(first);
            for number in 1..count {
                let file = open(number, &shape.options(Some(&bare)))?;
                notices.add(&file, &file.warnings)?;
                union.add(file);
                schema = schema_with(&bare, &union.schema()).map_err(Error::from)?;
            }
            warn(union.warnings.drain(..))?;
            schema
        }
    };
    let mut importer = store.importer_in(mode, name, schema, &DatasetOptions::default())?;
    let mut loaded = Loaded::default();
    for number in 0..count {
        let schema = importer.schema().clone();
        let mut source = match union.take(number, &schema) {
            Some(source) => source,
            None => open(number, &shape.options(Some(&schema)))?,
        };
        notices.add(&source, &source.warnings)?;
        for column in new_columns(&source, &schema)? {
            importer.add_column(column)?;
        }
        if let Some(rows) = source.row_count_hint.filter(|_| count == 1) {
            progress.expect(rows)?;
        }
        while let Some(batch) = source.next_batch()? {
            progress.add(batch.batch.num_rows() + batch.rejected.len())?;
            let (fitting, wider) =
                fitted(&batch.batch, importer.schema()).map_err(|error| Error::Failed(error.to_string()))?;
            wider.iter().try_for_each(|name| importer.widen_column(name))?;
            let refused = importer.push(&fitting)?;
            loaded.refused += judge(&batch, refused, skip)?;
        }
        notices.add(&source, &source.notices())?;
    }
    let mut failure = None;
    let mut twice = 0;
    let finished = importer.finish(&mut |refused: RefusedRow| {
        twice += 1;
        match skip {
            true => Ok(()),
            false => {
                failure = Some(Failure::Engine(refused.error, Some(refused.row as u64)));
                Err(Error::Cancelled)
            }
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let report = finished?;
    progress.end()?;
    let refused = loaded.refused + twice;
    if refused > 0 {
        warn([format!("{} and left out", terrane::counted(refused, "row was refused", "rows were refused"))])?;
    }
    Ok(Loaded { records: report.records, refused })
}

/// Notices on how sources are read, each given once.
#[derive(Default)]
struct Notices {
    given: HashSet<String>,
}

impl Notices {
    fn add(&mut self, source: &Source, messages: &[String]) -> Result<()> {
        for message in messages {
            let message = match source.path.as_os_str() == NAME {
                true => message.clone(),
                false => format!("{}: {message}", source.path.display()),
            };
            if self.given.insert(message.clone()) {
                warn([in_python(&message)])?;
            }
        }
        Ok(())
    }
}

/// Counts the refused rows of a batch, or fails with the first of them.
fn judge(batch: &Batch, refused: Vec<RefusedRow>, skip: bool) -> Result<u64> {
    let count = (batch.rejected.len() + refused.len()) as u64;
    if skip {
        return Ok(count);
    }
    first_refused(batch, refused).map_or(Ok(0), Err)
}

/// The first refused row of a batch, with its number in the source.
fn first_refused(batch: &Batch, refused: Vec<RefusedRow>) -> Option<Failure> {
    let by_reader = batch.rejected.first().map(|row| {
        let error = Error::Refused { row: None, column: None, reason: row.reason.clone() };
        (row.row, error)
    });
    let by_store = refused
        .into_iter()
        .next()
        .map(|refused| (batch.rows.get(refused.row).copied().unwrap_or(refused.row as u64 + 1), refused.error));
    let first = by_reader.into_iter().chain(by_store).min_by_key(|(row, _)| *row);
    first.map(|(row, error)| Failure::Engine(error, Some(row - 1)))
}

/// Writes the rows of a source through the log. All rows that are not refused are durable when it
/// returns, or fails with the first refused row. A table that adds columns gives a notice.
pub fn write(
    dataset: &Dataset,
    source: &mut Source,
    on_conflict: OnConflict,
    is_table: bool,
) -> Result<(Loaded, Vec<terrane::Key>)> {
    let mut loaded = Loaded::default();
    let mut keys = Vec::new();
    let mut failure = None;
    let mut notices = Notices::default();
    notices.add(source, &source.warnings)?;
    for column in new_columns(source, &dataset.schema())? {
        if is_table {
            warn([format!("the table adds the column {:?} to the dataset {}", column.name, dataset.name())])?;
        }
        dataset.add_column(column)?;
    }
    loop {
        let batch = match source.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(error) if loaded.records == 0 => return Err(error.into()),
            Err(error) => return Err(Failure::from(error).with_counts(&stored(&loaded))),
        };
        Python::attach(|py| py.check_signals())?;
        let (fitting, wider) =
            fitted(&batch.batch, &dataset.schema()).map_err(|error| Error::Failed(error.to_string()))?;
        wider.iter().try_for_each(|name| dataset.widen_column(name))?;
        let outcome = dataset.write_batch(&fitting, on_conflict)?;
        loaded.records += outcome.keys.len() as u64;
        loaded.refused += (batch.rejected.len() + outcome.refused.len()) as u64;
        keys = outcome.keys;
        if failure.is_none() {
            failure = first_refused(&batch, outcome.refused);
        }
    }
    match failure {
        Some(failure) if loaded.refused > 1 || loaded.records > 0 => {
            Err(failure.with_counts(&format!("{} refused, {}", loaded.refused, stored(&loaded))))
        }
        Some(failure) => Err(failure),
        None => {
            notices.add(source, &source.notices())?;
            Ok((loaded, keys))
        }
    }
}

fn stored(loaded: &Loaded) -> String {
    format!("{} stored", loaded.records)
}
