//! A store with datasets of real data, and their expected contents. It is changed, flushed, merged,
//! killed and reopened with other memory limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::ColumnType;
use terrane::{Dataset, DatasetOptions, IndexKind, IndexOptions, Key, LogOptions, OnConflict, Options, Record, Store};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

use super::brute::Rows;
use super::questions::Question;
use super::tables::Table;
use crate::support::files::{files_of, memory_of};
use crate::support::kinds::{EXTENDED, KINDS};
use crate::support::workload::batch;

/// Rows of one batch of an import.
const IMPORT_ROWS: usize = 4_000;

/// An index, and the conditions that it can serve.
#[derive(Clone, Debug)]
pub struct Index {
    pub name: String,
    kind: IndexKind,
    column: Option<usize>,
}

impl Index {
    pub fn is_spatial(&self) -> bool {
        self.column.is_none()
    }

    pub fn serves(&self, question: &Question) -> bool {
        match (self.kind, self.column) {
            (IndexKind::Inverted, Some(column)) => question.serves_words(column),
            (_, Some(column)) => question.serves_attribute(column),
            (kind, None) => question.serves_places(kind == IndexKind::RTree),
        }
    }

    fn create(&self, dataset: &Dataset, table: &Table) {
        let columns: Vec<&str> = self.column.iter().map(|column| table.columns[*column].name.as_str()).collect();
        dataset.create_index_with(&self.name, self.kind, &columns, &IndexOptions::default()).unwrap();
    }
}

/// A dataset and its expected contents.
pub struct Held {
    pub table: Table,
    pub dataset: Dataset,
    /// For each key, the number of the row with its geometry and values.
    model: BTreeMap<i64, usize>,
    pub indexes: Vec<Index>,
}

impl Held {
    /// Imports half of the rows, creates half of the indexes, then imports and creates the others.
    fn new(store: &Store, table: Table, partitions: usize) -> Self {
        let spatial = if table.is_points { &KINDS[..] } else { &EXTENDED };
        let spatial = spatial.iter().map(|kind| Index { name: kind.name().to_owned(), kind: *kind, column: None });
        let of_columns = table.columns.iter().enumerate().flat_map(|(number, column)| {
            let index =
                |prefix: &str, kind| Index { name: format!("{prefix}_{}", column.name), kind, column: Some(number) };
            let words = (column.column_type == ColumnType::Utf8).then(|| index("words", IndexKind::Inverted));
            words.into_iter().chain([index("by", IndexKind::BTree)])
        });
        let created: Vec<Index> = spatial.chain(of_columns).collect();
        // Some rows are kept for inserts and updates.
        let imported = table.rows.len() / 8 * 7;
        let model: BTreeMap<i64, usize> = (0..imported).map(|row| (row as i64, row)).collect();
        let keys: Vec<i64> = model.keys().copied().collect();
        let (first, second) = keys.split_at(keys.len() / 2);
        import(store, &table, first, partitions);
        let dataset = store.dataset(table.name).unwrap();
        created.iter().step_by(2).for_each(|index| index.create(&dataset, &table));
        import(store, &table, second, partitions);
        created.iter().skip(1).step_by(2).for_each(|index| index.create(&dataset, &table));
        let geometry = Index { name: "geometry".into(), kind: IndexKind::RTree, column: None };
        let indexes = created.into_iter().chain([geometry]).collect();
        Self { table, dataset, model, indexes }
    }

