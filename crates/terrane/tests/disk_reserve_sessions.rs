//! A full disk on which another program takes all that is free between sessions: none of them takes from the next one what it
//! needs to open the store, and to go on.

use std::sync::Arc;

use crate::support::files::{files_of, memory_of};
use crate::support::workload::{MAIN, first_schema, options};
use terrane::{
    Condition, Dataset, DiskReserve, Durability, Error, IndexKind, Key, LogOptions, Options, Query, Record, Store,
    Value,
};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

const RESERVE: &str = "RESERVE";
/// What only opening and merges by front parts have of a reserve of 2 MiB and more.
const LAST: u64 = (512 << 10) - 512;
/// What is kept of that where there is less comes in blocks.
const BLOCK: u64 = 4 << 10;
const COUNT: i64 = 16_000;

fn session() -> Options {
    Options {
        disk_reserve: DiskReserve::Automatic,
        log: LogOptions { segment_size: 256 << 10, first_segment_size: 256 << 10, spare_segments: 0 },
        memory_limit: 64 << 20,
        ..options(Durability::Power)
    }
}

fn record(key: i64) -> Record {
    let place = (key * 7919 % 1000) as f64;
    Record::at(key, place, -place, vec![Value::Utf8("a name of some length".repeat(24)), Value::Int(key % 100)])
}

fn open(disk: &MemoryStorage) -> Result<(Store, Dataset), Error> {
    let store = Store::open_on(Arc::new(disk.clone()), session())?;
    let dataset = store.dataset(MAIN)?;
    Ok((store, dataset))
}

/// A store with two indexes beside the primary one, of which all is flushed, as the end of its session leaves it.
fn stored(count: i64) -> MemoryStorage {
    let disk = MemoryStorage::new();
    let store = Store::open_on(Arc::new(disk.clone()), session()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    dataset.create_index("by_size", IndexKind::BTree, &["size", "name"]).unwrap();
    (0..count).for_each(|key| dataset.insert(&record(key)).unwrap());
    dataset.compact().unwrap();
    drop(dataset);
    store.close().unwrap();
    disk
}

/// The reserve was given up but for so many bytes, and others have left so many.
fn fill(disk: &MemoryStorage, kept: u64, free: u64) {
    disk.open(RESERVE, OpenMode::Write).unwrap().set_len(kept).unwrap();
    disk.set_capacity(disk.used_bytes() + free);
}

fn reserve_len(disk: &MemoryStorage) -> u64 {
    disk.open(RESERVE, OpenMode::Read).unwrap().len().unwrap()
}

/// How many bytes have to come free, as a refusal says.
#[track_caller]
fn missing(refused: &Error) -> u64 {
    let message = refused.to_string();
    let bytes = message.split_once("until ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    bytes.expect(&message)
}

fn count(dataset: &Dataset) -> i64 {
    dataset.snapshot().count(&Query::new()).unwrap() as i64
}

fn delete_all(dataset: &Dataset) -> Result<u64, Error> {
    dataset.delete_where(&Condition::parse("size >= 0").unwrap(), &[])
}

/// Whether a deletion ended for want of space.
fn is_full(error: &Error) -> bool {
    error.to_string().starts_with("no space left for ")
}

#[test]
fn what_is_left_of_the_last_bytes_is_kept_for_the_next_session() {
    let disk = stored(400);
    fill(&disk, 0, LAST - 1);
    let mut before = u64::MAX;
    for number in 0..20 {
        let (store, dataset) = open(&disk).unwrap_or_else(|error| panic!("session {number}: {error}"));
        assert!(store.info().unwrap().to_string().contains("its reserve is in use"));
        drop(dataset);
        store.close().unwrap();
        let kept = reserve_len(&disk);
        assert!(kept > LAST / 2 && before.saturating_sub(kept) < 2 * BLOCK || before == u64::MAX, "{before}, {kept}");
        before = kept;
        // Somebody else takes what is free.
        disk.set_capacity(disk.used_bytes());
    }
}

/// Deletes that end, or are killed, one session after the other, until all is deleted or they are told what they lack.
#[test]
fn sessions_whose_deletes_end_on_a_full_disk_leave_the_next_one_a_way_back() {
    let mut are_refused = 0;
    for is_killed in [false, true] {
        let mut disk = stored(COUNT);
        fill(&disk, LAST, 0);
        let (mut left, mut sessions) = (COUNT, 0);
        let refused = loop {
            let (store, dataset) = open(&disk).unwrap_or_else(|error| panic!("session {sessions}: {error}"));
            assert_eq!(count(&dataset), left);
            let outcome = delete_all(&dataset);
            let deleted = left - count(&dataset);
            left -= deleted;
            sessions += 1;
            if is_killed {
                let files = files_of(&disk);
                drop((store, dataset));
                disk = memory_of(&files);
            } else {
                drop(dataset);
                _ = store.close();
            }
            disk.set_capacity(disk.used_bytes());
            match outcome {
                Ok(_) => break None,
                Err(error) if deleted == 0 => break Some(error),
                Err(error) => assert!(is_full(&error), "{error}"),
            }
        };
        assert!(sessions > 1, "there was room");
        if let Some(refused) = refused {
            are_refused += 1;
            assert!(is_full(&refused), "{refused}");
            let kept = reserve_len(&disk);
            for _ in 0..10 {
                let (_store, dataset) = open(&disk).unwrap();
                assert!(is_full(&delete_all(&dataset).unwrap_err()));
                disk.set_capacity(disk.used_bytes());
            }
            // This disk counts bytes: where a manifest has one more, others get the rest of a block.
            assert!(kept - reserve_len(&disk) < 8 * BLOCK, "{kept} bytes became {}", reserve_len(&disk));
            // It goes on with what it asks for.
            disk.set_capacity(disk.used_bytes() + missing(&refused));
            let (_store, dataset) = open(&disk).unwrap();
            assert!(dataset.delete(&Key::Int(COUNT - 1)).unwrap());
        }
    }
    assert!(are_refused > 0, "what is said of refusals was not shown");
}

/// Nobody reads it, so that its space is the first to be had.
#[test]
fn a_manifest_that_was_never_put_in_force_is_removed_where_it_takes_the_room_to_open_the_store() {
    let disk = stored(400);
    disk.open("MANIFEST.new", OpenMode::CreateNew).unwrap().write_all_at(&[7; 80 << 10], 0).unwrap();
    fill(&disk, 0, 0);
    let (_store, dataset) = open(&disk).unwrap();
    assert_eq!(count(&dataset), 400);
    assert!(!disk.exists("MANIFEST.new").unwrap());
}

#[test]
fn a_store_that_cannot_be_opened_says_how_much_has_to_be_free() {
    let disk = stored(400);
    fill(&disk, 0, 0);
    let refused = open(&disk).unwrap_err();
    assert!(refused.to_string().contains("to open the store"), "{refused}");
    disk.set_capacity(disk.used_bytes() + missing(&refused));
    let (_store, dataset) = open(&disk).unwrap();
    assert!(dataset.delete(&Key::Int(0)).unwrap());
}

/// It has nothing in its log that needs a place.
#[test]
fn a_store_that_is_closed_leaves_the_reserve_that_the_disk_has_room_for() {
    let disk = stored(400);
    let whole = reserve_len(&disk);
    fill(&disk, LAST, 0);
    let (store, dataset) = open(&disk).unwrap();
    disk.set_capacity(disk.used_bytes() + whole - reserve_len(&disk) + BLOCK);
    drop(dataset);
    store.close().unwrap();
    assert_eq!(reserve_len(&disk), whole);
}
