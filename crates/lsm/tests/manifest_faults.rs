//! The result of a failed manifest step, and which steps may follow it.

use std::sync::Arc;

use terrane_lsm::Error;
use terrane_lsm::log::LogPosition;
use terrane_lsm::manifest::{Manifest, ManifestFile};
use terrane_storage::Storage;
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

fn created() -> (Arc<FaultyStorage>, ManifestFile) {
    let faulty = Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new())));
    faulty.create_directory("components").unwrap();
    let manifest = Manifest {
        store_id: "0".into(),
        branch: String::new(),
        generation: 0,
        durability: "power".into(),
        next_file_id: 1,
        next_dataset_id: 1,
        last_sequence: 0,
        low_water: LogPosition::START,
        datasets: Vec::new(),
    };
    let file = ManifestFile::create(faulty.clone(), manifest).unwrap();
    (faulty, file)
}

fn step(file: &ManifestFile, last_sequence: u64) -> terrane_lsm::Result<()> {
    file.update(|manifest| {
        manifest.last_sequence = last_sequence;
        Ok(())
    })
}

/// A later sync may succeed although the data of the failed one are lost, such as the names of
/// component files that a concurrent step is about to name.
#[test]
fn after_any_failed_sync_no_step_succeeds() {
    let (faulty, file) = created();
    let before = faulty.calls_open_to(Fault::SyncFailure);
    step(&file, 1).unwrap();
    let syncs = faulty.calls_open_to(Fault::SyncFailure) - before;
    assert_eq!(syncs, 3, "the new file, the directory of components, and that of the manifest");
    for at in 1..=syncs {
        let (faulty, file) = created();
        step(&file, 1).unwrap();
        faulty.arm(FaultPlan { at, fault: Fault::SyncFailure, persistent: false });
        assert!(matches!(step(&file, 2), Err(Error::Storage(_))), "sync {at}");
        assert!(file.has_failed(), "sync {at}");
        for _ in 0..2 {
            assert!(matches!(step(&file, 3), Err(Error::Poisoned { .. })), "sync {at}");
        }
        assert_eq!(file.current().last_sequence, 1, "sync {at}");
        let found = Manifest::read(&*faulty).unwrap().unwrap();
        assert_eq!(found.last_sequence, if at < syncs { 1 } else { 2 }, "only the last sync follows on the rename");
        let reopened = ManifestFile::open(faulty.clone(), found);
        step(&reopened, 4).unwrap();
        assert_eq!(Manifest::read(&*faulty).unwrap().unwrap().last_sequence, 4);
    }
}

#[test]
fn a_step_that_finds_no_room_to_write_can_be_repeated() {
    for (fault, at) in [(Fault::StorageFull, 1), (Fault::StorageFull, 2), (Fault::ShortWrite, 1)] {
        let (faulty, file) = created();
        faulty.arm(FaultPlan { at, fault, persistent: false });
        assert!(matches!(step(&file, 1), Err(Error::Storage(error)) if error.is_storage_full()), "{fault:?} {at}");
        assert!(!file.has_failed(), "{fault:?} {at}");
        assert!(!faulty.exists("MANIFEST.new").unwrap(), "it takes space that is wanted elsewhere");
        step(&file, 2).unwrap();
        assert_eq!(Manifest::read(&*faulty).unwrap().unwrap().last_sequence, 2);
    }
}

/// It is unknown whether a failed rename has happened, so after it a full disk is no reason to
/// write again.
#[test]
fn a_rename_for_which_there_is_no_space_says_to_reopen() {
    let (faulty, file) = created();
    let before = faulty.calls_open_to(Fault::StorageFull);
    step(&file, 1).unwrap();
    let calls = faulty.calls_open_to(Fault::StorageFull) - before;
    let mut poisoned = 0;
    for at in 1..=calls {
        let (faulty, file) = created();
        step(&file, 1).unwrap();
        faulty.arm(FaultPlan { at, fault: Fault::StorageFull, persistent: false });
        let error = step(&file, 2).unwrap_err();
        assert_eq!(file.has_failed(), matches!(error, Error::Poisoned { .. }), "call {at}: {error}");
        assert_eq!(file.has_failed(), error.to_string().contains("reopen"), "call {at}: {error}");
        poisoned += u32::from(file.has_failed());
    }
    assert_eq!(poisoned, 1, "of {calls} calls the rename");
}
