//! What follows a commitment in the log, in the operation itself and after a crash, and what undoes
//! the rest.

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
    /// Completes what was committed, and frees what is owned by entries that were not.
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

    /// Makes a change by way of a log entry, of nodes that are written and flushed; ends the intent
    /// that has acquired the new ones. What unlinks nodes has reserved the other intent.
    ///
    /// What can fail does so before the commitment. If something does after it, the pool is
    /// damaged: the entry stays, so that readers go on by it, and writers refuse all nodes until
    /// the next opening.
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
        // Others come to them by the commitment, also before it is durable, and by the half of
        // which the box is still to be told.
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

    /// Brings a committed change into the nodes; each step may have been done already. When it
    /// returns, what was flushed of them is durable, or will be with the announcement of what the
    /// change releases, which comes before the entry goes.
    fn complete(&self, change: &Change) -> Result<()> {
        for &role in change.kind.changed() {
            let node = self.node(change.node(role))?;
            if let Some(bitmap) = change.bitmap_of(node.offset) {
                self.bring_in(&node, bitmap)?;
                self.flush_header(&node, NODES);
            }
        }
        match change.kind {
            Kind::Split if change.node(Role::Parent) == 0 => {
                // The fence of the root word is that of the nodes: while the entry is committed, it
                // says what they hold.
                self.store_root(change.node(Role::NewFirst), ROOT);
            }
            Kind::Split => {
                let parent = self.node(change.node(Role::Parent))?;
                self.link_sibling(&parent, change)?;
                // Until here the sibling's entries are found by way of the first half's box.
                self.shrink(&parent, change.node(Role::First))?;
                // For who does not know the sibling, also where no box got smaller.
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
            // One of the nodes that have changed. For who has read words of its bitmap from before
            // and after that, and finds the entry gone: no number above it tells.
            Kind::CopySplit | Kind::CopyMerge => self.bump(&self.node(change.node(Role::Parent))?),
        }
        Ok(())
    }

    /// Links the new sibling in the parent. Its entry is durable before its bit (F1).
    fn link_sibling(&self, parent: &Node<'_, D, B>, change: &Change) -> Result<()> {
        let mut metadata = self.locked_metadata(parent)?;
        let sibling = self.node(change.node(Role::Second))?;
        if parent.slot_of(&metadata, sibling.offset).is_some() {
            // Found by recovery alone; and the node was durable before the bit was set.
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

    /// Makes a child's box as small as what the child holds, in place, each coordinate inwards or
    /// not at all. Whether it was larger.
    ///
    /// This is not flushed: a larger box is right too (F2), and whoever enlarges it later flushes
    /// its line. So it may only shrink, or the next writer would rely on a box that is durable
    /// nowhere (F6). Boxes of what the child holds can reach beyond its own, after a power loss
    /// that one of them survived; what lies in them does not.
    pub(super) fn shrink(&self, parent: &Node<'_, D, B>, child: u64) -> Result<bool> {
        let Some(slot) = parent.slot_of(&self.locked_metadata(parent)?, child) else {
            return Err(self.damaged(parent.offset, format!("it does not link its child at {child}")));
        };
        let child = self.node(child)?;
        let bounds = child.bounds(&self.locked_metadata(&child)?);
        // Only boxes around nothing can have nothing in common with that of the child.
        let before = parent.rect(slot);
        let common = bounds.and_then(|bounds| before.intersection(&bounds)).filter(|common| *common != before);
        let Some(common) = common else { return Ok(false) };
        // Before it: for who does not know what has moved out of the box, and for who looks twice
        // for what is not there.
        self.bump(parent);
        Ok(self.store_rect(parent, slot, &common))
    }

    /// Ends a change that is complete: frees what it has unlinked, once no reader can be there, and
    /// the log entry.
    fn finish(&self, entry: &Entry<'_, D, B>, change: &Change, mut released: Intent<'_, B>) -> Result<()> {
        for &role in change.kind.released() {
            if change.node(role) != 0 {
                released.release(change.node(role), entry.link(role))?;
            }
        }
        // The entry goes before the nodes' ties to it, at once for all of them: readers that meet
        // one node with it and another one without would read both again until both are without.
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

    /// Frees unlinked nodes when no reader that is on its way now can be in them.
    pub(super) fn retire(&self, released: Intent<'_, B>) {
        released.retire(&self.pool.pin());
    }
}
