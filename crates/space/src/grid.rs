//! Static grid hierarchies (the SHB-tree and SIF of the LSM paper, sections 4.2.2 and 4.2.3). Of k
//! levels, each divides a cell of the level above into 2^n by 2^n cells. n may differ from level to
//! level (section 5.3.2).
//!
//! A cell number is the curve value of the cell's first lowest-level cell, followed by the level.
//! The numbers of a cell and its descendants are therefore one contiguous range, without the cell's
//! ancestors.

use crate::hilbert::{self, GridRect};
use crate::{Point, Rect};

#[cfg(test)]
mod tests;

/// Bits of the level at the end of a cell number.
const LEVEL_BITS: u32 = 8;

/// Most bits of all levels together, and most levels.
pub const ORDER_BITS_MAX: u32 = 28;

/// Position of the level in a token.
const TOKEN_LEVEL_SHIFT: u32 = 2 * ORDER_BITS_MAX;

/// Most bits of a level: one level of a cover is at most 2^16 cells of one parent.
pub const LEVEL_BITS_MAX: u32 = 8;

/// A cell number. Numbers are ordered along the curve, then by level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell(u64);

impl Cell {
    /// The number, as keys store it.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The cell of a stored number.
    #[inline]
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The level: 0 is the coarsest.
    #[inline]
    pub fn level(self) -> u32 {
        (self.0 & ((1 << LEVEL_BITS) - 1)) as u32
    }
}

/// A range of cell numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRange {
    /// First number.
    pub first: u64,
    /// Last number.
    pub last: u64,
}

/// Why a grid cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GridError {
    /// The hierarchy has no level, a level without bits, or more bits than a number holds.
    #[error(
        "a grid of {levels} levels with {bits} bits in all is not possible: it needs at least 1 level, 1 to \
         {LEVEL_BITS_MAX} bits per level, and at most {ORDER_BITS_MAX} in all"
    )]
    Shape {
        /// Number of levels.
        levels: usize,
        /// Bits of each coordinate in all levels.
        bits: u64,
    },
    /// The domain has no extent, or it or its extent is not finite.
    #[error("the domain {:?},{:?},{:?},{:?} of a grid {}", .domain.x0, .domain.y0, .domain.x1, .domain.y1, fault(.domain))]
    Domain {
        /// The refused domain.
        domain: Rect,
    },
}

/// What is wrong with a domain, and the remedy.
fn fault(domain: &Rect) -> &'static str {
    let is_beyond = |length: f64| length == f64::INFINITY;
    match domain.is_finite() && (is_beyond(domain.x1 - domain.x0) || is_beyond(domain.y1 - domain.y0)) {
        true => "is wider or higher than float64 can hold; give a smaller one",
        false => "must be finite and have a width and a height",
    }
}

/// A grid hierarchy over a domain, fixed when an index is created.
///
/// Positions outside of the domain belong to its outermost cells. Results therefore stay right when
/// data leave the domain; only selectivity suffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    domain: Rect,
    levels: u32,
    /// Bits of a lowest-level column below a square at each depth, the domain's first.
    below: [u8; ORDER_BITS_MAX as usize + 1],
}

/// A square of the hierarchy, by column and row at its level.
#[derive(Clone, Copy)]
struct Square {
    x: u32,
    y: u32,
    /// Number of levels below the domain: the domain itself is at 0, a cell at its level + 1.
    depth: u32,
}

impl Square {
    const DOMAIN: Square = Square { x: 0, y: 0, depth: 0 };
}

/// Columns and rows of lowest-level cells, all included.
type Span = GridRect;

impl Grid {
    /// A grid over `domain` with a level for each of `bits`. A level divides a cell of the level
    /// above into 2^bits cells per side.
    ///
    /// # Errors
    /// When the cells of the hierarchy cannot be numbered, or the domain has no extent.
    pub fn new(domain: Rect, bits: &[u32]) -> Result<Self, GridError> {
        let order: u64 = bits.iter().copied().map(u64::from).sum();
        let fits = (1..=u64::from(ORDER_BITS_MAX)).contains(&order);
        if !fits || !bits.iter().all(|bits| (1..=LEVEL_BITS_MAX).contains(bits)) {
            return Err(GridError::Shape { levels: bits.len(), bits: order });
        }
        let (width, height) = (domain.x1 - domain.x0, domain.y1 - domain.y0);
        let has_extent = |length: f64| length > 0.0 && length.is_finite();
        if !domain.is_finite() || !has_extent(width) || !has_extent(height) {
            return Err(GridError::Domain { domain });
        }
        // Every level has a bit, so there are no more levels than bits.
        let mut below = [0; ORDER_BITS_MAX as usize + 1];
        below[0] = order as u8;
        for (level, bits) in bits.iter().enumerate() {
            below[level + 1] = below[level] - *bits as u8;
        }
        Ok(Self { domain, levels: bits.len() as u32, below })
    }

