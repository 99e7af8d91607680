//! The FBR-tree: an R-tree that is changed by 8-byte stores in an order that lets it be used after a crash at any
//! instant (Cho 2020, "Failure-Atomic Byte-Addressable R-tree for Persistent Memory").
//!
//! Invariants, after each store that has become durable:
//! - F1: an entry whose bit is set is whole, and durably so before the bit is set; of one that validates itself, its tag is the bit.
//! - F2: the box of a child contains all that can be found below it, durably so before it can be.
//! - F3: a node that is reachable is linked by one valid entry, by the root word, or by a committed log entry.
//! - F4: what changes more than one word at once is said by a log entry that commits with one word; until that entry
//!   is cleared, the nodes that it names have the bitmaps that it holds.
//! - F5: sequence numbers, words of the log in nodes, marks, and the flag "dirty" are volatile. They become durable with their lines; so they, or
//!   the log word beside the flag, carry the number of the session, and who opens the pool ignores them.
//!
//! And what a thread may build upon before its own fence, which covers what it has flushed itself alone:
//! - F6: a box contains what is stored in its place now also in every state in which a power loss may leave it, unless it has a mark of this use
//!   of the pool. So boxes shrink without a flush, one coordinate after the other inwards; they grow with a mark, or while their
//!   node is locked until they are durable; and who relies on a box with a mark flushes its line.
//!
//! - F7: a commitment, of the log or the root word, is visible before it is durable. Until it is both and complete, its writer holds the
//!   locks of all nodes that it changes or links: of the parent (or of the root), of the old nodes and of the new ones. Insertions come by
//!   the parent, deletions change what is below a node with its lock. So until then nobody has built on the one side what a power loss
//!   that leaves the other side would take away: the nodes of both hold the same, and a search may go by either.
//!
//! Writers hold the locks of a node and its parent while they link, unlink or move entries, taken from the
//! root downwards (crabbing). Readers take none but where writers overtake them again and again; see [`search`].

mod check;
mod delete;
mod insert;
mod layout;
mod locks;
mod log;
mod look;
mod merge;
mod node;
mod recover;
mod search;
#[cfg(feature = "explorer")]
mod shape;
mod split;
mod tags;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod underfull;

use std::fmt::Debug;

use terrane_pmem::{Backend, LINE_LENGTH, Native, PersistenceDomain, Pool, ROOT, Site, WORD_LENGTH};
use terrane_storage::Storage;
use terrane_storage::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use self::layout::{FIRST_WORD_ENTRIES, Layout, Metadata};
use self::locks::Locks;
use self::log::Log;
use self::look::Look;
use crate::{Error, Result, Split};
use crate::{blocks, creation, limits};
pub use check::Census;
pub use search::SearchMode;

/// Names the layout of pools that hold such a tree.
const LAYOUT_ID: u64 = u64::from_le_bytes(*b"FBRTREE1");

const CREATE: Site = Site::new("fbr.create");
const CREATE_ROOT: Site = Site::new("fbr.create.root");
const CREATE_LINK: Site = Site::new("fbr.create.link");
const SHORTEN: Site = Site::new("fbr.shorten");

/// How a tree changes nodes that are full or nearly empty (section 3.4 and 3.5 of the thesis).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rebalancing {
    /// Half of a node moves to a new one, or a node takes in its sibling.
    #[default]
    InPlace,
    /// New nodes take the place of the old ones.
    CopyOnWrite,
}

/// What says which entries of a leaf are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeafForm {
    /// The bitmap of the leaf (Figure 1 of the thesis): an entry is made durable, then its bit.
    #[default]
    Bitmap,
    /// The last word of the entry itself, which becomes durable with its line or not at all. Insertions take one flush and
    /// one fence less. After an opening, searches read a leaf's every entry to learn which are valid, until an operation that
    /// changes the leaf notes it: windows take about a third longer meanwhile. Only in two and three dimensions, where an
    /// entry is one line.
    SelfValidating,
}

impl LeafForm {
    fn code(self) -> u64 {
        match self {
            Self::Bitmap => 0,
            Self::SelfValidating => 1,
        }
    }
}

/// How a tree is created or opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries of a node, 4 to 503. Up to 55, the bitmap is one word. An existing tree keeps its own.
    pub fan_out: usize,
    /// What says which entries of a leaf are valid. An existing tree keeps its own.
    pub leaves: LeafForm,
    /// How nodes are split and merged; may be another one each time the tree is opened.
    pub rebalancing: Rebalancing,
    /// How the entries of a full node are divided; may be another one each time the tree is opened.
    pub split: Split,
    /// The medium, and how the file grows. The layout is the tree's own.
    pub pool: terrane_pmem::Options,
}

