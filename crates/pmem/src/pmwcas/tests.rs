//! Threads that stop in the middle of an operation, step by step: the effect on others, and what a
//! crash leaves.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use terrane_storage::OpenMode;
use terrane_testkit::crash::{Budget, Controller, Image};

use super::kernel::{self, Answer};
use super::layout::{DIRTY, conditional, entry_offset, installed};
use super::*;
use crate::{Counted, Counters, Dropping, Instruction, Options, PersistenceDomain, ROOT, Traced};

const SETUP: Site = Site::new("test");
pub(super) const BUDGET: Budget =
    Budget { exhaustive_pending: 14, samples: 200, name_order: terrane_testkit::crash::NameOrder::AnySubset };

/// Numbers of threads that are not this one.
pub(super) const OTHERS: [u64; 2] = [1000, 1001];

pub(super) fn options() -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::Adr) }
}

/// Words with the values 1, 2, 3, …, each in a line of its own.
pub(super) fn set_up<B: Backend>(pool: &Pool<B>, count: u64) -> Vec<u64> {
    let mut intent = pool.intent();
    let block = intent.acquire(count * LINE_LENGTH, ROOT).unwrap();
    let words: Vec<u64> = (0..count).map(|number| block + number * LINE_LENGTH).collect();
    for (word, value) in words.iter().zip(1..) {
        pool.backend().store(*word, value);
        pool.backend().persist(*word..*word + 8, SETUP);
    }
    pool.backend().store(ROOT, block);
    pool.backend().persist(ROOT..ROOT + 8, SETUP);
    intent.finish();
    words
}

pub(super) fn create(count: u64) -> (Arc<Controller>, Pool<Traced>, Vec<u64>) {
    let controller = Controller::new();
    let pool = Pool::create(&*controller.storage(), "pool", &options()).unwrap();
    let words = set_up(&pool, count);
    (controller, pool, words)
}

/// Writes an operation down as its owner does, and stops there. It adds `added` to each word.
pub(super) fn prepared<B: Backend>(pool: &Pool<B>, guard: &Guard<'_>, words: &[u64], added: u64) -> u64 {
    let mut descriptor = Descriptor::new(pool, guard).unwrap();
    for &word in words {
        let old = pool.backend().load(word);
        descriptor.swap(word, old, old + added).unwrap();
    }
    descriptor.begin();
    for (index, entry) in descriptor.entries.iter().enumerate() {
        entry.store(pool.backend(), descriptor.offset, index, descriptor.stamp);
    }
    descriptor.set_state(State::Undecided);
    let offset = descriptor.offset;
    pool.backend().persist(offset..entry_offset(offset, WORDS), SETUP);
    descriptor.stage = Stage::Executed;
    offset
}

/// Number of descriptors in the pool's pages.
fn descriptors<B: Backend>(pool: &Pool<B>) -> u64 {
    const A_PAGE: u64 = 20;
    let next = |page: &u64| Some(pool.backend().load(*page)).filter(|page| *page != 0);
    A_PAGE * std::iter::successors(next(&crate::pool::DESCRIPTOR_PAGES), next).count() as u64
}

/// Pages of descriptors stay. Their number follows the operations that are in use or wait for a
/// reader at the same time. Operations one after the other need one page, however many they are. A
/// reader that stays costs a descriptor for each operation during its life, once.
#[test]
fn descriptors_are_as_many_as_operations_that_a_guard_has_seen() {
    const SEEN: u64 = 500;
    /// Up to a page, and operations that wait for others to fill a batch.
    const MORE: u64 = 40;
    let pool: Pool<Traced> = Pool::create(&terrane_testkit::MemoryStorage::new(), "pool", &options()).unwrap();
    let word = set_up(&pool, 1)[0];
    let change = || {
        let guard = pool.pin();
        let old = read(&pool, word, &guard).unwrap();
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        descriptor.swap(word, old, old + 1).unwrap();
        assert!(descriptor.execute().unwrap());
    };
    (0..10 * SEEN).for_each(|_| change());
    assert!(descriptors(&pool) <= MORE, "{}", descriptors(&pool));
    for _ in 0..3 {
        let reader = pool.pin();
        (0..SEEN).for_each(|_| change());
        let while_read = descriptors(&pool);
        assert!((SEEN..SEEN + MORE).contains(&while_read), "{while_read}");
        drop(reader);
        (0..4 * SEEN).for_each(|_| change());
        assert_eq!(descriptors(&pool), while_read, "they are used again");
    }
}

