//! The position of a feed commits with its records: after a crash the store holds the records up to
//! the stored position, and none behind it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::workload::{MAIN, batch, first_schema, options};
use crate::support::{keys_of, seeded, small_options};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::{
    BatchOutcome, Dataset, DatasetOptions, Durability, Error, Feed, Key, OnConflict, Query, Record, Store, Value,
};
use terrane_storage::Storage;
use terrane_storage::event::Event;
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Budget, Controller};

fn record(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Utf8("n".repeat(300)), Value::Int(key)])
}

/// Records whose positions are their keys.
fn write(feed: &mut Feed, keys: &[i64]) -> terrane::Result<BatchOutcome> {
    let records: Vec<Record> = keys.iter().map(|&key| record(key)).collect();
    let positions: Vec<u64> = keys.iter().map(|&key| key as u64).collect();
    let mut outcome = BatchOutcome::default();
    feed.write_batch(&batch(&first_schema(), &records), &positions, OnConflict::Refuse, &mut outcome)?;
    Ok(outcome)
}

fn created(storage: &Arc<dyn Storage>) -> (Store, Dataset) {
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    // Whose rows go to several partitions.
    let options = DatasetOptions { partitions: 3 };
    let dataset = store.create_dataset_with(MAIN, first_schema(), &options).unwrap();
    (store, dataset)
}

fn refused(outcome: &BatchOutcome) -> Vec<usize> {
    outcome.refused.iter().map(|row| row.row).collect()
}

#[test]
fn positions_outlive_flushes_merges_and_sessions() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (mut store, mut dataset) = created(&storage);
    assert!(dataset.feeds().is_empty());
    for round in 0..12 {
        let mut feed = dataset.feed("/var/log/places.ndjson").unwrap();
        assert_eq!(feed.position(), round * 10);
        let first = round as i64 * 10;
        write(&mut feed, &[first + 1, first + 2]).unwrap();
        assert_eq!(feed.position(), round * 10 + 2);
        if round % 3 == 0 {
            dataset.flush().unwrap();
        }
        let mut other = dataset.feed("other").unwrap();
        write(&mut other, &[10_000 + first]).unwrap();
        feed.pass(round * 10 + 10).unwrap();
        feed.pass(round * 10 + 4).unwrap();
        assert_eq!(feed.position(), round * 10 + 10, "a position never goes back");
        drop((feed, other));
        match round % 4 {
            1 => dataset.compact().unwrap(),
            3 => {
                drop(dataset);
                store.close().unwrap();
                store = Store::open_on(storage.clone(), small_options()).unwrap();
                dataset = store.dataset(MAIN).unwrap();
            }
            _ => {}
        }
    }
    // A reader sees what the log says, too.
    let beside = Store::open_read_only_on(storage, small_options()).unwrap();
    let reader = beside.dataset(MAIN).unwrap();
    for dataset in [&dataset, &reader] {
        let told: Vec<(String, u64)> = dataset.feeds().into_iter().map(|feed| (feed.name, feed.position)).collect();
        assert_eq!(told, [("/var/log/places.ndjson".into(), 120), ("other".into(), 10_110)]);
    }
    assert!(matches!(reader.feed("other"), Err(Error::ReadOnly)));
    let info = store.info().unwrap().to_string();
    assert!(info.contains("feed other: read up to 10110"), "{info}");
}

#[test]
fn rows_that_are_refused_are_passed() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (_store, dataset) = created(&storage);
    dataset.insert(&record(3)).unwrap();
    dataset.insert(&record(9)).unwrap();
    let mut feed = dataset.feed("feed").unwrap();
    assert_eq!(refused(&write(&mut feed, &[1, 2, 3, 4]).unwrap()), [2]);
    assert_eq!(feed.position(), 4);
    assert_eq!(refused(&write(&mut feed, &[9]).unwrap()), [0]);
    assert_eq!(feed.position(), 9);
}

