//! Nodes, wherever they lie.

use std::ops::Range;

use terrane_pmem::{Backend, LINE_LENGTH, Site, View, WORD_LENGTH};
use terrane_storage::sync::{AtomicU64, Ordering};

use super::layout::{
    BITMAP, BOXES, DIRTY, FAN_OUT_MAX, KEY, Layout, MASK, META, NEXT, PARENT, PARTNER, SEQUENCE, VOLATILE, is_volatile,
    level_of, slots,
};
use super::reach::Reach;
use super::tree::PearTree;
use crate::Result;
use crate::rtree::choose;
use crate::rtree::rect::Rect;

/// A node of a tree, in the pool or in memory.
pub(super) struct Node<'a, const D: usize, B: Backend> {
    pub(super) tree: &'a PearTree<D, B>,
    /// Its offset in the pool, or its index in memory with [`VOLATILE`].
    pub(super) at: u64,
    words: Words<'a, B>,
}

enum Words<'a, B: Backend + 'a> {
    Pool(B::View<'a>),
    Memory(&'a [AtomicU64]),
}

impl<B: Backend> Clone for Words<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Words<'_, B> {}

impl<const D: usize, B: Backend> Clone for Node<'_, D, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const D: usize, B: Backend> Copy for Node<'_, D, B> {}

/// Bytes of a node to prefetch while its parent is read: about as many as an inner node has, and
/// half of a leaf. More make large windows slower, and fewer make small ones slower.
const PREFETCHED: u64 = 16 * LINE_LENGTH;

/// A child with its box, or an entry.
pub(super) type Branch<const D: usize> = (Rect<D>, u64);

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// A node in memory that exists, or one within the pool.
    #[inline]
    pub(super) fn node(&self, at: u64) -> Result<Node<'_, D, B>> {
        let words = if is_volatile(at) {
            Words::Memory(self.memory.words(at >> 1))
        } else {
            self.pool.check_range(at, self.node_length)?;
            Words::Pool(self.pool.backend().view(at, self.node_length))
        };
        Ok(Node { tree: self, at, words })
    }

    /// A new node in memory.
    pub(super) fn allocate_volatile(&self) -> u64 {
        self.memory.allocate() << 1 | VOLATILE
    }
}

impl<'a, const D: usize, B: Backend> Node<'a, D, B> {
    #[inline]
    pub(super) fn is_volatile(&self) -> bool {
        is_volatile(self.at)
    }

    #[inline]
    pub(super) fn load(&self, word: usize) -> u64 {
        match self.words {
            Words::Pool(view) => view.load(word),
            Words::Memory(words) => words[word].load(Ordering::Acquire),
        }
    }

    /// Consecutive words.
    #[inline]
    fn load_array<const N: usize>(&self, first: usize) -> [u64; N] {
        match self.words {
            Words::Pool(view) => view.load_array(first),
            Words::Memory(words) => load_array(words, first),
        }
    }

    #[inline]
    pub(super) fn store(&self, word: usize, value: u64) {
        match self.words {
            Words::Pool(_) => self.tree.pool.backend().store(self.at + word as u64 * WORD_LENGTH, value),
            Words::Memory(words) => words[word].store(value, Ordering::Release),
        }
    }

    /// Whether the meta word was the expected one, and is the new one now.
    pub(super) fn swap_meta(&self, old: u64, new: u64) -> bool {
        match self.words {
            Words::Pool(_) => self.tree.pool.backend().compare_exchange(self.at, old, new).is_ok(),
            Words::Memory(words) => words[META].compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok(),
        }
    }

    /// Begins to write back words, if they lie in the pool.
    pub(super) fn flush(&self, words: Range<usize>, site: Site) {
        if !self.is_volatile() {
            let offset = |word: usize| self.at + word as u64 * WORD_LENGTH;
            self.tree.pool.backend().flush(offset(words.start)..offset(words.end), site);
        }
    }

    /// Makes words durable, if they lie in the pool.
    pub(super) fn persist(&self, words: Range<usize>, site: Site) {
        self.flush(words, site);
        if !self.is_volatile() {
            self.tree.pool.backend().fence(site);
        }
    }

    /// Makes the header durable.
    pub(super) fn persist_header(&self, site: Site) {
        self.persist(META..BOXES, site);
    }

    #[inline]
    pub(super) fn meta(&self) -> u64 {
        self.load(META)
    }

    #[inline]
    pub(super) fn level(&self) -> u64 {
        level_of(self.meta())
    }

    /// The valid slots. Bits beyond the capacity, which only a damaged pool has, are left out.
    #[inline]
    pub(super) fn bitmap(&self) -> u64 {
        self.load(BITMAP) & self.tree.layout.all_slots(self.level())
    }

