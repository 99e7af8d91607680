//! Replays that exceed the memory, of logs shared by several datasets.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::seeded;
use crate::support::workload::{Held, State, attributes_of, batch, first_schema, state_of};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::{Durability, Key, LogOptions, MEMORY_LIMIT_MIN, OnConflict, Options, Record, Store, Value};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Budget, Controller};

/// With the large limit, nothing flushes on its own. With the small one, a replay flushes.
const LARGE: usize = 256 << 20;

fn options(memory_limit: usize) -> Options {
    Options {
        durability: Some(Durability::Power),
        memory_limit,
        background: false,
        log: LogOptions { segment_size: 1 << 20, first_segment_size: 1 << 20, spare_segments: 1 },
        ..Options::default()
    }
}

fn large(rng: &mut SmallRng, key: i64) -> Record {
    let mut record = crate::support::record(rng, Key::Int(key), true);
    record.values[0] = Value::Utf8("n".repeat(rng.random_range(800..1600)));
    record
}

/// The expected contents of the store.
#[derive(Default)]
struct Model(State);

impl Model {
    fn held(&mut self, name: &str) -> &mut BTreeMap<i64, Record> {
        &mut self
            .0
            .entry(name.to_owned())
            .or_insert_with(|| Held { columns: attributes_of(&first_schema()), ..Held::default() })
            .records
    }

    fn write(&mut self, store: &Store, rng: &mut SmallRng, name: &str, keys: std::ops::Range<i64>) {
        if !self.0.contains_key(name) {
            store.create_dataset(name, first_schema()).unwrap();
        }
        let records: Vec<Record> = keys.clone().map(|key| large(rng, key)).collect();
        let rows = batch(&first_schema(), &records);
        let outcome = store.dataset(name).unwrap().write_batch(&rows, OnConflict::Replace).unwrap();
        assert_eq!(outcome.keys.len(), records.len());
        self.held(name).extend(keys.zip(records));
    }

    fn delete(&mut self, store: &Store, name: &str, key: i64) {
        let deleted = store.dataset(name).unwrap().delete(&Key::Int(key)).unwrap();
        assert_eq!(deleted, self.held(name).remove(&key).is_some());
    }

    fn import(&mut self, store: &Store, rng: &mut SmallRng, name: &str, keys: std::ops::Range<i64>) {
        let records: Vec<Record> = keys.clone().map(|key| large(rng, key)).collect();
        let mut importer = store.importer(name, first_schema()).unwrap();
        importer.push(&batch(&first_schema(), &records)).unwrap();
        importer.finish(&mut |row| Err(row.error)).unwrap();
        self.held(name).extend(keys.zip(records));
    }

    /// Verifies the contents through a reader beside the store and through a reopened store,
    /// several times.
    fn verify(&mut self, storage: &Arc<dyn Storage>, rng: &mut SmallRng, what: &str) {
        for round in 0..3 {
            let reader = Store::open_read_only_on(storage.clone(), options(MEMORY_LIMIT_MIN)).unwrap();
            self.compare(&reader, &format!("{what}, read only, round {round}"));
            drop(reader);
            let store = Store::open_on(storage.clone(), options(MEMORY_LIMIT_MIN)).unwrap();
            self.compare(&store, &format!("{what}, opened for writing, round {round}"));
            let report = store.check(false).unwrap();
            assert!(report.findings.is_empty(), "{what}: {report}");
            // Writes after a replay also survive the next one.
            let name = self.0.keys().nth(round % self.0.len()).unwrap().clone();
            let key = 1_000_000 + rng.random_range(0..1000);
            self.write(&store, rng, &name, key..key + 1);
            store.close().unwrap();
        }
    }

    fn compare(&self, store: &Store, what: &str) {
        let found = state_of(store);
        for (name, held) in &self.0 {
            let records = found.get(name).map_or(0, |held| held.records.len());
            assert_eq!(records, held.records.len(), "records of {name}, {what}");
        }
        assert!(found == self.0, "other records, {what}");
    }
}

