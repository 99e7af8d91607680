//! Acquiring and releasing blocks without crashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_pmem::{
    Backend, Error, INTENT_BLOCKS, Intent, LINE_LENGTH, Native, Options, PersistenceDomain, Pool, ROOT, Site, Traced,
};
use terrane_storage::{Operation, RealStorage, Storage};
use terrane_testkit::{Call, Fault, FaultPlan, FaultyStorage, MemoryStorage};

const SITE: Site = Site::new("test");

fn options(chunk_length: u64) -> Options {
    Options { chunk_length, address_space: 1 << 26, ..Options::new(1, PersistenceDomain::PageCache) }
}

fn create<B: Backend>(storage: &dyn Storage, chunk_length: u64) -> Pool<B> {
    Pool::create(storage, "pool", &options(chunk_length)).unwrap()
}

/// Acquires a block that a new table word links to, below the block's own first word.
fn push<B: Backend>(pool: &Pool<B>, length: u64) -> Result<u64, Error> {
    push_aligned(pool, length, LINE_LENGTH)
}

fn push_aligned<B: Backend>(pool: &Pool<B>, length: u64, alignment: u64) -> Result<u64, Error> {
    let mut intent = pool.intent();
    let block = intent.acquire_aligned(length, alignment, ROOT)?;
    let backend = pool.backend();
    backend.store(block, backend.load(ROOT));
    backend.persist(block..block + 8, SITE);
    backend.store(ROOT, block);
    backend.persist(ROOT..ROOT + 8, SITE);
    intent.finish();
    Ok(block)
}

fn pop<B: Backend>(pool: &Pool<B>) -> u64 {
    let backend = pool.backend();
    let block = backend.load(ROOT);
    let mut intent = pool.intent();
    intent.release(block, ROOT).unwrap();
    backend.store(ROOT, backend.load(block));
    backend.persist(ROOT..ROOT + 8, SITE);
    intent.finish();
    block
}

fn blocks<B: Backend>(pool: &Pool<B>) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    pool.visit_blocks(|offset, length| assert!(found.insert(offset, length).is_none())).unwrap();
    found
}

#[test]
fn blocks_are_whole_lines_and_do_not_overlap() {
    let pool: Pool<Traced> = create(&MemoryStorage::new(), 1 << 14);
    let lengths = [1, 64, 65, 100, 256, 1000, 4096, pool.block_length_max()];
    let acquired: BTreeMap<u64, u64> =
        lengths.iter().cycle().take(200).map(|&length| (push(&pool, length).unwrap(), length)).collect();
    assert_eq!(acquired.len(), 200);
    let mut end = 0;
    for (&offset, &length) in &acquired {
        assert!(offset.is_multiple_of(LINE_LENGTH) && offset >= end, "{offset} before {end}");
        end = offset + length.next_multiple_of(LINE_LENGTH);
    }
    assert!(end <= pool.length());
    let expected = acquired.into_iter().map(|(offset, length)| (offset, length.next_multiple_of(LINE_LENGTH)));
    assert_eq!(blocks(&pool), expected.collect());
}

#[test]
fn aligned_blocks_begin_at_multiples_also_after_the_pool_was_opened_again() {
    let storage = MemoryStorage::new();
    let mut pool: Pool<Traced> = create(&storage, 1 << 16);
    let alignments = [64, 128, 256, 512, 1024, 2048, 4096];
    let mut expected = BTreeMap::new();
    for length in [1, 300, 4096, 9000] {
        for alignment in alignments {
            let block = push_aligned(&pool, length, alignment).unwrap();
            assert!(block.is_multiple_of(alignment), "{block} for {alignment}");
            expected.insert(block, length.next_multiple_of(alignment));
        }
        drop(pool);
        pool = Pool::open(&storage, "pool", &options(1 << 16)).unwrap();
        assert_eq!(blocks(&pool), expected);
    }
    for wrong in [0, 8, 32, 65, 192, 8192] {
        assert!(matches!(push_aligned(&pool, 64, wrong), Err(Error::Unsuitable { .. })), "{wrong}");
    }
    (0..expected.len()).for_each(|_| assert!(expected.remove(&pop(&pool)).is_some()));
    assert_eq!(blocks(&pool), expected);
}

