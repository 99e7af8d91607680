//! Repair of nodes with too few entries. They take some entries of a sibling (redistribution) or
//! are merged with it, in place with a log (Figure 7) or as a new node (Figure 6).

use terrane_pmem::{Backend, Intent, Site};

use super::layout::Metadata;
use super::log::{Change, Kind, Role};
use super::node::Node;
use super::options::Rebalancing;
use super::tree::FbrTree;
use crate::blocks::tolerate_missing_space;
use crate::rtree::choose;
use crate::{Rect, Result};

const ENTRIES: Site = Site::new("fbr.merge.entries");
const BOUNDS: Site = Site::new("fbr.merge.bounds");
const COPY: Site = Site::new("fbr.merge.copy");
const COPY_ENTRY: Site = Site::new("fbr.merge.copy.entry");

/// A node, its metadata, and its slot in the parent. Its lock is held.
struct Child<'a, 't, const D: usize, B: Backend> {
    node: &'a Node<'t, D, B>,
    metadata: Metadata,
    slot: usize,
}

/// The one with fewer entries comes first.
type Siblings<'a, 't, const D: usize, B> = [&'a Child<'a, 't, D, B>; 2];

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Repairs a node with too few entries, together with its closest sibling. The locks of it and
    /// its parent are held. If there is no sibling, or no space, the node stays as it is, since a
    /// deletion must not need space.
    pub(super) fn repair_underflow<'t>(&'t self, parent: &Node<'t, D, B>, node: &Node<'t, D, B>) -> Result<()> {
        let metadata = self.locked_metadata(parent)?;
        let Some(own) = parent.slot_of(&metadata, node.offset) else {
            return Err(self.damaged(parent.offset, format!("it does not link its child at {}", node.offset)));
        };
        let siblings = metadata.slots().filter(|&slot| slot != own).map(|slot| (slot, parent.rect(slot)));
        let Some((slot, _)) = choose::least_enlargement(siblings, &parent.rect(own)) else {
            // Another deletion has merged all others, and is about to repair the parent.
            self.note_underfull();
            return Ok(());
        };
        let sibling = self.child(parent.level(), parent.target(slot))?;
        if sibling.offset == node.offset {
            return Err(self.damaged(parent.link(slot), format!("it links its child at {} twice", node.offset)));
        }
        let _lock = self.lock(&sibling)?;
        self.check_settled(&sibling)?;
        let few = Child { node, metadata: self.locked_metadata(node)?, slot: own };
        let more = Child { node: &sibling, metadata: self.locked_metadata(&sibling)?, slot };
        if few.metadata.count() + more.metadata.count() >= 2 * self.fill_min {
            return self.redistribute(parent, [&few, &more]);
        }
        let mut released = self.pool.intent();
        if let Err(error) = released.reserve() {
            self.note_underfull();
            return tolerate_missing_space(error);
        }
        let copies = self.rebalancing == Rebalancing::CopyOnWrite && metadata.count() < self.layout.fan_out;
        match copies {
            true => self.merge_by_copy(parent, metadata, [&few, &more], released),
            false => self.merge_in_place(parent, [&few, &more], released),
        }
    }

    /// Moves entries until both nodes have half of them, starting with those that enlarge the node
    /// least.
    fn redistribute(&self, parent: &Node<'_, D, B>, [few, more]: Siblings<'_, '_, D, B>) -> Result<()> {
        let bounds = parent.rect(few.slot);
        let growth = |slot: usize| choose::growth(bounds.area(), bounds.union(&more.node.rect(slot)).area());
        let mut nearest: Vec<(f64, usize)> = more.metadata.slots().map(|slot| (growth(slot), slot)).collect();
        nearest.sort_by(|left, right| left.0.total_cmp(&right.0));
        let moved = &nearest[..more.metadata.count().saturating_sub(few.metadata.count()) / 2];
        let mut keeps = more.metadata;
        moved.iter().for_each(|&(_, slot)| keeps.set(slot, false));
        let takes = self.copy_entries(parent, few, more.node, moved.iter().map(|&(_, slot)| slot));
        self.change(parent, Kind::Redistribute, [few, more], [takes, keeps], self.pool.intent())
    }

    fn merge_in_place(
        &self,
        parent: &Node<'_, D, B>,
        [few, more]: Siblings<'_, '_, D, B>,
        released: Intent<'_, B>,
    ) -> Result<()> {
        let takes = self.copy_entries(parent, few, more.node, more.metadata.slots());
        let empty = Metadata::empty(more.metadata.is_leaf(), self.layout.words);
        self.change(parent, Kind::Merge, [few, more], [takes, empty], released)
    }

    /// Copies entries of the sibling to free places of the node, and enlarges the node's box to
    /// contain them. Gives the bitmap that includes them. A crash before that counts leaves free
    /// entries and a larger box.
    fn copy_entries(
        &self,
        parent: &Node<'_, D, B>,
        &Child { node, mut metadata, slot: own }: &Child<'_, '_, D, B>,
        sibling: &Node<'_, D, B>,
        moved: impl Iterator<Item = usize>,
    ) -> Metadata {
        let free: Vec<usize> = metadata.free(self.layout.fan_out).collect();
        let mut bounds = parent.rect(own);
        for (from, to) in moved.zip(free) {
            let rect = sibling.rect(from);
            self.write_entry(node, to, &rect, sibling.target(from), self.uncounted_mark(node, to));
            self.flush_entry(node, to, ENTRIES);
            metadata.set(to, true);
            bounds = bounds.union(&rect);
        }
        let has_grown = self.store_rect(parent, own, &bounds);
        // If it has not grown, an insertion may have enlarged it and not fenced yet.
        if has_grown || self.is_marked(parent, own) {
            self.flush_entry(parent, own, BOUNDS);
        }
        if has_grown {
            // Before the commitment. A reader may have skipped the smaller box, and then not find
            // the moved entries at the sibling. It reads the parent again.
            self.bump(parent);
        }
        metadata
    }

    /// Exchanges the bitmaps of two siblings at once.
    fn change(
        &self,
        parent: &Node<'_, D, B>,
        kind: Kind,
        [first, second]: Siblings<'_, '_, D, B>,
        bitmaps: [Metadata; 2],
        released: Intent<'_, B>,
    ) -> Result<()> {
        let entry = self.take_log_entry();
        let change = Change { kind, nodes: [parent.offset, first.node.offset, second.node.offset, 0, 0], bitmaps };
        self.make(entry, &change, self.pool.intent(), released, ENTRIES)
    }

    /// Merges into a new node; in place, if there is no space for a copy.
    fn merge_by_copy(
        &self,
        parent: &Node<'_, D, B>,
        mut metadata: Metadata,
        [first, second]: Siblings<'_, '_, D, B>,
        released: Intent<'_, B>,
    ) -> Result<()> {
        let Some(slot) = metadata.first_free(self.layout.fan_out) else {
            return Err(self.damaged(parent.offset, "it has no room for a merged child"));
        };
        let entry = self.take_log_entry();
        let mut acquired = self.pool.intent();
        let merged = match acquired.acquire(self.layout.node_length(), entry.link(Role::NewFirst)) {
            Ok(merged) => merged,
            Err(error) => {
                tolerate_missing_space(error)?;
                drop((acquired, entry));
                return self.merge_in_place(parent, [first, second], released);
            }
        };
        let merged = self.node(merged)?;
        let sources = [(first.node, &first.metadata), (second.node, &second.metadata)];
        let bounds: Rect<D> = self.fill(&merged, first.node.level(), &sources, COPY);
        self.write_entry(parent, slot, &bounds, merged.offset, 0);
        self.flush_entry(parent, slot, COPY_ENTRY);
        for (slot, is_valid) in [(slot, true), (first.slot, false), (second.slot, false)] {
            metadata.set(slot, is_valid);
        }
        let nodes = [parent.offset, first.node.offset, second.node.offset, merged.offset, 0];
        let change = Change { kind: Kind::CopyMerge, nodes, bitmaps: [metadata; 2] };
        self.make(entry, &change, acquired, released, COPY)
    }
}
