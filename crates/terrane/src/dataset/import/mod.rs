//! Imports: any number of records that appear all at once, past the log.
//!
//! Records go to sorted runs, which are component files that no manifest names. The runs are
//! merged into one primary component, from which the spatial component is loaded; one
//! manifest step installs both, and the dataset itself if it is new. A crash before that
//! step leaves strays, which the next open removes; after it, everything is there.
//!
//! At the step writers pause, older memory entries are sealed and flushed, and keys that
//! were inserted since the import looked are checked again.

use std::sync::Arc;

use arrow_array::RecordBatch;
use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent, BTreeCursor};
use terrane_lsm::disk::{ComponentMeta, component_name};
use terrane_lsm::manifest::DatasetState;
use terrane_lsm::search;

use super::{Dataset, RefusedRow};
use crate::batch::BatchRecords;
use crate::engine::{DatasetHandle, Engine, PRIMARY};
use crate::key::{Key, check_length};
use crate::load::load_spatial;
use crate::schema::Schema;
use crate::{Error, Result};

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Records that are in the dataset now.
    pub records: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// Bytes of the new components.
    pub bytes: u64,
}

/// An import under way. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct Importer {
    engine: Arc<Engine>,
    handle: Arc<DatasetHandle>,
    schema: Arc<Schema>,
    /// What the manifest will say of the dataset, if it is new.
    created: Option<DatasetState>,
    /// The run being written, as long as keys ascend.
    ascending: Option<BTreeBuilder>,
    last_key: Vec<u8>,
    ascending_rows: RowRanges,
    buffer: RunBuffer,
    runs: Vec<ComponentMeta>,
    rows: u64,
    refused: u64,
    /// Components of the primary that the keys were compared with.
    compared: Vec<u64>,
}

/// Records on their way to a sorted run.
#[derive(Debug, Default)]
struct RunBuffer {
    bytes: Vec<u8>,
    entries: Vec<BufferedRecord>,
}

#[derive(Clone, Copy, Debug)]
struct BufferedRecord {
    /// The first eight bytes of the key, as a number that sorts like them.
    prefix: u64,
    start: usize,
    key_len: u32,
    value_len: u32,
    row: u64,
}

impl RunBuffer {
    fn memory_used(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<BufferedRecord>()
    }

    fn push(&mut self, key: &[u8], value: &[u8], row: u64) {
        let mut prefix = [0; 8];
        let length = key.len().min(8);
        prefix[..length].copy_from_slice(&key[..length]);
        let record = BufferedRecord {
            prefix: u64::from_be_bytes(prefix),
            start: self.bytes.len(),
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            row,
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(record);
    }

    fn key(&self, record: &BufferedRecord) -> &[u8] {
        &self.bytes[record.start..record.start + record.key_len as usize]
    }

    fn value(&self, record: &BufferedRecord) -> &[u8] {
        let start = record.start + record.key_len as usize;
        &self.bytes[start..start + record.value_len as usize]
    }
}

/// Which rows the entries of the ascending run come from: rows that were refused leave gaps.
#[derive(Debug, Default)]
struct RowRanges {
    entries: u64,
    /// Entry and row at which a range of consecutive rows begins.
    starts: Vec<(u64, u64)>,
}

impl RowRanges {
    fn push(&mut self, row: u64) {
        if self.starts.last().is_none_or(|(entry, first)| first + (self.entries - entry) != row) {
            self.starts.push((self.entries, row));
        }
        self.entries += 1;
    }

    fn row(&self, entry: u64) -> u64 {
        let after = self.starts.partition_point(|(start, _)| *start <= entry);
        after.checked_sub(1).map_or(0, |range| self.starts[range].1 + (entry - self.starts[range].0))
    }

    fn memory_used(&self) -> usize {
        self.starts.capacity() * size_of::<(u64, u64)>()
    }
}

/// In runs, rows take the place of sequence numbers: of equal keys the first row comes first.
fn row_as_sequence(row: u64) -> u64 {
    u64::MAX - row
}

impl Importer {
    pub(crate) fn new(engine: Arc<Engine>, name: &str, schema: Schema) -> Result<Self> {
        engine.check_writable()?;
        let existing = engine.datasets.load().get(name).cloned();
        let (handle, created) = match existing {
            Some(handle) => (handle, None),
            None => {
                let state = engine.new_dataset(name, schema)?;
                (Arc::new(DatasetHandle::open(&engine.storage, &engine.cache, &state, false)?), Some(state))
            }
        };
        let schema = handle.schema();
        Ok(Self {
            engine,
            handle,
            schema,
            created,
            ascending: None,
            last_key: Vec::new(),
            ascending_rows: RowRanges::default(),
            buffer: RunBuffer::default(),
            runs: Vec::new(),
            rows: 0,
            refused: 0,
            compared: Vec::new(),
        })
    }

