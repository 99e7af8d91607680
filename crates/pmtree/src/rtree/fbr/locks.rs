//! A lock for each node, outside of the pool: nothing of it outlives the process.

use std::sync::OnceLock;

use terrane_pmem::Backend;
use terrane_storage::sync::{RwLock, RwLockWriteGuard};

use super::FbrTree;
use super::node::Node;
use crate::Result;
use crate::blocks;

/// Locks of the first segment; each further one has as many as all before it.
const FIRST_LENGTH: u64 = 1024;

const SEGMENTS: usize = 48;

/// Locks by the offsets of blocks of one length, made when they are first wanted.
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

    /// The lock of a node. Blocks of nodes have different ones.
    pub(super) fn of(&self, node: u64) -> &RwLock<()> {
        // Two blocks begin at least a node's length apart.
        let (segment, place) = segment(node / self.node_length);
        let locks =
            self.segments[segment].get_or_init(|| (0..segment_length(segment)).map(|_| RwLock::new(())).collect());
        &locks[place as usize]
    }
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Locks a node for who changes it.
    #[inline]
    pub(super) fn lock(&self, node: &Node<'_, D, B>) -> Result<RwLockWriteGuard<'_, ()>> {
        Ok(self.lock_of(node)?.write())
    }

    /// Locks a node for who reads it.
    #[inline]
    pub(super) fn lock_shared(&self, node: &Node<'_, D, B>) -> Result<impl Sized + use<'_, D, B>> {
        Ok(self.lock_of(node)?.read())
    }

    /// What a damaged link leads to may overlap a node and have its lock, and who holds that would wait for itself.
    #[inline]
    fn lock_of(&self, node: &Node<'_, D, B>) -> Result<&RwLock<()>> {
        blocks::check_length(&self.pool, node.offset, self.layout.node_length())?;
        Ok(self.locks.of(node.offset))
    }

    /// The lock of a node that was just acquired and nobody knows; it is not waited for, so in no order with others (F7).
    pub(super) fn lock_new(&self, node: u64) -> Result<impl Sized + '_> {
        // Only where the pool gives out what is in use.
        self.locks.of(node).try_write().ok_or_else(|| self.damaged(node, "a node is in use that was free"))
    }
}

/// Segment of a number, and its place there.
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
