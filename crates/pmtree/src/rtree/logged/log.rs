//! The log: images of the nodes that one change changes.
//!
//! The head of the log is a line. It has its state, the blocks that the change acquires and
//! releases, the new root, and the first nodes. Further nodes follow in lines of their own, and
//! each image has a block. Stores to one line become durable in their order.
//!
//! - L1: a committed head is whole, and so are its images and acquired blocks.
//! - L2: a head without a commitment has changed nothing, and owns the new blocks that it names.
//! - L3: until a head is done, its nodes may hold any part of their images. The images count.
//! - L4: a head that is done owns the block that it releases, and nothing else.
//! - L5: a head is cleared durably before any image is written again.

use std::collections::BTreeSet;

use terrane_pmem::{Backend, Intent, LINE_LENGTH, Pool, Site, WORD_LENGTH};

use super::layout::{Layout, ROOT_WORD};
use super::node::{Image, Node};
use super::options::Logging;
use super::tree::LoggedTree;
use super::undo;
use crate::Result;
use crate::blocks::{self, damaged};

/// The most nodes of one change: longer than any path, as no pool has room for such a root.
pub(super) const IMAGES_MAX: usize = FIRST_NODES + LATER_NODES;

/// Offsets in the tree's block.
pub(super) const HEAD: u64 = ROOT_WORD + LINE_LENGTH;
const LATER: u64 = HEAD + LINE_LENGTH;
const IMAGES: u64 = LATER + LATER_NODES as u64 * WORD_LENGTH;
/// Bytes of the tree's block.
pub(super) const BLOCK_LENGTH: u64 = (IMAGES + IMAGES_MAX as u64 * WORD_LENGTH).next_multiple_of(LINE_LENGTH);

/// Words of the head.
pub(super) const STATE: u64 = HEAD;
const NEW: [u64; 2] = [HEAD + WORD_LENGTH, HEAD + 2 * WORD_LENGTH];
pub(super) const RELEASED: u64 = HEAD + 3 * WORD_LENGTH;
/// The new root, or the old one in a head with old values.
pub(super) const NEW_ROOT: u64 = HEAD + 4 * WORD_LENGTH;
const NODES: u64 = HEAD + 5 * WORD_LENGTH;

/// Nodes that are named in the head, and after it.
const FIRST_NODES: usize = 3;
const LATER_NODES: usize = 48;

pub(super) const COMMITTED: u64 = 1;
pub(super) const DONE: u64 = 2;
/// The images are old values (see [`undo`](super::undo)).
pub(super) const OLD_VALUES: u64 = 4;
const COUNT_SHIFT: u32 = 8;

const EXTEND: Site = Site::new("logged.log.extend");
const EXTEND_LINK: Site = Site::new("logged.log.extend.link");
const NODE: Site = Site::new("logged.log.node");
const IMAGE: Site = Site::new("logged.log.image");
const LATER_NAMES: Site = Site::new("logged.log.later");
const COMMIT: Site = Site::new("logged.log.commit");
const APPLY: Site = Site::new("logged.log.apply");
const APPLY_ROOT: Site = Site::new("logged.log.apply.root");
const CLEAR: Site = Site::new("logged.log.clear");

