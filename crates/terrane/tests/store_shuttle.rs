//! Threads that write and read few records of one store, in orders drawn by shuttle, which tells of
//! every deadlock. Three locks are those of all records of a dataset, whose keys are made to
//! collide, and of some of another one. What threads saw of each record, and what is left of it,
//! can have happened in one order; in the end every index agrees with the records.
//!
//! One seed gives the options, the operations and their orders. The store is as in any program,
//! with its background threads if they are drawn. Shuttle switches threads where they lock, wait,
//! start, end, or touch an atomic, and while files are synced; other accesses to the storage and
//! the exchange of a version happen at once with what comes before them.
#![cfg(shuttle)]

mod full_disk_shuttle;
mod locks_shuttle;
mod record_history;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use shuttle::rand::RngCore;
use terrane::locks::lock_hash;
use terrane::schema::KeyType;
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Error, IndexKind, Isolation, Key, LogOptions, OnConflict,
    Options, Query, Record, Rows, Store, Value,
};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::linearizability::Specification;

use record_history::{History, Id, Operation, Outcome, PERISHABLE, Records};
use support::collisions::keys_locked_as;
use support::workload::batch;
use support::{array_key, encoded, schema, small_options};
use terrane_testkit::gate::asking;
use terrane_testkit::orders::{explore, is_kept};

const THREADS: usize = 4;
/// The dataset of keys that are made to collide, and the one of numbers. Datasets are numbered from
/// 1, in the order in which they are created.
const MADE: usize = 0;
const NUMBERED: usize = 1;
/// Of the first dataset.
const PARTITIONS: u32 = 2;
/// The index that comes and goes.
const BY_SIZE: &str = "by-size";

/// What a thread does.
#[derive(Clone, Debug)]
enum Step {
    Insert(Id, i64),
    Upsert(Id, i64),
    Delete(Id),
    /// Rows that are transactions of their own, in this order.
    Batch(usize, Vec<(Key, i64)>, OnConflict),
    /// Rows that get numbers as keys.
    Number(Vec<i64>),
    /// All or nothing; `None` deletes.
    Atomic(Vec<(Key, Option<i64>)>),
    /// Gives both twins the same value.
    Twins(i64),
    /// Brings records of keys that nobody else uses.
    Import(Vec<(Key, i64)>),
    /// Deletes what is perishable.
    Expire,
    ReadSnapshot(usize),
    ReadCommitted(usize, Way),
    Flush,
    Compact,
    /// Creates the index that comes and goes, or drops it.
    Index,
}

/// How a query at read committed finds its rows.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Goes over the records.
    Scan,
    /// Fetches the records of what the spatial index has.
    Fetch,
    /// Takes what the spatial index has, but for what writers hold.
    IndexOnly,
}

/// Switches of threads during a sync, at most: enough for another thread to write a record.
const SYNC_STEPS_MAX: u32 = 1 << 10;

/// What happened in all orders, so that the search is known to have met what it is for.
static HELD_BY_WRITERS: AtomicU64 = AtomicU64::new(0);
static STALLS: AtomicU64 = AtomicU64::new(0);
static FLUSHES: AtomicU64 = AtomicU64::new(0);
static MERGES: AtomicU64 = AtomicU64::new(0);

/// A store, what it has to begin with, and what threads do to it.
#[derive(Debug)]
struct Plan {
    options: Options,
    /// Keys of the first dataset: of each lock some.
    keys: Vec<Key>,
    /// Two more with different locks, which are only written together.
    twins: [Key; 2],
    /// More of each lock, which come by imports.
    imported: Vec<Key>,
    start: BTreeMap<Id, i64>,
    has_index: bool,
    steps: Vec<Vec<Step>>,
    /// Whether records are so large that a few fill the memory.
    is_large: bool,
}

