//! An open tree.

use std::fmt::Debug;

use terrane_pmem::{Backend, Native, Pool};
use terrane_storage::sync::{AtomicBool, Mutex};

use super::layout::{Layout, ROOT_WORD};
use super::locks::Locks;
use super::log::Log;
use super::options::{Options, Rebalancing};
use crate::rtree::marks::{MARK_SHIFT, Marks};
use crate::rtree::split::fill_min;
use crate::{Error, Split, blocks};

/// A tree of boxes in `D` dimensions, 2 to 4, each with a payload of 8 bytes, in a pool of its own.
///
/// It is a multiset: an entry that is inserted twice exists twice. Insertions, deletions and exact
/// look-ups are durably linearizable: each is complete when its call returns, whatever crash
/// follows, and entries that it has seen stay. Any number of threads share a tree. Dropping it
/// without [`FbrTree::close`] has the effect of a kill.
///
/// Other dimensions do not compile:
/// ```no_run
/// # use terrane_pmtree::fbr::{FbrTree, Options};
/// # use terrane_pmtree::{PersistenceDomain, Result};
/// # fn create(storage: &dyn terrane_storage::Storage, options: &Options) -> Result<()> {
/// let tree: FbrTree<4> = FbrTree::create(storage, "tree", options)?;
/// # Ok(())
/// # }
/// # let storage = terrane_testkit::MemoryStorage::new();
/// # create(&storage, &Options::new(PersistenceDomain::PageCache)).unwrap();
/// ```
/// ```compile_fail,E0080
/// # use terrane_pmtree::fbr::{FbrTree, Options};
/// # use terrane_pmtree::{PersistenceDomain, Result};
/// # fn create(storage: &dyn terrane_storage::Storage, options: &Options) -> Result<()> {
/// let tree: FbrTree<5> = FbrTree::create(storage, "tree", options)?;
/// # Ok(())
/// # }
/// # let storage = terrane_testkit::MemoryStorage::new();
/// # create(&storage, &Options::new(PersistenceDomain::PageCache)).unwrap();
/// ```
#[derive(Debug)]
pub struct FbrTree<const D: usize, B: Backend = Native> {
    pub(super) pool: Pool<B>,
    pub(super) layout: Layout<D>,
    pub(super) rebalancing: Rebalancing,
    pub(super) split: Split,
    /// Least entries of a node that is not the root, except after crashes.
    pub(super) fill_min: usize,
    /// Offset of the block that holds the root word and the log.
    pub(super) block: u64,
    /// Number of this session, which volatile words carry.
    pub(super) session: u64,
    pub(super) locks: Locks,
    pub(super) log: Log,
    pub(super) marks: Marks,
    /// Whether deletions may have left nodes with too few entries. Causes are a lack of space, a
    /// missing sibling, and changes of the path by others. After an opening it is unknown.
    pub(super) may_be_underfull: AtomicBool,
    /// Held while these are repaired. It is taken before any node's lock.
    pub(super) repairing: Mutex<()>,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    pub(super) fn new(pool: Pool<B>, layout: Layout<D>, options: &Options, block: u64) -> Self {
        let session = pool.open_counter();
        let locks = Locks::new(layout.node_length());
        let &Options { rebalancing, split, fill_min_percent, .. } = options;
        Self {
            pool,
            layout,
            rebalancing,
            split,
            fill_min: fill_min(layout.fan_out, fill_min_percent),
            block,
            session,
            locks,
            log: Log::new(),
            marks: Marks::new(session),
            may_be_underfull: AtomicBool::new(true),
            repairing: Mutex::new(()),
        }
    }

    /// The pool, to count what operations cost.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    pub(super) fn backend(&self) -> &B {
        self.pool.backend()
    }

    /// Offset of the root word.
    pub(super) fn root_word(&self) -> u64 {
        self.block + ROOT_WORD
    }

    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        blocks::damaged(&self.pool, offset, reason)
    }

    /// A mark that no other operation has, in this session or another one.
    pub(super) fn new_mark(&self) -> u64 {
        self.marks.next(&self.pool)
    }

    /// Whether a mark is of this session. A box that an earlier one has left marked is as durable
    /// as it ever will be.
    pub(super) fn is_mark_of_session(&self, mark: u64) -> bool {
        mark >> MARK_SHIFT >= self.session
    }
}
