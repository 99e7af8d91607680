//! The chains of the levels: each has the level's nodes in the pool, in any order.
//!
//! The word that leads to a node, in its predecessor or in the tree's block, owns the node (R1). So
//! an intent knows one link. A node enters the chain before a parent in the pool gets it, and
//! leaves the chain after the parent has lost it. One mutex guards all chains; it is taken last, by
//! splits, merges and moves.
//!
//! The last word of a node names a node before it, so that the predecessor is found without a long
//! walk. After a crash, that node may be a few nodes before it. It is never a node that was freed:
//! - A new node enters the chain. Then its successor gets its name.
//! - The successor of a leaving node gets the predecessor's name, durably. Then the node leaves.

use terrane_pmem::{Backend, Guard, Intent, Site, WORD_LENGTH};
use terrane_storage::sync::MutexGuard;

use super::layout::{
    BITMAP, BOXES, DYING, DYING_PARENT, MASK, META, NEXT, PARENT, PARTNER, REORGANIZING, SPLIT_STARTED, head, locked,
};
use super::lock::Locked;
use super::node::{Branch, Node};
use super::tree::PearTree;
use crate::Result;

const FILL: Site = Site::new("pear.chain.fill");
const LINK: Site = Site::new("pear.chain.link");
const LINK_FIRST: Site = Site::new("pear.chain.link.first");
const PREVIOUS: Site = Site::new("pear.chain.previous");
const UNLINK_PREVIOUS: Site = Site::new("pear.chain.unlink.previous");
const UNLINK: Site = Site::new("pear.chain.unlink");
const DYING_SET: Site = Site::new("pear.chain.dying");
const DYING_CLEAR: Site = Site::new("pear.chain.dying.clear");
const DYING_BRANCH: Site = Site::new("pear.chain.dying.branch");
const DYING_BRANCH_AGAIN: Site = Site::new("pear.recover.dying.branch");
const DYING_CLEAR_AGAIN: Site = Site::new("pear.recover.dying.clear");

/// The right to change the chains.
type Chains<'a> = MutexGuard<'a, ()>;

