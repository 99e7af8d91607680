//! Every call into the storage fails in turn, once and for good: errors are clean, nothing
//! acknowledged is lost, not to a power loss either, and after a failed sync, which is always told,
//! the handle refuses writes.

use std::sync::Arc;

use crate::support::files::{spatial_file, storage_of};
use crate::support::seeded;
use crate::support::workload::{MAIN, Plan, Runner, Step, batch, first_schema, options, state_of};
use terrane::{DiskReserve, Durability, Error, Key, Options, Query, Record, Store, Value};
use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::Manifest;
use terrane_storage::{Operation, Storage};
use terrane_testkit::crash::{Budget, Controller};
use terrane_testkit::hook::HookedStorage;
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage, is_soak};

const STEPS: usize = 90;
/// The first key of the records that are inserted after a failure.
const PROBE_MIN: i64 = 9000;

/// What came of a run.
struct Outcome {
    /// Steps before the first that failed.
    acknowledged: usize,
    failure: Option<Error>,
    /// Keys of records that were inserted after the failure, through the same handle.
    inserted_after: Vec<i64>,
    /// Whether the failed step opened the store again, so that another handle is used after it.
    reopened: bool,
}

/// Carries out a plan while a fault waits. After a failure, the handle is used further, as a
/// program would that goes on.
fn run(storage: &Arc<FaultyStorage>, plan: &Plan, what: &str) -> Outcome {
    let mut outcome = Outcome { acknowledged: 0, failure: None, inserted_after: Vec::new(), reopened: false };
    let mut runner = match Runner::open(storage.clone(), options(Durability::Power)) {
        Ok(runner) => runner,
        Err(error) => return Outcome { failure: Some(error), ..outcome },
    };
    for (number, step) in plan.steps.iter().enumerate() {
        if let Err(error) = runner.apply(step) {
            assert!(is_clean(&error), "{error:?} {what}");
            outcome.failure = Some(error);
            outcome.reopened = matches!(step, Step::Reopen);
            break;
        }
        outcome.acknowledged = number + 1;
    }
    if outcome.failure.is_some() && runner.is_open() {
        for key in PROBE_MIN..PROBE_MIN + 6 {
            match runner.apply(&Step::Insert(at(key))) {
                Ok(()) => outcome.inserted_after.push(key),
                Err(error) => {
                    assert!(is_clean(&error) || matches!(error, Error::UnknownDataset { .. }), "{error:?} {what}");
                }
            }
            let _ = runner.apply(&if key % 2 == 0 { Step::Flush } else { Step::Compact });
        }
    }
    if outcome.failure.is_none() {
        outcome.failure = runner.close().err();
    }
    outcome
}

/// An error that says that storage failed, and not that data is damaged or code is wrong.
fn is_clean(error: &Error) -> bool {
    match error {
        Error::Unmerged { cause, .. }
        | Error::Unreclaimed { cause }
        | Error::Uncreated { cause, .. }
        | Error::Unbuilt { cause, .. }
        | Error::PartlyDeleted { cause, .. } => is_clean(cause),
        other => matches!(other, Error::Storage(_) | Error::Full { .. } | Error::Poisoned { .. }),
    }
}

/// Reopens on healthy storage: the state is the last acknowledged one or the one after it.
fn verify(disk: Arc<dyn Storage>, plan: &Plan, outcome: &Outcome, what: &str) {
    let acknowledged = outcome.acknowledged;
    let store = Store::open_on(disk, options(Durability::Power))
        .unwrap_or_else(|error| panic!("cannot reopen: {error}, {what}"));
    let mut found = state_of(&store);
    for key in PROBE_MIN..PROBE_MIN + 6 {
        let there = found.get_mut(MAIN).and_then(|held| held.records.remove(&key));
        if outcome.inserted_after.contains(&key) {
            assert!(there.is_some(), "record {key} is gone, inserted after {:?}, {what}", outcome.failure);
        }
    }
    let last = (acknowledged + 1).min(plan.steps.len());
    assert!(
        plan.states[acknowledged..=last].contains(&found),
        "state {acknowledged} or the next was wanted, {what}: {found:?}\nwanted {:?}",
        plan.states[acknowledged]
    );
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{what}: {report}");
}

