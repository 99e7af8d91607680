//! Threads share syncs. No entry is acknowledged before its sync, or after a failure.

use std::sync::{Arc, Barrier};

use crate::log_support::*;
use terrane_lsm::Error;
use terrane_lsm::log::LogPosition;
use terrane_storage::{Operation, Storage};
use terrane_testkit::gate::{Gate, gated};
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

#[test]
fn everything_acknowledged_to_sixteen_threads_is_replayed() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 500;
    // Syncs yield the processor, so that threads queue up behind them.
    let gate = Arc::new(Gate::default());
    let storage = gated(memory(), gate);
    let log = open(&storage, LogPosition::START).unwrap().log;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for commit in 0..COMMITS {
                    let bytes = entry(thread << 32 | commit, 40 + (commit % 300) as usize);
                    // Another thread may take the reserved room first.
                    let appended = loop {
                        log.reserve(bytes.len()).unwrap();
                        match log.append(&bytes) {
                            Err(Error::Full { .. }) => {}
                            appended => break appended.unwrap(),
                        }
                    };
                    log.sync_to(appended.end_lsn).unwrap();
                    assert!(log.durable_lsn() >= appended.end_lsn);
                }
            });
        }
    });
    drop(log);
    let opened = open(&storage, LogPosition::START).unwrap();
    assert_eq!(opened.entries.len() as u64, THREADS * COMMITS);
    let mut next = [0; THREADS as usize];
    let mut previous_lsn = 0;
    for (lsn, bytes) in &opened.entries {
        assert!(*lsn > previous_lsn);
        previous_lsn = *lsn;
        let number = number_of(bytes);
        let (thread, commit) = ((number >> 32) as usize, number & 0xffff_ffff);
        assert_eq!(commit, next[thread], "entries of thread {thread} are out of order");
        assert_eq!(*bytes, entry(number, 40 + (commit % 300) as usize));
        next[thread] += 1;
    }
}

#[test]
fn all_who_wait_for_a_sync_share_the_next() {
    const WAITERS: usize = 15;
    let gate = Arc::new(Gate::default());
    let counted = FaultyStorage::new(Arc::new(MemoryStorage::new()));
    let storage = gated(Arc::new(counted.clone()), gate.clone());
    let log = open(&storage, LogPosition::START).unwrap().log;
    let (syncs, writes) = (counted.calls(Operation::Sync), counted.calls(Operation::Write));
    gate.close();
    let appended = Barrier::new(WAITERS + 1);
    std::thread::scope(|scope| {
        scope.spawn(|| commit(&log, &entry(100, 50)).unwrap());
        gate.wait_until_one_waits();
        for number in 0..WAITERS {
            let (log, appended) = (&log, &appended);
            scope.spawn(move || {
                let place = append(log, &entry(number as u64, 50)).unwrap();
                appended.wait();
                log.sync_to(place.end_lsn).unwrap();
            });
        }
        appended.wait();
        gate.open();
    });
    assert_eq!(counted.calls(Operation::Sync) - syncs, 2, "one for the first, one for all who came meanwhile");
    assert_eq!(counted.calls(Operation::Write) - writes, 2);
    assert_eq!(open(&storage, LogPosition::START).unwrap().entries.len(), WAITERS + 1);
}

#[test]
fn one_thread_needs_one_write_and_one_sync_a_commit() {
    let counted = FaultyStorage::new(Arc::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = Arc::new(counted.clone());
    let log = open(&storage, LogPosition::START).unwrap().log;
    counted.record_calls();
    for number in 0..20 {
        append(&log, &entry(number, 50)).unwrap();
        let appended = commit(&log, &entry(100 + number, 50)).unwrap();
        log.sync_to(appended.end_lsn).unwrap();
        log.sync_to(appended.start_lsn).unwrap();
    }
    let operations: Vec<_> = counted.recorded_calls().iter().map(|call| call.operation).collect();
    assert_eq!(operations, [Operation::Write, Operation::Sync].repeat(20));
}

#[test]
fn after_a_failed_write_or_sync_nothing_more_is_acknowledged() {
    for fault in [Fault::SyncFailure, Fault::ShortWrite, Fault::StorageFull, Fault::Eio] {
        let faulty = FaultyStorage::new(memory());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let log = open(&storage, LogPosition::START).unwrap().log;
        let durable = commit(&log, &entry(0, 50)).unwrap();
        faulty.arm(FaultPlan { at: 1, fault, persistent: false });
        let first = commit(&log, &entry(1, 50)).unwrap_err();
        assert!(matches!(first, Error::Poisoned { .. }), "{fault:?}: {first}");
        assert!(first.to_string().contains("log/000000000001"), "the message has to name the file: {first}");
        // The storage would succeed now, but the log does not try.
        let lost_lsn = log.end_lsn();
        for error in [
            log.sync_to(lost_lsn).unwrap_err(),
            log.append(b"late").unwrap_err(),
            log.reserve(4).unwrap_err(),
            log.prepare_next(&mut |_| true).unwrap_err(),
            log.close().unwrap_err(),
        ] {
            assert_eq!(error.to_string(), first.to_string(), "{fault:?}: the first cause stays");
        }
        assert_eq!(log.durable_lsn(), durable.end_lsn, "{fault:?}");
        log.sync_to(durable.end_lsn).unwrap();
        drop(log);
        let opened = open(&storage, LogPosition::START).unwrap();
        assert!(!opened.report.clean_close);
        let numbers = numbers(&opened.entries);
        assert!(numbers == [0] || numbers == [0, 1], "{fault:?}: {numbers:?}");
        commit(&opened.log, &entry(2, 50)).unwrap();
    }
}

#[test]
fn threads_that_wait_behind_a_failed_sync_are_refused() {
    const WAITERS: usize = 8;
    let gate = Arc::new(Gate::default());
    let faulty = FaultyStorage::new(memory());
    let storage = gated(Arc::new(faulty.clone()), gate.clone());
    let log = open(&storage, LogPosition::START).unwrap().log;
    gate.close();
    faulty.arm(FaultPlan { at: 1, fault: Fault::SyncFailure, persistent: false });
    let appended = Barrier::new(WAITERS + 1);
    std::thread::scope(|scope| {
        scope.spawn(|| commit(&log, &entry(100, 50)).unwrap_err());
        gate.wait_until_one_waits();
        for number in 0..WAITERS {
            let (log, appended) = (&log, &appended);
            scope.spawn(move || {
                let place = append(log, &entry(number as u64, 50)).unwrap();
                appended.wait();
                let error = log.sync_to(place.end_lsn).unwrap_err();
                assert!(matches!(error, Error::Poisoned { .. }), "{error}");
            });
        }
        appended.wait();
        gate.open();
    });
}

#[test]
fn a_panic_in_the_storage_refuses_all_who_wait() {
    let gate = Arc::new(Gate::default());
    let storage = gated(memory(), gate.clone());
    let log = open(&storage, LogPosition::START).unwrap().log;
    gate.close();
    let appended = Barrier::new(2);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| commit(&log, &entry(0, 50)));
        gate.wait_until_one_waits();
        let follower = scope.spawn(|| {
            let place = append(&log, &entry(1, 50)).unwrap();
            appended.wait();
            log.sync_to(place.end_lsn)
        });
        appended.wait();
        gate.open_with_panic();
        assert!(leader.join().is_err());
        let error = follower.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    });
    assert!(matches!(log.append(b"late"), Err(Error::Poisoned { .. })));
}
