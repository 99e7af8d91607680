//! Creating, opening and closing trees.

use terrane_pmem::{Backend, LINE_LENGTH, Pool, ROOT, Site, WORD_LENGTH};
use terrane_storage::Storage;

use super::layout::{DIMENSIONS, FAN_OUT, FAN_OUT_MAX, LAYOUT_ID, Layout, ROOT_WORD};
use super::log::{self, BLOCK_LENGTH};
use super::node::{Image, Node};
use super::options::{Logging, Options};
use super::tree::LoggedTree;
use crate::rtree::split::check_fill_min;
use crate::{Census, Durability, Error, PersistentTree, Result, blocks, creation, limits};

const CREATE: Site = Site::new("logged.create");
const CREATE_ROOT: Site = Site::new("logged.create.root");
const CREATE_LINK: Site = Site::new("logged.create.link");

impl<const D: usize, B: Backend> PersistentTree for LoggedTree<D, B> {
    type Backend = B;
    type Options = Options;
    type Census = Census;

    fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check_fill_min(options.fill_min_percent)?;
        let layout = Self::layout(options)?;
        let of_pool = creation::pool_options(LAYOUT_ID, &options.pool);
        let (pool, block) = creation::create(storage, name, &of_pool, |pool| Self::initialise(pool, &layout))?;
        Ok(Self::new(pool, layout, options, block))
    }

    /// Takes a time that does not depend on the tree's size. Returns an error, and leaves the file
    /// unchanged, if one of these is damaged:
    /// - The header, the tree's shape, or data that recovery needs.
    /// - The root or a block for images. Each must be a block of a node's length, without another
    ///   use in the log.
    /// - The root's level: it must be one that a tree can reach.
    /// - The root word: it must name a tree if the pool has blocks.
    ///
    /// Other damage of nodes is found by the operations that meet it. One case is not found: the
    /// block for an image is the block of another node.
    fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check_fill_min(options.fill_min_percent)?;
        let found = Pool::find(storage, name, &creation::pool_options(LAYOUT_ID, &options.pool))?;
        let Some((block, layout)) = Self::verify(found.pool())? else {
            // A crash came between the creation of the pool and that of the tree.
            let layout = Self::layout(options)?;
            let (pool, block) = creation::complete(found, |pool| Self::initialise(pool, &layout))?;
            return Ok(Self::new(pool, layout, options, block));
        };
        let tree = Self::new(found.take()?, layout, options, block);
        tree.recover()?;
        Ok(tree)
    }

    fn durability(&self) -> Durability {
        match self.logging {
            Logging::Images | Logging::Ranges => Durability::of_medium(self.backend().domain()),
            Logging::None => Durability::CleanClose,
        }
    }

    fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    fn check(&mut self) -> Result<Census> {
        self.check_all()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.pool.close()?)
    }
}

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    fn layout(&Options { fan_out, .. }: &Options) -> Result<Layout<D>> {
        Layout::new(fan_out).ok_or_else(|| limits::fan_out_error(fan_out, FAN_OUT_MAX))
    }

    /// The tree's block and the layout of its nodes, if there is a tree. The pool is unchanged.
    fn verify(pool: &Pool<B>) -> Result<Option<(u64, Layout<D>)>> {
        let block = pool.backend().load(ROOT);
        if block == 0 {
            return Ok(None);
        }
        pool.check_range(block, BLOCK_LENGTH)?;
        pool.check_block(block)?;
        let (dimensions, fan_out) = (pool.backend().load(block + DIMENSIONS), pool.backend().load(block + FAN_OUT));
        if dimensions != D as u64 {
            let (found, expected) = (format!("{dimensions} dimensions"), format!("{D} dimensions"));
            return Err(Error::OtherShape { pool: pool.name().to_owned(), found, expected });
        }
        let layout = usize::try_from(fan_out)
            .ok()
            .and_then(Layout::new)
            .ok_or_else(|| blocks::damaged(pool, block + FAN_OUT, format!("a fan-out of {fan_out} is impossible")))?;
        blocks::check_own(pool, block, BLOCK_LENGTH)?;
        let root = pool.backend().load(block + ROOT_WORD);
        blocks::check_own(pool, root, layout.node_length())?;
        let level = Node::<D, _>::new(root, pool.backend().view(root, layout.node_length())).level();
        blocks::check_height(pool, root, level)?;
        log::check(pool, &layout, block)?;
        Ok(Some((block, layout)))
    }

    /// Puts an empty tree into a pool, with an empty leaf as the root. The tree exists once the
    /// pool's root word is stored. Gives the offset of its block.
    fn initialise(pool: &Pool<B>, layout: &Layout<D>) -> Result<u64> {
        pool.check_block_length(layout.node_length().max(BLOCK_LENGTH))?;
        let mut intent = pool.intent();
        let block = intent.acquire(BLOCK_LENGTH, ROOT)?;
        let root = intent.acquire(layout.node_length(), block + ROOT_WORD)?;
        let backend = pool.backend();
        for offset in (block..block + BLOCK_LENGTH).step_by(WORD_LENGTH as usize) {
            backend.store(offset, 0);
        }
        backend.store(block + DIMENSIONS, D as u64);
        backend.store(block + FAN_OUT, layout.fan_out as u64);
        backend.store(block + ROOT_WORD, root);
        backend.flush(block..block + BLOCK_LENGTH, CREATE);
        for (offset, &word) in (root..).step_by(WORD_LENGTH as usize).zip(Image::new(layout, root, 0).used_words()) {
            backend.store(offset, word);
        }
        backend.flush(root..root + LINE_LENGTH, CREATE_ROOT);
        backend.fence(CREATE);
        backend.store(ROOT, block);
        backend.persist(ROOT..ROOT + WORD_LENGTH, CREATE_LINK);
        intent.finish();
        Ok(block)
    }
}
