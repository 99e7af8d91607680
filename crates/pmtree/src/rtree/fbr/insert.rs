//! Insertion (Algorithm 1): boxes grow on the way down, and the entry counts when its bit does.

use smallvec::SmallVec;
use terrane_pmem::{Backend, Site, WORD_LENGTH};
use terrane_storage::sync::RwLockWriteGuard;

use super::layout::Metadata;
use super::node::Node;
use super::options::Rebalancing;
use super::tree::FbrTree;
use crate::blocks;
use crate::rtree::choose;
use crate::{Rect, Result};

const ENLARGE: Site = Site::new("fbr.insert.enlarge");
const ENTRY: Site = Site::new("fbr.insert.entry");
const FAILED: Site = Site::new("fbr.insert.failed");
const METADATA: Site = Site::new("fbr.insert.metadata");

/// Entries whose boxes were enlarged and may not be durable before this operation's next fence.
///
/// Their marks tell other writers, which flush such a line before they rely on it. The operation
/// that enlarged it clears the mark after the fence, unless another one has enlarged it meanwhile
/// (F6). An operation that fails fences only for that.
#[derive(Debug)]
struct Enlargements<'t, B: Backend> {
    backend: &'t B,
    mark: u64,
    /// Whether lines of boxes were flushed.
    are_flushed: bool,
    /// Whether a fence came after that.
    are_durable: bool,
    /// Offsets of the marks.
    marked: SmallVec<[u64; 8]>,
}