impl Options {
    /// Nodes of 55 entries, changed in place, on a medium.
    pub fn new(domain: PersistenceDomain) -> Self {
        Self {
            fan_out: FIRST_WORD_ENTRIES,
            leaves: LeafForm::default(),
            rebalancing: Rebalancing::default(),
            split: Split::default(),
            pool: terrane_pmem::Options::new(LAYOUT_ID, domain),
        }
    }

    fn for_pool(&self) -> terrane_pmem::Options {
        terrane_pmem::Options { layout_id: LAYOUT_ID, ..self.pool.clone() }
    }
}

/// A tree of boxes in `D` dimensions, 2 to 4, each with a payload of 8 bytes, in a pool of its own.
///
/// It is a multiset: what is inserted twice is there twice. Insertions, deletions and exact look-ups are durably
/// linearizable: each is done when its call returns, whatever crash follows, and what one of them has seen stays.
/// Any number of threads share a tree. Dropping it without [`FbrTree::close`] is as if the process had been killed.
///
/// Other dimensions do not compile:
/// ```no_run
/// # use terrane_pmtree::{FbrTree, Options, PersistenceDomain, Result};
/// # fn create(storage: &dyn terrane_storage::Storage, options: &Options) -> Result<()> {
/// let tree: FbrTree<4> = FbrTree::create(storage, "tree", options)?;
/// # Ok(())
/// # }
/// # create(&terrane_storage::MemoryStorage::new(), &Options::new(PersistenceDomain::PageCache)).unwrap();
/// ```
/// ```compile_fail,E0080
/// # use terrane_pmtree::{FbrTree, Options, PersistenceDomain, Result};
/// # fn create(storage: &dyn terrane_storage::Storage, options: &Options) -> Result<()> {
/// let tree: FbrTree<5> = FbrTree::create(storage, "tree", options)?;
/// # Ok(())
/// # }
/// # create(&terrane_storage::MemoryStorage::new(), &Options::new(PersistenceDomain::PageCache)).unwrap();
/// ```
#[derive(Debug)]
pub struct FbrTree<const D: usize, B: Backend = Native> {
    pool: Pool<B>,
    layout: Layout<D>,
    rebalancing: Rebalancing,
    split: Split,
    /// Offset of the block that holds the root word and the log.
    block: u64,
    /// Number of this use of the pool, which volatile words carry.
    session: u64,
    locks: Locks,
    log: Log,
    marks: AtomicU64,
    /// Whether deletions may have left nodes with fewer entries than they should have, for lack of space or of a sibling, or since others
    /// have changed the way to them: it is not known of those of an earlier use of the pool.
    may_be_underfull: AtomicBool,
    /// Held by who mends these; taken before any node's lock.
    mending: Mutex<()>,
}

