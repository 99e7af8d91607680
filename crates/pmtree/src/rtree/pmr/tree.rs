//! An open tree.

use std::fmt::Debug;

use smallvec::SmallVec;
use terrane_pmem::{Arena, Backend, Guard, Native, Pool};
use terrane_storage::sync::{AtomicU64, Ordering};

use super::inner::{Inner, LEAF, RESERVED, STUB_MAP, inner_words};
use super::layout::{HEAD, Layout};
use super::leaf::Map;
use super::options::{Gap, Options, Publication};
use crate::rtree::LeafForm;
use crate::rtree::marks::Marks;
use crate::rtree::rect::Rect;
use crate::rtree::split::fill_min;
use crate::{Error, Result, Split, blocks};

/// A tree of boxes in `D` dimensions, 2 to 4, each with a payload of 8 bytes, in a pool of its own.
///
/// It is a multiset: an entry that is inserted twice exists twice. Insertions, deletions and exact
/// look-ups are durably linearizable: each is complete when its call returns, whatever crash
/// follows, and entries that it has seen stay. Any number of threads share a tree, and none waits
/// for another one outside of the allocator. Dropping it without [`PmrTree::close`] has the effect
/// of a kill.
#[derive(Debug)]
pub struct PmrTree<const D: usize, B: Backend = Native> {
    pub(super) pool: Pool<B>,
    pub(super) layout: Layout<D>,
    pub(super) publication: Publication,
    pub(super) split: Split,
    /// Least entries of a leaf with siblings, except for a while.
    pub(super) fill_min: usize,
    pub(super) inner_fan_out: usize,
    /// Least children of an inner node that is not the root.
    pub(super) inner_fill_min: usize,
    /// Offset of the block that holds the shape and the word that leads to the first leaf.
    pub(super) block: u64,
    pub(super) session: u64,
    pub(super) incarnations: Marks,
    pub(super) inners: Arena,
    pub(super) stubs: Arena,
    /// The root, which is an inner node.
    pub(super) root: AtomicU64,
    /// Number of leaves that are part of the tree.
    pub(super) leaves: AtomicU64,
    /// Detached leaves since the last sweep.
    pub(super) detached: AtomicU64,
    #[cfg(feature = "explorer")]
    gap: Option<Gap>,
}

/// The inner nodes on the way to a leaf or a node, each with the slot that was taken.
pub(super) type Way = SmallVec<[(u64, usize); 8]>;

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// A tree without a root.
    pub(super) fn new(pool: Pool<B>, layout: Layout<D>, options: &Options, block: u64) -> Self {
        let session = pool.open_counter();
        let &Options { publication, split, fill_min_percent, inner_fan_out, .. } = options;
        Self {
            pool,
            layout,
            publication,
            split,
            fill_min: fill_min(layout.fan_out, fill_min_percent),
            inner_fan_out,
            inner_fill_min: fill_min(inner_fan_out, fill_min_percent),
            block,
            session,
            incarnations: Marks::new(session),
            inners: Arena::new(inner_words::<D>(inner_fan_out)),
            stubs: Arena::new(stub_words(&layout)),
            root: AtomicU64::new(0),
            leaves: AtomicU64::new(0),
            detached: AtomicU64::new(0),
            #[cfg(feature = "explorer")]
            gap: options.gap,
        }
    }

    /// The pool, to count what operations cost.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    /// Bytes of memory for inner nodes and for what is known of leaves.
    pub fn memory_bytes(&self) -> u64 {
        self.inners.bytes() + self.stubs.bytes()
    }

    /// Whether a gap of the paper is left open, which only tests do.
    #[cfg(feature = "explorer")]
    pub(super) fn has_gap(&self, gap: Gap) -> bool {
        self.gap == Some(gap)
    }

    /// The same without the explorer: never.
    #[cfg(not(feature = "explorer"))]
    pub(super) fn has_gap(&self, _: Gap) -> bool {
        false
    }

    pub(super) fn backend(&self) -> &B {
        self.pool.backend()
    }

    /// Offset of the word that leads to the first leaf.
    pub(super) fn head(&self) -> u64 {
        self.block + HEAD
    }

    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        blocks::damaged(&self.pool, offset, reason)
    }

    pub(super) fn root(&self) -> u64 {
        self.root.load(Ordering::SeqCst)
    }

    #[inline]
    pub(super) fn inner(&self, node: u64) -> Inner<'_, D> {
        Inner::at(self.inners.words(node))
    }

    /// A new inner node.
    pub(super) fn new_inner(&self, level: u64, children: &[(u64, Rect<D>)]) -> u64 {
        let node = self.inners.allocate();
        self.inner(node).fill(level, children);
        node
    }

    /// A stub of a leaf with these valid entries and this number of used slots.
    pub(super) fn new_stub(&self, leaf: u64, map: &Map, reserved: usize) -> u64 {
        let stub = self.stubs.allocate();
        let words = self.stubs.words(stub);
        words[LEAF].store(leaf, Ordering::Relaxed);
        words[RESERVED].store(reserved as u64, Ordering::Relaxed);
        for (word, value) in words[STUB_MAP..].iter().zip(&map.words) {
            word.store(*value, Ordering::Relaxed);
        }
        stub
    }

    /// The leaf of a stub.
    #[inline]
    pub(super) fn leaf_of(&self, stub: u64) -> u64 {
        self.stubs.words(stub)[LEAF].load(Ordering::Acquire)
    }

    /// Runs an operation that may need space. If there is none, it frees what it can, and tries
    /// once more.
    pub(super) fn with_space<T>(&self, operation: impl Fn(&Guard<'_>) -> Result<T>) -> Result<T> {
        match operation(&self.pool.pin()) {
            Err(error) if blocks::is_full(&error) => {
                self.sweep(&self.pool.pin()).or_else(blocks::tolerate_missing_space)?;
                self.pool.reclaim()?;
                operation(&self.pool.pin())
            }
            outcome => outcome,
        }
    }
}

/// Words of a leaf's stub. Where entries validate themselves, the G-bitmap is part of it.
fn stub_words<const D: usize>(layout: &Layout<D>) -> usize {
    match layout.leaves {
        LeafForm::Bitmap => STUB_MAP,
        LeafForm::SelfValidating => STUB_MAP + layout.map_words,
    }
}