    /// Number of levels.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// The lowest-level cell that holds `point`.
    #[inline]
    pub fn cell_of(&self, point: Point) -> Cell {
        let (x, y) = self.column_and_row(point);
        self.cell(Square { x, y, depth: self.levels })
    }

    /// The cells that hold `point`, from the coarsest down.
    pub fn cells_of(&self, point: Point) -> impl Iterator<Item = Cell> + use<> {
        let (grid, lowest) = (*self, self.cell_of(point).0 >> LEVEL_BITS);
        (1..=grid.levels).map(move |depth| grid.cell_above(lowest, depth))
    }

    /// Whether `cell` holds `point`.
    #[inline]
    pub fn holds(&self, cell: Cell, point: Point) -> bool {
        let differing = (cell.0 ^ self.cell_of(point).0) >> LEVEL_BITS;
        differing >> (2 * self.bits_below(cell.level().saturating_add(1))) == 0
    }

    /// The number of a cell among those of its level, with the level in front: a key for searches
    /// of single cells. The tokens of a level ascend along the curve, without gaps.
    #[inline]
    pub fn token(&self, cell: Cell) -> u64 {
        let value = cell.0 >> LEVEL_BITS >> (2 * self.bits_below(cell.level() + 1));
        value | u64::from(cell.level()) << TOKEN_LEVEL_SHIFT
    }

    /// The least token of a level.
    pub fn first_token(&self, level: u32) -> u64 {
        u64::from(level) << TOKEN_LEVEL_SHIFT
    }

    /// The numbers of `cell` and all its descendants.
    pub fn descendants(&self, cell: Cell) -> CellRange {
        let below = self.bits_below(cell.level() + 1);
        let leaves = (1u64 << (2 * below)) - 1;
        CellRange {
            first: cell.0,
            last: (((cell.0 >> LEVEL_BITS) + leaves) << LEVEL_BITS) | u64::from(self.levels - 1),
        }
    }

    /// The cells that cover `rect`, in the order of their numbers: the coarsest inside it, and
    /// lowest-level ones along its boundary.
    ///
    /// A cell counts as covered if the rectangle meets all its lowest-level cells. Below the
    /// coarsest level, no level is divided that would bring the number above `cells_max`; partly
    /// covered cells stand in for it.
    pub fn cover(&self, rect: Rect, cells_max: usize) -> Vec<Cell> {
        let mut covered = Vec::new();
        if rect.is_empty() {
            return covered;
        }
        let span = self.span(rect);
        let mut partial = vec![Square::DOMAIN];
        for depth in 1..=self.levels {
            let children: u64 = partial.iter().map(|square| self.child_count(*square, &span)).sum();
            if depth > 1 && children + covered.len() as u64 > cells_max as u64 {
                break;
            }
            let mut next = Vec::with_capacity(children as usize);
            for square in partial {
                for child in self.children(square, &span) {
                    if depth == self.levels || self.is_covered(child, &span) {
                        covered.push(self.cell(child));
                    } else {
                        next.push(child);
                    }
                }
            }
            partial = next;
        }
        covered.extend(partial.into_iter().map(|square| self.cell(square)));
        covered.sort_unstable();
        covered
    }

    /// Ranges of numbers that hold every lowest-level cell that meets `rect`, for an index of
    /// points, which stores only those cells. The ranges hold exactly these cells if `ranges_max`
    /// ranges suffice, else some others too.
    pub fn ranges(&self, rect: Rect, ranges_max: usize) -> Vec<CellRange> {
        if rect.is_empty() {
            return Vec::new();
        }
        let last_level = u64::from(self.levels - 1);
        let values = hilbert::ranges_in_window(self.span(rect), self.order(), ranges_max);
        let numbers = |(first, last)| CellRange { first: first << LEVEL_BITS, last: last << LEVEL_BITS | last_level };
        values.into_iter().map(numbers).collect()
    }