#[test]
fn what_nothing_reaches_is_freed_and_given_out_again() {
    let storage = MemoryStorage::new();
    let mut pool: Pool<Traced> = create(&storage, 1 << 14);
    let acquired: Vec<u64> = (0..20).map(|_| push(&pool, 256).unwrap()).collect();
    let reached = acquired.iter().copied().step_by(2).collect();
    assert_eq!(pool.free_unreached(&reached).unwrap(), 10);
    assert!(blocks(&pool).into_keys().eq(acquired.iter().copied().step_by(2)));
    let again: Vec<u64> = (0..10).map(|_| push(&pool, 256).unwrap()).collect();
    assert!(again.iter().all(|block| !reached.contains(block)));
    assert_eq!(blocks(&pool).len(), 20);
}

#[test]
fn lengths_that_no_chunk_holds_are_refused() {
    let pool: Pool<Traced> = create(&MemoryStorage::new(), 4096);
    for length in [0, pool.block_length_max() + 1, u64::MAX] {
        let error = push(&pool, length).unwrap_err();
        assert!(matches!(error, Error::BlockLength { .. }), "{error}");
    }
    assert_eq!(pool.length(), 8192, "it did not grow for that");
}

fn freed_space_is_reused<B: Backend>(storage: &dyn Storage) {
    let mut pool: Pool<B> = create(storage, 4096);
    let fill = |pool: &Pool<B>| (0..300).for_each(|_| _ = push(pool, 64).unwrap());
    fill(&pool);
    let length = pool.length();
    for round in 0..5 {
        (0..300).for_each(|_| _ = pop(&pool));
        assert!(blocks(&pool).is_empty());
        if round % 2 == 0 {
            drop(pool);
            pool = Pool::open(storage, "pool", &options(4096)).unwrap();
        }
        fill(&pool);
        assert_eq!(blocks(&pool).len(), 300);
        assert_eq!(pool.length(), length, "round {round}");
    }
}

#[test]
fn freed_space_is_reused_in_the_same_session_and_in_later_ones() {
    freed_space_is_reused::<Traced>(&MemoryStorage::new());
    let directory = crate::support::directory();
    freed_space_is_reused::<Native>(&RealStorage::new(directory.path()));
}

#[test]
fn every_block_of_a_chunk_is_given_out_before_the_pool_grows() {
    const CHUNK: u64 = 1 << 14;
    let pool: Pool<Traced> = create(&MemoryStorage::new(), CHUNK);
    let grow = || {
        let (before, mut last) = (pool.length(), 0);
        while pool.length() == before {
            last = push(&pool, 64).unwrap();
        }
        last
    };
    let first = grow();
    let next = grow();
    // Bitmaps have four words, and a chunk's head is at most two lines.
    let given = blocks(&pool).range(first..next).count() as u64;
    assert!(given >= CHUNK / LINE_LENGTH - 2, "{given} blocks");
}

#[test]
fn a_chunk_that_was_emptied_takes_blocks_of_another_length_in_a_later_session() {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = create(&storage, 4096);
    let block = push(&pool, 1024).unwrap();
    for word in (block..block + 1024).step_by(8) {
        pool.backend().store(word, if word == block { 0 } else { u64::MAX });
    }
    pop(&pool);
    drop(pool);
    let pool: Pool<Traced> = Pool::open(&storage, "pool", &options(4096)).unwrap();
    let length = pool.length();
    let count = (0..).take_while(|_| push(&pool, 64).is_ok() && pool.length() == length).count();
    assert!(count > 55, "{count} blocks in one chunk");
}

/// No bit of the first word of its bitmap is set.
#[test]
fn a_chunk_whose_first_blocks_are_free_is_not_taken_for_empty() {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = create(&storage, 1 << 14);
    let chain: Vec<u64> = (0..200).map(|_| push(&pool, 64).unwrap()).collect();
    // Each block links the one before it.
    for pair in chain[..65].windows(2) {
        let (block, link) = (pair[0], pair[1]);
        let mut intent = pool.intent();
        intent.release(block, link).unwrap();
        pool.backend().store(link, 0);
        intent.finish();
    }
    pool.close().unwrap();
    let pool: Pool<Traced> = Pool::open(&storage, "pool", &options(1 << 14)).unwrap();
    let new = push(&pool, 64).unwrap();
    let expected = chain[64..].iter().chain([&new]).map(|&block| (block, 64)).collect();
    assert_eq!(blocks(&pool), expected);
}

