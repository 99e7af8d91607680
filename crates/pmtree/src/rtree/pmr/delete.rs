//! Deletion: the bit of an entry is cleared, and then a leaf with too few entries is merged.

use terrane_pmem::{Backend, Guard, Site};

use super::layout::FROZEN;
use super::tree::PmrTree;
use crate::Result;
use crate::blocks;
use crate::rtree::rect::Rect;

const MAP_WORD: Site = Site::new("pmr.delete.map");

/// What became of an entry that was found.
enum Outcome {
    Deleted,
    /// Its leaf is being replaced, and still has it.
    Frozen,
    /// Another thread has deleted it.
    Gone,
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Deletes an entry with exactly this box and payload, one if there are several. Gives whether
    /// there was one. Coordinates are compared as numbers, so a box at -0.0 equals one at 0.0. When
    /// it returns, the entry is gone durably.
    ///
    /// It needs no space, unless it meets a leaf that another thread is replacing.
    pub fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.with_space(|guard| {
            while let Some(found) = self.find(rect, payload, guard)? {
                match self.clear(found.stub, found.slot, guard)? {
                    Outcome::Deleted => {
                        let left = self.map(found.stub, guard)?.count();
                        if left < self.fill_min {
                            self.relieve(&found.way, left, guard).or_else(blocks::tolerate_missing_space)?;
                        }
                        return Ok(true);
                    }
                    Outcome::Frozen => {
                        let replaced = self.replace_leaf(&found.way, found.stub, guard);
                        replaced.inspect_err(|_| self.restore_tag(self.leaf_of(found.stub), found.slot, true))?;
                    }
                    Outcome::Gone => {}
                }
            }
            Ok(false)
        })
    }

    /// Clears the bit of an entry durably.
    fn clear(&self, stub: u64, slot: usize, guard: &Guard<'_>) -> Result<Outcome> {
        let (word, bit) = self.layout.bit(slot);
        let mut is_revoked = false;
        loop {
            let found = self.map_word(stub, word, guard)?;
            if found & (1 << bit) == 0 {
                return Ok(Outcome::Gone);
            }
            if found & FROZEN != 0 {
                return Ok(Outcome::Frozen);
            }
            if !is_revoked {
                self.revoke(self.leaf_of(stub), slot);
                is_revoked = true;
            }
            if self.change_map_word(stub, word, (found, found & !(1 << bit)), MAP_WORD, guard)? {
                return Ok(Outcome::Deleted);
            }
        }
    }
}
