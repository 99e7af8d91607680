//! A process that is killed while its threads change a map. Acknowledged changes are there, and no
//! block is lost.

use std::fmt::Debug;
use std::path::Path;

use terrane_pmtree::btree::{BTree, BTreeLs, LogOptions, Options, PersistentMap, PersistentUnsorted};
use terrane_pmtree::map::{self, Map};
use terrane_pmtree::{PersistenceDomain, PersistentTree};
use terrane_storage::RealStorage;
use terrane_testkit::killed;

use super::support;

const THREADS: u64 = 4;

/// A map whose process is killed. A round is a process.
trait Killed: Sync + Sized {
    /// A thread removes each key after this many further insertions.
    const LIFETIME: u64;
    type Value: PartialEq + Debug;

    fn create(directory: &Path) -> Self;
    fn open(directory: &Path) -> Self;
    fn check(&mut self);
    fn round(&self) -> u64;
    fn set_round(&self, round: u64);
    /// The value that a change leaves.
    fn value(number: u64) -> Self::Value;
    /// Inserts a key, and then changes its value.
    fn put(&self, key: u64, number: u64);
    fn remove(&self, key: u64) -> Option<Self::Value>;
    fn get(&self, key: u64) -> Option<Self::Value>;
}

/// Keys of each thread and round lie among all others. None is 0.
fn key(round: u64, thread: u64, number: u64) -> u64 {
    (round << 32 | number << 2 | thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Reports each insertion, together with its update and the removal of an older key.
fn change_until_killed<M: Killed>(map: &M, round: u64, thread: u64) {
    for number in 0.. {
        map.put(key(round, thread, number), number);
        if let Some(old) = number.checked_sub(M::LIFETIME) {
            assert_eq!(map.remove(key(round, thread, old)), Some(M::value(old)));
        }
        killed::acknowledge(thread, number);
    }
}

/// Kills a process after each of these numbers of changes.
fn survives_kills<M: Killed>(test: &str, kills: &[usize]) {
    // The test runs itself as that process.
    if let Some(directory) = killed::place() {
        let map = M::open(&directory);
        let (round, map) = (map.round(), &map);
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || change_until_killed(map, round, thread))));
        });
        return;
    }
    let _turn = super::alone();
    let directory = support::directory();
    drop(M::create(directory.path()));
    for (round, &changes) in (0..).zip(kills) {
        M::open(directory.path()).set_round(round);
        let acknowledged = killed::run_and_kill(&format!("map_kill::{test}"), directory.path(), THREADS, changes);
        let mut map = M::open(directory.path());
        map.check();
        for (thread, acknowledged) in (0..).zip(acknowledged) {
            let Some(last) = acknowledged else { continue };
            // A change after the last acknowledged one may have removed one more.
            for number in (last + 2).saturating_sub(M::LIFETIME)..=last {
                let found = map.get(key(round, thread, number));
                assert_eq!(found, Some(M::value(number)), "{number} of thread {thread} after {changes} changes");
            }
            // A removal that was acknowledged stays.
            if let Some(removed) = last.checked_sub(M::LIFETIME) {
                assert_eq!(map.get(key(round, thread, removed)), None, "{removed} of thread {thread}");
            }
        }
    }
}

/// The key whose value is the number of the last round.
const ROUND: u64 = 0;

fn options() -> Options {
    let logs = LogOptions { segment_length: 4096, ..LogOptions::default() };
    Options { node_length: 192, logs, ..Options::new(PersistenceDomain::PageCache) }
}

impl<T: PersistentMap<1, 2> + PersistentTree<Options = Options, Census: Sized> + Sync> Killed for T {
    const LIFETIME: u64 = 300;
    type Value = [u64; 2];

    fn create(directory: &Path) -> Self {
        PersistentTree::create(&RealStorage::new(directory), "map", &options()).unwrap()
    }

    fn open(directory: &Path) -> Self {
        PersistentTree::open(&RealStorage::new(directory), "map", &options()).unwrap()
    }

    fn check(&mut self) {
        PersistentTree::check(self).unwrap();
    }

    fn round(&self) -> u64 {
        PersistentMap::get(self, &[ROUND]).unwrap().map_or(0, |[round, _]| round)
    }

    fn set_round(&self, round: u64) {
        self.upsert(&[ROUND], &[round, 0]).unwrap();
    }

    fn value(number: u64) -> [u64; 2] {
        [number, !number]
    }

    fn put(&self, key: u64, number: u64) {
        assert!(self.insert(&[key], &[0, 0]).unwrap());
        self.update(&[key], &Self::value(number)).unwrap();
    }

    fn remove(&self, key: u64) -> Option<[u64; 2]> {
        PersistentMap::remove(self, &[key]).unwrap()
    }

    fn get(&self, key: u64) -> Option<[u64; 2]> {
        PersistentMap::get(self, &[key]).unwrap()
    }
}

/// With values from those in slots to some of a page and more.
struct LongValues(Map<str>);

fn name(key: u64) -> String {
    format!("{key:x}")
}

impl Killed for LongValues {
    const LIFETIME: u64 = 100;
    type Value = Vec<u8>;

    fn create(directory: &Path) -> Self {
        Self(Map::create(&RealStorage::new(directory), "map", &map::Options::new()).unwrap())
    }

    fn open(directory: &Path) -> Self {
        Self(Map::open(&RealStorage::new(directory), "map", &map::Options::new()).unwrap())
    }

    fn check(&mut self) {
        self.0.check().unwrap();
    }

    fn round(&self) -> u64 {
        self.get(ROUND).map_or(0, |value| value.len() as u64)
    }

    fn set_round(&self, round: u64) {
        self.0.upsert(&name(ROUND), &vec![0; round as usize]).unwrap();
    }

    fn value(number: u64) -> Vec<u8> {
        vec![number as u8; ((number.wrapping_mul(0x9e37) % 5000) >> (number % 9)) as usize]
    }

    fn put(&self, key: u64, number: u64) {
        assert!(self.0.insert(&name(key), &Self::value(number + 1)).unwrap());
        assert!(self.0.upsert(&name(key), &Self::value(number)).unwrap());
    }

    fn remove(&self, key: u64) -> Option<Vec<u8>> {
        self.0.remove(&name(key)).unwrap()
    }

    fn get(&self, key: u64) -> Option<Vec<u8>> {
        self.0.get(&name(key)).unwrap()
    }
}

#[test]
fn a_map_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged() {
    let test = "a_map_whose_process_is_killed_again_and_again_keeps_what_was_acknowledged";
    survives_kills::<BTree<PersistentUnsorted, 1, 2>>(test, &[1, 10, 100, 1000, 3000, 3001]);
}

#[test]
fn leaves_in_logs_survive_kill_after_kill() {
    survives_kills::<BTree<BTreeLs, 1, 2>>("leaves_in_logs_survive_kill_after_kill", &[1, 10, 100, 1000, 3000, 3001]);
}

#[test]
fn long_values_of_a_map_survive_kill_after_kill() {
    survives_kills::<LongValues>("long_values_of_a_map_survive_kill_after_kill", &[1, 10, 100, 1000, 1001]);
}