pub(super) fn values<B: Backend>(pool: &Pool<B>, words: &[u64]) -> Vec<u64> {
    let guard = pool.pin();
    words.iter().map(|word| read(pool, *word, &guard).unwrap()).collect()
}

/// Opens every state that a power loss after all events can leave.
fn after_power_loss(controller: &Controller, check: impl Fn(&Pool<Traced>, &Image)) {
    for image in controller.images(controller.events(), &BUDGET, 1) {
        check(&Pool::open(&*image.storage(), "pool", &options()).unwrap(), &image);
    }
}

/// The power fails before the first fence of an operation on four words, and leaves its later lines
/// without the first one. Then each descriptor changes fewer words, and the left entries have the
/// stamp of its use.
#[test]
fn entries_of_an_operation_that_a_power_loss_kept_from_beginning_are_none_of_the_next_one() {
    for count in 1..WORDS {
        let (controller, pool, words) = create(WORDS as u64);
        {
            let guard = pool.pin();
            let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
            words.iter().zip(1..).for_each(|(&word, old)| descriptor.swap(word, old, old + 10).unwrap());
            let offset = descriptor.offset;
            for (index, entry) in descriptor.entries.iter().enumerate() {
                entry.store(pool.backend(), offset, index, descriptor.stamp);
            }
            pool.backend().persist(entry_offset(offset, 0)..entry_offset(offset, WORDS), SETUP);
        }
        after_power_loss(&controller, |pool, _| {
            let guard = pool.pin();
            let mut expected: Vec<u64> = (1..=WORDS as u64).collect();
            for number in 0..descriptors(pool) {
                let mut descriptor = Descriptor::new(pool, &guard).unwrap();
                for (word, old) in words.iter().zip(&mut expected).take(count) {
                    descriptor.swap(*word, *old, *old + 100).unwrap();
                    *old += 100;
                }
                assert!(descriptor.execute().unwrap());
                assert_eq!(values(pool, &words), expected, "{count} words, the descriptor with number {number}");
            }
        });
    }
}

#[test]
fn a_reader_completes_what_another_thread_has_begun() {
    for asked in [false, true] {
        let (controller, pool, words) = create(3);
        let guard = pool.pin();
        let stopped = prepared(&pool, &guard, &words, 10);
        let begun = if asked { conditional(stopped, 0, OTHERS[0]) } else { installed(stopped) };
        pool.backend().compare_exchange(words[0], 1, begun).unwrap();
        assert_eq!(values(&pool, &words), [11, 12, 13]);
        // Values that readers have seen stay, though nobody has completed the operation for its
        // owner.
        after_power_loss(&controller, |pool, image| assert_eq!(values(pool, &words), [11, 12, 13], "{image:?}"));
    }
}

#[test]
fn a_writer_completes_what_is_in_its_way() {
    let (_, pool, words) = create(3);
    let guard = pool.pin();
    let stopped = prepared(&pool, &guard, &words[1..], 10);
    pool.backend().compare_exchange(words[1], 2, conditional(stopped, 0, OTHERS[0])).unwrap();
    let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
    descriptor.swap(words[0], 1, 5).unwrap();
    descriptor.swap(words[1], 12, 6).unwrap();
    assert!(descriptor.execute().unwrap());
    assert_eq!(values(&pool, &words), [5, 6, 13]);
    assert_eq!(compare_exchange(&pool, words[2], 3, 4, &guard).unwrap(), Err(13));
}

#[test]
fn a_reader_returns_nothing_that_a_power_loss_takes_back() {
    let (controller, pool, words) = create(1);
    // As a thread leaves it that stops before it makes the value durable.
    pool.backend().store(words[0], 7 | DIRTY);
    assert_eq!(values(&pool, &words), [7]);
    after_power_loss(&controller, |pool, image| assert_eq!(values(pool, &words), [7], "{image:?}"));
}