impl Plan {
    fn drawn(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let is_large = random.random_bool(0.25);
        let segment_size = if is_large { 2 << 20 } else { 64 << 10 };
        let log = LogOptions { segment_size, first_segment_size: segment_size, spare_segments: 1 };
        let options = Options { background: random.random(), threads_max: Some(2), log, ..small_options() };
        // The locks of the first numbers are those of all the keys that are made.
        let mut locks = [0, 1, 2].map(|number| {
            let hash = lock_hash(NUMBERED as u64 + 1, 0, &encoded(&Key::Int(number)));
            keys_locked_as(hash, MADE as u64 + 1, PARTITIONS, 5).into_iter().map(Key::Binary).collect::<Vec<_>>()
        });
        locks.shuffle(&mut random);
        let imported = locks.each_mut().map(|keys| keys.split_off(3)).concat();
        let twins = [locks[0].remove(0), locks[1].remove(0)];
        let keys = locks.concat();

        let mut draw = Draw { random, keys: keys.clone(), imported: imported.clone(), last_value: 0 };
        let mut start = BTreeMap::new();
        keys.iter().step_by(2).for_each(|key| _ = start.insert((MADE, key.clone()), draw.value()));
        twins.iter().for_each(|twin| _ = start.insert((MADE, twin.clone()), 0));
        (1..3).for_each(|number| _ = start.insert((NUMBERED, Key::Int(number)), draw.value()));
        let has_index = draw.random.random();
        let mut steps_of = |thread| {
            let count = draw.random.random_range(1..=3);
            (0..count).map(|_| draw.step(thread)).collect()
        };
        let steps = (0..THREADS).map(&mut steps_of).collect();
        Self { options, keys, twins, imported, start, has_index, steps, is_large }
    }

    /// All keys of the first dataset.
    fn all_keys(&self) -> impl Iterator<Item = Key> {
        self.keys.iter().chain(&self.twins).chain(&self.imported).cloned()
    }

    fn record(&self, key: &Key, value: i64) -> Record {
        let name = "n".repeat(if self.is_large { 700_000 } else { 1 });
        let place = (value % 10) as f64;
        Record::at(key.clone(), place, -place, vec![Value::Utf8(name), Value::Int(value)])
    }
}

/// Draws what threads do.
struct Draw {
    random: SmallRng,
    keys: Vec<Key>,
    /// Keys for imports, each for one.
    imported: Vec<Key>,
    last_value: i64,
}

impl Draw {
    /// A value that no other record has.
    fn value(&mut self) -> i64 {
        self.last_value += 1;
        self.last_value + if self.random.random_ratio(1, 3) { PERISHABLE } else { 0 }
    }

    fn dataset(&mut self) -> usize {
        if self.random.random_ratio(1, 5) { NUMBERED } else { MADE }
    }

    fn key(&mut self, dataset: usize) -> Key {
        match dataset {
            NUMBERED => Key::Int(self.random.random_range(0..4)),
            _ => self.keys.choose(&mut self.random).expect("there are some").clone(),
        }
    }

    fn id(&mut self) -> Id {
        let dataset = self.dataset();
        (dataset, self.key(dataset))
    }

    fn step(&mut self, thread: usize) -> Step {
        match self.random.random_range(0..22) {
            0 => Step::Insert(self.id(), self.value()),
            1 | 2 => Step::Upsert(self.id(), self.value()),
            3 => Step::Delete(self.id()),
            4..8 => {
                let (dataset, count) = (self.dataset(), self.random.random_range(2..=4));
                let rows = (0..count).map(|_| (self.key(dataset), self.value())).collect();
                let on_conflict = if self.random.random() { OnConflict::Replace } else { OnConflict::Refuse };
                Step::Batch(dataset, rows, on_conflict)
            }
            8 => Step::Number((0..self.random.random_range(1..=2)).map(|_| self.value()).collect()),
            9..12 => {
                let count = self.random.random_range(2..=4);
                let mut change = || {
                    let value = self.value();
                    (self.key(MADE), self.random.random_bool(0.7).then_some(value))
                };
                Step::Atomic((0..count).map(|_| change()).collect())
            }
            12 => {
                self.last_value += 1;
                Step::Twins(self.last_value)
            }
            13 => Step::Expire,
            14 if !self.imported.is_empty() => {
                let count = self.imported.len().min(2);
                let keys = self.imported.split_off(self.imported.len() - count);
                Step::Import(keys.into_iter().map(|key| (key, self.value())).collect())
            }
            15 => Step::ReadSnapshot(self.dataset()),
            16 => Step::ReadCommitted(self.dataset(), Way::Scan),
            17 => Step::ReadCommitted(self.dataset(), Way::Fetch),
            18 | 19 => Step::ReadCommitted(self.dataset(), Way::IndexOnly),
            // One thread alone knows whether the index is there.
            20 if thread == 0 => Step::Index,
            20 => Step::Compact,
            _ => Step::Flush,
        }
    }
}