#[test]
fn blocks_of_earlier_sessions_are_not_handed_out_again() {
    let storage = MemoryStorage::new();
    let mut pool: Pool<Traced> = create(&storage, 4096);
    for session in 1..6 {
        (0..100).for_each(|_| _ = push(&pool, 64).unwrap());
        (0..20).for_each(|_| _ = pop(&pool));
        assert_eq!(blocks(&pool).len(), session * 80);
        drop(pool);
        pool = Pool::open(&storage, "pool", &options(4096)).unwrap();
    }
}

#[test]
fn an_intent_that_is_given_up_frees_what_was_not_linked() {
    let pool: Pool<Traced> = create(&MemoryStorage::new(), 4096);
    let kept = push(&pool, 64).unwrap();
    let mut intent = pool.intent();
    let outer = intent.acquire(64, ROOT).unwrap();
    let inner = intent.acquire(64, outer).unwrap();
    // A block that is not linked links nothing, whatever it contains.
    pool.backend().store(outer, inner);
    intent.release(kept, ROOT).unwrap();
    drop(intent);
    assert_eq!(blocks(&pool).into_keys().collect::<Vec<_>>(), [kept]);
}

#[test]
fn low_bits_of_a_link_are_the_structures_own() {
    let pool: Pool<Traced> = create(&MemoryStorage::new(), 4096);
    let mut intent = pool.intent();
    let block = intent.acquire(64, ROOT).unwrap();
    pool.backend().store(ROOT, block | 0x3f);
    intent.finish();
    assert_eq!(blocks(&pool).into_keys().collect::<Vec<_>>(), [block]);
}

#[test]
fn an_intent_names_so_many_blocks_and_no_more() {
    let pool: Pool<Traced> = create(&MemoryStorage::new(), 4096);
    let mut intent = pool.intent();
    (0..INTENT_BLOCKS).for_each(|_| _ = intent.acquire(64, ROOT).unwrap());
    let one_more = std::panic::AssertUnwindSafe(|| intent.acquire(64, ROOT));
    assert!(std::panic::catch_unwind(one_more).is_err());
}

#[test]
fn what_is_no_block_and_what_is_no_word_is_refused() {
    let pool: Pool<Traced> = create(&MemoryStorage::new(), 4096);
    let block = push(&pool, 128).unwrap();
    let mut intent = pool.intent();
    for (wrong, link) in
        [(block + 64, ROOT), (0, ROOT), (!63, ROOT), (4096, ROOT), (block, 0), (block, u64::MAX - 7), (block, 9)]
    {
        let error = intent.release(wrong, link).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{wrong} linked from {link}: {error}");
    }
    intent.finish();
    assert_eq!(blocks(&pool).len(), 1);
}

/// It would be given to two owners.
#[test]
fn a_block_that_is_released_twice_is_free_once() {
    let pool: Pool<Traced> = create(&MemoryStorage::new(), 4096);
    let unlink = || {
        pool.backend().store(ROOT, 0);
        pool.backend().persist(ROOT..ROOT + 8, SITE);
    };
    let is_free_once = |block: u64| {
        let (first, second) = (push(&pool, 64).unwrap(), push(&pool, 64).unwrap());
        assert!(first == block && second != block, "{first} and {second} after {block}");
        assert_eq!(blocks(&pool).len(), 2);
        [second, first].into_iter().for_each(|block| assert_eq!(pop(&pool), block));
    };
    let block = push(&pool, 64).unwrap();
    let mut intent = pool.intent();
    let other = intent.acquire(64, block + 8).unwrap();
    assert_ne!(other, block);
    intent.release(block, ROOT).unwrap();
    for link in [ROOT, block + 8] {
        let error = intent.release(block, link).unwrap_err();
        assert!(matches!(&error, Error::Damaged { offset, .. } if *offset == block), "{error}");
        assert!(error.to_string().contains("named twice"), "{error}");
    }
    unlink();
    intent.finish();
    is_free_once(block);
    // By two intents, since one would notice it.
    assert_eq!(push(&pool, 64).unwrap(), block);
    let intents = [pool.intent(), pool.intent()].map(|mut intent| {
        intent.release(block, ROOT).unwrap();
        intent
    });
    unlink();
    intents.into_iter().for_each(Intent::finish);
    is_free_once(block);
}

