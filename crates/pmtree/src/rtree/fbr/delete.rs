//! Deletion (section 3.3): the bit is cleared, then boxes shrink, then nodes with too few entries
//! are repaired.

use terrane_pmem::{Backend, Site};

use super::node::Node;
use super::tree::FbrTree;
use crate::blocks;
use crate::rtree::search::Path;
use crate::{Rect, Result};

const METADATA: Site = Site::new("fbr.delete.metadata");
const ROOT: Site = Site::new("fbr.delete.root");

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Deletes an entry with exactly this box and payload, one if there are several. Gives whether
    /// there was one. Coordinates are compared as numbers, so a box at -0.0 equals one at 0.0. When
    /// it returns, the entry is gone durably. It needs no space. If it fails because the tree is
    /// damaged, the entry may be gone.
    ///
    /// Durable after each step: the bit is clear; boxes of the leaf and above it are larger than
    /// needed; nodes have too few entries. All of that is harmless, and stays so after a crash
    /// until other operations meet it.
    pub fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        let _pinned = self.pool.pin();
        let mut unlinked = None;
        loop {
            let Some(path) = self.find(rect, payload)? else { return Ok(false) };
            // It was linked, and then unlinked. It cannot have been reused, since this thread is
            // pinned.
            if let Some(node) = unlinked.filter(|node| path.contains(node)) {
                return Err(self.damaged(node, "a linked node says that it is unlinked"));
            }
            if self.delete_at(&path, rect, payload, &mut unlinked)? {
                return Ok(true);
            }
            self.check_no_change_failed()?;
        }
    }

    /// Deletes an entry that was found in the leaf at the end of a path; `false` if it has moved
    /// since. `unlinked` gets the leaf's parent if that says it is no longer part of the tree.
    fn delete_at(&self, path: &Path, rect: &Rect<D>, payload: u64, unlinked: &mut Option<u64>) -> Result<bool> {
        let [above @ .., leaf] = path.as_slice() else { return Ok(false) };
        let leaf = self.node(*leaf)?;
        let Some(&parent) = above.last() else {
            let _root_lock = self.locks.root.write();
            let _lock = self.lock(&leaf)?;
            return Ok(self.root()?.offset == leaf.offset && self.delete_from_leaf(&leaf, rect, payload)?);
        };
        let parent = self.node(parent)?;
        let parent_lock = self.lock(&parent)?;
        if !self.links(&parent, leaf.offset)? {
            *unlinked = self.is_unlinked(&parent).then_some(parent.offset);
            return Ok(false);
        }
        let lock = self.lock(&leaf)?;
        if !self.delete_from_leaf(&leaf, rect, payload)? {
            return Ok(false);
        }
        let has_to_follow = self.shrink_and_repair(&parent, &leaf)?;
        drop((lock, parent_lock));
        if has_to_follow {
            self.repair_above(above)?;
        }
        Ok(true)
    }

    fn delete_from_leaf(&self, leaf: &Node<'_, D, B>, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.check_settled(leaf)?;
        let metadata = self.locked_metadata(leaf)?;
        let is_meant = |&slot: &usize| leaf.target(slot) == payload && leaf.rect(slot) == *rect;
        let found = metadata.slots().find(is_meant);
        match found {
            Some(slot) if self.has_tags(leaf.level()) => self.delete_tagged(leaf, metadata, slot)?,
            Some(slot) => self.publish(leaf, metadata, slot, false, METADATA),
            None => {}
        }
        Ok(found.is_some())
    }

    /// Whether a locked node is part of the tree and links a child.
    pub(super) fn links(&self, parent: &Node<'_, D, B>, child: u64) -> Result<bool> {
        self.check_settled(parent)?;
        let is_parent = parent.level() > 0 && !self.is_unlinked(parent);
        Ok(is_parent && parent.slot_of(&self.locked_metadata(parent)?, child).is_some())
    }

    /// Shrinks a node's box and repairs the node if it has too few entries. Gives whether the nodes
    /// above may have to follow. The locks of both are held.
    fn shrink_and_repair<'t>(&'t self, parent: &Node<'t, D, B>, node: &Node<'t, D, B>) -> Result<bool> {
        self.check_settled(node)?;
        let is_changed = self.shrink(parent, node.offset)?;
        if self.locked_metadata(node)?.count() < self.fill_min {
            self.repair_underflow(parent, node)?;
            return Ok(true);
        }
        Ok(is_changed)
    }

    /// Does the same for the nodes above a leaf, each from its parent, as long as something
    /// changes. If others have changed the path meanwhile, boxes stay larger than needed, and a
    /// node may keep too few entries.
    pub(super) fn repair_above(&self, above: &[u64]) -> Result<()> {
        for pair in above.windows(2).rev() {
            let (parent, node) = (self.node(pair[0])?, self.node(pair[1])?);
            let _parent_lock = self.lock(&parent)?;
            if !self.links(&parent, node.offset)? {
                // Others have the node, unless it is gone. They need not come to it again.
                if !self.is_unlinked(&node) && self.metadata(&node).count() < self.fill_min {
                    self.note_underfull();
                }
                return Ok(());
            }
            let _lock = self.lock(&node)?;
            if !self.shrink_and_repair(&parent, &node)? {
                return Ok(());
            }
        }
        self.lower_root()
    }

    /// Replaces a root with a single child by that child.
    pub(super) fn lower_root(&self) -> Result<()> {
        let _root_lock = self.locks.root.write();
        loop {
            let root = self.root()?;
            let _lock = self.lock(&root)?;
            self.check_settled(&root)?;
            let metadata = self.locked_metadata(&root)?;
            let (true, Some(slot)) = (root.level() > 0 && metadata.count() == 1, metadata.slots().next()) else {
                return Ok(());
            };
            let child = self.child(root.level(), root.target(slot))?;
            // A new root must be one that an opening would accept.
            blocks::check_own(&self.pool, child.offset, self.layout.node_length())?;
            let mut released = self.pool.intent();
            if let Err(error) = released.release(root.offset, self.root_word()) {
                self.note_underfull();
                return blocks::tolerate_missing_space(error);
            }
            self.store_root(child.offset, ROOT);
            self.mark_unlinked(&root);
            self.retire(released);
        }
    }
}
