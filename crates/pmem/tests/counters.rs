//! The counts of operations.

use terrane_pmem::{
    Backend, COMBINED_BLOCKS, Counted, Counters, Eviction, LINE_LENGTH, MEDIA_BLOCK_LENGTH, Options, PersistenceDomain,
    Pool, ROOT, Site, Traced,
};
use terrane_testkit::MemoryStorage;

const SITE: Site = Site::new("test");
const LINE: u64 = LINE_LENGTH;

/// A pool whose first block is long, and an offset in it where blocks of the medium begin.
fn pool(domain: PersistenceDomain) -> (Pool<Counted<Traced>>, u64) {
    let options = Options { chunk_length: 1 << 17, address_space: 1 << 20, ..Options::new(1, domain) };
    let pool: Pool<Counted<Traced>> = Pool::create(&MemoryStorage::new(), "pool", &options).unwrap();
    let mut intent = pool.intent();
    let block = intent.acquire(1 << 16, ROOT).unwrap();
    pool.backend().store(ROOT, block);
    intent.finish();
    pool.backend().reset(1 << 20);
    (pool, block.next_multiple_of(MEDIA_BLOCK_LENGTH))
}

fn count(domain: PersistenceDomain, operation: impl FnOnce(&Counted<Traced>, u64)) -> Counters {
    let (pool, block) = pool(domain);
    operation(pool.backend(), block);
    pool.backend().take()
}

#[test]
fn stores_bits_and_lines_are_counted() {
    let counters = count(PersistenceDomain::Adr, |backend, block| {
        backend.store(block, 0xff);
        backend.store(block, 0x0f);
        backend.fetch_or(block + LINE, 1);
        backend.fetch_and(block + 2 * LINE, 0);
        backend.compare_exchange(block + 3 * LINE, 0, 3).unwrap();
        backend.compare_exchange(block + 4 * LINE, 1, 7).unwrap_err();
        backend.load(block + 5 * LINE);
    });
    let bits_flipped = 8 + 4 + 1 + 2;
    // Six lines of two blocks come into the cache, one of them only to be stored to.
    let (lines_loaded, media_blocks_read) = (6, 2);
    let expected =
        Counters { stores: 5, bits_flipped, lines_read: 5, lines_loaded, media_blocks_read, ..Counters::default() };
    assert_eq!(counters, expected);
    assert_eq!(counters.bytes_stored(), 40);
}

#[test]
fn flushes_are_counted_by_line_and_those_repeated_soon_as_such() {
    let counters = count(PersistenceDomain::Adr, |backend, block| {
        backend.persist(block..block + 2 * LINE, SITE);
        // First one other flush is in between, then none, then two.
        backend.persist(block..block + 8, SITE);
        backend.flush(block..block + 8, SITE);
        backend.flush(block + 2 * LINE..block + 4 * LINE, SITE);
        backend.persist(block..block + 8, SITE);
    });
    let expected = Counters { flushes: 7, lines_flushed: 4, reflushes: 2, fences: 3, ..Counters::default() };
    assert_eq!(counters, expected);
}

#[test]
fn where_caches_are_durable_only_fences_are_counted() {
    let counters = count(PersistenceDomain::Eadr, |backend, block| backend.persist(block..block + 4 * LINE, SITE));
    assert_eq!(counters, Counters { fences: 1, ..Counters::default() });
}

#[test]
fn each_operation_counts_its_own_lines() {
    let (pool, block) = pool(PersistenceDomain::Adr);
    let mut total = Counters::default();
    for _ in 0..3 {
        pool.backend().load(block);
        pool.backend().persist(block..block + 8, SITE);
        let counters = pool.backend().take();
        assert_eq!((counters.lines_read, counters.lines_flushed, counters.fences), (1, 1, 1));
        total += counters;
    }
    assert_eq!((total.lines_read, total.flushes, total.reflushes), (3, 3, 2));
}

#[test]
fn lines_of_a_block_are_combined_and_clean_lines_are_not_written() {
    let counters = count(PersistenceDomain::Adr, |backend, block| {
        for line in (block..block + 2 * MEDIA_BLOCK_LENGTH).step_by(LINE as usize) {
            backend.store(line, 1);
            backend.persist(line..line + 8, SITE);
            backend.persist(line..line + 8, SITE);
        }
        backend.persist(block + 4 * MEDIA_BLOCK_LENGTH..block + 5 * MEDIA_BLOCK_LENGTH, SITE);
        backend.drain_media();
    });
    assert_eq!((counters.media_blocks, counters.media_bytes(), counters.lines_evicted), (2, 512, 0));
}

#[test]
fn a_block_is_written_when_the_buffer_needs_its_room() {
    for (others, written) in [(COMBINED_BLOCKS as u64 - 1, 0), (COMBINED_BLOCKS as u64, 1)] {
        let counters = count(PersistenceDomain::Adr, |backend, block| {
            for number in 0..=others {
                let line = block + number * MEDIA_BLOCK_LENGTH;
                backend.store(line, 1);
                backend.persist(line..line + 8, SITE);
            }
        });
        assert_eq!(counters.media_blocks, written, "{others} other blocks");
    }
}

