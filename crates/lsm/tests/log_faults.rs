//! The n-th call to the storage fails, for every n: no panic, and no acknowledged entry is lost.

use std::sync::Arc;

use crate::log_support::*;
use terrane_lsm::Result;
use terrane_lsm::log::LogPosition;
use terrane_storage::Storage;
use terrane_testkit::{Fault, FaultPlan, FaultyStorage};

/// The progress of a run before a call failed.
#[derive(Debug, Default)]
struct Progress {
    from: Option<LogPosition>,
    first_number: u64,
    acknowledged: u64,
    appended: u64,
}

/// Opens, commits over several segments with a following low-water mark, closes, opens again.
fn run(storage: &Arc<dyn Storage>, progress: &mut Progress) -> Result<()> {
    for _ in 0..2 {
        let log = open(storage, progress.from.unwrap_or(LogPosition::START))?.log;
        for round in 0..40 {
            let (from, first_number) = (log.position(), progress.appended);
            log.reserve(900)?;
            log.append(&entry(progress.appended, 900))?;
            progress.appended += 1;
            log.sync_to(log.end_lsn())?;
            progress.acknowledged = progress.appended;
            if round % 8 == 0 {
                (progress.from, progress.first_number) = (Some(from), first_number);
                log.set_low_water(from)?;
            }
        }
        log.close()?;
    }
    Ok(())
}

#[test]
fn any_failing_call_is_reported_and_loses_nothing_acknowledged() {
    for fault in [Fault::Eio, Fault::StorageFull, Fault::ShortWrite, Fault::SyncFailure, Fault::NoDescriptors] {
        let counted = FaultyStorage::new(memory());
        run(&(Arc::new(counted.clone()) as Arc<dyn Storage>), &mut Progress::default()).unwrap();
        let calls = counted.calls_open_to(fault);
        assert!(calls > 10, "{fault:?} can meet {calls} calls");
        for at in 1..=calls {
            for persistent in [false, true] {
                let what = format!("{fault:?} at call {at}, persistent {persistent}");
                let faulty = FaultyStorage::with_plan(memory(), FaultPlan { at, fault, persistent });
                let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
                let mut progress = Progress::default();
                let outcome = run(&storage, &mut progress);
                assert!(outcome.is_err(), "{what}: the failure was swallowed");
                assert!(faulty.faults() > 0, "{what}");
                faulty.disarm();
                let from = progress.from.unwrap_or(LogPosition::START);
                let opened = open(&storage, from).unwrap_or_else(|error| panic!("{what}: {error}"));
                let end = progress.first_number + opened.entries.len() as u64;
                assert_eq!(numbers(&opened.entries), (progress.first_number..end).collect::<Vec<_>>(), "{what}");
                assert!((progress.acknowledged..=progress.appended).contains(&end), "{what}: {end}, {progress:?}");
                commit(&opened.log, &entry(end, 900)).unwrap();
                assert_eq!(
                    open(&storage, from).unwrap().entries.len() as u64,
                    end + 1 - progress.first_number,
                    "{what}"
                );
            }
        }
    }
}

/// Each try takes another number, so leftovers would accumulate.
#[test]
fn a_segment_that_cannot_be_prepared_leaves_no_file_and_can_be_prepared_later() {
    for at in 1..=3 {
        let faulty = FaultyStorage::new(memory());
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let log = open(&storage, LogPosition::START).unwrap().log;
        let files = storage.list("log").unwrap();
        let mut number = 0;
        for _ in 0..20 {
            faulty.arm(FaultPlan { at, fault: Fault::NoDescriptors, persistent: false });
            let refused = loop {
                match log.reserve(900) {
                    Ok(()) => commit(&log, &entry(number, 900)).unwrap(),
                    Err(error) => break error,
                };
                number += 1;
            };
            assert!(refused.to_string().contains("open files"), "{refused}");
            assert_eq!(storage.list("log").unwrap(), files, "at call {at}");
        }
        faulty.disarm();
        for number in number..number + 20 {
            commit(&log, &entry(number, 900)).unwrap();
        }
        let entries = open(&storage, LogPosition::START).unwrap().entries;
        assert_eq!(numbers(&entries), (0..number + 20).collect::<Vec<_>>());
    }
}
