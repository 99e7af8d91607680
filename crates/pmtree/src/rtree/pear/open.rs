//! Creating, opening and closing.

use terrane_pmem::{Backend, Pool, ROOT, Site, WORD_LENGTH};
use terrane_storage::Storage;

use super::layout::{
    ALIGNMENT, BLOCK_LENGTH, CLEAN, DIMENSIONS, DYING, DYING_PARENT, FAN_OUT, FAN_OUT_MAX, INNER_FAN_OUT, LAYOUT_ID,
    Layout, SINGLE, TOP, head, is_alignment, level_of,
};
use super::options::Options;
use super::tree::PearTree;
use super::walk::{check_header, walk};
use crate::limits::LEVEL_MAX;
use crate::rtree::split::check_fill_min;
use crate::{Error, Result, blocks, creation, limits};

const CREATE: Site = Site::new("pear.create");
const CREATE_LINK: Site = Site::new("pear.create.link");
const OPEN: Site = Site::new("pear.open.clean");

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Creates a tree in a new pool under a free name.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check_fill_min(options.fill_min_percent)?;
        let layout = Self::layout_of(options)?;
        let of_pool = creation::pool_options(LAYOUT_ID, &options.pool);
        let (pool, block) = creation::create(storage, name, &of_pool, |pool| Self::initialise(pool, layout))?;
        Self::start(pool, layout, options, block, true)
    }

    /// Opens a tree. If its root lies in the pool, it reads nothing else. Otherwise it makes the
    /// nodes anew that were in memory. Recovery states below are left to the operations that meet
    /// them.
    ///
    /// If the pool has no space for nodes that the budget wants there, they lie in memory, and
    /// exceed the budget until they can move.
    ///
    /// Returns an error, and leaves the file unchanged, if the pool holds something else, a tree of
    /// another shape, or a damaged tree. It checks:
    /// 1. the tree's block, and the nodes that recovery reads, are acquired blocks of the length
    ///    for this shape, and state their levels;
    /// 2. these nodes are in no state that no crash leaves: they have no lock of this session, and
    ///    without a lock they are even;
    /// 3. the chains that recovery walks are no circles;
    /// 4. the pool has no blocks, if its root word names no tree.
    ///
    /// Damage to the marks and links of these nodes may be met later, when recovery has changed the
    /// file. Then the error comes all the same.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check_fill_min(options.fill_min_percent)?;
        let found = Pool::find(storage, name, &creation::pool_options(LAYOUT_ID, &options.pool))?;
        let Some((block, layout)) = verify(&found.rehearse()?)? else {
            // A crash came between the creation of the pool and that of the tree.
            let layout = Self::layout_of(options)?;
            let (pool, block) = creation::complete(found, |pool| Self::initialise(pool, layout))?;
            return Self::start(pool, layout, options, block, true);
        };
        let pool = found.take()?;
        let clean = block + CLEAN;
        let is_clean = pool.backend().load(clean) != 0;
        if is_clean {
            pool.backend().store(clean, 0);
            pool.backend().persist(clean..clean + WORD_LENGTH, OPEN);
        }
        Self::start(pool, layout, options, block, is_clean)
    }

    /// Makes everything durable, also on the page cache, and marks the pool as closed. If no node
    /// can be in a recovery state, the tree is marked as clean, too (see
    /// [`PearTree::repair_all`]).
    pub fn close(self) -> Result<()> {
        // Marks are removed durably, so it does not matter what becomes durable first. Those of
        // completed redistributions are not, but may be met at any time.
        self.backend().store(self.block + CLEAN, u64::from(!self.may_be_stale()));
        Ok(self.pool.close()?)
    }

    fn start(pool: Pool<B>, layout: Layout<D>, options: &Options, block: u64, is_clean: bool) -> Result<Self> {
        let mut tree = Self::new(pool, layout, options, block, is_clean);
        tree.complete_removal()?;
        tree.recover(options)?;
        Ok(tree)
    }

    fn layout_of(options: &Options) -> Result<Layout<D>> {
        let &Options { fan_out, inner_fan_out, single, alignment, .. } = options;
        if !is_alignment(alignment) {
            return Err(Error::Alignment { alignment });
        }
        let impossible = if limits::is_fan_out(fan_out, FAN_OUT_MAX) { inner_fan_out } else { fan_out };
        Layout::new([fan_out, inner_fan_out], single, alignment)
            .ok_or_else(|| limits::fan_out_error(impossible, FAN_OUT_MAX))
    }

    /// Puts an empty tree into a pool, with an empty leaf as root. The tree exists once the pool's
    /// root word is changed. Gives the offset of its block.
    ///
    /// The leaf is all zeros, as the blocks of a new pool are.
    fn initialise(pool: &Pool<B>, layout: Layout<D>) -> Result<u64> {
        pool.check_block_length(layout.node_length().max(BLOCK_LENGTH))?;
        let mut intent = pool.intent();
        let block = intent.acquire(BLOCK_LENGTH, ROOT)?;
        let leaf = intent.acquire_aligned(layout.node_length(), layout.alignment, block + head(0))?;
        let backend = pool.backend();
        let mut fresh = (leaf..leaf + layout.node_length()).step_by(WORD_LENGTH as usize);
        if fresh.any(|offset| backend.load(offset) != 0) {
            return Err(blocks::damaged(
                pool,
                leaf,
                "a block of a new pool is not empty; remove the file, which has no tree",
            ));
        }
        (block..block + BLOCK_LENGTH).step_by(WORD_LENGTH as usize).for_each(|offset| backend.store(offset, 0));
        let words = [
            (DIMENSIONS, D as u64),
            (FAN_OUT, layout.fan_out as u64),
            (INNER_FAN_OUT, layout.inner_fan_out as u64),
            (SINGLE, u64::from(layout.single)),
            (ALIGNMENT, layout.alignment),
            (TOP, leaf),
            (head(0), leaf),
        ];
        words.iter().for_each(|(word, value)| backend.store(block + word, *value));
        backend.flush(block..block + BLOCK_LENGTH, CREATE);
        backend.fence(CREATE);
        backend.store(ROOT, block);
        backend.persist(ROOT..ROOT + WORD_LENGTH, CREATE_LINK);
        intent.finish();
        Ok(block)
    }
}