/// Checks M4 at every instant, for the word alone: no descriptor could restore its value.
#[test]
fn a_value_without_a_mark_is_durable_in_its_word() {
    let (controller, pool, words) = create(3);
    let first = controller.events();
    {
        let guard = pool.pin();
        kernel::run(&pool, prepared(&pool, &guard, &words, 10), OTHERS[0]).unwrap();
        assert_eq!(values(&pool, &words), [11, 12, 13]);
        let mut failing = Descriptor::new(&pool, &guard).unwrap();
        failing.swap(words[0], 11, 21).unwrap();
        failing.swap(words[1], 99, 22).unwrap();
        assert!(!failing.execute().unwrap());
        // A reader meets the store of a stopped thread, and another one takes a question back.
        pool.backend().store(words[0], 7 | DIRTY);
        assert_eq!(values(&pool, &words), [7, 12, 13]);
        let late = prepared(&pool, &guard, &words[1..2], 10);
        kernel::run(&pool, late, OTHERS[0]).unwrap();
        compare_exchange(&pool, words[1], 22, 12, &guard).unwrap().unwrap();
        pool.backend().compare_exchange(words[1], 12, conditional(late, 0, OTHERS[1])).unwrap();
        assert_eq!(values(&pool, &words), [7, 12, 13]);
    }
    let in_word = |image: &Image, word| {
        let mut bytes = [0; 8];
        image.storage().open("pool", OpenMode::Read).unwrap().read_exact_at(&mut bytes, word).unwrap();
        u64::from_le_bytes(bytes)
    };
    let few = Budget { exhaustive_pending: 10, samples: 20, ..BUDGET };
    let mut checked = BTreeSet::new();
    for cut in first..=controller.events() {
        let running = controller.process_kill(cut);
        for (number, &word) in words.iter().enumerate() {
            let value = in_word(&running, word);
            if value & FLAGS == 0 {
                checked.insert((number, value));
                let lost = controller.images(cut, &few, 1).find(|image| in_word(image, word) & !DIRTY != value);
                assert!(lost.is_none(), "{value} in word {number} after {cut} events: {lost:?}");
            }
        }
    }
    assert_eq!(Vec::from_iter(checked), [(0, 1), (0, 7), (0, 11), (1, 2), (1, 12), (1, 22), (2, 3), (2, 13)]);
}

/// An operation that stopped before its decision. Another thread has asked to install it in the
/// first word, and this one has found the answer, but not given it yet.
fn asked<B: Backend>(pool: &Pool<B>, guard: &Guard<'_>, words: &[u64]) -> (u64, Answer) {
    let stopped = prepared(pool, guard, words, 10);
    let asking = conditional(stopped, 0, OTHERS[0]);
    pool.backend().compare_exchange(words[0], 1, asking).unwrap();
    (stopped, Answer::find(pool, asking).unwrap().unwrap())
}

/// Thread 1 sees that thread 2 asks, and that the operation is undecided. Then that succeeds,
/// others restore the old value, and thread 3, which was late, asks too.
#[test]
fn an_answer_from_before_the_decision_does_not_install_after_it() {
    let (controller, pool, words) = create(2);
    let backend = pool.backend();
    let guard = pool.pin();
    let (stopped, answer) = asked(&pool, &guard, &words);
    assert_eq!(values(&pool, &words), [11, 12]);
    compare_exchange(&pool, words[0], 11, 1, &guard).unwrap().unwrap();
    let asking_late = conditional(stopped, 0, OTHERS[1]);
    backend.compare_exchange(words[0], 1, asking_late).unwrap();
    answer.give(backend);
    assert_eq!(backend.load(words[0]), asking_late, "the answer was given to another question");
    after_power_loss(&controller, |pool, image| assert_eq!(values(pool, &words), [1, 12], "{image:?}"));
    assert_eq!(values(&pool, &words), [1, 12]);
    after_power_loss(&controller, |pool, image| assert_eq!(values(pool, &words), [1, 12], "{image:?}"));
}

/// The same where the operation fails, so that the word was never installed.
#[test]
fn an_answer_that_installs_after_a_failure_is_taken_back() {
    let (controller, pool, words) = create(2);
    let backend = pool.backend();
    let guard = pool.pin();
    let (stopped, answer) = asked(&pool, &guard, &words);
    let undecided = pool.status(stopped).unwrap();
    backend
        .compare_exchange(stopped, undecided.encode(), Status { state: State::Failed, ..undecided }.encode())
        .unwrap();
    answer.give(backend);
    assert_eq!(backend.load(words[0]), installed(stopped));
    after_power_loss(&controller, |pool, image| assert_eq!(values(pool, &words), [1, 2], "{image:?}"));
    kernel::run(&pool, stopped, OTHERS[1]).unwrap();
    assert_eq!(backend.load(words[0]), 1);
    // Now the descriptor may be reused, and no power loss brings it back into the word.
    guard.retire(crate::epoch::Retired::Descriptor(stopped));
    drop(guard);
    pool.reclaim().unwrap();
    assert!(pool.is_free(stopped).unwrap());
    after_power_loss(&controller, |pool, image| assert_eq!(values(pool, &words), [1, 2], "{image:?}"));
}

