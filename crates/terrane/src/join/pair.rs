//! The predicate of a join, with an outer geometry that is prepared for many comparisons.

use std::cell::OnceCell;

use terrane_space::geometry::{Edges, QueryGeometry, distance_bytes, point_wkb, reach, reach_planar};
use terrane_space::sphere::{PreparedPoint, cap_windows};
use terrane_space::{CoordinateSystem, Point, Rect, check_exact_coordinates, windows};

use super::wanted::JoinOn;
use crate::query::filter::damaged;
use crate::record::GeometryRef;
use crate::{Error, Result};

/// The relation of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Met {
    /// For a join on a distance.
    pub distance: Option<f64>,
}

const MET: Option<Met> = Some(Met { distance: None });

/// A stored geometry that is not a point, prepared as far as needed.
pub(super) struct Shape {
    system: CoordinateSystem,
    wkb: Vec<u8>,
    query: OnceCell<QueryGeometry>,
    edges: OnceCell<Edges>,
}

impl Shape {
    pub fn new(system: CoordinateSystem, wkb: &[u8]) -> Self {
        Self { system, wkb: wkb.to_vec(), query: OnceCell::new(), edges: OnceCell::new() }
    }

    /// The form for predicates.
    fn query(&self) -> Result<&QueryGeometry> {
        if let Some(query) = self.query.get() {
            return Ok(query);
        }
        let query = QueryGeometry::of_stored(&self.wkb, self.system).map_err(damaged)?;
        Ok(self.query.get_or_init(|| query))
    }

    fn edges(&self) -> Result<&Edges> {
        if let Some(edges) = self.edges.get() {
            return Ok(edges);
        }
        let edges = Edges::new(&self.wkb, self.system).map_err(damaged)?;
        Ok(self.edges.get_or_init(|| edges))
    }

    /// The distance to another shape, if it is at most `distance_max`.
    fn distance_at_most(&self, other: &Self, distance_max: f64) -> Result<Option<f64>> {
        if self.query()?.intersects(&other.wkb).map_err(damaged)? {
            return Ok(Some(0.0));
        }
        Ok(self.edges()?.distance_at_most(other.edges()?, distance_max))
    }
}

/// The geometry of one record.
pub(super) enum Place {
    Point(Point, PreparedPoint),
    Shape(Box<Shape>),
}

impl Place {
    pub fn of_point(point: Point) -> Self {
        Self::Point(point, PreparedPoint::new(point))
    }

    pub fn new(system: CoordinateSystem, geometry: GeometryRef<'_>) -> Self {
        match geometry {
            GeometryRef::Point(point) => Self::of_point(point),
            GeometryRef::Wkb(wkb) => Self::Shape(Box::new(Shape::new(system, wkb))),
        }
    }

    /// Approximate memory in bytes when all of it is prepared.
    pub fn memory_used(&self) -> usize {
        /// Per byte of a geometry, in the trees over its edges.
        const PREPARED_BYTES: usize = 16;
        size_of::<Self>()
            + match self {
                Self::Point(..) => 0,
                Self::Shape(shape) => size_of::<Shape>() + PREPARED_BYTES * shape.wkb.len(),
            }
    }
}

/// The predicate of pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predicate {
    pub on: JoinOn,
    pub system: CoordinateSystem,
}

impl Predicate {
    /// Refuses a distance that no pair can have.
    pub fn check(&self) -> Result<()> {
        match self.on {
            JoinOn::WithinDistance(distance) if !distance.is_finite() || distance < 0.0 => {
                Err(Error::usage(format!("{distance} is not a distance for a join; use a finite number of at least 0")))
            }
            _ => Ok(()),
        }
    }

    /// Windows such that the box of every matching inner geometry meets one of them.
    pub fn windows(&self, outer: &Place) -> Result<Vec<Rect>> {
        match (outer, self.on) {
            (Place::Point(point, _), JoinOn::WithinDistance(distance)) => Ok(match self.system {
                CoordinateSystem::LonLat => cap_windows(*point, distance).to_vec(),
                CoordinateSystem::Planar => vec![reach_planar(&Rect::from_point(*point), distance)],
            }),
            (Place::Point(point, _), _) => {
                let window = windows(self.system, point.x, point.y, point.x, point.y);
                Ok(window.map_err(|error| Error::damaged_record(format!("its geometry: {error}")))?.to_vec())
            }
            (Place::Shape(shape), JoinOn::WithinDistance(distance)) => {
                reach(&shape.wkb, self.system, distance).map_err(damaged)
            }
            (Place::Shape(shape), _) => Ok(shape.query()?.rects().to_vec()),
        }
    }

