//! Records and their stored form, the value bytes of the primary index (the key is outside).
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, 1 |
//! | 1 | kind of the geometry: 0 none, 1 point, 2 WKB |
//! | 2 | schema version |
//! | 0, 16 or 4 + n | nothing; x and y; the length of the WKB and the WKB |
//! | (columns + 7) / 8 | null bitmap: bit `i % 8` of byte `i / 8` is 1 if attribute `i` is null |
//! | | slots of bool (1), date (4), int64, float64 and timestamp (8) attributes; zero if null |
//! | 4 each | end offsets of the bytes of each utf8 and binary attribute; a null one is empty |
//! | | those bytes |
//!
//! Numbers are little-endian, slots in the order of the attributes. The geometry is found without
//! the schema, and attribute `i` in constant time. Reading checks every bound: damaged bytes give
//! [`DamagedRecord`].

mod decode;
mod encode;
mod geometry;
mod stored_rect;

use std::fmt;

use terrane_space::Point;

use crate::key::{Key, KeyError};
use crate::value::Value;
pub use decode::{RecordView, stored_geometry};
pub use encode::Encoder;
pub use geometry::{Geometry, GeometryRef, RowGeometry};
pub(crate) use geometry::{check_point, check_wkb, compact};
pub(crate) use stored_rect::stored_rect;

/// Maximal size of a stored record in bytes, without its key.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

const FORMAT: u8 = 1;
const GEOMETRY_NONE: u8 = 0;
const GEOMETRY_POINT: u8 = 1;
const GEOMETRY_WKB: u8 = 2;
/// Bytes before the geometry.
const HEADER_BYTES: usize = 4;
const POINT_BYTES: usize = 16;

/// A record: its key, its geometry and one value for each attribute of the schema, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The primary key.
    pub key: Key,
    /// The geometry. A record without one is stored, and in no spatial index.
    pub geometry: Option<Geometry>,
    /// The attributes, in the order of the schema's columns.
    pub values: Vec<Value>,
}

impl Record {
    /// A record at a point.
    pub fn at(key: impl Into<Key>, x: f64, y: f64, values: Vec<Value>) -> Self {
        Self { key: key.into(), geometry: Some(Geometry::Point(Point::new(x, y))), values }
    }
}

/// Why a record is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// The column with the wrong value, if known.
    pub column: Option<String>,
    /// The reason, and the remedy.
    pub reason: String,
}

impl RowError {
    pub(crate) fn new(column: &str, reason: impl fmt::Display) -> Self {
        Self { column: Some(column.to_owned()), reason: reason.to_string() }
    }

    pub(crate) fn key(column: &str, error: &KeyError) -> Self {
        Self::new(column, error)
    }

    fn too_large(bytes: usize) -> Self {
        Self { column: None, reason: format!("the record has {bytes} bytes; a record has at most {RECORD_BYTES_MAX}") }
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = &self.column {
            write!(f, "column {column:?}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for RowError {}

/// Stored bytes that are not a valid record of their dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored record is damaged at its byte {offset}: {reason}")]
pub struct DamagedRecord {
    /// Byte offset in the stored record.
    pub offset: usize,
    /// The defect.
    pub reason: &'static str,
}

impl DamagedRecord {
    fn at(offset: usize, reason: &'static str) -> Self {
        Self { offset, reason }
    }
}
