//! Behaviour of words, flushes and mappings on every back-end.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use terrane_pmem::{Backend, Error, LINE_LENGTH, Native, PersistenceDomain, Site, Traced, View};
use terrane_storage::event::{Event, PoolEvent};
use terrane_storage::{File, OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::Controller;

const SITE: Site = Site::new("test");
const PAGE: u64 = 4096;
const ADDRESS_SPACE: u64 = 1 << 20;

fn new_file(storage: &dyn Storage, length: u64) -> Arc<dyn File> {
    let file = storage.open("pool", OpenMode::CreateNew).unwrap();
    file.allocate(0..length).unwrap();
    file
}

fn mapped<B: Backend>(storage: &dyn Storage, domain: PersistenceDomain) -> (Arc<dyn File>, B) {
    let file = new_file(storage, PAGE);
    let backend = B::map(file.clone(), "pool", domain, ADDRESS_SPACE).unwrap();
    backend.extend(PAGE).unwrap();
    (file, backend)
}

#[test]
fn a_flush_writes_back_exactly_the_lines_of_its_range_whatever_alignment_and_length() {
    for start in 0..2 * LINE_LENGTH {
        let controller = Controller::new();
        let (_file, backend) = mapped::<Traced>(&*controller.storage(), PersistenceDomain::Adr);
        let mut before = controller.events();
        for length in 0..4 * LINE_LENGTH {
            backend.flush(start..start + length, SITE);
            let log = controller.log().split_off(before);
            before += log.len();
            let flushed: Vec<u64> = log
                .iter()
                .map(|event| match event {
                    Event::Pool(PoolEvent::Flush { line, site: "test", .. }) => *line,
                    other => panic!("{other:?}"),
                })
                .collect();
            let expected: BTreeSet<u64> = (start..start + length).map(|byte| byte - byte % LINE_LENGTH).collect();
            assert_eq!(flushed, Vec::from_iter(expected), "{length} bytes at {start}");
        }
    }
}

#[test]
fn a_persist_is_a_flush_and_one_fence_and_only_fences_where_caches_survive() {
    for (domain, flushes) in
        [(PersistenceDomain::Adr, 2), (PersistenceDomain::Eadr, 0), (PersistenceDomain::PageCache, 0)]
    {
        let controller = Controller::new();
        let (_file, backend) = mapped::<Traced>(&*controller.storage(), domain);
        let before = controller.events();
        backend.persist(60..68, SITE);
        let log = controller.log().split_off(before);
        assert_eq!(log.len(), flushes + 1, "{domain:?}: {log:?}");
        assert!(matches!(log[flushes], Event::Pool(PoolEvent::Fence { site: "test", .. })), "{log:?}");
    }
}

fn words_change_as_told<B: Backend>(storage: &dyn Storage) {
    let (file, backend) = mapped::<B>(storage, PersistenceDomain::PageCache);
    backend.store(8, 0x0102_0304_0506_0708);
    assert_eq!(backend.load(8), 0x0102_0304_0506_0708);
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 8).unwrap();
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1], "a file is little-endian and sees stores");
    file.write_all_at(&[3, 0, 0, 0, 0, 0, 0, 0], PAGE - 8).unwrap();
    assert_eq!(backend.load(PAGE - 8), 3, "a mapping sees writes");
    assert_eq!(backend.compare_exchange(16, 1, 2), Err(0));
    assert_eq!(backend.compare_exchange(16, 0, 2), Ok(0));
    assert_eq!(backend.fetch_or(16, 9), 2);
    assert_eq!(backend.fetch_and(16, !1), 11);
    assert_eq!(backend.load(16), 10);
    backend.persist(0..24, SITE);
    assert_eq!(backend.load(16), 10);
}

#[test]
fn words_change_as_told_in_memory_and_on_files() {
    words_change_as_told::<Traced>(&MemoryStorage::new());
    let directory = crate::support::directory();
    words_change_as_told::<Native>(&RealStorage::new(directory.path()));
}

