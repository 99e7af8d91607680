//! A second process reads the tail of a log that is being written, and keeps it from reuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::log_support::*;
use terrane_lsm::log::LogPosition;
use terrane_storage::{Operation, RealStorage, Storage};
use terrane_testkit::hook::HookedStorage;
use terrane_testkit::{FaultyStorage, MemoryStorage};

#[test]
fn a_reader_sees_what_is_written_and_changes_nothing() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    for number in 0..200 {
        commit(&log, &entry(number, 300)).unwrap();
    }
    append(&log, &entry(200, 300)).unwrap();
    let before = contents(storage.as_ref());
    let counted = FaultyStorage::new(storage.clone());
    let reading: Arc<dyn Storage> = Arc::new(counted.clone());
    let (tail, entries) = read_only(&reading, LogPosition::START).unwrap();
    assert_eq!(numbers(&entries), (0..200).collect::<Vec<_>>());
    assert_eq!((tail.end_lsn(), tail.entries()), (log.durable_lsn(), 200));
    assert_eq!(contents(storage.as_ref()), before);
    for operation in [Operation::Write, Operation::SetLength, Operation::Rename, Operation::Remove, Operation::Create] {
        assert_eq!(counted.calls(operation), 0, "{operation:?}");
    }
    assert_eq!(counted.calls(Operation::Sync), 1, "what is shown has to be durable");
}

#[test]
fn segments_that_a_reader_holds_are_not_reused() {
    for reading in [true, false] {
        let storage = memory();
        let log = open(&storage, LogPosition::START).unwrap().log;
        for number in 0..100 {
            commit(&log, &entry(number, 300)).unwrap();
        }
        let start = log.position_of(0).unwrap();
        let tail = reading.then(|| read_only(&storage, start).unwrap().0);
        assert!(tail.as_ref().is_none_or(|tail| tail.segments() >= 3));
        let open_files: Vec<_> = files(storage.as_ref())
            .iter()
            .map(|name| storage.open(name, terrane_storage::OpenMode::Read).unwrap())
            .collect();
        let read_all = || -> Vec<Vec<u8>> {
            let read = |file: &Arc<dyn terrane_storage::File>| {
                let mut bytes = vec![0; SEGMENT_SIZE as usize];
                file.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            open_files.iter().map(read).collect()
        };
        let before = read_all();
        for number in 100..1_000 {
            commit(&log, &entry(number, 300)).unwrap();
            log.set_low_water(log.position()).unwrap();
        }
        // The last of the segments was written further behind the part that was read.
        let last = before.len() - 1;
        let same = read_all()[..last] == before[..last];
        assert_eq!(same, reading, "without a reader the files are reused, with one they are not");
        assert!(files(storage.as_ref()).len() <= 2 + OPTIONS.spare_segments);
    }
}

#[test]
fn a_reader_sees_segments_that_were_reused() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let mut from = log.position();
    let mut first_number = 0;
    for number in 0..500 {
        if number % 60 == 59 {
            (from, first_number) = (log.position(), number);
            log.set_low_water(from).unwrap();
        }
        commit(&log, &entry(number, 300)).unwrap();
        let (_, entries) = read_only(&storage, from).unwrap();
        assert_eq!(numbers(&entries), (first_number..=number).collect::<Vec<_>>());
    }
}

#[test]
fn a_reader_with_an_old_manifest_is_told_so() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let old = log.position();
    for number in 0..1_000 {
        commit(&log, &entry(number, 300)).unwrap();
        log.set_low_water(log.position()).unwrap();
        assert!(
            log.position().segment == old.segment || read_only(&storage, old).is_err(),
            "segments are gone and the reader did not notice"
        );
    }
}

/// A prepared segment that is too small for an entry is skipped and becomes a later one. The
/// manifest does not change, so the reader does not start over.
#[test]
fn a_file_that_gets_another_number_between_its_opening_and_its_locking_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let places: [Arc<dyn Storage>; 2] = [Arc::new(MemoryStorage::new()), Arc::new(RealStorage::new(directory.path()))];
    for storage in places {
        let passed_over = "log/000000000002.log";
        let log = Arc::new(open(&storage, LogPosition::START).unwrap().log);
        for number in 0..5 {
            commit(&log, &entry(number, 300)).unwrap();
        }
        log.prepare_next(&mut |_| true).unwrap();
        assert!(files(storage.as_ref()).contains(&passed_over.to_string()));
        let hooked = HookedStorage::new(storage.clone());
        let (writer, mut number) = (log.clone(), 5);
        hooked.on_opened(move |name| {
            if name == passed_over && number == 5 {
                commit(&writer, &entry(number, 2 * SEGMENT_SIZE as usize)).unwrap();
                while number < 200 {
                    number += 1;
                    commit(&writer, &entry(number, 300)).unwrap();
                }
            }
        });
        let hooked: Arc<dyn Storage> = Arc::new(hooked);
        let (_tail, entries) = read_only(&hooked, LogPosition::START).unwrap();
        assert!(!files(storage.as_ref()).contains(&passed_over.to_string()), "the file was to get another number");
        let seen = numbers(&entries);
        assert!(seen.len() >= 5, "what was acknowledged before is missing");
        assert_eq!(seen, (0..seen.len() as u64).collect::<Vec<_>>());
        let (_, entries) = read_only(&storage, LogPosition::START).unwrap();
        assert_eq!(numbers(&entries), (0..=200).collect::<Vec<_>>());
    }
}

#[test]
fn readers_beside_a_writer_see_everything_acknowledged() {
    const COMMITS: u64 = 3_000;
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COMMITS {
                commit(&log, &entry(number, 100)).unwrap();
                acknowledged.store(number + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        loop {
            let last_time = done.load(Ordering::Acquire);
            let before = acknowledged.load(Ordering::Acquire);
            let (_tail, entries) = read_only(&storage, LogPosition::START).unwrap();
            assert_eq!(numbers(&entries), (0..entries.len() as u64).collect::<Vec<_>>());
            assert!(entries.len() as u64 >= before, "{} of {before} acknowledged entries", entries.len());
            if last_time {
                break;
            }
        }
    });
}

#[test]
fn a_reader_after_a_crash_leaves_the_torn_tail_to_the_writer() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    commit(&log, &entry(0, 50)).unwrap();
    let torn_lsn = log.end_lsn();
    commit(&log, &entry(1, 50)).unwrap();
    drop(log);
    flip(storage.as_ref(), "log/000000000001.log", FIRST_GROUP + torn_lsn + 100);
    let (tail, entries) = read_only(&storage, LogPosition::START).unwrap();
    assert_eq!((numbers(&entries), tail.end_lsn()), (vec![0], torn_lsn));
    assert!(open(&storage, LogPosition::START).unwrap().report.torn_tail.is_some());
}

#[test]
fn a_store_without_a_log_is_empty() {
    let (tail, entries) = read_only(&memory(), LogPosition::START).unwrap();
    assert_eq!((entries.len(), tail.segments(), tail.end_lsn()), (0, 0, 0));
}
