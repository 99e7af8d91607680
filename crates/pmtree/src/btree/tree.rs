//! An open tree, and the way from its root to a leaf.

use std::marker::PhantomData;
use std::ops::Range;

use terrane_pmem::{Arena, Backend, Native, Pool, Site, View};
use terrane_storage::sync::{AtomicU64, Ordering};

use super::chain::Chains;
use super::layout::{Layout, META, ROOT_WORD, level};
use super::log::{self, Log};
use super::method::{LogEntry, Method};
use super::place::{self, Words};
use super::versions::{self, Version, Versions};
use crate::limits::LEVEL_MAX;
use crate::{Error, Result, blocks};

/// A map from keys of `K` words to values of `V` words, in a pool of its own.
///
/// Keys are unique, and compare word by word. The operations on one key are linearizable, and with
/// a durable method durably so: each is complete when its call returns, and what it has seen stays,
/// whatever crash follows. With [`Sorted`](super::Sorted) or [`Unsorted`](super::Unsorted) that is
/// not durable, nothing is kept unless the tree is closed, and a later opening is refused. Any
/// number of threads share a tree. Dropping it without [`BTree::close`] has the effect of a kill.
#[derive(Debug)]
pub struct BTree<M, const K: usize, const V: usize, B: Backend = Native> {
    pub(super) pool: Pool<B>,
    pub(super) layout: Layout<K, V>,
    /// Offset of the block that holds the shape, the root word and the log.
    pub(super) block: u64,
    /// Bytes behind the log, for a structure that is built upon the tree.
    extension_length: u64,
    pub(super) versions: Versions,
    pub(super) log: Log,
    /// Inner nodes in memory, each behind its version.
    pub(super) inners: Arena,
    /// The root, if inner nodes are in memory. The root word leads to the first leaf then.
    pub(super) memory_root: AtomicU64,
    /// The logs, and the rows of leaves in them.
    pub(super) chains: Chains,
    method: PhantomData<M>,
}

/// A node, and the version in which it was met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met<'a> {
    /// Its offset, or 0 for the root word.
    pub(super) node: u64,
    pub(super) word: &'a AtomicU64,
    pub(super) version: Version,
}

/// A node on the way to a leaf, and the level that it must have, if that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) met: Met<'a>,
    level: Option<u64>,
}

/// The next node on a way.
pub(super) enum Step {
    /// This child, which has this level. It was announced to the memory.
    Below(u64, u64),
    /// There is none: the node is a leaf.
    Leaf,
    /// The node has changed, so the way begins anew.
    Changed,
}