#[test]
fn positions_that_do_not_fit_are_refused_before_anything_is_written() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (_store, dataset) = created(&storage);
    let mut feed = dataset.feed("feed").unwrap();
    write(&mut feed, &[5]).unwrap();
    for (keys, reason) in [
        (&[6, 6][..], "position 6 comes after 6"),
        (&[5][..], "position 5 comes after 5"),
        (&[7, 6][..], "position 6 comes after 7"),
    ] {
        let error = write(&mut feed, keys).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let batch = batch(&first_schema(), &[record(6), record(7)]);
    let error = feed.write_batch(&batch, &[6], OnConflict::Refuse, &mut BatchOutcome::default()).unwrap_err();
    assert!(error.to_string().contains("2 rows have 1 positions"), "{error}");
    assert_eq!(keys_of(&dataset.snapshot(), &Query::new()), [Key::Int(5)]);
    assert_eq!(feed.position(), 5);
}

#[test]
fn a_feed_has_one_user_and_can_be_begun_anew_and_dropped() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (store, dataset) = created(&storage);
    let mut feed = dataset.feed("feed").unwrap();
    let in_use = |error: Error| error.to_string().contains("is in use");
    assert!(dataset.feed("feed").is_err_and(in_use));
    assert!(dataset.drop_feed("feed").is_err_and(in_use));
    write(&mut feed, &[8]).unwrap();
    feed.set_source("first bytes 123").unwrap();
    drop(feed);
    let mut feed = dataset.feed("feed").unwrap();
    assert_eq!((feed.position(), feed.source()), (8, Some("first bytes 123")));
    feed.restart(0, None).unwrap();
    assert_eq!((feed.position(), feed.source()), (0, None));
    assert!(matches!(feed.restart(0, Some("a\nb")), Err(Error::Usage(_))));
    // Positions from before do not count any more, in memory, in components and in the log.
    write(&mut feed, &[2]).unwrap();
    assert_eq!(feed.position(), 2);
    drop(feed);
    dataset.flush().unwrap();
    assert_eq!(dataset.feed("feed").unwrap().position(), 2);
    assert!(dataset.drop_feed("feed").unwrap());
    assert!(!dataset.drop_feed("feed").unwrap());
    drop(dataset);
    store.close().unwrap();
    let store = Store::open_on(storage, small_options()).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    assert!(dataset.feeds().is_empty());
    // Its number is not used again.
    assert_eq!(dataset.feed("feed").unwrap().position(), 0);
    for name in ["", "a\nb", &"x".repeat(5000)] {
        assert!(matches!(dataset.feed(name), Err(Error::Usage(_))), "{name:?}");
    }
    assert_eq!(keys_of(&dataset.snapshot(), &Query::new()).len(), 2, "the records stay");
}

#[test]
fn a_feed_that_is_begun_in_the_middle_of_a_source_continues_there() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (store, dataset) = created(&storage);
    let mut feed = dataset.feed("feed").unwrap();
    write(&mut feed, &[8]).unwrap();
    feed.restart(5, Some("other")).unwrap();
    assert_eq!((feed.position(), feed.source()), (5, Some("other")));
    assert!(write(&mut feed, &[5]).is_err());
    // Nothing but its definition says so yet.
    drop((feed, dataset));
    store.close().unwrap();
    let store = Store::open_on(storage, small_options()).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    assert_eq!(dataset.feeds()[0].position, 5);
    let mut feed = dataset.feed("feed").unwrap();
    dataset.insert(&record(6)).unwrap();
    assert_eq!(refused(&write(&mut feed, &[6]).unwrap()), [0]);
    assert_eq!(feed.position(), 6);
    write(&mut feed, &[7]).unwrap();
    assert_eq!((feed.position(), dataset.feeds()[0].position), (7, 7));
}

