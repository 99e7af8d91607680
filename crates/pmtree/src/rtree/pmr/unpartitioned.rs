//! The PM-RTREE without its partition: inner nodes lie in the pool too ("+Lock-free" in section 5.6
//! of the paper). It serves to measure what the partition saves. It inserts and searches, and is
//! not opened again.
//!
//! A node has the layout of a leaf; the payload of an entry in an inner node is its child. All
//! words of bitmaps, and the root word, change by multi-word compare-and-swap.
//! - A slot is used once in the life of a node (P1). A node whose slots are used up is frozen (P3)
//!   and copied. One operation clears its bit in the parent, and sets those of the copies.
//! - An insertion enlarges a box, makes it durable, and then looks whether the node is frozen (P7).

use smallvec::SmallVec;
use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Guard, Native, Pool, ROOT, Site, WORD_LENGTH};
use terrane_storage::Storage;

use super::layout::{DETACHED, FAN_OUT_MAX, FROZEN, HEADER_END, Layout, MAP, NEXT};
use super::leaf::{Map, bounds, write_entry};
use super::options::Options;
use super::replace::BALANCE_PERCENT;
use crate::rtree::rect::Rect;
use crate::rtree::{LeafForm, choose};
use crate::{Result, Split, blocks, creation, limits};

const LAYOUT_ID: u64 = u64::from_le_bytes(*b"PMRWHOL1");

const NODE: Site = Site::new("unpartitioned.node");
const ENTRY: Site = Site::new("unpartitioned.entry");
const GROWN: Site = Site::new("unpartitioned.grown");
const LINKS: Site = Site::new("unpartitioned.links");

/// Words of a node's header: its level, and the number of used slots, which is volatile.
const LEVEL: u64 = NEXT;
const USED: u64 = DETACHED;

/// Slots of the parent that the copies of a node take.
const COPIES_MAX: usize = 2;

/// A PM-RTREE with all nodes in the pool. For measurements: it has no deletion, and it cannot be
/// opened again.
#[derive(Debug)]
pub struct UnpartitionedTree<const D: usize, B: Backend = Native> {
    pool: Pool<B>,
    layout: Layout<D>,
    split: Split,
}

/// A node, and its slot in there.
type Parent = Option<(u64, usize)>;

