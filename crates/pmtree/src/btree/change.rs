//! Changes of several nodes: what they store, and the blocks that they acquire and release.

use terrane_pmem::WORD_LENGTH;

use super::layout::ROOT_WORD;
use super::place;

/// The most blocks that a change acquires: a half of a node, and a root.
pub(super) const ACQUIRED: usize = 2;

/// Unchanged words between changed ones that are stored with them, since a range of its own costs
/// one as well.
const GAP: usize = 1;

/// Consecutive words of a node, or the root word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) node: u64,
    /// Number of the first word.
    pub(super) first: usize,
    pub(super) words: Vec<u64>,
}

/// An inner node in the pool that gets the first acquired block as a child, by a shift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Linking {
    pub(super) parent: u64,
    /// Number of its children before.
    pub(super) before: usize,
    /// The least key of the new child.
    pub(super) separator: Vec<u64>,
}

/// New contents for a few words of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// New blocks, or 0.
    pub(super) acquired: [u64; ACQUIRED],
    /// The node that is removed, or 0.
    pub(super) released: u64,
    /// The root, if it changes and is in memory.
    pub(super) memory_root: Option<u64>,
    /// The node that links a new one, if its words are not among those that are stored. Such a
    /// change releases nothing.
    pub(super) linking: Option<Linking>,
    /// What is stored to nodes in the pool.
    pub(super) writes: Vec<Write>,
    /// What is stored to nodes in memory.
    pub(super) memory_writes: Vec<Write>,
}

impl Change {
    /// Adds the words of a node that differ.
    pub(super) fn write(&mut self, node: u64, before: &[u64], after: &[u64]) {
        let mut differing = (0..before.len()).filter(|&word| before[word] != after[word]).peekable();
        while let Some(first) = differing.next() {
            let mut last = first;
            while let Some(next) = differing.next_if(|&word| word <= last + 1 + GAP) {
                last = next;
            }
            let write = Write { node, first, words: after[first..=last].to_vec() };
            match place::in_memory(node) {
                Some(_) => self.memory_writes.push(write),
                None => self.writes.push(write),
            }
        }
    }

    /// Changes the root, which the block's root word leads to or is in memory.
    pub(super) fn write_root(&mut self, block: u64, root: u64, is_in_memory: bool) {
        match is_in_memory {
            true => self.memory_root = Some(root),
            false => {
                let first = (ROOT_WORD / WORD_LENGTH) as usize;
                self.writes.push(Write { node: block, first, words: vec![root] });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_the_words_that_differ_in_ranges_that_save_words() {
        let (before, mut after) = ([0; 16], [0; 16]);
        [1, 3, 6, 15].into_iter().for_each(|word| after[word] = word as u64);
        let mut change = Change::default();
        change.write(64, &before, &after);
        let ranges: Vec<_> = change.writes.iter().map(|write| (write.first, write.words.clone())).collect();
        assert_eq!(ranges, [(1, vec![1, 0, 3]), (6, vec![6]), (15, vec![15])]);
        change.writes.clear();
        change.write(64, &after, &after);
        assert_eq!(change, Change::default());
    }
}
