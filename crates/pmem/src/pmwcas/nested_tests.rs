//! Threads that meet their own operation in a word of one that they help: nested runs, and answers
//! that come late.
//!
//! One thread runs. The steps of the others come before or after its compare-and-swaps, on a
//! schedule.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use terrane_storage::File;

use super::kernel::{self, Answer};
use super::layout::{conditional, installed};
use super::tests::{create, prepared, values};
use super::*;
use crate::{Error, Loads, PersistenceDomain, Traced};

/// The thread that is observed, and others.
const OWN: u64 = 1000;
const OTHERS: [u64; 2] = [1001, 1002];

/// Where in the thread's run others come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before it asks, or tries to, for this entry of a descriptor, in any word.
    Asking(u64, usize),
    /// After it has asked.
    Asked(u64, usize),
    /// Before it changes one of these two words, or tries to.
    Changing(u64, u64),
}

type Step<'s> = (At, Box<dyn FnOnce() + Send + 's>);

/// A pool as one thread sees it, with the steps of others: one after the other, as their places are
/// reached.
struct Scheduled<'s> {
    pool: &'s Pool<Traced>,
    steps: Mutex<VecDeque<Step<'s>>>,
}

impl<'s> Scheduled<'s> {
    fn new(pool: &'s Pool<Traced>) -> Self {
        Self { pool, steps: Mutex::default() }
    }

    fn then(self, at: At, step: impl FnOnce() + Send + 's) -> Self {
        self.steps.lock().unwrap().push_back((at, Box::new(step)));
        self
    }

    fn pass(&self, is_reached: impl Fn(At) -> bool) {
        let mut steps = self.steps.lock().unwrap();
        let due = steps.pop_front_if(|(at, _)| is_reached(*at));
        drop(steps);
        if let Some((_, step)) = due {
            step();
        }
    }

    fn left(&self) -> Vec<At> {
        self.steps.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }
}

impl fmt::Debug for Scheduled<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Scheduled {:?}", self.left())
    }
}

impl Memory for Scheduled<'_> {
    type Backend = Self;

    fn backend(&self) -> &Self {
        self
    }

    fn is_descriptor(&self, offset: u64) -> Result<bool> {
        self.pool.is_descriptor(offset)
    }

    fn damaged(&self, offset: u64, reason: String) -> Error {
        self.pool.damaged(offset, reason)
    }
}

impl Backend for Scheduled<'_> {
    type View<'a>
        = Loads<'a, Self>
    where
        Self: 'a;

    fn map(_: Arc<dyn File>, _: &str, _: PersistenceDomain, _: u64) -> Result<Self> {
        unreachable!("it is of a pool")
    }

    fn extend(&self, length: u64) -> Result<()> {
        self.pool.backend().extend(length)
    }

    fn length(&self) -> u64 {
        self.pool.backend().length()
    }

    fn domain(&self) -> PersistenceDomain {
        self.pool.backend().domain()
    }

    fn load(&self, offset: u64) -> u64 {
        self.pool.backend().load(offset)
    }

    fn view(&self, offset: u64, length: u64) -> Loads<'_, Self> {
        Loads::new(self, offset, length)
    }

    fn store(&self, offset: u64, value: u64) {
        self.pool.backend().store(offset, value);
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        let asks = |descriptor, index| new == conditional(descriptor, index, OWN);
        self.pass(|at| match at {
            At::Asking(descriptor, index) => asks(descriptor, index),
            At::Asked(..) => false,
            At::Changing(one, other) => [one, other].contains(&offset),
        });
        let outcome = self.pool.backend().compare_exchange(offset, current, new);
        if outcome.is_ok() {
            self.pass(|at| matches!(at, At::Asked(descriptor, index) if asks(descriptor, index)));
        }
        outcome
    }

    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        self.pool.backend().fetch_or(offset, bits)
    }

    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        self.pool.backend().fetch_and(offset, bits)
    }

    fn write_back(&self, line: u64, site: Site) {
        self.pool.backend().write_back(line, site);
    }

    fn fence(&self, site: Site) {
        self.pool.backend().fence(site);
    }
}

/// Another thread finds the answer to a question, and keeps it for later.
fn find(pool: &Pool<Traced>, question: u64) -> Answer {
    Answer::find(pool, question).unwrap().unwrap()
}

/// Another thread gives an operation the words of some entries, and stops before the next one, or
/// before the decision.
fn install(pool: &Pool<Traced>, descriptor: u64, entries: Range<usize>) {
    let stamp = pool.status(descriptor).unwrap().stamp;
    for index in entries {
        let entry = Entry::load(pool.backend(), descriptor, index, stamp).unwrap();
        assert!(kernel::install(pool, descriptor, index, &entry, OTHERS[0]).unwrap());
    }
}

/// Another thread ends an operation that added 10 to some words, and takes that back.
fn end_and_take_back(pool: &Pool<Traced>, descriptor: u64, words: &[u64]) {
    kernel::run(pool, descriptor, OTHERS[0]).unwrap();
    assert_eq!(pool.status(descriptor).unwrap().state, State::Succeeded);
    for &word in words {
        let new = kernel::read(pool, word, OTHERS[0]).unwrap();
        kernel::compare_exchange(pool, word, new, new - 10, OTHERS[0]).unwrap().unwrap();
    }
}

