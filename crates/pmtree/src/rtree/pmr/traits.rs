//! The tree under the common interfaces.

use terrane_pmem::{Backend, Pool};
use terrane_storage::Storage;

use super::options::Options;
use super::tree::PmrTree;
use crate::{Census, Durability, NearestSearch, PersistentRTree, PersistentTree, Rect, Result};

impl<const D: usize, B: Backend> PersistentTree for PmrTree<D, B> {
    type Backend = B;
    type Options = Options;
    type Census = Census;

    fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::create(storage, name, options)
    }

    fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::open(storage, name, options)
    }

    fn durability(&self) -> Durability {
        Durability::of_medium(self.pool().backend().domain())
    }

    fn pool(&self) -> &Pool<B> {
        self.pool()
    }

    fn check(&mut self) -> Result<Census> {
        self.check()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Self::close(*self)
    }
}

impl<const D: usize, B: Backend> PersistentRTree<D> for PmrTree<D, B> {
    fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        self.insert(rect, payload)
    }

    fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.delete(rect, payload)
    }

    fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        self.contains(rect, payload)
    }

    fn window(&self, window: &Rect<D>, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        self.window(window, visit)
    }
}

impl<const D: usize, B: Backend> NearestSearch<D> for PmrTree<D, B> {
    fn nearest(
        &self,
        point: &[f64; D],
        count: usize,
        accepts: &dyn Fn(&Rect<D>, u64) -> bool,
    ) -> Result<Vec<(f64, Rect<D>, u64)>> {
        self.nearest(point, count, accepts)
    }
}
