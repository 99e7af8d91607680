//! Where nodes are: in the pool, or in memory.
//!
//! A node in the pool is named by its offset, which is even. One in memory is named by an odd
//! number.

use terrane_pmem::{Backend, View};
use terrane_storage::sync::{AtomicU64, Ordering};

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
    (node & 1 == 1).then_some(node >> 1)
}

/// The name of a node in memory.
pub(super) fn name(index: u64) -> u64 {
    index << 1 | 1
}