/// Storage on which others go on during a sync, more or less.
fn storage() -> Arc<dyn Storage> {
    asking(Arc::new(MemoryStorage::new()), || {
        let steps = shuttle::rand::thread_rng().next_u32() % SYNC_STEPS_MAX;
        // Short ones as often as long ones.
        (0..steps >> (steps % 16)).for_each(|_| shuttle::thread::yield_now());
        true
    })
}

/// A store under its threads.
struct World {
    store: Store,
    datasets: [Dataset; 2],
    plan: Arc<Plan>,
    history: History,
}

impl World {
    fn create(plan: Arc<Plan>) -> Self {
        let store = Store::open_on(storage(), plan.options.clone()).unwrap();
        let partitions = DatasetOptions { partitions: PARTITIONS as usize };
        let made = schema(KeyType::Binary, true, CoordinateSystem::Planar);
        let made = store.create_dataset_with("made", made, &partitions).unwrap();
        let mut numbered = schema(KeyType::Int64, true, CoordinateSystem::Planar);
        numbered.key.generated = true;
        let numbered = store.create_dataset("numbered", numbered).unwrap();
        let datasets = [made, numbered];
        if plan.has_index {
            datasets[MADE].create_index(BY_SIZE, IndexKind::BTree, &["size"]).unwrap();
        }
        for (number, dataset) in datasets.iter().enumerate() {
            let mut batch = dataset.atomic_batch();
            let of_dataset = plan.start.iter().filter(|((of, _), _)| *of == number);
            for ((_, key), value) in of_dataset {
                let mut record = plan.record(key, *value);
                // All of them fit into memory.
                record.values[0] = Value::Null;
                batch.upsert(&record).unwrap();
            }
            batch.commit().unwrap();
        }
        Self { store, datasets, plan, history: History::default() }
    }

    fn run(&self, thread: usize) {
        let mut has_index = self.plan.has_index;
        for (number, step) in self.plan.steps[thread].iter().enumerate() {
            match step {
                _ if !is_kept(thread, number) => {}
                Step::ReadSnapshot(dataset) => self.read_snapshot(*dataset),
                Step::ReadCommitted(dataset, way) => self.read_committed(*dataset, *way),
                Step::Flush => self.datasets.iter().for_each(|dataset| dataset.flush().unwrap()),
                Step::Compact => self.datasets[MADE].compact().unwrap(),
                Step::Index => {
                    match has_index {
                        true => self.datasets[MADE].drop_index(BY_SIZE).unwrap(),
                        false => self.datasets[MADE].create_index(BY_SIZE, IndexKind::BTree, &["size"]).unwrap(),
                    }
                    has_index = !has_index;
                }
                write => self.write(write),
            }
        }
    }

    fn write(&self, step: &Step) {
        let record = |key: &Key, value: &i64| self.plan.record(key, *value);
        let began = self.history.now();
        let done: Vec<(Operation, Outcome)> = match step {
            Step::Insert(id, value) => {
                let outcome = outcome_of(self.datasets[id.0].insert(&record(&id.1, value)));
                vec![(Operation::Insert(id.clone(), *value), outcome)]
            }
            Step::Upsert(id, value) => {
                self.datasets[id.0].upsert(&record(&id.1, value)).unwrap();
                vec![(Operation::Upsert(id.clone(), *value), Outcome::Done)]
            }
            Step::Delete(id) => {
                let was_there = self.datasets[id.0].delete(&id.1).unwrap();
                vec![(Operation::Delete(id.clone()), Outcome::WasThere(was_there))]
            }
            Step::Batch(dataset, rows, on_conflict) => self.write_batch(*dataset, rows, *on_conflict),
            Step::Number(values) => {
                let dataset = &self.datasets[NUMBERED];
                let records: Vec<Record> = values.iter().map(|value| record(&Key::Int(0), value)).collect();
                let mut batch = batch(&dataset.schema(), &records);
                batch.remove_column(batch.schema().index_of("id").unwrap());
                let keys = dataset.write_batch(&batch, OnConflict::Refuse).unwrap().keys;
                assert_eq!(keys.len(), values.len());
                let insert = |(key, value)| (Operation::Insert((NUMBERED, key), value), Outcome::Done);
                keys.into_iter().zip(values.iter().copied()).map(insert).collect()
            }
            Step::Atomic(changes) => self.write_atomic(changes),
            Step::Twins(value) => self.write_atomic(&self.plan.twins.clone().map(|twin| (twin, Some(*value)))),
            Step::Import(rows) => {
                let schema = self.datasets[MADE].schema();
                let records: Vec<Record> = rows.iter().map(|(key, value)| record(key, value)).collect();
                let mut importer = self.store.importer("made", (*schema).clone()).unwrap();
                let refused = importer.push(&batch(&schema, &records)).unwrap();
                assert!(refused.is_empty(), "{refused:?}");
                importer.finish(&mut |row| Err(row.error)).unwrap();
                let insert =
                    |(key, value): &(Key, i64)| (Operation::Insert((MADE, key.clone()), *value), Outcome::Done);
                rows.iter().map(insert).collect()
            }
            Step::Expire => {
                let condition = Condition::on("size").at_least(PERISHABLE);
                self.datasets[MADE].delete_where(&condition, &[]).unwrap();
                // Which records it deleted is not told.
                let expire = |key: Key| self.history.note_possible(began, Operation::Expire((MADE, key)));
                self.plan.all_keys().for_each(expire);
                Vec::new()
            }
            read => unreachable!("{read:?} writes nothing"),
        };
        let ended = self.history.now();
        let ids: BTreeSet<Id> = done.iter().map(|(operation, _)| Records::key(operation)).collect();
        done.into_iter().for_each(|(operation, outcome)| self.history.note(began, ended, operation, outcome));
        // What a writer was told rests on what is visible from then on.
        for id in ids {
            let began = self.history.now();
            let value = self.datasets[id.0].get(&id.1).unwrap().map(|record| match record.values[1] {
                Value::Int(value) => value,
                ref other => panic!("{other:?} is no value"),
            });
            self.history.note(began, self.history.now(), Operation::Read(id), Outcome::Value(value));
        }
    }