    pub(super) fn count(&self) -> usize {
        self.bitmap().count_ones() as usize
    }

    #[inline]
    pub(super) fn sequence(&self) -> u64 {
        self.load(SEQUENCE)
    }

    /// Lets readers know that something was moved or removed.
    pub(super) fn advance(&self) {
        self.store(SEQUENCE, self.sequence().wrapping_add(2));
    }

    /// Makes readers wait, or lets them continue.
    pub(super) fn toggle(&self) {
        self.store(SEQUENCE, self.sequence().wrapping_add(1));
    }

    pub(super) fn has(&self, mark: u64) -> bool {
        self.meta() & mark == mark
    }

    pub(super) fn mark(&self, marks: u64) {
        self.store(META, self.meta() | marks);
    }

    pub(super) fn unmark(&self, marks: u64) {
        self.store(META, self.meta() & !marks);
    }

    /// Names another node as the parent of this one. It stores nothing that is there already.
    pub(super) fn set_parent(&self, parent: &Node<'_, D, B>) {
        let name = if parent.is_volatile() && !self.is_volatile() { parent.load(KEY) } else { parent.at };
        if self.load(PARENT) != name {
            self.store(PARENT, name);
        }
    }

    /// A child or a payload.
    #[inline]
    pub(super) fn target(&self, level: u64, slot: usize) -> u64 {
        self.load(self.tree.layout.target_word(level, slot))
    }

    #[inline]
    pub(super) fn rect(&self, level: u64, slot: usize) -> Rect<D> {
        let layout = &self.tree.layout;
        let first = layout.box_word(level, slot);
        match layout.is_single(level) {
            true => Layout::of_single(&self.load_array(first)),
            false => Layout::of_double(&self.load_array(first), &self.load_array(first + D)),
        }
    }

    /// Begins to read the first lines of a child.
    #[inline]
    pub(super) fn prefetch(&self, child: u64) {
        match is_volatile(child) {
            // What a damaged pool calls a node in memory may be none.
            true if !self.is_volatile() => {}
            true => self.tree.memory.prefetch(child >> 1, (PREFETCHED / WORD_LENGTH) as usize),
            false => self.tree.pool.backend().prefetch(child, PREFETCHED.min(self.tree.node_length)),
        }
    }

    /// Calls `visit` with the box of each of these slots. Where the node lies, and the form of its
    /// boxes, are looked up once, and not for each slot.
    #[inline]
    pub(super) fn for_each_rect(&self, level: u64, bitmap: u64, mut visit: impl FnMut(usize, Rect<D>)) {
        let is_single = self.tree.layout.is_single(level);
        match self.words {
            Words::Pool(view) if is_single => {
                slots(bitmap).for_each(|slot| visit(slot, Layout::of_single(&view.load_array(BOXES + slot * D))))
            }
            Words::Pool(view) => slots(bitmap).for_each(|slot| {
                let first = BOXES + slot * 2 * D;
                visit(slot, Layout::of_double(&view.load_array(first), &view.load_array(first + D)));
            }),
            Words::Memory(words) => {
                slots(bitmap).for_each(|slot| visit(slot, Layout::of_single(&load_array(words, BOXES + slot * D))))
            }
        }
    }

    /// Which of these slots have boxes that are meant. There is no branch for a box, since the CPU
    /// could not predict it.
    #[inline]
    pub(super) fn matching(&self, level: u64, bitmap: u64, is_meant: impl Fn(&Rect<D>) -> bool) -> u64 {
        let mut mask = 0;
        self.for_each_rect(level, bitmap, |slot, rect| mask |= u64::from(is_meant(&rect)) << slot);
        mask
    }

    /// Which of these slots of an inner node have boxes within reach.
    #[inline]
    pub(super) fn within(&self, bitmap: u64, reach: &Reach<D>) -> u64 {
        // Slots without a child are compared too, which costs less than to skip them.
        let end = (u64::BITS - bitmap.leading_zeros()) as usize;
        let bit = |slot: usize, words: &[u64; D]| u64::from(reach.includes(words)) << slot;
        let within = match self.words {
            Words::Pool(view) => {
                (0..end).fold(0, |within, slot| within | bit(slot, &view.load_array(BOXES + slot * D)))
            }
            Words::Memory(words) => {
                (0..end).fold(0, |within, slot| within | bit(slot, &load_array(words, BOXES + slot * D)))
            }
        };
        within & bitmap
    }

