//! Parses the pages of an R-tree.

use terrane_space::{Point, Rect, RectF32, from_ordered_bits, ordered_bits};
use wide::u8x16;

use super::kernels;
use crate::disk::btree::words_if;
use crate::disk::column::{self, Column, UpperRange};
use crate::disk::keys::{Key, Keys, split_head, width_in_rows};
use crate::disk::page::{Page, PageKind, PagePointer};

/// A leaf has anti-matter bits.
pub const HAS_ANTIMATTER: u16 = 1;
/// A leaf has begin and end sequence numbers.
pub const HAS_SEQUENCES: u16 = 2;
/// A leaf holds rectangles, not points.
pub const RECTANGLES: u16 = 4;

/// Most entries of a leaf of points.
pub const POINTS_MAX: usize = 128;
/// Most entries of a leaf of rectangles.
pub const RECTANGLES_MAX: usize = 128;
/// Most children of an inner page.
pub const FANOUT_MAX: usize = 128;

/// An entry of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The rectangle; for a point, with equal corners.
    pub rect: Rect,
    /// The primary key.
    pub key: Key<'a>,
    /// Whether it deletes the entry in older components.
    pub antimatter: bool,
}

/// One flag byte for every entry of a page, 1 for a hit.
#[derive(Clone, Copy, Debug)]
pub struct Hits([u64; POINTS_MAX / 8]);

impl Default for Hits {
    fn default() -> Self {
        Self::new()
    }
}

impl Hits {
    /// No hits.
    #[inline]
    pub fn new() -> Self {
        Self([0; POINTS_MAX / 8])
    }

    #[inline]
    pub(super) fn bytes(&mut self, count: usize) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..count]
    }

    /// Makes the first `count` entries hits.
    pub fn set_all(&mut self, count: usize) {
        self.bytes(count).fill(1);
    }

    /// One bit for each of the first `count` entries.
    #[inline]
    pub fn bits(&self, count: usize) -> HitBits {
        let bytes: &[[u8; 16]; POINTS_MAX / 16] = bytemuck::cast_ref(&self.0);
        let mut bits = 0;
        for (index, flags) in bytes[..count.div_ceil(16)].iter().enumerate() {
            // A flag of 1 becomes 255, and its highest bit is taken.
            bits |= u128::from((u8x16::ZERO - u8x16::new(*flags)).to_bitmask()) << (16 * index);
        }
        HitBits(bits)
    }

    /// Indexes of the hits among the first `count`, ascending.
    #[inline]
    pub fn iter(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        self.bits(count).iter(count)
    }
}

/// One bit for every entry of a page, 1 for a hit.
#[derive(Clone, Copy, Debug, Default)]
pub struct HitBits(u128);

impl HitBits {
    /// Whether there is no hit.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Indexes of the hits among the first `count`, ascending. The loop does not branch on hits,
    /// which cannot be predicted.
    #[inline]
    pub fn iter(self, count: usize) -> impl Iterator<Item = usize> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let index = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            (index < count).then_some(index)
        })
    }
}

/// A leaf page.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// Number of entries.
    pub count: usize,
    pub(super) x0: Column<'a>,
    pub(super) y0: Column<'a>,
    /// Upper corners x1 and y1 of rectangles; those of points are the lower ones.
    pub(super) far: Option<[Column<'a>; 2]>,
    /// Primary keys.
    pub keys: Keys<'a>,
    antimatter: Option<&'a [u64]>,
    begins: Option<&'a [u64]>,
    ends: Option<&'a [u64]>,
    /// The rest of the page.
    pub(in crate::disk) behind: &'a [u8],
}

impl<'a> Leaf<'a> {
    /// Parses a leaf; `None` if its parts do not fit.
    #[inline(always)]
    pub fn parse(page: &'a Page) -> Option<Self> {
        let count = page.count();
        let rectangles = page.flags() & RECTANGLES != 0;
        let (head, rest) = split_head(page.payload())?;
        let key_width = width_in_rows(head).unwrap_or(0);
        let (x0, y0, far, offsets, rest) = if rectangles {
            let ([x0, y0, x1, y1], offsets, rest) = column::parse::<4>(rest, count, key_width)?;
            (x0, y0, Some([x1, y1]), offsets, rest)
        } else {
            let ([x, y], offsets, rest) = column::parse::<2>(rest, count, key_width)?;
            (x, y, None, offsets, rest)
        };
        let (keys, rest) = Keys::parse_rows(head, offsets, rest, count)?;
        let (antimatter, rest) = words_if(page.flags() & HAS_ANTIMATTER != 0, rest, count.div_ceil(64))?;
        let has_sequences = page.flags() & HAS_SEQUENCES != 0;
        let (begins, rest) = words_if(has_sequences, rest, count)?;
        let (ends, behind) = words_if(has_sequences, rest, count)?;
        Some(Self { count, x0, y0, far, keys, antimatter, begins, ends, behind })
    }

