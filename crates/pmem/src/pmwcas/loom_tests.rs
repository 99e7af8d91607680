//! The steps on shared words under every interleaving and memory order of two or three threads,
//! with a bound on preemptions.

use std::fmt;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;
use terrane_storage::File;
use terrane_storage::sync::{AtomicU64, Ordering};

use super::kernel::{self, Answer, Memory};
use super::layout::{Entry, State, Status, conditional, installed};
use crate::{Backend, Error, Loads, PersistenceDomain, Result, Site, WORD_LENGTH};

/// Words in memory only: descriptors from byte 64 on, and data from byte 1024.
struct Words(Vec<AtomicU64>);

const DATA: u64 = 1024;

impl fmt::Debug for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Words")
    }
}

impl Words {
    /// Data words that are 0, and operations that their owners have written down.
    fn new(operations: &[&[(u64, u64, u64)]]) -> Self {
        let words = Self((0..(DATA + 64) / WORD_LENGTH).map(|_| AtomicU64::new(0)).collect());
        for (number, operation) in operations.iter().enumerate() {
            let descriptor = descriptor(number);
            for (index, &(word, old, new)) in operation.iter().enumerate() {
                Entry { address: data(word), old, new }.store(&words, descriptor, index, 1);
            }
            words.store(descriptor, Status { state: State::Undecided, stamp: 1 }.encode());
        }
        words
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        &self.0[(offset / WORD_LENGTH) as usize]
    }

    fn execute(&self, number: usize, thread: u64) -> bool {
        kernel::run(self, descriptor(number), thread).unwrap();
        self.status(descriptor(number)).unwrap().state == State::Succeeded
    }

    fn read(&self, word: u64, thread: u64) -> u64 {
        kernel::read(self, data(word), thread).unwrap()
    }
}

impl Memory for Words {
    type Backend = Self;

    fn backend(&self) -> &Self {
        self
    }

    fn is_descriptor(&self, offset: u64) -> Result<bool> {
        Ok(offset < DATA)
    }

    fn damaged(&self, offset: u64, reason: String) -> Error {
        panic!("byte {offset}: {reason}")
    }
}

fn descriptor(number: usize) -> u64 {
    64 + number as u64 * super::DESCRIPTOR_LENGTH
}

fn data(word: u64) -> u64 {
    DATA + word * WORD_LENGTH
}

impl Backend for Words {
    type View<'a>
        = Loads<'a, Self>
    where
        Self: 'a;

    fn map(_: Arc<dyn File>, _: &str, _: PersistenceDomain, _: u64) -> Result<Self> {
        unreachable!("it is of no file")
    }

    fn extend(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn length(&self) -> u64 {
        self.0.len() as u64 * WORD_LENGTH
    }

    fn domain(&self) -> PersistenceDomain {
        PersistenceDomain::PageCache
    }

    fn load(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    fn view(&self, offset: u64, length: u64) -> Loads<'_, Self> {
        Loads::new(self, offset, length)
    }

    fn store(&self, offset: u64, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.word(offset).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        self.word(offset).fetch_or(bits, Ordering::AcqRel)
    }

    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        self.word(offset).fetch_and(bits, Ordering::AcqRel)
    }

    fn write_back(&self, _: u64, _: Site) {}

    fn fence(&self, _: Site) {}
}

/// Runs threads on the same words in every order, then checks the words against the threads'
/// results.
fn explore<T: 'static>(
    operations: &'static [&'static [(u64, u64, u64)]],
    preemptions: usize,
    bodies: &'static [fn(&Words, u64) -> T],
    check: fn(&[u64], Vec<T>),
) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(move || {
        let words = Arc::new(Words::new(operations));
        let others: Vec<_> = (1..bodies.len())
            .map(|thread| {
                let words = words.clone();
                thread::spawn(move || bodies[thread](&words, thread as u64))
            })
            .collect();
        let mut seen = vec![bodies[0](&words, 0)];
        seen.extend(others.into_iter().map(|other| other.join().unwrap()));
        let left: Vec<u64> = (0..3).map(|word| words.read(word, 0)).collect();
        check(&left, seen);
    });
}