#[test]
fn a_full_cpu_cache_writes_back_what_nobody_flushed() {
    let (pool, block) = pool(PersistenceDomain::Adr);
    pool.backend().reset(4 * LINE);
    pool.backend().store(block, 1);
    (0..4).for_each(|line| _ = pool.backend().load(block + line * LINE));
    assert_eq!(pool.backend().take().lines_evicted, 0);
    pool.backend().load(block + 4 * LINE);
    assert_eq!(pool.backend().take().lines_evicted, 1);
    pool.backend().load(block + 5 * LINE);
    assert_eq!(pool.backend().take().lines_evicted, 0, "a clean line leaves no trace");
    pool.backend().drain_media();
    assert_eq!(pool.backend().take().media_blocks, 1);
}

#[test]
fn a_flush_is_no_use_of_a_line_and_what_is_drained_is_evicted() {
    let (pool, block) = pool(PersistenceDomain::Adr);
    let backend = pool.backend();
    backend.reset(2 * LINE);
    [0, LINE].into_iter().for_each(|line| backend.store(block + line, 1));
    backend.persist(block..block + 8, SITE);
    // The flushed line, which is clean, is the least recently used one.
    backend.load(block + 2 * LINE);
    assert_eq!(backend.take().lines_evicted, 0);
    backend.drain_media();
    assert_eq!(backend.take().lines_evicted, 1, "the dirty line was in the cache still");
}

/// Lines that were stored together leave an LRU cache together.
#[test]
fn random_eviction_separates_lines_that_were_stored_together() {
    const BLOCKS: u64 = 200;
    let written = |eviction| {
        let (pool, block) = pool(PersistenceDomain::Adr);
        // More blocks than the buffer in front of the medium has.
        pool.backend().reset_evicting(100 * MEDIA_BLOCK_LENGTH, eviction);
        for line in (0..BLOCKS * MEDIA_BLOCK_LENGTH).step_by(LINE as usize) {
            pool.backend().store(block + line, 1);
        }
        pool.backend().drain_media();
        pool.backend().take().media_blocks
    };
    assert_eq!(written(Eviction::Lru), BLOCKS);
    let random = written(Eviction::Random { seed: 1 });
    assert!(random > BLOCKS * 3 / 2, "{random}");
    assert_eq!(random, written(Eviction::Random { seed: 1 }));
}

#[test]
fn lines_of_a_block_that_are_read_in_succession_are_one_read_of_the_medium() {
    let (pool, block) = pool(PersistenceDomain::Adr);
    let backend = pool.backend();
    backend.reset(1 << 20);
    (0..4).for_each(|line| _ = backend.load(block + line * LINE));
    let first = backend.take();
    assert_eq!((first.lines_loaded, first.media_blocks_read, first.media_bytes_read()), (4, 1, 256));
    (0..4).for_each(|line| _ = backend.load(block + line * LINE));
    assert_eq!((backend.take().lines_loaded, backend.take().media_blocks_read), (0, 0), "they are cached");
}

/// The costs that decision 16 states for the allocator.
#[test]
fn an_acquisition_costs_two_flushes_and_a_fence_and_its_end_a_flush_a_line_and_a_fence() {
    let (pool, link) = pool(PersistenceDomain::Adr);
    // The first one takes a chunk.
    drop(pool.intent().acquire(1 << 10, link));
    for blocks in 1..=4 {
        pool.backend().take();
        let mut intent = pool.intent();
        for number in 0..blocks {
            let block = intent.acquire(1 << 10, link + number * 8).unwrap();
            pool.backend().store(link + number * 8, block);
        }
        let acquired = pool.backend().take();
        assert_eq!((acquired.flushes, acquired.fences, acquired.stores), (2 * blocks, blocks, 4 * blocks));
        intent.finish();
        let finished = pool.backend().take();
        assert_eq!((finished.flushes, finished.fences, finished.stores), (1, 1, blocks));

        let mut intent = pool.intent();
        for number in 0..blocks {
            intent.release(pool.backend().load(link + number * 8), link + number * 8).unwrap();
            pool.backend().store(link + number * 8, 0);
        }
        let released = pool.backend().take();
        assert_eq!((released.flushes, released.fences, released.stores), (blocks, blocks, 3 * blocks));
        intent.finish();
        let finished = pool.backend().take();
        assert_eq!((finished.flushes, finished.fences, finished.stores), (2, 2, 2 * blocks), "{blocks} blocks");
    }
}

/// The costs that decision 17 states for retiring.
#[test]
fn retiring_costs_a_flush_a_line_and_a_fence_and_its_later_end_is_shared() {
    let (pool, link) = pool(PersistenceDomain::Adr);
    let replace = || {
        let mut intent = pool.intent();
        let before = pool.backend().load(link);
        if before != 0 {
            intent.release(before, link).unwrap();
        }
        let block = intent.acquire(1 << 10, link).unwrap();
        pool.backend().store(link, block);
        intent
    };
    (0..10).for_each(|_| replace().retire(&pool.pin()));
    pool.reclaim().unwrap();
    let intents = (replace(), pool.pin());
    pool.backend().take();
    intents.0.retire(&intents.1);
    let retired = pool.backend().take();
    assert_eq!((retired.flushes, retired.fences, retired.stores), (1, 1, 2));
    drop(intents.1);
    for _ in 0..3 {
        replace().retire(&pool.pin());
    }
    pool.backend().take();
    drop(pool.pin());
    let pinned = pool.backend().take();
    assert_eq!(pinned, Counters::default(), "a reader does nothing to the pool");
    pool.reclaim().unwrap();
    let ended = pool.backend().take();
    assert_eq!((ended.fences, ended.stores), (2, 8), "four intents");
    assert!(ended.flushes <= 8, "{ended:?}");
    assert_eq!(pool.reclaim().map(|_| pool.backend().take()).unwrap(), Counters::default());
}
