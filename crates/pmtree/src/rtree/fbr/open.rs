//! Creating, opening and closing trees.

use terrane_pmem::{Backend, Pool, ROOT, Site, WORD_LENGTH};
use terrane_storage::Storage;

use super::layout::{
    DIMENSIONS, FAN_OUT, FAN_OUT_MAX, LAYOUT_ID, LEAVES, LOG_START, Layout, Metadata, ROOT_WORD, SHORT_MARKS,
};
use super::log::Log;
use super::node::write_header;
use super::options::Options;
use super::tags;
use super::tree::FbrTree;
use super::verify::{self, Verified};
use crate::rtree::LeafForm;
use crate::rtree::marks::{MARK_SHIFT, marks_before};
use crate::rtree::split::check_fill_min;
use crate::{Error, Result, creation, limits};

const CREATE: Site = Site::new("fbr.create");
const CREATE_ROOT: Site = Site::new("fbr.create.root");
const CREATE_LINK: Site = Site::new("fbr.create.link");
const SHORTEN: Site = Site::new("fbr.shorten");

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Creates a tree in a new pool under a free name.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check_fill_min(options.fill_min_percent)?;
        let layout = Self::layout(options)?;
        let of_pool = creation::pool_options(LAYOUT_ID, &options.pool);
        let (pool, block) = creation::create(storage, name, &of_pool, |pool| Self::initialise(pool, &layout))?;
        Ok(Self::new(pool, layout, options, block))
    }

    /// Opens a tree. Completes or undoes changes that a crash has interrupted, in a time that does
    /// not depend on the tree's size.
    ///
    /// Returns an error, and leaves the file unchanged, if the pool holds something else, a tree of
    /// another shape, or a damaged tree. It checks:
    /// 1. the tree's block, the nodes on one path from the root to a leaf, and every node named in
    ///    the log are blocks of the length for this shape;
    /// 2. that leaf has the form of this shape, and the root a level that a tree can reach;
    /// 3. the pool has no blocks, if its root word names no tree;
    /// 4. the log can be completed or undone.
    ///
    /// Recovery may meet damage in a node that a crash has left half changed. So recovery is
    /// rehearsed before it changes the file.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check_fill_min(options.fill_min_percent)?;
        let found = Pool::find(storage, name, &creation::pool_options(LAYOUT_ID, &options.pool))?;
        let Some(Verified { block, layout, has_short_marks, is_changing }) = verify::verify(found.pool())? else {
            // A crash came between the creation of the pool and that of the tree.
            let layout = Self::layout(options)?;
            let (pool, block) = creation::complete(found, |pool| Self::initialise(pool, &layout))?;
            return Ok(Self::new(pool, layout, options, block));
        };
        if is_changing {
            let rehearsed = FbrTree::<D, _>::new(found.rehearse()?, layout, options, block);
            rehearsed.recover()?;
            verify::check_one_path(rehearsed.pool(), &layout, block)?;
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

    /// Makes everything durable, also on the page cache, and marks the pool as closed.
    pub fn close(self) -> Result<()> {
        Ok(self.pool.close()?)
    }

    fn layout(&Options { fan_out, leaves, .. }: &Options) -> Result<Layout<D>> {
        if leaves == LeafForm::SelfValidating && !Layout::<D>::ENTRIES_VALIDATE {
            return Err(Error::LongEntries { dimensions: D });
        }
        Layout::new(fan_out, leaves).ok_or_else(|| limits::fan_out_error(fan_out, FAN_OUT_MAX))
    }

    /// Puts an empty tree into a pool, with an empty leaf as the root. The tree exists once the
    /// pool's root word is stored. Gives the offset of its block.
    fn initialise(pool: &Pool<B>, layout: &Layout<D>) -> Result<u64> {
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
        write_header(backend, layout, root, 0, &Metadata::empty(true, layout.words));
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

    /// Makes new marks greater than all marks of the tree that use [`LONG_MARK_SHIFT`].
    fn shorten_marks(pool: &Pool<B>, layout: &Layout<D>, block: u64) {
        pool.skip_openings(openings_with_short_marks(pool.open_counter()));
        pool.backend().store(block + LEAVES, layout.leaves.code() | SHORT_MARKS);
        // A power loss before the next fence leads here once more, which is harmless.
        pool.backend().flush(block + LEAVES..block + LEAVES + WORD_LENGTH, SHORTEN);
    }
}

/// Low bits of the marks in trees without [`SHORT_MARKS`].
const LONG_MARK_SHIFT: u32 = 40;

/// The number of an opening whose marks are greater than all that a session and those before it can
/// have made with [`LONG_MARK_SHIFT`].
fn openings_with_short_marks(session: u64) -> u64 {
    (session + 1) << (LONG_MARK_SHIFT - MARK_SHIFT)
}