#[test]
fn a_flushing_replay_is_complete_after_an_import_into_another_dataset() {
    let (mut rng, _) = seeded(71);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut model = Model::default();
    let store = Store::open_on(storage.clone(), options(LARGE)).unwrap();
    model.write(&store, &mut rng, "a", 0..6000);
    model.import(&store, &mut rng, "b", 0..2);
    store.close().unwrap();
    model.verify(&storage, &mut rng, "a before the import of b");
}

#[test]
fn a_flushing_replay_is_complete_after_a_flush_of_another_dataset() {
    let (mut rng, _) = seeded(72);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut model = Model::default();
    let store = Store::open_on(storage.clone(), options(LARGE)).unwrap();
    for start in (0..3000).step_by(500) {
        for name in ["a", "b", "c"] {
            model.write(&store, &mut rng, name, start..start + 500);
            model.delete(&store, name, start + 7);
        }
    }
    store.dataset("b").unwrap().flush().unwrap();
    model.write(&store, &mut rng, "c", 200..900);
    model.import(&store, &mut rng, "d", 0..3);
    model.write(&store, &mut rng, "b", 200..900);
    model.delete(&store, "a", 11);
    store.close().unwrap();
    model.verify(&storage, &mut rng, "three datasets, one of them flushed");
}

/// Random writes to several datasets in turn, with flushes and imports, over several sessions.
#[test]
fn datasets_written_in_turn_are_replayed_completely() {
    for default_seed in 73..75 {
        let (mut rng, seed) = seeded(default_seed);
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let mut model = Model::default();
        let mut imported = 100_000;
        for _ in 0..2 {
            let store = Store::open_on(storage.clone(), options(LARGE)).unwrap();
            for _ in 0..24 {
                let name = ["a", "b", "c"][rng.random_range(0..3)];
                match rng.random_range(0..8) {
                    0 if model.0.contains_key(name) => store.dataset(name).unwrap().flush().unwrap(),
                    1 => {
                        imported += 3;
                        model.import(&store, &mut rng, name, imported - 3..imported);
                    }
                    2 if model.0.contains_key(name) => {
                        (0..20).for_each(|key| model.delete(&store, name, key * 17));
                    }
                    _ => {
                        let start = rng.random_range(0..2000);
                        model.write(&store, &mut rng, name, start..start + 500);
                    }
                }
            }
            store.close().unwrap();
            model.verify(&storage, &mut rng, &format!("seed {seed}"));
        }
    }
}

/// A kill, or a power loss at any event of a flushing recovery, loses nothing either.
#[test]
fn a_replay_that_flushes_survives_crashes() {
    let (mut rng, seed) = seeded(77);
    let controller = Controller::new();
    let mut model = Model::default();
    let store = Store::open_on(controller.storage(), options(LARGE)).unwrap();
    model.write(&store, &mut rng, "a", 0..2000);
    model.write(&store, &mut rng, "b", 0..1500);
    model.import(&store, &mut rng, "c", 0..2);
    model.write(&store, &mut rng, "b", 1000..1600);
    let end = controller.events();
    let budget = Budget { exhaustive_pending: 1, samples: 1, ..Budget::default() };
    for image in controller.images(end, &budget, seed).chain([controller.process_kill(end)]) {
        let recovery = image.restart();
        let store = Store::open_on(recovery.storage(), options(MEMORY_LIMIT_MIN)).unwrap();
        model.compare(&store, &image.describe());
        drop(store);
        let events = recovery.events();
        for cut in (0..=events).step_by((events / 12).max(1)) {
            for image in recovery.images(cut, &budget, seed).chain([recovery.process_kill(cut)]) {
                let reader = Store::open_read_only_on(image.storage(), options(MEMORY_LIMIT_MIN)).unwrap();
                model.compare(&reader, &image.describe());
                drop(reader);
                let store = Store::open_on(image.storage(), options(MEMORY_LIMIT_MIN)).unwrap();
                model.compare(&store, &image.describe());
                assert!(store.check(false).unwrap().findings.is_empty(), "{}", image.describe());
            }
        }
    }
}
