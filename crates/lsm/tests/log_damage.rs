//! If bytes that were proven durable cannot be read, the error names the place.

use std::sync::Arc;

use crate::log_support::*;
use terrane_lsm::Error;
use terrane_lsm::log::{Log, LogOptions, LogPosition};
use terrane_storage::{OpenMode, Storage};

/// Commits until the third segment holds a few groups; returns where the last group begins and ends
/// in that segment's file.
fn fill() -> (Arc<dyn Storage>, Log, std::ops::Range<u64>) {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let mut number = 0;
    let mut left = 4;
    loop {
        let begin_lsn = log.end_lsn();
        commit(&log, &entry(number, 700)).unwrap();
        number += 1;
        left -= u32::from(log.position().segment == 3);
        if left == 0 {
            let base_lsn = base_lsn(&read(storage.as_ref(), "log/000000000003.log"));
            let range = FIRST_GROUP + begin_lsn - base_lsn..FIRST_GROUP + log.end_lsn() - base_lsn;
            return (storage, log, range);
        }
    }
}

/// Ends of the groups in the three segments; the bytes behind are unused.
fn used_ends(contents: &[(String, Vec<u8>)]) -> Vec<u64> {
    let end_of = |bytes: &Vec<u8>| bytes.iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
    contents.iter().map(|(_, bytes)| end_of(bytes)).collect()
}

fn expect_damage(base: &[(String, Vec<u8>)], name: &str, what: &str, change: impl FnOnce(&dyn Storage)) {
    let storage = restore(base);
    change(storage.as_ref());
    let before = contents(storage.as_ref());
    let error = open(&storage, LogPosition::START).expect_err(what);
    assert!(error.is_damage(), "{what}: {error}");
    let Error::Damaged { file, .. } = &error else { panic!("{error}") };
    assert_eq!(file, name, "{what}: {error}");
    assert_eq!(contents(storage.as_ref()), before, "{what} changed a file");
    assert!(read_only(&storage, LogPosition::START).unwrap_err().is_damage(), "{what}, read only");
}

#[test]
fn a_flipped_byte_in_anything_proven_durable_is_damage() {
    let (storage, _log, last_group) = fill();
    let base = contents(storage.as_ref());
    let ends = used_ends(&base);
    for (index, (name, _)) in base.iter().enumerate() {
        let end = if index == 2 { last_group.start } else { ends[index] };
        for offset in (0..128).chain(FIRST_GROUP..end) {
            expect_damage(&base, name, &format!("{name} at {offset}"), |storage| {
                flip(storage, name, offset);
            });
        }
    }
}

#[test]
fn a_flipped_byte_in_the_last_group_costs_that_group_only() {
    let (storage, log, last_group) = fill();
    let count = read_only(&storage, LogPosition::START).unwrap().1.len();
    drop(log);
    let base = contents(storage.as_ref());
    for offset in last_group.clone() {
        let storage = restore(&base);
        flip(storage.as_ref(), "log/000000000003.log", offset);
        let opened = open(&storage, LogPosition::START).unwrap();
        assert_eq!(opened.entries.len(), count - 1, "offset {offset}");
        assert!(opened.report.torn_tail.is_some(), "offset {offset}");
    }
}

#[test]
fn after_a_clean_close_every_flip_and_truncation_is_damage() {
    let (storage, log, _) = fill();
    log.close().unwrap();
    let base = contents(storage.as_ref());
    let ends = used_ends(&base);
    let (name, bytes) = &base[2];
    for offset in (0..128).chain(FIRST_GROUP..ends[2]) {
        expect_damage(&base, name, &format!("flip at {offset}"), |storage| flip(storage, name, offset));
    }
    for length in (0..bytes.len() as u64).step_by(97) {
        expect_damage(&base, name, &format!("cut to {length}"), |storage| {
            storage.open(name, OpenMode::Write).unwrap().set_len(length).unwrap();
        });
    }
    // Either copy of the mark suffices.
    for mark in [512, 1024] {
        for offset in mark..mark + 24 {
            let storage = restore(&base);
            flip(storage.as_ref(), name, offset);
            let opened = open(&storage, LogPosition::START).unwrap();
            assert!(opened.report.clean_close, "flip at {offset}");
        }
    }
    // Bytes that were never used do not count.
    let storage = restore(&base);
    flip(storage.as_ref(), name, ends[2] + 9);
    assert!(open(&storage, LogPosition::START).unwrap().report.clean_close);
}