/// What was acknowledged is there after a kill and after a power loss, which takes what was not
/// synced, or parts of it; and a sync that fails is never passed over.
fn every_call_fails(fault: Fault, persistent: bool, default_seed: u64) {
    let (_, seed) = seeded(default_seed);
    let plan = Plan::new(seed, STEPS);
    let counted = Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new())));
    assert!(run(&counted, &plan, "without faults").failure.is_none());
    let calls = counted.calls_open_to(fault);
    assert!(calls > 20, "{calls} calls can fail");
    let budget = Budget { exhaustive_pending: 0, samples: 1, ..Budget::default() };
    // Each merge tries a sample; the first calls open the store.
    let stride = if is_soak() { 1 } else { 13 };
    for at in (1..=20).chain((21..=calls).step_by(stride)) {
        let what = format!("{fault:?} at call {at} of {calls}, persistent {persistent}, seed {seed}");
        let controller = Controller::new();
        let faulty = Arc::new(FaultyStorage::with_plan(controller.storage(), FaultPlan { at, fault, persistent }));
        let outcome = run(&faulty, &plan, &what);
        assert!(faulty.faults() > 0, "{what}");
        if matches!(fault, Fault::SyncFailure | Fault::SyncFull) {
            assert!(outcome.failure.is_some(), "nobody was told of the failed sync, {what}");
            let refused = outcome.reopened || outcome.inserted_after.is_empty();
            assert!(refused, "writes went on after {:?}, {what}", outcome.failure);
        }
        if fault == Fault::NoDescriptors && !persistent && outcome.acknowledged > 0 && !outcome.reopened {
            // After a rename in the store's directory it is not known which manifest is durable.
            let is_open = |failure: &Error| failure.to_string().contains("(the root)");
            let went_on = outcome.inserted_after.len() == 6;
            assert!(
                went_on || outcome.failure.as_ref().is_none_or(is_open),
                "writes were refused after {:?}, {what}",
                outcome.failure
            );
        }
        let end = controller.events();
        for image in controller.images(end, &budget, seed).chain([controller.process_kill(end)]) {
            verify(image.storage(), &plan, &outcome, &format!("{what}, {}", image.describe()));
        }
    }
}

#[test]
fn any_call_may_fail_once() {
    every_call_fails(Fault::Eio, false, 21);
}

#[test]
fn any_call_and_all_after_it_may_fail() {
    every_call_fails(Fault::Eio, true, 22);
}

#[test]
fn the_disk_may_be_full_once() {
    every_call_fails(Fault::StorageFull, false, 23);
}

#[test]
fn the_disk_may_be_full_for_good() {
    every_call_fails(Fault::StorageFull, true, 24);
}

#[test]
fn any_write_may_be_short() {
    every_call_fails(Fault::ShortWrite, false, 25);
}

#[test]
fn any_write_and_all_after_it_may_be_short() {
    every_call_fails(Fault::ShortWrite, true, 28);
}

#[test]
fn any_sync_may_fail_once() {
    every_call_fails(Fault::SyncFailure, false, 26);
}

#[test]
fn any_sync_and_all_after_it_may_fail() {
    every_call_fails(Fault::SyncFailure, true, 29);
}

#[test]
fn any_sync_may_find_the_disk_full_once() {
    every_call_fails(Fault::SyncFull, false, 30);
}

#[test]
fn the_process_may_have_no_descriptor_once() {
    every_call_fails(Fault::NoDescriptors, false, 31);
}

#[test]
fn the_process_may_have_no_descriptor_for_good() {
    every_call_fails(Fault::NoDescriptors, true, 32);
}

fn at(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)])
}

