//! Pools on storage that fails, that does not know its boot, or whose files have holes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use terrane_pmem::{Error, Native, OPENINGS_MAX, Options, PersistenceDomain, Pool, ROOT, Result, Traced};
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

use crate::pool::{contents, create, open, options};

#[test]
fn a_creation_that_fails_at_any_call_leaves_no_pool() {
    for fault in [Fault::Eio, Fault::StorageFull, Fault::SyncFailure] {
        for at in 1.. {
            let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
            let faulty = FaultyStorage::with_plan(memory.clone(), FaultPlan { at, fault, persistent: false });
            let created = Pool::<Traced>::create(&faulty, "pool", &options());
            if faulty.faults() == 0 {
                created.unwrap();
                break;
            }
            assert!(created.is_err(), "{fault:?} at call {at}");
            drop(created);
            faulty.disarm();
            assert!(!faulty.exists("pool").unwrap(), "{fault:?} at call {at}");
            Pool::<Traced>::create(&faulty, "pool", &options()).unwrap().close().unwrap();
            assert_eq!(faulty.list("").unwrap(), ["pool"]);
        }
    }
}

#[test]
fn after_a_failed_sync_a_pool_is_not_trusted() {
    for at in 1..=2 {
        let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let faulty = FaultyStorage::new(memory);
        let pool = Pool::<Traced>::create(&faulty, "pool", &options()).unwrap();
        faulty.arm(FaultPlan { at, fault: Fault::SyncFailure, persistent: false });
        assert!(matches!(pool.close(), Err(Error::Storage(_))), "sync {at}");
        let error = Pool::<Traced>::open(&faulty, "pool", &options()).unwrap_err();
        assert!(matches!(error, Error::Untrusted { .. }), "sync {at}: {error}");
    }
}

/// Then it is unknown whether the machine has restarted since, unless the pool was closed or its
/// stores were durable by themselves.
#[test]
fn where_a_boot_is_not_known_an_open_pool_on_the_page_cache_is_not_trusted() {
    for domain in [PersistenceDomain::PageCache, PersistenceDomain::Adr, PersistenceDomain::Eadr] {
        let options = Options { domain, ..options() };
        for [hidden_before, hidden_after] in [[false, false], [false, true], [true, false], [true, true]] {
            let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()));
            let open = || Pool::<Traced>::open(&storage, "pool", &options);
            storage.hide_boot(hidden_before);
            drop(Pool::<Traced>::create(&storage, "pool", &options).unwrap());
            let before = contents(&storage);
            storage.hide_boot(hidden_after);
            match open() {
                Ok(pool) => {
                    assert!(domain != PersistenceDomain::PageCache || !hidden_before && !hidden_after, "{domain:?}");
                    pool.close().unwrap();
                    open().unwrap();
                }
                Err(error) => {
                    assert!(matches!(error, Error::Untrusted { .. }), "{error}");
                    assert!(domain == PersistenceDomain::PageCache && (hidden_before || hidden_after), "{error}");
                    assert!(error.to_string().contains("it is unknown"), "{error}");
                    assert_eq!(contents(&storage), before);
                }
            }
        }
    }
}

/// A pool whose growth met a failed sync, in a storage where every later sync succeeds. On these
/// media only growing syncs, and closing does not.
fn with_failed_growth(storage: &FaultyStorage, options: &Options) -> Pool<Traced> {
    let pool = Pool::create(storage, "pool", options).unwrap();
    storage.arm(FaultPlan { at: 1, fault: Fault::SyncFailure, persistent: false });
    let length = pool.length();
    assert!(matches!(grow(&pool), Err(Error::Storage(_))));
    assert_eq!(pool.length(), length);
    pool
}

fn grow(pool: &Pool<Traced>) -> Result<()> {
    pool.intent().acquire(64, ROOT).map(drop)
}

