//! Storage fails at the planned call, once or from then on, and counts its calls.

use std::sync::Arc;

use terrane_storage::{LockKind, OpenMode, Operation, Result, Storage};
use terrane_testkit::crash::{Budget, Controller};
use terrane_testkit::{Call, Fault, FaultPlan, FaultyStorage, MemoryStorage};

fn workload(storage: &dyn Storage) -> Result<()> {
    storage.create_directory("d")?;
    let file = storage.open("d/a", OpenMode::CreateNew)?;
    file.try_lock(LockKind::Exclusive)?;
    file.allocate(0..8)?;
    file.write_all_at(b"12345678", 0)?;
    file.sync_data()?;
    storage.sync_directory("d")?;
    storage.exists("d/a")?;
    file.write_all_at(b"abcd", 4)?;
    file.sync_data()?;
    file.set_len(6)?;
    file.len()?;
    file.read_exact_at(&mut [0; 6], 0)?;
    file.unlock()?;
    storage.rename("d/a", "d/b")?;
    storage.list("d")?;
    storage.open("d/b", OpenMode::Read)?;
    storage.remove("d/b")
}

fn faulty() -> FaultyStorage {
    FaultyStorage::new(Arc::new(MemoryStorage::new()))
}

#[test]
fn every_call_can_be_made_to_fail_in_turn() {
    for fault in
        [Fault::Eio, Fault::StorageFull, Fault::ShortWrite, Fault::SyncFailure, Fault::SyncFull, Fault::NoDescriptors]
    {
        let counted = faulty();
        counted.record_calls();
        workload(&counted).unwrap();
        let applicable: Vec<Call> =
            counted.recorded_calls().into_iter().filter(|call| fault.applies_to(call.operation)).collect();
        assert_eq!(counted.calls_open_to(fault), applicable.len() as u64);
        assert!(!applicable.is_empty());
        for (index, call) in applicable.iter().enumerate() {
            let plan = FaultPlan { at: index as u64 + 1, fault, persistent: false };
            let storage = FaultyStorage::with_plan(Arc::new(MemoryStorage::new()), plan);
            let error = workload(&storage).unwrap_err();
            let failed = match (fault, call.operation) {
                (Fault::NoDescriptors, Operation::SyncDirectory) => Operation::Open,
                (_, operation) => operation,
            };
            assert_eq!((error.operation(), error.name()), (failed, call.name.as_str()), "{plan:?}");
            let full = matches!(fault, Fault::StorageFull | Fault::ShortWrite | Fault::SyncFull);
            assert_eq!(error.is_storage_full(), full);
            assert_eq!(storage.faults(), 1);
        }
        let beyond = FaultPlan { at: applicable.len() as u64 + 1, fault, persistent: true };
        workload(&FaultyStorage::with_plan(Arc::new(MemoryStorage::new()), beyond)).unwrap();
    }
}

#[test]
fn every_kind_of_call_is_counted() {
    let storage = faulty();
    storage.record_calls();
    workload(&storage).unwrap();
    assert_eq!(storage.recorded_calls().len(), 18);
    assert_eq!(storage.calls_open_to(Fault::Eio), 18);
    assert_eq!(storage.calls(Operation::Sync), 2);
    assert_eq!(storage.calls(Operation::Write), 2);
    assert_eq!(storage.calls(Operation::Create), 1);
    assert_eq!(storage.calls(Operation::Open), 1);
    let write = storage.recorded_calls().into_iter().rfind(|call| call.operation == Operation::Write).unwrap();
    assert_eq!((write.offset, write.length), (Some(4), Some(4)));
}

#[test]
fn a_persistent_fault_stays_and_a_single_one_does_not() {
    for persistent in [false, true] {
        let storage = faulty();
        let file = storage.open("a", OpenMode::CreateNew).unwrap();
        storage.arm(FaultPlan { at: 2, fault: Fault::StorageFull, persistent });
        file.write_all_at(b"1", 0).unwrap();
        file.write_all_at(b"2", 0).unwrap_err();
        assert_eq!(file.write_all_at(b"3", 0).is_err(), persistent);
        file.read_exact_at(&mut [0], 0).unwrap();
        storage.disarm();
        file.write_all_at(b"4", 0).unwrap();
    }
}

#[test]
fn a_short_write_leaves_a_prefix() {
    let storage = faulty();
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    storage.arm(FaultPlan { at: 1, fault: Fault::ShortWrite, persistent: false });
    let error = file.write_all_at(b"12345678", 0).unwrap_err();
    assert!(error.is_storage_full(), "{error}");
    assert_eq!(file.len().unwrap(), 4);
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"1234");
}

/// Possible contents of "a" after a power loss now, sorted.
fn after_power_loss(controller: &Controller) -> Vec<Vec<u8>> {
    let mut found: Vec<_> = controller
        .images(controller.events(), &Budget::default(), 0)
        .map(|image| image.read("a").expect("the name is durable"))
        .collect();
    found.sort();
    found
}

#[test]
fn after_a_failed_sync_a_later_sync_does_not_make_the_bytes_durable() {
    let controller = Controller::new();
    let storage = FaultyStorage::new(controller.storage());
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    file.write_all_at(&[b'0'; 1024], 0).unwrap();
    file.sync_data().unwrap();
    storage.sync_directory("").unwrap();

    storage.arm(FaultPlan { at: 1, fault: Fault::SyncFailure, persistent: false });
    file.write_all_at(&[b'1'; 1024], 0).unwrap();
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    let mut bytes = [0; 1024];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [b'1'; 1024], "the page cache has them");
    assert!(after_power_loss(&controller).contains(&vec![b'0'; 1024]), "the disk need not");

    // Written anew, the first sector is synced like any other; the second remains in doubt.
    file.write_all_at(&[b'2'; 512], 0).unwrap();
    file.sync_data().unwrap();
    let with_second = |byte: u8| [[b'2'; 512], [byte; 512]].concat();
    assert_eq!(after_power_loss(&controller), [with_second(b'0'), with_second(b'1')]);
}