impl<const D: usize, B: Backend> UnpartitionedTree<D, B> {
    /// Creates a tree in a new pool under a free name. Of the options it uses the fan-out,
    /// interleaving, the split and the pool.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        let layout = Layout::new(options.fan_out, options.interleaved, LeafForm::Bitmap)
            .ok_or_else(|| limits::fan_out_error(options.fan_out, FAN_OUT_MAX))?;
        let of_pool = creation::pool_options(LAYOUT_ID, &options.pool);
        let (pool, ()) = creation::create(storage, name, &of_pool, |pool: &Pool<B>| {
            let guard = pool.pin();
            let mut descriptor = Descriptor::new(pool, &guard)?;
            let root = descriptor.acquire(layout.leaf_length())?;
            fill(pool, &layout, root, 0, &[]);
            descriptor.swap(ROOT, 0, root)?;
            descriptor.execute()?;
            Ok(())
        })?;
        Ok(Self { pool, layout, split: options.split })
    }

    /// The pool, to count what operations cost.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    /// Inserts a box with a payload.
    pub fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()> {
        let guard = self.pool.pin();
        while !self.try_insert(rect, payload, &guard)? {}
        Ok(())
    }

    /// Calls `visit` with box and payload of each entry that overlaps a window.
    pub fn window(&self, window: &Rect<D>, mut visit: impl FnMut(&Rect<D>, u64)) -> Result<()> {
        let guard = self.pool.pin();
        let mut nodes = vec![pmwcas::read(&self.pool, ROOT, &guard)?];
        while let Some(node) = nodes.pop() {
            let is_leaf = self.level(node)? == 0;
            let map = self.map(node, &guard)?;
            for (rect, target) in map.slots(&self.layout).map(|slot| self.entry(node, slot)) {
                match window.overlaps(&rect) {
                    true if is_leaf => visit(&rect, target),
                    true => nodes.push(target),
                    false => {}
                }
            }
        }
        Ok(())
    }

    /// Whether the entry was inserted. Otherwise nodes have changed, and the insertion starts
    /// again.
    fn try_insert(&self, rect: &Rect<D>, payload: u64, guard: &Guard<'_>) -> Result<bool> {
        let (mut parent, mut node): (Parent, u64) = (None, pmwcas::read(&self.pool, ROOT, guard)?);
        loop {
            let level = self.level(node)?;
            let wanted = if level == 0 { 1 } else { COPIES_MAX };
            let used = self.pool.backend().load(node + USED) as usize;
            if used + wanted > self.layout.fan_out || self.word(node, 0, guard)? & FROZEN != 0 {
                self.replace(parent, node, guard)?;
                return Ok(false);
            }
            if level == 0 {
                return self.insert_into_leaf(node, rect, payload, guard);
            }
            let map = self.map(node, guard)?;
            let children = map.slots(&self.layout).map(|slot| (slot, self.entry(node, slot).0));
            let Some((slot, _)) = choose::least_enlargement(children, rect) else {
                return Err(blocks::damaged(&self.pool, node, "an inner node has no children"));
            };
            self.enlarge(node, slot, rect);
            let (word, bit) = self.layout.bit(slot);
            let now = self.word(node, word, guard)?;
            if now & FROZEN != 0 || now & (1 << bit) == 0 {
                return Ok(false);
            }
            parent = Some((node, slot));
            node = self.entry(node, slot).1;
        }
    }

    fn insert_into_leaf(&self, leaf: u64, rect: &Rect<D>, payload: u64, guard: &Guard<'_>) -> Result<bool> {
        let Some(slot) = self.reserve(leaf, 1) else { return Ok(false) };
        let backend = self.pool.backend();
        backend.persist(write_entry(backend, leaf + self.layout.entry(slot), rect, payload), ENTRY);
        let (word, bit) = self.layout.bit(slot);
        let offset = leaf + self.layout.map_word(word);
        loop {
            let found = self.word(leaf, word, guard)?;
            if found & FROZEN != 0 {
                return Ok(false);
            }
            if pmwcas::compare_exchange(&self.pool, offset, found, found | 1 << bit, guard)?.is_ok() {
                return Ok(true);
            }
        }
    }

    /// Reserves slots for the calling thread. Gives the first one.
    fn reserve(&self, node: u64, count: usize) -> Option<usize> {
        let backend = self.pool.backend();
        let mut used = backend.load(node + USED);
        while used as usize + count <= self.layout.fan_out {
            match backend.compare_exchange(node + USED, used, used + count as u64) {
                Ok(_) => return Some(used as usize),
                Err(other) => used = other,
            }
        }
        None
    }

    /// Replaces a node by copies of it, unless another thread comes first or the parent is full.
    /// The caller starts over in any case.
    fn replace(&self, parent: Parent, node: u64, guard: &Guard<'_>) -> Result<()> {
        let mut descriptor = Descriptor::new(&self.pool, guard)?;
        let entries = self.freeze(node, guard)?;
        let level = self.level(node)?;
        let is_split = entries.len() > self.layout.fan_out / 2;
        let mut parts = [Vec::new(), Vec::new()];
        let rects: Vec<Rect<D>> = entries.iter().map(|(rect, _)| *rect).collect();
        let is_second = match is_split {
            true => self.split.divide(&rects, rects.len() * BALANCE_PERCENT / 100),
            false => vec![false; rects.len()],
        };
        for (entry, is_second) in entries.into_iter().zip(is_second) {
            parts[usize::from(is_second)].push(entry);
        }
        let mut links = Vec::new();
        for part in &parts[..if is_split { COPIES_MAX } else { 1 }] {
            let copy = descriptor.acquire(self.layout.leaf_length())?;
            fill(&self.pool, &self.layout, copy, level, part);
            links.push((bounds(part.iter().map(|(rect, _)| *rect)), copy));
        }
        let Some((parent, slot)) = parent else {
            let root = match links.as_slice() {
                [(_, only)] => *only,
                _ => {
                    let root = descriptor.acquire(self.layout.leaf_length())?;
                    fill(&self.pool, &self.layout, root, level + 1, &links);
                    root
                }
            };
            descriptor.swap(ROOT, node, root)?;
            descriptor.release(node)?;
            descriptor.execute()?;
            return Ok(());
        };
        let Some(first) = self.reserve(parent, links.len()) else { return Ok(()) };
        let backend = self.pool.backend();
        let mut changes: SmallVec<[(usize, u64, u64); 3]> = SmallVec::new();
        let mut change = |slot: usize, is_set: bool| -> Result<bool> {
            let (word, bit) = self.layout.bit(slot);
            let place = changes.iter().position(|(known, ..)| *known == word);
            let place = match place {
                Some(place) => place,
                None => {
                    let found = self.word(parent, word, guard)?;
                    changes.push((word, found, found));
                    changes.len() - 1
                }
            };
            let (_, old, new) = &mut changes[place];
            *new = if is_set { *new | 1 << bit } else { *new & !(1 << bit) };
            Ok(*old & FROZEN == 0 && (*old & (1 << bit) == 0) == is_set)
        };
        if !change(slot, false)? {
            return Ok(());
        }
        for (slot, (rect, copy)) in (first..).zip(&links) {
            backend.flush(write_entry(backend, parent + self.layout.entry(slot), rect, *copy), LINKS);
            if !change(slot, true)? {
                return Ok(());
            }
        }
        for (word, old, new) in changes {
            descriptor.swap(parent + self.layout.map_word(word), old, new)?;
        }
        descriptor.release(node)?;
        descriptor.execute()?;
        Ok(())
    }

    /// Freezes a node, and gives its entries.
    fn freeze(&self, node: u64, guard: &Guard<'_>) -> Result<Vec<(Rect<D>, u64)>> {
        for word in 0..self.layout.map_words {
            let offset = node + self.layout.map_word(word);
            loop {
                let found = self.word(node, word, guard)?;
                let frozen = found | FROZEN;
                if found == frozen || pmwcas::compare_exchange(&self.pool, offset, found, frozen, guard)?.is_ok() {
                    break;
                }
            }
        }
        let map = self.map(node, guard)?;
        Ok(map.slots(&self.layout).map(|slot| self.entry(node, slot)).collect())
    }

    /// Makes the box of a child contain another one, durably.
    fn enlarge(&self, node: u64, slot: usize, rect: &Rect<D>) {
        let (backend, first) = (self.pool.backend(), node + self.layout.entry(slot));
        let mut has_grown = false;
        for (axis, wanted) in rect.min().iter().chain(rect.max()).enumerate() {
            let offset = first + axis as u64 * WORD_LENGTH;
            let is_beyond = |present: f64| if axis < D { *wanted < present } else { *wanted > present };
            let mut present = backend.load(offset);
            while is_beyond(f64::from_bits(present)) {
                has_grown = true;
                match backend.compare_exchange(offset, present, wanted.to_bits()) {
                    Ok(_) => break,
                    Err(other) => present = other,
                }
            }
        }
        if has_grown {
            backend.persist(first..first + Layout::<D>::ENTRY_USED, GROWN);
        }
    }

    fn level(&self, node: u64) -> Result<u64> {
        self.pool.check_range(node, self.layout.leaf_length())?;
        Ok(self.pool.backend().load(node + LEVEL))
    }

    fn word(&self, node: u64, word: usize, guard: &Guard<'_>) -> Result<u64> {
        Ok(pmwcas::read(&self.pool, node + self.layout.map_word(word), guard)?)
    }

    /// The valid entries of a node at one instant.
    fn map(&self, node: u64, guard: &Guard<'_>) -> Result<Map> {
        let read = || -> Result<Map> {
            let words = (0..self.layout.map_words).map(|word| Ok(self.word(node, word, guard)? & MAP));
            Ok(Map { words: words.collect::<Result<_>>()? })
        };
        let mut map = read()?;
        loop {
            let again = read()?;
            if again == map {
                return Ok(map);
            }
            map = again;
        }
    }

    fn entry(&self, node: u64, slot: usize) -> (Rect<D>, u64) {
        let first = node + self.layout.entry(slot);
        let word = |number: usize| self.pool.backend().load(first + number as u64 * WORD_LENGTH);
        let corner = |first: usize| std::array::from_fn(|axis| f64::from_bits(word(first + axis)));
        (Rect::raw(corner(0), corner(D)), word(2 * D))
    }
}

/// Fills a new node, and flushes it.
fn fill<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    node: u64,
    level: u64,
    entries: &[(Rect<D>, u64)],
) {
    let backend = pool.backend();
    backend.store(node + LEVEL, level);
    backend.store(node + USED, entries.len() as u64);
    for (number, word) in Map::of(0..entries.len(), layout).words.into_iter().enumerate() {
        backend.store(node + layout.map_word(number), word);
    }
    for (slot, (rect, target)) in entries.iter().enumerate() {
        write_entry(backend, node + layout.entry(slot), rect, *target);
    }
    backend.flush(node..node + layout.entry(entries.len()).max(HEADER_END), NODE);
}
