//! A lock for each node, outside of the pool. No lock outlives the process.

use std::sync::OnceLock;

use terrane_storage::sync::RwLock;

/// Locks of the first segment. Each further one has as many as all before it.
const FIRST_LENGTH: u64 = 1024;

const SEGMENTS: usize = 48;

/// Locks by the offsets of blocks of one length. They are made on demand.
#[derive(Debug)]
pub(super) struct Locks {
    node_length: u64,
    segments: [OnceLock<Box<[RwLock<()>]>>; SEGMENTS],
    pub(super) root: RwLock<()>,
}

impl Locks {
    pub(super) fn new(node_length: u64) -> Self {
        Self { node_length, segments: [const { OnceLock::new() }; SEGMENTS], root: RwLock::new(()) }
    }

    /// The lock of a node. Distinct nodes have distinct locks.
    pub(super) fn of(&self, node: u64) -> &RwLock<()> {
        // Two blocks begin at least a node's length apart.
        let (segment, place) = segment(node / self.node_length);
        let locks =
            self.segments[segment].get_or_init(|| (0..segment_length(segment)).map(|_| RwLock::new(())).collect());
        &locks[place as usize]
    }
}

/// Segment of a number, and its index there.
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
