//! A check that the results of threads, and the state after a crash, are possible in one order
//! (Wing and Gong 1993).

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use crate::crash::Controller;

/// The effect of operations without concurrency.
pub trait Specification {
    /// An operation.
    type Operation: Clone + Debug;
    /// Its result.
    type Outcome: Clone + PartialEq + Debug;
    /// The object of operations. Operations on different keys are independent, so each key is
    /// checked separately. This is equivalent (linearizability is local) and much faster.
    type Key: Eq + Hash + Clone;
    /// The state of one key.
    type State: Clone + Eq + Hash;

    /// The key of an operation.
    fn key(operation: &Self::Operation) -> Self::Key;

    /// Applies an operation.
    fn apply(operation: &Self::Operation, state: &mut Self::State) -> Self::Outcome;
}

/// An operation with the instants at which it began and ended, if it did.
#[derive(Clone, Debug)]
pub struct Call<S: Specification> {
    /// The operation.
    pub operation: S::Operation,
    /// When it began.
    pub began: usize,
    /// When it ended, and its result.
    pub ended: Option<(usize, S::Outcome)>,
}

/// Runs an operation and adds it to the calls of all threads. Instants are numbers of the
/// controller's events.
///
/// The calls are locked outside of any model checker, so nothing else runs between an operation's
/// end and its record.
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

/// The calls as of an instant: those that began before it, with the results of those that had
/// ended.
pub fn calls_at<S: Specification>(calls: &[Call<S>], instant: usize) -> Vec<Call<S>> {
    let at = |call: &Call<S>| {
        let ended = call.ended.clone().filter(|(ended, _)| *ended <= instant);
        Call { operation: call.operation.clone(), began: call.began, ended }
    };
    calls.iter().filter(|call| call.began < instant).map(at).collect()
}

/// Whether the calls are linearizable. For each key there must be an order of all calls that have
/// ended, and of any of the others, with three properties:
/// 1. a call comes before those that began after its end;
/// 2. each call has its outcome;
/// 3. the state goes from `start` to `end`.
///
/// There may be at most 64 calls of a key.
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
    // The first call to end comes before those that began later.
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
