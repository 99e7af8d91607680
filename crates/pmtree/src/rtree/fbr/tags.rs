//! Leaves whose entries validate themselves, so that an insertion takes one flush and one fence.
//!
//! The last word of such an entry is its tag. It holds the incarnation of the leaf, a number that
//! no other node ever has, and a generation in the highest bit. An entry is valid if its tag has
//! the incarnation of the leaf and the generation that the header holds for its place. Stores to
//! one line become durable in their order, so an entry with a valid tag is whole (F1).
//! - An insertion stores the entry with the tag that is valid there, and makes its line durable.
//! - A deletion changes the generation of the place, and makes the header durable. The old tag
//!   there is invalid then, and the next insertion's tag will be valid.
//! - A committed log entry states the valid entries by its bitmaps. Applied to a leaf, each
//!   generation becomes that of the tag if the entry is valid, and the opposite otherwise.
//!
//! The bitmap is volatile, and tells which entries are durably valid. A bit changes after its
//! entry's change is durable, so searches need no link-and-persist. In leaves that no writer has
//! met since the opening, the tags count, which are durable since then. The first writer adopts the
//! leaf: it makes the bitmap from the tags.

use terrane_pmem::{Backend, Site, WORD_LENGTH};

use super::layout::{Layout, Metadata};
use super::node::Node;
use super::tree::FbrTree;
use crate::rtree::LeafForm;
use crate::{Rect, Result};

const ENTRY: Site = Site::new("fbr.tags.entry");
const GROWN: Site = Site::new("fbr.tags.grown");
const GENERATION: Site = Site::new("fbr.tags.generation");

/// The bit of a tag that is its generation.
const GENERATION_BIT: u64 = 1 << 63;

/// The tag of an entry.
fn tag(incarnation: u64, generation: bool) -> u64 {
    (incarnation & !GENERATION_BIT) | (u64::from(generation) << 63)
}

/// The generation of a tag, if it belongs to a leaf.
fn generation(tag: u64, incarnation: u64) -> Option<bool> {
    ((tag ^ incarnation) & !GENERATION_BIT == 0).then_some(tag & GENERATION_BIT != 0)
}

/// The tag of valid entries of a new leaf.
pub(super) fn first_tag(incarnation: u64) -> u64 {
    tag(incarnation, false)
}

/// Stores the words of a new leaf's header that belong to its entries' tags.
pub(super) fn write_header<const D: usize>(
    backend: &impl Backend,
    layout: &Layout<D>,
    leaf: u64,
    incarnation: u64,
    session: u64,
) {
    let word = |number: usize| leaf + number as u64 * WORD_LENGTH;
    backend.store(word(layout.incarnation()), incarnation);
    backend.store(word(layout.adopted()), session);
    (0..layout.words).for_each(|number| backend.store(word(layout.generation_word(number)), 0));
}