#[test]
fn a_full_disk_is_an_error_that_loses_nothing() {
    let memory = MemoryStorage::new();
    let pool: Pool<Traced> = create(&memory, 4096);
    memory.set_capacity(5 * 4096);
    let mut count = 0;
    let error = loop {
        match push(&pool, 512) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Storage(error) if error.is_storage_full()), "{error}");
    assert!(error.to_string().contains(&format!("{}:", pool.name())), "the name is the draft's: {error}");
    assert_eq!((count, blocks(&pool).len()), (21, 21));
    pop(&pool);
    push(&pool, 512).unwrap();
    push(&pool, 512).unwrap_err();
    memory.set_capacity(u64::MAX);
    push(&pool, 512).unwrap();
    assert_eq!(blocks(&pool).len(), 22);
}

fn pushes_up_to_the_end_of_its_address_space<B: Backend>(storage: &dyn Storage) {
    let short = Options { address_space: 5 * 4096, ..options(4096) };
    let mut pool: Pool<B> = Pool::create(storage, "pool", &short).unwrap();
    for _ in 0..2 {
        while blocks(&pool).len() < 21 {
            push(&pool, 512).unwrap();
        }
        // Each attempt has the same result.
        for _ in 0..2 {
            let error = push(&pool, 512).unwrap_err();
            assert!(matches!(error, Error::AddressSpace { wanted: 24576, reserved: 20480, .. }), "{error}");
            assert_eq!((pool.length(), blocks(&pool).len()), (20480, 21));
        }
        pop(&pool);
        drop(pool);
        pool = Pool::open(storage, "pool", &short).unwrap();
    }
    drop(pool);
    let pool: Pool<B> = Pool::open(storage, "pool", &options(4096)).unwrap();
    (0..4).for_each(|_| _ = push(&pool, 512).unwrap());
    assert_eq!((pool.length(), blocks(&pool).len()), (24576, 24));
}

/// For no pool, and for a complete one.
fn refuses_too_little_address_space<B: Backend>(storage: &dyn Storage) {
    let refused = |pool: terrane_pmem::Result<Pool<B>>, short: u64, expected: u64| match pool.unwrap_err() {
        Error::AddressSpace { wanted, reserved, .. } => assert_eq!((wanted, reserved), (expected, short)),
        other => panic!("{other}"),
    };
    let short = |address_space: u64| Options { address_space, ..options(4096) };
    for address_space in [0, 1, 8191] {
        refused(Pool::create(storage, "pool", &short(address_space)), address_space, 8192);
        assert!(!storage.exists("pool").unwrap() && !storage.exists("pool.new").unwrap());
    }
    let pool: Pool<B> = Pool::create(storage, "pool", &short(12288)).unwrap();
    push(&pool, 512).unwrap();
    drop(pool);
    for address_space in [0, 8192, 12287] {
        refused(Pool::open(storage, "pool", &short(address_space)), address_space, 12288);
    }
    let pool: Pool<B> = Pool::open(storage, "pool", &short(12288)).unwrap();
    assert_eq!(blocks(&pool).len(), 1);
}

#[test]
fn too_little_address_space_is_an_error_that_names_what_is_needed() {
    refuses_too_little_address_space::<Traced>(&MemoryStorage::new());
    let directory = crate::support::directory();
    refuses_too_little_address_space::<Native>(&RealStorage::new(directory.path()));
}

#[test]
fn address_space_that_ends_is_an_error_that_loses_nothing() {
    pushes_up_to_the_end_of_its_address_space::<Traced>(&MemoryStorage::new());
    let directory = crate::support::directory();
    pushes_up_to_the_end_of_its_address_space::<Native>(&RealStorage::new(directory.path()));
}

