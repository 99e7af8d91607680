//! Insertion (Algorithm 2): boxes grow on the way down, a slot is reserved in memory, and the entry
//! counts when its bit does.

use terrane_pmem::{Backend, Guard, Site};
use terrane_storage::sync::Ordering;

use super::inner::RESERVED;
use super::layout::{FROZEN, MAP};
use super::options::Gap;
use super::tree::{PmrTree, Way};
use crate::Result;
use crate::rtree::LeafForm;
use crate::rtree::choose;
use crate::rtree::rect::Rect;

const ENTRY: Site = Site::new("pmr.insert.entry");
const MAP_WORD: Site = Site::new("pmr.insert.map");

/// What a leaf did with an entry.
enum Outcome {
    Inserted,
    /// All slots are used.
    Full,
    /// The leaf is being replaced. The entry was written into a slot, and does not count.
    Frozen(usize),
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Inserts a box with a payload. When it returns, the entry is durable. If it fails, the entry
    /// is not in the tree.
    ///
    /// Durable after each step: the entry is written, in a slot that nobody reads; its bit is set.
    /// Without a split this takes two flushes and two fences, and one of each if entries validate
    /// themselves.
    pub fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        self.with_space(|guard| {
            loop {
                let Some((way, stub)) = self.descend(rect, guard)? else { continue };
                let written = match self.insert_into_leaf(stub, rect, payload, guard)? {
                    Outcome::Inserted => return Ok(()),
                    Outcome::Full => None,
                    Outcome::Frozen(slot) => Some(slot),
                };
                self.replace_leaf(&way, stub, guard).inspect_err(|_| {
                    if let Some(slot) = written {
                        self.restore_tag(self.leaf_of(stub), slot, false);
                    }
                })?;
            }
        })
    }

    /// The way to a leaf for a box, with boxes that contain it; `None` if nodes were copied
    /// meanwhile.
    fn descend(&self, rect: &Rect<D>, guard: &Guard<'_>) -> Result<Option<(Way, u64)>> {
        let (mut way, mut node) = (Way::new(), self.root());
        loop {
            let inner = self.inner(node);
            let Some((slot, _)) = choose::least_enlargement(inner.rects(), rect) else {
                return Err(self.damaged(self.block, "an inner node in memory has no children"));
            };
            match self.has_gap(Gap::Boxes) {
                true => inner.store_union(slot, rect),
                false => inner.enlarge(slot, rect),
            }
            let Some(child) = inner.child_to_change(slot) else {
                self.copy_node(&way, node, guard)?;
                return Ok(None);
            };
            way.push((node, slot));
            if inner.level() == 1 {
                return Ok(Some((way, child)));
            }
            node = child;
        }
    }

    /// A slot of a leaf that no other insertion gets (P1); `None` if all are used.
    fn reserve(&self, stub: u64, guard: &Guard<'_>) -> Result<Option<usize>> {
        if self.has_gap(Gap::Slots) || self.has_gap(Gap::Versions) {
            return self.first_free_slot(stub, guard);
        }
        let (reserved, fan_out) = (&self.stubs.words(stub)[RESERVED], self.layout.fan_out);
        // Others may have counted on behind the last slot.
        if reserved.load(Ordering::Acquire) >= fan_out as u64 {
            return Ok(None);
        }
        let slot = reserved.fetch_add(1, Ordering::AcqRel) as usize;
        Ok((slot < fan_out).then_some(slot))
    }

    /// Inserts an entry into a leaf, if that has room and is not frozen.
    fn insert_into_leaf(&self, stub: u64, rect: &Rect<D>, payload: u64, guard: &Guard<'_>) -> Result<Outcome> {
        let Some(slot) = self.reserve(stub, guard)? else { return Ok(Outcome::Full) };
        let leaf = self.leaf_of(stub);
        match self.layout.leaves {
            LeafForm::Bitmap => self.backend().persist(self.write_entry(leaf, slot, rect, payload), ENTRY),
            LeafForm::SelfValidating => self.write_tagged_entry(leaf, slot, rect, payload),
        }
        let (word, bit) = self.layout.bit(slot);
        loop {
            let found = self.map_word(stub, word, guard)?;
            if found & FROZEN != 0 {
                return Ok(Outcome::Frozen(slot));
            }
            if found & (1 << bit) != 0 && self.has_gap(Gap::Slots) {
                return Ok(Outcome::Inserted);
            }
            if found & (1 << bit) != 0 || found & !(MAP | self.version_bits()) != 0 {
                return Err(self.damaged(leaf, "a word of the bitmap is impossible"));
            }
            if self.change_map_word(stub, word, (found, found | 1 << bit), MAP_WORD, guard)? {
                return Ok(Outcome::Inserted);
            }
        }
    }
}
