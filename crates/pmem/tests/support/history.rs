//! The specification of operations on a few words, which histories of threads are checked against.

use terrane_testkit::linearizability::Specification;

/// An operation on a few words.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Changes all of these words, given as number, old and new value, or none.
    Swap(Vec<(usize, u64, u64)>),
    /// Changes one word alone.
    Single(usize, u64, u64),
    Read(usize),
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Changed(bool),
    /// The value that was read, or found instead of the old value.
    Value(u64),
}

/// All words together, since operations change several.
#[derive(Clone, Debug)]
pub struct Words;

impl Specification for Words {
    type Operation = Operation;
    type Outcome = Outcome;
    type Key = ();
    type State = Vec<u64>;

    fn key(_: &Operation) {}

    fn apply(operation: &Operation, words: &mut Vec<u64>) -> Outcome {
        match operation {
            Operation::Swap(changes) => {
                let fits = changes.iter().all(|&(word, old, _)| words[word] == old);
                if fits {
                    changes.iter().for_each(|&(word, _, new)| words[word] = new);
                }
                Outcome::Changed(fits)
            }
            &Operation::Single(word, old, new) => {
                let found = words[word];
                if found == old {
                    words[word] = new;
                    return Outcome::Changed(true);
                }
                Outcome::Value(found)
            }
            &Operation::Read(word) => Outcome::Value(words[word]),
        }
    }
}

#[test]
fn words_change_together_or_not_at_all() {
    use terrane_testkit::linearizability::{self, Call};
    let call = |operation, began, ended: Option<(usize, Outcome)>| Call::<Words> { operation, began, ended };
    let is_linearizable = |calls: &[Call<Words>], end: &[u64]| {
        linearizability::is_linearizable(calls, |()| vec![0, 0], |()| end.to_vec())
    };
    let swap = || Operation::Swap(vec![(0, 0, 1), (1, 0, 1)]);
    let both =
        [call(swap(), 0, Some((3, Outcome::Changed(true)))), call(Operation::Read(0), 1, Some((2, Outcome::Value(1))))];
    assert!(is_linearizable(&both, &[1, 1]));
    assert!(!is_linearizable(&both, &[0, 0]), "what has ended stays");
    assert!(!is_linearizable(&both, &[1, 0]), "and is whole");
    let in_flight = [call(swap(), 0, None)];
    assert!(is_linearizable(&in_flight, &[0, 0]) && is_linearizable(&in_flight, &[1, 1]));
    assert!(!is_linearizable(&in_flight, &[0, 1]));
    let read = [call(swap(), 0, None), call(Operation::Read(1), 1, Some((2, Outcome::Value(1))))];
    assert!(!is_linearizable(&read, &[0, 0]), "what was read stays");
    let before =
        [call(Operation::Read(0), 0, Some((1, Outcome::Value(1)))), call(swap(), 2, Some((3, Outcome::Changed(true))))];
    assert!(!is_linearizable(&before, &[1, 1]), "nothing is read before it is written");
}
