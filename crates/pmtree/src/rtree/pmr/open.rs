//! Creating, opening and closing.

use std::collections::BTreeSet;

use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Pool, ROOT, Site, WORD_LENGTH};
use terrane_storage::Storage;

use super::chain::{self, Linked};
use super::inner::INNER_FAN_OUT_MAX;
use super::layout::{
    BLOCK_LENGTH, DIMENSIONS, FAN_OUT, FAN_OUT_MAX, HEAD, INCARNATION, INTERLEAVED, LAYOUT_ID, LEAVES, Layout,
};
use super::options::Options;
use super::tags;
use super::tree::PmrTree;
use crate::rtree::LeafForm;
use crate::rtree::marks::marks_before;
use crate::rtree::split::check_fill_min;
use crate::{Error, Result, blocks, creation, limits};

const CREATE: Site = Site::new("pmr.create");

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Creates a tree in a new pool under a free name.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check(options)?;
        let layout = Self::layout_of(options)?;
        let of_pool = creation::pool_options(LAYOUT_ID, &options.pool);
        let (pool, block) = creation::create(storage, name, &of_pool, |pool| Self::initialise(pool, options))?;
        Self::rebuild(pool, layout, options, block)
    }

    /// Opens a tree. It reads all leaves, by several threads, to rebuild the inner nodes. It
    /// unlinks the leaves that were replaced, and frees blocks that the chain does not reach.
    ///
    /// Returns an error, and leaves the file unchanged, if the pool holds something else, a tree of
    /// another shape, or a damaged tree. It checks:
    /// 1. the tree's block and all leaves of the chain are acquired blocks of the length for this
    ///    shape;
    /// 2. the chain is no circle, and ends;
    /// 3. no bit is set behind the last entry of a leaf, and leaves whose entries validate
    ///    themselves have an incarnation;
    /// 4. the pool has no blocks, if its root word names no tree.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        check(options)?;
        let found = Pool::find(storage, name, &creation::pool_options(LAYOUT_ID, &options.pool))?;
        let Some((block, layout)) = verify(&found.rehearse()?)? else {
            // A crash came between the creation of the pool and that of the tree.
            let layout = Self::layout_of(options)?;
            let (pool, block) = creation::complete(found, |pool| Self::initialise(pool, options))?;
            return Self::rebuild(pool, layout, options, block);
        };
        let mut pool = found.take()?;
        // Removes the mark that a crash may have left in the root word.
        pmwcas::read(&pool, ROOT, &pool.pin())?;
        let mut reached: BTreeSet<u64> = chain::walk(&pool, &layout, block)?.iter().map(|linked| linked.leaf).collect();
        reached.insert(block);
        pool.free_unreached(&reached)?;
        Self::rebuild(pool, layout, options, block)
    }

    /// Makes everything durable, also on the page cache, and marks the pool as closed.
    pub fn close(self) -> Result<()> {
        Ok(self.pool.close()?)
    }

    fn layout_of(options: &Options) -> Result<Layout<D>> {
        if options.leaves == LeafForm::SelfValidating && !Layout::<D>::ENTRIES_VALIDATE {
            return Err(Error::LongEntries { dimensions: D });
        }
        let layout = Layout::new(options.fan_out, options.interleaved, options.leaves);
        layout.ok_or_else(|| limits::fan_out_error(options.fan_out, FAN_OUT_MAX))
    }

    /// Puts an empty tree into a pool, with one empty leaf. The tree exists once the pool's root
    /// word is changed. Gives the offset of its block.
    fn initialise(pool: &Pool<B>, options: &Options) -> Result<u64> {
        let layout = Self::layout_of(options)?;
        pool.check_block_length(layout.leaf_length().max(BLOCK_LENGTH))?;
        let guard = pool.pin();
        let mut descriptor = Descriptor::new(pool, &guard)?;
        let block = descriptor.acquire(BLOCK_LENGTH)?;
        let leaf = descriptor.acquire(layout.leaf_length())?;
        let backend = pool.backend();
        for (start, end) in [(block, block + BLOCK_LENGTH), (leaf, leaf + layout.entry(0))] {
            (start..end).step_by(WORD_LENGTH as usize).for_each(|offset| backend.store(offset, 0));
        }
        backend.store(block + DIMENSIONS, D as u64);
        backend.store(block + FAN_OUT, layout.fan_out as u64);
        backend.store(block + INTERLEAVED, u64::from(layout.interleaved));
        backend.store(block + LEAVES, layout.leaves.code());
        backend.store(block + HEAD, leaf);
        if layout.leaves == LeafForm::SelfValidating {
            backend.store(leaf + INCARNATION, marks_before(pool.open_counter()));
        }
        // The descriptor's first fence makes both durable before the root word leads to them.
        for range in [block..block + BLOCK_LENGTH, leaf..leaf + layout.entry(0)] {
            backend.flush(range, CREATE);
        }
        descriptor.swap(ROOT, 0, block)?;
        match descriptor.execute()? {
            true => Ok(block),
            false => Err(blocks::damaged(pool, ROOT, "the root word of a new pool has changed")),
        }
    }
}

/// Returns an error for options that no tree can have.
fn check(options: &Options) -> Result<()> {
    check_fill_min(options.fill_min_percent)?;
    match limits::is_fan_out(options.inner_fan_out, INNER_FAN_OUT_MAX) {
        true => Ok(()),
        false => Err(limits::fan_out_error(options.inner_fan_out, INNER_FAN_OUT_MAX)),
    }
}

/// Verifies the tree, if there is one. It is an error if there is another structure or a damaged
/// tree.
fn verify<const D: usize, B: Backend>(pool: &Pool<B>) -> Result<Option<(u64, Layout<D>)>> {
    let block = pmwcas::read(pool, ROOT, &pool.pin())?;
    if block == 0 {
        return Ok(None);
    }
    pool.check_range(block, BLOCK_LENGTH)?;
    blocks::check_own(pool, block, BLOCK_LENGTH)?;
    let [dimensions, fan_out, interleaved, leaves] =
        [DIMENSIONS, FAN_OUT, INTERLEAVED, LEAVES].map(|word| pool.backend().load(block + word));
    if dimensions != D as u64 {
        let (found, expected) = (format!("{dimensions} dimensions"), format!("{D} dimensions"));
        return Err(Error::OtherShape { pool: pool.name().to_owned(), found, expected });
    }
    let form = LeafForm::of_code(leaves).filter(|form| *form == LeafForm::Bitmap || Layout::<D>::ENTRIES_VALIDATE);
    let fan_out = usize::try_from(fan_out).unwrap_or(usize::MAX);
    let layout = form.and_then(|form| Layout::new(fan_out, interleaved == 1, form)).filter(|_| interleaved <= 1);
    let layout = layout.ok_or_else(|| {
        let shape = format!("{fan_out} entries, interleaving {interleaved} and form {leaves}");
        blocks::damaged(pool, block, format!("leaves of {shape} are impossible"))
    })?;
    let guard = pool.pin();
    for Linked { leaf, .. } in chain::walk(pool, &layout, block)? {
        if layout.leaves == LeafForm::SelfValidating {
            if !tags::is_incarnation(pool.backend().load(leaf + INCARNATION)) {
                return Err(blocks::damaged(pool, leaf, "a leaf has an impossible incarnation"));
            }
            continue;
        }
        for word in 0..layout.map_words {
            if !layout.is_possible(word, pmwcas::read(pool, leaf + layout.map_word(word), &guard)?) {
                return Err(blocks::damaged(pool, leaf, "a leaf has an impossible bitmap"));
            }
        }
    }
    Ok(Some((block, layout)))
}