/// The thread goes through another operation, and meets its own in the last word. That is decided
/// before it asks again in the first one, where it has asked already and another thread has the
/// answer.
#[test]
fn a_thread_that_meets_its_operation_behind_another_one_does_not_ask_twice() {
    let (_controller, pool, words) = create(3);
    let guard = pool.pin();
    let own = prepared(&pool, &guard, &words, 10);
    let other = prepared(&pool, &guard, &words[1..], 0);
    pool.backend().compare_exchange(words[1], 2, installed(other)).unwrap();
    let question = conditional(own, 0, OWN);
    let answer = OnceLock::new();
    let scheduled = Scheduled::new(&pool)
        .then(At::Asked(own, 0), || answer.set(find(&pool, question)).unwrap())
        .then(At::Asking(other, 1), || {
            kernel::run(&pool, other, OTHERS[1]).unwrap();
            install(&pool, own, 1..3);
        })
        .then(At::Changing(words[0], own), || end_and_take_back(&pool, own, &words))
        .then(At::Asked(own, 0), || answer.get().unwrap().give(pool.backend()));
    kernel::run(&scheduled, own, OWN).unwrap();
    assert_eq!(values(&pool, &words), [1, 2, 3], "it happened twice");
    assert_eq!(scheduled.left(), [At::Asked(own, 0)]);
}

/// The same behind two others, which are both undecided when the thread meets them. Then the first
/// of them fails, and leaves the word that the thread's operation has to pass.
fn behind_two_others(fails: impl Fn(&Pool<Traced>, u64, &[u64]) + Sync) {
    let (_controller, pool, words) = create(5);
    let (guard, backend) = (pool.pin(), pool.backend());
    let place = [words[0], words[2], words[4]];
    let own = prepared(&pool, &guard, &place, 10);
    let first = prepared(&pool, &guard, &words[1..4], 0);
    [1, 2].into_iter().for_each(|at: usize| {
        backend.compare_exchange(words[at], at as u64 + 1, installed(first)).unwrap();
    });
    // A thread that runs the first one may have seen that, and decides it later.
    kernel::compare_exchange(&pool, words[3], 4, 9, OTHERS[1]).unwrap().unwrap();
    let second = prepared(&pool, &guard, &words[3..], 0);
    backend.compare_exchange(words[3], 9, installed(second)).unwrap();
    let question = conditional(own, 0, OWN);
    let answer = OnceLock::new();
    let scheduled = Scheduled::new(&pool)
        .then(At::Asked(own, 0), || answer.set(find(&pool, question)).unwrap())
        .then(At::Asking(second, 1), || {
            fails(&pool, first, &words);
            install(&pool, own, 1..3);
        })
        .then(At::Changing(words[0], own), || end_and_take_back(&pool, own, &place))
        .then(At::Asked(own, 0), || answer.get().unwrap().give(pool.backend()));
    kernel::run(&scheduled, own, OWN).unwrap();
    assert_eq!(values(&pool, &words), [1, 2, 3, 9, 5], "it happened twice");
    assert_eq!(scheduled.left(), [At::Asked(own, 0)]);
}

#[test]
fn a_thread_that_meets_its_operation_behind_one_that_failed_late_does_not_ask_twice() {
    behind_two_others(|pool, first, _| {
        let undecided = pool.status(first).unwrap();
        let failed = Status { state: State::Failed, ..undecided };
        pool.backend().compare_exchange(first, undecided.encode(), failed.encode()).unwrap();
        kernel::run(pool, first, OTHERS[1]).unwrap();
    });
}

#[test]
fn a_thread_that_meets_its_operation_behind_one_that_failed_by_damage_does_not_ask_twice() {
    behind_two_others(|pool, first, words| {
        pool.backend().store(words[1], !0);
        assert!(kernel::run(pool, first, OTHERS[1]).unwrap().is_some());
        pool.backend().store(words[1], 2);
    });
}

/// The inner run asks in the last word, and ends the operation. The outer one does not ask again,
/// not there either.
#[test]
fn a_thread_that_ended_its_operation_behind_another_one_does_not_ask_again() {
    let (_controller, pool, words) = create(3);
    let guard = pool.pin();
    let own = prepared(&pool, &guard, &words, 10);
    let other = prepared(&pool, &guard, &words[..2], 0);
    pool.backend().compare_exchange(words[0], 1, installed(other)).unwrap();
    let question = conditional(own, 2, OWN);
    let answer = OnceLock::new();
    let scheduled = Scheduled::new(&pool)
        .then(At::Asking(other, 1), || {
            kernel::run(&pool, other, OTHERS[1]).unwrap();
            install(&pool, own, 0..2);
        })
        .then(At::Asked(own, 2), || answer.set(find(&pool, question)).unwrap())
        .then(At::Changing(other, other), || end_and_take_back(&pool, own, &words))
        .then(At::Asked(own, 2), || answer.get().unwrap().give(pool.backend()));
    kernel::run(&scheduled, own, OWN).unwrap();
    assert_eq!(values(&pool, &words), [1, 2, 3], "it happened twice");
    assert_eq!(scheduled.left(), [At::Asked(own, 2)]);
}