impl<B: Backend> Drop for Enlargements<'_, B> {
    fn drop(&mut self) {
        if !self.are_durable && !self.marked.is_empty() {
            self.backend.fence(FAILED);
        }
        for &offset in &self.marked {
            let _ = self.backend.compare_exchange(offset, self.mark, 0);
        }
    }
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Inserts a box with a payload. When it returns, the entry is durable. If it fails, the entry
    /// is not in the tree.
    ///
    /// Durable after each step (F1, F2): boxes on the path may be larger than needed; the entry is
    /// written, and free; the bit is set. Without a split this takes two flushes, one more for each
    /// box that grows, and two fences. If entries validate themselves, the entry counts with its
    /// last word: one flush and one fence. If boxes grow then, each takes one flush, and all
    /// together one fence.
    ///
    /// If there is no space, the insertion waits for retired blocks that only short operations
    /// keep. It also repairs nodes that deletions have left with too few entries for lack of space.
    pub fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        match self.try_insert(rect, payload) {
            Err(error) if blocks::is_full(&error) => self.retry_with_space(|| self.try_insert(rect, payload)),
            outcome => outcome,
        }
    }

    fn try_insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        let _pinned = self.pool.pin();
        let (backend, mark) = (self.backend(), self.new_mark());
        let mut enlargements =
            Enlargements { backend, mark, are_flushed: false, are_durable: false, marked: SmallVec::new() };
        let (mut node, mut lock) = self.lock_root()?;
        let mut level = node.level();
        // After a split, only its halves are candidates. Another child may be full, and by now the
        // node too.
        let mut halves: Option<[u64; 2]> = None;
        while level > 0 {
            let metadata = self.locked_metadata(&node)?;
            let is_eligible = |&slot: &usize| halves.is_none_or(|halves| halves.contains(&node.target(slot)));
            let children = metadata.slots().filter(is_eligible).map(|slot| (slot, node.rect(slot)));
            let Some((slot, bounds)) = choose::least_enlargement(children, rect) else {
                return Err(self.damaged(node.offset, "an inner node has no children"));
            };
            let child = self.child(level, node.target(slot))?;
            let child_lock = self.lock(&child)?;
            if self.is_full(&child)? {
                halves = Some(self.split(Some(&node), &child)?);
                continue;
            }
            halves = None;
            self.enlarge(&node, slot, &bounds, rect, &mut enlargements);
            lock = child_lock;
            node = child;
            level -= 1;
        }
        self.insert_into_leaf(&node, rect, payload, enlargements.are_flushed)?;
        enlargements.are_durable = true;
        drop(lock);
        Ok(())
    }

    /// The root, locked, with room for an addition below it.
    fn lock_root(&self) -> Result<(Node<'_, D, B>, RwLockWriteGuard<'_, ()>)> {
        {
            // Shared, so that many writers queue for one lock, and not for one behind the other.
            let _root_lock = self.locks.root.read();
            let node = self.root()?;
            let lock = self.lock(&node)?;
            if !self.is_full(&node)? {
                return Ok((node, lock));
            }
        }
        let _root_lock = self.locks.root.write();
        loop {
            let node = self.root()?;
            let lock = self.lock(&node)?;
            if !self.is_full(&node)? {
                return Ok((node, lock));
            }
            // The old root may be a child of the new one then, and locks are taken from the root
            // downwards.
            self.split(None, &node)?;
        }
    }

    /// Whether a node has to be split before something can be added below it. An inner node keeps
    /// enough entries free for a split of its child: one, or two for copies. The exception are
    /// nodes so small that two halves of the others would have too few. There, a child is split in
    /// place if there is room for one only.
    fn is_full(&self, node: &Node<'_, D, B>) -> Result<bool> {
        self.check_settled(node)?;
        let needed = match self.rebalancing {
            Rebalancing::CopyOnWrite if node.level() > 0 && self.layout.fan_out > 2 * self.fill_min => 2,
            Rebalancing::CopyOnWrite | Rebalancing::InPlace => 1,
        };
        Ok(self.locked_metadata(node)?.count() + needed > self.layout.fan_out)
    }

    /// Enlarges a child's box to contain another one, in place and without a log. After each of the
    /// stores it contains its old contents.
    fn enlarge(
        &self,
        node: &Node<'_, D, B>,
        slot: usize,
        bounds: &Rect<D>,
        rect: &Rect<D>,
        enlargements: &mut Enlargements<'_, B>,
    ) {
        if !bounds.contains(rect) {
            let mark = node.word(self.layout.mark(slot));
            self.backend().store(mark, enlargements.mark);
            enlargements.marked.push(mark);
            self.store_rect(node, slot, &bounds.union(rect));
        } else if !self.is_marked(node, slot) {
            return;
        }
        self.flush_entry(node, slot, ENLARGE);
        enlargements.are_flushed = true;
    }

    /// Whether a child's box may not be durable: an insertion has enlarged it, and not fenced yet.
    /// A writer that relies on it flushes its line (F6).
    pub(super) fn is_marked(&self, node: &Node<'_, D, B>, slot: usize) -> bool {
        self.is_mark_of_session(self.backend().load(node.word(self.layout.mark(slot))))
    }

    fn insert_into_leaf(&self, leaf: &Node<'_, D, B>, rect: &Rect<D>, payload: u64, has_grown: bool) -> Result<()> {
        let metadata = self.locked_metadata(leaf)?;
        let Some(slot) = metadata.first_free(self.layout.fan_out) else {
            return Err(self.damaged(leaf.offset, "a locked leaf has become full"));
        };
        if self.has_tags(leaf.level()) {
            self.insert_tagged(leaf, metadata, slot, (rect, payload), has_grown);
            return Ok(());
        }
        self.write_entry(leaf, slot, rect, payload, 0);
        self.flush_entry(leaf, slot, ENTRY);
        self.backend().fence(ENTRY);
        self.publish(leaf, metadata, slot, true, METADATA);
        Ok(())
    }

    /// Sets or clears the bit of a leaf's entry durably. A reader that sees it before makes it
    /// durable first.
    pub(super) fn publish(
        &self,
        leaf: &Node<'_, D, B>,
        mut metadata: Metadata,
        slot: usize,
        is_valid: bool,
        site: Site,
    ) {
        let backend = self.backend();
        let (word, _) = Metadata::place(slot);
        self.claim_flag(leaf);
        metadata.set(slot, is_valid);
        metadata.set_dirty(true);
        if !is_valid {
            // Before the bit, for look-ups that search twice for an absent entry; after it, for
            // readers of an entry that takes its place.
            self.bump(leaf);
        }
        // If the bit is in another word, the flag must be visible before it.
        let offsets = [0, word].map(|word| leaf.word(self.layout.bitmap_word(word)));
        backend.store(offsets[0], metadata.words()[0]);
        if word > 0 {
            backend.store(offsets[1], metadata.words()[word]);
        }
        if !is_valid {
            self.bump(leaf);
        }
        backend.persist(offsets[1]..offsets[1] + WORD_LENGTH, site);
        metadata.set_dirty(false);
        backend.store(offsets[0], metadata.words()[0]);
    }
}
