//! The costs of insertions into a tree of a pool: counters, and CPU time.

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::{Backend, CPU_CACHE_LENGTH, Counted, Counters, Native, Pool, Traced};
use terrane_pmtree::pmr::UnpartitionedTree;
use terrane_pmtree::{PersistenceDomain, PersistentRTree, Rect};
use terrane_storage::{RealStorage, Storage};
use terrane_testkit::MemoryStorage;

use super::Setup;
use crate::measure;

/// A tree of any kind.
pub type Tree<B> = Box<dyn PersistentRTree<3, Backend = B>>;
/// A back-end that counts.
pub type Counting = Counted<Traced>;

/// A tree that grows.
pub trait Growing {
    /// The back-end of its pool.
    type Backend: Backend;

    /// Inserts a box with a payload.
    fn insert(&self, rect: &Rect<3>, payload: u64) -> terrane_pmtree::Result<()>;

    /// Its pool.
    fn pool(&self) -> &Pool<Self::Backend>;
}

impl<B: Backend> Growing for Tree<B> {
    type Backend = B;

    fn insert(&self, rect: &Rect<3>, payload: u64) -> terrane_pmtree::Result<()> {
        (**self).insert(rect, payload)
    }

    fn pool(&self) -> &Pool<B> {
        (**self).pool()
    }
}

impl<B: Backend> Growing for UnpartitionedTree<3, B> {
    type Backend = B;

    fn insert(&self, rect: &Rect<3>, payload: u64) -> terrane_pmtree::Result<()> {
        self.insert(rect, payload)
    }

    fn pool(&self) -> &Pool<B> {
        self.pool()
    }
}

/// The counters of all insertions together. A line that one insertion flushes twice counts twice.
pub fn counted<T: Growing<Backend = Counting>>(
    create: impl FnOnce(&dyn Storage, PersistenceDomain) -> Result<T>,
    boxes: impl Iterator<Item = Rect<3>>,
) -> Result<Counters> {
    let tree = create(&MemoryStorage::new(), PersistenceDomain::Adr)?;
    tree.pool().backend().reset(CPU_CACHE_LENGTH);
    insert(&tree, boxes)?;
    tree.pool().backend().drain_media();
    Ok(tree.pool().backend().take())
}

/// The CPU time of an insertion, in nanoseconds, into a pool in the page cache.
pub fn cpu_per_insertion<T: Growing<Backend = Native>>(
    setup: &Setup,
    create: impl FnOnce(&dyn Storage, PersistenceDomain) -> Result<T>,
    boxes: impl Iterator<Item = Rect<3>>,
) -> Result<f64> {
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let tree = create(&storage, PersistenceDomain::PageCache)?;
    let boxes: Vec<_> = boxes.collect();
    let start = measure::thread_cpu();
    insert(&tree, boxes.iter().copied())?;
    Ok((measure::thread_cpu() - start).as_nanos() as f64 / boxes.len() as f64)
}

fn insert(tree: &impl Growing, boxes: impl Iterator<Item = Rect<3>>) -> Result<()> {
    for (payload, rect) in (0..).zip(boxes) {
        tree.insert(&rect, payload)?;
    }
    Ok(())
}

/// The *Random* boxes of the PM-RTREE's paper: lower corners uniform from 0 to 1, upper ones from 1
/// to 2.
#[derive(Clone, Debug)]
pub struct RandomBoxes(StdRng);

impl RandomBoxes {
    /// Boxes that a seed determines.
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }
}

impl Iterator for RandomBoxes {
    type Item = Rect<3>;

    fn next(&mut self) -> Option<Rect<3>> {
        let mut corner = |least: f64| std::array::from_fn(|_| least + self.0.random_range(0.0..1.0));
        Rect::new(corner(0.0), corner(1.0)).ok()
    }
}
