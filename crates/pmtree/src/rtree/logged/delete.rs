//! Deletion: the leaf and the boxes above it change at once. Then nodes with too few entries are
//! repaired, from the leaf upwards.

use terrane_pmem::Backend;

use super::node::Image;
use super::tree::LoggedTree;
use crate::blocks::tolerate_missing_space;
use crate::rtree::choose;
use crate::{Rect, Result};

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    /// After a crash the entry is there or not, and each box has its old or its new size. Between
    /// the changes, nodes may have too few entries, which is harmless. If there is no space to
    /// repair them, they stay so.
    pub(super) fn delete_logged(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        let _lock = self.lock.write();
        let Some(path) = self.find(rect, payload)? else { return Ok(false) };
        self.remove(&path, rect, payload)?;
        for depth in (1..path.len()).rev() {
            if self.node(path[depth])?.count() < self.fill_min {
                self.repair_underflow(&path[..depth], path[depth]).or_else(tolerate_missing_space)?;
            }
        }
        self.lower_root().or_else(tolerate_missing_space)?;
        Ok(true)
    }

    /// Removes an entry from the leaf at the end of a path, and shrinks the boxes above it.
    fn remove(&self, path: &[u64], rect: &Rect<D>, payload: u64) -> Result<()> {
        let Some((&leaf, above)) = path.split_last() else { return Ok(()) };
        let mut leaf = self.image(leaf)?;
        let slot = leaf.node().entries().position(|entry| entry == (*rect, payload));
        let Some(slot) = slot else {
            return Err(self.damaged(leaf.offset, "an entry that was just found is gone"));
        };
        leaf.remove(slot);
        let mut change = self.change();
        change.images.push(leaf);
        self.adjust_boxes(&mut change, above)?;
        self.commit(change)
    }

    /// Moves some entries of the closest sibling to a node with too few, or merges the two. The
    /// path ends with the parent.
    fn repair_underflow(&self, path: &[u64], node: u64) -> Result<()> {
        let Some((&parent, above)) = path.split_last() else { return Ok(()) };
        let mut parent = self.image(parent)?;
        let Some(own) = parent.node().slot_of(node) else {
            return Err(self.damaged(parent.offset, format!("it does not link its child at {node}")));
        };
        let bounds = parent.node().rect(own);
        let siblings = (0..parent.node().count()).filter(|&slot| slot != own);
        let siblings: Vec<(usize, Rect<D>)> = siblings.map(|slot| (slot, parent.node().rect(slot))).collect();
        let Some((slot, _)) = choose::least_enlargement(siblings.into_iter(), &bounds) else { return Ok(()) };
        let mut few = self.image(node)?;
        let mut more = self.image(self.child(parent.node().level(), parent.node().target(slot))?.offset)?;
        if more.offset == node {
            return Err(self.damaged(parent.offset, "it links its child twice"));
        }
        let mut change = self.change();
        let is_shared = few.node().count() + more.node().count() >= 2 * self.fill_min;
        if is_shared {
            self.redistribute(&bounds, &mut few, &mut more);
            parent.set_rect(slot, &self.bounds(&more)?);
        } else {
            more.node().entries().for_each(|(rect, target)| few.push(&rect, target));
            change.released = more.offset;
        }
        // Two leaves that became empty (L7) have no box.
        parent.set_rect(own, &few.node().bounds().unwrap_or(bounds));
        if is_shared {
            change.images.push(more);
        } else {
            parent.remove(slot);
        }
        change.images.extend([few, parent]);
        // The box of a leaf that became empty is gone.
        self.adjust_boxes(&mut change, above)?;
        self.commit(change)
    }

    /// Moves entries until both nodes have half of them, starting with those that enlarge the node
    /// least.
    fn redistribute(&self, bounds: &Rect<D>, few: &mut Image<D>, more: &mut Image<D>) {
        let growth = |rect: &Rect<D>| choose::growth(bounds.area(), bounds.union(rect).area());
        let mut nearest: Vec<(f64, usize)> =
            more.node().entries().enumerate().map(|(slot, (rect, _))| (growth(&rect), slot)).collect();
        nearest.sort_by(|left, right| left.0.total_cmp(&right.0));
        nearest.truncate(more.node().count().saturating_sub(few.node().count()) / 2);
        // From the last one on, since a removal moves the last entry.
        let mut moved: Vec<usize> = nearest.into_iter().map(|(_, slot)| slot).collect();
        moved.sort_unstable_by(|left, right| right.cmp(left));
        for slot in moved {
            few.push(&more.node().rect(slot), more.node().target(slot));
            more.remove(slot);
        }
    }

    /// Replaces a root with a single child by that child.
    fn lower_root(&self) -> Result<()> {
        loop {
            let root = self.root()?;
            if root.level() == 0 || root.count() != 1 {
                return Ok(());
            }
            let mut change = self.change();
            change.released = root.offset;
            change.root = self.child(root.level(), root.target(0))?.offset;
            self.commit(change)?;
        }
    }
}