/// A file of another kind, as after a failed copy: it has no group that proves anything.
#[test]
fn a_last_file_that_does_not_begin_as_one_of_a_log_is_damage() {
    let (storage, log, _) = fill();
    log.close().unwrap();
    let base = contents(storage.as_ref());
    let (name, bytes) = &base[2];
    for first in [b"TERRANEc", b"TERRLOH\n", b"\0\0\0\0\0\0\0\x01"] {
        expect_damage(&base, name, &format!("begins with {first:?}"), |storage| {
            let file = storage.open(name, OpenMode::Write).unwrap();
            file.write_all_at(&vec![0; bytes.len()], 0).unwrap();
            file.write_all_at(first, 0).unwrap();
        });
    }
}

#[test]
fn the_only_proof_is_found_wherever_it_lies() {
    // The search reads pieces of 1 MiB. The proving header lies before, across and after a border.
    let options = LogOptions { segment_size: 4 << 20, first_segment_size: 4 << 20, ..OPTIONS };
    for distance in [-72, -64, -56, -32, -8, 0, 8, 64] {
        let storage = memory();
        let log = open_with(&storage, options, LogPosition::START).unwrap().log;
        commit(&log, &entry(0, 20)).unwrap();
        let damaged = FIRST_GROUP + log.end_lsn();
        let length = (1_i64 << 20) + distance - GROUP_HEADER_LENGTH as i64 - 4;
        commit(&log, &entry(1, length as usize)).unwrap();
        commit(&log, &entry(2, 20)).unwrap();
        drop(log);
        flip(storage.as_ref(), "log/000000000001.log", damaged);
        let error = open_with(&storage, options, LogPosition::START).unwrap_err();
        assert!(error.is_damage(), "{distance}: {error}");
    }
}

#[test]
fn a_shorter_file_is_damage_without_a_clean_close_too() {
    let (storage, _log, _) = fill();
    let base = contents(storage.as_ref());
    for (name, bytes) in &base {
        for length in [0, 100, 4096, 5000, 8192, bytes.len() as u64 - 1] {
            expect_damage(&base, name, &format!("{name} cut to {length}"), |storage| {
                storage.open(name, OpenMode::Write).unwrap().set_len(length).unwrap();
            });
        }
    }
}

/// Lost from its start to any point, as long as some of the segment's own bytes are left.
#[test]
fn the_last_segment_without_its_first_pages_is_damage() {
    for is_closed in [false, true] {
        let storage = memory();
        let log = open(&storage, LogPosition::START).unwrap().log;
        for number in 0..12 {
            commit(&log, &entry(number, 700)).unwrap();
        }
        if is_closed {
            log.close().unwrap();
        }
        drop(log);
        let base = contents(storage.as_ref());
        let (name, bytes) = base.last().unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        // For the last group its last byte is enough, since the file was prepared with zeros.
        for lost in (128..end).step_by(61).chain([4096, 8192, end - 1]) {
            expect_damage(&base, name, &format!("closed {is_closed}, {lost} bytes are zeros"), |storage| {
                write(storage, name, 0, &vec![0; lost]);
            });
        }
        let storage = restore(&base);
        write(storage.as_ref(), name, 0, &vec![0; end]);
        assert!(open(&storage, LogPosition::START).unwrap().entries.is_empty(), "nothing is left that proves anything");
    }
}

#[test]
fn a_recycled_segment_with_its_older_first_pages_is_damage() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    let mut number = 0;
    let mut commit_until = |segment, groups| {
        while log.position().segment < segment {
            commit(&log, &entry(number, 700)).unwrap();
            number += 1;
        }
        for _ in 0..groups {
            commit(&log, &entry(number, 700)).unwrap();
            number += 1;
        }
    };
    commit_until(3, 0);
    let from = log.position();
    log.set_low_water(from).unwrap();
    let retired = contents(storage.as_ref());
    commit_until(5, 6);
    let name = files(storage.as_ref()).pop().unwrap();
    let own_end = FIRST_GROUP + log.end_lsn() - base_lsn(&read(storage.as_ref(), &name));
    let own = read(storage.as_ref(), &name);
    // Earlier content of the file follows the current content.
    let older = retired.iter().find(|(_, older)| older[own_end as usize..] == own[own_end as usize..]);
    let older = &older.expect("the file was recycled").1;
    for is_closed in [false, true] {
        if is_closed {
            log.close().unwrap();
        }
        let base = contents(storage.as_ref());
        let last_group = own_end - (own_end - FIRST_GROUP) / 6;
        for lost in (4096..=last_group as usize).step_by(512) {
            for first_pages in [&older[..lost], &vec![0; lost]] {
                let storage = restore(&base);
                write(storage.as_ref(), &name, 0, first_pages);
                let before = contents(storage.as_ref());
                let what = format!("closed {is_closed}, {lost} bytes lost");
                assert!(open(&storage, from).expect_err(&what).is_damage(), "{what}");
                assert_eq!(contents(storage.as_ref()), before, "{what}, a file was changed");
                assert!(read_only(&storage, from).expect_err(&what).is_damage(), "{what}, read only");
            }
        }
    }
}

