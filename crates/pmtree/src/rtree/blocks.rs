//! Whether the blocks of a pool are those of the tree in it.

use std::collections::BTreeSet;

use terrane_pmem::{Backend, Pool, ROOT};

use crate::{Error, Result};

/// Checks that the pool's root word still names the tree's block, and that exactly the blocks that were reached from there
/// are acquired. Frees what waits for readers before; there are none.
pub(super) fn check<B: Backend>(pool: &mut Pool<B>, block: u64, reached: &BTreeSet<u64>) -> Result<()> {
    pool.reclaim_all()?;
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|offset, _| {
        acquired.insert(offset);
    })?;
    let damaged = |offset, reason: &str| {
        let (pool, reason) = (pool.name().to_owned(), reason.to_owned());
        Err(Error::Damaged { pool, offset, reason })
    };
    if let Some(&missing) = reached.difference(&acquired).next() {
        return damaged(missing, "a block of the tree is free");
    }
    if let Some(&lost) = acquired.difference(reached).next() {
        return damaged(lost, "a block is acquired and not linked");
    }
    if pool.backend().load(ROOT) != block {
        return damaged(ROOT, "the pool's root word has changed");
    }
    Ok(())
}