impl Met<'_> {
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        versions::is_current(self.word, self.version)
    }
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    pub(super) fn new(pool: Pool<B>, layout: Layout<K, V>, block: u64, extension_length: u64, chains: Chains) -> Self {
        let versions = Versions::new(layout.node_length());
        let log = Log::new(pool.backend(), log::Entries::new(&layout, block));
        let inners = Arena::new(1 + layout.words);
        let memory_root = AtomicU64::new(pool.backend().load(block + ROOT_WORD));
        Self { pool, layout, block, extension_length, versions, log, inners, memory_root, chains, method: PhantomData }
    }

    /// Offset of the words behind the log.
    pub(crate) fn extension(&self) -> u64 {
        self.heads() + self.chains.heads_length()
    }

    /// Offset of the words that link the first segments of logs.
    pub(super) fn heads(&self) -> u64 {
        self.block + log::Entries::new(&self.layout, self.block).block_length()
    }

    /// Bytes of the tree's block.
    pub(super) fn block_length(&self) -> u64 {
        self.extension() - self.block + self.extension_length
    }

    /// The pool, to count what operations cost.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    pub(super) fn backend(&self) -> &B {
        self.pool.backend()
    }

    /// Makes a range of bytes durable, if operations are.
    pub(super) fn persist(&self, range: Range<u64>, site: Site) {
        if M::IS_DURABLE {
            self.backend().persist(range, site);
        }
    }

    /// Offset of the root word.
    pub(super) fn root_word(&self) -> u64 {
        self.block + ROOT_WORD
    }

    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        blocks::damaged(&self.pool, offset, reason)
    }

    /// The words of a node.
    #[inline]
    pub(super) fn node(&self, node: u64) -> Result<Words<'_, B>> {
        if let Some(index) = place::in_memory(node).filter(|_| M::INNER_IN_MEMORY) {
            return Ok(Words::Memory(&self.arena(node).words(index)[1..]));
        }
        let length = self.layout.node_length();
        self.pool.check_range(node, length)?;
        Ok(Words::Pool(self.backend().view(node, length)))
    }

    /// The word with a node's version. An offset may come from a damaged node.
    #[inline]
    pub(super) fn version_of(&self, node: u64) -> &AtomicU64 {
        match place::in_memory(node).filter(|_| M::INNER_IN_MEMORY) {
            Some(index) => &self.arena(node).words(index)[0],
            // A table that is asked for any offset would allocate without a limit.
            None if !self.backend().holds(node, self.layout.node_length()) => &self.versions.outside,
            None => self.versions.of(node),
        }
    }

    #[inline]
    pub(super) fn root(&self) -> u64 {
        match M::INNER_IN_MEMORY {
            true => self.memory_root.load(Ordering::Acquire),
            false => self.backend().load(self.root_word()),
        }
    }

    /// The arena that a node in memory is in.
    #[inline]
    fn arena(&self, node: u64) -> &Arena {
        if M::IN_LOGS && place::is_row(node) { &self.chains.rows } else { &self.inners }
    }

    /// Frees a node in memory when no reader is left.
    pub(super) fn retire_in_memory(&self, node: u64) {
        if let Some(index) = place::in_memory(node) {
            self.arena(node).retire(index, &self.pool.pin());
        }
    }

    /// Bytes of memory for inner nodes and for rows of leaves.
    pub fn memory_bytes(&self) -> u64 {
        self.inners.bytes() + self.chains.rows.bytes()
    }

    /// A new node in memory.
    pub(super) fn new_in_memory(&self) -> u64 {
        place::name(self.inners.allocate())
    }

    /// Stores words of a node in memory.
    pub(super) fn store_in_memory(&self, node: u64, first: usize, words: &[u64]) {
        let Some(index) = place::in_memory(node) else { return };
        for (target, &word) in self.inners.words(index)[1 + first..].iter().zip(words) {
            target.store(word, Ordering::Release);
        }
    }

    /// Takes an entry of the log, if the tree logs changes of nodes.
    pub(super) fn take_log_entry(&self) -> Result<LogEntry<'_>> {
        if M::IN_LOGS {
            return Ok(None);
        }
        let entry = self.log.take(log::Entries::new(&self.layout, self.block));
        // A change that has failed keeps its entry.
        self.check_not_failed()?;
        Ok(entry)
    }

    /// Checks that nodes which are locked together are distinct, and distinct from the root word.
    /// Otherwise they would never be locked.
    pub(super) fn check_distinct<const N: usize>(&self, nodes: [&Met<'_>; N]) -> Result<()> {
        for (number, met) in nodes.iter().enumerate() {
            let others = &nodes[..number];
            if others.iter().any(|other| std::ptr::eq(other.word, met.word) || self.overlap(other.node, met.node)) {
                return Err(self.damaged(met.node, "a node is linked twice"));
            }
        }
        Ok(())
    }

    /// Whether two nodes have bytes of the pool in common. The root word, 0, has none.
    pub(super) fn overlap(&self, one: u64, other: u64) -> bool {
        let is_in_pool = |node: u64| node != 0 && place::in_memory(node).is_none();
        is_in_pool(one) && is_in_pool(other) && one.abs_diff(other) < self.layout.node_length()
    }

    /// Checks that a locked inner node can be the parent of others, which are about to be changed.
    pub(super) fn check_parent(&self, parent: u64, children: &[u64]) -> Result<()> {
        self.check_stated(parent)?;
        let above = level(self.node(parent)?.load(META));
        for &child in children {
            self.check_stated(child)?;
            if level(self.node(child)?.load(META)) + 1 != above {
                return Err(self.damaged(child, "a node is linked by one that is no parent of it"));
            }
        }
        Ok(())
    }

    /// Meets a node; `None` if it was removed.
    #[inline]
    pub(super) fn meet(&self, node: u64) -> Option<Met<'_>> {
        let word = self.version_of(node);
        versions::read(word).map(|version| Met { node, word, version })
    }

    /// Meets the root word and the root; `None` if the root changes meanwhile.
    #[inline]
    pub(super) fn meet_root(&self) -> Option<(Met<'_>, Met<'_>)> {
        let word = &self.versions.root;
        let above = Met { node: 0, word, version: versions::read(word)? };
        let root = self.root();
        if !above.is_current() {
            return None;
        }
        let root = self.meet(root)?;
        above.is_current().then_some((above, root))
    }

    /// Meets a child or the successor of a node, whose offset was read from it; `None` if the node
    /// has changed. Whoever removes a node changes those that link it first, and unlocks them
    /// afterwards.
    #[inline(always)]
    pub(super) fn meet_linked(&self, above: &Met<'_>, linked: u64) -> Result<Option<Met<'_>>> {
        // The offset means something only if the node has not changed.
        if !above.is_current() {
            return Ok(None);
        }
        let met = self.meet(linked);
        match above.is_current() {
            true if met.is_none() => Err(self.damaged(linked, "a node is linked, and was removed")),
            true => Ok(met),
            false => Ok(None),
        }
    }

    /// The leaf whose keys include a key. What is read from it counts if it has not changed
    /// afterwards.
    pub(super) fn descend(&self, key: &[u64; K]) -> Result<Met<'_>> {
        'restart: loop {
            let Some(mut place) = self.begin() else { continue };
            loop {
                match self.step(&place, key)? {
                    Step::Below(child, level) => match self.enter(&place, child, level)? {
                        Some(below) => place = below,
                        None => continue 'restart,
                    },
                    Step::Leaf => return Ok(place.met),
                    Step::Changed => continue 'restart,
                }
            }
        }
    }

    /// The root as the beginning of a way; `None` if it changes meanwhile.
    #[inline(always)]
    pub(super) fn begin(&self) -> Option<Place<'_>> {
        self.begin_above().map(|(_, root)| root)
    }

    /// The root word, and the root as the beginning of a way; `None` if it changes meanwhile.
    #[inline]
    pub(super) fn begin_above(&self) -> Option<(Met<'_>, Place<'_>)> {
        self.meet_root().map(|(above, met)| (above, Place { met, level: None }))
    }

    /// Finds the next node on the way to a key.
    #[inline(always)]
    pub(super) fn step(&self, place: &Place<'_>, key: &[u64; K]) -> Result<Step> {
        self.step_to(place, |node| self.layout.child_of(node, key))
    }

    /// Finds the next node on a way, by the index of a child in the words of its parent.
    #[inline(always)]
    pub(super) fn step_to(&self, place: &Place<'_>, choose: impl FnOnce(Words<'_, B>) -> usize) -> Result<Step> {
        let Place { met, level: expected } = place;
        let node = self.node(met.node)?;
        let meta = node.load(META);
        let level = level(meta);
        if expected.map_or(level > LEVEL_MAX, |expected| level != expected) {
            return match met.is_current() {
                false => Ok(Step::Changed),
                true => Err(self.damaged(met.node, format!("a node states the impossible level {level}"))),
            };
        }
        let Some(below) = level.checked_sub(1) else { return Ok(Step::Leaf) };
        let child = Layout::<K, V>::child_at(node, choose(node));
        // A child that was read from a node which changes names anything.
        if !met.is_current() {
            return Ok(Step::Changed);
        }
        if !self.layout.is_possible(meta) {
            return Err(self.wrong_count(met.node, meta));
        }
        match place::in_memory(child).filter(|_| M::INNER_IN_MEMORY) {
            Some(index) => self.arena(child).prefetch(index, 1 + self.layout.words),
            None => {
                terrane_pmem::prefetch_word(self.version_of(child));
                self.backend().prefetch(child, self.layout.announced_length(below));
            }
        }
        Ok(Step::Below(child, below))
    }

    /// Goes to a child that was found; `None` if the node above has changed.
    #[inline(always)]
    pub(super) fn enter<'a>(&'a self, place: &Place<'a>, child: u64, level: u64) -> Result<Option<Place<'a>>> {
        let met = self.meet_linked(&place.met, child)?;
        Ok(met.map(|met| Place { met, level: Some(level) }))
    }

    /// Returns an error if a committed change could not be finished.
    #[inline]
    pub(super) fn check_not_failed(&self) -> Result<()> {
        if self.log.failed.load(Ordering::Relaxed) {
            return Err(self.damaged(self.block, "a change of nodes has failed in the middle; open the tree again"));
        }
        Ok(())
    }
}
