//! The Hilbert curve over a grid of 2^32 by 2^32 cells.
//!
//! A curve value is read from its most significant pair of bits downwards. Every prefix of 2k bits
//! names a square of the k-th order, so the cells of a square are one contiguous range of values.
//! The orientation inside a square is one of four states. The tables step through the states with
//! four bits of each coordinate at a time (the state diagram of the LSM paper, section 4.2.1).

mod table;
mod window;

use std::cmp::Ordering;

use crate::{CoordinateSystem, Point, Rect, ordered_bits};
use table::{DECODE, DIGITS, ENCODE, STATE, step_decode, step_encode};
pub use window::{next_in_window, ranges_in_window};

#[cfg(test)]
mod tests;

/// Bits of each grid coordinate.
pub const ORDER_BITS: u32 = 32;

/// A cell of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GridPoint {
    /// Column.
    pub x: u32,
    /// Row.
    pub y: u32,
}

/// A rectangle of cells, all four sides included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridRect {
    /// First column.
    pub x0: u32,
    /// First row.
    pub y0: u32,
    /// Last column.
    pub x1: u32,
    /// Last row.
    pub y1: u32,
}

impl GridRect {
    /// Whether the cell (`x`, `y`) lies in the rectangle.
    #[inline]
    pub fn contains(&self, x: u32, y: u32) -> bool {
        self.x0 <= x && x <= self.x1 && self.y0 <= y && y <= self.y1
    }
}

/// The position along the curve of the cell (`x`, `y`).
#[inline]
pub fn value(x: u32, y: u32) -> u64 {
    let mut entry = 0u16;
    let mut value = 0u64;
    let mut shift = ORDER_BITS;
    while shift > 0 {
        shift -= 4;
        let nibbles = ((x >> shift & 15) << 4) | (y >> shift & 15);
        entry = ENCODE[usize::from(entry & STATE) | nibbles as usize];
        value = (value << 8) | u64::from(entry & DIGITS);
    }
    value
}

/// The cell (`x`, `y`) at the position `value` of the curve.
#[inline]
pub fn coordinates(value: u64) -> (u32, u32) {
    let mut entry = 0u16;
    let (mut x, mut y) = (0u32, 0u32);
    let mut shift = 2 * ORDER_BITS;
    while shift > 0 {
        shift -= 8;
        entry = DECODE[usize::from(entry & STATE) | (value >> shift & 255) as usize];
        x = (x << 4) | u32::from(entry >> 4 & 15);
        y = (y << 4) | u32::from(entry & 15);
    }
    (x, y)
}

/// [`value`] on a curve of `order` bits per coordinate; higher bits are ignored.
///
/// The square of `2^k` by `2^k` cells around a cell has the value of its
/// coordinates shifted right by k, on the curve of `order - k` bits.
pub fn value_of_order(x: u32, y: u32, order: u32) -> u64 {
    (0..order.min(ORDER_BITS))
        .rev()
        .fold((0u64, 0usize), |(value, state), bit| {
            let (digit, next) = step_encode(state, x >> bit & 1, y >> bit & 1);
            (value << 2 | u64::from(digit), next)
        })
        .0
}

/// The inverse of [`value_of_order`].
pub fn coordinates_of_order(value: u64, order: u32) -> (u32, u32) {
    let (mut x, mut y, mut state) = (0, 0, 0);
    for level in (0..order.min(ORDER_BITS)).rev() {
        let (bit_x, bit_y, next) = step_decode(state, (value >> (2 * level) & 3) as u32);
        x = x << 1 | bit_x;
        y = y << 1 | bit_y;
        state = next;
    }
    (x, y)
}

/// Which of two cells comes first on the curve, decided at the first four bits in which they differ
/// (the relative comparison of the DHB-tree).
#[inline]
pub fn compare(a: GridPoint, b: GridPoint) -> Ordering {
    let differing = (a.x ^ b.x) | (a.y ^ b.y);
    if differing == 0 {
        return Ordering::Equal;
    }
    let last_shift = (ORDER_BITS - 1 - differing.leading_zeros()) & !3;
    let next = |point: GridPoint, shift: u32, entry: u16| {
        let nibbles = ((point.x >> shift & 15) << 4) | (point.y >> shift & 15);
        ENCODE[usize::from(entry & STATE) | nibbles as usize]
    };
    let mut entry = 0;
    let mut shift = ORDER_BITS - 4;
    while shift > last_shift {
        entry = next(a, shift, entry);
        shift -= 4;
    }
    (next(a, shift, entry) & DIGITS).cmp(&(next(b, shift, entry) & DIGITS))
}

/// The grid cell of a position; monotone in each coordinate.
///
/// `lonlat` divides the globe evenly, with cells under a centimetre. `planar` takes the upper half
/// of [`ordered_bits`]. That order needs no domain, so it stays the same for any units and extent.
/// In return, cells grow with the magnitude of the coordinate (2^-20 of it).
#[inline]
pub fn grid_point(system: CoordinateSystem, point: Point) -> GridPoint {
    GridPoint { x: grid_coordinate(system, point.x, 180.0), y: grid_coordinate(system, point.y, 90.0) }
}

#[inline]
fn grid_coordinate(system: CoordinateSystem, coordinate: f64, limit: f64) -> u32 {
    const CELLS: f64 = 4_294_967_296.0;
    match system {
        // The cast saturates: the upper limit falls into the last cell.
        CoordinateSystem::LonLat => ((coordinate + limit) / (2.0 * limit) * CELLS) as u32,
        CoordinateSystem::Planar => (ordered_bits(coordinate) >> 32) as u32,
    }
}

/// The cells of all positions in `rect`, which must not be empty.
#[inline]
pub fn grid_rect(system: CoordinateSystem, rect: Rect) -> GridRect {
    let low = grid_point(system, Point::new(rect.x0, rect.y0));
    let high = grid_point(system, Point::new(rect.x1, rect.y1));
    GridRect { x0: low.x, y0: low.y, x1: high.x, y1: high.y }
}

/// The position along the curve of the cell that holds `point`.
#[inline]
pub fn position(system: CoordinateSystem, point: Point) -> u64 {
    let cell = grid_point(system, point);
    value(cell.x, cell.y)
}
