//! Checks that the blocks of a pool are those of the tree in it.

use std::collections::{BTreeMap, BTreeSet};

use terrane_pmem::{Backend, LINE_LENGTH, Pool, ROOT};

use crate::limits::LEVEL_MAX;
use crate::{Error, Result};

/// Checks that a block begins at an offset, and that it has the length of blocks for `length`
/// bytes.
pub(crate) fn check_length<B: Backend>(pool: &Pool<B>, block: u64, length: u64) -> Result<()> {
    match pool.check_block(block)? {
        found if found == length.next_multiple_of(LINE_LENGTH) => Ok(()),
        found => Err(damaged(pool, block, format!("a block of {length} bytes is expected there, and it has {found}"))),
    }
}

/// Checks that a block which a tree owns in every state after a crash is acquired, and has the
/// length of blocks for `length` bytes.
pub(crate) fn check_own<B: Backend>(pool: &Pool<B>, block: u64, length: u64) -> Result<()> {
    check_length(pool, block, length)?;
    match pool.is_acquired(block)? {
        true => Ok(()),
        false => Err(damaged(pool, block, "a block of the tree is free")),
    }
}

/// For a durable deletion to which the pool can give nothing more, for lack of space or because a
/// call of the system fails. That is no error, unless the pool is damaged.
pub(crate) fn tolerate_missing_space(error: impl Into<Error>) -> Result<()> {
    match error.into() {
        Error::Pool(error) if !matches!(error, terrane_pmem::Error::Damaged { .. }) => Ok(()),
        error => Err(error),
    }
}

/// Whether there is no more space for the pool: on the disk, or in the range of addresses.
pub(crate) fn is_full(error: &Error) -> bool {
    match error {
        Error::Pool(terrane_pmem::Error::Storage(error)) => error.is_storage_full(),
        Error::Pool(error) => matches!(error, terrane_pmem::Error::AddressSpace { .. }),
        _ => false,
    }
}

/// Checks that a tree can have the height that its root states.
#[inline]
pub(crate) fn check_height<B: Backend>(pool: &Pool<B>, root: u64, level: u64) -> Result<()> {
    if level <= LEVEL_MAX {
        return Ok(());
    }
    Err(damaged(pool, root, format!("the root states level {level}, and the highest is {LEVEL_MAX}")))
}

/// Whether this number of nodes exceeds the pool's space. Each node is linked once, so a search of
/// a tree that does not change never reads that many.
#[inline]
pub(crate) fn are_too_many<B: Backend>(pool: &Pool<B>, nodes: u64, node_length: u64) -> bool {
    nodes.saturating_mul(node_length) > pool.length()
}

/// The error for a search that has read more nodes than the pool can hold.
#[cold]
#[inline(never)]
pub(crate) fn too_many<B: Backend>(pool: &Pool<B>, node: u64) -> Error {
    damaged(pool, node, "more nodes are linked below it than fit into the pool, so some are linked twice")
}

/// Checks three things: the pool's root word still names the tree's block; exactly the blocks that
/// were reached from there are acquired; they have the length of the tree's block and of its nodes.
/// Before, it frees everything that waits for readers, as there are none.
pub(crate) fn check<B: Backend>(
    pool: &mut Pool<B>,
    (block, block_length): (u64, u64),
    node_length: u64,
    reached: &BTreeSet<u64>,
) -> Result<()> {
    let length = |offset: &u64| (*offset, if *offset == block { block_length } else { node_length });
    check_all(pool, block, &reached.iter().map(length).collect())
}

/// Does the same for blocks with these lengths.
pub(crate) fn check_all<B: Backend>(pool: &mut Pool<B>, block: u64, reached: &BTreeMap<u64, u64>) -> Result<()> {
    pool.reclaim_all()?;
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|offset, _| {
        acquired.insert(offset);
    })?;
    for (&offset, &length) in reached {
        if !acquired.contains(&offset) {
            return Err(damaged(pool, offset, "a block of the tree is free"));
        }
        check_length(pool, offset, length)?;
    }
    if let Some(&lost) = acquired.iter().find(|block| !reached.contains_key(block)) {
        return Err(damaged(pool, lost, "a block is acquired and not linked"));
    }
    if pool.backend().load(ROOT) != block {
        return Err(damaged(pool, ROOT, "the pool's root word has changed"));
    }
    Ok(())
}

/// The error for impossible contents of a tree's pool.
#[cold]
pub(crate) fn damaged<B: Backend>(pool: &Pool<B>, offset: u64, reason: impl Into<String>) -> Error {
    Error::Damaged { pool: pool.name().to_owned(), offset, reason: reason.into() }
}
