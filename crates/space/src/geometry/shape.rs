//! A geometry split into points, paths and polygons, for the predicates.

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::walk::{Visitor, walk};
use crate::{Point, Rect};

/// The parts of a geometry, regardless of their nesting.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub rect: Rect,
    pub points: Vec<Point>,
    pub lines: Vec<Vec<Point>>,
    /// Rings, the outer one first.
    pub polygons: Vec<Vec<Vec<Point>>>,
}

impl Shape {
    pub fn decode(bytes: &[u8]) -> Result<Self, GeometryError> {
        let mut decoder = Decoder {
            kind: GeometryKind::Point,
            shape: Shape { rect: Rect::EMPTY, points: Vec::new(), lines: Vec::new(), polygons: Vec::new() },
        };
        walk(bytes, &mut decoder)?;
        Ok(decoder.shape)
    }

    pub fn is_empty(&self) -> bool {
        self.rect.is_empty()
    }

    /// The same shape `degrees` further east. This is exact where it matters, at the antimeridian,
    /// since 180 - 360 is exact.
    pub fn shifted(&self, degrees: f64) -> Shape {
        let mut shape = self.clone();
        shape.rect.x0 += degrees;
        shape.rect.x1 += degrees;
        let paths = shape.lines.iter_mut().chain(shape.polygons.iter_mut().flatten());
        let positions = paths.flatten().chain(shape.points.iter_mut());
        positions.for_each(|point| point.x += degrees);
        shape
    }
}

struct Decoder {
    kind: GeometryKind,
    shape: Shape,
}

impl Visitor for Decoder {
    fn begin(&mut self, kind: GeometryKind, _dimensions: Dimensions, count: u32) {
        self.kind = kind;
        match kind {
            GeometryKind::LineString if count > 0 => {
                self.shape.lines.push(Vec::with_capacity(count as usize));
            }
            GeometryKind::Polygon if count > 0 => self.shape.polygons.push(Vec::new()),
            _ => {}
        }
    }

    fn ring(&mut self, count: u32) {
        if let Some(polygon) = self.shape.polygons.last_mut() {
            polygon.push(Vec::with_capacity(count as usize));
        }
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        let point = position.point();
        self.shape.rect.extend(point);
        let sequence = match self.kind {
            GeometryKind::LineString => self.shape.lines.last_mut(),
            GeometryKind::Polygon => self.shape.polygons.last_mut().and_then(|polygon| polygon.last_mut()),
            _ => Some(&mut self.shape.points),
        };
        if let Some(sequence) = sequence {
            sequence.push(point);
        }
        Ok(())
    }
}
