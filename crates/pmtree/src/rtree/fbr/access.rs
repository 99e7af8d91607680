//! The nodes of a tree: found, locked, and written word by word.

use terrane_pmem::{Backend, Site, WORD_LENGTH};
use terrane_storage::sync::{RwLock, RwLockWriteGuard};

use super::layout::{Metadata, SEQUENCE};
use super::node::Node;
use super::tree::FbrTree;
use crate::{Rect, Result, blocks};

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// The node at an offset, which lies in the pool.
    #[inline]
    pub(super) fn node(&self, offset: u64) -> Result<Node<'_, D, B>> {
        Node::at(&self.pool, &self.layout, offset)
    }

    /// The child of an entry, which must have the level below.
    #[inline]
    pub(super) fn child(&self, level: u64, offset: u64) -> Result<Node<'_, D, B>> {
        let child = self.node(offset)?;
        let found = child.level();
        if found.checked_add(1) != Some(level) {
            return Err(self.damaged(offset, format!("a node of level {found} is the child of one of level {level}")));
        }
        Ok(child)
    }

    /// The node that the root word names.
    pub(super) fn root(&self) -> Result<Node<'_, D, B>> {
        self.root_at(self.backend().load(self.root_word()))
    }

    /// The node at an offset that the root word names, or that results from dividing a root.
    #[inline]
    pub(super) fn root_at(&self, offset: u64) -> Result<Node<'_, D, B>> {
        let root = self.node(offset)?;
        blocks::check_height(&self.pool, offset, root.level())?;
        Ok(root)
    }

    /// The metadata of a locked node, with valid entry numbers.
    pub(super) fn locked_metadata(&self, node: &Node<'_, D, B>) -> Result<Metadata> {
        if self.needs_adoption(node) {
            self.adopt(node);
        }
        let mut metadata = node.bitmap();
        // The thread that has set it holds the lock, or belongs to another session. If it stayed
        // set, it would cost each search of the node a flush.
        metadata.set_dirty(false);
        self.check_metadata(node, &metadata)?;
        Ok(metadata)
    }

    #[inline]
    pub(super) fn check_metadata(&self, node: &Node<'_, D, B>, metadata: &Metadata) -> Result<()> {
        node.check_metadata(&self.pool, metadata)
    }

    /// Stores an entry, its mark last.
    pub(super) fn write_entry(&self, node: &Node<'_, D, B>, slot: usize, rect: &Rect<D>, target: u64, mark: u64) {
        let first = node.word(self.layout.entry(slot));
        let corners = rect.min().iter().chain(rect.max()).map(|coordinate| coordinate.to_bits());
        for (offset, word) in (first..).step_by(WORD_LENGTH as usize).zip(corners.chain([target, mark])) {
            self.backend().store(offset, word);
        }
    }

    pub(super) fn flush_entry(&self, node: &Node<'_, D, B>, slot: usize, site: Site) {
        let first = node.word(self.layout.entry(slot));
        self.backend().flush(first..node.word(self.layout.mark(slot)) + WORD_LENGTH, site);
    }

    /// Changes the coordinates of an entry that differ, each by a store of its own. A concurrent
    /// reader or a recovery has each of them before or after. Gives whether any differed.
    pub(super) fn store_rect(&self, node: &Node<'_, D, B>, slot: usize, rect: &Rect<D>) -> bool {
        let first = node.word(self.layout.entry(slot));
        let mut is_changed = false;
        let corners = rect.min().iter().chain(rect.max()).map(|coordinate| coordinate.to_bits());
        for (offset, word) in (first..).step_by(WORD_LENGTH as usize).zip(corners) {
            if self.backend().load(offset) != word {
                self.backend().store(offset, word);
                is_changed = true;
            }
        }
        is_changed
    }

    /// Stores the words of the bitmap that differ. None is marked as dirty, and the order is
    /// arbitrary: if several differ, a log entry or tags say the same.
    pub(super) fn store_metadata(&self, node: &Node<'_, D, B>, metadata: &Metadata) {
        for (number, &word) in metadata.words().iter().enumerate() {
            let offset = node.word(self.layout.bitmap_word(number));
            if self.backend().load(offset) != word {
                self.backend().store(offset, word);
            }
        }
    }

    pub(super) fn flush_header(&self, node: &Node<'_, D, B>, site: Site) {
        self.backend().flush(node.offset..node.offset + self.layout.header_length(), site);
    }

    /// Lets readers see that entries were removed or moved. The caller holds the node's lock.
    pub(super) fn bump(&self, node: &Node<'_, D, B>) {
        self.backend().store(node.word(SEQUENCE), node.sequence().wrapping_add(1));
    }

    /// Locks a node for changes.
    #[inline]
    pub(super) fn lock(&self, node: &Node<'_, D, B>) -> Result<RwLockWriteGuard<'_, ()>> {
        Ok(self.lock_of(node)?.write())
    }

    /// Locks a node for reading.
    #[inline]
    pub(super) fn lock_shared(&self, node: &Node<'_, D, B>) -> Result<impl Sized + use<'_, D, B>> {
        Ok(self.lock_of(node)?.read())
    }

    /// The length is checked first: the target of a damaged link may overlap a node and share its
    /// lock, and the holder of that would wait for itself.
    #[inline]
    fn lock_of(&self, node: &Node<'_, D, B>) -> Result<&RwLock<()>> {
        blocks::check_length(&self.pool, node.offset, self.layout.node_length())?;
        Ok(self.locks.of(node.offset))
    }

    /// The lock of a node that was just acquired and is unknown to others. It is never waited for,
    /// so it has no order with others (F7).
    pub(super) fn lock_new(&self, node: u64) -> Result<impl Sized + '_> {
        // Fails only if the pool gives out blocks in use.
        self.locks.of(node).try_write().ok_or_else(|| self.damaged(node, "a free block is in use as a node"))
    }
}
