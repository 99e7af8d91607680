//! Conditions prepared for many records: windows to search the index with, and exact tests.

use terrane_space::geometry::{QueryGeometry, check_valid, distance_bytes, from_geo};
use terrane_space::sphere::PreparedPoint;
use terrane_space::sphere::cap_windows;
use terrane_space::{CoordinateSystem, Point, Rect, windows};

use super::{Filter, Predicate, Query, check_place};
use crate::record::{GeometryRef, RecordView};
use crate::{Error, Result};

enum Prepared {
    Window { windows: Vec<Rect>, shape: QueryGeometry },
    Circle { place: Point, radius: f64, prepared: PreparedPoint },
    Intersects(QueryGeometry),
    Within(QueryGeometry),
}

/// All conditions of a query.
pub(crate) struct Filters {
    system: CoordinateSystem,
    prepared: Vec<Prepared>,
    predicate: Option<Predicate>,
    windows: Option<Vec<Rect>>,
}

impl Filters {
    pub fn new(query: &Query, system: CoordinateSystem) -> Result<Self> {
        let mut prepared = Vec::with_capacity(query.filters.len());
        let mut common: Option<Vec<Rect>> = None;
        for filter in &query.filters {
            let (filter, windows) = prepare(filter, system)?;
            prepared.push(filter);
            common = Some(match common {
                None => windows,
                Some(before) => intersections(&before, &windows),
            });
        }
        Ok(Self { system, prepared, predicate: query.predicate.clone(), windows: common })
    }

    /// Windows one of which every match meets; `None` when there is no spatial condition.
    pub fn windows(&self) -> Option<&[Rect]> {
        self.windows.as_deref()
    }

    /// Whether points alone decide.
    pub fn needs_record(&self) -> bool {
        self.predicate.is_some()
    }

    /// Whether every record matches.
    pub fn is_empty(&self) -> bool {
        self.prepared.is_empty() && self.predicate.is_none()
    }

    /// Whether a point meets all spatial conditions.
    pub fn matches_point(&self, point: Point) -> Result<bool> {
        for filter in &self.prepared {
            let matches = match filter {
                Prepared::Window { windows, .. } => windows.iter().any(|window| window.contains_point(point)),
                Prepared::Circle { place, radius, prepared } => match self.system {
                    CoordinateSystem::Planar => place.planar_distance(point) <= *radius,
                    CoordinateSystem::LonLat => prepared.distance_m(point) <= *radius,
                },
                Prepared::Intersects(shape) => shape.intersects_point(point),
                Prepared::Within(shape) => shape.within_point(point).map_err(unsuited)?,
            };
            if !matches {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a geometry meets all spatial conditions.
    pub fn matches_geometry(&self, geometry: Option<GeometryRef<'_>>) -> Result<bool> {
        let bytes = match geometry {
            None => return Ok(self.prepared.is_empty()),
            Some(GeometryRef::Point(point)) => return self.matches_point(point),
            Some(GeometryRef::Wkb(bytes)) => bytes,
        };
        for filter in &self.prepared {
            let matches = match filter {
                Prepared::Window { shape, .. } | Prepared::Intersects(shape) => {
                    shape.intersects(bytes).map_err(damaged)?
                }
                Prepared::Circle { place, radius, .. } => distance_bytes(self.system, *place, bytes)
                    .map_err(damaged)?
                    .is_some_and(|distance| distance <= *radius),
                Prepared::Within(shape) => shape.within(bytes).map_err(unsuited)?,
            };
            if !matches {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a record meets all conditions.
    pub fn matches_record(&self, record: &RecordView<'_>) -> Result<bool> {
        if !self.matches_geometry(record.geometry())? {
            return Ok(false);
        }
        self.predicate.as_ref().map_or(Ok(true), |predicate| predicate(record))
    }
}

fn damaged(error: impl std::fmt::Display) -> Error {
    Error::damaged("a stored geometry", 0, error.to_string())
}

fn unsuited(error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("a geometry cannot be compared with the query's: {error}"))
}

fn prepare(filter: &Filter, system: CoordinateSystem) -> Result<(Prepared, Vec<Rect>)> {
    match filter {
        Filter::Window { x0, y0, x1, y1 } => {
            let windows =
                windows(system, *x0, *y0, *x1, *y1).map_err(|error| Error::usage(error.to_string()))?.to_vec();
            // Far beyond anything that the exact predicates can tell apart.
            let finite = |value: f64| value.clamp(-1e150, 1e150);
            let rects = windows
                .iter()
                .map(|w| geo_types::Rect::new((finite(w.x0), finite(w.y0)), (finite(w.x1), finite(w.y1))).to_polygon())
                .collect();
            let shape = query_geometry(
                &from_geo(&geo_types::Geometry::MultiPolygon(geo_types::MultiPolygon(rects))),
                system,
                false,
            )?;
            Ok((Prepared::Window { windows: windows.clone(), shape }, windows))
        }
        Filter::Circle { x, y, radius } => {
            check_place(system, *x, *y)?;
            if !radius.is_finite() || *radius < 0.0 {
                return Err(Error::usage(format!("{radius} is no radius; it has to be a number that is not negative")));
            }
            let place = Point { x: *x, y: *y };
            let windows = match system {
                CoordinateSystem::LonLat => cap_windows(place, *radius).to_vec(),
                CoordinateSystem::Planar => {
                    // Wide enough for the rounding of distances.
                    let reach = radius * (1.0 + 1e-12) + 1e-12 * (x.abs() + y.abs());
                    vec![Rect { x0: x - reach, y0: y - reach, x1: x + reach, y1: y + reach }]
                }
            };
            Ok((Prepared::Circle { place, radius: *radius, prepared: PreparedPoint::new(place) }, windows))
        }
        Filter::Intersects(wkb) => {
            let shape = query_geometry(wkb, system, true)?;
            let windows = shape.rects().to_vec();
            Ok((Prepared::Intersects(shape), windows))
        }
        Filter::Within(wkb) => {
            let shape = query_geometry(wkb, system, true)?;
            let windows = shape.rects().to_vec();
            Ok((Prepared::Within(shape), windows))
        }
    }
}

fn query_geometry(wkb: &[u8], system: CoordinateSystem, check: bool) -> Result<QueryGeometry> {
    let shape =
        QueryGeometry::new(wkb, system).map_err(|error| Error::usage(format!("the query's geometry: {error}")))?;
    if check {
        check_valid(shape.geometry())
            .map_err(|error| Error::usage(format!("the query's geometry is not valid: {error}")))?;
    }
    Ok(shape)
}

/// What is common to two sets of windows.
fn intersections(a: &[Rect], b: &[Rect]) -> Vec<Rect> {
    let mut common = Vec::new();
    for a in a {
        for b in b.iter().filter(|b| a.intersects(b)) {
            common.push(Rect { x0: a.x0.max(b.x0), y0: a.y0.max(b.y0), x1: a.x1.min(b.x1), y1: a.y1.min(b.y1) });
        }
    }
    common
}
