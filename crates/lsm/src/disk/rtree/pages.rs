//! Reading the pages of an R-tree.

use terrane_space::{Point, Rect, RectF32, from_ordered_bits, ordered_bits};

use crate::disk::btree::words_if;
use crate::disk::column::{self, Column, UpperRange};
use crate::disk::keys::{Key, Keys};
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
pub const FANOUT_MAX: usize = 64;

/// An entry of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The rectangle; of a point, with equal corners.
    pub rect: Rect,
    /// The primary key.
    pub key: Key<'a>,
    /// Whether it says that the entry is deleted from older components.
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
    fn bytes(&mut self, count: usize) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..count]
    }

    /// Makes the first `count` entries hits.
    pub fn set_all(&mut self, count: usize) {
        self.bytes(count).fill(1);
    }

    /// Indexes of the hits among the first `count`, ascending.
    #[inline]
    pub fn iter(&self, count: usize) -> impl Iterator<Item = usize> {
        self.0[..count.div_ceil(8)].iter().enumerate().flat_map(|(word_index, word)| {
            let mut word = u64::from_le(*word);
            std::iter::from_fn(move || {
                if word == 0 {
                    return None;
                }
                let bit = word.trailing_zeros() as usize;
                word &= word - 1;
                Some(word_index * 8 + bit / 8)
            })
        })
    }
}

/// A leaf page.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// Number of entries.
    pub count: usize,
    x0: Column<'a>,
    y0: Column<'a>,
    /// Upper corners x1 and y1 of rectangles; those of points are the lower ones.
    far: Option<[Column<'a>; 2]>,
    /// Primary keys.
    pub keys: Keys<'a>,
    antimatter: Option<&'a [u64]>,
    begins: Option<&'a [u64]>,
    ends: Option<&'a [u64]>,
}

