//! A growing table of values by number, for what is known of nodes outside of the pool.

use std::sync::OnceLock;

/// Values of the first segment. Each further one has as many as all before it.
const FIRST_LENGTH: u64 = 1024;

const SEGMENTS: usize = 48;

/// Values by their numbers. A segment is made when one of its values is asked for.
#[derive(Debug)]
pub(crate) struct Table<T> {
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
}

impl<T: Default> Table<T> {
    pub(crate) fn new() -> Self {
        Self { segments: [const { OnceLock::new() }; SEGMENTS] }
    }

    /// The value of a number. Distinct numbers have distinct values.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> &T {
        let (segment, place) = segment(number);
        let values =
            self.segments[segment].get_or_init(|| (0..segment_length(segment)).map(|_| T::default()).collect());
        &values[place as usize]
    }
}

/// Segment of a number, and its index there.
#[inline]
fn segment(number: u64) -> (usize, u64) {
    match (number / FIRST_LENGTH).checked_ilog2() {
        None => (0, number),
        Some(doublings) => (doublings as usize + 1, number - segment_length(doublings as usize + 1)),
    }
}

fn segment_length(segment: usize) -> u64 {
    if segment == 0 { FIRST_LENGTH } else { FIRST_LENGTH << (segment - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for number in 0..FIRST_LENGTH * 20 {
            assert_eq!(segment(number), expected, "{number}");
            expected = if expected.1 + 1 == segment_length(expected.0) {
                (expected.0 + 1, 0)
            } else {
                (expected.0, expected.1 + 1)
            };
        }
    }
}
