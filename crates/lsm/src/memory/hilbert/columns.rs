//! The columns of a Hilbert R-tree's leaf: coordinates and sequence numbers.

use super::super::SEQUENCE_MAX;
use super::super::tree::{BLOCK_SLOTS, Cell, Columns, Slots, View};
use terrane_space::Rect;
use terrane_storage::sync::{AtomicU64, Ordering};

/// Entries with `N` coordinates: two for points, four for rectangles.
pub(super) struct Spatial<const N: usize> {
    coordinates: [Slots<f64, BLOCK_SLOTS>; N],
    begins: Slots<u64, BLOCK_SLOTS>,
    /// The only word of an entry that changes, and it changes once.
    ends: [AtomicU64; BLOCK_SLOTS],
}

/// One entry's values.
#[derive(Clone, Copy)]
pub(super) struct SpatialItem {
    pub(super) rect: Rect,
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl<const N: usize> Spatial<N> {
    /// Index of the columns with the high sides; for points, low and high sides are the same.
    const HIGH: usize = N - 2;

    /// An entry's rectangle.
    pub(super) fn rect(cell: Cell<'_, Self>) -> Rect {
        let columns = cell.columns();
        let read = |column: usize| *cell.read(&columns.coordinates[column]);
        Rect { x0: read(0), y0: read(1), x1: read(Self::HIGH), y1: read(Self::HIGH + 1) }
    }

    /// Sequence number of the write that made an entry.
    pub(super) fn begin(cell: Cell<'_, Self>) -> u64 {
        *cell.read(&cell.columns().begins)
    }

    /// Sequence number of the write that ended an entry.
    pub(super) fn end(cell: Cell<'_, Self>) -> u64 {
        cell.columns().ends[cell.slot()].load(Ordering::Acquire)
    }

    /// Ends an entry. Only the writer calls this.
    pub(super) fn set_end(cell: Cell<'_, Self>, sequence: u64) {
        cell.columns().ends[cell.slot()].store(sequence, Ordering::Release);
    }

    /// One bit for each entry of a view whose rectangle meets the window.
    #[inline]
    pub(super) fn hits(view: View<'_, Self>, window: &Rect) -> u32 {
        let column = |index: usize| {
            // SAFETY: a view covers published slots only.
            unsafe { view.columns().coordinates[index].published(view.len()) }
        };
        let (x0, y0, x1, y1) = (column(0), column(1), column(Self::HIGH), column(Self::HIGH + 1));
        let mut hits = 0;
        for slot in 0..view.len() {
            let hit =
                (x0[slot] <= window.x1) & (x1[slot] >= window.x0) & (y0[slot] <= window.y1) & (y1[slot] >= window.y0);
            hits |= u32::from(hit) << slot;
        }
        hits
    }
}

impl<const N: usize> Columns for Spatial<N> {
    type Extent = Rect;
    type Item = SpatialItem;

    fn new() -> Self {
        Self {
            coordinates: std::array::from_fn(|_| Slots::new()),
            begins: Slots::new(),
            ends: std::array::from_fn(|_| AtomicU64::new(SEQUENCE_MAX)),
        }
    }

    unsafe fn write(&self, slot: usize, item: SpatialItem) {
        let values = [item.rect.x0, item.rect.y0, item.rect.x1, item.rect.y1];
        for (column, value) in self.coordinates.iter().zip(values) {
            // SAFETY: the caller is the only writer, and the slot is not published.
            unsafe { column.write(slot, value) };
        }
        // SAFETY: as above.
        unsafe { self.begins.write(slot, item.begin) };
        // The entry's publication orders this store.
        self.ends[slot].store(item.end, Ordering::Relaxed);
    }

    fn item(cell: Cell<'_, Self>) -> SpatialItem {
        SpatialItem { rect: Self::rect(cell), begin: Self::begin(cell), end: Self::end(cell) }
    }

    fn tie(cell: Cell<'_, Self>) -> u64 {
        Self::begin(cell)
    }

    fn extent(item: &SpatialItem) -> Rect {
        item.rect
    }
}
