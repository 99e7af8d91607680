//! Segments below the low-water mark are reused; their old groups never come back.

use std::sync::Arc;

use crate::log_support::*;
use terrane_lsm::Error;
use terrane_lsm::log::{LogOptions, LogPosition};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

#[test]
fn files_stay_bounded_while_the_low_water_mark_follows() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let mut recycled = false;
    for number in 0..2_000 {
        let appended = commit(&log, &entry(number, 200)).unwrap();
        log.set_low_water(log.position_of(appended.start_lsn).unwrap()).unwrap();
        let count = files(storage.as_ref()).len();
        assert!(count <= 1 + OPTIONS.spare_segments + 1, "{count} files after entry {number}");
        recycled |= number > 100 && count > 1;
    }
    assert!(recycled, "no file was kept for reuse");
}

#[test]
fn stale_groups_of_a_recycled_segment_never_replay() {
    // Equal entries at equal offsets: in a recycled file every old group lies where a new one
    // could.
    let storage = memory();
    let mut from = LogPosition::START;
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut number = 0;
    for opening in 0..60 {
        let opened = open(&storage, from).unwrap();
        let expected: Vec<u64> = live.iter().map(|&(_, number)| number).collect();
        assert_eq!(numbers(&opened.entries), expected, "opening {opening}");
        assert_eq!(opened.report.torn_tail, None, "opening {opening}");
        let log = opened.log;
        for _ in 0..opening % 13 {
            let appended = commit(&log, &entry(number, 900)).unwrap();
            live.push((appended.start_lsn, number));
            number += 1;
        }
        if opening % 3 == 2 {
            from = log.position();
            log.set_low_water(from).unwrap();
            live.retain(|&(lsn, _)| lsn >= from.lsn);
        }
    }
    assert!(number > 300);
    assert!(files(storage.as_ref()).len() < 12);
}

#[test]
fn a_hold_keeps_segments_until_it_is_dropped() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let first = commit(&log, &entry(0, 200)).unwrap();
    let start = log.position_of(first.start_lsn).unwrap();
    let hold = log.hold(first.start_lsn).unwrap();
    assert_eq!(hold.lsn(), first.start_lsn);
    let second_hold = log.hold(first.start_lsn).unwrap();
    for number in 1..400 {
        commit(&log, &entry(number, 200)).unwrap();
        log.set_low_water(log.position()).unwrap();
    }
    let (_, entries) = read_only(&storage, start).unwrap();
    assert_eq!(numbers(&entries), (0..400).collect::<Vec<_>>());
    drop(hold);
    log.set_low_water(log.position()).unwrap();
    assert_eq!(numbers(&read_only(&storage, start).unwrap().1).len(), 400);
    drop(second_hold);
    log.set_low_water(log.position()).unwrap();
    assert!(read_only(&storage, start).unwrap_err().is_damage());
    assert!(matches!(log.hold(first.start_lsn), Err(Error::Invalid(_))));
    assert!(files(storage.as_ref()).len() <= 1 + OPTIONS.spare_segments + 1);
}

