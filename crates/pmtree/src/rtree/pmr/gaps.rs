//! Steps of the paper that ours replace, for tests ([`Gap`]).

use terrane_pmem::{Backend, Guard};

use super::layout::{MAP, MAP_BITS};
use super::options::Gap;
use super::tree::PmrTree;
use crate::Result;
use crate::rtree::rect::Rect;

/// The version in a word of the bitmap: 8 bits, as in the paper.
const VERSION: u64 = 0xff << MAP_BITS;

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// The bits of a version, if words of the bitmap have one.
    pub(super) fn version_bits(&self) -> u64 {
        if self.has_gap(Gap::Versions) { VERSION } else { 0 }
    }

    /// The new value of a word, with the next version if words have one.
    pub(super) fn with_version(&self, old: u64, new: u64) -> u64 {
        let bits = self.version_bits();
        new & !bits | old.wrapping_add(1 << MAP_BITS) & bits
    }

    /// The first slot without an entry, which several insertions may get.
    pub(super) fn first_free_slot(&self, stub: u64, guard: &Guard<'_>) -> Result<Option<usize>> {
        let map = self.map(stub, guard)?;
        let is_free = |slot: &usize| {
            let (word, bit) = self.layout.bit(*slot);
            map.words[word] & 1 << bit == 0
        };
        Ok((0..self.layout.fan_out).find(is_free))
    }

    /// Visits the entries of a leaf that overlap a window. They count if all words of the bitmap
    /// are the same before and after they are read.
    pub(super) fn visit_by_versions(
        &self,
        stub: u64,
        window: &Rect<D>,
        visit: &mut impl FnMut(&Rect<D>, u64),
        guard: &Guard<'_>,
    ) -> Result<()> {
        let words = || (0..self.layout.map_words).map(|word| self.map_word(stub, word, guard)).collect::<Result<_>>();
        let entries = self.entries(self.leaf_of(stub))?;
        let mut before: Vec<u64> = words()?;
        loop {
            let slots = (0..self.layout.fan_out).filter(|slot| {
                let (word, bit) = self.layout.bit(*slot);
                before[word] & MAP & 1 << bit != 0
            });
            let found: Vec<_> = slots.map(|slot| (entries.rect(slot), entries.payload(slot))).collect();
            let after = words()?;
            if after == before {
                let hits = found.iter().filter(|(rect, _)| window.overlaps(rect));
                hits.for_each(|(rect, payload)| visit(rect, *payload));
                return Ok(());
            }
            before = after;
        }
    }
}
