//! Splits of nodes, in place with a log (Algorithm 2, Figure 5) and by new nodes (Figure 4).

use smallvec::SmallVec;
use terrane_pmem::{Backend, Site, WORD_LENGTH};

use super::layout::Metadata;
use super::log::{Change, Kind, Role};
use super::node::{Node, write_header};
use super::options::Rebalancing;
use super::tags;
use super::tree::FbrTree;
use crate::{Rect, Result};

const SIBLING: Site = Site::new("fbr.split.sibling");
const NEW_ROOT: Site = Site::new("fbr.split.new-root");
const COPY: Site = Site::new("fbr.split.copy");
const COPY_ENTRY: Site = Site::new("fbr.split.copy.entry");
const ROOT_COPY: Site = Site::new("fbr.split.root.copy");
const ROOT_NODE: Site = Site::new("fbr.split.root.node");
const ROOT_LINK: Site = Site::new("fbr.split.root.link");

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Splits a node. The locks of it and of its parent, or of the root word, are held. The parent
    /// has free entries. Gives the two halves.
    pub(super) fn split(&self, parent: Option<&Node<'_, D, B>>, node: &Node<'_, D, B>) -> Result<[u64; 2]> {
        match (self.rebalancing, parent) {
            (Rebalancing::CopyOnWrite, Some(parent))
                if self.locked_metadata(parent)?.count() + 2 <= self.layout.fan_out =>
            {
                self.split_by_copies(parent, node)
            }
            (Rebalancing::CopyOnWrite, None) => self.split_root_by_copies(node),
            _ => self.split_in_place(parent, node),
        }
    }

    /// The entries that stay, and those that move.
    fn divide(&self, node: &Node<'_, D, B>, metadata: &Metadata) -> [Metadata; 2] {
        let slots: Vec<usize> = metadata.slots().collect();
        let rects: Vec<Rect<D>> = slots.iter().map(|&slot| node.rect(slot)).collect();
        let is_second = self.split.divide(&rects, self.fill_min);
        let mut halves = [Metadata::empty(metadata.is_leaf(), self.layout.words); 2];
        for (&slot, is_second) in slots.iter().zip(is_second) {
            halves[usize::from(is_second)].set(slot, true);
        }
        halves
    }

    /// After a crash before the commitment nothing has changed; an intent, then the log, names the
    /// new blocks. After the commitment, recovery completes the split.
    fn split_in_place(&self, parent: Option<&Node<'_, D, B>>, node: &Node<'_, D, B>) -> Result<[u64; 2]> {
        let [stays, goes] = self.divide(node, &self.locked_metadata(node)?);
        let entry = self.take_log_entry();
        let mut acquired = self.pool.intent();
        let length = self.layout.node_length();
        let sibling = self.node(acquired.acquire(length, entry.link(Role::Second))?)?;
        let sibling_bounds = self.fill(&sibling, node.level(), &[(node, &goes)], SIBLING);
        let mut new_root = 0;
        if parent.is_none() {
            let root = self.node(acquired.acquire(length, entry.link(Role::NewFirst))?)?;
            let children = [(self.bounds_of(node, &stays)?, node.offset), (sibling_bounds, sibling.offset)];
            self.fill_inner(&root, node.level() + 1, &children, NEW_ROOT);
            new_root = root.offset;
        }
        let parent_offset = parent.map_or(0, |parent| parent.offset);
        let change = Change {
            kind: Kind::Split,
            nodes: [parent_offset, node.offset, sibling.offset, new_root, 0],
            bitmaps: [stays, stays],
        };
        self.make(entry, &change, acquired, self.pool.intent(), SIBLING)?;
        Ok([node.offset, sibling.offset])
    }

    /// Exchanges the bit of the node for those of copies of its two halves.
    fn split_by_copies(&self, parent: &Node<'_, D, B>, node: &Node<'_, D, B>) -> Result<[u64; 2]> {
        let mut bitmap = self.locked_metadata(parent)?;
        let free: Vec<usize> = bitmap.free(self.layout.fan_out).take(2).collect();
        let (Some(old), &[first, second]) = (parent.slot_of(&bitmap, node.offset), &free[..]) else {
            return Err(self.damaged(parent.offset, "it does not link its child, or has no room for two"));
        };
        let halves = self.divide(node, &self.locked_metadata(node)?);
        let entry = self.take_log_entry();
        let mut acquired = self.pool.intent();
        let mut nodes = [parent.offset, node.offset, 0, 0, 0];
        let roles = [Role::NewFirst, Role::NewSecond];
        let mut released = self.pool.intent();
        released.reserve()?;
        let length = self.layout.node_length();
        let copies = [acquired.acquire(length, entry.link(roles[0]))?, acquired.acquire(length, entry.link(roles[1]))?];
        for (((role, half), slot), copy) in roles.into_iter().zip(&halves).zip([first, second]).zip(copies) {
            let copy = self.node(copy)?;
            let bounds = self.fill(&copy, node.level(), &[(node, half)], COPY);
            self.write_entry(parent, slot, &bounds, copy.offset, 0);
            self.flush_entry(parent, slot, COPY_ENTRY);
            bitmap.set(slot, true);
            nodes[role as usize] = copy.offset;
        }
        bitmap.set(old, false);
        let change = Change { kind: Kind::CopySplit, nodes, bitmaps: [bitmap; 2] };
        self.make(entry, &change, acquired, released, COPY)?;
        Ok([change.node(Role::NewFirst), change.node(Role::NewSecond)])
    }

    /// Exchanges the root word, which needs no log: it links the new root, which links the copies.
    fn split_root_by_copies(&self, node: &Node<'_, D, B>) -> Result<[u64; 2]> {
        let halves = self.divide(node, &self.locked_metadata(node)?);
        let mut acquired = self.pool.intent();
        let length = self.layout.node_length();
        let root = self.node(acquired.acquire(length, self.root_word())?)?;
        let mut children = Vec::with_capacity(halves.len());
        for (slot, half) in halves.iter().enumerate() {
            let copy = self.node(acquired.acquire(length, root.link(slot))?)?;
            children.push((self.fill(&copy, node.level(), &[(node, half)], ROOT_COPY), copy.offset));
        }
        self.fill_inner(&root, node.level() + 1, &children, ROOT_NODE);
        // Others reach them by the root word, even before it is durable.
        let new = [root.offset, children[0].1, children[1].1];
        let _locks = new.into_iter().map(|new| self.lock_new(new)).collect::<Result<SmallVec<[_; 3]>>>()?;
        let mut released = self.pool.intent();
        // The fence of this announcement makes the new nodes durable, too.
        released.release(node.offset, self.root_word())?;
        self.store_root(root.offset, ROOT_LINK);
        acquired.finish();
        self.mark_unlinked(node);
        self.retire(released);
        Ok([children[0].1, children[1].1])
    }

    pub(super) fn store_root(&self, root: u64, site: Site) {
        self.backend().store(self.root_word(), root);
        self.backend().persist(self.root_word()..self.root_word() + WORD_LENGTH, site);
    }

    /// Writes a node with copies of entries, and flushes it. Gives the box around them.
    pub(super) fn fill(
        &self,
        node: &Node<'_, D, B>,
        level: u64,
        sources: &[(&Node<'_, D, B>, &Metadata)],
        site: Site,
    ) -> Rect<D> {
        let entries = sources
            .iter()
            .flat_map(|(source, metadata)| metadata.slots().map(|slot| (source.rect(slot), source.target(slot))));
        self.fill_with(node, level, entries, site)
    }

    fn fill_inner(&self, node: &Node<'_, D, B>, level: u64, children: &[(Rect<D>, u64)], site: Site) {
        self.fill_with(node, level, children.iter().copied(), site);
    }

    fn fill_with(
        &self,
        node: &Node<'_, D, B>,
        level: u64,
        entries: impl Iterator<Item = (Rect<D>, u64)>,
        site: Site,
    ) -> Rect<D> {
        let mut metadata = Metadata::empty(level == 0, self.layout.words);
        let mut bounds: Option<Rect<D>> = None;
        let incarnation = self.has_tags(level).then(|| self.new_mark());
        let mark = incarnation.map_or(0, tags::first_tag);
        for (slot, (rect, target)) in entries.enumerate() {
            self.write_entry(node, slot, &rect, target, mark);
            metadata.set(slot, true);
            bounds = Some(bounds.map_or(rect, |bounds| bounds.union(&rect)));
        }
        write_header(self.backend(), &self.layout, node.offset, level, &metadata);
        if let Some(incarnation) = incarnation {
            tags::write_header(self.backend(), &self.layout, node.offset, incarnation, self.session);
        }
        let end = node.word(self.layout.entry(metadata.count()));
        self.backend().flush(node.offset..end, site);
        bounds.unwrap_or_else(|| Rect::raw([0.0; D], [0.0; D]))
    }

    /// The box around some of a node's entries.
    pub(super) fn bounds_of(&self, node: &Node<'_, D, B>, metadata: &Metadata) -> Result<Rect<D>> {
        node.bounds(metadata).ok_or_else(|| self.damaged(node.offset, "it has no entries, although it must"))
    }
}