/// Writes batches of a few rows, some of them refused, with flushes and reopenings in between. Each
/// acknowledged position is marked.
fn run(rng: &mut SmallRng, durability: Durability) -> (Arc<Controller>, BTreeSet<i64>) {
    let controller = Controller::new();
    let open = || Store::open_on(controller.storage(), options(durability)).unwrap();
    let mut store = open();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let taken: BTreeSet<i64> = (0..20).map(|_| rng.random_range(1..300)).collect();
    for &key in &taken {
        dataset.insert(&record(key)).unwrap();
    }
    dataset.flush().unwrap();
    drop(dataset);
    let mut key = 0;
    for round in 0..30 {
        let dataset = store.dataset(MAIN).unwrap();
        let mut feed = dataset.feed("feed").unwrap();
        let keys: Vec<i64> = (0..rng.random_range(1..6)).map(|place| key + 1 + place).collect();
        key += keys.len() as i64;
        let outcome = write(&mut feed, &keys).unwrap();
        assert_eq!(outcome.refused.len(), keys.iter().filter(|key| taken.contains(key)).count());
        assert_eq!(feed.position(), key as u64);
        controller.mark(key as u64);
        drop(feed);
        match round % 10 {
            4 => dataset.flush().unwrap(),
            7 => dataset.compact().unwrap(),
            9 => {
                drop(dataset);
                store.close().unwrap();
                store = open();
            }
            _ => {}
        }
    }
    (controller, taken)
}

#[test]
fn after_power_loss_the_position_is_that_of_the_last_record() {
    for (durability, seed) in [(Durability::Power, 21), (Durability::None, 22)] {
        let (mut rng, seed) = seeded(seed);
        let (controller, taken) = run(&mut rng, durability);
        let (log, mut acknowledged, mut positions) = (controller.log(), 0, BTreeSet::new());
        let budget = Budget { exhaustive_pending: 3, samples: 1, ..Budget::default() };
        for cut in 0..=controller.events() {
            if let Some(Event::Mark(position)) = cut.checked_sub(1).map(|last| &log[last]) {
                acknowledged = *position;
            }
            for image in controller.images(cut, &budget, seed) {
                let store = Store::open_on(image.restart().storage(), options(durability)).unwrap();
                let Ok(dataset) = store.dataset(MAIN) else { continue };
                let position = dataset.feeds().first().map_or(0, |feed| feed.position) as i64;
                assert!(durability == Durability::None || position >= acknowledged as i64, "{}", image.describe());
                let held = keys_of(&dataset.snapshot(), &Query::new());
                let read: Vec<Key> = (1..=position).filter(|key| !taken.contains(key)).map(Key::Int).collect();
                let fed: Vec<Key> =
                    held.into_iter().filter(|key| !matches!(key, Key::Int(key) if taken.contains(key))).collect();
                assert_eq!(fed, read, "cut {cut}, position {position}: {}", image.describe());
                positions.insert(position);
            }
        }
        assert!(positions.len() > if durability == Durability::None { 4 } else { 25 }, "{positions:?}");
    }
}

/// Otherwise a restarted program would take any file in the source's place for the new one.
#[test]
fn after_power_loss_a_feed_is_in_the_old_source_or_where_it_began_in_the_new_one() {
    let controller = Controller::new();
    let store = Store::open_on(controller.storage(), options(Durability::Power)).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let mut feed = dataset.feed("feed").unwrap();
    feed.set_source("old").unwrap();
    write(&mut feed, &[1, 2, 3]).unwrap();
    let before = controller.events();
    feed.restart(2, Some("new")).unwrap();
    let after = controller.events();
    let (_, seed) = seeded(23);
    let mut found = BTreeSet::new();
    for cut in before..=after {
        for image in controller.images(cut, &Budget::default(), seed) {
            let store = Store::open_on(image.restart().storage(), options(Durability::Power)).unwrap();
            let feed = store.dataset(MAIN).unwrap().feeds().remove(0);
            let state = (feed.position, feed.source.expect("it has one"));
            assert!(cut < after || state.0 == 2, "the restart was acknowledged: {}", image.describe());
            found.insert(state);
        }
    }
    assert_eq!(found, BTreeSet::from([(2, "new".to_owned()), (3, "old".to_owned())]));
}
