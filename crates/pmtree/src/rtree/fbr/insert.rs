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
/// Their marks say so to other writers, who flush such a line before they rely on it. Who enlarged
/// it takes the mark away after the fence, unless another one has enlarged it meanwhile (F6). An
/// operation that fails fences for that alone.
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
    /// Inserts a box with a payload. When it returns, the entry is durable; if it fails, the entry
    /// is not there.
    ///
    /// What is durable after each step (F1, F2): boxes on the way may be larger than needed; the
    /// entry is written, and free; the bit is set. Without a split this takes two flushes, one more
    /// for each box that grows, and two fences. Where entries validate themselves, the entry counts
    /// with its last word: one flush and one fence, and, where boxes grow, one flush for each of
    /// them and one fence for all.
    ///
    /// Where there is no space, what is retired is waited for if only short operations keep it, and
    /// nodes are mended that deletions have left with too few entries for lack of it.
    pub fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        match self.insert_into_space(rect, payload) {
            Err(error) if blocks::is_full(&error) => self.find_space_for(|| self.insert_into_space(rect, payload)),
            outcome => outcome,
        }
    }

    fn insert_into_space(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        let _pinned = self.pool.pin();
        let (backend, mark) = (self.backend(), self.new_mark());
        let mut enlargements =
            Enlargements { backend, mark, are_flushed: false, are_durable: false, marked: SmallVec::new() };
        let (mut node, mut lock) = self.lock_root()?;
        let mut level = node.level();
        // After a split, the choice is between its halves: another child may be full, and the node
        // too by now.
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

    /// The root, locked, with room for what is added below it.
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
    /// as many entries free as a split of its child needs: two for copies, but in nodes so small
    /// that two halves of the others would have too few, where a child is split in place if there
    /// is room for one only.
    fn is_full(&self, node: &Node<'_, D, B>) -> Result<bool> {
        self.check_settled(node)?;
        let needed = match self.rebalancing {
            Rebalancing::CopyOnWrite if node.level() > 0 && self.layout.fan_out > 2 * self.fill_min => 2,
            Rebalancing::CopyOnWrite | Rebalancing::InPlace => 1,
        };
        Ok(self.locked_metadata(node)?.count() + needed > self.layout.fan_out)
    }

    /// Makes a child's box contain another one, in place and without a log: it contains what it
    /// contained after each of the stores.
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
    /// Who relies on it then flushes its line (F6).
    pub(super) fn is_marked(&self, node: &Node<'_, D, B>, slot: usize) -> bool {
        self.is_of_now(self.backend().load(node.word(self.layout.mark(slot))))
    }

    fn insert_into_leaf(&self, leaf: &Node<'_, D, B>, rect: &Rect<D>, payload: u64, has_grown: bool) -> Result<()> {
        let metadata = self.locked_metadata(leaf)?;
        let Some(slot) = metadata.first_free(self.layout.fan_out) else {
            return Err(self.damaged(leaf.offset, "a leaf is full that was not before"));
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

    /// Sets or clears the bit of a leaf's entry durably. Who reads it before that makes it durable
    /// first.
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
            // Before the bit, for who looks twice for what is not there; after it, for who reads
            // what takes its place.
            self.bump(leaf);
        }
        // Where the bit is in another word, the flag has to be seen before it.
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
