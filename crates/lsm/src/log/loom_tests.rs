//! Group commit under every interleaving of two or three threads with up to two preemptions. After
//! [`Log::sync_to`] returns, the entry is durable and replayed. No thread waits for ever; loom
//! reports that as a deadlock.

use std::sync::Arc;

use loom::thread;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

use super::{Log, LogOptions, LogPosition};

const STORE_ID: [u8; 16] = [7; 16];
const SEGMENT_SIZE: u64 = 8 << 10;

fn open(storage: &Arc<dyn Storage>, entries: &mut Vec<Vec<u8>>) -> Log {
    let options = LogOptions { segment_size: SEGMENT_SIZE, first_segment_size: SEGMENT_SIZE, ..LogOptions::default() };
    let opened = Log::open(storage.clone(), options, STORE_ID, LogPosition::START, &mut |_, entry| {
        entries.push(entry.to_vec());
        Ok(())
    });
    opened.expect("the log of a sound disk opens").0
}

/// Every thread appends and syncs `count` entries; all of them must be replayed afterwards.
fn explore(threads: u8, entries: u8) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let log = Arc::new(open(&storage, &mut Vec::new()));
        let commit = move |log: &Log, thread: u8| {
            for number in 0..entries {
                let appended = log.append(&[thread, number]).expect("there is room");
                log.sync_to(appended.end_lsn).expect("the sync succeeds");
                assert!(log.durable_lsn() >= appended.end_lsn);
            }
        };
        let spawned: Vec<_> = (1..threads)
            .map(|thread| {
                let log = Arc::clone(&log);
                thread::spawn(move || commit(&log, thread))
            })
            .collect();
        commit(&log, 0);
        for thread in spawned {
            thread.join().expect("no thread panics");
        }
        drop(log);
        let mut replayed = Vec::new();
        drop(open(&storage, &mut replayed));
        replayed.sort();
        let expected: Vec<_> = (0..threads).flat_map(|thread| (0..entries).map(move |n| vec![thread, n])).collect();
        assert_eq!(replayed, expected);
    });
}

#[test]
fn loom_two_threads_share_syncs_and_nobody_is_left_waiting() {
    explore(2, 2);
}

#[test]
fn loom_of_three_threads_the_next_leader_is_always_woken() {
    explore(3, 1);
}
