//! Who finds no space takes what is retired and kept by nobody, and mends what deletions had no space to mend.
//!
//! A merge takes a slot of the pool, and on a full disk there may be none while readers keep them all. The deletion is durable without
//! it; but the block of a leaf that is empty then is no other's, also after the pool was opened again.

use std::collections::HashSet;

use terrane_pmem::Backend;
use terrane_storage::sync::{Ordering, thread};

use super::FbrTree;
use super::delete::Path;
use super::node::Node;
use crate::rtree::blocks;
use crate::{Error, Result};

/// Nodes that are mended under one guard, which keeps their blocks and slots: a round.
const MENDED_AT_ONCE: usize = 8;

/// Rounds at most, and those in a row of which nothing comes free, as readers keep it. Each goes over the tree.
const ROUNDS: usize = 64;
const BARREN_ROUNDS: usize = 8;

/// How often is tried what has failed, with what others, or it itself, have left.
const ATTEMPTS: usize = 8;

/// How often is waited for what others hold, and how often before the next round.
const WAITS: usize = 64;
const WAITS_OF_ROUND: usize = 8;

/// Nodes with too few entries.
#[derive(Debug, Default)]
struct Underfull {
    /// Those that were tried before.
    tried: HashSet<u64>,
    /// Others, each with the nodes above it from the root down.
    paths: Vec<Path>,
    visited: usize,
}

/// What came of some of them.
struct Round {
    found: usize,
    mended: usize,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Notes that a node was left with too few entries, or a root with one child.
    pub(super) fn note_underfull(&self) {
        self.may_be_underfull.store(true, Ordering::Release);
    }

    /// Tries something that has failed for lack of space again: when what is retired and kept by nobody is free, after a few nodes that
    /// have too few entries were mended, and after more of them, until it succeeds, or there are none left that can be mended, or
    /// readers keep what comes of it. One thread is at it at a time; others wait for what comes of it.
    pub(super) fn find_space_for(&self, attempt: impl Fn() -> Result<()>) -> Result<()> {
        let _mending = self.mending.lock();
        let mut underfull = Underfull::default();
        let (mut rounds_left, mut barren_left, mut waits_left) = (ROUNDS, BARREN_ROUNDS, WAITS);
        let mut has_found = false;
        loop {
            let Some((failed, has_reclaimed)) = self.attempt_with_what_is_free(&attempt)? else { return Ok(()) };
            if has_reclaimed {
                barren_left = BARREN_ROUNDS;
            }
            let mut is_left = false;
            if rounds_left > 0 && barren_left > 0 && self.may_be_underfull.swap(false, Ordering::AcqRel) {
                rounds_left -= 1;
                barren_left -= 1;
                let round = self.mend_some(&mut underfull).inspect_err(|_| self.note_underfull())?;
                // For lack of space, or as others changed what was met.
                is_left = self.may_be_underfull.load(Ordering::Acquire);
                has_found |= round.found > 0;
                if has_found {
                    self.note_underfull();
                }
                if round.mended > 0 || is_left {
                    // Those that were tried before may be such as can be mended now.
                    underfull.tried.clear();
                }
                if round.mended > 0 || (round.found == MENDED_AT_ONCE && !is_left) {
                    continue;
                }
                if !is_left {
                    rounds_left = 0;
                }
            }
            // What was mended, or would be, may wait for operations of others, which are short.
            if waits_left == 0 || !(has_found || is_left) {
                return Err(failed);
            }
            let waits = if is_left { WAITS_OF_ROUND } else { 1 };
            for _ in 0..waits.min(waits_left) {
                waits_left -= 1;
                thread::yield_now();
                self.pool.reclaim()?;
            }
        }
    }

    /// Tries it when all is free that is kept by nobody; how it has failed for lack of space, and whether something was free by then. What
    /// it has split before it failed may have left blocks.
    fn attempt_with_what_is_free(&self, attempt: &impl Fn() -> Result<()>) -> Result<Option<(Error, bool)>> {
        let mut has_reclaimed = self.pool.reclaim()? > 0;
        let mut attempts_left = ATTEMPTS;
        loop {
            let failed = match attempt() {
                Err(error) if blocks::is_full(&error) => error,
                outcome => return outcome.map(|()| None),
            };
            attempts_left -= 1;
            if attempts_left == 0 || self.pool.reclaim()? == 0 {
                return Ok(Some((failed, has_reclaimed)));
            }
            has_reclaimed = true;
        }
    }

    /// Tries to mend some nodes that were not tried before. One may have too few entries yet, as it was joined with one that had few
    /// itself, or as the node above it was gone.
    fn mend_some(&self, underfull: &mut Underfull) -> Result<Round> {
        let _pinned = self.pool.pin();
        self.lower_root()?;
        let root = self.root()?;
        underfull.visited = 0;
        self.visit_underfull(&root, &mut Path::from_slice(&[root.offset]), underfull)?;
        let paths = std::mem::take(&mut underfull.paths);
        let mut round = Round { found: paths.len(), mended: 0 };
        for path in &paths {
            self.tidy_above(path)?;
            if let &[.., parent, node] = path.as_slice() {
                round.mended += usize::from(!self.links_underfull(parent, node)?);
                underfull.tried.insert(node);
            }
        }
        Ok(round)
    }

    /// Whether a node is part of the tree below this parent and has too few entries.
    fn links_underfull(&self, parent: u64, node: u64) -> Result<bool> {
        let (parent, node) = (self.node(parent)?, self.node(node)?);
        let _lock = self.lock(&parent)?;
        Ok(self.links(&parent, node.offset)? && self.metadata(&node).count() < self.layout.fill_min())
    }

    /// What has changed when it is met is left to the next time; so is what is linked so often that the tree is damaged.
    fn visit_underfull(&self, node: &Node<'_, D, B>, path: &mut Path, underfull: &mut Underfull) -> Result<()> {
        underfull.visited += 1;
        if node.level() == 0 || self.are_too_many(underfull.visited) {
            return Ok(());
        }
        let reading = self.read(node)?;
        let children: Vec<u64> = reading.metadata.slots().map(|slot| node.target(slot)).collect();
        if !self.is_current(&reading) {
            self.note_underfull();
            return Ok(());
        }
        for child in children {
            if underfull.paths.len() == MENDED_AT_ONCE || self.are_too_many(underfull.visited) {
                break;
            }
            let child = self.child(node.level(), child)?;
            path.push(child.offset);
            let is_underfull = self.metadata(&child).count() < self.layout.fill_min();
            if is_underfull && !underfull.tried.contains(&child.offset) {
                underfull.paths.push(path.clone());
            }
            self.visit_underfull(&child, path, underfull)?;
            path.pop();
        }
        Ok(())
    }
}
