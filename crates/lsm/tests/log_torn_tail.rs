//! A group that a crash interrupted is cut off and reported; nothing before it is lost.

use std::sync::Arc;

use crate::log_support::*;
use terrane_lsm::log::{Appended, LogPosition};
use terrane_storage::Storage;

const SEGMENT: &str = "log/000000000001.log";

/// A log whose last commit is a group of two entries in `segment`, and that group's file range.
struct Case {
    storage: Arc<dyn Storage>,
    from: LogPosition,
    segment: String,
    group: std::ops::Range<u64>,
    group_lsn: u64,
    /// Numbers of the entries before the last group.
    kept: Vec<u64>,
}

impl Case {
    fn fresh() -> Self {
        let storage = memory();
        let log = open(&storage, LogPosition::START).unwrap().log;
        for number in 0..5 {
            commit(&log, &entry(number, 61)).unwrap();
        }
        let begin_lsn = log.end_lsn();
        append(&log, &entry(5, 30)).unwrap();
        let Appended { end_lsn, .. } = commit(&log, &entry(6, 47)).unwrap();
        Self {
            storage,
            from: LogPosition::START,
            segment: SEGMENT.into(),
            group: FIRST_GROUP + begin_lsn..FIRST_GROUP + end_lsn,
            group_lsn: begin_lsn,
            kept: (0..5).collect(),
        }
    }

    /// The same in a file that was full of groups of an earlier segment.
    fn recycled() -> Self {
        let storage = memory();
        let log = open(&storage, LogPosition::START).unwrap().log;
        let mut number = 0;
        let mut from = log.position();
        while from.segment < 6 {
            commit(&log, &entry(number, 200)).unwrap();
            number += 1;
            let previous = from;
            from = log.position();
            if from.segment != previous.segment {
                log.set_low_water(from).unwrap();
            }
        }
        let begin_lsn = log.end_lsn();
        append(&log, &entry(number, 30)).unwrap();
        commit(&log, &entry(number + 1, 47)).unwrap();
        let segment = format!("log/{:012}.log", from.segment);
        let base_lsn = base_lsn(&read(storage.as_ref(), &segment));
        Self {
            group: FIRST_GROUP + begin_lsn - base_lsn..FIRST_GROUP + log.end_lsn() - base_lsn,
            storage,
            from,
            segment,
            group_lsn: begin_lsn,
            kept: Vec::new(),
        }
    }

    /// Replaces the group's file by `image` and checks the recovery.
    fn check(&self, base: &[(String, Vec<u8>)], image: &[u8], what: &str) -> bool {
        let storage = restore(base);
        write(storage.as_ref(), &self.segment, 0, image);
        let opened = open(&storage, self.from).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(numbers(&opened.entries), self.kept, "{what}");
        assert_eq!(opened.log.position().lsn, self.group_lsn, "{what}");
        if let Some(torn) = opened.report.torn_tail {
            assert_eq!(torn.lsn, self.group_lsn, "{what}");
            assert!(torn.bytes > 0, "{what}");
        }
        commit(&opened.log, &entry(77, 20)).unwrap();
        let mut expected = self.kept.clone();
        expected.push(77);
        let reopened = open(&storage, self.from).unwrap_or_else(|error| panic!("{what}, second opening: {error}"));
        assert_eq!(numbers(&reopened.entries), expected, "{what}, second opening");
        opened.report.torn_tail.is_some()
    }
}

#[test]
fn a_group_torn_at_any_byte_is_cut_and_reported() {
    let case = Case::fresh();
    let base = contents(case.storage.as_ref());
    let whole = read(case.storage.as_ref(), &case.segment);
    for end in case.group.clone() {
        let mut image = whole.clone();
        image[end as usize..case.group.end as usize].fill(0);
        if image == whole {
            continue; // Only padding was cut.
        }
        let written = image[case.group.start as usize..end as usize].iter().any(|&byte| byte != 0);
        let reported = case.check(&base, &image, &format!("cut at {end} of {:?}", case.group));
        assert_eq!(reported, written, "cut at {end}");
    }
}

#[test]
fn a_group_of_which_only_the_end_was_written_is_cut_and_reported() {
    let case = Case::fresh();
    let base = contents(case.storage.as_ref());
    let whole = read(case.storage.as_ref(), &case.segment);
    for begin in case.group.start + 1..case.group.end - 8 {
        let mut image = whole.clone();
        image[case.group.start as usize..begin as usize].fill(0);
        let reported = case.check(&base, &image, &format!("written from {begin} of {:?}", case.group));
        assert!(reported, "written from {begin}");
    }
}

