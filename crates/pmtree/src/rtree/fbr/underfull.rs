//! What deletions had no space to mend is mended by who needs the space.
//!
//! A merge takes a slot of the pool, and on a full disk there may be none while readers keep them all. The deletion is durable without
//! it; but the block of a leaf that is empty then is no other's, also after the pool was opened again.

use terrane_pmem::Backend;
use terrane_storage::sync::Ordering;

use super::FbrTree;
use super::delete::Path;
use super::node::Node;
use crate::rtree::blocks;
use crate::{Error, Result};

/// Nodes that are mended under one guard, which keeps their blocks and slots.
const MENDED_AT_ONCE: usize = 8;

/// Nodes with too few entries, each with those above it from the root down.
struct Underfull {
    /// Not wanted: so many of the first.
    passed_over: usize,
    paths: Vec<Path>,
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Notes that a node was left with too few entries.
    pub(super) fn note_underfull(&self) {
        self.may_be_underfull.store(true, Ordering::Relaxed);
    }

    /// Tries something that has failed for lack of space again, after a few nodes that have too few entries were mended, and again after
    /// more of them, until it succeeds, or there is none left or no space to mend any.
    pub(super) fn find_space_for(&self, attempt: impl Fn() -> Result<()>, mut failed: Error) -> Result<()> {
        let mut passed_over = 0;
        while self.may_be_underfull.swap(false, Ordering::Relaxed) {
            let found = self.mend_some(passed_over)?;
            let is_without_space = self.may_be_underfull.load(Ordering::Relaxed);
            if found > 0 || passed_over > 0 {
                self.note_underfull();
            }
            self.pool.reclaim()?;
            match attempt() {
                Err(error) if blocks::is_without_space(&error) => failed = error,
                outcome => return outcome,
            }
            if found == 0 || is_without_space {
                break;
            }
            passed_over += found;
        }
        Err(failed)
    }

    /// Tries to mend some nodes behind those that are passed over; how many there were.
    fn mend_some(&self, passed_over: usize) -> Result<usize> {
        let _pinned = self.pool.pin();
        let root = self.root()?;
        let mut underfull = Underfull { passed_over, paths: Vec::new() };
        self.visit_underfull(&root, &mut Path::from_slice(&[root.offset]), &mut underfull)?;
        underfull.paths.iter().try_for_each(|path| self.tidy_above(path))?;
        Ok(underfull.paths.len())
    }

    /// What has changed when it is met is left to the next time.
    fn visit_underfull(&self, node: &Node<'_, D, B>, path: &mut Path, underfull: &mut Underfull) -> Result<()> {
        if node.level() == 0 {
            return Ok(());
        }
        let reading = self.read(node)?;
        let children: Vec<u64> = reading.metadata.slots().map(|slot| node.target(slot)).collect();
        if !self.is_current(&reading) {
            return Ok(());
        }
        for child in children {
            let child = self.child(node.level(), child)?;
            path.push(child.offset);
            if self.metadata(&child).count() < self.layout.fill_min() {
                match underfull.passed_over.checked_sub(1) {
                    Some(left) => underfull.passed_over = left,
                    None => underfull.paths.push(path.clone()),
                }
            }
            if underfull.paths.len() < MENDED_AT_ONCE {
                self.visit_underfull(&child, path, underfull)?;
            }
            path.pop();
            if underfull.paths.len() == MENDED_AT_ONCE {
                break;
            }
        }
        Ok(())
    }
}
