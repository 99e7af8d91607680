//! A process that is killed while its threads change long values of a map. Acknowledged changes are
//! there, and no block is lost.

use std::path::Path;

use terrane_pmtree::map::{Map, Options};
use terrane_storage::RealStorage;
use terrane_testkit::killed;

use super::support;

const THREADS: u64 = 4;

/// A thread removes each key after this many further insertions.
const LIFETIME: u64 = 100;

/// The key whose value is the number of the last round.
const ROUND: &str = "round";

fn open(directory: &Path) -> Map<str> {
    Map::open(&RealStorage::new(directory), "map", &Options::new()).unwrap()
}

/// Keys of each thread and round lie among all others.
fn key(round: u64, thread: u64, number: u64) -> String {
    format!("{:x}", (round << 32 | number << 2 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// From values in slots to some of a page and more.
fn value(number: u64) -> Vec<u8> {
    vec![number as u8; ((number.wrapping_mul(0x9e37) % 5000) >> (number % 9)) as usize]
}

/// Reports each insertion, together with its update and the removal of an older key.
fn change_until_killed(map: &Map<str>, round: u64, thread: u64) {
    for number in 0.. {
        assert!(map.insert(&key(round, thread, number), &value(number + 1)).unwrap());
        assert!(map.upsert(&key(round, thread, number), &value(number)).unwrap());
        if let Some(old) = number.checked_sub(LIFETIME) {
            assert_eq!(map.remove(&key(round, thread, old)).unwrap(), Some(value(old)));
        }
        killed::acknowledge(thread, number);
    }
}

#[test]
fn long_values_of_a_map_survive_kill_after_kill() {
    // The test runs itself as that process.
    if let Some(directory) = killed::place() {
        let map = open(&directory);
        let round = map.get(ROUND).unwrap().map_or(0, |value| value.len() as u64);
        let map = &map;
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || change_until_killed(map, round, thread))));
        });
        return;
    }
    let _turn = super::alone();
    let directory = support::directory();
    drop(Map::<str>::create(&RealStorage::new(directory.path()), "map", &Options::new()).unwrap());
    for (round, changes) in (0..).zip([1, 10, 100, 1000, 1001]) {
        open(directory.path()).upsert(ROUND, &vec![0; round as usize]).unwrap();
        let test = "map_kill::long_values_of_a_map_survive_kill_after_kill";
        let acknowledged = killed::run_and_kill(test, directory.path(), THREADS, changes);
        let mut map = open(directory.path());
        map.check().unwrap();
        for (thread, acknowledged) in (0..).zip(acknowledged) {
            let Some(last) = acknowledged else { continue };
            // A change after the last acknowledged one may have removed one more.
            for number in (last + 2).saturating_sub(LIFETIME)..=last {
                let found = map.get(&key(round, thread, number)).unwrap();
                assert_eq!(found, Some(value(number)), "{number} of thread {thread} after {changes} changes");
            }
            if let Some(removed) = last.checked_sub(LIFETIME) {
                assert_eq!(map.get(&key(round, thread, removed)).unwrap(), None);
            }
        }
    }
}
