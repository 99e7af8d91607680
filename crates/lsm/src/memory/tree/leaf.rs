//! Leaves: entries in append-only blocks.
//!
//! A reader loads a leaf's count once with `Acquire` and accesses only slots below it. A slot below
//! the count never changes, except for the atomic words of its columns.

use super::super::arena::Arena;
use super::extent::Extent;
use super::key::{KeyWord, Order, StoredOrder, StoredRest, prefix_of, print_of};
use super::slots::Slots;
use crate::{Error, Result};
use std::ptr::null_mut;
use terrane_storage::sync::{AtomicPtr, AtomicU32, Ordering};

/// Entries of a block.
pub(in crate::memory) const BLOCK_SLOTS: usize = if cfg!(loom) { 2 } else { 16 };
/// Blocks of a leaf.
const LEAF_BLOCKS: usize = if cfg!(loom) { 2 } else { 8 };
/// Most entries of a leaf.
pub(in crate::memory) const LEAF_SLOTS_MAX: usize = BLOCK_SLOTS * LEAF_BLOCKS;

/// Bit beside a key's length that marks anti-matter.
const ANTI_MATTER: u16 = 1 << 15;

/// The columns that a kind of tree stores with each key in a block.
pub(in crate::memory) trait Columns: Sized + Send + Sync + 'static {
    /// The extent type of inner nodes.
    type Extent: Extent;
    /// The columns' values of one entry.
    type Item: Copy;

    /// Columns without a written slot.
    fn new() -> Self;

    /// Writes one slot.
    ///
    /// # Safety
    /// The caller is the only writer, and the slot has not been published.
    unsafe fn write(&self, slot: usize, item: Self::Item);

    /// Reads one slot, atomic words as they are now.
    fn item(cell: Cell<'_, Self>) -> Self::Item;

    /// The tie that orders the entries of one key.
    fn tie(cell: Cell<'_, Self>) -> u64;

    /// The extent of one entry.
    fn extent(item: &Self::Item) -> Self::Extent;
}

/// A few entries, column by column.
pub(in crate::memory) struct Block<C> {
    heads: Slots<u64, BLOCK_SLOTS>,
    keys: Slots<KeyWord, BLOCK_SLOTS>,
    lengths: Slots<u16, BLOCK_SLOTS>,
    prints: Slots<u16, BLOCK_SLOTS>,
    columns: C,
}

/// The published slots of a block. The type states that they are published.
pub(in crate::memory) struct View<'a, C> {
    block: &'a Block<C>,
    len: usize,
}

impl<C> Clone for View<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for View<'_, C> {}

impl<'a, C: Columns> View<'a, C> {
    /// Number of published slots.
    pub(in crate::memory) fn len(self) -> usize {
        self.len
    }

    /// The columns; [`View::len`] of their slots are published.
    pub(in crate::memory) fn columns(self) -> &'a C {
        &self.block.columns
    }

    /// The heads of the published slots.
    pub(in crate::memory) fn heads(self) -> &'a [u64] {
        // SAFETY: a view covers published slots only.
        unsafe { self.block.heads.published(self.len) }
    }

    /// The prints of the keys of the published slots.
    fn prints(self) -> &'a [u16] {
        // SAFETY: a view covers published slots only.
        unsafe { self.block.prints.published(self.len) }
    }

    /// One published entry.
    pub(in crate::memory) fn cell(self, slot: usize) -> Cell<'a, C> {
        assert!(slot < self.len, "slot {slot} of {}", self.len);
        Cell { block: self.block, slot }
    }
}

/// A published entry. The type states that it is published.
pub(in crate::memory) struct Cell<'a, C> {
    block: &'a Block<C>,
    slot: usize,
}

impl<C> Clone for Cell<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Cell<'_, C> {}

impl<'a, C: Columns> Cell<'a, C> {
    /// The entry's slot in its block.
    pub(in crate::memory) fn slot(self) -> usize {
        self.slot
    }

