//! The common interface of the trees of the family, whatever their method is.

use std::ops::{Bound, ControlFlow};

use terrane_pmem::Backend;

use super::method::Method;
use super::operations::Compared;
use super::tree::BTree;
use crate::{PersistentTree, Result};

/// Calls of a scan: an entry, and whether to continue.
pub type Visit<'a, const K: usize, const V: usize> = &'a mut dyn FnMut(&[u64; K], &[u64; V]) -> ControlFlow<()>;

/// A map from keys of `K` words to values of `V` words. The methods are those of [`BTree`].
pub trait PersistentMap<const K: usize, const V: usize>: PersistentTree {
    /// See [`BTree::get`].
    fn get(&self, key: &[u64; K]) -> Result<Option<[u64; V]>>;

    /// See [`BTree::insert`].
    fn insert(&self, key: &[u64; K], value: &[u64; V]) -> Result<bool>;

    /// See [`BTree::update`].
    fn update(&self, key: &[u64; K], value: &[u64; V]) -> Result<Option<[u64; V]>>;

    /// See [`BTree::upsert`].
    fn upsert(&self, key: &[u64; K], value: &[u64; V]) -> Result<Option<[u64; V]>>;

    /// See [`BTree::compare_and_update`].
    fn compare_and_update(&self, key: &[u64; K], expected: &[u64; V], value: &[u64; V]) -> Result<Compared<V>>;

    /// See [`BTree::remove`].
    fn remove(&self, key: &[u64; K]) -> Result<Option<[u64; V]>>;

    /// See [`BTree::range`].
    fn range(&self, keys: (Bound<[u64; K]>, Bound<[u64; K]>), visit: Visit<'_, K, V>) -> Result<()>;

    /// See [`BTree::range_back`].
    fn range_back(&self, keys: (Bound<[u64; K]>, Bound<[u64; K]>), visit: Visit<'_, K, V>) -> Result<()>;
}

impl<M: Method, const K: usize, const V: usize, B: Backend> PersistentMap<K, V> for BTree<M, K, V, B> {
    fn get(&self, key: &[u64; K]) -> Result<Option<[u64; V]>> {
        self.get(key)
    }

    fn insert(&self, key: &[u64; K], value: &[u64; V]) -> Result<bool> {
        self.insert(key, value)
    }

    fn update(&self, key: &[u64; K], value: &[u64; V]) -> Result<Option<[u64; V]>> {
        self.update(key, value)
    }

    fn upsert(&self, key: &[u64; K], value: &[u64; V]) -> Result<Option<[u64; V]>> {
        self.upsert(key, value)
    }

    fn compare_and_update(&self, key: &[u64; K], expected: &[u64; V], value: &[u64; V]) -> Result<Compared<V>> {
        self.compare_and_update(key, expected, value)
    }

    fn remove(&self, key: &[u64; K]) -> Result<Option<[u64; V]>> {
        self.remove(key)
    }

    fn range(&self, keys: (Bound<[u64; K]>, Bound<[u64; K]>), visit: Visit<'_, K, V>) -> Result<()> {
        self.range(keys, visit)
    }

    fn range_back(&self, keys: (Bound<[u64; K]>, Bound<[u64; K]>), visit: Visit<'_, K, V>) -> Result<()> {
        self.range_back(keys, visit)
    }
}
