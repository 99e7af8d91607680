//! Threads that come to a word after the operation that led them there was decided, or has ended.

use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::Controller;

use super::kernel::{self, Answer};
use super::layout::{CONDITIONAL, conditional, decode_conditional};
use super::tests::{BUDGET, OTHERS, create, options, prepared, set_up, values};
use super::*;
use crate::{Dropping, Instruction, Traced};

/// A late thread asks after the decision. Either another thread meets the question and takes it
/// back, or the late thread itself does; then nobody may read the word before the power loss. An
/// instruction of the thread that takes it back is left out. Gives whether a power loss leaves
/// nothing of the question.
fn a_late_question_leaves_nothing(is_met: bool, left_out: Option<Instruction>) -> bool {
    let controller = Controller::new();
    let pool: Pool<Dropping<Traced>> = Pool::create(&*controller.storage(), "pool", &options()).unwrap();
    let words = set_up(&pool, 2);
    let guard = pool.pin();
    let stopped = prepared(&pool, &guard, &words, 10);
    kernel::run(&pool, stopped, OTHERS[0]).unwrap();
    compare_exchange(&pool, words[0], 11, 1, &guard).unwrap().unwrap();
    let asking = conditional(stopped, 0, OTHERS[1]);
    pool.backend().compare_exchange(words[0], 1, asking).unwrap();
    if let Some(instruction) = left_out {
        pool.backend().leave_out(instruction, "pmwcas.clean");
    }
    // In a thread of its own, so that no other thread's fence covers its flushes.
    std::thread::scope(|scope| {
        scope.spawn(|| match is_met {
            true => assert_eq!(values(&pool, &words), [1, 12]),
            false => Answer::find(&pool, asking).unwrap().unwrap().give(pool.backend()),
        });
    });
    guard.retire(crate::epoch::Retired::Descriptor(stopped));
    drop(guard);
    pool.reclaim().unwrap();
    let are = |expected: [u64; 2]| {
        controller.images(controller.events(), &BUDGET, 1).all(|image| {
            let pool: Pool<Traced> = Pool::open(&*image.storage(), "pool", &options()).unwrap();
            let guard = pool.pin();
            words
                .iter()
                .zip(expected)
                .all(|(word, expected)| matches!(read(&pool, *word, &guard), Ok(value) if value == expected))
        })
    };
    if !are([1, 12]) {
        return false;
    }
    // When the descriptor belongs to another operation, nobody could tell what the question was.
    let stamp = pool.status(stopped).unwrap().stamp;
    for value in 12..52 {
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(&pool, &guard).unwrap();
        descriptor.swap(words[1], value, value + 1).unwrap();
        assert!(descriptor.execute().unwrap());
    }
    assert_ne!(pool.status(stopped).unwrap().stamp, stamp);
    are([1, 52])
}

#[test]
fn a_question_after_the_decision_leaves_nothing_behind() {
    assert!([true, false].into_iter().all(|is_met| a_late_question_leaves_nothing(is_met, None)));
}

#[test]
fn a_late_question_is_taken_back_durably() {
    for instruction in [Instruction::Flush, Instruction::Fence] {
        let leaves_nothing = |is_met| a_late_question_leaves_nothing(is_met, Some(instruction));
        assert_eq!([true, false].map(leaves_nothing), [false; 2], "{instruction:?} can be left out");
    }
}

/// A late helper asks after the operation has ended and been retired. A thread that came after that
/// meets the question, and continues when the helper has left.
#[test]
fn meeting_a_late_question_prevents_reuse_of_the_descriptor() {
    let (_, pool, words) = create(2);
    let (helper, owner) = (pool.pin(), pool.pin());
    let stopped = prepared(&pool, &owner, &words, 10);
    kernel::run(&pool, stopped, OTHERS[0]).unwrap();
    compare_exchange(&pool, words[0], 11, 1, &owner).unwrap().unwrap();
    owner.retire(crate::epoch::Retired::Descriptor(stopped));
    owner.expedite();
    drop(owner);
    let asking = conditional(stopped, 0, OTHERS[1]);
    pool.backend().compare_exchange(words[0], 1, asking).unwrap();
    let (entered, leave) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let is_free = std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = pool.pin();
            assert_eq!(pool.backend().load(words[0]), asking);
            entered.wait();
            leave.wait();
            // The step that it would take for the word that it met.
            assert_eq!(read(&pool, words[0], &guard).unwrap(), 1);
        });
        entered.wait();
        Answer::find(&pool, asking).unwrap().unwrap().give(pool.backend());
        drop(helper);
        pool.reclaim().unwrap();
        let is_free = pool.is_free(stopped).unwrap();
        leave.wait();
        is_free
    });
    assert!(!is_free, "it could have been another operation by then");
    pool.reclaim().unwrap();
    assert!(pool.is_free(stopped).unwrap());
}

/// With another thread's number, a late thread would take that one's question for its own, and give
/// the word to an operation that is over (M6).
#[test]
fn each_thread_asks_with_a_number_of_its_own() {
    let (controller, pool, words) = create(1);
    // The part of its question that is neither the descriptor nor the entry.
    let number_of_question = |value: u64| {
        let (guard, from) = (pool.pin(), controller.events());
        assert_eq!(compare_exchange(&pool, words[0], value, value + 1, &guard).unwrap(), Ok(value));
        let log = controller.log();
        let asking = log[from..].iter().find_map(|event| match *event {
            Event::Pool(PoolEvent::Store { offset, value, .. }) => {
                (offset == words[0] && value & CONDITIONAL != 0).then_some(value)
            }
            _ => None,
        });
        let (descriptor, index) = decode_conditional(asking.unwrap());
        asking.unwrap() ^ conditional(descriptor, index, 0)
    };
    let here = number_of_question(1);
    // This thread is still alive meanwhile.
    let there = std::thread::scope(|scope| scope.spawn(|| number_of_question(2)).join().unwrap());
    assert_ne!(here, there);
    assert_eq!(number_of_question(3), here);
}
