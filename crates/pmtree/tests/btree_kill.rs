//! A process that is killed while its threads change a map. Acknowledged changes are there.

use std::path::Path;

use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{BTree, Options, PersistentUnsorted};
use terrane_storage::RealStorage;
use terrane_testkit::killed;

use super::support;

type Map = BTree<PersistentUnsorted, 1, 2>;

const THREADS: u64 = 4;

/// A thread removes each key after this many further insertions.
const LIFETIME: u64 = 300;

/// The key whose value is the number of the last round.
const ROUND: [u64; 1] = [0];

fn open(directory: &Path) -> Map {
    let options = Options { node_length: 192, ..Options::new(PersistenceDomain::PageCache) };
    Map::open(&RealStorage::new(directory), "map", &options).unwrap()
}

/// Keys of each thread and round lie among all others.
fn key(round: u64, thread: u64, number: u64) -> [u64; 1] {
    [(round << 32 | number << 2 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1]
}

fn value(number: u64) -> [u64; 2] {
    [number, !number]
}

/// Reports each insertion, together with its update and the removal of an older key.
fn change_until_killed(map: &Map, round: u64, thread: u64) {
    for number in 0.. {
        assert!(map.insert(&key(round, thread, number), &[0, 0]).unwrap());
        map.update(&key(round, thread, number), &value(number)).unwrap();
        if let Some(old) = number.checked_sub(LIFETIME) {
            assert_eq!(map.remove(&key(round, thread, old)).unwrap(), Some(value(old)));
        }
        killed::acknowledge(thread, number);
    }
}

#[test]
fn a_map_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged() {
    // The test runs itself as that process.
    if let Some(directory) = killed::place() {
        let map = open(&directory);
        let round = map.get(&ROUND).unwrap().map_or(0, |[round, _]| round);
        let map = &map;
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || change_until_killed(map, round, thread))));
        });
        return;
    }
    let _turn = super::alone();
    let directory = support::directory();
    let options = Options { node_length: 192, ..Options::new(PersistenceDomain::PageCache) };
    drop(Map::create(&RealStorage::new(directory.path()), "map", &options).unwrap());
    for (round, changes) in (0..).zip([1, 10, 100, 1000, 3000, 3001]) {
        open(directory.path()).upsert(&ROUND, &[round, 0]).unwrap();
        let test = "btree_kill::a_map_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged";
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
            // A removal that was acknowledged stays.
            if let Some(removed) = last.checked_sub(LIFETIME) {
                assert_eq!(map.get(&key(round, thread, removed)).unwrap(), None);
            }
        }
    }
}
