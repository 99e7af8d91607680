//! Nodes as words, in the pool and copied from it.
//!
//! ```text
//! word 0      level: 0 in leaves
//! word 1      number of entries
//! word 8..    entries of whole lines, without gaps
//! ```
//! An entry holds the lower and the upper corner, then the offset of the child, or the payload.
//! Entries have the length of the FBR-tree's. A bitmap would be useless, since no entry counts
//! before its whole node does.

use terrane_pmem::View;

use super::layout::{COUNT, LEVEL, Layout};
use crate::Rect;

/// A node to read: words in the pool, or of an [`Image`].
#[derive(Clone, Copy)]
pub(super) struct Node<const D: usize, V> {
    pub(super) offset: u64,
    words: V,
}

impl<const D: usize, V: View> Node<D, V> {
    pub(super) fn new(offset: u64, words: V) -> Self {
        Self { offset, words }
    }

    #[inline]
    pub(super) fn level(&self) -> u64 {
        self.words.load(LEVEL)
    }

    /// Number of entries. It is checked once, when a node is made of words in the pool.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.words.load(COUNT) as usize
    }

    #[inline]
    pub(super) fn rect(&self, slot: usize) -> Rect<D> {
        let corner = |first: usize| self.words.load_array::<D>(first).map(f64::from_bits);
        let entry = Layout::<D>::entry(slot);
        Rect::raw(corner(entry), corner(entry + D))
    }

    /// Child or payload.
    #[inline]
    pub(super) fn target(&self, slot: usize) -> u64 {
        self.words.load(Layout::<D>::target(slot))
    }

    /// Boxes and children or payloads.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Rect<D>, u64)> {
        (0..self.count()).map(|slot| (self.rect(slot), self.target(slot)))
    }

    /// The entry that links a child.
    pub(super) fn slot_of(&self, child: u64) -> Option<usize> {
        (0..self.count()).find(|&slot| self.target(slot) == child)
    }

    /// The smallest box around the entries; `None` without any.
    pub(super) fn bounds(&self) -> Option<Rect<D>> {
        self.entries().map(|(rect, _)| rect).reduce(|all, rect| all.union(&rect))
    }
}

/// The words of a node in its new state.
#[derive(Clone, Debug)]
pub(super) struct Image<const D: usize> {
    pub(super) offset: u64,
    words: Vec<u64>,
}

/// Words outside of a pool.
#[derive(Clone, Copy)]
pub(super) struct Copied<'a>(&'a [u64]);

impl View for Copied<'_> {
    fn load(&self, index: usize) -> u64 {
        self.0[index]
    }
}

impl<const D: usize> Image<D> {
    /// A new node without entries.
    pub(super) fn new(layout: &Layout<D>, offset: u64, level: u64) -> Self {
        let mut words = vec![0; layout.node_words()];
        words[LEVEL] = level;
        Self { offset, words }
    }

    /// Copies all words of a node, which `word` gives by their numbers.
    pub(super) fn read(layout: &Layout<D>, offset: u64, word: impl Fn(usize) -> u64) -> Self {
        Self { offset, words: (0..layout.node_words()).map(word).collect() }
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Words up to the end of the last entry.
    pub(super) fn used_words(&self) -> &[u64] {
        &self.words[..Layout::<D>::entry(self.node().count())]
    }

    pub(super) fn node(&self) -> Node<D, Copied<'_>> {
        Node::new(self.offset, Copied(&self.words))
    }

    pub(super) fn set_rect(&mut self, slot: usize, rect: &Rect<D>) {
        let entry = Layout::<D>::entry(slot);
        for (word, coordinate) in self.words[entry..].iter_mut().zip(rect.min().iter().chain(rect.max())) {
            *word = coordinate.to_bits();
        }
    }

    /// Adds an entry; there must be room.
    pub(super) fn push(&mut self, rect: &Rect<D>, target: u64) {
        let slot = self.node().count();
        self.set_rect(slot, rect);
        self.words[Layout::<D>::target(slot)] = target;
        self.words[COUNT] += 1;
    }

    /// Removes an entry. The last one takes its place.
    pub(super) fn remove(&mut self, slot: usize) {
        let last = self.node().count() - 1;
        let moved = Layout::<D>::entry(last)..Layout::<D>::entry(last + 1);
        self.words.copy_within(moved, Layout::<D>::entry(slot));
        self.words[COUNT] -= 1;
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.words[COUNT] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go_without_gaps() {
        let layout = Layout::<3>::new(5).unwrap();
        assert_eq!(layout.node_length(), 64 + 5 * 64);
        let rect = |at: u64| Rect::point([at as f64; 3]).unwrap();
        let mut image = Image::new(&layout, 640, 7);
        (0..5).for_each(|payload| image.push(&rect(payload), payload));
        image.remove(1);
        image.set_rect(0, &rect(9));
        let node = image.node();
        assert_eq!((node.level(), node.count(), node.slot_of(4), node.slot_of(1)), (7, 4, Some(1), None));
        assert_eq!(node.entries().collect::<Vec<_>>(), [(9, 0), (4, 4), (2, 2), (3, 3)].map(|(at, of)| (rect(at), of)));
        assert_eq!(node.bounds(), Some(rect(2).union(&rect(9))));
        assert_eq!(image.used_words().len(), 8 + 4 * 8);
        image.clear();
        assert_eq!(image.node().bounds(), None);
        assert!(Layout::<3>::new(3).is_none() && Layout::<3>::new(504).is_none());
    }
}