    fn write_batch(&self, dataset: usize, rows: &[(Key, i64)], on_conflict: OnConflict) -> Vec<(Operation, Outcome)> {
        let records: Vec<Record> = rows.iter().map(|(key, value)| self.plan.record(key, *value)).collect();
        let batch = batch(&self.datasets[dataset].schema(), &records);
        let outcome = self.datasets[dataset].write_batch(&batch, on_conflict).unwrap();
        let mut outcomes = vec![Outcome::Done; rows.len()];
        outcome.refused.into_iter().for_each(|refused| outcomes[refused.row] = outcome_of(Err(refused.error)));
        let operation = |(key, value): &(Key, i64)| match on_conflict {
            OnConflict::Replace => Operation::Upsert((dataset, key.clone()), *value),
            OnConflict::Refuse => Operation::Insert((dataset, key.clone()), *value),
        };
        rows.iter().map(operation).zip(outcomes).collect()
    }

    fn write_atomic(&self, changes: &[(Key, Option<i64>)]) -> Vec<(Operation, Outcome)> {
        let mut batch = self.datasets[MADE].atomic_batch();
        for (key, value) in changes {
            match value {
                Some(value) => batch.upsert(&self.plan.record(key, *value)).unwrap(),
                None => batch.delete(key).unwrap(),
            }
        }
        batch.commit().unwrap();
        // The last change of a key counts.
        let last: BTreeMap<&Key, Option<i64>> = changes.iter().map(|(key, value)| (key, *value)).collect();
        let operation = |(key, value): (&Key, Option<i64>)| match value {
            Some(value) => Operation::Upsert((MADE, key.clone()), value),
            None => Operation::Remove((MADE, key.clone())),
        };
        last.into_iter().map(|change| (operation(change), Outcome::Done)).collect()
    }

    /// Reads everything in one state, which was there when the snapshot was made.
    fn read_snapshot(&self, dataset: usize) {
        let began = self.history.now();
        let snapshot = self.datasets[dataset].snapshot();
        let ended = self.history.now();
        let query = Query::new().columns(["id", "size"]);
        let found = self.values(dataset, &mut snapshot.query(&query).unwrap());
        if dataset == MADE {
            let twins = self.plan.twins.each_ref().map(|twin| found[twin]);
            assert_eq!(twins[0], twins[1], "of an atomic batch, a part is seen");
        }
        self.note_read(dataset, [began, ended], &found);
    }

