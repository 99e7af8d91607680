//! The steps after a commitment in the log, both in the operation itself and after a crash; and the
//! undoing of uncommitted changes.

use smallvec::SmallVec;
use terrane_pmem::{Backend, Intent, Site, WORD_LENGTH};

use super::entry::Entry;
use super::layout::Metadata;
use super::log::{Change, ENTRIES, Kind, Progress, Role};
use super::node::Node;
use super::tree::FbrTree;
use crate::Result;

const NODES: Site = Site::new("fbr.complete.nodes");
const ROOT: Site = Site::new("fbr.complete.root");
const UNLINK: Site = Site::new("fbr.complete.unlink");
const REDISTRIBUTE: Site = Site::new("fbr.complete.redistribute");
const LINK_ENTRY: Site = Site::new("fbr.complete.link.entry");
const LINK: Site = Site::new("fbr.complete.link");

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Completes committed changes, and frees the blocks of uncommitted entries.
    pub(super) fn recover(&self) -> Result<()> {
        for index in 0..ENTRIES {
            let Some((change, engagement)) = self.read_change(index)? else { continue };
            let entry = self.log_entry_for_recovery(index);
            match engagement.progress {
                Progress::Announced => self.undo(&entry, &change)?,
                Progress::Committed => {
                    self.complete(&change)?;
                    self.finish(&entry, &change, self.pool.intent())?;
                }
                Progress::Done => self.finish(&entry, &change, self.pool.intent())?,
            }
        }
        Ok(())
    }

    /// Frees the blocks of an entry that was not committed.
    fn undo(&self, entry: &Entry<'_, D, B>, change: &Change) -> Result<()> {
        let mut released = self.pool.intent();
        for &role in change.kind.acquired() {
            if change.node(role) != 0 {
                released.release(change.node(role), entry.link(role))?;
            }
        }
        entry.withdraw();
        // Its fence comes before anybody gets the blocks.
        released.finish();
        Ok(())
    }

    /// Makes a change by a log entry. Its nodes are written and flushed. Ends the intent that has
    /// acquired the new nodes. A caller that unlinks nodes has reserved the other intent.
    ///
    /// Everything that can fail comes before the commitment. If something fails after it, the pool
    /// is damaged. Then the entry stays, readers use it, and writers refuse all nodes until the
    /// next opening.
    pub(super) fn make(
        &self,
        entry: Entry<'_, D, B>,
        change: &Change,
        acquired: Intent<'_, B>,
        released: Intent<'_, B>,
        site: Site,
    ) -> Result<()> {
        let is_new = |role: &&Role| change.node(**role) != 0;
        let new = change.kind.acquired().iter().filter(is_new).map(|&role| self.lock_new(change.node(role)));
        // Others reach the new nodes by the commitment, even before it is durable, and by the half
        // whose box is not read yet.
        let _locks = new.collect::<Result<SmallVec<[_; 2]>>>()?;
        entry.prepare(change);
        self.backend().fence(site);
        entry.commit(change)?;
        let outcome = self.complete(change).and_then(|()| {
            acquired.finish();
            self.finish(&entry, change, released)
        });
        if outcome.is_err() {
            entry.keep();
        }
        outcome
    }

    /// Applies a committed change to the nodes. Each step may have been done already. When it
    /// returns, the flushed words are durable, or will be with the announcement of released blocks,
    /// which comes before the entry is cleared.
    fn complete(&self, change: &Change) -> Result<()> {
        for &role in change.kind.changed() {
            let node = self.node(change.node(role))?;
            if let Some(bitmap) = change.bitmap_of(node.offset) {
                self.apply_bitmap(&node, bitmap)?;
                self.flush_header(&node, NODES);
            }
        }
        match change.kind {
            Kind::Split if change.node(Role::Parent) == 0 => {
                // The fence of the root word covers the nodes. While the entry is committed, it
                // holds their bitmaps.
                self.store_root(change.node(Role::NewFirst), ROOT);
            }
            Kind::Split => {
                let parent = self.node(change.node(Role::Parent))?;
                self.link_sibling(&parent, change)?;
                // Until here the sibling's entries are found through the first half's box.
                self.shrink(&parent, change.node(Role::First))?;
                // For readers that do not know the sibling, even if no box has shrunk.
                self.bump(&parent);
            }
            Kind::Merge => {
                let parent = self.node(change.node(Role::Parent))?;
                let mut metadata = self.locked_metadata(&parent)?;
                if let Some(slot) = parent.slot_of(&metadata, change.node(Role::Second)) {
                    metadata.set(slot, false);
                    self.store_metadata(&parent, &metadata);
                    self.flush_header(&parent, UNLINK);
                }
                self.bump(&parent);
            }
            Kind::Redistribute => {
                let parent = self.node(change.node(Role::Parent))?;
                self.backend().fence(REDISTRIBUTE);
                self.shrink(&parent, change.node(Role::Second))?;
                self.bump(&parent);
            }
            // The parent is one of the changed nodes. A reader may have words of its bitmap from
            // before and after the change, and find the log entry cleared. No number above it
            // tells.
            Kind::CopySplit | Kind::CopyMerge => self.bump(&self.node(change.node(Role::Parent))?),
        }
        Ok(())
    }

    /// Links the new sibling in the parent. Its entry is durable before its bit (F1).
    fn link_sibling(&self, parent: &Node<'_, D, B>, change: &Change) -> Result<()> {
        let mut metadata = self.locked_metadata(parent)?;
        let sibling = self.node(change.node(Role::Second))?;
        if parent.slot_of(&metadata, sibling.offset).is_some() {
            // Only recovery finds this. The node was durable before the bit was set.
            return Ok(());
        }
        let Some(slot) = metadata.first_free(self.layout.fan_out) else {
            return Err(self.damaged(parent.offset, "it has no room for the second half of its child"));
        };
        let bounds = self.bounds_of(&sibling, &self.locked_metadata(&sibling)?)?;
        self.write_entry(parent, slot, &bounds, sibling.offset, 0);
        self.flush_entry(parent, slot, LINK_ENTRY);
        self.backend().fence(LINK_ENTRY);
        metadata.set(slot, true);
        self.store_metadata(parent, &metadata);
        let offset = parent.word(self.layout.bitmap_word(Metadata::place(slot).0));
        self.backend().persist(offset..offset + WORD_LENGTH, LINK);
        Ok(())
    }

    /// Shrinks a child's box to its contents, in place, each coordinate inwards or not at all.
    /// Gives whether it was larger.
    ///
    /// This is not flushed: a larger box is right too (F2), and a writer that enlarges it later
    /// flushes its line. So the box may only shrink here. Otherwise the next writer would rely on a
    /// box that is not durable in any state (F6). After a power loss that only one of the two
    /// survived, boxes of the child's entries can reach beyond the child's own. The entries inside
    /// do not.
    pub(super) fn shrink(&self, parent: &Node<'_, D, B>, child: u64) -> Result<bool> {
        let Some(slot) = parent.slot_of(&self.locked_metadata(parent)?, child) else {
            return Err(self.damaged(parent.offset, format!("it does not link its child at {child}")));
        };
        let child = self.node(child)?;
        let bounds = child.bounds(&self.locked_metadata(&child)?);
        // Only empty boxes can have nothing in common with that of the child.
        let before = parent.rect(slot);
        let common = bounds.and_then(|bounds| before.intersection(&bounds)).filter(|common| *common != before);
        let Some(common) = common else { return Ok(false) };
        // Before the store: for readers that do not know where moved entries went, and for
        // look-ups that search twice for an absent entry.
        self.bump(parent);
        Ok(self.store_rect(parent, slot, &common))
    }

    /// Ends a complete change: frees the unlinked nodes, once no reader can be in them, and the log
    /// entry.
    fn finish(&self, entry: &Entry<'_, D, B>, change: &Change, mut released: Intent<'_, B>) -> Result<()> {
        for &role in change.kind.released() {
            if change.node(role) != 0 {
                released.release(change.node(role), entry.link(role))?;
            }
        }
        // The entry is cleared before the nodes' ties to it, for all of them at once. Otherwise a
        // reader that meets one node with the tie and another one without would read both again
        // until both are without.
        entry.clear();
        for role in Role::ALL.into_iter().filter(|&role| change.node(role) != 0) {
            let node = self.node(change.node(role))?;
            if change.kind.released().contains(&role) {
                self.mark_unlinked(&node);
            } else if change.kind.changed().contains(&role) {
                self.bump(&node);
                self.disengage(&node);
            }
        }
        self.retire(released);
        Ok(())
    }

    /// Frees unlinked nodes when no present reader can be in them.
    pub(super) fn retire(&self, released: Intent<'_, B>) {
        released.retire(&self.pool.pin());
    }
}
