//! The distance from a point to a longitude/latitude box, and a lower bound of that between two
//! boxes.

use super::EARTH_RADIUS_M;
use super::angle::{longitude_difference, sin_cos_latitude};
use super::distance::{PreparedPoint, chord_squared_from_distance_m};
use crate::{Point, Rect};

/// Reduction of a distance to a box in metres, in addition to 14 digits. If a side is nearest
/// between its ends, its latitude is rounded, and the distance with it.
pub const RECT_SLACK_M: f64 = 1e-9;

/// A lower bound of the great-circle distance in metres from `point` to the nearest point of the
/// box `rect`, tight to a nanometre and 14 digits. The box is bounded by meridians and parallels
/// (`x0 <= x1`). Infinite for an empty box.
pub fn distance_to_rect_m(point: Point, rect: Rect) -> f64 {
    if rect.is_empty() {
        return f64::INFINITY;
    }
    let nearest_m = if spans_meridian(&rect, point.x) {
        let off_latitude = (rect.y0 - point.y).max(point.y - rect.y1).max(0.0);
        off_latitude.to_radians() * EARTH_RADIUS_M
    } else {
        // At a given latitude the distance grows with the difference in longitude, so the nearest
        // point is on the nearer of the two sides.
        let west = longitude_difference(point.x, rect.x0);
        let east = longitude_difference(point.x, rect.x1);
        let side = if west <= east { rect.x0 } else { rect.x1 };
        distance_to_meridian_m(point, side, west.min(east), rect.y0, rect.y1)
    };
    // Below every distance that `distance_m` computes for a point of the box.
    (nearest_m * (1.0 - 1e-14) - RECT_SLACK_M).max(0.0)
}

/// A lower bound of the great-circle distance in metres between the points of two boxes (`x0 <= x1`
/// in each); infinite if one is empty.
pub fn distance_between_rects_m(a: &Rect, b: &Rect) -> f64 {
    if a.is_empty() || b.is_empty() {
        return f64::INFINITY;
    }
    let off_latitude = (a.y0 - b.y1).max(b.y0 - a.y1).max(0.0);
    let is_apart = a.x1 < b.x0 || b.x1 < a.x0;
    let off_longitude = if is_apart { wrapped_gap(a, b).min(90.0) } else { 0.0 };
    // From a latitude, the nearest point of a meridian lies on the circle that meets it at a right
    // angle. The distance shrinks towards the poles. The box that stays farther from them gives the
    // better bound.
    let highest = |rect: &Rect| rect.y0.abs().max(rect.y1.abs());
    let cos_latitude = sin_cos_latitude(highest(a).min(highest(b))).1;
    let beside = (off_longitude.to_radians().sin() * cos_latitude).min(1.0).asin();
    let nearest_m = off_latitude.to_radians().max(beside) * EARTH_RADIUS_M;
    (nearest_m * (1.0 - 1e-12) - 1e-6).max(0.0)
}

/// The degrees of longitude between two boxes that do not overlap in longitude, the shorter way
/// round.
fn wrapped_gap(a: &Rect, b: &Rect) -> f64 {
    let (first, second) = if a.x1 < b.x0 { (a, b) } else { (b, a) };
    (second.x0 - first.x1).min(first.x0 + 360.0 - second.x1).max(0.0)
}

/// A lower bound of the squared chords of the unit sphere from `point` to the points of `rect`.
///
/// At most 2 [`RECT_SLACK_M`] / [`EARTH_RADIUS_M`] and 11 digits below the least of them, as the
/// square of a chord grows with its angle t by 2 sin t.
pub fn chord_squared_to_rect(point: Point, rect: Rect) -> f64 {
    // The conversion may round up by a little.
    chord_squared_from_distance_m(distance_to_rect_m(point, rect)) * (1.0 - 1e-12)
}

fn spans_meridian(rect: &Rect, longitude: f64) -> bool {
    let spans = |x: f64| rect.x0 <= x && x <= rect.x1;
    spans(longitude) || spans(longitude - 360.0) || spans(longitude + 360.0)
}

/// Distance to the piece from `y0` to `y1` of the meridian `side`, which is `difference` degrees
/// away.
fn distance_to_meridian_m(point: Point, side: f64, difference: f64, y0: f64, y1: f64) -> f64 {
    let from = PreparedPoint::new(point);
    let to = |latitude: f64| from.distance_m(Point::new(side, latitude));
    let ends_m = to(y0).min(to(y1));
    // The cosine of the distance is a sinusoid in the latitude. Its peak is where the perpendicular
    // from the point meets the meridian's great circle. If the peak lies beyond a pole, an end is
    // nearest.
    let (sin_latitude, cos_latitude) = sin_cos_latitude(point.y);
    let towards = cos_latitude * difference.to_radians().cos();
    let peak = sin_latitude.atan2(towards).to_degrees();
    if y0 < peak && peak < y1 { ends_m.min(to(peak)) } else { ends_m }
}
