//! A geometry prepared for one query and compared with many stored ones.
//!
//! Boxes reject first. Both predicates are exact and need no topology graph, so they have an answer
//! for every stored geometry. Edges are cut only for `within`, and only those of candidates that
//! touch the boundary.

use geo_types::Geometry;

use super::area::{Area, Areas, any_located, path_rect};
use super::convert::{from_geo, to_geo};
use super::edges::EdgeTree;
use super::error::GeometryError;
use super::lines::Lines;
use super::parts::Parts;
use super::point::as_point;
use super::segment::{Location, edges};
use super::shape::Shape;
use super::summary::summarise;
use super::validity::check_valid;
use super::wkb::normalise;
use crate::system::longitude_windows;
use crate::{CoordinateSystem, Point, Rect};

/// A query geometry. Comparisons need a shared reference only, so any number of threads can use it.
///
/// It must be valid ([`check_valid`](super::check_valid)). If areas of one multi-polygon overlap,
/// the results for the overlap are unspecified.
#[derive(Clone, Debug)]
pub struct QueryGeometry {
    system: CoordinateSystem,
    rect: Rect,
    rects: Vec<Rect>,
    parts: Parts,
    geometry: Geometry<f64>,
}

impl QueryGeometry {
    /// Prepares the geometry in well-known binary `bytes`.
    ///
    /// # Errors
    /// When the bytes are not a geometry, or `system` does not allow a position.
    pub fn new(bytes: &[u8], system: CoordinateSystem) -> Result<Self, GeometryError> {
        let bytes = normalise(bytes)?;
        summarise(&bytes, system)?;
        let geometry = to_geo(&bytes)?;
        let shape = Shape::decode(&bytes)?;
        let is_collection = matches!(geometry, Geometry::GeometryCollection(_));
        let areas: Vec<Area> = if shape.polygons.is_empty() {
            Vec::new()
        } else if is_collection {
            shape.polygons.iter().map(Area::new).collect()
        } else {
            // The parts of a valid multi-polygon are disjoint: one even-odd area.
            vec![Area::new(shape.polygons.iter().flatten())]
        };
        Ok(Self {
            system,
            rect: shape.rect,
            rects: index_windows(&shape, system),
            parts: Parts {
                areas: Areas::new(areas),
                lines: Lines::new(&shape.lines),
                points: EdgeTree::of_points(&shape.points),
            },
            geometry,
        })
    }

