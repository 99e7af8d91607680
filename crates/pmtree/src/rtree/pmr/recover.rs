//! Recovery: the inner nodes are made from the leaves of the chain, which several threads read.

use terrane_pmem::{Backend, Pool, pmwcas};
use terrane_storage::sync::{Ordering, thread};

use super::chain::{self, Linked};
use super::layout::{Layout, MAP};
use super::leaf::{Map, bounds};
use super::options::Options;
use super::tree::PmrTree;
use crate::Result;
use crate::rtree::LeafForm;
use crate::rtree::pack::pack;
use crate::rtree::rect::Rect;

/// Fewer leaves than this are read by one thread.
const LEAVES_OF_THREAD_MIN: usize = 16;

/// A leaf as recovery finds it.
struct Recovered<const D: usize> {
    leaf: u64,
    rect: Rect<D>,
    map: Map,
    /// Slots up to the last one in use.
    used: usize,
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Makes the inner nodes of a tree whose pool was recovered.
    pub(super) fn rebuild(pool: Pool<B>, layout: Layout<D>, options: &Options, block: u64) -> Result<Self> {
        let chain = chain::walk(&pool, &layout, block)?;
        let tree = Self::new(pool, layout, options, block);
        if chain.iter().any(|linked| linked.is_replaced) {
            tree.unlink_replaced(&tree.pool.pin(), |_| true)?;
        }
        let leaves: Vec<u64> =
            chain.iter().filter(|linked| !linked.is_replaced).map(|Linked { leaf, .. }| *leaf).collect();
        let recovered = tree.read_leaves(&leaves, options.recovery_threads)?;
        tree.leaves.store(leaves.len() as u64, Ordering::Relaxed);
        let mut children: Vec<(u64, Rect<D>)> =
            recovered.iter().map(|found| (tree.new_stub(found.leaf, &found.map, found.used), found.rect)).collect();
        for level in 1.. {
            let mut nodes = Vec::new();
            pack(&mut children, tree.inner_fan_out, &mut nodes);
            children = nodes
                .iter()
                .map(|node| (tree.new_inner(level, node), bounds(node.iter().map(|(_, rect)| *rect))))
                .collect();
            if let [(root, _)] = children.as_slice() {
                tree.root.store(*root, Ordering::SeqCst);
                break;
            }
        }
        Ok(tree)
    }

    fn read_leaves(&self, leaves: &[u64], threads: usize) -> Result<Vec<Recovered<D>>> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let share = leaves.len().div_ceil(threads).max(LEAVES_OF_THREAD_MIN);
        let read = |part: &[u64]| part.iter().map(|leaf| self.read_leaf(*leaf)).collect::<Result<Vec<_>>>();
        if share >= leaves.len() {
            return read(leaves);
        }
        let parts = thread::scope(|scope| {
            let workers: Vec<_> = leaves.chunks(share).map(|part| scope.spawn(move || read(part))).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Reads a leaf, and clears flags that mean nothing any more. All words are durable now. The
    /// last session may have published entries in another way.
    fn read_leaf(&self, leaf: u64) -> Result<Recovered<D>> {
        let guard = self.pool.pin();
        let words = match self.layout.leaves {
            LeafForm::Bitmap => self.layout.map_words,
            LeafForm::SelfValidating => 0,
        };
        for word in 0..words {
            let offset = leaf + self.layout.map_word(word);
            let found = pmwcas::read(&self.pool, offset, &guard)?;
            if found & !MAP != 0 {
                self.backend().store(offset, found & MAP);
            }
        }
        let map = self.stored_map(leaf, &guard)?;
        let entries = self.entries(leaf)?;
        let rect = bounds(map.slots(&self.layout).map(|slot| entries.rect(slot)));
        let used = map.slots(&self.layout).max().map_or(0, |slot| slot + 1);
        Ok(Recovered { leaf, rect, map, used })
    }
}
