//! A geometry prepared for one query, to be compared with many stored ones.
//!
//! Boxes reject first. `intersects` is decided from exact orientations alone,
//! without a topology graph, so it has an answer for every stored geometry.
//! `within` builds a graph only for candidates that touch the boundary.

use geo_types::Geometry;

use super::convert::to_geo;
use super::edges::EdgeTree;
use super::error::GeometryError;
use super::lines::Lines;
use super::point::as_point;
use super::predicate::{PredicateError, relate};
use super::segment::{Contact, Location, edges, locate_in_rings};
use super::shape::Shape;
use super::summary::summarise;
use super::wkb::normalise;
use crate::system::longitude_windows;
use crate::{CoordinateSystem, Point, Rect};

/// A query geometry. Comparing needs a shared reference only; it can be used
/// by any number of threads.
///
/// It must be valid ([`check_valid`](super::check_valid)): of areas that cover
/// a place twice, one or none may be seen.
#[derive(Clone, Debug)]
pub struct QueryGeometry {
    system: CoordinateSystem,
    rect: Rect,
    rects: Vec<Rect>,
    points: Vec<Point>,
    lines: Lines,
    areas: Vec<Area>,
    /// Whether it is one area and nothing else.
    is_area: bool,
    geometry: Geometry<f64>,
}

#[derive(Clone, Debug)]
struct Area {
    tree: EdgeTree,
    ring_starts: Vec<Point>,
}

impl Area {
    fn new<'a>(rings: impl Iterator<Item = &'a Vec<Point>> + Clone) -> Self {
        Self {
            tree: EdgeTree::new(rings.clone().flat_map(|ring| edges(ring)).collect()),
            ring_starts: rings.filter_map(|ring| ring.first().copied()).collect(),
        }
    }
}

/// What is known of a part's place in an area without relating topologies.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Inside,
    NotWithin,
    OnBoundary,
}

impl QueryGeometry {
    /// Prepares the geometry in well-known binary `bytes`.
    ///
    /// # Errors
    /// Bytes that are not a geometry, positions that `system` does not allow.
    pub fn new(bytes: &[u8], system: CoordinateSystem) -> Result<Self, GeometryError> {
        let bytes = normalise(bytes)?;
        summarise(&bytes, system)?;
        let geometry = to_geo(&bytes)?;
        let shape = Shape::decode(&bytes)?;
        let is_collection = matches!(geometry, Geometry::GeometryCollection(_));
        let areas: Vec<Area> = if shape.polygons.is_empty() {
            Vec::new()
        } else if is_collection {
            shape.polygons.iter().map(|polygon| Area::new(polygon.iter())).collect()
        } else {
            // The parts of a valid multi-polygon are disjoint: one even-odd area.
            vec![Area::new(shape.polygons.iter().flatten())]
        };
        Ok(Self {
            system,
            rect: shape.rect,
            rects: index_windows(&shape, system),
            is_area: areas.len() == 1 && shape.points.is_empty() && shape.lines.is_empty(),
            areas,
            lines: Lines::new(&shape.lines),
            points: shape.points,
            geometry,
        })
    }

    /// The windows to search an index with: every stored geometry that
    /// intersects has a box that meets one of them, and may meet several. None
    /// for an empty geometry.
    pub fn rects(&self) -> &[Rect] {
        &self.rects
    }

    /// The geometry, as `geo` has it.
    pub fn geometry(&self) -> &Geometry<f64> {
        &self.geometry
    }

    /// Whether the stored point `point` intersects this geometry.
    #[inline]
    pub fn intersects_point(&self, point: Point) -> bool {
        self.holds(point) || self.mirrored(point).is_some_and(|other| self.holds(other))
    }

    /// Whether the stored point `point` is within this geometry: inside of an
    /// area, on a line but not at its end, at a point.
    ///
    /// # Errors
    /// An invalid query geometry whose topology is inconsistent.
    pub fn within_point(&self, point: Point) -> Result<bool, PredicateError> {
        if self.is_within_at(point)? {
            return Ok(true);
        }
        self.mirrored(point).map_or(Ok(false), |other| self.is_within_at(other))
    }