    /// Prepares a stored geometry. The areas of a stored multi-polygon may overlap: then each is an
    /// area of its own, so that results for the overlap are right.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn of_stored(bytes: &[u8], system: CoordinateSystem) -> Result<Self, GeometryError> {
        let prepared = Self::new(bytes, system)?;
        match &prepared.geometry {
            Geometry::MultiPolygon(_) if check_valid(&prepared.geometry).is_err() => {
                let collection = Geometry::GeometryCollection([prepared.geometry].into_iter().collect());
                Self::new(&from_geo(&collection), system)
            }
            _ => Ok(prepared),
        }
    }

    /// The windows for an index search. The box of every stored geometry that intersects this one
    /// meets at least one of them, and may meet several. There is none for an empty geometry.
    pub fn rects(&self) -> &[Rect] {
        &self.rects
    }

    /// The geometry as a `geo` type.
    pub fn geometry(&self) -> &Geometry<f64> {
        &self.geometry
    }

    /// Whether the stored point `point` intersects this geometry.
    #[inline]
    pub fn intersects_point(&self, point: Point) -> bool {
        self.holds(point) || self.mirrored(point).is_some_and(|other| self.holds(other))
    }

    /// Whether the stored point `point` is within this geometry: inside an area, on a line but not
    /// at its end, at a point. Areas and lines that were cut at the antimeridian count as whole
    /// there.
    #[inline]
    pub fn within_point(&self, point: Point) -> bool {
        match self.mirrored(point) {
            Some(other) => self.is_within_across([point, other]),
            None => self.is_within_at(point),
        }
    }

    /// Whether the stored geometry `bytes` shares a point with this one.
    ///
    /// # Errors
    /// When the bytes are not a geometry.
    pub fn intersects(&self, bytes: &[u8]) -> Result<bool, GeometryError> {
        if let Some(point) = as_point(bytes) {
            return Ok(self.intersects_point(point));
        }
        let shape = Shape::decode(bytes)?;
        Ok(self.meets(&shape) || self.shifts(&shape.rect).any(|degrees| self.meets(&shape.shifted(degrees))))
    }

    /// Whether the stored geometry `bytes` is within this one (OGC). The parts of a collection
    /// count as one set of points, on either side.
    ///
    /// # Errors
    /// When the bytes are not a geometry.
    pub fn within(&self, bytes: &[u8]) -> Result<bool, GeometryError> {
        if let Some(point) = as_point(bytes) {
            return Ok(self.within_point(point));
        }
        let shape = Shape::decode(bytes)?;
        if self.system == CoordinateSystem::LonLat && shape.lines.is_empty() && shape.polygons.is_empty() {
            // Each point has its own two representations.
            return Ok(shape.points.iter().all(|point| self.intersects_point(*point))
                && shape.points.iter().any(|point| self.within_point(*point)));
        }
        Ok(self.holds_shape(&shape, false))
    }

    /// Whether no point of the stored geometry `bytes` lies outside this one. Neither may be empty.
    ///
    /// # Errors
    /// When the bytes are not a geometry.
    pub fn covers(&self, bytes: &[u8]) -> Result<bool, GeometryError> {
        if let Some(point) = as_point(bytes) {
            return Ok(self.intersects_point(point));
        }
        let shape = Shape::decode(bytes)?;
        if shape.lines.is_empty() && shape.polygons.is_empty() {
            return Ok(!shape.points.is_empty() && shape.points.iter().all(|point| self.intersects_point(*point)));
        }
        Ok(self.holds_shape(&shape, true))
    }

    fn holds_shape(&self, shape: &Shape, boundary_suffices: bool) -> bool {
        let holds = |shape: &Shape| {
            !shape.is_empty() && self.rect.contains_rect(&shape.rect) && self.parts.cover(shape, boundary_suffices)
        };
        holds(shape) || self.shifts(&shape.rect).any(|degrees| holds(&shape.shifted(degrees)))
    }

    /// The other representation of a point on the antimeridian.
    #[inline]
    fn mirrored(&self, point: Point) -> Option<Point> {
        let is_on_antimeridian = self.system == CoordinateSystem::LonLat && point.x.abs() == 180.0;
        is_on_antimeridian.then(|| Point::new(-point.x, point.y))
    }

    /// Whether a point on the antimeridian, given by both of its representations, is within this
    /// geometry. A cut area is whole there if areas leave no gap on either side of the point. A cut
    /// line is whole there if the point is an end of the lines under both representations or under
    /// neither.
    fn is_within_across(&self, names: [Point; 2]) -> bool {
        let areas = names.map(|name| self.parts.locate_in_areas(name));
        if areas != [Location::Outside; 2] {
            let is_surrounded = || names.iter().all(|name| self.parts.surround_half(*name, name.x > 0.0));
            return areas.contains(&Location::Inside) || is_surrounded();
        }
        if names.iter().any(|name| self.parts.lines.tree.holds(*name)) {
            let [ends, others] = names.map(|name| self.parts.lines.is_boundary(name));
            return ends == others;
        }
        names.iter().any(|name| self.parts.points.holds(*name))
    }

    /// The degrees by which to shift a stored geometry that meets this one only across the
    /// antimeridian.
    fn shifts(&self, rect: &Rect) -> impl Iterator<Item = f64> + use<> {
        let is_lonlat = self.system == CoordinateSystem::LonLat;
        let west = is_lonlat && rect.x1 == 180.0 && self.rect.x0 == -180.0;
        let east = is_lonlat && rect.x0 == -180.0 && self.rect.x1 == 180.0;
        west.then_some(-360.0).into_iter().chain(east.then_some(360.0))
    }

    fn holds(&self, point: Point) -> bool {
        self.rect.contains_point(point) && self.parts.holds(point)
    }

    fn is_within_at(&self, point: Point) -> bool {
        self.rect.contains_point(point) && self.parts.locate(point) == Location::Inside
    }

    fn meets(&self, shape: &Shape) -> bool {
        self.rect.intersects(&shape.rect)
            && (shape.points.iter().any(|point| self.holds(*point))
                || shape.lines.iter().any(|line| self.meets_path(line))
                || shape.polygons.iter().any(|rings| self.meets_polygon(rings)))
    }

    /// Whether an edge of `path` meets an edge or a point, or the path starts in an area.
    fn meets_path(&self, path: &[Point]) -> bool {
        let starts_inside = path
            .first()
            .is_some_and(|start| self.parts.areas.any_location(*start, |location| location != Location::Outside));
        starts_inside
            || edges(path).any(|edge| {
                self.parts.areas.any(&edge.rect(), &mut |area| area.meets(&edge))
                    || self.parts.lines.tree.meets(&edge)
                    || self.parts.points.meets(&edge)
            })
    }

    /// If no edges meet, each part of this geometry is either entirely outside of the polygon or
    /// entirely inside; one of its points tells.
    fn meets_polygon(&self, rings: &[Vec<Point>]) -> bool {
        rings.iter().any(|ring| self.meets_path(ring)) || {
            let points = self.parts.points.edges().iter().map(|point| point.a);
            let ring_starts = self.parts.areas.iter().flat_map(Area::ring_starts);
            let starts = points.chain(self.parts.lines.starts.iter().copied()).chain(ring_starts);
            any_located(rings, starts, |location| location != Location::Outside)
        }
    }
}

/// Boxes of the parts. There is one, or in `lonlat` one for each side of a geometry that was cut at
/// the antimeridian, with slivers at the other representation.
fn index_windows(shape: &Shape, system: CoordinateSystem) -> Vec<Rect> {
    if shape.is_empty() {
        return Vec::new();
    }
    if system == CoordinateSystem::Planar {
        return vec![shape.rect];
    }
    let points = shape.points.iter().map(|point| Rect::from_point(*point));
    let lines = shape.lines.iter().map(|line| path_rect(line));
    let outer_rings = shape.polygons.iter().filter_map(|rings| rings.first());
    let parts = points.chain(lines).chain(outer_rings.map(|ring| path_rect(ring)));
    let is_cut = shape.rect.x0 == -180.0 && shape.rect.x1 == 180.0;
    let mut sides = [Rect::EMPTY; 2];
    for part in parts {
        let side = usize::from(is_cut && part.center().x >= 0.0);
        sides[side] = sides[side].union(&part);
    }
    sides
        .iter()
        .filter(|side| !side.is_empty())
        .flat_map(|side| longitude_windows(side.x0, side.y0, side.x1, side.y1).to_vec())
        .collect()
}
