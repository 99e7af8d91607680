//! The nodes as a text.

use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::Ordering;

use super::inner::RESERVED;
use super::tree::PmrTree;
use crate::Result;
use crate::rtree::shape::{Shape, of_node};

impl<const D: usize, B: Backend> Shape for PmrTree<D, B> {
    fn shape(&self) -> Result<String> {
        self.shape_of(self.root(), &self.pool.pin())
    }
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    fn shape_of(&self, node: u64, guard: &Guard<'_>) -> Result<String> {
        let inner = self.inner(node);
        of_node(inner.rects().map(|(slot, rect)| {
            let child = inner.child(slot);
            let below = match inner.level() {
                1 => self.shape_of_leaf(child, guard)?,
                _ => self.shape_of(child, guard)?,
            };
            Ok((rect, below))
        }))
    }

    /// Slots that were used and are free again are part of it, since they are not used again.
    fn shape_of_leaf(&self, stub: u64, guard: &Guard<'_>) -> Result<String> {
        let leaf = self.leaf_of(stub);
        let (map, entries) = (self.map(stub, guard)?, self.entries(leaf)?);
        let slots = map.slots(&self.layout);
        let text = of_node(slots.map(|slot| Ok((entries.rect(slot), entries.payload(slot).to_string()))))?;
        let used = self.stubs.words(stub)[RESERVED].load(Ordering::Acquire);
        Ok(format!("{text} of {used} used"))
    }
}
