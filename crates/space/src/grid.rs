//! Static grid hierarchies (the SHB-tree and SIF of the LSM paper, sections
//! 4.2.2 and 4.2.3): k levels, each of which divides a cell of the level above
//! into 2^n by 2^n cells.
//!
//! A cell number is the curve value of the cell's first lowest-level cell,
//! followed by the level. The descendants of a cell, and the cell itself, are
//! therefore one contiguous range of numbers; ancestors are outside of it.

use crate::hilbert::{coordinates_of_order, value_of_order};
use crate::{Point, Rect};

#[cfg(test)]
mod tests;

/// Bits of the level at the end of a cell number.
const LEVEL_BITS: u32 = 8;

/// Largest product of levels and bits a level.
pub const ORDER_BITS_MAX: u32 = 28;

/// Most bits a level: one level of a cover is at most 2^16 cells of one parent.
pub const LEVEL_BITS_MAX: u32 = 8;

/// A cell number; ordered along the curve, then by level.
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

/// Why a grid cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GridError {
    /// The hierarchy has no level, no bits, or more bits than a number holds.
    #[error(
        "a grid of {levels} levels with {bits_per_level} bits each is not possible: at least 1 each, at most {LEVEL_BITS_MAX} bits a level and {ORDER_BITS_MAX} in all"
    )]
    Shape {
        /// Bits of each coordinate a level.
        bits_per_level: u32,
        /// Number of levels.
        levels: u32,
    },
    /// The domain has no extent or is not finite.
    #[error("the domain {domain:?} of a grid must be finite and have a width and a height")]
    Domain {
        /// The refused domain.
        domain: Rect,
    },
}

/// A grid hierarchy over a domain, fixed when an index is created.
///
/// Positions outside of the domain belong to its outermost cells, so answers
/// stay right when data leaves the domain; only selectivity is lost there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    domain: Rect,
    bits_per_level: u32,
    levels: u32,
}

/// A square of the hierarchy, by column and row at its level.
#[derive(Clone, Copy)]
struct Square {
    x: u32,
    y: u32,
    /// Levels from the domain down: the domain itself is at 0, a cell at its level + 1.
    depth: u32,
}

impl Square {
    const DOMAIN: Square = Square { x: 0, y: 0, depth: 0 };
}

/// Columns and rows of lowest-level cells, all included.
#[derive(Clone, Copy)]
struct Span {
    x0: u32,
    y0: u32,
    x1: u32,
    y1: u32,
}

impl Grid {
    /// A grid of `levels` levels over `domain`, with 2^`bits_per_level` cells a side and level.
    ///
    /// # Errors
    /// A shape whose cells cannot be numbered, or a domain without extent.
    pub fn new(domain: Rect, bits_per_level: u32, levels: u32) -> Result<Self, GridError> {
        let order = bits_per_level.checked_mul(levels);
        let fits = order.is_some_and(|order| (1..=ORDER_BITS_MAX).contains(&order));
        if !fits || bits_per_level > LEVEL_BITS_MAX {
            return Err(GridError::Shape { bits_per_level, levels });
        }
        let (width, height) = (domain.x1 - domain.x0, domain.y1 - domain.y0);
        let has_extent = |length: f64| length > 0.0 && length.is_finite();
        if !domain.is_finite() || !has_extent(width) || !has_extent(height) {
            return Err(GridError::Domain { domain });
        }
        Ok(Self { domain, bits_per_level, levels })
    }

    /// Number of levels.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// The lowest-level cell that holds `point`.
    pub fn cell_of(&self, point: Point) -> Cell {
        let (x, y) = self.column_and_row(point);
        self.cell(Square { x, y, depth: self.levels })
    }

    /// The cells above `cell`, from the coarsest down; `cell` is not among them.
    pub fn ancestors(&self, cell: Cell) -> impl Iterator<Item = Cell> + use<> {
        let grid = *self;
        let (x, y) = coordinates_of_order(cell.0 >> LEVEL_BITS, grid.order());
        (1..=cell.level().min(grid.levels - 1)).map(move |depth| {
            let below = grid.bits_below(depth);
            grid.cell(Square { x: x >> below, y: y >> below, depth })
        })
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

    /// The cells that stand for `rect`, in the order of their numbers: the
    /// coarsest that it covers, and lowest-level ones along its boundary.
    ///
    /// A cell counts as covered when the rectangle meets all its lowest-level
    /// cells. Below the coarsest level, no level is divided that would bring
    /// the number above `cells_max`: partly covered cells stand in for it.
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

    /// Ranges of numbers that hold every lowest-level cell that meets `rect`
    /// (an index of points stores only those), consecutive cells joined.
    pub fn ranges(&self, rect: Rect, cells_max: usize) -> Vec<CellRange> {
        let cover = self.cover(rect, cells_max);
        join(cover.into_iter().map(|cell| self.descendants(cell)).collect())
    }

    /// [`ranges`](Self::ranges) plus the ancestors of the cover, for an index
    /// that stores the covers of objects: an object may be filed under a cell
    /// that is larger than the window.
    pub fn ranges_with_ancestors(&self, rect: Rect, cells_max: usize) -> Vec<CellRange> {
        let cover = self.cover(rect, cells_max);
        let mut ranges: Vec<CellRange> = Vec::with_capacity(cover.len());
        for cell in cover {
            let single = |cell: Cell| CellRange { first: cell.0, last: cell.0 };
            ranges.extend(self.ancestors(cell).map(single));
            ranges.push(self.descendants(cell));
        }
        join(ranges)
    }

    fn order(&self) -> u32 {
        self.bits_per_level * self.levels
    }

    /// Bits of a lowest-level column below a square at `depth`.
    fn bits_below(&self, depth: u32) -> u32 {
        self.order().saturating_sub(self.bits_per_level.saturating_mul(depth))
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
        let prefix = value_of_order(square.x, square.y, self.order() - below);
        Cell((prefix << (2 * below) << LEVEL_BITS) | u64::from(square.depth - 1))
    }

    /// The part of `span` in the square, as columns and rows of its children.
    fn child_span(&self, square: Square, span: &Span) -> Span {
        let below = self.bits_below(square.depth + 1);
        let first = |corner: u32| corner << self.bits_per_level;
        let last = |corner: u32| first(corner) + ((1 << self.bits_per_level) - 1);
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

/// Sorts ranges and joins those that overlap or leave no lowest-level cell between them.
fn join(mut ranges: Vec<CellRange>) -> Vec<CellRange> {
    ranges.sort_unstable_by_key(|range| range.first);
    let mut joined: Vec<CellRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            // Numbers between the two can only be of larger cells that begin
            // where the second range does, which the exact test drops later.
            Some(last) if range.first >> LEVEL_BITS <= (last.last >> LEVEL_BITS) + 1 => {
                last.last = last.last.max(range.last);
            }
            _ => joined.push(range),
        }
    }
    joined
}