    /// The schema that batches have to fit.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Takes the rows of a batch; returns those that were refused, which are not imported.
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
                    self.dataset().generate_key(schema.key.key_type, &mut key)?;
                }
                check_length(&key)?;
                self.add(&key, &value)
            });
            self.rows += 1;
            match taken {
                Ok(()) => {}
                Err(error) if error.is_refusal() => refused.push(RefusedRow { row, error }),
                Err(error) => return Err(error),
            }
        }
        self.refused += refused.len() as u64;
        Ok(refused)
    }

    fn dataset(&self) -> Dataset {
        Dataset { engine: self.engine.clone(), handle: self.handle.clone() }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let first = self.runs.is_empty() && self.ascending.is_none() && self.buffer.entries.is_empty();
        if first {
            self.ascending = Some(BTreeBuilder::new(self.engine.workshop.writer()?, false));
        }
        if let Some(builder) = &mut self.ascending {
            let fits = self.ascending_rows.memory_used() < self.engine.shares.work / 8;
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
        if self.buffer.memory_used() + key.len() + value.len() > self.engine.shares.work {
            self.spill()?;
        }
        self.buffer.push(key, value, self.rows);
        Ok(())
    }

    fn finish_ascending(&mut self) -> Result<()> {
        if let Some(builder) = self.ascending.take() {
            self.runs.push(builder.finish((0, 0))?);
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        if self.buffer.entries.is_empty() {
            return Ok(());
        }
        let mut entries = std::mem::take(&mut self.buffer.entries);
        let buffer = &self.buffer;
        entries.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| buffer.key(a).cmp(buffer.key(b))).then(a.row.cmp(&b.row))
        });
        let mut builder = BTreeBuilder::new(self.engine.workshop.writer()?, true);
        for record in &entries {
            builder.push(buffer.key(record), false, row_as_sequence(record.row), buffer.value(record))?;
        }
        self.runs.push(builder.finish((0, 0))?);
        entries.clear();
        self.buffer.entries = entries;
        self.buffer.bytes.clear();
        Ok(())
    }

    /// Makes the records durable and visible, all at once. `on_refused` gets the rows (numbered
    /// over the whole import, from 0) whose key another row or a record of the dataset has;
    /// if it fails, the import is given up.
    ///
    /// # Errors
    /// What `on_refused` returns; storage. The dataset is then what it was.
    pub fn finish(mut self, on_refused: &mut dyn FnMut(RefusedRow) -> Result<()>) -> Result<ImportReport> {
        self.finish_ascending()?;
        self.spill()?;
        self.buffer = RunBuffer::default();
        let primary = self.merge_runs(on_refused)?;
        let engine = self.engine.clone();
        let component = Arc::new(BTreeComponent::open(engine.workshop.file(&primary)?)?);
        let spatial = load_spatial(&engine.workshop, &self.schema, component.clone(), engine.shares.work, (0, 0));
        let spatial = spatial.inspect_err(|_| self.runs.push(primary.clone()))?;
        let bytes = primary.file_len + spatial.file_len;
        let records = primary.statistics.entries;
        let metas = [primary, spatial];
        if let Err(error) = self.install(&metas, &component) {
            engine.note_failure(&error);
            if !engine.workshop.manifest.has_failed() {
                self.runs.extend(metas);
            }
            return Err(error);
        }
        engine.after_flush()?;
        Ok(ImportReport { records, refused: self.refused, bytes })
    }

    /// One primary component of all rows that are taken.
    fn merge_runs(&mut self, on_refused: &mut dyn FnMut(RefusedRow) -> Result<()>) -> Result<ComponentMeta> {
        let version = self.handle.partition.version();
        self.compared = version.components[PRIMARY as usize].iter().map(|part| part.file().meta().file_id).collect();
        let overlaps = self.overlaps_existing(&version)?;
        if self.runs.len() == 1 && !self.runs[0].has_sequences && !overlaps {
            return Ok(self.runs.remove(0));
        }
        let mut cursors = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            cursors.push(BTreeCursor::seek(Arc::new(BTreeComponent::open(self.engine.workshop.file(run)?)?), &[])?);
        }
        let mut builder = BTreeBuilder::new(self.engine.workshop.writer()?, false);
        let mut key = Vec::new();
        let mut ascending_entries = 0;
        loop {
            let smallest =
                cursors.iter().filter_map(|cursor| cursor.entry()).map(|entry| entry.key).min_by(|a, b| a.cmp(b));
            let Some(smallest) = smallest else { break };
            key.clear();
            key.extend_from_slice(&smallest);
            let mut exists = overlaps && search::get(&version, PRIMARY as usize, &key, u64::MAX)?.is_some();
            // The ascending run holds the earliest rows; in later runs the first row is first.
            for cursor in &mut cursors {
                while let Some(entry) = cursor.entry().filter(|entry| *entry.key == *key) {
                    let row = match entry.begin {
                        Some(begin) => u64::MAX - begin,
                        None => {
                            ascending_entries += 1;
                            self.ascending_rows.row(ascending_entries - 1)
                        }
                    };
                    if exists {
                        let error = Error::DuplicateKey { key: Key::decode(self.schema.key.key_type, &key)? };
                        self.refused += 1;
                        on_refused(RefusedRow { row: row as usize, error })?;
                    } else {
                        builder.push(&key, false, 0, entry.value)?;
                        exists = true;
                    }
                    cursor.advance()?;
                }
            }
        }
        Ok(builder.finish((0, 0))?)
    }

    /// Whether a record of the dataset may have a key of the import.
    fn overlaps_existing(&self, version: &terrane_lsm::partition::Version) -> Result<bool> {
        if self.created.is_some() {
            return Ok(false);
        }
        let Some(existing) = search::key_range(version, PRIMARY as usize)? else { return Ok(false) };
        for run in &self.runs {
            let run = BTreeComponent::open(self.engine.workshop.file(run)?)?;
            if run
                .key_range()
                .is_some_and(|(first, last)| first <= existing.1.as_slice() && existing.0.as_slice() <= last)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn install(&mut self, metas: &[ComponentMeta], primary: &Arc<BTreeComponent>) -> Result<()> {
        let engine = self.engine.clone();
        let handle = self.handle.clone();
        let _changes = engine.catalog_changes.lock();
        if self.created.is_some() && engine.datasets.load().contains_key(&handle.name) {
            return Err(Error::usage(format!("dataset {:?} was created meanwhile", handle.name)));
        }
        let _gate = handle.gate.write();
        engine.seal(&handle)?;
        while engine.flush_oldest(&handle)? {}
        self.check_written_meanwhile(primary)?;
        let created = self.created.take();
        engine.with_sequence(|sequence| {
            handle.partition.install_loaded(&engine.workshop, metas, sequence, |manifest| {
                if let Some(state) = created {
                    manifest.next_dataset_id = manifest.next_dataset_id.max(state.id + 1);
                    manifest.datasets.push(state);
                }
                Ok(())
            })?;
            if !engine.datasets.load().contains_key(&handle.name) {
                engine.publish(handle.clone());
            }
            Ok(())
        })
    }

    /// Refuses the import if a key of it was inserted since it looked.
    fn check_written_meanwhile(&self, primary: &Arc<BTreeComponent>) -> Result<()> {
        let now = self.handle.partition.version();
        for part in
            now.components[PRIMARY as usize].iter().filter(|part| !self.compared.contains(&part.file().meta().file_id))
        {
            let mut cursor = BTreeCursor::seek(terrane_lsm::index::downcast(part)?, &[])?;
            while let Some(entry) = cursor.entry() {
                // An old version may lie there of a key that is deleted by now.
                if !entry.antimatter
                    && primary.get(&entry.key, u64::MAX)?.is_some()
                    && search::get(&now, PRIMARY as usize, &entry.key, u64::MAX)?.is_some()
                {
                    return Err(Error::DuplicateKey { key: Key::decode(self.schema.key.key_type, &entry.key)? });
                }
                cursor.advance()?;
            }
        }
        Ok(())
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        for run in &self.runs {
            // What cannot be removed is a stray, which the next open removes.
            let _ = self.engine.workshop.storage.remove(&component_name(run.file_id));
        }
    }
}