fn faulty_store() -> (MemoryStorage, Arc<FaultyStorage>, Store) {
    let disk = MemoryStorage::new();
    let faulty = Arc::new(FaultyStorage::new(Arc::new(disk.clone())));
    let storage: Arc<dyn Storage> = faulty.clone();
    let store = Store::open_on(storage, options(Durability::Power)).unwrap();
    store.create_dataset(MAIN, first_schema()).unwrap();
    (disk, faulty, store)
}

#[test]
fn after_a_failed_sync_writes_are_refused_and_reads_go_on() {
    let (disk, faulty, store) = faulty_store();
    let dataset = store.dataset(MAIN).unwrap();
    dataset.insert(&at(1)).unwrap();
    faulty.arm(FaultPlan { at: 1, fault: Fault::SyncFailure, persistent: false });
    assert!(dataset.insert(&at(2)).is_err());
    for _ in 0..3 {
        assert!(matches!(dataset.insert(&at(3)), Err(Error::Poisoned { .. })));
        assert!(matches!(dataset.delete(&Key::Int(1)), Err(Error::Poisoned { .. })));
        assert!(matches!(dataset.flush(), Err(Error::Poisoned { .. })));
        assert!(matches!(store.importer("other", first_schema()), Err(Error::Poisoned { .. })));
    }
    assert_eq!(dataset.get(&Key::Int(1)).unwrap(), Some(at(1)));
    assert_eq!(dataset.get(&Key::Int(2)).unwrap(), None, "what was not acknowledged is not seen");
    assert_eq!(faulty.faults(), 1);
    drop((dataset, store));
    let store = Store::open_on(Arc::new(disk), options(Durability::Power)).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    assert_eq!(dataset.get(&Key::Int(1)).unwrap(), Some(at(1)));
    assert_eq!(dataset.get(&Key::Int(3)).unwrap(), None);
    dataset.insert(&at(4)).unwrap();
}

#[test]
fn a_full_disk_refuses_writes_keeps_data_and_recovers_with_space() {
    let (disk, _, store) = faulty_store();
    let dataset = store.dataset(MAIN).unwrap();
    // So full that giving up the reserve is of no use.
    let reserve = store.info().unwrap().disk_reserve_bytes.unwrap();
    disk.set_capacity(disk.used_bytes() - reserve);
    let mut inserted = 0;
    let refused = loop {
        match dataset.insert(&at(inserted)) {
            Ok(()) => inserted += 1,
            Err(error) => break error,
        }
        assert!(inserted < 10_000, "the disk never fills");
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused:?}");
    assert!(dataset.flush().is_err(), "no room for a component");
    for key in 0..inserted {
        assert_eq!(dataset.get(&Key::Int(key)).unwrap(), Some(at(key)));
    }
    assert_eq!(dataset.get(&Key::Int(inserted)).unwrap(), None);
    disk.set_capacity(u64::MAX);
    dataset.insert(&at(inserted)).unwrap();
    dataset.flush().unwrap();
    drop((dataset, store));
    let store = Store::open_on(Arc::new(disk), options(Durability::Power)).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    assert_eq!(dataset.snapshot().count(&terrane::Query::new()).unwrap(), inserted as u64 + 1);
    assert!(store.check(false).unwrap().findings.is_empty());
}

#[test]
fn an_import_that_meets_a_full_disk_leaves_nothing_behind() {
    let (disk, _, store) = faulty_store();
    let records: Vec<Record> = (0..200).map(at).collect();
    let files = disk.list("components").unwrap();
    disk.set_capacity(disk.used_bytes() + 5000);
    let outcome = (|| {
        let mut importer = store.importer(MAIN, first_schema())?;
        importer.push(&batch(&first_schema(), &records))?;
        importer.finish(&mut |row| Err(row.error))
    })();
    assert!(outcome.as_ref().is_err_and(is_clean), "{outcome:?}");
    assert_eq!(disk.list("components").unwrap(), files);
    disk.set_capacity(u64::MAX);
    let mut runner = store.importer(MAIN, first_schema()).unwrap();
    runner.push(&batch(&first_schema(), &records)).unwrap();
    assert_eq!(runner.finish(&mut |row| Err(row.error)).unwrap().records, 200);
    assert!(store.check(false).unwrap().findings.is_empty());
}

