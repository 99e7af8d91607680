//! Threads that stop while they change words. Others continue with the same words, and with the
//! blocks that contain them.

use std::sync::{Arc, Mutex, mpsc};

use crate::pmwcas::create;
use terrane_pmem::interrupting::{At, Interrupting, Stopped, interrupt};
use terrane_pmem::pmwcas::{Descriptor, compare_exchange, read};
use terrane_pmem::{Backend, INTENT_BLOCKS, Options, PersistenceDomain, Pool, Site};
use terrane_testkit::crash::{Budget, Controller, NameOrder};

const SITE: Site = Site::new("test");

const BUDGET: Budget = Budget { exhaustive_pending: 8, samples: 20, name_order: NameOrder::AnySubset };

fn options() -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::Adr) }
}

/// One thread changes 0 to 7 and stops. Another one, if it sees that by now, changes 7 to 9. A
/// third one begins to change 9 to 7 and stops too; then the first one continues. A value that is
/// read after that survives a power loss.
#[test]
fn what_is_read_of_a_value_that_comes_back_survives_a_power_loss() {
    let mut came_back = 0;
    for first in 0.. {
        let mut second = 0;
        let was_interrupted = loop {
            let controller = Controller::new();
            let (pool, words) = create::<Interrupting>(&*controller.storage(), &options(), 1);
            let (pool, word) = (Arc::new(pool), words[0]);
            let third: Arc<Mutex<Option<Stopped>>> = Arc::default();
            let (others, stopped) = (pool.clone(), third.clone());
            let to_and_fro = move || {
                let back = others.clone();
                let forth = move || compare_exchange(&others, word, 7, 9, &others.pin()).unwrap();
                if std::thread::spawn(forth).join().unwrap() == Ok(7) {
                    let back = move || assert_eq!(compare_exchange(&back, word, 9, 7, &back.pin()).unwrap(), Ok(9));
                    *stopped.lock().unwrap() = Some(Stopped::start(At::Change, second, back));
                }
            };
            let change = || compare_exchange(&pool, word, 0, 7, &pool.pin()).unwrap();
            let (outcome, was_interrupted) = interrupt(At::Change, first, to_and_fro, change);
            assert_eq!(outcome, Ok(0));
            let seen = read(&pool, word, &pool.pin()).unwrap();
            let cut = controller.events();
            let has_stopped = Stopped::end(third.lock().unwrap().take()) == [true];
            for image in controller.images(cut, &BUDGET, 1) {
                let pool: Pool<Interrupting> = Pool::open(&*image.storage(), "pool", &options()).unwrap();
                let left = read(&pool, word, &pool.pin()).unwrap();
                assert_eq!(left, seen, "stopped after {first} and {second} changes: {image:?}");
            }
            if !has_stopped {
                break was_interrupted;
            }
            came_back += 1;
            second += 1;
        };
        if !was_interrupted {
            break;
        }
    }
    assert!(came_back > 10, "{came_back}");
}

/// A guard in a thread of its own, until the other end is dropped.
struct Guarded(mpsc::Sender<()>, std::thread::JoinHandle<()>);

impl Guarded {
    fn start(pool: &Arc<Pool<Interrupting>>) -> Self {
        let ((leave, left), (enter, entered)) = (mpsc::channel(), mpsc::channel());
        let pool = pool.clone();
        let thread = std::thread::spawn(move || {
            let _guard = pool.pin();
            drop::<mpsc::Sender<()>>(enter);
            let _ = left.recv();
        });
        let _ = entered.recv();
        Self(leave, thread)
    }

    fn end(self) {
        drop(self.0);
        self.1.join().unwrap();
    }
}

/// The operation that unlinks a block is retired before an earlier one that has a word in it, whose
/// owner stopped when it was complete. New owners of blocks may store in them what the word held
/// meanwhile, and recovery would mistake it for that.
#[test]
fn a_block_is_not_given_out_while_recovery_would_meet_a_descriptor_with_a_word_in_it() {
    const LENGTH: u64 = 1024;
    let controller = Controller::new();
    let (pool, words) = create::<Interrupting>(&*controller.storage(), &options(), INTENT_BLOCKS as u64 + 1);
    let (pool, link) = (Arc::new(pool), words[INTENT_BLOCKS]);
    let fill = |block: u64, value: u64| {
        (block..block + LENGTH).step_by(8).for_each(|word| pool.backend().store(word, value));
        pool.backend().persist(block..block + LENGTH, SITE);
    };
    let block = {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        let block = descriptor.acquire(LENGTH).unwrap();
        fill(block, 1 << 3);
        descriptor.swap(link, 0, block).unwrap();
        assert!(descriptor.execute().unwrap());
        block
    };
    let (of_owner, word) = (pool.clone(), block + 8);
    let owner = Stopped::start(At::Fence("pmwcas.install"), 0, move || {
        let guard = of_owner.pin();
        let mut descriptor = Descriptor::new(&of_owner, &guard).unwrap();
        descriptor.swap(word, 1 << 3, 2 << 3).unwrap();
        assert!(descriptor.execute().unwrap());
    });
    let held_meanwhile = pool.backend().load(word);
    owner.resume_until(At::Fence("pmwcas.complete"), 0);
    {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        descriptor.swap(link, block, 0).unwrap();
        descriptor.release(block).unwrap();
        assert!(descriptor.execute().unwrap());
    }
    pool.reclaim().unwrap();
    let first = Guarded::start(&pool);
    assert_eq!(Stopped::end([owner]), [true]);
    pool.reclaim().unwrap();
    let second = Guarded::start(&pool);
    first.end();
    pool.reclaim().unwrap();

    let mut intent = pool.intent();
    let blocks: Vec<u64> = words[..INTENT_BLOCKS].iter().map(|link| intent.acquire(LENGTH, *link).unwrap()).collect();
    for (&block, &link) in blocks.iter().zip(&words) {
        fill(block, held_meanwhile);
        pool.backend().store(link, block);
        pool.backend().persist(link..link + 8, SITE);
    }
    intent.finish();
    for image in controller.images(controller.events(), &BUDGET, 1) {
        let pool: Pool<Interrupting> = Pool::open(&*image.storage(), "pool", &options()).unwrap();
        let mut stored = blocks.iter().flat_map(|block| (*block..block + LENGTH).step_by(8));
        assert!(stored.all(|word| pool.backend().load(word) == held_meanwhile), "{image:?}");
    }

    second.end();
    pool.reclaim().unwrap();
    assert!(!blocks.contains(&block));
    assert_eq!(pool.intent().acquire(LENGTH, words[0]).unwrap(), block, "it is given out when all is forgotten");
}