    /// The columns of the entry's block.
    pub(in crate::memory) fn columns(self) -> &'a C {
        &self.block.columns
    }

    /// The entry's value in one column.
    pub(in crate::memory) fn read<T: Copy>(self, column: &'a Slots<T, BLOCK_SLOTS>) -> &'a T {
        // SAFETY: the slot is published, and all slots before it are.
        let published = unsafe { column.published(self.slot + 1) };
        &published[self.slot]
    }

    /// The head, which is compared first.
    pub(in crate::memory) fn head(self) -> u64 {
        *self.read(&self.block.heads)
    }

    /// Whether the entry was marked as anti-matter.
    pub(in crate::memory) fn is_anti_matter(self) -> bool {
        self.read(&self.block.lengths) & ANTI_MATTER != 0
    }

    /// The key's bytes.
    pub(in crate::memory) fn key(self) -> &'a [u8] {
        let length = self.read(&self.block.lengths) & !ANTI_MATTER;
        // SAFETY: word and length were stored together, in the arena that holds this block.
        unsafe { self.read(&self.block.keys).bytes(length) }
    }

    fn print(self) -> u16 {
        *self.read(&self.block.prints)
    }

    /// The entry's place in the tree.
    pub(in crate::memory) fn order(self) -> Order<'a> {
        Order { head: self.head(), key: self.key(), tie: C::tie(self) }
    }

    /// The entry's place, without copying the key.
    pub(in crate::memory) fn stored_order(self) -> StoredOrder {
        let length = self.read(&self.block.lengths) & !ANTI_MATTER;
        StoredOrder {
            head: self.head(),
            rest: StoredRest { key: *self.read(&self.block.keys), tie: C::tie(self), length, print: self.print() },
        }
    }
}

/// A leaf: entries in the order in which they arrived.
pub(in crate::memory) struct Leaf<C> {
    count: AtomicU32,
    blocks: [AtomicPtr<Block<C>>; LEAF_BLOCKS],
}

impl<C: Columns> Leaf<C> {
    pub(super) fn new() -> Self {
        Self { count: AtomicU32::new(0), blocks: std::array::from_fn(|_| AtomicPtr::new(null_mut())) }
    }

    /// Number of published entries.
    pub(in crate::memory) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire) as usize
    }

    /// The entries published by now.
    pub(in crate::memory) fn views(&self) -> impl Iterator<Item = View<'_, C>> {
        let count = self.len();
        self.blocks.iter().take(count.div_ceil(BLOCK_SLOTS)).enumerate().map(move |(index, block)| {
            // The count was published after this pointer and acquired above.
            let block = block.load(Ordering::Relaxed);
            // SAFETY: a block with a published entry is set, lives in the arena as long
            // as this leaf, and is only ever shared.
            let block = unsafe { &*block };
            let len = (count - index * BLOCK_SLOTS).min(BLOCK_SLOTS);
            View { block, len }
        })
    }

    /// The published entries in order; entries of equal order as they arrived.
    pub(in crate::memory) fn sort_into<'a>(&'a self, cells: &mut Vec<Cell<'a, C>>) {
        cells.clear();
        cells.extend(self.views().flat_map(|view| (0..view.len()).map(move |slot| view.cell(slot))));
        // Keys are far away, so the part that usually distinguishes them is fetched once.
        cells.sort_by_cached_key(|cell| {
            let Order { head, key, tie } = cell.order();
            (head, prefix_of(key), key, tie)
        });
    }

    /// The first published entry with this key.
    pub(in crate::memory) fn find(&self, key: &[u8]) -> Option<Cell<'_, C>> {
        let print = print_of(key);
        self.views().find_map(|view| {
            // All slots of a block at once, without a branch for each.
            if !view.prints().iter().fold(false, |found, &other| found | (other == print)) {
                return None;
            }
            (0..view.len()).map(|slot| view.cell(slot)).find(|cell| cell.print() == print && cell.key() == key)
        })
    }

    /// Appends an entry and publishes it.
    ///
    /// # Safety
    /// The caller is the only writer, and the arena is the one that holds this leaf.
    pub(super) unsafe fn push(
        &self,
        arena: &mut Arena,
        order: &StoredOrder,
        anti_matter: bool,
        item: C::Item,
    ) -> Result<()> {
        let count = self.count.load(Ordering::Relaxed);
        let (index, slot) = (count as usize / BLOCK_SLOTS, count as usize % BLOCK_SLOTS);
        let place = self.blocks.get(index).ok_or_else(|| Error::Invalid("an entry for a leaf that is full".into()))?;
        if slot == 0 {
            let fresh = Block {
                heads: Slots::new(),
                keys: Slots::new(),
                lengths: Slots::new(),
                prints: Slots::new(),
                columns: C::new(),
            };
            place.store(arena.place(fresh)?.as_ptr(), Ordering::Relaxed);
        }
        // SAFETY: the block was set when its first slot was filled and lives in the arena.
        let block = unsafe { &*place.load(Ordering::Relaxed) };
        let flag = if anti_matter { ANTI_MATTER } else { 0 };
        // SAFETY: the caller is the only writer, and the slot is not below the count.
        unsafe {
            block.heads.write(slot, order.head);
            block.keys.write(slot, order.rest.key);
            block.lengths.write(slot, order.rest.length | flag);
            block.prints.write(slot, order.rest.print);
            block.columns.write(slot, item);
        }
        self.count.store(count + 1, Ordering::Release);
        Ok(())
    }
}
