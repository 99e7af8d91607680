//! Conditions prepared for many records: windows for index searches, and exact tests.

use terrane_space::geometry::{GeometryError, QueryGeometry, check_valid, distance_bytes, from_geo};
use terrane_space::sphere::PreparedPoint;
use terrane_space::sphere::cap_windows;
use terrane_space::{CoordinateSystem, EXACT_COORDINATE_MAX, Point, Rect, windows};

use super::{Filter, Predicate, Query, check_origin};
use crate::condition::{BoundCondition, Implied};
use crate::record::{GeometryRef, RecordView};
use crate::schema::{GeometryColumn, Schema};
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
    condition: Option<BoundCondition>,
    predicate: Option<Predicate>,
    /// The windows for index searches.
    windows: Option<Vec<Rect>>,
    /// The windows of each condition, if a match may meet them in different places.
    each: Vec<Vec<Rect>>,
}

impl Filters {
    pub fn new(query: &Query, schema: &Schema) -> Result<Self> {
        let is_spatial = !query.filters.is_empty() || query.nearest.is_some();
        if is_spatial && schema.geometry == GeometryColumn::None {
            return Err(Error::usage("the dataset has no geometry, so its records have no place; leave the place out"));
        }
        let mut prepared = Vec::with_capacity(query.filters.len());
        let mut each = Vec::with_capacity(query.filters.len());
        for filter in &query.filters {
            let (filter, windows) = prepare(filter, schema)?;
            prepared.push(filter);
            each.push(windows);
        }
        let windows = if schema.holds_points() {
            // A point that meets several windows lies in their intersection.
            each.drain(..).reduce(|common, windows| intersections(&common, &windows))
        } else {
            let extent = |windows: &Vec<Rect>| -> (f64, f64) {
                (windows.iter().map(Rect::area).sum(), windows.iter().map(Rect::margin).sum())
            };
            let smaller = |a: &&Vec<Rect>, b: &&Vec<Rect>| {
                let ((area, margin), (other_area, other_margin)) = (extent(a), extent(b));
                area.total_cmp(&other_area).then(margin.total_cmp(&other_margin))
            };
            each.iter().min_by(smaller).cloned()
        };
        let condition = query.condition.as_ref().map(|condition| condition.bind(schema)).transpose()?;
        Ok(Self { system: schema.system, prepared, condition, predicate: query.predicate.clone(), windows, each })
    }

    /// Windows such that every match meets one of them; `None` without a spatial condition.
    pub fn windows(&self) -> Option<&[Rect]> {
        self.windows.as_deref()
    }

    /// Whether a geometry with this box may match. The box must meet one of [`Self::windows`].
    pub fn may_match(&self, rect: &Rect) -> bool {
        self.each.len() < 2 || self.each.iter().all(|windows| windows.iter().any(|window| window.intersects(rect)))
    }

    /// Whether a geometry with this box may match.
    pub fn may_match_anywhere(&self, rect: &Rect) -> bool {
        let meets_windows = |windows: &[Rect]| windows.iter().any(|window| window.intersects(rect));
        self.windows().is_none_or(meets_windows) && self.may_match(rect)
    }

    /// The facts that the condition implies about single attributes; `None` without a condition.
    pub fn implied(&self) -> Option<Implied> {
        self.condition.as_ref().map(BoundCondition::implied)
    }

    /// The condition on attributes and the key.
    pub fn condition(&self) -> Option<&BoundCondition> {
        self.condition.as_ref()
    }

    /// Whether the condition on attributes and the key is the only one.
    pub fn has_condition_alone(&self) -> bool {
        self.condition.is_some() && self.prepared.is_empty() && self.predicate.is_none()
    }

    /// Whether the conditions depend on more than the geometry.
    pub fn needs_record(&self) -> bool {
        self.condition.is_some() || self.predicate.is_some()
    }

    /// Whether every record matches.
    pub fn is_empty(&self) -> bool {
        self.prepared.is_empty() && !self.needs_record()
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
                Prepared::Within(shape) => shape.within_point(point),
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
                Prepared::Within(shape) => shape.within(bytes).map_err(damaged)?,
            };
            if !matches {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a record meets all conditions. It must be read under the schema for which they were
    /// prepared.
    pub fn matches_record(&self, key: &[u8], record: &RecordView<'_>) -> Result<bool> {
        if !self.matches_geometry(record.geometry())? {
            return Ok(false);
        }
        if let Some(condition) = &self.condition
            && !condition.matches(key, record)?
        {
            return Ok(false);
        }
        self.predicate.as_ref().map_or(Ok(true), |predicate| predicate(record))
    }
}

/// The error of a stored geometry that cannot be read.
pub(crate) fn damaged(error: GeometryError) -> Error {
    Error::damaged_record(format!("its geometry: {error}"))
}

fn prepare(filter: &Filter, schema: &Schema) -> Result<(Prepared, Vec<Rect>)> {
    let system = schema.system;
    match filter {
        Filter::Window { x0, y0, x1, y1 } => {
            let windows =
                windows(system, *x0, *y0, *x1, *y1).map_err(|error| Error::usage(error.to_string()))?.to_vec();
            // Lines and areas have no part beyond these coordinates.
            let rects = intersections(&windows, &[EXACT])
                .iter()
                .map(|w| geo_types::Rect::new((w.x0, w.y0), (w.x1, w.y1)).to_polygon())
                .collect();
            let shape = query_geometry(
                &from_geo(&geo_types::Geometry::MultiPolygon(geo_types::MultiPolygon(rects))),
                system,
                false,
            )?;
            Ok((Prepared::Window { windows: windows.clone(), shape }, windows))
        }
        Filter::Circle { x, y, radius } => {
            check_origin(schema, *x, *y)?;
            if !radius.is_finite() || *radius < 0.0 {
                return Err(Error::usage(format!("{radius} is not a radius; use a finite number of at least 0")));
            }
            let place = Point { x: *x, y: *y };
            let windows = match system {
                CoordinateSystem::LonLat => cap_windows(place, *radius).to_vec(),
                CoordinateSystem::Planar => {
                    // Wide enough to cover the rounding of distances.
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

/// All coordinates that the exact predicates can distinguish.
const EXACT: Rect = Rect::new(-EXACT_COORDINATE_MAX, -EXACT_COORDINATE_MAX, EXACT_COORDINATE_MAX, EXACT_COORDINATE_MAX);

/// The intersection of two sets of windows.
pub(crate) fn intersections(a: &[Rect], b: &[Rect]) -> Vec<Rect> {
    let mut common: Vec<Rect> = Vec::new();
    for a in a {
        for b in b.iter().filter(|b| a.intersects(b)) {
            let both = Rect { x0: a.x0.max(b.x0), y0: a.y0.max(b.y0), x1: a.x1.min(b.x1), y1: a.y1.min(b.y1) };
            // Windows at the antimeridian overlap in slivers, which would multiply.
            if !common.iter().any(|other| other.contains_rect(&both)) {
                common.retain(|other| !both.contains_rect(other));
                common.push(both);
            }
        }
    }
    common
}
