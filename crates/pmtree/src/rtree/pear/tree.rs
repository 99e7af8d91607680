//! An open tree.

use std::fmt::Debug;

use smallvec::SmallVec;
use terrane_pmem::{Arena, Backend, Guard, Native, Pool, Site, WORD_LENGTH};
use terrane_storage::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::budget::Placement;
use super::layout::{Layout, TOP, is_volatile, slots};
use super::lock::LockedPlaces;
use super::node::Node;
use super::options::{Gap, Options, Recovery};
use crate::rtree::split::fill_min;
use crate::{Error, Result, Split, blocks};

const TOP_WORD: Site = Site::new("pear.top");

/// A tree of boxes in `D` dimensions, 2 to 4, each with a payload of 8 bytes, in a pool of its own.
///
/// It is a multiset: an entry that is inserted twice exists twice. Insertions, deletions and exact
/// look-ups are durably linearizable: each is complete when its call returns, whatever crash
/// follows, and entries that it has seen stay. Any number of threads share a tree. Readers take no
/// lock, and wait only while entries move between nodes. Dropping it without [`PearTree::close`]
/// has the effect of a kill.
#[derive(Debug)]
pub struct PearTree<const D: usize, B: Backend = Native> {
    pub(super) pool: Pool<B>,
    pub(super) layout: Layout<D>,
    /// Bytes of a node in the pool.
    pub(super) node_length: u64,
    pub(super) split: Split,
    fill_min_percent: u8,
    /// Offset of the tree's block.
    pub(super) block: u64,
    /// The paper's global version.
    pub(super) session: u64,
    /// The nodes in memory.
    pub(super) memory: Arena,
    pub(super) root: AtomicU64,
    /// Changes with the root.
    pub(super) root_sequence: AtomicU64,
    /// Guards changes of the root. It is taken after locks of nodes.
    pub(super) root_lock: Mutex<()>,
    pub(super) chains: Mutex<()>,
    pub(super) locked_places: LockedPlaces,
    /// One thread repairs at a time.
    pub(super) repairs: Mutex<()>,
    /// Whether nodes may be in recovery states.
    pub(super) may_be_stale: AtomicBool,
    pub(super) placement: Placement,
    pub(super) recovery: Recovery,
    #[cfg(feature = "explorer")]
    gap: Option<Gap>,
}

/// The nodes from the root to a leaf.
pub(super) type Way = SmallVec<[u64; 8]>;

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// A tree without a root.
    pub(super) fn new(pool: Pool<B>, layout: Layout<D>, options: &Options, block: u64, is_clean: bool) -> Self {
        let session = pool.open_counter();
        Self {
            pool,
            layout,
            node_length: layout.node_length(),
            split: options.split,
            fill_min_percent: options.fill_min_percent,
            block,
            session,
            memory: Arena::new(layout.volatile_words()),
            root: AtomicU64::new(0),
            root_sequence: AtomicU64::new(0),
            root_lock: Mutex::new(()),
            chains: Mutex::new(()),
            locked_places: LockedPlaces::new(),
            repairs: Mutex::new(()),
            may_be_stale: AtomicBool::new(!is_clean),
            placement: Placement::new(options),
            recovery: Recovery::default(),
            #[cfg(feature = "explorer")]
            gap: options.gap,
        }
    }

    /// The pool, to count what operations cost.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    /// Bytes of memory for nodes. It includes nodes that wait for readers to leave.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// What the opening has read and made.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Whether a gap of the thesis is left open, which only tests do.
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

    pub(super) fn damaged(&self, at: u64, reason: impl Into<String>) -> Error {
        blocks::damaged(&self.pool, if is_volatile(at) { self.block } else { at }, reason)
    }

    /// Whether this number of nodes exceeds the space in the pool and in memory.
    #[inline]
    pub(super) fn are_too_many(&self, nodes: u64) -> bool {
        let exceeds_pool = |nodes: u64| blocks::are_too_many(&self.pool, nodes, self.node_length);
        exceeds_pool(nodes) && exceeds_pool(nodes.saturating_sub(self.memory.reserved_nodes()))
    }

    pub(super) fn root(&self) -> u64 {
        self.root.load(Ordering::SeqCst)
    }

    /// Changes the root for readers, whose nodes are odd meanwhile.
    pub(super) fn set_root(&self, at: u64) {
        self.root.store(at, Ordering::SeqCst);
        self.root_sequence.fetch_add(1, Ordering::SeqCst);
    }

    /// Makes the word about the root durable (R7).
    pub(super) fn persist_top(&self, value: u64) {
        let word = self.block + TOP;
        self.backend().store(word, value);
        self.backend().persist(word..word + WORD_LENGTH, TOP_WORD);
    }

    /// Least entries of a node with siblings, except for a while.
    pub(super) fn fill_min(&self, level: u64) -> usize {
        fill_min(self.layout.capacity(level), self.fill_min_percent)
    }

    /// A node that a word of the pool names. It lies in the pool too (R2). Every such word is read
    /// through this function or [`PearTree::child_of`], since the pool may be damaged. Words in
    /// memory were checked before they came there.
    #[inline]
    pub(super) fn node_in_pool(&self, at: u64) -> Result<Node<'_, D, B>> {
        match at != 0 && at & (self.layout.alignment - 1) == 0 {
            true => self.node(at),
            false => Err(self.damaged(self.block, format!("a node is said to lie at byte {at}"))),
        }
    }

    /// The same for a node of a level.
    #[inline]
    pub(super) fn node_of_level(&self, at: u64, level: u64) -> Result<Node<'_, D, B>> {
        self.at_level(self.node_in_pool(at)?, level)
    }

    /// A child of a node.
    #[inline]
    pub(super) fn child_of(&self, parent: &Node<'_, D, B>, child: u64) -> Result<Node<'_, D, B>> {
        let node = match is_volatile(child) && parent.is_volatile() {
            true => self.node(child)?,
            false => self.node_in_pool(child)?,
        };
        self.at_level(node, parent.level().wrapping_sub(1))
    }

    #[inline]
    fn at_level<'a>(&self, node: Node<'a, D, B>, level: u64) -> Result<Node<'a, D, B>> {
        match node.level() == level {
            true => Ok(node),
            false => Err(self.damaged(node.at, format!("a node of level {level} states level {}", node.level()))),
        }
    }

    /// Checks the words that name a node's children, before these move, or the node does.
    pub(super) fn check_children(&self, node: &Node<'_, D, B>) -> Result<()> {
        let level = node.level();
        match level {
            0 => Ok(()),
            _ => slots(node.bitmap()).try_for_each(|slot| self.child_of(node, node.target(level, slot)).map(drop)),
        }
    }

    /// Runs an operation that may need space. If there is none, it frees what it can, and tries
    /// once more.
    pub(super) fn with_space<T>(&self, operation: impl Fn(&Guard<'_>) -> Result<T>) -> Result<T> {
        match operation(&self.pool.pin()) {
            Err(error) if blocks::is_full(&error) => {
                self.pool.reclaim()?;
                operation(&self.pool.pin())
            }
            outcome => outcome,
        }
    }
}
