//! Log entries in use: a change takes one, commits it and clears it. The nodes that it changes name
//! it.

use std::cmp;

use terrane_pmem::{Backend, LINE_LENGTH, Site, WORD_LENGTH};
use terrane_storage::sync::Ordering;

use super::layout::LOG;
use super::log::{
    COMMITTED, Change, DONE, ENTRIES, Engagement, KIND_SHIFT, NODES, ROLES, Role, VERSION_SHIFT, bitmap_word, offset,
    read,
};
use super::node::Node;
use super::tree::FbrTree;
use crate::Result;

/// Low bits of a node's log word, 0 if no entry changes the node. The session is above.
const SESSION_SHIFT: u32 = 16;
const UNLINKED: u64 = 0xffff;

const PREPARE: Site = Site::new("fbr.log.prepare");
const COMMIT: Site = Site::new("fbr.log.commit");
const CLEAR: Site = Site::new("fbr.log.clear");
const WITHDRAW: Site = Site::new("fbr.log.withdraw");

const FAILED: &str = "a change of nodes has failed in the middle";

/// An entry that belongs to one change, until it is dropped.
#[derive(Debug)]
pub(super) struct Entry<'t, const D: usize, B: Backend> {
    tree: &'t FbrTree<D, B>,
    index: usize,
}

impl<const D: usize, B: Backend> Drop for Entry<'_, D, B> {
    fn drop(&mut self) {
        self.tree.log.free.lock().push_back(self.index);
        self.tree.log.returned.notify_one();
    }
}

