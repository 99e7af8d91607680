//! Nodes in a pool.

use terrane_pmem::{Backend, Pool, View, WORD_LENGTH};

use super::layout::{LEVEL, LOG, Layout, Metadata, SEQUENCE};
use crate::blocks;
use crate::{Rect, Result};

/// A node, in place in the pool.
pub(super) struct Node<'a, const D: usize, B: Backend + 'a> {
    pub(super) offset: u64,
    layout: Layout<D>,
    view: B::View<'a>,
}

impl<'a, const D: usize, B: Backend + 'a> Clone for Node<'a, D, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, const D: usize, B: Backend + 'a> Copy for Node<'a, D, B> {}

impl<'a, const D: usize, B: Backend> Node<'a, D, B> {
    /// The node at an offset, which lies in the pool.
    #[inline]
    pub(super) fn at(pool: &'a Pool<B>, layout: &Layout<D>, offset: u64) -> Result<Self> {
        let length = layout.node_length();
        pool.check_range(offset, length)?;
        Ok(Self { offset, layout: *layout, view: pool.backend().view(offset, length) })
    }
}

impl<const D: usize, B: Backend> Node<'_, D, B> {
    pub(super) fn level(&self) -> u64 {
        self.view.load(LEVEL)
    }

    #[inline]
    pub(super) fn sequence(&self) -> u64 {
        self.view.load(SEQUENCE)
    }

    /// The word that names the log entry which changes the node.
    #[inline]
    pub(super) fn log_word(&self) -> u64 {
        self.view.load(LOG)
    }

    /// The numbers that show whether entries went or moved: the sequence number and the log word.
    #[inline]
    pub(super) fn numbers(&self) -> (u64, u64) {
        (self.sequence(), self.log_word())
    }

    /// The bitmap in the header. While a log entry changes the node, the entry's bitmap counts
    /// instead.
    ///
    /// If the sequence number has not changed, this is the header at one instant, apart from
    /// bitmaps that a log entry brings in. The reason: entries are inserted at the first free
    /// place. While none is removed, a later word gets a bit only when all earlier words are full,
    /// and the earlier words are read later. A mixture of words from before and after a log entry's
    /// bitmap is detected by the number of the parent, or by the root word, which change before the
    /// log entry goes. In a parent of copies, its own number detects it.
    #[inline]
    pub(super) fn bitmap(&self) -> Metadata {
        Metadata::read(self.layout.words, |word| self.view.load(self.layout.bitmap_word(word)))
    }

    /// Returns an error for a bitmap or a type that the node cannot have.
    #[inline]
    pub(super) fn check_metadata(&self, pool: &Pool<B>, metadata: &Metadata) -> Result<()> {
        if metadata.has_entries_beyond(self.layout.fan_out) || metadata.is_leaf() != (self.level() == 0) {
            return Err(blocks::damaged(pool, self.offset, "it has an impossible bitmap or type"));
        }
        Ok(())
    }

    /// One of the header's words, by its number.
    #[inline]
    pub(super) fn header_word(&self, number: usize) -> u64 {
        self.view.load(number)
    }

    /// The last word of an entry: its mark, or its tag.
    pub(super) fn mark(&self, slot: usize) -> u64 {
        self.view.load(self.layout.mark(slot))
    }

    #[inline]
    pub(super) fn rect(&self, slot: usize) -> Rect<D> {
        let entry = self.layout.entry(slot);
        let corner = |first: usize| self.view.load_array::<D>(first).map(f64::from_bits);
        Rect::raw(corner(entry), corner(entry + D))
    }

    /// Child or payload.
    #[inline]
    pub(super) fn target(&self, slot: usize) -> u64 {
        self.view.load(self.layout.target(slot))
    }

    /// The entry that links a child.
    pub(super) fn slot_of(&self, metadata: &Metadata, child: u64) -> Option<usize> {
        metadata.slots().find(|&slot| self.target(slot) == child)
    }

    /// The smallest box around these entries; `None` without any.
    pub(super) fn bounds(&self, metadata: &Metadata) -> Option<Rect<D>> {
        metadata.slots().map(|slot| self.rect(slot)).reduce(|all, rect| all.union(&rect))
    }

    /// Offset of a word.
    pub(super) fn word(&self, number: usize) -> u64 {
        self.offset + number as u64 * WORD_LENGTH
    }

    /// Offset of an entry's child, the word that links it.
    pub(super) fn link(&self, slot: usize) -> u64 {
        self.word(self.layout.target(slot))
    }
}

/// Stores the header of a node that nobody reads.
pub(super) fn write_header<const D: usize>(
    backend: &impl Backend,
    layout: &Layout<D>,
    node: u64,
    level: u64,
    metadata: &Metadata,
) {
    let word = |number: usize| node + number as u64 * WORD_LENGTH;
    for (number, &bits) in metadata.words().iter().enumerate() {
        backend.store(word(layout.bitmap_word(number)), bits);
    }
    backend.store(word(SEQUENCE), 0);
    backend.store(word(LOG), 0);
    backend.store(word(LEVEL), level);
}
