//! What an opening leaves that does not succeed, and a store that is dropped: nothing that keeps
//! others out.

mod support;

use std::sync::Arc;

use support::workload::{MAIN, first_schema};
use terrane::{Error, LogOptions, Options, Query, Record, Store, Value};
use terrane_storage::{Fault, FaultPlan, FaultyStorage, MemoryStorage, Storage};

const SESSIONS: i64 = 3;

fn options(background: bool) -> Options {
    let log = LogOptions { segment_size: 16 << 10, first_segment_size: 16 << 10, spare_segments: 0 };
    Options { background, log, ..Options::default() }
}

/// A store of which so many segments are to be redone that the next opening flushes.
fn store_with_a_long_tail(background: bool) -> MemoryStorage {
    let disk = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Store::open_on(storage.clone(), options(background)).unwrap().create_dataset(MAIN, first_schema()).unwrap();
    for key in 0..SESSIONS {
        let store = Store::open_on(storage.clone(), options(background)).unwrap();
        let record = Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)]);
        store.dataset(MAIN).unwrap().insert(&record).unwrap();
        store.close().unwrap();
    }
    disk
}

fn verify(storage: Arc<dyn Storage>, background: bool, what: &str) {
    let store = Store::open_on(storage, options(background)).unwrap_or_else(|error| panic!("{error}, {what}"));
    let snapshot = store.dataset(MAIN).unwrap().snapshot();
    assert_eq!(snapshot.count(&Query::new()).unwrap(), SESSIONS as u64, "{what}");
}

/// Whatever call fails: the same process can open the store when the cause is gone.
#[test]
fn an_opening_that_fails_gives_the_lock_back() {
    for background in [false, true] {
        for fault in [Fault::Eio, Fault::StorageFull] {
            let (mut failed, mut ended) = (0, false);
            for at in 1.. {
                let what = format!("{fault:?} at call {at}, background {background}");
                let storage: Arc<dyn Storage> = Arc::new(store_with_a_long_tail(background));
                let plan = FaultPlan { at, fault, persistent: true };
                let faulty = Arc::new(FaultyStorage::with_plan(storage.clone(), plan));
                match Store::open_on(faulty.clone(), options(background)) {
                    Ok(store) => {
                        ended = faulty.faults() == 0;
                        assert!(!ended || store.maintenance().flushes > 0, "the opening flushes, {what}");
                    }
                    Err(error) => {
                        failed += 1;
                        assert!(!matches!(error, Error::Locked { .. }), "{what}");
                    }
                }
                verify(storage, background, &what);
                if ended {
                    break;
                }
            }
            assert!(failed > 10, "{failed} openings failed");
        }
    }
}

/// A store is closed with its last handle, also when nobody closes it.
#[test]
fn a_store_that_is_dropped_can_be_opened_again() {
    for background in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(store_with_a_long_tail(background));
        let store = Store::open_on(storage.clone(), options(background)).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        drop(store);
        let refused = Store::open_on(storage.clone(), options(background)).err();
        assert!(matches!(refused, Some(Error::Locked { .. })), "a dataset holds it open: {refused:?}");
        drop(dataset);
        Store::open_on(storage, options(background)).unwrap().close().unwrap();
    }
}
