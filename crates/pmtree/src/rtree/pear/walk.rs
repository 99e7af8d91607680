//! The nodes of a level, while nobody changes its chain.
//!
//! Leaves that follow each other in the chain lie anywhere, so a walk waits for memory at each of
//! them. They are many. So all of them are read in the order of their places first, and the walk
//! goes through a table of what they have said.

use terrane_pmem::{Backend, LINE_LENGTH, Pool, WORD_LENGTH};

use super::layout::{BITMAP, DEAD, LOCK, Layout, META, NEXT, SEQUENCE, head, level_of, session_of};
use super::tree::PearTree;
use crate::limits::LEVEL_MAX;
use crate::{Result, blocks};

/// Leaves whose headers are read from memory at a time.
const AHEAD: usize = 16;

/// A place without a leaf, and one that the walk has met. Neither is an offset of a node.
const NO_LEAF: u64 = 1;
const MET: u64 = 2;

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// The nodes of a level's chain, leaves in the order of their places.
    pub(super) fn walk(&self, level: u64) -> Result<Vec<u64>> {
        walk(&self.pool, &self.layout, self.block, level)
    }
}

/// The same in a pool that was not opened yet. It checks that the nodes are acquired blocks of
/// their length and state their level, and that the chain ends.
pub(super) fn walk<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    block: u64,
    level: u64,
) -> Result<Vec<u64>> {
    if level == 0 {
        return leaves(pool, layout, block);
    }
    let mut nodes = Vec::new();
    let mut at = pool.backend().load(block + head(level));
    while at != 0 {
        blocks::check_own(pool, at, layout.node_length())?;
        check_header(pool, layout, at, Some(level))?;
        nodes.push(at);
        if blocks::are_too_many(pool, nodes.len() as u64, layout.node_length()) {
            return Err(circle(pool, at));
        }
        at = word(pool, at, NEXT);
    }
    Ok(nodes)
}

fn leaves<const D: usize, B: Backend>(pool: &Pool<B>, layout: &Layout<D>, block: u64) -> Result<Vec<u64>> {
    let place = |at: u64| usize::try_from(at / layout.alignment).unwrap_or(usize::MAX);
    let mut nodes = Vec::new();
    pool.visit_blocks(|at, length| {
        if length == layout.node_length() && at.is_multiple_of(layout.alignment) {
            nodes.push(at);
        }
    })?;
    let mut next_of = vec![NO_LEAF; nodes.last().map_or(0, |&last| place(last) + 1)];
    for (number, &at) in nodes.iter().enumerate() {
        if let Some(&later) = nodes.get(number + AHEAD) {
            pool.backend().prefetch(later, LINE_LENGTH);
        }
        // One that waits for readers is on no chain.
        let is_dead = word(pool, at, SEQUENCE) == DEAD && is_locked_now(pool, at);
        if level_of(word(pool, at, META)) == 0 && !is_dead {
            check_header(pool, layout, at, Some(0))?;
            next_of[place(at)] = word(pool, at, NEXT);
        }
    }
    let mut at = pool.backend().load(block + head(0));
    while at != 0 {
        let known = next_of.get_mut(place(at)).filter(|_| at.is_multiple_of(layout.alignment));
        at = match known.map_or(NO_LEAF, |next| std::mem::replace(next, MET)) {
            NO_LEAF => return Err(blocks::damaged(pool, at, "the chain of the leaves leads to a block that is none")),
            MET => return Err(circle(pool, at)),
            next => next,
        };
    }
    nodes.retain(|at| next_of[place(*at)] == MET);
    Ok(nodes)
}

fn circle<B: Backend>(pool: &Pool<B>, at: u64) -> crate::Error {
    blocks::damaged(pool, at, "the chain of a level is a circle")
}

fn word<B: Backend>(pool: &Pool<B>, node: u64, number: usize) -> u64 {
    pool.backend().load(node + number as u64 * WORD_LENGTH)
}

/// Whether a node has the lock of this session, or of a later one.
fn is_locked_now<B: Backend>(pool: &Pool<B>, at: u64) -> bool {
    let meta = word(pool, at, META);
    meta & LOCK != 0 && session_of(meta) >= pool.open_counter()
}

/// Checks a node that nobody uses: it states a level, and has no more slots than that has. It has
/// no lock of this session, and its number is even if it has no lock of an earlier one.
pub(super) fn check_header<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    at: u64,
    level: Option<u64>,
) -> Result<()> {
    let stated = level_of(word(pool, at, META));
    if stated > LEVEL_MAX || level.is_some_and(|level| level != stated) {
        return Err(blocks::damaged(pool, at, format!("a node states the impossible level {stated}")));
    }
    if word(pool, at, BITMAP) & !layout.all_slots(stated) != 0 {
        return Err(blocks::damaged(pool, at, "a node has an impossible bitmap"));
    }
    if is_locked_now(pool, at) {
        return Err(blocks::damaged(pool, at, "a node is locked, and nobody has locked it"));
    }
    if word(pool, at, META) & LOCK == 0 && word(pool, at, SEQUENCE) & 1 != 0 {
        return Err(blocks::damaged(pool, at, "the entries of a node move, and it is not locked"));
    }
    Ok(())
}
