//! A planned run of a store and its model: the same operations on any storage, and the expected
//! state after each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::batch::BatchBuilder;
use terrane::schema::{Column, ColumnType, KeyType, Schema, SchemaHistory};
use terrane::{
    BatchOutcome, CoordinateSystem, DatasetOptions, Durability, ImportMode, IndexKind, IndexOptions, Key, LogOptions,
    OnConflict, Options, Query, Record, Result, Store, Value,
};
use terrane_storage::Storage;

use super::kinds::KINDS;
use super::{keys_of, record, schema, small_options};

/// The dataset that most records go to.
pub const MAIN: &str = "main";
/// A dataset that is written too, but never flushed by a step.
pub const SIDE: &str = "side";
/// A spatial index of the main dataset, of any kind.
pub const PLACES: &str = "places";
/// An index of the main dataset on the words of its names.
pub const WORDS: &str = "words";
/// The feed of the main dataset.
const FEED: &str = "source";
/// Prefix of the names of datasets that a random run imports.
const LOADED: &str = "loaded";
/// Keys of single records are smaller, keys of imported ones larger.
const KEYS: i64 = 24;
const KEY_IMPORTED_MIN: i64 = 1000;

/// One step of a run.
#[derive(Clone, Debug)]
pub enum Step {
    Insert(Record),
    Upsert(Record),
    /// An upsert from a feed, whose position grows by one.
    Feed(Record),
    Delete(Key),
    /// An upsert into the side dataset.
    Side(Record),
    /// An atomic batch; `None` deletes.
    Batch(Vec<(Key, Option<Record>)>),
    Flush,
    Compact,
    /// An import. Creates the dataset if necessary.
    Import(String, Vec<Record>),
    /// An import that replaces the records with these keys.
    ImportUpsert(String, Vec<Record>),
    /// An import that replaces the whole dataset, which has no indexes of its own.
    ImportReplace(String, Vec<Record>),
    /// Drops a dataset.
    Drop(String),
    /// Adds a float column to the main dataset, which its records have from then on.
    AddColumn(String),
    RenameColumn(String, String),
    /// Drops a column that was added.
    DropColumn(String),
    /// Creates an index of the main dataset on these columns.
    CreateIndex(String, IndexKind, Vec<&'static str>),
    DropIndex(String),
    Reopen,
}

/// The expected contents of a dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Names of the attributes.
    pub columns: Vec<String>,
    /// Its secondary indexes, complete or not.
    pub indexes: BTreeSet<String>,
    /// The position of its feed.
    pub read: u64,
    /// Records by key, without trailing nulls of their attributes.
    pub records: BTreeMap<i64, Record>,
}

/// The expected contents of a store.
pub type State = BTreeMap<String, Held>;

/// A run, and the state after each of its steps. `states[0]` is the empty store.
#[derive(Clone, Debug)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub states: Vec<State>,
    /// The attributes of the main dataset in each state, numbered in the order of their creation.
    attributes: Vec<Vec<usize>>,
    /// Number of partitions of the main dataset.
    pub partitions: usize,
}

/// Small log segments, so that a short run recycles some.
pub fn options(durability: Durability) -> Options {
    Options {
        durability: Some(durability),
        log: LogOptions { segment_size: 12 << 10, first_segment_size: 8 << 10, spare_segments: 2 },
        // So that the events of a run are the same each time.
        threads_max: Some(1),
        disk_reserve: terrane::DiskReserve::Bytes(8 << 10),
        ..small_options()
    }
}

/// The schema of the main dataset before columns are added.
pub fn first_schema() -> Schema {
    schema(KeyType::Int64, true, CoordinateSystem::Planar)
}

/// The schema of a dataset of a run. The side dataset has geometries on the globe, the imported
/// ones of a random run have geometries in the plane, and the others have points.
pub fn schema_of(dataset: &str) -> Schema {
    match dataset {
        SIDE => schema(KeyType::Int64, false, CoordinateSystem::LonLat),
        _ if dataset.starts_with(LOADED) => schema(KeyType::Int64, false, CoordinateSystem::Planar),
        _ => first_schema(),
    }
}

/// The names of a schema's attributes.
pub fn attributes_of(schema: &Schema) -> Vec<String> {
    schema.columns.iter().map(|column| column.name.clone()).collect()
}

