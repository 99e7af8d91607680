//! Whole-node write-ahead logging, the baseline of the FBR-tree: each node that an operation changes is logged whole before
//! it is changed in place (the thesis calls it legacy logging).
//!
//! Nodes are chosen, enlarged and divided as in the FBR-tree, and full ones are split on the way down. An insertion takes the images of
//! the leaf and of each node above it in which a box changes; a split is a change of its own, of a node, its
//! parent and a new node that needs no image. How a change is made durable is in [`log`].
//!
//! One reader-writer lock for the whole tree keeps readers and writers apart: what this tree is for is the cost of
//! logging, and one log has one writer at a time. Searches write nothing and flush nothing.
//!
//! Invariants, after each change: L6: a box is the smallest one around what its child holds; that of an empty leaf is any, since nothing
//! lies in it, and counts above as others do. L7: every node but the root has as many entries as splits leave, unless a crash came between a
//! deletion and the mending of its leaf, or there was no space for that. Several of these can leave a leaf empty, until an entry comes to it or a sibling is mended with it. Inner
//! nodes always have a child: one is unlinked only where its sibling takes over what it has.

mod check;
mod delete;
mod insert;
mod log;
mod node;
mod search;
#[cfg(feature = "explorer")]
mod shape;

use terrane_pmem::{Backend, LINE_LENGTH, Native, Pool, ROOT, Site, WORD_LENGTH};
use terrane_storage::Storage;
use terrane_storage::sync::RwLock;

use self::log::{BLOCK_LENGTH, Change};
use self::node::{Image, Layout, Node};
use super::fbr::{Census, LeafForm, Options, Rebalancing, SearchMode};
use super::tree::PersistentRTree;
use crate::{Error, Rect, Result, Split};
use crate::{blocks, creation, limits};

/// Names the layout of pools that hold such a tree.
const LAYOUT_ID: u64 = u64::from_le_bytes(*b"LOGRTRE1");

const CREATE: Site = Site::new("logged.create");
const CREATE_ROOT: Site = Site::new("logged.create.root");
const CREATE_LINK: Site = Site::new("logged.create.link");

/// Words of the first line of the tree's block: dimensions and fan-out. The root word has the second line, then
/// follows the log.
const DIMENSIONS: u64 = 0;
const FAN_OUT: u64 = WORD_LENGTH;
const ROOT_WORD: u64 = LINE_LENGTH;

/// An R-tree that logs every node whole before it changes it: what the [`FbrTree`](crate::FbrTree) is measured against.
///
/// It keeps the promises of [`PersistentRTree`]. Of the [`Options`] it takes the fan-out, the split and the pool; its
/// nodes are changed in one way and have one form, so others than the defaults are refused. A search sees the tree as of one
/// instant, which is what any mode promises and more: it holds the tree's lock shared. Dimensions are 2 to 4.
#[derive(Debug)]
pub struct LoggedTree<const D: usize, B: Backend = Native> {
    pool: Pool<B>,
    layout: Layout<D>,
    split: Split,
    /// Offset of the block that holds the root word and the log.
    block: u64,
    /// For writing: the nodes, and the one log.
    lock: RwLock<()>,
}

impl<const D: usize, B: Backend> PersistentRTree<D> for LoggedTree<D, B> {
    type Backend = B;

    fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::check_options(options)?;
        let layout = Self::layout(options)?;
        let (pool, block) = creation::create(storage, name, &pool_options(options), |pool| Self::plant(pool, &layout))?;
        Ok(Self { pool, layout, split: options.split, block, lock: RwLock::new(()) })
    }

    /// Takes a time that does not depend on the tree's size. Damage of the header, of the tree's shape and of what recovery goes
    /// by is refused, and the file left as it was; so is a root, or a block for images, that is no block of a node's length or that
    /// has another use in the log, a root of a level that no tree reaches, and a pool with blocks that names no tree. Other damage
    /// of nodes is found by who meets them. Not found is that a block for images is said to be where another node is, of the same
    /// length.
    fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::check_options(options)?;
        let found = Pool::find(storage, name, &pool_options(options))?;
        let Some((block, layout)) = Self::look(found.pool())? else {
            // A crash came between the creation of the pool and that of the tree.
            let layout = Self::layout(options)?;
            let (pool, block) = creation::complete(found, |pool| Self::plant(pool, &layout))?;
            return Ok(Self { pool, layout, split: options.split, block, lock: RwLock::new(()) });
        };
        let tree = Self { pool: found.take()?, layout, split: options.split, block, lock: RwLock::new(()) };
        tree.recover()?;
        Ok(tree)
    }

    fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        self.insert_logged(rect, payload)
    }

    fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.delete_logged(rect, payload)
    }

    fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        let _lock = self.lock.read();
        Ok(self.find(rect, payload)?.is_some())
    }

    fn window(&self, window: &Rect<D>, _: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        let mut hits = Vec::new();
        {
            let _lock = self.lock.read();
            self.search_window(&self.root()?, window, &mut hits, &mut 0)?;
        }
        hits.iter().for_each(|(rect, payload)| visit(rect, *payload));
        Ok(())
    }

    fn nearest(&self, point: &[f64; D], count: usize, _: SearchMode) -> Result<Vec<(f64, Rect<D>, u64)>> {
        Rect::point(*point)?;
        let _lock = self.lock.read();
        self.search_nearest(point, count)
    }

    fn check(&mut self) -> Result<Census> {
        self.check_all()
    }

    fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.pool.close()?)
    }
}

