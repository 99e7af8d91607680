//! Inner nodes in memory.
//!
//! ```text
//! word 0    level (32 bits), number of children (32 bits); fixed
//! word 1    the note of a merge, and whether the node is closed
//! then      for each child: its index with the flag "frozen", lower corner, upper corner
//! ```
//! Children of level 1 are stubs of leaves. A stub says where its leaf lies, how many of its slots
//! are reserved, and, once the leaf was replaced, the node that has the copies as children.

use terrane_storage::sync::{AtomicU64, Ordering};

use crate::rtree::rect::Rect;

/// Numbers of a stub's words.
pub(super) const LEAF: usize = 0;
pub(super) const RESERVED: usize = 1;
pub(super) const REPLACEMENT: usize = 2;
/// Where the words of a G-bitmap in memory begin.
pub(super) const STUB_MAP: usize = 3;

const HEAD: usize = 0;
const NOTE: usize = 1;
const CHILDREN: usize = 2;
const LEVEL_SHIFT: u32 = 32;

/// The node may be copied.
const FROZEN: u64 = 1 << 63;

/// Values of the note: closed without a merge, or a merge of two slots.
const CLOSED: u64 = 1;
const MERGE: u64 = 2;
const FIRST_SHIFT: u32 = 8;
const SECOND_SHIFT: u32 = 32;

/// The most children of a node.
pub(super) const INNER_FAN_OUT_MAX: usize = 255;

/// A merge of the leaves in two slots, or the removal of one that is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) first: usize,
    pub(super) second: Option<usize>,
}

impl Merge {
    fn encode(self) -> u64 {
        MERGE | (self.first as u64) << FIRST_SHIFT | self.second.map_or(0, |slot| slot as u64 + 1) << SECOND_SHIFT
    }

    fn decode(note: u64) -> Option<Self> {
        let first = (note >> FIRST_SHIFT & 0xffff) as usize;
        let second = (note >> SECOND_SHIFT) as usize;
        (note & MERGE != 0).then_some(Self { first, second: second.checked_sub(1) })
    }
}

/// An inner node in its arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner<'a, const D: usize> {
    words: &'a [AtomicU64],
}

/// Words of a node with this many children.
pub(super) fn inner_words<const D: usize>(fan_out: usize) -> usize {
    CHILDREN + fan_out * (2 * D + 1)
}

impl<'a, const D: usize> Inner<'a, D> {
    pub(super) fn at(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Fills a node that nobody else has seen.
    pub(super) fn fill(&self, level: u64, children: &[(u64, Rect<D>)]) {
        self.words[HEAD].store(level << LEVEL_SHIFT | children.len() as u64, Ordering::Relaxed);
        for (slot, (child, rect)) in children.iter().enumerate() {
            let first = self.place(slot);
            self.words[first].store(*child, Ordering::Relaxed);
            for (word, coordinate) in self.words[first + 1..].iter().zip(rect.min().iter().chain(rect.max())) {
                word.store(coordinate.to_bits(), Ordering::Relaxed);
            }
        }
    }

    pub(super) fn level(&self) -> u64 {
        self.words[HEAD].load(Ordering::Acquire) >> LEVEL_SHIFT
    }

    pub(super) fn count(&self) -> usize {
        self.words[HEAD].load(Ordering::Acquire) as u32 as usize
    }

    /// The child of a slot, whether the node is frozen or not.
    #[inline]
    pub(super) fn child(&self, slot: usize) -> u64 {
        self.words[self.place(slot)].load(Ordering::SeqCst) & !FROZEN
    }

    /// The child of a slot; `None` if the node is frozen.
    ///
    /// The order is sequentially consistent with those of freezing and of boxes: an insertion
    /// enlarges the box and then reads this, a copy freezes and then reads the box. So one of the
    /// two notices the other (P7).
    #[inline]
    pub(super) fn child_to_change(&self, slot: usize) -> Option<u64> {
        let child = self.words[self.place(slot)].load(Ordering::SeqCst);
        (child & FROZEN == 0).then_some(child)
    }

    #[inline]
    pub(super) fn rect(&self, slot: usize) -> Rect<D> {
        let first = self.place(slot) + 1;
        let coordinates =
            |first: usize| std::array::from_fn(|axis| f64::from_bits(self.words[first + axis].load(Ordering::SeqCst)));
        Rect::raw(coordinates(first), coordinates(first + D))
    }

    /// The slots with their boxes.
    pub(super) fn rects(&self) -> impl Iterator<Item = (usize, Rect<D>)> + use<'a, D> {
        let node = *self;
        (0..self.count()).map(move |slot| (slot, node.rect(slot)))
    }

    /// Makes a slot's box contain another one, coordinate by coordinate.
    pub(super) fn enlarge(&self, slot: usize, rect: &Rect<D>) {
        let first = self.place(slot) + 1;
        for axis in 0..D {
            extend(&self.words[first + axis], rect.min()[axis], |present, wanted| wanted < present);
            extend(&self.words[first + D + axis], rect.max()[axis], |present, wanted| wanted > present);
        }
    }

    /// Stores the union of a slot's box and another one, as in the paper
    /// ([`Gap::Boxes`](super::options::Gap::Boxes)).
    pub(super) fn store_union(&self, slot: usize, rect: &Rect<D>) {
        let union = self.rect(slot).union(rect);
        let first = self.place(slot) + 1;
        for (word, coordinate) in self.words[first..].iter().zip(union.min().iter().chain(union.max())) {
            word.store(coordinate.to_bits(), Ordering::SeqCst);
        }
    }

    /// Puts a copy in the place of a child, if that is still there and the node is not frozen.
    pub(super) fn exchange_child(&self, slot: usize, child: u64, copy: u64) -> bool {
        self.words[self.place(slot)].compare_exchange(child, copy, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Notes a merge, unless the node has a note or is closed.
    pub(super) fn note(&self, merge: Merge) -> bool {
        self.words[NOTE].compare_exchange(0, merge.encode(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the node is noted for a merge or closed, so that it will be copied.
    pub(super) fn is_closing(&self) -> bool {
        self.words[NOTE].load(Ordering::SeqCst) != 0
    }

    /// Closes the note and freezes the children (P6). Gives the merge that has to be completed
    /// before the node is copied.
    pub(super) fn freeze(&self) -> Option<Merge> {
        let note = match self.words[NOTE].compare_exchange(0, CLOSED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => CLOSED,
            Err(note) => note,
        };
        for slot in 0..self.count() {
            self.words[self.place(slot)].fetch_or(FROZEN, Ordering::SeqCst);
        }
        Merge::decode(note)
    }

    fn place(&self, slot: usize) -> usize {
        CHILDREN + slot * (2 * D + 1)
    }
}

/// Stores a coordinate if it lies beyond the present one.
#[inline]
fn extend(word: &AtomicU64, wanted: f64, is_beyond: impl Fn(f64, f64) -> bool) {
    let mut present = word.load(Ordering::SeqCst);
    while is_beyond(f64::from_bits(present), wanted) {
        match word.compare_exchange(present, wanted.to_bits(), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return,
            Err(other) => present = other,
        }
    }
}
