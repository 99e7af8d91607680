//! The only writer of well-known binary: little-endian ISO, without SRID.

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::walk::Visitor;

/// Appends geometries to a buffer. Callers write as many parts as they announced.
#[derive(Default)]
pub(super) struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn header(&mut self, kind: GeometryKind, dimensions: Dimensions) {
        self.bytes.push(1);
        self.bytes.extend_from_slice(&(kind.code() + dimensions.code()).to_le_bytes());
    }

    /// The dimensions in the header that was written at `offset`.
    pub fn dimensions_at(&self, offset: usize) -> Dimensions {
        let code = self.bytes.get(offset + 1..).and_then(|rest| rest.first_chunk::<4>());
        let thousands = code.map_or(0, |code| u32::from_le_bytes(*code) / 1000);
        Dimensions { has_z: thousands & 1 == 1, has_m: thousands & 2 == 2 }
    }

    /// Replaces the header that was written at `offset`.
    pub fn rewrite_header(&mut self, offset: usize, kind: GeometryKind, dimensions: Dimensions) {
        let code = kind.code() + dimensions.code();
        if let Some(place) = self.bytes.get_mut(offset + 1..offset + 5) {
            place.copy_from_slice(&code.to_le_bytes());
        }
    }

    /// Writes a count. The callers' inputs are too small for it to overflow.
    pub fn count(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&count.to_le_bytes());
    }

    /// Replaces the count that was written at `offset`.
    pub fn rewrite_count(&mut self, offset: usize, count: u32) {
        if let Some(place) = self.bytes.get_mut(offset..offset + 4) {
            place.copy_from_slice(&count.to_le_bytes());
        }
    }

    pub fn numbers(&mut self, numbers: &[f64]) {
        for number in numbers {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub fn empty_point(&mut self, dimensions: Dimensions) {
        self.header(GeometryKind::Point, dimensions);
        self.numbers(&[f64::NAN; 4][..dimensions.count()]);
    }
}

impl Visitor for Writer {
    fn begin(&mut self, kind: GeometryKind, dimensions: Dimensions, count: u32) {
        match (kind, count) {
            (GeometryKind::Point, 0) => self.empty_point(dimensions),
            (GeometryKind::Point, _) => self.header(kind, dimensions),
            _ => {
                self.header(kind, dimensions);
                self.count(count as usize);
            }
        }
    }

    fn ring(&mut self, count: u32) {
        self.count(count as usize);
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        self.numbers(position.numbers());
        Ok(())
    }
}

/// The dimensions that all members of a collection share; x and y alone if they differ.
#[derive(Default)]
pub(super) struct CommonDimensions(Option<Dimensions>);

impl CommonDimensions {
    pub fn add(&mut self, member: Dimensions) {
        let common = *self.0.get_or_insert(member);
        if common != member {
            self.0 = Some(Dimensions::XY);
        }
    }

    pub fn get(&self) -> Dimensions {
        self.0.unwrap_or_default()
    }
}
