//! A copy of a store writes a log with the same numbers and LSNs: nothing of it passes for the
//! store's own.

use std::ops::Range;
use std::sync::Arc;

use crate::log_support::*;
use terrane_lsm::log::LogPosition;
use terrane_storage::Storage;

/// The files of a log with their bytes.
type Files = Vec<(String, Vec<u8>)>;

/// Sessions of each copy after the copying, and the writes in each.
const SESSIONS: u64 = 3;
const ENTRIES: u64 = 40;

/// Contents of a log that two sessions wrote.
fn ancestor() -> Files {
    let storage = memory();
    write_sessions(&storage, LogPosition::START, 0, 2);
    contents(storage.as_ref())
}

/// Continues in several sessions, each with its own segments; closes every second one. Returns the
/// position at which the last one began.
fn write_sessions(storage: &Arc<dyn Storage>, from: LogPosition, first_number: u64, sessions: u64) -> LogPosition {
    let mut newest = from;
    for session in 0..sessions {
        let log = open(storage, from).unwrap().log;
        newest = log.position();
        for number in 0..ENTRIES {
            commit(&log, &entry(first_number + session * ENTRIES + number, 700)).unwrap();
        }
        if session % 2 == 0 {
            log.close().unwrap();
        }
    }
    newest
}

/// Two logs that continued from one, with the position at which the last session of each began.
fn copies() -> [(Files, LogPosition); 2] {
    let ancestor = ancestor();
    [1_000, 2_000].map(|first_number| {
        let storage = restore(&ancestor);
        let newest = write_sessions(&storage, LogPosition::START, first_number, SESSIONS);
        (contents(storage.as_ref()), newest)
    })
}

/// The contents with a part of one file from those of another log.
fn with_part(
    base: &[(String, Vec<u8>)],
    other: &[(String, Vec<u8>)],
    file: usize,
    part: Range<usize>,
) -> Arc<dyn Storage> {
    let mut mixed = base.to_vec();
    mixed[file].1[part.clone()].copy_from_slice(&other[file].1[part]);
    restore(&mixed)
}

fn expect_damage(storage: &Arc<dyn Storage>, from: LogPosition, what: &str) {
    let before = contents(storage.as_ref());
    assert!(open(storage, from).expect_err(what).is_damage(), "{what}");
    assert_eq!(contents(storage.as_ref()), before, "{what}: a file was changed");
    assert!(read_only(storage, from).expect_err(what).is_damage(), "{what}, read only");
}

#[test]
fn a_segment_of_a_diverged_copy_is_damage() {
    let [(ours, _), (theirs, _)] = copies();
    assert_eq!(ours.len(), theirs.len());
    let diverged = (0..ours.len()).filter(|&file| session(&ours[file].1) != session(&theirs[file].1));
    assert!(diverged.clone().count() as u64 > SESSIONS, "a session has more than one segment");
    for file in diverged {
        let (name, length) = (&ours[file].0, ours[file].1.len());
        assert_eq!(theirs[file].0, *name);
        let storage = with_part(&ours, &theirs, file, 0..length);
        expect_damage(&storage, LogPosition::START, &format!("{name} of the copy"));
        let storage = with_part(&ours, &theirs, file, 0..FIRST_GROUP as usize);
        expect_damage(&storage, LogPosition::START, &format!("the header of {name} of the copy"));
    }
}

#[test]
fn the_last_common_segment_of_a_copy_is_damage() {
    let [(ours, _), (theirs, _)] = copies();
    let is_common = |file: &usize| session(&ours[*file].1) == session(&theirs[*file].1);
    let last = (0..ours.len()).rfind(is_common).unwrap();
    assert_ne!(ours[last].1, theirs[last].1, "each copy notes its own successor");
    let storage = with_part(&ours, &theirs, last, 0..ours[last].1.len());
    expect_damage(&storage, LogPosition::START, "the last segment before the copying");
}

/// Groups that were acknowledged and then destroyed at the log's end cannot be missed; others never
/// replace them.
#[test]
fn groups_of_a_diverged_copy_are_never_replayed() {
    let [(ours, _), (theirs, _)] = copies();
    let own = numbers(&open(&restore(&ours), LogPosition::START).unwrap().entries);
    let end = |file: usize| ours[file].1.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for file in 0..ours.len() {
        for from in (FIRST_GROUP as usize..end(file)).step_by(1_531) {
            let storage = with_part(&ours, &theirs, file, from..ours[file].1.len());
            match open(&storage, LogPosition::START) {
                Ok(opened) => assert!(own.starts_with(&numbers(&opened.entries)), "{} from byte {from}", ours[file].0),
                Err(error) => assert!(error.is_damage(), "{error}"),
            }
        }
    }
}

