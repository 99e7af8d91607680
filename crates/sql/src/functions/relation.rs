//! Predicates and distances of two geometries, as the engine defines them.

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use terrane_space::geometry::{Edges, GeometryError, QueryGeometry, as_point, check_valid, distance_bytes, summarise};
use terrane_space::{CoordinateSystem, Point, Rect};

use crate::geometry::box_wkb;

/// How a prepared geometry is compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// They share a point.
    Intersects,
    /// The other is within the prepared one.
    Holds,
    /// No point of the other is outside of the prepared one.
    Covers,
}

/// The last prepared geometry, which is often that of the next row too.
#[derive(Default)]
pub(super) struct Prepared(Option<(Vec<u8>, QueryGeometry)>);

impl Prepared {
    /// Whether the relation holds between a container and another geometry. A constant container
    /// must be valid.
    pub fn holds(
        &mut self,
        relation: Relation,
        container: &[u8],
        other: &[u8],
        system: CoordinateSystem,
        is_constant: bool,
    ) -> Result<bool> {
        if self.0.as_ref().is_none_or(|(bytes, _)| bytes != container) {
            let prepared = prepare(container, system, is_constant)?;
            self.0 = Some((container.to_vec(), prepared));
        }
        let Some((_, prepared)) = &self.0 else { return Ok(false) };
        match relation {
            Relation::Intersects => prepared.intersects(other),
            Relation::Holds => prepared.within(other),
            Relation::Covers => prepared.covers(other),
        }
        .map_err(unreadable)
    }
}

/// Prepares a constant, which must be valid with `check`, or a geometry of a row.
pub(crate) fn prepare(bytes: &[u8], system: CoordinateSystem, check: bool) -> Result<QueryGeometry> {
    if !check {
        return QueryGeometry::of_stored(bytes, system).map_err(unreadable);
    }
    let prepared = QueryGeometry::new(bytes, system).map_err(unreadable)?;
    if let Err(error) = check_valid(prepared.geometry()) {
        return exec_err!("the geometry is not valid: {error}");
    }
    Ok(prepared)
}

/// The distance of two geometries: in the units of the plane, or in metres on the sphere. `None` if
/// one is empty.
pub(super) fn distance(a: &[u8], b: &[u8], system: CoordinateSystem) -> Result<Option<f64>> {
    if let Some(point) = as_point(a) {
        return distance_bytes(system, point, b).map_err(unreadable);
    }
    if let Some(point) = as_point(b) {
        return distance_bytes(system, point, a).map_err(unreadable);
    }
    let prepared = QueryGeometry::of_stored(a, system).map_err(unreadable)?;
    if prepared.intersects(b).map_err(unreadable)? {
        return Ok(Some(0.0));
    }
    let edges = |bytes| Edges::new(bytes, system).map_err(unreadable);
    Ok(edges(a)?.distance_at_most(&edges(b)?, f64::INFINITY))
}

/// Whether the boxes of two geometries share a point.
pub(super) fn boxes_intersect(a: &[u8], b: &[u8]) -> Result<bool> {
    let rect = |bytes| summarise(bytes, CoordinateSystem::Planar).map_err(unreadable);
    let (a, b) = (rect(a)?, rect(b)?);
    Ok(!a.is_empty && !b.is_empty && a.planar_rect.intersects(&b.planar_rect))
}

/// Whether the box of a geometry contains that of another one.
pub(super) fn box_contains(a: &[u8], b: &[u8]) -> Result<bool> {
    let rect = |bytes| summarise(bytes, CoordinateSystem::Planar).map_err(unreadable);
    let (a, b) = (rect(a)?, rect(b)?);
    let (outer, inner) = (a.planar_rect, b.planar_rect);
    let contains = outer.x0 <= inner.x0 && outer.y0 <= inner.y0 && outer.x1 >= inner.x1 && outer.y1 >= inner.y1;
    Ok(!a.is_empty && !b.is_empty && contains)
}

/// A window that every geometry within a planar distance of this one meets. `None` if there is
/// none, or the geometry is empty.
pub(crate) fn enlarged_rect(bytes: &[u8], distance: f64, system: CoordinateSystem) -> Result<Option<Rect>> {
    let summary = summarise(bytes, CoordinateSystem::Planar).map_err(unreadable)?;
    if summary.is_empty {
        return Ok(None);
    }
    let rect = summary.planar_rect;
    let size = [rect.x0, rect.y0, rect.x1, rect.y1].into_iter().fold(distance, |size, side| size.max(side.abs()));
    let reach = distance + if distance > 0.0 { size * 1e-12 } else { 0.0 };
    let mut rect = Rect { x0: rect.x0 - reach, y0: rect.y0 - reach, x1: rect.x1 + reach, y1: rect.y1 + reach };
    if system == CoordinateSystem::LonLat {
        rect = Rect { x0: rect.x0.max(-180.0), y0: rect.y0.max(-90.0), x1: rect.x1.min(180.0), y1: rect.y1.min(90.0) };
    }
    Ok((rect.is_finite() && rect.x0 <= rect.x1 && rect.y0 <= rect.y1).then_some(rect))
}

/// That window as a geometry.
pub(crate) fn enlarged_box(bytes: &[u8], distance: f64, system: CoordinateSystem) -> Result<Option<Vec<u8>>> {
    let rect = enlarged_rect(bytes, distance, system)?;
    Ok(rect.map(|rect| box_wkb(Point { x: rect.x0, y: rect.y0 }, Point { x: rect.x1, y: rect.y1 })))
}

pub(super) fn unreadable(error: GeometryError) -> datafusion::error::DataFusionError {
    exec_datafusion_err!("the geometry cannot be used: {error}")
}
