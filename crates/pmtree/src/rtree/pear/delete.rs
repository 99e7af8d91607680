//! Deletion: the bit of an entry is cleared, a leaf with too few entries is merged, and boxes
//! shrink.

use terrane_pmem::{Backend, Guard, Site};

use super::layout::slots;
use super::lock::Locked;
use super::tree::{PearTree, Way};
use crate::Result;
use crate::blocks;
use crate::rtree::rect::Rect;

const MAP: Site = Site::new("pear.delete.map");

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Deletes an entry with exactly this box and payload, one if there are several. Gives whether
    /// there was one. Coordinates are compared as numbers, so a box at -0.0 equals one at 0.0. When
    /// it returns, the entry is gone durably.
    ///
    /// Durable after each step: the entry is gone; then what a merge makes. If there is no space
    /// for that, the leaf stays as it is.
    pub fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        let rect = self.layout.stored(rect);
        let guard = self.pool.pin();
        while let Some(way) = self.find(&rect, payload, &guard)? {
            let Some(leaf) = self.lock(way[way.len() - 1])? else { continue };
            let Some(slot) = self.slot_of_entry(&leaf, &rect, payload) else { continue };
            self.change_map(&leaf, leaf.bitmap() & !(1 << slot), MAP);
            // Before another entry takes the slot.
            leaf.advance();
            let is_underfull = way.len() > 1 && leaf.count() < self.fill_min(0);
            drop(leaf);
            if is_underfull {
                self.relieve(&way, &guard).or_else(blocks::tolerate_missing_space)?;
            } else {
                self.tighten(&way, way.len() - 1)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn slot_of_entry(&self, leaf: &Locked<'_, D, B>, rect: &Rect<D>, payload: u64) -> Option<usize> {
        slots(leaf.bitmap()).find(|&slot| leaf.target(0, slot) == payload && leaf.rect(0, slot) == *rect)
    }

    /// Shrinks the boxes of a way above the node at a place. It stops where nothing changes, or
    /// where the way has changed.
    pub(super) fn tighten(&self, way: &Way, place: usize) -> Result<()> {
        for pair in way[..=place].windows(2).rev() {
            let Some(node) = self.lock(pair[1])? else { return Ok(()) };
            let rect = node.bounds();
            if !self.needs_shrinking(pair[0], pair[1], &rect)? {
                return Ok(());
            }
            let Some(parent) = self.lock(pair[0])? else { return Ok(()) };
            let Some(slot) = parent.slot_of(pair[1]) else { return Ok(()) };
            // Before the store: a look-up that reads the smaller box reads another number later.
            parent.advance();
            self.shrink_in(&parent, slot, &rect);
        }
        Ok(())
    }

    /// Whether a box is larger than what is below. The node below is locked.
    fn needs_shrinking(&self, parent: u64, child: u64, rect: &Rect<D>) -> Result<bool> {
        let parent = self.node(parent)?;
        let level = parent.level();
        let Some(slot) = parent.slot_of(child) else { return Ok(false) };
        let before = parent.rect(level, slot);
        let mut words = smallvec::SmallVec::<[u64; 8]>::from_elem(0, self.layout.box_words(level));
        self.layout.encode(level, rect, |word, value| words[word] = value);
        Ok(before.intersection(&self.layout.decode(level, |word| words[word])).is_some_and(|common| common != before))
    }

    /// Merges the node at the end of a way with a sibling, or moves entries between them; then its
    /// parent, if that has too few children afterwards.
    fn relieve(&self, way: &Way, guard: &Guard<'_>) -> Result<()> {
        if self.is_unrepaired(way)? {
            self.repair_along(way, guard)?;
        }
        let mut place = way.len() - 1;
        let Some(mut node) = self.lock(way[place])? else { return Ok(()) };
        while place > 0 && node.count() < self.fill_min(node.level()) {
            let Some(parent) = self.lock(way[place - 1])? else { return Ok(()) };
            if parent.slot_of(node.at).is_none() {
                return Ok(());
            }
            let is_relieved = self.relieve_in(&parent, node, guard)?;
            if place == 1 && parent.count() == 1 {
                return self.collapse_root(parent, guard);
            }
            if !is_relieved {
                return Ok(());
            }
            node = parent;
            place -= 1;
        }
        drop(node);
        self.tighten(way, place)
    }
}