/// The other words may lie in blocks that were reused since, and hold anything.
#[test]
fn a_thread_that_meets_a_decided_operation_changes_no_other_word() {
    for (state, expected) in [(State::Succeeded, [11, 12]), (State::Failed, [1, 2])] {
        let (_, pool, words) = create(2);
        let guard = pool.pin();
        let stopped = prepared(&pool, &guard, &words, 10);
        words.iter().for_each(|word| pool.backend().store(*word, installed(stopped)));
        let status = pool.status(stopped).unwrap();
        pool.backend().store(stopped, Status { state, ..status }.encode());
        assert_eq!(read(&pool, words[0], &guard).unwrap(), expected[0]);
        assert_eq!(pool.backend().load(words[1]), installed(stopped), "{state:?}");
        assert_eq!(values(&pool, &words), expected);
    }
}

/// Damage of a word is reported to the operations that name it.
#[test]
fn a_helper_of_an_operation_with_a_damaged_word_continues() {
    let (_, pool, words) = create(3);
    let guard = pool.pin();
    let begun = |added: u64| {
        let stopped = prepared(&pool, &guard, &words[..2], added);
        let old = pool.backend().load(words[0]);
        pool.backend().compare_exchange(words[0], old, installed(stopped)).unwrap();
        // After its owner has read it.
        pool.backend().store(words[1], !0);
        stopped
    };
    let stopped = begun(10);
    assert_eq!(read(&pool, words[0], &guard).unwrap(), 1);
    assert_eq!(pool.status(stopped).unwrap().state, State::Failed);
    pool.backend().store(words[1], 2);
    begun(20);
    let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
    descriptor.swap(words[0], 1, 5).unwrap();
    descriptor.swap(words[2], 3, 6).unwrap();
    assert!(descriptor.execute().unwrap());
    assert!(read(&pool, words[1], &guard).is_err());
    assert_eq!([0, 2].map(|word: usize| read(&pool, words[word], &guard).unwrap()), [5, 6]);
}

/// A word and an entry that does not name it: neither would ever change the other.
#[test]
fn a_word_that_holds_a_descriptor_of_other_words_is_damaged() {
    let (_, pool, words) = create(3);
    let guard = pool.pin();
    let stopped = prepared(&pool, &guard, &words[..2], 10);
    for (word, held) in [
        (2, installed(stopped)),
        (2, conditional(stopped, 0, OTHERS[0])),
        (1, conditional(stopped, 0, OTHERS[0])),
        (1, conditional(stopped, 3, OTHERS[0])),
    ] {
        let before = pool.backend().load(words[word]);
        pool.backend().store(words[word], held);
        assert!(read(&pool, words[word], &guard).is_err(), "{held:#x} in word {word}");
        pool.backend().store(words[word], before);
    }
    assert_eq!(values(&pool, &words), [1, 2, 3]);
}

/// A stray store has put an operation into an early word. Each of the two holds the word that the
/// other one needs. A helper must not switch between them without end.
#[test]
fn helping_two_operations_that_block_each_other_ends() {
    let (_, pool, words) = create(2);
    let guard = pool.pin();
    let stopped = [0, 0].map(|_| prepared(&pool, &guard, &words, 10));
    for (word, descriptor) in words.iter().zip(stopped) {
        pool.backend().store(*word, installed(descriptor));
    }
    values(&pool, &words);
    assert!(stopped.iter().all(|descriptor| pool.status(*descriptor).unwrap().state != State::Undecided));
}

/// Two operations that take the same words in other orders would help each other without end.
#[test]
fn words_are_taken_in_the_order_of_their_places() {
    let (_, pool, words) = create(3);
    let guard = pool.pin();
    let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
    for at in [1, 2, 0] {
        descriptor.swap(words[at], at as u64 + 1, 10).unwrap();
    }
    let (offset, stamp) = (descriptor.offset, descriptor.stamp);
    assert!(descriptor.execute().unwrap());
    let entries = Entry::load_all(pool.backend(), offset, stamp);
    assert_eq!(entries.map(|(_, entry)| entry.address).collect::<Vec<_>>(), words);
}