    /// The rectangle of an entry.
    #[inline]
    pub fn rect(&self, index: usize) -> Rect {
        let Point { x: x0, y: y0 } = self.point(index);
        let Some([x1, y1]) = &self.far else { return Rect { x0, y0, x1: x0, y1: y0 } };
        Rect { x0, y0, x1: from_ordered_bits(x1.get(index)), y1: from_ordered_bits(y1.get(index)) }
    }

    /// The lower corner of an entry: the point itself in a leaf of points.
    #[inline]
    pub fn point(&self, index: usize) -> Point {
        Point { x: from_ordered_bits(self.x0.get(index)), y: from_ordered_bits(self.y0.get(index)) }
    }

    /// Whether an entry is anti-matter.
    #[inline]
    pub fn is_antimatter(&self, index: usize) -> bool {
        self.antimatter.is_some_and(|bits| bits[index / 64] >> (index % 64) & 1 == 1)
    }

    /// Begin and end sequence numbers, if the component keeps them.
    #[inline]
    pub fn life(&self, index: usize) -> Option<(u64, u64)> {
        Some((self.begins?[index], self.ends?[index]))
    }

    /// Whether a snapshot sees the entry.
    #[inline]
    pub fn is_visible(&self, index: usize, snapshot: u64) -> bool {
        self.life(index).is_none_or(|(begin, end)| begin <= snapshot && snapshot < end)
    }

    /// The entry at an index.
    #[inline]
    pub fn get(&self, index: usize) -> Entry<'a> {
        Entry { rect: self.rect(index), key: self.keys.get(index), antimatter: self.is_antimatter(index) }
    }

    /// The entries that may intersect the window, as [`Self::mark_window`] marks them.
    #[inline]
    pub fn marks(&self, window: &WindowBits) -> Marks {
        let mut hits = Hits::new();
        match self.mark_window(window, &mut hits) {
            Some(marked) => Marks { hits: hits.bits(self.count), marked },
            None => Marks::default(),
        }
    }

    /// Prefetches the parts of an entry that a search reads.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        self.x0.prefetch(index);
    }

    /// Marks the entries that may intersect the window: all that do, and some whose bound shares
    /// its upper bits with the window's. `None` if there is surely none.
    #[inline]
    pub fn mark_window(&self, window: &WindowBits, hits: &mut Hits) -> Option<Marked> {
        let hits = hits.bytes(self.count);
        if let Some([x1, y1]) = &self.far {
            kernels::mark_points(
                hits,
                self.x0.upper(),
                self.x0.upper_range(0, window.x1)?,
                self.y0.upper(),
                self.y0.upper_range(0, window.y1)?,
            );
            let (x, y) = (x1.upper_range(window.x0, u64::MAX)?, y1.upper_range(window.y0, u64::MAX)?);
            kernels::keep_points(hits, x1.upper(), x, y1.upper(), y);
            return Some(Marked::default());
        }
        let (x, y) = (self.x0.upper_range(window.x0, window.x1)?, self.y0.upper_range(window.y0, window.y1)?);
        kernels::mark_points(hits, self.x0.upper(), x, self.y0.upper(), y);
        Some(Marked { x, y })
    }

    /// Whether a marked entry intersects the window. A point whose upper bits lie strictly between
    /// those of the window's sides does; its lower bits need not be read.
    #[inline]
    pub fn meets(&self, index: usize, marked: &Marked, window: &WindowBits) -> bool {
        (marked.x.has_inside(self.x0.upper()[index]) && marked.y.has_inside(self.y0.upper()[index]))
            || self.intersects(index, window)
    }

    /// Whether the entry's rectangle intersects the window.
    #[inline]
    pub fn intersects(&self, index: usize, window: &WindowBits) -> bool {
        let (x0, y0) = (self.x0.get(index), self.y0.get(index));
        let (x1, y1) = self.far.as_ref().map_or((x0, y0), |[x1, y1]| (x1.get(index), y1.get(index)));
        x0 <= window.x1 && y0 <= window.y1 && x1 >= window.x0 && y1 >= window.y0
    }

    pub(in crate::disk) fn is_valid(&self) -> bool {
        [&self.x0, &self.y0].into_iter().chain(self.far.iter().flatten()).all(Column::is_valid)
            && self.keys.is_valid(self.count)
            && (0..self.count).all(|index| {
                let rect = self.rect(index);
                rect.x0 <= rect.x1 && rect.y0 <= rect.y1 && rect.is_finite()
            })
    }
}