#[test]
fn after_a_failed_sync_a_pool_does_not_grow() {
    let faulty = FaultyStorage::new(Arc::new(MemoryStorage::new()));
    let pool = with_failed_growth(&faulty, &Options { domain: PersistenceDomain::Adr, ..options() });
    let length = pool.length();
    for _ in 0..2 {
        assert!(matches!(grow(&pool), Err(Error::Untrusted { .. })), "a later sync proves nothing");
    }
    assert_eq!(pool.length(), length);
}

/// If it were marked as closed, the next opening would trust pages that the system may have
/// dropped.
#[test]
fn a_pool_whose_growth_was_not_synced_is_neither_closed_nor_trusted() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr] {
        let faulty = FaultyStorage::new(Arc::new(MemoryStorage::new()));
        let options = Options { domain, ..options() };
        let closed = with_failed_growth(&faulty, &options).close();
        assert!(matches!(closed, Err(Error::Untrusted { .. })), "{domain:?}: {closed:?}");
        let opened = Pool::<Traced>::open(&faulty, "pool", &options);
        assert!(matches!(opened, Err(Error::Untrusted { .. })), "{domain:?}: {opened:?}");
    }
}

/// Copies a closed pool to `copy`, and leaves out pages of zeros. Gives its length, and the space
/// that the copy takes.
fn copy_with_holes(directory: &Path, use_pool: impl FnOnce(&Pool<Native>)) -> (u64, impl Fn() -> u64) {
    let storage = RealStorage::new(directory);
    let pool = Pool::<Native>::create(&storage, "pool", &options()).unwrap();
    use_pool(&pool);
    pool.close().unwrap();
    let bytes = contents(&storage);
    let copy = storage.open("copy", OpenMode::CreateNew).unwrap();
    copy.set_len(bytes.len() as u64).unwrap();
    for (page, offset) in bytes.chunks(4096).zip((0..).step_by(4096)) {
        if page.iter().any(|&byte| byte != 0) {
            copy.write_all_at(page, offset).unwrap();
        }
    }
    let path = directory.join("copy");
    let taken = move || std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(taken() < bytes.len() as u64, "the copy has no hole");
    (bytes.len() as u64, taken)
}

#[test]
fn a_pool_that_was_copied_with_holes_has_its_space_when_it_is_opened() {
    let directory = crate::support::directory();
    let (length, taken) = copy_with_holes(directory.path(), |_| ());
    let pool = Pool::<Native>::open(&RealStorage::new(directory.path()), "copy", &options()).unwrap();
    assert!(taken() >= length, "{} of {length} bytes", taken());
    pool.close().unwrap();
}

/// Otherwise a refused file could fill the disk.
#[test]
fn a_pool_with_holes_that_is_refused_for_its_header_or_the_options_takes_no_space() {
    let refused = |use_pool: fn(&Pool<Native>), options: &Options| {
        let directory = crate::support::directory();
        let (length, taken) = copy_with_holes(directory.path(), use_pool);
        let error = Pool::<Native>::open(&RealStorage::new(directory.path()), "copy", options).unwrap_err();
        assert!(taken() < length, "{error}");
        error
    };
    let narrow = Options { address_space: 4096, ..options() };
    assert!(matches!(refused(|_| (), &narrow), Error::AddressSpace { .. }));
    assert!(matches!(refused(|_| (), &Options { layout_id: 1, ..options() }), Error::OtherLayout { .. }));
    let often = refused(|pool| pool.skip_openings(OPENINGS_MAX), &options());
    assert!(matches!(&often, Error::Untrusted { reason, .. } if reason.contains("too often")), "{often}");
}

#[test]
fn a_pool_that_gets_no_space_is_not_opened_and_left_as_it_is() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let faulty = FaultyStorage::new(memory);
    create(&faulty).close().unwrap();
    let before = contents(&faulty);
    faulty.arm(FaultPlan { at: 1, fault: Fault::StorageFull, persistent: false });
    let error = open(&faulty).unwrap_err();
    assert!(matches!(&error, Error::Storage(cause) if cause.is_storage_full()), "{error}");
    assert_eq!((contents(&faulty), faulty.faults()), (before, 1));
    assert_eq!(open(&faulty).unwrap().open_counter(), 2);
}