/// A reader of the word would take it back as well, but not after the named descriptor was reused.
#[test]
fn a_question_that_a_kill_has_left_is_taken_back_when_the_pool_is_opened() {
    let (controller, pool, words) = create(2);
    let guard = pool.pin();
    let stopped = prepared(&pool, &guard, &words, 10);
    let backend = pool.backend();
    backend.compare_exchange(words[0], 1, conditional(stopped, 0, OTHERS[1])).unwrap();
    let killed = controller.process_kill(controller.events());
    let recovered: Pool<Traced> = Pool::open(&*killed.storage(), "pool", &options()).unwrap();
    assert_eq!([0, 1].map(|at: usize| recovered.backend().load(words[at])), [1, 2]);
}

/// A word of a completed operation belongs to another block's owner when power is lost, and holds
/// by chance what the descriptor's words held.
#[test]
fn descriptors_are_forgotten_before_blocks_that_were_retired_later_are_reused() {
    let (controller, pool, words) = create(2);
    let backend = pool.backend();
    let offset = {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        descriptor.swap(words[1], 2, 5).unwrap();
        let offset = descriptor.offset;
        assert!(descriptor.execute().unwrap());
        offset
    };
    // The descriptor waits with this thread. Another thread retires the block, and looks for
    // readers at once.
    let block = std::thread::scope(|scope| {
        let retire = || {
            let block = backend.load(ROOT);
            let mut intent = pool.intent();
            intent.release(block, ROOT).unwrap();
            backend.store(ROOT, 0);
            backend.persist(ROOT..ROOT + 8, SETUP);
            intent.retire(&pool.pin());
            pool.reclaim().unwrap();
            block
        };
        scope.spawn(retire).join().unwrap()
    });
    let mut intent = pool.intent();
    assert_eq!(intent.acquire(2 * LINE_LENGTH, ROOT).unwrap(), block);
    backend.store(words[1], installed(offset));
    backend.persist(words[1]..words[1] + 8, SETUP);
    backend.store(ROOT, block);
    backend.persist(ROOT..ROOT + 8, SETUP);
    intent.finish();
    after_power_loss(&controller, |pool, image| {
        assert_eq!(pool.backend().load(words[1]), installed(offset), "data was changed: {image:?}");
    });
}

/// Recovers from a crash after the decision. Gives whether the decision survives a power loss at
/// any instant of recovery, or later.
fn recovery_holds_without(dropped: Option<(Instruction, &str)>) -> bool {
    let controller = Controller::new();
    let pool: Pool<Dropping<Traced>> = Pool::create(&*controller.storage(), "pool", &options()).unwrap();
    let words = set_up(&pool, 3);
    let guard = pool.pin();
    let descriptors = [prepared(&pool, &guard, &words[..2], 10), prepared(&pool, &guard, &words[2..], 10)];
    let backend = pool.backend();
    for (word, descriptor) in [(words[0], descriptors[0]), (words[1], descriptors[0]), (words[2], descriptors[1])] {
        backend.store(word, installed(descriptor));
        backend.persist(word..word + 8, SETUP);
    }
    let undecided = pool.status(descriptors[0]).unwrap();
    backend.store(descriptors[0], Status { state: State::Succeeded, ..undecided }.encode());
    backend.persist(descriptors[0]..descriptors[0] + 8, SETUP);
    if let Some((instruction, site)) = dropped {
        backend.leave_out(instruction, site);
    }
    let first = controller.events();
    pool.recover_intents().unwrap();
    // The descriptors are reused.
    prepared(&pool, &guard, &words[..1], 10);
    prepared(&pool, &guard, &words[..1], 10);
    (first..=controller.events()).all(|cut| {
        controller.images(cut, &BUDGET, 1).all(|image| {
            let pool: Pool<Traced> = Pool::open(&*image.storage(), "pool", &options()).unwrap();
            catch_unwind(AssertUnwindSafe(|| values(&pool, &words))).is_ok_and(|values| values == [11, 12, 3])
        })
    })
}

#[test]
fn recovery_can_leave_out_no_flush_and_no_fence_of_the_words() {
    assert!(recovery_holds_without(None));
    for instruction in [Instruction::Flush, Instruction::Fence] {
        assert!(!recovery_holds_without(Some((instruction, "pmwcas.roll"))), "{instruction:?} can be left out");
    }
}

