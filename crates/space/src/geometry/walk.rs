//! The only reader of well-known binary. It walks the bytes, checks everything, and calls a
//! visitor. It allocates nothing, so no count in the bytes can make it allocate.
//!
//! It accepts both byte orders, the ISO codes for Z, M and ZM, and the extended (EWKB) flags with
//! an SRID. Positions must be finite and rings closed.

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};

/// How deep geometries may be nested; a point in a multi-point is at 2.
pub const NESTING_DEPTH_MAX: u32 = 32;

const FLAG_Z: u32 = 0x8000_0000;
const FLAG_M: u32 = 0x4000_0000;
const FLAG_SRID: u32 = 0x2000_0000;

/// Callbacks of a walk, in the order of the bytes.
pub(super) trait Visitor {
    /// A geometry begins. `count` positions, rings or members follow (0 for an empty point).
    fn begin(&mut self, kind: GeometryKind, dimensions: Dimensions, count: u32);
    /// A ring of `count` positions begins.
    fn ring(&mut self, _count: u32) {}
    /// The next position.
    fn position(&mut self, position: Position) -> Result<(), GeometryError>;
    /// The geometry begun last ends.
    fn end(&mut self) {}
}

/// The header of the outermost geometry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub kind: GeometryKind,
    pub dimensions: Dimensions,
    pub srid: Option<u32>,
}

/// Walks all of `bytes`, which must hold exactly one geometry.
pub(super) fn walk(bytes: &[u8], visitor: &mut impl Visitor) -> Result<Header, GeometryError> {
    let mut walker = Walker { bytes, offset: 0, vertex: 0, is_little_endian: true };
    let header = walker.geometry(visitor, None, 1)?;
    match bytes.len() - walker.offset {
        0 => Ok(header),
        count => Err(GeometryError::TrailingBytes { offset: walker.offset, count }),
    }
}

struct Walker<'a> {
    bytes: &'a [u8],
    offset: usize,
    vertex: u64,
    /// Byte order of the geometry being read.
    is_little_endian: bool,
}