fn pool_options(options: &Options) -> terrane_pmem::Options {
    terrane_pmem::Options { layout_id: LAYOUT_ID, ..options.pool.clone() }
}

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    fn layout(options: &Options) -> Result<Layout<D>> {
        let fan_out = options.fan_out;
        Layout::new(fan_out).ok_or_else(|| limits::no_fan_out(fan_out))
    }

    /// Refuses what this tree does not have.
    fn check_options(options: &Options) -> Result<()> {
        if options.rebalancing != Rebalancing::default() {
            return Err(Error::NotLogged { option: "rebalancing" });
        }
        if options.leaves != LeafForm::default() {
            return Err(Error::NotLogged { option: "form of leaves" });
        }
        Ok(())
    }

    /// The tree's block and the layout of its nodes, if there is a tree, without a change of the pool.
    fn look(pool: &Pool<B>) -> Result<Option<(u64, Layout<D>)>> {
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
        let layout = usize::try_from(fan_out).ok().and_then(Layout::new).ok_or_else(|| {
            blocks::damaged(pool, block + FAN_OUT, format!("nodes are said to have {fan_out} entries"))
        })?;
        blocks::check_own(pool, block, BLOCK_LENGTH)?;
        let root = pool.backend().load(block + ROOT_WORD);
        blocks::check_own(pool, root, layout.node_length())?;
        let level = Node::<D, _>::new(root, pool.backend().view(root, layout.node_length())).level();
        blocks::check_height(pool, root, level)?;
        log::check(pool, &layout, block)?;
        Ok(Some((block, layout)))
    }

    /// Puts an empty tree into a pool, with an empty leaf as the root. The tree is there when the pool's root word is.
    /// Gives the offset of its block.
    fn plant(pool: &Pool<B>, layout: &Layout<D>) -> Result<u64> {
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

    fn backend(&self) -> &B {
        self.pool.backend()
    }

    /// The node at an offset, whose entries lie within it.
    fn node(&self, offset: u64) -> Result<Node<D, B::View<'_>>> {
        let length = self.layout.node_length();
        self.pool.check_range(offset, length)?;
        let node = Node::new(offset, self.backend().view(offset, length));
        if node.count() > self.layout.fan_out {
            return Err(self.damaged(offset, format!("a node is said to have {} entries", node.count())));
        }
        Ok(node)
    }

    /// The child of an entry, which has to be of the level below.
    fn child(&self, level: u64, offset: u64) -> Result<Node<D, B::View<'_>>> {
        let child = self.node(offset)?;
        let found = child.level();
        if found.checked_add(1) != Some(level) {
            return Err(self.damaged(offset, format!("a node of level {found} is the child of one of level {level}")));
        }
        Ok(child)
    }

    fn root(&self) -> Result<Node<D, B::View<'_>>> {
        let root = self.node(self.backend().load(self.block + ROOT_WORD))?;
        blocks::check_height(&self.pool, root.offset, root.level())?;
        Ok(root)
    }

    /// A node's words, to be changed.
    fn image(&self, offset: u64) -> Result<Image<D>> {
        self.node(offset)?;
        Ok(Image::read(&self.layout, offset, |word| self.backend().load(offset + word as u64 * WORD_LENGTH)))
    }

    /// Makes the boxes of the node whose image came last, and of those above it, the smallest ones again, as far as something changes
    /// (AdjustTree of Guttman 1984).
    ///
    /// From what the nodes hold, not from what came: the box of a leaf that was empty is not one around entries, so it may
    /// shrink where one comes.
    fn adjust_boxes(&self, change: &mut Change<'_, D, B>, above: &[u64]) -> Result<()> {
        for &node in above.iter().rev() {
            let Some(child) = change.images.last().map(Image::node) else { return Ok(()) };
            let parent = self.node(node)?;
            let Some(slot) = parent.slot_of(child.offset) else {
                return Err(self.damaged(node, format!("it does not link its child at {}", child.offset)));
            };
            // A leaf that was left with one entry (L7) is empty after its deletion, and keeps its box.
            let changed = child.bounds().filter(|bounds| parent.rect(slot) != *bounds);
            let Some(bounds) = changed else { return Ok(()) };
            let mut image = self.image(node)?;
            image.set_rect(slot, &bounds);
            change.images.push(image);
        }
        Ok(())
    }

    fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        blocks::damaged(&self.pool, offset, reason)
    }

    /// The box around an image's entries, which there have to be.
    fn bounds(&self, image: &Image<D>) -> Result<Rect<D>> {
        image.node().bounds().ok_or_else(|| self.damaged(image.offset, "it has no entries, and should have"))
    }
}