impl<const D: usize, B: Backend> Entry<'_, D, B> {
    /// Keeps the entry of a failed change from being reused.
    pub(super) fn keep(self) {
        self.tree.log.failed.store(self.tree.log_entry(self.index), Ordering::Relaxed);
        std::mem::forget(self);
    }

    /// Offset of the word that names a node.
    pub(super) fn link(&self, role: Role) -> u64 {
        self.tree.log_entry(self.index) + (NODES + role as u64) * WORD_LENGTH
    }

    /// Stores bitmaps that are longer than a word, and flushes them. The commitment relies on a
    /// fence in between.
    pub(super) fn prepare(&self, change: &Change) {
        if self.tree.layout.words == 1 {
            return;
        }
        for (place, bitmap) in change.bitmaps.iter().take(change.kind.changed().len()).enumerate() {
            for (word, &bits) in bitmap.words().iter().enumerate() {
                self.tree.backend().store(self.tree.log_bitmap_word(self.index, place, word), bits);
            }
        }
        let first = self.tree.log_bitmap_word(self.index, 0, 0);
        let last = self.tree.log_bitmap_word(self.index, 1, self.tree.layout.words - 1);
        self.tree.backend().flush(first..last + WORD_LENGTH, PREPARE);
    }

    /// Commits the change: from now on the nodes have the entry's bitmaps.
    ///
    /// The nodes name the entry before, so that no reader misses it.
    pub(super) fn commit(&self, change: &Change) -> Result<()> {
        let backend = self.tree.backend();
        for &role in change.kind.changed() {
            let node = self.tree.node(change.node(role))?;
            backend.store(node.word(LOG), self.tree.session << SESSION_SHIFT | (self.index as u64 + 1));
        }
        let entry = self.tree.log_entry(self.index);
        let version = backend.load(entry) >> VERSION_SHIFT;
        let state = (version + 1) << VERSION_SHIFT | change.kind.code() << KIND_SHIFT;
        backend.store(entry, state);
        for (number, &node) in change.nodes.iter().enumerate() {
            backend.store(entry + (NODES + number as u64) * WORD_LENGTH, node);
        }
        if self.tree.layout.words == 1 {
            for (place, bitmap) in change.bitmaps.iter().enumerate() {
                backend.store(self.tree.log_bitmap_word(self.index, place, 0), bitmap.words()[0]);
            }
        }
        backend.store(entry, state | COMMITTED);
        backend.persist(entry..entry + LINE_LENGTH, COMMIT);
        Ok(())
    }

    /// Clears the entry. The change is durable without it, and nobody reads by it any more.
    pub(super) fn clear(&self) {
        let (backend, entry) = (self.tree.backend(), self.tree.log_entry(self.index));
        // From here on the nodes' own bitmaps count, for all of them at once.
        backend.store(entry, backend.load(entry) | DONE);
        self.empty(CLEAR);
        self.tree.backend().fence(CLEAR);
    }

    /// Forgets a change that was not committed, durably with the next fence. It is never marked as
    /// done: after a crash in the middle, the nodes that it would have unlinked are still linked.
    pub(super) fn withdraw(&self) {
        self.empty(WITHDRAW);
    }

    fn empty(&self, site: Site) {
        let (backend, entry) = (self.tree.backend(), self.tree.log_entry(self.index));
        for number in 0..ROLES as u64 {
            backend.store(entry + (NODES + number) * WORD_LENGTH, 0);
        }
        backend.store(entry, backend.load(entry) >> VERSION_SHIFT << VERSION_SHIFT);
        backend.flush(entry..entry + LINE_LENGTH, site);
    }
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Waits for an entry. A holder of one waits for no other, so it comes back.
    pub(super) fn take_log_entry(&self) -> Entry<'_, D, B> {
        let mut free = self.log.free.lock();
        loop {
            match free.pop_front() {
                Some(index) => return Entry { tree: self, index },
                None => self.log.returned.wait(&mut free),
            }
        }
    }

    fn log_entry(&self, index: usize) -> u64 {
        offset(&self.layout, self.block, index)
    }

    fn log_bitmap_word(&self, index: usize, place: usize, word: usize) -> u64 {
        self.log_entry(index) + bitmap_word(&self.layout, place, word)
    }

    /// The contents of an entry, and the state in which it was found; `None` if it is free.
    pub(super) fn read_change(&self, index: usize) -> Result<Option<(Change, Engagement)>> {
        read(&self.pool, &self.layout, self.block, index)
    }

    /// The entry that changes a node now, by the node's log word; `None` if none does in this
    /// session.
    #[inline]
    pub(super) fn engaged(&self, log_word: u64) -> Result<Option<(Change, Engagement)>> {
        let index = log_word & UNLINKED;
        if index == 0 || index == UNLINKED || !self.is_of_session(log_word) {
            return Ok(None);
        }
        match usize::try_from(index - 1) {
            // An entry that is done says nothing: the nodes hold everything, and are locked until
            // it is cleared.
            Ok(index) if index < ENTRIES => self.read_change(index),
            _ => Ok(None),
        }
    }

    /// Whether an entry has not changed since.
    #[inline]
    pub(super) fn is_unchanged(&self, engagement: &Engagement) -> bool {
        self.backend().load(engagement.entry) == engagement.state
    }

    /// Ends the tie between a node and its log entry. The caller holds the node's lock.
    pub(super) fn disengage(&self, node: &Node<'_, D, B>) {
        self.backend().store(node.word(LOG), self.idle_log_word());
    }

    /// Claims the node's flag "dirty" for this session. A flag from an earlier session may be
    /// durable, and means nothing. The caller holds the node's lock, and has not set the flag yet.
    pub(super) fn claim_flag(&self, node: &Node<'_, D, B>) {
        if !self.is_of_session(node.log_word()) {
            self.backend().store(node.word(LOG), self.idle_log_word());
        }
    }

    /// Whether a log word was stored in this session.
    #[inline]
    pub(super) fn is_of_session(&self, log_word: u64) -> bool {
        log_word >> SESSION_SHIFT == self.session
    }

    /// The log word of a node that no entry changes.
    fn idle_log_word(&self) -> u64 {
        self.session << SESSION_SHIFT
    }

    /// Tells writers that came from an old parent that the node is no longer part of the tree.
    pub(super) fn mark_unlinked(&self, node: &Node<'_, D, B>) {
        self.backend().store(node.word(LOG), self.session << SESSION_SHIFT | UNLINKED);
    }

    pub(super) fn is_unlinked(&self, node: &Node<'_, D, B>) -> bool {
        node.log_word() == self.session << SESSION_SHIFT | UNLINKED
    }

    /// Returns an error for a locked node that a failed change has left unfinished. If a change has
    /// failed in the middle because the pool is damaged, every node is refused: nodes that do not
    /// name its entry may also lead to those that it has not linked or unlinked yet.
    pub(super) fn check_settled(&self, node: &Node<'_, D, B>) -> Result<()> {
        self.check_no_change_failed()?;
        match node.log_word() {
            0 => Ok(()),
            log_word if self.engaged(log_word)?.is_none() => Ok(()),
            _ => Err(self.damaged(node.offset, FAILED)),
        }
    }

    /// Returns an error for a linked node that claims to be unlinked or in change while nobody
    /// changes the tree, or whose log word has the number of a later session.
    pub(super) fn check_at_rest(&self, node: &Node<'_, D, B>) -> Result<()> {
        let log_word = node.log_word();
        match (log_word >> SESSION_SHIFT).cmp(&self.session) {
            cmp::Ordering::Less => Ok(()),
            cmp::Ordering::Equal if log_word & UNLINKED == 0 => Ok(()),
            _ => Err(self.damaged(node.word(LOG), "a node of the tree says that it is unlinked or being changed")),
        }
    }

    /// Returns an error if a change has failed in the middle. Only the next opening can complete
    /// it. The holder of the lock of a node that the change held learns of it here.
    pub(super) fn check_no_change_failed(&self) -> Result<()> {
        match self.log.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            entry => Err(self.damaged(entry, FAILED)),
        }
    }

    /// The entry with this number, for recovery.
    pub(super) fn log_entry_for_recovery(&self, index: usize) -> Entry<'_, D, B> {
        self.log.free.lock().retain(|&free| free != index);
        Entry { tree: self, index }
    }
}
