//! Leaves whose entries validate themselves, so that an insertion takes one flush and one fence.
//!
//! The last word of such an entry is its tag: the incarnation of the leaf, a number that no other
//! node has had or will have, and a generation in the highest bit. An entry is valid if its tag has
//! the incarnation of the leaf and the generation that the header holds for its place. Stores to a
//! line become durable in their order, so an entry with a valid tag is whole (F1).
//! - An insertion stores the entry with the tag that is valid there, and makes its line durable.
//! - A deletion changes the generation of the place, and makes the header durable. The tag that
//!   stays there counts no more; the one that the next insertion stores does.
//! - A committed log entry says by its bitmaps which entries are valid. Brought into a leaf,
//!   generations become those of the tags that shall count, and the opposite of those that shall
//!   not.
//!
//! The bitmap is volatile, and says what is durably valid: a bit comes and goes after what it
//! stands for is durable, so searches need no link-and-persist. In leaves that no writer has met
//! since the opening, the tags count, which are durable since then; the first writer adopts the
//! leaf: it makes the bitmap from the tags.

use terrane_pmem::{Backend, Site, WORD_LENGTH};

use super::layout::{Layout, LeafForm, Metadata};
use super::node::Node;
use super::tree::FbrTree;
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

/// The tag of valid entries of a leaf that nobody has used yet.
pub(super) fn first_tag(incarnation: u64) -> u64 {
    tag(incarnation, false)
}

/// Stores what the header of a new leaf holds for its entries' tags.
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

/// Whether a leaf looks like one of the tree's form: those whose entries validate themselves have
/// an incarnation, which is never 0, and of the others no entry has the tag of one: all their marks
/// are 0.
pub(super) fn has_form<const D: usize, B: Backend>(layout: &Layout<D>, leaf: &Node<'_, D, B>) -> bool {
    let incarnation = leaf.header_word(layout.incarnation());
    match layout.leaves {
        LeafForm::SelfValidating => incarnation != 0,
        // What lies in the place of an incarnation may be anything, also a coordinate.
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

    /// Whether the bitmap of a node is of an earlier use of the pool, and means nothing.
    #[inline]
    pub(super) fn is_to_be_adopted(&self, node: &Node<'_, D, B>) -> bool {
        self.has_tags(node.level()) && node.header_word(self.layout.adopted()) != self.session
    }

    /// What a node holds, for who has no lock on it; to be believed if its sequence number has not
    /// changed.
    #[inline]
    pub(super) fn metadata(&self, node: &Node<'_, D, B>) -> Metadata {
        if self.is_to_be_adopted(node) { self.by_tags(node) } else { node.bitmap() }
    }

    /// Makes the bitmap of a locked leaf.
    #[cold]
    pub(super) fn adopt(&self, leaf: &Node<'_, D, B>) {
        let metadata = self.by_tags(leaf);
        self.bring_bitmap(leaf, &metadata);
        // Who has gone by the tags may miss what comes from now on.
        self.bump(leaf);
    }

    /// The entries whose tags are valid.
    #[cold]
    pub(super) fn by_tags(&self, leaf: &Node<'_, D, B>) -> Metadata {
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

    /// The bitmap first: once the leaf is adopted in this session, searches go by that alone.
    fn bring_bitmap(&self, leaf: &Node<'_, D, B>, metadata: &Metadata) {
        self.store_metadata(leaf, metadata);
        self.backend().store(leaf.word(self.layout.adopted()), self.session);
    }

    /// The mark of an entry that is written to a free place and does not count yet: its bit comes
    /// later.
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

    /// Deletes an entry of a leaf, whose tag has to be valid: another one would become so.
    pub(super) fn delete_tagged(&self, leaf: &Node<'_, D, B>, mut metadata: Metadata, slot: usize) -> Result<()> {
        let (word, bit) = Metadata::place(slot);
        if leaf.mark(slot) != tag(self.incarnation(leaf), self.generations(leaf).holds(slot)) {
            return Err(self.damaged(leaf.link(slot), "the bitmap of a leaf has an entry that has no valid tag"));
        }
        let offset = leaf.word(self.layout.generation_word(word));
        // As where entries have bits alone.
        self.bump(leaf);
        self.backend().store(offset, self.backend().load(offset) ^ bit);
        self.backend().persist(offset..offset + WORD_LENGTH, GENERATION);
        metadata.set(slot, false);
        self.store_metadata(leaf, &metadata);
        self.bump(leaf);
        Ok(())
    }

    /// Brings the bitmap of a committed log entry into a node; what is stored of it in the header
    /// is not flushed yet. It may have been brought already.
    pub(super) fn bring_in(&self, node: &Node<'_, D, B>, bitmap: &Metadata) -> Result<()> {
        if !self.has_tags(node.level()) {
            self.store_metadata(node, bitmap);
            return Ok(());
        }
        let (incarnation, mut generations) = (self.incarnation(node), self.generations(node));
        for slot in 0..self.layout.fan_out {
            match generation(node.mark(slot), incarnation) {
                Some(generation) => generations.set(slot, generation == bitmap.holds(slot)),
                None if bitmap.holds(slot) => {
                    return Err(
                        self.damaged(node.link(slot), "an entry that the log says is valid has no tag of its leaf")
                    );
                }
                None => {}
            }
        }
        for (number, &word) in generations.words().iter().enumerate() {
            self.backend().store(node.word(self.layout.generation_word(number)), word);
        }
        self.bring_bitmap(node, bitmap);
        Ok(())
    }
}
