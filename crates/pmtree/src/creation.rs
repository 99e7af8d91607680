//! Creation of a tree's file.

use terrane_pmem::{Backend, Found, Pool};
use terrane_storage::Storage;

use crate::Result;

/// The given options of a tree's pool, with the tree's layout.
pub(crate) fn pool_options(layout_id: u64, asked: &terrane_pmem::Options) -> terrane_pmem::Options {
    terrane_pmem::Options { layout_id, ..asked.clone() }
}

/// Creates a pool, lets `initialise` fill it, and gives both results. If that fails, the name is
/// free again: for example on a full disk, or with chunks too short for a block of the tree.
///
/// A crash in between leaves a pool without a tree, which opening fills.
pub(crate) fn create<B: Backend, T>(
    storage: &dyn Storage,
    name: &str,
    options: &terrane_pmem::Options,
    initialise: impl FnOnce(&Pool<B>) -> Result<T>,
) -> Result<(Pool<B>, T)> {
    let pool = Pool::create(storage, name, options)?;
    match initialise(&pool) {
        Ok(result) => Ok((pool, result)),
        Err(error) => {
            // The pool is locked until it is dropped, so nobody has it open. A file that cannot be
            // removed is as after a crash.
            let _ = storage.remove(name);
            Err(error)
        }
    }
}

/// Takes a pool in which a crash has left no tree yet, lets `initialise` fill it, and gives both
/// results. It is an error if the pool has blocks, since it has lost a tree then; its file is
/// unchanged.
pub(crate) fn complete<B: Backend, T>(
    found: Found<B>,
    initialise: impl FnOnce(&Pool<B>) -> Result<T>,
) -> Result<(Pool<B>, T)> {
    found.check_vacant()?;
    let pool = found.take()?;
    let result = initialise(&pool)?;
    Ok((pool, result))
}