    /// The child of an inner node whose box grows least by including another one. `containing` are
    /// the boxes that need not grow.
    pub(super) fn least_enlargement(
        &self,
        level: u64,
        bitmap: u64,
        rect: &Rect<D>,
        containing: &Reach<D>,
    ) -> Option<usize> {
        let within = self.within(bitmap, containing);
        if within.is_power_of_two() {
            return Some(within.trailing_zeros() as usize);
        }
        if within != 0 {
            slots(within).for_each(|slot| self.prefetch(self.target(level, slot)));
            return choose::least_enlargement(self.rects(level, within), rect).map(|(slot, _)| slot);
        }
        let mut growths = [f64::INFINITY; FAN_OUT_MAX];
        let mut least = f64::INFINITY;
        self.for_each_rect(level, bitmap, |slot, child| {
            let growth = choose::enlargement(&child, rect);
            growths[slot] = growth;
            least = if growth < least { growth } else { least };
        });
        // Few are left, among which more is compared.
        let chosen = slots(bitmap).filter(|&slot| growths[slot] == least).map(|slot| (slot, self.rect(level, slot)));
        choose::least_enlargement(chosen, rect).map(|(slot, _)| slot)
    }

    /// The boxes of valid slots.
    #[inline]
    pub(super) fn rects(self, level: u64, bitmap: u64) -> impl Iterator<Item = (usize, Rect<D>)> + 'a {
        slots(bitmap).map(move |slot| (slot, self.rect(level, slot)))
    }

    /// The branches of slots, with their slots.
    pub(super) fn branches(self, bitmap: u64) -> impl Iterator<Item = (usize, Branch<D>)> + 'a {
        let level = self.level();
        slots(bitmap).map(move |slot| (slot, (self.rect(level, slot), self.target(level, slot))))
    }

    /// The box around all branches; the one that contains nothing, if there are none.
    pub(super) fn bounds(&self) -> Rect<D> {
        self.bounds_of(self.bitmap())
    }

    /// The box around the branches of slots.
    pub(super) fn bounds_of(&self, bitmap: u64) -> Rect<D> {
        let mut all = bounds([].into_iter());
        self.for_each_rect(self.level(), bitmap, |_, rect| all = all.union(&rect));
        all
    }

    /// The slot of a child.
    pub(super) fn slot_of(&self, child: u64) -> Option<usize> {
        let level = self.level();
        slots(self.bitmap()).find(|&slot| self.target(level, slot) == child)
    }

    /// The first slot without a branch.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let free = (!self.bitmap()).trailing_zeros() as usize;
        (free < self.tree.layout.capacity(self.level())).then_some(free)
    }

    pub(super) fn write_rect(&self, level: u64, slot: usize, rect: &Rect<D>) {
        let first = self.tree.layout.box_word(level, slot);
        self.tree.layout.encode(level, rect, |word, value| self.store(first + word, value));
    }

    pub(super) fn flush_rect(&self, level: u64, slot: usize, site: Site) {
        let first = self.tree.layout.box_word(level, slot);
        self.flush(first..first + self.tree.layout.box_words(level), site);
    }

    pub(super) fn write_target(&self, level: u64, slot: usize, target: u64) {
        self.store(self.tree.layout.target_word(level, slot), target);
    }

    /// Writes a branch into a slot that is not valid, and flushes it.
    pub(super) fn write_branch(&self, slot: usize, (rect, target): &Branch<D>, site: Site) {
        let level = self.level();
        self.write_rect(level, slot, rect);
        self.write_target(level, slot, *target);
        self.flush_rect(level, slot, site);
        let word = self.tree.layout.target_word(level, slot);
        self.flush(word..word + 1, site);
    }

    /// Fills a node that nobody else has seen: locked and odd.
    pub(super) fn fill(&self, meta: u64, next: u64, (parent, partner): (u64, u64), branches: &[Branch<D>]) {
        self.store(META, meta);
        let bitmap = if branches.is_empty() { 0 } else { u64::MAX >> (64 - branches.len()) };
        self.store(BITMAP, bitmap);
        for (word, value) in [(NEXT, next), (SEQUENCE, 1), (DIRTY, 0), (PARENT, parent), (MASK, 0), (PARTNER, partner)]
        {
            self.store(word, value);
        }
        let level = level_of(meta);
        for (slot, (rect, target)) in branches.iter().enumerate() {
            self.write_rect(level, slot, rect);
            self.write_target(level, slot, *target);
        }
    }
}

/// Consecutive words of a node in memory.
#[inline]
fn load_array<const N: usize>(words: &[AtomicU64], first: usize) -> [u64; N] {
    let words = &words[first..first + N];
    std::array::from_fn(|index| words[index].load(Ordering::Acquire))
}

/// The smallest box around others; without any, the one that contains nothing.
pub(super) fn bounds<const D: usize>(rects: impl Iterator<Item = Rect<D>>) -> Rect<D> {
    rects.fold(Rect::raw([f64::INFINITY; D], [f64::NEG_INFINITY; D]), |all, rect| all.union(&rect))
}
