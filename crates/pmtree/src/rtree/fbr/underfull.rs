//! Who finds no space takes what is retired and kept by nobody, and mends what deletions had no
//! space to mend.
//!
//! A merge takes a slot of the pool, and on a full disk there may be none while readers keep them
//! all. The deletion is durable without it; but the block of a leaf that is empty then is no
//! other's, also after the pool was opened again.

use std::collections::HashSet;

use terrane_pmem::Backend;
use terrane_storage::sync::{Ordering, thread};

use super::node::Node;
use super::tree::FbrTree;
use crate::blocks;
use crate::rtree::search::Path;
use crate::{Error, Result};

/// Nodes that are mended under one guard, which keeps their blocks and slots: a round.
const MENDED_AT_ONCE: usize = 8;

/// Rounds in a row that release something which does not come free, as readers keep it.
const BARREN_ROUNDS: usize = 8;

/// How often the tree is gone over.
const WALKS: usize = 64;

/// How often is tried what has failed, with what others, or it itself, have left.
const ATTEMPTS: usize = 8;

/// How often is waited for what others hold, and how often before nodes are looked for again.
const WAITS: usize = 64;
const WAITS_OF_WALK: usize = 8;

/// A walk over nodes with too few entries, a few at a time.
#[derive(Debug, Default)]
struct Walk {
    /// Those that were tried before.
    tried: HashSet<u64>,
    /// Others, each with the nodes above it from the root down.
    paths: Vec<Path>,
    /// The slots from the root down to the last of them. What has changed before it is for another
    /// walk.
    place: Vec<usize>,
    visited: usize,
    mended: usize,
}

/// What came of some of them.
#[derive(Debug, Default)]
struct Round {
    found: usize,
    mended: usize,
    /// Whether blocks were released.
    has_released: bool,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Notes that a node was left with too few entries, or a root with one child.
    pub(super) fn note_underfull(&self) {
        self.may_be_underfull.store(true, Ordering::Release);
    }

    /// Tries something that has failed for lack of space again: when what is retired and kept by
    /// nobody is free, after a few nodes that have too few entries were mended, and after more of
    /// them, until it succeeds, or none are left that can be mended, or readers keep what is
    /// released. One thread is at it at a time; others wait for what comes of it.
    pub(super) fn find_space_for(&self, attempt: impl Fn() -> Result<()>) -> Result<()> {
        let _mending = self.mending.lock();
        let mut walk = Walk::default();
        let (mut walks_left, mut barren_left, mut waits_left) = (WALKS, BARREN_ROUNDS, WAITS);
        let mut has_found = false;
        loop {
            let Some((failed, has_reclaimed)) = self.attempt_with_what_is_free(&attempt)? else { return Ok(()) };
            if has_reclaimed {
                barren_left = BARREN_ROUNDS;
            }
            let mut is_left = false;
            if walks_left > 0 && barren_left > 0 && self.may_be_underfull.swap(false, Ordering::AcqRel) {
                let round = self.mend_some(&mut walk).inspect_err(|_| self.note_underfull())?;
                // For lack of space, or as others changed what was met.
                is_left = self.may_be_underfull.load(Ordering::Acquire);
                has_found |= round.found > 0;
                if has_found {
                    self.note_underfull();
                }
                barren_left -= usize::from(round.has_released);
                if round.mended == 0 && is_left {
                    walk = Walk::default();
                } else if round.found == MENDED_AT_ONCE {
                    continue;
                } else {
                    // Some may have too few entries yet, as they were joined with others that had
                    // few, or as the nodes above them were gone.
                    walks_left = if walk.mended > 0 { walks_left - 1 } else { 0 };
                    walk = Walk::default();
                    continue;
                }
            }
            // What was mended, or would be, may wait for operations of others, which are short.
            if waits_left == 0 || !(has_found || is_left) {
                return Err(failed);
            }
            let waits = if is_left { WAITS_OF_WALK } else { 1 };
            for _ in 0..waits.min(waits_left) {
                waits_left -= 1;
                thread::yield_now();
                self.pool.reclaim()?;
            }
        }
    }

    /// Tries it when all is free that is kept by nobody; how it has failed for lack of space, and
    /// whether something was free by then. What it has split before it failed may have left blocks.
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

    /// Goes on with a walk, and tries to mend the next nodes; fewer than [`MENDED_AT_ONCE`] at its
    /// end.
    fn mend_some(&self, walk: &mut Walk) -> Result<Round> {
        let _pinned = self.pool.pin();
        self.lower_root()?;
        let root = self.root()?;
        let from = std::mem::take(&mut walk.place);
        self.visit_underfull(&root, &from, (&mut Path::from_slice(&[root.offset]), &mut Vec::new()), walk)?;
        let paths = std::mem::take(&mut walk.paths);
        let mut round = Round { found: paths.len(), ..Round::default() };
        for path in &paths {
            self.tidy_above(path)?;
            if let &[.., parent, node] = path.as_slice() {
                walk.tried.insert(node);
                self.note_mended(parent, node, &mut round)?;
            }
        }
        walk.mended += round.mended;
        Ok(round)
    }

    /// Notes what has come of a node below a parent, if that is part of the tree.
    fn note_mended(&self, parent: u64, node: u64, round: &mut Round) -> Result<()> {
        let (parent, node) = (self.node(parent)?, self.node(node)?);
        let _lock = self.lock(&parent)?;
        if self.is_unlinked(&parent) {
            return Ok(());
        }
        let is_linked = self.links(&parent, node.offset)?;
        round.has_released |= !is_linked;
        round.mended += usize::from(!is_linked || self.metadata(&node).count() >= self.fill_min);
        Ok(())
    }

    /// Collects nodes behind the slots that lead to a place. What has changed when it is met is
    /// left to the next time; so is what is linked so often that the tree is damaged.
    fn visit_underfull(
        &self,
        node: &Node<'_, D, B>,
        from: &[usize],
        (path, slots): (&mut Path, &mut Vec<usize>),
        walk: &mut Walk,
    ) -> Result<()> {
        walk.visited += usize::from(from.is_empty());
        if node.level() == 0 || self.are_too_many(walk.visited) {
            return Ok(());
        }
        let reading = self.read(node)?;
        let first = from.first().copied().unwrap_or(0);
        let behind = reading.metadata.slots().filter(|&slot| slot >= first);
        let children: Vec<(usize, u64)> = behind.map(|slot| (slot, node.target(slot))).collect();
        if !self.is_current(&reading) {
            self.note_underfull();
            return Ok(());
        }
        for (slot, child) in children {
            if walk.paths.len() == MENDED_AT_ONCE || self.are_too_many(walk.visited) {
                break;
            }
            let child = self.child(node.level(), child)?;
            path.push(child.offset);
            slots.push(slot);
            let is_underfull = self.metadata(&child).count() < self.fill_min;
            if is_underfull && !walk.tried.contains(&child.offset) {
                walk.paths.push(path.clone());
                walk.place.clone_from(slots);
            }
            let from = if from.first() == Some(&slot) { &from[1..] } else { &[] };
            self.visit_underfull(&child, from, (path, slots), walk)?;
            path.pop();
            slots.pop();
        }
        Ok(())
    }
}