#[test]
fn growth_that_fails_at_any_call_leaves_a_pool_that_grows_later() {
    for at in 1..=3 {
        let faulty = FaultyStorage::new(Arc::new(MemoryStorage::new()));
        let pool: Pool<Traced> = create(&faulty, 4096);
        faulty.arm(FaultPlan { at, fault: Fault::Eio, persistent: false });
        let failed = push(&pool, 64).is_err();
        assert_eq!(failed, faulty.faults() > 0, "call {at}");
        push(&pool, 64).unwrap();
        assert_eq!(blocks(&pool).len(), if failed { 1 } else { 2 });
    }
}

/// A file system may check the space that it is asked for.
#[test]
fn growth_asks_for_the_space_of_the_new_chunk_alone() {
    let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()));
    let pool: Pool<Traced> = create(&storage, 4096);
    storage.record_calls();
    let mut lengths = vec![pool.length()];
    while lengths.len() < 5 {
        push(&pool, 512).unwrap();
        lengths.extend(Some(pool.length()).filter(|length| lengths.last() != Some(length)));
    }
    let is_allocation = |call: &Call| call.operation == Operation::Allocate;
    let calls: Vec<Call> = storage.recorded_calls().into_iter().filter(is_allocation).collect();
    let asked: Vec<_> = calls.iter().map(|call| (call.offset, call.length)).collect();
    let chunks: Vec<_> = lengths.windows(2).map(|pair| (Some(pair[0]), Some(4096))).collect();
    assert_eq!(asked, chunks);
}

#[test]
fn a_damaged_chunk_and_a_damaged_intent_are_errors() {
    let storage = MemoryStorage::new();
    let pool: Pool<Traced> = create(&storage, 4096);
    push(&pool, 64).unwrap();
    drop(pool);
    let damage = |offset: u64, word: u64| {
        let file = storage.open("pool", terrane_storage::OpenMode::Write).unwrap();
        file.write_all_at(&word.to_le_bytes(), offset).unwrap();
    };
    damage(8192, 65);
    let pool: Pool<Traced> = Pool::open(&storage, "pool", &options(4096)).unwrap();
    let error = push(&pool, 64).unwrap_err();
    assert!(matches!(error, Error::Damaged { offset: 8192, .. }), "{error}");
    drop(pool);
    damage(8192, 64);
    damage(4096 + 8, 77);
    let counter = |storage: &MemoryStorage| {
        let mut bytes = [0; 8];
        let file = storage.open("pool", terrane_storage::OpenMode::Read).unwrap();
        file.read_exact_at(&mut bytes, 48).unwrap();
        bytes
    };
    let before = counter(&storage);
    let error = Pool::<Traced>::open(&storage, "pool", &options(4096)).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert_eq!(counter(&storage), before, "a damaged pool is left as it is");
}

/// Each thread has its own list, with the head in a block of its own.
#[test]
fn many_threads_get_different_blocks() {
    const THREADS: u64 = 8;
    let directory = crate::support::directory();
    let storage = RealStorage::new(directory.path());
    let pool: Pool<Native> = create(&storage, 1 << 14);
    let heads = push(&pool, THREADS * 8).unwrap();
    (1..THREADS).for_each(|thread| pool.backend().store(heads + thread * 8, 0));
    pool.backend().store(heads, 0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                let (backend, head) = (pool.backend(), heads + thread * 8);
                for round in 0..3000u64 {
                    let mut intent = pool.intent();
                    let first = backend.load(head);
                    if first != 0 && (round * 7 + thread) % 5 < 2 {
                        assert_eq!(backend.load(first + 8), thread, "somebody else wrote into the block");
                        intent.release(first, head).unwrap();
                        backend.store(head, backend.load(first));
                    } else {
                        let block = intent.acquire(64 * (1 + round % 3), head).unwrap();
                        backend.store(block, first);
                        backend.store(block + 8, thread);
                        backend.persist(block..block + 16, SITE);
                        backend.store(head, block);
                    }
                    backend.persist(head..head + 8, SITE);
                    intent.finish();
                }
            });
        }
    });
    let mut linked = vec![heads];
    for thread in 0..THREADS {
        let mut block = pool.backend().load(heads + thread * 8);
        while block != 0 {
            assert_eq!(pool.backend().load(block + 8), thread);
            linked.push(block);
            block = pool.backend().load(block);
        }
    }
    linked.sort_unstable();
    assert_eq!(blocks(&pool).into_keys().collect::<Vec<_>>(), linked);
}
