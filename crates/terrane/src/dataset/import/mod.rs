//! Imports: any number of records that appear all at once, without the log.
//!
//! 1. Records go to sorted runs, component files that no manifest names.
//! 2. The runs are merged into one primary component per partition. The components of the other
//!    indexes are loaded from it.
//! 3. Writers pause. Older memory components are sealed and flushed. Keys inserted since they were
//!    compared are checked again.
//! 4. One manifest step installs everything, including the dataset if it is new.
//!
//! A crash before step 4 leaves strays, which the next open removes.
//!
//! An upsert's secondary components also have anti-matter for the replaced records, taken from a
//! snapshot. If one of its keys was written since, they are loaded again in step 3. A replacement
//! loads a dataset of its own, which takes the name in the step that removes the old one.

mod install;
mod mode;
mod runs;

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrow_array::RecordBatch;
use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent};
use terrane_lsm::disk::{ComponentMeta, Statistics};
use terrane_lsm::manifest::DatasetState;
use terrane_lsm::parallel::{self, threads_of};
use terrane_lsm::search;

use self::install::{Compared, Loaded};
pub use self::mode::ImportMode;
use self::mode::{Replaced, Target};
use self::runs::{RowRanges, row_of_sequence, visit_runs};
use super::widen::not_exact;
use super::{Dataset, RefusedRow};
use crate::batch::BatchRecords;
use crate::engine::{DatasetHandle, Engine, WriterLock};
use crate::key::{Key, check_length};
use crate::load::load_index;
use crate::options::DatasetOptions;
use crate::runs::{RunBuffer, UnnamedFiles, reduce};
use crate::schema::{Column, Schema, SchemaHistory};
use crate::secondary::{PRIMARY, StoredTimes, primary_index};
use crate::snapshot::{RECORDS_STEP, Snapshot};
use crate::{Error, Result};

/// Approximate memory in bytes of a primary component that is being built.
const BUILDER_BYTES: usize = 512 << 10;

/// Result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Number of records in the dataset now.
    pub records: u64,
    /// Number of refused rows.
    pub refused: u64,
    /// Bytes of the new components.
    pub bytes: u64,
}

/// An import in progress. If it is dropped unfinished, nothing of it remains.
#[derive(Debug)]
pub struct Importer {
    mode: ImportMode,
    handle: Arc<DatasetHandle>,
    schema: Arc<Schema>,
    /// All versions of the dataset's schema. The last one is the rows' schema.
    history: Arc<SchemaHistory>,
    /// The same, for the primary components that are written.
    shared_history: Arc<ArcSwap<SchemaHistory>>,
    /// Attributes that become float64 with the records.
    widened: Vec<String>,
    /// Number of attributes that the records add.
    added: usize,
    /// For each attribute, one integer of the rows so far that a float64 cannot hold exactly.
    inexact: Vec<Option<i64>>,
    /// The dataset's entry in the manifest, if it is new.
    created: Option<DatasetState>,
    /// The dataset that this one replaces, if any.
    replaced: Option<Replaced>,
    /// The first run while it is being written. It takes rows while their keys ascend.
    ascending: Option<BTreeBuilder>,
    last_key: Vec<u8>,
    ascending_rows: RowRanges,
    /// The finished first run.
    ascending_run: Option<ComponentMeta>,
    buffer: RunBuffer,
    /// The later runs, in the order of their rows.
    spilled: Vec<ComponentMeta>,
    /// All files of the import, until the store owns them.
    files: UnnamedFiles,
    rows: u64,
    refused: u64,
    /// The state with which the keys were compared.
    compared: Compared,
    /// For an upsert, the snapshot with the records to be replaced.
    before: Option<Snapshot>,
    /// Number of columns that had been widened when the import was begun.
    widenings: usize,
    engine: Arc<Engine>,
    /// Dropped last: unused files are removed before, also if the store was closed meanwhile.
    _lock: Option<Arc<WriterLock>>,
}