#[test]
fn a_store_goes_on_after_a_single_failed_read() {
    let (_, faulty, store) = faulty_store();
    let dataset = store.dataset(MAIN).unwrap();
    dataset.insert(&at(1)).unwrap();
    dataset.flush().unwrap();
    let before = faulty.faults();
    faulty.arm(FaultPlan { at: 1, fault: Fault::Eio, persistent: false });
    assert!(matches!(dataset.get(&Key::Int(1)), Err(Error::Storage(_))));
    assert_eq!(faulty.faults(), before + 1);
    assert_eq!(dataset.get(&Key::Int(1)).unwrap(), Some(at(1)));
    faulty.disarm();
    dataset.insert(&at(2)).unwrap();
}

/// The component files of an import belong to the store from its manifest step on, and to the
/// import until then, whatever fails.
#[test]
fn an_import_beside_a_write_whose_sync_fails_leaves_a_store_that_opens() {
    let (disk, faulty, store) = faulty_store();
    let dataset = store.dataset(MAIN).unwrap();
    dataset.insert(&at(1)).unwrap();
    let mut importer = store.importer("other", first_schema()).unwrap();
    importer.push(&batch(&first_schema(), &(0..50).map(at).collect::<Vec<_>>())).unwrap();
    faulty.arm(FaultPlan { at: 1, fault: Fault::SyncFailure, persistent: false });
    assert!(dataset.insert(&at(2)).is_err());
    let outcome = importer.finish(&mut |row| Err(row.error));
    assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
    drop((dataset, store));
    let store = Store::open_on(Arc::new(disk.clone()), options(Durability::Power)).unwrap();
    assert_eq!(store.dataset_names(), [MAIN]);
    assert!(store.check(false).unwrap().findings.is_empty());
    assert_eq!(disk.list("components").unwrap(), [""; 0], "a refused import leaves nothing");
}

/// Whatever call fails in `finish`: an error says that nothing was imported, unless it left open
/// which manifest is on disk, and success that everything was.
#[test]
fn an_import_tells_truly_whether_it_happened() {
    let (_, seed) = seeded(27);
    let run = |at: Option<u64>| {
        let (disk, faulty, store) = faulty_store();
        let import = |keys: std::ops::Range<i64>| {
            let mut importer = store.importer(MAIN, first_schema()).unwrap();
            importer.push(&batch(&first_schema(), &keys.map(self::at).collect::<Vec<_>>())).unwrap();
            importer
        };
        // With the third component of an index the policy wants a merge.
        for start in [0, 10] {
            import(start..start + 10).finish(&mut |row| Err(row.error)).unwrap();
        }
        let importer = import(20..30);
        let before = faulty.calls_open_to(Fault::Eio);
        if let Some(at) = at {
            faulty.arm(FaultPlan { at, fault: Fault::Eio, persistent: false });
        }
        let outcome = importer.finish(&mut |row| Err(row.error));
        let calls = faulty.calls_open_to(Fault::Eio) - before;
        faulty.disarm();
        let refuses = matches!(store.dataset(MAIN).unwrap().insert(&self::at(-1)), Err(Error::Poisoned { .. }));
        drop(store);
        let store = Store::open_on(Arc::new(disk), options(Durability::Power)).unwrap();
        let found = state_of(&store)[MAIN].records.keys().filter(|key| **key >= 20).count();
        match &outcome {
            Ok(report) => assert_eq!((found, report.records), (10, 10), "call {at:?}, seed {seed}"),
            Err(_) if refuses => assert!([0, 10].contains(&found), "call {at:?}, seed {seed}"),
            Err(error) => assert_eq!(found, 0, "call {at:?}, seed {seed}: {error}"),
        }
        assert!(store.check(false).unwrap().findings.is_empty());
        calls
    };
    let calls = run(None);
    assert!(calls > 20, "{calls} calls");
    (1..=calls).for_each(|at| {
        run(Some(at));
    });
}