/// Whether a leaf looks like one of the tree's form. With self-validating entries, it has an
/// incarnation, which is never 0. Otherwise no entry has the tag of one, since all marks are 0.
pub(super) fn has_form<const D: usize, B: Backend>(layout: &Layout<D>, leaf: &Node<'_, D, B>) -> bool {
    let incarnation = leaf.header_word(layout.incarnation());
    match layout.leaves {
        LeafForm::SelfValidating => incarnation != 0,
        // The word in the place of an incarnation may be anything, even a coordinate.
        LeafForm::Bitmap => {
            let bitmap = leaf.bitmap();
            let marks = bitmap.slots().filter(|slot| *slot < layout.fan_out).map(|slot| leaf.mark(slot));
            marks.filter(|mark| *mark != 0).all(|mark| generation(mark, incarnation).is_none())
        }
    }
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Whether the entries of nodes of a level validate themselves.
    #[inline]
    pub(super) fn has_tags(&self, level: u64) -> bool {
        self.layout.leaves == LeafForm::SelfValidating && level == 0
    }

    /// Whether the bitmap of a node is from an earlier session, and means nothing.
    #[inline]
    pub(super) fn needs_adoption(&self, node: &Node<'_, D, B>) -> bool {
        self.has_tags(node.level()) && node.header_word(self.layout.adopted()) != self.session
    }

    /// The metadata of a node, for callers without its lock. It is valid if the sequence number has
    /// not changed.
    #[inline]
    pub(super) fn metadata(&self, node: &Node<'_, D, B>) -> Metadata {
        if self.needs_adoption(node) { self.metadata_by_tags(node) } else { node.bitmap() }
    }

    /// Makes the bitmap of a locked leaf.
    #[cold]
    pub(super) fn adopt(&self, leaf: &Node<'_, D, B>) {
        let metadata = self.metadata_by_tags(leaf);
        self.store_adopted_bitmap(leaf, &metadata);
        // A reader that used the tags may miss later entries.
        self.bump(leaf);
    }

    /// The entries whose tags are valid.
    #[cold]
    pub(super) fn metadata_by_tags(&self, leaf: &Node<'_, D, B>) -> Metadata {
        let (incarnation, generations) = (self.incarnation(leaf), self.generations(leaf));
        let mut metadata = Metadata::empty(true, self.layout.words);
        for slot in 0..self.layout.fan_out {
            metadata.set(slot, leaf.mark(slot) == tag(incarnation, generations.holds(slot)));
        }
        metadata
    }

    fn incarnation(&self, leaf: &Node<'_, D, B>) -> u64 {
        leaf.header_word(self.layout.incarnation())
    }

    /// The generations that count, as a bitmap.
    fn generations(&self, leaf: &Node<'_, D, B>) -> Metadata {
        Metadata::read(self.layout.words, |word| leaf.header_word(self.layout.generation_word(word)))
    }

    /// The bitmap comes first: once the leaf is adopted in this session, searches use only that.
    fn store_adopted_bitmap(&self, leaf: &Node<'_, D, B>, metadata: &Metadata) {
        self.store_metadata(leaf, metadata);
        self.backend().store(leaf.word(self.layout.adopted()), self.session);
    }

    /// The mark for an entry in a free place that does not count yet: its bit is set later.
    pub(super) fn uncounted_mark(&self, node: &Node<'_, D, B>, slot: usize) -> u64 {
        if !self.has_tags(node.level()) {
            return 0;
        }
        tag(self.incarnation(node), !self.generations(node).holds(slot))
    }

    /// Inserts into a free place of a leaf. The entry counts when its line is durable, so boxes
    /// that have grown for it are made durable before (F2).
    pub(super) fn insert_tagged(
        &self,
        leaf: &Node<'_, D, B>,
        mut metadata: Metadata,
        slot: usize,
        (rect, payload): (&Rect<D>, u64),
        has_grown: bool,
    ) {
        if has_grown {
            self.backend().fence(GROWN);
        }
        let tag = tag(self.incarnation(leaf), self.generations(leaf).holds(slot));
        self.write_entry(leaf, slot, rect, payload, tag);
        self.flush_entry(leaf, slot, ENTRY);
        self.backend().fence(ENTRY);
        metadata.set(slot, true);
        self.store_metadata(leaf, &metadata);
    }

    /// Deletes an entry of a leaf. Its tag must be valid, since an invalid one would become valid.
    pub(super) fn delete_tagged(&self, leaf: &Node<'_, D, B>, mut metadata: Metadata, slot: usize) -> Result<()> {
        let (word, bit) = Metadata::place(slot);
        if leaf.mark(slot) != tag(self.incarnation(leaf), self.generations(leaf).holds(slot)) {
            return Err(self.damaged(leaf.link(slot), "the bitmap of a leaf has an entry without a valid tag"));
        }
        let offset = leaf.word(self.layout.generation_word(word));
        // As for entries with bits only.
        self.bump(leaf);
        self.backend().store(offset, self.backend().load(offset) ^ bit);
        self.backend().persist(offset..offset + WORD_LENGTH, GENERATION);
        metadata.set(slot, false);
        self.store_metadata(leaf, &metadata);
        self.bump(leaf);
        Ok(())
    }

    /// Applies the bitmap of a committed log entry to a node. The changes of the header are not
    /// flushed yet. It may have been applied already.
    pub(super) fn apply_bitmap(&self, node: &Node<'_, D, B>, bitmap: &Metadata) -> Result<()> {
        if !self.has_tags(node.level()) {
            self.store_metadata(node, bitmap);
            return Ok(());
        }
        let (incarnation, mut generations) = (self.incarnation(node), self.generations(node));
        for slot in 0..self.layout.fan_out {
            match generation(node.mark(slot), incarnation) {
                Some(generation) => generations.set(slot, generation == bitmap.holds(slot)),
                None if bitmap.holds(slot) => {
                    return Err(self.damaged(node.link(slot), "a valid entry, by the log, has no tag of its leaf"));
                }
                None => {}
            }
        }
        for (number, &word) in generations.words().iter().enumerate() {
            self.backend().store(node.word(self.layout.generation_word(number)), word);
        }
        self.store_adopted_bitmap(node, bitmap);
        Ok(())
    }
}
