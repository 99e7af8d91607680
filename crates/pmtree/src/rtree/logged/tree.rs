//! An open tree, and its nodes.

use terrane_pmem::{Backend, Native, Pool, WORD_LENGTH};
use terrane_storage::sync::RwLock;

use super::layout::{Layout, ROOT_WORD};
use super::node::{Image, Node};
use super::options::{Logging, Options};
use crate::rtree::split::fill_min;
use crate::{Error, Rect, Result, Split, blocks};

/// An R-tree that logs every node whole before it changes it. The [`FbrTree`](crate::fbr::FbrTree)
/// is measured against it.
///
/// A search sees the tree at one instant, as it holds the tree's lock shared. Deletions may need
/// space, for the log. There are 2 to 4 dimensions.
#[derive(Debug)]
pub struct LoggedTree<const D: usize, B: Backend = Native> {
    pub(super) pool: Pool<B>,
    pub(super) layout: Layout<D>,
    pub(super) logging: Logging,
    pub(super) split: Split,
    /// Least entries of a node that is not the root, with the exceptions of L7.
    pub(super) fill_min: usize,
    /// Offset of the block that holds the root word and the log.
    pub(super) block: u64,
    /// Held for writing by changes of the nodes and of the log.
    pub(super) lock: RwLock<()>,
}

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    pub(super) fn new(pool: Pool<B>, layout: Layout<D>, options: &Options, block: u64) -> Self {
        let fill_min = fill_min(layout.fan_out, options.fill_min_percent);
        Self { pool, layout, logging: options.logging, split: options.split, fill_min, block, lock: RwLock::new(()) }
    }

    pub(super) fn backend(&self) -> &B {
        self.pool.backend()
    }

    /// The node at an offset, whose entries lie within it.
    pub(super) fn node(&self, offset: u64) -> Result<Node<D, B::View<'_>>> {
        let length = self.layout.node_length();
        self.pool.check_range(offset, length)?;
        let node = Node::new(offset, self.backend().view(offset, length));
        if node.count() > self.layout.fan_out {
            return Err(
                self.damaged(offset, format!("a node states an impossible number of entries, {}", node.count()))
            );
        }
        Ok(node)
    }

    /// The child of an entry, which has to be of the level below.
    pub(super) fn child(&self, level: u64, offset: u64) -> Result<Node<D, B::View<'_>>> {
        let child = self.node(offset)?;
        let found = child.level();
        if found.checked_add(1) != Some(level) {
            return Err(self.damaged(offset, format!("a node of level {found} is the child of one of level {level}")));
        }
        Ok(child)
    }

    /// Offset of the root word.
    pub(super) fn root_word(&self) -> u64 {
        self.block + ROOT_WORD
    }

    pub(super) fn root_offset(&self) -> u64 {
        self.backend().load(self.root_word())
    }

    pub(super) fn root(&self) -> Result<Node<D, B::View<'_>>> {
        let root = self.node(self.root_offset())?;
        blocks::check_height(&self.pool, root.offset, root.level())?;
        Ok(root)
    }

    /// A node's words, to be changed.
    pub(super) fn image(&self, offset: u64) -> Result<Image<D>> {
        self.node(offset)?;
        Ok(Image::read(&self.layout, offset, |word| self.backend().load(offset + word as u64 * WORD_LENGTH)))
    }

    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        blocks::damaged(&self.pool, offset, reason)
    }

    /// The box around an image's entries; an error if it has none.
    pub(super) fn bounds(&self, image: &Image<D>) -> Result<Rect<D>> {
        image.node().bounds().ok_or_else(|| self.damaged(image.offset, "it has no entries, although it must"))
    }
}
