//! Creating, opening and closing pools, and files that must not be opened.

use terrane_pmem::pmwcas::Descriptor;
use terrane_pmem::{Backend, Error, Found, Native, Options, PersistenceDomain, Pool, ROOT, Result, Site, Traced};
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;

const LAYOUT: u64 = 0x7e57;

pub fn options() -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(LAYOUT, PersistenceDomain::PageCache) }
}

pub fn create(storage: &dyn Storage) -> Pool<Traced> {
    Pool::create(storage, "pool", &options()).unwrap()
}

pub fn open(storage: &dyn Storage) -> Result<Pool<Traced>> {
    Pool::open(storage, "pool", &options())
}

pub fn contents(storage: &dyn Storage) -> Vec<u8> {
    let file = storage.open("pool", OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Opens a closed pool after a change of its file, and checks that the file stays as it is.
fn open_changed(change: impl FnOnce(&dyn terrane_storage::File)) -> Error {
    let storage = MemoryStorage::new();
    create(&storage).close().unwrap();
    change(&*storage.open("pool", OpenMode::Write).unwrap());
    let before = contents(&storage);
    let error = open(&storage).unwrap_err();
    assert_eq!(contents(&storage), before, "{error}");
    error
}

fn root_survives<B: Backend>(storage: &dyn Storage) {
    let pool = Pool::<B>::create(storage, "pool", &options()).unwrap();
    assert_eq!((pool.backend().load(ROOT), pool.open_counter()), (0, 1));
    pool.backend().store(ROOT, 77);
    drop(pool);
    let pool = Pool::<B>::open(storage, "pool", &options()).unwrap();
    assert_eq!((pool.backend().load(ROOT), pool.open_counter()), (77, 2), "dropped, as by a kill");
    pool.backend().persist(ROOT..ROOT + 8, Site::new("test"));
    pool.close().unwrap();
    let pool = Pool::<B>::open(storage, "pool", &options()).unwrap();
    assert_eq!((pool.backend().load(ROOT), pool.open_counter()), (77, 3), "closed");
}

#[test]
fn a_pool_keeps_its_root_over_closing_and_dropping() {
    root_survives::<Traced>(&MemoryStorage::new());
    let directory = crate::support::directory();
    root_survives::<Native>(&RealStorage::new(directory.path()));
}

#[test]
fn an_open_pool_is_opened_by_nobody_else_and_a_name_is_taken_once() {
    let storage = MemoryStorage::new();
    let pool = create(&storage);
    assert!(matches!(open(&storage), Err(Error::Locked { .. })));
    drop(pool);
    let taken = Pool::<Traced>::create(&storage, "pool", &options()).unwrap_err();
    assert!(matches!(&taken, Error::Storage(error) if error.is_already_exists()), "{taken}");
    assert!(taken.to_string().contains("pool: it exists; open it, or take another name"), "{taken}");
    assert_eq!(storage.list("").unwrap(), ["pool"]);
    open(&storage).unwrap();
}

/// The pool would replace the link, whose target would be missing.
#[test]
fn a_name_that_leads_nowhere_is_taken() {
    let directory = crate::support::directory();
    let storage = RealStorage::new(directory.path());
    std::os::unix::fs::symlink("elsewhere", directory.path().join("pool")).unwrap();
    let taken = Pool::<Native>::create(&storage, "pool", &options()).unwrap_err();
    assert!(matches!(&taken, Error::Storage(error) if error.is_already_exists()), "{taken}");
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["pool"]);
    assert!(directory.path().join("pool").is_symlink());
    // The name of the draft is not reported as in use either.
    std::os::unix::fs::symlink("elsewhere", directory.path().join("other.new")).unwrap();
    let taken = Pool::<Native>::create(&storage, "other", &options()).unwrap_err();
    assert!(matches!(&taken, Error::Storage(error) if error.is_already_exists()), "{taken}");
}

/// A page that somebody has put back, or that a copy has from before the pool grew.
#[test]
fn a_header_of_before_the_pool_grew_is_refused() {
    for chunks in [0, 1] {
        let storage = MemoryStorage::new();
        let pool = create(&storage);
        let mut intent = pool.intent();
        for _ in 0..chunks {
            intent.acquire(3968, ROOT).unwrap();
        }
        let before = contents(&storage);
        intent.acquire(3968, ROOT).unwrap();
        drop(intent);
        drop(pool);
        let mut damaged = contents(&storage);
        damaged[..4096].copy_from_slice(&before[..4096]);
        let storage = MemoryStorage::new();
        put(&storage, "pool", &damaged);
        let error = open(&storage).unwrap_err();
        let is_found = matches!(error, Error::Damaged { offset, .. } if offset == 8192 + chunks * 4096);
        assert!(is_found && contents(&storage) == damaged, "{chunks}: {error}");
        // As after a crash while it grew.
        damaged[8192 + chunks as usize * 4096..].fill(0);
        let storage = MemoryStorage::new();
        put(&storage, "pool", &damaged);
        open(&storage).unwrap();
    }
}

/// Blocks without a root word: only a crash during an acquisition may leave one.
#[test]
fn a_pool_that_has_blocks_is_not_vacant() {
    let is_vacant = |storage: &dyn Storage| {
        let before = contents(storage);
        let vacant = Pool::<Traced>::find(storage, "pool", &options()).unwrap().check_vacant();
        assert!(contents(storage) == before, "{vacant:?}");
        vacant
    };
    let storage = MemoryStorage::new();
    drop(create(&storage));
    is_vacant(&storage).unwrap();
    let pool = open(&storage).unwrap();
    let mut intent = pool.intent();
    let block = intent.acquire(64, ROOT).unwrap();
    let begun = MemoryStorage::new();
    put(&begun, "pool", &contents(&storage));
    is_vacant(&begun).unwrap();
    pool.backend().store(ROOT, block);
    intent.finish();
    pool.backend().store(ROOT, 0);
    drop(pool);
    let error = is_vacant(&storage).unwrap_err();
    assert!(matches!(error, Error::Damaged { offset: ROOT, .. }) && error.to_string().contains("blocks"), "{error}");
    // The block length of this chunk is impossible, so it is unknown whether it has blocks.
    storage.open("pool", OpenMode::Write).unwrap().write_all_at(&7_u64.to_le_bytes(), 8192).unwrap();
    let error = is_vacant(&storage).unwrap_err();
    assert!(matches!(error, Error::Damaged { offset: 8192, .. }), "{error}");
}

#[test]
fn a_pool_is_given_up_with_its_name_and_with_nothing_beside_it() {
    let killed = MemoryStorage::new();
    drop(create(&killed));
    let whole = bytes_of(&killed, "pool");
    let torn = [&whole[..64], &[0; 8192 - 64]].concat();
    for left in [&[][..], &[0; 4096], &whole[..600], &torn, &whole] {
        let storage = MemoryStorage::new();
        put(&storage, "pool.new", left);
        create(&storage).close().unwrap();
        assert_eq!(storage.list("").unwrap(), ["pool"]);
        open(&storage).unwrap();
    }
}

#[test]
fn a_file_under_the_name_in_which_pools_are_made_is_left_as_it_is() {
    let other = MemoryStorage::new();
    create(&other).close().unwrap();
    let closed = bytes_of(&other, "pool");
    drop(open(&other).unwrap());
    let killed = bytes_of(&other, "pool");
    let longer = [&closed[..], &[0; 4096]].concat();
    for foreign in [b"somebody's notes".as_slice(), &[b'x'; 8192], &closed, &killed, &longer, &[0; 8193]] {
        let storage = MemoryStorage::new();
        put(&storage, "pool.new", foreign);
        let error = Pool::<Traced>::create(&storage, "pool", &options()).unwrap_err();
        assert!(matches!(&error, Error::Unsuitable { .. }) && error.to_string().contains("pool.new"), "{error}");
        assert_eq!(bytes_of(&storage, "pool.new"), foreign);
    }
    // A draft is ignored too if there is a pool already.
    let storage = MemoryStorage::new();
    create(&storage).close().unwrap();
    put(&storage, "pool.new", &[]);
    assert!(Pool::<Traced>::create(&storage, "pool", &options()).is_err());
    assert_eq!(storage.list("").unwrap().len(), 2);
}

fn put(storage: &dyn Storage, name: &str, bytes: &[u8]) {
    storage.open(name, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
}

fn bytes_of(storage: &dyn Storage, name: &str) -> Vec<u8> {
    let file = storage.open(name, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn files_that_are_no_pool_are_refused() {
    let error = open_changed(|file| file.write_all_at(&[b'x'; 8192], 0).unwrap());
    assert!(matches!(error, Error::NotAPool { .. }), "{error}");
    let error = open_changed(|file| file.set_len(0).unwrap());
    assert!(matches!(error, Error::NotAPool { .. }), "{error}");
}

#[test]
fn truncated_files_are_refused_wherever_they_end() {
    for length in [1, 7] {
        let error = open_changed(|file| file.set_len(length).unwrap());
        assert!(matches!(error, Error::NotAPool { .. }), "{length}: {error}");
    }
    for length in [8, 100, 127, 128, 600, 4096, 8191] {
        let error = open_changed(|file| file.set_len(length).unwrap());
        assert!(matches!(error, Error::Truncated { expected: 8192, .. }), "{length}: {error}");
    }
}

/// Offsets of the version and of the sequence number in a copy of the header.
const VERSION: u64 = 8;
const SEQUENCE: u64 = 40;

/// Changes a word of a copy of the header. If it is whole, its checksum fits and covers the copy's
/// offset.
fn set(file: &dyn terrane_storage::File, copy: u64, (byte, value): (u64, u64), is_whole: bool) {
    file.write_all_at(&value.to_le_bytes(), copy + byte).unwrap();
    if is_whole {
        let mut covered = [0; 120];
        file.read_exact_at(&mut covered, copy).unwrap();
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&copy.to_le_bytes()), &covered);
        file.write_all_at(&u64::from(checksum).to_le_bytes(), copy + 120).unwrap();
    }
}

#[test]
fn a_newer_version_is_refused_whatever_else_it_holds() {
    let newer = |file: &dyn terrane_storage::File, copy, is_whole| set(file, copy, (VERSION, 9), is_whole);
    let whole = |copies: &'static [u64]| {
        move |file: &dyn terrane_storage::File| copies.iter().for_each(|&copy| newer(file, copy, true))
    };
    let with_other_checksums =
        |file: &dyn terrane_storage::File| [0, 512].into_iter().for_each(|copy| newer(file, copy, false));
    let errors = [
        open_changed(whole(&[0, 512])),
        open_changed(whole(&[0])),
        open_changed(whole(&[512])),
        open_changed(with_other_checksums),
    ];
    for error in errors {
        assert!(matches!(error, Error::Newer { found: 9, known: 2, .. }), "{error}");
        assert!(error.to_string().ends_with("use a newer one"), "{error}");
    }
}

#[test]
fn a_pool_of_the_first_version_is_read_and_gets_the_present_one() {
    let storage = MemoryStorage::new();
    let pool = create(&storage);
    pool.backend().store(ROOT, 5);
    pool.close().unwrap();
    let file = storage.open("pool", OpenMode::Write).unwrap();
    [0, 512].into_iter().for_each(|copy| set(&*file, copy, (VERSION, 1), true));
    assert_eq!(open(&storage).unwrap().backend().load(ROOT), 5);
    let mut version = [0; 8];
    file.read_exact_at(&mut version, VERSION).unwrap();
    assert_eq!(u64::from_le_bytes(version), 2);
}

#[test]
fn a_version_that_there_never_was_and_the_end_of_the_sequence_are_damage() {
    for change in [(VERSION, 0), (SEQUENCE, u64::MAX)] {
        let error = open_changed(|file| [0, 512].into_iter().for_each(|copy| set(file, copy, change, true)));
        assert!(matches!(error, Error::Damaged { .. }), "{change:?}: {error}");
    }
}

#[test]
fn damage_to_both_copies_of_the_header_is_found_at_every_byte() {
    for byte in 16..128 {
        let error = open_changed(|file| {
            for copy in [0, 512] {
                let mut value = [0];
                file.read_exact_at(&mut value, copy + byte).unwrap();
                file.write_all_at(&[value[0] ^ 0x10], copy + byte).unwrap();
            }
        });
        assert!(matches!(error, Error::Damaged { .. }), "byte {byte}: {error}");
    }
}

#[test]
fn damage_to_one_copy_of_the_header_is_mended_from_the_other() {
    for copy in [0, 512] {
        for byte in 0..128 {
            let storage = MemoryStorage::new();
            let pool = create(&storage);
            pool.backend().store(ROOT, 5);
            pool.close().unwrap();
            let file = storage.open("pool", OpenMode::Write).unwrap();
            file.write_all_at(&[0xff], copy + byte).unwrap();
            assert_eq!(open(&storage).unwrap().backend().load(ROOT), 5, "copy {copy} byte {byte}");
            file.write_all_at(&[0xff], 512 - copy).unwrap();
            open(&storage).unwrap();
        }
    }
}

#[test]
fn of_two_whole_copies_of_the_header_the_later_one_counts() {
    for copy in [0, 512] {
        let storage = MemoryStorage::new();
        create(&storage).close().unwrap();
        let earlier = contents(&storage)[copy..copy + 128].to_vec();
        open(&storage).unwrap().close().unwrap();
        storage.open("pool", OpenMode::Write).unwrap().write_all_at(&earlier, copy as u64).unwrap();
        assert_eq!(open(&storage).unwrap().open_counter(), 3, "the copy at {copy} is the earlier one");
    }
}

#[test]
fn damage_cannot_bring_back_what_the_header_said_before() {
    for copy in [0, 512] {
        let storage = MemoryStorage::new();
        create(&storage).close().unwrap();
        drop(open(&storage).unwrap());
        storage.open("pool", OpenMode::Write).unwrap().write_all_at(&[0xff], copy + 40).unwrap();
        assert_eq!(open(&storage).unwrap().open_counter(), 3, "the copy at {copy} counted for what is open");
    }
}

#[test]
fn another_layout_is_refused() {
    let storage = MemoryStorage::new();
    create(&storage).close().unwrap();
    let before = contents(&storage);
    let other = Options { layout_id: 5, ..options() };
    let error = Pool::<Traced>::open(&storage, "pool", &other).unwrap_err();
    assert!(matches!(error, Error::OtherLayout { found: LAYOUT, expected: 5, .. }), "{error}");
    assert_eq!(contents(&storage), before);
}

#[test]
fn a_pool_that_is_found_and_not_taken_stays_as_it_is() {
    let storage = MemoryStorage::new();
    create(&storage).close().unwrap();
    let before = contents(&storage);
    let found: Found<Traced> = Pool::find(&storage, "pool", &options()).unwrap();
    assert_eq!((found.pool().backend().load(ROOT), found.pool().open_counter()), (0, 1));
    assert!(matches!(open(&storage), Err(Error::Locked { .. })), "it is nobody else's meanwhile");
    drop(found);
    assert!(contents(&storage) == before);
    // Includes an acquisition that a kill interrupted.
    let pool = open(&storage).unwrap();
    let mut intent = pool.intent();
    intent.acquire(64, ROOT).unwrap();
    std::mem::forget(intent);
    drop(pool);
    let before = contents(&storage);
    drop(Pool::<Traced>::find(&storage, "pool", &options()).unwrap());
    assert!(contents(&storage) == before);
    let found = Pool::<Traced>::find(&storage, "pool", &options()).unwrap();
    // Otherwise state of the previous session would count as of the present one.
    assert_eq!(found.rehearse().unwrap().open_counter(), 3);
    let taken = found.take().unwrap();
    assert_eq!(taken.open_counter(), 3);
    taken.visit_blocks(|block, _| panic!("{block} is acquired")).unwrap();
}

/// It names a linked block, so nothing would be freed.
#[test]
fn an_intent_in_a_pool_that_was_closed_is_damage() {
    let storage = MemoryStorage::new();
    let pool = create(&storage);
    let mut intent = pool.intent();
    let block = intent.acquire(64, ROOT).unwrap();
    pool.backend().store(ROOT, block);
    intent.finish();
    pool.close().unwrap();
    let file = storage.open("pool", OpenMode::Write).unwrap();
    let slot = 4096 + 128;
    file.write_all_at(&ROOT.to_le_bytes(), slot).unwrap();
    file.write_all_at(&block.to_le_bytes(), slot + 8).unwrap();
    drop(file);
    let before = contents(&storage);
    let error = open(&storage).unwrap_err();
    assert!(matches!(error, Error::Damaged { offset, .. } if offset == slot), "{error}");
    assert!(contents(&storage) == before);
}

/// The second line behind the root word leads to the newest page of descriptors.
const DESCRIPTOR_PAGES: u64 = ROOT + 128;

/// An intent or a descriptor that a crash has left names the page of descriptors.
#[test]
fn a_page_of_the_pools_own_that_is_to_be_freed_is_found_before_a_pool_is_taken() {
    let storage = MemoryStorage::new();
    let pool = create(&storage);
    let guard = pool.pin();
    let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
    let of_descriptor = descriptor.acquire(64).unwrap();
    std::mem::forget(descriptor);
    drop(guard);
    let mut intent = pool.intent();
    let of_intent = intent.acquire(64, ROOT).unwrap();
    // The link lies in a block that is free when the descriptor is settled, whatever it holds.
    let linked_by_dead = intent.acquire(64, of_descriptor).unwrap();
    std::mem::forget(intent);
    let page = pool.backend().load(DESCRIPTOR_PAGES);
    assert!(page > 8192);
    pool.backend().store(of_descriptor, page);
    drop(pool);
    let sound = contents(&storage);
    let (words, _) = sound.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    // The low bits of a descriptor's entry say that the block is acquired.
    for (named, flags) in [(of_descriptor, 1), (of_intent, 0), (linked_by_dead, 0)] {
        let places = (0..words.len()).filter(|&place| words[place] == named | flags);
        let [place] = places.collect::<Vec<_>>()[..] else { panic!("{named} is named once") };
        let file = storage.open("pool", OpenMode::Write).unwrap();
        file.write_all_at(&(page | flags).to_le_bytes(), place as u64 * 8).unwrap();
        let before = contents(&storage);
        let error = open(&storage).unwrap_err();
        assert!(matches!(error, Error::Damaged { offset, .. } if offset == page), "{error}");
        assert!(contents(&storage) == before);
        file.write_all_at(&sound, 0).unwrap();
    }
    open(&storage).unwrap();
}

/// The link of an intent lies in a damaged chunk. Only settling the intent reads it.
#[test]
fn damage_that_settling_would_meet_is_found_before_a_pool_is_taken() {
    let storage = MemoryStorage::new();
    let pool = create(&storage);
    let mut intent = pool.intent();
    let node = intent.acquire(64, ROOT).unwrap();
    pool.backend().store(ROOT, node);
    intent.finish();
    let mut intent = pool.intent();
    intent.acquire(900, node).unwrap();
    std::mem::forget(intent);
    drop(pool);
    storage.open("pool", OpenMode::Write).unwrap().write_all_at(&77u64.to_le_bytes(), 8192).unwrap();
    let before = contents(&storage);
    let error = open(&storage).unwrap_err();
    assert!(matches!(error, Error::Damaged { offset: 8192, .. }), "{error}");
    assert!(contents(&storage) == before);
}

#[test]
fn impossible_chunk_lengths_and_no_name_are_refused_before_a_file_is_made() {
    let storage = MemoryStorage::new();
    for chunk_length in [0, 1, 4095, 6144, 1 << 31] {
        let wanted = Options { chunk_length, ..options() };
        let error = Pool::<Traced>::create(&storage, "pool", &wanted).unwrap_err();
        assert!(matches!(error, Error::Unsuitable { .. }), "{error}");
    }
    let nameless = Pool::<Traced>::create(&storage, "", &options()).unwrap_err();
    assert!(nameless.to_string().contains("its name is empty"), "{nameless}");
    assert!(storage.list("").unwrap().is_empty());
}

#[test]
fn ranges_that_a_pool_names_are_checked() {
    let storage = MemoryStorage::new();
    let pool = create(&storage);
    pool.check_range(ROOT, 8).unwrap();
    for (offset, length) in [(0, 8), (8192, 8), (ROOT + 1, 8), (u64::MAX - 7, 16)] {
        let error = pool.check_range(offset, length).unwrap_err();
        assert!(matches!(error, Error::Damaged { offset: at, .. } if at == offset), "{error}");
    }
}