/// Where a row of a batch fails, the rows before it are synced before their locks are given back.
#[test]
fn rows_before_one_that_fails_are_durable_when_the_batch_returns() {
    let (disk, _, store) = faulty_store();
    let dataset = store.dataset(MAIN).unwrap();
    dataset.insert(&at(100)).unwrap();
    dataset.flush().unwrap();
    drop(dataset);
    store.close().unwrap();
    let faulty = Arc::new(FaultyStorage::new(Arc::new(disk.clone())));
    let store = Store::open_on(faulty.clone(), options(Durability::Power)).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    let rows = batch(&first_schema(), &[at(1), at(2), at(100), at(3)]);
    faulty.arm(FaultPlan { at: 1, fault: Fault::Eio, persistent: false });
    let outcome = dataset.write_batch(&rows, terrane::OnConflict::Replace);
    assert!(matches!(outcome, Err(Error::Storage(_))), "the third row meets the failed read: {outcome:?}");
    assert_eq!(faulty.faults(), 1);
    // Only what is synced is visible.
    for key in [1, 2] {
        assert_eq!(dataset.get(&Key::Int(key)).unwrap(), Some(at(key)));
    }
    assert_eq!(dataset.get(&Key::Int(3)).unwrap(), None);
}

/// A merge that has begun when a flush fails to sync the names of the components must not name
/// its own file, and remove the files that went into it, on the strength of a later sync.
#[test]
fn a_merge_under_way_fails_with_the_sync_of_the_components_names() {
    let disk = MemoryStorage::new();
    let faulty = Arc::new(FaultyStorage::new(Arc::new(disk.clone())));
    let hooked = Arc::new(HookedStorage::new(faulty.clone()));
    let store = Store::open_on(hooked.clone(), options(Durability::Power)).unwrap();
    store.create_dataset(MAIN, first_schema()).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    dataset.insert(&at(1)).unwrap();
    dataset.flush().unwrap();
    dataset.insert(&at(2)).unwrap();
    faulty.record_calls();
    dataset.flush().unwrap();
    let calls = faulty.recorded_calls();
    let mut syncs = calls.iter().filter(|call| Fault::SyncFailure.applies_to(call.operation));
    let directory = 1 + syncs.position(|call| call.name == "components").unwrap() as u64;
    let mut flush = Some({
        let (dataset, faulty) = (store.dataset(MAIN).unwrap(), faulty.clone());
        move || {
            dataset.insert(&at(3)).unwrap();
            faulty.arm(FaultPlan { at: directory, fault: Fault::SyncFailure, persistent: false });
            let failed = dataset.flush();
            let is_directory = |error: &_| {
                matches!(error, Error::Storage(error)
                    if error.operation() == Operation::SyncDirectory && error.name() == "components")
            };
            assert!(failed.as_ref().is_err_and(is_directory), "{failed:?}");
        }
    });
    hooked.on_create(move |_| flush.take().map_or((), |flush| flush()));
    let outcome = store.compact();
    assert_eq!(faulty.faults(), 1, "the flush came between");
    assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
    assert!(matches!(store.compact(), Err(Error::Poisoned { .. })));
    assert!(matches!(dataset.flush(), Err(Error::Poisoned { .. })));
    assert_eq!(dataset.get(&Key::Int(3)).unwrap(), Some(at(3)), "reads go on");
    hooked.unhook();
    drop((dataset, store));
    let store = Store::open_on(Arc::new(disk), options(Durability::Power)).unwrap();
    assert_eq!(store.dataset(MAIN).unwrap().snapshot().count(&Query::new()).unwrap(), 3);
    assert!(store.check(false).unwrap().findings.is_empty());
    store.compact().unwrap();
}