impl Walker<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], GeometryError> {
        let rest = &self.bytes[self.offset..];
        let Some(taken) = rest.first_chunk::<N>() else {
            return Err(GeometryError::Truncated { offset: self.offset, needed: N as u64, available: rest.len() });
        };
        self.offset += N;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, GeometryError> {
        let bytes = self.take()?;
        let little = self.is_little_endian;
        Ok(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn f64(&mut self) -> Result<f64, GeometryError> {
        let bytes = self.take()?;
        let little = self.is_little_endian;
        Ok(if little { f64::from_le_bytes(bytes) } else { f64::from_be_bytes(bytes) })
    }

    /// A count of elements of at least `size_min` bytes, all of which must fit.
    fn count(&mut self, size_min: usize) -> Result<u32, GeometryError> {
        let count = self.u32()?;
        let needed = u64::from(count) * size_min as u64;
        let available = self.bytes.len() - self.offset;
        if needed > available as u64 {
            return Err(GeometryError::Truncated { offset: self.offset, needed, available });
        }
        Ok(count)
    }

    fn header(&mut self) -> Result<Header, GeometryError> {
        let offset = self.offset;
        self.is_little_endian = match self.take::<1>()? {
            [0] => false,
            [1] => true,
            [value] => return Err(GeometryError::ByteOrder { offset, value }),
        };
        let offset = self.offset;
        let code = self.u32()?;
        let base = code & !(FLAG_Z | FLAG_M | FLAG_SRID);
        let unsupported = GeometryError::UnsupportedType { offset, code };
        let (iso_z, iso_m) = match base / 1000 {
            0 => (false, false),
            1 => (true, false),
            2 => (false, true),
            3 => (true, true),
            _ => return Err(unsupported),
        };
        let kind = GeometryKind::from_code(base % 1000).ok_or(unsupported)?;
        let dimensions = Dimensions { has_z: iso_z || code & FLAG_Z != 0, has_m: iso_m || code & FLAG_M != 0 };
        let srid = if code & FLAG_SRID != 0 { Some(self.u32()?) } else { None };
        Ok(Header { kind, dimensions, srid })
    }

    fn geometry(
        &mut self,
        visitor: &mut impl Visitor,
        parent: Option<Header>,
        depth: u32,
    ) -> Result<Header, GeometryError> {
        if depth > NESTING_DEPTH_MAX {
            return Err(GeometryError::TooDeep { limit: NESTING_DEPTH_MAX });
        }
        let offset = self.offset;
        let header = self.header()?;
        if let Some(parent) = parent
            && let Some(member) = parent.kind.member()
            && (header.kind != member || header.dimensions != parent.dimensions)
        {
            let (parent, found) = (parent.kind, header.kind);
            return Err(GeometryError::Member { offset, parent, found });
        }
        let position_size = 8 * header.dimensions.count();
        match header.kind {
            GeometryKind::Point => self.point(visitor, header.dimensions)?,
            GeometryKind::LineString => {
                let count = self.count(position_size)?;
                if count == 1 {
                    return Err(GeometryError::ShortLine { vertex: self.vertex });
                }
                visitor.begin(header.kind, header.dimensions, count);
                for _ in 0..count {
                    let position = self.position(header.dimensions)?;
                    visitor.position(position)?;
                }
            }
            GeometryKind::Polygon => {
                // A ring takes at least the bytes of its count.
                let count = self.count(4)?;
                visitor.begin(header.kind, header.dimensions, count);
                for _ in 0..count {
                    self.ring(visitor, header.dimensions)?;
                }
            }
            _ => {
                // The smallest member is an empty one: byte order, code, count.
                let count = self.count(9)?;
                let little = self.is_little_endian;
                visitor.begin(header.kind, header.dimensions, count);
                for _ in 0..count {
                    self.geometry(visitor, Some(header), depth + 1)?;
                }
                self.is_little_endian = little;
            }
        }
        visitor.end();
        Ok(header)
    }

    fn point(&mut self, visitor: &mut impl Visitor, dimensions: Dimensions) -> Result<(), GeometryError> {
        let position = self.numbers(dimensions)?;
        let is_empty = position.numbers().iter().all(|value| value.is_nan());
        visitor.begin(GeometryKind::Point, dimensions, u32::from(!is_empty));
        if is_empty {
            return Ok(());
        }
        let position = self.finite(position)?;
        visitor.position(position)
    }

    fn ring(&mut self, visitor: &mut impl Visitor, dimensions: Dimensions) -> Result<(), GeometryError> {
        let vertex = self.vertex;
        let count = self.count(8 * dimensions.count())?;
        if count < 4 {
            return Err(GeometryError::ShortRing { vertex, count });
        }
        visitor.ring(count);
        let first = self.position(dimensions)?;
        visitor.position(first)?;
        let mut last = first;
        for _ in 1..count {
            last = self.position(dimensions)?;
            visitor.position(last)?;
        }
        if last.point() == first.point() { Ok(()) } else { Err(GeometryError::OpenRing { vertex }) }
    }

    fn position(&mut self, dimensions: Dimensions) -> Result<Position, GeometryError> {
        let position = self.numbers(dimensions)?;
        self.finite(position)
    }

    fn numbers(&mut self, dimensions: Dimensions) -> Result<Position, GeometryError> {
        let mut values = [0.0; 4];
        for value in &mut values[..dimensions.count()] {
            *value = self.f64()?;
        }
        Ok(Position { values, dimensions })
    }

    fn finite(&mut self, position: Position) -> Result<Position, GeometryError> {
        let vertex = self.vertex;
        if let Some(&value) = position.numbers().iter().find(|value| !value.is_finite()) {
            return Err(GeometryError::NotFinite { vertex, value });
        }
        self.vertex += 1;
        Ok(position)
    }
}
