//! Geometry of the Terrane spatial store: rectangles, coordinate systems, the Hilbert curve, grid
//! cells, great-circle distances, and geometries in well-known binary with exact predicates.
//!
//! Nothing here does I/O, keeps state or panics on input. Longitude comes
//! before latitude, always.

#![forbid(unsafe_code)]

pub mod geometry;
pub mod grid;
pub mod hilbert;
mod point;
mod rect;
pub mod sphere;
mod system;

pub use point::Point;
pub use rect::{Rect, RectF32, f32_above, f32_below, from_ordered_bits, ordered_bits};
pub use system::{
    CoordinateError, CoordinateSystem, EXACT_COORDINATE_MAX, WindowError, Windows, check_coordinates,
    check_exact_coordinates, windows,
};