/// Any call of the repair of a spatial index that is gone: the error is clean, a failed sync ends
/// writing, nothing is lost, no file is left over, and a second repair succeeds.
#[test]
fn any_call_of_a_repair_may_fail() {
    let (disk, _, store) = faulty_store();
    let dataset = store.dataset(MAIN).unwrap();
    (0..40).for_each(|key| dataset.insert(&at(key)).unwrap());
    dataset.flush().unwrap();
    (30..50).for_each(|key| dataset.upsert(&at(key)).unwrap());
    dataset.delete(&Key::Int(5)).unwrap();
    drop(dataset);
    store.close().unwrap();
    let mut files = crate::support::files::files_of(&disk);
    files.remove(&spatial_file(&disk));
    // With a reserve, a disk that is full once would not be told of.
    let disk_reserve = DiskReserve::Bytes(0);
    let lenient = || Options { lenient: true, disk_reserve, ..options(Durability::Power) };
    for fault in [Fault::Eio, Fault::StorageFull, Fault::ShortWrite, Fault::SyncFailure, Fault::SyncFull] {
        let mut calls = 1;
        let mut call = 0;
        while call < calls {
            call += 1;
            let what = format!("{fault:?} at call {call} of {calls}");
            let disk = storage_of(&files);
            let faulty = Arc::new(FaultyStorage::new(disk.clone()));
            let store = Store::open_on(faulty.clone(), lenient()).unwrap();
            let before = faulty.calls_open_to(fault);
            // The first run has nothing fail; it counts the calls.
            if call > 1 {
                faulty.arm(FaultPlan { at: call - 1, fault, persistent: false });
            }
            let outcome = store.check(true);
            if call == 1 {
                calls += faulty.calls_open_to(fault) - before;
                assert!(calls > 3 && outcome.unwrap().is_clean(), "{what}");
                continue;
            }
            assert_eq!(faulty.faults(), 1, "{what}");
            match &outcome {
                Ok(report) => assert!(report.is_clean() && fault == Fault::Eio, "{what}: {report}"),
                Err(error) => assert!(is_clean(error), "{what}: {error:?}"),
            }
            let inserted = store.dataset(MAIN).unwrap().insert(&at(-1));
            let is_sync = |error: &_| matches!(error, Error::Storage(error) if error.operation().is_sync());
            if outcome.as_ref().is_err_and(is_sync) {
                assert!(matches!(inserted, Err(Error::Poisoned { .. })), "{what}: {inserted:?}");
            } else {
                assert!(!matches!(fault, Fault::SyncFailure | Fault::SyncFull), "{what}: {outcome:?}");
            }
            if outcome.is_err() && fault == Fault::ShortWrite {
                inserted.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
                let named: Vec<_> = Manifest::read(&*disk)
                    .unwrap()
                    .unwrap()
                    .components()
                    .map(|meta| component_name(meta.file_id))
                    .collect();
                for name in disk.list("components").unwrap() {
                    assert!(named.contains(&format!("components/{name}")), "{name} is left over, {what}");
                }
            }
            drop(store);
            let store = Store::open_on(disk.clone(), lenient()).unwrap();
            let report = store.check(true).unwrap();
            assert!(report.is_clean(), "{what}: {report}");
            store.close().unwrap();
            let store = Store::open_on(disk, options(Durability::Power)).unwrap();
            let report = store.check(false).unwrap();
            assert!(report.findings.is_empty(), "{what}: {report}");
            let expected = 49 + u64::from(inserted.is_ok());
            for query in [Query::new(), Query::new().window(-10.0, 0.0, 100.0, 2.0)] {
                assert_eq!(store.dataset(MAIN).unwrap().snapshot().count(&query).unwrap(), expected, "{what}");
            }
        }
    }
}
