//! Insertion: full nodes are split on the way down. Then the leaf and the boxes above it change at
//! once.

use terrane_pmem::Backend;

use super::log::Change;
use super::node::{Image, Node};
use super::tree::LoggedTree;
use crate::rtree::choose;
use crate::{Rect, Result};

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    /// After a crash each split is there or not, and so is the entry together with all boxes that
    /// it changes.
    pub(super) fn insert_logged(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        let _lock = self.lock.write();
        let (above, leaf) = self.choose_leaf(rect)?;
        let mut leaf = self.image(leaf)?;
        leaf.push(rect, payload);
        let mut change = self.change();
        change.images.push(leaf);
        self.adjust_boxes(&mut change, &above)?;
        self.commit(change)
    }

    /// The nodes above the leaf for an entry, from the root, and the leaf. All of them have room.
    fn choose_leaf(&self, rect: &Rect<D>) -> Result<(Vec<u64>, u64)> {
        let mut node = self.root()?;
        if self.is_full(&node) {
            self.split(None, node.offset)?;
            node = self.root()?;
        }
        let mut above = Vec::new();
        // After a split, only its halves are candidates, as in the FBR-tree.
        let mut halves: Option<[u64; 2]> = None;
        while node.level() > 0 {
            let is_eligible = |target: u64| halves.is_none_or(|halves| halves.contains(&target));
            let children =
                node.entries().filter(|(_, child)| is_eligible(*child)).map(|(bounds, child)| (child, bounds));
            let Some((child, _)) = choose::least_enlargement(children, rect) else {
                return Err(self.damaged(node.offset, "an inner node has no children"));
            };
            let child = self.child(node.level(), child)?;
            if self.is_full(&child) {
                halves = Some(self.split(Some(node.offset), child.offset)?);
                continue;
            }
            halves = None;
            above.push(node.offset);
            node = child;
        }
        Ok((above, node.offset))
    }

    fn is_full<V: terrane_pmem::View>(&self, node: &Node<D, V>) -> bool {
        node.count() >= self.layout.fan_out
    }

    /// Splits a full node, whose parent has room. Gives the two halves.
    fn split(&self, parent: Option<u64>, node: u64) -> Result<[u64; 2]> {
        let mut stays = self.image(node)?;
        let entries: Vec<(Rect<D>, u64)> = stays.node().entries().collect();
        let rects: Vec<Rect<D>> = entries.iter().map(|(rect, _)| *rect).collect();
        let is_second = self.split.divide(&rects, self.fill_min);
        let half = |wanted: bool| {
            entries.iter().zip(&is_second).filter(move |(_, is_second)| **is_second == wanted).map(|(entry, _)| *entry)
        };
        let level = stays.node().level();
        stays.clear();
        half(false).for_each(|(rect, target)| stays.push(&rect, target));
        let mut change = self.change();
        let sibling = self.acquire_node(&mut change, level, half(true))?;
        let halves = [(self.bounds(&stays)?, node), (self.bounds(&sibling)?, sibling.offset)];
        match parent {
            Some(parent) => {
                let mut parent = self.image(parent)?;
                let Some(slot) = parent.node().slot_of(node) else {
                    return Err(self.damaged(parent.offset, format!("it does not link its child at {node}")));
                };
                parent.set_rect(slot, &halves[0].0);
                parent.push(&halves[1].0, halves[1].1);
                change.images.push(parent);
            }
            None => change.root = self.acquire_node(&mut change, level + 1, halves.into_iter())?.offset,
        }
        change.images.push(stays);
        self.commit(change)?;
        Ok(halves.map(|(_, node)| node))
    }

    /// Makes the boxes of the node with the last image, and of those above it, minimal again, as
    /// long as something changes (AdjustTree of Guttman 1984).
    ///
    /// The boxes are computed from the nodes' contents, not from the new entry. The box of a leaf
    /// that was empty does not enclose entries, so it may shrink when one is added.
    pub(super) fn adjust_boxes(&self, change: &mut Change<'_, D, B>, above: &[u64]) -> Result<()> {
        for &node in above.iter().rev() {
            let Some(child) = change.images.last().map(Image::node) else { return Ok(()) };
            let parent = self.node(node)?;
            let Some(slot) = parent.slot_of(child.offset) else {
                return Err(self.damaged(node, format!("it does not link its child at {}", child.offset)));
            };
            // A leaf that had one entry left (L7) is empty after its deletion, and keeps its box.
            let changed = child.bounds().filter(|bounds| parent.rect(slot) != *bounds);
            let Some(bounds) = changed else { return Ok(()) };
            let mut image = self.image(node)?;
            image.set_rect(slot, &bounds);
            change.images.push(image);
        }
        Ok(())
    }
}