impl<'a> Leaf<'a> {
    /// Reads a leaf; `None` when its parts do not fit.
    #[inline]
    pub fn parse(page: &'a Page) -> Option<Self> {
        let count = page.count();
        let rectangles = page.flags() & RECTANGLES != 0;
        let (x0, y0, far, rest) = if rectangles {
            let ([x0, y0, x1, y1], rest) = column::parse::<4>(page.payload(), count)?;
            (x0, y0, Some([x1, y1]), rest)
        } else {
            let ([x, y], rest) = column::parse::<2>(page.payload(), count)?;
            (x, y, None, rest)
        };
        let (keys, rest) = Keys::parse(rest, count)?;
        let (antimatter, rest) = words_if(page.flags() & HAS_ANTIMATTER != 0, rest, count.div_ceil(64))?;
        let has_sequences = page.flags() & HAS_SEQUENCES != 0;
        let (begins, rest) = words_if(has_sequences, rest, count)?;
        let (ends, _) = words_if(has_sequences, rest, count)?;
        Some(Self { count, x0, y0, far, keys, antimatter, begins, ends })
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

    /// Begin and end sequence numbers, where the component keeps them.
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

    /// Marks the entries that may intersect the window: all that do, and some whose bound
    /// shares its upper bits with the window's. `None` when there is surely none.
    #[inline]
    pub fn mark_window(&self, window: &WindowBits, hits: &mut Hits) -> Option<Marked> {
        let hits = hits.bytes(self.count);
        if let Some([x1, y1]) = &self.far {
            mark(
                hits,
                self.x0.upper(),
                self.x0.upper_range(0, window.x1)?,
                self.y0.upper(),
                self.y0.upper_range(0, window.y1)?,
            );
            let (x, y) = (x1.upper_range(window.x0, u64::MAX)?, y1.upper_range(window.y0, u64::MAX)?);
            and_mark(hits, x1.upper(), x, y1.upper(), y);
            return Some(Marked::Rectangles);
        }
        let (x, y) = (self.x0.upper_range(window.x0, window.x1)?, self.y0.upper_range(window.y0, window.y1)?);
        mark(hits, self.x0.upper(), x, self.y0.upper(), y);
        Some(Marked::Points(x, y))
    }

    /// Lower bounds of the squared Euclidean distances of the points from a place, from the upper
    /// parts of their coordinates alone. False where the points do not lie on an even grid, or too
    /// far away for its numbers.
    #[inline]
    pub fn distance_bounds(&self, from: Point, bounds: &mut DistanceBounds) -> bool {
        self.fill_distance_bounds(from, bounds).is_some()
    }

    #[inline]
    fn fill_distance_bounds(&self, from: Point, bounds: &mut DistanceBounds) -> Option<()> {
        // Up to here, the grid's numbers and their differences err by less than `ROUNDING`.
        const FARTHEST: f64 = (1 << 18) as f64;
        const ROUNDING: f32 = 0.0625;
        // Down to here, the squares of differences are normal numbers.
        const NARROWEST: f64 = 1.0 / (1u64 << 32) as f64;
        if self.far.is_some() {
            return None;
        }
        let ((x, step_x), (y, step_y)) = (self.x0.even_steps()?, self.y0.even_steps()?);
        let (at_x, at_y) = ((from.x - x) / step_x, (from.y - y) / step_y);
        let unit = step_x.max(step_y);
        // The square of the unit is neither nothing nor everything.
        let in_reach = at_x.abs() <= FARTHEST && at_y.abs() <= FARTHEST;
        if !in_reach || !(1e-140..1e140).contains(&unit) || step_x.min(step_y) < unit * NARROWEST {
            return None;
        }
        let (at_x, at_y) = (at_x as f32, at_y as f32);
        let (scale_x, scale_y) = ((step_x / unit) as f32, (step_y / unit) as f32);
        for ((bound, x), y) in bounds.lower.iter_mut().zip(self.x0.upper()).zip(self.y0.upper()) {
            // A point lies up to one step beyond its upper part.
            let dx = ((f32::from(*x) - at_x).abs() - (1.0 + ROUNDING)).max(0.0) * scale_x;
            let dy = ((f32::from(*y) - at_y).abs() - (1.0 + ROUNDING)).max(0.0) * scale_y;
            *bound = (dx * dx + dy * dy) * (1.0 - 1e-6);
        }
        bounds.count = self.count;
        bounds.unit = unit;
        bounds.span = 2.0 * (1.0 + f64::from(ROUNDING)) * f64::from(scale_x).hypot(f64::from(scale_y));
        Some(())
    }

    /// Whether a marked entry intersects the window. A point whose upper bits lie strictly
    /// between those of the window's sides does, without a look at its lower bits.
    #[inline]
    pub fn meets(&self, index: usize, marked: &Marked, window: &WindowBits) -> bool {
        if let Marked::Points(x, y) = marked
            && x.has_inside(self.x0.upper()[index])
            && y.has_inside(self.y0.upper()[index])
        {
            return true;
        }
        self.intersects(index, window)
    }

    /// Whether the entry's rectangle intersects the window.
    #[inline]
    pub fn intersects(&self, index: usize, window: &WindowBits) -> bool {
        let (x0, y0) = (self.x0.get(index), self.y0.get(index));
        let (x1, y1) = self.far.as_ref().map_or((x0, y0), |[x1, y1]| (x1.get(index), y1.get(index)));
        x0 <= window.x1 && y0 <= window.y1 && x1 >= window.x0 && y1 >= window.y0
    }

    fn is_valid(&self) -> bool {
        [&self.x0, &self.y0].into_iter().chain(self.far.iter().flatten()).all(Column::is_valid)
            && self.keys.is_valid(self.count)
            && (0..self.count).all(|index| {
                let rect = self.rect(index);
                rect.x0 <= rect.x1 && rect.y0 <= rect.y1 && rect.is_finite()
            })
    }
}

#[inline]
fn mark(hits: &mut [u8], xs: &[u16], x: UpperRange, ys: &[u16], y: UpperRange) {
    for ((hit, px), py) in hits.iter_mut().zip(xs).zip(ys) {
        *hit = u8::from(px.wrapping_sub(x.low) <= x.span) & u8::from(py.wrapping_sub(y.low) <= y.span);
    }
}

#[inline]
fn and_mark(hits: &mut [u8], xs: &[u16], x: UpperRange, ys: &[u16], y: UpperRange) {
    for ((hit, px), py) in hits.iter_mut().zip(xs).zip(ys) {
        *hit &= u8::from(px.wrapping_sub(x.low) <= x.span) & u8::from(py.wrapping_sub(y.low) <= y.span);
    }
}

/// How the entries of a leaf were marked.
#[derive(Clone, Copy, Debug)]
pub enum Marked {
    /// By the ranges of the upper bits of x and y.
    Points(UpperRange, UpperRange),
    /// By those of all four sides.
    Rectangles,
}

/// Lower bounds of the squared distances of a leaf's points from a place.
#[derive(Clone, Copy, Debug)]
pub struct DistanceBounds {
    /// In squares of the unit.
    lower: [f32; POINTS_MAX],
    count: usize,
    unit: f64,
    /// Units by which a distance can exceed its lower bound.
    span: f64,
}

impl Default for DistanceBounds {
    fn default() -> Self {
        Self { lower: [0.0; POINTS_MAX], count: 0, unit: 1.0, span: 0.0 }
    }
}

impl DistanceBounds {
    #[inline]
    fn values(&self) -> &[f32] {
        &self.lower[..self.count]
    }

