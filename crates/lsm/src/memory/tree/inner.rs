//! Inner nodes: children in order, each with its lowest order and an extent.
//!
//! A reader loads a node's count once with `Acquire` and accesses only children below it. Their
//! separators never change. The pointer to a child may be replaced by one to a node that covers the
//! same interval, and its extent may grow.

use super::extent::Extent;
use super::key::{Order, StoredOrder, StoredRest};
use super::leaf::{Columns, Leaf};
use super::slots::Slots;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use terrane_storage::sync::{AtomicPtr, AtomicU32, Ordering};

/// Most children of an inner node.
pub(in crate::memory) const FANOUT_MAX: usize = if cfg!(loom) { 4 } else { 32 };
const _: () = assert!(FANOUT_MAX <= u32::BITS as usize, "searches keep one bit for each child");

/// A node of either kind.
pub(in crate::memory) enum Node<'a, C: Columns> {
    /// A node with children.
    Inner(&'a Inner<C>),
    /// A node with entries.
    Leaf(&'a Leaf<C>),
}

impl<C: Columns> Clone for Node<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Columns> Copy for Node<'_, C> {}

/// A child for a new inner node: it covers the orders from `separator` on.
pub(super) struct Piece<E> {
    pub(super) separator: StoredOrder,
    pub(super) child: NonNull<()>,
    pub(super) extent: E,
}

/// An inner node.
pub(in crate::memory) struct Inner<C: Columns> {
    /// Distance to the leaves: the children of level 1 are leaves.
    level: u32,
    count: AtomicU32,
    heads: Slots<u64, FANOUT_MAX>,
    rests: Slots<StoredRest, FANOUT_MAX>,
    children: [AtomicPtr<()>; FANOUT_MAX],
    extents: [<C::Extent as Extent>::Shared; FANOUT_MAX],
    columns: PhantomData<fn() -> C>,
}

impl<C: Columns> Inner<C> {
    pub(super) fn new(level: u32) -> Self {
        Self {
            level,
            count: AtomicU32::new(0),
            heads: Slots::new(),
            rests: Slots::new(),
            children: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
            extents: std::array::from_fn(|_| C::Extent::EMPTY.share()),
            columns: PhantomData,
        }
    }

    /// The children published by now.
    pub(in crate::memory) fn children(&self) -> Children<'_, C> {
        Children { node: self, len: self.count.load(Ordering::Acquire) as usize }
    }

    /// Appends a child and publishes it.
    ///
    /// # Safety
    /// The caller is the only writer, and there is room; the child has this node's level
    /// minus one and lives in the same arena.
    pub(super) unsafe fn push(&self, piece: &Piece<C::Extent>) {
        let count = self.count.load(Ordering::Relaxed);
        let slot = count as usize;
        // SAFETY: the caller is the only writer, and the slot is not below the count.
        unsafe {
            self.heads.write(slot, piece.separator.head);
            self.rests.write(slot, piece.separator.rest);
        }
        self.children[slot].store(piece.child.as_ptr(), Ordering::Relaxed);
        C::Extent::reset(&self.extents[slot], piece.extent);
        self.count.store(count + 1, Ordering::Release);
    }

    /// Replaces a child by a node that covers the same interval and holds the same entries.
    ///
    /// # Safety
    /// The caller is the only writer; the child has this node's level minus one and lives
    /// in the same arena.
    pub(super) unsafe fn replace(&self, index: usize, child: NonNull<()>) {
        self.children[index].store(child.as_ptr(), Ordering::Release);
    }
}

/// The published children of a node. The type states that they are published.
pub(in crate::memory) struct Children<'a, C: Columns> {
    node: &'a Inner<C>,
    len: usize,
}

impl<C: Columns> Clone for Children<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Columns> Copy for Children<'_, C> {}

impl<'a, C: Columns> Children<'a, C> {
    /// The node itself.
    pub(super) fn node(self) -> &'a Inner<C> {
        self.node
    }

    /// Distance of the node to the leaves.
    pub(super) fn level(self) -> u32 {
        self.node.level
    }

    /// Number of children; at least one in a reachable node.
    pub(in crate::memory) fn len(self) -> usize {
        self.len
    }

    /// A child, as it is now.
    #[inline]
    pub(in crate::memory) fn get(self, index: usize) -> Node<'a, C> {
        assert!(index < self.len, "child {index} of {}", self.len);
        let child = self.node.children[index].load(Ordering::Acquire);
        if self.node.level == 1 {
            // SAFETY: children of level 1 are leaves; they live in the arena as long as
            // this node, are initialised before their pointer is published, and only shared.
            Node::Leaf(unsafe { &*child.cast() })
        } else {
            // SAFETY: as above, and the children of higher levels are inner nodes.
            Node::Inner(unsafe { &*child.cast() })
        }
    }

    /// The summary of a child.
    #[inline]
    pub(in crate::memory) fn extent(self, index: usize) -> &'a <C::Extent as Extent>::Shared {
        &self.node.extents[index]
    }

    /// Index of the child that covers `order`: the last whose separator is not above it,
    /// or the first.
    #[inline]
    pub(in crate::memory) fn route(self, order: Order<'_>) -> usize {
        // SAFETY: these children are published.
        let (heads, rests) = unsafe { (self.node.heads.published(self.len), self.node.rests.published(self.len)) };
        let mut end = heads.partition_point(|&head| head <= order.head);
        // If keys have the same beginning, many heads can be equal. As entries usually ascend, the
        // place is mostly behind the last of them.
        let is_above = |rest: &StoredRest| rest.order(order.head) > order;
        if end > 0 && heads[end - 1] == order.head && is_above(&rests[end - 1]) {
            let first = heads.partition_point(|&head| head < order.head);
            end = first + rests[first..end].partition_point(|rest| !is_above(rest));
        }
        end.max(1) - 1
    }

    /// Whether everything below a child has lower heads than this.
    #[inline]
    pub(in crate::memory) fn is_below(self, index: usize, head: u64) -> bool {
        // SAFETY: these children are published.
        let heads = unsafe { self.node.heads.published(self.len) };
        heads.get(index + 1).is_some_and(|next| *next < head)
    }

    /// The lowest order that a child covers.
    pub(super) fn separator(self, index: usize) -> StoredOrder {
        assert!(index < self.len, "child {index} of {}", self.len);
        // SAFETY: these children are published.
        let (heads, rests) = unsafe { (self.node.heads.published(self.len), self.node.rests.published(self.len)) };
        StoredOrder { head: heads[index], rest: rests[index] }
    }

    /// A child as a piece of another node.
    pub(super) fn piece(self, index: usize) -> Piece<C::Extent> {
        let child = self.node.children[index].load(Ordering::Relaxed);
        Piece {
            separator: self.separator(index),
            child: NonNull::new(child).expect("a published child is set"),
            extent: C::Extent::load(&self.node.extents[index]),
        }
    }

    /// The summary of all children.
    pub(in crate::memory) fn extent_of_all(self) -> C::Extent {
        (0..self.len).fold(C::Extent::EMPTY, |all, index| all.union(C::Extent::load(self.extent(index))))
    }

    /// Overwrites a child's summary, to prove that the checker detects a wrong one.
    #[cfg(all(test, not(loom)))]
    pub(in crate::memory) fn corrupt_extent(self, index: usize) {
        C::Extent::reset(self.extent(index), C::Extent::EMPTY);
    }
}
