//! Whether what threads saw, and what a crash left, can have happened in one order (Wing and Gong
//! 1993).

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use crate::crash::Controller;

/// What operations do when nobody is in the way.
pub trait Specification {
    /// An operation.
    type Operation: Clone + Debug;
    /// What comes of it.
    type Outcome: Clone + PartialEq + Debug;
    /// What operations belong to: those of different keys have nothing to do with each other, and
    /// so are looked at apart, which is as good (linearizability is local) and much faster.
    type Key: Eq + Hash + Clone;
    /// What there is of one key.
    type State: Clone + Eq + Hash;

    /// The key of an operation.
    fn key(operation: &Self::Operation) -> Self::Key;

    /// Does an operation.
    fn apply(operation: &Self::Operation, state: &mut Self::State) -> Self::Outcome;
}

/// An operation with the instants at which it began and ended, if it did.
#[derive(Clone, Debug)]
pub struct Call<S: Specification> {
    /// What was done.
    pub operation: S::Operation,
    /// When it began.
    pub began: usize,
    /// When it ended, and what came of it.
    pub ended: Option<(usize, S::Outcome)>,
}

/// Does an operation and adds it to the calls of all threads; instants are numbers of the
/// controller's events.
///
/// The calls are locked outside of any model checker: nothing else runs between an operation's end
/// and its note.
pub fn record<S: Specification>(
    calls: &Mutex<Vec<Call<S>>>,
    controller: &Controller,
    operation: S::Operation,
    run: impl FnOnce(&S::Operation) -> S::Outcome,
) -> S::Outcome {
    let number = {
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(Call { operation: operation.clone(), began: controller.events(), ended: None });
        controller.mark(0);
        calls.len() - 1
    };
    let outcome = run(&operation);
    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    controller.mark(0);
    calls[number].ended = Some((controller.events(), outcome.clone()));
    outcome
}

/// The calls as they were at an instant: those that began before it, and of them what had ended.
pub fn calls_at<S: Specification>(calls: &[Call<S>], instant: usize) -> Vec<Call<S>> {
    let at = |call: &Call<S>| {
        let ended = call.ended.clone().filter(|(ended, _)| *ended <= instant);
        Call { operation: call.operation.clone(), began: call.began, ended }
    };
    calls.iter().filter(|call| call.began < instant).map(at).collect()
}

/// Whether for each key there is an order of all calls that have ended, and of any of the others,
/// in which each begins before others that began after its end, each has its outcome, and the state
/// goes from `start` to `end`.
///
/// At most 64 calls of a key.
pub fn is_linearizable<S: Specification>(
    calls: &[Call<S>],
    start: impl Fn(&S::Key) -> S::State,
    end: impl Fn(&S::Key) -> S::State,
) -> bool {
    let keys: HashSet<S::Key> = calls.iter().map(|call| S::key(&call.operation)).collect();
    keys.iter().all(|key| {
        let calls: Vec<&Call<S>> = calls.iter().filter(|call| S::key(&call.operation) == *key).collect();
        assert!(calls.len() <= u64::BITS as usize, "{} calls of one key are too many", calls.len());
        search(&calls, 0, start(key), &end(key), &mut HashSet::new())
    })
}

/// Whether the calls that are not `done` lead from a state to the end.
fn search<S: Specification>(
    calls: &[&Call<S>],
    done: u64,
    state: S::State,
    end: &S::State,
    seen: &mut HashSet<(u64, S::State)>,
) -> bool {
    let left = || (0..calls.len()).filter(|index| done >> index & 1 == 0);
    if state == *end && left().all(|index| calls[index].ended.is_none()) {
        return true;
    }
    if !seen.insert((done, state.clone())) {
        return false;
    }
    // What ends first of the rest has to come before what began later.
    let first_end = left().filter_map(|index| calls[index].ended.as_ref()).map(|(at, _)| *at).min();
    left().filter(|&index| calls[index].began < first_end.unwrap_or(usize::MAX)).any(|index| {
        let mut after = state.clone();
        let outcome = S::apply(&calls[index].operation, &mut after);
        let fits = calls[index].ended.as_ref().is_none_or(|(_, seen)| *seen == outcome);
        fits && search(calls, done | 1 << index, after, end, seen)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters by name: `true` counts up, `false` reads.
    struct Counters;

    impl Specification for Counters {
        type Operation = (char, bool);
        type Outcome = u32;
        type Key = char;
        type State = u32;

        fn key(&(name, _): &(char, bool)) -> char {
            name
        }

        fn apply(&(_, counts): &(char, bool), state: &mut u32) -> u32 {
            *state += u32::from(counts);
            *state
        }
    }

    fn call(operation: (char, bool), began: usize, ended: Option<(usize, u32)>) -> Call<Counters> {
        Call { operation, began, ended }
    }

    fn fits(calls: &[Call<Counters>], end: u32) -> bool {
        is_linearizable(calls, |_| 0, |name| if *name == 'a' { end } else { 0 })
    }

    #[test]
    fn orders_that_cannot_have_been_are_told_from_those_that_can() {
        let both = [call(('a', true), 0, Some((3, 1))), call(('a', false), 1, Some((2, 1)))];
        assert!(fits(&both, 1));
        assert!(!fits(&both, 0), "what has ended stays");
        let in_flight = [call(('a', true), 0, None)];
        assert!(fits(&in_flight, 0) && fits(&in_flight, 1) && !fits(&in_flight, 2));
        let read = [call(('a', true), 0, None), call(('a', false), 1, Some((2, 1)))];
        assert!(!fits(&read, 0), "what was read stays");
        let before = [call(('a', false), 0, Some((1, 1))), call(('a', true), 2, Some((3, 1)))];
        assert!(!fits(&before, 1), "nothing is read before it is written");
        let others = [call(('b', false), 0, Some((1, 0))), call(('a', true), 0, Some((2, 1)))];
        assert!(fits(&others, 1) && !fits(&others, 0));
    }

    #[test]
    fn at_an_instant_what_ended_later_is_under_way() {
        let calls = [call(('a', true), 0, Some((3, 1))), call(('a', true), 5, Some((9, 2)))];
        let at = |instant| calls_at(&calls, instant).iter().map(|call| call.ended).collect::<Vec<_>>();
        assert_eq!((at(0), at(2)), (vec![], vec![None]));
        assert_eq!((at(3), at(6)), (vec![Some((3, 1))], vec![Some((3, 1)), None]));
    }
}
