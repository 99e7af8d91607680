//! Nodes in memory, for structures that keep only a part of themselves in a pool.
//!
//! A node is a number of atomic words of a fixed count, named by an index. Indices stay valid while
//! the arena grows, and a model checker sees each access. A node that others can still read is
//! retired under a guard of a pool, and used again when no earlier guard is left. The arena counts
//! its bytes exactly.

use std::fmt;
use std::sync::{Arc, OnceLock};

use terrane_storage::sync::{AtomicU64, Mutex};

use crate::{Guard, WORD_LENGTH};

/// Nodes of the first segment. Each further segment has twice as many.
const FIRST_NODES: u64 = 64;

/// More segments than 48-bit addresses can fill.
const SEGMENTS: usize = 42;

/// Nodes of a fixed number of words.
pub struct Arena {
    node_words: usize,
    segments: [OnceLock<Box<[AtomicU64]>>; SEGMENTS],
    free: Arc<FreeNodes>,
}

/// The nodes that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct FreeNodes(Mutex<FreeList>);

#[derive(Debug, Default)]
struct FreeList {
    nodes: Vec<u64>,
    /// Number of nodes that were ever handed out.
    made: u64,
}

impl FreeNodes {
    pub(crate) fn give_back(&self, node: u64) {
        self.0.lock().nodes.push(node);
    }
}

impl Arena {
    /// An arena without nodes.
    ///
    /// # Panics
    /// If nodes would have no words.
    pub fn new(node_words: usize) -> Self {
        assert!(node_words > 0, "a node has words");
        Self { node_words, segments: std::array::from_fn(|_| OnceLock::new()), free: Arc::default() }
    }

    /// A node whose words are 0, for the caller alone. Its index is not 0. It waits for other
    /// threads that allocate or free a node.
    pub fn allocate(&self) -> u64 {
        let mut free = self.free.0.lock();
        let node = match free.nodes.pop() {
            Some(node) => node,
            None => {
                free.made += 1;
                let (segment, _) = place(free.made);
                self.segments[segment].get_or_init(|| {
                    let words = (FIRST_NODES << segment) * self.node_words as u64;
                    (0..words).map(|_| AtomicU64::new(0)).collect()
                });
                free.made
            }
        };
        drop(free);
        for word in self.words(node) {
            word.store(0, terrane_storage::sync::Ordering::Relaxed);
        }
        node
    }

    /// The words of a node.
    ///
    /// # Panics
    /// If the index was never handed out, like an index beyond a slice.
    pub fn words(&self, node: u64) -> &[AtomicU64] {
        let (segment, number) = place(node);
        let words = self.segments[segment].get().map_or(&[][..], |words| words);
        let first = number as usize * self.node_words;
        &words[first..first + self.node_words]
    }

    /// Announces that the first words of a node will be read soon.
    ///
    /// # Panics
    /// If the index was never handed out, like an index beyond a slice.
    #[inline]
    pub fn prefetch(&self, node: u64, words: usize) {
        #[cfg(not(any(loom, shuttle)))]
        crate::flush::prefetch(&self.words(node)[..words.min(self.node_words)]);
        #[cfg(any(loom, shuttle))]
        let _ = (node, words);
    }

    /// Frees a node that no other thread has seen.
    pub fn free(&self, node: u64) {
        self.free.give_back(node);
    }

    /// Frees a node when every guard that lives now is gone. No later guard may lead to it.
    pub fn retire(&self, node: u64, guard: &Guard<'_>) {
        guard.defer_node(node, &self.free);
    }

    /// Number of nodes that are in use, or retired and not free yet.
    pub fn nodes(&self) -> u64 {
        let free = self.free.0.lock();
        free.made - free.nodes.len() as u64
    }

    /// Bytes of these nodes.
    pub fn bytes(&self) -> u64 {
        self.nodes() * self.node_words as u64 * WORD_LENGTH
    }

    /// Nodes that the segments have room for.
    pub fn reserved_nodes(&self) -> u64 {
        self.reserved_bytes() / (self.node_words as u64 * WORD_LENGTH)
    }

    /// Bytes of all segments, which hold used and free nodes.
    pub fn reserved_bytes(&self) -> u64 {
        let words: usize = self.segments.iter().filter_map(OnceLock::get).map(|words| words.len()).sum();
        words as u64 * WORD_LENGTH
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Arena").field("node_words", &self.node_words).field("nodes", &self.nodes()).finish()
    }
}

/// The segment of a node, and its number there. Nodes are numbered from 1 on.
fn place(node: u64) -> (usize, u64) {
    assert!(node > 0, "0 names no node");
    let number = node - 1;
    let segment = (number / FIRST_NODES + 1).ilog2();
    (segment as usize, number - FIRST_NODES * ((1 << segment) - 1))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use terrane_storage::sync::Ordering;

    use super::*;
    use crate::epoch::Epochs;

    #[test]
    fn nodes_keep_their_words_while_the_arena_grows_and_are_counted() {
        let arena = Arena::new(3);
        let nodes: Vec<u64> = (0..1000).map(|_| arena.allocate()).collect();
        assert_eq!(BTreeSet::from_iter(nodes.iter().copied()).len(), 1000);
        for &node in &nodes {
            arena.words(node).iter().for_each(|word| word.store(node, Ordering::Relaxed));
        }
        for &node in &nodes {
            assert!(arena.words(node).iter().all(|word| word.load(Ordering::Relaxed) == node));
        }
        assert_eq!((arena.nodes(), arena.bytes()), (1000, 24_000));
        assert!((24_000..=24_000 * 2 + 64 * 24).contains(&arena.reserved_bytes()));
        nodes.iter().for_each(|node| arena.free(*node));
        assert_eq!(arena.bytes(), 0);
        let again = arena.allocate();
        assert!(nodes.contains(&again) && arena.words(again).iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_retired_node_is_used_again_when_the_guards_of_its_time_are_gone() {
        let (epochs, arena) = (Epochs::new(), Arena::new(1));
        let nodes: Vec<u64> = (0..8).map(|_| arena.allocate()).collect();
        let guard = epochs.enter();
        nodes.iter().for_each(|node| arena.retire(*node, &guard));
        assert_eq!(arena.nodes(), 8);
        assert!(!nodes.contains(&arena.allocate()));
        drop(guard);
        epochs.enter().expedite();
        assert_eq!(arena.nodes(), 1);
        assert!(nodes.contains(&arena.allocate()));
    }
}