/// With all older segments retired, the position in the manifest decides.
#[test]
fn the_only_segment_of_a_diverged_copy_is_damage() {
    let [(ours, from), (theirs, other)] = copies();
    assert_eq!((from.segment, from.lsn), (other.segment, other.lsn));
    let is_needed = |(name, _): &&(String, Vec<u8>)| **name >= *format!("log/{:012}.log", from.segment);
    let tail: Vec<_> = ours.iter().filter(is_needed).cloned().collect();
    assert!(open(&restore(&tail), from).unwrap().entries.len() as u64 == ENTRIES);
    let tail: Vec<_> = theirs.iter().filter(is_needed).cloned().collect();
    expect_damage(&restore(&tail), from, "the tail of the copy");
}

#[test]
fn marks_of_a_diverged_copy_count_for_nothing() {
    let ancestor = ancestor();
    let [ours, theirs] = [10, 5].map(|entries| {
        let storage = restore(&ancestor);
        let log = open(&storage, LogPosition::START).unwrap().log;
        for number in 0..entries {
            commit(&log, &entry(number, 700)).unwrap();
        }
        log.close().unwrap();
        contents(storage.as_ref())
    });
    let storage = with_part(&ours, &theirs, ours.len() - 1, 512..FIRST_GROUP as usize);
    assert_eq!(open(&storage, LogPosition::START).unwrap().entries.len() as u64, 2 * ENTRIES + 10);
}

/// A writer that dies before its segment has begun leaves a note of a session without segments.
#[test]
fn a_note_of_a_session_that_never_began_is_overwritten() {
    let storage = restore(&ancestor());
    let before = contents(storage.as_ref());
    for round in 0..3 {
        let log = open(&storage, LogPosition::START).unwrap().log;
        commit(&log, &entry(3_000 + round, 700)).unwrap();
        drop(log);
        // Its segments are gone, the note stays.
        for name in files(storage.as_ref()).split_off(before.len()) {
            storage.remove(&name).unwrap();
        }
        assert_ne!(contents(storage.as_ref()), before);
    }
    let log = open(&storage, LogPosition::START).unwrap().log;
    commit(&log, &entry(4_000, 700)).unwrap();
    drop(log);
    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(opened.entries.len() as u64, 2 * ENTRIES + 1);
}

/// A log from before writers drew sessions: with zeros in their places.
fn without_sessions(contents: &[(String, Vec<u8>)]) -> Files {
    let seed = crc32c::crc32c(&STORE_ID);
    let mut older = contents.to_vec();
    for (_, bytes) in &mut older {
        bytes[72..88].fill(0);
        let checksum = crc32c::crc32c(&bytes[12..128]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        for mark in [512, 1024].into_iter().filter(|mark| bytes[*mark..].starts_with(b"TcLs")).collect::<Vec<_>>() {
            let checksum = crc32c::crc32c_append(seed, &bytes[mark + 8..mark + 24]);
            bytes[mark + 4..mark + 8].copy_from_slice(&checksum.to_le_bytes());
        }
        bytes[1536..FIRST_GROUP as usize].fill(0);
        let mut group = FIRST_GROUP as usize;
        while bytes[group..].starts_with(b"TgrP") {
            bytes[group + 48..group + 56].fill(0);
            let checksum = crc32c::crc32c_append(seed, &bytes[group + 8..group + 64]);
            bytes[group + 4..group + 8].copy_from_slice(&checksum.to_le_bytes());
            let payload = u32::from_le_bytes(bytes[group + 12..group + 16].try_into().unwrap());
            group += GROUP_HEADER_LENGTH as usize + payload as usize;
        }
    }
    older
}

#[test]
fn a_log_that_is_older_than_sessions_goes_on() {
    for is_closed in [true, false] {
        let storage = restore(&ancestor());
        if is_closed {
            open(&storage, LogPosition::START).unwrap().log.close().unwrap();
        }
        let storage = restore(&without_sessions(&contents(storage.as_ref())));
        let (tail, read) = read_only(&storage, LogPosition::START).unwrap();
        assert_eq!(numbers(&read).len() as u64, 2 * ENTRIES);
        drop(tail);
        let opened = open(&storage, LogPosition::START).unwrap();
        assert_eq!((opened.entries, opened.report.clean_close), (read, is_closed));
        drop(opened.log);
        write_sessions(&storage, LogPosition::START, 5_000, SESSIONS);
        let entries = open(&storage, LogPosition::START).unwrap().entries;
        assert_eq!(entries.len() as u64, (2 + SESSIONS) * ENTRIES);
    }
}