#[test]
fn of_two_operations_on_the_same_words_one_succeeds() {
    explore(
        &[&[(0, 0, 1), (1, 0, 1)], &[(0, 0, 2), (1, 0, 2)]],
        2,
        &[|words, thread| words.execute(0, thread), |words, thread| words.execute(1, thread)],
        |left, succeeded| {
            assert!(succeeded[0] != succeeded[1], "{succeeded:?}");
            let value = if succeeded[0] { 1 } else { 2 };
            assert_eq!(left, [value, value, 0]);
        },
    );
}

#[test]
fn a_reader_of_one_new_value_sees_the_others_too() {
    explore(
        &[&[(0, 0, 1), (1, 0, 1)]],
        3,
        &[
            |words, thread| u64::from(words.execute(0, thread)),
            |words, thread| words.read(1, thread) << 4 | words.read(0, thread),
        ],
        |left, seen| {
            assert_eq!((left, seen[0]), ([1, 1, 0].as_slice(), 1));
            assert!(seen[1] != 0x10, "the second word was new, and then the first one old");
        },
    );
}

#[test]
fn overlapping_operations_and_a_change_of_one_word_have_an_order() {
    explore(
        &[&[(0, 0, 1), (1, 0, 1)], &[(1, 1, 2), (2, 0, 2)]],
        1,
        &[
            |words, thread| words.execute(0, thread),
            |words, thread| words.execute(1, thread),
            |words, thread| kernel::compare_exchange(words, data(0), 0, 3, thread).unwrap().is_ok(),
        ],
        |left, succeeded| match succeeded[..] {
            [true, true, false] => assert_eq!(left, [1, 2, 2]),
            [true, false, false] => assert_eq!(left, [1, 1, 0]),
            [false, false, true] => assert_eq!(left, [3, 0, 0]),
            _ => panic!("{succeeded:?} cannot be"),
        },
    );
}

/// The old value comes back while helpers are late.
#[test]
fn an_operation_that_others_help_happens_once() {
    explore(
        &[&[(0, 0, 1)]],
        2,
        &[
            |words, thread| words.execute(0, thread),
            |words, thread| words.execute(0, thread),
            |words, thread| kernel::compare_exchange(words, data(0), 1, 0, thread).unwrap().is_ok(),
        ],
        |left, succeeded| {
            assert!(succeeded[0] && succeeded[1]);
            assert_eq!(left, [u64::from(!succeeded[2]), 0, 0]);
        },
    );
}

/// Two helpers are late: one has its answer, the other one asks again.
#[test]
fn an_answer_is_for_the_question_that_was_asked() {
    explore(
        &[&[(0, 0, 1)]],
        3,
        &[
            |words, thread| {
                words.execute(0, thread) && kernel::compare_exchange(words, data(0), 1, 0, thread).unwrap().is_ok()
            },
            |words, thread| words.execute(0, thread),
            |words, thread| words.execute(0, thread),
        ],
        |left, succeeded| assert_eq!((left, succeeded), ([0; 3].as_slice(), vec![true; 3])),
    );
}

/// A thread helps another operation for its own one, and meets that in the other one's last word.
/// Before, it has asked in the first word, and another thread has the answer. The old value comes
/// back.
#[test]
fn an_operation_that_is_met_behind_another_one_happens_once() {
    const OWN: u64 = 0;
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let words = Arc::new(Words::new(&[&[(0, 0, 1), (2, 0, 1)], &[(1, 0, 0), (2, 0, 0)]]));
        let [own, other] = [0, 1].map(descriptor);
        let answer = Answer::find(&*words, conditional(own, 0, OWN)).unwrap().unwrap();
        for (word, descriptor) in [(0, own), (1, other), (2, own)] {
            words.store(data(word), installed(descriptor));
        }
        let answering = {
            let words = words.clone();
            thread::spawn(move || answer.give(&*words))
        };
        let taking_back = {
            let words = words.clone();
            thread::spawn(move || {
                words.execute(0, 1) && kernel::compare_exchange(&*words, data(0), 1, 0, 1).unwrap().is_ok()
            })
        };
        kernel::run_from(&*words, other, 1, OWN).unwrap();
        answering.join().unwrap();
        assert!(taking_back.join().unwrap());
        assert_eq!([0, 1, 2].map(|word| words.read(word, OWN)), [0, 0, 1]);
    });
}