    fn read_committed(&self, dataset: usize, way: Way) {
        let began = self.history.now();
        let query = Query::new().isolation(Isolation::ReadCommitted);
        let everywhere = |query: Query| query.window(-1e3, -1e3, 1e3, 1e3).using_index("geometry");
        let query = match way {
            Way::Scan => query.using_index("primary").columns(["id", "size"]),
            Way::Fetch => everywhere(query).columns(["id", "size"]),
            Way::IndexOnly => everywhere(query).columns(["id"]),
        };
        let mut rows = self.datasets[dataset].query(&query).unwrap();
        match way {
            Way::Scan | Way::Fetch => {
                let found = self.values(dataset, &mut rows);
                self.note_read(dataset, [began, self.history.now()], &found);
            }
            Way::IndexOnly => {
                let found: Vec<Key> = self.rows(dataset, &mut rows).into_iter().map(|(key, _)| key).collect();
                let ended = self.history.now();
                for key in self.known_keys(dataset) {
                    let was_there = found.contains(&key);
                    self.history.note(began, ended, Operation::Find((dataset, key)), Outcome::WasThere(was_there));
                }
            }
        }
        HELD_BY_WRITERS.fetch_add(rows.explanation().held_by_writers, Ordering::Relaxed);
    }

    /// Keys whose records others write, or may.
    fn known_keys(&self, dataset: usize) -> Vec<Key> {
        match dataset {
            NUMBERED => (0..4).map(Key::Int).collect(),
            _ => self.plan.all_keys().collect(),
        }
    }

    fn note_read(&self, dataset: usize, [began, ended]: [usize; 2], found: &BTreeMap<Key, i64>) {
        let keys: BTreeSet<Key> = found.keys().cloned().chain(self.known_keys(dataset)).collect();
        for key in keys {
            let value = found.get(&key).copied();
            self.history.note(began, ended, Operation::Read((dataset, key)), Outcome::Value(value));
        }
    }

    /// Keys of an answer with what is in its second column.
    fn values(&self, dataset: usize, rows: &mut Rows) -> BTreeMap<Key, i64> {
        let value = |(key, value): (Key, Option<i64>)| (key, value.expect("every record has a value"));
        self.rows(dataset, rows).into_iter().map(value).collect()
    }

    fn rows(&self, dataset: usize, rows: &mut Rows) -> Vec<(Key, Option<i64>)> {
        let key_type = self.datasets[dataset].schema().key.key_type;
        let mut found = Vec::new();
        for batch in rows {
            let batch = batch.unwrap();
            let values = batch.column_by_name("size").map(|column| column.as_primitive::<Int64Type>());
            let row = |row| (array_key(batch.column(0), row, key_type), values.map(|values| values.value(row)));
            found.extend((0..batch.num_rows()).map(row));
        }
        let keys: BTreeSet<&Key> = found.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), found.len(), "a record is found twice: {found:?}");
        found
    }

    /// Everything there is.
    fn content(&self) -> BTreeMap<Id, i64> {
        let mut content = BTreeMap::new();
        for (number, dataset) in self.datasets.iter().enumerate() {
            let mut rows = dataset.query(&Query::new().columns(["id", "size"])).unwrap();
            content.extend(self.values(number, &mut rows).into_iter().map(|(key, value)| ((number, key), value)));
        }
        content
    }
}

fn outcome_of(written: terrane::Result<()>) -> Outcome {
    match written {
        Ok(()) => Outcome::Done,
        Err(Error::DuplicateKey { .. }) => Outcome::Refused,
        Err(error) => panic!("{error}"),
    }
}

fn threads_agree(seed: u64) {
    let plan = Arc::new(Plan::drawn(seed));
    let world = Arc::new(World::create(plan.clone()));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let world = world.clone();
            shuttle::thread::spawn(move || world.run(thread))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let end = world.content();
    world.history.check(|id| plan.start.get(id).copied(), |id| end.get(id).copied());
    let report = world.store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    let counters = world.store.maintenance();
    for (sum, count) in [(&STALLS, counters.stalls), (&FLUSHES, counters.flushes), (&MERGES, counters.merges)] {
        sum.fetch_add(count, Ordering::Relaxed);
    }
    let world = Arc::into_inner(world).expect("no other thread has it any more");
    drop(world.datasets);
    world.store.close().unwrap();
}

#[test]
fn no_order_of_writers_and_readers_of_colliding_keys_ends_in_a_deadlock() {
    explore("no_order_of_writers", 32, threads_agree);
    if std::env::var_os("TERRANE_TEST_SEED").is_none() {
        for (what, sum) in [
            ("an entry whose key a writer held", &HELD_BY_WRITERS),
            ("a write that waited for memory", &STALLS),
            ("a flush", &FLUSHES),
            ("a merge", &MERGES),
        ] {
            assert!(sum.load(Ordering::Relaxed) > 0, "the orders were without {what}");
        }
    }
}