/// A set of nodes that changes at once.
pub(super) struct Change<'t, const D: usize, B: Backend> {
    /// Nodes of the tree in their new state.
    pub(super) images: Vec<Image<D>>,
    /// New nodes, written and flushed, that images link; and the intent that has acquired them.
    pub(super) new: [u64; 2],
    pub(super) acquired: Intent<'t, B>,
    /// A node that images link no more; 0 for none.
    pub(super) released: u64,
    /// The new root word; 0 if it stays.
    pub(super) root: u64,
}

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    pub(super) fn change(&self) -> Change<'_, D, B> {
        Change { images: Vec::new(), new: [0; 2], acquired: self.pool.intent(), released: 0, root: 0 }
    }

    /// Acquires a node of a level, writes it with these entries and flushes it.
    pub(super) fn acquire_node(
        &self,
        change: &mut Change<'_, D, B>,
        level: u64,
        entries: impl Iterator<Item = (crate::Rect<D>, u64)>,
    ) -> Result<Image<D>> {
        let place = usize::from(change.new[0] != 0);
        let offset = change.acquired.acquire(self.layout.node_length(), self.block + NEW[place])?;
        change.new[place] = offset;
        let mut image = Image::new(&self.layout, offset, level);
        entries.for_each(|(rect, target)| image.push(&rect, target));
        match self.logging {
            Logging::None => self.store_words(offset, image.used_words()),
            Logging::Images | Logging::Ranges => self.write(offset, image.used_words(), NODE),
        }
        Ok(image)
    }

    /// Makes a change, durably and atomically for recovery, as the tree logs.
    ///
    /// Everything that can fail comes before the change of a node. If something fails after it, the
    /// pool is damaged: all further changes are refused, and the next opening uses the log.
    pub(super) fn commit(&self, change: Change<'_, D, B>) -> Result<()> {
        if self.backend().load(self.block + STATE) != 0 {
            return Err(self.damaged(self.block + STATE, "a change of nodes has failed in the middle"));
        }
        // Blocks to free and a new root must be acquired blocks. Otherwise an opening would refuse
        // this commitment.
        for node in [change.released, change.root].into_iter().filter(|&node| node != 0) {
            blocks::check_own(&self.pool, node, self.layout.node_length())?;
        }
        match self.logging {
            Logging::Images => self.commit_with_images(change),
            Logging::Ranges => self.commit_with_old_values(change),
            Logging::None => self.commit_unlogged(change),
        }
    }

    /// Makes a change by images.
    ///
    /// Durable after each step: the images, which have no effect yet; the commitment, from which
    /// recovery completes the change (L1); the nodes; the free log.
    fn commit_with_images(&self, change: Change<'_, D, B>) -> Result<()> {
        let blocks = self.image_blocks(change.images.len())?;
        let mut release = self.pool.intent();
        if change.released != 0 {
            release.reserve()?;
        }
        for (image, block) in change.images.iter().zip(blocks) {
            self.write(block, image.words(), IMAGE);
        }
        self.name_nodes(&change.images);
        self.backend().fence(IMAGE);
        self.store_head(&change, COMMITTED, [change.released, change.root]);
        self.persist_head(COMMIT);

        self.apply(&change.images, change.root);
        change.acquired.finish();
        self.finish(release)
    }

    /// Names the nodes of a change that the head has no room for, and flushes the names.
    pub(super) fn name_nodes(&self, images: &[Image<D>]) {
        let later: Vec<u64> = images.iter().skip(FIRST_NODES).map(|image| image.offset).collect();
        self.write(self.block + LATER, &later, LATER_NAMES);
    }

    /// Fills the head: the state last.
    pub(super) fn store_head(&self, change: &Change<'_, D, B>, state: u64, [released, root]: [u64; 2]) {
        let [first, second] = change.new;
        let head = [(NEW[0], first), (NEW[1], second), (RELEASED, released), (NEW_ROOT, root)];
        for (word, value) in head.into_iter().filter(|&(_, value)| value != 0) {
            self.backend().store(self.block + word, value);
        }
        for (word, image) in (self.block + NODES..)
            .step_by(WORD_LENGTH as usize)
            .zip(&change.images[..change.images.len().min(FIRST_NODES)])
        {
            self.backend().store(word, image.offset);
        }
        self.backend().store(self.block + STATE, (change.images.len() as u64) << COUNT_SHIFT | state);
    }

    /// Writes images into their nodes, in place. Any part of that may have been done before.
    fn apply(&self, images: &[Image<D>], root: u64) {
        for image in images {
            let mut changed = BTreeSet::new();
            for (offset, &word) in (image.offset..).step_by(WORD_LENGTH as usize).zip(image.words()) {
                if self.backend().load(offset) != word {
                    self.backend().store(offset, word);
                    changed.insert(offset - offset % LINE_LENGTH);
                }
            }
            for line in changed {
                self.backend().flush(line..line + LINE_LENGTH, APPLY);
            }
        }
        if root != 0 {
            let word = self.block + ROOT_WORD;
            self.backend().store(word, root);
            self.backend().flush(word..word + WORD_LENGTH, APPLY_ROOT);
        }
        self.backend().fence(APPLY);
    }

    /// Ends a change that is durable without the log: frees its unlinked node, and the log.
    pub(super) fn finish(&self, mut release: Intent<'_, B>) -> Result<()> {
        let released = self.backend().load(self.block + RELEASED);
        if released != 0 {
            release.release(released, self.block + RELEASED)?;
        }
        self.clear();
        release.finish();
        Ok(())
    }

    /// Clears the head. A committed head is marked as done first, so that its acquired blocks stay
    /// the tree's. A head without a commitment owns the blocks that it still names.
    fn clear(&self) {
        let backend = self.backend();
        let state = backend.load(self.block + STATE);
        if state != 0 {
            backend.store(self.block + STATE, state | DONE);
        }
        for word in (STATE + WORD_LENGTH..HEAD + LINE_LENGTH).step_by(WORD_LENGTH as usize) {
            if backend.load(self.block + word) != 0 {
                backend.store(self.block + word, 0);
            }
        }
        backend.store(self.block + STATE, 0);
        self.persist_head(CLEAR);
    }

    pub(super) fn persist_head(&self, site: Site) {
        self.backend().persist(self.block + HEAD..self.block + HEAD + LINE_LENGTH, site);
    }

    /// Completes a change that a crash has interrupted, or undoes it.
    pub(super) fn recover(&self) -> Result<()> {
        let word = |word: u64| self.backend().load(self.block + word);
        let state = word(STATE);
        let mut release = self.pool.intent();
        if state & (OLD_VALUES | DONE) == OLD_VALUES {
            self.restore(state)?;
        }
        if state & COMMITTED == 0 {
            for link in NEW.into_iter().filter(|&link| word(link) != 0) {
                release.release(word(link), self.block + link)?;
            }
            if (HEAD..HEAD + LINE_LENGTH).step_by(WORD_LENGTH as usize).any(|head| word(head) != 0) {
                self.clear();
            }
            release.finish();
            return Ok(());
        }
        if state & DONE == 0 {
            self.apply(&self.logged_images(state)?, word(NEW_ROOT));
        }
        self.finish(release)
    }

    /// The images of a committed head.
    fn logged_images(&self, state: u64) -> Result<Vec<Image<D>>> {
        let image = |(node, block)| {
            Image::read(&self.layout, node, |word| self.backend().load(block + word as u64 * WORD_LENGTH))
        };
        Ok(self.logged_nodes(state)?.into_iter().map(image).collect())
    }

    /// The nodes that a head names, each with the block of its image.
    pub(super) fn logged_nodes(&self, state: u64) -> Result<Vec<(u64, u64)>> {
        logged_nodes(&self.pool, &self.layout, self.block, state)
    }

    /// Blocks for `count` images. Missing ones are acquired.
    ///
    /// After a crash a block is free, or belongs to the log.
    pub(super) fn image_blocks(&self, count: usize) -> Result<Vec<u64>> {
        if count > IMAGES_MAX {
            return Err(self.damaged(self.block, format!("the tree has {count} levels")));
        }
        (0..count)
            .map(|index| {
                let known = self.image_block(index);
                if known != 0 {
                    self.pool.check_range(known, self.layout.node_length())?;
                    return Ok(known);
                }
                let link = self.block + IMAGES + index as u64 * WORD_LENGTH;
                let mut acquired = self.pool.intent();
                let block = acquired.acquire(self.layout.node_length(), link)?;
                self.backend().fence(EXTEND);
                self.backend().store(link, block);
                self.backend().persist(link..link + WORD_LENGTH, EXTEND_LINK);
                acquired.finish();
                Ok(block)
            })
            .collect()
    }

    fn image_block(&self, index: usize) -> u64 {
        image_block(&self.pool, self.block, index)
    }

    /// The blocks of images, and whether the head is free. For checks.
    pub(super) fn log_blocks(&self) -> (Vec<u64>, bool) {
        let blocks = (0..IMAGES_MAX).map(|index| self.image_block(index)).filter(|&block| block != 0).collect();
        let mut head = (HEAD..HEAD + LINE_LENGTH).step_by(WORD_LENGTH as usize);
        (blocks, head.all(|word| self.backend().load(self.block + word) == 0))
    }

    /// Stores words from an offset on, and flushes them.
    pub(super) fn write(&self, first: u64, words: &[u64], site: Site) {
        self.store_words(first, words);
        self.backend().flush(first..first + words.len() as u64 * WORD_LENGTH, site);
    }

    fn store_words(&self, first: u64, words: &[u64]) {
        for (offset, &word) in (first..).step_by(WORD_LENGTH as usize).zip(words) {
            self.backend().store(offset, word);
        }
    }
}

