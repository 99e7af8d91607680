//! Recovery from a lack of space: operations reclaim retired blocks that nobody keeps, and repair
//! nodes that deletions had no space to repair.
//!
//! A merge takes a slot of the pool. On a full disk there may be none while readers keep all of
//! them. The deletion is durable without the merge. But the block of a leaf that is empty then
//! cannot be reused, even after the pool was opened again.

use std::collections::HashSet;

use terrane_pmem::Backend;
use terrane_storage::sync::{Ordering, thread};

use super::node::Node;
use super::tree::FbrTree;
use crate::blocks;
use crate::rtree::search::Path;
use crate::{Error, Result};

/// Nodes that are repaired in a round, under one guard. The guard keeps their blocks and slots.
const REPAIRED_AT_ONCE: usize = 8;

/// The most consecutive rounds that release blocks which readers then keep.
const BARREN_ROUNDS: usize = 8;

/// The most walks over the tree.
const WALKS: usize = 64;

/// The most retries with space that others, or the operation itself, have left.
const ATTEMPTS: usize = 8;

/// The most waits for space that others hold, and the waits before nodes are searched for again.
const WAITS: usize = 64;
const WAITS_OF_WALK: usize = 8;

/// A walk over nodes with too few entries, a few at a time.
#[derive(Debug, Default)]
struct Walk {
    /// Nodes that were tried before.
    tried: HashSet<u64>,
    /// Other nodes, each with the nodes above it from the root down.
    paths: Vec<Path>,
    /// The slots from the root down to the last of them. Changes before it are left to another
    /// walk.
    place: Vec<usize>,
    visited: usize,
    repaired: usize,
}

/// The result of a round.
#[derive(Debug, Default)]
struct Round {
    found: usize,
    repaired: usize,
    /// Whether blocks were released.
    has_released: bool,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Notes that a node was left with too few entries, or a root with one child.
    pub(super) fn note_underfull(&self) {
        self.may_be_underfull.store(true, Ordering::Release);
    }

    /// Retries an operation that has failed for lack of space. It does so when retired blocks that
    /// nobody keeps are free, and again after each round of repairing nodes with too few entries.
    /// It ends in one of three ways: the operation succeeds; no node is left to repair; or readers
    /// keep the released blocks. One thread does this at a time, and the others wait for its
    /// result.
    pub(super) fn retry_with_space(&self, attempt: impl Fn() -> Result<()>) -> Result<()> {
        let _mending = self.repairing.lock();
        let mut walk = Walk::default();
        let (mut walks_left, mut barren_left, mut waits_left) = (WALKS, BARREN_ROUNDS, WAITS);
        let mut has_found = false;
        loop {
            let Some((failed, has_reclaimed)) = self.attempt_after_reclaim(&attempt)? else { return Ok(()) };
            if has_reclaimed {
                barren_left = BARREN_ROUNDS;
            }
            let mut is_left = false;
            if walks_left > 0 && barren_left > 0 && self.may_be_underfull.swap(false, Ordering::AcqRel) {
                let round = self.repair_some(&mut walk).inspect_err(|_| self.note_underfull())?;
                // For lack of space, or because others changed the nodes.
                is_left = self.may_be_underfull.load(Ordering::Acquire);
                has_found |= round.found > 0;
                if has_found {
                    self.note_underfull();
                }
                barren_left -= usize::from(round.has_released);
                if round.repaired == 0 && is_left {
                    walk = Walk::default();
                } else if round.found == REPAIRED_AT_ONCE {
                    continue;
                } else {
                    // Some may still have too few entries: they were merged with others that had
                    // few, or the nodes above them were gone.
                    walks_left = if walk.repaired > 0 { walks_left - 1 } else { 0 };
                    walk = Walk::default();
                    continue;
                }
            }
            // Repaired nodes, or those to repair, may wait for operations of others, which are
            // short.
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

    /// Tries the operation when every block that nobody keeps is free. Gives how it has failed for
    /// lack of space, and whether something became free. The nodes that it has split before it
    /// failed may have left blocks.
    fn attempt_after_reclaim(&self, attempt: &impl Fn() -> Result<()>) -> Result<Option<(Error, bool)>> {
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

    /// Continues a walk, and tries to repair the next nodes; fewer than [`REPAIRED_AT_ONCE`] at its
    /// end.
    fn repair_some(&self, walk: &mut Walk) -> Result<Round> {
        let _pinned = self.pool.pin();
        self.lower_root()?;
        let root = self.root()?;
        let from = std::mem::take(&mut walk.place);
        self.visit_underfull(&root, &from, (&mut Path::from_slice(&[root.offset]), &mut Vec::new()), walk)?;
        let paths = std::mem::take(&mut walk.paths);
        let mut round = Round { found: paths.len(), ..Round::default() };
        for path in &paths {
            self.repair_above(path)?;
            if let &[.., parent, node] = path.as_slice() {
                walk.tried.insert(node);
                self.note_repaired(parent, node, &mut round)?;
            }
        }
        walk.repaired += round.repaired;
        Ok(round)
    }

    /// Records the result for a node below a parent, if that is part of the tree.
    fn note_repaired(&self, parent: u64, node: u64, round: &mut Round) -> Result<()> {
        let (parent, node) = (self.node(parent)?, self.node(node)?);
        let _lock = self.lock(&parent)?;
        if self.is_unlinked(&parent) {
            return Ok(());
        }
        let is_linked = self.links(&parent, node.offset)?;
        round.has_released |= !is_linked;
        round.repaired += usize::from(!is_linked || self.metadata(&node).count() >= self.fill_min);
        Ok(())
    }

    /// Collects nodes behind the slots that lead to a place. Nodes that change meanwhile are left
    /// to the next time. So are links that repeat so often that the tree must be damaged.
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
            if walk.paths.len() == REPAIRED_AT_ONCE || self.are_too_many(walk.visited) {
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
