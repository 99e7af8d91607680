//! Why a geometry was refused.

use super::kind::GeometryKind;
use crate::CoordinateError;

/// Why bytes, text or JSON are not a geometry that can be stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GeometryError {
    /// The bytes end before the geometry does.
    #[error("WKB ends too early: {needed} bytes are needed at byte {offset}, {available} are left")]
    Truncated {
        /// Offset of the missing bytes.
        offset: usize,
        /// Number of bytes needed, or the least number for the stated count of members.
        needed: u64,
        /// Number of bytes left.
        available: usize,
    },
    /// Bytes follow the end of the geometry.
    #[error("WKB has {count} bytes after the end of the geometry at byte {offset}")]
    TrailingBytes {
        /// Offset of the end of the geometry.
        offset: usize,
        /// Number of bytes that follow.
        count: usize,
    },
    /// The byte order mark is neither 0 nor 1.
    #[error("WKB byte order at byte {offset} is {value}; 0 (big-endian) or 1 (little-endian) is expected")]
    ByteOrder {
        /// Offset of the mark.
        offset: usize,
        /// Its value.
        value: u8,
    },
    /// An unsupported kind, such as curves and surfaces.
    #[error(
        "WKB geometry type {code} at byte {offset} is not supported: only points, lines, polygons, their multi-geometries and collections are"
    )]
    UnsupportedType {
        /// Offset of the code.
        offset: usize,
        /// The code, as found.
        code: u32,
    },
    /// A member of a multi-geometry is of another kind or has other dimensions.
    #[error("a {found} or its dimensions at byte {offset} do not fit this {parent}")]
    Member {
        /// Offset of the member.
        offset: usize,
        /// The kind of the multi-geometry.
        parent: GeometryKind,
        /// The kind of the member.
        found: GeometryKind,
    },
    /// Collections inside collections, nested too deeply.
    #[error("the geometry is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: u32,
    },
    /// A coordinate is NaN or infinite.
    #[error(
        "vertex {vertex} has a coordinate that is {value}: coordinates must be finite numbers (only an empty point is all NaN)"
    )]
    NotFinite {
        /// Index of the vertex, from 0.
        vertex: u64,
        /// The value.
        value: f64,
    },
    /// A position that the coordinate system of the dataset does not allow.
    #[error("vertex {vertex}: {source}")]
    Coordinate {
        /// Index of the vertex, from 0.
        vertex: u64,
        /// What is wrong with it.
        source: CoordinateError,
    },
    /// A line of one position.
    #[error("a line string has 1 position (vertex {vertex}); it needs 2 or more, or none")]
    ShortLine {
        /// Index of its vertex, from 0.
        vertex: u64,
    },
    /// A ring with too few positions to enclose anything.
    #[error("the ring from vertex {vertex} has {count} positions; a closed ring needs 4 or more")]
    ShortRing {
        /// Index of its first vertex, from 0.
        vertex: u64,
        /// Its number of positions.
        count: u32,
    },
    /// A ring whose last position is not its first.
    #[error("the ring from vertex {vertex} is not closed: its last position must equal its first")]
    OpenRing {
        /// Index of its first vertex, from 0.
        vertex: u64,
    },
    /// Text that is not well-known text.
    #[error("not valid WKT: {reason}")]
    Text {
        /// What is wrong, and at which character if known.
        reason: String,
    },
    /// JSON that is not a GeoJSON geometry.
    #[error("not a valid GeoJSON geometry{}: {reason}", place_of(path))]
    Json {
        /// Path to the value, such as `coordinates[0][3]`; empty for the geometry itself.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// A path as it appears in a message; that of the geometry itself is empty.
fn place_of(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(", at {path}") }
}