    /// [`ranges`](Self::ranges) plus the cells above them, for an index that stores the covers of
    /// objects. An object may be stored under a cell that is larger than the window.
    pub fn ranges_with_ancestors(&self, rect: Rect, ranges_max: usize) -> Vec<CellRange> {
        let mut ranges = self.ranges(rect, ranges_max);
        for index in 0..ranges.len() {
            // A cell above some cell of the range begins in the range, or is above its first cell.
            let first = ranges[index].first >> LEVEL_BITS;
            for depth in 1..self.levels {
                let Cell(number) = self.cell_above(first, depth);
                if number < ranges[index].first {
                    ranges.push(CellRange { first: number, last: number });
                }
            }
        }
        ranges.sort_unstable_by_key(|range| range.first);
        ranges.dedup_by(|next, last| {
            let inside = next.first <= last.last;
            if inside {
                last.last = last.last.max(next.last);
            }
            inside
        });
        ranges
    }

    fn order(&self) -> u32 {
        self.below[0].into()
    }

    /// Bits of a lowest-level column below a square at `depth`.
    #[inline]
    fn bits_below(&self, depth: u32) -> u32 {
        self.below.get(depth as usize).copied().unwrap_or(0).into()
    }

    /// The cell at a depth that holds the lowest-level cell of a curve value.
    fn cell_above(&self, lowest: u64, depth: u32) -> Cell {
        let below = 2 * self.bits_below(depth);
        Cell((lowest >> below << below << LEVEL_BITS) | u64::from(depth - 1))
    }

    fn column_and_row(&self, point: Point) -> (u32, u32) {
        let cells = f64::from(1u32 << self.order());
        let last = (1u32 << self.order()) - 1;
        // The casts saturate: positions left of or below the domain go to 0.
        let column = (point.x - self.domain.x0) / (self.domain.x1 - self.domain.x0) * cells;
        let row = (point.y - self.domain.y0) / (self.domain.y1 - self.domain.y0) * cells;
        ((column as u32).min(last), (row as u32).min(last))
    }

    fn span(&self, rect: Rect) -> Span {
        let (x0, y0) = self.column_and_row(Point::new(rect.x0, rect.y0));
        let (x1, y1) = self.column_and_row(Point::new(rect.x1, rect.y1));
        Span { x0, y0, x1, y1 }
    }

    /// The cell of a square below the domain.
    fn cell(&self, square: Square) -> Cell {
        let below = self.bits_below(square.depth);
        // The value on a shorter curve is a prefix of the value on the longest.
        let unused = hilbert::ORDER_BITS - (self.order() - below);
        let value = hilbert::value(square.x << unused, square.y << unused) >> (2 * unused);
        Cell((value << (2 * below) << LEVEL_BITS) | u64::from(square.depth - 1))
    }

    /// The part of `span` in the square, as columns and rows of its children.
    fn child_span(&self, square: Square, span: &Span) -> Span {
        let below = self.bits_below(square.depth + 1);
        let bits = self.bits_below(square.depth) - below;
        let first = |corner: u32| corner << bits;
        let last = |corner: u32| first(corner) + ((1 << bits) - 1);
        Span {
            x0: first(square.x).max(span.x0 >> below),
            y0: first(square.y).max(span.y0 >> below),
            x1: last(square.x).min(span.x1 >> below),
            y1: last(square.y).min(span.y1 >> below),
        }
    }

    fn child_count(&self, square: Square, span: &Span) -> u64 {
        let inner = self.child_span(square, span);
        u64::from(inner.x1 - inner.x0 + 1) * u64::from(inner.y1 - inner.y0 + 1)
    }

    fn children(&self, square: Square, span: &Span) -> impl Iterator<Item = Square> + use<> {
        let inner = self.child_span(square, span);
        let depth = square.depth + 1;
        (inner.y0..=inner.y1).flat_map(move |y| (inner.x0..=inner.x1).map(move |x| Square { x, y, depth }))
    }

    fn is_covered(&self, square: Square, span: &Span) -> bool {
        let below = self.bits_below(square.depth);
        let last = |corner: u32| (corner << below) + ((1 << below) - 1);
        span.x0 <= square.x << below
            && last(square.x) <= span.x1
            && span.y0 <= square.y << below
            && last(square.y) <= span.y1
    }
}
