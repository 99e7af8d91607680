//! The costs of insertions into a tree of a pool: counters, and CPU time.

use anyhow::Result;
use terrane_pmem::{Backend, CPU_CACHE_LENGTH, Counted, Counters, Native, Traced};
use terrane_pmtree::{PersistenceDomain, PersistentRTree, Rect};
use terrane_storage::{RealStorage, Storage};
use terrane_testkit::MemoryStorage;

use super::Setup;
use crate::measure;

/// A tree of any kind.
pub type Tree<B> = Box<dyn PersistentRTree<3, Backend = B>>;
/// A back-end that counts.
pub type Counting = Counted<Traced>;

/// The counters of all insertions together. A line that one insertion flushes twice counts twice.
pub fn counted(
    create: impl FnOnce(&dyn Storage, PersistenceDomain) -> Result<Tree<Counting>>,
    boxes: impl Iterator<Item = Rect<3>>,
) -> Result<Counters> {
    let tree = create(&MemoryStorage::new(), PersistenceDomain::Adr)?;
    tree.pool().backend().reset(CPU_CACHE_LENGTH);
    insert(&tree, boxes)?;
    tree.pool().backend().drain_media();
    Ok(tree.pool().backend().take())
}

/// The CPU time of an insertion, in nanoseconds, into a pool in the page cache.
pub fn cpu_per_insertion(
    setup: &Setup,
    create: impl FnOnce(&dyn Storage, PersistenceDomain) -> Result<Tree<Native>>,
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

fn insert<B: Backend>(tree: &Tree<B>, boxes: impl Iterator<Item = Rect<3>>) -> Result<()> {
    for (payload, rect) in (0..).zip(boxes) {
        tree.insert(&rect, payload)?;
    }
    Ok(())
}
