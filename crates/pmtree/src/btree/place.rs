//! Where nodes are: in the pool, or in memory.
//!
//! A node in the pool is named by its offset, which is even. One in memory is named by an odd
//! number, whose second bit says whether it is the row of a leaf.

use terrane_pmem::{Backend, View};
use terrane_storage::sync::{AtomicU64, Ordering};

const IN_MEMORY: u64 = 1;
const ROW: u64 = 2;

/// The words of a node.
#[derive(Debug)]
pub(super) enum Words<'a, B: Backend + 'a> {
    Pool(B::View<'a>),
    Memory(&'a [AtomicU64]),
}

impl<B: Backend> Clone for Words<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Words<'_, B> {}

impl<B: Backend> View for Words<'_, B> {
    #[inline]
    fn load(&self, index: usize) -> u64 {
        match self {
            Self::Pool(view) => view.load(index),
            Self::Memory(words) => words[index].load(Ordering::Acquire),
        }
    }

    #[inline]
    fn load_array<const N: usize>(&self, first: usize) -> [u64; N] {
        match self {
            Self::Pool(view) => view.load_array(first),
            Self::Memory(words) => std::array::from_fn(|index| words[first + index].load(Ordering::Acquire)),
        }
    }
}

/// The index in the arena of a node in memory; `None` if it is in the pool.
#[inline]
pub(super) fn in_memory(node: u64) -> Option<u64> {
    (node & IN_MEMORY != 0).then_some(node >> 2)
}

/// Whether a node in memory is the row of a leaf.
#[inline]
pub(super) fn is_row(node: u64) -> bool {
    node & ROW != 0
}

/// The name of the row of a leaf.
pub(super) fn name_of_row(index: u64) -> u64 {
    index << 2 | ROW | IN_MEMORY
}

/// The name of an inner node in memory.
pub(super) fn name(index: u64) -> u64 {
    index << 2 | IN_MEMORY
}
