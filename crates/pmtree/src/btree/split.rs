//! Splits of full nodes, and the steps of every change of several nodes.

use std::ops::Range;

use terrane_pmem::{Backend, Intent, LINE_LENGTH, Site, View, WORD_LENGTH};
use terrane_storage::sync::Ordering;

use super::change::{Change, Linking, Write};
use super::layout::{Layout, META, NEXT, count, level, meta};
use super::log;
use super::method::{LogEntry, Method};
use super::node::{Child, Image};
use super::place;
use super::tree::{BTree, Met, Step};
use super::versions;
use crate::{Result, blocks};

const NEW: Site = Site::new("btree.new");

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Splits the first full node on the way to a key, if there is one. If there is no space, it
    /// frees what no reader needs any more, and tries once more.
    pub(super) fn make_room(&self, key: &[u64; K]) -> Result<()> {
        match self.split_on_way(key) {
            Err(error) if blocks::is_full(&error) => {
                self.pool.reclaim()?;
                self.split_on_way(key)
            }
            outcome => outcome,
        }
    }

    fn split_on_way(&self, key: &[u64; K]) -> Result<()> {
        let entry = self.take_log_entry()?;
        let _guard = self.pool.pin();
        let Some((mut above, mut place)) = self.begin_above() else { return Ok(()) };
        loop {
            let met = place.met;
            let node = self.node(met.node)?;
            let is_leaf = level(node.load(META)) == 0;
            let is_full = match is_leaf {
                true => self.layout.leaf_count(node) == self.layout.leaf_capacity,
                false => count(node.load(META)) >= self.layout.children,
            };
            if is_full {
                return self.split(entry, &above, &met, key);
            }
            let Step::Below(child, level) = self.step(&place, key)? else { return Ok(()) };
            match self.enter(&place, child, level)? {
                Some(below) => (above, place) = (met, below),
                None => return Ok(()),
            }
        }
    }

    /// Moves the upper half of a node to a new one, which its parent links from then on. The parent
    /// has room, or the node is the root. Does nothing if one of them has changed.
    fn split(&self, entry: LogEntry<'_>, above: &Met<'_>, met: &Met<'_>, key: &[u64; K]) -> Result<()> {
        self.check_distinct([above, met])?;
        let Some(above_lock) = versions::lock(above.word, above.version) else { return Ok(()) };
        let Some(_lock) = versions::lock(met.word, met.version) else {
            above_lock.unchanged();
            return Ok(());
        };
        let mut acquired = self.pool.intent();
        let level = level(self.node(met.node)?.load(META));
        let children = match above.node {
            0 => self.check_stated(met.node).map(|()| Vec::new())?,
            parent => {
                self.check_parent(parent, &[met.node])?;
                self.layout.children_of(self.node(parent)?)
            }
        };
        // A shift would take that for its mark.
        if children.windows(2).any(|pair| pair[0].1 == pair[1].1) {
            return Err(self.damaged(above.node, "a node is linked twice"));
        }
        let below = self.children_below(met.node)?;
        let is_near = |block: u64| {
            let mut linked = children.iter().chain(&below).map(|(_, child)| *child).chain([above.node, met.node]);
            linked.any(|node| self.overlap(node, block))
        };
        let mut change = Change::default();
        let (separator, right) = if level == 0 && M::IN_LOGS {
            self.split_chain(met.node)?
        } else {
            self.split_node(met.node, &is_near, entry.as_ref(), (&mut acquired, &mut change))?
        };
        if above.node == 0 {
            let is_near = |block| is_near(block) || self.overlap(right, block);
            let root = self.acquire(&mut acquired, level + 1, link_of(entry.as_ref(), 1), &is_near)?;
            let mut image = vec![0; self.layout.words];
            Layout::<K, V>::fill_inner(&mut image, level + 1, &[([0; K], met.node), (separator, right)]);
            self.write_new(root, &image);
            change.acquired[1] = in_pool(root);
            change.write_root(self.block, root, M::INNER_IN_MEMORY);
        } else if M::SHIFTS_INNER {
            let before = children.len();
            change.linking = Some(Linking { parent: above.node, before, separator: separator.to_vec() });
        } else {
            let before = self.layout.copy(self.node(above.node)?);
            let mut children = children;
            children.insert(self.layout.child_of(Image(&before), key) + 1, (separator, right));
            let mut after = before.clone();
            Layout::<K, V>::fill_inner(&mut after, level + 1, &children);
            change.write(above.node, &before, &after);
        }
        self.make_with(entry, &change, acquired)
    }

    /// Writes the upper half of a node to a new one, and adds the change of the node itself. Gives
    /// the least key of the new node, and the new node. `is_near` is that of
    /// [`Self::acquire`].
    fn split_node(
        &self,
        node: u64,
        is_near: &dyn Fn(u64) -> bool,
        entry: Option<&log::Entry<'_>>,
        (acquired, change): (&mut Intent<'_, B>, &mut Change),
    ) -> Result<([u64; K], u64)> {
        let before = self.layout.copy(self.node(node)?);
        let mut after = before.clone();
        let level = level(before[META]);
        let right = self.acquire(acquired, level, link_of(entry, 0), is_near)?;
        let mut upper = vec![0; self.layout.words];
        let separator = if level == 0 {
            let entries = self.layout.entries_of(Image(&before));
            let (_, moved) = entries.split_at(entries.len().div_ceil(2));
            self.layout.fill_leaf(&mut upper, before[NEXT], moved);
            self.layout.truncate(&mut after, &moved[0].0);
            after[NEXT] = right;
            moved[0].0
        } else {
            let children = self.layout.children_of(Image(&before));
            let (kept, moved) = children.split_at(children.len().div_ceil(2));
            Layout::<K, V>::fill_inner(&mut upper, level, moved);
            after[META] = meta(level, kept.len());
            moved[0].0
        };
        self.write_new(right, &upper);
        change.acquired[0] = in_pool(right);
        change.write(node, &before, &after);
        Ok((separator, right))
    }

    /// The children of a locked node; none of a leaf.
    fn children_below(&self, node: u64) -> Result<Vec<Child<K>>> {
        let words = self.node(node)?;
        Ok(if level(words.load(META)) == 0 { Vec::new() } else { self.layout.children_of(words) })
    }

    /// A node of a level that nobody else has met. It is an error if its block is that of a node
    /// near: then the allocator calls a used block free, and a write would lose entries.
    fn acquire(&self, intent: &mut Intent<'_, B>, level: u64, link: u64, is_near: &dyn Fn(u64) -> bool) -> Result<u64> {
        if M::INNER_IN_MEMORY && level > 0 {
            return Ok(self.new_in_memory());
        }
        let node = intent.acquire(self.layout.node_length(), link)?;
        if is_near(node) {
            return Err(self.damaged(node, "a node of the tree is a free block"));
        }
        self.versions.revive(node);
        Ok(node)
    }

    /// Writes a new node and flushes it. The log fences.
    fn write_new(&self, node: u64, image: &[u64]) {
        let used = self.layout.used_words(image);
        if place::in_memory(node).is_some() {
            return self.store_in_memory(node, 0, &image[..used]);
        }
        for (offset, &word) in (node..).step_by(WORD_LENGTH as usize).zip(&image[..used]) {
            self.backend().store(offset, word);
        }
        let written = node..node + used as u64 * WORD_LENGTH;
        self.flush_written(written);
    }

    /// Makes a change of locked nodes that acquires and releases nothing.
    pub(super) fn make(&self, entry: LogEntry<'_>, change: &Change) -> Result<()> {
        match entry.filter(|_| self.is_logged(change)) {
            None => self.store_volatile(&change.writes),
            Some(entry) => {
                let entry = self.commit_and_apply(entry, change)?;
                log::clear(self.backend(), entry.offset);
            }
        }
        self.make_in_memory(change);
        Ok(())
    }

    /// Commits a change, and stores it. If that fails, the entry is kept, and stops all others.
    fn commit_and_apply<'a>(&self, entry: log::Entry<'a>, change: &Change) -> Result<log::Entry<'a>> {
        log::commit(self.backend(), &entry, change);
        match log::apply(&self.pool, &self.layout, change) {
            Ok(()) => Ok(entry),
            Err(error) => {
                entry.keep();
                Err(error)
            }
        }
    }

    /// Makes a change of locked nodes, whose new nodes were written. Ends the intent that has
    /// acquired them.
    ///
    /// - Before the commitment, a crash frees the new nodes, by the intent or by the log entry.
    /// - After it, recovery makes the change, and the entry owns the blocks (T5).
    /// - When the entry is cleared, nodes link the new ones.
    fn make_with(&self, entry: LogEntry<'_>, change: &Change, acquired: Intent<'_, B>) -> Result<()> {
        let Some(entry) = entry else {
            self.make_in_memory(change);
            return Ok(());
        };
        if self.is_logged(change) {
            let entry = self.commit_and_apply(entry, change)?;
            // While the entry names the blocks, the intent leaves them acquired.
            acquired.finish();
            log::clear(self.backend(), entry.offset);
        } else {
            self.store_volatile(&change.writes);
            for (number, &block) in change.acquired.iter().enumerate() {
                self.backend().store(log::acquired_link(entry.offset, number), block);
            }
            acquired.finish();
            log::clear_volatile(self.backend(), entry.offset);
        }
        self.make_in_memory(change);
        Ok(())
    }

    /// Makes a change of locked nodes that releases a node, which is free when no reader is left.
    pub(super) fn make_and_release(&self, entry: LogEntry<'_>, change: &Change) -> Result<()> {
        let Some(mut entry) = entry.filter(|_| place::in_memory(change.released).is_none()) else {
            // Inner nodes are in memory, all of them, so there is nothing to log.
            self.make_in_memory(change);
            self.retire_in_memory(change.released);
            return Ok(());
        };
        // Everything that can fail comes before the commitment.
        blocks::check_own(&self.pool, change.released, self.layout.node_length())?;
        let mut released = self.pool.intent();
        released.reserve()?;
        if M::IS_DURABLE {
            entry = self.commit_and_apply(entry, change)?;
        } else {
            self.store_volatile(&change.writes);
            self.backend().store(log::released_link(entry.offset), change.released);
        }
        if let Err(error) = released.release(change.released, log::released_link(entry.offset)) {
            entry.keep();
            return Err(error.into());
        }
        if M::IS_DURABLE {
            log::clear(self.backend(), entry.offset);
        } else {
            log::clear_volatile(self.backend(), entry.offset);
        }
        self.make_in_memory(change);
        released.retire(&self.pool.pin());
        Ok(())
    }

    /// Stores the words of a change that is not durable.
    fn store_volatile(&self, writes: &[Write]) {
        log::store(self.backend(), writes);
        for Write { node, first, words } in writes {
            let start = node + *first as u64 * WORD_LENGTH;
            self.flush_written(start..start + words.len() as u64 * WORD_LENGTH);
        }
    }

    /// Flushes words that are durable with the next fence. Where nothing is durable, it flushes two
    /// or more lines that were changed together, if the tree does so.
    fn flush_written(&self, range: Range<u64>) {
        let lines = range.end.div_ceil(LINE_LENGTH) - range.start / LINE_LENGTH;
        if M::IS_DURABLE || M::FLUSHES_GROUPS && lines >= 2 {
            self.backend().flush(range, NEW);
        }
    }

    /// Whether a change takes a commitment in the log.
    fn is_logged(&self, change: &Change) -> bool {
        M::IS_DURABLE && !change.writes.is_empty()
    }

    /// Stores the words of a change that are in memory.
    fn make_in_memory(&self, change: &Change) {
        for Write { node, first, words } in &change.memory_writes {
            self.store_in_memory(*node, *first, words);
        }
        if let Some(root) = change.memory_root {
            self.memory_root.store(root, Ordering::Release);
        }
    }
}

/// The word that links a new block until a change is committed. Nodes in memory need none.
fn link_of(entry: Option<&log::Entry<'_>>, number: usize) -> u64 {
    entry.map_or(0, |entry| log::acquired_link(entry.offset, number))
}

/// The offset of a node in the pool, or 0.
fn in_pool(node: u64) -> u64 {
    if place::in_memory(node).is_some() { 0 } else { node }
}