/// Records as a batch of a schema.
pub fn batch(schema: &Schema, records: &[Record]) -> RecordBatch {
    let (columns, system) = (schema.columns.clone(), schema.system);
    let schema = Schema::new(schema.key.clone(), schema.geometry.clone(), system, columns).unwrap();
    let history = SchemaHistory::new(schema.clone()).unwrap();
    let mut builder = BatchBuilder::new(&history, None, false).unwrap();
    for record in records {
        let mut value = Vec::new();
        let record = padded(record, schema.columns.len());
        record.encode(&history, &mut value).unwrap();
        builder.append(&record.key.to_encoded().unwrap(), &value, None).unwrap();
    }
    builder.finish().unwrap()
}

fn padded(record: &Record, columns: usize) -> Record {
    let mut record = record.clone();
    record.values.resize(columns, Value::Null);
    record
}

fn trimmed(mut record: Record) -> Record {
    while record.values.last() == Some(&Value::Null) {
        record.values.pop();
    }
    record
}

fn number(key: &Key) -> i64 {
    match key {
        Key::Int(number) => *number,
        key => panic!("the runs have integer keys, not {key}"),
    }
}

impl Plan {
    /// The same run, with this many partitions in the main dataset.
    pub fn with_partitions(self, partitions: usize) -> Self {
        Self { partitions, ..self }
    }

    /// A run without steps.
    fn empty() -> Self {
        let first = (0..first_schema().columns.len()).collect();
        Self { steps: Vec::new(), states: vec![State::new()], attributes: vec![first], partitions: 1 }
    }

