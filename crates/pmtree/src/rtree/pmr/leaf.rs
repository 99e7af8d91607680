//! Leaves in the pool: the words of the G-bitmap, and entries.

use smallvec::SmallVec;
use terrane_pmem::{Backend, Guard, Site, View, WORD_LENGTH, pmwcas};
use terrane_storage::sync::{AtomicU64, Ordering};

use super::inner::STUB_MAP;
use super::layout::{DETACHED, DIRTY, FROZEN, HEADER_END, INCARNATION, Layout, MAP, MAP_BITS, NEXT, SECOND};
use super::options::{Gap, Publication};
use super::tree::PmrTree;
use crate::rtree::LeafForm;
use crate::rtree::rect::Rect;
use crate::{Result, blocks};

const READ: Site = Site::new("pmr.read.persist");
const COPY: Site = Site::new("pmr.copy");

/// The valid entries of a leaf at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Map {
    /// Without flags.
    pub(super) words: SmallVec<[u64; 8]>,
}

impl Map {
    /// Of a leaf that has entries in these slots.
    pub(super) fn of<const D: usize>(slots: impl Iterator<Item = usize>, layout: &Layout<D>) -> Self {
        let mut words = SmallVec::from_elem(0, layout.map_words);
        for slot in slots {
            let (word, bit) = layout.bit(slot);
            debug_assert!(bit < MAP_BITS);
            words[word] |= 1 << bit;
        }
        Self { words }
    }

    pub(super) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The slots of valid entries.
    pub(super) fn slots<'a, const D: usize>(&'a self, layout: &'a Layout<D>) -> impl Iterator<Item = usize> + 'a {
        self.words.iter().enumerate().flat_map(move |(number, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(layout.slot(number, bit as usize))
            })
        })
    }
}

/// The entries of a leaf, in place in the pool.
pub(super) struct Entries<'a, const D: usize, B: Backend + 'a> {
    view: B::View<'a>,
    first: usize,
}