impl Importer {
    pub(crate) fn new(
        engine: Arc<Engine>,
        name: &str,
        schema: Schema,
        options: &DatasetOptions,
        mode: ImportMode,
    ) -> Result<Self> {
        engine.check_writable()?;
        engine.maintenance.check_disk()?;
        let Target { handle, created, replaced } = Target::of(&engine, name, schema, options, mode)?;
        let history = handle.history.load_full();
        let schema = history.newest().clone();
        let files = UnnamedFiles::new(engine.environment().storage.clone());
        Ok(Self {
            mode,
            _lock: engine.environment().lock(),
            engine,
            handle,
            inexact: vec![None; schema.columns.len()],
            schema,
            widenings: history.widenings(),
            shared_history: Arc::new(ArcSwap::new(history.clone())),
            history,
            widened: Vec::new(),
            added: 0,
            created,
            replaced,
            ascending: None,
            last_key: Vec::new(),
            ascending_rows: RowRanges::default(),
            ascending_run: None,
            buffer: RunBuffer::default(),
            spilled: Vec::new(),
            files,
            rows: 0,
            refused: 0,
            compared: Compared::default(),
            before: None,
        })
    }

    fn take_history(&mut self, history: SchemaHistory) {
        self.schema = history.newest().clone();
        self.history = Arc::new(history);
        self.shared_history.store(self.history.clone());
    }

    /// Starts a component of the primary.
    fn primary_builder(&self) -> Result<BTreeBuilder> {
        let times = Arc::new(StoredTimes::new(self.shared_history.clone()));
        Ok(primary_index(times).builder(self.engine.environment().context.writer()?, false))
    }

    /// The schema that batches must fit.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Adds a nullable attribute for the next batches. The dataset gets it together with the
    /// records. [`Self::finish`] refuses the import if the columns were changed since it was begun.
    ///
    /// # Errors
    /// The name is taken or invalid.
    pub fn add_column(&mut self, column: Column) -> Result<()> {
        let history = self.history.with_column(column)?;
        self.take_history(history);
        self.inexact.push(None);
        self.added += 1;
        Ok(())
    }

    /// Makes an int64 attribute float64, so that the next batches may have fractions.
    ///
    /// The dataset's attribute changes together with the records. [`Self::finish`] refuses the
    /// import if the columns were changed since it was begun, or if float64 cannot hold a stored
    /// integer exactly.
    ///
    /// # Errors
    /// An unknown column or one of another type; an integer of the rows so far that float64 cannot
    /// hold exactly.
    pub fn widen_column(&mut self, name: &str) -> Result<()> {
        let history = self.history.widen(name)?;
        let place = self.schema.column_index(name);
        if let Some(integer) = place.and_then(|place| self.inexact[place]) {
            return Err(not_exact(name, integer));
        }
        self.take_history(history);
        self.widened.push(name.to_owned());
        Ok(())
    }