    /// A run of `length` random steps, with every kind of step.
    pub fn new(seed: u64, length: usize) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut plan = Self::empty();
        plan.push(Step::Import(MAIN.into(), Vec::new()));
        plan.push(Step::Import(SIDE.into(), Vec::new()));
        let mut imported = KEY_IMPORTED_MIN;
        for place in 2..length {
            let key = rng.random_range(-KEYS / 2..KEYS / 2);
            // A column is dropped before the next one is added under its former name.
            let (added, renamed) = if place / 40 % 2 == 1 { ("one", "other") } else { ("other", "one") };
            let step = match place % 40 {
                17 => Step::Flush,
                22 if place > 40 => Step::AddColumn(added.into()),
                24 if place > 40 => Step::RenameColumn(added.into(), renamed.into()),
                // It was renamed in the round before.
                2 if place > 80 => Step::DropColumn(added.into()),
                // Beside the two built-in indexes there are up to four. From the second round on,
                // one attribute index is dropped and one created per round. The word index is
                // dropped in every second round. The spatial index is of each kind in turn.
                10 if place / 40 % 2 == 0 => Step::CreateIndex(WORDS.into(), IndexKind::Inverted, vec!["name"]),
                10 => Step::DropIndex(WORDS.into()),
                8 if place < 40 => Step::CreateIndex("by-size".into(), IndexKind::BTree, vec!["size"]),
                8 => Step::DropIndex(if place % 80 > 40 { "by-size" } else { "by-both" }.into()),
                12 if place < 40 => Step::CreateIndex("by-both".into(), IndexKind::BTree, vec!["name", "size"]),
                12 if place % 80 > 40 => Step::CreateIndex("by-size".into(), IndexKind::BTree, vec!["size"]),
                12 => Step::CreateIndex("by-both".into(), IndexKind::BTree, vec!["size", "name"]),
                14 => Step::CreateIndex(PLACES.into(), KINDS[1 + place / 40 % 4], Vec::new()),
                6 if place > 40 => Step::DropIndex(PLACES.into()),
                29 => Step::Import(MAIN.into(), imports(&mut rng, &mut imported, 0..12, true)),
                20 => Step::ImportUpsert(MAIN.into(), upserts(&mut rng, &mut imported)),
                33 if place > 80 => Step::Compact,
                36 => Step::Import(format!("{LOADED}{place}"), imports(&mut rng, &mut imported, 0..12, false)),
                38 => Step::Reopen,
                // Its entries remain in the log.
                39 if place % 80 == 39 => Step::Drop(SIDE.into()),
                0 if place % 80 == 40 => Step::Import(SIDE.into(), Vec::new()),
                39 => Step::ImportReplace(SIDE.into(), imports(&mut rng, &mut imported, 1..4, false)),
                _ => match rng.random_range(0..10) {
                    9 => Step::Side(record(&mut rng, Key::Int(key), false)),
                    0..2 => Step::Delete(Key::Int(key)),
                    2 => {
                        let mut changes = BTreeMap::new();
                        for _ in 0..rng.random_range(1..6) {
                            let key = rng.random_range(-KEYS / 2..KEYS / 2);
                            let put = rng.random_ratio(2, 3).then(|| record(&mut rng, Key::Int(key), true));
                            changes.insert(key, (Key::Int(key), put));
                        }
                        Step::Batch(changes.into_values().collect())
                    }
                    _ if plan.last()[MAIN].records.contains_key(&key) => {
                        let record = record(&mut rng, Key::Int(key), true);
                        if place % 2 == 0 { Step::Feed(record) } else { Step::Upsert(record) }
                    }
                    _ => Step::Insert(record(&mut rng, Key::Int(key), true)),
                },
            };
            plan.push(step);
        }
        plan
    }

    /// A short run with every kind of step except reopening. Its records are large enough for log
    /// segments to be reused.
    pub fn dense(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut plan = Self::of([Step::Import(SIDE.into(), Vec::new())]);
        let mut imported = KEY_IMPORTED_MIN;
        for round in 0..5 {
            for key in [round, 0, 1] {
                let mut record = record(&mut rng, Key::Int(key), true);
                record.values[0] = Value::Utf8("n".repeat(2500));
                plan.push(if key == 1 { Step::Feed(record) } else { Step::Upsert(record) });
            }
            // No step flushes the side dataset, so from here on it retains the log.
            if round > 2 {
                plan.push(Step::Side(record(&mut rng, Key::Int(round), false)));
            }
            plan.push(Step::Delete(Key::Int(round)));
            let put = record(&mut rng, Key::Int(round), true);
            plan.push(Step::Batch(vec![(Key::Int(0), None), (Key::Int(round + 10), Some(put))]));
            match round {
                0 => {
                    plan.push(Step::CreateIndex("by-size".into(), IndexKind::BTree, vec!["size"]));
                    plan.push(Step::CreateIndex(PLACES.into(), IndexKind::Sif, Vec::new()));
                }
                1 => {
                    plan.push(Step::CreateIndex(WORDS.into(), IndexKind::Inverted, vec!["name"]));
                    plan.push(Step::Import(MAIN.into(), imports(&mut rng, &mut imported, 3..4, true)));
                }
                2 => {
                    plan.push(Step::ImportUpsert(MAIN.into(), upserts(&mut rng, &mut imported)));
                    plan.push(Step::AddColumn("added".into()));
                    plan.push(Step::CreateIndex("by-name".into(), IndexKind::BTree, vec!["name"]));
                }
                3 => {
                    plan.push(Step::Import(format!("{LOADED}{round}"), imports(&mut rng, &mut imported, 3..4, false)));
                    // An index is on it.
                    plan.push(Step::RenameColumn("name".into(), "title".into()));
                }
                4 => plan.push(Step::DropColumn("added".into())),
                _ => {}
            }
            plan.push(if round == 4 { Step::Compact } else { Step::Flush });
            if round == 3 {
                plan.push(Step::DropIndex("by-size".into()));
            }
        }
        plan.push(Step::ImportReplace(SIDE.into(), imports(&mut rng, &mut imported, 1..3, false)));
        plan.push(Step::Side(record(&mut rng, Key::Int(3), false)));
        plan.push(Step::Drop(SIDE.into()));
        plan
    }

    /// A run of given steps, on an empty main dataset.
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        let mut plan = Self::empty();
        plan.push(Step::Import(MAIN.into(), Vec::new()));
        steps.into_iter().for_each(|step| plan.push(step));
        plan
    }

    fn last(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// The records of a dataset and the position of its feed after `number` steps, under the
    /// columns that it has after `columns` steps.
    pub fn held_under(&self, number: usize, columns: usize, dataset: &str) -> Option<(BTreeMap<i64, Record>, u64)> {
        let held = self.states[number].get(dataset)?;
        let mut records = held.records.clone();
        if dataset == MAIN {
            let places = self.attributes[columns].iter();
            let places: Vec<Option<usize>> =
                places.map(|attribute| self.attributes[number].iter().position(|stored| stored == attribute)).collect();
            for record in records.values_mut() {
                let value = |place: &Option<usize>| place.and_then(|place| record.values.get(place)).cloned();
                let values = places.iter().map(|place| value(place).unwrap_or_default()).collect();
                *record = trimmed(Record { values, ..record.clone() });
            }
        }
        Some((records, held.read))
    }

    /// A step with values in all attributes that its records have.
    fn filled(&self, mut step: Step) -> Step {
        let columns = self.last().get(MAIN).map_or(0, |held| held.columns.len());
        let fill = |record: &mut Record| {
            while record.values.len() < columns {
                record.values.push(Value::Float64(number(&record.key) as f64 + 0.5));
            }
        };
        match &mut step {
            Step::Insert(record) | Step::Upsert(record) | Step::Feed(record) => fill(record),
            Step::Batch(changes) => changes.iter_mut().filter_map(|(_, record)| record.as_mut()).for_each(fill),
            _ => {}
        }
        step
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        let step = self.filled(step);
        let mut state = self.last().clone();
        let mut attributes = self.attributes[self.attributes.len() - 1].clone();
        match &step {
            Step::Insert(record) | Step::Upsert(record) => put(&mut state, MAIN, record),
            Step::Feed(record) => {
                put(&mut state, MAIN, record);
                state.get_mut(MAIN).unwrap().read += 1;
            }
            Step::Side(record) => put(&mut state, SIDE, record),
            Step::ImportReplace(name, records) => {
                let columns = attributes_of(&schema_of(name));
                state.insert(name.clone(), Held { columns, ..Held::default() });
                records.iter().for_each(|record| put(&mut state, name, record));
            }
            Step::Drop(name) => assert!(state.remove(name).is_some()),
            Step::Import(name, records) | Step::ImportUpsert(name, records) => {
                let columns = attributes_of(&schema_of(name));
                state.entry(name.clone()).or_insert_with(|| Held { columns, ..Held::default() });
                records.iter().for_each(|record| put(&mut state, name, record));
            }
            Step::Delete(key) => remove(&mut state, key),
            Step::Batch(changes) => {
                for (key, change) in changes {
                    match change {
                        Some(record) => put(&mut state, MAIN, record),
                        None => remove(&mut state, key),
                    }
                }
            }
            Step::AddColumn(name) => {
                state.get_mut(MAIN).unwrap().columns.push(name.clone());
                attributes.push(self.attributes.iter().flatten().max().unwrap() + 1);
            }
            Step::RenameColumn(from, to) => {
                let column = state.get_mut(MAIN).unwrap().columns.iter_mut().find(|column| *column == from);
                column.unwrap().clone_from(to);
            }
            Step::DropColumn(name) => {
                let held = state.get_mut(MAIN).unwrap();
                let place = held.columns.iter().position(|column| column == name).unwrap();
                held.columns.remove(place);
                attributes.remove(place);
                for record in held.records.values_mut() {
                    if place < record.values.len() {
                        record.values.remove(place);
                    }
                    *record = trimmed(record.clone());
                }
            }
            Step::CreateIndex(name, ..) => assert!(state.get_mut(MAIN).unwrap().indexes.insert(name.clone())),
            Step::DropIndex(name) => assert!(state.get_mut(MAIN).unwrap().indexes.remove(name)),
            Step::Flush | Step::Compact | Step::Reopen => {}
        }
        self.steps.push(step);
        self.states.push(state);
        self.attributes.push(attributes);
    }
}