impl<const D: usize, B: Backend> Entries<'_, D, B> {
    #[inline]
    pub(super) fn rect(&self, slot: usize) -> Rect<D> {
        let entry = self.place(slot);
        let corner = |first: usize| self.view.load_array::<D>(first).map(f64::from_bits);
        Rect::raw(corner(entry), corner(entry + D))
    }

    #[inline]
    pub(super) fn payload(&self, slot: usize) -> u64 {
        self.view.load(self.place(slot) + 2 * D)
    }

    #[inline]
    fn place(&self, slot: usize) -> usize {
        self.first + slot * (Layout::<D>::ENTRY_LENGTH / WORD_LENGTH) as usize
    }
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// The entries of a leaf, which lies in the pool.
    #[inline]
    pub(super) fn entries(&self, leaf: u64) -> Result<Entries<'_, D, B>> {
        let length = self.layout.leaf_length();
        self.pool.check_range(leaf, length)?;
        let first = (self.layout.entry(0) / WORD_LENGTH) as usize;
        Ok(Entries { view: self.backend().view(leaf, length), first })
    }

    /// The next word of a leaf, which is durable.
    pub(super) fn next(&self, leaf: u64, guard: &Guard<'_>) -> Result<u64> {
        Ok(pmwcas::read(&self.pool, leaf + NEXT, guard)?)
    }

    /// A word of a leaf's bitmap in memory, if entries validate themselves. It tells of durable
    /// changes only (P8).
    #[inline]
    fn word_in_memory(&self, stub: u64, word: usize) -> Option<&AtomicU64> {
        match self.layout.leaves {
            LeafForm::Bitmap => None,
            LeafForm::SelfValidating => Some(&self.stubs.words(stub)[STUB_MAP + word]),
        }
    }

    /// A word of a leaf's bitmap, which is durable (P2, P8). It may be frozen.
    #[inline]
    pub(super) fn map_word(&self, stub: u64, word: usize, guard: &Guard<'_>) -> Result<u64> {
        if let Some(word) = self.word_in_memory(stub, word) {
            return Ok(word.load(Ordering::SeqCst));
        }
        let offset = self.leaf_of(stub) + self.layout.map_word(word);
        match self.publication {
            Publication::Descriptor => Ok(pmwcas::read(&self.pool, offset, guard)?),
            Publication::CompareAndSwap => {
                let found = self.backend().load(offset);
                if found & DIRTY != 0 {
                    self.backend().persist(offset..offset + WORD_LENGTH, READ);
                    let _ = self.backend().compare_exchange(offset, found, found & !DIRTY);
                }
                Ok(found & !DIRTY)
            }
        }
    }

    /// Changes a word of a leaf's bitmap durably, if it still is `old`. `site` is the place of the
    /// flush and the fence.
    pub(super) fn change_map_word(
        &self,
        stub: u64,
        word: usize,
        (old, new): (u64, u64),
        site: Site,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let new = self.with_version(old, new);
        if let Some(word) = self.word_in_memory(stub, word) {
            return Ok(word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok());
        }
        let offset = self.leaf_of(stub) + self.layout.map_word(word);
        match self.publication {
            Publication::Descriptor => Ok(pmwcas::compare_exchange(&self.pool, offset, old, new, guard)?.is_ok()),
            Publication::CompareAndSwap => {
                // Another thread's change below it becomes durable with it.
                let backend = self.backend();
                let changed = [old, old | DIRTY]
                    .iter()
                    .any(|&found| backend.compare_exchange(offset, found, new | DIRTY).is_ok());
                if changed {
                    backend.persist(offset..offset + WORD_LENGTH, site);
                    let _ = backend.compare_exchange(offset, new | DIRTY, new);
                }
                Ok(changed)
            }
        }
    }

    /// Freezes all words of a leaf's bitmap (P3), and gives its valid entries, which are final.
    pub(super) fn freeze(&self, stub: u64, guard: &Guard<'_>) -> Result<Map> {
        if self.has_gap(Gap::Freezing) {
            return self.read_map_once(stub, guard);
        }
        for word in 0..self.layout.map_words {
            if let Some(word) = self.word_in_memory(stub, word) {
                word.fetch_or(FROZEN, Ordering::SeqCst);
                continue;
            }
            let offset = self.leaf_of(stub) + self.layout.map_word(word);
            match self.publication {
                Publication::CompareAndSwap => _ = self.backend().fetch_or(offset, FROZEN),
                Publication::Descriptor => loop {
                    let found = pmwcas::read(&self.pool, offset, guard)?;
                    let frozen = found | FROZEN;
                    if found == frozen || pmwcas::compare_exchange(&self.pool, offset, found, frozen, guard)?.is_ok() {
                        break;
                    }
                },
            }
        }
        self.read_map_once(stub, guard)
    }

    fn read_map_once(&self, stub: u64, guard: &Guard<'_>) -> Result<Map> {
        let words = (0..self.layout.map_words).map(|word| Ok(self.map_word(stub, word, guard)? & MAP));
        Ok(Map { words: words.collect::<Result<_>>()? })
    }

    /// The valid entries of a leaf at one instant. The words are read until two readings agree. As
    /// none repeats a value (P1), the leaf had this bitmap between the two.
    pub(super) fn map(&self, stub: u64, guard: &Guard<'_>) -> Result<Map> {
        let mut map = self.read_map_once(stub, guard)?;
        if self.layout.map_words == 1 {
            return Ok(map);
        }
        loop {
            let again = self.read_map_once(stub, guard)?;
            if again == map {
                return Ok(map);
            }
            map = again;
        }
    }

    /// The valid entries of a leaf by what is stored in the pool. It counts if nobody else changes
    /// the leaf.
    pub(super) fn stored_map(&self, leaf: u64, guard: &Guard<'_>) -> Result<Map> {
        if self.layout.leaves == LeafForm::SelfValidating {
            return self.map_by_tags(leaf);
        }
        let word = |word| Ok(pmwcas::read(&self.pool, leaf + self.layout.map_word(word), guard)? & MAP);
        Ok(Map { words: (0..self.layout.map_words).map(word).collect::<Result<_>>()? })
    }

    /// The valid entries of a leaf whose bitmap is given.
    pub(super) fn collect(&self, leaf: u64, map: &Map, into: &mut Vec<(Rect<D>, u64)>) -> Result<()> {
        let entries = self.entries(leaf)?;
        into.extend(map.slots(&self.layout).map(|slot| (entries.rect(slot), entries.payload(slot))));
        Ok(())
    }

    /// Stores box and payload of an entry. Gives the bytes that hold them.
    pub(super) fn write_entry(&self, leaf: u64, slot: usize, rect: &Rect<D>, payload: u64) -> std::ops::Range<u64> {
        write_entry(self.backend(), leaf + self.layout.entry(slot), rect, payload)
    }

    /// Fills a new leaf with entries in its first slots, and flushes it. The fence is the
    /// caller's, before it links the leaf.
    pub(super) fn fill_leaf(&self, leaf: u64, entries: &[(Rect<D>, u64)], next: u64, second: u64) -> Result<()> {
        if entries.len() > self.layout.fan_out {
            return Err(blocks::damaged(&self.pool, leaf, "a copy would have more entries than a leaf"));
        }
        let backend = self.backend();
        for (offset, value) in [(NEXT, next), (SECOND, second), (DETACHED, 0)] {
            backend.store(leaf + offset, value);
        }
        for (slot, (rect, payload)) in entries.iter().enumerate() {
            self.write_entry(leaf, slot, rect, *payload);
        }
        match self.layout.leaves {
            LeafForm::Bitmap => {
                let map = Map::of(0..entries.len(), &self.layout);
                for (number, word) in map.words.into_iter().enumerate() {
                    backend.store(leaf + self.layout.map_word(number), word);
                }
            }
            LeafForm::SelfValidating => {
                backend.store(leaf + INCARNATION, self.incarnations.next(&self.pool));
                (0..entries.len()).for_each(|slot| self.validate(leaf, slot));
            }
        }
        backend.flush(leaf..leaf + self.layout.entry(entries.len()).max(HEADER_END), COPY);
        Ok(())
    }
}

/// Stores box and payload of an entry at an offset. Gives the bytes that hold them.
pub(super) fn write_entry<const D: usize>(
    backend: &impl Backend,
    first: u64,
    rect: &Rect<D>,
    payload: u64,
) -> std::ops::Range<u64> {
    let corners = rect.min().iter().chain(rect.max()).map(|coordinate| coordinate.to_bits());
    for (offset, word) in (first..).step_by(WORD_LENGTH as usize).zip(corners.chain([payload])) {
        backend.store(offset, word);
    }
    first..first + Layout::<D>::ENTRY_USED
}

/// The smallest box around entries. Without any, it is the empty box, which every other one
/// contains.
pub(super) fn bounds<const D: usize>(rects: impl Iterator<Item = Rect<D>>) -> Rect<D> {
    rects.fold(empty(), |all, rect| all.union(&rect))
}

/// The box that contains nothing.
pub(super) fn empty<const D: usize>() -> Rect<D> {
    Rect::raw([f64::INFINITY; D], [f64::NEG_INFINITY; D])
}