#[test]
fn a_missing_segment_is_damage() {
    let (storage, _log, _) = fill();
    let base = contents(storage.as_ref());
    for (name, _) in &base[..2] {
        expect_damage(&base, name, &format!("{name} removed"), |storage| storage.remove(name).unwrap());
    }
    let storage = restore(&base);
    let error = open(&storage, LogPosition { segment: 9, ..LogPosition::START }).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("000000000009"), "{error}");
}

#[test]
fn an_end_before_the_low_water_mark_is_damage() {
    let (storage, log, last_group) = fill();
    let from = log.position();
    drop(log);
    flip(storage.as_ref(), "log/000000000003.log", last_group.start);
    let error = open(&storage, from).unwrap_err();
    assert!(error.is_damage(), "{error}");
}

#[test]
fn a_segment_of_another_store_and_a_renamed_one_are_damage() {
    let (storage, log, _) = fill();
    drop(log);
    let error =
        Log::open(storage.clone(), OPTIONS, *b"another store...", LogPosition::START, &mut |_, _| Ok(())).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("another store"), "{error}");
    storage.remove("log/000000000001.log").unwrap();
    storage.rename("log/000000000002.log", "log/000000000001.log").unwrap();
    for error in [open(&storage, LogPosition::START).unwrap_err(), read_only(&storage, LogPosition::START).unwrap_err()]
    {
        assert!(error.is_damage() && error.to_string().contains("renamed"), "{error}");
    }
}

#[test]
fn groups_with_hostile_fields_neither_panic_nor_allocate() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    commit(&log, &entry(0, 100)).unwrap();
    let lsn = log.end_lsn();
    drop(log);
    let base = contents(storage.as_ref());
    let session = session(&base[0].1);
    let mut payload = vec![0; 64];
    // A length beyond the segment, with valid checksums: no whole group, so a torn tail.
    for length in [u32::MAX, u32::MAX - 7, 1 << 20, 12] {
        let storage = restore(&base);
        write(storage.as_ref(), &base[0].0, FIRST_GROUP + lsn, &forge_group(session, lsn, length, 1, &payload));
        let opened = open(&storage, LogPosition::START).unwrap();
        assert_eq!(numbers(&opened.entries), [0]);
        assert_eq!(opened.report.torn_tail.map(|torn| torn.lsn), Some(lsn));
    }
    // Entries that do not fill their group, with valid checksums.
    for (first_length, count) in [(u32::MAX, 1), (61, 1), (4, 1), (4, 9), (0, u32::MAX), (4, 0)] {
        payload[..4].copy_from_slice(&u32::to_le_bytes(first_length));
        let storage = restore(&base);
        write(storage.as_ref(), &base[0].0, FIRST_GROUP + lsn, &forge_group(session, lsn, 64, count, &payload));
        let error = open(&storage, LogPosition::START).unwrap_err();
        assert!(error.is_damage(), "{first_length} {count}: {error}");
    }
}

/// A group of segment 1 with valid checksums.
fn forge_group(session: u64, lsn: u64, payload_length: u32, entry_count: u32, payload: &[u8]) -> Vec<u8> {
    let seed = crc32c::crc32c(&STORE_ID);
    let mut group = vec![0; 64];
    group[..4].copy_from_slice(b"TgrP");
    group[8..12].copy_from_slice(&crc32c::crc32c_append(seed, payload).to_le_bytes());
    group[12..16].copy_from_slice(&payload_length.to_le_bytes());
    group[16..20].copy_from_slice(&entry_count.to_le_bytes());
    group[24..32].copy_from_slice(&1_u64.to_le_bytes());
    group[32..40].copy_from_slice(&lsn.to_le_bytes());
    group[48..56].copy_from_slice(&session.to_le_bytes());
    let checksum = crc32c::crc32c_append(seed, &group[8..64]);
    group[4..8].copy_from_slice(&checksum.to_le_bytes());
    group.extend_from_slice(payload);
    group
}