/// Verifies the tree, if there is one. It is an error if there is another structure or a damaged
/// tree.
pub(super) fn verify<const D: usize, B: Backend>(pool: &Pool<B>) -> Result<Option<(u64, Layout<D>)>> {
    let backend = pool.backend();
    let block = backend.load(ROOT);
    if block == 0 {
        return Ok(None);
    }
    pool.check_range(block, BLOCK_LENGTH)?;
    blocks::check_own(pool, block, BLOCK_LENGTH)?;
    let [dimensions, fan_out, inner_fan_out, single, alignment, top] =
        [DIMENSIONS, FAN_OUT, INNER_FAN_OUT, SINGLE, ALIGNMENT, TOP].map(|word| backend.load(block + word));
    if dimensions != D as u64 {
        let (found, expected) = (format!("{dimensions} dimensions"), format!("{D} dimensions"));
        return Err(Error::OtherShape { pool: pool.name().to_owned(), found, expected });
    }
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let layout = Layout::<D>::new([fan_out, inner_fan_out].map(number), single == 1, alignment);
    let layout = layout.filter(|_| single <= 1).ok_or_else(|| {
        let reason = format!(
            "nodes of {fan_out} and {inner_fan_out} entries of kind {single}, aligned to {alignment} bytes, are impossible"
        );
        blocks::damaged(pool, block, reason)
    })?;
    let walked = if top > LEVEL_MAX {
        blocks::check_own(pool, top, layout.node_length())?;
        check_header(pool, &layout, top, None)?;
        level_of(backend.load(top)) + 1..=LEVEL_MAX
    } else {
        blocks::check_height(pool, block, top + 1)?;
        top..=top + 1
    };
    for level in walked {
        walk(pool, &layout, block, level)?;
    }
    let [dying_parent, dying] = [DYING_PARENT, DYING].map(|word| backend.load(block + word));
    for node in [dying_parent, dying].into_iter().filter(|node| dying != 0 && *node != 0) {
        blocks::check_length(pool, node, layout.node_length())?;
    }
    Ok(Some((block, layout)))
}
