//! The tree under both memory components: ordered like a B+-tree, written by one thread at a time,
//! read by any number without a lock.
//!
//! Invariants:
//! I1 The children of an inner node cover its interval of orders, each from its separator up to the
//!    next, for ever. A child is replaced only by a node that covers the same interval and holds
//!    the same entries.
//! I2 A published entry stays at its address for the tree's life; a split copies it.
//! I3 Every extent on the current path to an entry covers it before it is published.
//!
//! A reader walks down from any root it loaded and takes each child of a node once. It therefore
//! meets every order in exactly one leaf. Each leaf has all entries that its interval had when the
//! reader loaded it or an ancestor, or later. The reader misses no entry inserted before it
//! started, and meets none twice. Entries of concurrent insertions may be met or not: their
//! sequence numbers lie above its snapshot.

mod check;
mod extent;
mod inner;
mod insert;
mod key;
mod leaf;
mod slots;
mod split;
mod walk;

pub use check::CheckReport;
pub(super) use extent::Extent;
pub(super) use inner::{Inner, Node};
pub use key::KEY_LENGTH_MAX;
pub(super) use key::Order;
pub(super) use leaf::{BLOCK_SLOTS, Cell, Columns, Leaf, View};
pub(super) use slots::Slots;
pub(super) use walk::LeafWalk;

use super::arena::{Arena, ArenaBytes};
use crate::{Error, Result};
use inner::{FANOUT_MAX, Piece};
use key::StoredOrder;
use leaf::LEAF_SLOTS_MAX;
use std::ops::DerefMut;
use terrane_storage::sync::{AtomicPtr, Mutex, Ordering};

/// Sizes of a tree's nodes. Small ones make deep trees of few entries, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    leaf_slots: usize,
    fanout: usize,
}

impl Shape {
    /// Number of entries of a leaf, and of children of an inner node, at which they split.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `2 <= leaf_slots <= 128` and `4 <= fanout <= 32`.
    pub fn new(leaf_slots: usize, fanout: usize) -> Result<Self> {
        if !(2..=LEAF_SLOTS_MAX).contains(&leaf_slots) || !(4..=FANOUT_MAX).contains(&fanout) {
            return Err(Error::Invalid(format!(
                "leaves of {leaf_slots} entries and nodes of {fanout} children; 2 to {LEAF_SLOTS_MAX} and 4 to {FANOUT_MAX} are possible"
            )));
        }
        Ok(Self { leaf_slots, fanout })
    }

    /// The largest nodes.
    pub(super) const LARGE: Self = Self { leaf_slots: LEAF_SLOTS_MAX, fanout: FANOUT_MAX };
    /// Large inner nodes over half-sized leaves, which are searched by scanning.
    pub(super) const SHORT_LEAVES: Self = Self { leaf_slots: LEAF_SLOTS_MAX / 2, fanout: FANOUT_MAX };
}

/// An ordered tree; see the module's invariants.
pub(super) struct Tree<C: Columns> {
    root: AtomicPtr<Inner<C>>,
    shape: Shape,
    /// The latch of the single writer, around the memory of all nodes. The memory is freed only
    /// when the tree is not borrowed any more.
    arena: Mutex<Arena>,
    bytes: ArenaBytes,
}

impl<C: Columns> Tree<C> {
    /// A tree without entries: a root over one empty leaf.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no memory for the first nodes.
    pub(super) fn new(shape: Shape) -> Result<Self> {
        let mut arena = Arena::new();
        let leaf = arena.place(Leaf::<C>::new())?;
        let root = arena.place(Inner::<C>::new(1))?;
        let piece = Piece { separator: StoredOrder::lowest(), child: leaf.cast(), extent: C::Extent::EMPTY };
        // SAFETY: nobody else knows the root; its child is a leaf of the same arena.
        unsafe { root.as_ref().push(&piece) };
        let bytes = arena.bytes();
        Ok(Self { root: AtomicPtr::new(root.as_ptr()), shape, arena: Mutex::new(arena), bytes })
    }

    /// Waits until no other thread writes. The guard is the proof that writing needs.
    pub(super) fn write(&self) -> impl DerefMut<Target = Arena> + '_ {
        self.arena.lock()
    }

    /// The current root.
    pub(super) fn root(&self) -> &Inner<C> {
        // SAFETY: the pointer is set, to a node of the arena, which lives as long as
        // `self`; nodes are initialised before they are published and only shared.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// The leaf that covers an order.
    pub(super) fn leaf(&self, order: Order<'_>) -> &Leaf<C> {
        let mut inner = self.root();
        loop {
            let children = inner.children();
            match children.get(children.route(order)) {
                Node::Inner(child) => inner = child,
                Node::Leaf(leaf) => return leaf,
            }
        }
    }

    /// Bytes of the arena's chunks.
    pub(super) fn memory_used(&self) -> usize {
        self.bytes.get()
    }
}