#[test]
fn a_group_torn_in_a_recycled_segment_is_cut() {
    let case = Case::recycled();
    let base = contents(case.storage.as_ref());
    let whole = read(case.storage.as_ref(), &case.segment);
    let mut stale = whole.clone();
    for (index, byte) in stale.iter_mut().enumerate().skip(case.group.start as usize) {
        *byte = (index * 7) as u8 | 1;
    }
    for end in case.group.clone() {
        let mut image = stale.clone();
        image[..end as usize].copy_from_slice(&whole[..end as usize]);
        let reported = case.check(&base, &image, &format!("cut at {end} of {:?}", case.group));
        // As soon as the header's number and LSN are there, it is distinct from an older group.
        assert_eq!(reported, end >= case.group.start + 40, "cut at {end}");
    }
}

#[test]
fn unused_space_is_not_a_torn_tail() {
    let case = Case::fresh();
    assert_eq!(open(&case.storage, case.from).unwrap().report.torn_tail, None);
    let case = Case::recycled();
    assert_eq!(open(&case.storage, case.from).unwrap().report.torn_tail, None);
}

#[test]
fn whole_groups_behind_a_cut_stay_cut_for_ever() {
    // Two groups in one write, as after a crash that lost the first: the second looks valid.
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    commit(&log, &entry(0, 50)).unwrap();
    let lost_lsn = log.end_lsn();
    commit(&log, &entry(1, 50)).unwrap();
    let stale_lsn = log.end_lsn();
    commit(&log, &entry(2, 50)).unwrap();
    let whole = read(storage.as_ref(), SEGMENT);
    let mut image = whole.clone();
    let forged = forge_durable(&image[(FIRST_GROUP + stale_lsn) as usize..], lost_lsn);
    image[(FIRST_GROUP + stale_lsn) as usize..][..64].copy_from_slice(&forged);
    image[(FIRST_GROUP + lost_lsn) as usize..][..64].fill(0);
    write(storage.as_ref(), SEGMENT, 0, &image);

    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(numbers(&opened.entries), [0]);
    let torn = opened.report.torn_tail.unwrap();
    assert_eq!((torn.segment, torn.lsn), (1, lost_lsn));
    // The new segment's entries take the LSNs of the stale groups.
    commit(&opened.log, &entry(10, 50)).unwrap();
    commit(&opened.log, &entry(11, 50)).unwrap();
    commit(&opened.log, &entry(12, 50)).unwrap();
    let reopened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(numbers(&reopened.entries), [0, 10, 11, 12]);
    assert_eq!(reopened.report.torn_tail, None);
    // Even if the lost group comes back, as from a disk that delivers it late.
    image.copy_from_slice(&whole);
    image[(FIRST_GROUP + stale_lsn) as usize..][..64].copy_from_slice(&forged);
    write(storage.as_ref(), SEGMENT, 0, &image);
    assert_eq!(numbers(&open(&storage, LogPosition::START).unwrap().entries), [0, 10, 11, 12]);
}

#[test]
fn a_group_that_was_written_to_another_place_is_not_replayed() {
    let case = Case::fresh();
    let base = contents(case.storage.as_ref());
    let mut image = read(case.storage.as_ref(), &case.segment);
    let first_group = image[FIRST_GROUP as usize..][..160].to_vec();
    image[case.group.start as usize..][..160].copy_from_slice(&first_group);
    assert!(case.check(&base, &image, "the first group once more"));
}

#[test]
fn entries_appended_and_never_synced_are_gone() {
    let storage = memory();
    let log = open(&storage, LogPosition::START).unwrap().log;
    commit(&log, &entry(0, 50)).unwrap();
    append(&log, &entry(1, 50)).unwrap();
    drop(log);
    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(numbers(&opened.entries), [0]);
    assert_eq!(opened.report.torn_tail, None);
}

/// The header of a group with another durable LSN, resealed.
fn forge_durable(group: &[u8], durable_lsn: u64) -> Vec<u8> {
    let mut header = group[..64].to_vec();
    header[40..48].copy_from_slice(&durable_lsn.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&STORE_ID), &header[8..64]);
    header[4..8].copy_from_slice(&checksum.to_le_bytes());
    header
}