    /// Takes the rows of a batch. Returns the refused rows, which are not imported.
    ///
    /// # Errors
    /// Columns that do not fit the schema; storage.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<Vec<RefusedRow>> {
        let schema = self.schema.clone();
        let mut rows = BatchRecords::new(batch, &schema)?;
        let mut refused = Vec::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for row in 0..rows.rows() {
            key.clear();
            value.clear();
            let taken = rows.encode_row(row, &mut key, &mut value).map_err(Error::from).and_then(|_| {
                if !rows.has_keys() {
                    self.dataset().generate_key(&mut key)?;
                }
                check_length(&key)?;
                self.add(&key, &value)
            });
            self.rows += 1;
            match taken {
                Ok(()) => rows.inexact_integers(row).for_each(|(place, integer)| self.inexact[place] = Some(integer)),
                Err(error) if error.is_refusal() => refused.push(RefusedRow { row, error }),
                Err(error) => {
                    self.engine.core.note_failure(&error);
                    return Err(error);
                }
            }
        }
        self.refused += refused.len() as u64;
        Ok(refused)
    }

    fn dataset(&self) -> Dataset {
        Dataset { engine: self.engine.clone(), handle: self.handle.clone() }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let first = self.ascending.is_none() && self.ascending_run.is_none();
        if first {
            self.ascending = Some(self.primary_builder()?);
        }
        if let Some(builder) = &mut self.ascending {
            let fits = self.ascending_rows.memory_used() < self.engine.environment().shares.work / 8;
            if first || (fits && key > self.last_key.as_slice()) {
                self.last_key.clear();
                self.last_key.extend_from_slice(key);
                self.ascending_rows.push(self.rows);
                return Ok(builder.push(key, false, 0, value)?);
            }
            if key == self.last_key.as_slice() {
                return Err(Error::DuplicateKey { key: Key::decode(self.schema.key.key_type, key)? });
            }
            self.finish_ascending()?;
        }
        if self.buffer.memory_used() + key.len() + value.len() > self.engine.environment().shares.work {
            self.spill()?;
        }
        self.buffer.push(key, value, self.rows);
        Ok(())
    }

    fn finish_ascending(&mut self) -> Result<()> {
        if let Some(builder) = self.ascending.take() {
            let run = builder.finish(Statistics::LOADED)?;
            self.files.add(&run);
            self.ascending_run = Some(run);
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        if let Some(run) = runs::spill(&mut self.buffer, &self.engine.environment().context)? {
            self.files.add(&run);
            self.spilled.push(run);
        }
        Ok(())
    }

    /// Makes the records durable and visible, all at once.
    ///
    /// `on_refused` gets each row whose key is that of another row or of a stored record. Rows are
    /// numbered over the whole import, from 0. If `on_refused` fails, the import is abandoned.
    ///
    /// # Errors
    /// - Those of `on_refused`.
    /// - [`Error::DuplicateKey`] if another writer or import took one of the keys after the rows
    ///   had been judged. The whole import fails, and can be repeated.
    /// - Storage. It may then be unknown which manifest is on disk. In this case the store refuses
    ///   writes, and reopening it shows which.
    ///
    /// After an error, the dataset is unchanged, apart from this last case.
    pub fn finish(self, on_refused: &mut dyn FnMut(RefusedRow) -> Result<()>) -> Result<ImportReport> {
        self.finish_after(on_refused, &mut |_| Ok(()))
    }

    /// Like [`Self::finish`]. `before_commit` gets the report when all rows have been judged and
    /// nothing is visible yet. If it fails, the import is abandoned.
    ///
    /// # Errors
    /// Those of [`Self::finish`] and of `before_commit`.
    pub fn finish_after(
        mut self,
        on_refused: &mut dyn FnMut(RefusedRow) -> Result<()>,
        before_commit: &mut dyn FnMut(&ImportReport) -> Result<()>,
    ) -> Result<ImportReport> {
        let engine = self.engine.clone();
        let report =
            self.load_and_install(on_refused, before_commit).inspect_err(|error| engine.core.note_failure(error))?;
        engine.maintenance.after_flush();
        Ok(report)
    }

    fn load_and_install(
        &mut self,
        on_refused: &mut dyn FnMut(RefusedRow) -> Result<()>,
        before_commit: &mut dyn FnMut(&ImportReport) -> Result<()>,
    ) -> Result<ImportReport> {
        self.finish_ascending()?;
        self.spill()?;
        self.buffer = RunBuffer::default();
        let primaries = self.merge_runs(on_refused)?;
        let engine = self.engine.clone();
        let open = |meta| Ok(Arc::new(BTreeComponent::open(engine.environment().context.file(meta)?)?));
        let components = primaries.iter().map(open).collect::<Result<Vec<_>>>()?;
        let records = primaries.iter().map(|primary| primary.statistics.entries).sum();
        let mut loaded = Loaded::new(primaries);
        self.load_indexes(&components, &mut loaded)?;
        let report = ImportReport { records, refused: self.refused, bytes: loaded.bytes() };
        before_commit(&report)?;
        self.install(loaded, &components)?;
        Ok(report)
    }

    /// Loads components for the current secondary indexes that have none yet, for several
    /// partitions at a time.
    fn load_indexes(&mut self, primaries: &[Arc<BTreeComponent>], loaded: &mut Loaded) -> Result<()> {
        let engine = self.engine.clone();
        let threads = threads_of(engine.environment().context.threads_max, primaries.len());
        let budget = engine.environment().shares.work / threads;
        // Before the history is read, which then has the columns of these indexes.
        let indexes = self.handle.indexes.load_full();
        let history = self.history_of_all()?;
        for (slot, index) in indexes.secondaries() {
            if loaded.has(slot) {
                continue;
            }
            let metas = parallel::map(threads, primaries, |primary| {
                let (primary, before) = (primary.clone(), self.before.as_ref());
                load_index(&engine.environment().context, index, &history, primary, before, budget, Statistics::LOADED)
            });
            engine.core.note_failures(&metas);
            metas.iter().flatten().for_each(|meta| self.files.add(meta));
            loaded.add(slot, metas.into_iter().collect::<Result<_>>()?);
        }
        Ok(())
    }

    /// Merges the accepted rows into one primary component per partition.
    fn merge_runs(&mut self, on_refused: &mut dyn FnMut(RefusedRow) -> Result<()>) -> Result<Vec<ComponentMeta>> {
        let engine = self.engine.clone();
        self.note_compared();
        reduce(&mut self.spilled, &mut self.files, engine.environment().shares.work, &mut |runs| {
            runs::merge(&engine.environment().context, runs)
        })?;
        // The ascending run has the earliest rows. The other runs follow in the order of their
        // rows.
        let runs: Vec<ComponentMeta> = self.ascending_run.iter().chain(&self.spilled).cloned().collect();
        let overlaps = self.overlaps_existing(&runs)?;
        if self.mode == ImportMode::Upsert && overlaps {
            self.pin_replaced();
        }
        // An upsert replaces whatever is stored.
        let overlaps = overlaps && self.mode != ImportMode::Upsert;
        let partitions = self.handle.partitions.count();
        if let ([run], true, false, 1) = (&runs[..], self.ascending_run.is_some(), overlaps, partitions) {
            return Ok(vec![run.clone()]);
        }
        let at_once = (engine.environment().shares.work / BUILDER_BYTES).clamp(1, partitions);
        let mut primaries = Vec::with_capacity(partitions);
        for first in (0..partitions).step_by(at_once) {
            let group = first..partitions.min(first + at_once);
            primaries.extend(self.merge_into(group, &runs, overlaps, on_refused)?);
        }
        Ok(primaries)
    }

    /// Writes the primary components of some of the partitions.
    fn merge_into(
        &mut self,
        group: Range<usize>,
        runs: &[ComponentMeta],
        overlaps: bool,
        on_refused: &mut dyn FnMut(RefusedRow) -> Result<()>,
    ) -> Result<Vec<ComponentMeta>> {
        let engine = self.engine.clone();
        let mut builders = group.clone().map(|_| self.primary_builder()).collect::<Result<Vec<_>>>()?;
        let mut versions = self.handle.partitions.versions();
        let mut key: Option<Vec<u8>> = None;
        let (mut partition, mut exists) = (0, false);
        let (mut ascending_entries, mut visited) = (0, 0);
        visit_runs(&engine.environment().context, runs, &mut |entry| {
            visited += 1;
            if visited % RECORDS_STEP == 0 {
                // New versions, so that no sealed memory is kept for long. Keys written since the
                // last one are refused like the others. Components that the first version lacked
                // are compared again at installation.
                versions = self.handle.partitions.versions();
            }
            let row = match entry.begin {
                Some(sequence) => row_of_sequence(sequence),
                None => {
                    ascending_entries += 1;
                    self.ascending_rows.row(ascending_entries - 1)
                }
            };
            if key.as_deref() != Some(&*entry.key) {
                let key = key.insert(entry.key.to_vec());
                partition = self.handle.partition_of(key);
                exists = overlaps
                    && group.contains(&partition)
                    && search::get(&versions[partition], PRIMARY as usize, key, u64::MAX)?.is_some();
            }
            if !group.contains(&partition) {
                return Ok(());
            }
            if exists {
                let error = Error::DuplicateKey { key: Key::decode(self.schema.key.key_type, &entry.key)? };
                self.refused += 1;
                return on_refused(RefusedRow { row: row as usize, error });
            }
            exists = true;
            Ok(builders[partition - group.start].push(&entry.key, false, 0, entry.value)?)
        })?;
        let finish = |builder: BTreeBuilder| Ok(builder.finish(Statistics::LOADED)?);
        let primaries: Vec<Result<ComponentMeta>> = builders.into_iter().map(finish).collect();
        primaries.iter().flatten().for_each(|primary| self.files.add(primary));
        primaries.into_iter().collect()
    }
}
