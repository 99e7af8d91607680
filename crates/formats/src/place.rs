//! Positions on the globe. Those slightly outside of the range are moved to its bound, and those
//! outside by whole turns are turned back.

use std::sync::atomic::{AtomicU64, Ordering};

use terrane_space::geometry::{as_flat_point, cut_at_antimeridian, point_wkb, replace_positions, summarise};
use terrane_space::{CoordinateSystem, Point};

/// How far beyond the range a coordinate may lie to be moved onto its bound: 0.1 mm on the ground.
const CLAMP_DEGREES: f64 = 1e-9;
/// Longitudes further off are errors, not another way of counting.
const WRAPPED_DEGREES_MAX: f64 = 540.0;

/// Changes to the positions of a file.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    clamped: AtomicU64,
    further: AtomicU64,
}

impl Notes {
    /// A geometry has lost ordinates beyond the third.
    pub(crate) fn note_further(&self) {
        self.further.fetch_add(1, Ordering::Relaxed);
    }

    /// One message for each kind of change.
    pub(crate) fn messages(&self) -> Vec<String> {
        let clamped = self.clamped.load(Ordering::Relaxed);
        let further = self.further.load(Ordering::Relaxed);
        let clamped = (clamped > 0).then(|| {
            format!("{clamped} coordinate(s) up to {CLAMP_DEGREES:e} degrees out of range were moved onto its bound")
        });
        let further = (further > 0).then(|| {
            format!("{further} geometry(ies) have positions of more than three numbers; only the first three are kept")
        });
        clamped.into_iter().chain(further).collect()
    }

    fn clamp(&self, value: f64, bound: f64) -> f64 {
        let beyond = value.abs() - bound;
        if beyond > 0.0 && beyond <= CLAMP_DEGREES {
            self.clamped.fetch_add(1, Ordering::Relaxed);
            return bound.copysign(value);
        }
        value
    }

    fn clamp_point(&self, point: Point) -> Point {
        Point::new(self.clamp(point.x, 180.0), self.clamp(point.y, 90.0))
    }
}

/// A position of longitude and latitude. With `wraps`, longitudes may be counted from 0 to 360.
pub(crate) fn fit_point(point: Point, wraps: bool, notes: &Notes) -> Point {
    if is_in_range(point) {
        return point;
    }
    let mut point = notes.clamp_point(point);
    if wraps && point.x.abs() > 180.0 && point.x.abs() <= WRAPPED_DEGREES_MAX {
        let turned = point.x.rem_euclid(360.0);
        point.x = if turned > 180.0 { turned - 360.0 } else { turned };
    }
    point
}

/// The same for a stored geometry. One that crosses 180 degrees is cut there.
///
/// # Errors
/// When a polygon cannot be cut.
pub(crate) fn fit_geometry(wkb: Vec<u8>, wraps: bool, notes: &Notes) -> Result<Vec<u8>, String> {
    if let Some(point) = as_flat_point(&wkb) {
        let fitted = fit_point(point, wraps, notes);
        return Ok(if fitted == point { wkb } else { point_wkb(fitted).to_vec() });
    }
    // The store refuses bytes that are no geometry, with the reason.
    let Ok(summary) = summarise(&wkb, CoordinateSystem::Planar) else {
        return Ok(wkb);
    };
    let reach = summary.planar_rect;
    let [low, high] = [Point::new(reach.x0, reach.y0), Point::new(reach.x1, reach.y1)];
    if summary.is_empty || is_in_range(low) && is_in_range(high) {
        return Ok(wkb);
    }
    // Single points are turned back one by one; paths and polygons are cut as a whole.
    let wkb = replace_positions(&wkb, &mut |place, point| {
        Ok(fit_point(point, wraps && place.is_first && place.is_last, notes))
    })?;
    let is_beyond = |x: f64| x.abs() > 180.0 + CLAMP_DEGREES;
    let is_counted_otherwise = [low.x, high.x].iter().all(|x| x.abs() <= WRAPPED_DEGREES_MAX);
    if wraps && is_counted_otherwise && (is_beyond(low.x) || is_beyond(high.x)) {
        return cut_at_antimeridian(&wkb).map_err(|error| error.to_string());
    }
    Ok(wkb)
}

fn is_in_range(point: Point) -> bool {
    (-180.0..=180.0).contains(&point.x) && (-90.0..=90.0).contains(&point.y)
}