fn put(state: &mut State, dataset: &str, record: &Record) {
    state.get_mut(dataset).unwrap().records.insert(number(&record.key), trimmed(record.clone()));
}

fn remove(state: &mut State, key: &Key) {
    state.get_mut(MAIN).unwrap().records.remove(&number(key));
}

/// Some records with unique keys, out of order.
fn imports(rng: &mut SmallRng, next: &mut i64, counts: Range<i64>, points: bool) -> Vec<Record> {
    let count = rng.random_range(counts);
    *next += count;
    (*next - count..*next).rev().map(|key| record(rng, Key::Int(key), points)).collect()
}

/// Records out of order, some with keys that others may have.
fn upserts(rng: &mut SmallRng, next: &mut i64) -> Vec<Record> {
    let mut records = imports(rng, next, 1..3, true);
    records.extend([7, 0, 1, -5].map(|key| record(rng, Key::Int(key), true)));
    records
}

/// A store that executes steps.
#[derive(Debug)]
pub struct Runner {
    storage: Arc<dyn Storage>,
    options: Options,
    /// Number of partitions of the main dataset, for its creation.
    partitions: usize,
    store: Option<Store>,
}

impl Runner {
    /// Opens or creates the store.
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        let store = Some(Store::open_on(storage.clone(), options.clone())?);
        Ok(Self { storage, options, partitions: 1, store })
    }

    /// Creates the main dataset with this many partitions.
    pub fn with_partitions(self, partitions: usize) -> Self {
        Self { partitions, ..self }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("a step that failed to reopen is the last")
    }

    /// Whether the store is open. It is closed after a step that failed to reopen it.
    pub fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// Closes the store, if it is open.
    pub fn close(self) -> Result<()> {
        self.store.map_or(Ok(()), Store::close)
    }

    /// Executes one step, with the durability of the store's mode.
    pub fn apply(&mut self, step: &Step) -> Result<()> {
        if let Step::Reopen = step {
            let closed = self.store.take().map_or(Ok(()), Store::close);
            self.store = Some(Store::open_on(self.storage.clone(), self.options.clone())?);
            return closed;
        }
        match step {
            Step::Import(name, records) => return self.import(ImportMode::CreateOrAppend, name, records),
            Step::ImportUpsert(name, records) => return self.import(ImportMode::Upsert, name, records),
            Step::ImportReplace(name, records) => return self.import(ImportMode::Replace, name, records),
            Step::Drop(name) => return self.store().drop_dataset(name),
            Step::Side(record) => return self.store().dataset(SIDE)?.upsert(record),
            _ => {}
        }
        let dataset = self.store().dataset(MAIN)?;
        let fit = |record: &Record| padded(record, dataset.schema().columns.len());
        match step {
            Step::Insert(record) => dataset.insert(&fit(record)),
            Step::Upsert(record) => dataset.upsert(&fit(record)),
            Step::Feed(record) => {
                let mut feed = dataset.feed(FEED)?;
                let batch = batch(&dataset.schema(), &[fit(record)]);
                let position = feed.position() + 1;
                feed.write_batch(&batch, &[position], OnConflict::Replace, &mut BatchOutcome::default())
            }
            Step::Delete(key) => dataset.delete(key).map(|_| ()),
            Step::Batch(changes) => {
                let mut batch = dataset.atomic_batch();
                for (key, change) in changes {
                    match change {
                        Some(record) => batch.upsert(&fit(record))?,
                        None => batch.delete(key)?,
                    }
                }
                batch.commit()
            }
            Step::Flush => dataset.flush(),
            Step::Compact => dataset.compact(),
            Step::AddColumn(name) => dataset.add_column(Column::new(name.as_str(), ColumnType::Float64)),
            Step::RenameColumn(from, to) => dataset.rename_column(from, to),
            Step::DropColumn(name) => dataset.drop_column(name),
            Step::CreateIndex(name, kind, columns) => {
                // Some places lie outside the domain.
                let grid = || IndexOptions::default().levels("h,l".parse().unwrap()).domain(-9.0, -9.0, 8.0, 8.0);
                let has_grid = matches!(kind, IndexKind::Shb | IndexKind::Sif);
                let options = if has_grid { grid() } else { IndexOptions::default() };
                dataset.create_index_with(name, *kind, columns, &options)
            }
            Step::DropIndex(name) => dataset.drop_index(name),
            Step::Import(..)
            | Step::ImportUpsert(..)
            | Step::ImportReplace(..)
            | Step::Drop(_)
            | Step::Side(_)
            | Step::Reopen => unreachable!("handled above"),
        }
    }

    fn import(&self, mode: ImportMode, name: &str, records: &[Record]) -> Result<()> {
        let partitions = if name == MAIN { self.partitions } else { 1 };
        let options = DatasetOptions { partitions };
        let mut importer = self.store().importer_in(mode, name, schema_of(name), &options)?;
        let schema = importer.schema().clone();
        let refused = importer.push(&batch(&schema, records))?;
        assert!(refused.is_empty(), "{refused:?}");
        importer.finish(&mut |row| Err(row.error)).map(|_| ())
    }
}

/// The whole contents of a store, by scans and look-ups.
pub fn state_of(store: &Store) -> State {
    let mut state = State::new();
    for name in store.dataset_names() {
        let dataset = store.dataset(&name).unwrap();
        let snapshot = dataset.snapshot();
        let columns = attributes_of(&snapshot.schema());
        let records = keys_of(&snapshot, &Query::new()).into_iter().map(|key| {
            let record = snapshot.get(&key).unwrap().expect("a scan found the key");
            (number(&key), trimmed(record))
        });
        let records = records.collect();
        let info = store.info().unwrap();
        let indexes = info.datasets.iter().filter(|dataset| dataset.name == name).flat_map(|dataset| &dataset.indexes);
        // The first two are in every dataset.
        let indexes = indexes.skip(2).map(|index| index.name.clone()).collect();
        let read = dataset.feeds().first().map_or(0, |feed| feed.position);
        state.insert(name, Held { columns, indexes, read, records });
    }
    state
}
