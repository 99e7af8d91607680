//! The operations of threads on records and their results, in the form of the history checker: each
//! record separately.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use terrane::Key;
use terrane_testkit::linearizability::{Call, Specification, is_linearizable};

/// Values from here on belong to records that a conditional delete removes.
pub const PERISHABLE: i64 = 1 << 32;

/// A dataset and a key.
pub type Id = (usize, Key);

/// An operation on a record, which is known by its value.
#[derive(Clone, Debug)]
pub enum Operation {
    Insert(Id, i64),
    Upsert(Id, i64),
    Delete(Id),
    /// Like [`Self::Delete`], but without the information whether the record existed.
    Remove(Id),
    /// Removes the record if its value is perishable.
    Expire(Id),
    Read(Id),
    /// Finds out whether the record exists.
    Find(Id),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    Done,
    Refused,
    WasThere(bool),
    Value(Option<i64>),
}

/// Records with at most one version at a time.
#[derive(Clone, Debug)]
pub struct Records;

impl Specification for Records {
    type Operation = Operation;
    type Outcome = Outcome;
    type Key = Id;
    type State = Option<i64>;

    fn key(operation: &Operation) -> Id {
        match operation {
            Operation::Insert(id, _) | Operation::Upsert(id, _) => id.clone(),
            Operation::Delete(id) | Operation::Remove(id) | Operation::Expire(id) => id.clone(),
            Operation::Read(id) | Operation::Find(id) => id.clone(),
        }
    }

    fn apply(operation: &Operation, state: &mut Option<i64>) -> Outcome {
        match operation {
            Operation::Insert(..) if state.is_some() => Outcome::Refused,
            Operation::Insert(_, value) | Operation::Upsert(_, value) => {
                *state = Some(*value);
                Outcome::Done
            }
            Operation::Delete(_) => Outcome::WasThere(state.take().is_some()),
            Operation::Remove(_) => {
                *state = None;
                Outcome::Done
            }
            Operation::Expire(_) => {
                state.take_if(|value| *value >= PERISHABLE);
                Outcome::Done
            }
            Operation::Read(_) => Outcome::Value(*state),
            Operation::Find(_) => Outcome::WasThere(state.is_some()),
        }
    }
}

/// The calls of all threads. The lock is unknown to the model checker, so that noting is not a
/// step.
#[derive(Default)]
pub struct History(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    calls: Vec<Call<Records>>,
    instant: usize,
}

impl History {
    fn noted<T>(&self, work: impl FnOnce(&mut Noted) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next moment.
    pub fn now(&self) -> usize {
        self.noted(|noted| {
            noted.instant += 1;
            noted.instant
        })
    }

    /// Notes an operation between two moments, and its outcome.
    pub fn note(&self, began: usize, ended: usize, operation: Operation, outcome: Outcome) {
        self.noted(|noted| noted.calls.push(Call { operation, began, ended: Some((ended, outcome)) }));
    }

    /// Notes an operation that may have happened after a moment, or not.
    pub fn note_possible(&self, began: usize, operation: Operation) {
        self.noted(|noted| noted.calls.push(Call { operation, began, ended: None }));
    }

    /// Fails unless each record has an order of operations from the start state to the end state.
    pub fn check(&self, start: impl Fn(&Id) -> Option<i64>, end: impl Fn(&Id) -> Option<i64>) {
        let calls = self.noted(|noted| noted.calls.clone());
        let ids: BTreeSet<Id> = calls.iter().map(|call| Records::key(&call.operation)).collect();
        for id in ids {
            let calls: Vec<_> = calls.iter().filter(|call| Records::key(&call.operation) == id).cloned().collect();
            let (first, last) = (start(&id), end(&id));
            assert!(is_linearizable(&calls, &start, &end), "from {first:?} to {last:?} by {calls:#?}");
        }
    }
}