    /// A squared distance as [`Self::mark`] takes it, rounded up.
    #[inline]
    pub fn count_of(&self, squared: f64) -> f32 {
        (squared / (self.unit * self.unit) * (1.0 + 1e-6)) as f32
    }

    /// At most and at least the squared distance of a point.
    #[inline]
    pub fn of(&self, index: usize) -> (f64, f64) {
        let lower = f64::from(self.lower[index]);
        let upper = lower.sqrt() + self.span;
        let square = self.unit * self.unit;
        (lower * square, upper * upper * (1.0 + 1e-5) * square)
    }

    /// Marks the points whose bounds are above the first and at most the second number.
    #[inline]
    pub fn mark(&self, above: f32, at_most: f32, hits: &mut Hits) {
        for (hit, bound) in hits.bytes(self.count).iter_mut().zip(self.values()) {
            *hit = u8::from(*bound > above) & u8::from(*bound <= at_most);
        }
    }

    /// A number that the bounds of at least `count` points do not exceed, and those of few more;
    /// infinite where there are no more points than that.
    pub fn threshold(&self, count: usize) -> f32 {
        const STEPS: usize = 24;
        let values = self.values();
        if values.len() <= count {
            return f32::INFINITY;
        }
        let within = |limit: f32| values.iter().map(|bound| u32::from(*bound <= limit)).sum::<u32>() as usize;
        let (nearest, farthest) =
            values.iter().fold((f32::INFINITY, 0.0f32), |(low, high), bound| (low.min(*bound), high.max(*bound)));
        // Points that fill a circle evenly have squared distances that lie evenly.
        let mut low = nearest;
        let mut high = farthest;
        let mut guess = nearest + (farthest - nearest) * (0.6 * count as f32 / values.len() as f32);
        for _ in 0..STEPS {
            let found = within(guess);
            if found < count {
                low = guess;
                guess = (2.0 * guess).min(0.5 * (low + high)).max(guess);
            } else {
                high = guess;
                if found <= count + count / 2 + 4 {
                    break;
                }
                guess = 0.5 * (low + high);
            }
        }
        high
    }
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
    /// Prepares a window; it must not be empty and have no NaN.
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
    x0: &'a [f32],
    y0: &'a [f32],
    x1: &'a [f32],
    y1: &'a [f32],
    /// The children.
    pub children: &'a [PagePointer],
}

impl<'a> Inner<'a> {
    /// Reads an inner page; `None` when its parts do not fit.
    #[inline]
    pub fn parse(page: &'a Page) -> Option<Self> {
        let count = page.count();
        let bytes = (4 * count).next_multiple_of(8);
        let mut rest = page.payload();
        let mut array = || {
            let (array, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            let array: &[f32] = bytemuck::try_cast_slice(array).ok()?;
            Some(&array[..count])
        };
        let (x0, y0, x1, y1) = (array()?, array()?, array()?, array()?);
        let children: &[PagePointer] = bytemuck::try_cast_slice(rest).ok()?;
        (children.len() == count).then_some(Self { x0, y0, x1, y1, children })
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
        let window = &window.outward;
        let hits = hits.bytes(self.children.len());
        for ((((hit, x0), y0), x1), y1) in hits.iter_mut().zip(self.x0).zip(self.y0).zip(self.x1).zip(self.y1) {
            *hit = u8::from(*x0 <= window.x1)
                & u8::from(*y0 <= window.y1)
                & u8::from(*x1 >= window.x0)
                & u8::from(*y1 >= window.y0);
        }
    }
}

/// Verifies the structure of any page that an R-tree has (I2 of the module `disk`).
pub fn validate(page: &Page) -> Result<(), String> {
    let fail = |reason: &str| Err(reason.to_owned());
    match page.kind() {
        PageKind::RTreeLeaf => {
            if page.count() == 0 || page.count() > POINTS_MAX {
                return fail("a leaf cannot have this many entries");
            }
            match Leaf::parse(page) {
                None => fail("the parts of the leaf do not fit"),
                Some(leaf) if !leaf.is_valid() => fail("the entries of the leaf do not make sense"),
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
