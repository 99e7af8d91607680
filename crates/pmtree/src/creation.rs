//! Making a tree's file.

use terrane_pmem::{Backend, Found, Pool};
use terrane_storage::Storage;

use crate::Result;

/// The options of a tree's pool: those that were asked for, with the layout that the tree has.
pub(crate) fn pool_options(layout_id: u64, asked: &terrane_pmem::Options) -> terrane_pmem::Options {
    terrane_pmem::Options { layout_id, ..asked.clone() }
}

/// Creates a pool and what `plant` puts into it, and gives both. Where that fails, as on a full
/// disk or with chunks too short for a block of the tree, the name is free again.
///
/// A crash in between leaves a pool without a tree, which opening fills.
pub(crate) fn create<B: Backend, T>(
    storage: &dyn Storage,
    name: &str,
    options: &terrane_pmem::Options,
    plant: impl FnOnce(&Pool<B>) -> Result<T>,
) -> Result<(Pool<B>, T)> {
    let pool = Pool::create(storage, name, options)?;
    match plant(&pool) {
        Ok(planted) => Ok((pool, planted)),
        Err(error) => {
            // The pool is locked until it is dropped: nobody has it open. What cannot be removed is
            // as after a crash.
            let _ = storage.remove(name);
            Err(error)
        }
    }
}

/// Takes a pool in which a crash has left no tree yet, and puts into it what `plant` does; gives
/// both. Where the pool has blocks, it has lost a tree: that is an error, and its file is left as
/// it is.
pub(crate) fn complete<B: Backend, T>(
    found: Found<B>,
    plant: impl FnOnce(&Pool<B>) -> Result<T>,
) -> Result<(Pool<B>, T)> {
    found.check_vacant()?;
    let pool = found.take()?;
    let planted = plant(&pool)?;
    Ok((pool, planted))
}