/// Checks that the blocks for images have no other use, and that the log of a tree with this block
/// can be completed or undone. The log must name nodes, and no block that recovery needs itself.
/// Changes nothing.
pub(super) fn check<const D: usize, B: Backend>(pool: &Pool<B>, layout: &Layout<D>, block: u64) -> Result<()> {
    let word = |word: u64| pool.backend().load(block + word);
    let (state, root, new_root) = (word(STATE), word(ROOT_WORD), word(NEW_ROOT));
    let is_committed = state & COMMITTED != 0;
    let images: Vec<u64> =
        (0..IMAGES_MAX).map(|index| image_block(pool, block, index)).filter(|&image| image != 0).collect();
    for (number, image) in images.iter().enumerate() {
        blocks::check_own(pool, *image, layout.node_length())?;
        if *image == block || *image == root || images[..number].contains(image) {
            return Err(damaged(pool, *image, "the log has a block for images that has another use"));
        }
    }
    // Blocks to be written or freed must not be those that the log itself uses.
    let check_node = |offset: u64| {
        blocks::check_length(pool, offset, layout.node_length())?;
        if offset == block || images.contains(&offset) {
            return Err(damaged(pool, offset, "the log names it as a node, and it is not one"));
        }
        Ok(())
    };
    // The blocks that a change without a commitment owns, or that a committed one releases.
    let owned = if is_committed { &[RELEASED] } else { &NEW[..] };
    // The root after recovery.
    let changes_root = state & OLD_VALUES != 0 || state & (COMMITTED | DONE) == COMMITTED;
    let root_then = if changes_root && new_root != 0 { new_root } else { root };
    for owned in owned.iter().map(|&link| word(link)).filter(|&owned| owned != 0) {
        check_node(owned)?;
        if owned == root_then {
            return Err(damaged(pool, owned, "the log releases the root"));
        }
    }
    let [first, second] = NEW.map(word);
    if !is_committed && first != 0 && first == second {
        return Err(damaged(pool, first, "the log names one block as two new nodes"));
    }
    if state & (OLD_VALUES | DONE) == OLD_VALUES {
        for (node, image) in logged_nodes(pool, layout, block, state)? {
            check_node(node)?;
            undo::ranges_of(pool, layout, image)?;
        }
        return if new_root == 0 { Ok(()) } else { check_node(new_root) };
    }
    if state & (COMMITTED | DONE) != COMMITTED {
        return Ok(());
    }
    for (node, image) in logged_nodes(pool, layout, block, state)? {
        check_node(node)?;
        pool.check_block(image)?;
        let logged = Node::<D, _>::new(node, pool.backend().view(image, layout.node_length()));
        if logged.count() > layout.fan_out {
            return Err(damaged(pool, image, "the image of a node states more entries than nodes can have"));
        }
    }
    match new_root {
        0 => Ok(()),
        root => check_node(root),
    }
}

/// The nodes that a head names, each with the block of its image.
fn logged_nodes<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    block: u64,
    state: u64,
) -> Result<Vec<(u64, u64)>> {
    let count = (state >> COUNT_SHIFT) as usize;
    if count > IMAGES_MAX {
        let reason = format!("the log states an impossible number of images, {count}");
        return Err(damaged(pool, block + STATE, reason));
    }
    (0..count)
        .map(|index| {
            let place = match index.checked_sub(FIRST_NODES) {
                None => NODES + index as u64 * WORD_LENGTH,
                Some(later) => LATER + later as u64 * WORD_LENGTH,
            };
            let (node, image) = (pool.backend().load(block + place), image_block(pool, block, index));
            for range in [node, image] {
                pool.check_range(range, layout.node_length())?;
            }
            Ok((node, image))
        })
        .collect()
}

fn image_block<B: Backend>(pool: &Pool<B>, block: u64, index: usize) -> u64 {
    pool.backend().load(block + IMAGES + index as u64 * WORD_LENGTH)
}
