//! What becomes of nodes with too few entries: they take some of a sibling's (redistribution), or become one
//! with it, in place with a log (Figure 7) or as a new node (Figure 6).

use terrane_pmem::{Backend, Site};

use super::layout::Metadata;
use super::log::{Change, Kind, Role};
use super::node::Node;
use super::{FbrTree, Rebalancing};
use crate::rtree::choose;
use crate::{Rect, Result};

const ENTRIES: Site = Site::new("fbr.merge.entries");

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Mends a node with fewer entries than it should have, by way of the sibling that it lies closest to. The locks
    /// of it and its parent are held.
    pub(super) fn mend_underflow<'t>(&'t self, parent: &Node<'t, D, B>, node: &Node<'t, D, B>) -> Result<()> {
        let metadata = self.locked_metadata(parent)?;
        let Some(own) = parent.slot_of(&metadata, node.offset) else {
            return Err(self.damaged(parent.offset, format!("it does not link its child at {}", node.offset)));
        };
        let siblings = metadata.slots().filter(|&slot| slot != own).map(|slot| (slot, parent.rect(slot)));
        let Some((slot, _)) = choose::least_enlargement(siblings, &parent.rect(own)) else {
            return Ok(());
        };
        let sibling = self.child(parent.level(), parent.target(slot))?;
        let _lock = self.locks.of(sibling.offset).write();
        self.check_settled(&sibling)?;
        let (few, more) = (self.locked_metadata(node)?, self.locked_metadata(&sibling)?);
        if few.count() + more.count() >= 2 * self.layout.fill_min() {
            return self.redistribute(parent, own, (node, few), (&sibling, more));
        }
        match self.rebalancing {
            // A deletion needs no space: where there is none for a copy, the nodes are merged in place.
            Rebalancing::CopyOnWrite
                if metadata.count() < self.layout.fan_out
                    && self.merge_by_copy(parent, metadata, [(node, few, own), (&sibling, more, slot)])? =>
            {
                Ok(())
            }
            Rebalancing::CopyOnWrite | Rebalancing::InPlace => {
                self.merge_in_place(parent, own, (node, few), (&sibling, more))
            }
        }
    }

    /// Moves entries until both nodes have half of them, those first that enlarge the node least.
    fn redistribute(
        &self,
        parent: &Node<'_, D, B>,
        own: usize,
        (node, few): (&Node<'_, D, B>, Metadata),
        (sibling, more): (&Node<'_, D, B>, Metadata),
    ) -> Result<()> {
        let bounds = parent.rect(own);
        let growth = |slot: usize| choose::growth(bounds.area(), bounds.union(&sibling.rect(slot)).area());
        let mut nearest: Vec<(f64, usize)> = more.slots().map(|slot| (growth(slot), slot)).collect();
        nearest.sort_by(|left, right| left.0.total_cmp(&right.0));
        let moved = &nearest[..more.count().saturating_sub(few.count()) / 2];
        let mut keeps = more;
        moved.iter().for_each(|&(_, slot)| keeps.set(slot, false));
        let moved = moved.iter().map(|&(_, slot)| slot);
        let takes = self.take_in(parent, own, (node, few), sibling, moved);
        self.change(parent, Kind::Redistribute, [node.offset, sibling.offset], [takes, keeps])
    }

    fn merge_in_place(
        &self,
        parent: &Node<'_, D, B>,
        own: usize,
        (node, few): (&Node<'_, D, B>, Metadata),
        (sibling, more): (&Node<'_, D, B>, Metadata),
    ) -> Result<()> {
        let takes = self.take_in(parent, own, (node, few), sibling, more.slots());
        let empty = Metadata::empty(more.is_leaf(), self.layout.words);
        self.change(parent, Kind::Merge, [node.offset, sibling.offset], [takes, empty])
    }

    /// Copies entries of the sibling to where the node has none, and makes the node's box contain them; the bitmap
    /// with them. A crash before that counts leaves free entries and a larger box.
    fn take_in(
        &self,
        parent: &Node<'_, D, B>,
        own: usize,
        (node, mut metadata): (&Node<'_, D, B>, Metadata),
        sibling: &Node<'_, D, B>,
        moved: impl Iterator<Item = usize>,
    ) -> Metadata {
        let free: Vec<usize> = metadata.free(self.layout.fan_out).collect();
        let mut bounds = parent.rect(own);
        for (from, to) in moved.zip(free) {
            let rect = sibling.rect(from);
            self.write_entry(node, to, &rect, sibling.target(from));
            self.flush_entry(node, to, ENTRIES);
            metadata.set(to, true);
            bounds = bounds.union(&rect);
        }
        metadata.set_dirty(false);
        if self.store_rect(parent, own, &bounds) {
            self.flush_entry(parent, own, ENTRIES);
        }
        metadata
    }

    /// Exchanges the bitmaps of two siblings at once.
    fn change(&self, parent: &Node<'_, D, B>, kind: Kind, siblings: [u64; 2], bitmaps: [Metadata; 2]) -> Result<()> {
        let entry = self.take_log_entry();
        let change = Change { kind, nodes: [parent.offset, siblings[0], siblings[1], 0, 0], bitmaps };
        self.make(entry, &change, self.pool.intent(), ENTRIES)
    }

    /// Whether there was space for a copy.
    fn merge_by_copy(
        &self,
        parent: &Node<'_, D, B>,
        mut metadata: Metadata,
        [first, second]: [(&Node<'_, D, B>, Metadata, usize); 2],
    ) -> Result<bool> {
        let Some(slot) = metadata.first_free(self.layout.fan_out) else {
            return Err(self.damaged(parent.offset, "it has no room for a merged child"));
        };
        let entry = self.take_log_entry();
        let mut acquired = self.pool.intent();
        let Ok(merged) = acquired.acquire(self.layout.node_length(), entry.link(Role::NewFirst)) else {
            return Ok(false);
        };
        let merged = self.node(merged)?;
        let bounds: Rect<D> =
            self.fill(&merged, first.0.level(), &[(first.0, &first.1), (second.0, &second.1)], ENTRIES);
        self.write_entry(parent, slot, &bounds, merged.offset);
        self.flush_entry(parent, slot, ENTRIES);
        for (slot, is_valid) in [(slot, true), (first.2, false), (second.2, false)] {
            metadata.set(slot, is_valid);
        }
        metadata.set_dirty(false);
        let nodes = [parent.offset, first.0.offset, second.0.offset, merged.offset, 0];
        let change = Change { kind: Kind::CopyMerge, nodes, bitmaps: [metadata; 2] };
        self.make(entry, &change, acquired, ENTRIES)?;
        Ok(true)
    }
}
