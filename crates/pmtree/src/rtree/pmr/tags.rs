//! Leaves whose entries validate themselves, so that an insertion takes one flush and one fence.
//!
//! The last word of an entry's line is its tag. An entry is valid if its tag is the incarnation of
//! the leaf, a number that no other leaf ever has. Stores to one line become durable in their
//! order, so an entry with a valid tag is whole. A deletion sets the highest bit of the tag.
//!
//! The bitmap lies in memory. A tag changes durably before the bit (P8), so a reader finds nothing
//! there that a crash could take back. A crash between the two completes an operation that has not
//! returned. If the leaf is frozen between the two, the bit counts, and the operation starts again
//! once the leaf was replaced. If it cannot be replaced, the tag gets its former value.

use terrane_pmem::{Backend, Site, View, WORD_LENGTH};

use super::layout::{INCARNATION, Layout};
use super::leaf::Map;
use super::tree::PmrTree;
use crate::Result;
use crate::rtree::LeafForm;
use crate::rtree::rect::Rect;

const ENTRY: Site = Site::new("pmr.tags.entry");
const REVOKE: Site = Site::new("pmr.tags.revoke");
const RESTORE: Site = Site::new("pmr.tags.restore");

/// The bit of a tag that is set when the entry was deleted.
const REVOKED: u64 = 1 << 63;

/// Whether a number can be the incarnation of a leaf.
pub(super) fn is_incarnation(number: u64) -> bool {
    number != 0 && number & REVOKED == 0
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    fn has_tags(&self) -> bool {
        self.layout.leaves == LeafForm::SelfValidating
    }

    fn tag_of(&self, leaf: u64, slot: usize) -> u64 {
        leaf + self.layout.entry(slot) + Layout::<D>::TAG
    }

    fn store_tag(&self, leaf: u64, slot: usize, is_valid: bool) {
        let incarnation = self.backend().load(leaf + INCARNATION);
        let tag = if is_valid { incarnation } else { incarnation | REVOKED };
        self.backend().store(self.tag_of(leaf, slot), tag);
    }

    /// Makes an entry valid that was written. It is durable with the entry's line.
    pub(super) fn validate(&self, leaf: u64, slot: usize) {
        self.store_tag(leaf, slot, true);
    }

    /// Writes an entry that is valid when its line is durable, and makes it so.
    pub(super) fn write_tagged_entry(&self, leaf: u64, slot: usize, rect: &Rect<D>, payload: u64) {
        let written = self.write_entry(leaf, slot, rect, payload);
        self.validate(leaf, slot);
        self.backend().persist(written.start..written.start + Layout::<D>::ENTRY_LENGTH, ENTRY);
    }

    /// Makes an entry invalid durably, before its bit is cleared.
    pub(super) fn revoke(&self, leaf: u64, slot: usize) {
        if self.has_tags() {
            self.store_tag(leaf, slot, false);
            let tag = self.tag_of(leaf, slot);
            self.backend().persist(tag..tag + WORD_LENGTH, REVOKE);
        }
    }

    /// Gives an entry of a frozen leaf the tag that its bit asks for, as the operation that has
    /// changed the tag fails. No bit of the leaf changes any more, so other operations that have
    /// changed the tag fail too, or find the entry in a copy of the leaf.
    pub(super) fn restore_tag(&self, leaf: u64, slot: usize, is_valid: bool) {
        if self.has_tags() {
            self.store_tag(leaf, slot, is_valid);
            let tag = self.tag_of(leaf, slot);
            self.backend().persist(tag..tag + WORD_LENGTH, RESTORE);
        }
    }

    /// The valid entries of a leaf by their tags, while nobody changes them.
    pub(super) fn map_by_tags(&self, leaf: u64) -> Result<Map> {
        let length = self.layout.leaf_length();
        self.pool.check_range(leaf, length)?;
        let (view, incarnation) = (self.backend().view(leaf, length), self.backend().load(leaf + INCARNATION));
        let tag = |slot: usize| view.load(((self.layout.entry(slot) + Layout::<D>::TAG) / WORD_LENGTH) as usize);
        Ok(Map::of((0..self.layout.fan_out).filter(|slot| tag(*slot) == incarnation), &self.layout))
    }
}
