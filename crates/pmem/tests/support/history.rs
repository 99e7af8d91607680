//! Whether what threads saw of words, and what a crash left of them, can have happened in one order.

use std::collections::HashSet;

/// What is done to a few words.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Changes all of these words, given as number, old and new value, or none.
    Swap(Vec<(usize, u64, u64)>),
    /// Changes one word alone.
    Single(usize, u64, u64),
    Read(usize),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Changed(bool),
    /// The value that was read, or found in the way.
    Value(u64),
}

/// An operation with the instants at which it began and ended, if it did.
#[derive(Clone, Debug)]
pub struct Call {
    pub operation: Operation,
    pub began: usize,
    pub ended: Option<(usize, Outcome)>,
}

impl Operation {
    /// Does it to words that nobody else changes.
    pub fn apply(&self, words: &mut [u64]) -> Outcome {
        match self {
            Self::Swap(changes) => {
                let fits = changes.iter().all(|&(word, old, _)| words[word] == old);
                if fits {
                    changes.iter().for_each(|&(word, _, new)| words[word] = new);
                }
                Outcome::Changed(fits)
            }
            &Self::Single(word, old, new) => {
                let found = words[word];
                if found == old {
                    words[word] = new;
                    return Outcome::Changed(true);
                }
                Outcome::Value(found)
            }
            &Self::Read(word) => Outcome::Value(words[word]),
        }
    }
}

/// Whether there is an order of all calls that have ended, and of any of the others, in which each begins before others
/// that began after its end, each has its outcome, and the words end as they did.
pub fn is_linearizable(calls: &[Call], words: &[u64], end: &[u64]) -> bool {
    search(calls, 0, words.to_vec(), end, &mut HashSet::new())
}

fn search(calls: &[Call], done: u64, words: Vec<u64>, end: &[u64], seen: &mut HashSet<(u64, Vec<u64>)>) -> bool {
    let left = || (0..calls.len()).filter(|index| done >> index & 1 == 0);
    if words == end && left().all(|index| calls[index].ended.is_none()) {
        return true;
    }
    if !seen.insert((done, words.clone())) {
        return false;
    }
    // What ends first of the rest has to come before what began later.
    let first_end = left().filter_map(|index| calls[index].ended).map(|(at, _)| at).min().unwrap_or(usize::MAX);
    left().filter(|&index| calls[index].began < first_end).any(|index| {
        let mut after = words.clone();
        let outcome = calls[index].operation.apply(&mut after);
        let fits = calls[index].ended.is_none_or(|(_, seen)| seen == outcome);
        fits && search(calls, done | 1 << index, after, end, seen)
    })
}

#[test]
fn orders_that_cannot_have_been_are_told_from_those_that_can() {
    let call = |operation, began, ended: Option<(usize, Outcome)>| Call { operation, began, ended };
    let swap = || Operation::Swap(vec![(0, 0, 1), (1, 0, 1)]);
    let both =
        [call(swap(), 0, Some((3, Outcome::Changed(true)))), call(Operation::Read(0), 1, Some((2, Outcome::Value(1))))];
    assert!(is_linearizable(&both, &[0, 0], &[1, 1]));
    assert!(!is_linearizable(&both, &[0, 0], &[0, 0]), "what has ended stays");
    assert!(!is_linearizable(&both, &[0, 0], &[1, 0]), "and is whole");
    let in_flight = [call(swap(), 0, None)];
    assert!(is_linearizable(&in_flight, &[0, 0], &[0, 0]) && is_linearizable(&in_flight, &[0, 0], &[1, 1]));
    assert!(!is_linearizable(&in_flight, &[0, 0], &[0, 1]));
    let read = [call(swap(), 0, None), call(Operation::Read(1), 1, Some((2, Outcome::Value(1))))];
    assert!(!is_linearizable(&read, &[0, 0], &[0, 0]), "what was read stays");
    let before =
        [call(Operation::Read(0), 0, Some((1, Outcome::Value(1)))), call(swap(), 2, Some((3, Outcome::Changed(true))))];
    assert!(!is_linearizable(&before, &[0, 0], &[1, 1]), "nothing is read before it is written");
}
