//! The facts that an insert needs about a geometry, found in one walk.

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::walk::{Visitor, walk};
use crate::sphere::arc_rect;
use crate::{CoordinateSystem, Point, Rect, check_exact_coordinates};

/// The facts about a geometry that indexing needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeometrySummary {
    /// Its kind.
    pub kind: GeometryKind,
    /// Whether a part has heights.
    pub has_z: bool,
    /// Whether a part has measures.
    pub has_m: bool,
    /// Whether it has no position at all.
    pub is_empty: bool,
    /// Number of positions.
    pub vertex_count: u64,
    /// The box of its positions; empty for an empty geometry.
    pub planar_rect: Rect,
    /// The box to index: in `lonlat` it also holds the great-circle arcs of the edges.
    pub index_rect: Rect,
}

/// Summarises well-known binary and checks its positions against `system`.
///
/// # Errors
/// When the bytes are not a geometry, or `system` does not allow a position.
pub fn summarise(bytes: &[u8], system: CoordinateSystem) -> Result<GeometrySummary, GeometryError> {
    let mut summariser = Summariser {
        system,
        has_edges: false,
        previous: None,
        summary: GeometrySummary {
            kind: GeometryKind::Point,
            has_z: false,
            has_m: false,
            is_empty: true,
            vertex_count: 0,
            planar_rect: Rect::EMPTY,
            index_rect: Rect::EMPTY,
        },
    };
    let header = walk(bytes, &mut summariser)?;
    let mut summary = summariser.summary;
    summary.kind = header.kind;
    summary.is_empty = summary.vertex_count == 0;
    summary.index_rect = summary.index_rect.union(&summary.planar_rect);
    Ok(summary)
}

struct Summariser {
    system: CoordinateSystem,
    /// Whether consecutive positions are joined by edges.
    has_edges: bool,
    previous: Option<Point>,
    summary: GeometrySummary,
}

impl Visitor for Summariser {
    fn begin(&mut self, kind: GeometryKind, dimensions: Dimensions, _count: u32) {
        self.summary.has_z |= dimensions.has_z;
        self.summary.has_m |= dimensions.has_m;
        self.has_edges = kind != GeometryKind::Point && self.system == CoordinateSystem::LonLat;
        self.previous = None;
    }

    fn ring(&mut self, _count: u32) {
        self.previous = None;
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        let point = position.point();
        let vertex = self.summary.vertex_count;
        check_exact_coordinates(self.system, point.x, point.y)
            .map_err(|source| GeometryError::Coordinate { vertex, source })?;
        self.summary.vertex_count += 1;
        self.summary.planar_rect.extend(point);
        if self.has_edges {
            if let Some(previous) = self.previous {
                self.edge(previous, point);
            }
            self.previous = Some(point);
        }
        Ok(())
    }
}

impl Summariser {
    fn edge(&mut self, a: Point, b: Point) {
        // An arc over d radians of longitude, at most one, rises by less than 0.07 d² radians over
        // its higher end. Most arcs are therefore irrelevant.
        let difference = (a.x - b.x).abs();
        if difference <= 57.0 {
            let rise = 0.00125 * difference * difference;
            let rect = &self.summary.index_rect;
            if a.y.max(b.y) + rise <= rect.y1 && a.y.min(b.y) - rise >= rect.y0 {
                return;
            }
        }
        self.summary.index_rect = self.summary.index_rect.union(&arc_rect(a, b));
    }
}
