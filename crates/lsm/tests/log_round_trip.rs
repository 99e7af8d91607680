//! Appended and synced entries are replayed, in order, under the same LSNs.

use crate::log_support::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_lsm::Error;
use terrane_lsm::log::{Log, LogOptions, LogPosition};

#[test]
fn entries_come_back_over_many_segments_and_openings() {
    let seed = std::env::var("TERRANE_SEED").map_or(7, |seed| seed.parse().expect("TERRANE_SEED is a number"));
    println!("replay with TERRANE_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let storage = memory();
    let mut model: Vec<Replayed> = Vec::new();
    for opening in 0..8 {
        let opened = open(&storage, LogPosition::START).unwrap();
        assert_eq!(opened.entries, model, "opening {opening}");
        assert_eq!(opened.report.entries, model.len() as u64);
        assert_eq!(opened.report.torn_tail, None, "opening {opening}");
        let log = opened.log;
        for _ in 0..random.random_range(0..120) {
            let length = match random.random_range(0..20) {
                0 => 0,
                1 => random.random_range(4_000..11_000),
                _ => random.random_range(1..400),
            };
            let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
            let before_lsn = log.end_lsn();
            let appended = append(&log, &bytes).unwrap();
            assert!(appended.start_lsn >= before_lsn && appended.end_lsn > appended.start_lsn);
            assert_eq!(log.end_lsn(), appended.end_lsn);
            model.push((appended.start_lsn, bytes));
            if random.random_bool(0.4) {
                log.sync_to(appended.end_lsn).unwrap();
                assert!(log.durable_lsn() >= appended.end_lsn);
            }
        }
        if opening % 2 == 0 {
            log.close().unwrap();
        } else {
            log.sync_to(log.end_lsn()).unwrap();
        }
    }
    assert!(files(storage.as_ref()).len() > 8, "the test has to fill several segments in an opening");
}

#[test]
fn replay_begins_at_the_low_water_mark() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let appended: Vec<_> = (0..200).map(|number| commit(&log, &entry(number, 300)).unwrap()).collect();
    for (index, from) in appended.iter().enumerate().step_by(7) {
        let position = log.position_of(from.start_lsn).unwrap();
        let (_, entries) = read_only(&storage, position).unwrap();
        assert_eq!(numbers(&entries), (index as u64..200).collect::<Vec<_>>());
        assert_eq!(entries[0].0, from.start_lsn);
    }
    let (_, entries) = read_only(&storage, log.position()).unwrap();
    assert_eq!(entries, []);
}

#[test]
fn an_entry_larger_than_a_segment_gets_a_segment_of_its_own() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let lengths = [100, 5 * SEGMENT_SIZE as usize, 200, 3 * SEGMENT_SIZE as usize + 1, SEGMENT_SIZE as usize - 4096, 9];
    for (number, &length) in lengths.iter().enumerate() {
        append(&log, &entry(number as u64, length)).unwrap();
    }
    log.sync_to(log.end_lsn()).unwrap();
    for (number, &length) in lengths.iter().enumerate() {
        commit(&log, &entry(10 + number as u64, length)).unwrap();
    }
    log.close().unwrap();
    let opened = open(&storage, LogPosition::START).unwrap();
    let expected: Vec<_> = (0..6)
        .map(|n| entry(n, lengths[n as usize]))
        .chain((0..6).map(|n| entry(10 + n, lengths[n as usize])))
        .collect();
    assert_eq!(opened.entries.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), expected);
}

#[test]
fn a_file_prepared_but_too_small_for_the_next_entry_is_used_later() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    log.prepare_next(&mut |_| true).unwrap();
    commit(&log, &entry(0, 4 * SEGMENT_SIZE as usize)).unwrap();
    for number in 1..400 {
        commit(&log, &entry(number, 300)).unwrap();
    }
    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(numbers(&opened.entries), (0..400).collect::<Vec<_>>());
}

#[test]
fn entries_are_written_in_place() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let appended = log
        .append_with(5, |bytes| {
            assert_eq!(bytes, [0; 5]);
            bytes.copy_from_slice(b"basin");
        })
        .unwrap();
    log.sync_to(appended.end_lsn).unwrap();
    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(opened.entries, [(appended.start_lsn, b"basin".to_vec())]);
}

#[test]
fn a_panic_while_an_entry_is_written_leaves_the_log_as_it_was() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    commit(&log, &entry(0, 50)).unwrap();
    let panic = |length| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.append_with(length, |_| panic!("of the test"))))
    };
    assert!(panic(100).is_err());
    // The second time in a fresh segment, which stays without a group.
    let length = SEGMENT_SIZE as usize - 4096 - 64 - 8;
    log.reserve(length).unwrap();
    assert!(panic(length).is_err());
    commit(&log, &entry(1, 3 * SEGMENT_SIZE as usize)).unwrap();
    commit(&log, &entry(2, 50)).unwrap();
    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(numbers(&opened.entries), [0, 1, 2]);
}

#[test]
fn an_error_of_the_caller_ends_the_replay_and_changes_nothing() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    for number in 0..3 {
        commit(&log, &entry(number, 50)).unwrap();
    }
    drop(log);
    let before = contents(storage.as_ref());
    let mut seen = 0;
    let error = Log::open(storage.clone(), OPTIONS, STORE_ID, LogPosition::START, &mut |_, _| {
        seen += 1;
        if seen == 2 { Err(Error::Invalid("of the test".into())) } else { Ok(()) }
    })
    .unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert_eq!(seen, 2);
    assert_eq!(contents(storage.as_ref()), before);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let storage = memory();
    for options in [
        LogOptions { segment_size: 4096, ..OPTIONS },
        LogOptions { segment_size: 10_000, ..OPTIONS },
        LogOptions { first_segment_size: 0, ..OPTIONS },
        LogOptions { segment_size: 1 << 40, ..OPTIONS },
    ] {
        let error = open_with(&storage, options, LogPosition::START).unwrap_err();
        assert!(matches!(error, Error::Options(_)), "{options:?}: {error}");
    }
    let log = open(&storage, LogPosition::START).unwrap().log;
    let appended = commit(&log, b"entry").unwrap();
    assert!(matches!(log.sync_to(appended.end_lsn + 8), Err(Error::Invalid(_))));
    assert!(matches!(log.position_of(appended.end_lsn + 8), Err(Error::Invalid(_))));
    let beyond = LogPosition { segment: 99, ..log.position() };
    assert!(matches!(log.set_low_water(beyond), Err(Error::Invalid(_))));
    assert!(matches!(log.reserve((1 << 30) + 1), Err(Error::Invalid(_))));
    assert!(matches!(log.append_with(usize::MAX, |_| ()), Err(Error::Invalid(_))));
    log.close().unwrap();
    assert!(matches!(log.append(b"late"), Err(Error::Invalid(_))));
    assert!(matches!(log.reserve(4), Err(Error::Invalid(_))));
    log.close().unwrap();
}

#[test]
fn an_empty_log_is_cleanly_closed() {
    let storage = memory();
    let opened = open(&storage, LogPosition::START).unwrap();
    assert!(opened.report.clean_close);
    drop(opened);
    assert!(!open(&storage, LogPosition::START).unwrap().report.clean_close);
    open(&storage, LogPosition::START).unwrap().log.close().unwrap();
    assert!(open(&storage, LogPosition::START).unwrap().report.clean_close);
}