    /// Whether the stored geometry `bytes` shares a point with this one.
    ///
    /// # Errors
    /// Bytes that are not a geometry.
    pub fn intersects(&self, bytes: &[u8]) -> Result<bool, GeometryError> {
        if let Some(point) = as_point(bytes) {
            return Ok(self.intersects_point(point));
        }
        let shape = Shape::decode(bytes)?;
        Ok(self.meets(&shape) || self.shifts(&shape.rect).any(|degrees| self.meets(&shape.shifted(degrees))))
    }

    /// Whether the stored geometry `bytes` is within this one (OGC).
    ///
    /// # Errors
    /// Bytes that are not a geometry; an invalid geometry whose topology is inconsistent.
    pub fn within(&self, bytes: &[u8]) -> Result<bool, PredicateError> {
        if let Some(point) = as_point(bytes) {
            return self.within_point(point);
        }
        let shape = Shape::decode(bytes)?;
        if self.covers_shape(&shape, bytes, 0.0)? {
            return Ok(true);
        }
        for degrees in self.shifts(&shape.rect) {
            if self.covers_shape(&shape.shifted(degrees), bytes, degrees)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The other name of a point on the antimeridian.
    #[inline]
    fn mirrored(&self, point: Point) -> Option<Point> {
        let is_on_antimeridian = self.system == CoordinateSystem::LonLat && point.x.abs() == 180.0;
        is_on_antimeridian.then(|| Point::new(-point.x, point.y))
    }

    /// By how many degrees to shift a stored geometry that meets this one
    /// only across the antimeridian.
    fn shifts(&self, rect: &Rect) -> impl Iterator<Item = f64> + use<> {
        let is_lonlat = self.system == CoordinateSystem::LonLat;
        let west = is_lonlat && rect.x1 == 180.0 && self.rect.x0 == -180.0;
        let east = is_lonlat && rect.x0 == -180.0 && self.rect.x1 == 180.0;
        west.then_some(-360.0).into_iter().chain(east.then_some(360.0))
    }

    fn holds(&self, point: Point) -> bool {
        self.rect.contains_point(point)
            && (self.areas.iter().any(|area| area.tree.locate(point) != Location::Outside)
                || self.lines.tree.holds(point)
                || self.points.contains(&point))
    }

    fn is_within_at(&self, point: Point) -> Result<bool, PredicateError> {
        if !self.holds(point) {
            return Ok(false);
        }
        match self.areas.first() {
            Some(area) if self.is_area => Ok(area.tree.locate(point) == Location::Inside),
            None if self.lines.is_empty() => Ok(true),
            None if self.points.is_empty() => Ok(!self.lines.is_boundary(point)),
            _ => {
                let stored = Geometry::Point(geo_types::Point::new(point.x, point.y));
                Ok(relate(&stored, &self.geometry)?.is_within())
            }
        }
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
            .is_some_and(|start| self.areas.iter().any(|area| area.tree.locate(*start) != Location::Outside));
        starts_inside
            || edges(path).filter(|edge| edge.rect().intersects(&self.rect)).any(|edge| {
                self.areas.iter().any(|area| area.tree.meets(&edge))
                    || self.lines.tree.meets(&edge)
                    || self.points.iter().any(|point| edge.contains(*point))
            })
    }

    /// If no edges meet, each part of this geometry is either outside of the
    /// polygon or inside with all its points; one of them tells.
    fn meets_polygon(&self, rings: &[Vec<Point>]) -> bool {
        rings.iter().any(|ring| self.meets_path(ring)) || {
            let rect = path_rect(rings.first().map_or(&[], Vec::as_slice));
            let ring_starts = self.areas.iter().flat_map(|area| &area.ring_starts);
            let mut starts = self.points.iter().chain(&self.lines.starts).chain(ring_starts);
            starts.any(|start| rect.contains_point(*start) && locate_in_rings(rings, *start) != Location::Outside)
        }
    }

    /// Whether `shape` is within this geometry; `bytes` hold it unshifted.
    fn covers_shape(&self, shape: &Shape, bytes: &[u8], shift_degrees: f64) -> Result<bool, PredicateError> {
        if shape.is_empty() || !self.rect.contains_rect(&shape.rect) {
            return Ok(false);
        }
        if let Some(area) = self.areas.first().filter(|_| self.is_area) {
            match area.place(shape) {
                Place::Inside => return Ok(true),
                Place::NotWithin => return Ok(false),
                Place::OnBoundary => {}
            }
        }
        if self.areas.is_empty() && self.points.is_empty() {
            return Ok(self.lines_cover(shape));
        }
        let mut stored = to_geo(bytes)?;
        if shift_degrees != 0.0 {
            use geo::MapCoordsInPlace;
            stored.map_coords_in_place(|coord| geo_types::Coord { x: coord.x + shift_degrees, y: coord.y });
        }
        Ok(relate(&stored, &self.geometry)?.is_within())
    }
}

impl QueryGeometry {
    /// Whether `shape` is within this geometry, which has nothing but lines.
    fn lines_cover(&self, shape: &Shape) -> bool {
        let is_interior = |point: &Point| !self.lines.is_boundary(*point);
        shape.polygons.is_empty()
            && shape.points.iter().all(|point| self.lines.tree.holds(*point))
            && shape.lines.iter().all(|line| self.lines.cover_path(line))
            && (!shape.lines.is_empty() || shape.points.iter().any(is_interior))
    }
}

impl Area {
    /// The place of a whole shape: as soon as one part is not within, none is.
    fn place(&self, shape: &Shape) -> Place {
        let mut all_inside = true;
        let mut any_point_inside = false;
        for point in &shape.points {
            match self.tree.locate(*point) {
                Location::Outside => return Place::NotWithin,
                Location::Inside => any_point_inside = true,
                Location::Boundary => all_inside = false,
            }
        }
        if shape.lines.is_empty() && shape.polygons.is_empty() {
            return if any_point_inside { Place::Inside } else { Place::NotWithin };
        }
        let lines = shape.lines.iter().map(|line| self.place_of_path(line));
        let polygons = shape.polygons.iter().map(|rings| self.place_of_polygon(rings));
        for place in lines.chain(polygons) {
            match place {
                Place::NotWithin => return Place::NotWithin,
                Place::OnBoundary => all_inside = false,
                Place::Inside => {}
            }
        }
        if all_inside { Place::Inside } else { Place::OnBoundary }
    }

    fn place_of_path(&self, path: &[Point]) -> Place {
        if path.first().is_some_and(|start| self.tree.locate(*start) == Location::Outside) {
            return Place::NotWithin;
        }
        let mut closest = Contact::None;
        for edge in edges(path) {
            closest = closest.max(self.tree.contact(&edge));
            if closest == Contact::Cross {
                return Place::NotWithin;
            }
        }
        match closest {
            Contact::None => Place::Inside,
            _ if path.iter().any(|point| self.tree.locate(*point) == Location::Outside) => Place::NotWithin,
            _ => Place::OnBoundary,
        }
    }

    fn place_of_polygon(&self, rings: &[Vec<Point>]) -> Place {
        let mut place = Place::Inside;
        for ring in rings {
            match self.place_of_path(ring) {
                Place::NotWithin => return Place::NotWithin,
                Place::OnBoundary => place = Place::OnBoundary,
                Place::Inside => {}
            }
        }
        // A hole of this area that lies inside of the polygon.
        let rect = path_rect(rings.first().map_or(&[], Vec::as_slice));
        let has_hole = self
            .ring_starts
            .iter()
            .any(|start| rect.contains_point(*start) && locate_in_rings(rings, *start) == Location::Inside);
        if has_hole { Place::NotWithin } else { place }
    }
}

fn path_rect(path: &[Point]) -> Rect {
    path.iter().fold(Rect::EMPTY, |rect, point| rect.union(&Rect::from_point(*point)))
}

/// Boxes of the parts: one, or in `lonlat` one for each side of a geometry
/// that was cut at the antimeridian, with slivers at its other name.
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