#[test]
fn a_full_disk_refuses_the_write_and_loses_nothing() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let log = open(&storage, LogPosition::START).unwrap().log;
    disk.set_capacity(2 * SEGMENT_SIZE + 100);
    let mut number = 0;
    let error = loop {
        match log.reserve(300) {
            Ok(()) => {}
            Err(error) => break error,
        }
        let appended = log.append(&entry(number, 300)).unwrap();
        log.sync_to(appended.end_lsn).unwrap();
        number += 1;
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(number > 60, "two segments hold more than {number} entries");
    assert!(matches!(log.append(&entry(number, 300)), Err(Error::Full { .. })));
    assert!(files(storage.as_ref()).iter().all(|name| name.ends_with(".log")), "an unfinished file stayed");
    // Retiring flushed segments makes room again: the same handle continues.
    let from = log.position();
    log.set_low_water(from).unwrap();
    for _ in 0..20 {
        commit(&log, &entry(number, 300)).unwrap();
        number += 1;
    }
    disk.set_capacity(u64::MAX);
    let opened = open(&storage, from).unwrap();
    assert_eq!(numbers(&opened.entries), (number - 20..number).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_is_nearly_full_gets_smaller_segments() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let options = LogOptions { segment_size: 8 * SEGMENT_SIZE, ..OPTIONS };
    let log = open_with(&storage, options, LogPosition::START).unwrap().log;
    // Two small ones beside the first.
    disk.set_capacity(3 * SEGMENT_SIZE + 100);
    let mut number = 0;
    while commit(&log, &entry(number, 300)).is_ok() {
        number += 1;
    }
    assert!(number > 90, "three segments hold more than {number} entries");
    assert_eq!(files(storage.as_ref()).len(), 3);
    // An entry that no small one takes is refused all the same.
    assert!(matches!(log.reserve(2 * SEGMENT_SIZE as usize), Err(Error::Full { .. })));
    let opened = open_with(&storage, OPTIONS, LogPosition::START);
    assert!(matches!(opened, Err(Error::Full { .. })), "an opening begins a segment");
    disk.set_capacity(u64::MAX);
    let opened = open_with(&storage, OPTIONS, LogPosition::START).unwrap();
    assert_eq!(numbers(&opened.entries), (0..number).collect::<Vec<_>>());
}

#[test]
fn a_log_that_may_not_grow_gives_up_its_spare_files_and_takes_a_smaller_one() {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let options = LogOptions { segment_size: 4 * SEGMENT_SIZE, ..OPTIONS };
    let log = open_with(&storage, options, LogPosition::START).unwrap().log;
    let mut number = 0;
    let mut fill = |may_grow: &mut dyn FnMut(u64) -> bool| loop {
        if let Err(error) = log.reserve_if(300, may_grow) {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            return number;
        }
        let room = log.room();
        log.sync_to(log.append(&entry(number, 300)).unwrap().end_lsn).unwrap();
        assert!(log.room() < room, "an entry takes room");
        number += 1;
    };
    let mut files_left = 3;
    let before = fill(&mut |size| {
        files_left -= i32::from(size == 4 * SEGMENT_SIZE);
        size == 4 * SEGMENT_SIZE && files_left >= 0
    });
    log.set_low_water(log.position()).unwrap();
    assert_eq!(files(storage.as_ref()).len(), 3, "one in use and two for reuse");
    assert!(log.room() < 600, "{} bytes are left", log.room());
    let mut asked = Vec::new();
    let after = fill(&mut |size| {
        asked.push((size, files(storage.as_ref()).len()));
        size == SEGMENT_SIZE && asked.len() == 3
    });
    assert!(after > before + 30, "a small one has room for more than {}", after - before);
    let large = 4 * SEGMENT_SIZE;
    assert_eq!(asked[..3], [(large, 3), (large, 1), (SEGMENT_SIZE, 1)]);
    assert_eq!(asked[3..], [(large, 2), (SEGMENT_SIZE, 2)]);
    assert!(!log.remove_spares().unwrap(), "there are none");
}

#[test]
fn a_segment_prepared_ahead_is_used_without_further_preparation() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let mut preparations = 0;
    for number in 0..300 {
        if log.needs_preparation() {
            log.prepare_next(&mut |_| true).unwrap();
            preparations += 1;
            assert!(!log.needs_preparation());
        }
        // Without `reserve`: there is always room.
        let appended = log.append(&entry(number, 200)).unwrap();
        log.sync_to(appended.end_lsn).unwrap();
    }
    assert!(preparations > 3);
}

#[test]
fn an_unfinished_file_is_removed_at_opening() {
    let storage = memory();
    drop(open(&storage, LogPosition::START).unwrap());
    storage.rename("log/000000000001.log", "log/000000000004.new").unwrap();
    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(files(storage.as_ref()), ["log/000000000005.log"]);
    commit(&opened.log, b"entry").unwrap();
}
