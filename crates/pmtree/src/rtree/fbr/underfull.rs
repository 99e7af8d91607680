//! What deletions had no space to mend is mended by who needs the space.
//!
//! A merge takes a slot of the pool, and on a full disk there may be none while readers keep them all. The deletion is durable without
//! it; but the block of a leaf that is empty then is no other's, also after the pool was opened again.

use std::collections::HashSet;

use terrane_pmem::Backend;
use terrane_storage::sync::{Ordering, thread};

use super::FbrTree;
use super::delete::Path;
use super::node::Node;
use crate::Result;
use crate::rtree::blocks;

/// Nodes that are mended under one guard, which keeps their blocks and slots.
const MENDED_AT_ONCE: usize = 8;

/// How often is waited for what others hold.
const WAITS: usize = 64;

/// Nodes with too few entries.
#[derive(Default)]
struct Underfull {
    /// Those that were tried before.
    tried: HashSet<u64>,
    /// Others, each with the nodes above it from the root down.
    paths: Vec<Path>,
    visited: usize,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Notes that a node was left with too few entries, or a root with one child.
    pub(super) fn note_underfull(&self) {
        self.may_be_underfull.store(true, Ordering::Release);
    }

    /// Tries something that has failed for lack of space again, after a few nodes that have too few entries were mended, and again after
    /// more of them, until it succeeds, or there is none left or no space to mend any. One thread is at it at a time; others wait for
    /// what comes of it.
    pub(super) fn find_space_for(&self, attempt: impl Fn() -> Result<()>) -> Result<()> {
        let _mending = self.mending.lock();
        let mut underfull = Underfull::default();
        let (mut has_found, mut is_walked, mut waits_left) = (false, false, WAITS);
        loop {
            let failed = match attempt() {
                Err(error) if blocks::is_full(&error) => error,
                outcome => return outcome,
            };
            let mut is_left = false;
            if !is_walked && self.may_be_underfull.swap(false, Ordering::AcqRel) {
                let found = self.mend_some(&mut underfull)?;
                // For lack of space, or as others changed what was met.
                is_left = self.may_be_underfull.load(Ordering::Acquire);
                has_found |= found > 0;
                if has_found {
                    self.note_underfull();
                }
                if is_left {
                    underfull.tried.clear();
                } else {
                    is_walked = found < MENDED_AT_ONCE;
                    self.pool.reclaim()?;
                    continue;
                }
            }
            // What was mended, or would be, may wait for operations of others, which are short.
            if waits_left == 0 || !(has_found || is_left) {
                return Err(failed);
            }
            waits_left -= 1;
            thread::yield_now();
            self.pool.reclaim()?;
        }
    }

    /// Tries to mend some nodes that were not tried before; how many there were.
    fn mend_some(&self, underfull: &mut Underfull) -> Result<usize> {
        let _pinned = self.pool.pin();
        self.lower_root()?;
        let root = self.root()?;
        underfull.visited = 0;
        self.visit_underfull(&root, &mut Path::from_slice(&[root.offset]), underfull)?;
        let paths = std::mem::take(&mut underfull.paths);
        paths.iter().try_for_each(|path| self.tidy_above(path))?;
        underfull.tried.extend(paths.iter().filter_map(|path| path.last()));
        Ok(paths.len())
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
