//! The tree below a map, whatever the words of its keys are.

use std::fmt::Debug;
use std::ops::{Bound, ControlFlow};

use terrane_pmem::{Backend, Pool};
use terrane_storage::Storage;

use super::key::KeyWords;
use super::value::Slot;
use crate::btree::{BTree, Census, Extension, Options, PersistentUnsorted};
use crate::{Error, Result};

/// Calls of a scan: an entry, and whether to continue.
pub(super) type VisitWords<'a> = &'a mut dyn FnMut(&[u64], &Slot) -> ControlFlow<()>;

/// Look-ups that take turns.
const BATCH: usize = 8;

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// A B+-tree with keys of some words. Keys that are given have that number of words.
pub(super) trait Tree<B: Backend>: Debug + Send + Sync {
    fn key_words(&self) -> usize;
    fn pool(&self) -> &Pool<B>;
    /// Offset of the words behind its log.
    fn extension(&self) -> u64;
    fn get(&self, key: &[u64]) -> Result<Option<Slot>>;
    /// Inserts or changes an entry if its slot before is accepted. Gives that slot.
    fn upsert_if(&self, key: &[u64], slot: &Slot, accepts: &dyn Fn(Option<&Slot>) -> bool) -> Result<Option<Slot>>;
    /// Removes an entry if its slot is accepted. Gives the slot.
    fn remove_if(&self, key: &[u64], accepts: &dyn Fn(&Slot) -> bool) -> Result<Option<Slot>>;
    /// Looks up keys in turns. Calls `visit` with the number of each and its slot, while the pool
    /// is pinned.
    fn get_many(&self, keys: &[KeyWords], visit: &mut dyn FnMut(usize, Option<&Slot>)) -> Result<()>;
    /// Visits the entries of a range in the order of their keys, or backwards.
    fn scan(&self, keys: (Bound<&[u64]>, Bound<&[u64]>), order: Order, visit: VisitWords<'_>) -> Result<()>;
    fn check(&mut self, owned: &dyn Fn(&Slot) -> Option<(u64, u64)>) -> Result<Census>;
    fn close(self: Box<Self>) -> Result<()>;
}

impl<const K: usize, B: Backend> Tree<B> for BTree<PersistentUnsorted, K, 2, B> {
    fn key_words(&self) -> usize {
        K
    }

    fn pool(&self) -> &Pool<B> {
        self.pool()
    }

    fn extension(&self) -> u64 {
        self.extension()
    }

    fn get(&self, key: &[u64]) -> Result<Option<Slot>> {
        self.get(&array(key))
    }

    fn upsert_if(&self, key: &[u64], slot: &Slot, accepts: &dyn Fn(Option<&Slot>) -> bool) -> Result<Option<Slot>> {
        self.upsert_if(&array(key), slot, accepts)
    }

    fn remove_if(&self, key: &[u64], accepts: &dyn Fn(&Slot) -> bool) -> Result<Option<Slot>> {
        self.remove_if(&array(key), accepts)
    }

    fn get_many(&self, keys: &[KeyWords], visit: &mut dyn FnMut(usize, Option<&Slot>)) -> Result<()> {
        let keys: Vec<[u64; K]> = keys.iter().map(|key| array(key)).collect();
        self.get_many(&keys, BATCH, visit)
    }

    fn scan(&self, (from, to): (Bound<&[u64]>, Bound<&[u64]>), order: Order, visit: VisitWords<'_>) -> Result<()> {
        let keys = (from.map(array::<K>), to.map(array::<K>));
        match order {
            Order::Ascending => self.range(keys, |key, slot| visit(key, slot)),
            Order::Descending => self.range_back(keys, |key, slot| visit(key, slot)),
        }
    }

    fn check(&mut self, owned: &dyn Fn(&Slot) -> Option<(u64, u64)>) -> Result<Census> {
        self.check_with(owned)
    }

    fn close(self: Box<Self>) -> Result<()> {
        BTree::close(*self)
    }
}

fn array<const K: usize>(key: &[u64]) -> [u64; K] {
    std::array::from_fn(|word| key.get(word).copied().unwrap_or(0))
}

/// Creates a tree with keys of this number of words, or opens it.
pub(super) fn make<B: Backend + 'static>(
    (storage, name): (&dyn Storage, &str),
    key_words: u64,
    options: &Options,
    extension: &Extension<B>,
    is_new: bool,
) -> Result<Box<dyn Tree<B>>> {
    fn of_width<const K: usize, B: Backend + 'static>(
        (storage, name): (&dyn Storage, &str),
        options: &Options,
        extension: &Extension<B>,
        is_new: bool,
    ) -> Result<Box<dyn Tree<B>>> {
        type Of<const K: usize, B> = BTree<PersistentUnsorted, K, 2, B>;
        Ok(Box::new(match is_new {
            true => Of::<K, B>::create_extended(storage, name, options, extension)?,
            false => Of::<K, B>::open_extended(storage, name, options, extension)?,
        }))
    }
    match key_words {
        1 => of_width::<1, B>((storage, name), options, extension, is_new),
        2 => of_width::<2, B>((storage, name), options, extension, is_new),
        4 => of_width::<4, B>((storage, name), options, extension, is_new),
        8 => of_width::<8, B>((storage, name), options, extension, is_new),
        _ => Err(Error::KeySlot { length: key_words * 8 }),
    }
}
