//! Inner nodes in memory, rebuilt from the chain of leaves.

use terrane_pmem::{Backend, Pool, View};
use terrane_storage::sync::Ordering;

use super::change::Change;
use super::layout::{Layout, META, NEXT, ROOT_WORD, level};
use super::method::Method;
use super::node::Child;
use super::tree::BTree;
use crate::blocks::damaged;
use crate::{Result, blocks, parallel};

/// Fewer nodes than this are read by one thread.
const NODES_OF_THREAD_MIN: usize = 4096;

/// A leaf of the chain, with its least key, if it has entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linked<const K: usize> {
    leaf: u64,
    first: Option<[u64; K]>,
}

/// The contents of a block.
#[derive(Clone, Copy, Debug)]
enum Contents<const K: usize> {
    Other,
    Empty,
    /// The least and the greatest key.
    Keys([u64; K], [u64; K]),
}

/// The acquired blocks of a node's length, each at its offset divided by that length.
struct Scanned<const K: usize> {
    /// The successors, or [`NOTHING`]. They are apart, as following them is what takes time.
    nexts: Vec<u64>,
    /// The offsets and what is there.
    blocks: Vec<(u64, Contents<K>)>,
}

/// No block is there, or the chain has led to it already.
const NOTHING: u64 = u64::MAX;

/// All leaves of the chain. It is an error if one is no acquired block of a node's length, if the
/// chain is a circle, or if keys do not ascend.
///
/// Threads read the blocks in the order of their places. Then the chain is followed in memory.
pub(super) fn walk<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    block: u64,
    threads: usize,
) -> Result<Vec<Linked<K>>> {
    let Scanned { mut nexts, blocks } = scan(pool, layout, threads)?;
    let place = |leaf: u64| (leaf / layout.node_length()) as usize;
    let mut chain = Vec::new();
    let mut leaf = pool.backend().load(block + ROOT_WORD);
    loop {
        let Some(next) = nexts.get_mut(place(leaf)).filter(|next| leaf != 0 && **next != NOTHING) else {
            blocks::check_own(pool, leaf, layout.node_length())?;
            return Err(damaged(pool, leaf, "the chain of leaves is a circle"));
        };
        chain.push(leaf);
        leaf = std::mem::replace(next, NOTHING);
        if leaf == 0 {
            break;
        }
    }
    let mut last: Option<[u64; K]> = None;
    let linked = chain.into_iter().map(|leaf| {
        let (found, contents) = blocks[place(leaf)];
        if found != leaf {
            blocks::check_own(pool, leaf, layout.node_length())?;
        }
        let first = match contents {
            Contents::Other => {
                layout.check(pool, leaf, pool.backend().view(leaf, layout.node_length()))?;
                return Err(damaged(pool, leaf, "the chain of leaves leads to a node that is no leaf"));
            }
            Contents::Empty => None,
            Contents::Keys(first, end) => {
                if last.is_some_and(|last| first <= last) {
                    return Err(damaged(pool, leaf, "the keys of the leaves do not ascend"));
                }
                last = Some(end);
                Some(first)
            }
        };
        Ok(Linked { leaf, first })
    });
    linked.collect()
}

/// Reads the acquired blocks of a node's length.
fn scan<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    threads: usize,
) -> Result<Scanned<K>> {
    let node_length = layout.node_length();
    let count = pool.length().div_ceil(node_length) as usize;
    let share = count.div_ceil(parallel::threads(threads, count, NODES_OF_THREAD_MIN));
    let parts = parallel::on_threads((0..count).step_by(share), |first| {
        let end = count.min(first + share);
        let mut nexts = vec![NOTHING; end - first];
        let mut blocks = vec![(0, Contents::Other); end - first];
        pool.visit_blocks_in(first as u64 * node_length..end as u64 * node_length, |block, length| {
            if length != node_length {
                return;
            }
            let view = pool.backend().view(block, node_length);
            let place = (block / node_length) as usize - first;
            let is_leaf = level(view.load(META)) == 0 && layout.impossible(view).is_none();
            let bounds = || layout.bounds_of(view).map_or(Contents::Empty, |(first, last)| Contents::Keys(first, last));
            (nexts[place], blocks[place]) = match is_leaf {
                true => (view.load(NEXT), (block, bounds())),
                false => (0, (block, Contents::Other)),
            };
        })?;
        Ok((nexts, blocks))
    })?;
    let (nexts, blocks): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    Ok(Scanned { nexts: nexts.concat(), blocks: blocks.concat() })
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Builds the inner nodes. Nobody else uses the tree yet. No key leads to leaves that a crash
    /// has left empty, so they are unlinked.
    pub(super) fn rebuild(&self, leaves: Vec<Linked<K>>) -> Result<()> {
        let mut nodes: Vec<Child<K>> = Vec::with_capacity(leaves.len());
        for Linked { leaf, first } in leaves {
            match (first, nodes.last()) {
                (Some(first), _) => nodes.push((first, leaf)),
                (None, None) => nodes.push(([0; K], leaf)),
                (None, Some(&(_, before))) => self.unlink_empty(before, leaf)?,
            }
        }
        self.build_inner(nodes);
        Ok(())
    }

    /// Builds the inner nodes above leaves, each with its least key.
    pub(super) fn build_inner(&self, mut nodes: Vec<Child<K>>) {
        let mut level = 0;
        while nodes.len() > 1 {
            level += 1;
            // Three quarters full, and of equal size.
            let parents = nodes.len().div_ceil((self.layout.children * 3 / 4).max(2));
            let size = nodes.len().div_ceil(parents);
            let mut image = vec![0; self.layout.words];
            let above = nodes.chunks(size).map(|children| {
                let node = self.new_in_memory();
                Layout::<K, V>::fill_inner(&mut image, level, children);
                self.store_in_memory(node, 0, &image[..self.layout.used_words(&image)]);
                (children[0].0, node)
            });
            nodes = above.collect();
        }
        if let Some((_, root)) = nodes.first() {
            self.memory_root.store(*root, Ordering::Release);
        }
    }

    /// Takes an empty leaf out of the chain.
    fn unlink_empty(&self, before: u64, leaf: u64) -> Result<()> {
        let image = self.layout.copy(self.node(before)?);
        let mut after = image.clone();
        after[NEXT] = self.node(leaf)?.load(NEXT);
        let mut change = Change { released: leaf, ..Change::default() };
        change.write(before, &image, &after);
        self.make_and_release(self.take_log_entry()?, &change)
    }
}