#[test]
fn misuse_is_noticed() {
    let (_, pool, words) = create(WORDS as u64 + 1);
    let guard = pool.pin();
    let (_, other, _) = create(1);
    let panics = |misuse: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(misuse)).is_err());
    let new = || Descriptor::new(&pool, &guard).unwrap();
    panics(&|| new().swap(words[0], DIRTY, 1).unwrap());
    panics(&|| new().swap(words[0], 1, 1 << 61).unwrap());
    panics(&|| _ = compare_exchange(&pool, words[0], 1, u64::MAX, &guard));
    panics(&|| _ = read(&pool, words[0], &other.pin()));
    panics(&|| _ = Descriptor::new(&pool, &other.pin()));
    panics(&|| _ = new().execute());
    panics(&|| {
        let mut descriptor = new();
        (0..2).for_each(|_| descriptor.swap(words[0], 1, 2).unwrap());
    });
    panics(&|| {
        let mut descriptor = new();
        words.iter().for_each(|word| descriptor.swap(*word, 1, 2).unwrap());
    });
    panics(&|| {
        let mut descriptor = new();
        (0..=DESCRIPTOR_BLOCKS).for_each(|_| _ = descriptor.acquire(64).unwrap());
    });
    assert!(new().swap(3, 1, 2).is_err() && new().swap(u64::MAX - 7, 1, 2).is_err());
    assert!(new().release(words[1]).is_err() && new().acquire(0).is_err());
}

#[test]
fn descriptors_are_added_as_needed_and_used_again() {
    let (_, pool, words) = create(1);
    let guard = pool.pin();
    let many: Vec<_> = (0..50).map(|_| Descriptor::new(&pool, &guard).unwrap()).collect();
    let length = pool.length();
    drop(many);
    drop(guard);
    for value in 1..500 {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        descriptor.swap(words[0], value, value + 1).unwrap();
        assert!(descriptor.execute().unwrap());
    }
    assert_eq!((values(&pool, &words), pool.length()), (vec![500], length));
}

/// The costs that decision 18 states.
#[test]
fn an_operation_costs_four_fences_and_a_flush_for_each_line_and_each_time_a_word_changes() {
    let pool: Pool<Counted<Traced>> = Pool::create(&*Controller::new().storage(), "pool", &options()).unwrap();
    let words = set_up(&pool, WORDS as u64);
    let operation = |count: usize, blocks: usize, added: u64| {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        (0..blocks).for_each(|_| _ = descriptor.acquire(64).unwrap());
        for &word in &words[..count] {
            let old = pool.backend().load(word);
            descriptor.swap(word, old + added, old + 1).unwrap();
        }
        descriptor.execute().unwrap()
    };
    operation(1, 0, 0);
    pool.reclaim().unwrap();
    for count in 1..=WORDS {
        pool.backend().take();
        assert!(operation(count, 0, 0));
        let counters = pool.backend().take();
        let lines = 1 + count.div_ceil(2) as u64;
        let count = count as u64;
        assert_eq!((counters.fences, counters.flushes), (4, lines + 2 * count + 1), "{count} words");
        // The state is stored twice before the decision, then each entry, and each word four times.
        assert_eq!(counters.stores, 3 + 4 * count + 4 * count, "{count} words");
        pool.reclaim().unwrap();
        let recycled = pool.backend().take();
        assert_eq!((recycled.fences, recycled.flushes, recycled.stores), (1, 1, 1));
    }
    pool.backend().take();
    assert!(!operation(2, 0, 9));
    let failed = pool.backend().take();
    assert_eq!((failed.fences, failed.flushes), (1, 2), "a failure at the first word");
    // The first block takes a chunk.
    assert!(operation(1, 1, 0));
    pool.reclaim().unwrap();
    pool.backend().take();
    let blocks = 3;
    assert!(operation(1, blocks as usize, 0));
    let acquired = pool.backend().take();
    assert_eq!((acquired.fences, acquired.flushes), (4 + blocks, 5 + 2 * blocks), "{blocks} blocks");
    let guard = pool.pin();
    read(&pool, words[0], &guard).unwrap();
    let value = pool.backend().load(words[0]);
    let reading = pool.backend().take();
    assert_eq!(reading, Counters { lines_read: 1, ..Counters::default() });
    compare_exchange(&pool, words[0], value, value + 1, &guard).unwrap().unwrap();
    let single = pool.backend().take();
    assert_eq!((single.fences, single.flushes, single.stores), (4, 5, 11), "as an operation on one word");
    assert_eq!(compare_exchange(&pool, words[0], value, value + 1, &guard).unwrap(), Err(value + 1));
    assert_eq!(pool.backend().take().stores, 0);
}
