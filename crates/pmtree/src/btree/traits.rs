//! The tree under the common interface.

use terrane_pmem::{Backend, Pool};
use terrane_storage::Storage;

use super::check::Census;
use super::method::Method;
use super::options::Options;
use super::tree::BTree;
use crate::{Durability, PersistentTree, Result};

impl<M: Method, const K: usize, const V: usize, B: Backend> PersistentTree for BTree<M, K, V, B> {
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
        match M::IS_DURABLE {
            true => Durability::of_medium(self.pool().backend().domain()),
            false => Durability::CleanClose,
        }
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