/// The entries of a leaf that may intersect a window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// The entries.
    pub hits: HitBits,
    /// How they were marked.
    pub marked: Marked,
}

/// How the entries of a leaf were marked: points by ranges of the upper bits of their coordinates,
/// rectangles by those of all four sides. For rectangles the ranges here are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marked {
    x: UpperRange,
    y: UpperRange,
}

/// A window in the order-preserving bits of its coordinates, and rounded for inner pages.
#[derive(Clone, Copy, Debug)]
pub struct WindowBits {
    x0: u64,
    y0: u64,
    x1: u64,
    y1: u64,
    outward: RectF32,
}

impl WindowBits {
    /// Prepares a window. It must not be empty or have a NaN.
    pub fn new(window: &Rect) -> Self {
        Self {
            x0: ordered_bits(window.x0),
            y0: ordered_bits(window.y0),
            x1: ordered_bits(window.x1),
            y1: ordered_bits(window.y1),
            outward: RectF32::outward(*window),
        }
    }
}

/// An inner page.
#[derive(Clone, Copy, Debug)]
pub struct Inner<'a> {
    pub(super) x0: &'a [f32],
    pub(super) y0: &'a [f32],
    pub(super) x1: &'a [f32],
    pub(super) y1: &'a [f32],
    /// The children.
    pub children: &'a [PagePointer],
}

impl<'a> Inner<'a> {
    /// Parses an inner page; `None` if its parts do not fit.
    #[inline(always)]
    pub fn parse(page: &'a Page) -> Option<Self> {
        let count = page.count();
        let bytes = (4 * count).next_multiple_of(8);
        let (boxes, children) = page.payload().split_at_checked(4 * bytes)?;
        let boxes: &[f32] = bytemuck::try_cast_slice(boxes).ok()?;
        let side = |number: usize| &boxes[number * bytes / 4..][..count];
        let children: &[PagePointer] = bytemuck::try_cast_slice(children).ok()?;
        (children.len() == count).then(|| Self { x0: side(0), y0: side(1), x1: side(2), y1: side(3), children })
    }

    /// The box of a child.
    #[inline]
    pub fn rect(&self, index: usize) -> Rect {
        Rect {
            x0: self.x0[index].into(),
            y0: self.y0[index].into(),
            x1: self.x1[index].into(),
            y1: self.y1[index].into(),
        }
    }

    /// Marks the children whose boxes intersect the window.
    #[inline]
    pub fn mark_window(&self, window: &WindowBits, hits: &mut Hits) {
        kernels::mark_boxes(hits.bytes(self.children.len()), [self.x0, self.y0, self.x1, self.y1], &window.outward);
    }
}

/// Verifies the structure of an R-tree page of any kind (I2 of the module `disk`).
pub fn validate(page: &Page) -> Result<(), String> {
    let fail = |reason: &str| Err(reason.to_owned());
    match page.kind() {
        PageKind::RTreeLeaf => {
            if page.count() == 0 || page.count() > POINTS_MAX {
                return fail("a leaf cannot have this many entries");
            }
            match Leaf::parse(page) {
                None => fail("the parts of the leaf do not fit"),
                Some(leaf) if !leaf.is_valid() => fail("the entries of the leaf are not valid"),
                Some(_) => Ok(()),
            }
        }
        PageKind::RTreeInner => {
            if page.count() == 0 || page.count() > FANOUT_MAX || page.level() == 0 {
                return fail("an inner page cannot have this many children or this level");
            }
            if Inner::parse(page).is_none() { fail("the parts of the inner page do not fit") } else { Ok(()) }
        }
        _ => fail("the page belongs to another kind of component"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hits_come_back_in_order(flags in prop::collection::vec(0_u8..2, 0..=POINTS_MAX), below in 0..=POINTS_MAX) {
            let mut hits = Hits::new();
            hits.bytes(flags.len()).copy_from_slice(&flags);
            let wanted = |count: usize| (0..count.min(flags.len())).filter(|index| flags[*index] == 1).collect::<Vec<_>>();
            prop_assert_eq!(hits.iter(flags.len()).collect::<Vec<_>>(), wanted(flags.len()));
            prop_assert_eq!(hits.iter(below).collect::<Vec<_>>(), wanted(below));
            let bits = hits.bits(flags.len());
            prop_assert_eq!(bits.is_empty(), wanted(flags.len()).is_empty());
            // Marks of a longer page are meaningless for a shorter one.
            prop_assert_eq!(bits.iter(below).collect::<Vec<_>>(), wanted(below));
        }
    }
}
