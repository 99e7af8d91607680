//! Insertion, by the one thread that holds the latch.
//!
//! On the way down, the extents of the path are widened. The entry is then appended to its leaf and
//! published by the leaf's count. A full leaf is split first, which changes no entry, and the
//! descent starts again.

use super::super::arena::Arena;
use super::Tree;
use super::extent::Extent;
use super::inner::{Children, Node};
use super::key::{KeyWord, Order, StoredOrder, StoredRest, print_of};
use super::leaf::{Columns, Leaf};
use crate::Result;
use smallvec::SmallVec;

/// The inner nodes above a leaf, from the root, each with the index of the child taken.
pub(super) type Path<'a, C> = SmallVec<[(Children<'a, C>, usize); 8]>;

/// A leaf and the way to it.
pub(in crate::memory) struct Place<'a, C: Columns> {
    pub(super) path: Path<'a, C>,
    pub(in crate::memory) leaf: &'a Leaf<C>,
}

impl<C: Columns> Tree<C> {
    /// Descends to the leaf that covers an order and widens the extents on the way.
    ///
    /// `_latch` proves that the caller is the only writer.
    pub(in crate::memory) fn descend(&self, _latch: &Arena, order: Order<'_>, extent: C::Extent) -> Place<'_, C> {
        let mut path = Path::new();
        let mut inner = self.root();
        loop {
            let children = inner.children();
            let index = children.route(order);
            C::Extent::widen(children.extent(index), extent);
            path.push((children, index));
            match children.get(index) {
                Node::Inner(child) => inner = child,
                Node::Leaf(leaf) => return Place { path, leaf },
            }
        }
    }

    /// Inserts an entry at the place that [`Tree::descend`] found for its order and extent.
    ///
    /// # Errors
    /// Those of [`KeyWord::store`] and of the arena; the entry is absent then.
    pub(in crate::memory) fn insert<'a>(
        &'a self,
        arena: &mut Arena,
        mut place: Place<'a, C>,
        order: Order<'_>,
        anti_matter: bool,
        item: C::Item,
    ) -> Result<()> {
        let (key, length) = KeyWord::store(arena, order.key)?;
        let rest = StoredRest { key, tie: order.tie, length, print: print_of(order.key) };
        let stored = StoredOrder { head: order.head, rest };
        while place.leaf.len() >= self.shape.leaf_slots {
            self.make_room(arena, place, order)?;
            place = self.descend(arena, order, C::extent(&item));
        }
        // SAFETY: the arena comes out of the latch, so the caller is the only writer, and it is the
        // one that holds this tree's nodes.
        unsafe { place.leaf.push(arena, &stored, anti_matter, item) }
    }
}
