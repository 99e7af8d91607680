//! Threads that move amounts between words of a pool, two words at a time. The sum is the same for
//! every reader and over every crash.

use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Native, Options, PersistenceDomain, Pool, ROOT, Site};
use terrane_storage::RealStorage;

const SITE: Site = Site::new("example");
const ACCOUNTS: u64 = 4;
const AMOUNT: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let storage = RealStorage::new(directory.path());
    let options = Options::new(1, PersistenceDomain::PageCache);
    let pool: Pool<Native> = Pool::create(&storage, "pool", &options)?;

    // A block with the words, which the pool's root word links. No other thread can reach them yet.
    let mut intent = pool.intent();
    let block = intent.acquire(ACCOUNTS * 8, ROOT)?;
    let words = [0, 1, 2, 3].map(|account| block + account * 8);
    words.iter().for_each(|word| pool.backend().store(*word, AMOUNT));
    pool.backend().persist(block..block + ACCOUNTS * 8, SITE);
    pool.backend().store(ROOT, block);
    pool.backend().persist(ROOT..ROOT + 8, SITE);
    intent.finish();

    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pool, from, to) = (&pool, words[thread], words[(thread + 1) % 4]);
            scope.spawn(move || (0..10_000).try_for_each(|_| transfer(pool, from, to, 1)).expect("the pool has room"));
        }
    });

    // Each account gave as much as it got.
    let guard = pool.pin();
    for word in words {
        assert_eq!(pmwcas::read(&pool, word, &guard)?, AMOUNT);
    }
    drop(guard);
    println!("40,000 transfers between {ACCOUNTS} words: each holds {AMOUNT} as before");
    Ok(pool.close()?)
}

/// Moves an amount, if the account has it, while other threads do so too.
fn transfer(pool: &Pool<Native>, from: u64, to: u64, amount: u64) -> terrane_pmem::Result<()> {
    loop {
        let guard = pool.pin();
        let (had, has) = (pmwcas::read(pool, from, &guard)?, pmwcas::read(pool, to, &guard)?);
        if had < amount {
            // Another thread is about to add to this account.
            std::thread::yield_now();
            continue;
        }
        let mut descriptor = Descriptor::new(pool, &guard)?;
        descriptor.swap(from, had, had - amount)?;
        descriptor.swap(to, has, has + amount)?;
        if descriptor.execute()? {
            return Ok(());
        }
    }
}