    pub fn rows(&self) -> Rows<'_> {
        self.model.iter().map(|(key, row)| (*key, &self.table.rows[*row])).collect()
    }

    /// Inserts, replaces and deletes random rows, singly, in batches and in atomic batches.
    fn change(&mut self, rng: &mut SmallRng, changes: usize) {
        let (rows, keys) = (self.table.rows.len(), self.table.rows.len() as i64);
        for _ in 0..changes / 8 {
            let draws: BTreeMap<i64, usize> =
                (0..8).map(|_| (rng.random_range(0..keys), rng.random_range(0..rows))).collect();
            let record = |key: &i64, row: &usize| self.table.rows[*row].record(*key);
            match rng.random_range(0..5) {
                0 => {
                    let records: Vec<Record> = draws.iter().map(|(key, row)| record(key, row)).collect();
                    let rows = batch(&self.table.schema(), &records);
                    self.dataset.write_batch(&rows, OnConflict::Replace).unwrap();
                    self.model.extend(draws);
                }
                1 => {
                    let mut batch = self.dataset.atomic_batch();
                    for (number, (key, row)) in draws.iter().enumerate() {
                        if number % 2 == 0 {
                            batch.delete(&Key::Int(*key)).unwrap();
                            self.model.remove(key);
                        } else {
                            batch.upsert(&record(key, row)).unwrap();
                            self.model.insert(*key, *row);
                        }
                    }
                    batch.commit().unwrap();
                }
                2 => {
                    for key in draws.keys() {
                        let deleted = self.dataset.delete(&Key::Int(*key)).unwrap();
                        assert_eq!(deleted, self.model.remove(key).is_some(), "{key}");
                    }
                }
                _ => {
                    for (key, row) in draws {
                        self.dataset.upsert(&record(&key, &row)).unwrap();
                        self.model.insert(key, row);
                    }
                }
            }
        }
    }
}

fn import(store: &Store, table: &Table, keys: &[i64], partitions: usize) {
    let mut importer = store.importer_with(table.name, table.schema(), &DatasetOptions { partitions }).unwrap();
    for keys in keys.chunks(IMPORT_ROWS) {
        let records: Vec<Record> = keys.iter().map(|key| table.rows[*key as usize].record(*key)).collect();
        let refused = importer.push(&batch(&table.schema(), &records)).unwrap();
        assert!(refused.is_empty(), "{refused:?}");
    }
    importer.finish(&mut |row| Err(row.error)).unwrap();
}

/// The last event of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Closed and opened again.
    Reopened,
    /// Opened again after a kill.
    Killed,
    /// With changes in memory.
    Changed,
    Flushed,
    Merged,
}

/// A store with several datasets.
pub struct World {
    storage: Arc<MemoryStorage>,
    store: Option<Store>,
    pub memory_limit: usize,
    pub partitions: usize,
    pub state: State,
    pub held: Vec<Held>,
}

impl World {
    pub fn new(tables: Vec<Table>, partitions: usize, memory_limit: usize) -> Self {
        let storage = Arc::new(MemoryStorage::new());
        let store = open(&storage, memory_limit);
        let held = tables.into_iter().map(|table| Held::new(&store, table, partitions)).collect();
        Self { storage, store: Some(store), memory_limit, partitions, state: State::Merged, held }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open but while it is opened again")
    }

    pub fn held(&self, name: &str) -> &Held {
        self.held.iter().find(|held| held.table.name == name).unwrap()
    }

    /// Brings the store into a state. The first two also change the memory limit.
    pub fn go_to(&mut self, state: State, rng: &mut SmallRng, memory_limit: usize, changes: usize) {
        match state {
            State::Reopened => {
                self.store.take().expect("it is open").close().unwrap();
                self.open_copy(memory_limit);
            }
            State::Killed => self.open_copy(memory_limit),
            State::Changed => self.held.iter_mut().for_each(|held| held.change(rng, changes)),
            State::Flushed => self.store().flush().unwrap(),
            State::Merged => self.store().compact().unwrap(),
        }
        self.state = state;
    }

    /// Opens a copy of the current files, as after a kill.
    fn open_copy(&mut self, memory_limit: usize) {
        self.memory_limit = memory_limit;
        self.storage = Arc::new(memory_of(&files_of(&*self.storage)));
        let store = open(&self.storage, memory_limit);
        for held in &mut self.held {
            held.dataset = store.dataset(held.table.name).unwrap();
        }
        self.store = Some(store);
    }

    /// Verifies that every index agrees with the records.
    pub fn check(&self) {
        let report = self.store().check(false).unwrap();
        assert!(report.findings.is_empty(), "{report}");
    }
}

fn open(storage: &Arc<MemoryStorage>, memory_limit: usize) -> Store {
    let options = Options {
        memory_limit,
        background: false,
        log: LogOptions { segment_size: 1 << 20, first_segment_size: 64 << 10, spare_segments: 1 },
        ..Options::default()
    };
    Store::open_on(storage.clone() as Arc<dyn Storage>, options).unwrap()
}
