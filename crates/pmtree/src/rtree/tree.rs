//! What the R-trees of this crate have in common, so that one can be measured and tested in the place of another.

use std::fmt::Debug;

use terrane_pmem::{Backend, Pool};
use terrane_storage::Storage;

use super::fbr::{Census, FbrTree, Options, SearchMode};
use super::rect::Rect;
use crate::Result;

/// An R-tree in persistent memory: boxes in `D` dimensions, each with a payload of 8 bytes, in a pool of its own.
///
/// It is a multiset, and any number of threads share it. An insertion or deletion is durable when its call returns,
/// and after a crash at any instant it is there whole or not at all. Dropping a tree without
/// [`close`](PersistentRTree::close) is as if the process had been killed. Boxed, trees of different kinds are of one type.
pub trait PersistentRTree<const D: usize>: Debug + Send + Sync {
    /// What the pool's words are reached by.
    type Backend: Backend;

    /// Creates a tree in a new pool under a name that is free.
    fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self>
    where
        Self: Sized;

    /// Opens a tree, and completes or undoes what a crash has left half done.
    fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self>
    where
        Self: Sized;

    /// Inserts a box with a payload. If it fails, the entry is not there.
    fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()>;

    /// Deletes an entry with exactly this box and payload, one if there are several; whether there was one. Coordinates are compared as
    /// numbers, so that a box at -0.0 is the one at 0.0. If it fails, the entry is still there, unless the tree is damaged.
    /// [`FbrTree`] needs no space for it; [`LoggedTree`](crate::LoggedTree) may, for its log.
    fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool>;

    /// Whether there is an entry with exactly this box and payload, as [`PersistentRTree::delete`] compares them.
    fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool>;

    /// Calls `visit` with box and payload of each entry that overlaps a window. A tree that does not know a mode searches
    /// in a way that promises more.
    fn window(&self, window: &Rect<D>, mode: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()>;

    /// The entries closest to a point, no more than `count`: square of the distance, box and payload, the closest first. Squares
    /// are `f64`: distances beyond some 1e154 are one, as are those below some 1e-162. A point that is not finite is refused.
    fn nearest(&self, point: &[f64; D], count: usize, mode: SearchMode) -> Result<Vec<(f64, Rect<D>, u64)>>;

    /// Checks every invariant of the structure, and tells what the tree is made of. Reads all of it.
    fn check(&mut self) -> Result<Census>;

    /// The pool, to count what operations cost.
    fn pool(&self) -> &Pool<Self::Backend>;

    /// Makes all of it durable, also on the page cache, and marks the pool as closed.
    fn close(self: Box<Self>) -> Result<()>;
}

impl<const D: usize, B: Backend> PersistentRTree<D> for FbrTree<D, B> {
    type Backend = B;

    fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::create(storage, name, options)
    }

    fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::open(storage, name, options)
    }

    fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        self.insert(rect, payload)
    }

    fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.delete(rect, payload)
    }

    fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.contains(rect, payload)
    }

    fn window(&self, window: &Rect<D>, mode: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        self.window(window, mode, visit)
    }

    fn nearest(&self, point: &[f64; D], count: usize, mode: SearchMode) -> Result<Vec<(f64, Rect<D>, u64)>> {
        self.nearest(point, count, mode)
    }

    fn check(&mut self) -> Result<Census> {
        self.check()
    }

    fn pool(&self) -> &Pool<B> {
        self.pool()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Self::close(*self)
    }
}