/// Words of the first line of the tree's block: dimensions, fan-out, and form of leaves with [`SHORT_MARKS`]. The root word has the
/// second line.
const DIMENSIONS: u64 = 0;
const FAN_OUT: u64 = WORD_LENGTH;
const LEAVES: u64 = 2 * WORD_LENGTH;
/// Beside the form of the leaves: marks are numbered with [`MARK_SHIFT`].
const SHORT_MARKS: u64 = 2;
const ROOT_WORD: u64 = LINE_LENGTH;
const LOG_START: u64 = 2 * LINE_LENGTH;

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Creates a tree in a new pool under a name that is free.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        let layout = Self::layout(options)?;
        let (pool, block) = creation::create(storage, name, &options.for_pool(), |pool| Self::plant(pool, &layout))?;
        Ok(Self::new(pool, layout, options, block))
    }

    /// Opens a tree; completes or undoes what a crash has left half done, in a time that does not depend on its size.
    ///
    /// A pool that holds something else, a tree of another shape or a damaged one is refused, and its file left as it is: where the
    /// tree's block, the nodes from the root to one leaf and those that the log names are no blocks of the length that the shape
    /// says, where that leaf is of another form, the root of a level that no tree reaches, where no tree's block is named although the pool
    /// has blocks, and where the log cannot be completed or undone. So that this holds for damage that only recovery meets, in a node that a
    /// crash has left half changed, recovery is rehearsed before.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        let found = Pool::find(storage, name, &options.for_pool())?;
        let Some(Look { block, layout, has_short_marks, is_changing }) = look::look(found.pool())? else {
            // A crash came between the creation of the pool and that of the tree.
            let layout = Self::layout(options)?;
            let (pool, block) = creation::complete(found, |pool| Self::plant(pool, &layout))?;
            return Ok(Self::new(pool, layout, options, block));
        };
        if is_changing {
            let rehearsed = FbrTree::<D, _>::new(found.rehearse()?, layout, options, block);
            rehearsed.recover()?;
            look::check_way_down(rehearsed.pool(), &layout, block)?;
        }
        if !has_short_marks {
            let session = found.pool().open_counter() + 1;
            found.pool().check_openings(openings_with_short_marks(session))?;
        }
        let pool = found.take()?;
        if !has_short_marks {
            Self::shorten_marks(&pool, &layout, block);
        }
        let tree = Self::new(pool, layout, options, block);
        tree.recover()?;
        Ok(tree)
    }

    /// Makes all of it durable, also on the page cache, and marks the pool as closed.
    pub fn close(self) -> Result<()> {
        Ok(self.pool.close()?)
    }

    /// The pool, to count what operations cost.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    fn layout(&Options { fan_out, leaves, .. }: &Options) -> Result<Layout<D>> {
        if leaves == LeafForm::SelfValidating && !Layout::<D>::ENTRIES_VALIDATE {
            return Err(Error::LongEntries { dimensions: D });
        }
        Layout::new(fan_out, leaves).ok_or_else(|| limits::no_fan_out(fan_out))
    }

    fn new(pool: Pool<B>, layout: Layout<D>, options: &Options, block: u64) -> Self {
        let session = pool.open_counter();
        let locks = Locks::new(layout.node_length());
        let &Options { rebalancing, split, .. } = options;
        Self {
            pool,
            layout,
            rebalancing,
            split,
            block,
            session,
            locks,
            log: Log::new(),
            marks: AtomicU64::new(0),
            may_be_underfull: AtomicBool::new(true),
            mending: Mutex::new(()),
        }
    }

    /// Puts an empty tree into a pool, with an empty leaf as the root. The tree is there when the pool's root word is.
    /// Gives the offset of its block.
    fn plant(pool: &Pool<B>, layout: &Layout<D>) -> Result<u64> {
        let length = LOG_START + Log::length(layout);
        pool.check_block_length(length.max(layout.node_length()))?;
        let mut intent = pool.intent();
        let block = intent.acquire(length, ROOT)?;
        let root = intent.acquire(layout.node_length(), block + ROOT_WORD)?;
        let backend = pool.backend();
        for offset in (block..block + length).step_by(WORD_LENGTH as usize) {
            backend.store(offset, 0);
        }
        backend.store(block + DIMENSIONS, D as u64);
        backend.store(block + FAN_OUT, layout.fan_out as u64);
        backend.store(block + LEAVES, layout.leaves.code() | SHORT_MARKS);
        backend.store(block + ROOT_WORD, root);
        backend.flush(block..block + length, CREATE);
        node::write_header(backend, layout, root, 0, &Metadata::empty(true, layout.words));
        if layout.leaves == LeafForm::SelfValidating {
            let session = pool.open_counter();
            tags::write_header(backend, layout, root, marks_before(session), session);
        }
        backend.flush(root..root + layout.header_length(), CREATE_ROOT);
        backend.fence(CREATE);
        backend.store(ROOT, block);
        backend.persist(ROOT..ROOT + WORD_LENGTH, CREATE_LINK);
        intent.finish();
        Ok(block)
    }

    fn backend(&self) -> &B {
        self.pool.backend()
    }

    /// Offset of the root word.
    fn root_word(&self) -> u64 {
        self.block + ROOT_WORD
    }

    fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        blocks::damaged(&self.pool, offset, reason)
    }

    /// A mark that no other operation has, in this use of the pool or another one.
    fn new_mark(&self) -> u64 {
        let number = self.marks.fetch_add(1, Ordering::Relaxed) + 1;
        // The marks run on into those of the next opening, which is made a later one while there are many left.
        if number % (1 << MARK_SHIFT) == 1 << (MARK_SHIFT - 1) {
            self.pool.skip_openings(self.session + (number >> MARK_SHIFT) + 1);
        }
        marks_before(self.session) + number
    }

    /// Whether a mark is one of this use of the pool: what an earlier one has left marked is as durable as it ever will be.
    fn is_of_now(&self, mark: u64) -> bool {
        mark >> MARK_SHIFT >= self.session
    }

    /// Lets new marks be above all those of [`LONG_MARK_SHIFT`] that the tree has.
    fn shorten_marks(pool: &Pool<B>, layout: &Layout<D>, block: u64) {
        pool.skip_openings(openings_with_short_marks(pool.open_counter()));
        pool.backend().store(block + LEAVES, layout.leaves.code() | SHORT_MARKS);
        // Until the next fence, a power loss leads to it once more, which does no harm.
        pool.backend().flush(block + LEAVES..block + LEAVES + WORD_LENGTH, SHORTEN);
    }
}

/// Low bits of a mark, which number those of a session; the session lies above, in so few bits that the highest is free.
const MARK_SHIFT: u32 = 32;

/// Low bits of the marks in trees that do not say [`SHORT_MARKS`].
const LONG_MARK_SHIFT: u32 = 40;

/// The number of an opening whose marks are above those of [`LONG_MARK_SHIFT`] that a session and all before can have.
fn openings_with_short_marks(session: u64) -> u64 {
    (session + 1) << (LONG_MARK_SHIFT - MARK_SHIFT)
}

/// A number right before the marks of a session, which none of them is.
fn marks_before(session: u64) -> u64 {
    session << MARK_SHIFT
}