    /// Whether an outer geometry and an inner point are a pair.
    pub fn meets_point(&self, outer: &Place, inner: Point) -> Result<Option<Met>> {
        match (outer, self.on) {
            (Place::Point(point, prepared), JoinOn::WithinDistance(distance_max)) => {
                let distance = match self.system {
                    CoordinateSystem::Planar => point.planar_distance(inner),
                    CoordinateSystem::LonLat => prepared.distance_m(inner),
                };
                Ok(near(distance, distance_max))
            }
            (Place::Point(point, _), _) => Ok(met(self.is_same(*point, inner))),
            (Place::Shape(shape), JoinOn::WithinDistance(distance_max)) => {
                self.distance_of_point(inner, shape, distance_max)
            }
            (Place::Shape(shape), JoinOn::Intersects) => Ok(met(shape.query()?.intersects_point(inner))),
            (Place::Shape(shape), JoinOn::Within) => Ok(met(shape.query()?.within_point(inner))),
            (Place::Shape(shape), JoinOn::Contains) => match self.point_query(inner)? {
                Some(point) => Ok(met(point.within(&shape.wkb).map_err(damaged)?)),
                None => Ok(None),
            },
        }
    }

    /// Whether two geometries are a pair.
    pub fn meets(&self, outer: &Place, inner: &Place) -> Result<Option<Met>> {
        let inner = match inner {
            Place::Point(point, _) => return self.meets_point(outer, *point),
            Place::Shape(shape) => shape,
        };
        match (outer, self.on) {
            (Place::Point(point, _), JoinOn::WithinDistance(distance_max)) => {
                self.distance_of_point(*point, inner, distance_max)
            }
            (Place::Point(point, _), JoinOn::Intersects) => Ok(met(inner.query()?.intersects_point(*point))),
            (Place::Point(point, _), JoinOn::Contains) => Ok(met(inner.query()?.within_point(*point))),
            (Place::Point(point, _), JoinOn::Within) => match self.point_query(*point)? {
                Some(point) => Ok(met(point.within(&inner.wkb).map_err(damaged)?)),
                None => Ok(None),
            },
            (Place::Shape(outer), JoinOn::WithinDistance(distance_max)) => {
                let distance = outer.distance_at_most(inner, distance_max)?;
                Ok(distance.map(|distance| Met { distance: Some(distance) }))
            }
            (Place::Shape(outer), JoinOn::Intersects) => {
                Ok(met(outer.query()?.intersects(&inner.wkb).map_err(damaged)?))
            }
            (Place::Shape(outer), JoinOn::Within) => Ok(met(outer.query()?.within(&inner.wkb).map_err(damaged)?)),
            (Place::Shape(outer), JoinOn::Contains) => Ok(met(inner.query()?.within(&outer.wkb).map_err(damaged)?)),
        }
    }

    fn distance_of_point(&self, point: Point, shape: &Shape, distance_max: f64) -> Result<Option<Met>> {
        let distance = distance_bytes(self.system, point, &shape.wkb).map_err(damaged)?;
        Ok(distance.and_then(|distance| near(distance, distance_max)))
    }

    /// Whether two points are the same place.
    fn is_same(&self, a: Point, b: Point) -> bool {
        let is_antimeridian = self.system == CoordinateSystem::LonLat && a.x.abs() == 180.0;
        a == b || is_antimeridian && a.x == -b.x && a.y == b.y
    }

    /// A point as a geometry that may contain others; `None` if it lies beyond all valid
    /// coordinates.
    fn point_query(&self, point: Point) -> Result<Option<QueryGeometry>> {
        if check_exact_coordinates(self.system, point.x, point.y).is_err() {
            return Ok(None);
        }
        QueryGeometry::new(&point_wkb(point), self.system).map(Some).map_err(damaged)
    }
}

fn met(is_met: bool) -> Option<Met> {
    if is_met { MET } else { None }
}

fn near(distance: f64, distance_max: f64) -> Option<Met> {
    (distance <= distance_max).then_some(Met { distance: Some(distance) })
}