/// A block for a new node, and the word that will link it. It is free again when it is dropped.
pub(super) struct Acquired<'a, B: Backend> {
    intent: Intent<'a, B>,
    at: u64,
    link: u64,
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Adds a node behind the one that is split, and marks that durably: it is in *Insert 02*, and
    /// turns into *Insert 03* when its parent has the new one. The new node is in *Insert 04*.
    ///
    /// Mask, partner and marks share a line with the link, and are stored before it. So a crash
    /// that leaves the link leaves them too.
    pub(super) fn link_half(
        &self,
        split: &Node<'_, D, B>,
        moved: u64,
        branches: &[Branch<D>],
    ) -> Result<Locked<'_, D, B>> {
        let meta = locked(split.level(), SPLIT_STARTED, self.session);
        let chains = self.chains.lock();
        let acquired = self.acquire(split.at + NEXT as u64 * WORD_LENGTH)?;
        self.enter_chain(&chains, acquired, split.at, (meta, split.load(PARENT), split.at), branches, |at| {
            split.store(MASK, moved);
            split.store(PARTNER, at);
            split.mark(REORGANIZING | SPLIT_STARTED);
            split.store(NEXT, at);
            split.persist_header(LINK);
        })
    }

    /// Adds a node at the beginning of a level's chain, locked.
    pub(super) fn link_first(&self, level: u64, parent: u64, branches: &[Branch<D>]) -> Result<Locked<'_, D, B>> {
        let chains = self.chains.lock();
        let acquired = self.acquire_first(level)?;
        self.link_first_in(&chains, acquired, (level, parent), branches)
    }

    /// Takes the space for a node at the beginning of a level's chain. Until it is linked or
    /// dropped, nobody else may change the first word of that chain.
    pub(super) fn acquire_first(&self, level: u64) -> Result<Acquired<'_, B>> {
        self.acquire(self.block + head(level))
    }

    /// Adds the node, locked.
    pub(super) fn link_acquired(
        &self,
        acquired: Acquired<'_, B>,
        level: u64,
        branches: &[Branch<D>],
    ) -> Result<Locked<'_, D, B>> {
        self.link_first_in(&self.chains.lock(), acquired, (level, 0), branches)
    }

    fn link_first_in(
        &self,
        chains: &Chains<'_>,
        acquired: Acquired<'_, B>,
        (level, parent): (u64, u64),
        branches: &[Branch<D>],
    ) -> Result<Locked<'_, D, B>> {
        let (meta, link) = (locked(level, 0, self.session), acquired.link);
        self.enter_chain(chains, acquired, 0, (meta, parent, 0), branches, |at| {
            self.backend().store(link, at);
            self.backend().persist(link..link + WORD_LENGTH, LINK_FIRST);
        })
    }

    fn acquire(&self, link: u64) -> Result<Acquired<'_, B>> {
        let mut intent = self.pool.intent();
        let at = intent.acquire_aligned(self.layout.node_length(), self.layout.alignment, link)?;
        Ok(Acquired { intent, at, link })
    }

    /// Durable after each step: the node is acquired and filled; it is linked; its successor knows
    /// it; the intent has ended.
    fn enter_chain(
        &self,
        _: &Chains<'_>,
        Acquired { intent, at, link }: Acquired<'_, B>,
        previous: u64,
        (meta, parent, partner): (u64, u64, u64),
        branches: &[Branch<D>],
        store_link: impl FnOnce(u64),
    ) -> Result<Locked<'_, D, B>> {
        let (node, next) = (self.node(at)?, self.backend().load(link));
        let successor = self.successor(next)?;
        node.fill(meta, next, (parent, partner), branches);
        let node = Locked::of_new(node);
        let (level, last) = (node.level(), self.layout.previous_word());
        node.store(last, previous);
        for words in [META..self.layout.target_word(level, branches.len()), last..last + 1] {
            node.flush(words, FILL);
        }
        self.backend().fence(FILL);
        store_link(at);
        self.set_previous(successor, at, PREVIOUS);
        intent.finish();
        Ok(node)
    }

    /// The node that a word of a chain names, if it names one.
    fn successor(&self, next: u64) -> Result<Option<Node<'_, D, B>>> {
        (next != 0).then(|| self.node_in_pool(next)).transpose()
    }

    /// Flushes it, too. The fence is that of an intent, which follows.
    fn set_previous(&self, node: Option<Node<'_, D, B>>, previous: u64, site: Site) {
        if let Some(node) = node {
            let word = self.layout.previous_word();
            node.store(word, previous);
            node.flush(word..word + 1, site);
        }
    }

    /// Removes a node from its parent and from the chain, by an intent that has space. Nobody else
    /// can change either.
    ///
    /// Durable after each step: the tree's block names the node; the parent has lost it (*Delete
    /// 08*); the chain has lost it, and the intent frees it; the block has forgotten it.
    pub(super) fn remove_branch(
        &self,
        parent: &Node<'_, D, B>,
        slot: usize,
        node: &Node<'_, D, B>,
        intent: Intent<'_, B>,
        guard: &Guard<'_>,
    ) -> Result<()> {
        let chains = self.chains.lock();
        let parent_at = if parent.is_volatile() { 0 } else { parent.at };
        let (backend, block) = (self.backend(), self.block);
        // The parent comes first, so that a node that is named has the parent of this removal.
        backend.store(block + DYING_PARENT, parent_at);
        backend.store(block + DYING, node.at);
        backend.persist(block + DYING_PARENT..block + DYING + WORD_LENGTH, DYING_SET);
        parent.store(BITMAP, parent.bitmap() & !(1 << slot));
        // The announcement of the intent fences.
        parent.flush(META..BOXES, DYING_BRANCH);
        self.unlink_in(&chains, node, intent, Some(guard))
    }

    /// Removes a node that no parent has from the chain, and frees it: at once, or when readers
    /// have left.
    pub(super) fn unlink(&self, node: &Node<'_, D, B>, guard: Option<&Guard<'_>>) -> Result<()> {
        self.unlink_with(node, self.pool.intent(), guard)
    }

    /// Does the same by an intent that may have space.
    pub(super) fn unlink_with(
        &self,
        node: &Node<'_, D, B>,
        intent: Intent<'_, B>,
        guard: Option<&Guard<'_>>,
    ) -> Result<()> {
        let chains = self.chains.lock();
        self.unlink_in(&chains, node, intent, guard)
    }

    fn unlink_in(
        &self,
        _: &Chains<'_>,
        node: &Node<'_, D, B>,
        mut intent: Intent<'_, B>,
        guard: Option<&Guard<'_>>,
    ) -> Result<()> {
        let (link, previous) = self.find_link(node)?;
        let next = node.load(NEXT);
        self.set_previous(self.successor(next)?, previous, UNLINK_PREVIOUS);
        intent.release(node.at, link)?;
        self.backend().store(link, next);
        self.backend().persist(link..link + WORD_LENGTH, UNLINK);
        let dying = self.block + DYING;
        if self.backend().load(dying) != 0 {
            // Before the block is free for others: the end of the intent fences.
            self.backend().store(dying, 0);
            self.backend().flush(dying..dying + WORD_LENGTH, DYING_CLEAR);
        }
        match guard {
            Some(guard) => intent.retire(guard),
            None => intent.finish(),
        }
        Ok(())
    }

    /// The word that leads to a node, and the node that it lies in; 0 for the tree's block.
    fn find_link(&self, node: &Node<'_, D, B>) -> Result<(u64, u64)> {
        let level = node.level();
        let mut previous = node.load(self.layout.previous_word());
        let mut steps = 0;
        loop {
            let link = match previous {
                0 => self.block + head(level),
                at => self.node_of_level(at, level)?.at + NEXT as u64 * WORD_LENGTH,
            };
            let next = self.backend().load(link);
            if next == node.at {
                return Ok((link, previous));
            }
            steps += 1;
            if next == 0 || self.are_too_many(steps) {
                return Err(self.damaged(node.at, "a node is not in the chain of its level"));
            }
            previous = next;
        }
    }

    /// Completes the removal that a crash has interrupted, when the tree is opened.
    pub(super) fn complete_removal(&self) -> Result<()> {
        let [parent, at] = [DYING_PARENT, DYING].map(|word| self.backend().load(self.block + word));
        if at == 0 {
            return Ok(());
        }
        // The intent was settled when the pool was opened: the node is free if the chain has lost
        // it.
        if self.pool.is_acquired(at)? {
            if parent != 0 {
                let parent = self.node_in_pool(parent)?;
                if let Some(slot) = parent.slot_of(at) {
                    parent.store(BITMAP, parent.bitmap() & !(1 << slot));
                    parent.flush(META..BOXES, DYING_BRANCH_AGAIN);
                }
            }
            return self.unlink(&self.node_in_pool(at)?, None);
        }
        let dying = self.block + DYING;
        self.backend().store(dying, 0);
        self.backend().persist(dying..dying + WORD_LENGTH, DYING_CLEAR_AGAIN);
        Ok(())
    }
}