fn words_stay_where_they_are<B: Backend>(storage: &dyn Storage) {
    let (file, backend) = mapped::<B>(storage, PersistenceDomain::PageCache);
    backend.store(0, 1);
    for pages in 2..20 {
        file.allocate((pages - 1) * PAGE..pages * PAGE).unwrap();
        backend.extend(pages * PAGE).unwrap();
        backend.store((pages - 1) * PAGE, pages);
    }
    assert_eq!(backend.length(), 19 * PAGE);
    assert_eq!(backend.load(0), 1);
    assert!((2..20).all(|pages| backend.load((pages - 1) * PAGE) == pages));
    backend.extend(PAGE).unwrap();
    assert_eq!(backend.length(), 19 * PAGE, "a mapping does not shrink");
    let refused = backend.extend(ADDRESS_SPACE + PAGE);
    assert!(matches!(refused, Err(Error::AddressSpace { reserved: ADDRESS_SPACE, .. })), "{refused:?}");
    assert_eq!(backend.load(0), 1);
}

#[test]
fn a_mapping_grows_without_moving_up_to_the_addresses_set_aside() {
    words_stay_where_they_are::<Traced>(&MemoryStorage::new());
    let directory = crate::support::directory();
    words_stay_where_they_are::<Native>(&RealStorage::new(directory.path()));
}

fn ranges_are_checked<B: Backend>(storage: &dyn Storage) {
    let (_file, backend) = mapped::<B>(storage, PersistenceDomain::PageCache);
    for (offset, length, held) in [
        (0, PAGE, true),
        (PAGE - 8, 8, true),
        (PAGE, 0, true),
        (PAGE - 8, 16, false),
        (4, 8, false),
        (8, 4, false),
        (PAGE, 8, false),
        (u64::MAX - 7, 8, false),
        (8, u64::MAX - 7, false),
    ] {
        assert_eq!(backend.holds(offset, length), held, "{length} bytes at {offset}");
        let view = std::panic::AssertUnwindSafe(|| _ = backend.view(offset, length));
        assert_eq!(std::panic::catch_unwind(view).is_ok(), held, "{length} bytes at {offset}");
    }
    backend.store(PAGE - 8, 5);
    let view = backend.view(PAGE - 16, 16);
    assert_eq!((view.load(0), view.load(1)), (0, 5));
    let beyond = std::panic::AssertUnwindSafe(|| view.load(2));
    assert!(std::panic::catch_unwind(beyond).is_err());
    for offset in [4, PAGE - 4, PAGE, u64::MAX - 7] {
        let load = std::panic::AssertUnwindSafe(|| backend.load(offset));
        assert!(std::panic::catch_unwind(load).is_err(), "a word at {offset}");
    }
}

#[test]
fn no_word_is_reached_that_is_not_aligned_and_mapped() {
    ranges_are_checked::<Traced>(&MemoryStorage::new());
    let directory = crate::support::directory();
    ranges_are_checked::<Native>(&RealStorage::new(directory.path()));
}

#[test]
fn stores_outlive_the_mapping() {
    let directory = crate::support::directory();
    let (file, backend) = mapped::<Native>(&RealStorage::new(directory.path()), PersistenceDomain::PageCache);
    backend.store(64, 77);
    drop((file, backend));
    let bytes = fs::read(directory.path().join("pool")).unwrap();
    assert_eq!(bytes[64..72], 77u64.to_le_bytes());
}

#[test]
fn a_domain_that_the_medium_does_not_have_is_refused() {
    let directory = crate::support::directory();
    let storage = RealStorage::new(directory.path());
    let file = new_file(&storage, PAGE);
    let backend = Native::map(file, "/data/pool", PersistenceDomain::Eadr, ADDRESS_SPACE).unwrap();
    let refused = backend.extend(PAGE).unwrap_err().to_string();
    assert!(
        refused.starts_with("/data/pool cannot be used as a pool: its file system gives no direct access"),
        "{refused}"
    );
    assert_eq!(backend.length(), 0);
}

#[test]
fn a_file_open_for_reading_and_storage_of_another_kind_are_refused() {
    let storage = MemoryStorage::new();
    new_file(&storage, PAGE);
    let read = storage.open("pool", OpenMode::Read).unwrap();
    let domain = PersistenceDomain::PageCache;
    assert!(matches!(Traced::map(read, "pool", domain, ADDRESS_SPACE), Err(Error::Unsuitable { .. })));
    let write = storage.open("pool", OpenMode::Write).unwrap();
    assert!(matches!(Native::map(write, "pool", domain, ADDRESS_SPACE), Err(Error::Unsuitable { .. })));
}
